//! Names that a server or a local directory hands out, checked before they become part of a path.

pub use nfs_wireless_client::is_plain_name as is_plain;
use unicode_normalization::UnicodeNormalization;

/// Longest name that common file systems take, in bytes.
pub const MAX_NAME_BYTES: usize = 255;

const PART: &[u8] = b".nfsw-part";
const JOURNAL: &[u8] = b".nfsw-journal";
const LINK: &[u8] = b".nfsw-link";

/// The name of the file that says of the directory it is in: a copy that is not complete. It is made with the directory, and removed as
/// the last thing of all.
pub const MARKER: &[u8] = b".nfsw-incomplete";

/// What tells the temporary names of one run from those of all others that write into a directory of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(pub u32);

/// What temporary names begin with.
const PREFIX: &[u8] = b".";

impl Tag {
    /// Hexadecimal digits, behind a dash.
    const BYTES: usize = 9;

    /// Returns one that no run has, nor had.
    pub fn fresh() -> Self {
        use std::hash::{BuildHasher, RandomState};

        // Its keys are random.
        Self(RandomState::new().hash_one(()) as u32)
    }

    /// Returns the name under which this run writes a file until it is complete; names too long for that are shortened and told
    /// apart by a hash.
    pub fn temporary(self, name: &[u8]) -> Vec<u8> {
        self.behind(temporary(name))
    }

    /// Returns the name under which this run makes a hard link that replaces a file. It is none that a file is written under: what is
    /// written there would be written into all names of the file.
    pub fn linked(self, name: &[u8]) -> Vec<u8> {
        self.behind(linked(name))
    }

    fn behind(self, name: Vec<u8>) -> Vec<u8> {
        [name, format!("-{:08x}", self.0).into_bytes()].concat()
    }
}

/// Returns the name under which a file is written on this machine until it is complete. It is the same every time, so that a
/// later run finds it.
pub fn temporary(name: &[u8]) -> Vec<u8> {
    beside(name, PART)
}

/// Returns a name for the same that nothing has yet, for where somebody else has taken the usual one.
pub fn fresh(name: &[u8]) -> Vec<u8> {
    Tag::fresh().temporary(name)
}

/// Returns the name of this user's journal, which says what of a temporary file is there. Each user has one of their own, so that in a
/// shared directory none is in the way of another.
pub fn journal(name: &[u8]) -> Vec<u8> {
    Tag(rustix::process::geteuid().as_raw()).behind(beside(name, JOURNAL))
}

/// Returns the name under which a hard link is made that replaces a file on this machine.
pub fn linked(name: &[u8]) -> Vec<u8> {
    beside(name, LINK)
}

/// Returns all names that a copy to a name may use meanwhile, without their tags.
pub fn used_by(name: &[u8]) -> [Vec<u8>; 3] {
    [PART, JOURNAL, LINK].map(|suffix| beside(name, suffix))
}

/// Whether a name looks like one of those that copies use meanwhile.
pub fn is_ours(name: &[u8]) -> bool {
    let name = untagged(name);
    name.starts_with(b".") && [PART, JOURNAL, LINK].iter().any(|suffix| name.ends_with(suffix))
}

/// Whether a name looks like one under which a hard link is made.
pub fn is_linked(name: &[u8]) -> bool {
    is_ours(name) && untagged(name).ends_with(LINK)
}

/// Returns a temporary name as it would be on this machine, without what tells runs apart.
pub fn untagged(name: &[u8]) -> &[u8] {
    if tag_in(name).is_some() { &name[..name.len() - Tag::BYTES] } else { name }
}

/// Returns the name of the file that is written under a temporary name; `None` where that does not tell it.
pub fn written_for(temporary_name: &[u8]) -> Option<&[u8]> {
    // One of that length may have been shortened.
    user_of(temporary_name).filter(|_| untagged(temporary_name).ends_with(PART))
}

/// Returns the name of the file whose copy uses a name meanwhile; `None` where that does not tell it.
pub fn user_of(name: &[u8]) -> Option<&[u8]> {
    let plain = untagged(name).strip_prefix(PREFIX)?;
    [PART, JOURNAL, LINK]
        .iter()
        .find_map(|suffix| plain.strip_suffix(*suffix).filter(|name| name.len() < room(suffix)))
}

/// Returns the tag of a temporary name.
pub fn tag_in(name: &[u8]) -> Option<Tag> {
    let (rest, [b'-', digits @ ..]) = name.split_last_chunk::<{ Tag::BYTES }>()? else { return None };
    let has_suffix = [PART, JOURNAL, LINK].iter().any(|suffix| rest.ends_with(suffix));
    let digits = std::str::from_utf8(digits).ok().filter(|_| has_suffix)?;
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then_some(())?;
    u32::from_str_radix(digits, 16).ok().map(Tag)
}

/// Returns how long a name may be that a temporary one has whole, in bytes.
const fn room(suffix: &[u8]) -> usize {
    MAX_NAME_BYTES - PREFIX.len() - suffix.len() - Tag::BYTES
}

fn beside(name: &[u8], suffix: &[u8]) -> Vec<u8> {
    let room = room(suffix);
    if name.len() <= room {
        return [PREFIX, name, suffix].concat();
    }
    let hash = format!("~{:016x}", fnv1a(name));
    [PREFIX, &name[..room - hash.len()], hash.as_bytes(), suffix].concat()
}

