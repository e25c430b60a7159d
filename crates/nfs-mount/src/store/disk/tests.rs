use std::{os::unix::fs::MetadataExt, path::Path, time::Duration};

use nfs_cache::GRAIN_BYTES;
use nfs_wireless_client::FileHandle;

use super::*;
use crate::store::{Home, entry::files};

const NODE: NodeId = NodeId::ROOT;

fn home(place: &Path) -> Home {
    Home::new(Some(place)).unwrap()
}

fn store(place: &Path) -> DiskStore {
    let handle = FileHandle::try_from(&b"root"[..]).unwrap();
    DiskStore::new(home(place).open(handle, (1, 2), b"nas:/srv").unwrap())
}

fn grain(seed: u8, length: usize) -> Bytes {
    (0..length).map(|at| seed ^ (at / 3) as u8).collect::<Vec<u8>>().into()
}

fn record<'a>(key: &'a [u8], path: &'a [u8]) -> Record<'a> {
    Record { key, body: Bytes::from_static(b"body"), path: Some(path), pinned: false }
}

/// Holds three grains with a key, and ends.
fn fill(place: &Path, key: &[u8], path: &[u8]) {
    let mut store = store(place);
    assert_eq!(store.recall(NODE, key), None);
    for at in 0..3 {
        store.put(NODE, at, &grain(at as u8, GRAIN_BYTES as usize - usize::from(at == 2))).unwrap();
    }
    store.keep(NODE, &record(key, path));
}

fn data(place: &Path, key: &[u8]) -> std::path::PathBuf {
    let root = home(place).roots().pop().unwrap();
    Name::of(key).data(&root.objects())
}

