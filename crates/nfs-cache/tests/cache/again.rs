//! What was fetched so soon after a change that it proves nothing is fetched again when it does, in virtual time.

use std::time::Duration;

use crate::model::{
    ROOT,
    calm::{SIZE, World},
};
use nfs_cache::{Answer, CacheConfig, Failure, MemoryStore, NodeId};

/// By then a change that was just seen is long enough ago, and nobody has waited for a while.
const LATER: Duration = Duration::from_secs(3);

fn world(config: CacheConfig) -> World<MemoryStore> {
    World::new(config, MemoryStore::default())
}

/// What NFS clients ask before they use what they have read.
fn confirm(world: &mut World<MemoryStore>, node: NodeId) {
    let confirmed = world.run_at_once(|cache, now| cache.confirm(now, node, None));
    assert!(matches!(confirmed, Ok(Answer::Attributes(_))), "{confirmed:?}");
}

/// Lets time pass in which nobody asks for anything; how many calls were made.
fn pass(world: &mut World<MemoryStore>, time: Duration) -> u64 {
    let (calls, end) = (world.cache.stats().calls, world.now + time);
    loop {
        world.call();
        let next = world.cache.poll_timeout().filter(|&at| at <= end);
        let Some(at) = next else { break };
        assert!(at > world.now, "a timer does not end");
        world.now = at;
        world.cache.handle_timeout(at);
    }
    world.now = end;
    world.cache.stats().calls - calls
}

/// Finds a file and reads it, in no time.
fn read(world: &mut World<MemoryStore>, name: &str) -> (NodeId, Vec<u8>) {
    let found = world.run_at_once(|cache, now| cache.lookup(now, NodeId::ROOT, name.as_bytes()));
    let Ok(Answer::Entry { node, .. }) = found else { panic!("{found:?}") };
    let opened = world.run_at_once(|cache, now| cache.open(now, node));
    let Ok(Answer::Opened { open, .. }) = opened else { panic!("{opened:?}") };
    let read = world.run_at_once(|cache, now| cache.read(now, open, 0, SIZE as u32));
    let Ok(Answer::Data(pieces)) = read else { panic!("{read:?}") };
    world.cache.release(open);
    (node, pieces.concat())
}

fn read_then_confirm(world: &mut World<MemoryStore>, name: &str) -> NodeId {
    let (node, data) = read(world, name);
    assert_eq!(data.len() as u64, SIZE);
    world.now += Duration::from_millis(100);
    confirm(world, node);
    node
}

#[test]
fn what_proves_nothing_stays_until_its_replacement_is_there() {
    let mut world = world(CacheConfig::default());
    let node = read_then_confirm(&mut world, "a");
    assert_eq!(
        world.held(node),
        SIZE,
        "it may be of the version before, and the server may be gone in a moment"
    );
    assert_eq!(pass(&mut world, Duration::from_millis(1500)), 0, "it would prove nothing yet");
    assert!(pass(&mut world, LATER) > 0);
    assert_eq!(world.held(node), SIZE);
    assert_eq!(world.cache.stats().prefetched_bytes, 0, "somebody had asked for it");
    // It is proven: whoever opens the file now has it, and it is not fetched a third time.
    let calls = world.cache.stats().calls;
    assert_eq!(read(&mut world, "a"), (node, vec![ROOT as u8 + 1; SIZE as usize]));
    assert_eq!(world.cache.stats().calls, calls + 2, "name and version alone were asked for");
    assert_eq!(pass(&mut world, Duration::from_secs(600)), 0);
    world.is_up = false;
    assert_eq!(world.read(node), Ok(vec![ROOT as u8 + 1; SIZE as usize]));
}

#[test]
fn what_is_still_held_is_replaced_by_what_is_proven() {
    let mut world = world(CacheConfig::default());
    let (node, before) = read(&mut world, "a");
    // Another version, with the same times and size.
    assert_eq!(before, vec![ROOT as u8 + 1; SIZE as usize]);
    world.server.put(Duration::ZERO, "a", ROOT + 1, vec![9; SIZE as usize]);
    assert!(pass(&mut world, LATER) > 0);
    assert_eq!(world.held(node), SIZE);
    world.is_up = false;
    assert_eq!(world.read(node), Ok(vec![9; SIZE as usize]), "the one that stayed");
}

#[test]
fn what_has_changed_since_is_left_alone() {
    let mut world = world(CacheConfig::default());
    let node = read_then_confirm(&mut world, "a");
    world.server.put(Duration::from_secs(1), "a", ROOT + 1, vec![9; SIZE as usize]);
    let confirmed = world.run_at_once(|cache, now| cache.confirm(now, node, None));
    assert_eq!(confirmed, Err(Failure::Stale));
    assert_eq!(pass(&mut world, LATER), 0, "nobody has read the new version");
}

#[test]
fn while_somebody_asks_or_the_server_does_not_respond_nothing_is_fetched() {
    let mut world = world(CacheConfig::default());
    let node = read_then_confirm(&mut world, "a");
    // Another version, with the same times and size.
    world.server.put(Duration::ZERO, "a", ROOT + 1, vec![9; SIZE as usize]);
    for _ in 0..100 {
        world.now += Duration::from_millis(50);
        confirm(&mut world, node);
        world.call();
    }
    world.is_up = false;
    // The program finds out.
    let _ = world.run(|cache, now| cache.confirm(now, node, None));
    assert!(!world.cache.is_connected());
    pass(&mut world, LATER);
    assert_eq!(world.read(node), Ok(vec![ROOT as u8 + 1; SIZE as usize]), "what was read before");
    world.is_up = true;
    pass(&mut world, LATER);
    world.is_up = false;
    assert_eq!(world.read(node), Ok(vec![9; SIZE as usize]), "fetched again while nobody asked");
}

/// Nothing that was used makes room for it.
#[test]
fn it_takes_no_more_than_there_is_room_for() {
    let mut config = CacheConfig::default();
    config.size_bytes = 3 * SIZE;
    let mut world = world(config);
    let nodes: Vec<NodeId> =
        ["a", "b.jpg", "c.zip", "d"].into_iter().map(|name| read_then_confirm(&mut world, name)).collect();
    pass(&mut world, Duration::from_secs(60));
    let held: Vec<u64> = nodes.iter().map(|&node| world.held(node)).collect();
    assert!(held.iter().sum::<u64>() <= 3 * SIZE, "{held:?}");
    assert_eq!(held[3], SIZE, "the last one that was used: {held:?}");
}
