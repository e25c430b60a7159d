//! Names that somebody else chose as text: safe on a terminal and in a shell.

use std::{borrow::Cow, fmt::Write as _};

/// Makes bytes that somebody else chose safe to show: control characters, text-direction marks, bytes that are
/// not UTF-8 and the backslash become backslash escapes.
pub fn escape(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = str::from_utf8(bytes)
        && !text.chars().any(needs_escape)
    {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\r' => out.push_str("\\r"),
                _ if needs_escape(character) => {
                    let _ = write!(out, "\\u{{{:x}}}", u32::from(character));
                }
                _ => out.push(character),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    Cow::Owned(out)
}

/// Writes bytes so that a POSIX shell reads them back as one word.
pub fn shell_quote(bytes: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-:=@%+,~?&[]".contains(byte);
    let text = String::from_utf8_lossy(bytes);
    let tame = b"?&[]~";
    if !bytes.is_empty() && bytes.iter().all(plain) && !bytes.iter().any(|byte| tame.contains(byte)) {
        return text.into_owned();
    }
    if !text.chars().any(char::is_control) && str::from_utf8(bytes).is_ok() {
        return format!("'{}'", text.replace('\'', "'\\''"));
    }
    let mut out = String::from("$'");
    for &byte in bytes {
        match byte {
            b'\'' | b'\\' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            0x20..0x7f => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out.push('\'');
    out
}

/// Whether a terminal may obey a character, or shows the text around it in another order.
pub fn needs_escape(character: char) -> bool {
    let direction_mark = matches!(character, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    character == '\\' || character.is_control() || direction_mark
}
