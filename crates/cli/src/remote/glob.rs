//! Patterns in server paths, matched against directory listings.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use globset::{GlobBuilder, GlobMatcher};
use nfs_wireless_client::FileType;

use super::{Found, find_if_exists, follow, matching_children};
use crate::{
    connections::Connections,
    exit::Failure,
    report::Reporter,
    target::{Remote, is_pattern},
};

/// Finds what a pattern matches, in the order of the names.
pub(super) async fn expand(
    connections: &Connections,
    reporter: &Reporter,
    target: &Remote,
    pattern: &[u8],
) -> anyhow::Result<Vec<Found>> {
    let components: Vec<&[u8]> = pattern.split(|&byte| byte == b'/').skip(1).collect();
    let literal = components.iter().take_while(|component| !is_pattern(component)).count();
    let base = target.with_path(&[b"/", &components[..literal].join(&b'/')[..]].concat());
    let Some(base) = find_if_exists(connections, reporter, &base).await? else {
        return Ok(Vec::new());
    };
    let mut matches = vec![base];
    for component in &components[literal..] {
        let mut next = Vec::new();
        for directory in matches {
            step(connections, reporter, directory, component, &mut next).await?;
        }
        matches = next;
    }
    Ok(matches)
}

/// Adds what one component matches in one directory.
async fn step(
    connections: &Connections,
    reporter: &Reporter,
    place: Found,
    component: &[u8],
    found: &mut Vec<Found>,
) -> anyhow::Result<()> {
    let place = match place.metadata.file_type {
        // A link that leads nowhere matches nothing below it.
        FileType::Symlink => match follow(connections, reporter, place).await {
            Ok(place) => place,
            Err(_) => return Ok(()),
        },
        _ => place,
    };
    if !place.is_directory() {
        return Ok(());
    }
    if !is_pattern(component) {
        found.extend(find_if_exists(connections, reporter, &place.remote.join(component)).await?);
        return Ok(());
    }
    let matcher = Matcher::new(component)?;
    let wanted = |name: &[u8]| matcher.matches(name);
    let matching = matching_children(connections, reporter, &place, wanted).await?;
    found.extend(matching.into_iter().map(|child| place.child(child)));
    Ok(())
}

/// One component of a pattern.
struct Matcher {
    glob: GlobMatcher,
    matches_hidden: bool,
}

impl Matcher {
    fn new(component: &[u8]) -> anyhow::Result<Self> {
        let wrong = |reason: &str| {
            let shown = crate::text::escape(component).into_owned();
            Failure::usage(format!("the pattern {shown} is not valid: {reason}"))
        };
        let text = str::from_utf8(component).map_err(|_| wrong("it is not UTF-8"))?;
        // Alternatives in braces are the shell's business, and a component has no directories to cross.
        let mut plain = text.replace('{', "[{]").replace('}', "[}]");
        while plain.contains("**") {
            plain = plain.replace("**", "*");
        }
        let glob = GlobBuilder::new(&plain)
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .map_err(|error| wrong(&error.kind().to_string()))?;
        Ok(Self { glob: glob.compile_matcher(), matches_hidden: text.starts_with('.') })
    }

    /// As in the shell, a name that begins with a dot is matched only by a pattern that does.
    fn matches(&self, name: &[u8]) -> bool {
        (self.matches_hidden || !name.starts_with(b"."))
            && self.glob.is_match(Path::new(OsStr::from_bytes(name)))
    }
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
    }

    #[test]
    fn a_broken_pattern_is_named() {
        let Err(error) = Matcher::new(b"a[") else { panic!("accepted") };
        assert!(error.to_string().starts_with("the pattern a[ is not valid"), "{error}");
    }
}
