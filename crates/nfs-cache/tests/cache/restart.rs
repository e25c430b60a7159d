//! What a lasting store gives to the next cache.

use std::{cell::RefCell, rc::Rc, time::Duration};

use nfs_cache::{Answer, Cache, CacheConfig, Event, Failure, NodeId};
use nfs_wire::Status;

use crate::model::{
    NAMES, ROOT, Server,
    calm::{SIZE, World, server},
    disk::{Disk, Platter},
};

type OnDisk = World<Disk>;

const WALL: Duration = Duration::from_secs(1_700_000_100);

/// A cache that has listed the root and read the first two files, and has ended since.
fn filled() -> (Rc<RefCell<Platter>>, OnDisk) {
    let platter = Rc::default();
    let mut world = World::new(CacheConfig::default(), Disk::on(&platter));
    world.run(|cache, now| cache.list(now, NodeId::ROOT)).unwrap();
    world.now += Duration::from_secs(10);
    for name in &NAMES[..2] {
        let node = world.node(name);
        world.read(node).unwrap();
    }
    world.cache.keep_all();
    assert_eq!(world.cache.next_keep(), None);
    (platter, world)
}

/// The next cache, of a server that does not respond.
fn disconnected(platter: &Rc<RefCell<Platter>>, server: Server, before: &OnDisk) -> OnDisk {
    let now = before.now + Duration::from_secs(1);
    let cache =
        Cache::disconnected(CacheConfig::default(), now, WALL, Server::handle(ROOT), Disk::on(platter))
            .unwrap();
    let mut world = World::with(cache, server, now);
    world.is_up = false;
    world
}

#[test]
fn names_attributes_and_data_are_there_at_once_and_stale() {
    let (platter, before) = filled();
    let mut world = disconnected(&platter, server(), &before);
    let begun = world.now;
    let Ok(Answer::Listing(entries)) = world.run(|cache, now| cache.list(now, NodeId::ROOT)) else {
        panic!("not listed")
    };
    assert_eq!(entries.iter().map(|entry| &entry.name[..]).collect::<Vec<_>>(), NAMES.map(str::as_bytes));
    for (name, file) in NAMES[..2].iter().zip(ROOT + 1..) {
        let node = world.node(name);
        assert_eq!(world.held(node), SIZE);
        assert!(!world.cache.state(world.now, node).unwrap().fresh);
        assert_eq!(world.read(node).unwrap(), vec![file as u8; SIZE as usize]);
    }
    let absent = world.run(|cache, now| cache.lookup(now, NodeId::ROOT, b"absent"));
    assert_eq!(absent, Err(Failure::Status(Status::NOENT)));
    assert_eq!(world.now, begun, "nobody waited");
    let other = world.node(NAMES[2]);
    assert_eq!((world.held(other), world.read(other)), (0, Err(Failure::Unreachable)));
}

#[test]
fn what_is_not_kept_is_not_shown() {
    let (platter, before) = filled();
    let nothing = Rc::default();
    let of = |platter, root| {
        Cache::disconnected(CacheConfig::default(), before.now, WALL, Server::handle(root), Disk::on(platter))
    };
    assert!(of(&nothing, ROOT).is_none());
    assert!(of(&platter, ROOT + 1).is_none(), "a root that is another");
    assert!(of(&platter, ROOT).is_some());
}

#[test]
fn what_the_server_says_counts_again_when_it_responds() {
    let (platter, before) = filled();
    let mut changed = server();
    let newer = Duration::from_secs(5);
    changed.put(newer, NAMES[0], ROOT + 1, vec![99; SIZE as usize]);
    let mut world = disconnected(&platter, changed, &before);
    world.is_up = true;
    world.call();
    let node = world.node(NAMES[0]);
    assert!(world.cache.is_connected());
    assert_eq!(world.read(node).unwrap(), vec![99; SIZE as usize]);
    let calls = world.cache.stats().calls;
    let same = world.node(NAMES[1]);
    assert_eq!(world.read(same).unwrap(), vec![3; SIZE as usize]);
    assert!(world.cache.stats().calls - calls <= 2, "its data was held: it is asked about, and not read");
}

