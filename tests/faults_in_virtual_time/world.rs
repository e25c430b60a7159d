//! The machines, the wire between them, and the clock.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use nfs_proto::{
    attr::{SetAttributes, Time},
    config::RetryPolicy,
    engine::{Carrier, EngineConfig, Tuning, WindowLimits},
    session::{Event, Incoming, Session, SessionConfig, Transfer},
    transfer::{
        Checkpoint, Download, Limits, Listing, Placement, Range, RangeSet, TransferError, Upload, UploadSpec,
    },
};
use nfs_wire::{
    FileHandle, Procedure, mount,
    nfs3_types::nfs3::{LOOKUP3resok, filename3},
    padding,
    portmap::Protocol,
    rpc::Program,
};
use nfs_wireless_server::{
    Action, Calls, Faults, Memory, MemoryConfig, Peer, Rule, Service, ServiceConfig, When,
};

use crate::trouble::Trouble;

/// One way.
const DELAY: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(3 * 24 * 3600);

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) session: Session,
    pub(crate) service: Service,
    pub(crate) to_server: Wire,
    pub(crate) to_client: Wire,
    /// What the network does to datagrams.
    pub(crate) trouble: Trouble,
    pub(crate) source: Vec<u8>,
    pub(crate) sink: Vec<u8>,
    pub(crate) replies: Vec<(u64, Vec<u8>, u32)>,
    pub(crate) outcome: Option<Result<(), TransferError>>,
    pub(crate) progress: u64,
    /// When calls were sent.
    pub(crate) sent_at: Vec<Instant>,
    /// When bytes were accepted last.
    pub(crate) moved_at: Option<Instant>,
    /// Bytes of the largest WRITE.
    pub(crate) largest_write: u32,
    /// What the last download has stored.
    pub(crate) had: RangeSet,
    /// What the last upload may go on from.
    pub(crate) checkpoint: Option<Checkpoint>,
    /// What an upload makes.
    pub(crate) name: Vec<u8>,
    /// Ranges of the source that uploads may leave out.
    pub(crate) holes: RangeSet,
    /// Attributes that an upload sets at its end.
    pub(crate) attributes: SetAttributes,
}

/// Datagrams under way, in the order of their arrival.
#[derive(Default)]
pub(crate) struct Wire {
    datagrams: BTreeMap<(Instant, u64), Vec<u8>>,
    sent: u64,
}

impl Wire {
    pub(crate) fn send(&mut self, arrives: Instant, datagram: Vec<u8>) {
        self.sent += 1;
        self.datagrams.insert((arrives, self.sent), datagram);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.datagrams.clear();
    }

    fn next(&self) -> Option<Instant> {
        self.datagrams.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the next datagram, if it has arrived.
    fn arrived(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.datagrams.first_entry().filter(|first| first.key().0 <= now).map(|first| first.remove())
    }
}

pub(crate) fn server() -> SocketAddr {
    "192.0.2.1:2049".parse().unwrap()
}

impl World {
    pub(crate) fn new(faults: Faults) -> Self {
        Self::with(ServiceConfig::default(), faults, 4096)
    }

    pub(crate) fn with(config: ServiceConfig, faults: Faults, block: u32) -> Self {
        Self::with_policy(config, faults, block, RetryPolicy::hybrid())
    }

    pub(crate) fn with_policy(config: ServiceConfig, faults: Faults, block: u32, retry: RetryPolicy) -> Self {
        let now = Instant::now();
        let mut service = Service::new(config, Memory::new(MemoryConfig::default()), 1, now).unwrap();
        service.set_faults(faults);
        let mut credential = Vec::new();
        nfs_wire::auth::Credential::None.encode(&mut credential);
        let window = WindowLimits { calls: 8, read_bytes: 1 << 20, write_bytes: 1 << 20 };
        let session = SessionConfig {
            engine: EngineConfig {
                tuning: Tuning::default(),
                carrier: Carrier::Datagrams,
                retry,
                window,
                blocks: None,
                prior: None,
                credential,
            },
            limits: Limits { read_block: block, write_block: block, ..Limits::default() },
            measure_writes: false,
            stall_timeout: None,
            rate_limit: None,
        };
        Self {
            now,
            session: Session::new(session, server(), 2, now),
            service,
            to_server: Wire::default(),
            to_client: Wire::default(),
            trouble: Trouble::default(),
            source: Vec::new(),
            sink: Vec::new(),
            replies: Vec::new(),
            outcome: None,
            progress: 0,
            sent_at: Vec::new(),
            moved_at: None,
            largest_write: 0,
            had: RangeSet::default(),
            checkpoint: None,
            name: b"file".to_vec(),
            holes: RangeSet::new(),
            attributes: SetAttributes::default(),
        }
    }

