//! `File` on real sockets against a vector of bytes: whatever is written, read, sought, flushed and
//! cancelled, over UDP and TCP, while the server delays, loses, shortens and restarts.
//!
//! The machine behind `File` has a test of the same kind in virtual time, with many more sequences
//! (`transfer/stream/tests` in the client).

use std::{
    future::{Future, poll_fn},
    io::SeekFrom,
    pin::pin,
    task::Poll,
    time::Instant,
};

use nfs_wireless_client::{
    BlockSize, Client, ClientConfig, Error, File, Fs, NfsStatus, OpenOptions, Procedure, SetAttributes,
    TransportChoice,
};
use nfs_wireless_server::{Action, Calls, Faults, Memory, Rule, Server, Service, ServiceConfig, When};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};
use tokio::{
    io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt},
    task::{JoinSet, LocalSet},
};

/// Sequences for each transport.
const SEQUENCES: u64 = 160;

/// Sequences at the same time.
const AT_ONCE: u64 = 8;

/// Operations of a sequence.
const OPERATIONS: u32 = 40;

/// Bytes of the file, about.
const SIZE: u64 = 300_000;

#[tokio::test]
async fn over_udp_a_file_is_a_vector_of_bytes() {
    LocalSet::new().run_until(over(TransportChoice::Udp)).await;
}

#[tokio::test]
async fn over_tcp_a_file_is_a_vector_of_bytes() {
    LocalSet::new().run_until(over(TransportChoice::Tcp)).await;
}

/// What a server refuses in one call ends the file, and not silently.
#[tokio::test]
async fn an_error_is_told_by_every_operation_until_the_file_is_opened_again() {
    let full = Faults::fail_at(Procedure::Write, 100_000, NfsStatus::NOSPC);
    let no_commit = Faults::from(vec![Rule::always(Procedure::Commit, Action::Fail(NfsStatus::IO))]);
    for (faults, status) in [(full, NfsStatus::NOSPC), (no_commit, NfsStatus::IO)] {
        let (server, client, mut file) = open(TransportChoice::Tcp, ServiceConfig::default()).await;
        server.with_service(|service| service.set_faults(faults));
        let result = async {
            for _ in 0..300 {
                file.write_all(&[7; 1_000]).await?;
            }
            file.flush().await
        };
        let error = result.await.unwrap_err();
        let told =
            |error: &std::io::Error| error.get_ref().unwrap().downcast_ref::<Error>().unwrap().status();
        assert_eq!(told(&error), Some(status));
        server.with_service(|service| service.set_faults(Faults::default()));
        for _ in 0..3 {
            assert_eq!(told(&file.write(&[1]).await.unwrap_err()), Some(status));
            assert_eq!(told(&file.flush().await.unwrap_err()), Some(status));
            assert_eq!(told(&file.shutdown().await.unwrap_err()), Some(status));
            assert_eq!(told(&file.seek(SeekFrom::Start(0)).await.unwrap_err()), Some(status));
            assert_eq!(told(&file.stream_position().await.unwrap_err()), Some(status));
            assert_eq!(told(&file.read(&mut [0]).await.unwrap_err()), Some(status));
        }
        let mut file = File::new(client, file.handle());
        file.write_all(b"again").await.unwrap();
        file.flush().await.unwrap();
    }
}

#[tokio::test]
async fn what_cannot_be_read_ahead_of_the_reader_harms_nobody_who_does_not_get_there() {
    let (server, _, mut file) = open(TransportChoice::Tcp, ServiceConfig::default()).await;
    file.write_all(&[7; 200_000]).await.unwrap();
    file.flush().await.unwrap();
    let bad = Faults::fail_at(Procedure::Read, 100_000, NfsStatus::IO);
    server.with_service(|service| service.set_faults(bad));
    file.seek(SeekFrom::Start(60_000)).await.unwrap();
    // The READs behind have failed by the time that the last one of these is there.
    for _ in 0..50 {
        assert_eq!(file.read_u8().await.unwrap(), 7);
        tokio::task::yield_now().await;
    }
    file.seek(SeekFrom::Start(0)).await.unwrap();
    file.write_all(b"it goes on").await.unwrap();
    file.flush().await.unwrap();
    file.seek(SeekFrom::Start(100_000)).await.unwrap();
    let error = file.read_u8().await.unwrap_err().downcast::<Error>().unwrap();
    assert_eq!(error.status(), Some(NfsStatus::IO));
}

