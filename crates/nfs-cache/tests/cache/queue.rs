//! A call that waits in a queue, and one that the server passes over.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use nfs_cache::{Answer, CacheConfig, CallId, Event, Failure, MemoryStore, NodeId, OperationId, Outcome};
use nfs_wire::Status;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use crate::model::calm::World;

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(400);

/// The question that is watched.
const WATCHED: u32 = 30;

/// Asks for one name after the other, each answered after `delay` of its number. Returns what the watched one comes to, and how long that
/// takes.
fn watched(delay: impl Fn(u32) -> Option<Duration>) -> (Duration, Result<Answer, Failure>) {
    let mut world = World::new(CacheConfig::default(), MemoryStore::default());
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut replies: VecDeque<(_, CallId, Outcome)> = VecDeque::new();
    let mut watched: Option<(Instant, OperationId)> = None;
    for number in 0..5 * WATCHED {
        let name = format!("absent {number}");
        let begun = world.cache.lookup(world.now, NodeId::ROOT, name.as_bytes());
        if number == WATCHED {
            watched = Some((world.now, begun));
        }
        let end = world.now + PAUSE;
        while world.now < end {
            while let Some(sent) = world.cache.poll_transmit(world.now) {
                let results =
                    world.server.answer(Duration::ZERO, &mut random, sent.procedure, &sent.arguments);
                if let Some(delay) = delay(number) {
                    replies.push_back((world.now + delay, sent.call, Outcome::Results(results)));
                }
            }
            while let Some(event) = world.cache.poll_event() {
                if let (Event::Done { operation, result }, Some((begun, watched))) = (event, watched)
                    && operation == watched
                {
                    return (world.now - begun, result);
                }
            }
            let due = world.cache.poll_timeout().filter(|&at| at > world.now);
            let reply = replies.front().map(|&(at, ..)| at);
            world.now = due.into_iter().chain(reply).chain([end]).min().unwrap_or(end);
            while replies.front().is_some_and(|&(at, ..)| at <= world.now) {
                let (_, call, outcome) = replies.pop_front().expect("there is one");
                world.cache.handle_reply(world.now, call, outcome);
            }
            world.cache.handle_timeout(world.now);
        }
    }
    panic!("the operation does not end");
}

#[test]
fn what_is_late_because_of_a_queue_is_waited_for() {
    let (took, result) = watched(|number| Some(number * PAUSE));
    assert_eq!((took, result), (WATCHED * PAUSE, Err(Failure::Status(Status::NOENT))));
    assert!(took > CacheConfig::default().wait);
}

#[test]
fn what_the_server_passes_over_is_not_waited_for() {
    let delay = Duration::from_millis(100);
    let (took, result) = watched(|number| (number != WATCHED).then_some(delay));
    assert_eq!((took, result), (CacheConfig::default().wait + delay, Err(Failure::Unreachable)));
}
