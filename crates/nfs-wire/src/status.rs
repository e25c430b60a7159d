//! Status codes, known and unknown.

use std::fmt;

use nfs3_types::{mount::mountstat3, nfs3::nfsstat3};

/// An NFSv3 status other than `NFS3_OK`, known to us or not (RFC 1813 §2.6).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u32);

/// A MOUNT status other than `MNT3_OK`, known to us or not (RFC 1813 §5.1.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct MountStatus(u32);

macro_rules! status {
    ($type:ident, $($name:ident = $code:literal, $symbol:literal, $text:literal;)*) => {
        impl $type {
            $(#[doc = concat!("`", $symbol, "`: ", $text, ".")] pub const $name: Self = Self($code);)*

            /// Keeps a status code off the wire; zero is success and has no status.
            pub const fn from_code(code: u32) -> Option<Self> {
                if code == 0 { None } else { Some(Self(code)) }
            }

            /// Returns the number on the wire.
            pub const fn code(self) -> u32 {
                self.0
            }

            /// Returns the RFC's name of the status, if it has one.
            pub const fn symbol(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some($symbol),)*
                    _ => None,
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($code => formatter.write_str($text),)*
                    code => write!(formatter, "server error {code}"),
                }
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.symbol() {
                    Some(symbol) => formatter.write_str(symbol),
                    None => write!(formatter, "{}({})", stringify!($type), self.0),
                }
            }
        }
    };
}

status! { Status,
    PERM = 1, "NFS3ERR_PERM", "not the owner";
    NOENT = 2, "NFS3ERR_NOENT", "no such file or directory";
    IO = 5, "NFS3ERR_IO", "I/O error on the server";
    NXIO = 6, "NFS3ERR_NXIO", "no such device on the server";
    ACCES = 13, "NFS3ERR_ACCES", "permission denied";
    EXIST = 17, "NFS3ERR_EXIST", "file exists";
    XDEV = 18, "NFS3ERR_XDEV", "crosses file systems on the server";
    NODEV = 19, "NFS3ERR_NODEV", "no such device on the server";
    NOTDIR = 20, "NFS3ERR_NOTDIR", "not a directory";
    ISDIR = 21, "NFS3ERR_ISDIR", "is a directory";
    INVAL = 22, "NFS3ERR_INVAL", "invalid argument";
    FBIG = 27, "NFS3ERR_FBIG", "file too large for the server";
    NOSPC = 28, "NFS3ERR_NOSPC", "no space left on the server";
    ROFS = 30, "NFS3ERR_ROFS", "read-only file system on the server";
    MLINK = 31, "NFS3ERR_MLINK", "too many hard links";
    NAMETOOLONG = 63, "NFS3ERR_NAMETOOLONG", "file name too long for the server";
    NOTEMPTY = 66, "NFS3ERR_NOTEMPTY", "directory not empty";
    DQUOT = 69, "NFS3ERR_DQUOT", "quota exceeded on the server";
    STALE = 70, "NFS3ERR_STALE", "stale file handle: the server does not know the file by it any more";
    REMOTE = 71, "NFS3ERR_REMOTE", "too many levels of remote in path";
    BADHANDLE = 10001, "NFS3ERR_BADHANDLE", "the server does not know this file handle";
    NOT_SYNC = 10002, "NFS3ERR_NOT_SYNC", "the file was changed by someone else meanwhile";
    BAD_COOKIE = 10003, "NFS3ERR_BAD_COOKIE", "the directory changed while it was listed";
    NOTSUPP = 10004, "NFS3ERR_NOTSUPP", "operation not supported by the server";
    TOOSMALL = 10005, "NFS3ERR_TOOSMALL", "buffer or request too small";
    SERVERFAULT = 10006, "NFS3ERR_SERVERFAULT", "unexpected error on the server";
    BADTYPE = 10007, "NFS3ERR_BADTYPE", "file type not supported by the server";
    JUKEBOX = 10008, "NFS3ERR_JUKEBOX", "server busy, try again later";
}

status! { MountStatus,
    PERM = 1, "MNT3ERR_PERM", "not the owner";
    NOENT = 2, "MNT3ERR_NOENT", "no such directory";
    IO = 5, "MNT3ERR_IO", "I/O error on the server";
    ACCES = 13, "MNT3ERR_ACCES", "permission denied";
    NOTDIR = 20, "MNT3ERR_NOTDIR", "not a directory";
    INVAL = 22, "MNT3ERR_INVAL", "invalid argument";
    NAMETOOLONG = 63, "MNT3ERR_NAMETOOLONG", "path too long for the server";
    NOTSUPP = 10004, "MNT3ERR_NOTSUPP", "operation not supported by the server";
    SERVERFAULT = 10006, "MNT3ERR_SERVERFAULT", "unexpected error on the server";
}

impl From<nfsstat3> for Status {
    /// Converts a failure; `NFS3_OK` must not be passed.
    fn from(status: nfsstat3) -> Self {
        Self(status as u32)
    }
}

impl From<mountstat3> for MountStatus {
    /// Converts a failure; `MNT3_OK` must not be passed.
    fn from(status: mountstat3) -> Self {
        Self(status as u32)
    }
}