/// Each half is a task of its own, and neither is forgotten when the other one takes in what it
/// waits for.
#[tokio::test(flavor = "multi_thread")]
async fn the_halves_of_a_file_wake_each_other() {
    for transport in [TransportChoice::Udp, TransportChoice::Tcp] {
        let (server, _, file) = open(transport, ServiceConfig::default()).await;
        let (mut reader, mut writer) = tokio::io::split(file);
        let writing = tokio::spawn(async move {
            for number in 0..200_u32 {
                writer.write_all(&[number as u8; 3_000]).await.unwrap();
                if number % 10 == 0 {
                    writer.flush().await.unwrap();
                }
            }
            writer.shutdown().await.unwrap();
        });
        let reading = tokio::spawn(async move {
            for _ in 0..200 {
                // At the end of the file there is nothing, as both have one position.
                let mut buffer = [0; 100];
                assert_eq!(reader.read(&mut buffer).await.unwrap(), 0);
            }
        });
        writing.await.unwrap();
        reading.await.unwrap();
        let stored = server.with_service(|service| service.backend().read_file(b"/file").unwrap());
        assert_eq!(stored.len(), 600_000);
    }
}

#[tokio::test]
async fn the_ends_of_what_can_be_addressed_are_no_trouble() {
    let (_server, _, mut file) = open(TransportChoice::Tcp, ServiceConfig::default()).await;
    file.seek(SeekFrom::Start(u64::MAX)).await.unwrap();
    assert_eq!(file.read(&mut [0; 10]).await.unwrap(), 0);
    assert_eq!(file.write(&[0; 10]).await.unwrap(), 0);
    assert!(file.seek(SeekFrom::Current(1)).await.is_err());
    assert!(file.seek(SeekFrom::Current(i64::MIN)).await.is_ok());
    assert!(file.seek(SeekFrom::Current(i64::MIN)).await.is_err());
    file.seek(SeekFrom::Start(0)).await.unwrap();
    assert!(file.seek(SeekFrom::Current(-1)).await.is_err());
    // Such an error is the caller's, and ends nothing.
    assert_eq!(file.read(&mut []).await.unwrap(), 0);
    assert_eq!(file.write(&[]).await.unwrap(), 0);
    file.write_all(b"here").await.unwrap();
    file.flush().await.unwrap();
    // No server takes this.
    file.seek(SeekFrom::Start(u64::MAX - 5)).await.unwrap();
    assert_eq!(file.write(&[7; 10]).await.unwrap(), 5);
    assert!(file.flush().await.is_err());
}

/// A server with an empty file, and the file.
async fn open(transport: TransportChoice, service: ServiceConfig) -> (Server, Client, File) {
    let service = Service::new(service, Memory::default(), 1, Instant::now()).unwrap();
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), service).await.unwrap();
    let mut config = ClientConfig::default();
    config.transport = transport;
    config.portmap_port = server.local_addr().port();
    config.write_block = BlockSize::Exact(8192);
    config.read_block = BlockSize::Exact(8192);
    let client = Client::connect("127.0.0.1", b"/", config).await.unwrap();
    let mode = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    let made = client.create(client.root(), b"file", mode).await.unwrap();
    let file = File::new(client.clone(), made.handle);
    (server, client, file)
}

async fn over(transport: TransportChoice) {
    let given = std::env::var("NFSW_SEED").ok().map(|seed| seed.parse().unwrap());
    let mut seeds = given.map_or(1..=SEQUENCES, |seed| seed..=seed);
    let mut running = JoinSet::new();
    let mut wrong = Vec::new();
    loop {
        while running.len() < AT_ONCE as usize
            && let Some(seed) = seeds.next()
        {
            running.spawn_local(async move { Sequence::new(transport, seed).await.run().await });
        }
        match running.join_next().await {
            None => break,
            Some(Ok(Ok(()))) => {}
            Some(Ok(Err(error))) => wrong.push(error),
            Some(Err(panic)) => wrong.push(panic.to_string()),
        }
    }
    let count = wrong.len();
    assert!(wrong.is_empty(), "{count} sequences over {transport:?} went wrong, such as: {}", wrong[0]);
}

struct Sequence {
    seed: u64,
    random: ChaCha8Rng,
    server: Server,
    client: Client,
    file: File,
    /// What the file is to hold.
    model: Vec<u8>,
    position: u64,
    /// Whether everything is written at the end.
    appends: bool,
    done: Vec<String>,
}

