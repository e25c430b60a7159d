//! What a share tells everybody around it, as a TXT record (RFC 6763 §6).

use std::{
    fmt::{self, Write as _},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{beginning, noise::PublicKey, sharer::MAX_LABEL_BYTES};

/// The version of the record. Others are of other programs.
const VERSION: &str = "1";

/// Bytes of one string of the record, without its key, at most (RFC 6763 §6.1: 255 with it).
const MAX_VALUE_BYTES: usize = 240;

/// Codes that are read from one record, at most.
const MAX_CODES: usize = 1024;

/// Bytes of a label, at most (RFC 1035 §2.3.4).
const MAX_DNS_LABEL_BYTES: usize = 63;

/// The first bytes of a share's public key. They tell shares apart, and prove nothing: anybody can announce them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyPrefix(pub [u8; 8]);

/// What a share tells everybody around it, or is said to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What the sharer calls it, at most [`MAX_LABEL_BYTES`]: text of a stranger, if it was read.
    pub name: String,
    /// The beginning of its key.
    pub key: KeyPrefix,
    /// Numbers of the codes that nobody has used yet.
    pub codes: Vec<u16>,
    /// When it began.
    pub since: SystemTime,
}

impl KeyPrefix {
    /// Returns the four digits that are in the names of mounts.
    pub fn short(&self) -> String {
        self.to_string()[..4].to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        let is_whole = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_whole.then(|| u64::from_str_radix(text, 16).ok().map(|key| Self(key.to_be_bytes())))?
    }
}

impl From<PublicKey> for KeyPrefix {
    fn from(key: PublicKey) -> Self {
        Self(*key.0.first_chunk().expect("8 of 32 bytes"))
    }
}

impl fmt::Display for KeyPrefix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl fmt::Debug for KeyPrefix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "KeyPrefix({self})")
    }
}

impl Notice {
    /// Returns the strings of the record.
    pub(super) fn strings(&self) -> Vec<(&'static str, String)> {
        let since = self.since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        vec![
            ("txtvers", VERSION.to_owned()),
            ("name", beginning(&self.name, MAX_LABEL_BYTES).to_owned()),
            ("key", self.key.to_string()),
            ("codes", write_codes(&self.codes)),
            ("since", since.to_string()),
        ]
    }

    /// Reads what [`Self::strings`] has written, by its keys; or what a stranger has sent.
    pub(super) fn read<'a>(string: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        if string("txtvers")? != VERSION {
            return None;
        }
        let seconds = Duration::from_secs(string("since")?.parse().ok()?);
        Some(Self {
            name: beginning(string("name")?, MAX_LABEL_BYTES).to_owned(),
            key: KeyPrefix::read(string("key")?)?,
            codes: read_codes(string("codes")?)?,
            since: UNIX_EPOCH.checked_add(seconds)?,
        })
    }

    /// Returns the name of the instance for those who browse: no other share has it.
    pub(super) fn label(&self) -> String {
        let is_plain = |c: char| !c.is_control() && c != '.' && c != '\\';
        let name: String = self.name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        let key = format!("-{}", self.key.short());
        format!("{}{key}", beginning(&name, MAX_DNS_LABEL_BYTES - key.len()))
    }

    /// Returns the name of the host for its addresses, which those who look them up need not know by another name.
    pub(super) fn host(&self) -> String {
        format!("nfsw-{}.local.", self.key)
    }
}

/// Writes numbers as `7,12-14`, as many as there is room for.
fn write_codes(codes: &[u16]) -> String {
    let mut codes = codes.to_vec();
    codes.sort_unstable();
    codes.dedup();
    let mut text = String::new();
    for run in codes.chunk_by(|one, next| next - one == 1) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
        let mut item = if text.is_empty() { String::new() } else { ",".to_owned() };
        let _ = if first == last { write!(item, "{first}") } else { write!(item, "{first}-{last}") };
        if text.len() + item.len() > MAX_VALUE_BYTES {
            break;
        }
        text.push_str(&item);
    }
    text
}

