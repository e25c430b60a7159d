//! Bodies of fuzz targets for parsers that only this crate sees; see `fuzz/`.

use std::{ffi::OsStr, io::Write, os::unix::ffi::OsStrExt};

use crate::{
    journal::{self, Journal},
    local::Key,
    target::{Remote, Target},
};

/// Anything as an argument of the command line that may name a server.
pub fn url(data: &[u8]) {
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
pub fn journal(data: &[u8]) {
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
