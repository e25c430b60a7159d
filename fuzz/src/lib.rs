//! The bodies of the fuzz targets: one function each, which panics when something is wrong with the code.
//!
//! `fuzz_targets/` hands them to libFuzzer, `tests/fuzz_corpora.rs` runs them over the committed corpora.

#![forbid(unsafe_code)]

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use linkemu::{ChannelReport, ChannelTrace, HeaderCodec, Link, LinkConfig, RateTrace, Side};
use nfs_cache::{
    Answer, Cache, CacheConfig, Event, Failure, NodeId, OperationId, Outcome, Record, Store, StoreFull,
};
use nfs_files::fuzzing::Body;
use nfs_proto::{
    config::SessionOptions,
    session::{Incoming, Session, SessionConfig, Transfer},
    transfer::{Download, Listing, Placement, Upload, UploadSpec},
};
use nfs_share::{Code, Identity, Join, Joined, Membership, Sharer, Transmit};
use nfs_wire::{
    FileHandle, Procedure, Reader,
    auth::Credential,
    call, encode, mount,
    nfs3_types::{nfs3::*, xdr_codec::Pack},
    portmap::{self, Protocol},
    record::RecordReader,
    reply,
    rpc::{CallError, CallHeader, Program, ReplyHeader, Xid, encode_call_header, set_xid},
};
use nfs_wireless_server::{Memory, Peer, Service, ServiceConfig};
use testbed::Room;

/// The targets of this file with their names, which are also those of their corpora.
const TARGETS: [(&str, Body); 13] = [
    ("reply", reply),
    ("call", call),
    ("rpc", rpc),
    ("lookup", lookup),
    ("record", record),
    ("trace", trace),
    ("server", server),
    ("session", session),
    ("headers", headers),
    ("cache", cache),
    ("link", link),
    ("known", known),
    ("share", share),
];

/// Returns all targets.
pub fn targets() -> impl Iterator<Item = (&'static str, Body)> {
    let of_crates = [nfs_files::fuzzing::TARGETS, nfs_mount::fuzzing::TARGETS, nfsw::fuzzing::TARGETS];
    TARGETS.into_iter().chain(of_crates.into_iter().flatten().copied())
}

/// Runs the body of a target.
pub fn run(target: &str, data: &[u8]) {
    let (_, body) = targets().find(|(name, _)| *name == target).expect("a target has a body");
    body(data);
}

/// Decodes, encodes what came out, and expects a message of the same length that means the same. (Padding is not looked at.)
macro_rules! round_trip {
    ($bytes:expr, $again:expr) => {{
        let again: &dyn Fn(&[u8]) -> Option<Vec<u8>> = &$again;
        if let Some(first) = again($bytes) {
            assert_eq!(first.len(), $bytes.len(), "what was read is all of it");
            assert_eq!(again(&first), Some(first), "what is read is what was written");
        }
    }};
}

