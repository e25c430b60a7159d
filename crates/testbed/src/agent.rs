//! A mobile that chooses its transport: carries out what [`nfs_proto::endpoint`] decides, as the client's driver does on sockets.
//!
//! Both transports are asked first, side by side. Before the copy it asks for the file's attributes: a call that fails over by itself.

mod copy;
mod steps;

use std::time::{Duration, Instant};

use bytes::Bytes;
use linkemu::{Endpoint as TransferKey, Node, Outgoing};
use nfs_proto::{
    endpoint::{
        ConnectionId, Direction, Endpoint, EndpointConfig, FirstTransport, Reason, ServerPlace,
        TransportTuning, other,
    },
    engine::Stats,
    session::Session,
    transfer::Limits,
};
use nfs_wire::{Procedure, encode, portmap::Protocol, rpc::Program};

use self::copy::{Call, Download, Task, Upload};
use crate::{
    Error, Operation, TcpStats,
    host::Host,
    mobile::{Copier, Progress, Work},
    path::Path,
};

/// How long an attempt at a connection may take before the endpoint hears that it is refused, as in the client.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// The first of the ports that it calls from; every connection has one of its own.
const FIRST_PORT: u16 = 700;

/// Makes a session over a transport.
type MakeSession = Box<dyn Fn(Protocol, Instant) -> Result<Session, Error> + Send>;

/// Many connections and one copy.
pub(crate) struct Agent {
    number: u16,
    config: EndpointConfig,
    /// Nothing is asked of it before the first connection is chosen.
    endpoint: Endpoint,
    /// In the order of their numbers in `endpoint`.
    paths: Vec<Known>,
    making: Vec<Making>,
    make_session: MakeSession,
    host: Host,
    work: Work,
    starts: Instant,
    task: Task,
    progress: Progress,
    /// Names the next call, and the next port.
    next_token: u64,
    next_port: u16,
    /// What is being asked, one question a transport.
    questions: Vec<Question>,
    /// When the machines are asked for their next step, whatever happens.
    tick: Option<Instant>,
    in_use: Protocol,
    changes: u32,
}

/// A connection, and when something was heard on it last.
#[derive(Debug)]
struct Known {
    path: Path,
    heard: Option<Instant>,
}

/// A connection that is not known to the endpoint yet: it has to answer a NULL call.
#[derive(Debug)]
struct Making {
    known: Known,
    protocol: Protocol,
    /// The NULL calls.
    calls: Vec<u64>,
    began: Instant,
    /// The round trip of an answer that nobody has looked at, and of one that somebody has.
    round_trip: Option<Duration>,
    answered: Option<Duration>,
}

impl Making {
    fn call(&mut self, now: Instant, token: u64) {
        let null = (Program::NFS, Procedure::Null.number());
        self.known.path.session.submit(now, token, null, None, |_| {});
        self.calls.push(token);
    }
}

/// What is asked of a transport: an answer now, or just a connection.
#[derive(Clone, Copy, Debug)]
struct Question {
    protocol: Protocol,
    /// Which of the connections over it.
    number: usize,
    /// The NULL call on a connection that was there already.
    token: Option<u64>,
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { number, endpoint, paths, task, progress, .. } = self;
        f.debug_struct("Agent")
            .field("number", number)
            .field("endpoint", endpoint)
            .field("paths", &paths.len())
            .field("task", task)
            .field("progress", progress)
            .finish_non_exhaustive()
    }
}

impl Agent {
    pub(crate) fn new(
        number: u16,
        make_session: MakeSession,
        several_connections: bool,
        host: Host,
        work: Work,
        starts: Instant,
    ) -> Self {
        let config =
            EndpointConfig { either_transport: true, several_connections, tuning: TransportTuning::DEFAULT };
        Self {
            number,
            config,
            endpoint: Endpoint::new(config, starts, Protocol::Udp, Duration::ZERO, Reason::OnlyOne),
            paths: Vec::new(),
            making: Vec::new(),
            make_session,
            host,
            work,
            starts,
            task: Task::Waiting,
            progress: Progress::Waiting,
            next_token: 0,
            next_port: FIRST_PORT,
            questions: Vec::new(),
            tick: None,
            in_use: Protocol::Udp,
            changes: 0,
        }
    }

