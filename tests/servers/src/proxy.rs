//! A TCP proxy that counts bytes and calls: what a client has really sent and received.

use std::{
    io::{self, Read, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use anyhow::Result;

/// A proxy on a port of its own. It ends with the program.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    counts: Arc<Counts>,
}

/// What has passed, both ways.
#[derive(Debug, Default)]
struct Counts {
    bytes: AtomicU64,
    calls: AtomicU64,
}

impl Proxy {
    /// Listens, and connects to a port of this machine for every connection.
    ///
    /// # Errors
    /// Where it cannot listen.
    pub fn start(server: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let counts = Arc::new(Counts::default());
        let shared = Arc::clone(&counts);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A server that refuses is shown to the client as a connection that ends.
                if let Ok(server) = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], server))) {
                    join(client, server, &shared);
                }
            }
        });
        Ok(Self { port, counts })
    }

    /// Where clients connect.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Bytes so far, both ways, and calls.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.counts.bytes.load(Ordering::Relaxed), self.counts.calls.load(Ordering::Relaxed))
    }
}

fn join(client: TcpStream, server: TcpStream, counts: &Arc<Counts>) {
    let (Ok(from_client), Ok(from_server)) = (client.try_clone(), server.try_clone()) else { return };
    for (from, to, calls) in [(from_client, server, true), (from_server, client, false)] {
        let counts = Arc::clone(counts);
        thread::spawn(move || {
            // A connection that breaks, breaks on the other side, too.
            let _ = pass(&from, &to, &counts, calls);
            let _ = to.shutdown(Shutdown::Both);
            let _ = from.shutdown(Shutdown::Both);
        });
    }
}

fn pass(mut from: &TcpStream, mut to: &TcpStream, counts: &Counts, calls: bool) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    let mut records = Records::default();
    loop {
        let length = from.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        counts.bytes.fetch_add(length as u64, Ordering::Relaxed);
        if calls {
            counts.calls.fetch_add(records.count(&buffer[..length]), Ordering::Relaxed);
        }
        to.write_all(&buffer[..length])?;
    }
}

/// Finds the ends of records in a stream (RFC 5531 §11).
#[derive(Debug, Default)]
struct Records {
    mark: Vec<u8>,
    left: u64,
}

impl Records {
    /// Returns how many last fragments begin in the next bytes.
    fn count(&mut self, mut bytes: &[u8]) -> u64 {
        let mut count = 0;
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.left > 0 {
                let skipped = self.left.min(bytes.len() as u64);
                self.left -= skipped;
                bytes = &bytes[skipped as usize..];
                continue;
            }
            self.mark.push(byte);
            bytes = rest;
            if let Ok(mark) = <[u8; 4]>::try_from(self.mark.as_slice()) {
                let mark = u32::from_be_bytes(mark);
                self.left = u64::from(mark & 0x7fff_ffff);
                count += u64::from(mark >> 31);
                self.mark.clear();
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_counted_however_they_are_split() {
        let stream: Vec<u8> = [
            &[0x80, 0, 0, 3, 1, 2, 3][..],
            &[0, 0, 0, 2, 9, 9],
            &[0x80, 0, 0, 0],
            &[0x80, 0, 1, 0],
            &[7; 256],
        ]
        .concat();
        for size in 1..=stream.len() {
            let mut records = Records::default();
            let count: u64 = stream.chunks(size).map(|chunk| records.count(chunk)).sum();
            assert_eq!(count, 3, "in pieces of {size}");
        }
    }

    #[test]
    fn both_ways_are_counted() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy::start(server.local_addr().unwrap().port()).unwrap();
        let mut client = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
        client.write_all(&[0x80, 0, 0, 4, 1, 2, 3, 4]).unwrap();
        let (mut accepted, _) = server.accept().unwrap();
        let mut call = [0; 8];
        accepted.read_exact(&mut call).unwrap();
        accepted.write_all(b"reply").unwrap();
        let mut reply = [0; 5];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(proxy.counts(), (13, 1));
    }
}