    /// Lets time pass until `done`.
    pub(crate) fn run(&mut self, done: impl Fn(&Self) -> bool) {
        let end = self.now + PATIENCE;
        while !done(self) {
            self.drain();
            let arrivals = self.to_server.next().into_iter().chain(self.to_client.next());
            let timers = self.session.poll_timeout().into_iter().chain(self.service.poll_timeout());
            let Some(next) = arrivals.chain(timers).min() else {
                if done(self) {
                    return;
                }
                panic!("nothing is left to happen: {:?}", self.session.stats());
            };
            assert!(next < end, "not done after {PATIENCE:?}: {:?}", self.session.stats());
            self.now = self.now.max(next);
            self.step();
        }
    }

    fn step(&mut self) {
        let now = self.now;
        let peer = Peer { address: "192.0.2.2:700".parse().unwrap(), protocol: Protocol::Udp };
        while let Some(call) = self.to_server.arrived(now) {
            let taken = self.service.handle_input(now, peer, &call);
            assert!(taken.is_ok() || self.trouble.mangles(), "{taken:?}");
        }
        self.service.handle_timeout(now);
        while let Some(reply) = self.to_client.arrived(now) {
            self.take_in(&reply);
        }
        self.session.handle_timeout(now);
    }

    fn take_in(&mut self, reply: &[u8]) {
        let incoming = match self.session.handle_head(self.now, server(), reply, true) {
            // What is no reply is dropped.
            Err(_) if self.trouble.mangles() => return,
            incoming => incoming.unwrap(),
        };
        match incoming {
            Incoming::NeedMore => panic!("a datagram is complete"),
            Incoming::Done => {}
            Incoming::Data { offset, length, data_at, .. } => {
                let (start, length) = (usize::try_from(offset).unwrap(), length as usize);
                self.sink[start..start + length].copy_from_slice(&reply[data_at..data_at + length]);
                self.had.insert(Range { start: offset, end: offset + length as u64 });
                self.session.handle_payload_done(self.now);
            }
            Incoming::Reply { token, results_at, outcome, attempts, .. } => {
                assert!(outcome.is_ok() || self.trouble.mangles(), "{outcome:?}");
                let results = if outcome.is_ok() { &reply[results_at..] } else { &[] };
                self.replies.push((token, results.to_vec(), attempts));
            }
        }
    }