fn read_codes(text: &str) -> Option<Vec<u16>> {
    let mut codes = Vec::new();
    for item in text.split(',').filter(|item| !item.is_empty()) {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        codes.extend((first..=last).take(MAX_CODES.saturating_sub(codes.len())));
    }
    Some(codes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn notice(name: &str, codes: &[u16]) -> Notice {
        let since = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        Notice {
            name: name.to_owned(),
            key: KeyPrefix([0xa0, 7, 1, 2, 3, 4, 5, 6]),
            codes: codes.to_vec(),
            since,
        }
    }

    fn read(strings: &[(&'static str, String)]) -> Option<Notice> {
        Notice::read(|key| Some(&*strings.iter().find(|(it, _)| *it == key)?.1))
    }

    #[test]
    fn what_is_announced_reads_back() {
        for (name, codes) in [
            ("sophia@laptop", &[][..]),
            ("sophia@laptop", &[7]),
            ("Фото, 2026. \\o/", &[7, 12, 13, 14, 99, 65_535]),
        ] {
            let notice = notice(name, codes);
            assert_eq!(read(&notice.strings()), Some(notice));
        }
        assert_eq!(notice("x", &[14, 7, 12, 13]).strings()[3].1, "7,12-14");
        // A thousand people: as many codes as there is room for.
        let every_other: Vec<u16> = (0..2000).step_by(2).collect();
        let strings = notice(&"é".repeat(100), &every_other).strings();
        assert!(strings.iter().all(|(key, value)| key.len() + 1 + value.len() <= 255), "{strings:?}");
        let read = read(&strings).unwrap();
        assert_eq!(read.name, "é".repeat(32));
        assert!(every_other.starts_with(&read.codes) && read.codes.len() > 50);
    }

    #[test]
    fn names_of_instances_and_hosts_are_labels() {
        for (name, label) in [
            ("sophia@laptop", "sophia@laptop-a007"),
            ("laptop.example.org", "laptop_example_org-a007"),
            ("a\\b\n", "a_b_-a007"),
            ("", "-a007"),
        ] {
            assert_eq!(notice(name, &[]).label(), label);
        }
        let long = notice(&"é".repeat(100), &[]).label();
        assert!(long.len() <= 63 && long.ends_with("é-a007"), "{long}");
        assert_eq!(notice("x", &[]).host(), "nfsw-a007010203040506.local.");
    }

    #[test]
    fn what_is_no_notice_is_none() {
        let right = notice("x", &[7]).strings();
        for (key, value) in [
            ("txtvers", "2"),
            ("key", "a007"),
            ("key", "+007010203040506"),
            ("codes", "7-"),
            ("codes", "65536"),
            ("codes", "x"),
            ("since", "-1"),
            ("since", "99999999999999999999"),
        ] {
            let mut wrong = right.clone();
            wrong.iter_mut().find(|(it, _)| *it == key).unwrap().1 = value.to_owned();
            assert_eq!(read(&wrong), None, "{key}={value}");
        }
        for missing in 0..right.len() {
            let mut wrong = right.clone();
            wrong.remove(missing);
            assert_eq!(read(&wrong), None, "{missing}");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_is_announced_is_a_panic_or_takes_much(
            values in proptest::array::uniform5("[0-9,a-f-]{0,255}|\\PC{0,60}"),
        ) {
            let keys = ["txtvers", "name", "key", "codes", "since"];
            let mut strings: Vec<_> = keys.into_iter().zip(values).collect();
            strings[0].1 = "1".to_owned();
            if let Some(notice) = read(&strings) {
                prop_assert!(notice.codes.len() <= MAX_CODES && notice.name.len() <= MAX_LABEL_BYTES);
                prop_assert!(notice.label().len() <= MAX_DNS_LABEL_BYTES);
            }
            prop_assert!(read_codes(&strings[3].1).is_none_or(|codes| codes.len() <= MAX_CODES));
        }
    }
}