impl Sequence {
    async fn new(transport: TransportChoice, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut service_config = ServiceConfig::default();
        if seed.is_multiple_of(4) {
            service_config.reply_cache = None;
        }
        let service = Service::new(service_config, Memory::default(), seed, Instant::now()).unwrap();
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), service).await.unwrap();
        let mut config = ClientConfig::default();
        config.transport = transport;
        config.portmap_port = server.local_addr().port();
        config.write_block = BlockSize::Exact(512 << (random.next_u32() % 6));
        config.read_block = BlockSize::Exact(512 << (random.next_u32() % 6));
        let client = Client::connect("127.0.0.1", b"/", config).await.unwrap();
        let mode = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
        let made = client.create(client.root(), b"file", mode).await.unwrap();
        let file = File::new(client.clone(), made.handle);
        server.with_service(|service| service.set_faults(faults(transport, &mut random)));
        let (model, done) = Default::default();
        Self { seed, random, server, client, file, model, position: 0, appends: false, done }
    }

    async fn run(mut self) -> Result<(), String> {
        for _ in 0..OPERATIONS {
            let result = self.operate().await;
            self.check(result)?;
        }
        let result = self.flush().await;
        self.check(result)
    }

    fn check(&self, result: Result<(), String>) -> Result<(), String> {
        result
            .map_err(|error| format!("{error}\nNFSW_SEED={} after:\n  {}", self.seed, self.done.join("\n  ")))
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound
    }

    async fn operate(&mut self) -> Result<(), String> {
        match self.below(13) {
            0..3 => self.seek().await,
            12 => self.set_len().await,
            3..6 => self.write().await,
            6..9 => self.read().await,
            9 => self.flush().await,
            10 => self.cancelled().await,
            _ => self.trouble().await,
        }
    }

    async fn seek(&mut self) -> Result<(), String> {
        let target = self.below(SIZE);
        let from = match self.below(3) {
            0 => SeekFrom::Start(target),
            1 => SeekFrom::End(target as i64 - self.model.len() as i64),
            _ => SeekFrom::Current(target as i64 - self.position as i64),
        };
        self.done.push(format!("seek to {target}"));
        self.position = self.file.seek(from).await.map_err(|error| format!("seek: {error}"))?;
        same("position", &self.position, &target)
    }

    async fn write(&mut self) -> Result<(), String> {
        let length = if self.below(4) == 0 { self.below(60_000) } else { self.below(3_000) };
        let mut data = vec![0; length as usize];
        self.random.fill_bytes(&mut data);
        self.done.push(format!("write {length} at {}", self.position));
        self.file.write_all(&data).await.map_err(|error| format!("write: {error}"))?;
        self.written(&data);
        Ok(())
    }

    async fn set_len(&mut self) -> Result<(), String> {
        let size = self.below(SIZE);
        self.done.push(format!("set the length to {size}"));
        self.file.set_len(size).await.map_err(|error| format!("set_len: {error}"))?;
        self.model.resize(size as usize, 0);
        let seen = self.file.metadata().await.map_err(|error| format!("metadata: {error}"))?;
        same("size", &seen.size, &size)
    }

    /// Does to the model what was done to the file.
    fn written(&mut self, data: &[u8]) {
        if self.appends && !data.is_empty() {
            self.position = self.model.len() as u64;
        }
        let start = self.position as usize;
        let end = start + data.len();
        if !data.is_empty() && self.model.len() < end {
            self.model.resize(end, 0);
        }
        if !data.is_empty() {
            self.model[start..end].copy_from_slice(data);
        }
        self.position = end as u64;
    }

    async fn read(&mut self) -> Result<(), String> {
        let length = if self.below(4) == 0 { self.below(100_000) } else { self.below(5_000) };
        self.done.push(format!("read {length} at {}", self.position));
        let mut found = Vec::new();
        let mut part = (&mut self.file).take(length);
        part.read_to_end(&mut found).await.map_err(|error| format!("read: {error}"))?;
        let rest = self.model.get(self.position as usize..).unwrap_or_default();
        let expected = &rest[..rest.len().min(length as usize)];
        same("length", &found.len(), &expected.len())?;
        match found.iter().zip(expected).position(|(found, expected)| found != expected) {
            Some(at) => return Err(format!("byte {} is wrong", self.position + at as u64)),
            None => self.position += found.len() as u64,
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), String> {
        self.done.push("flush".into());
        let flushed = match self.below(2) {
            0 => self.file.flush().await,
            _ => self.file.shutdown().await,
        };
        flushed.map_err(|error| format!("flush: {error}"))?;
        if self.below(2) == 0 {
            self.crash();
        }
        let stored = self.stored();
        same("size of what is stored", &stored.len(), &self.model.len())?;
        match stored.iter().zip(&self.model).position(|(found, expected)| found != expected) {
            Some(at) => Err(format!("byte {at} is stored wrong")),
            None => Ok(()),
        }
    }

    /// Begins something and drops it, some time later.
    async fn cancelled(&mut self) -> Result<(), String> {
        let turns = self.below(20);
        match self.below(3) {
            0 => {
                self.done.push(format!("flush, cancelled after {turns} turns"));
                let _ = give_up(turns, self.file.flush()).await;
            }
            1 => {
                self.done.push(format!("read at {}, cancelled after {turns} turns", self.position));
                let mut found = [0; 700];
                if let Some(read) = give_up(turns, self.file.read(&mut found)).await {
                    let count = read.map_err(|error| format!("read: {error}"))?;
                    let rest = self.model.get(self.position as usize..).unwrap_or_default();
                    if !rest.starts_with(&found[..count]) || (count == 0 && !rest.is_empty()) {
                        return Err(format!("wrong bytes at {}", self.position));
                    }
                    self.position += count as u64;
                }
            }
            _ => {
                self.done.push(format!("write at {}, cancelled after {turns} turns", self.position));
                let mut data = vec![0; 9_000];
                self.random.fill_bytes(&mut data);
                if let Some(written) = give_up(turns, self.file.write(&data)).await {
                    let count = written.map_err(|error| format!("write: {error}"))?;
                    self.written(&data[..count]);
                }
            }
        }
        Ok(())
    }

    /// The server restarts, or the file is opened again.
    async fn trouble(&mut self) -> Result<(), String> {
        if self.below(2) == 0 {
            self.done.push("the server restarts".into());
            self.crash();
            return Ok(());
        }
        self.flush().await?;
        self.appends = self.below(3) == 0;
        self.position = 0;
        if self.appends {
            self.done.push("open again, to append".into());
            let fs = Fs::new(self.client.clone(), "/");
            let opened = OpenOptions::new().read(true).append(true).open(&fs, "file").await;
            self.file = opened.map_err(|error| format!("open: {error}"))?;
        } else {
            self.done.push("open again".into());
            self.file = File::new(self.client.clone(), self.file.handle());
        }
        Ok(())
    }

    /// The server loses what was not committed.
    fn crash(&self) {
        self.server.with_service(|service| {
            service.backend().crash();
            service.change_write_verifier();
        });
    }

    fn stored(&self) -> Vec<u8> {
        self.server.with_service(|service| service.backend().read_file(b"/file").unwrap())
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what} is {found:?} instead of {expected:?}")) }
}

