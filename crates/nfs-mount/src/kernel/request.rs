//! What the kernel asks.

use std::mem::size_of;

use polyfuse_kernel as kernel;
use rustix::io::Errno;
use zerocopy::FromBytes;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    /// Names the request for as long as it has no answer.
    pub(crate) unique: u64,
    /// The thread that waits for the answer; 0 if it is of another namespace, or none.
    pub(crate) thread: u32,
    /// The node that it is about.
    pub(crate) node: u64,
    pub(crate) operation: Operation<'a>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    /// The first request: the kernel says what it can do.
    Init {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
    },
    /// The last one, of some mounts.
    Destroy,
    Lookup {
        name: &'a [u8],
    },
    /// The kernel has forgotten nodes, each as often as it is said here. Has no answer.
    Forget(Forgotten<'a>),
    GetAttributes,
    ReadLink,
    Open,
    Read {
        handle: u64,
        offset: u64,
        size: u32,
    },
    Release {
        handle: u64,
    },
    OpenDirectory,
    ReadDirectory {
        handle: u64,
        offset: u64,
        size: u32,
        with_attributes: bool,
    },
    ReleaseDirectory {
        handle: u64,
    },
    Space,
    GetXattr {
        name: &'a [u8],
        size: u32,
    },
    ListXattr {
        size: u32,
    },
    Access {
        mask: u32,
    },
    /// A signal has arrived for the thread that waits for another request. Has no answer.
    Interrupt {
        unique: u64,
    },
    /// What a read-only file system does not do, or this one does not, and the error that says so.
    Refused(Errno),
}

/// Nodes that the kernel has forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forgotten<'a> {
    One {
        node: u64,
        times: u64,
    },
    /// Whole `fuse_forget_one`s.
    Many(&'a [u8]),
}

impl Forgotten<'_> {
    /// Calls something with each node, and how often it was forgotten.
    pub(crate) fn each(self, mut call: impl FnMut(u64, u64)) {
        match self {
            Self::One { node, times } => call(node, times),
            Self::Many(mut rest) => {
                while let Ok((one, tail)) = kernel::fuse_forget_one::read_from_prefix(rest) {
                    call(one.nodeid, one.nlookup);
                    rest = tail;
                }
            }
        }
    }
}

/// Bytes that are no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// What an answer would name, as far as that can be read.
    pub(crate) unique: Option<u64>,
}

impl<'a> Request<'a> {
    /// Takes apart what was read from the device.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (header, rest) =
            kernel::fuse_in_header::read_from_prefix(bytes).map_err(|_| Malformed { unique: None })?;
        let malformed = Malformed { unique: Some(header.unique) };
        if header.len as usize != bytes.len() {
            return Err(malformed);
        }
        let operation = operation(&header, rest).ok_or(malformed)?;
        Ok(Self { unique: header.unique, thread: header.pid, node: header.nodeid, operation })
    }
}

/// `None`: there is less than the operation needs.
fn operation<'a>(header: &kernel::fuse_in_header, rest: &'a [u8]) -> Option<Operation<'a>> {
    Some(match header.opcode {
        kernel::FUSE_INIT => {
            let init: kernel::fuse_init_in = take(rest)?.0;
            let (major, minor) = (init.major, init.minor);
            Operation::Init { major, minor, max_readahead: init.max_readahead, flags: init.flags }
        }
        kernel::FUSE_DESTROY => Operation::Destroy,
        kernel::FUSE_LOOKUP => Operation::Lookup { name: name(rest)? },
        kernel::FUSE_FORGET => {
            let forget: kernel::fuse_forget_in = take(rest)?.0;
            Operation::Forget(Forgotten::One { node: header.nodeid, times: forget.nlookup })
        }
        kernel::FUSE_BATCH_FORGET => {
            let (head, rest) = take::<kernel::fuse_batch_forget_in>(rest)?;
            let length = (head.count as usize).checked_mul(size_of::<kernel::fuse_forget_one>())?;
            Operation::Forget(Forgotten::Many(rest.get(..length)?))
        }
        kernel::FUSE_GETATTR => Operation::GetAttributes,
        kernel::FUSE_READLINK => Operation::ReadLink,
        kernel::FUSE_OPEN => Operation::Open,
        kernel::FUSE_READ => {
            let read: kernel::fuse_read_in = take(rest)?.0;
            Operation::Read { handle: read.fh, offset: read.offset, size: read.size }
        }
        kernel::FUSE_RELEASE => Operation::Release { handle: take::<kernel::fuse_release_in>(rest)?.0.fh },
        kernel::FUSE_OPENDIR => Operation::OpenDirectory,
        kernel::FUSE_READDIR | kernel::FUSE_READDIRPLUS => {
            let read: kernel::fuse_read_in = take(rest)?.0;
            let with_attributes = header.opcode == kernel::FUSE_READDIRPLUS;
            Operation::ReadDirectory {
                handle: read.fh,
                offset: read.offset,
                size: read.size,
                with_attributes,
            }
        }
        kernel::FUSE_RELEASEDIR => {
            Operation::ReleaseDirectory { handle: take::<kernel::fuse_release_in>(rest)?.0.fh }
        }
        kernel::FUSE_STATFS => Operation::Space,
        kernel::FUSE_GETXATTR => {
            let (get, rest) = take::<kernel::fuse_getxattr_in>(rest)?;
            Operation::GetXattr { name: name(rest)?, size: get.size }
        }
        kernel::FUSE_LISTXATTR => {
            Operation::ListXattr { size: take::<kernel::fuse_getxattr_in>(rest)?.0.size }
        }
        kernel::FUSE_ACCESS => Operation::Access { mask: take::<kernel::fuse_access_in>(rest)?.0.mask },
        kernel::FUSE_INTERRUPT => {
            Operation::Interrupt { unique: take::<kernel::fuse_interrupt_in>(rest)?.0.unique }
        }
        kernel::FUSE_SETATTR
        | kernel::FUSE_SYMLINK
        | kernel::FUSE_MKNOD
        | kernel::FUSE_MKDIR
        | kernel::FUSE_UNLINK
        | kernel::FUSE_RMDIR
        | kernel::FUSE_RENAME
        | kernel::FUSE_RENAME2
        | kernel::FUSE_LINK
        | kernel::FUSE_WRITE
        | kernel::FUSE_SETXATTR
        | kernel::FUSE_REMOVEXATTR
        | kernel::FUSE_CREATE
        | kernel::FUSE_FALLOCATE
        | kernel::FUSE_COPY_FILE_RANGE => Operation::Refused(Errno::ROFS),
        kernel::FUSE_IOCTL => Operation::Refused(Errno::NOTTY),
        // The kernel does these by itself then, and asks no more.
        _ => Operation::Refused(Errno::NOSYS),
    })
}

