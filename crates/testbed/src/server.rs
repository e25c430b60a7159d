//! The server host: the embedded server behind the wire, and what it is asked before the clock starts.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Instant,
};

use bytes::Bytes;
use linkemu::{Endpoint, Node, Outgoing};
use nfs_proto::attr::Metadata;
use nfs_wire::{
    FileHandle, Procedure, Reader, mount,
    nfs3_types::nfs3::{GETATTR3resok, LOOKUP3resok, filename3, nfstime3, stable_how},
    portmap::Protocol,
    reply,
    rpc::{Program, ReplyHeader, Xid, encode_call_header},
};
use nfs_wireless_server::{Memory, MemoryConfig, Service, ServiceConfig};

use crate::{
    Error, Outage, ServerModel, TcpStats,
    address::{SERVER, TCP_SERVER, endpoint, peer},
    connections::Connections,
};

/// Length of file handles, in bytes: that of many real servers, and of the independent model.
const HANDLE_BYTES: u8 = 32;

/// The server's socket address, as clients see it.
pub(crate) fn server_address() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), SERVER.port)
}

/// The embedded server as a machine on the link.
#[derive(Debug)]
pub(crate) struct ServerHost {
    service: Service,
    connections: Connections,
    outages: Vec<Outage>,
    epoch: Instant,
    socket: Socket,
}

/// The receive buffer of the server's UDP socket.
#[derive(Debug)]
struct Socket {
    receive_buffer: Option<usize>,
    /// When the last datagram came, and the bytes that came at that moment.
    buffered: (Instant, usize),
}

impl Socket {
    /// Whether a datagram finds room.
    fn takes(&mut self, now: Instant, bytes: usize) -> bool {
        let (last, buffered) = self.buffered;
        let buffered = if last == now { buffered + bytes } else { bytes };
        let takes = self.receive_buffer.is_none_or(|most| buffered <= most);
        if takes {
            self.buffered = (now, buffered);
        }
        takes
    }
}

impl ServerHost {
    pub(crate) fn new(
        model: &ServerModel,
        outages: Vec<Outage>,
        seed: u64,
        now: Instant,
    ) -> Result<Self, Error> {
        let mut config = ServiceConfig::default();
        config.handle_bytes = HANDLE_BYTES;
        config.validates_addresses = model.validates_addresses;
        config.udp_transfer_bytes = nfs_wireless_server::MAX_UDP_TRANSFER_BYTES;
        config.timing.threads = model.threads;
        config.timing.read_time = model.read;
        config.timing.write_time = model.write;
        config.timing.commit_time = model.commit;
        let mut memory = MemoryConfig::default();
        memory.capacity_bytes = u64::MAX;
        let service = Service::new(config, Memory::new(memory), seed, now)?;
        let socket = Socket { receive_buffer: model.receive_buffer, buffered: (now, 0) };
        Ok(Self { service, connections: Connections::default(), outages, epoch: now, socket })
    }

    /// Makes a file of `size` bytes and returns its handle and that of the root, without the link.
    pub(crate) fn place(&mut self, now: Instant, name: &str, size: u64) -> (FileHandle, FileHandle) {
        let path = format!("/{name}");
        let time = nfstime3 { seconds: 1, nseconds: 0 };
        let backend = self.service.backend();
        let made = if size == 0 {
            backend.write_file(time, path.as_bytes(), &[]).map(drop)
        } else if size <= COMPARED_BYTES {
            let mut contents = vec![0; usize::try_from(size).expect("at most COMPARED_BYTES")];
            pattern(0, &mut contents);
            backend.write_file(time, path.as_bytes(), &contents).map(drop)
        } else {
            let node = backend.write_file(time, path.as_bytes(), &[]);
            node.and_then(|node| backend.write(time, node, size - 1, &[0], stable_how::FILE_SYNC)).map(drop)
        };
        made.expect("memory without a limit");
        let mnt = self.ask(now, Program::MOUNT, mount::procedure::MNT, |buffer| {
            mount::encode_path(buffer, b"/");
        });
        let root = mount::decode_mount(&mnt).expect("our server").expect("it exports the root").handle;
        let found = self.ask(now, Program::NFS, Procedure::Lookup.number(), |buffer| {
            nfs_wire::encode(buffer, &root);
            nfs_wire::encode(buffer, &filename3::from(name.as_bytes()));
        });
        let found = reply::decode::<LOOKUP3resok>(&found).expect("our server").expect("we made the file");
        (FileHandle::try_from(&found.object).expect("our server"), root)
    }

    /// Makes a file of zeros that takes no memory, and the directories above it.
    #[cfg(test)]
    pub(crate) fn place_hole(&mut self, path: &str, size: u64) {
        let time = nfstime3 { seconds: 1, nseconds: 0 };
        let backend = self.service.backend();
        let node = backend.write_file(time, path.as_bytes(), &[]);
        let made = node.and_then(|node| backend.write(time, node, size - 1, &[0], stable_how::FILE_SYNC));
        made.map(drop).expect("memory without a limit");
    }

    /// Returns the attributes of an object, without the link.
    pub(crate) fn attributes(&mut self, now: Instant, object: FileHandle) -> Metadata {
        let found = self.ask(now, Program::NFS, Procedure::Getattr.number(), |buffer| {
            nfs_wire::encode(buffer, &object.to_fh3());
        });
        let found = reply::decode::<GETATTR3resok>(&found).expect("our server").expect("we made the object");
        Metadata::from(&found.obj_attributes)
    }

