//! What `nfsw mount` keeps on the disk, through the kernel. Makes mounts, so it needs root and /dev/fuse, as CI has.

use std::{
    fs::{self, File},
    io::ErrorKind,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::{
    common::{Server, fails, names},
    mounted::{Mount, age, silence, state},
};
use rustix::{
    io::Errno,
    mount::{MountFlags, UnmountFlags, mount, unmount},
    process::Signal,
};

/// Numbers that look random (SplitMix64).
struct Random(u64);

impl Random {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// Bytes of a version of a file: no two versions have a piece in common, and no piece is zeros.
fn contents(version: u64, size: usize) -> Vec<u8> {
    let mut random = Random(version << 32);
    let mut bytes: Vec<u8> = (0..size.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).collect();
    bytes.truncate(size);
    bytes
}

fn is_unreachable(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::IO.raw_os_error())
}

/// The files of a cache with these names' ends.
fn files(cache: &Path, ends: &[&str]) -> Vec<PathBuf> {
    let (mut found, mut next) = (Vec::new(), vec![cache.to_owned()]);
    while let Some(directory) = next.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                next.push(path);
            } else if ends.iter().any(|end| path.to_str().unwrap().ends_with(end)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Space that the data in a cache takes on the disk.
fn data_bytes(cache: &Path) -> u64 {
    files(cache, &[".data"]).iter().map(|path| fs::metadata(path).map_or(0, |it| it.blocks() * 512)).sum()
}

#[test]
fn what_was_read_outlives_the_mount_and_the_server() {
    let mut server = Server::start();
    fs::create_dir_all(server.path("/album/notes")).unwrap();
    let (song, other, note) = (contents(1, 300_000), contents(2, 50_000), contents(3, 10));
    fs::write(server.path("/album/song"), &song).unwrap();
    fs::write(server.path("/album/other"), &other).unwrap();
    fs::write(server.path("/album/notes/note"), &note).unwrap();
    symlink("song", server.path("/album/link")).unwrap();
    for name in ["song", "other", "notes/note"] {
        age(&server.path("/album").join(name));
    }
    let mut mount = Mount::of(&server, &["--wait", "1s"]);
    let all = ["link", "notes", "other", "song"];
    assert_eq!(names(&mount.path("album")), all);
    assert_eq!(fs::read(mount.path("album/link")).unwrap(), song);
    assert_eq!(fs::read(mount.path("album/notes/note")).unwrap(), note);
    let times = fs::metadata(mount.path("album/song")).unwrap().mtime();
    assert_eq!(mount.end(Signal::TERM), Some(0));
    assert_eq!(fs::metadata(&mount.cache).unwrap().permissions().mode() & 0o777, 0o700);

    server.process.kill().unwrap();
    server.process.wait().unwrap();
    mount.again(&server.url("/"), &["--wait", "1s"]);
    assert!(mount.said.contains("; what is held is shown"), "{}", mount.said);
    let begun = Instant::now();
    assert_eq!(names(&mount.path("album")), all);
    assert_eq!(fs::read(mount.path("album/link")).unwrap(), song);
    assert_eq!(fs::read(mount.path("album/notes/note")).unwrap(), note);
    assert_eq!(fs::metadata(mount.path("album/song")).unwrap().mtime(), times);
    assert_eq!(fs::metadata(mount.path("album/other")).unwrap().len(), 50_000);
    assert_eq!(fs::metadata(mount.path("album/no")).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(
        state(&mount.path("album/song")).starts_with("stale since 20"),
        "its time, not that of this mount"
    );
    assert!(state(&mount.path("album/other")).ends_with(", partial 0 %"));
    assert!(is_unreachable(&fs::read(mount.path("album/other")).unwrap_err()));

    // The server is back, and a file has changed meanwhile.
    let new = contents(4, 300_000);
    fs::write(server.path("/album/song"), &new).unwrap();
    server.restart();
    let begun = Instant::now();
    while fs::read(mount.path("album/other")).map_err(|error| assert!(is_unreachable(&error)))
        != Ok(other.clone())
    {
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    assert!(fs::read(mount.path("album/song")).unwrap() == new);
    assert_eq!(state(&mount.path("album/notes/note")), "fresh");
}

#[test]
fn offline_shows_what_is_kept_and_asks_nobody() {
    let server = Server::start();
    let (held, other) = (contents(1, 200_000), contents(2, 200_000));
    fs::write(server.path("/held"), &held).unwrap();
    fs::write(server.path("/other"), &other).unwrap();
    age(&server.path("/held"));
    let mut mount = Mount::of(&server, &[]);
    assert_eq!(names(&mount.path), ["held", "other"]);
    assert!(fs::read(mount.path("held")).unwrap() == held);
    assert_eq!(mount.end(Signal::INT), Some(0));

    // The server is there, and not asked.
    fs::write(server.path("/held"), "new").unwrap();
    mount.again(&server.url("/"), &["--offline"]);
    assert!(fs::read(mount.path("held")).unwrap() == held);
    let begun = Instant::now();
    assert!(is_unreachable(&fs::read(mount.path("other")).unwrap_err()));
    assert!(begun.elapsed() < Duration::from_secs(5), "nobody comes: {:?}", begun.elapsed());
    assert!(state(&mount.path("held")).starts_with("stale since 20"));
    assert_eq!(mount.end(Signal::TERM), Some(0));
    mount.again(&server.url("/"), &[]);
    assert_eq!(fs::read(mount.path("held")).unwrap(), b"new");

    let (place, empty) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let url = server.url("/");
    let arguments = [Path::new("mount"), "--offline".as_ref(), "--cache".as_ref(), empty.path()];
    let text = fails(4, arguments.into_iter().chain([url.as_ref(), place.path()]));
    assert!(
        text.contains("nothing of it is in the cache; mount it once while the server responds"),
        "{text}"
    );
}

#[test]
fn another_server_at_the_address_has_a_cache_of_its_own() {
    let mut server = Server::start();
    fs::write(server.path("/file"), "first").unwrap();
    age(&server.path("/file"));
    let mut mount = Mount::of(&server, &[]);
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"first");
    assert_eq!(mount.end(Signal::TERM), Some(0));
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("file"), "other").unwrap();
    age(&other.path().join("file"));
    let first = server.root.path().to_owned();
    server.replace(other.path());
    mount.again(&server.url("/"), &[]);
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"other");
    assert_eq!(mount.end(Signal::TERM), Some(0));
    // What was mounted last is what the target means.
    mount.again(&server.url("/"), &["--offline"]);
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"other");
    assert_eq!(mount.end(Signal::TERM), Some(0));
    server.replace(&first);
    mount.again(&server.url("/"), &[]);
    silence(&server);
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"first", "kept since the first mount");
}