    fn drain(&mut self) {
        while let Some(transmit) = self.session.poll_transmit(self.now) {
            let mut message = transmit.head.to_vec();
            self.sent_at.push(self.now);
            if let Some(payload) = transmit.payload {
                self.largest_write = self.largest_write.max(payload.length);
                let (start, length) = (usize::try_from(payload.offset).unwrap(), payload.length as usize);
                message.extend_from_slice(&self.source[start..start + length]);
                message.resize(message.len() + padding(length), 0);
            }
            self.trouble.pass(self.now, DELAY, message, true, &mut self.to_server);
        }
        while let Some(reply) = self.service.poll_transmit(self.now) {
            self.trouble.pass(self.now, DELAY, reply.bytes, false, &mut self.to_client);
        }
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::Progress(id, bytes) => {
                    self.progress += bytes;
                    self.moved_at = Some(self.now);
                    self.checkpoint = self
                        .session
                        .upload(id)
                        .and_then(Upload::checkpoint)
                        .or_else(|| self.checkpoint.take());
                }
                Event::Uploaded(..) => {}
                Event::Finished(_) => self.outcome = Some(Ok(())),
                Event::Failed(_, error) => self.outcome = Some(Err(error)),
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    pub(crate) fn call(&mut self, call: (Program, u32), encode: impl FnOnce(&mut Vec<u8>)) -> (Vec<u8>, u32) {
        self.session.submit(self.now, 7, call, None, encode).unwrap();
        self.run(|world| !world.replies.is_empty());
        let (_, results, attempts) = self.replies.pop().unwrap();
        (results, attempts)
    }

    /// As `call`, left alone by the mangler. A damaged reply to an earlier call may be taken for one to this.
    fn ask<T>(
        &mut self,
        call: (Program, u32),
        encode: impl Fn(&mut Vec<u8>),
        decode: impl Fn(&[u8]) -> Option<T>,
    ) -> T {
        self.trouble.is_paused = true;
        loop {
            let (results, _) = self.call(call, &encode);
            if let Some(value) = decode(&results) {
                self.trouble.is_paused = false;
                return value;
            }
            assert!(self.trouble.mangles(), "{call:?} failed");
        }
    }

    pub(crate) fn root(&mut self) -> FileHandle {
        let mnt = (Program::MOUNT, mount::procedure::MNT);
        let encode = |buffer: &mut Vec<u8>| mount::encode_path(buffer, b"/");
        self.ask(mnt, encode, |results| Some(mount::decode_mount(results).ok()?.ok()?.handle))
    }

    /// Asks for the server's limits.
    pub(crate) fn mount(&mut self) {
        let root = self.root();
        self.session.handle_mount(self.now, root, None);
    }

    pub(crate) fn upload(&mut self, contents: &[u8], placement: Placement) -> Result<(), TransferError> {
        let upload = self.new_upload(contents, placement);
        self.transfer(upload)
    }

    pub(crate) fn new_upload(&mut self, contents: &[u8], placement: Placement) -> Transfer {
        let directory = self.root();
        self.source = contents.to_vec();
        let spec = UploadSpec {
            mode: 0o640,
            attributes: self.attributes,
            holes: self.holes.clone(),
            ..UploadSpec::new(directory, self.name.clone(), placement, contents.len() as u64)
        };
        Transfer::Upload(Box::new(Upload::new(spec)))
    }

    /// Begins an upload, forgets it after `bytes` were accepted, and returns its last checkpoint.
    pub(crate) fn interrupted_upload(&mut self, contents: &[u8], bytes: u64) -> Checkpoint {
        let upload = self.new_upload(contents, resumable(None));
        (self.outcome, self.progress) = (None, 0);
        let id = self.session.start(self.now, upload);
        self.run(|world| world.progress >= bytes);
        let checkpoint = self.session.upload(id).unwrap().checkpoint().unwrap();
        self.session.stop(self.now, id);
        self.to_server.clear();
        checkpoint
    }

    pub(crate) fn download(&mut self, size: usize) -> Result<(), TransferError> {
        self.sink = vec![0; size];
        self.had = RangeSet::default();
        self.go_on_with_download(size)
    }

    pub(crate) fn go_on_with_download(&mut self, size: usize) -> Result<(), TransferError> {
        let transfer = self.new_download(size);
        self.transfer(transfer)
    }

    /// Reads what of the file has not been stored yet.
    pub(crate) fn new_download(&mut self, size: usize) -> Transfer {
        let root = self.root();
        let lookup = (Program::NFS, Procedure::Lookup.number());
        let encode = |buffer: &mut Vec<u8>| {
            nfs_wire::encode(buffer, &root);
            nfs_wire::encode(buffer, &filename3::from(&b"file"[..]));
        };
        let file = self.ask(lookup, encode, |results| {
            let found = nfs_wire::reply::decode::<LOOKUP3resok>(results).ok()?.ok()?;
            FileHandle::try_from(&found.object).ok()
        });
        self.sink.resize(size, 0);
        Transfer::Download(Download::ranges(&file, self.had.missing(size as u64)))
    }

    pub(crate) fn transfer(&mut self, transfer: Transfer) -> Result<(), TransferError> {
        (self.outcome, self.progress) = (None, 0);
        self.session.start(self.now, transfer);
        self.run(|world| world.outcome.is_some());
        self.outcome.take().unwrap()
    }

    pub(crate) fn file(&mut self) -> Vec<u8> {
        self.service.backend().read_file(b"/file").unwrap()
    }

    /// Lists the root and returns the names.
    pub(crate) fn list(&mut self) -> Result<Vec<Vec<u8>>, TransferError> {
        let mut listing = Listing::new(self.root(), 512);
        let mut names = Vec::new();
        while !listing.is_done() {
            let call = (Program::NFS, listing.procedure().number());
            let (results, _) = self.call(call, |buffer| listing.encode(buffer));
            names.extend(listing.handle_results(&results)?.into_iter().map(|entry| entry.name));
        }
        Ok(names)
    }
}

pub(crate) fn contents(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 31 % 251) as u8).collect()
}

pub(crate) fn temporary() -> Placement {
    Placement::Temporary(b".file.part".to_vec())
}

pub(crate) fn resumable(earlier: Option<Checkpoint>) -> Placement {
    let made = Time { seconds: 1_000_000_000, nanoseconds: 123_456_789 };
    Placement::Resumable { name: b".file.part".to_vec(), made, earlier: earlier.map(Box::new) }
}

pub(crate) fn rule(calls: Calls, when: When, action: Action) -> Rule {
    Rule { calls, when, action }
}