/// Polls something, lets others run for some turns, and drops it; returns what it was done with by
/// then.
async fn give_up<T>(turns: u64, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..=turns {
        let polled = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(done) = polled {
            return Some(done);
        }
        tokio::task::yield_now().await;
    }
    None
}

/// What the server does wrong in a sequence.
fn faults(transport: TransportChoice, random: &mut ChaCha8Rng) -> Faults {
    use Procedure::{Commit, Read, Write};
    let mut rules = Vec::new();
    let mut add = |procedure, chance: f64, action| {
        if random.next_u32().is_multiple_of(2) {
            let calls = Calls::Procedure(procedure);
            rules.push(Rule { calls, when: When::Chance(chance), action });
        }
    };
    for procedure in [Read, Write] {
        add(procedure, 0.1, Action::Shorten(100));
        add(procedure, 0.02, Action::ReorderReply);
        add(procedure, 0.1, Action::DelayReply(std::time::Duration::from_millis(3)));
    }
    add(Write, 0.03, Action::Shorten(0));
    add(Write, 0.1, Action::WriteStable);
    for procedure in [Read, Write, Commit] {
        add(procedure, 0.02, Action::Crash);
        if transport == TransportChoice::Udp {
            add(procedure, 0.01, Action::DropReply);
            add(procedure, 0.01, Action::DropCall);
            add(procedure, 0.05, Action::DuplicateReply);
        }
    }
    Faults::from(rules)
}
