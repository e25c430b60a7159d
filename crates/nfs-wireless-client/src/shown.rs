//! Names in messages.

/// Returns a name that a server chose as text that no terminal obeys: control characters, and those that change the direction of what is
/// around them, are escaped.
pub(crate) fn shown(name: &[u8]) -> String {
    let mut shown = String::with_capacity(name.len());
    for character in String::from_utf8_lossy(name).chars() {
        let changes_direction = matches!(
            character,
            '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        );
        if character.is_control() || changes_direction {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_terminal_obeys_a_name() {
        assert_eq!(
            shown("a\u{1b}]0;evil\u{7}\n\u{9b}31m\u{202e}gpj\\ Größe".as_bytes()),
            "a\\u{1b}]0;evil\\u{7}\\n\\u{9b}31m\\u{202e}gpj\\ Größe"
        );
        assert_eq!(shown(b"/srv/\xff"), "/srv/\u{fffd}");
    }
}
