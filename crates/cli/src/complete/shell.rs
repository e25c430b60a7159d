//! What shells need: a script that asks, the words that were typed, and how to say what may follow.

use std::{
    ffi::{OsStr, OsString},
    io::Write,
    iter::Peekable,
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use clap_complete::engine::CompletionCandidate;

/// A shell that asks the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shell {
    /// GNU bash.
    Bash,
    /// zsh.
    Zsh,
    /// fish.
    Fish,
}

impl Shell {
    /// Returns a shell by its name.
    pub(crate) fn named(name: &OsStr) -> Option<Self> {
        match name.to_str()? {
            "bash" => Some(Self::Bash),
            "zsh" => Some(Self::Zsh),
            "fish" => Some(Self::Fish),
            _ => None,
        }
    }

    /// Returns the script that makes the shell ask.
    pub(crate) const fn script(self) -> &'static str {
        match self {
            Self::Bash => include_str!("nfsw.bash"),
            Self::Zsh => include_str!("nfsw.zsh"),
            Self::Fish => include_str!("nfsw.fish"),
        }
    }

    /// Returns the words up to the cursor; the last one is the one that is completed. `None` if that cannot be said.
    pub(super) fn words(self, words: Vec<OsString>) -> Option<Vec<OsString>> {
        match self {
            // bash splits words at colons: it hands over the line instead.
            Self::Bash => {
                let line = words.into_iter().next()?;
                Some(Line::read(line.as_bytes()).words.into_iter().map(OsString::from_vec).collect())
            }
            Self::Zsh | Self::Fish => Some(words),
        }
    }

    /// Says what may follow.
    pub(super) fn print(self, found: &[CompletionCandidate]) {
        let mut out = Vec::new();
        for candidate in found {
            let value = candidate.get_value().as_bytes();
            if !is_printable(value) {
                continue;
            }
            match self {
                Self::Bash => match for_bash(value) {
                    Some(value) => out.extend_from_slice(&value),
                    None => continue,
                },
                Self::Zsh | Self::Fish => {
                    out.extend_from_slice(value);
                    let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
                    if let Some(line) = help.lines().next() {
                        out.extend_from_slice(format!("\t{line}").as_bytes());
                    }
                }
            }
            out.push(b'\n');
        }
        let _ = std::io::stdout().write_all(&out);
    }
}

/// Whether a shell can insert a name, and a terminal show it, as it is: without control characters, those of ISO 6429's C1 included.
pub(crate) fn is_printable(name: &[u8]) -> bool {
    let is_c1 = name.windows(2).any(|pair| pair[0] == 0xC2 && (0x80..0xA0).contains(&pair[1]));
    !is_c1 && !name.iter().any(u8::is_ascii_control)
}

/// Returns what bash is to put in place of the end of the line that it takes for the word; `None` where the name cannot be written there
/// without meaning something else.
fn for_bash(value: &[u8]) -> Option<Vec<u8>> {
    let line = std::env::args_os().nth(2)?;
    let replaced = std::env::args_os().nth(3)?;
    rest_for_bash(line.as_bytes().strip_suffix(replaced.as_bytes())?, value)
}