#[test]
fn a_second_mount_of_the_same_directory_does_without_the_cache() {
    let server = Server::start();
    fs::write(server.path("/file"), "text").unwrap();
    let first = Mount::of(&server, &[]);
    let cache = first.cache.to_str().unwrap();
    let mut second = Mount::of(&server, &["--cache", cache]);
    assert!(second.said.contains("another nfsw has the cache"), "{}", second.said);
    assert_eq!(fs::read(second.path("file")).unwrap(), b"text");
    assert_eq!(second.end(Signal::TERM), Some(0));
    assert_eq!(fs::read(first.path("file")).unwrap(), b"text");
}

#[test]
fn what_was_used_longest_ago_goes_first() {
    let server = Server::start();
    let name = |number: u64| format!("file {number}");
    for number in 0..10 {
        fs::write(server.path("/").join(name(number)), contents(number, 1 << 20)).unwrap();
        age(&server.path("/").join(name(number)));
    }
    let options = ["--cache-size", "4M"];
    let mut mount = Mount::of(&server, &options);
    let is_right = |mount: &Mount, number: u64| match fs::read(mount.path(&name(number))) {
        Ok(read) => {
            assert!(read == contents(number, 1 << 20), "file {number}");
            true
        }
        Err(error) => {
            assert!(is_unreachable(&error), "{error}");
            false
        }
    };
    let read = |mount: &Mount, numbers: std::ops::Range<u64>| {
        numbers.filter(|&number| is_right(mount, number)).collect::<Vec<u64>>()
    };
    assert_eq!(read(&mount, 0..3), [0, 1, 2]);
    assert_eq!(mount.end(Signal::TERM), Some(0));
    // Also what an earlier mount has left counts, and goes before what this one reads.
    mount.again(&server.url("/"), &options);
    assert_eq!(read(&mount, 3..10), [3, 4, 5, 6, 7, 8, 9]);
    let bytes = data_bytes(&mount.cache);
    assert!(bytes <= 4 << 20, "{bytes}");
    assert_eq!(mount.end(Signal::TERM), Some(0));
    mount.again(&server.url("/"), &["--offline"]);
    let held = read(&mount, 0..10);
    assert!(held.ends_with(&[7, 8, 9]) && held.len() <= 4, "{held:?}");
}

