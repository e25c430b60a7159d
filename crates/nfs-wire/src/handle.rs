//! File handles.

use std::fmt;

use nfs3_types::{
    nfs3::{NFS3_FHSIZE, nfs_fh3},
    xdr_codec::{Opaque, Pack},
};
use thiserror::Error;

use crate::xdr::{DecodeError, Reader};

/// A server's name for a file: 1 to 64 opaque bytes (RFC 1813 §2.3.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileHandle {
    length: u8,
    bytes: [u8; NFS3_FHSIZE],
}

/// A handle is empty or longer than 64 bytes.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("a file handle has 1 to {NFS3_FHSIZE} bytes, not {length}")]
pub struct HandleError {
    length: usize,
}

impl FileHandle {
    /// Reads a handle from a message.
    ///
    /// # Errors
    /// [`DecodeError`] when it is truncated, empty or longer than 64 bytes.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bytes = reader.opaque("file handle", NFS3_FHSIZE)?;
        Self::try_from(bytes).map_err(|_| DecodeError::Inconsistent { field: "file handle" })
    }

    /// Returns the handle's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Copies the handle into the type that `nfs3_types` encodes.
    pub fn to_fh3(&self) -> nfs_fh3 {
        nfs_fh3 { data: Opaque::owned(self.as_bytes().to_vec()) }
    }
}

impl TryFrom<&[u8]> for FileHandle {
    type Error = HandleError;

    fn try_from(handle: &[u8]) -> Result<Self, HandleError> {
        let length = handle.len();
        let mut bytes = [0; NFS3_FHSIZE];
        match bytes.get_mut(..length) {
            Some(target) if length > 0 => target.copy_from_slice(handle),
            _ => return Err(HandleError { length }),
        }
        Ok(Self { length: u8::try_from(length).expect("at most 64"), bytes })
    }
}

impl TryFrom<&nfs_fh3> for FileHandle {
    type Error = HandleError;

    fn try_from(handle: &nfs_fh3) -> Result<Self, HandleError> {
        Self::try_from(handle.data.as_ref())
    }
}

impl Pack for FileHandle {
    fn packed_size(&self) -> usize {
        Opaque::borrowed(self.as_bytes()).packed_size()
    }

    fn pack(&self, out: &mut impl std::io::Write) -> nfs3_types::xdr_codec::Result<usize> {
        Opaque::borrowed(self.as_bytes()).pack(out)
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FileHandle(")?;
        for byte in self.as_bytes() {
            write!(formatter, "{byte:02x}")?;
        }
        formatter.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_has_one_to_64_bytes() {
        assert!(FileHandle::try_from(&[][..]).is_err());
        assert!(FileHandle::try_from(&[7; 65][..]).is_err());
        let odd = FileHandle::try_from(&[7; 25][..]).unwrap();
        assert_eq!(odd.as_bytes(), [7; 25]);
        assert_eq!(format!("{:?}", FileHandle::try_from(&[0x0a, 0xff][..]).unwrap()), "FileHandle(0aff)");
    }

    #[test]
    fn a_handle_is_packed_as_the_oracle_packs_it() {
        for length in [1, 4, 25, 64] {
            let handle = FileHandle::try_from(&vec![7; length][..]).unwrap();
            let (mut ours, mut oracle) = (Vec::new(), Vec::new());
            let written = handle.pack(&mut ours).unwrap();
            assert_eq!(handle.to_fh3().pack(&mut oracle).unwrap(), written);
            assert_eq!((ours.len(), handle.packed_size()), (written, written));
            assert_eq!(ours, oracle);
        }
    }
}