#[test]
fn another_server_is_not_believed() {
    let (platter, before) = filled();
    let mut other = server();
    other.fsid += 1;
    other.put(Duration::from_secs(5), NAMES[0], ROOT + 1, vec![99; SIZE as usize]);
    let mut world = disconnected(&platter, other, &before);
    world.is_up = true;
    world.call();
    let node = world.node(NAMES[0]);
    assert_eq!(world.read(node).unwrap(), vec![2; SIZE as usize]);
    let third = world.node(NAMES[2]);
    assert_eq!(world.read(third), Err(Failure::AnotherServer));
    assert!(!world.cache.is_connected());
    let told: Vec<Event> = std::iter::from_fn(|| world.cache.poll_event()).collect();
    assert!(!told.contains(&Event::Connected), "{told:?}");
}

#[test]
fn damaged_data_is_not_held() {
    let (platter, before) = filled();
    let mut random = rand_chacha::rand_core::SeedableRng::seed_from_u64(3);
    let mut lost = 0;
    for _ in 0..50 {
        platter.borrow_mut().damage(&mut random);
        let now = before.now;
        let root = Server::handle(ROOT);
        let Some(cache) = Cache::disconnected(CacheConfig::default(), now, WALL, root, Disk::on(&platter))
        else {
            break;
        };
        let mut world = World::with(cache, server(), now);
        world.is_up = false;
        for (name, file) in NAMES[..2].iter().zip(ROOT + 1..) {
            let node = world.node(name);
            match world.read(node) {
                Ok(data) => assert_eq!(data, vec![file as u8; SIZE as usize]),
                Err(failure) => {
                    assert_eq!(failure, Failure::Unreachable);
                    lost += 1;
                }
            }
        }
    }
    assert!(lost > 0);
}

#[test]
fn an_object_has_the_same_identity_in_every_cache() {
    let (platter, mut before) = filled();
    let identities = NAMES.map(|name| {
        let node = before.node(name);
        before.cache.identity(node).unwrap()
    });
    let mut world = disconnected(&platter, server(), &before);
    for (name, identity) in NAMES.into_iter().zip(&identities) {
        let node = world.cache.node_of(identity).unwrap();
        assert_eq!(node, world.node(name));
        assert_eq!(world.cache.known_at(name.as_bytes()), Some(node));
    }
    let mut changed = server();
    changed.put(Duration::from_secs(5), NAMES[0], ROOT + 1, vec![99; SIZE as usize]);
    let mut world = disconnected(&platter, changed, &before);
    world.is_up = true;
    world.call();
    world.node(NAMES[0]);
    assert_eq!(world.cache.node_of(&identities[0]), None, "its version is over");
    assert_eq!(world.cache.known_at(b"absent"), None);
}

#[test]
fn room_is_made_of_what_nobody_asked_for_first_and_never_of_what_is_pinned() {
    let (platter, mut before) = filled();
    let pinned = before.node(NAMES[0]);
    before.cache.pin(pinned, true);
    before.cache.keep_all();
    let mut config = CacheConfig::default();
    config.size_bytes = 3 * SIZE - 1;
    let now = before.now;
    let server = server();
    let cache = Cache::new(config, now, Server::handle(ROOT), server.metadata(ROOT), Disk::on(&platter));
    let mut world = World::with(cache, server, now);
    assert_eq!(world.cache.stats().held_bytes, 2 * SIZE);
    let third = world.node(NAMES[2]);
    world.read(third).unwrap();
    assert_eq!(world.held(third), SIZE);
    let first = world.node(NAMES[0]);
    let second = world.node(NAMES[1]);
    assert_eq!((world.held(first), world.held(second)), (SIZE, 0));
}
