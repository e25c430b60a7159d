//! After the end nothing is shown any more, of what is held neither.

use std::time::Duration;

use nfs_cache::{CacheConfig, Event, Failure, MemoryStore, NodeId, Outcome};

use crate::model::{NAMES, calm::World};

#[test]
fn everything_fails_after_the_end_and_nothing_is_asked() {
    let mut world = World::new(CacheConfig::default(), MemoryStore::default());
    let file = world.node(NAMES[0]);
    assert!(world.read(file).is_ok());
    assert!(world.cache.nodes().any(|node| node == file));
    let opening = world.cache.open(world.now, file);
    let call = world.cache.poll_transmit(world.now).expect("it asks whether it is the same");
    while world.cache.poll_event().is_some() {}
    world.cache.end(world.now);
    assert_eq!(world.cache.poll_event(), Some(Event::Ended));
    let stale = |operation| Some(Event::Done { operation, result: Err(Failure::Stale) });
    assert_eq!(world.cache.poll_event(), stale(opening), "it waited");
    assert!(world.cache.nodes().any(|node| node == file), "the kernel is to forget it");
    assert!(world.cache.state(world.now, file).is_none());
    for _ in 0..3 {
        let asked = [
            world.cache.attributes(world.now, file),
            world.cache.lookup(world.now, NodeId::ROOT, NAMES[0].as_bytes()),
            world.cache.list(world.now, NodeId::ROOT),
            world.cache.open(world.now, file),
        ];
        for operation in asked {
            assert_eq!(world.cache.poll_event(), stale(operation));
        }
        // Neither a late reply, nor a change of the network, nor time brings it back.
        let reply = world.answer(&call);
        world.cache.handle_reply(world.now, call.call, reply);
        world.cache.handle_reply(world.now, call.call, Outcome::NotAsked);
        world.cache.path_changed(world.now);
        world.now += Duration::from_secs(60);
        world.cache.handle_timeout(world.now);
        assert!(world.cache.poll_transmit(world.now).is_none());
        assert!(world.cache.poll_timeout().is_none_or(|at| at > world.now), "it spins");
        world.cache.end(world.now);
        assert_eq!(world.cache.poll_event(), None);
    }
}
