//! What shells need: a script that asks, the words that were typed, and how to say what may follow.

use std::{
    ffi::{OsStr, OsString},
    io::Write,
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
    pub(super) fn print(self, word: &OsStr, found: &[CompletionCandidate]) {
        let mut out = Vec::new();
        for candidate in found {
            let value = candidate.get_value().as_bytes();
            if !is_printable(value) {
                continue;
            }
            match self {
                Self::Bash => match for_bash(word.as_bytes(), value) {
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

/// Returns what bash is to put in place of the part of the word that it takes for the word; `None` where the name cannot be written there
/// without meaning something else.
fn for_bash(word: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    let line = std::env::args_os().nth(2).unwrap_or_default();
    let breaks = std::env::args_os().nth(3).unwrap_or_default();
    rest_for_bash(&Line::read(line.as_bytes()), breaks.as_bytes(), word, value)
}

/// What bash takes for the word follows an open quote, or the last colon or equals sign outside of quotes. bash inserts what it gets as it
/// is, so it is quoted here for where it goes.
///
/// bash does not show the line around the command, which may be within backquotes: these take backslashes away from `` ` `` and `$`
/// once more. So a backquote is never written, and `$` not within double quotes.
pub(crate) fn rest_for_bash(line: &Line, breaks: &[u8], word: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    let (kept, unsafe_bytes) = match line.quote {
        Quote::None => {
            let is_break = |byte: &u8| b":=".contains(byte) && breaks.contains(byte);
            (word.iter().rposition(is_break).map_or(0, |at| at + 1), &b"`"[..])
        }
        // History is expanded within double quotes, too, and there a backslash stays in the word.
        Quote::Double { from } => (from, &b"`$!"[..]),
        Quote::Single { from } => (from, &b"`!"[..]),
        Quote::Other => return None,
    };
    let rest = value.get(kept..)?;
    // bash takes a quote at the end for the one that closes the word.
    let looks_closed = match line.quote {
        Quote::Single { .. } => rest.ends_with(b"'"),
        Quote::Double { .. } => rest.ends_with(b"\""),
        Quote::None | Quote::Other => false,
    };
    let is_unsafe = rest.iter().any(|byte| unsafe_bytes.contains(byte));
    if is_unsafe || looks_closed || !value.starts_with(&word[..kept]) {
        return None;
    }
    let mut out = Vec::with_capacity(rest.len());
    for &byte in rest {
        match (line.quote, byte) {
            (Quote::Single { .. }, b'\'') => out.extend_from_slice(b"'\\''"),
            (Quote::Single { .. }, _) => out.push(byte),
            (Quote::Double { .. }, b'"' | b'\\') => out.extend([b'\\', byte]),
            (Quote::Double { .. }, _) => out.push(byte),
            (Quote::None | Quote::Other, _) => {
                let is_plain = byte.is_ascii_alphanumeric() || byte >= 0x80 || b"/._-:=@%+,".contains(&byte);
                if !is_plain {
                    out.push(b'\\');
                }
                out.push(byte);
            }
        }
    }
    Some(out)
}

/// What quotes the end of a line is in, and how many bytes of the last word are before them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Quote {
    #[default]
    None,
    Single {
        from: usize,
    },
    Double {
        from: usize,
    },
    /// `$'` or `$"`, with rules of their own.
    Other,
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
        let (mut quote, mut before) = (Quote::None, None);
        let mut bytes = line.iter().copied();
        while let Some(byte) = bytes.next() {
            match (quote, byte) {
                (Quote::None, b' ' | b'\t') => {
                    if is_word {
                        words.push(std::mem::take(&mut word));
                    }
                    (is_word, before) = (false, None);
                    continue;
                }
                (Quote::None, b'\'' | b'"') if before == Some(b'$') => {
                    // Nothing is completed there, so it does not matter where it ends.
                    quote = Quote::Other;
                }
                (Quote::None, b'\'') => quote = Quote::Single { from: word.len() },
                (Quote::None, b'"') => quote = Quote::Double { from: word.len() },
                (Quote::Single { .. }, b'\'') | (Quote::Double { .. }, b'"') => quote = Quote::None,
                (Quote::Single { .. } | Quote::Other, _) => word.push(byte),
                (Quote::None | Quote::Double { .. }, b'\\') => word.extend(bytes.next()),
                (Quote::None | Quote::Double { .. }, _) => word.push(byte),
            }
            (is_word, before) = (true, Some(byte));
        }
        words.push(word);
        Self { words, quote }
    }
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
        for (line, quote) in [
            ("a 'b", Quote::Single { from: 0 }),
            ("a x'b", Quote::Single { from: 1 }),
            ("a 'b'", Quote::None),
            ("a \"b'", Quote::Double { from: 0 }),
            ("a \"b\\\"", Quote::Double { from: 0 }),
            ("a $'b", Quote::Other),
            ("a $\"b", Quote::Other),
        ] {
            assert_eq!(Line::read(line.as_bytes()).quote, quote, "{line}");
        }
    }

    fn rest(line: &str, breaks: &str, value: &str) -> Option<String> {
        let line = Line::read(line.as_bytes());
        let word = line.words.last().unwrap();
        let rest = rest_for_bash(&line, breaks.as_bytes(), word, value.as_bytes())?;
        Some(String::from_utf8(rest).unwrap())
    }

    #[test]
    fn bash_gets_what_follows_the_last_colon() {
        let rest = |line: &str, breaks: &str, value: &str| rest(line, breaks, value).unwrap();
        assert_eq!(rest("nfsw ls nas:/s", " :=", "nas:/srv x/"), "/srv\\ x/");
        assert_eq!(rest("nfsw ls nas:/s", " =", "nas:/srv/"), "nas:/srv/");
        assert_eq!(rest("nfsw ls 'nas:/s", " :=", "nas:/srv x/"), "nas:/srv x/");
        assert_eq!(rest("nfsw ls nas:/'s", " :=", "nas:/srv x/"), "srv x/");
        assert_eq!(rest("nfsw ls nas:\"/s", " :=", "nas:/srv x/"), "/srv x/");
    }

    #[test]
    fn bash_gets_names_quoted_for_where_they_go() {
        for (line, name, wanted) in [
            ("nfsw ls h:/", "$(x);`y`", None),
            ("nfsw ls h:/", "$(x);'\"!~{a,b}*", Some(r#"/\$\(x\)\;\'\"\!\~\{a,b\}\*"#)),
            ("nfsw ls 'h:/", "$(x);\"\\", Some(r#"h:/$(x);"\"#)),
            ("nfsw ls 'h:/", "a';x;'b", Some(r"h:/a'\'';x;'\''b")),
            ("nfsw ls 'h:/", "x'", None),
            ("nfsw ls \"h:/", "x\"", None),
            ("nfsw ls 'h:/", "`x`", None),
            ("nfsw ls 'h:/", "a!b", None),
            ("nfsw ls \"h:/", "a\";x;\"b", Some(r#"h:/a\";x;\"b"#)),
            ("nfsw ls \"h:/", "a'b c*\\", Some(r"h:/a'b c*\\")),
            ("nfsw ls \"h:/", "$(x)", None),
            ("nfsw ls \"h:/", "$x", None),
            ("nfsw ls \"h:/", "`x`", None),
            ("nfsw ls \"h:/", "a!b", None),
            ("nfsw ls $'h:/", "a", None),
            ("nfsw ls h:/$\"", "a", None),
        ] {
            let found = rest(line, " :=", &format!("h:/{name}"));
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
