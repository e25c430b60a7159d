mod blocks;
mod handover;
mod later;
mod limits;
mod loading;
mod path;
mod replies;
mod rooms;
mod timers;

use nfs_wire::{
    FileHandle, Procedure,
    rpc::{ReplyHeader, Xid},
};

use super::*;
use crate::{
    attr::SetAttributes,
    config::RetryPolicy,
    engine::{BlockRange, Carrier, Tuning, WindowLimits},
    transfer::{Placement, UploadSpec},
};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn server() -> SocketAddr {
    "192.0.2.1:2049".parse().unwrap()
}

/// A handle of eight bytes.
fn handle(byte: u8) -> FileHandle {
    FileHandle::try_from(&[byte; 8][..]).unwrap()
}

/// A message that left the session.
#[derive(Clone, Debug)]
struct Call(Vec<u8>);

impl Call {
    fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.0[at..at + 4].try_into().unwrap())
    }

    fn xid(&self) -> Xid {
        Xid(self.word(0))
    }

    fn number(&self) -> u32 {
        self.word(20)
    }

    fn procedure(&self) -> Procedure {
        assert_eq!(self.word(12), Program::NFS.number);
        Procedure::from_number(self.number()).unwrap()
    }

    /// Offset and length of a READ or WRITE. Before them are the header, with a credential of eight bytes, and a handle of eight bytes.
    fn range(&self) -> (u64, u32) {
        assert!(matches!(self.procedure(), Procedure::Read | Procedure::Write), "{}", self.procedure());
        (u64::from(self.word(52)) << 32 | u64::from(self.word(56)), self.word(60))
    }
}

/// A session of which a test plays the network, the server, the driver and the clock.
struct Bench {
    session: Session,
    now: Instant,
    sent: VecDeque<Call>,
}

impl Bench {
    /// Blocks of 1000 bytes, four at once, sent again after 700 ms, then 800 ms, 900 ms and a second, then after twice as long each time.
    fn new(change: impl FnOnce(&mut SessionConfig)) -> Self {
        #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
        let now = Instant::now();
        let window = WindowLimits { calls: 4, read_bytes: 1 << 20, write_bytes: 1 << 20 };
        let mut config = SessionConfig {
            engine: EngineConfig {
                tuning: Tuning::default(),
                carrier: Carrier::Datagrams,
                retry: RetryPolicy::hybrid(),
                window,
                blocks: None,
                prior: None,
                credential: vec![0; 8],
            },
            limits: Limits { read_block: 1000, write_block: 1000, ..Limits::default() },
            measure_writes: false,
            stall_timeout: None,
            rate_limit: None,
        };
        change(&mut config);
        Self { session: Session::new(config, server(), 1, now), now, sent: VecDeque::new() }
    }

    /// Blocks of so many bytes over datagrams.
    fn with_blocks(bytes: u32) -> Self {
        Self::new(|config| (config.limits.read_block, config.limits.write_block) = (bytes, bytes))
    }

    /// Blocks of so many bytes over a connection, which loses nothing: the only timers are the session's own.
    fn connection(bytes: u32) -> Self {
        Self::new(|config| {
            config.engine.carrier = Carrier::Connection;
            (config.limits.read_block, config.limits.write_block) = (bytes, bytes);
        })
    }

    /// A session that chooses its blocks itself.
    fn adaptive() -> Self {
        Self::new(|config| {
            config.engine.retry = RetryPolicy::Adaptive;
            config.engine.blocks = Some(BlockRange { headers: 220, largest: 32 << 10 });
            config.engine.window = WindowLimits { calls: 64, read_bytes: 1 << 20, write_bytes: 1 << 20 };
            config.limits = Limits { read_block: 32 << 10, write_block: 32 << 10, ..Limits::default() };
        })
    }

    fn download(&mut self, size: u64) -> TransferId {
        self.session.start(self.now, Transfer::Download(Download::new(&handle(1), size)))
    }

    /// Starts an upload without bytes, which sets a mode.
    fn upload(&mut self, placement: Placement) -> TransferId {
        let attributes = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
        let spec = UploadSpec { attributes, ..UploadSpec::new(handle(1), *b"name", placement, 0) };
        self.session.start(self.now, Transfer::Upload(Box::new(Upload::new(spec))))
    }

    /// Starts an upload of so many bytes into a file that exists: WRITEs, of which the last is stable, and a COMMIT for the others.
    fn write(&mut self, size: u64) -> TransferId {
        self.session.start(self.now, writes(size))
    }

    /// Queues a call of the application's own, GETATTR, as this token.
    fn call(&mut self, token: u64) -> Option<CallId> {
        let getattr = (Program::NFS, Procedure::Getattr.number());
        self.session.submit(self.now, token, getattr, None, |_| {})
    }

    /// Sends what there is to send; returns how many messages that were.
    fn send(&mut self) -> usize {
        let before = self.sent.len();
        while let Some(transmit) = self.session.poll_transmit(self.now) {
            self.sent.push_back(Call(transmit.head.to_vec()));
        }
        self.sent.len() - before
    }