/// The 64-bit FNV-1a hash: unlike the standard library's it will be the same in the next version, too.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns what names have in common that some file system takes for one. It is wider than any of them: case and compatibility are
/// folded (Unicode 15 §3.13), what is ignored in comparisons goes, and so do the dots and spaces at the end that Windows drops.
pub fn folded(name: &[u8]) -> Vec<u8> {
    let mut folded = match std::str::from_utf8(name) {
        Ok(text) if !text.is_ascii() => {
            // The capital sharp s has two letters only as the upper case of its lower case.
            let lower = text.nfkd().filter(|&it| !is_ignorable(it)).flat_map(char::to_lowercase);
            let upper = lower.flat_map(char::to_uppercase);
            let lower: String = upper.flat_map(char::to_lowercase).collect();
            lower.nfkd().collect::<String>().into_bytes()
        }
        _ => name.to_ascii_lowercase(),
    };
    while folded.pop_if(|last| matches!(last, b'.' | b' ')).is_some() {}
    folded
}

/// Whether a character has no part in comparisons (Unicode's Default_Ignorable_Code_Point).
const fn is_ignorable(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_tell_what_is_written_under_them_unless_they_are_shortened() {
        for name in [&b"a"[..], b".hidden", b"\xff.nfsw-part", &[b'x'; 200]] {
            for temporary in [temporary(name), Tag(7).temporary(name), fresh(name)] {
                assert_eq!(written_for(&temporary), Some(name));
            }
        }
        for other in [temporary(&[b'x'; 255]), linked(b"a"), journal(b"a"), b"a.nfsw-part".to_vec()] {
            assert_eq!(written_for(&other), None);
        }
    }

    #[test]
    fn temporary_names_fit_and_differ() {
        const TAG: Tag = Tag(0x0abc_def1);
        assert_eq!(temporary(b"a"), b".a.nfsw-part");
        assert_eq!(TAG.temporary(b"a"), b".a.nfsw-part-0abcdef1");
        assert_eq!(TAG.linked(b"a"), b".a.nfsw-link-0abcdef1");
        assert_eq!(untagged(&journal(b"a")), b".a.nfsw-journal");
        assert_eq!(linked(b"a"), b".a.nfsw-link");
        let long = [b'x'; 255];
        let mut other = long;
        other[254] = b'y';
        assert_eq!(TAG.temporary(&long).len(), 255);
        assert_ne!(temporary(&long), temporary(&other));
        assert_eq!(TAG.temporary(&long[..235]).len(), 255);
        assert!(journal(&long).len() <= 255 && is_ours(&journal(&long)));
        assert!(used_by(&long).contains(&untagged(&journal(&long)).to_vec()));
        for name in [&b"a"[..], &long] {
            assert_ne!(fresh(name), fresh(name));
            for temporary in [temporary(name), TAG.temporary(name), fresh(name)] {
                assert!(is_ours(&temporary));
                assert_eq!(untagged(&temporary), super::temporary(name));
            }
            assert!(is_ours(&TAG.linked(name)));
            assert_eq!(untagged(&TAG.linked(name)), linked(name));
        }
        for name in
            [&b"a-0abcdef1"[..], b".a.nfsw-part-0abcdefg", b".a.nfsw-part-", b"", b".a.nfsw-part0abcdef12"]
        {
            assert_eq!(untagged(name), name);
        }
    }

    #[test]
    fn names_that_some_file_system_takes_for_one_have_the_same_key() {
        for names in [
            &["README", "readme", "ReadMe", "readme.", "readme . "][..],
            &["é", "e\u{301}", "É", "E\u{301}"],
            &["straße", "STRASSE", "strasse"],
            &["\u{212a}elvin", "kelvin"],
            &["ﬁle", "file", "fi\u{200d}le"],
            &["가", "\u{1100}\u{1161}"],
            &["ά", "Ά", "α\u{301}"],
            &["ſ", "s", "S"],
            &["葛.txt", "葛\u{e0100}.txt"],
            &["a", "a\u{1bca0}", "a\u{1d173}", "a\u{fff0}"],
        ] {
            let keys: std::collections::BTreeSet<_> =
                names.iter().map(|name| folded(name.as_bytes())).collect();
            assert_eq!(keys.len(), 1, "{names:?}");
        }
    }

    #[test]
    fn names_that_are_two_everywhere_are_not_compared() {
        let names = ["a", "b", "a.txt", "照片.jpg", "图片.jpg", "é", "e", "файл", "фаил", ".a", "a b"];
        let keys: std::collections::BTreeSet<_> = names.iter().map(|name| folded(name.as_bytes())).collect();
        assert_eq!(keys.len(), names.len());
        assert_ne!(folded(b"\xff"), folded(b"\xfe"));
        for character in '\0'..=char::MAX {
            let of = |text: String| String::from_utf8(folded(text.as_bytes())).unwrap();
            let (key, lower) = (of(character.into()), of(character.to_lowercase().collect()));
            assert_eq!(key, lower, "{character:?} and its lower case");
            assert_eq!(key, of(character.to_uppercase().collect()), "{character:?} and its upper case");
        }
    }
}
