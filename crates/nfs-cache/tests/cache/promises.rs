//! What a user of a mount can rely on, one test each, in virtual time.

use std::time::Duration;

use crate::model::{
    ROOT,
    calm::{SIZE, World},
};
use nfs_cache::{Answer, CacheConfig, Event, Failure, MemoryStore, NodeId, OpenId};
use nfs_wire::{Procedure, Status};

const MS: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(24 * 3600);
const A: u64 = ROOT + 1;

fn world() -> World<MemoryStore> {
    World::new(CacheConfig::default(), MemoryStore::default())
}

fn bytes(number: u64) -> Vec<u8> {
    vec![number as u8; SIZE as usize]
}

fn open(world: &mut World<MemoryStore>, node: NodeId) -> (OpenId, bool) {
    match world.run(|cache, now| cache.open(now, node)) {
        Ok(Answer::Opened { open, keep_cache, .. }) => (open, keep_cache),
        other => panic!("{other:?}"),
    }
}

fn read(world: &mut World<MemoryStore>, open: OpenId, offset: u64, count: u32) -> Result<Vec<u8>, Failure> {
    match world.run(|cache, now| cache.read(now, open, offset, count))? {
        Answer::Data(pieces) => Ok(pieces.concat()),
        other => panic!("{other:?}"),
    }
}

fn lookup(world: &mut World<MemoryStore>, name: &str) -> Result<NodeId, Failure> {
    match world.run(|cache, now| cache.lookup(now, NodeId::ROOT, name.as_bytes()))? {
        Answer::Entry { node, .. } => Ok(node),
        other => panic!("{other:?}"),
    }
}

/// Lets time pass, with whatever the cache does meanwhile.
fn pass(world: &mut World<MemoryStore>, time: Duration) {
    let end = world.now + time;
    loop {
        world.call();
        let Some(at) = world.cache.poll_timeout().filter(|&at| at <= end) else { break };
        world.now = world.now.max(at);
        world.cache.handle_timeout(world.now);
    }
    world.now = end;
}

#[test]
fn what_was_read_and_opened_again_is_there_when_the_link_is_lost() {
    let mut world = world();
    let node = world.node("a");
    assert_eq!(world.read(node), Ok(bytes(A)));
    world.now += 100 * MS;
    let (file, _) = open(&mut world, node);
    world.is_up = false;
    assert_eq!(read(&mut world, file, 0, SIZE as u32), Ok(bytes(A)));
    assert_eq!(world.read(node), Ok(bytes(A)));
}

#[test]
fn a_file_that_has_not_changed_for_a_week_is_fetched_once() {
    let mut world = world();
    // The wall clock of this machine says that the server's files are old; the server has not stamped anything since.
    world.cache.set_wall_clock(world.now, Duration::from_secs(1_700_000_000) + 7 * DAY);
    let node = world.node("a");
    assert_eq!(world.read(node), Ok(bytes(A)));
    let reads = world.reads;
    for _ in 0..4 {
        world.now += 100 * MS;
        assert_eq!(world.read(node), Ok(bytes(A)));
    }
    assert_eq!(world.reads, reads);
}

#[test]
fn who_opens_at_the_same_moment_keeps_no_old_pages() {
    let mut world = world();
    let found = world.run_at_once(|cache, now| cache.lookup(now, NodeId::ROOT, b"a"));
    let Ok(Answer::Entry { node, .. }) = found else { panic!("{found:?}") };
    let opened = world.run_at_once(|cache, now| cache.open(now, node));
    let Ok(Answer::Opened { open, .. }) = opened else { panic!("{opened:?}") };
    let data = world.run_at_once(|cache, now| cache.read(now, open, 0, SIZE as u32));
    assert!(matches!(data, Ok(Answer::Data(_))));
    // Two versions of one size within one tick.
    world.server.put(Duration::ZERO, "a", A, bytes(9));
    world.now += 100 * MS;
    let begun: Vec<_> = (0..6).map(|_| world.cache.open(world.now, node)).collect();
    world.call();
    let mut opened = Vec::new();
    while let Some(event) = world.cache.poll_event() {
        if let Event::Done { operation, result: Ok(Answer::Opened { open, keep_cache, .. }) } = event {
            assert!(begun.contains(&operation));
            opened.push((open, keep_cache));
        }
    }
    assert_eq!(opened.len(), 6);
    for (open, keep_cache) in opened {
        assert!(!keep_cache);
        assert_eq!(read(&mut world, open, 0, SIZE as u32), Ok(bytes(9)));
    }
}

