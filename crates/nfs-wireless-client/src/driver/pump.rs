//! What datagrams and streams have in common: commands in, answers out.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use nfs_proto::{
    engine::{CallId, Payload},
    session::{Event, Incoming, Session, TransferId},
};
use nfs_wire::{DecodeError, rpc::Rejection};
use tokio::sync::{mpsc, oneshot};

use super::{
    Answer, CallFailure, Change, Command, Ended, Observer, Shared, Storage, Strand, Supply, Task,
    fragments::Fragments,
};
use crate::error::Error;

/// A session, and who waits for what in it.
pub(super) struct Pump {
    pub(super) session: Session,
    /// Of datagrams over IPv4 only.
    pub(super) fragments: Option<Fragments>,
    calls: BTreeMap<u64, Waiting>,
    running: BTreeMap<TransferId, Running>,
    persistent: bool,
    /// There is no connection now.
    pub(super) lost: bool,
    change: Option<Change>,
    last_heard: Option<Instant>,
    shared: Shared,
}

struct Waiting {
    id: CallId,
    answer: oneshot::Sender<Result<Answer, CallFailure>>,
}

struct Running {
    token: u64,
    storage: Storage,
    accepted: Option<Observer>,
    /// Accepted bytes of which those who follow the progress have not heard, and whether they are being told of others.
    untold: u64,
    is_telling: bool,
    /// To be told when none of its calls is outstanding.
    drained: Option<oneshot::Sender<()>>,
    /// What an upload has made.
    made: Option<nfs_proto::transfer::Uploaded>,
    done: oneshot::Sender<Ended>,
}

/// What to do with the rest of a message.
pub(super) enum Rest {
    /// The session needs more of it.
    NeedMore,
    /// Nobody needs it.
    Skip,
    /// It holds file bytes, from this place on.
    Data { transfer: TransferId, offset: u64, length: u32, data_at: usize },
    /// It is the reply to a call; the results begin in this place.
    Reply(Replied, usize),
}

/// A reply for somebody who waits.
pub(super) struct Replied {
    answer: oneshot::Sender<Result<Answer, CallFailure>>,
    outcome: Result<(), Rejection>,
    attempts: u32,
    round_trip: Duration,
}

impl Replied {
    /// Hands on the results.
    pub(super) fn hand_on(self, results: Bytes) {
        let Self { answer, outcome, attempts, round_trip } = self;
        // Whoever has given up does not listen.
        let _ = answer.send(Ok(Answer { results, outcome, attempts, round_trip }));
    }
}

impl Pump {
    pub(super) const fn new(session: Session, shared: Shared) -> Self {
        Self {
            session,
            fragments: None,
            calls: BTreeMap::new(),
            running: BTreeMap::new(),
            persistent: false,
            lost: false,
            change: None,
            last_heard: None,
            shared,
        }
    }

    pub(super) fn apply(&mut self, now: Instant, command: Command) {
        match command {
            Command::Call { token, procedure, timeout, arguments, answer } => {
                // What no clock can show is never.
                let deadline = timeout.and_then(|timeout| now.checked_add(timeout));
                let queued = self.session.submit(now, token, procedure, deadline, |buffer| {
                    buffer.extend_from_slice(&arguments);
                });
                match queued {
                    Some(id) => drop(self.calls.insert(token, Waiting { id, answer })),
                    // A connection lets no more calls in than a session takes.
                    None => drop(answer.send(Err(CallFailure::Closed))),
                }
            }
            Command::Cancel { token } => {
                if let Some(waiting) = self.calls.remove(&token) {
                    self.session.cancel(now, waiting.id);
                }
            }
            Command::Start { token, task, done } => self.start(now, token, task, done),
            Command::Stop { token } => self.stop(now, token),
            Command::Loaded { token, bytes } => {
                let Some(id) = self.find(token) else { return };
                match bytes {
                    Ok(bytes) => self.session.handle_loaded(now, id, &bytes),
                    Err(error) => self.fail(now, id, error),
                }
            }
            Command::Told { token } => {
                if let Some(id) = self.find(token) {
                    self.running.entry(id).and_modify(|running| running.is_telling = false);
                    self.tell(id);
                }
            }
            Command::Hold { token, drained } => {
                if let Some(id) = self.find(token) {
                    self.session.hold(id);
                    self.running.entry(id).and_modify(|running| running.drained = Some(drained));
                }
            }
            Command::Detach { token, handed } => self.detach(now, token, handed),
            Command::Persist => self.persistent = true,
            Command::Mounted { root, known } => self.session.handle_mount(now, root, known),
            Command::Change(change) => match (self.change, change) {
                // A move or an end is not forgotten over what comes after it.
                (Some(Change::End), _) | (Some(Change::Server(_)), Change::Link) => {}
                _ => self.change = Some(change),
            },
        }
    }

