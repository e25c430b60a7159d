//! What an `Agent` does at present: a call, a download in pieces, or an upload that may move.

use std::time::Instant;

use nfs_proto::{
    endpoint::{ConnectionId, DownloadPlan, Endpoint, FirstTransport, Route, RunId, UploadPlan},
    session::{Event, Session, Transfer, TransferId},
    transfer::{Range, RangeSet},
};
use nfs_wire::portmap::Protocol;

/// A call before the copy, and how far its failover is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) token: u64,
    pub(super) route: Route,
    pub(super) began: Instant,
    /// Since when the other transport has answered, and the second attempt.
    pub(super) other: Option<(ConnectionId, Instant)>,
    pub(super) again: Option<u64>,
}

/// What an agent does.
#[derive(Debug)]
pub(super) enum Task {
    Waiting,
    /// Asks both transports.
    Connecting(FirstTransport),
    Calling(Call),
    Down(Download),
    Up(Upload),
    Ended,
}

/// A transfer of the session of a connection.
pub(super) type TransferKey = (ConnectionId, TransferId);

impl Task {
    /// Takes an event of a session; false if the copy has failed.
    pub(super) fn handle_event(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        connection: ConnectionId,
        event: Event,
    ) -> bool {
        match (self, event) {
            (Self::Down(download), Event::Finished(id)) => download.handle_end((connection, id)),
            (Self::Down(download), Event::Failed(id, _)) => return !download.carries((connection, id)),
            (Self::Up(upload), Event::Progress(id, bytes)) if upload.place == Some((connection, id)) => {
                upload.plan.handle_accepted(now, endpoint, bytes);
            }
            (Self::Up(upload), Event::Finished(id)) if upload.place == Some((connection, id)) => {
                upload.is_done = true;
            }
            (Self::Up(upload), Event::Failed(id, _)) => return upload.place != Some((connection, id)),
            _ => {}
        }
        true
    }
}

/// A download over one connection or several.
#[derive(Debug)]
pub(super) struct Download {
    pub(super) plan: DownloadPlan,
    pub(super) runs: Vec<(RunId, TransferKey)>,
}

impl Download {
    pub(super) fn new(now: Instant, endpoint: &Endpoint, size: u64) -> Self {
        Self { plan: DownloadPlan::new(now, endpoint, RangeSet::new().missing(size)), runs: Vec::new() }
    }

    pub(super) fn handle_join(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        protocol: Protocol,
        found: Option<ConnectionId>,
    ) {
        self.plan.handle_join(now, endpoint, protocol, found);
    }

    pub(super) fn handle_bytes(&mut self, now: Instant, place: TransferKey, range: Range) {
        if let Some((run, _)) = self.runs.iter().find(|(_, it)| *it == place) {
            self.plan.handle_bytes(now, *run, range);
        }
    }

    pub(super) fn carries(&self, place: TransferKey) -> bool {
        self.runs.iter().any(|(_, it)| *it == place)
    }

    pub(super) fn handle_end(&mut self, place: TransferKey) {
        if let Some(at) = self.runs.iter().position(|(_, it)| *it == place) {
            let (run, _) = self.runs.remove(at);
            self.plan.handle_end(run);
        }
    }
}

/// An upload on one connection at a time.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) plan: UploadPlan,
    pub(super) place: Option<TransferKey>,
    /// It makes no further calls, and it is waited for those in flight.
    pub(super) is_held: bool,
    pub(super) is_done: bool,
}

impl Upload {
    pub(super) fn new(now: Instant, endpoint: &mut Endpoint, size: u64) -> Self {
        Self { plan: UploadPlan::new(now, endpoint, size), place: None, is_held: false, is_done: false }
    }

    pub(super) const fn connection(&self) -> ConnectionId {
        self.plan.connection()
    }

    pub(super) fn start(&mut self, now: Instant, session: &mut Session, transfer: Transfer) {
        self.place = Some((self.connection(), session.start(now, transfer)));
        self.is_held = false;
    }

    pub(super) fn handle_answer(&mut self, now: Instant, endpoint: &mut Endpoint, has_answered: bool) {
        self.plan.handle_answer(now, endpoint, has_answered);
    }
}