    /// What its senders of TCP have done.
    pub(crate) fn tcp_stats(&self) -> TcpStats {
        self.connections.stats()
    }

    /// Whether a file has this size and the bytes it should have.
    pub(crate) fn holds(&mut self, name: &str, size: u64) -> bool {
        let contents = self.service.backend().read_file(format!("/{name}").as_bytes()).unwrap_or_default();
        let mut expected = vec![0; contents.len()];
        pattern(0, &mut expected);
        contents.len() as u64 == size && contents == expected
    }

    fn ask(
        &mut self,
        now: Instant,
        program: Program,
        procedure: u32,
        arguments: impl FnOnce(&mut Vec<u8>),
    ) -> Vec<u8> {
        let mut credential = Vec::new();
        nfs_wire::auth::Credential::None.encode(&mut credential);
        let mut call = Vec::new();
        encode_call_header(&mut call, Xid(1), program, procedure, &credential);
        arguments(&mut call);
        let caller = peer(Endpoint::host(1, 1), Protocol::Udp);
        self.service.handle_input(now, caller, &call).expect("a call of ours");
        self.service.handle_timeout(now);
        let reply = self.service.poll_transmit(now).expect("calls before the clock starts take no time");
        let mut reader = Reader::new(&reply.bytes);
        ReplyHeader::decode(&mut reader).expect("our server").outcome.expect("a procedure it has");
        reader.rest().to_vec()
    }

    /// Whether packets of a transport are lost before the server, and after it.
    fn is_cut_off(&self, now: Instant, protocol: Protocol) -> bool {
        let at = now.saturating_duration_since(self.epoch);
        let covers = |outage: &Outage| (outage.at..outage.at.saturating_add(outage.length)).contains(&at);
        self.outages.iter().any(|outage| outage.over.is_none_or(|over| over == protocol) && covers(outage))
    }

    /// Moves replies of the service to their connections; returns one that is a datagram.
    fn next_datagram(&mut self, now: Instant) -> Option<Outgoing> {
        loop {
            let reply = self.service.poll_transmit(now)?;
            let to = endpoint(reply.peer.address);
            match reply.peer.protocol {
                Protocol::Tcp => self.connections.reply(to, &reply.bytes),
                Protocol::Udp if self.is_cut_off(now, Protocol::Udp) => {}
                Protocol::Udp => return Some(Outgoing { from: SERVER, to, payload: reply.bytes.into() }),
            }
        }
    }
}

impl Node for ServerHost {
    fn handle_input(&mut self, now: Instant, from: Endpoint, to: Endpoint, payload: Bytes) {
        let protocol = if to == TCP_SERVER { Protocol::Tcp } else { Protocol::Udp };
        if self.is_cut_off(now, protocol) {
            return;
        }
        match protocol {
            Protocol::Tcp => self.connections.handle_input(now, &mut self.service, from, &payload),
            Protocol::Udp if !self.socket.takes(now, payload.len()) => {}
            // What is no call is counted by the service.
            Protocol::Udp => drop(self.service.handle_input(now, peer(from, protocol), &payload)),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.service.handle_timeout(now);
        self.connections.handle_timeout(now, &mut self.service);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Outgoing> {
        loop {
            let before = self.connections.replies();
            if let Some(datagram) = self.next_datagram(now) {
                return Some(datagram);
            }
            match self.connections.poll_transmit(now, &mut self.service) {
                Some(segment) if !self.is_cut_off(now, Protocol::Tcp) => return Some(segment),
                Some(_) => {}
                // Where replies found room, calls were taken.
                None if self.connections.replies() > before => {}
                None => return None,
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.service.poll_timeout().into_iter().chain(self.connections.poll_timeout()).min()
    }
}

/// The longest file whose contents are compared; longer ones are holes, so that memory stays bounded.
pub(crate) const COMPARED_BYTES: u64 = 64 << 20;

/// The bytes at `offset` of every file in the room: no block equals another.
pub(crate) fn pattern(offset: u64, buffer: &mut [u8]) {
    for (byte, at) in buffer.iter_mut().zip(offset..) {
        *byte = (at ^ (at >> 9).wrapping_mul(0x9d) ^ (at >> 17)) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_at_one_moment_beyond_the_receive_buffer_is_lost() {
        let now = Instant::now();
        let mut socket = Socket { receive_buffer: Some(100), buffered: (now, 0) };
        assert_eq!([60, 60, 40, 1].map(|bytes| socket.takes(now, bytes)), [true, false, true, false]);
        let later = now + std::time::Duration::from_micros(1);
        assert_eq!([100, 1].map(|bytes| socket.takes(later, bytes)), [true, false]);
        let mut endless = Socket { receive_buffer: None, buffered: (now, 0) };
        assert!((0..1000).all(|_| endless.takes(now, 1 << 20)));
    }

    #[test]
    fn places_on_the_link_have_addresses_of_their_own() {
        for place in [Endpoint::mobile(0, 7), Endpoint::mobile(9999, 700), Endpoint::host(3, 1)] {
            assert_eq!(endpoint(peer(place, Protocol::Udp).address), place);
        }
    }
}
