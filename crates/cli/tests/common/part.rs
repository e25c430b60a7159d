//! Where a copy is while it is not complete.

use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Returns where the bytes of a copy are until it is complete; where they would be on this machine, if they are nowhere.
pub(crate) fn part(target: &Path) -> PathBuf {
    let name = [b".", target.file_name().unwrap().as_bytes(), b".nfsw-part"].concat();
    let above = target.parent().unwrap();
    let mut there =
        fs::read_dir(above).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.file_name()));
    // A server's has the tag of the run behind it.
    let found = there.find(|found| found.as_bytes().starts_with(&name));
    above.join(found.unwrap_or_else(|| OsStr::from_bytes(&name).to_owned()))
}
