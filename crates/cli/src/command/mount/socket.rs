//! What mounts tell of themselves (`nfsw mount --status`): each tells whoever asks its state.

use std::{io, os::unix::ffi::OsStrExt, path::Path};

use serde_json::Value;

pub(crate) use crate::sockets::Told;
use crate::sockets::{Listener, Sockets};

/// Tells the state of a mount for as long as it is polled; gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Teller(Listener);

impl Teller {
    /// Listens for questions about the mount at a path: it has one mount at a time.
    ///
    /// # Errors
    /// Without a directory for the socket that is this user's alone.
    pub(crate) fn listen(point: &Path) -> io::Result<Self> {
        let sockets = sockets().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Self(sockets.listen(&id(point))?))
    }

    /// Answers everybody.
    pub(crate) async fn tell(&self, state: impl Fn() -> Value) -> std::convert::Infallible {
        loop {
            self.0.next().await.answer(&state()).await;
        }
    }
}

/// Asks all mounts of this user.
///
/// # Errors
/// If their sockets cannot be listed, or others may have made them.
pub(crate) fn ask_all() -> io::Result<Vec<Told>> {
    let Some(sockets) = sockets() else { return Ok(Vec::new()) };
    Ok(sockets.names()?.iter().filter_map(|name| sockets.ask(name, &Value::Null)).collect())
}

fn sockets() -> Option<Sockets> {
    Sockets::of("mounts")
}

/// Names a mount point in a file name.
pub(crate) fn id(point: &Path) -> String {
    blake3::hash(point.as_os_str().as_bytes()).to_hex().as_str()[..16].to_owned()
}