    fn start(&mut self, now: Instant, token: u64, task: Task, done: oneshot::Sender<Ended>) {
        let Task { transfer, storage, accepted, rate } = task;
        if let Some(rate) = rate {
            self.session.expect_rate(rate);
        }
        let id = match &storage {
            Storage::Source(supply) if supply.is_apart() => self.session.start_loading(now, transfer),
            Storage::Source(_) | Storage::Sink(_) => self.session.start(now, transfer),
        };
        let (untold, is_telling, drained) = (0, false, None);
        let running = Running { token, storage, accepted, untold, is_telling, drained, made: None, done };
        self.running.insert(id, running);
    }

    fn stop(&mut self, now: Instant, token: u64) {
        let Some(id) = self.find(token) else { return };
        self.session.stop(now, id);
        if let Some(Running { storage: Storage::Source(supply), .. }) = self.running.remove(&id) {
            supply.abandon();
        }
    }

    /// Gives a transfer back, with what is known of the path, for another connection to continue it.
    fn detach(&mut self, now: Instant, token: u64, handed: oneshot::Sender<Task>) {
        let Some(id) = self.find(token) else { return };
        if let Some(transfer) = self.session.detach(now, id)
            && let Some(Running { storage, accepted, untold, .. }) = self.running.remove(&id)
        {
            if let Storage::Source(supply) = &storage {
                tell_the_rest(supply, untold);
            }
            let rate = self.session.path_estimate().map(|estimate| estimate.rate);
            let _ = handed.send(Task { transfer, storage, accepted, rate });
        }
    }

    /// Returns the transfer with this token, if it is under way.
    fn find(&self, token: u64) -> Option<TransferId> {
        self.running.iter().find(|(_, running)| running.token == token).map(|(&id, _)| id)
    }

    /// Returns what became of the way to the server since this was asked last.
    pub(super) const fn take_change(&mut self) -> Option<Change> {
        self.change.take()
    }

