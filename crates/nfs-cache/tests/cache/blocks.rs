//! How much a READ asks for.

use std::{collections::VecDeque, ops::Range, time::Duration};

use crate::model::calm::{SIZE, World};
use nfs_cache::{Answer, CacheConfig, Event, GRAIN_BYTES, MemoryStore, Outcome, Transmit};
use nfs_wire::{Procedure, Reader, call, encode, nfs3_types::nfs3::READ3args};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

/// The bytes that a READ asks for.
fn range(transmit: &Transmit) -> Range<u64> {
    assert_eq!(transmit.procedure, Procedure::Read);
    let READ3args { offset, count, .. } = call::decode(Reader::new(&transmit.arguments)).unwrap();
    offset..offset + u64::from(count)
}

#[test]
fn no_byte_is_asked_for_twice_while_blocks_grow() {
    let mut world = World::new(CacheConfig::default(), MemoryStore::default());
    let node = world.node("a");
    let Ok(Answer::Opened { open, .. }) = world.run(|cache, now| cache.open(now, node)) else {
        panic!("not opened")
    };
    world.cache.set_read_block(4096);
    let now = world.now;
    let reads = [0, 50_000].map(|offset| world.cache.read(now, open, offset, SIZE as u32));
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let (mut under_way, mut asked, mut done) = (VecDeque::new(), Vec::new(), 0);
    for block in [4096, 8192, 16_384].into_iter().cycle() {
        world.cache.set_read_block(block);
        while let Some(transmit) = world.cache.poll_transmit(now) {
            asked.push(range(&transmit));
            under_way.push_back(transmit);
        }
        let Some(transmit) = under_way.pop_front() else { break };
        let results =
            world.server.answer(Duration::ZERO, &mut random, transmit.procedure, &transmit.arguments);
        world.cache.handle_reply(now, transmit.call, Outcome::Results(results));
        while let Some(event) = world.cache.poll_event() {
            done += usize::from(matches!(event, Event::Done { result: Ok(Answer::Data(_)), .. }));
        }
    }
    assert_eq!(done, reads.len());
    // This server sometimes answers with less than was asked for, and the rest is asked for again.
    assert!(asked.len() >= 9 && asked.iter().all(|range| range.end - range.start <= 4096), "{asked:?}");
    asked.sort_by_key(|range| range.start);
    assert!(asked.windows(2).all(|pair| pair[0].start < pair[1].start), "{asked:?}");
}

#[test]
fn while_the_server_answers_in_parts_an_operation_asks_for_one_at_a_time() {
    let mut world = World::new(CacheConfig::default(), MemoryStore::default());
    let (first, count) = (GRAIN_BYTES, 2 * GRAIN_BYTES as u32);
    let opens = [("d", 8), ("e", 9)].map(|(name, file)| {
        world.server.put(Duration::ZERO, name, file, vec![file as u8; 5 * GRAIN_BYTES as usize]);
        let node = world.node(name);
        match world.run(|cache, now| cache.open(now, node)) {
            Ok(Answer::Opened { open, .. }) => open,
            other => panic!("{other:?}"),
        }
    });
    let now = world.now;
    let asked = |world: &mut World<_>| {
        let asked: Vec<Transmit> = std::iter::from_fn(|| world.cache.poll_transmit(now)).collect();
        asked
    };
    // A server that does not know whether it sends to the right address.
    let answer = |world: &mut World<_>, transmit: &Transmit, most: u32| {
        let mut arguments: READ3args = call::decode(Reader::new(&transmit.arguments)).unwrap();
        arguments.count = arguments.count.min(most);
        let mut shorter = transmit.clone();
        shorter.arguments.clear();
        encode(&mut shorter.arguments, &arguments);
        let outcome = world.answer(&shorter);
        world.cache.handle_reply(now, transmit.call, outcome);
    };
    world.cache.read(now, opens[0], first, count);
    let mut under_way = VecDeque::from(asked(&mut world));
    assert!(under_way.len() > 20, "nothing is known of the server");
    for _ in 0..5 {
        let before = range(&under_way[0]);
        answer(&mut world, &under_way.pop_front().unwrap(), 100);
        let rest = asked(&mut world);
        assert_eq!(rest.len(), 1);
        let after = range(&rest[0]);
        assert!(before.start < after.start && after.end == before.end, "{before:?} {after:?}");
        under_way.push_front(rest[0].clone());
    }
    world.cache.read(now, opens[1], first, count);
    let other = asked(&mut world);
    assert_eq!((other.len(), range(&other[0])), (1, first..first + 4096));
    under_way.extend(other);
    // It knows now.
    let mut done = 0;
    while let Some(transmit) = under_way.pop_front() {
        answer(&mut world, &transmit, u32::MAX);
        under_way.extend(asked(&mut world));
        while let Some(event) = world.cache.poll_event() {
            done += usize::from(matches!(event, Event::Done { result: Ok(Answer::Data(_)), .. }));
        }
    }
    assert_eq!(done, 2);
}
