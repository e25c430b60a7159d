//! Numbers of tables.

/// A number with this many decimals, or a dash if there is none.
pub(super) fn decimals(number: f64, digits: usize) -> String {
    if number.is_finite() { format!("{number:.digits$}") } else { "–".to_owned() }
}

/// A share with its sign, or a dash if there is none.
pub(super) fn percent(number: f64, digits: usize) -> String {
    if number.is_finite() { format!("{number:+.digits$} %") } else { "–".to_owned() }
}