#[test]
fn changed_attributes_and_an_append_keep_the_version_that_is_open() {
    type Change = fn(&mut World<MemoryStore>);
    let cases: [(&str, Change, &[u8]); 2] = [
        ("chmod", |world| world.server.change_mode(Duration::from_secs(60), A), b""),
        (
            "append",
            |world| world.server.put(Duration::from_secs(60), "a", A, [bytes(A), vec![7; 5000]].concat()),
            &[7; 5000],
        ),
    ];
    for (what, change, more) in cases {
        let mut world = world();
        let node = world.node("a");
        let (file, _) = open(&mut world, node);
        assert_eq!(read(&mut world, file, 0, 1000), Ok(vec![A as u8; 1000]));
        change(&mut world);
        pass(&mut world, Duration::from_secs(5));
        let shown = world.run(|cache, now| cache.attributes(now, node));
        let Ok(Answer::Attributes(metadata)) = shown else { panic!("{shown:?}") };
        assert_eq!(metadata.size, SIZE + more.len() as u64, "{what}: the newest attributes");
        let all = [bytes(A), more.to_vec()].concat();
        assert_eq!(read(&mut world, file, 0, 1 << 20), Ok(all.clone()), "{what}");
        assert_eq!(lookup(&mut world, "a"), Ok(node), "{what}: it is the same file");
        world.is_up = false;
        assert_eq!(read(&mut world, file, 0, 1 << 20), Ok(all), "{what}");
    }
}

#[test]
fn after_changed_attributes_one_read_shows_that_the_bytes_are_the_same() {
    let mut world = world();
    world.cache.set_wall_clock(world.now, Duration::from_secs(1_700_000_000) + 7 * DAY);
    let node = world.node("a");
    assert_eq!(world.read(node), Ok(bytes(A)));
    let reads = world.reads;
    world.server.change_mode(7 * DAY, A);
    pass(&mut world, Duration::from_secs(5));
    assert_eq!(world.read(node), Ok(bytes(A)));
    assert!(world.reads - reads <= 65536 / 4096, "{} READs", world.reads - reads);
}

/// A container that is mounted elsewhere, or a program that restores times: all but one piece of it may have other bytes.
#[test]
fn a_file_that_was_changed_in_its_middle_and_has_its_old_times_is_read_again() {
    let mut world = world();
    world.cache.set_wall_clock(world.now, Duration::from_secs(1_700_000_000) + 7 * DAY);
    let node = world.node("a");
    assert_eq!(world.read(node), Ok(bytes(A)));
    let mut other = bytes(A);
    other[1000..2000].fill(9);
    world.server.overwrite(7 * DAY, A, other.clone());
    pass(&mut world, Duration::from_secs(5));
    let node = lookup(&mut world, "a").expect("it is there");
    assert_eq!(world.read(node), Ok(other));
}

#[test]
fn what_was_written_anew_and_is_longer_is_another_version() {
    let mut world = world();
    let node = world.node("a");
    let (file, _) = open(&mut world, node);
    assert_eq!(read(&mut world, file, 0, 1000), Ok(vec![A as u8; 1000]));
    let longer = vec![9; SIZE as usize + 70_000];
    world.server.put(Duration::from_secs(60), "a", A, longer.clone());
    pass(&mut world, Duration::from_secs(5));
    let shown = world.run(|cache, now| cache.attributes(now, node));
    assert!(matches!(shown, Ok(Answer::Attributes(_))), "{shown:?}");
    assert_eq!(read(&mut world, file, 80_000, 1000), Err(Failure::Stale), "not of the version that was read");
    assert_eq!(read(&mut world, file, 0, 1000), Ok(vec![A as u8; 1000]), "what is held stays");
    let newer = lookup(&mut world, "a").expect("it is there");
    assert_ne!(newer, node);
    let (file, _) = open(&mut world, newer);
    assert_eq!(read(&mut world, file, 0, 1 << 20), Ok(longer));
}

#[test]
fn a_server_that_knows_no_handle_for_a_second_destroys_nothing() {
    let mut world = world();
    let node = world.node("a");
    assert_eq!(world.read(node), Ok(bytes(A)));
    assert!(world.run(|cache, now| cache.list(now, NodeId::ROOT)).is_ok());
    pass(&mut world, Duration::from_secs(90));
    world.fault = Some(|_| Some(Status::STALE));
    let begun = world.cache.open(world.now, node);
    pass(&mut world, Duration::from_secs(1));
    world.cache.abandon(world.now, begun);
    world.fault = None;
    world.is_up = false;
    pass(&mut world, Duration::from_secs(10));
    assert_eq!(lookup(&mut world, "a"), Ok(node));
    assert_eq!(world.read(node), Ok(bytes(A)));
}

