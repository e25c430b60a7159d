//! The tree of the demonstration, and the comparison of trees.

use std::{
    ffi::OsStr,
    fmt,
    fs::{self, File, FileTimes},
    io::{self, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use crate::units;

/// How much was generated.
pub(super) struct Content {
    files: u32,
    bytes: u64,
}

impl fmt::Display for Content {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} files and {}", self.files, units::bytes(self.bytes))
    }
}

/// Creates the tree, the same every time.
pub(super) fn generate(root: &Path) -> io::Result<Content> {
    let mut content = Content { files: 0, bytes: 0 };
    let mut write = |name: &Path, size: usize, mode: u32, age: u64| -> io::Result<()> {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap_or(root))?;
        let mut file = File::create(&path)?;
        file.write_all(&noise(size, content.files.into()))?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        let time = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000 - age, 123_456_000);
        file.set_times(FileTimes::new().set_modified(time).set_accessed(time))?;
        content.files += 1;
        content.bytes += size as u64;
        Ok(())
    };
    write(Path::new("film.bin"), 6 << 20, 0o644, 0)?;
    write(Path::new("odd-size.bin"), (1 << 20) + 1, 0o600, 1)?;
    for number in 0..300 {
        let name = format!("small/{}/note-{number}.txt", number % 7);
        write(Path::new(&name), number * 37 % 9000, 0o644, number as u64 * 86_400)?;
    }
    write(Path::new("empty"), 0, 0o644, 0)?;
    write(Path::new("a name with spaces, äöü and 文字"), 5, 0o640, 0)?;
    write(Path::new(OsStr::from_bytes(b"not UTF-8: \xff\xfe")), 5, 0o644, 0)?;
    write(Path::new(&"n".repeat(255)), 5, 0o444, 0)?;
    write(Path::new("down/down/down/down/down/leaf"), 5, 0o755, 0)?;
    fs::create_dir(root.join("empty-directory"))?;
    symlink("film.bin", root.join("link"))?;
    symlink("/nowhere", root.join("dangling"))?;
    Ok(content)
}

/// Returns the first path that is not the same in both trees: kind, bytes, mode, time, target.
pub(super) fn first_difference(left: &Path, right: &Path) -> io::Result<Option<PathBuf>> {
    let (a, b) = (fs::symlink_metadata(left)?, fs::symlink_metadata(right)?);
    let differs = Ok(Some(right.to_owned()));
    if a.file_type() != b.file_type() {
        return differs;
    }
    if a.is_symlink() {
        return if fs::read_link(left)? == fs::read_link(right)? { Ok(None) } else { differs };
    }
    if a.mode() != b.mode() || a.modified()? != b.modified()? {
        return differs;
    }
    if !a.is_dir() {
        return if fs::read(left)? == fs::read(right)? { Ok(None) } else { differs };
    }
    let (names, others) = (names(left)?, names(right)?);
    if names != others {
        return differs;
    }
    for name in names {
        let difference = first_difference(&left.join(&name), &right.join(&name))?;
        if difference.is_some() {
            return Ok(difference);
        }
    }
    Ok(None)
}

fn names(directory: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    let mut names =
        fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// Returns bytes without a pattern (Marsaglia 2003, xorshift64).
pub(super) fn noise(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_difference_is_found() {
        let place = tempfile::tempdir().unwrap();
        let (left, right) = (place.path().join("left"), place.path().join("right"));
        for tree in [&left, &right] {
            fs::create_dir(tree).unwrap();
            fs::write(tree.join("file"), b"same").unwrap();
        }
        let time = SystemTime::UNIX_EPOCH;
        let set_time = |path: PathBuf| File::open(path).unwrap().set_modified(time).unwrap();
        for tree in [&left, &right] {
            set_time(tree.join("file"));
            set_time(tree.clone());
        }
        assert_eq!(first_difference(&left, &right).unwrap(), None);
        fs::write(right.join("file"), b"diff").unwrap();
        set_time(right.join("file"));
        assert_eq!(first_difference(&left, &right).unwrap(), Some(right.join("file")));
        fs::remove_file(right.join("file")).unwrap();
        set_time(right.clone());
        assert_eq!(first_difference(&left, &right).unwrap(), Some(right));
    }
}
