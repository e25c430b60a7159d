//! What mounts tell of themselves (`nfsw mount --status`): each listens on a socket, and whoever connects is told its state.
//!
//! A socket is gone for good when its process is: nobody accepts connections any more. So there is no state that could be out of date.

use std::{
    fs,
    io::{self, Read},
    os::{
        fd::AsRawFd,
        unix::{ffi::OsStrExt, fs::MetadataExt, net::UnixStream},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use tokio::{io::AsyncWriteExt, net::UnixListener};

use crate::local::Own;

/// How long a mount may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of an answer, at most.
const LONGEST: u64 = 64 << 10;

/// How long whoever asks may take to read the answer.
const READER: Duration = Duration::from_secs(1);

/// What one of this user's mounts says.
#[derive(Debug)]
pub(crate) enum Told {
    State(Value),
    /// It is there but silent: stopped, or stuck.
    Silent(PathBuf),
}

/// Tells the state of a mount for as long as it is polled; gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Teller {
    listener: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl Teller {
    /// Listens for questions about the mount at a path.
    ///
    /// # Errors
    /// Without a directory for the socket that is this user's alone.
    pub(crate) fn listen(point: &Path) -> io::Result<Self> {
        let own = directory().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        own.open()?;
        let directory = own.path();
        let name = format!("{}.socket", id(point));
        let path = directory.join(&name);
        // Left behind by a process that was killed: a point has one mount at a time.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = short(&directory, &name, |path| UnixListener::bind(path))?;
        let inode = fs::symlink_metadata(&path)?.ino();
        Ok(Self { listener, path, inode })
    }

    /// Answers everybody.
    pub(crate) async fn tell(&self, state: impl Fn() -> Value) -> std::convert::Infallible {
        loop {
            let Ok((mut stream, _)) = self.listener.accept().await else {
                tokio::time::sleep(READER).await;
                continue;
            };
            let answer = state().to_string();
            let write = async {
                stream.write_all(answer.as_bytes()).await?;
                stream.shutdown().await
            };
            let _ = tokio::time::timeout(READER, write).await;
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        // The next mount at this point may have made one of its own.
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Asks all mounts of this user.
///
/// # Errors
/// If their sockets cannot be listed, or others may have made them.
pub(crate) fn ask_all() -> io::Result<Vec<Told>> {
    let Some(own) = directory() else { return Ok(Vec::new()) };
    let directory = own.path();
    let entries = match own.check().and_then(|()| fs::read_dir(&directory)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut told = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let Some(name) = name.to_str().filter(|name| name.ends_with(".socket")) else { continue };
        match short(&directory, name, ask) {
            Ok(state) => told.push(Told::State(state)),
            Err(error) => match error.kind() {
                // Its process was killed.
                io::ErrorKind::ConnectionRefused => _ = fs::remove_file(directory.join(name)),
                io::ErrorKind::NotFound => {}
                _ => told.push(Told::Silent(directory.join(name))),
            },
        }
    }
    Ok(told)
}

fn ask(path: &Path) -> io::Result<Value> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = String::new();
    stream.take(LONGEST).read_to_string(&mut text)?;
    serde_json::from_str(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Calls something with a path of a socket that is short enough for one: paths of sockets have 107 bytes.
fn short<T>(directory: &Path, name: &str, call: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let open = fs::File::open(directory)?;
    call(&PathBuf::from(format!("/proc/self/fd/{}/{name}", open.as_raw_fd())))
}

/// Where the sockets are: in a directory that ends with the login, else with what is kept for the user.
fn directory() -> Option<Own> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    match runtime.filter(|path| path.is_absolute() && path.is_dir()) {
        Some(runtime) => Some(Own::within(runtime, "nfsw/mounts")),
        None => Own::directory("XDG_STATE_HOME", ".local/state", "mounts"),
    }
}

/// Names a mount point in a file name.
pub(crate) fn id(point: &Path) -> String {
    blake3::hash(point.as_os_str().as_bytes()).to_hex().as_str()[..16].to_owned()
}
