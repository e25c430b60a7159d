//! A mobile host: the client's session, the file it copies, and the time its processor takes.

use std::time::{Duration, Instant};

use bytes::Bytes;
use linkemu::{Endpoint, Node, Outgoing};
use nfs_proto::{
    engine::Stats,
    session::{Event, Transfer, TransferId},
    transfer::{Download, Limits, Placement, Upload, UploadSpec},
};
use nfs_wire::{FileHandle, portmap::Protocol};

use crate::{Operation, Plan, TcpStats, client::session_after, host::Host, path::Path};

/// A file to be copied.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) operation: Operation,
    pub(crate) file: FileHandle,
    pub(crate) root: FileHandle,
    pub(crate) size: u64,
    /// When the copy is given up, counted from its first call.
    pub(crate) patience: Duration,
}

impl Work {
    pub(crate) fn transfer(&self) -> Transfer {
        match self.operation {
            Operation::Read => Transfer::Download(Download::new(&self.file, self.size)),
            Operation::Write => Transfer::Upload(Box::new(Upload::new(UploadSpec::new(
                self.root,
                Vec::new(),
                Placement::Existing(self.file),
                self.size,
            )))),
        }
    }
}

/// A copy before the one that counts.
#[derive(Debug)]
pub(crate) struct Rehearsal {
    /// Bytes of the file to copy, at most.
    pub(crate) bytes: u64,
    /// How the client is made that follows.
    pub(crate) plan: Plan,
    pub(crate) seed: u64,
    pub(crate) number: u16,
}

/// What became of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Waiting,
    Copying,
    Finished(Instant),
    Failed,
}

/// A mobile that copies a file, whatever over.
pub(crate) trait Copier: Node {
    fn progress(&self) -> Progress;

    /// When the copy that counts began, or will.
    fn starts(&self) -> Instant;

    /// Whether the bytes that arrived are those of the file.
    fn intact(&self) -> bool;

    /// The counters now, and when the copy that counts began.
    fn stats(&self) -> (Stats, Stats);

    fn limits(&self) -> Limits;

    /// TCP connections made because another had died.
    fn reconnections(&self) -> u64;

    /// What its senders of TCP have done.
    fn tcp_stats(&self) -> TcpStats;

    /// The transport in use for the file's data, and how often it has changed.
    fn transport(&self) -> (Protocol, u32);

    /// Whether nothing is left to wait for.
    fn is_done(&self) -> bool {
        matches!(self.progress(), Progress::Finished(_) | Progress::Failed)
    }
}

/// One mobile that copies one file: the client of the programs, but for sockets and clock.
#[derive(Debug)]
pub(crate) struct Mobile {
    path: Path,
    host: Host,
    work: Work,
    rehearsal: Option<Rehearsal>,
    starts: Instant,
    transfer: Option<TransferId>,
    progress: Progress,
    /// The counters when the copy that counts began.
    before: Stats,
}

impl Mobile {
    pub(crate) fn new(
        path: Path,
        host: Host,
        work: Work,
        starts: Instant,
        rehearsal: Option<Rehearsal>,
    ) -> Self {
        Self {
            path,
            host,
            work,
            rehearsal,
            starts,
            transfer: None,
            progress: Progress::Waiting,
            before: Stats::default(),
        }
    }

    fn handle_events(&mut self, now: Instant) {
        // One transfer: nobody has to know what its bytes came for.
        self.host.arrived.clear();
        self.host.answered.clear();
        while let Some(event) = self.path.session.poll_event() {
            match event {
                Event::Finished(_) => match self.rehearsal.take() {
                    Some(rehearsal) => self.follow(now, &rehearsal),
                    None => self.progress = Progress::Finished(now),
                },
                Event::Failed(..) => self.progress = Progress::Failed,
                _ => {}
            }
        }
    }

    /// The copy that counts is that of a client that knows what the rehearsal's has measured.
    fn follow(&mut self, now: Instant, rehearsal: &Rehearsal) {
        let Rehearsal { plan, seed, number, .. } = rehearsal;
        if let Some(estimate) = self.path.session.path_estimate() {
            let session = session_after(plan, Protocol::Udp, *seed, *number, now, Some(estimate));
            self.path.session = session.expect("the options of the rehearsal's were valid");
        }
        self.starts = now;
        self.transfer = None;
    }

    fn gives_up_at(&self) -> Instant {
        self.starts + self.work.patience
    }
}

impl Copier for Mobile {
    fn progress(&self) -> Progress {
        self.progress
    }

    fn starts(&self) -> Instant {
        self.starts
    }

    fn intact(&self) -> bool {
        self.host.intact()
    }

    fn stats(&self) -> (Stats, Stats) {
        (self.path.session.stats().clone(), self.before.clone())
    }

    fn limits(&self) -> Limits {
        self.path.session.limits()
    }

    fn reconnections(&self) -> u64 {
        self.path.reconnections()
    }

    fn tcp_stats(&self) -> TcpStats {
        self.path.tcp_stats()
    }

    fn transport(&self) -> (Protocol, u32) {
        (self.path.protocol(), 0)
    }
}

impl Node for Mobile {
    fn handle_input(&mut self, now: Instant, _from: Endpoint, to: Endpoint, payload: Bytes) {
        if to == self.path.place() {
            self.path.handle_input(now, &mut self.host, payload);
            self.handle_events(now);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.transfer.is_none() && self.starts <= now {
            self.before = self.path.session.stats().clone();
            self.progress = Progress::Copying;
            let size = self.rehearsal.as_ref().map_or(self.work.size, |it| it.bytes.min(self.work.size));
            let transfer = Work { size, ..self.work.clone() }.transfer();
            self.transfer = Some(self.path.session.start(now, transfer));
        }
        self.path.handle_timeout(now, &mut self.host);
        self.handle_events(now);
        if let Some(transfer) = self.transfer.filter(|_| !self.is_done() && self.gives_up_at() <= now) {
            self.path.session.stop(now, transfer);
            self.progress = Progress::Failed;
        }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Outgoing> {
        self.path.poll_transmit(now, &mut self.host)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let change = match (self.transfer, self.progress) {
            (None, _) => Some(self.starts),
            (_, Progress::Copying) => Some(self.gives_up_at()),
            _ => None,
        };
        self.path.poll_timeout().into_iter().chain(change).min()
    }
}
