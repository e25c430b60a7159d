use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

use super::*;
use crate::{Endpoint, packet};

const CLIENT: Endpoint = Endpoint::mobile(0, 700);
const SERVER: Endpoint = Endpoint::host(0, 2049);
const MTU: u32 = 1500;
const GETATTR: u32 = 1;
const LOOKUP: u32 = 3;
const READ: u32 = 6;
const WRITE: u32 = 7;

/// Draws below `most`.
fn below(rng: &mut ChaCha8Rng, most: u32) -> u32 {
    rng.next_u32() % most
}

fn bytes(rng: &mut ChaCha8Rng, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    rng.fill_bytes(&mut bytes);
    bytes
}

fn words(message: &mut Vec<u8>, words: &[u32]) {
    message.extend(words.iter().flat_map(|word| word.to_be_bytes()));
}

/// An NFS client and server that talk too much: calls of four procedures on a few files, now and then sent again, their replies,
/// and datagrams that are nothing of the kind.
struct Talk {
    rng: ChaCha8Rng,
    xid: u32,
    /// The next block and the attributes of each file.
    files: Vec<(u32, Vec<u8>)>,
    /// What was called, by XID: procedure, file and call.
    calls: BTreeMap<u32, (u32, usize)>,
    last_call: Vec<u8>,
    identifications: [u16; 2],
}

impl Talk {
    fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let files = (0..6).map(|_| (0, bytes(&mut rng, 84))).collect();
        let xid = rng.next_u32();
        Self { rng, xid, files, calls: BTreeMap::new(), last_call: Vec::new(), identifications: [0; 2] }
    }

    fn packet(&mut self, to_server: bool, message: &[u8]) -> Bytes {
        let (from, to) = if to_server { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        let identification = &mut self.identifications[usize::from(to_server)];
        // Other traffic of the host, now and then.
        *identification = identification.wrapping_add(if below(&mut self.rng, 50) == 0 { 900 } else { 1 });
        packet::udp(from, to, *identification, message).into()
    }

    fn call(&mut self) -> Bytes {
        let kind = below(&mut self.rng, 40);
        if kind == 0 {
            let length = below(&mut self.rng, 100) as usize;
            let message = bytes(&mut self.rng, length);
            return self.packet(true, &message);
        }
        if kind == 1 && !self.last_call.is_empty() {
            let message = self.last_call.clone();
            return self.packet(true, &message);
        }
        self.xid = self.xid.wrapping_add(1);
        let file = below(&mut self.rng, 6) as usize;
        let procedure = [0, GETATTR, LOOKUP, WRITE, READ, READ, READ, READ][below(&mut self.rng, 8) as usize];
        let mut message = Vec::new();
        words(
            &mut message,
            &[self.xid, 0, 2, 100_003, 3, procedure, 1, 24, 77, 4, 0x6d6f_6269, 1000, 100, 0, 0, 0],
        );
        if procedure != 0 {
            words(&mut message, &[32]);
            message.extend((0..32).map(|byte| byte * 7 + file as u8));
        }
        let block = self.files[file].0;
        self.files[file].0 = if below(&mut self.rng, 30) == 0 { 0 } else { block.wrapping_add(1) };
        let length = if below(&mut self.rng, 30) == 0 { below(&mut self.rng, 1200) } else { 1200 };
        match procedure {
            READ => words(&mut message, &[block >> 20, block * 1200, length]),
            WRITE => {
                words(&mut message, &[block >> 20, block * 1200, length, 0, length]);
                let data = bytes(&mut self.rng, length.next_multiple_of(4) as usize);
                message.extend_from_slice(&data);
            }
            LOOKUP => {
                let length = 1 + below(&mut self.rng, 20);
                words(&mut message, &[length]);
                let name = bytes(&mut self.rng, length.next_multiple_of(4) as usize);
                message.extend_from_slice(&name);
            }
            _ => {}
        }
        self.calls.insert(self.xid, (procedure, file));
        self.last_call.clone_from(&message);
        self.packet(true, &message)
    }

    fn reply(&mut self, call: &[u8]) -> Option<Bytes> {
        let xid = u32::from_be_bytes(call.get(28..32)?.try_into().ok()?);
        let &(procedure, file) = self.calls.get(&xid)?;
        if self.calls.len() > 2000 {
            self.calls.pop_first();
        }
        if below(&mut self.rng, 3) == 0 {
            // Somebody has changed the file.
            let at = below(&mut self.rng, 21) as usize * 4;
            let change = bytes(&mut self.rng, 4);
            self.files[file].1[at..at + 4].copy_from_slice(&change);
        }
        let attributes = self.files[file].1.clone();
        let status = if below(&mut self.rng, 100) == 0 { 5 } else { 0 };
        let mut message = Vec::new();
        words(&mut message, &[xid, 1, 0, 0, 0, 0]);
        if procedure != 0 {
            words(&mut message, &[status]);
        }
        match (status, procedure) {
            (0, GETATTR) => message.extend_from_slice(&attributes),
            (0, LOOKUP) => {
                words(&mut message, &[32]);
                let handle = bytes(&mut self.rng, 32);
                message.extend_from_slice(&handle);
                words(&mut message, &[1]);
                message.extend_from_slice(&attributes);
                words(&mut message, &[0]);
            }
            (0, READ) => {
                words(&mut message, &[1]);
                message.extend_from_slice(&attributes);
                let length = 1 + below(&mut self.rng, 1200);
                words(&mut message, &[length, 0, length]);
                let data = bytes(&mut self.rng, length.next_multiple_of(4) as usize);
                message.extend_from_slice(&data);
            }
            (0, WRITE) => {
                words(&mut message, &[1]);
                message.extend_from_slice(&attributes[..24]);
                words(&mut message, &[1]);
                message.extend_from_slice(&attributes);
                words(&mut message, &[1200, 0, 7, 8]);
            }
            _ => {}
        }
        Some(self.packet(false, &message))
    }
}

