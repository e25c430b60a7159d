//! The events of `--json`: one table that says what there is. docs/json.md is made of it, and every event is checked against it where debug
//! assertions are on, as in tests.

use std::fmt::Write as _;

use serde_json::Value;

/// The version of the schema. It grows when something is taken away or gets another meaning; new events and fields may come without that.
pub(crate) const VERSION: u32 = 1;

/// An event.
struct Event {
    name: &'static str,
    /// Which commands have it.
    commands: &'static str,
    meaning: &'static str,
    fields: &'static [Field],
}

/// A field of an event: name, type and meaning.
struct Field(&'static str, Type, &'static str);

/// What a field holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Text,
    /// A name: where it is not UTF-8, all its bytes follow under `NAME_bytes` in hexadecimal digits.
    Name,
    Integer,
    Number,
    Boolean,
    /// A time as in RFC 3339, to the nanosecond.
    Time,
    Object,
    List,
    /// As the first, or not there.
    MaybeText,
    MaybeName,
    MaybeInteger,
    MaybeBoolean,
    MaybeList,
    MaybeTime,
    /// An integer or null.
    IntegerOrNull,
    TextOrNull,
}

use self::Type::{
    Boolean, Integer, IntegerOrNull, List, MaybeBoolean, MaybeInteger, MaybeList, MaybeName, MaybeText,
    MaybeTime, Name, Number, Object, Text, TextOrNull, Time,
};

mod table;

use table::EVENTS;

impl Type {
    /// Returns the words for people.
    const fn words(self) -> &'static str {
        match self {
            Text => "text",
            Name => "name",
            Integer => "integer",
            Number => "number",
            Boolean => "true or false",
            Time => "time",
            Object => "object",
            List => "list",
            MaybeText => "text, may be missing",
            MaybeName => "name, may be missing",
            MaybeInteger => "integer, may be missing",
            MaybeBoolean => "true, may be missing",
            MaybeList => "list, may be missing",
            MaybeTime => "time, may be missing",
            IntegerOrNull => "integer or null",
            TextOrNull => "text or null",
        }
    }

    const fn may_be_missing(self) -> bool {
        matches!(self, MaybeText | MaybeName | MaybeInteger | MaybeBoolean | MaybeList | MaybeTime)
    }

    const fn is_name(self) -> bool {
        matches!(self, Name | MaybeName)
    }

    fn holds(self, value: &Value) -> bool {
        match self {
            Text | Name | MaybeText | MaybeName => value.is_string(),
            Time | MaybeTime => value.as_str().is_some_and(|text| text.parse::<jiff::Timestamp>().is_ok()),
            Integer | MaybeInteger => value.is_u64() || value.is_i64(),
            Number => value.is_number(),
            Boolean | MaybeBoolean => value.is_boolean(),
            Object => value.is_object(),
            List | MaybeList => value.is_array(),
            IntegerOrNull => value.is_u64() || value.is_null(),
            TextOrNull => value.is_string() || value.is_null(),
        }
    }
}

/// Checks an event against the table.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check(event: &Value) -> Result<(), String> {
    let name = event["event"].as_str().ok_or("it has no name")?;
    let known =
        EVENTS.iter().find(|known| known.name == name).ok_or_else(|| format!("{name} is not known"))?;
    let held = event.as_object().ok_or("it is no object")?;
    for Field(field, kind, _) in known.fields {
        match held.get(*field) {
            Some(value) if kind.holds(value) => {}
            None if kind.may_be_missing() => {}
            other => return Err(format!("{name}.{field} is {other:?}")),
        }
    }
    for (key, value) in held.iter().filter(|(key, _)| *key != "event") {
        let is_field = known.fields.iter().any(|Field(field, ..)| field == key);
        let bytes_of = key.strip_suffix("_bytes").unwrap_or_default();
        let is_bytes = known.fields.iter().any(|Field(field, kind, _)| *field == bytes_of && kind.is_name());
        if !(is_field || is_bytes && value.is_string()) {
            return Err(format!("{name}.{key} is not known"));
        }
    }
    Ok(())
}

/// Returns docs/json.md.
pub(crate) fn page() -> String {
    let mut page = format!(include_str!("schema/head.md"), version = VERSION);
    for Event { name, commands, meaning, fields } in EVENTS {
        let _ = write!(
            page,
            "\n### `{name}`\n\n{meaning} ({commands})\n\n| field | type | meaning |\n|---|---|---|\n"
        );
        for Field(field, kind, meaning) in *fields {
            let _ = writeln!(page, "| `{field}` | {} | {meaning} |", kind.words());
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_page_is_made_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
        if std::env::var_os("NFSW_WRITE_DOCS").is_some() {
            std::fs::write(path, page()).unwrap();
        }
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(kept == page(), "NFSW_WRITE_DOCS=1 cargo test -p nfsw --lib schema renews docs/json.md");
    }

    #[test]
    fn what_is_not_in_the_table_is_noticed() {
        let right = json!({"event": "warning", "message": "x"});
        assert_eq!(check(&right), Ok(()));
        for wrong in [
            json!({"event": "warning"}),
            json!({"event": "warning", "message": 3}),
            json!({"event": "warning", "message": "x", "more": 1}),
            json!({"event": "no_such"}),
            json!({"message": "x"}),
        ] {
            assert!(check(&wrong).is_err(), "{wrong}");
        }
        let named = json!({"event": "removed", "path": "a\u{fffd}", "path_bytes": "61ff"});
        assert_eq!(check(&named), Ok(()));
    }

    #[test]
    fn every_kind_of_error_is_explained() {
        for kind in crate::advice::words() {
            assert!(page().contains(&format!("| `{kind}` |")), "{kind}");
        }
    }
}
