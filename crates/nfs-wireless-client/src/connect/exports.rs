//! The MOUNT program: what is exported, and which of it holds a path.

use nfs_wire::{
    FileHandle, MountStatus,
    mount::{self, Export},
    rpc::{Program, Rejection},
};

use super::{
    Found, accepted, call,
    search::{Candidates, Mounting, deepest, holds, normal},
};
use crate::{
    driver::{Answer, Connection, random_bytes},
    error::Error,
    shown::shown,
};

/// Lists what is exported (EXPORT, RFC 1813 §5.2.5).
pub(super) async fn exports(connection: &Connection, found: Found) -> Result<Vec<Export>, Error> {
    match list(connection, found).await {
        // go-nfs and rclone answer so, though they offer MOUNT.
        Err(
            error @ Error::Rejected {
                rejection:
                    Rejection::ProgramUnavailable
                    | Rejection::VersionUnavailable
                    | Rejection::ProgramMismatch { .. },
                ..
            },
        ) => {
            mount_call(connection, found, mount::procedure::NULL, "NULL", Vec::new()).await?;
            Err(error)
        }
        listed => listed,
    }
}

/// As [`exports`], where any rejection is one of this procedure alone.
async fn list(connection: &Connection, found: Found) -> Result<Vec<Export>, Error> {
    let answer = call(connection, Program::MOUNT, mount::procedure::EXPORT, Vec::new(), found).await?;
    answer.outcome.map_err(|rejection| Error::Rejected { what: "EXPORT", rejection })?;
    mount::decode_exports(&answer.results).map_err(|source| Error::Protocol { what: "EXPORT", source })
}

/// The MOUNT service, and what it was asked before it was known what to ask.
struct Service<'a> {
    connection: &'a Connection,
    found: Found,
    asked: Option<(&'a [u8], Result<FileHandle, Error>)>,
}

impl Mounting for Service<'_> {
    async fn mount(&self, path: &[u8]) -> Result<FileHandle, Error> {
        match &self.asked {
            Some((asked, answer)) if *asked == path => answer.clone(),
            _ => mnt(self.connection, self.found, path).await,
        }
    }
}

/// Lists what is exported and mounts, side by side, what is likely to be the export that holds `path`: it often is, and then a round
/// trip is saved. `known` is what was mounted before; `other`: this can be had over another transport, too.
pub(super) async fn list_and_mount(
    connection: &Connection,
    found: Found,
    path: &[u8],
    known: Option<&[u8]>,
    other: bool,
) -> Result<(Vec<Export>, Candidates), Error> {
    let path = &normal(path)[..];
    let likely = known.filter(|known| holds(known, path)).unwrap_or_else(|| likely_export(path));
    let (listing, mounting) = (list(connection, found), mnt(connection, found, likely));
    tokio::pin!(listing, mounting);
    let mut mounted = None;
    let listed = loop {
        tokio::select! {
            result = &mut mounting, if mounted.is_none() => mounted = Some(result),
            listed = &mut listing => break listed,
        }
    };
    let listed = match listed {
        // It may be too long for a datagram.
        Err(error @ Error::Rejected { rejection: Rejection::SystemError, .. }) if other => return Err(error),
        // Whoever hides the list may still let us mount.
        Err(Error::Rejected { .. } | Error::Protocol { .. }) => Vec::new(),
        listed => listed?,
    };
    if mounted.is_none() && deepest(&listed, path) == Some(likely) {
        mounted = Some(mounting.await);
    }
    let service = Service { connection, found, asked: mounted.map(|answer| (likely, answer)) };
    let candidates = Candidates::mount(&service, path, &listed, &unlikely()).await?;
    Ok((listed, candidates))
}

/// Mounts what may hold `path`, given the list of exports.
pub(super) async fn mount_among(
    connection: &Connection,
    found: Found,
    path: &[u8],
    listed: &[Export],
) -> Result<Candidates, Error> {
    let service = Service { connection, found, asked: None };
    Candidates::mount(&service, path, listed, &unlikely()).await
}

/// Returns a name that no file has.
pub(crate) fn unlikely() -> Vec<u8> {
    format!(".nfsw-{:016x}", u64::from_be_bytes(random_bytes())).into_bytes()
}

/// Mounts an export (MNT, RFC 1813 §5.2.1).
pub(super) async fn mnt(connection: &Connection, found: Found, path: &[u8]) -> Result<FileHandle, Error> {
    let mut arguments = Vec::new();
    let name = || shown(path);
    if path.len() > mount::MAX_PATH_BYTES {
        return Err(Error::Mount { path: name(), status: MountStatus::NAMETOOLONG });
    }
    mount::encode_path(&mut arguments, path);
    let answer = mount_call(connection, found, mount::procedure::MNT, "MNT", arguments).await?;
    mount::decode_mount(&answer.results)
        .map_err(|source| Error::Protocol { what: "MNT", source })?
        .map(|mount| mount.handle)
        .map_err(|status| Error::Mount { path: name(), status })
}

/// Says that an export is no longer used (UMNT, RFC 1813 §5.2.3).
pub(super) async fn umnt(service: &Connection, found: Found, export: &[u8]) -> Result<(), Error> {
    let mut arguments = Vec::new();
    mount::encode_path(&mut arguments, export);
    mount_call(service, found, mount::procedure::UMNT, "UMNT", arguments).await.map(drop)
}

async fn mount_call(
    connection: &Connection,
    found: Found,
    procedure: u32,
    what: &'static str,
    arguments: Vec<u8>,
) -> Result<Answer, Error> {
    let answer = call(connection, Program::MOUNT, procedure, arguments, found).await?;
    accepted(&answer, Program::MOUNT, what, found)?;
    Ok(answer)
}

/// Returns the directory that `path` lies in, or `path` itself where that would be the root of everything.
fn likely_export(path: &[u8]) -> &[u8] {
    parent(path).filter(|&above| above != b"/").unwrap_or(path)
}

/// Returns the directory above `path`, down to `/`.
fn parent(path: &[u8]) -> Option<&[u8]> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let slash = path.iter().rposition(|&byte| byte == b'/')?;
    Some(if slash == 0 { b"/" } else { &path[..slash] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_a_path_is_likely_to_be_its_export() {
        assert_eq!(likely_export(b"/srv/file"), b"/srv");
        assert_eq!(likely_export(b"/srv/a/file"), b"/srv/a");
        assert_eq!((likely_export(b"/srv"), likely_export(b"/")), (&b"/srv"[..], &b"/"[..]));
    }

    #[test]
    fn the_way_up_ends_at_the_root() {
        assert_eq!(parent(b"/a/b"), Some(&b"/a"[..]));
        assert_eq!(parent(b"/a/"), Some(&b"/"[..]));
        assert_eq!(parent(b"/"), None);
    }
}
