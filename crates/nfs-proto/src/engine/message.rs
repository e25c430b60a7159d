//! What goes into an engine and what comes out of it.

use std::time::{Duration, Instant};

use nfs_wire::rpc::{Program, Rejection};

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Datagrams may be lost: calls are sent again when the policy says so.
    Datagrams,
    /// A connection loses nothing while it lives: calls are sent again only after a reconnect.
    Connection,
}

/// Names one call for as long as it is outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

/// What a call is for; decides its place in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Anything small: sent at once, ahead of data.
    Control,
    /// Brings file data.
    Read,
    /// Carries file data.
    Write,
}

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the server: WRITE.
    Up,
    /// From the server: READ.
    Down,
}

impl Direction {
    /// Returns which way the long message of a call goes.
    pub(super) const fn of(class: Class) -> Self {
        match class {
            Class::Read => Self::Down,
            Class::Write | Class::Control => Self::Up,
        }
    }
}

/// What running a call twice does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Nothing more than running it once: every attempt may have an XID of its own (Bachmann et al. 1993 §5).
    Idempotent,
    /// It may do harm: every attempt keeps its XID, so that the server's duplicate request cache can match it.
    SameXid,
}

/// Whose call it is: a number the submitter chose and gets back with the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u64);

/// File bytes that follow a message's head and that only the driver touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Offset in the source file.
    pub offset: u64,
    /// Length in bytes, without padding.
    pub length: u32,
}

/// A call to be made.
#[derive(Clone, Copy, Debug)]
pub struct CallSpec {
    /// Program and version to call.
    pub program: Program,
    /// Number of the procedure.
    pub procedure: u32,
    /// What the call is for.
    pub class: Class,
    /// What running it twice does.
    pub repeat: Repeat,
    /// Whether it may be sent twice before anything says that it is lost: call and reply are small, and a second run harms nobody.
    pub hedge: bool,
    /// Whose call it is.
    pub owner: Owner,
    /// File bytes that follow the arguments.
    pub payload: Option<Payload>,
    /// File bytes that the call moves, in either direction; counted by the window.
    pub bytes: u32,
    /// When to give the call up.
    pub deadline: Option<Instant>,
    /// When to send it at the earliest; `None`: now.
    pub not_before: Option<Instant>,
}

/// A message to send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit<'a> {
    /// The call it belongs to.
    pub id: CallId,
    /// Whose call it is.
    pub owner: Owner,
    /// The message up to its payload.
    pub head: &'a [u8],
    /// File bytes that follow the head; the driver pads them to a multiple of four.
    pub payload: Option<Payload>,
    /// Whether it must not be fragmented on its way.
    pub dont_fragment: bool,
}

/// What the head of a received message turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// The message's header is not all there yet.
    NeedMore,
    /// Nobody waits for this message.
    Stray,
    /// A reply to an outstanding call; it stays outstanding until [`Engine::complete`](super::Engine::complete).
    Reply(Reply),
}

/// A reply to an outstanding call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The call that is answered.
    pub id: CallId,
    /// Whose call it is.
    pub owner: Owner,
    /// Program that was called.
    pub program: Program,
    /// Its procedure.
    pub procedure: u32,
    /// Where the results begin in the message.
    pub results_at: usize,
    /// Whether the server ran the call.
    pub outcome: Result<(), Rejection>,
    /// How often the call was sent, but for what was answered with JUKEBOX; above one it may have been run more than once.
    pub attempts: u32,
    /// Since the call was submitted.
    pub elapsed: Duration,
    /// Since the attempt was sent that this answers.
    pub round_trip: Duration,
}

/// What became of a call without a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The call's deadline passed; it is no longer outstanding.
    Expired {
        /// Whose call it was.
        owner: Owner,
        /// How often it was sent.
        attempts: u32,
        /// How long it was outstanding.
        elapsed: Duration,
    },
    /// A READ or WRITE stayed unanswered and is sent again.
    Silent {
        /// What the call is for.
        class: Class,
        /// File bytes that it moves.
        bytes: u32,
        /// How often it was sent before.
        attempts: u32,
        /// How long it has been outstanding.
        elapsed: Duration,
    },
}
