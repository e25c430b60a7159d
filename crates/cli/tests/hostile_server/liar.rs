//! A server that is honest but for one thing, and runs of `nfsw` against it.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream, UdpSocket},
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use nfs_wire::{
    Procedure, Reader,
    portmap::Protocol,
    record::{RecordReader, mark},
    rpc::{CallHeader, Program},
};
use nfs_wireless_server::{Directory, DirectoryConfig, Metadata, Peer, Service, ServiceConfig};

use crate::common::{listen, noise};

/// Bytes of a reply before its results, from a server that uses no verifier.
pub(crate) const HEADER: usize = 24;

/// Most data that `nfsw` may have, in KiB; the kernel refuses more (RLIMIT_DATA), and the run ends badly.
const MEMORY_KIB: u32 = 64 << 10;

/// Time after which a run counts as hung.
const HANG: Duration = Duration::from_secs(60);

/// One thing that the server does wrong.
#[derive(Clone, Copy)]
pub(crate) enum Lie {
    /// Changes what it answers.
    Reply(fn(&Call, &mut Vec<u8>)),
    /// Does what it likes with the answer.
    Wire(fn(&Call, &[u8], &mut Line<'_>)),
}

/// A call that is being answered.
pub(crate) struct Call {
    pub(crate) program: Program,
    pub(crate) procedure: u32,
    /// How many calls of the procedure came before.
    pub(crate) before: u64,
    pub(crate) arguments: Vec<u8>,
}

impl Call {
    /// Whether it is a call of this procedure of NFS.
    pub(crate) fn is(&self, procedure: Procedure) -> bool {
        self.program == Program::NFS && self.procedure == procedure.number()
    }
}

/// The way back to the client.
pub(crate) enum Line<'a> {
    Datagrams(&'a UdpSocket, SocketAddr),
    Stream(&'a TcpStream),
}

impl Line<'_> {
    /// Sends a whole message. A client that has gone does not hear it.
    pub(crate) fn send(&mut self, message: &[u8]) {
        match self {
            Self::Datagrams(..) => self.raw(message),
            Self::Stream(_) => self.raw(&[&mark(message.len()), message].concat()),
        }
    }

    /// Sends a datagram, or bytes on the stream.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        let _ = match self {
            Self::Datagrams(socket, client) => socket.send_to(bytes, *client).map(drop),
            Self::Stream(stream) => stream.write_all(bytes),
        };
    }

    /// Sends a datagram from another port.
    pub(crate) fn send_from_elsewhere(&mut self, bytes: &[u8]) {
        if let Self::Datagrams(_, client) = self {
            let _ = UdpSocket::bind("127.0.0.1:0").unwrap().send_to(bytes, *client);
        }
    }