    /// Sends what there is to send; returns all that was sent and not looked at yet.
    fn calls(&mut self) -> Vec<Call> {
        self.send();
        self.sent.drain(..).collect()
    }

    /// As [`Bench::calls`], of READs or WRITEs alone: their offsets and lengths.
    fn ranges(&mut self) -> Vec<(u64, u32)> {
        self.calls().iter().map(Call::range).collect()
    }

    /// Hands a message to the session.
    fn receive(&mut self, message: &[u8]) -> Incoming {
        self.session.handle_head(self.now, server(), message, true).unwrap()
    }

    /// The server runs a call: these are its results.
    fn reply(&mut self, call: &Call, results: &[u32]) -> Incoming {
        self.receive(&reply(call, results))
    }

    /// The server answers a call with this status, and no attributes.
    fn refuse(&mut self, call: &Call, status: Status) -> Incoming {
        self.reply(call, &[status.code(), 0, 0])
    }

    /// The server does not run a call.
    fn reject(&mut self, call: &Call, rejection: Rejection) -> Incoming {
        let mut message = Vec::new();
        ReplyHeader { xid: call.xid(), outcome: Err(rejection) }.encode(&mut message);
        self.receive(&message)
    }

    /// A READ brings `count` bytes, which the driver moves.
    fn read(&mut self, call: &Call, count: u32) -> Incoming {
        let incoming = self.receive(&data(call, count));
        self.session.handle_payload_done(self.now);
        incoming
    }

    /// The oldest READ brings `count` bytes.
    fn answer(&mut self, count: u32) -> Incoming {
        let call = self.sent.pop_front().expect("a READ was sent");
        self.read(&call, count)
    }

    /// A WRITE took `count` bytes, as stable as asked for, in the life of the server that this write verifier stands for.
    fn written(&mut self, call: &Call, count: u32, verifier: u32) -> Incoming {
        assert_eq!(call.procedure(), Procedure::Write);
        self.reply(call, &[0, 0, 0, count, call.word(64), verifier, verifier])
    }

    /// A COMMIT was run in the life of the server that this write verifier stands for.
    fn committed(&mut self, call: &Call, verifier: u32) -> Incoming {
        assert_eq!(call.procedure(), Procedure::Commit);
        self.reply(call, &[0, 0, 0, verifier, verifier])
    }

    /// Answers NULL calls and READs of up to `largest` bytes, 5 ms after they are sent, for so long; returns the bytes that were read, and the
    /// largest READ asked for.
    fn serve(&mut self, largest: u32, time: Duration) -> (u64, u32) {
        let end = self.now + time;
        let (mut read, mut asked) = (0, 0);
        while self.now < end {
            let calls = self.calls();
            self.now += 5 * MS;
            for call in calls {
                if call.procedure() != Procedure::Read {
                    self.reply(&call, &[]);
                    continue;
                }
                let (_, count) = call.range();
                asked = asked.max(count);
                if count <= largest {
                    self.read(&call, count);
                    read += u64::from(count);
                }
            }
            self.session.handle_timeout(self.now);
        }
        (read, asked)
    }

    /// Lets time pass, however many timers that takes.
    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.session.handle_timeout(self.now);
    }

    /// Lets the next timer fire; returns how long that took.
    fn tick(&mut self) -> Duration {
        let due = self.session.poll_timeout().expect("a timer is set");
        assert!(due > self.now, "the session would spin");
        let time = due - self.now;
        self.pass(time);
        time
    }

    /// Lets timers fire until something is to be sent; returns how long that took.
    fn wait(&mut self) -> Duration {
        let start = self.now;
        while self.send() == 0 {
            self.tick();
        }
        self.now - start
    }

    /// All events but which file an upload has made.
    fn events(&mut self) -> Vec<Event> {
        let mut events = self.all_events();
        events.retain(|event| !matches!(event, Event::Uploaded(..)));
        events
    }

    fn all_events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.session.poll_event()).collect()
    }
}

/// An upload of so many bytes into a file that exists.
fn writes(size: u64) -> Transfer {
    Transfer::Upload(Box::new(Upload::new(UploadSpec::new(
        handle(1),
        *b"name",
        Placement::Existing(handle(1)),
        size,
    ))))
}

/// The reply to a call that was run.
fn reply(call: &Call, results: &[u32]) -> Vec<u8> {
    let mut message = Vec::new();
    ReplyHeader { xid: call.xid(), outcome: Ok(()) }.encode(&mut message);
    message.extend(results.iter().flat_map(|word| word.to_be_bytes()));
    message
}

/// The reply to a READ that brings `count` bytes, and not the end of the file.
fn data(call: &Call, count: u32) -> Vec<u8> {
    let mut message = reply(call, &[0, 0, count, 0, count]);
    message.resize(message.len() + count as usize, 0);
    message
}
