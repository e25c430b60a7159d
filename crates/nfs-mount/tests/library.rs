//! What a program gets that embeds the library: a directory of a server in the file tree, with events and states as types.

#![cfg(target_os = "linux")]

use std::{
    cell::RefCell,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nfs_files::{Context, ErrorKind, Result, event::Event as FileEvent, servers::Servers, url::Target};
use nfs_mount::{Event, Link, Mount, NoDisk, Options, fuse, point::MountPoint, store::Home};
use private_servers::Served;

/// Hears nothing of what copies tell.
fn deaf(_: &FileEvent<'_>) -> Result<()> {
    Ok(())
}

/// Mounts what a server has under a path, with its cache in a directory.
fn options(server: &Served, path: &str, cache: &Path) -> Options {
    let source = Target::parse_remote(OsStr::new(&server.url(path))).unwrap();
    let mut options = Options::new(source);
    options.cache = Some(cache.to_owned());
    options
}

/// Does something that blocks while a mount answers.
async fn meanwhile<T: Send + 'static>(
    mount: &Mount,
    events: &RefCell<Vec<Event>>,
    act: impl FnOnce() -> T + Send + 'static,
) -> T {
    let servers = Servers::default();
    let context = Context { servers: &servers, events: &deaf };
    let tell = |event| events.borrow_mut().push(event);
    tokio::select! {
        never = mount.drive(context, &tell) => match never {},
        done = tokio::task::spawn_blocking(act) => done.unwrap(),
    }
}

async fn begin(options: Options, events: &RefCell<Vec<Event>>) -> Result<Mount> {
    let servers = Servers::default();
    let context = Context { servers: &servers, events: &deaf };
    Mount::begin(options, context, &|event| events.borrow_mut().push(event)).await
}

#[tokio::test]
async fn a_program_mounts_a_directory_and_its_cache_outlives_the_mount_and_the_server() {
    let (server, here) = (Served::start(), tempfile::tempdir().unwrap());
    fs::create_dir(server.path("/photos")).unwrap();
    fs::write(server.path("/photos/cat.jpg"), vec![7; 100_000]).unwrap();
    let [point, cache] = ["point", "cache"].map(|name| here.path().join(name));
    fs::create_dir(&point).unwrap();
    let wanted = options(&server, "/photos", &cache);
    let events = RefCell::new(Vec::new());
    let read = |name: &'static str| {
        let path: PathBuf = point.join(name);
        move || fs::read(path)
    };

    let mount = begin(wanted.clone(), &events).await.unwrap();
    let mounted = fuse::mount(&mount, &MountPoint::prepare(&point).unwrap()).unwrap();
    let bytes = meanwhile(&mount, &events, read("cat.jpg")).await.unwrap();
    assert_eq!(bytes, vec![7; 100_000]);
    assert!(mounted.is_there());
    let state = mount.snapshot();
    assert_eq!((state.link, state.stats.held_bytes), (Link::Up, 100_000));

    // Another mount of the same directory has its cache in memory.
    let second = begin(wanted.clone(), &events).await.unwrap();
    assert!(matches!(events.take()[..], [Event::CacheInMemory(NoDisk::InUse)]));
    drop(second);
    drop((mounted, mount));
    assert_eq!(fs::read_dir(&point).unwrap().count(), 0, "nothing is mounted any more");
    let home = Home::new(Some(&cache)).unwrap();
    assert_eq!(home.roots()[0].entries().map(|(entry, _)| entry.bytes()).sum::<u64>(), 100_000);

    let mut offline = wanted;
    offline.offline = true;
    // The thread that asked the kernel ends once that says so, and the cache is free then.
    let begun = Instant::now();
    let mount = loop {
        match begin(offline.clone(), &events).await {
            Err(error) if error.to_string().contains("uses its cache") => {
                assert!(begun.elapsed() < Duration::from_secs(20), "{error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            mount => break mount.unwrap(),
        }
    };
    let mounted = fuse::mount(&mount, &MountPoint::prepare(&point).unwrap()).unwrap();
    let bytes = meanwhile(&mount, &events, read("cat.jpg")).await.unwrap();
    assert_eq!((bytes, mount.snapshot().link), (vec![7; 100_000], Link::Down));
    drop((mounted, mount));

    offline.cache = Some(here.path().join("elsewhere"));
    let error = begin(offline, &events).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SourceMissing, "{error}");
    assert!(events.take().is_empty());
}

/// A program may wait in between, and drop what it waits for.
#[tokio::test]
async fn a_mount_goes_on_where_it_was_when_it_is_driven_again() {
    let (server, here) = (Served::start(), tempfile::tempdir().unwrap());
    fs::create_dir(server.path("/photos")).unwrap();
    fs::write(server.path("/photos/cat.jpg"), vec![7; 100_000]).unwrap();
    let [point, cache] = ["point", "cache"].map(|name| here.path().join(name));
    fs::create_dir(&point).unwrap();
    let events = RefCell::new(Vec::new());
    let mount = begin(options(&server, "/photos", &cache), &events).await.unwrap();
    let mounted = fuse::mount(&mount, &MountPoint::prepare(&point).unwrap()).unwrap();
    let path = point.join("cat.jpg");
    let mut reading = tokio::task::spawn_blocking(move || fs::read(path));
    let servers = Servers::default();
    let context = Context { servers: &servers, events: &deaf };
    let tell = |event| events.borrow_mut().push(event);
    let begun = Instant::now();
    // Calls are under way whenever it is dropped.
    let bytes = loop {
        tokio::select! {
            never = mount.drive(context, &tell) => match never {},
            done = &mut reading => break done.unwrap().unwrap(),
            () = tokio::task::yield_now() => {}
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it goes on");
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    assert_eq!(bytes, vec![7; 100_000]);
    drop((mounted, mount));
}
