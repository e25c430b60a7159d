//! Names that a server or a local directory hands out, checked before they become part of a path.

/// Whether a name may be used inside a directory: it is one component, and not the directory itself or its
/// parent.
pub(crate) fn is_plain(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0)
}

/// Longest name that common file systems take, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 255;

const PART: &[u8] = b".nfsw-part";
const JOURNAL: &[u8] = b".nfsw-journal";
const LINK: &[u8] = b".nfsw-link";

/// The name of the file that says of the directory it is in: a copy that is not complete. It is made with the directory, and removed as
/// the last thing of all.
pub(crate) const MARKER: &[u8] = b".nfsw-incomplete";

/// Returns the name under which a file is written until it is complete. It is the same every time, so that a
/// later run finds it; names too long for that are shortened and told apart by a hash.
pub(crate) fn temporary(name: &[u8]) -> Vec<u8> {
    beside(name, PART)
}

/// Returns a name for the same that nothing has yet, for where somebody else has taken the usual one.
pub(crate) fn fresh(name: &[u8]) -> Vec<u8> {
    use std::hash::{BuildHasher, RandomState};

    // Its keys are random.
    let number = RandomState::new().hash_one(name);
    beside(&[name, format!("~{number:016x}").as_bytes()].concat(), PART)
}

/// Returns the name of the journal that says what of a temporary file is there.
pub(crate) fn journal(name: &[u8]) -> Vec<u8> {
    beside(name, JOURNAL)
}

/// Returns the name under which a hard link is made that replaces a file. It is none that a file is written under: what is written
/// there would be written into all names of the file.
pub(crate) fn linked(name: &[u8]) -> Vec<u8> {
    beside(name, LINK)
}

/// Whether a name looks like that of a temporary file or of a journal.
pub(crate) fn is_ours(name: &[u8]) -> bool {
    name.starts_with(b".") && (name.ends_with(PART) || name.ends_with(JOURNAL))
}

fn beside(name: &[u8], suffix: &[u8]) -> Vec<u8> {
    const PREFIX: &[u8] = b".";
    let room = MAX_NAME_BYTES - PREFIX.len() - suffix.len();
    if name.len() <= room {
        return [PREFIX, name, suffix].concat();
    }
    let hash = format!("~{:016x}", fnv1a(name));
    [PREFIX, &name[..room - hash.len()], hash.as_bytes(), suffix].concat()
}

/// The 64-bit FNV-1a hash: unlike the standard library's it will be the same in the next version, too.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_not_plain() {
        for name in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b", b"../x"] {
            assert!(!is_plain(name), "{name:?}");
        }
        for name in [&b"a"[..], b"...", b".x", b"a b", b"\xff", b"a\nb", b"-rf"] {
            assert!(is_plain(name), "{name:?}");
        }
    }

    #[test]
    fn temporary_names_fit_and_differ() {
        assert_eq!(temporary(b"a"), b".a.nfsw-part");
        let long = [b'x'; 255];
        let mut other = long;
        other[254] = b'y';
        assert_eq!(temporary(&long).len(), 255);
        assert_ne!(temporary(&long), temporary(&other));
        assert_eq!(temporary(&long[..244]).len(), 255);
        assert_eq!(journal(b"a"), b".a.nfsw-journal");
        assert_eq!(linked(b"a"), b".a.nfsw-link");
        assert_eq!(journal(&long).len(), 255);
        assert_ne!(fresh(b"a"), fresh(b"a"));
        assert!(is_ours(&fresh(b"a")) && fresh(&long).len() == 255);
        assert_ne!(fresh(&long), fresh(&long));
    }
}