/// What is replaced follows an open quote, a colon, an equals sign or whatever else bash splits words at. bash inserts what it gets as it
/// is, so it is quoted here for where it goes, behind the `line`.
///
/// bash does not show the line around the command, which may be within backquotes, and these within double quotes: there a backslash is
/// taken away from a backquote, `$`, `"` or another backslash once more. So these are never written behind one.
pub(crate) fn rest_for_bash(line: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    let Line { words, quote } = Line::read(line);
    let rest = value.strip_prefix(&words.last()?[..])?;
    let mut out = Vec::with_capacity(rest.len());
    // History is expanded within double quotes, and so it is where single quotes are within them.
    let (mark, special) = match quote {
        Quote::None => (None, &b"`\\\"$"[..]),
        Quote::Single => (Some(b'\''), &b"'`!"[..]),
        Quote::Double => (Some(b'"'), &b"\"\\$`!"[..]),
        Quote::Ansi => return None,
    };
    for &byte in rest {
        if special.contains(&byte) {
            out.extend(mark);
            out.extend_from_slice(format!("$'\\{byte:03o}'").as_bytes());
            out.extend(mark);
            continue;
        }
        let is_plain = byte.is_ascii_alphanumeric() || byte >= 0x80 || b"/._-:=@%+,".contains(&byte);
        if mark.is_none() && !is_plain {
            out.push(b'\\');
        }
        out.push(byte);
    }
    if let Some(mark) = mark {
        // bash takes a quote at the beginning for the one that is there.
        if line.ends_with(&[mark]) && out.first() == Some(&mark) {
            return None;
        }
        // It takes one at the end for the one that closes the word.
        if rest.last().is_some_and(|last| special.contains(last)) {
            out.push(mark);
        }
    }
    Some(out)
}

/// What quotes the end of a line is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Quote {
    #[default]
    None,
    Single,
    Double,
    /// `$'`
    Ansi,
}

/// A line up to the cursor, as bash reads it.
#[derive(Debug, Default)]
pub(crate) struct Line {
    pub(crate) words: Vec<Vec<u8>>,
    /// What the last word is within.
    pub(crate) quote: Quote,
}

impl Line {
    pub(crate) fn read(line: &[u8]) -> Self {
        let (mut words, mut word, mut is_word) = (Vec::new(), Vec::new(), false);
        let mut quote = Quote::None;
        let mut bytes = line.iter().copied().peekable();
        while let Some(byte) = bytes.next() {
            match (quote, byte) {
                (Quote::None, b' ' | b'\t') => {
                    if is_word {
                        words.push(std::mem::take(&mut word));
                    }
                    is_word = false;
                    continue;
                }
                (Quote::None, b'$') if bytes.next_if_eq(&b'\'').is_some() => quote = Quote::Ansi,
                // `$"` is a double quote around what may be translated.
                (Quote::None, b'$') if bytes.peek() == Some(&b'"') => {}
                (Quote::None, b'\'') => quote = Quote::Single,
                (Quote::None, b'"') => quote = Quote::Double,
                (Quote::Single | Quote::Ansi, b'\'') | (Quote::Double, b'"') => quote = Quote::None,
                (Quote::Ansi, b'\\') => word.extend(escaped(&mut bytes)),
                (Quote::None, b'\\') => word.extend(bytes.next()),
                (Quote::Double, b'\\') => {
                    word.push(bytes.next_if(|next| b"$`\"\\".contains(next)).unwrap_or(byte));
                }
                (Quote::None | Quote::Single | Quote::Double | Quote::Ansi, _) => word.push(byte),
            }
            is_word = true;
        }
        words.push(word);
        Self { words, quote }
    }
}

