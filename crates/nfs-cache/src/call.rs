//! Calls that the cache wants made, and what becomes of them.

use std::{
    collections::BTreeSet,
    ops::Range,
    time::{Duration, Instant},
};

use bytes::Bytes;
use nfs_proto::transfer::Listing;
use nfs_wire::nfs3_types::xdr_codec::Opaque;
use nfs_wire::{
    FileHandle, Procedure, encode,
    nfs3_types::nfs3::{GETATTR3args, LOOKUP3args, READ3args, READLINK3args, diropargs3, filename3},
    rpc::Rejection,
};

use crate::{
    data::grains_of,
    directory::Name,
    ids::{CallId, NodeId, OperationId},
    rate::Sent,
};

/// A call to make.
#[derive(Clone, Debug)]
pub struct Transmit {
    /// Names the call.
    pub call: CallId,
    /// NFSv3 procedure.
    pub procedure: Procedure,
    /// Encoded arguments.
    pub arguments: Vec<u8>,
}

/// What became of a call.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The server's results, encoded, whatever their status.
    Results(Bytes),
    /// The server did not run the call.
    Rejected(Rejection),
    /// The server could not be asked: nothing is known.
    NotAsked,
}

/// What a call asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Getattr(FileHandle),
    Lookup {
        directory: FileHandle,
        name: Name,
    },
    Readlink(FileHandle),
    Read {
        handle: FileHandle,
        node: NodeId,
        offset: u64,
        count: u32,
    },
    /// The next page of the listing of this directory.
    Page(FileHandle),
}

/// A call that is to be made or in flight.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) question: Question,
    /// When it was decided on; the server answers later.
    pub(crate) begun: Instant,
    /// When it may be sent; `None` once it was.
    pub(crate) send_at: Option<Instant>,
    /// When it was sent last.
    pub(crate) sent: Option<Sent>,
    pub(crate) waiters: BTreeSet<OperationId>,
    /// Pause before it is sent again after the server asked for time.
    pub(crate) pause: Duration,
    /// It is sent once a call for the root's attributes was answered, this one or a later one.
    pub(crate) after: Option<CallId>,
    /// What was answered, if that counts only when the root was seen.
    pub(crate) reply: Option<Result<Bytes, Rejection>>,
    /// How often the server did not know the handle.
    pub(crate) stale: u32,
}

impl Call {
    /// Whether it was sent, and its outcome is not known.
    pub(crate) const fn is_in_flight(&self) -> bool {
        self.sent.is_some() && self.send_at.is_none() && self.after.is_none()
    }
}

impl Question {
    /// Returns the handle that it is about.
    pub(crate) const fn handle(&self) -> &FileHandle {
        match self {
            Self::Getattr(handle) | Self::Readlink(handle) | Self::Page(handle) => handle,
            Self::Read { handle, .. } | Self::Lookup { directory: handle, .. } => handle,
        }
    }

    /// Returns the grains that a READ asks for.
    pub(crate) fn grains(&self, of: NodeId) -> Range<u64> {
        match self {
            Self::Read { node, offset, count, .. } if *node == of => grains_of(*offset, u64::from(*count)),
            Self::Read { .. }
            | Self::Getattr(_)
            | Self::Lookup { .. }
            | Self::Readlink(_)
            | Self::Page(_) => 0..0,
        }
    }

    pub(crate) fn encode(&self, listing: Option<&Listing>, page_bytes: u32) -> (Procedure, Vec<u8>) {
        let mut arguments = Vec::new();
        let procedure = match self {
            Self::Getattr(handle) => {
                encode(&mut arguments, &GETATTR3args { object: handle.to_fh3() });
                Procedure::Getattr
            }
            Self::Lookup { directory, name } => {
                let what = diropargs3 { dir: directory.to_fh3(), name: filename3(Opaque::borrowed(name)) };
                encode(&mut arguments, &LOOKUP3args { what });
                Procedure::Lookup
            }
            Self::Readlink(handle) => {
                encode(&mut arguments, &READLINK3args { symlink: handle.to_fh3() });
                Procedure::Readlink
            }
            Self::Read { handle, offset, count, .. } => {
                encode(&mut arguments, &READ3args { file: handle.to_fh3(), offset: *offset, count: *count });
                Procedure::Read
            }
            Self::Page(directory) => match listing {
                Some(listing) => {
                    listing.encode_page(&mut arguments, page_bytes);
                    listing.procedure()
                }
                // Nobody lists it any more: its attributes are the cheapest question.
                None => return Self::Getattr(*directory).encode(None, page_bytes),
            },
        };
        (procedure, arguments)
    }
}
