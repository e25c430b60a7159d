//! Which part of a file programs look at to tell what it is.

use crate::data::{GRAIN_BYTES, grain_length};

/// Formats that begin with what describes them: metadata, a thumbnail, the length of the music.
const AT_THE_START: [&str; 6] = ["jpg", "jpeg", "heic", "mp3", "flac", "png"];

/// Formats whose index may be at the end as well: `moov` (ISO 14496-12), `startxref` (ISO 32000-1 §7.5.5), the central directory of ZIP.
const AT_BOTH_ENDS: [&str; 5] = ["mp4", "mov", "pdf", "zip", "docx"];

/// Returns the grains of a file that are worth fetching before anybody asks: the first 64 KiB, and the last where the format needs them.
pub(crate) fn grains(name: &[u8], size: u64) -> Vec<u64> {
    let Some(extension) = extension(name) else { return Vec::new() };
    let is_of = |list: &[&str]| list.iter().any(|it| extension.eq_ignore_ascii_case(it.as_bytes()));
    let both = is_of(&AT_BOTH_ENDS);
    if size == 0 || !both && !is_of(&AT_THE_START) {
        return Vec::new();
    }
    let last = (size - 1) / GRAIN_BYTES;
    let mut grains = vec![0];
    if both {
        // The last 64 KiB may begin in the grain before the last one.
        let begins_before = grain_length(size, last) < GRAIN_BYTES;
        grains.extend([last.saturating_sub(u64::from(begins_before)), last]);
        grains.dedup();
    }
    grains
}

/// Returns what follows the last dot of a name that has more than that.
pub(crate) fn extension(name: &[u8]) -> Option<&[u8]> {
    let dot = name.iter().rposition(|&byte| byte == b'.').filter(|&at| at > 0)?;
    Some(&name[dot + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_the_first_grain_and_the_last_64_kib_of_some_formats() {
        let mega = 1 << 20;
        assert_eq!(grains(b"cat.jpg", 5 * mega), [0]);
        assert_eq!(grains(b"CAT.JPG", 5 * mega), [0]);
        assert_eq!(grains(b"film.mp4", mega), [0, 15]);
        assert_eq!(grains(b"film.mp4", mega + 1), [0, 15, 16]);
        assert_eq!(grains(b"a.b.zip", 1000), [0]);
        assert_eq!(grains(b"a.zip", GRAIN_BYTES + 1), [0, 1]);
        for (name, size) in [("cat.jpg", 0), ("cat.txt", mega), (".jpg", mega), ("jpg", mega), ("", mega)] {
            assert_eq!(grains(name.as_bytes(), size), [] as [u64; 0], "{name}");
        }
    }
}
