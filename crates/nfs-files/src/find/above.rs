//! The directories above a file, as they were walked through.

use std::sync::Arc;

use nfs_wireless_client::FileHandle;

/// Directories from the one that holds a file up to its export's root; none for the root.
#[derive(Clone, Debug, Default)]
pub struct Above(Option<Arc<Level>>);

#[derive(Debug)]
struct Level {
    handle: FileHandle,
    above: Above,
}

impl Above {
    /// Returns what is above the files in a directory.
    pub fn inside(&self, directory: FileHandle) -> Self {
        Self(Some(Arc::new(Level { handle: directory, above: self.clone() })))
    }

    /// Returns the directory that holds the file.
    pub fn directory(&self) -> Option<FileHandle> {
        self.0.as_ref().map(|level| level.handle)
    }

    /// Whether a directory is above the file. No directory lies in itself: what seems to would be read, changed or removed in
    /// another place than where it was named.
    pub fn contains(&self, directory: FileHandle) -> bool {
        let mut next = self.0.as_ref();
        while let Some(level) = next {
            if level.handle == directory {
                return true;
            }
            next = level.above.0.as_ref();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directory_on_the_way_is_above() {
        let [root, inner, other] =
            [&b"root"[..], b"inner", b"other"].map(|bytes| FileHandle::try_from(bytes).unwrap());
        let above = Above::default().inside(root).inside(inner);
        assert_eq!(above.directory(), Some(inner));
        assert!(above.contains(root) && above.contains(inner) && !above.contains(other));
        assert!(!Above::default().contains(root));
    }
}
