//! Files in the state directory, which later runs resume from.

use std::{
    fs::File,
    io::{self, ErrorKind},
    net::SocketAddr,
    os::unix::fs::FileExt,
};

use crate::{local::Directory, name::fnv1a};

/// Bytes that say which server the run that holds the lock copies to.
pub(in crate::copy) const HOLDER_BYTES: u64 = 8;

/// Returns a key of several parts, none of which can be taken for another.
pub(in crate::copy) fn key<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut key = Vec::new();
    for part in parts {
        key.extend_from_slice(&(part.len() as u64).to_le_bytes());
        key.extend_from_slice(part);
    }
    key
}

/// Opens a file for this run alone, creating it if need be. The address of the `server` that the
/// run copies to is kept in it at offset `at`, hashed; it is only looked at while another run has
/// the file.
///
/// `None` if a run that copies to another address has the file: handles are unique on one server
/// (RFC 1813 §2.5), so two servers may have the same.
///
/// # Errors
/// `WouldBlock` when another run copies to the same target.
pub(in crate::copy) fn lock(
    directory: &Directory,
    name: &[u8],
    server: Option<SocketAddr>,
    at: u64,
) -> io::Result<Option<File>> {
    let ours = fnv1a(server.map_or_else(String::new, |server| server.to_string()).as_bytes()).to_le_bytes();
    match directory.lock(name, 0o600) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            let mut theirs = [0; HOLDER_BYTES as usize];
            let told = directory.read(name).and_then(|file| file.read_exact_at(&mut theirs, at));
            if told.is_ok() && theirs != ours { Ok(None) } else { Err(error) }
        }
        Err(error) => Err(error),
        Ok(file) => {
            file.write_all_at(&ours, at)?;
            Ok(Some(file))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_to_another_server_is_told_from_one_to_the_same() {
        let location = tempfile::tempdir().unwrap();
        let directory = Directory::open(location.path()).unwrap();
        let [one, other] = ["192.0.2.1:2049", "192.0.2.2:2049"].map(|it| Some(it.parse().unwrap()));
        let open = |server| lock(&directory, b"state", server, 100);
        let held = open(one).unwrap().unwrap();
        assert_eq!(open(one).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(open(other).unwrap().is_none());
        drop(held);
        let held = open(other).unwrap().unwrap();
        assert!(open(one).unwrap().is_none());
        // The run that has it has not said yet where it copies to.
        held.set_len(0).unwrap();
        assert_eq!(open(one).unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn parts_are_told_apart() {
        assert_ne!(key([&b"ab"[..], b"c"]), key([&b"a"[..], b"bc"]));
        assert_ne!(key([&b"a"[..]]), key([&b"a"[..], b""]));
    }
}