#[test]
fn a_server_that_knew_no_handle_for_a_while_is_asked_soon() {
    for outage in [MS * 1800, Duration::from_secs(8)] {
        let mut world = world();
        let node = world.node("a");
        assert_eq!(world.read(node), Ok(bytes(A)));
        pass(&mut world, Duration::from_secs(5));
        world.fault = Some(|_| Some(Status::STALE));
        let end = world.now + outage;
        while world.now < end {
            let begun = world.cache.open(world.now, node);
            pass(&mut world, 100 * MS);
            world.cache.abandon(world.now, begun);
        }
        assert!(!world.cache.is_connected());
        world.server.put(Duration::from_secs(100), "a", A, bytes(66));
        world.fault = None;
        pass(&mut world, 300 * MS);
        assert!(world.cache.is_connected(), "after {outage:?}");
        let node = lookup(&mut world, "a").expect("it is there");
        assert_eq!(world.read(node), Ok(bytes(66)));
    }
}

#[test]
fn a_server_that_knows_one_handle_no_more_is_believed() {
    let mut world = world();
    let node = world.node("a");
    assert_eq!(world.read(node), Ok(bytes(A)));
    world.now += Duration::from_secs(90);
    world.fault = Some(|procedure| (procedure == Procedure::Read).then_some(Status::STALE));
    let b = world.node("b.jpg");
    assert_eq!(world.read(b), Err(Failure::Stale));
    world.fault = None;
}

#[test]
fn who_answers_after_a_silence_has_to_be_the_same_server() {
    let mut world = world();
    let node = world.node("a");
    assert_eq!(world.read(node), Ok(bytes(A)));
    pass(&mut world, Duration::from_secs(90));
    // Silence, which a program finds out. Then another server answers at the same address; nobody says that the network has changed.
    world.is_up = false;
    assert_eq!(world.read(node), Ok(bytes(A)));
    assert!(!world.cache.is_connected());
    world.server.fsid += 1;
    world.server.put(Duration::from_secs(100), "a", A, bytes(66));
    world.is_up = true;
    pass(&mut world, Duration::from_secs(30));
    assert!(!world.cache.is_connected());
    assert_eq!(world.read(node), Ok(bytes(A)), "its files are not those of the first one");
    assert_eq!(lookup(&mut world, "unknown"), Err(Failure::AnotherServer));
    // The first one is back.
    world.server.fsid -= 1;
    world.server.put(Duration::from_secs(200), "a", A, bytes(67));
    pass(&mut world, Duration::from_secs(30));
    assert!(world.cache.is_connected());
    let node = lookup(&mut world, "a").expect("it is there");
    assert_eq!(world.read(node), Ok(bytes(67)));
}

/// A link may be so slow that data takes longer than a silence that means something.
#[test]
fn data_that_comes_late_is_not_fetched_again() {
    let mut world = world();
    let node = world.node("a");
    let (file, _) = open(&mut world, node);
    let read = world.cache.read(world.now, file, 70_000, 4096);
    let mut answers = Vec::new();
    while let Some(sent) = world.cache.poll_transmit(world.now) {
        answers.push((sent.call, world.answer(&sent)));
    }
    let count = answers.len();
    assert!(count > 5);
    world.now += Duration::from_millis(1500);
    world.cache.handle_timeout(world.now);
    assert!(!world.cache.is_connected());
    let root = world.cache.poll_transmit(world.now).expect("the server is asked who it is");
    for (call, outcome) in answers {
        world.cache.handle_reply(world.now, call, outcome);
    }
    let outcome = world.answer(&root);
    world.cache.handle_reply(world.now, root.call, outcome);
    // The server gives less than was asked for now and then.
    let again = std::iter::from_fn(|| world.cache.poll_transmit(world.now)).count();
    assert!(again * 2 < count, "what came before is of the same server: {again} of {count} again");
    world.cache.abandon(world.now, read);
}

#[test]
fn a_silence_is_waited_for_once() {
    let mut config = CacheConfig::default();
    config.wait = Duration::from_secs(3);
    let mut world = World::new(config, MemoryStore::default());
    let node = world.node("a");
    let (file, _) = open(&mut world, node);
    world.is_up = false;
    let begun = world.now;
    assert_eq!(read(&mut world, file, 70_000, 10_000), Err(Failure::Unreachable));
    // Kernels try once more when they have read ahead in vain.
    assert_eq!(read(&mut world, file, 70_000, 4096), Err(Failure::Unreachable));
    let took = world.now - begun;
    assert!(took >= Duration::from_secs(3) && took <= 3200 * MS, "{took:?}");
}

