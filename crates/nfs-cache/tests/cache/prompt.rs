//! What is not too old is given when the server is slow to confirm it.

use std::time::Duration;

use nfs_cache::{Answer, CacheConfig, Event, Failure, MemoryStore, NodeId, OperationId};

use crate::model::{NAMES, calm::World};

const PROMPT: Duration = Duration::from_millis(5);

fn world() -> World<MemoryStore> {
    let mut config = CacheConfig::default();
    config.prompt = PROMPT;
    let mut world = World::new(config, MemoryStore::default());
    assert_eq!(list(&mut world).len(), NAMES.len());
    world
}

/// Lists the directory, with answers that take no time.
fn list(world: &mut World<MemoryStore>) -> Vec<u64> {
    let now = world.now;
    let listing = world.cache.list(now, NodeId::ROOT);
    world.call();
    numbers(done(world, listing).unwrap())
}

/// Returns what an operation has come to.
fn done(world: &mut World<MemoryStore>, operation: OperationId) -> Option<Result<Answer, Failure>> {
    std::iter::from_fn(|| world.cache.poll_event()).find_map(|event| match event {
        Event::Done { operation: done, result } if done == operation => Some(result),
        _ => None,
    })
}

/// Returns the numbers of the files in a listing.
fn numbers(answer: Result<Answer, Failure>) -> Vec<u64> {
    match answer {
        Ok(Answer::Listing(entries)) => entries.iter().map(|entry| entry.fileid).collect(),
        other => panic!("{other:?}"),
    }
}

/// Lets time pass in which no call is answered; returns what an operation comes to.
fn wait(
    world: &mut World<MemoryStore>,
    operation: OperationId,
    time: Duration,
) -> Option<Result<Answer, Failure>> {
    let end = world.now + time;
    loop {
        if let Some(result) = done(world, operation) {
            return Some(result);
        }
        while world.cache.poll_transmit(world.now).is_some() {}
        let next = world.cache.poll_timeout().filter(|&at| at <= end)?;
        assert!(next > world.now, "it spins");
        world.now = next;
        world.cache.handle_timeout(next);
    }
}

#[test]
fn a_listing_is_given_after_5_ms_and_the_next_has_the_answer() {
    let mut world = world();
    world.now += Duration::from_secs(20);
    let (now, before) = (world.now, world.cache.stats().calls);
    world.server.put(Duration::from_secs(80), NAMES[0], 50, vec![1]);
    let listing = world.cache.list(now, NodeId::ROOT);
    assert!(world.cache.poll_event().is_none(), "it waits for the answer at first");
    // The call is not sent yet: whoever sends it is slow.
    world.now += PROMPT;
    let at = world.now;
    world.cache.handle_timeout(at);
    let given = done(&mut world, listing).expect("given after 5 ms");
    assert!(!numbers(given).contains(&50));
    world.call();
    assert!(world.cache.stats().calls > before, "the question goes on");
    assert!(list(&mut world).contains(&50));
    assert!(world.cache.is_connected());
}

#[test]
fn what_is_older_than_a_minute_is_waited_for() {
    let mut world = world();
    world.now += Duration::from_secs(61);
    let now = world.now;
    let listing = world.cache.list(now, NodeId::ROOT);
    assert!(wait(&mut world, listing, Duration::from_millis(900)).is_none());
    // Then the server counts as silent.
    assert_eq!(numbers(wait(&mut world, listing, Duration::from_secs(1)).unwrap()).len(), NAMES.len());
}

#[test]
fn a_name_that_is_not_there_is_confirmed_and_so_is_what_is_opened() {
    let mut world = world();
    let now = world.now;
    let lookup = world.cache.lookup(now, NodeId::ROOT, NAMES[0].as_bytes());
    let Some(Ok(Answer::Entry { node, .. })) = done(&mut world, lookup) else { panic!("not held") };
    world.now += Duration::from_secs(20);
    let now = world.now;
    let lookup = world.cache.lookup(now, NodeId::ROOT, b"absent");
    assert!(wait(&mut world, lookup, Duration::from_millis(900)).is_none());
    let now = world.now;
    let open = world.cache.open(now, node);
    assert!(wait(&mut world, open, Duration::from_millis(50)).is_none());
}

#[test]
fn names_from_before_a_change_that_was_shown_are_not_given_after_it() {
    for pause in [0, 20] {
        let mut world = world();
        world.now += Duration::from_secs(pause);
        let at = Duration::from_secs(60 + pause);
        world.server.put(at, NAMES[0], 50, vec![1]);
        world.now += Duration::from_secs(4);
        let now = world.now;
        let attributes = world.cache.attributes(now, NodeId::ROOT);
        world.call();
        assert!(matches!(done(&mut world, attributes), Some(Ok(Answer::Attributes(_)))));
        // Whoever has seen the new time of the directory must not be shown its old names under it.
        let now = world.now;
        let listing = world.cache.list(now, NodeId::ROOT);
        world.now += PROMPT;
        let at = world.now;
        world.cache.handle_timeout(at);
        assert!(done(&mut world, listing).is_none(), "{pause}");
        world.call();
        assert!(numbers(done(&mut world, listing).unwrap()).contains(&50));
    }
}
