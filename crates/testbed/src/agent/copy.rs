//! What an [`Agent`] does at present: a call, a download in pieces, or an upload that may move.

use std::time::Instant;

use nfs_proto::{
    endpoint::{
        Carrier, ConnectionId, DownloadPlan, DownloadStep, Endpoint, FirstTransport, RunId, UploadPlan,
        UploadStep,
    },
    session::{Event, Session, Transfer, TransferId},
    transfer::{self, Range, RangeSet},
};
use nfs_wire::portmap::Protocol;

use super::{Agent, Call};
use crate::mobile::Progress;

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
pub(super) type Place = (ConnectionId, TransferId);

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
    plan: DownloadPlan,
    runs: Vec<(RunId, Place)>,
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

    pub(super) fn handle_bytes(&mut self, now: Instant, place: Place, range: Range) {
        if let Some((run, _)) = self.runs.iter().find(|(_, it)| *it == place) {
            self.plan.handle_bytes(now, *run, range);
        }
    }

    fn carries(&self, place: Place) -> bool {
        self.runs.iter().any(|(_, it)| *it == place)
    }

    fn handle_end(&mut self, place: Place) {
        if let Some(at) = self.runs.iter().position(|(_, it)| *it == place) {
            let (run, _) = self.runs.remove(at);
            self.plan.handle_end(run);
        }
    }
}

/// An upload on one connection at a time.
#[derive(Debug)]
pub(super) struct Upload {
    plan: UploadPlan,
    place: Option<Place>,
    /// It makes no further calls, and it is waited for those in flight.
    is_held: bool,
    is_done: bool,
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

impl Agent {
    pub(super) fn step_download(&mut self, now: Instant) {
        loop {
            let Task::Down(download) = &mut self.task else { return };
            let Some(step) = download.plan.poll(now, &mut self.endpoint, true) else { break };
            match step {
                DownloadStep::Read { connection, run, ranges } => {
                    let transfer = Transfer::Download(transfer::Download::ranges(&self.work.file, ranges));
                    let id = self.paths[connection.0].path.session.start(now, transfer);
                    download.runs.push((run, (connection, id)));
                }
                DownloadStep::Cancel(run) => {
                    if let Some(at) = download.runs.iter().position(|(it, _)| *it == run) {
                        let (_, (connection, id)) = download.runs.remove(at);
                        self.paths[connection.0].path.session.stop(now, id);
                    }
                }
                DownloadStep::Join { protocol, number, must_answer } => {
                    self.ask(now, protocol, number, must_answer);
                    self.answer(now);
                }
            }
        }
        let Task::Down(download) = &self.task else { return };
        if download.plan.left() == 0 {
            self.stop(now);
            self.finish(now, Progress::Finished(now));
        }
    }

    pub(super) fn step_upload(&mut self, now: Instant) {
        loop {
            let Task::Up(upload) = &mut self.task else { return };
            if upload.is_done {
                self.finish(now, Progress::Finished(now));
                return;
            }
            let Some((connection, id)) = upload.place else { return };
            let known = &mut self.paths[connection.0];
            let session = &mut known.path.session;
            if upload.is_held && !session.is_asking(id) {
                upload.plan.handle_drained();
            }
            let carrier = Carrier {
                last_heard: known.heard,
                min_rtt: session.path_estimate().map(|estimate| estimate.min_rtt),
                overflow: session.stats().overflow,
            };
            match upload.plan.poll(now, &mut self.endpoint, carrier) {
                None => return,
                Some(UploadStep::Ask(protocol)) => {
                    self.ask(now, protocol, 0, true);
                    self.answer(now);
                }
                Some(UploadStep::Hold) => {
                    session.hold(id);
                    upload.is_held = true;
                }
                Some(UploadStep::Detach) => {
                    upload.is_held = false;
                    let (estimate, taken) = (session.path_estimate(), session.detach(now, id));
                    upload.plan.handle_detached(now, &self.endpoint, taken.is_some());
                    if let Some(transfer) = taken {
                        let to = &mut self.paths[upload.connection().0].path.session;
                        if let Some(estimate) = estimate {
                            to.expect_rate(estimate.rate);
                        }
                        upload.start(now, to, transfer);
                    }
                }
            }
        }
    }

    /// Ends whatever is under way.
    pub(super) fn stop(&mut self, now: Instant) {
        let places: Vec<Place> = match &mut self.task {
            Task::Down(download) => download.runs.drain(..).map(|(_, place)| place).collect(),
            Task::Up(upload) => upload.place.take().into_iter().collect(),
            Task::Waiting | Task::Connecting(_) | Task::Calling(_) | Task::Ended => Vec::new(),
        };
        for (connection, id) in places {
            self.paths[connection.0].path.session.stop(now, id);
        }
    }
}