/// Damages a packet as a link without a checksum of its own might: so that the Internet checksum alone would always notice in the data,
/// and nothing would in a header.
fn damage(rng: &mut ChaCha8Rng, packet: &Bytes) -> Bytes {
    let mut damaged = packet.to_vec();
    let length = damaged.len() as u32;
    match below(rng, 5) {
        0 => {
            let bit = below(rng, 8 * length) as usize;
            damaged[bit / 8] ^= 1 << (bit % 8);
        }
        1 => {
            let at = below(rng, length) as usize;
            for byte in damaged.iter_mut().skip(at).take(1) {
                *byte ^= 1 + below(rng, 255) as u8;
            }
        }
        2 | 3 => {
            let at = below(rng, length.min(24)) as usize;
            let most = 1 + below(rng, 12) as usize;
            for byte in damaged.iter_mut().skip(at).take(most) {
                *byte = rng.next_u32() as u8;
            }
        }
        _ => {
            let cut = below(rng, 6) as usize + 1;
            if below(rng, 2) == 0 {
                damaged.truncate(damaged.len().saturating_sub(cut));
            } else {
                damaged.extend((0..cut).map(|_| rng.next_u32() as u8));
            }
        }
    }
    damaged.into()
}

/// What a host makes of a packet: nothing, unless lengths and checksums are right; else what its user sees.
fn seen(packet: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    let right = packet.len() >= 28
        && packet[0] == 0x45
        && packet[9] == packet::UDP
        && length(2) == packet.len()
        && length(24) + 20 == packet.len()
        && packet::ip_sum_is_right(packet)
        && packet::udp_sum_is_right(packet);
    right.then(|| (&packet[12..24], &packet[28..]))
}

#[derive(Debug, Default)]
struct Tally {
    sent: u64,
    lost: u64,
    damaged: u64,
    dropped: u64,
    delivered: u64,
    compressed: u64,
    bytes: u64,
    bytes_on_the_link: u64,
}

/// Sends `packets` over a link that loses bursts of them, damages one in fifty if `noisy`, and whose ends forget everything now and
/// then; fails if anybody is given what was not sent.
fn storm(seed: u64, packets: u64, noisy: bool) -> Tally {
    let mut rng = ChaCha8Rng::seed_from_u64(!seed);
    let mut talk = Talk::new(seed);
    let mut ends = [HeaderCodec::new(MTU), HeaderCodec::new(MTU)];
    let mut under_way: [VecDeque<(Bytes, Bytes)>; 2] = Default::default();
    let mut waiting: VecDeque<Bytes> = VecDeque::new();
    let mut tally = Tally::default();
    let mut fade = 0;
    while tally.sent < packets {
        // Calls leave the client, end 0; replies the server, end 1.
        let from = usize::from(!waiting.is_empty() && below(&mut rng, 2) == 0);
        let packet = match from {
            0 => talk.call(),
            _ => waiting.pop_front().expect("checked"),
        };
        let packed = ends[from].compress(packet.clone());
        tally.sent += 1;
        tally.bytes += packet.len() as u64;
        tally.bytes_on_the_link += packed.len() as u64;
        tally.compressed += u64::from(packed[0] & COMPRESSED != 0 || packed.len() < packet.len());
        if below(&mut rng, 300) == 0 {
            fade = below(&mut rng, 120);
        }
        if fade > 0 {
            fade -= 1;
            tally.lost += 1;
        } else if noisy && below(&mut rng, 50) == 0 {
            tally.damaged += 1;
            under_way[from].push_back((damage(&mut rng, &packed), packet));
        } else {
            under_way[from].push_back((packed, packet));
        }
        let to = below(&mut rng, 2) as usize;
        for _ in 0..below(&mut rng, 6) {
            let Some((packed, packet)) = under_way[1 - to].pop_front() else { break };
            let Ok(restored) = ends[to].decompress(packed) else {
                tally.dropped += 1;
                continue;
            };
            let Some(seen) = seen(&restored) else {
                tally.dropped += 1;
                continue;
            };
            assert_eq!(Some(seen), self::seen(&packet), "seed {seed}, packet {}", tally.sent);
            tally.delivered += 1;
            if to == 1 {
                waiting.extend(talk.reply(&restored));
            }
        }
        if noisy && below(&mut rng, 20_000) == 0 {
            ends[below(&mut rng, 2) as usize] = HeaderCodec::new(MTU);
        }
    }
    tally
}