#[test]
fn a_full_disk_is_no_reason_to_fail() {
    let server = Server::start();
    let all: Vec<Vec<u8>> = (0..6).map(|number| contents(number, 1 << 20)).collect();
    for (number, contents) in all.iter().enumerate() {
        fs::write(server.path(&format!("/{number}")), contents).unwrap();
        age(&server.path(&format!("/{number}")));
    }
    let disk = tempfile::tempdir().unwrap();
    mount("tmpfs", disk.path(), "tmpfs", MountFlags::empty(), Some(c"size=3m,nr_inodes=200")).unwrap();
    let full = disk.path().join("full");
    let cache = disk.path().join("cache");
    {
        let mut mount = Mount::of(&server, &["--cache", cache.to_str().unwrap()]);
        for filled in [false, true] {
            if filled {
                // All that is left, to the last byte.
                let file = File::create(&full).unwrap();
                let mut at = 0;
                while let Ok(written) = file.write_at(&contents(7, 4096), at) {
                    at += written as u64;
                }
            }
            for _ in 0..2 {
                for (number, contents) in all.iter().enumerate() {
                    assert!(fs::read(mount.path(&number.to_string())).unwrap() == *contents, "{number}");
                }
            }
        }
        assert_eq!(mount.end(Signal::TERM), Some(0));
        mount.again(&server.url("/"), &["--cache", cache.to_str().unwrap()]);
        for (number, contents) in all.iter().enumerate() {
            assert!(fs::read(mount.path(&number.to_string())).unwrap() == *contents, "{number}");
        }
    }
    unmount(disk.path(), UnmountFlags::DETACH).unwrap();
}

/// All that the files on a server have been: of each, the version and the size of each version.
#[derive(Default)]
struct Versions(Mutex<[Vec<(u64, usize)>; Torture::FILES]>);

impl Versions {
    fn of(&self, file: usize) -> Vec<(u64, usize)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[file].clone()
    }

    fn add(&self, file: usize, version: u64, size: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[file].push((version, size));
    }

    /// Opens a file and reads parts of it, all of which must be of one version that there was. Returns how many were served.
    fn read_parts(&self, view: &Path, file: usize, random: &mut Random) -> std::io::Result<u64> {
        let name = Torture::name(file);
        let open = File::open(view.join(&name))?;
        let size = open.metadata()?.len() as usize;
        let mut are_possible: Vec<u64> =
            self.of(file).into_iter().rev().filter_map(|it| (it.1 == size).then_some(it.0)).collect();
        assert!(!are_possible.is_empty(), "{name}: no version has {size} bytes");
        let (mut served, mut failed) = (0, None);
        for _ in 0..4 {
            let from = (random.next() % size as u64) as usize;
            let to = (from + 1 + (random.next() % 100_000) as usize).min(size);
            let mut read = vec![0; to - from];
            match open.read_exact_at(&mut read, from as u64) {
                Ok(()) => {
                    are_possible.retain(|&version| contents(version, to)[from..] == read);
                    assert!(
                        !are_possible.is_empty(),
                        "{name}: bytes {from} to {to} of {size} are of no version"
                    );
                    served += 1;
                }
                Err(error) => {
                    assert_ne!(
                        error.kind(),
                        ErrorKind::UnexpectedEof,
                        "{name}: bytes {from} to {to} of {size}"
                    );
                    failed = Some(error);
                }
            }
        }
        failed.filter(|_| served == 0).map_or(Ok(served), Err)
    }

    /// Reads parts of files until it is told to stop: the mount is killed meanwhile, and the files change.
    fn read_until(&self, stop: &AtomicBool, view: &Path, mut random: Random) -> u64 {
        // What is gone at the moment; what changed while it was open; what the mount had no time to say.
        const FAILURES: [Errno; 4] = [Errno::IO, Errno::STALE, Errno::NOTCONN, Errno::CONNABORTED];
        let mut served = 0;
        while !stop.load(Ordering::Relaxed) {
            let file = (random.next() % Torture::FILES as u64) as usize;
            match self.read_parts(view, file, &mut random) {
                Ok(parts) => served += parts,
                Err(error) => {
                    let may_be = FAILURES.iter().any(|it| error.raw_os_error() == Some(it.raw_os_error()));
                    assert!(may_be, "{}: {error}", Torture::name(file));
                    thread::sleep(Duration::from_millis(1));
                }
            }
        }
        served
    }
}