    /// Ends the connection.
    pub(crate) fn close(&mut self) {
        if let Self::Stream(stream) = self {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Calls by program and procedure.
type Counts = BTreeMap<(u32, u32), u64>;

struct Shared {
    service: Mutex<(Service, Counts)>,
    lie: Lie,
}

impl Shared {
    /// Answers one message; `None` when it is no call.
    fn answer(&self, peer: Peer, message: &[u8], line: &mut Line<'_>) -> Option<()> {
        let mut reader = Reader::new(message);
        let header = CallHeader::decode(&mut reader).ok()?;
        let (reply, call) = {
            let mut state = self.service.lock().unwrap_or_else(PoisonError::into_inner);
            let (service, counts) = &mut *state;
            let now = Instant::now();
            service.handle_input(now, peer, message).ok()?;
            let count = counts.entry((header.program.number, header.procedure)).or_default();
            *count += 1;
            let (program, procedure, arguments) = (header.program, header.procedure, reader.rest().to_vec());
            let call = Call { program, procedure, before: *count - 1, arguments };
            (service.poll_transmit(now)?.bytes, call)
        };
        match self.lie {
            Lie::Reply(change) => {
                let mut reply = reply;
                change(&call, &mut reply);
                line.send(&reply);
            }
            Lie::Wire(act) => act(&call, &reply, line),
        }
        Some(())
    }

    fn serve_stream(&self, mut stream: TcpStream) -> Option<()> {
        stream.set_nodelay(true).ok()?;
        let peer = Peer { address: stream.peer_addr().ok()?, protocol: Protocol::Tcp };
        let mut records = RecordReader::new(4 << 20);
        let (mut buffer, mut record) = (vec![0; 64 << 10], Vec::new());
        loop {
            let length = stream.read(&mut buffer).ok().filter(|&length| length > 0)?;
            let mut input = &buffer[..length];
            while let Some(chunk) = records.next(&mut input, usize::MAX).ok()? {
                record.extend_from_slice(chunk.bytes);
                if chunk.end {
                    self.answer(peer, &record, &mut Line::Stream(&stream));
                    record.clear();
                }
            }
        }
    }
}

/// A place with a server that lies, and a destination for copies of what it has.
pub(crate) struct Trial {
    pub(crate) port: u16,
    /// Has `served`, which is exported, and `here`, where runs may write.
    place: tempfile::TempDir,
}

/// What came of a run.
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Trial {
    /// Starts the server. It has `tree/alpha` of 100,000 bytes, `tree/beta` of 1,000, `tree/sub/gamma` and `tree/link`.
    pub(crate) fn new(lie: Lie) -> Self {
        let place = tempfile::tempdir().unwrap();
        let served = place.path().join("served");
        fs::create_dir_all(served.join("tree/sub")).unwrap();
        fs::create_dir(place.path().join("here")).unwrap();
        fs::write(place.path().join("canary"), "untouched").unwrap();
        fs::write(served.join("tree/alpha"), noise(100_000)).unwrap();
        fs::write(served.join("tree/beta"), noise(1000)).unwrap();
        fs::write(served.join("tree/sub/gamma"), "gamma").unwrap();
        std::os::unix::fs::symlink("alpha", served.join("tree/link")).unwrap();
        let mut config = DirectoryConfig::default();
        config.metadata = Metadata::Cached;
        let directory = Directory::open(&served, config).unwrap();
        let (tcp, udp) = listen();
        let address = tcp.local_addr().unwrap();
        let mut config = ServiceConfig::default();
        // It stands for any server, and others believe every address.
        config.validates_addresses = false;
        let mut service = Service::new(config, directory, 1, Instant::now()).unwrap();
        service.set_address(address);
        let shared = Arc::new(Shared { service: Mutex::new((service, BTreeMap::new())), lie });
        let of_datagrams = Arc::clone(&shared);
        thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            while let Ok((length, client)) = udp.recv_from(&mut buffer) {
                let peer = Peer { address: client, protocol: Protocol::Udp };
                of_datagrams.answer(peer, &buffer[..length], &mut Line::Datagrams(&udp, client));
            }
        });
        thread::spawn(move || {
            while let Ok((stream, _)) = tcp.accept() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.serve_stream(stream));
            }
        });
        Self { port: address.port(), place }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("nfs://127.0.0.1:{}/{path}?mountport={0}", self.port)
    }

    /// Runs `nfsw` with little memory, in `here`. `{NAME}` in an argument is the URL of that path.
    ///
    /// Whatever the server does: the run ends by itself, without a panic, and has written nothing outside `here`.
    pub(crate) fn run(&self, arguments: &[&str]) -> Outcome {
        let arguments = arguments.iter().map(|argument| match argument.strip_prefix('{') {
            Some(path) => self.url(path.trim_end_matches('}')),
            None => (*argument).to_owned(),
        });
        let mut command = Command::new("sh");
        command
            .args([
                "-c",
                &format!("ulimit -d {MEMORY_KIB} && exec \"$0\" \"$@\""),
                env!("CARGO_BIN_EXE_nfsw"),
            ])
            .args(arguments)
            .env("XDG_STATE_HOME", self.path("here/.state"))
            .env("XDG_CACHE_HOME", self.path("here/.cache"))
            .current_dir(self.path("here"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let read = |from: &mut dyn Read| {
            let mut bytes = Vec::new();
            from.read_to_end(&mut bytes).map(|_| bytes).unwrap()
        };
        let started = Instant::now();
        let (status, stdout, stderr) = thread::scope(|scope| {
            let stdout = scope.spawn(move || read(&mut out));
            let stderr = scope.spawn(move || read(&mut err));
            let status = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break status;
                }
                if started.elapsed() > HANG {
                    child.kill().unwrap();
                    panic!("it hangs: {}", String::from_utf8_lossy(&stderr.join().unwrap()));
                }
                thread::sleep(Duration::from_millis(2));
            };
            (status, stdout.join().unwrap(), stderr.join().unwrap())
        });
        let stderr = String::from_utf8(stderr).expect("messages are UTF-8");
        assert!(status.code().is_some_and(|code| code != 101), "{status}: {stderr}");
        assert!(!stderr.chars().any(|it| it.is_control() && it != '\n'), "messages are escaped: {stderr:?}");
        assert!(stderr.lines().all(|line| line.chars().count() <= 500), "messages have an end: {stderr:?}");
        let mut names: Vec<_> =
            fs::read_dir(self.place.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["canary", "here", "served"], "nothing is written outside");
        assert_eq!(fs::read(self.path("canary")).unwrap(), b"untouched");
        Outcome { code: status.code(), stdout, stderr }
    }
}
