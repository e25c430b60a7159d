//! Whole files and directories as machines above the engine.
//!
//! A machine says which call it wants next ([`Machine::next_call`], [`Machine::encode`]) and takes the
//! results in; it speaks in offsets and never sees a file's bytes. It does not know XIDs, timers or sockets.
//! [`Stream`] is another kind: it keeps the bytes that were written, and is driven call by call.

mod download;
mod listing;
mod ranges;
#[cfg(test)]
mod replies;
mod stability;
mod stream;
mod twice;
mod upload;

use std::time::Duration;

use nfs_wire::{DecodeError, Procedure, Status, rpc::Rejection};
use thiserror::Error;

pub(crate) use self::upload::CONTROL;
pub use self::{
    download::Download,
    listing::{DirEntry, Listing},
    ranges::{Range, RangeSet},
    stream::{Available, Stream, StreamAction, StreamCall, WriteResult},
    twice::Copies,
    upload::{Checkpoint, Placement, Upload, UploadSpec, Uploaded},
};
use crate::{
    attr::Metadata,
    engine::{Class, Pace, Payload, Repeat},
};

/// A call that a machine wants made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextCall {
    /// Names the call within its machine until its results have been taken in.
    pub part: u32,
    /// NFSv3 procedure.
    pub procedure: Procedure,
    /// What the call is for.
    pub class: Class,
    /// What a second copy of it does.
    pub repeat: Repeat,
    /// File bytes that follow the arguments.
    pub payload: Option<Payload>,
    /// File bytes that the call moves, in either direction.
    pub bytes: u32,
    /// How long to wait before it is sent.
    pub delay: Duration,
}

impl NextCall {
    fn control(part: u32, procedure: Procedure) -> Self {
        let Copies { repeat, .. } = Copies::of_nfs(procedure);
        Self {
            part,
            procedure,
            class: Class::Control,
            repeat,
            payload: None,
            bytes: 0,
            delay: Duration::ZERO,
        }
    }
}

/// What a machine may ask for now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes per READ.
    pub read_block: u32,
    /// Bytes per WRITE.
    pub write_block: u32,
    /// How blocks leave.
    pub pace: Pace,
}

/// What it took to get a call's results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// How often the call was sent; above one it may have been run more than once.
    pub attempts: u32,
    /// From the call's submission to the reply.
    pub elapsed: Duration,
}

/// What became of a call's results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// More of the message is needed to tell.
    NeedMore,
    /// File bytes follow in the message; the machine waits for [`Machine::handle_payload_done`].
    Data {
        /// Offset in the file.
        offset: u64,
        /// Length in bytes, without padding.
        length: u32,
        /// Bytes that were asked for.
        asked: u32,
        /// The file's attributes after the READ, if the server tells them.
        attributes: Option<Metadata>,
        /// Where the bytes begin in the results.
        data_at: usize,
    },
    /// The results of a WRITE are taken in.
    Written {
        /// File bytes that were given.
        asked: u32,
        /// File bytes that were accepted.
        accepted: u32,
    },
    /// The results of another call are taken in.
    Done,
}

/// Why a transfer ended early.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransferError {
    /// The server refused a call.
    #[error("{procedure}: {status}")]
    Status {
        /// The call that was refused.
        procedure: Procedure,
        /// The server's reason.
        status: Status,
    },
    /// The server did not run a call.
    #[error("{procedure}: {rejection}")]
    Rejected {
        /// The call that was rejected.
        procedure: Procedure,
        /// The server's reason.
        rejection: Rejection,
    },
    /// The server's answer makes no sense.
    #[error("{procedure}: broken reply")]
    Protocol {
        /// The call that was answered.
        procedure: Procedure,
        /// What is wrong with the answer.
        #[source]
        error: DecodeError,
    },
    /// The server answers without getting anywhere.
    #[error("{procedure}: the server makes no progress: {reason}")]
    NoProgress {
        /// The call that was answered.
        procedure: Procedure,
        /// What it does instead.
        reason: &'static str,
    },
    /// The source became shorter while it was copied.
    #[error("the file shrank from {expected} to {found} bytes while it was copied; copy it again")]
    SourceShrank {
        /// Size at the start, in bytes.
        expected: u64,
        /// Size now, in bytes.
        found: u64,
    },
}

/// One transfer. See the [module documentation](self).
pub trait Machine {
    /// Returns the next call to make, if there is one; `has_room` says whether a READ or WRITE of so many bytes
    /// would be sent at once.
    fn next_call(&mut self, limits: Limits, has_room: &dyn Fn(Class, u32) -> bool) -> Option<NextCall>;

    /// Appends the arguments of a call that [`Machine::next_call`] returned, up to its payload.
    fn encode(&self, call: &NextCall, buffer: &mut Vec<u8>);

    /// Takes in the results of a call; `complete` says that `results` is all of them.
    ///
    /// # Errors
    /// [`TransferError`] ends the transfer.
    fn handle_results(
        &mut self,
        part: u32,
        effort: Effort,
        results: &[u8],
        complete: bool,
    ) -> Result<Step, TransferError>;

    /// Records that the file bytes of a [`Step::Data`] are where they belong.
    fn handle_payload_done(&mut self, part: u32);

    /// Records that the server did not run a call.
    ///
    /// # Errors
    /// [`TransferError`] ends the transfer.
    fn handle_rejection(&mut self, part: u32, rejection: Rejection) -> Result<(), TransferError>;

    /// Takes a READ, WRITE or COMMIT back, to be made again, perhaps in smaller blocks. It may have been run.
    fn take_back(&mut self, part: u32);

    /// As [`Machine::take_back`], of a call that the server has refused to run for now.
    fn put_off(&mut self, part: u32) {
        self.take_back(part);
    }

    /// Whether everything is done and nothing is outstanding.
    fn is_done(&self) -> bool;
}