/// A tree on a server whose files change, and the cache of a mount that is killed and damaged.
struct Torture {
    server: Server,
    mount: Mount,
    random: Random,
    versions: Arc<Versions>,
    last: u64,
    /// Whole files that were read; parts that were read while the mount was killed; whole files that were refused offline, and parts
    /// that were served and refused then.
    served: u64,
    beside: u64,
    failed: u64,
    parts: (u64, u64),
}

impl Torture {
    const FILES: usize = 12;

    fn new(seed: u64) -> Self {
        println!("NFSW_SEED={seed}");
        let server = Server::start();
        fs::create_dir(server.path("/d")).unwrap();
        let mut mount = Mount::of(&server, &["--wait", "100ms"]);
        mount.end(Signal::TERM);
        let (random, versions) = (Random(seed), Arc::default());
        let mut torture =
            Self { server, mount, random, versions, last: 0, served: 0, beside: 0, failed: 0, parts: (0, 0) };
        for file in 0..Self::FILES {
            torture.change(file, true);
        }
        torture
    }

    const fn below(&mut self, limit: usize) -> usize {
        self.random.next() as usize % limit
    }

    fn name(file: usize) -> String {
        if file.is_multiple_of(2) { format!("d/{file}") } else { file.to_string() }
    }

    /// Gives a file a new version: by renaming or, where nobody reads it meanwhile, in place.
    fn change(&mut self, file: usize, is_unread: bool) {
        self.last += 1;
        let same_size = self.versions.of(file).last().map(|&(_, size)| size);
        let size = match (self.below(2), same_size) {
            (0, Some(size)) => size,
            _ => 1 + self.below(400_000),
        };
        let path = self.server.path("/").join(Self::name(file));
        let in_place = self.below(2) == 0 && is_unread;
        let written = if in_place { path.clone() } else { path.with_extension("new") };
        fs::write(&written, contents(self.last, size)).unwrap();
        self.versions.add(file, self.last, size);
        fs::rename(&written, &path).unwrap();
    }

    /// Reads files through the mount, each whole; while the server is asked they must be what they are there.
    fn read_some(&mut self, is_asked: bool) {
        for _ in 0..8 {
            let file = self.below(Self::FILES);
            let read = match fs::read(self.mount.path(&Self::name(file))) {
                Ok(read) => read,
                Err(error) => {
                    assert!(!is_asked, "{}: {error}", Self::name(file));
                    let is_gone = error.kind() == ErrorKind::NotFound;
                    assert!(is_unreachable(&error) || is_gone, "{}: {error}", Self::name(file));
                    self.failed += 1;
                    continue;
                }
            };
            let versions = self.versions.of(file);
            let from = if is_asked { versions.len() - 1 } else { 0 };
            let is_one =
                |&(version, size): &(u64, usize)| size == read.len() && contents(version, size) == read;
            assert!(versions[from..].iter().any(is_one), "{}: no version of it", Self::name(file));
            self.served += 1;
        }
    }

