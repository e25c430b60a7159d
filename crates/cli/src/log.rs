//! The file of `--log-file`: what a copy did and said, with the time.

use std::{
    fmt::Display,
    fs::File,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use jiff::Zoned;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::error::local;

/// A file that lines are added to.
#[derive(Debug)]
pub(crate) struct Log {
    file: File,
    process: u32,
}

impl Log {
    /// Opens a file, which is made if need be.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        // Names of files are nobody else's business, and codes of shares are not either.
        // A fifo that nobody reads is not waited for.
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
        let file = File::options().append(true).create(true).mode(0o600).custom_flags(flags).open(path);
        let waiting = |file: &File| Ok(fcntl_setfl(file, fcntl_getfl(file)? - OFlags::NONBLOCK)?);
        let file =
            file.and_then(|file| waiting(&file).map(|()| file)).map_err(|error| local(path, &error))?;
        Ok(Self { file, process: std::process::id() })
    }

    /// Adds a line. Runs that share a file do not mix their lines.
    ///
    /// # Errors
    /// The file takes nothing any more.
    pub(crate) fn line(&self, text: impl Display) -> io::Result<()> {
        let time = Zoned::now().strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
        (&self.file).write_all(format!("{time} [{}] {text}\n", self.process).as_bytes())
    }
}
