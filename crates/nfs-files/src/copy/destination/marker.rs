//! The mark of an unfinished copy of a directory: a file in it, with the path and the identity of the source.

use std::{fmt::Display, io::Read};

use nfs_wireless_client::{self as client, Client, FileHandle, FileType, NfsStatus};

use crate::{
    context::Context,
    copy::{
        destination::{Place, RemotePlace},
        source::{Kind, Node},
    },
    error::{Error, Result, ResultExt, has_status, is_missing, show},
    escape::escape,
    local::Directory,
    name::{MARKER, fnv1a},
};

/// Bytes that a mark may have: what a server takes and gives in one call.
const MOST_BYTES: u32 = 4096;

/// Returns what the mark of a copy of this directory holds: its path, and on a line of its own what tells it from others in whatever
/// words it is named. Nothing if that is too long, which is the mark of a copy of any directory.
pub(in crate::copy) fn of(source: &Node) -> Vec<u8> {
    let mark = [&source.path()[..], format!("\n{:016x}", fnv1a(&source.resume_key())).as_bytes()].concat();
    if mark.len() > MOST_BYTES as usize { Vec::new() } else { mark }
}

/// Splits what a mark holds: the path of the source, and what tells it from others.
fn split(mark: &[u8]) -> (&[u8], &[u8]) {
    mark.split_at(mark.iter().rposition(|&byte| byte == b'\n').unwrap_or(mark.len()))
}

/// Returns what the mark in a directory on this machine holds, if there is one.
pub(in crate::copy) fn local(directory: &Directory) -> Option<Vec<u8>> {
    directory.stat(MARKER).ok()??;
    let mut bytes = Vec::new();
    // That of somebody else may be the mark of any copy, and so may what is no file.
    if let Ok(Some(file)) = directory.read_own(MARKER) {
        let _ = file.take(MOST_BYTES.into()).read_to_end(&mut bytes);
    }
    Some(bytes)
}

/// Refuses a directory on this machine in which others could have put the mark.
///
/// # Errors
/// What can be done.
pub(in crate::copy) fn check_own(directory: &Directory) -> Result<()> {
    if !matches!(directory.stat(MARKER), Ok(Some(_))) || matches!(directory.read_own(MARKER), Ok(Some(_))) {
        return Ok(());
    }
    let (shown, marker) = (show(directory.path()), escape(MARKER));
    let text = format!(
        "{shown}: {marker} in it is not a file of this user, or others may write it; remove that, or complete the copy with -T"
    );
    Err(Error::other(text))
}

/// Returns what the mark in a directory on a server holds, if there is one.
///
/// # Errors
/// Those of LOOKUP and READ.
pub(in crate::copy) async fn remote(
    client: &Client,
    directory: FileHandle,
) -> Result<Option<Vec<u8>>, client::Error> {
    let mark = match client.lookup(directory, MARKER).await {
        Err(error) if is_missing(&error) => return Ok(None),
        mark => mark?,
    };
    if mark.metadata.file_type != FileType::Regular || mark.metadata.size == 0 {
        return Ok(Some(Vec::new()));
    }
    match client.read(mark.handle, 0, MOST_BYTES).await {
        // That of somebody else may be the mark of any copy.
        Err(error) if has_status(&error, NfsStatus::ACCES) => Ok(Some(Vec::new())),
        read => Ok(Some(read?.0.to_vec())),
    }
}

/// Checks that a marked directory is an unfinished copy of `source`, as [`of`] returns it: of the same directory, or of the same path,
/// for some servers give a directory another handle after a restart.
///
/// # Errors
/// It is one of another directory. `hint` says what else can be done.
pub(in crate::copy) fn check(directory: impl Display, mark: &[u8], source: &[u8], hint: &str) -> Result<()> {
    let ((path, key), (source_path, source_key)) = (split(mark), split(source));
    if mark.is_empty() || source.is_empty() || path == source_path || key == source_key {
        return Ok(());
    }
    let (path, marker) = (escape(path), escape(MARKER));
    let text = format!(
        "{directory}: is the incomplete copy of {path}; complete that first, or remove {marker} in it to copy into it all the same{hint}"
    );
    Err(Error::other(text))
}

impl Place {
    /// Returns what the mark in the directory holds, if there is one.
    ///
    /// # Errors
    /// The mark cannot be read.
    pub(in crate::copy) async fn mark(&self, context: Context<'_>) -> Result<Option<Vec<u8>>> {
        match self.present(context, MARKER).await? {
            None => return Ok(None),
            Some(mark) if mark.kind != Kind::File || mark.attributes.size == 0 => {
                return Ok(Some(Vec::new()));
            }
            Some(_) => {}
        }
        match self {
            Self::Planned(_) => Ok(None),
            Self::Local { directory, .. } => Ok(local(directory)),
            Self::Remote(place) => {
                let read = async |at: &RemotePlace| remote(&at.client, at.handle).await.at(&at.remote);
                place.with(context, read).await
            }
        }
    }
}
