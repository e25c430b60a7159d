//! Bodies of fuzz targets for what copies read; see `fuzz/`.

use std::{ffi::OsStr, io::Write, os::unix::ffi::OsStrExt, rc::Rc};

use nfs_wireless_client::PathEstimate;

use crate::{
    copy::{
        Filter,
        filter::{Ignores, MAX_PATTERN_BYTES},
    },
    journal::{self, Journal},
    local::Key,
    pattern::Pattern,
    servers::{
        path_cache,
        remembered::{self, Asked},
    },
    url::{Remote, Target, is_within},
};

/// The body of a target: takes any bytes at all.
pub type Body = fn(&[u8]);

/// The targets of this crate that need nothing from others.
pub const TARGETS: &[(&str, Body)] = &[("url", url), ("journal", journal), ("filter", filter)];

/// Anything as an argument of the command line that may name a server.
fn url(data: &[u8]) {
    let argument = OsStr::from_bytes(data);
    if let Ok(Target::Remote(remote)) = Target::parse(argument) {
        assert!(remote.path.starts_with(b"/"));
        assert!(remote.parent().path.len() <= remote.path.len());
        assert!(
            !remote.to_string().chars().any(char::is_control) || remote.host.chars().any(char::is_control)
        );
    }
    let _ = Remote::parse_host(argument);
}

/// Anything as a journal, as it is and with everything right but the contents.
fn journal(data: &[u8]) {
    let key = Key([0; 32]);
    for bytes in [data.to_vec(), journal::sealed(data, key)] {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(&bytes).expect("room for it");
        let again = file.try_clone().expect("a descriptor");
        let (mut journal, found) = Journal::open(file, key).expect("readable");
        if let Some(state) = found {
            assert!(state.solid.end().max(state.tentative.end()) <= state.source.size);
            journal.write(&state).expect("room for it");
            assert_eq!(Journal::open(again, key).expect("readable").1, Some(state));
        }
    }
}

/// Patterns (`+` or `-` and the pattern, one a line), a `.gitignore`, a list of files and paths to ask for, each after a zero byte.
fn filter(data: &[u8]) {
    let mut parts = data.splitn(4, |&byte| byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    let mut rules = Vec::new();
    for line in part().split(|&byte| byte == b'\n') {
        let Some((sign, Ok(pattern))) = line.split_first().map(|(sign, rest)| (*sign, str::from_utf8(rest)))
        else {
            continue;
        };
        match pattern.parse::<Pattern>() {
            Ok(pattern) => rules.push((sign == b'+', pattern)),
            Err(why) => assert!(!why.is_empty()),
        }
    }
    let (gitignore, listed) = (part(), part());
    let mut filter = Filter::new(rules.clone(), true);
    let mut listing = Filter::default();
    let is_listed = listing.set_listed(listed).is_ok();
    let _ = filter.add_patterns(gitignore);
    let outer = filter.read_gitignore(Vec::new(), gitignore, filter.ignores()).ok().map(Rc::new);
    let inner = filter.read_gitignore(b"a".to_vec(), gitignore, outer.clone()).ok();
    assert!(filter.pattern_bytes.get() <= MAX_PATTERN_BYTES);
    for path in part().split(|&byte| byte == b'\n').take(32).filter(|path| is_path(path)) {
        let ignores: Option<&Ignores> =
            if path.starts_with(b"a/") { inner.as_ref() } else { outer.as_deref() };
        for is_directory in [false, true] {
            let takes = filter.takes(path, is_directory, ignores);
            if let Some((includes, _)) = rules.iter().find(|(_, rule)| rule.matches(path, is_directory)) {
                assert_eq!(takes, *includes, "the first rule that matches decides");
            }
            let above = path.iter().rposition(|&byte| byte == b'/').map(|end| &path[..end]);
            if is_listed && listing.takes(path, is_directory, None) {
                assert!(
                    above.is_none_or(|above| listing.takes(above, true, None)),
                    "what leads to it is taken"
                );
            }
        }
    }
    listing.note_source();
    assert!(listing.missing().len() <= listed.len());
    drop((outer, inner));
    assert_eq!(filter.pattern_bytes.get(), 0, "what is not used any more is given back");
}

/// Whether a listing can lead to it: names without anything between them that is none.
fn is_path(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/').all(|name| !matches!(name, b"" | b"." | b".."))
}

/// Anything as `servers.json` and as `paths.json`; returns the estimate of a path that was in it.
pub fn remembered(data: &[u8]) -> Option<PathEstimate> {
    const NOW: u64 = 1_000_000;
    let entries = path_cache::entries(data);
    let asked = Asked { host: "nas".to_owned(), ports: (Some(2049), None) };
    if let Some(found) = remembered::find_in(&entries, &asked, b"/srv/a/b", NOW) {
        assert!(is_within(b"/srv/a/b", &found.server.export));
        assert!(found.directories.len() <= remembered::MOST_DIRECTORIES);
        let names = [b"a".to_vec(), b"b".to_vec()];
        let root = (found.directory(&found.server.export), &found.server.export[..]);
        assert!(found.places(root, names.iter()).len() <= names.len());
        let again = remembered::entry(&asked, &found, NOW).expect("it was text");
        assert_eq!(remembered::find_in(std::slice::from_ref(&again), &asked, b"/srv/a/b", NOW), Some(found));
        let merged = path_cache::merged(vec![again.clone()], entries.clone(), &remembered::KEYS);
        assert!(merged.len() <= path_cache::MOST && merged[0] == again);
    }
    let (server, local) = (([192, 0, 2, 1], 2049).into(), [192, 0, 2, 2].into());
    let estimate = path_cache::find(&entries, server, local, NOW)?;
    let again = path_cache::entry(server, local, NOW, &estimate);
    assert_eq!(path_cache::find(&[again], server, local, NOW), Some(estimate));
    Some(estimate)
}
