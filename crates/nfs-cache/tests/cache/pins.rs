//! What is pinned stays when room is made.

use nfs_cache::{CacheConfig, MemoryStore};

use crate::model::{NAMES, calm::World};

#[test]
fn pinned_data_stays_until_it_is_unpinned() {
    let mut config = CacheConfig::default();
    config.size_bytes = 250_000;
    let mut world = World::new(config, MemoryStore::default());
    let nodes = NAMES.map(|name| world.node(name));
    world.cache.pin(nodes[0], true);
    for node in nodes {
        world.read(node).unwrap();
    }
    assert_eq!(world.held(nodes[0]), 100_000);
    assert!(world.held(nodes[1]) < 100_000, "something had to go");
    world.cache.pin(nodes[0], false);
    for node in [nodes[3], nodes[4]] {
        world.read(node).unwrap();
    }
    assert_eq!(world.held(nodes[0]), 0);
}

#[test]
fn a_pinned_object_is_not_forgotten() {
    let mut config = CacheConfig::default();
    config.objects = 3;
    let mut world = World::new(config, MemoryStore::default());
    let pinned = world.node(NAMES[0]);
    world.cache.pin(pinned, true);
    world.cache.forget(pinned, 1);
    for name in &NAMES[1..] {
        let node = world.node(name);
        world.cache.forget(node, 1);
    }
    assert!(world.cache.state(world.now, pinned).is_some());
    world.cache.pin(pinned, false);
    for name in &NAMES[1..] {
        world.cache.forget(pinned, 1);
        let node = world.node(name);
        world.cache.forget(node, 1);
    }
    assert!(world.cache.state(world.now, pinned).is_none());
}
