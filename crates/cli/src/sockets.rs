//! Processes of this user that answer others of the same user: each listens on a socket in a directory that is this user's alone.
//!
//! A socket is gone for good when its process is: nobody accepts connections any more. So there is no state that could be out of date.

use std::{
    fs,
    io::{self, Read, Write},
    net::Shutdown,
    os::{
        fd::AsRawFd,
        unix::{
            fs::{MetadataExt, PermissionsExt},
            net::UnixStream as Asking,
        },
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::geteuid;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
};

use crate::local::Own;

/// How long a process may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of a question or an answer, at most.
const LONGEST: u64 = 256 << 10;

/// How long whoever asks may take to ask, and to read the answer.
const ASKER_TIME: Duration = Duration::from_secs(1);

/// The sockets of one kind of process.
#[derive(Clone, Debug)]
pub(crate) struct Sockets(Own);

/// What a process says.
#[derive(Debug)]
pub(crate) enum Told {
    State(Value),
    /// It is there but silent: stopped, or stuck.
    Silent(PathBuf),
}

/// A socket that others may ask on; gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    listener: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl Sockets {
    /// In a directory that ends with the login, else with what is kept for the user; `None` where neither is.
    pub(crate) fn of(kind: &str) -> Option<Self> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        Some(Self(match runtime.filter(|path| path.is_absolute() && path.is_dir()) {
            Some(runtime) => Own::within(runtime, &format!("nfsw/{kind}")),
            None => Own::directory("XDG_STATE_HOME", ".local/state", kind)?,
        }))
    }

    /// Listens under a name that one process has at a time.
    ///
    /// # Errors
    /// Without a directory for the socket that is this user's alone.
    pub(crate) fn listen(&self, name: &str) -> io::Result<Listener> {
        self.0.open()?;
        let (directory, name) = (self.0.path(), format!("{name}.socket"));
        let path = directory.join(&name);
        // Left behind by a process that was killed.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = short(&directory, &name, |path| UnixListener::bind(path))?;
        // Nobody else comes into the directory.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        let inode = fs::symlink_metadata(&path)?.ino();
        Ok(Listener { listener, path, inode })
    }

    /// Returns the names of all sockets.
    ///
    /// # Errors
    /// If they cannot be listed, or others may have made them.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let entries = match self.0.check().and_then(|()| fs::read_dir(self.0.path())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            names.extend(name.to_str().and_then(|name| name.strip_suffix(".socket")).map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }

    /// Asks the process under a name; `None` if there is none.
    pub(crate) fn ask(&self, name: &str, question: &Value) -> Option<Told> {
        let (directory, name) = (self.0.path(), format!("{name}.socket"));
        match short(&directory, &name, |path| ask(path, question)) {
            Ok(state) => Some(Told::State(state)),
            Err(error) => match error.kind() {
                // Its process was killed.
                io::ErrorKind::ConnectionRefused => {
                    let _ = fs::remove_file(directory.join(name));
                    None
                }
                io::ErrorKind::NotFound => None,
                _ => Some(Told::Silent(directory.join(name))),
            },
        }
    }
}

/// Somebody who has asked something, and waits for the answer.
#[derive(Debug)]
pub(crate) struct Asker {
    /// What is asked.
    pub(crate) question: Value,
    stream: UnixStream,
}

impl Listener {
    /// Returns the next one who may ask.
    pub(crate) async fn next(&self) -> Asker {
        loop {
            let Ok((mut stream, _)) = self.listener.accept().await else {
                tokio::time::sleep(ASKER_TIME).await;
                continue;
            };
            // Nobody else comes into the directory; but should that be wrong, this is not.
            if !stream.peer_cred().is_ok_and(|peer| peer.uid() == geteuid().as_raw() || peer.uid() == 0) {
                continue;
            }
            let mut question = Vec::new();
            let mut limited = (&mut stream).take(LONGEST);
            let read = tokio::time::timeout(ASKER_TIME, limited.read_to_end(&mut question));
            if matches!(read.await, Ok(Ok(_))) {
                return Asker { question: serde_json::from_slice(&question).unwrap_or_default(), stream };
            }
        }
    }
}

impl Asker {
    /// Answers.
    pub(crate) async fn answer(mut self, answer: &Value) {
        let answer = answer.to_string();
        let write = async {
            self.stream.write_all(answer.as_bytes()).await?;
            self.stream.shutdown().await
        };
        let _ = tokio::time::timeout(ASKER_TIME, write).await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The next process under this name may have made one of its own.
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn ask(path: &Path, question: &Value) -> io::Result<Value> {
    let mut stream = Asking::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(question.to_string().as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut text = String::new();
    stream.take(LONGEST).read_to_string(&mut text)?;
    serde_json::from_str(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Calls something with a path of a socket that is short enough for one: paths of sockets have 107 bytes.
fn short<T>(directory: &Path, name: &str, call: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let open = fs::File::open(directory)?;
    call(&PathBuf::from(format!("/proc/self/fd/{}/{name}", open.as_raw_fd())))
}
