//! Bodies of fuzz targets for what a mount reads; see `fuzz/`.

use std::{path::PathBuf, time::SystemTime};

use bytes::Bytes;
use nfs_cache::Identity;
use nfs_files::{fuzzing::Body, journal::seal};
use nfs_wire::FileHandle;
use nfs_wireless_client::NfsStatus;

use crate::{
    nfs::handles::Handles,
    store::{
        Root,
        entry::{self, Entry},
        home,
    },
    thumbnails::{self, picture::Picture},
};

/// The targets of this crate, which need nothing from others.
pub const TARGETS: &[(&str, Body)] = &[("entry", entry), ("photo", photo), ("handle", handle)];

/// Anything as a record of the cache and as the file `root` of a directory in it, as it is and with everything right but the contents.
fn entry(data: &[u8]) {
    for sealed in [data.to_vec(), seal(entry::MAGIC, data)] {
        let Some(found) = Entry::decode(Bytes::from(sealed)) else { continue };
        assert!(
            found.bytes() <= data.len() as u64 * nfs_cache::GRAIN_BYTES,
            "no more grains than are described"
        );
        assert!(found.is_below(b"") && found.is_pinned(&[]) == found.pinned);
        let [head, tail] = found.around();
        let again = [&head, &found.body[..], &tail].concat();
        assert_eq!(Entry::decode(again.into()), Some(found));
    }
    for sealed in [data.to_vec(), seal(home::MAGIC, data)] {
        let root = |sealed: &[u8]| Root::decode(PathBuf::from("/nowhere"), SystemTime::UNIX_EPOCH, sealed);
        let Some(found) = root(&sealed) else { continue };
        assert!(found.remotes().len() <= found.targets.len());
        let again = root(&found.encode()).expect("what was written is read");
        assert_eq!(
            (again.handle, again.numbers, again.targets),
            (found.handle, found.numbers, found.targets)
        );
    }
}

/// Anything as the head of a photo.
fn photo(data: &[u8]) {
    let Ok(picture) = Picture::embedded(data) else { return };
    let thumbnail = picture.at_most(thumbnails::SIDE);
    let (width, height) = (thumbnail.width, thumbnail.height);
    assert!((1..=thumbnails::SIDE).contains(&width) && (1..=thumbnails::SIDE).contains(&height));
    assert_eq!(thumbnail.pixels.len(), width * height);
    let png = thumbnails::encode(&thumbnail, &[("Software", "nfsw")]).expect("it has a size");
    assert!(!png.is_empty());
}

/// Handles of `--via nfs`: the first byte says how long the server's handle of the root is, the second how long that of a file; the
/// rest is what a client gives as a handle.
fn handle(data: &[u8]) {
    let Some((&[root, file], given)) = data.split_first_chunk() else { return };
    // As much as a call can have.
    let given = &given[..given.len().min(64)];
    let server = |length: u8| {
        FileHandle::try_from(&vec![length; usize::from(length % 64) + 1][..]).expect("64 at most")
    };
    let mut handles = Handles::new(&server(root), (5, 2));
    let identity = |handle, version| Identity { handle, version };
    let made = handles.handle(&identity(server(file), 1));
    let parts = handles.parts(made.as_bytes()).expect("it was just made");
    assert_eq!(parts.server, server(file));
    assert!(handles.is_of(&parts, 1) && !handles.is_of(&parts, 2), "one version is meant");
    match handles.parts(given) {
        Ok(parts) => {
            assert!((9..=64).contains(&given.len()));
            let is_ours = handles.is_of(&parts, 1);
            let again = handles.handle(&identity(parts.server, 1));
            assert_eq!(is_ours, again.as_bytes() == given, "what is ours is what we make of the same file");
        }
        Err(error) => assert!([NfsStatus::BADHANDLE, NfsStatus::STALE].contains(&error)),
    }
}
