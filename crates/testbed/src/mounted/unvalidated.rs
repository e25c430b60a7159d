//! A program that reads a file in a mount, over UDP from an address that the server has not validated.

use linkemu::{BitRate, LinkConfig, Simulation, Station};
use nfs_cache::OpenId;
use nfs_wire::portmap::Protocol;

use super::{
    mobile::{Machine, front, plan},
    *,
};
use crate::{
    Room,
    address::SERVER,
    server::{ServerHost, pattern},
};

/// As the kernel asks for it.
const CHUNK_BYTES: u32 = 128 << 10;

/// `cat`: one READ of the kernel after the other.
#[derive(Debug)]
struct Reader {
    front: Front,
    began: Instant,
    waits_for: Option<OperationId>,
    open: Option<OpenId>,
    contents: Vec<u8>,
    ended: Option<Instant>,
    /// How often the server did not respond, as far as the mount could tell.
    disconnections: u32,
}

impl User for Reader {
    fn front(&self) -> &Front {
        &self.front
    }

    fn front_mut(&mut self) -> &mut Front {
        &mut self.front
    }

    fn waits_for(&self) -> Option<OperationId> {
        self.waits_for
    }

    fn starts(&self) -> Option<Instant> {
        self.waits_for.is_none().then_some(self.began)
    }

    fn begin(&mut self, now: Instant) {
        if self.waits_for.is_none() {
            self.waits_for = Some(self.front.cache.lookup(now, NodeId::ROOT, b"file"));
        }
    }

    fn notice(&mut self, event: &Event) {
        self.disconnections += u32::from(*event == Event::Disconnected);
    }

    fn go_on(&mut self, now: Instant, result: Result<Answer, Failure>) {
        let cache = &mut self.front.cache;
        let next = match (result.expect("a link without outages"), self.open) {
            (Answer::Entry { node, .. }, _) => cache.open(now, node),
            (Answer::Opened { open, .. }, _) => {
                self.open = Some(open);
                cache.read(now, open, 0, CHUNK_BYTES)
            }
            (Answer::Data(pieces), Some(open)) if !pieces.is_empty() => {
                pieces.iter().for_each(|piece| self.contents.extend_from_slice(piece));
                cache.read(now, open, self.contents.len() as u64, CHUNK_BYTES)
            }
            (answer, _) => {
                assert!(matches!(answer, Answer::Data(_)), "{answer:?}");
                self.ended = Some(now);
                return;
            }
        };
        self.waits_for = Some(next);
    }
}

/// Bytes of the file.
const FILE_BYTES: u64 = 300_000;

/// 20 Mbit/s, and a round trip of so long.
fn room(round_trip: Duration, validates_addresses: bool) -> Room {
    let mut room = Room::named("wired-10").expect("a room");
    let mut link = LinkConfig::default();
    (link.rate, link.delay) = (BitRate::megabits(20).into(), round_trip / 2);
    room.link = link;
    room.server.validates_addresses = validates_addresses;
    room
}

/// How long the file takes to read, and how often the server seemed not to respond meanwhile.
fn read_file(room: Room, seed: u64) -> (Duration, u32) {
    let plan = plan(room);
    let mut world = Simulation::new(plan.room.link.clone(), 1, seed).expect("a link");
    let epoch = world.now();
    let mut server = ServerHost::new(&plan.room.server, Vec::new(), seed, epoch).expect("a server");
    let (_, root) = server.place(epoch, "file", FILE_BYTES);
    let metadata = server.attributes(epoch, root);
    world.attach(SERVER.station, Machine::Server(Box::new(server)));
    let cache = Cache::new(CacheConfig::default(), epoch, root, metadata, MemoryStore::default());
    let reader = Reader {
        front: front(&plan, Protocol::Udp, seed, cache, epoch),
        began: epoch,
        waits_for: None,
        open: None,
        contents: Vec::new(),
        ended: None,
        disconnections: 0,
    };
    world.attach(Station::Mobile(0), Machine::User(Box::new(reader)));
    world.run_while(Duration::from_secs(600), |world| match world.node(Station::Mobile(0)) {
        Some(Machine::User(reader)) => reader.ended.is_none(),
        _ => false,
    });
    let Some(Machine::User(reader)) = world.node(Station::Mobile(0)) else { panic!("it was attached") };
    let mut expected = vec![0; FILE_BYTES as usize];
    pattern(0, &mut expected);
    assert!(reader.contents == expected, "{} bytes", reader.contents.len());
    (reader.ended.expect("all was read") - epoch, reader.disconnections)
}

#[test]
fn a_server_that_does_not_know_the_address_costs_a_reader_a_few_round_trips() {
    for round_trip in [2, 40, 300, 600].map(Duration::from_millis) {
        for seed in 0..4 {
            let (known, _) = read_file(room(round_trip, false), seed);
            let (took, disconnections) = read_file(room(round_trip, true), seed);
            let most = known + 7 * round_trip + Duration::from_millis(50);
            assert!(took <= most, "{round_trip:?}: {took:?}, and {known:?} from a known address");
            assert!(took >= known + 2 * round_trip, "{round_trip:?}: {took:?} is no test");
            assert_eq!(disconnections, 0, "{round_trip:?}");
        }
    }
}
