//! Patterns of `--exclude` and `--include`.

use std::str::FromStr;

use crate::wildcard::{Wildcard, characters};

/// A pattern as rsync has it. One that begins with a slash matches the whole path from SRC on, any other one the end of the path; one
/// that ends with a slash matches directories, and one that ends with `/***` a directory and all that is in it. `*`, `?` and `[...]`
/// match no slash, `**` does. Without any of these, a backslash is one.
#[derive(Clone, Debug)]
pub struct Pattern {
    for_directories: bool,
    is_anchored: bool,
    matcher: Wildcard,
    contents: Option<Wildcard>,
}

impl Pattern {
    /// Whether a path below SRC matches.
    pub fn matches(&self, path: &[u8], is_directory: bool) -> bool {
        let path = characters(path);
        let behind_slashes =
            path.iter().enumerate().filter(|(_, it)| **it == Some('/')).map(|(at, _)| at + 1);
        let mut starts =
            [0].into_iter().chain(behind_slashes).take(if self.is_anchored { 1 } else { usize::MAX });
        starts.any(|start| {
            let end = &path[start..];
            ((is_directory || !self.for_directories) && self.matcher.matches(end))
                || self.contents.as_ref().is_some_and(|contents| contents.matches(end))
        })
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(pattern: &str) -> Result<Self, String> {
        if let Some(rest) = pattern.strip_prefix("- ").or_else(|| pattern.strip_prefix("+ ")) {
            return Err(format!("rules of rsync are not known here; give --exclude or --include {rest}"));
        }
        let (body, with_contents) = match pattern.strip_suffix("/***") {
            Some(body) => (body, true),
            None => (pattern, false),
        };
        let (body, with_slash) = match body.strip_suffix('/') {
            Some(body) => (body, true),
            None => (body, false),
        };
        let (body, is_anchored) = match body.strip_prefix('/') {
            Some(body) => (body, true),
            None => (body, false),
        };
        // It may be at the beginning of the path, too.
        let behind_stars = body.trim_start_matches('*');
        let body = match behind_stars.strip_prefix('/') {
            Some(rest) if !is_anchored && body.starts_with("**") => rest,
            _ => body,
        };
        if body.is_empty() && !with_contents {
            return Err("it matches nothing".to_owned());
        }
        let matcher = match pattern.contains(['*', '?', '[']) {
            true => Wildcard::new(body)?,
            false => Wildcard::literal(body),
        };
        let contents = match (with_contents, body) {
            (false, _) => None,
            (true, "") => Some(Wildcard::new("**")?),
            (true, body) => Some(Wildcard::new(&format!("{body}/**"))?),
        };
        Ok(Self { for_directories: with_slash || with_contents, is_anchored, matcher, contents })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_to_rsync() {
        for (pattern, matched, left) in [
            ("*.o", &["a.o", "x/y/a.o", "a.o/"][..], &["a.oo", "o"][..]),
            ("/build", &["build", "build/"], &["x/build", "builder"]),
            ("cache/", &["cache/", "x/cache/"], &["cache", "x/cache"]),
            ("a/b", &["a/b", "x/a/b"], &["a/x/b", "b"]),
            ("/a/*/c", &["a/b/c"], &["a/b/b/c", "x/a/b/c"]),
            ("/a/**/c", &["a/b/c", "a/b/b/c"], &["x/a/b/c"]),
            ("d/***", &["d/", "x/d/", "d/e", "x/d/e/f"], &["d", "e", "dd/e"]),
            ("**/x", &["x", "a/x"], &["ax"]),
            ("***/x", &["x", "a/x"], &["ax"]),
            ("/***", &["x", "a/x", "a/"], &[]),
            ("b**z", &["bz", "b/a/z", "x/b/z"], &["ab/z", "b/a"]),
            ("b/**z", &["b/z", "b/a/z", "x/b/az"], &["bz"]),
            ("{x,y}.c", &["{x,y}.c"], &["x.c", "y.c"]),
            ("[[:alpha:]].o", &["x.o", "a/x.o"], &["1.o"]),
            (r"x\.o", &[r"x\.o"], &["x.o"]),
            (r"x\.*", &["x.o"], &[r"x\.o"]),
            ("[ab]?", &["ax", "y/bx"], &["cx", "a"]),
            (r"\*", &["*"], &["a"]),
        ] {
            let parsed: Pattern = pattern.parse().unwrap();
            let matches = |path: &str| {
                let (path, is_directory) = path.strip_suffix('/').map_or((path, false), |path| (path, true));
                parsed.matches(path.as_bytes(), is_directory)
            };
            matched.iter().for_each(|path| assert!(matches(path), "{pattern} {path}"));
            left.iter().for_each(|path| assert!(!matches(path), "{pattern} {path}"));
        }
        for wrong in ["", "/", "[", "- *.o", "+ *.o"] {
            assert!(wrong.parse::<Pattern>().is_err(), "{wrong:?}");
        }
    }
}
