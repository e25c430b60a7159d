//! A tree with everything that trees are known to hold, and a comparison of two of them.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File, Metadata},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rustix::{fs::Mode, fs::SeekFrom};

/// Regular files in the tree, beside the odd ones.
const FILES: usize = 2000;

/// Where the data of the sparse file begins.
const SPARSE_OFFSET: u64 = (4 << 30) + 4096;

/// Makes the tree at `root`, which must not exist.
pub(crate) fn make(root: &Path) {
    fs::create_dir(root).expect("a new directory");
    for index in 0..FILES {
        let directory = root.join(format!("directory {:02}", index % 40));
        if index < 40 {
            fs::create_dir(&directory).expect("a new directory");
        }
        let size = [0, 1, 4096, 777][index % 4];
        let data: Vec<_> = (0..size).map(|byte| (byte * 7 + index) as u8).collect();
        write(&directory.join(format!("file {index:04}")), &data, index);
    }
    let mut deep = root.to_path_buf();
    for level in 0..30 {
        deep.push(format!("level {level}"));
        fs::create_dir(&deep).expect("a new directory");
    }
    write(&deep.join("bottom"), b"deep down", 1);
    write(&root.join("x".repeat(255)), b"a long name", 2);
    write(&root.join(OsStr::from_bytes(b"not \xff\xfe UTF-8 \x01")), b"odd bytes", 3);
    write(&root.join("-leading dash"), b"looks like an option", 4);
    write(&root.join("line\nbreak"), b"two lines", 5);
    fs::create_dir(root.join("empty")).expect("a new directory");
    symlink("directory 00/file 0000", root.join("link")).expect("a link");
    symlink("no/where", root.join("dangling")).expect("a link");
    symlink("/etc/hostname", root.join("absolute")).expect("a link");
    let sparse = File::create(root.join("sparse")).expect("a new file");
    sparse.write_all_at(b"beyond four GiB", SPARSE_OFFSET).expect("a sparse file");
    rustix::fs::mknodat(rustix::fs::CWD, root.join("fifo"), rustix::fs::FileType::Fifo, Mode::RUSR, 0)
        .expect("a fifo");
}

fn write(path: &Path, data: &[u8], number: usize) {
    fs::write(path, data).expect("a new file");
    let mode = [0o644, 0o600, 0o755, 0o444][number % 4];
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000 + number as u64, 123_456_000);
    File::open(path).and_then(|file| file.set_modified(time)).expect("a time");
}

/// Panics unless both trees hold the same; fifos are left out, as copies leave them out.
pub(crate) fn assert_equal(expected: &Path, found: &Path) {
    let (expected, found) = (entries(expected), entries(found));
    let names =
        |entries: &BTreeMap<PathBuf, (PathBuf, Metadata)>| entries.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&expected), names(&found), "names");
    for (name, (path, metadata)) in &expected {
        let (copy, copied) = &found[name];
        assert_eq!(metadata.file_type(), copied.file_type(), "type of {name:?}");
        if metadata.is_symlink() {
            assert_eq!(fs::read_link(path).unwrap(), fs::read_link(copy).unwrap(), "target of {name:?}");
            continue;
        }
        let shown = |metadata: &Metadata| (metadata.mode(), metadata.mtime(), metadata.mtime_nsec());
        assert_eq!(shown(metadata), shown(copied), "mode and time of {name:?}");
        if metadata.is_file() {
            assert_eq!(metadata.len(), copied.len(), "size of {name:?}");
            assert!(data(path) == data(copy), "contents of {name:?}");
        }
    }
}

fn entries(root: &Path) -> BTreeMap<PathBuf, (PathBuf, Metadata)> {
    let (mut found, mut directories) = (BTreeMap::new(), vec![root.to_path_buf()]);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let metadata = fs::symlink_metadata(&path).expect("metadata");
            if metadata.is_dir() {
                directories.push(path.clone());
            }
            if metadata.is_dir() || metadata.is_file() || metadata.is_symlink() {
                let name = path.strip_prefix(root).expect("below the root").to_path_buf();
                found.insert(name, (path, metadata));
            }
        }
    }
    found
}

/// The stretches of a file that are not zero: offset and bytes, in pieces of one page. Holes cost nothing.
fn data(path: &Path) -> Vec<(u64, Vec<u8>)> {
    const PAGE: u64 = 4096;
    let file = File::open(path).expect("a file");
    let (size, mut offset, mut pieces) = (file.metadata().expect("metadata").len(), 0, Vec::new());
    while let Ok(start) = rustix::fs::seek(&file, SeekFrom::Data(offset)) {
        let end = rustix::fs::seek(&file, SeekFrom::Hole(start)).unwrap_or(size);
        for page in (start / PAGE..end.div_ceil(PAGE)).map(|page| page * PAGE) {
            let mut bytes = vec![0; usize::try_from(PAGE.min(size - page)).expect("one page")];
            file.read_exact_at(&mut bytes, page).expect("bytes");
            if bytes.iter().any(|&byte| byte != 0) {
                pieces.push((page, bytes));
            }
        }
        offset = end;
    }
    pieces
}
