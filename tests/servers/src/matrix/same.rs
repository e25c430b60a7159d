//! Comparison of files and trees.

use std::{
    collections::BTreeMap,
    fs::{self, Metadata},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

/// Says how two files or trees differ, if they do.
///
/// # Errors
/// Where one of them cannot be read.
pub fn difference(expected: &Path, found: &Path, attributes: bool) -> Result<Option<String>> {
    let (expected, found) = (entries(expected)?, entries(found)?);
    let missing = expected.keys().find(|name| !found.contains_key(*name));
    if let Some(name) = missing {
        return Ok(Some(format!("{} of {} names, {name:?} is missing", found.len(), expected.len())));
    }
    if let Some(name) = found.keys().find(|name| !expected.contains_key(*name)) {
        return Ok(Some(format!("{name:?} is there, too")));
    }
    for (name, (path, metadata)) in &expected {
        let (copy, copied) = &found[name];
        if metadata.file_type() != copied.file_type() {
            return Ok(Some(format!("{name:?} is of another type")));
        }
        if metadata.is_symlink() && fs::read_link(path)? != fs::read_link(copy)? {
            return Ok(Some(format!("link {name:?} leads elsewhere")));
        }
        if metadata.is_file() {
            if metadata.len() != copied.len() {
                return Ok(Some(format!("{name:?} has {} bytes of {}", copied.len(), metadata.len())));
            }
            if fs::read(path)? != fs::read(copy)? {
                return Ok(Some(format!("{name:?} has other bytes")));
            }
        }
        let shown = |metadata: &Metadata| (metadata.permissions().mode() & 0o7777, metadata.mtime());
        if attributes && !metadata.is_symlink() && shown(metadata) != shown(copied) {
            let ((mode, time), (copied_mode, copied_time)) = (shown(metadata), shown(copied));
            return Ok(Some(format!(
                "{name:?}: mode {copied_mode:o} and time {copied_time}, not {mode:o} and {time}"
            )));
        }
    }
    Ok(None)
}

/// All files below a path by their names relative to it; a file alone has an empty name.
fn entries(root: &Path) -> Result<BTreeMap<PathBuf, (PathBuf, Metadata)>> {
    let (mut found, mut left) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(path) = left.pop() {
        let metadata = fs::symlink_metadata(&path)
            .with_context(|| format!("{} is not there", path.file_name().unwrap_or_default().display()))?;
        if metadata.is_dir() {
            for entry in fs::read_dir(&path)? {
                left.push(entry?.path());
            }
        }
        found.insert(path.strip_prefix(root)?.to_owned(), (path, metadata));
    }
    Ok(found)
}
