//! Files by path, with the calls of the back end on threads that may wait.

use std::sync::Arc;

use hyper::StatusCode;
use nfs_wireless_server::{
    Vfs,
    nfs_wire::Status,
    nfs3_types::nfs3::{fattr3, ftype3},
    vfs::{Name, NodeId},
};
use percent_encoding::percent_decode_str;
use tokio::sync::Semaphore;

/// Calls of back ends at once, in all.
const MAX_CALLS: usize = 32;

/// Where back ends are called.
#[derive(Clone, Debug)]
pub(crate) struct Disk(Arc<Semaphore>);

/// What a path leads to.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) node: NodeId,
    pub(crate) attributes: fattr3,
    /// Its name; empty for the whole.
    pub(crate) name: Vec<u8>,
}

impl Default for Disk {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_CALLS)))
    }
}

impl Disk {
    /// Does something that may wait for a disk.
    ///
    /// # Errors
    /// Those of what is done; `NFS3ERR_SERVERFAULT` if it panics.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        let _permit = self.0.acquire().await.map_err(|_| Status::SERVERFAULT)?;
        tokio::task::spawn_blocking(work).await.map_err(|_| Status::SERVERFAULT)?
    }
}

/// Finds what the path of an address leads to, from one name to the next; links are not followed.
///
/// # Errors
/// The status of the LOOKUP that fails, or of a part that is no name.
pub(crate) fn find(files: &dyn Vfs, path: &str) -> Result<Found, Status> {
    let (mut node, mut name) = (files.root(), Vec::new());
    let inner = path.strip_suffix('/').unwrap_or(path);
    for part in inner.split('/').filter(|_| !inner.is_empty()) {
        name = percent_decode_str(part).collect();
        let part = Name::new(&name).map_err(|_| Status::NOENT)?;
        node = files.lookup(node, part)?;
    }
    Ok(Found { node, attributes: files.attributes(node)?, name })
}

impl Found {
    pub(crate) fn is_folder(&self) -> bool {
        self.attributes.type_ == ftype3::NF3DIR
    }

    pub(crate) fn is_file(&self) -> bool {
        self.attributes.type_ == ftype3::NF3REG
    }
}

/// What HTTP calls a status of a back end.
pub(crate) fn status_code(status: Status) -> StatusCode {
    match status {
        Status::ACCES | Status::PERM => StatusCode::FORBIDDEN,
        Status::NOENT
        | Status::NOTDIR
        | Status::STALE
        | Status::NAMETOOLONG
        | Status::ISDIR
        | Status::INVAL => StatusCode::NOT_FOUND,
        Status::JUKEBOX => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
