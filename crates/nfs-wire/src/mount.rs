//! The MOUNT protocol, version 3 (RFC 1813 Appendix I).

use nfs3_types::{
    mount::{MNTPATHLEN, dirpath},
    xdr_codec::Opaque,
};

use crate::{
    handle::FileHandle,
    status::MountStatus,
    xdr::{DecodeError, Reader, encode},
};

/// Procedure numbers (RFC 1813 §5.2).
pub mod procedure {
    /// Do nothing.
    pub const NULL: u32 = 0;
    /// Get the handle of an exported directory.
    pub const MNT: u32 = 1;
    /// List the mounts the server remembers.
    pub const DUMP: u32 = 2;
    /// Forget one mount.
    pub const UMNT: u32 = 3;
    /// Forget all mounts of the caller.
    pub const UMNTALL: u32 = 4;
    /// List the exported directories.
    pub const EXPORT: u32 = 5;
}

/// Longest path that MNT and UMNT carry, in bytes (RFC 1813 §5.1.4).
pub const MAX_PATH_BYTES: usize = MNTPATHLEN;

/// A directory that the server exports, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Path of the directory, as MNT wants it.
    pub directory: Vec<u8>,
    /// Hosts or groups that may mount it; empty means everyone.
    pub groups: Vec<Vec<u8>>,
}

/// What MNT returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Handle of the directory.
    pub handle: FileHandle,
    /// Authentication flavours the server accepts; some servers leave it empty.
    pub auth_flavors: Vec<u32>,
}

/// Appends the argument of MNT or UMNT.
pub fn encode_path(buffer: &mut Vec<u8>, path: &[u8]) {
    encode(buffer, &dirpath(Opaque::borrowed(path)));
}

/// Reads the argument of MNT or UMNT.
///
/// # Errors
/// [`DecodeError`] when it is malformed or too long.
pub fn decode_path<'a>(mut reader: Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let path = reader.opaque("path", MAX_PATH_BYTES)?;
    reader.finish()?;
    Ok(path)
}

/// Reads the results of MNT (RFC 1813 §5.2.1). Some servers leave the flavours out, and their number, too. What follows is not
/// looked at.
///
/// # Errors
/// [`DecodeError`] when they are malformed.
pub fn decode_mount(results: &[u8]) -> Result<Result<Mount, MountStatus>, DecodeError> {
    let mut reader = Reader::new(results);
    if let Some(status) = MountStatus::from_code(reader.u32("mount status")?) {
        return Ok(Err(status));
    }
    let handle = FileHandle::decode(&mut reader)?;
    let count = match reader.rest() {
        [] => 0,
        rest => reader.length("auth flavors", (rest.len() / 4).saturating_sub(1))?,
    };
    let auth_flavors = (0..count).map(|_| reader.u32("auth flavors")).collect::<Result<_, _>>()?;
    Ok(Ok(Mount { handle, auth_flavors }))
}

/// Reads the results of EXPORT (RFC 1813 §5.2.5). What follows the list is not looked at.
///
/// # Errors
/// [`DecodeError`] when they are malformed.
pub fn decode_exports(results: &[u8]) -> Result<Vec<Export>, DecodeError> {
    let mut reader = Reader::new(results);
    let mut exports = Vec::new();
    while reader.bool("export follows")? {
        let directory = reader.opaque("export path", MAX_PATH_BYTES)?.to_vec();
        let mut groups = Vec::new();
        while reader.bool("group follows")? {
            groups.push(reader.opaque("group", MAX_PATH_BYTES)?.to_vec());
        }
        exports.push(Export { directory, groups });
    }
    Ok(exports)
}

#[cfg(test)]
mod tests {
    use nfs3_types::mount::{export_node, exports, fhandle3, mountres3, mountres3_ok, mountstat3, name};
    use nfs3_types::xdr_codec::{List, Pack};

    use super::*;

    fn packed(item: &impl Pack) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&mut bytes, item);
        bytes
    }

    #[test]
    fn mount_results_are_what_the_oracle_encodes() {
        let ok = mountres3::Ok(mountres3_ok {
            fhandle: fhandle3(Opaque::borrowed(&[9; 25])),
            auth_flavors: vec![1, 0],
        });
        let bytes = packed(&ok);
        let mount = decode_mount(&bytes).unwrap().unwrap();
        assert_eq!((mount.handle.as_bytes(), &mount.auth_flavors[..]), (&[9; 25][..], &[1, 0][..]));
        let without_flavors = bytes.len() - 12;
        for cut in (0..bytes.len()).filter(|&cut| cut != without_flavors) {
            assert!(decode_mount(&bytes[..cut]).is_err());
        }
        let bare = decode_mount(&bytes[..without_flavors]).unwrap().unwrap();
        assert_eq!(bare, Mount { handle: mount.handle, auth_flavors: vec![] });
        assert_eq!(decode_mount(&[&bytes[..], &[7; 8]].concat()), Ok(Ok(mount)));
        let refused = decode_mount(&packed(&mountres3::Err(mountstat3::MNT3ERR_ACCES))).unwrap();
        assert_eq!(refused, Err(MountStatus::ACCES));
    }

    #[test]
    fn a_hostile_flavor_count_allocates_nothing() {
        let mut bytes = vec![0, 0, 0, 0, 0, 0, 0, 4, 1, 2, 3, 4];
        bytes.extend_from_slice(&u32::MAX.to_be_bytes());
        let error = decode_mount(&bytes).unwrap_err();
        assert!(matches!(error, DecodeError::TooLong { field: "auth flavors", limit: 0, .. }));
        bytes.extend_from_slice(&[0; 12]);
        let error = decode_mount(&bytes).unwrap_err();
        assert!(matches!(error, DecodeError::TooLong { field: "auth flavors", limit: 3, .. }));
    }

    #[test]
    fn paths_survive_a_round_trip() {
        let mut bytes = Vec::new();
        encode_path(&mut bytes, b"/srv/music");
        assert_eq!(bytes, packed(&dirpath(Opaque::borrowed(b"/srv/music"))));
        assert_eq!(decode_path(Reader::new(&bytes)), Ok(&b"/srv/music"[..]));
        bytes.push(0);
        assert!(decode_path(Reader::new(&bytes)).is_err(), "something follows");
    }

    #[test]
    fn export_list_is_what_the_oracle_encodes() {
        let list: exports<'_, '_> = List(vec![export_node {
            ex_dir: dirpath(Opaque::borrowed(b"/srv")),
            ex_groups: List(vec![name(Opaque::borrowed(b"10.0.0.0/8"))]),
        }]);
        let bytes = packed(&list);
        let expected = Export { directory: b"/srv".to_vec(), groups: vec![b"10.0.0.0/8".to_vec()] };
        assert_eq!(decode_exports(&bytes).unwrap(), std::slice::from_ref(&expected));
        assert_eq!(decode_exports(&[&bytes[..], &[7; 8]].concat()).unwrap(), [expected]);
        for cut in 0..bytes.len() {
            assert!(decode_exports(&bytes[..cut]).is_err());
        }
    }
}