fn take<T: FromBytes>(bytes: &[u8]) -> Option<(T, &[u8])> {
    T::read_from_prefix(bytes).ok()
}

/// A name that ends with a zero byte, and is not empty.
fn name(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    (end > 0).then_some(&bytes[..end])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    use super::*;

    fn request(opcode: u32, body: &[u8]) -> Vec<u8> {
        let len = (size_of::<kernel::fuse_in_header>() + body.len()) as u32;
        let header = kernel::fuse_in_header {
            len,
            opcode,
            unique: 8,
            nodeid: 5,
            uid: 1000,
            gid: 1000,
            pid: 77,
            padding: 0,
        };
        [header.as_bytes(), body].concat()
    }

    fn operation(bytes: &[u8]) -> Operation<'_> {
        let request = Request::parse(bytes).unwrap();
        assert_eq!((request.unique, request.node, request.thread), (8, 5, 77));
        request.operation
    }

    #[test]
    fn requests_of_the_kernel_are_read() {
        assert_eq!(operation(&request(1, b"name\0")), Operation::Lookup { name: b"name" });
        let read = kernel::fuse_read_in { fh: 3, offset: 4096, size: 131_072, ..Default::default() };
        assert_eq!(
            operation(&request(15, read.as_bytes())),
            Operation::Read { handle: 3, offset: 4096, size: 131_072 }
        );
        assert_eq!(
            operation(&request(44, read.as_bytes())),
            Operation::ReadDirectory { handle: 3, offset: 4096, size: 131_072, with_attributes: true }
        );
        let get = kernel::fuse_getxattr_in { size: 9, padding: 0 };
        let body = [get.as_bytes(), b"user.nfsw.state\0"].concat();
        assert_eq!(operation(&request(22, &body)), Operation::GetXattr { name: b"user.nfsw.state", size: 9 });
        let interrupt = kernel::fuse_interrupt_in { unique: 6 };
        assert_eq!(operation(&request(36, interrupt.as_bytes())), Operation::Interrupt { unique: 6 });
        assert_eq!(operation(&request(9, b"")), Operation::Refused(Errno::ROFS));
        assert_eq!(operation(&request(25, b"")), Operation::Refused(Errno::NOSYS));
        assert_eq!(operation(&request(9999, b"")), Operation::Refused(Errno::NOSYS));
    }

    #[test]
    fn many_nodes_are_forgotten_at_once_and_no_more_than_there_are() {
        let one = |nodeid, nlookup| kernel::fuse_forget_one { nodeid, nlookup };
        let (first, second) = (one(7, 2), one(9, 1));
        let body = |count| {
            let head = kernel::fuse_batch_forget_in { count, dummy: 0 };
            [head.as_bytes(), first.as_bytes(), second.as_bytes()].concat()
        };
        let bytes = request(42, &body(2));
        let Operation::Forget(forgotten) = operation(&bytes) else { panic!("another operation") };
        let mut all = Vec::new();
        forgotten.each(|node, times| all.push((node, times)));
        assert_eq!(all, [(7, 2), (9, 1)]);
        for count in [3, u32::MAX] {
            assert_eq!(Request::parse(&request(42, &body(count))), Err(Malformed { unique: Some(8) }));
        }
    }

    #[test]
    fn what_is_no_request_is_told_apart() {
        assert_eq!(Request::parse(&[0; 39]), Err(Malformed { unique: None }));
        let wrong = Err(Malformed { unique: Some(8) });
        for (opcode, body) in [(1, &b"no end"[..]), (1, b"\0"), (1, b""), (15, &[0; 39]), (22, &[0; 8])] {
            assert_eq!(Request::parse(&request(opcode, body)), wrong, "{opcode} {body:?}");
        }
        let mut long = request(1, b"name\0");
        long.push(0);
        assert_eq!(Request::parse(&long), wrong, "another length than it says");
    }

    proptest! {
        #[test]
        fn nothing_that_is_read_panics(opcode in 0u32..60, body: Vec<u8>, cut in 0usize..200) {
            let mut bytes = request(opcode, &body);
            bytes.truncate(cut);
            let length = bytes.len() as u32;
            // With the length that it says, and with another one.
            for _ in 0..2 {
                if let Ok(Request { operation: Operation::Forget(forgotten), .. }) = Request::parse(&bytes) {
                    forgotten.each(|_, _| {});
                }
                if let Some(said) = bytes.first_chunk_mut::<4>() {
                    *said = length.to_ne_bytes();
                }
            }
        }
    }
}