#[test]
fn loss_alone_makes_nothing_unreadable() {
    for seed in 0..4 {
        let tally = storm(seed, 20_000, false);
        assert_eq!(tally.dropped, 0, "{tally:?}");
        assert!(tally.lost > 1000 && tally.compressed * 100 > tally.sent * 90, "{tally:?}");
    }
}

#[test]
fn loss_damage_and_forgetting_deliver_no_wrong_packet() {
    for seed in 0..4 {
        let tally = storm(seed, 30_000, true);
        // What is damaged is lost, and little else: the ends find together again.
        assert!(tally.damaged > 400 && tally.dropped < 3 * tally.damaged, "{tally:?}");
        assert!(tally.compressed * 100 > tally.sent * 80, "{tally:?}");
    }
}

/// `cargo test --release -p linkemu ten_million -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes"]
fn ten_million_packets_deliver_no_wrong_one() {
    let seed = std::env::var("NFSW_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("seed {seed}: {:?}", storm(seed, 10_000_000, true));
}

/// The client of a server that has forgotten everything, and hears nothing: its retransmissions are understood.
#[test]
fn retransmissions_into_silence_bring_the_ends_together() {
    let mut talk = Talk::new(1);
    let (mut client, mut server) = (HeaderCodec::new(MTU), HeaderCodec::new(MTU));
    for _ in 0..200 {
        let call = client.compress(talk.call());
        let call = server.decompress(call).expect("nothing was lost");
        if let Some(reply) = talk.reply(&call) {
            let reply = server.compress(reply);
            client.decompress(reply).expect("nothing was lost");
        }
    }
    server = HeaderCodec::new(MTU);
    let call = std::iter::repeat_with(|| talk.call())
        .find(|call| client.compress(call.clone()).len() < call.len())
        .expect("a call that was compressed");
    let attempts = (1..=5).find(|_| server.decompress(client.compress(call.clone())) == Ok(call.clone()));
    assert!(attempts.is_some_and(|attempts| attempts > 1), "{attempts:?}");
}

#[test]
fn a_read_in_sequence_takes_six_bytes() {
    let mut client = HeaderCodec::new(MTU);
    let mut server = HeaderCodec::new(MTU);
    let mut lengths = Vec::new();
    for block in 0..60_u32 {
        let mut message = Vec::new();
        words(
            &mut message,
            &[9 + block, 0, 2, 100_003, 3, READ, 0, 0, 0, 0, 4, 0xf11e, 0, block * 1024, 1024],
        );
        let call: Bytes = packet::udp(CLIENT, SERVER, 5 + block as u16, &message).into();
        let packed = client.compress(call.clone());
        lengths.push(packed.len());
        assert_eq!(server.decompress(packed), Ok(call));
        let mut message = Vec::new();
        words(&mut message, &[9 + block, 1, 0, 0, 0, 0, 0, 0, 1024, 0, 1024]);
        message.extend_from_slice(&[7; 1024]);
        let reply: Bytes = packet::udp(SERVER, CLIENT, 900 + block as u16, &message).into();
        let packed = server.compress(reply.clone());
        lengths.push(packed.len());
        assert_eq!(client.decompress(packed), Ok(reply));
    }
    assert_eq!(lengths[..2], [88, 72 + 1024 + 3], "with answers once there are any");
    assert_eq!(lengths[40..42], [6, 6 + 1024]);
    assert_eq!(*lengths.iter().min().unwrap(), LEAST_HEADER_BYTES as usize);
}

#[test]
fn what_is_not_udp_over_ipv4_passes_unchanged() {
    let mut here = HeaderCodec::new(MTU);
    let mut there = HeaderCodec::new(MTU);
    let whole = packet::udp(CLIENT, SERVER, 1, &[1; 4000]);
    let fragment = packet::fragment(&whole, 1500, 1, 3);
    let mut without_checksum = packet::udp(CLIENT, SERVER, 1, &[1; 40]);
    without_checksum[26..28].fill(0);
    let mut six = vec![0x60];
    six.resize(60, 9);
    for packet in [fragment, without_checksum, six] {
        let packet = Bytes::from(packet);
        for _ in 0..3 {
            let packed = here.compress(packet.clone());
            assert_eq!(packed, packet);
            assert_eq!(there.decompress(packed), Ok(packet.clone()));
        }
    }
}

#[test]
fn arbitrary_bytes_are_refused_without_a_panic() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut end = HeaderCodec::new(MTU);
    for _ in 0..100_000 {
        let length = below(&mut rng, 120) as usize;
        let packet = Bytes::from(bytes(&mut rng, length));
        if let Ok(restored) = end.decompress(packet.clone()) {
            assert!(packet.ends_with(&restored), "only what is not compressed can pass");
        }
    }
}