    /// Reads parts of all files while nobody asks the server: what is not there is refused.
    fn read_parts_offline(&mut self) {
        for file in 0..Self::FILES {
            match self.versions.read_parts(&self.mount.path, file, &mut self.random) {
                Ok(parts) => self.parts.0 += parts,
                Err(error) => {
                    let is_gone = error.kind() == ErrorKind::NotFound;
                    assert!(is_unreachable(&error) || is_gone, "{}: {error}", Self::name(file));
                    self.parts.1 += 1;
                }
            }
        }
    }

    /// Damages a few files of the cache.
    fn damage(&mut self) {
        let all = files(&self.mount.cache, &[".data", ".rec", "root", "pins", ".new"]);
        for _ in 0..self.below(4) {
            let path = &all[self.below(all.len())];
            let Ok(file) = File::options().read(true).write(true).open(path) else { continue };
            let length = file.metadata().unwrap().len();
            match self.below(4) {
                0 => file.set_len(self.random.next() % (length + 1)).unwrap(),
                1 => {
                    // A hole, as a crash may leave one.
                    file.set_len(length / 2).unwrap();
                    file.set_len(length).unwrap();
                }
                2 => fs::remove_file(path).unwrap(),
                _ if length > 0 => {
                    let (at, mut byte) = (self.random.next() % length, [0]);
                    file.read_exact_at(&mut byte, at).unwrap();
                    file.write_all_at(&[byte[0] ^ 1 << self.below(8)], at).unwrap();
                }
                _ => {}
            }
        }
    }

    /// Kills a mount while it is read from and files change, damages what is left, and looks at all that the next mounts show.
    fn round(&mut self) {
        let url = self.server.url("/");
        self.mount.again(&url, &["--wait", "5s"]);
        for _ in 0..self.below(4) {
            let file = self.below(Self::FILES);
            self.change(file, true);
        }
        self.read_some(true);
        // It is killed before or after records are written, which takes a second.
        let mut left = self.below(2200);
        let (stop, view, reader) =
            (AtomicBool::new(false), self.mount.path.clone(), Random(self.random.next()));
        let versions = Arc::clone(&self.versions);
        thread::scope(|scope| {
            let reader = scope.spawn(|| versions.read_until(&stop, &view, reader));
            while left > 0 {
                let pause = left.min(1 + self.below(400));
                thread::sleep(Duration::from_millis(pause as u64));
                left -= pause;
                let file = self.below(Self::FILES);
                self.change(file, false);
            }
            self.mount.end(Signal::KILL);
            stop.store(true, Ordering::Relaxed);
            self.beside += reader.join().expect("what is read is right");
        });
        self.damage();
        // The damage may have left nothing to mount.
        if self.mount.try_again(&url, &["--offline"]) {
            self.read_some(false);
            self.read_parts_offline();
            self.mount.end(Signal::KILL);
        }
    }

    fn run(&mut self, rounds: u32) {
        for _ in 0..rounds {
            self.round();
        }
        println!(
            "{rounds} kills, {} versions: {} files and, while the mount was killed, {} parts of files served; offline {} parts \
             served, {} files refused, {} of which no part was there",
            self.last, self.served, self.beside, self.parts.0, self.failed, self.parts.1
        );
        let rounds = u64::from(rounds);
        assert!(self.served > rounds * 8 && self.beside > rounds * 8, "hardly anything was served");
        assert!(self.parts.0 > rounds, "hardly anything was served offline: {}", self.parts.0);
    }
}

/// `NFSW_SEED` replays what a run did, though not the moments between two steps of the mount at which it was killed.
fn seed(other: u64) -> u64 {
    std::env::var("NFSW_SEED").map_or(other, |seed| seed.parse().unwrap())
}

#[test]
fn whatever_becomes_of_the_cache_no_wrong_byte_is_served() {
    Torture::new(seed(1)).run(12);
}

#[test]
#[ignore = "long: 200 kills"]
fn whatever_becomes_of_the_cache_in_200_kills_no_wrong_byte_is_served() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    Torture::new(seed(now)).run(200);
}
