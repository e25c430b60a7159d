//! What is looked at again and again is asked for before anybody waits for it, and a silent server is found out meanwhile.

use std::time::{Duration, Instant};

use crate::model::{self, calm::World};
use nfs_cache::{Answer, Cache, CacheConfig, CallId, Event, MemoryStore, NodeId, Outcome};
use nfs_wire::Procedure;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

const STEP: Duration = Duration::from_millis(50);

fn world() -> World<MemoryStore> {
    World::new(CacheConfig::default(), MemoryStore::default())
}

/// Lists the root without making a call; whether that has an answer at once.
fn lists_at_once(world: &mut World<MemoryStore>) -> bool {
    let begun = world.cache.list(world.now, NodeId::ROOT);
    let events: Vec<Event> = std::iter::from_fn(|| world.cache.poll_event()).collect();
    let is_done = |event: &Event| matches!(event, Event::Done { operation, result: Ok(Answer::Listing(_)) } if *operation == begun);
    let is_done = events.iter().any(is_done);
    if !is_done {
        world.cache.abandon(world.now, begun);
    }
    is_done
}

fn pass(world: &mut World<MemoryStore>) {
    world.now += STEP;
    world.cache.handle_timeout(world.now);
}

#[test]
fn who_lists_again_and_again_never_waits() {
    let mut world = world();
    let first = world.run_at_once(|cache, now| cache.list(now, NodeId::ROOT));
    assert!(matches!(first, Ok(Answer::Listing(_))), "{first:?}");
    let mut calls = 0;
    for step in 0..600 {
        pass(&mut world);
        assert!(step == 0 || lists_at_once(&mut world), "step {step}");
        let before = world.cache.stats().calls;
        world.call();
        calls += world.cache.stats().calls - before;
    }
    // Half a minute: a listing of three pages every 1.5 s at most.
    assert!((3..=3 * 20).contains(&calls), "{calls} calls");
}

#[test]
fn a_server_that_does_not_respond_is_found_out_before_anybody_waits_for_it() {
    let mut world = world();
    assert!(world.run_at_once(|cache, now| cache.attributes(now, NodeId::ROOT)).is_ok());
    let listed = world.run_at_once(|cache, now| cache.list(now, NodeId::ROOT));
    assert!(matches!(listed, Ok(Answer::Listing(_))), "{listed:?}");
    // Its calls are neither answered nor given up.
    let mut calls = Vec::new();
    for step in 0..400 {
        pass(&mut world);
        // `ls` asks for the directory's attributes first.
        world.cache.attributes(world.now, NodeId::ROOT);
        assert!(step == 0 || lists_at_once(&mut world), "step {step}");
        calls.extend(std::iter::from_fn(|| world.cache.poll_transmit(world.now)));
    }
    assert!(!world.cache.is_connected());
}

/// Lets eight seconds pass while the server is silent; returns the calls that ask for the root, with their times.
fn probes(cache: &mut Cache<MemoryStore>, now: &mut Instant) -> Vec<(Duration, CallId)> {
    let begun = *now;
    let mut asked = Vec::new();
    let mut cancelled = 0;
    while *now < begun + Duration::from_secs(8) {
        while cache.poll_cancel().is_some() {
            cancelled += 1;
        }
        while let Some(sent) = cache.poll_transmit(*now) {
            if sent.procedure == Procedure::Getattr {
                asked.push((*now - begun, sent.call));
            }
        }
        *now += Duration::from_millis(10);
        cache.handle_timeout(*now);
    }
    assert!(cancelled > 20, "what was lost is not sent again: {cancelled}");
    asked
}

#[test]
fn while_somebody_waits_a_server_that_does_not_respond_is_asked_five_times_a_second() {
    let mut world = world();
    world.cache.lookup(world.now, NodeId::ROOT, b"unknown");
    let mut now = world.now;
    let probes = probes(&mut world.cache, &mut now);
    let late = probes.iter().filter(|(at, _)| *at > Duration::from_secs(2)).count();
    assert!((25..=31).contains(&late), "{late} in six seconds");
    // The latest one is answered: the others are not needed any more.
    let (_, last) = *probes.last().expect("many");
    let metadata = world.server.attributes(model::ROOT).expect("the root");
    let mut results = vec![0; 4];
    nfs_wire::encode(&mut results, &metadata);
    world.cache.handle_reply(now, last, Outcome::Results(results.into()));
    assert!(world.cache.is_connected());
    let cancelled = std::iter::from_fn(|| world.cache.poll_cancel()).count();
    assert!(cancelled > 0, "probes in flight are cancelled");
}

#[test]
fn a_listing_that_took_longer_than_it_is_good_for_is_still_used() {
    let mut config = CacheConfig::default();
    config.refresh = Duration::ZERO;
    let mut world = World::new(config, MemoryStore::default());
    let listing = world.cache.list(world.now, NodeId::ROOT);
    // Three seconds a page.
    for _ in 0..3 {
        let sent = world.cache.poll_transmit(world.now).expect("a page");
        world.now += Duration::from_secs(3);
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let results = world.server.answer(Duration::ZERO, &mut random, sent.procedure, &sent.arguments);
        world.cache.handle_reply(world.now, sent.call, Outcome::Results(results));
    }
    let is_done = std::iter::from_fn(|| world.cache.poll_event())
        .any(|event| matches!(event, Event::Done { operation, result: Ok(_) } if operation == listing));
    assert!(is_done);
    let calls = world.cache.stats().calls;
    for name in model::NAMES {
        let found = world.run_at_once(|cache, now| cache.lookup(now, NodeId::ROOT, name.as_bytes()));
        assert!(matches!(found, Ok(Answer::Entry { .. })), "{found:?}");
    }
    assert_eq!(world.cache.stats().calls, calls);
}