/// Returns the byte that follows a backslash within `$'`, or that a number there stands for. Other escapes are not written here.
fn escaped(bytes: &mut Peekable<impl Iterator<Item = u8>>) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(8);
    let Some(mut number) = digit(*bytes.peek()?) else { return bytes.next() };
    bytes.next();
    for _ in 0..2 {
        let Some(more) = bytes.peek().copied().and_then(digit) else { break };
        bytes.next();
        number = number * 8 + more;
    }
    Some(number as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        let words = Line::read(line.as_bytes()).words;
        words.into_iter().map(|word| String::from_utf8(word).unwrap()).collect()
    }

    #[test]
    fn a_line_is_split_as_bash_does() {
        assert_eq!(words("nfsw ls nas:/sr"), ["nfsw", "ls", "nas:/sr"]);
        assert_eq!(words("nfsw  ls "), ["nfsw", "ls", ""]);
        assert_eq!(words("nfsw ls 'nas:/a b"), ["nfsw", "ls", "nas:/a b"]);
        assert_eq!(words("nfsw ls nas:/a\\ b \"x'y\\\"\" ''"), ["nfsw", "ls", "nas:/a b", "x'y\"", ""]);
        assert_eq!(words(r#"a "b\xc\"" $'d\044\'e\\' f"#), ["a", r#"b\xc""#, r"d$'e\", "f"]);
        for (line, quote) in [
            ("a 'b", Quote::Single),
            ("a x'b", Quote::Single),
            ("a 'b'", Quote::None),
            ("a \"b'", Quote::Double),
            ("a \"b\\\"", Quote::Double),
            ("a $'b", Quote::Ansi),
            ("a $'b\\'", Quote::Ansi),
            ("a $'b'", Quote::None),
            ("a $\"b", Quote::Double),
            ("a \"$'b", Quote::Double),
        ] {
            assert_eq!(Line::read(line.as_bytes()).quote, quote, "{line}");
        }
    }

    fn rest(line: &str, value: &str) -> Option<String> {
        Some(String::from_utf8(rest_for_bash(line.as_bytes(), value.as_bytes())?).unwrap())
    }

    #[test]
    fn bash_gets_what_follows_what_it_keeps() {
        for (line, wanted) in [
            ("nfsw ls nas:", "/srv\\ x/"),
            ("nfsw ls ", "nas:/srv\\ x/"),
            ("nfsw ls 'nas:", "/srv x/"),
            ("nfsw ls '", "nas:/srv x/"),
            ("nfsw ls nas:/'", "srv x/"),
            ("nfsw ls nas:\"", "/srv x/"),
            ("nfsw ls \"nas\":", "/srv\\ x/"),
        ] {
            assert_eq!(rest(line, "nas:/srv x/").as_deref(), Some(wanted), "{line}");
        }
        assert_eq!(rest("nfsw ls other:", "nas:/srv"), None);
    }

    #[test]
    fn bash_gets_names_quoted_for_where_they_go() {
        for (line, name, wanted) in [
            ("nfsw ls h:/", "$(x);'!~{a,b}*", Some(r"$'\044'\(x\)\;\'\!\~\{a,b\}\*")),
            ("nfsw ls h:/", "`\\>\"", Some(r"$'\140'$'\134'\>$'\042'")),
            ("nfsw ls 'h:/", "a$(x);\"\\", Some(r#"a$(x);"\"#)),
            ("nfsw ls 'h:/", "a';x;'b", Some(r"a'$'\047'';x;'$'\047''b")),
            ("nfsw ls 'h:/", "x'", Some(r"x'$'\047'''")),
            ("nfsw ls 'h:/x", "`y!", Some(r"'$'\140''y'$'\041'''")),
            ("nfsw ls h:/'", "`x", None),
            ("nfsw ls \"h:/", "a\";x;\"b", Some(r#"a"$'\042'";x;"$'\042'"b"#)),
            ("nfsw ls \"h:/", "a'b c*\\", Some(r#"a'b c*"$'\134'"""#)),
            ("nfsw ls \"h:/", "$(x)", Some(r#""$'\044'"(x)"#)),
            ("nfsw ls h:/\"", "$(x)", None),
            ("nfsw ls \"h:/", "`x!y", Some(r#""$'\140'"x"$'\041'"y"#)),
            ("nfsw ls $'h:/", "a", None),
        ] {
            let found = rest(line, &format!("h:/{}{name}", if line.ends_with('x') { "x" } else { "" }));
            assert_eq!(found.as_deref(), wanted, "{line} {name}");
        }
    }

    #[test]
    fn names_with_control_characters_are_not_offered() {
        for name in ["a\nb", "a\x1b[2Jb", "a\tb", "a\rb", "a\x7f", "a\u{9b}2J"] {
            assert!(!is_printable(name.as_bytes()), "{name:?}");
        }
        assert!(is_printable("é ü 日本 \u{a0}".as_bytes()) && is_printable(b"\xff\xc2"));
    }
}
