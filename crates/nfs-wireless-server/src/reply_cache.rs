//! The duplicate request cache (Juszczak 1989): a retransmitted call is answered again, not run again.

use std::{
    collections::{BTreeMap, VecDeque, btree_map::Entry},
    net::SocketAddr,
};

use nfs_wire::{portmap::Protocol, rpc::CallHeader};

use crate::config::ReplyCacheConfig;

/// What makes two calls the same call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallKey {
    address: SocketAddr,
    protocol: Protocol,
    xid: u32,
    program: u32,
    version: u32,
    procedure: u32,
    /// Length and checksum tell a reused XID from a retransmission.
    length: usize,
    checksum: u64,
}

/// Bytes of the arguments that go into the checksum; handle, name and offset lie within, bulk data does not.
const CHECKSUM_BYTES: usize = 256;

impl CallKey {
    /// Takes the key of a call from an address.
    pub(crate) fn new(
        address: SocketAddr,
        protocol: Protocol,
        header: &CallHeader,
        arguments: &[u8],
    ) -> Self {
        Self {
            address,
            protocol,
            xid: header.xid.0,
            program: header.program.number,
            version: header.program.version,
            procedure: header.procedure,
            length: arguments.len(),
            checksum: fnv1a(&arguments[..arguments.len().min(CHECKSUM_BYTES)]),
        }
    }
}

/// What the cache knows of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known<'a> {
    /// Nothing: it is new, and from now on in progress.
    New,
    /// It is being served; its reply will come.
    InProgress,
    /// It was served; this is the reply.
    Answered(&'a [u8]),
}

/// The cache, bounded in replies and bytes; the oldest replies go first.
#[derive(Debug)]
pub(crate) struct ReplyCache {
    config: ReplyCacheConfig,
    calls: BTreeMap<CallKey, Option<Vec<u8>>>,
    order: VecDeque<CallKey>,
    bytes: usize,
}

impl ReplyCache {
    /// Creates an empty cache.
    pub(crate) const fn new(config: ReplyCacheConfig) -> Self {
        Self { config, calls: BTreeMap::new(), order: VecDeque::new(), bytes: 0 }
    }

    /// Looks a call up; a new one is entered as in progress.
    pub(crate) fn begin(&mut self, key: CallKey) -> Known<'_> {
        if let Entry::Vacant(entry) = self.calls.entry(key) {
            entry.insert(None);
            self.order.push_back(key);
            self.shrink();
            return Known::New;
        }
        match &self.calls[&key] {
            Some(reply) => Known::Answered(reply),
            None => Known::InProgress,
        }
    }

    /// Keeps the reply of a call in progress.
    pub(crate) fn finish(&mut self, key: CallKey, reply: &[u8]) {
        if reply.len() > self.config.max_bytes {
            self.forget(key);
        } else if let Some(slot) = self.calls.get_mut(&key) {
            let previous = slot.replace(reply.to_vec());
            self.bytes += reply.len();
            self.bytes -= previous.map_or(0, |reply| reply.len());
            self.shrink();
        }
    }

    /// Forgets a call whose reply is not to be repeated.
    pub(crate) fn forget(&mut self, key: CallKey) {
        if let Some(reply) = self.calls.remove(&key) {
            self.bytes -= reply.map_or(0, |reply| reply.len());
            self.order.retain(|other| *other != key);
        }
    }

    /// Forgets everything, as a restart does.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.config);
    }

    fn shrink(&mut self) {
        while self.calls.len() > self.config.max_replies || self.bytes > self.config.max_bytes {
            // A call in progress stays known: it must not be run a second time beside the first. The service bounds
            // how many there are.
            let is_answered = |key: &CallKey| self.calls.get(key).is_some_and(Option::is_some);
            let oldest = self.order.iter().position(is_answered).and_then(|at| self.order.remove(at));
            let Some(reply) = oldest.and_then(|key| self.calls.remove(&key)) else {
                return;
            };
            self.bytes -= reply.map_or(0, |reply| reply.len());
        }
    }
}

/// The FNV-1a hash, which is quick on short input and the same everywhere.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    bytes.iter().fold(OFFSET_BASIS, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use nfs_wire::rpc::{Program, Xid};

    use super::*;

    fn key(xid: u32, arguments: &[u8]) -> CallKey {
        let header = CallHeader {
            xid: Xid(xid),
            program: Program::NFS,
            procedure: 12,
            credential: Ok(nfs_wire::auth::Credential::None),
        };
        let address = "127.0.0.1:700".parse().unwrap();
        CallKey::new(address, Protocol::Udp, &header, arguments)
    }

    fn cache(max_replies: usize, max_bytes: usize) -> ReplyCache {
        ReplyCache::new(ReplyCacheConfig { max_replies, max_bytes })
    }

    #[test]
    fn a_repeated_call_is_in_progress_and_then_answered() {
        let mut cache = cache(10, 1000);
        assert_eq!(cache.begin(key(1, b"a")), Known::New);
        assert_eq!(cache.begin(key(1, b"a")), Known::InProgress);
        cache.finish(key(1, b"a"), b"reply");
        assert_eq!(cache.begin(key(1, b"a")), Known::Answered(b"reply"));
        assert_eq!(cache.begin(key(1, b"b")), Known::New, "a reused XID is a new call");
        cache.forget(key(1, b"a"));
        assert_eq!(cache.begin(key(1, b"a")), Known::New);
    }

    #[test]
    fn a_call_in_progress_is_known_however_many_come_after_it() {
        let mut cache = cache(2, 1000);
        assert_eq!(cache.begin(key(0, b"")), Known::New);
        for xid in 1..10 {
            assert_eq!(cache.begin(key(xid, b"")), Known::New);
            cache.finish(key(xid, b""), b"reply");
        }
        assert_eq!(cache.begin(key(0, b"")), Known::InProgress);
        assert_eq!(cache.begin(key(9, b"")), Known::Answered(b"reply"));
        assert_eq!(cache.begin(key(8, b"")), Known::New, "at most two are kept");
    }

    #[test]
    fn the_oldest_replies_go_when_a_bound_is_reached() {
        let mut small = cache(2, 1000);
        for xid in 0..3 {
            assert_eq!(small.begin(key(xid, b"")), Known::New);
            small.finish(key(xid, b""), b"reply");
        }
        assert_eq!(small.begin(key(2, b"")), Known::Answered(b"reply"));
        assert_eq!(small.begin(key(0, b"")), Known::New);
        let mut light = cache(100, 12);
        for xid in 0..3 {
            light.begin(key(xid, b""));
            light.finish(key(xid, b""), b"reply");
        }
        assert_eq!(light.begin(key(0, b"")), Known::New);
        assert_eq!(light.begin(key(2, b"")), Known::Answered(b"reply"));
        light.begin(key(9, b""));
        light.finish(key(9, b""), &[0; 13]);
        assert_eq!(light.begin(key(9, b"")), Known::New, "too large to keep");
    }
}