    const fn direction(&self) -> Direction {
        match self.work.operation {
            Operation::Read => Direction::Down,
            Operation::Write => Direction::Up,
        }
    }

    fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    fn call(&mut self, now: Instant, connection: ConnectionId, procedure: Procedure) -> u64 {
        let token = self.token();
        let file = self.work.file;
        self.paths[connection.0].path.session.submit(
            now,
            token,
            (Program::NFS, procedure.number()),
            None,
            |buffer| {
                if procedure != Procedure::Null {
                    encode(buffer, &file.to_fh3());
                }
            },
        );
        token
    }

    /// The first calls of all.
    fn begin(&mut self, now: Instant) {
        self.progress = Progress::Copying;
        self.task = Task::Connecting(FirstTransport::new(now, ServerPlace::Elsewhere, self.config.tuning));
        self.make(now, Protocol::Udp);
        self.make(now, Protocol::Tcp);
    }

    /// Begins with the transport that answers, or waits for the other one.
    fn step_connecting(&mut self, now: Instant, mut first: FirstTransport) {
        for making in &mut self.making {
            if let Some(round_trip) = making.round_trip.take() {
                first.handle_answer(now, making.protocol, round_trip);
                making.answered = Some(round_trip);
            }
        }
        let Some((protocol, reason)) = first.poll(now) else {
            if first.asks_udp_again() {
                self.ask_again(now);
            }
            self.task = Task::Connecting(first);
            return;
        };
        let mut answered: Vec<Making> = std::mem::take(&mut self.making);
        answered.retain(|making| making.answered.is_some());
        answered.sort_by_key(|making| making.protocol != protocol);
        for (at, making) in answered.into_iter().enumerate() {
            let round_trip = making.answered.unwrap_or_default();
            if at == 0 {
                self.endpoint = Endpoint::new(self.config, now, protocol, round_trip, reason);
            } else {
                self.endpoint.add(making.protocol, round_trip);
            }
            self.paths.push(making.known);
        }
        self.in_use = protocol;
        let route = self.endpoint.route(Procedure::Getattr);
        let token = self.call(now, route.connection, Procedure::Getattr);
        self.task = Task::Calling(Call { token, route, began: now, other: None, again: None });
    }

    /// Makes one more NULL call over UDP, and no third one.
    fn ask_again(&mut self, now: Instant) {
        let token = self.token();
        if let Some(udp) =
            self.making.iter_mut().find(|it| it.protocol == Protocol::Udp && it.calls.len() == 1)
        {
            udp.call(now, token);
        }
    }

    /// The copy itself.
    fn begin_copy(&mut self, now: Instant) {
        let direction = self.direction();
        self.endpoint.begin(now, direction);
        self.task = match self.work.operation {
            Operation::Read => Task::Down(Download::new(now, &self.endpoint, self.work.size)),
            Operation::Write => {
                let mut upload = Upload::new(now, &mut self.endpoint, self.work.size);
                let path = &mut self.paths[upload.connection().0].path;
                upload.start(now, &mut path.session, self.work.transfer());
                Task::Up(upload)
            }
        };
    }

    /// Asks a transport for an answer, or for a connection; [`Self::answer`] tells.
    fn ask(&mut self, now: Instant, protocol: Protocol, number: usize, must_answer: bool) {
        let token = match self.endpoint.find(protocol, number) {
            Some(known) if must_answer => Some(self.call(now, known, Procedure::Null)),
            Some(_) => None,
            None => {
                if !self.is_making(protocol) && self.endpoint.may_connect(now, protocol) {
                    self.make(now, protocol);
                }
                None
            }
        };
        self.questions.retain(|question| question.protocol != protocol);
        self.questions.push(Question { protocol, number, token });
    }

