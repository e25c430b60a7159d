//! Wildcards, as a shell and rsync understand them.

use std::{iter::Peekable, str::Chars};

/// A pattern with `*`, `**`, `?` and `[...]`; a backslash takes the meaning from these. Alternatives in braces are the shell's business.
#[derive(Clone, Debug)]
pub(crate) struct Wildcard {
    parts: Vec<Part>,
}

/// A part of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// `*`: anything without a slash; `**`: anything.
    Any {
        crosses: bool,
    },
    /// `?`
    One,
    Literal(char),
    /// `[...]`, or `[!...]` if `negated`.
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

/// Where a match can begin again: behind a star, and up to where in the text that reaches.
type Retry = Option<(usize, usize)>;

impl Wildcard {
    /// Reads a pattern.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text.chars().peekable();
        while let Some(next) = rest.next() {
            parts.push(match next {
                '*' => {
                    let crosses = rest.next_if_eq(&'*').is_some();
                    while rest.next_if_eq(&'*').is_some() {}
                    Part::Any { crosses }
                }
                '?' => Part::One,
                '[' => class(&mut rest)?,
                '\\' => Part::Literal(rest.next().unwrap_or('\\')),
                other => Part::Literal(other),
            });
        }
        Ok(Self { parts })
    }

    /// Returns a pattern that matches only this.
    pub(crate) fn literal(text: &str) -> Self {
        Self { parts: text.chars().map(Part::Literal).collect() }
    }

    /// Whether it matches all of a text, of which [`characters`] makes its argument.
    pub(crate) fn matches(&self, text: &[Option<char>]) -> bool {
        let (mut part, mut at) = (0, 0);
        let (mut last_any, mut last_crossing): (Retry, Retry) = (None, None);
        while part < self.parts.len() || at < text.len() {
            match self.parts.get(part) {
                Some(&Part::Any { crosses }) => {
                    part += 1;
                    if crosses {
                        (last_any, last_crossing) = (None, Some((part, at)));
                    } else {
                        last_any = Some((part, at));
                    }
                }
                Some(one) if text.get(at).is_some_and(|&character| one.matches(character)) => {
                    part += 1;
                    at += 1;
                }
                _ => {
                    // The last star takes one character more, or if it cannot, the last one that can cross a slash.
                    let reaches = |&(_, reached): &(usize, usize)| reached < text.len();
                    let extends = |retry: &(usize, usize)| reaches(retry) && text[retry.1] != Some('/');
                    if let Some((behind, reached)) = last_any.filter(extends) {
                        last_any = Some((behind, reached + 1));
                        (part, at) = (behind, reached + 1);
                    } else if let Some((behind, reached)) = last_crossing.filter(reaches) {
                        (last_any, last_crossing) = (None, Some((behind, reached + 1)));
                        (part, at) = (behind, reached + 1);
                    } else {
                        return false;
                    }
                }
            }
        }
        true
    }
}

