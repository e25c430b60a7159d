//! `--hoard`: which paths below the mount are to be held.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use nfs_cache::Wanted;

/// Patterns of paths; a directory that matches is wanted with all that is in it.
#[derive(Debug)]
pub struct Patterns {
    files: GlobSet,
    /// How each pattern begins, as far as it has no wildcards: whole names.
    beginnings: Vec<Vec<Vec<u8>>>,
}

impl Patterns {
    /// Reads patterns: `*` and `?` stand for no slash, `**` does.
    ///
    /// # Errors
    /// A line for the user about a pattern that means nothing.
    pub fn parse(patterns: &[String]) -> Result<Self, String> {
        let (mut files, mut beginnings) = (GlobSetBuilder::new(), Vec::new());
        for pattern in patterns {
            let wrong = |why: &str| format!("the pattern {pattern:?} {why}");
            let body = pattern.trim_matches('/');
            if body.is_empty() {
                return Err(wrong("matches no path (everything is '**')"));
            }
            if body.split('/').any(|name| name == "..") {
                return Err(wrong("leads out of the mount"));
            }
            for glob in [body.to_owned(), format!("{body}/**")] {
                let glob = GlobBuilder::new(&glob).literal_separator(true).backslash_escape(true).build();
                files.add(glob.map_err(|error| wrong(&format!("is none: {}", error.kind())))?);
            }
            let is_plain = |name: &&str| !name.contains(['*', '?', '[', '{', '\\']);
            let names = body.split('/').take_while(is_plain);
            beginnings.push(names.map(|name| name.as_bytes().to_vec()).collect());
        }
        let files =
            files.build().map_err(|error| format!("the patterns of --hoard are too many: {error}"))?;
        Ok(Self { files, beginnings })
    }
}

impl Wanted for Patterns {
    fn wants(&self, path: &[u8]) -> bool {
        self.files.is_match(Path::new(OsStr::from_bytes(path)))
    }

    fn may_hold(&self, directory: &[u8]) -> bool {
        let leads = |beginning: &Vec<Vec<u8>>| {
            let names = directory.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
            names.zip(beginning).all(|(name, wanted)| name == wanted)
        };
        self.beginnings.iter().any(leads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(texts: &[&str]) -> Patterns {
        Patterns::parse(&texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn patterns_are_about_whole_paths_and_directories_stand_for_what_is_in_them() {
        let it = patterns(&["/album/", "notes/*.txt", "deep/**/*.jpg"]);
        for wanted in ["album/a.mp3", "album/b/c", "notes/a.txt", "deep/a.jpg", "deep/x/y/a.jpg"] {
            assert!(it.wants(wanted.as_bytes()), "{wanted}");
        }
        for other in ["albums/a", "notes/b/a.txt", "a.jpg", "x/album/a", "notes/a.md"] {
            assert!(!it.wants(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn directories_that_lead_nowhere_are_not_walked() {
        let it = patterns(&["music/b*/x", "docs/2026"]);
        for leading in ["", "music", "music/a", "music/b/c/d", "docs", "docs/2026", "docs/2026/a"] {
            assert!(it.may_hold(leading.as_bytes()), "{leading}");
        }
        for other in ["films", "docs/2025", "docs/2025/a"] {
            assert!(!it.may_hold(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn patterns_that_mean_nothing_are_refused() {
        for (pattern, expected) in [("/", "matches no path"), ("a/../b", "leads out"), ("a[", "is none")] {
            let error = Patterns::parse(&[pattern.to_owned()]).unwrap_err();
            assert!(error.contains(expected), "{pattern}: {error}");
        }
    }
}
