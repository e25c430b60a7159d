//! Files and trees that a step begins with.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileExt as _, PermissionsExt as _, symlink},
    },
    path::Path,
    time::{Duration, SystemTime},
};

use anyhow::{Result, bail};

use super::table::Fixture;

/// Regular files of a tree beside those with odd names.
const FILES: usize = 300;

/// Files of a directory that a server lists in many parts.
const MANY: usize = 1000;

/// Names that programs stumble over, all of them UTF-8.
const ODD: [&str; 14] = [
    "-leading dash",
    " spaces both sides ",
    "line\nbreak",
    "tab\there",
    "*?[a]{b}",
    "quote'\"`$(x)",
    "100%41 %2F",
    "semi;colon&and|pipe",
    "back\\slash",
    "gr\u{fc}\u{df}e \u{65e5}\u{672c} \u{1f980}",
    "e\u{301} decomposed",
    "..almost",
    "~",
    "#hash@host:path",
];

/// Makes what is listed, below a directory that exists.
pub(crate) fn make(fixtures: &BTreeMap<String, Fixture>, root: &Path) -> Result<()> {
    for (name, fixture) in fixtures {
        let path = root.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        match fixture {
            Fixture::File(bytes) => fs::write(&path, contents(*bytes, name.len() as u64))?,
            Fixture::Named(kind) => match (kind.as_str(), kind.strip_prefix("-> ")) {
                (_, Some(target)) => symlink(target, &path)?,
                ("directory", _) => fs::create_dir(&path)?,
                ("tree", _) => tree(&path)?,
                ("bytes", _) => bytes(&path)?,
                ("many", _) => many(&path)?,
                ("holes", _) => holes(&path)?,
                ("executable", _) => {
                    file(&path, b"#!/bin/true\n", 9)?;
                    fs::set_permissions(&path, fs::Permissions::from_mode(0o750))?;
                }
                _ => bail!("no fixture is called {kind:?}"),
            },
        }
    }
    Ok(())
}

/// Bytes of all files of a list.
pub(crate) fn size(fixtures: &BTreeMap<String, Fixture>) -> u64 {
    fixtures.values().map(|fixture| if let Fixture::File(bytes) = fixture { *bytes } else { 0 }).sum()
}

/// Bytes without a period that a block could be taken for another by.
fn contents(bytes: u64, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut data = Vec::with_capacity(bytes as usize + 8);
    while (data.len() as u64) < bytes {
        // Marsaglia's xorshift64.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        data.extend_from_slice(&state.to_le_bytes());
    }
    data.truncate(bytes as usize);
    data
}

fn tree(root: &Path) -> Result<()> {
    fs::create_dir(root)?;
    for index in 0..FILES {
        let directory = root.join(format!("directory {}", index % 10));
        if index < 10 {
            fs::create_dir(&directory)?;
        }
        let size = [0, 1, 777, 4096, 20_000][index % 5];
        file(&directory.join(format!("file {index}")), &contents(size, index as u64), index as u64)?;
    }
    let deep = root.join("1/2/3/4/5/6/7/8");
    fs::create_dir_all(&deep)?;
    file(&deep.join("bottom"), b"deep down", 1)?;
    fs::create_dir(root.join("empty"))?;
    file(&root.join("x".repeat(255)), b"a long name", 2)?;
    for (index, name) in ODD.iter().enumerate() {
        file(&root.join(name), name.as_bytes(), index as u64)?;
    }
    Ok(())
}

/// Names that are no UTF-8: all bytes but the slash, in names of 64.
fn bytes(root: &Path) -> Result<()> {
    fs::create_dir(root)?;
    let all: Vec<u8> = (1..=255).filter(|&byte| byte != b'/').collect();
    for name in all.chunks(64) {
        file(&root.join(OsStr::from_bytes(name)), name, 3)?;
    }
    Ok(())
}

fn many(root: &Path) -> Result<()> {
    fs::create_dir(root)?;
    for index in 0..MANY {
        fs::write(root.join(format!("a file with a name of some length {index:04}")), [])?;
    }
    Ok(())
}

/// A file of 3 MiB with holes at both ends.
fn holes(path: &Path) -> Result<()> {
    let file = fs::File::create(path)?;
    file.write_all_at(&contents(100_000, 7), 1 << 20)?;
    Ok(file.set_len(3 << 20)?)
}

fn file(path: &Path, data: &[u8], number: u64) -> Result<()> {
    fs::write(path, data)?;
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000 + number, 0);
    fs::File::options().write(true).open(path)?.set_modified(time)?;
    Ok(())
}
