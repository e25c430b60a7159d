//! What every private server offers.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;

/// A server that runs until it is dropped.
pub trait Server {
    /// Ports of NFS and of MOUNT on 127.0.0.1.
    fn ports(&self) -> (u16, u16);

    /// The path that clients mount; `/` has no name.
    fn export(&self) -> String;

    /// Whether NFS is offered over UDP, too.
    fn has_udp(&self) -> bool;

    /// Who uses it.
    fn caller(&self) -> Caller {
        Caller::Root
    }

    /// The directory of this machine that is exported, if it is one.
    fn shared(&self) -> Option<PathBuf> {
        None
    }

    /// Makes a directory below the export, writable for all, and copies what is in a local directory into it,
    /// behind the server's back.
    ///
    /// # Errors
    /// Where it cannot be written.
    fn put(&self, from: &Path, below: &str) -> Result<()> {
        let to = self.shared().context("a server of shared files")?.join(below);
        fs::create_dir_all(&to).with_context(|| format!("making {}", to.display()))?;
        let copied = Command::new("cp").args(["-a", "-T"]).arg(from).arg(&to).status()?;
        ensure!(copied.success(), "cp -a to {}", to.display());
        fs::set_permissions(&to, fs::Permissions::from_mode(0o1777))?;
        Ok(())
    }

    /// Looks at a directory below the export, behind the server's back.
    ///
    /// # Errors
    /// Where there is none.
    fn look(&self, below: &str) -> Result<View> {
        Ok(View::shared(self.shared().context("a server of shared files")?.join(below)))
    }

    /// The size of a file below the export whose name begins so, if there is one.
    fn size(&self, below: &str) -> Option<u64> {
        let path = self.shared()?.join(below);
        let (above, name) = (path.parent()?, path.file_name()?.as_encoded_bytes());
        let mut entries = fs::read_dir(above).ok()?.filter_map(Result::ok);
        let begun = entries.find(|entry| entry.file_name().as_encoded_bytes().starts_with(name))?;
        Some(begun.metadata().ok()?.len())
    }

    /// Cuts the server's power and starts it again, with the same ports and files.
    ///
    /// # Errors
    /// Where it does not come back.
    fn crash_and_restart(&mut self) -> Result<()>;

    /// Takes back what is exported, and exports it again after a second.
    ///
    /// # Errors
    /// Where the server cannot do that while it runs.
    fn reexport(&self) -> Result<()> {
        bail!("this server exports what it was started with")
    }

    /// Waits until the server answers.
    ///
    /// # Errors
    /// After a minute.
    fn wait_until_ready(&self) -> Result<()> {
        crate::ready::wait(self.ports(), self.has_udp())
    }
}

/// The user that the client runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The superuser.
    Root,
    /// A user without any right, who has no port below 1024.
    Nobody,
}

/// A directory of a server at one moment, as a local directory.
#[derive(Debug)]
pub struct View {
    path: PathBuf,
    _copy: Option<TempDir>,
}

impl View {
    /// A directory that the server and this machine share.
    #[must_use]
    pub fn shared(path: PathBuf) -> Self {
        Self { path, _copy: None }
    }

    /// A copy that was made for the purpose.
    #[must_use]
    pub fn copied(copy: TempDir) -> Self {
        Self { path: copy.path().to_owned(), _copy: Some(copy) }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}