    fn make(&mut self, now: Instant, protocol: Protocol) {
        let place = TransferKey::mobile(self.number, self.next_port);
        self.next_port += 1;
        let Ok(session) = (self.make_session)(protocol, now) else { return };
        let path = match protocol {
            Protocol::Udp => Path::datagrams(session, place),
            Protocol::Tcp => Path::stream(session, place, now),
        };
        let known = Known { path, heard: None };
        let mut making =
            Making { known, protocol, calls: Vec::new(), began: now, round_trip: None, answered: None };
        making.call(now, self.token());
        self.making.push(making);
    }

    fn is_making(&self, protocol: Protocol) -> bool {
        self.making.iter().any(|making| making.protocol == protocol)
    }

    /// Hands on what is known of questions, once something is.
    fn answer(&mut self, now: Instant) {
        for question in std::mem::take(&mut self.questions) {
            let Question { protocol, number, token } = question;
            let found = self.endpoint.find(protocol, number);
            if token.is_some() || (found.is_none() && self.is_making(protocol)) {
                self.questions.push(question);
                continue;
            }
            match &mut self.task {
                Task::Waiting | Task::Connecting(_) | Task::Ended => {}
                Task::Calling(call) => call.other = found.map(|it| (it, now)),
                Task::Down(download) => download.handle_join(now, &mut self.endpoint, protocol, found),
                Task::Up(upload) => upload.handle_answer(now, &mut self.endpoint, found.is_some()),
            }
        }
    }

    /// Records what came over a connection; `None` is the one that is being made.
    fn look(&mut self, now: Instant, connection: Option<ConnectionId>) {
        let arrived = std::mem::take(&mut self.host.arrived);
        let answered = std::mem::take(&mut self.host.answered);
        if let Some(connection) = connection {
            let protocol = self.endpoint.protocol(connection);
            for (transfer, range) in arrived {
                if let Task::Down(download) = &mut self.task {
                    self.endpoint.handle_bytes(now, Direction::Down, protocol, range.length());
                    download.handle_bytes(now, (connection, transfer), range);
                }
            }
            while let Some(event) = self.paths[connection.0].path.session.poll_event() {
                if !self.task.handle_event(now, &mut self.endpoint, connection, event) {
                    self.finish(now, Progress::Failed);
                }
            }
        }
        for answered in answered {
            self.handle_reply(now, answered.token, answered.round_trip);
        }
    }

    fn handle_reply(&mut self, now: Instant, token: u64, round_trip: Duration) {
        if let Some(at) = self.making.iter().position(|making| making.calls.contains(&token)) {
            if matches!(self.task, Task::Connecting(_)) {
                let making = &mut self.making[at];
                making.round_trip = Some(round_trip).filter(|_| making.answered.is_none());
            } else {
                let making = self.making.remove(at);
                self.endpoint.add(making.protocol, round_trip);
                self.paths.push(making.known);
            }
        }
        for question in self.questions.iter_mut().filter(|question| question.token == Some(token)) {
            question.token = None;
        }
        if let Task::Calling(call) = self.task
            && (call.token == token || call.again == Some(token))
        {
            if call.again == Some(token) {
                let silent = self.endpoint.protocol(call.route.connection);
                self.endpoint.handle_failover(Procedure::Getattr, silent);
            }
            self.questions.clear();
            self.begin_copy(now);
        }
    }

    /// Lets the machines take their next steps.
    fn step(&mut self, now: Instant) {
        if !matches!(self.task, Task::Connecting(_)) {
            let endpoint = &mut self.endpoint;
            self.making.retain(|making| {
                let is_waited_for = now < making.began + CONNECT_TIMEOUT;
                if !is_waited_for {
                    endpoint.handle_refused(now, making.protocol);
                }
                is_waited_for
            });
        }
        self.answer(now);
        match self.task {
            Task::Waiting | Task::Ended => {}
            Task::Connecting(first) => self.step_connecting(now, first),
            Task::Calling(call) => self.step_call(now, call),
            Task::Down(_) => self.step_download(now),
            Task::Up(_) => self.step_upload(now),
        }
        if !self.paths.is_empty() {
            let (protocol, _) = self.endpoint.verdict(self.direction());
            self.changes += u32::from(protocol != self.in_use);
            self.in_use = protocol;
        }
        let decides = if let Task::Connecting(first) = &self.task { first.poll_timeout() } else { None };
        let is_at_it = !matches!(self.task, Task::Waiting | Task::Ended);
        let tick = self.config.tuning.tick();
        self.tick = is_at_it.then(|| decides.map_or(now + tick, |at| at.min(now + tick)));
    }

