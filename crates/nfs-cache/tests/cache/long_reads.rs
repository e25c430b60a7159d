//! READs that ask for several grains ahead of a reader.

use std::{collections::VecDeque, ops::Range, time::Duration};

use crate::model::{calm::World, seeds};
use nfs_cache::{Answer, CacheConfig, Event, GRAIN_BYTES, MemoryStore, Outcome, Transmit};
use nfs_wire::{Procedure, Reader, Status, call, encode, nfs3_types::nfs3::READ3args};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

const FILE: u64 = 9;

const FILE_BYTES: usize = 5_000_000;

/// Bytes that a kernel asks for at once.
const READ_BYTES: u32 = 128 << 10;

/// What the server does with a READ of several grains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Long {
    Answers,
    /// Brings the first bytes of it.
    Shortens,
    Refuses,
}

/// The bytes that a READ asks for.
fn range(transmit: &Transmit) -> Range<u64> {
    let READ3args { offset, count, .. } = call::decode(Reader::new(&transmit.arguments)).unwrap();
    offset..offset + u64::from(count)
}

fn packed(arguments: &READ3args) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes, arguments);
    bytes
}

/// Reads a file in order at a rate of the link; returns what READs have asked for.
fn asked(bytes_per_second: f64, long: Long) -> Vec<Range<u64>> {
    let mut random = ChaCha8Rng::seed_from_u64(seeds(1).start);
    let mut world = World::new(CacheConfig::default(), MemoryStore::default());
    let data: Vec<u8> = (0..FILE_BYTES).map(|at| (at / 7) as u8 ^ (at >> 12) as u8).collect();
    world.server.put(Duration::ZERO, "d", FILE, data.clone());
    world.cache.set_read_block(1 << 20);
    let node = world.node("d");
    let Ok(Answer::Opened { open, .. }) = world.run(|cache, now| cache.open(now, node)) else {
        panic!("not opened")
    };
    let (mut under_way, mut asked) = (VecDeque::new(), Vec::new());
    for offset in (0..FILE_BYTES).step_by(READ_BYTES as usize) {
        let read = world.cache.read(world.now, open, offset as u64, READ_BYTES);
        let found = loop {
            while let Some(transmit) = world.cache.poll_transmit(world.now) {
                asked.push(range(&transmit));
                under_way.push_back(transmit);
            }
            let mut events = std::iter::from_fn(|| world.cache.poll_event());
            if let Some(Event::Done { operation, result }) = events.next() {
                assert_eq!(operation, read);
                break result;
            }
            let transmit: Transmit = under_way.pop_front().expect("it waits for something");
            let READ3args { offset, count, file } = call::decode(Reader::new(&transmit.arguments)).unwrap();
            let is_long = u64::from(count) > GRAIN_BYTES;
            let arguments = match long {
                Long::Shortens if is_long => packed(&READ3args { file, offset, count: 50_000 }),
                Long::Answers | Long::Shortens | Long::Refuses => transmit.arguments.clone(),
            };
            let results = loop {
                let results = world.server.answer(Duration::ZERO, &mut random, Procedure::Read, &arguments);
                // This server sometimes answers with less than was asked for.
                let READ3args { count, .. } = call::decode(Reader::new(&arguments)).unwrap();
                if results.len() >= count as usize {
                    break results;
                }
            };
            let refusal = || Status::IO.code().to_be_bytes().into_iter().chain([0; 4]).collect::<Vec<u8>>();
            let results = if long == Long::Refuses && is_long { refusal().into() } else { results };
            world.now += Duration::from_secs_f64(results.len() as f64 / bytes_per_second);
            world.cache.handle_reply(world.now, transmit.call, Outcome::Results(results));
        };
        let Ok(Answer::Data(pieces)) = found else { panic!("at {offset}: {found:?}") };
        let end = FILE_BYTES.min(offset + READ_BYTES as usize);
        assert!(pieces.concat() == data[offset..end], "at {offset}");
    }
    asked
}

#[test]
fn long_reads_are_for_fast_links_and_for_servers_that_take_them() {
    let grains = |range: &Range<u64>| (range.end - range.start).div_ceil(GRAIN_BYTES);
    for (rate, long, longest, most_long) in [
        (1e9, Long::Answers, 4, 100),
        (20e6, Long::Answers, 3, 100),
        (12.5e6, Long::Answers, 1, 0),
        (75e3, Long::Answers, 1, 0),
        // Those that were under way when the first of them came back.
        (1e9, Long::Shortens, 4, 8),
        (1e9, Long::Refuses, 4, 8),
    ] {
        let mut asked = asked(rate, long);
        let (most, count) =
            (asked.iter().map(grains).max().unwrap(), asked.iter().filter(|it| grains(it) > 1).count());
        assert_eq!(most, longest, "{rate} {long:?}: {asked:?}");
        assert!(count <= most_long && (count > 0) == (longest > 1), "{rate} {long:?}: {asked:?}");
        if long == Long::Answers {
            // Every byte once.
            asked.sort_by_key(|range| range.start);
            assert!(asked.windows(2).all(|pair| pair[0].end == pair[1].start), "{rate}: {asked:?}");
            let few = FILE_BYTES as u64 / GRAIN_BYTES / longest + 16;
            assert!(asked.len() as u64 <= few, "{rate}: {} READs", asked.len());
        }
    }
}
