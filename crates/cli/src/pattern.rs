//! Patterns of `--exclude` and `--include`.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path, str::FromStr};

use globset::{GlobBuilder, GlobMatcher};

/// A pattern as rsync has it. One that begins with a slash matches the whole path from SRC on, any other one the end of the path;
/// one that ends with a slash matches directories. `*` and `?` match no slash, `**` does.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    for_directories: bool,
    matchers: Vec<GlobMatcher>,
}

impl Pattern {
    /// Whether a path below SRC matches.
    pub(crate) fn matches(&self, path: &[u8], is_directory: bool) -> bool {
        let path = Path::new(OsStr::from_bytes(path));
        (is_directory || !self.for_directories) && self.matchers.iter().any(|glob| glob.is_match(path))
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(pattern: &str) -> Result<Self, String> {
        let (body, with_contents) = match pattern.strip_suffix("/***") {
            Some(body) => (body, true),
            None => (pattern, false),
        };
        let (body, for_directories) = match body.strip_suffix('/') {
            Some(body) => (body, true),
            None => (body, false),
        };
        let body = match body.strip_prefix('/') {
            Some(body) => body.to_owned(),
            None => format!("**/{body}"),
        };
        if body.is_empty() || body == "**/" {
            return Err("it matches nothing".to_owned());
        }
        let glob = |glob: &str| {
            let glob = GlobBuilder::new(glob).literal_separator(true).backslash_escape(true).build();
            glob.map(|glob| glob.compile_matcher()).map_err(|error| error.kind().to_string())
        };
        let mut matchers = vec![glob(&body)?];
        if with_contents {
            matchers.push(glob(&format!("{body}/**"))?);
        }
        Ok(Self { for_directories, matchers })
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
            ("d/***", &["d", "x/d/", "d/e", "x/d/e/f"], &["e"]),
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
        for wrong in ["", "/", "[", "/***"] {
            assert!(wrong.parse::<Pattern>().is_err(), "{wrong:?}");
        }
    }
}
