//! The server on the loopback: sockets, calls, and counts.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream, UdpSocket},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use nfs_wire::{
    Procedure, Reader,
    record::{RecordReader, mark},
    rpc::CallHeader,
};

use crate::{common::listen, faults::Faults, procedures, tree::Tree};

/// What the server is at this moment.
pub(crate) struct State {
    pub(crate) tree: Tree,
    pub(crate) faults: Faults,
    /// Calls so far, by procedure of NFS.
    pub(crate) calls: BTreeMap<u32, u64>,
    /// Directories were so often given a new fileid.
    pub(crate) changes: u64,
    streams: Vec<TcpStream>,
}

/// A server of files in memory, on one port for UDP and TCP, NFS and MOUNT. It ends with the process.
#[derive(Clone)]
pub(crate) struct Server {
    state: Arc<Mutex<State>>,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn new(faults: Faults) -> Self {
        let (tcp, udp) = listen();
        let address = tcp.local_addr().unwrap();
        let (tree, calls, streams) = (Tree::new(1), BTreeMap::new(), Vec::new());
        let state = Arc::new(Mutex::new(State { tree, faults, calls, changes: 0, streams }));
        let server = Self { state, address };
        let datagrams = server.clone();
        thread::spawn(move || datagrams.serve_datagrams(&udp));
        let accepts = server.clone();
        thread::spawn(move || {
            while let Ok((stream, _)) = tcp.accept() {
                accepts.state().streams.push(stream.try_clone().unwrap());
                let server = accepts.clone();
                thread::spawn(move || server.serve_stream(stream));
            }
        });
        server
    }

    /// The files and faults, while no call is answered.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something on the server.
    pub(crate) fn edit<T>(&self, change: impl FnOnce(&mut Tree) -> T) -> T {
        change(&mut self.state().tree)
    }

    /// Changes what the server does from now on.
    pub(crate) fn set(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.state().faults);
    }

    /// Answers nothing for a while, and whether that is so. What came by UDP meanwhile is lost.
    pub(crate) fn silence(&self, silent: bool) {
        self.set(|faults| faults.silent = silent);
    }

    /// Ends all connections, as a server does that ends.
    pub(crate) fn disconnect(&self) {
        for stream in self.state().streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Calls of a procedure so far.
    pub(crate) fn calls(&self, procedure: Procedure) -> u64 {
        self.state().calls.get(&procedure.number()).copied().unwrap_or(0)
    }

    /// Calls of NFS so far.
    pub(crate) fn all_calls(&self) -> u64 {
        self.state().calls.values().sum()
    }

    /// Calls a second of NFS that arrive in this time.
    pub(crate) fn rate(&self, during: Duration) -> f64 {
        let before = self.all_calls();
        thread::sleep(during);
        (self.all_calls() - before) as f64 / during.as_secs_f64()
    }

    /// URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("nfs://{}{path}?mountport={}", self.address, self.address.port())
    }

    fn answer(&self, message: &[u8], limit: usize) -> Option<Vec<u8>> {
        let mut reader = Reader::new(message);
        let header = CallHeader::decode(&mut reader).ok()?;
        procedures::answer(&mut self.state(), &header, reader, limit)
    }

    fn serve_datagrams(&self, socket: &UdpSocket) {
        let mut buffer = vec![0; 64 << 10];
        loop {
            if let Ok((length, peer)) = socket.recv_from(&mut buffer)
                && let Some(reply) = self.answer(&buffer[..length], 32 << 10)
            {
                let _ = socket.send_to(&reply, peer);
            }
        }
    }

    fn serve_stream(&self, mut stream: TcpStream) -> Option<()> {
        stream.set_nodelay(true).ok()?;
        let mut records = RecordReader::new(1 << 20);
        let (mut buffer, mut record) = (vec![0; 64 << 10], Vec::new());
        loop {
            let length = stream.read(&mut buffer).ok().filter(|&length| length > 0)?;
            let mut input = &buffer[..length];
            while let Some(chunk) = records.next(&mut input, usize::MAX).ok()? {
                record.extend_from_slice(chunk.bytes);
                if chunk.end {
                    // What has arrived by TCP is not lost: a host that does not respond takes no more in.
                    while self.state().faults.silent {
                        thread::sleep(Duration::from_millis(1));
                    }
                    if let Some(reply) = self.answer(&record, 64 << 10) {
                        stream.write_all(&[&mark(reply.len()), &reply[..]].concat()).ok()?;
                    }
                    record.clear();
                }
            }
        }
    }
}

/// Waits until something is so, and returns how long that took.
pub(crate) fn within(longest: Duration, what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < longest, "not within {longest:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
    begun.elapsed()
}
