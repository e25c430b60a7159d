//! Directories in which what is kept is this user's, also where `$HOME` is that of somebody else, as it may be with sudo(8).

use std::{
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{self, FileType},
    io::Errno,
};

use super::{Directory, is_private, is_sticky, not_private, user_base};
use crate::error::{io_text, show};

/// A directory, and the one above it from which on nobody else may change what leads to it.
#[derive(Clone, Debug)]
pub struct Own {
    base: PathBuf,
    below: PathBuf,
}

impl Own {
    /// Ours, or what is `below` that, in the base that `variable` names, or else in `default` below the user's home.
    pub fn directory(variable: &str, default: &str, below: &str) -> Option<Self> {
        let (base, default) = user_base(variable, default)?;
        Some(Self { base, below: Path::new(default).join("nfsw").join(below) })
    }

    /// What is `below` that base, which the user's programs share.
    pub fn shared(variable: &str, default: &str, below: &str) -> Option<Self> {
        let (base, default) = user_base(variable, default)?;
        Some(Self { base, below: Path::new(default).join(below) })
    }

    /// What is `below` a base.
    pub fn within(base: PathBuf, below: &str) -> Self {
        Self { base, below: below.into() }
    }

    /// Returns where it is.
    pub fn path(&self) -> PathBuf {
        // Joining nothing would put a slash behind it.
        self.base.iter().chain(&self.below).collect()
    }

    /// Looks at the directories that lead to it, as far as they are there.
    ///
    /// # Errors
    /// `PermissionDenied` where somebody else may change what is in one of them.
    pub fn check(&self) -> io::Result<()> {
        let mut path = self.base.clone();
        let mut names = self.below.components();
        let mut is_shared = false;
        loop {
            // In a directory such as /tmp nobody can replace what is ours, but put a link there before.
            let stat = match if is_shared { fs::lstat(&path) } else { fs::stat(&path) } {
                Err(Errno::NOENT) => return Ok(()),
                stat => stat?,
            };
            let next = names.next();
            let is_private = is_private(&stat);
            is_shared = !is_private && next.is_some() && is_sticky(&stat);
            if !is_private && !is_shared || FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
                let error = not_private();
                return Err(io::Error::new(error.kind(), format!("{}: {}", show(&path), io_text(&error))));
            }
            match next {
                Some(name) => path.push(name),
                None => return Ok(()),
            }
        }
    }

    /// Opens it, creating it if need be.
    ///
    /// # Errors
    /// As [`Own::check`]; what creating it fails of.
    pub fn open(&self) -> io::Result<Directory> {
        self.check()?;
        let path = self.path();
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        // Somebody may have made one of them meanwhile.
        self.check()?;
        Directory::open(&path)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{Permissions, create_dir_all, set_permissions},
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    #[test]
    fn what_others_may_change_on_the_way_is_refused() {
        let mode = |path: &Path, mode| set_permissions(path, Permissions::from_mode(mode)).unwrap();
        type Change = fn(&Path, &dyn Fn(&Path, u32));
        let changes: [(&str, bool, Change); 6] = [
            ("as it is made", true, |_, _| {}),
            ("a link of the user", true, |home, _| {
                std::fs::rename(home.join("a"), home.join("elsewhere")).unwrap();
                symlink(home.join("elsewhere"), home.join("a")).unwrap();
            }),
            ("a home for all", false, |home, mode| mode(home, 0o777)),
            ("a sticky home", true, |home, mode| mode(home, 0o1777)),
            ("a link in a sticky home", false, |home, mode| {
                std::fs::rename(home.join("a"), home.join("elsewhere")).unwrap();
                symlink(home.join("elsewhere"), home.join("a")).unwrap();
                mode(home, 0o1777);
            }),
            ("a directory on the way", false, |home, mode| mode(&home.join("a"), 0o772)),
        ];
        for (what, is_good, change) in changes {
            let home = tempfile::tempdir().unwrap();
            create_dir_all(home.path().join("a/b")).unwrap();
            mode(&home.path().join("a"), 0o755);
            change(home.path(), &mode);
            let own = Own { base: home.path().to_owned(), below: "a/b/nfsw".into() };
            assert_eq!(
                own.open().map(|_| ()).map_err(|it| it.kind()),
                if is_good { Ok(()) } else { Err(io::ErrorKind::PermissionDenied) },
                "{what}"
            );
            assert_eq!(home.path().join("a/b/nfsw").exists(), is_good, "{what}");
        }
        let nowhere = tempfile::tempdir().unwrap();
        let own = Own { base: nowhere.path().join("x/y"), below: "nfsw".into() };
        own.check().unwrap();
        own.open().unwrap();
    }
}