    fn step_call(&mut self, now: Instant, mut call: Call) {
        let Some(failover) = call.route.failover else { return };
        match call.other {
            None if self.questions.is_empty() && call.began + failover.after <= now => {
                let silent = self.endpoint.protocol(call.route.connection);
                self.ask(now, other(silent), 0, true);
            }
            Some((connection, since)) if call.again.is_none() && since + failover.grace <= now => {
                call.again = Some(self.call(now, connection, Procedure::Getattr));
                self.task = Task::Calling(call);
            }
            None | Some(_) => {}
        }
    }

    fn finish(&mut self, now: Instant, progress: Progress) {
        if matches!(self.task, Task::Down(_) | Task::Up(_)) {
            let direction = self.direction();
            self.endpoint.end(now, direction);
        }
        self.questions.clear();
        (self.task, self.progress) = (Task::Ended, progress);
    }

    fn gives_up_at(&self) -> Instant {
        self.starts + self.work.patience
    }

    fn sum<T>(&self, first: T, add: impl Fn(T, &Path) -> T) -> T {
        let all = self.paths.iter().chain(self.making.iter().map(|making| &making.known));
        all.fold(first, |sum, known| add(sum, &known.path))
    }
}

impl Copier for Agent {
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
        let all = self.sum(Stats::default(), |mut sum, path| {
            sum.add(path.session.stats());
            sum
        });
        (all, Stats::default())
    }

    fn limits(&self) -> Limits {
        let carrier = self.endpoint.find(self.in_use, 0).unwrap_or_default();
        self.paths.get(carrier.0).map(|known| known.path.session.limits()).unwrap_or_default()
    }

    fn reconnections(&self) -> u64 {
        self.sum(0, |sum, path| sum + path.reconnections())
    }

    fn tcp_stats(&self) -> TcpStats {
        self.sum(TcpStats::NONE, |sum, path| sum.plus(&path.tcp_stats()))
    }

    fn transport(&self) -> (Protocol, u32) {
        (self.in_use, self.changes)
    }
}

impl Node for Agent {
    fn handle_input(&mut self, now: Instant, _from: TransferKey, to: TransferKey, payload: Bytes) {
        if let Some(at) = self.paths.iter().position(|known| known.path.place() == to) {
            let known = &mut self.paths[at];
            known.heard = Some(now);
            known.path.handle_input(now, &mut self.host, payload);
            self.look(now, Some(ConnectionId(at)));
        } else if let Some(making) = self.making.iter_mut().find(|it| it.known.path.place() == to) {
            making.known.heard = Some(now);
            making.known.path.handle_input(now, &mut self.host, payload);
            self.look(now, None);
        }
        self.step(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        if matches!(self.task, Task::Waiting) && self.starts <= now {
            self.begin(now);
        }
        for at in 0..self.paths.len() {
            self.paths[at].path.handle_timeout(now, &mut self.host);
            self.look(now, Some(ConnectionId(at)));
        }
        self.making.iter_mut().for_each(|making| making.known.path.handle_timeout(now, &mut self.host));
        self.look(now, None);
        self.step(now);
        if self.progress == Progress::Copying && self.gives_up_at() <= now {
            self.stop(now);
            self.finish(now, Progress::Failed);
        }
        if matches!(self.task, Task::Ended) {
            self.tick = None;
        }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Outgoing> {
        let host = &mut self.host;
        let making = self.making.iter_mut().map(|making| &mut making.known);
        self.paths.iter_mut().chain(making).find_map(|known| known.path.poll_transmit(now, host))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let waiting = matches!(self.task, Task::Waiting).then_some(self.starts);
        let patience = (self.progress == Progress::Copying).then(|| self.gives_up_at());
        let making = self.making.iter().map(|making| &making.known);
        let paths = self.paths.iter().chain(making).filter_map(|known| known.path.poll_timeout());
        paths.chain(waiting).chain(patience).chain(self.tick).min()
    }
}