impl Part {
    /// Whether it matches one character; `None` is a byte of no character.
    fn matches(&self, character: Option<char>) -> bool {
        match self {
            Self::Literal(literal) => character == Some(*literal),
            _ if character == Some('/') => false,
            Self::Any { .. } | Self::One => true,
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
            '[' if rest.peek() == Some(&':') => {
                ranges.extend(named_class(rest)?);
                continue;
            }
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

/// Reads what follows the second bracket of `[[:NAME:]...]`, of the names that POSIX has.
fn named_class(rest: &mut Peekable<Chars<'_>>) -> Result<&'static [(char, char)], String> {
    rest.next();
    let name: String = std::iter::from_fn(|| rest.next_if(char::is_ascii_alphabetic)).collect();
    let ranges = posix_class(&name).ok_or_else(|| format!("there is no character class [:{name}:]"))?;
    match (rest.next(), rest.next()) {
        (Some(':'), Some(']')) => Ok(ranges),
        _ => Err(format!("[:{name} must end with :]")),
    }
}

/// Returns the characters of a class that POSIX has, in the C locale; `None` for other names.
pub(crate) fn posix_class(name: &str) -> Option<&'static [(char, char)]> {
    Some(match name {
        "alnum" => &[('a', 'z'), ('A', 'Z'), ('0', '9')],
        "alpha" => &[('a', 'z'), ('A', 'Z')],
        "blank" => &[(' ', ' '), ('\t', '\t')],
        "cntrl" => &[('\0', '\x1f'), ('\x7f', '\x7f')],
        "digit" => &[('0', '9')],
        "graph" => &[('!', '~')],
        "lower" => &[('a', 'z')],
        "print" => &[(' ', '~')],
        "punct" => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
        "space" => &[(' ', ' '), ('\t', '\r')],
        "upper" => &[('A', 'Z')],
        "xdigit" => &[('0', '9'), ('a', 'f'), ('A', 'F')],
        _ => return None,
    })
}

/// Returns the characters of a name; bytes that are not UTF-8 are none.
pub(crate) fn characters(name: &[u8]) -> Vec<Option<char>> {
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
        Wildcard::new(pattern).unwrap().matches(&characters(name))
    }

    #[test]
    fn patterns_match_like_those_of_the_shell() {
        assert!(matches("*.jpg", b"cat.jpg"));
        assert!(matches("c?t.[jp]*", b"cat.png"));
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
            ("[[:alpha:]_]", "aZ_", "1:["),
            ("[![:space:][:digit:]]", "a[:", " \t7/"),
            ("[[:punct:]]", "!~[", "a 0/"),
        ] {
            let found = |name: char| matches(pattern, name.to_string().as_bytes());
            assert!(matched.chars().all(found), "{pattern} {matched}");
            assert!(!others.chars().any(found), "{pattern} {others}");
        }
        assert!(!matches("[!a]", b"") && matches("[!a]", b"\xff") && !matches("[a]", b"\xff"));
    }

    #[test]
    fn two_stars_cross_slashes_and_one_does_not() {
        for (pattern, matched, others) in [
            ("a*c", &["ac", "abc"][..], &["a/c", "ab/c"][..]),
            ("a**c", &["ac", "abc", "a/c", "a/b/c"], &["a/b"]),
            ("a/**/c", &["a/b/c", "a/b/b/c"], &["a/c", "b/c"]),
            ("**x*y", &["xy", "a/x/b/xcy"], &["x/y", "xy/"]),
            ("*/**z", &["a/z", "a/b/z", "a/bz"], &["z", "az"]),
            ("**/a*b", &["/ab", "x/ab", "a/x/acb"], &["ab", "x/a/b"]),
            ("a?b", &["axb"], &["a/b"]),
            ("a[!x]b", &["ayb"], &["a/b", "axb"]),
        ] {
            matched.iter().for_each(|text| assert!(matches(pattern, text.as_bytes()), "{pattern} {text}"));
            others.iter().for_each(|text| assert!(!matches(pattern, text.as_bytes()), "{pattern} {text}"));
        }
    }

    #[test]
    fn matching_is_that_of_every_way_to_divide_the_text() {
        /// The definition.
        fn divided(parts: &[Part], text: &[Option<char>]) -> bool {
            match parts {
                [] => text.is_empty(),
                [Part::Any { crosses }, rest @ ..] => (0..=text.len()).any(|end| {
                    (*crosses || !text[..end].contains(&Some('/'))) && divided(rest, &text[end..])
                }),
                [one, rest @ ..] => {
                    text.first().is_some_and(|&first| one.matches(first)) && divided(rest, &text[1..])
                }
            }
        }
        let mut seed = 1_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from((seed >> 33) % below).unwrap()
        };
        let mut matched = 0;
        for _ in 0..20_000 {
            let pattern: String =
                (0..next(7)).map(|_| ["a", "b", "/", "*", "**", "?", "[!b]"][next(7)]).collect();
            let text: String = (0..next(9)).map(|_| ["a", "b", "/"][next(3)]).collect();
            let (wildcard, text) = (Wildcard::new(&pattern).unwrap(), characters(text.as_bytes()));
            let expected = divided(&wildcard.parts, &text);
            assert_eq!(wildcard.matches(&text), expected, "{pattern} {text:?}");
            matched += usize::from(expected);
        }
        assert!(matched > 500, "{matched}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (pattern, why) in [
            ("a[", "unclosed"),
            ("[]", "unclosed"),
            ("[a-", "unclosed"),
            ("[z-a]", "range"),
            ("[[:alpa:]]", "no character class [:alpa:]"),
            ("[[:alpha]]", "must end with :]"),
        ] {
            assert!(Wildcard::new(pattern).unwrap_err().contains(why), "{pattern}");
        }
    }
}