    /// Looks at the beginning of a message, and says who waits for it.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        bytes: &[u8],
        complete: bool,
    ) -> Result<Rest, DecodeError> {
        let incoming = self.session.handle_head(now, peer, bytes, complete)?;
        self.last_heard = Some(now);
        Ok(match incoming {
            Incoming::NeedMore => Rest::NeedMore,
            Incoming::Done => Rest::Skip,
            Incoming::Data { transfer, offset, length, attributes, data_at } => {
                if let Some(Running { storage: Storage::Sink(sink), .. }) = self.running.get_mut(&transfer) {
                    sink.told(attributes);
                }
                Rest::Data { transfer, offset, length, data_at }
            }
            Incoming::Reply { token, results_at, outcome, attempts, round_trip } => {
                match self.calls.remove(&token) {
                    Some(Waiting { answer, .. }) => {
                        Rest::Reply(Replied { answer, outcome, attempts, round_trip }, results_at)
                    }
                    None => Rest::Skip,
                }
            }
        })
    }

    /// Puts file bytes where they belong. A failure ends their transfer; the rest of the message is still read.
    pub(super) fn store(&mut self, now: Instant, transfer: TransferId, offset: u64, bytes: &[u8]) {
        let Some(Running { storage: Storage::Sink(sink), .. }) = self.running.get_mut(&transfer) else {
            return;
        };
        if let Err(error) = sink.arrived(now, offset, bytes) {
            self.fail(now, transfer, error);
        }
    }

    /// Appends `length` bytes of a transfer's source to `buffer`; on failure the transfer has ended.
    pub(super) fn load(
        &mut self,
        now: Instant,
        transfer: TransferId,
        offset: u64,
        length: usize,
        buffer: &mut Vec<u8>,
    ) -> bool {
        let Some(Running { storage: Storage::Source(supply), .. }) = self.running.get(&transfer) else {
            return false;
        };
        let start = buffer.len();
        buffer.resize(start + length, 0);
        match supply.with(|supply| supply.read_at(offset, &mut buffer[start..])) {
            Some(Ok(())) => true,
            Some(Err(error)) => {
                self.fail(now, transfer, error);
                false
            }
            None => false,
        }
    }

    /// Returns another descriptor of the file that is the transfer's source, if it is one.
    pub(super) fn source_file(&self, transfer: TransferId) -> Option<OwnedFd> {
        match &self.running.get(&transfer)?.storage {
            Storage::Source(supply) => supply.with(|supply| supply.file())?,
            Storage::Sink(_) => None,
        }
    }

    /// Ends a transfer because of a local failure.
    pub(super) fn fail(&mut self, now: Instant, transfer: TransferId, error: io::Error) {
        self.session.stop(now, transfer);
        let error = match error.kind() {
            ErrorKind::UnexpectedEof => Error::SourceChanged,
            _ => Error::Local(Arc::new(error)),
        };
        self.finish(transfer, Err(error));
    }

    /// The peer refused us: calls fail while the server is being looked for, and wait later on.
    pub(super) fn refused(&mut self, now: Instant, error: io::Error) {
        if self.persistent {
            return;
        }
        let error = Arc::new(error);
        for (_, waiting) in std::mem::take(&mut self.calls) {
            self.session.cancel(now, waiting.id);
            let _ = waiting.answer.send(Err(CallFailure::Unreachable(Arc::clone(&error))));
        }
    }

    /// The peer answers, and never with a reply: nothing that waits for one will get it.
    pub(super) fn give_up(&mut self, now: Instant, peer: SocketAddr, error: &io::Error) {
        let reason: Arc<str> = error.to_string().into();
        for (_, waiting) in std::mem::take(&mut self.calls) {
            self.session.cancel(now, waiting.id);
            let _ = waiting.answer.send(Err(CallFailure::Broken(Arc::clone(&reason))));
        }
        for id in self.running.keys().copied().collect::<Vec<_>>() {
            self.session.stop(now, id);
            self.finish(id, Err(Error::Broken { address: peer, reason: Arc::clone(&reason) }));
        }
    }

    pub(super) const fn is_persistent(&self) -> bool {
        self.persistent
    }

    /// Hands out everything the session has to tell.
    pub(super) fn drain_events(&mut self) {
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::Progress(transfer, bytes) => {
                    let Some(running) = self.running.get_mut(&transfer) else { continue };
                    if let Some(accepted) = &running.accepted {
                        accepted(bytes);
                    }
                    running.untold += bytes;
                    self.tell(transfer);
                }
                Event::Load(transfer, payload) => self.load_apart(transfer, payload),
                Event::Uploaded(transfer, made) => {
                    if let Some(running) = self.running.get_mut(&transfer) {
                        running.made = Some(made);
                    }
                }
                Event::Finished(transfer) => self.finish(transfer, Ok(())),
                Event::Failed(transfer, error) => self.finish(transfer, Err(error.into())),
                Event::Stalled(transfer, after) => self.finish(transfer, Err(Error::Stalled(after))),
                Event::Expired { token, attempts, elapsed } => {
                    if let Some(waiting) = self.calls.remove(&token) {
                        let _ = waiting.answer.send(Err(CallFailure::Expired { attempts, elapsed }));
                    }
                }
            }
        }
        self.tell_drained();
    }

    /// Tells those who wait for it that their transfers have no calls outstanding.
    fn tell_drained(&mut self) {
        for (&id, running) in &mut self.running {
            if running.drained.is_some() && !self.session.is_asking(id) {
                let _ = running.drained.take().map(|drained| drained.send(()));
            }
        }
    }

    /// Shows the counters to whoever asks.
    pub(super) fn publish(&self) {
        let mut snapshot = self.shared.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        snapshot.stats.clone_from(self.session.stats());
        snapshot.limits = Some(self.session.limits());
        snapshot.server_limits = self.session.server_limits();
        snapshot.outstanding = self.session.outstanding();
        snapshot.put_off = self.session.put_off_transfers();
        snapshot.waiting = snapshot.outstanding > 0 || self.lost;
        snapshot.last_heard = self.last_heard;
        snapshot.path_estimate = self.session.path_estimate();
        snapshot.identifications_may_have_wrapped =
            self.fragments.as_ref().is_some_and(Fragments::may_have_wrapped);
    }

    /// Has the bytes of a WRITE loaded where nobody waits for them.
    fn load_apart(&self, transfer: TransferId, Payload { offset, length }: Payload) {
        let Some(Running { token, storage: Storage::Source(supply), .. }) = self.running.get(&transfer)
        else {
            return;
        };
        let loading = Loading { token: *token, commands: self.shared.commands.clone() };
        supply.run(move |supply| {
            let mut bytes = vec![0; length as usize];
            let gone = || Err(panicked());
            let loaded = supply.as_mut().map_or_else(gone, |supply| supply.read_at(offset, &mut bytes));
            loading.say(loaded.map(|()| bytes));
        });
    }

    /// Tells those who follow the progress of an upload of it, unless they are being told.
    fn tell(&mut self, transfer: TransferId) {
        let Some(running) = self.running.get_mut(&transfer) else { return };
        let Storage::Source(supply) = &running.storage else { return };
        if running.is_telling || running.untold == 0 {
            return;
        }
        let bytes = std::mem::take(&mut running.untold);
        let upload = self.session.upload(transfer);
        if !supply.is_apart() {
            supply.with(|supply| supply.progressed(upload, bytes));
            return;
        }
        running.is_telling = true;
        let (upload, token, commands) = (upload.cloned(), running.token, self.shared.commands.clone());
        supply.run(move |supply| {
            if let Some(supply) = supply {
                supply.progressed(upload.as_ref(), bytes);
            }
            if let Some(commands) = commands.upgrade() {
                let _ = commands.send(Command::Told { token });
            }
        });
    }

    fn finish(&mut self, transfer: TransferId, result: Result<(), Error>) {
        self.publish();
        let Some(Running { storage, untold, made, done, .. }) = self.running.remove(&transfer) else {
            return;
        };
        let result = result.map(|()| made);
        match storage {
            Storage::Sink(sink) => {
                drop(sink);
                let _ = done.send(result);
            }
            Storage::Source(supply) => {
                tell_the_rest(&supply, untold);
                let ending = Ending(Some(done));
                // The file is closed before anybody hears of it.
                supply.run(move |supply| {
                    drop(supply.take());
                    ending.say(result);
                });
            }
        }
    }
}