/// NFSv3 results: the first byte is the procedure, then what follows `NFS3_OK`.
fn reply(data: &[u8]) {
    let Some((&procedure, results)) = data.split_first() else { return };
    macro_rules! results {
        ($type:ty) => {{
            let again = |bytes: &[u8]| {
                let whole = [&[0; 4], bytes].concat();
                let value = reply::decode::<$type>(&whole).ok()?.ok()?;
                Some(packed(&value))
            };
            if let Some(first) = again(results) {
                // What follows results is not looked at.
                assert!(first.len() <= results.len(), "what was written is in what was read");
                assert_eq!(again(&first), Some(first), "what is read is what was written");
            }
        }};
    }
    match Procedure::from_number(procedure.into()) {
        Some(Procedure::Getattr) => results!(GETATTR3resok),
        Some(Procedure::Setattr) => results!(SETATTR3resok),
        Some(Procedure::Lookup) => results!(LOOKUP3resok),
        Some(Procedure::Access) => results!(ACCESS3resok),
        Some(Procedure::Readlink) => results!(READLINK3resok<'_>),
        Some(Procedure::Read) => results!(READ3resok<'_>),
        Some(Procedure::Write) => results!(WRITE3resok),
        Some(Procedure::Create) => results!(CREATE3resok),
        Some(Procedure::Mkdir) => results!(MKDIR3resok),
        Some(Procedure::Symlink) => results!(SYMLINK3resok),
        Some(Procedure::Mknod) => results!(MKNOD3resok),
        Some(Procedure::Remove) => results!(REMOVE3resok),
        Some(Procedure::Rmdir) => results!(RMDIR3resok),
        Some(Procedure::Rename) => results!(RENAME3resok),
        Some(Procedure::Link) => results!(LINK3resok),
        Some(Procedure::Readdir) => results!(READDIR3resok<'_>),
        Some(Procedure::Readdirplus) => results!(READDIRPLUS3resok<'_>),
        Some(Procedure::Fsstat) => results!(FSSTAT3resok),
        Some(Procedure::Fsinfo) => results!(FSINFO3resok),
        Some(Procedure::Pathconf) => results!(PATHCONF3resok),
        Some(Procedure::Commit) => results!(COMMIT3resok),
        Some(Procedure::Null) | None => {
            let _ = reply::ReadHead::decode(&mut Reader::new(results), u32::from(procedure) << 8);
        }
    }
}

/// NFSv3 arguments: the first byte is the procedure.
fn call(data: &[u8]) {
    let Some((&procedure, arguments)) = data.split_first() else { return };
    macro_rules! arguments {
        ($type:ty) => {
            round_trip!(arguments, |bytes: &[u8]| {
                let value = call::decode::<$type>(Reader::new(bytes)).ok()?;
                Some(packed(&value))
            })
        };
    }
    match Procedure::from_number(procedure.into()) {
        Some(Procedure::Getattr) => arguments!(GETATTR3args),
        Some(Procedure::Setattr) => arguments!(SETATTR3args),
        Some(Procedure::Lookup) => arguments!(LOOKUP3args<'_>),
        Some(Procedure::Access) => arguments!(ACCESS3args),
        Some(Procedure::Readlink) => arguments!(READLINK3args),
        Some(Procedure::Read) => arguments!(READ3args),
        Some(Procedure::Write) => arguments!(WRITE3args<'_>),
        Some(Procedure::Create) => arguments!(CREATE3args<'_>),
        Some(Procedure::Mkdir) => arguments!(MKDIR3args<'_>),
        Some(Procedure::Symlink) => arguments!(SYMLINK3args<'_>),
        // Types that MKNOD does not make are read as one.
        Some(Procedure::Mknod) => drop(call::decode::<MKNOD3args<'_>>(Reader::new(arguments))),
        Some(Procedure::Remove) => arguments!(REMOVE3args<'_>),
        Some(Procedure::Rmdir) => arguments!(RMDIR3args<'_>),
        Some(Procedure::Rename) => arguments!(RENAME3args<'_, '_>),
        Some(Procedure::Link) => arguments!(LINK3args<'_>),
        Some(Procedure::Readdir) => arguments!(READDIR3args),
        Some(Procedure::Readdirplus) => arguments!(READDIRPLUS3args),
        Some(Procedure::Fsstat) => arguments!(FSSTAT3args),
        Some(Procedure::Fsinfo) => arguments!(FSINFO3args),
        Some(Procedure::Pathconf) => arguments!(PATHCONF3args),
        Some(Procedure::Commit) => arguments!(COMMIT3args),
        Some(Procedure::Null) | None => {}
    }
}

/// Headers of calls and replies.
fn rpc(data: &[u8]) {
    let mut reader = Reader::new(data);
    if let Ok(header) = ReplyHeader::decode(&mut reader) {
        let mut out = Vec::new();
        header.encode(&mut out);
        assert_eq!(ReplyHeader::decode(&mut Reader::new(&out)), Ok(header));
    }
    match CallHeader::decode(&mut Reader::new(data)) {
        Ok(header) => {
            let mut credential = Vec::new();
            header.credential.clone().unwrap_or_default().encode(&mut credential);
            let mut out = Vec::new();
            encode_call_header(&mut out, header.xid, header.program, header.procedure, &credential);
            let again = CallHeader::decode(&mut Reader::new(&out)).expect("what we write we read");
            assert_eq!(
                (again.xid, again.program, again.procedure),
                (header.xid, header.program, header.procedure)
            );
        }
        Err(CallError::Decode(_) | CallError::RpcVersion { .. }) => {}
    }
}

/// What MOUNT and the port mapper say and are asked: the first byte says which.
fn lookup(data: &[u8]) {
    let Some((&kind, body)) = data.split_first() else { return };
    match kind % 7 {
        0 => drop(mount::decode_mount(body)),
        1 => drop(mount::decode_exports(body)),
        2 => drop(mount::decode_path(Reader::new(body))),
        3 => drop(portmap::decode_port(body)),
        4 => {
            if let Ok(Some(address)) = portmap::decode_address(body) {
                let text = portmap::universal_address(address);
                assert_eq!(portmap::parse_universal_address(&text), Some(address));
            }
        }
        5 => drop(portmap::Mapping::decode(Reader::new(body))),
        _ => drop(portmap::Binding::decode(Reader::new(body))),
    }
}

/// Record marking: the first two bytes cut the stream into pieces, which must make no difference.
fn record(data: &[u8]) {
    const LIMIT: u64 = 4096;
    let Some((&[cut, most], stream)) = data.split_first_chunk() else { return };
    let read = |cut: usize, most: usize| {
        let mut reader = RecordReader::new(LIMIT);
        let (mut records, mut open) = (Vec::new(), Vec::new());
        for mut piece in stream.chunks(cut) {
            loop {
                match reader.next(&mut piece, most) {
                    Ok(Some(chunk)) => {
                        open.extend_from_slice(chunk.bytes);
                        assert!(open.len() as u64 <= LIMIT, "a record stays within the limit");
                        if chunk.end {
                            records.push(std::mem::take(&mut open));
                        }
                    }
                    Ok(None) => break,
                    Err(error) => return (records, Some(error)),
                }
            }
            assert!(piece.is_empty(), "nothing is left over");
        }
        (records, None)
    };
    assert_eq!(read(stream.len().max(1), usize::MAX), read(usize::from(cut) + 1, usize::from(most) + 1));
}

/// Recorded channels and rates, and descriptions of links.
fn trace(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    if let Ok(trace) = ChannelTrace::parse(text) {
        assert!(trace.length().is_none_or(|length| length > Duration::ZERO));
    }
    if let Ok(trace) = RateTrace::parse(text) {
        assert!(trace.length() > Duration::ZERO);
        let hour = Duration::from_secs(3600);
        assert!(trace.offered_bytes(Duration::ZERO, hour) <= trace.offered_bytes(Duration::ZERO, 2 * hour));
    }
    let unreadable = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let _ = LinkConfig::from_toml(text, unreadable);
}

/// The embedded server: messages of (what, length, bytes). The highest bit of `what` puts the root's handle before the bytes.
fn server(data: &[u8]) {
    const MAX_REPLY_BYTES: usize = (1 << 20) + 1024;
    let start = epoch();
    let mut now = start;
    let mut service =
        Service::new(ServiceConfig::default(), Memory::default(), 1, now).expect("the default is valid");
    let peer = |protocol| Peer { address: address(), protocol };
    let root = {
        let mut path = Vec::new();
        mount::encode_path(&mut path, b"/");
        let message = rpc_call(Program::MOUNT, mount::procedure::MNT, 1, &path);
        service.handle_input(now, peer(Protocol::Udp), &message).expect("a call");
        let reply = service.poll_transmit(now).expect("an answer").bytes;
        mount::decode_mount(&reply[24..]).expect("results").expect("mounted").handle
    };
    let mut rest = data;
    let mut xid = 1;
    while let Some((&[what, length], tail)) = rest.split_first_chunk() {
        let (bytes, tail) = tail.split_at(tail.len().min(length.into()));
        rest = tail;
        xid += 1;
        let protocol = if xid % 2 == 0 { Protocol::Udp } else { Protocol::Tcp };
        let mut arguments = Vec::new();
        if what & 0x80 != 0 {
            encode(&mut arguments, &root.to_fh3());
        }
        arguments.extend_from_slice(bytes);
        let message = match what & 0x7f {
            procedure @ 0..=31 => rpc_call(Program::NFS, procedure.into(), xid, &arguments),
            procedure @ 32..=63 => rpc_call(Program::MOUNT, u32::from(procedure) - 32, xid, &arguments),
            procedure @ 64..=79 => rpc_call(Program::PORTMAP, u32::from(procedure) - 64, xid, &arguments),
            procedure @ 80..=95 => rpc_call(Program::RPCBIND4, u32::from(procedure) - 80, xid, &arguments),
            _ => arguments,
        };
        let taken = service.handle_input(now, peer(protocol), &message);
        let mut replies = 0;
        while let Some(transmit) = service.poll_transmit(now) {
            assert_eq!(transmit.peer.address, address(), "replies go where calls came from");
            assert!(transmit.bytes.len() <= MAX_REPLY_BYTES);
            replies += 1;
        }
        assert!(replies <= 1 && (taken.is_ok() || replies == 0), "at most one reply a call");
        now += Duration::from_millis(1);
        service.handle_timeout(now);
        assert!(service.poll_timeout().is_none_or(|due| due > now), "time goes on");
    }
}

/// Bodies of records that an earlier cache has kept, each after its length in two bytes, asked for in this order. Without a server, what
/// they say is shown: every operation ends, and what is kept again says the same.
fn cache(data: &[u8]) {
    let mut bodies = VecDeque::new();
    let mut rest = data;
    while let Some((&length, tail)) = rest.split_first_chunk() {
        let (body, tail) = tail.split_at(tail.len().min(u16::from_le_bytes(length).into()));
        bodies.push_back(Bytes::copy_from_slice(body));
        rest = tail;
    }
    let root = FileHandle::try_from(&[1; 8][..]).expect("short enough");
    let start = epoch();
    let mut now = start;
    let mut kept = BTreeMap::new();
    let Some(mut cache) = disconnected(now, root, Shelf { bodies, kept: &mut kept }) else { return };
    let listed = list(&mut cache, &mut now, NodeId::ROOT);
    for (name, _) in listed.iter().take(8) {
        let Ok(Answer::Entry { node, .. }) =
            ended(&mut cache, &mut now, |cache, now| cache.lookup(now, NodeId::ROOT, name))
        else {
            continue;
        };
        assert!(cache.known(node).is_some());
        let _ = list(&mut cache, &mut now, node);
        let _ = ended(&mut cache, &mut now, |cache, now| cache.attributes(now, node));
        let _ = ended(&mut cache, &mut now, |cache, now| cache.read_link(now, node));
        if let Ok(Answer::Opened { open, .. }) =
            ended(&mut cache, &mut now, |cache, now| cache.open(now, node))
        {
            let read = ended(&mut cache, &mut now, |cache, now| cache.read(now, open, 0, 1 << 20));
            assert!(read.is_err() || cache.known(node).is_none_or(|it| it.size == 0), "there are no bytes");
            cache.release(open);
        }
        let _ = cache.known_at(name);
        if let Some(identity) = cache.identity(node) {
            let _ = cache.node_of(&identity);
        }
        cache.pin(node, true);
    }
    cache.keep_all();
    drop(cache);
    if let Some(mut again) = disconnected(now, root, Shelf { bodies: VecDeque::new(), kept: &mut kept }) {
        assert_eq!(
            list(&mut again, &mut now, NodeId::ROOT),
            listed,
            "what is kept says what was kept before"
        );
    }
}

/// Starts a cache from what is kept.
fn disconnected(now: Instant, root: FileHandle, shelf: Shelf<'_>) -> Option<Cache<Shelf<'_>>> {
    Cache::disconnected(CacheConfig::default(), now, Duration::from_secs(1_700_000_000), root, shelf)
}

/// Returns names in a directory and the numbers of their files; none if that is not known.
fn list(cache: &mut Cache<Shelf<'_>>, now: &mut Instant, node: NodeId) -> Vec<(std::sync::Arc<[u8]>, u64)> {
    match ended(cache, now, |cache, now| cache.list(now, node)) {
        Ok(Answer::Listing(entries)) => entries.iter().map(|it| (it.name.clone(), it.fileid)).collect(),
        _ => Vec::new(),
    }
}

/// Runs an operation to its end while no call can be made.
fn ended<'a>(
    cache: &mut Cache<Shelf<'a>>,
    now: &mut Instant,
    begin: impl FnOnce(&mut Cache<Shelf<'a>>, Instant) -> OperationId,
) -> Result<Answer, Failure> {
    let begun = begin(cache, *now);
    for _ in 0..10_000 {
        while cache.poll_cancel().is_some() {}
        if let Some(transmit) = cache.poll_transmit(*now) {
            cache.handle_reply(*now, transmit.call, Outcome::NotAsked);
            continue;
        }
        while let Some(event) = cache.poll_event() {
            if let Event::Done { operation, result } = event
                && operation == begun
            {
                return result;
            }
        }
        let due = cache.poll_timeout().expect("an operation has an end");
        *now = (*now).max(due);
        cache.handle_timeout(*now);
    }
    panic!("an operation ends");
}

/// Keeps records and no data.
struct Shelf<'a> {
    /// What was kept before.
    bodies: VecDeque<Bytes>,
    kept: &'a mut BTreeMap<Vec<u8>, Bytes>,
}

impl Store for Shelf<'_> {
    fn put(&mut self, _: NodeId, _: u64, _: &Bytes) -> Result<(), StoreFull> {
        Err(StoreFull)
    }

    fn get(&mut self, _: NodeId, _: u64) -> Option<Bytes> {
        None
    }

    fn remove(&mut self, _: NodeId, _: u64) {}

    fn is_lasting(&self) -> bool {
        true
    }

    fn recall(&mut self, _: NodeId, key: &[u8]) -> Option<Bytes> {
        self.kept.get(key).cloned().or_else(|| self.bodies.pop_front())
    }

    fn keep(&mut self, _: NodeId, record: &Record<'_>) {
        self.kept.insert(record.key.to_vec(), record.body.clone());
    }

    fn retire(&mut self, key: &[u8]) {
        self.kept.remove(key);
    }
}

/// The file of a link, or of a room: what is valid can be run and shown.
fn link(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    // It would read files.
    if !text.contains("trace") {
        let _ = Room::from_toml("mine", text);
    }
    let trace = |name: &str| {
        let text = if name.contains('r') { "0\n8\n8\n100\n" } else { "0,good\n90,bad\n100,end\n" };
        Ok(text.to_owned())
    };
    let Ok(config) = LinkConfig::from_toml(text, trace) else { return };
    let report =
        ChannelReport::new(&config, 1, 0, Duration::from_secs(10)).expect("what is valid has a channel");
    assert!((0.0..=1.0).contains(&report.good_share));
    let start = epoch();
    let mut now = start;
    let mut link = Link::new(config, 1, now).expect("what is valid runs");
    for step in 0..200_u32 {
        if step < 32 {
            let side = if step % 2 == 0 { Side::Mobile } else { Side::Host };
            link.handle_input(now, side, Bytes::from(vec![0; 100 * step as usize]));
        }
        while let Some((_, delivery)) = link.poll_transmit(now) {
            assert!(delivery.at <= now && delivery.payload.len() < 3200);
        }
        let Some(due) = link.poll_timeout() else { continue };
        now = now.max(due);
        link.handle_timeout(now);
        assert!(link.poll_timeout().is_none_or(|due| due > now), "time goes on");
    }
}

/// What an earlier run has remembered of servers and of the paths to them; a session that starts from it works.
fn known(data: &[u8]) {
    const BYTES: u64 = 100_000;
    let Some(prior) = nfs_files::fuzzing::remembered(data) else { return };
    let options = SessionOptions { prior: Some(prior), ..SessionOptions::default() };
    let mut now = epoch();
    let mut config = SessionConfig::new(&options, address(), Protocol::Udp, 1 << 20);
    config.stall_timeout = Some(Duration::from_secs(60));
    let mut session = Session::new(config, address(), 1, now);
    let handle = FileHandle::try_from(&[1; 8][..]).expect("short enough");
    session.start(now, Transfer::Download(Download::new(&handle, BYTES)));
    for step in 0..64_u32 {
        let mut sent = 0;
        while let Some(transmit) = session.poll_transmit(now) {
            sent += 1;
            assert!(sent < 10_000, "it waits for replies");
            // Some calls are answered: no data, an error.
            if step % 4 == 0 {
                let xid = Xid(u32::from_be_bytes(*transmit.head.first_chunk().expect("an XID")));
                let mut message = Vec::new();
                ReplyHeader { xid, outcome: Ok(()) }.encode(&mut message);
                message.extend_from_slice(&10008_u32.to_be_bytes());
                message.extend_from_slice(&[0; 4]);
                let _ = session.handle_head(now, address(), &message, true);
            }
        }
        while session.poll_event().is_some() {}
        let Some(due) = session.poll_timeout() else { break };
        now = now.max(due);
        session.handle_timeout(now);
        while session.poll_event().is_some() {}
    }
}

/// The client's machines against replies of (what, length, bytes), to the oldest call or to none.
fn session(data: &[u8]) {
    let start = epoch();
    let mut now = start;
    let mut config = SessionConfig::new(&SessionOptions::default(), address(), Protocol::Udp, 1 << 20);
    config.stall_timeout = Some(Duration::from_secs(60));
    let mut session = Session::new(config, address(), 1, now);
    let handle = FileHandle::try_from(&[1; 8][..]).expect("short enough");
    session.start(now, Transfer::Download(Download::new(&handle, 100_000)));
    let spec = UploadSpec::new(handle, b"name".to_vec(), Placement::Temporary(b".name".to_vec()), 50_000);
    session.start(now, Transfer::Upload(Box::new(Upload::new(spec))));
    let mut listing = Listing::new(handle, 4096);
    let mut sent = VecDeque::new();
    let mut rest = data;
    while let Some((&[what, length], tail)) = rest.split_first_chunk() {
        while let Some(transmit) = session.poll_transmit(now) {
            sent.push_back(u32::from_be_bytes(*transmit.head.first_chunk().expect("an XID")));
        }
        while session.poll_event().is_some() {}
        let (bytes, tail) = tail.split_at(tail.len().min(length.into()));
        rest = tail;
        let xid = if what & 0x80 == 0 { sent.pop_front() } else { sent.back().copied() };
        let mut message = Vec::new();
        match what & 0x07 {
            // Results, as if accepted; with as much data as they may claim.
            0..=3 => {
                ReplyHeader { xid: Xid(xid.unwrap_or(0)), outcome: Ok(()) }.encode(&mut message);
                message.extend_from_slice(bytes);
                message.resize(message.len() + usize::from(what & 0x70) * 64, 0);
            }
            // Anything under a right XID.
            4 if bytes.len() >= 4 => {
                message.extend_from_slice(bytes);
                set_xid(&mut message, Xid(xid.unwrap_or(0)));
            }
            5 => {
                let _ = listing.handle_results(bytes);
                continue;
            }
            6 => {
                now += Duration::from_millis(1 << (length & 0x0f));
                session.handle_timeout(now);
                while let Some(transmit) = session.poll_transmit(now) {
                    sent.push_back(u32::from_be_bytes(*transmit.head.first_chunk().expect("an XID")));
                }
                while session.poll_event().is_some() {}
                assert!(session.poll_timeout().is_none_or(|due| due > now), "time goes on");
                continue;
            }
            _ => message.extend_from_slice(bytes),
        }
        let complete = what & 0x08 == 0;
        if let Ok(Incoming::Data { offset, length, data_at, .. }) =
            session.handle_head(now, address(), &message, complete)
        {
            assert!(offset + u64::from(length) <= 100_000, "nothing is written that was not asked for");
            assert!(!complete || data_at + length as usize <= message.len(), "the data is there");
            session.handle_payload_done(now);
        }
    }
}

/// Header compression: any packets through both ends, and anything at all into one.
fn headers(data: &[u8]) {
    let (mut here, mut there, mut victim) =
        (HeaderCodec::new(1500), HeaderCodec::new(1500), HeaderCodec::new(1500));
    let mut rest = data;
    while let Some((&[what, length], tail)) = rest.split_first_chunk() {
        let (bytes, tail) = tail.split_at(tail.len().min(length.into()));
        rest = tail;
        let packet = Bytes::copy_from_slice(bytes);
        let _ = victim.decompress(packet.clone());
        let _ = victim.compress(packet.clone());
        // What is no IP packet does not get there.
        if !matches!(bytes.first(), Some(0x40..=0x4f | 0x60..=0x6f)) {
            continue;
        }
        let (from, to) = if what & 1 == 0 { (&mut here, &mut there) } else { (&mut there, &mut here) };
        let on_the_link = from.compress(packet.clone());
        // What is lost may be missed, but what arrives is what was sent.
        if what & 2 == 0
            && let Ok(restored) = to.decompress(on_the_link)
        {
            assert_eq!(restored, packet);
        }
    }
}

fn packed(value: &impl Pack) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out, value);
    out
}

fn rpc_call(program: Program, procedure: u32, xid: u32, arguments: &[u8]) -> Vec<u8> {
    let mut credential = Vec::new();
    Credential::None.encode(&mut credential);
    let mut message = Vec::new();
    encode_call_header(&mut message, Xid(xid), program, procedure, &credential);
    message.extend_from_slice(arguments);
    message
}

fn address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 700))
}

/// An arbitrary beginning of virtual time.
fn epoch() -> Instant {
    Instant::now()
}

/// A share and one of its members: datagrams that are made up or changed, from anywhere. Each step has a byte that says what it is, a length,
/// and bytes.
fn share(data: &[u8]) {
    let mut now = epoch();
    let mut sharer = Sharer::new(Identity::from_bytes(&[7; 64]), "trip", now);
    sharer.invite(now + Duration::from_secs(3600));
    let code: Code = sharer.members().find_map(|member| member.code.clone()).expect("nobody has used it");
    let Joined { session, membership, .. } =
        greet(&mut sharer, Join::with_code(code, Identity::draw(), "sophia", now), now);
    let mut member = None;
    let mut rest = data;
    while let Some((&[what, length], tail)) = rest.split_first_chunk() {
        let (bytes, tail) = tail.split_at(tail.len().min(length.into()));
        rest = tail;
        let mut datagram = bytes.to_vec();
        let mut message = Vec::new();
        match what & 0x07 {
            // What a member sends arrives as it was, and changed it does not.
            0 | 1 => {
                datagram.clear();
                session.seal(bytes, &mut datagram);
                let is_changed = what & 1 == 1;
                if is_changed {
                    let at = usize::from(what >> 3) % datagram.len();
                    datagram[at] ^= 1 << (length & 7);
                }
                let call = sharer.handle_input(now, address(), &datagram, &mut message);
                assert_eq!(call.is_some(), !is_changed);
                assert!(is_changed || message == bytes);
            }
            2 => {
                now += Duration::from_millis(1 << (length & 0x0f));
                sharer.handle_timeout(now);
            }
            // Somebody who has been here comes back, through who changes what passes.
            3 | 4 => {
                let back: &mut Join = member.get_or_insert_with(|| {
                    let membership = Membership::from_bytes(&membership.to_bytes());
                    Join::as_member(&membership, now).expect("its keys are good")
                });
                now += Duration::from_millis(500);
                datagram = back.poll_transmit(now).map(<[u8]>::to_vec).unwrap_or_default();
                for (byte, change) in datagram.iter_mut().zip(bytes) {
                    *byte ^= if what & 1 == 1 { *change } else { 0 };
                }
                assert!(sharer.handle_input(now, address(), &datagram, &mut message).is_none());
            }
            5 => {
                let _ = session.open(bytes, &mut message);
                assert!(message.is_empty(), "nobody else has the keys");
            }
            // The kind of what has no session, and anything behind it.
            6 => {
                datagram.splice(0..0, [0; 8]);
                assert!(sharer.handle_input(now, address(), &datagram, &mut message).is_none());
            }
            _ => assert!(sharer.handle_input(now, address(), &datagram, &mut message).is_none()),
        }
        let mut sent = 0;
        while let Some(Transmit { bytes, .. }) = sharer.poll_transmit() {
            sent += bytes.len();
            if let Some(back) = &mut member {
                back.handle_input(now, &bytes);
            }
        }
        assert!(what & 0x07 == 2 || sent <= 3 * datagram.len(), "{sent} bytes for {}", datagram.len());
        if member.as_mut().is_some_and(|back| back.poll_result().is_some()) {
            member = None;
        }
    }
}

/// Gets a session without any loss.
fn greet(sharer: &mut Sharer, mut join: Join, mut now: Instant) -> Joined {
    loop {
        if let Some(datagram) = join.poll_transmit(now).map(<[u8]>::to_vec) {
            sharer.handle_input(now, address(), &datagram, &mut Vec::new());
        }
        while let Some(Transmit { bytes, .. }) = sharer.poll_transmit() {
            join.handle_input(now, &bytes);
        }
        if let Some(result) = join.poll_result() {
            return result.expect("the code is right");
        }
        now += Duration::from_millis(10);
    }
}
