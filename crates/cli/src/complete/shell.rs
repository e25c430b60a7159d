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
            if value.contains(&b'\n') {
                continue;
            }
            match self {
                Self::Bash => out.extend_from_slice(&for_bash(word.as_bytes(), value)),
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

/// Returns what bash is to put in place of the part of the word that it takes for the word: what follows the last colon or equals sign
/// outside of quotes.
fn for_bash(word: &[u8], value: &[u8]) -> Vec<u8> {
    let line = std::env::args_os().nth(2).unwrap_or_default();
    let breaks = std::env::args_os().nth(3).unwrap_or_default();
    rest_for_bash(&Line::read(line.as_bytes()), breaks.as_bytes(), word, value)
}

fn rest_for_bash(line: &Line, breaks: &[u8], word: &[u8], value: &[u8]) -> Vec<u8> {
    if line.is_quoted {
        return value.to_vec();
    }
    let kept =
        word.iter().rposition(|byte| b":=".contains(byte) && breaks.contains(byte)).map_or(0, |at| at + 1);
    let rest = value.get(kept..).unwrap_or_default();
    let mut out = Vec::with_capacity(rest.len());
    for &byte in rest {
        let is_plain = byte.is_ascii_alphanumeric() || byte >= 0x80 || b"/._-:=@%+,".contains(&byte);
        if !is_plain {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out
}

/// A line up to the cursor, as bash reads it.
#[derive(Debug, Default)]
struct Line {
    words: Vec<Vec<u8>>,
    /// Whether the last word is within quotes.
    is_quoted: bool,
}

impl Line {
    fn read(line: &[u8]) -> Self {
        let (mut words, mut word, mut is_word, mut quote) = (Vec::new(), Vec::new(), false, None);
        let mut bytes = line.iter().copied();
        while let Some(byte) = bytes.next() {
            match (quote, byte) {
                (None, b' ' | b'\t') => {
                    if is_word {
                        words.push(std::mem::take(&mut word));
                    }
                    is_word = false;
                    continue;
                }
                (None, b'\'' | b'"') => quote = Some(byte),
                (Some(open), _) if open == byte => quote = None,
                (Some(b'\''), _) => word.push(byte),
                (_, b'\\') => word.extend(bytes.next()),
                _ => word.push(byte),
            }
            is_word = true;
        }
        words.push(word);
        Self { words, is_quoted: quote.is_some() }
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
        assert!(Line::read(b"a 'b").is_quoted && !Line::read(b"a 'b'").is_quoted);
    }

    #[test]
    fn bash_gets_what_follows_the_last_colon() {
        let rest = |line: &str, breaks: &str, word: &str, value: &str| {
            let line = Line::read(line.as_bytes());
            String::from_utf8(rest_for_bash(&line, breaks.as_bytes(), word.as_bytes(), value.as_bytes()))
                .unwrap()
        };
        assert_eq!(rest("nfsw ls nas:/s", " :=", "nas:/s", "nas:/srv x/"), "/srv\\ x/");
        assert_eq!(rest("nfsw ls nas:/s", " =", "nas:/s", "nas:/srv/"), "nas:/srv/");
        assert_eq!(rest("nfsw ls 'nas:/s", " :=", "nas:/s", "nas:/srv x/"), "nas:/srv x/");
    }
}
