//! The mark of an unfinished copy of a directory: a file in it, with the path and the identity of the source, and a seal that only this
//! user can make.

use std::{fmt::Display, fs::File, io::Read};

use nfs_wireless_client::{self as client, Client, FileHandle, FileType, NfsStatus};

use crate::{
    context::Context,
    copy::{
        destination::{Location, RemoteLocation},
        source::Node,
    },
    error::{Error, Result, ResultExt, has_status, is_missing},
    escape::escape,
    journal,
    local::{Directory, Key},
    name::{MARKER, fnv1a},
};

/// Bytes that a mark may have: what a server takes and gives in one call.
const MOST_BYTES: u32 = 8192;

/// Longest path that a mark has.
const MOST_PATH_BYTES: usize = 4096;

/// Hexadecimal digits of a seal.
const SEAL_DIGITS: usize = 64;

/// A mark that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::copy) struct Mark {
    /// What it is the mark of, as [`of`] returns it; nothing if it does not say.
    pub(in crate::copy) of: Vec<u8>,
    /// Whether it is known that this user has made it.
    pub(in crate::copy) is_own: bool,
}

/// Returns what the mark of a copy of this directory says: its path, and on a line of its own what tells it from others in whatever
/// words it is named. Of a path that is too long, its hash.
pub(in crate::copy) fn of(source: &Node) -> Vec<u8> {
    let mut path = source.path();
    if path.len() > MOST_PATH_BYTES {
        path = blake3::hash(&path).to_hex().as_bytes().to_vec();
    }
    [&path[..], format!("\n{:016x}", fnv1a(&source.resume_key())).as_bytes()].concat()
}

/// Returns a mark with a seal, on a line of its own, if there is a key for it.
pub(in crate::copy) fn sealed(of: &[u8], key: Option<Key>) -> Vec<u8> {
    match key {
        Some(key) => [of, b"\n", seal(of, key).as_bytes()].concat(),
        None => of.to_vec(),
    }
}

fn seal(of: &[u8], key: Key) -> String {
    let sealed = journal::sealed(of, key);
    blake3::hash(&sealed).to_hex().to_string()
}

/// Reads a mark.
fn read(bytes: &[u8], key: Option<Key>) -> Mark {
    let (of, last) = split(bytes);
    match last.strip_prefix(b"\n") {
        Some(last) if last.len() == SEAL_DIGITS => {
            Mark { of: of.to_vec(), is_own: key.is_some_and(|key| seal(of, key).as_bytes() == last) }
        }
        _ => Mark { of: bytes.to_vec(), is_own: false },
    }
}

/// Splits what a mark says: the path of the source, and what tells it from others.
fn split(mark: &[u8]) -> (&[u8], &[u8]) {
    mark.split_at(mark.iter().rposition(|&byte| byte == b'\n').unwrap_or(mark.len()))
}

/// Returns the mark in a directory on this machine, if there is one. Its owner and its mode tell whether it is this user's or, where all
/// files have the same, its seal.
pub(in crate::copy) fn local(directory: &Directory, key: Option<Key>) -> Option<Mark> {
    directory.stat(MARKER).ok()??;
    let read_from = |file: File, key| {
        let mut bytes = Vec::new();
        let _ = file.take(MOST_BYTES.into()).read_to_end(&mut bytes);
        read(&bytes, key)
    };
    if let Ok(Some(file)) = directory.read_own(MARKER) {
        return Some(Mark { is_own: true, ..read_from(file, None) });
    }
    let sealed = directory.read(MARKER).ok().map(|file| read_from(file, key));
    Some(sealed.filter(|mark| mark.is_own).unwrap_or(Mark { of: Vec::new(), is_own: false }))
}

/// Refuses a directory in which others could have put the mark.
///
/// # Errors
/// What can be done.
pub(in crate::copy) fn check_own(directory: impl Display, mark: &Mark) -> Result<()> {
    if mark.is_own {
        return Ok(());
    }
    let marker = escape(MARKER);
    let text = format!(
        "{directory}: {marker} in it is not known to be made by this user; remove that, or complete the copy with -T"
    );
    Err(Error::other(text))
}

/// Returns the mark in a directory on a server, if there is one. Its seal tells whether it is this user's: servers give files the owners
/// that they like.
///
/// # Errors
/// Those of LOOKUP and READ.
pub(in crate::copy) async fn remote(
    client: &Client,
    directory: FileHandle,
    key: Option<Key>,
) -> Result<Option<Mark>, client::Error> {
    let mark = match client.lookup(directory, MARKER).await {
        Err(error) if is_missing(&error) => return Ok(None),
        mark => mark?,
    };
    if mark.metadata.file_type != FileType::Regular || mark.metadata.size == 0 {
        return Ok(Some(read(&[], key)));
    }
    let mut bytes = Vec::new();
    // A server may return less than was asked for.
    while bytes.len() < MOST_BYTES as usize {
        match client.read(mark.handle, bytes.len() as u64, MOST_BYTES).await {
            Err(error) if has_status(&error, NfsStatus::ACCES) => break,
            read => {
                let (more, is_end) = read?;
                bytes.extend_from_slice(&more);
                if is_end || more.is_empty() {
                    break;
                }
            }
        }
    }
    Ok(Some(read(&bytes, key)))
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

impl Location {
    /// Returns what the mark in the directory is the mark of, if there is one.
    ///
    /// # Errors
    /// The mark cannot be read.
    pub(in crate::copy) async fn mark(&self, context: Context<'_>) -> Result<Option<Vec<u8>>> {
        if self.present(context, MARKER).await?.is_none() {
            return Ok(None);
        }
        let mark = match self {
            Self::Planned(_) => None,
            Self::Local { directory, .. } => local(directory, None),
            Self::Remote(location) => {
                let look =
                    async |at: &RemoteLocation| remote(&at.client, at.handle, None).await.at(&at.remote);
                location.with(context, look).await?
            }
        };
        Ok(mark.map(|mark| mark.of))
    }
}