fn looked_through(store: &DiskStore) {
    while !store.idle.is_complete() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_was_put_and_kept_is_there_for_the_next_store() {
    let place = tempfile::tempdir().unwrap();
    fill(place.path(), b"key", b"a");
    let mut next = store(place.path());
    looked_through(&next);
    assert!(next.idle_bytes() >= 3 * GRAIN_BYTES - 1);
    assert_eq!(next.recall(NODE, b"key").unwrap(), &b"body"[..]);
    assert_eq!(next.idle_bytes(), 0);
    for at in 0..2 {
        assert_eq!(next.get(NODE, at), Some(grain(at as u8, GRAIN_BYTES as usize)));
    }
    assert_eq!(next.get(NODE, 2).unwrap().len() as u64, GRAIN_BYTES - 1);
    assert_eq!(next.get(NODE, 3), None);
    let other = NodeId::from_number(7);
    assert_eq!(next.recall(other, b"key"), None, "another node has it");
    assert_eq!(next.put(other, 0, &grain(9, 10)), Err(StoreFull));
    assert_eq!(next.get(NODE, 0), Some(grain(0, GRAIN_BYTES as usize)));
}

#[test]
fn damaged_data_is_not_there() {
    let place = tempfile::tempdir().unwrap();
    fill(place.path(), b"key", b"a");
    let file = File::options().write(true).open(data(place.path(), b"key")).unwrap();
    file.write_all_at(&[77], 5).unwrap();
    // A hole reads as zeros.
    file.set_len(GRAIN_BYTES + 100).unwrap();
    file.set_len(3 * GRAIN_BYTES).unwrap();
    let verified: Vec<_> = home(place.path()).roots()[0].verify().collect();
    assert_eq!((verified.len(), verified[0].1, verified[0].0.bytes()), (1, 3, 3 * GRAIN_BYTES - 1));
    let mut next = store(place.path());
    assert!(next.recall(NODE, b"key").is_some());
    assert_eq!([0, 1, 2].map(|at| next.get(NODE, at)), [None, None, None]);
    next.put(NODE, 1, &grain(5, 100)).unwrap();
    assert_eq!(next.get(NODE, 1), Some(grain(5, 100)));
}

#[test]
fn only_the_user_can_read_it() {
    let place = tempfile::tempdir().unwrap();
    fill(place.path(), b"key", b"a");
    let mut files = vec![place.path().join(home(place.path()).roots()[0].path())];
    let mut seen = 0;
    while let Some(path) = files.pop() {
        let metadata = fs::metadata(&path).unwrap();
        let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(metadata.mode() & 0o777, expected, "{path:?}");
        seen += 1;
        if metadata.is_dir() {
            files.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    assert!(seen >= 7, "{seen}");
}

#[test]
fn one_process_has_it_at_a_time_and_another_server_has_its_own() {
    let place = tempfile::tempdir().unwrap();
    let first = store(place.path());
    let open = |handle: &[u8], numbers| {
        home(place.path()).open(FileHandle::try_from(handle).unwrap(), numbers, b"nas:/srv")
    };
    assert_eq!(open(b"root", (1, 2)).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let others =
        [open(b"root", (3, 2)).unwrap(), open(b"root", (1, 3)).unwrap(), open(b"toor", (1, 2)).unwrap()];
    assert_eq!(home(place.path()).roots().len(), 4);
    drop((first, others));
    open(b"root", (1, 2)).unwrap();
}

#[test]
fn targets_lead_to_the_root_that_was_mounted_last() {
    let place = tempfile::tempdir().unwrap();
    let home = home(place.path());
    let handle = FileHandle::try_from(&b"root"[..]).unwrap();
    drop(home.open(handle, (1, 2), b"nas:/srv").unwrap());
    std::thread::sleep(Duration::from_millis(20));
    drop(home.open(handle, (5, 2), b"nas:/srv").unwrap());
    assert_eq!(home.find(b"nas:/srv").unwrap().unwrap().numbers, (5, 2));
    std::thread::sleep(Duration::from_millis(20));
    drop(home.open(handle, (1, 2), b"10.0.0.1:/srv").unwrap());
    assert_eq!(home.find(b"nas:/srv").unwrap().unwrap().numbers, (1, 2), "two names of one root");
    assert!(home.find(b"nas:/other").unwrap().is_none());
}

#[test]
fn room_is_made_of_the_oldest_that_is_not_pinned() {
    let place = tempfile::tempdir().unwrap();
    for (key, path) in [(&b"1"[..], &b"pinned/a"[..]), (b"2", b"pinned2"), (b"3", b"b")] {
        fill(place.path(), key, path);
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut next = store(place.path());
    next.root.set_pins(&[b"pinned".to_vec()]).unwrap();
    looked_through(&next);
    assert!(next.spare(1) >= 3 * GRAIN_BYTES - 1);
    let left = |next: &DiskStore| {
        let mut paths: Vec<_> = files(&next.root.objects()).filter_map(|(_, entry, _)| entry.path).collect();
        paths.sort();
        paths
    };
    assert_eq!(left(&next), [&b"b"[..], b"pinned/a"]);
    next.spare(u64::MAX);
    assert_eq!(left(&next), [&b"pinned/a"[..]]);
    assert_eq!(next.root.drop_below(b"pinned").unwrap(), (1, 3 * GRAIN_BYTES - 1));
}

#[test]
fn data_without_a_record_goes_and_what_is_retired_stays_for_this_mount() {
    let place = tempfile::tempdir().unwrap();
    fill(place.path(), b"key", b"a");
    let mut next = store(place.path());
    assert!(next.recall(NODE, b"key").is_some());
    next.retire(b"key");
    assert_eq!(next.get(NODE, 1), Some(grain(1, GRAIN_BYTES as usize)));
    drop(next);
    std::thread::sleep(Duration::from_millis(20));
    let mut last = store(place.path());
    looked_through(&last);
    assert!(!data(place.path(), b"key").exists());
    assert_eq!(last.recall(NODE, b"key"), None);
}

#[test]
fn what_was_put_last_stays_though_much_waits_to_be_written() {
    const PUT: u64 = 500;
    let place = tempfile::tempdir().unwrap();
    let mut first = store(place.path());
    assert_eq!(first.recall(NODE, b"key"), None);
    let of = |at: u64| grain(at as u8, GRAIN_BYTES as usize - at as usize % 2);
    for at in 0..PUT {
        first.put(NODE, at * at % 7, &of(at)).unwrap();
        assert_eq!(first.get(NODE, at * at % 7), Some(of(at)));
    }
    first.put(NODE, 8, &of(8)).unwrap();
    first.remove(NODE, 8);
    first.keep(NODE, &record(b"key", b"a"));
    drop(first);
    let mut next = store(place.path());
    assert!(next.recall(NODE, b"key").is_some());
    for place in 0..9 {
        let last = (0..PUT).rev().find(|at| at * at % 7 == place);
        assert_eq!(next.get(NODE, place), last.map(of), "grain {place}");
    }
}

#[test]
fn what_cannot_be_written_is_given_to_those_who_wait_and_then_refused() {
    let place = tempfile::tempdir().unwrap();
    let mut first = store(place.path());
    assert_eq!(first.recall(NODE, b"key"), None);
    // A pipe in the place of the data can be opened, and takes nothing at an offset.
    let data = data(place.path(), b"key");
    fs::create_dir_all(data.parent().unwrap()).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &data, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    first.put(NODE, 0, &grain(1, 100)).unwrap();
    first.keep(NODE, &record(b"key", b"a"));
    assert_eq!(first.get(NODE, 0), Some(grain(1, 100)));
    assert_eq!(first.put(NODE, 1, &grain(2, 100)), Err(StoreFull));
    assert_eq!(first.get(NODE, 1), None);
    // Others can be written.
    let other = NodeId::from_number(7);
    assert_eq!(first.recall(other, b"other"), None);
    first.put(other, 0, &grain(3, 100)).unwrap();
    first.put(other, 1, &grain(4, 100)).unwrap();
    first.keep(other, &record(b"other", b"b"));
    drop(first);
    let mut next = store(place.path());
    assert!(next.recall(NODE, b"key").is_some());
    assert_eq!(next.get(NODE, 0), None, "the record does not claim it");
    assert!(next.recall(other, b"other").is_some());
    assert_eq!(next.get(other, 0), Some(grain(3, 100)));
}

/// Names are hashes, and each first byte of one has a directory: most of them are not there yet.
#[test]
fn what_has_another_key_is_there_under_that() {
    let place = tempfile::tempdir().unwrap();
    let mut first = store(place.path());
    let keys = [b"a", b"b", b"c", b"d", b"e", b"f"];
    assert_eq!(first.recall(NODE, keys[0]), None);
    first.rename(NODE, keys[1]);
    first.put(NODE, 0, &grain(1, 500)).unwrap();
    for key in &keys[2..] {
        first.rename(NODE, &key[..]);
        assert!(data(place.path(), &key[..]).exists());
    }
    first.keep(NODE, &record(keys[5], b"path"));
    drop(first);
    assert!(keys[..5].iter().all(|key| !data(place.path(), &key[..]).exists()));
    let mut next = store(place.path());
    assert!(next.recall(NODE, keys[5]).is_some());
    assert_eq!(next.get(NODE, 0), Some(grain(1, 500)));
}
