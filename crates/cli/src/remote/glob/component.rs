//! One component of a pattern, as a shell understands it.

use std::{iter::Peekable, str::Chars};

use crate::{exit::Failure, text::escape};

/// One component of a pattern. It has no directories to cross, and alternatives in braces are the shell's business.
pub(super) struct Matcher {
    parts: Vec<Part>,
    matches_hidden: bool,
}

/// A part of a component.
#[derive(Debug)]
enum Part {
    /// `*`
    Any,
    /// `?`
    One,
    Literal(char),
    /// `[...]`, or `[!...]` if `negated`.
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Matcher {
    /// Reads a component.
    ///
    /// # Errors
    /// A usage error that names it.
    pub(super) fn new(component: &[u8]) -> anyhow::Result<Self> {
        let wrong = |reason: String| {
            Failure::usage(format!("the pattern {} is not valid: {reason}", escape(component)))
        };
        let text = str::from_utf8(component).map_err(|_| wrong("it is not UTF-8".to_owned()))?;
        let mut parts = Vec::new();
        let mut rest = text.chars().peekable();
        while let Some(next) = rest.next() {
            parts.push(match next {
                '*' => Part::Any,
                '?' => Part::One,
                '[' => class(&mut rest).map_err(wrong)?,
                '\\' => Part::Literal(rest.next().unwrap_or('\\')),
                other => Part::Literal(other),
            });
        }
        Ok(Self { parts, matches_hidden: text.starts_with('.') })
    }

    /// As in the shell, a name that begins with a dot is matched only by a pattern that does.
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        (self.matches_hidden || !name.starts_with(b".")) && self.matches_all(&characters(name))
    }

    fn matches_all(&self, name: &[Option<char>]) -> bool {
        let (mut part, mut at) = (0, 0);
        // Behind the last `*`, and up to where in the name it reaches.
        let mut last_any = None;
        while part < self.parts.len() || at < name.len() {
            match self.parts.get(part) {
                Some(Part::Any) => {
                    part += 1;
                    last_any = Some((part, at));
                }
                Some(one) if name.get(at).is_some_and(|&character| one.matches(character)) => {
                    part += 1;
                    at += 1;
                }
                _ => match last_any {
                    Some((behind, reached)) if reached < name.len() => {
                        last_any = Some((behind, reached + 1));
                        (part, at) = (behind, reached + 1);
                    }
                    _ => return false,
                },
            }
        }
        true
    }
}

impl Part {
    /// Whether it matches one character; `None` is a byte of no character.
    fn matches(&self, character: Option<char>) -> bool {
        match self {
            Self::Any | Self::One => true,
            Self::Literal(literal) => character == Some(*literal),
            Self::Class { negated, ranges } => {
                let is_in = |it: char| ranges.iter().any(|&(first, last)| (first..=last).contains(&it));
                character.is_some_and(is_in) != *negated
            }
        }
    }
}

/// Reads what follows `[`. A backslash takes the meaning from `]`, `-`, `!` and `^`.
fn class(rest: &mut Peekable<Chars<'_>>) -> Result<Part, String> {
    let unclosed = || "unclosed character class; missing ']'".to_owned();
    let negated = rest.next_if(|next| matches!(next, '!' | '^')).is_some();
    let mut ranges = Vec::new();
    loop {
        let first = match rest.next().ok_or_else(unclosed)? {
            ']' if !ranges.is_empty() => return Ok(Part::Class { negated, ranges }),
            '\\' => rest.next().ok_or_else(unclosed)?,
            other => other,
        };
        // A hyphen at the end is one.
        let mut behind = rest.clone();
        let is_range = behind.next() == Some('-') && behind.next() != Some(']');
        let last = match rest.next_if(|_| is_range).and_then(|_| rest.next()) {
            Some('\\') => rest.next().ok_or_else(unclosed)?,
            Some(other) => other,
            None => first,
        };
        if first > last {
            return Err(format!("invalid range; '{first}' > '{last}'"));
        }
        ranges.push((first, last));
    }
}

/// Returns the characters of a name; bytes that are not UTF-8 are none.
fn characters(name: &[u8]) -> Vec<Option<char>> {
    let mut out = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        out.extend(chunk.valid().chars().map(Some));
        out.extend(chunk.invalid().iter().map(|_| None));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &[u8]) -> bool {
        Matcher::new(pattern.as_bytes()).unwrap().matches(name)
    }

    #[test]
    fn patterns_match_like_the_shell() {
        assert!(matches("*.jpg", b"cat.jpg"));
        assert!(matches("c?t.[jp]*", b"cat.png"));
        assert!(!matches("*", b".hidden"));
        assert!(matches(".h*", b".hidden"));
        assert!(matches("a\\*", b"a*") && !matches("a\\*", b"ab"));
        assert!(matches("*", b"\xff\xfe"));
        assert!(matches("**", b"a") && matches("a***b", b"a-b"));
        assert!(matches("{a,b}*", b"{a,b}c") && !matches("{a,b}*", b"ac"));
        assert!(matches("[!a]*", b"b") && !matches("[!a]*", b"a"));
        assert!(matches("*a*b", b"xaxab") && !matches("*a*b", b"xaxba") && !matches("a*", b""));
        assert!(matches("?", "ö".as_bytes()) && !matches("??", "ö".as_bytes()) && matches("??", b"\xff\xfe"));
    }

    #[test]
    fn classes_hold_what_is_escaped_in_them() {
        for (pattern, matched, others) in [
            (r"[\]]", "]", r"\["),
            ("[]x]", "]x", r"\["),
            (r"[x\]y]", r"x]y", r"\["),
            (r"[\[-\]]", r"[\]", "Z^"),
            (r"[\!a]", "!a", r"\b"),
            (r"[!\]\\]", "a!", r"]\"),
            ("[^a-c]", "^d", "abc"),
            (r"[a\-c]", "a-c", r"b\"),
            ("[a-]", "a-", "b"),
            ("[-a]", "a-", "b"),
            ("[{}*?]", "{}*?", "[a"),
            ("[ä-ü]", "äöü", "aou"),
        ] {
            let found = |name: char| matches(pattern, name.to_string().as_bytes());
            assert!(matched.chars().all(found), "{pattern} {matched}");
            assert!(!others.chars().any(found), "{pattern} {others}");
        }
        assert!(!matches("[!a]", b"") && matches("[!a]", b"\xff") && !matches("[a]", b"\xff"));
    }

    #[test]
    fn a_broken_pattern_is_named() {
        for (pattern, why) in
            [("a[", "unclosed"), ("[]", "unclosed"), ("[a-", "unclosed"), ("[z-a]", "range")]
        {
            let Err(error) = Matcher::new(pattern.as_bytes()) else { panic!("{pattern} is accepted") };
            let start = format!("the pattern {pattern} is not valid: ");
            assert!(error.to_string().starts_with(&start) && error.to_string().contains(why), "{error}");
        }
    }
}