/// Tells of bytes after which an upload ends or leaves.
fn tell_the_rest(supply: &Strand<Supply>, bytes: u64) {
    if bytes > 0 {
        supply.run(move |supply| {
            if let Some(supply) = supply {
                supply.progressed(None, bytes);
            }
        });
    }
}

fn panicked() -> io::Error {
    io::Error::other("the source or the observer of an upload has panicked")
}

/// Says how an upload has ended, also where a panic keeps what would say it from running.
struct Ending(Option<oneshot::Sender<Ended>>);

impl Ending {
    fn say(mut self, result: Ended) {
        if let Some(done) = self.0.take() {
            let _ = done.send(result);
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(done) = self.0.take()
        {
            let _ = done.send(Err(Error::Local(Arc::new(panicked()))));
        }
    }
}

/// Says what became of a load: nothing, if the source panicked.
struct Loading {
    token: u64,
    commands: mpsc::WeakUnboundedSender<Command>,
}

impl Loading {
    /// The first word counts.
    fn say(&self, bytes: io::Result<Vec<u8>>) {
        if let Some(commands) = self.commands.upgrade() {
            let _ = commands.send(Command::Loaded { token: self.token, bytes });
        }
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.say(Err(io::Error::other("the source of an upload has panicked")));
        }
    }
}

#[cfg(test)]
mod tests;
