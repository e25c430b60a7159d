//! Which version of a file a reader is given, where replies and questions cross each other.

use std::time::Duration;

use crate::model::{
    ROOT,
    calm::{SIZE, World},
};
use nfs_cache::{Answer, CacheConfig, Event, Failure, MemoryStore, NodeId, OpenId, Outcome};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

fn node(world: &mut World<MemoryStore>, name: &str) -> NodeId {
    match world.run_at_once(|cache, now| cache.lookup(now, NodeId::ROOT, name.as_bytes())) {
        Ok(Answer::Entry { node, .. }) => node,
        other => panic!("{other:?}"),
    }
}

fn open(world: &mut World<MemoryStore>, node: NodeId) -> (OpenId, bool) {
    match world.run_at_once(|cache, now| cache.open(now, node)) {
        Ok(Answer::Opened { open, keep_cache, .. }) => (open, keep_cache),
        other => panic!("{other:?}"),
    }
}

fn world() -> World<MemoryStore> {
    World::new(CacheConfig::default(), MemoryStore::default())
}

#[test]
fn an_open_tells_that_pages_are_old_though_a_question_came_between() {
    let mut world = world();
    let node = node(&mut world, "a");
    // So soon after the change, what is read proves nothing.
    let (file, _) = open(&mut world, node);
    let read = world.run_at_once(|cache, now| cache.read(now, file, 0, SIZE as u32));
    assert!(matches!(read, Ok(Answer::Data(_))), "{read:?}");
    world.now += Duration::from_millis(100);
    let confirmed = world.run_at_once(|cache, now| cache.confirm(now, node, None));
    assert!(matches!(confirmed, Ok(Answer::Attributes(_))), "{confirmed:?}");
    assert!(!open(&mut world, node).1);
    world.now += Duration::from_secs(60);
    open(&mut world, node);
    let read = world.run_at_once(|cache, now| cache.read(now, file, 0, SIZE as u32));
    assert!(matches!(read, Ok(Answer::Data(_))), "{read:?}");
    let (last, keeps) = open(&mut world, node);
    assert!(!keeps, "nobody has used an open file since what was read is proven");
    let read = world.run_at_once(|cache, now| cache.read(now, last, 0, SIZE as u32));
    assert!(matches!(read, Ok(Answer::Data(_))), "{read:?}");
    assert!(open(&mut world, node).1, "a minute after the change it is proven");
}

/// READs in flight together are run in any order: an earlier one may show a later version.
#[test]
fn after_many_replies_of_a_later_version_the_read_has_that_one() {
    let mut world = world();
    world.server.put(Duration::ZERO, "b.jpg", ROOT + 2, vec![3; 200_000]);
    let file = node(&mut world, "b.jpg");
    let (open, _) = open(&mut world, file);
    let read = world.cache.read(world.now, open, 0, 200_000);
    let mut calls: Vec<_> = std::iter::from_fn(|| world.cache.poll_transmit(world.now)).collect();
    assert!(calls.len() > 10, "{} calls", calls.len());
    let mut random = ChaCha8Rng::seed_from_u64(1);
    // Before the change the server runs the last of them, and its reply is the first.
    let last = calls.pop().expect("many");
    let mut reply = |world: &mut World<MemoryStore>, call: &nfs_cache::Transmit| {
        let results = world.server.answer(Duration::ZERO, &mut random, call.procedure, &call.arguments);
        world.now += Duration::from_millis(1);
        world.cache.handle_reply(world.now, call.call, Outcome::Results(results));
    };
    reply(&mut world, &last);
    world.server.put(Duration::from_secs(10), "b.jpg", ROOT + 2, vec![9; 200_000]);
    for call in &calls {
        reply(&mut world, call);
    }
    let ended = std::iter::from_fn(|| world.cache.poll_event()).find_map(|event| match event {
        Event::Done { operation, result } if operation == read => Some(result),
        _ => None,
    });
    // It had given no byte of the earlier version, and reads the later one.
    assert_eq!(ended, None);
    world.call();
    let ended = std::iter::from_fn(|| world.cache.poll_event()).find_map(|event| match event {
        Event::Done { operation, result } if operation == read => Some(result),
        _ => None,
    });
    let Some(Ok(Answer::Data(pieces))) = ended else { panic!("it is not done") };
    assert!(pieces.concat() == vec![9; 200_000]);
    assert_eq!(world.node("b.jpg"), file);
}

/// A kernel that believes in a size reads pages up to it: what it gets too little of, it takes for the end of the file, or for a hole.
#[test]
fn a_file_that_has_shrunk_is_another_node_and_no_read_of_the_first_one_ends_early() {
    let mut world = world();
    let file = node(&mut world, "a");
    let (opened, _) = open(&mut world, file);
    world.server.put(Duration::from_secs(10), "a", ROOT + 1, vec![9; 1000]);
    // Its first bytes have come with the answer to the open.
    for offset in [65_536, SIZE / 2] {
        let read = world.run_at_once(|cache, now| cache.read(now, opened, offset, 65_536));
        assert!(matches!(read, Err(Failure::Stale)), "at {offset}");
    }
    let shorter = node(&mut world, "a");
    assert_ne!(shorter, file);
    let (opened, _) = open(&mut world, shorter);
    let read = world.run_at_once(|cache, now| cache.read(now, opened, 0, 65_536));
    let Ok(Answer::Data(pieces)) = read else { panic!("no data") };
    assert!(pieces.concat() == vec![9; 1000]);
}
