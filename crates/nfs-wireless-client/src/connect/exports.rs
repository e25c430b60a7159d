//! The MOUNT program: what is exported, and which of it holds a path.

use nfs_wire::{
    MountStatus,
    mount::{self, Export, Mount},
    rpc::{Program, Rejection},
};

use super::{Found, accepted, call};
use crate::{
    driver::{Answer, Connection},
    error::Error,
};

/// Lists what is exported (EXPORT, RFC 1813 §5.2.5).
pub(super) async fn exports(connection: &Connection, found: Found) -> Result<Vec<Export>, Error> {
    let answer = mount_call(connection, found, mount::procedure::EXPORT, "EXPORT", Vec::new()).await?;
    mount::decode_exports(&answer.results).map_err(|source| Error::Protocol { what: "EXPORT", source })
}

/// Lists what is exported and mounts, side by side, what is likely to be the export that holds `path`: it often is, and then a round
/// trip is saved. The mount is returned if it is that export. `other`: this can be had over another transport, too.
pub(super) async fn list_and_mount(
    service: &Connection,
    found: Found,
    path: &[u8],
    other: bool,
) -> Result<(Vec<Export>, Option<Mount>), Error> {
    let likely = likely_export(path);
    let (listing, mounting) = (exports(service, found), mnt(service, found, likely));
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
    if deepest(&listed, path) != Some(likely) {
        return Ok((listed, None));
    }
    let mount = match mounted {
        Some(mounted) => mounted?,
        None => mounting.await?,
    };
    Ok((listed, Some(mount)))
}

/// Mounts an export (MNT, RFC 1813 §5.2.1).
pub(super) async fn mnt(connection: &Connection, found: Found, path: &[u8]) -> Result<Mount, Error> {
    let mut arguments = Vec::new();
    let name = || String::from_utf8_lossy(path).into_owned();
    if path.len() > mount::MAX_PATH_BYTES {
        return Err(Error::Mount { path: name(), status: MountStatus::NAMETOOLONG });
    }
    mount::encode_path(&mut arguments, path);
    let answer = mount_call(connection, found, mount::procedure::MNT, "MNT", arguments).await?;
    mount::decode_mount(&answer.results)
        .map_err(|source| Error::Protocol { what: "MNT", source })?
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

/// Whether `path` is the exported directory or lies below it.
fn holds(export: &[u8], path: &[u8]) -> bool {
    let export = export.strip_suffix(b"/").unwrap_or(export);
    path.strip_prefix(export).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Returns the export that holds `path`, and no other one inside it does.
pub(super) fn deepest<'a>(listed: &'a [Export], path: &[u8]) -> Option<&'a [u8]> {
    let held = listed.iter().map(|export| &export.directory[..]).filter(|export| holds(export, path));
    held.max_by_key(|export| export.len())
}

/// Returns the directory that `path` lies in, or `path` itself where that would be the root of everything.
fn likely_export(path: &[u8]) -> &[u8] {
    parent(path).filter(|&above| above != b"/").unwrap_or(path)
}

/// Returns the directory above `path`, down to `/`.
pub(super) fn parent(path: &[u8]) -> Option<&[u8]> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let slash = path.iter().rposition(|&byte| byte == b'/')?;
    Some(if slash == 0 { b"/" } else { &path[..slash] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_holds_itself_and_what_is_below_but_not_its_namesakes() {
        assert!(holds(b"/srv", b"/srv") && holds(b"/srv/", b"/srv/a") && holds(b"/", b"/any"));
        assert!(!holds(b"/srv", b"/srv2") && !holds(b"/srv/a", b"/srv"));
    }

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