#[test]
fn a_name_that_was_not_there_is_found_as_soon_as_it_is() {
    let mut world = world();
    assert!(world.run(|cache, now| cache.list(now, NodeId::ROOT)).is_ok());
    world.now += 100 * MS;
    assert_eq!(lookup(&mut world, "new"), Err(Failure::Status(Status::NOENT)));
    world.server.put(Duration::from_secs(60), "d", ROOT + 77, bytes(5));
    world.now += MS;
    // Under a name that the complete listing does not have.
    world.server.put(Duration::from_secs(60), "new", ROOT + 78, bytes(6));
    let node = lookup(&mut world, "new").expect("it is there now");
    assert_eq!(world.read(node), Ok(bytes(6)));
}

/// The file lives on under another name: a log that is rotated, a document that an editor keeps a copy of.
#[test]
fn who_opens_a_file_by_name_gets_the_one_that_has_it_now() {
    for is_read in [false, true] {
        let mut world = world();
        world.server.put(Duration::from_secs(1), "d", A, bytes(A));
        let node = world.node("a");
        if is_read {
            assert_eq!(world.read(node), Ok(bytes(A)));
        }
        assert_eq!(lookup(&mut world, "a"), Ok(node));
        world.server.put(Duration::from_secs(60), "a", ROOT + 77, bytes(77));
        world.now += MS;
        let opened = world.run(|cache, now| cache.open(now, node));
        assert!(matches!(opened, Err(Failure::Stale)), "read before: {is_read}; {opened:?}");
        let other = lookup(&mut world, "a").expect("it is there");
        assert_eq!(world.read(other), Ok(bytes(77)));
        // The other name leads to it as before.
        assert_eq!(lookup(&mut world, "d"), Ok(node));
        assert!(!world.cache.found(node, NodeId::ROOT, b"d"), "it is known by the first one");
        let opened = world.run(|cache, now| cache.open_by(now, node, NodeId::ROOT, b"d"));
        let Ok(Answer::Opened { open, .. }) = opened else { panic!("{opened:?}") };
        assert_eq!(read(&mut world, open, 0, 1 << 20), Ok(bytes(A)));
    }
}

/// What was read once, and was dropped since, is fetched while it is opened.
#[test]
fn what_was_dropped_and_is_opened_again_may_change_its_mode() {
    let mut config = CacheConfig::default();
    config.size_bytes = 150_000;
    let mut world = World::new(config, MemoryStore::default());
    let (node, other) = (world.node("a"), world.node("d"));
    assert_eq!(world.read(node), Ok(bytes(A)));
    assert!(world.read(other).is_ok());
    assert_eq!(world.held(node), 0, "there is no room for both");
    world.now += MS;
    let opening = world.cache.open(world.now, node);
    let mut sent: Vec<_> = std::iter::from_fn(|| world.cache.poll_transmit(world.now)).collect();
    let lookup = sent.iter().position(|it| it.procedure == Procedure::Lookup).expect("its name is asked for");
    let first = sent.remove(lookup);
    let outcome = world.answer(&first);
    world.cache.handle_reply(world.now, first.call, outcome);
    let open = std::iter::from_fn(|| world.cache.poll_event()).find_map(|event| match event {
        Event::Done { operation, result: Ok(Answer::Opened { open, keep_cache }) }
            if operation == opening =>
        {
            assert!(!keep_cache, "nothing of it is held");
            Some(open)
        }
        _ => None,
    });
    world.server.change_mode(Duration::from_secs(60), A);
    for call in sent {
        let outcome = world.answer(&call);
        world.cache.handle_reply(world.now, call.call, outcome);
    }
    assert_eq!(read(&mut world, open.expect("it is open"), 0, SIZE as u32), Ok(bytes(A)));
}

#[test]
fn an_open_of_what_is_held_takes_one_call() {
    let mut world = world();
    world.cache.set_wall_clock(world.now, Duration::from_secs(1_700_000_000) + 7 * DAY);
    let node = world.node("a");
    assert_eq!(world.read(node), Ok(bytes(A)));
    let before = world.cache.stats().calls;
    open(&mut world, node);
    assert_eq!(world.cache.stats().calls - before, 1);
}

/// The file that a name leads to is another one whenever the server is asked.
#[test]
fn a_server_that_contradicts_itself_is_not_asked_for_ever() {
    let mut world = world();
    world.fault = Some(|procedure| (procedure == Procedure::Getattr).then_some(Status::STALE));
    let before = world.cache.stats().calls;
    for _ in 0..20 {
        _ = world.run(|cache, now| cache.lookup(now, NodeId::ROOT, b"a"));
        world.now += 100 * MS;
    }
    pass(&mut world, Duration::from_secs(8));
    let calls = world.cache.stats().calls - before;
    assert!(calls < 500, "{calls} calls in ten seconds");
}
