//! How much memory a cache takes. The allocator counts: one test runs at a time in this program.

#![expect(unsafe_code, reason = "an allocator is unsafe to implement")]
#![expect(clippy::disallowed_methods, reason = "an arbitrary epoch of virtual time")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::RefCell,
    collections::BTreeMap,
    fs,
    path::PathBuf,
    rc::Rc,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use nfs_cache::{
    Answer, Cache, CacheConfig, Event, Failure, NodeId, OperationId, Outcome, Record, Store, StoreFull,
    Transmit,
};
use nfs_proto::attr::Metadata;
use nfs_wire::{
    FileHandle, Procedure, Reader, call, encode,
    nfs3_types::{
        nfs3::{
            GETATTR3args, GETATTR3resok, LOOKUP3args, LOOKUP3resok, Nfs3Option, READ3args, READ3resok,
            READDIRPLUS3args, READDIRPLUS3resok, cookieverf3, dirlistplus3, entryplus3, fattr3, ftype3,
            nfstime3, specdata3,
        },
        xdr_codec::{List, Opaque, Pack},
    },
};

/// Counts what is allocated, without what the system's allocator adds to it.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Held by the test that runs.
static ALONE: Mutex<()> = Mutex::new(());

// SAFETY: the system's allocator does it all.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MIB: usize = 1 << 20;

/// The most that a cache of 100,000 objects may take, also while it is filled.
const LIMIT: usize = 64 * MIB;

/// File number of the root. That of its directory `n` is `n` directories on, and those of the files in it follow.
const ROOT: u64 = 1 << 40;
const DIRECTORY: u64 = 1 << 20;

/// Files of a page of a listing: about 32 KiB.
const PAGE: u64 = 150;

/// A server with directories of as many files.
struct Server {
    directories: Vec<u64>,
}

impl Server {
    fn name(number: u64) -> String {
        format!("IMG_2026_{number:08}.jpg")
    }

    /// As many bytes as those of Linux servers.
    fn handle(number: u64) -> FileHandle {
        let bytes = [[7; 8], number.to_be_bytes(), [9; 8], number.to_le_bytes()].concat();
        FileHandle::try_from(&bytes[..28]).expect("not too long")
    }

    fn number(handle: &[u8]) -> u64 {
        u64::from_be_bytes(handle[8..16].try_into().expect("eight bytes"))
    }

    fn attributes(number: u64) -> fattr3 {
        let is_file = !number.is_multiple_of(DIRECTORY);
        let time = nfstime3 { seconds: 1_700_000_000, nseconds: 1 };
        fattr3 {
            type_: if is_file { ftype3::NF3REG } else { ftype3::NF3DIR },
            mode: 0o644,
            nlink: 1,
            uid: 1000,
            gid: 1000,
            // That of a directory as ext4 has it with 100,000 names: a server whose directories are smaller may have an endless one.
            size: if is_file { 4000 } else { 4_000_000 },
            used: 4096,
            rdev: specdata3 { specdata1: 0, specdata2: 0 },
            fsid: 7,
            fileid: number,
            atime: time,
            mtime: time,
            ctime: time,
        }
    }

    /// What lies in a directory, from a cookie on.
    fn page(&self, directory: u64, cookie: u64) -> (Vec<(u64, u64)>, bool) {
        let (count, step) = if directory == ROOT {
            (self.directories.len() as u64, DIRECTORY)
        } else {
            (self.directories[((directory - ROOT) / DIRECTORY - 1) as usize], 1)
        };
        let end = count.min(cookie + PAGE);
        ((cookie + 1..=end).map(|at| (at, directory + at * step)).collect(), end == count)
    }

    fn answer(&self, sent: &Transmit) -> Bytes {
        let arguments = Reader::new(&sent.arguments);
        match sent.procedure {
            Procedure::Getattr => {
                let GETATTR3args { object } = call::decode(arguments).expect("arguments");
                packed(&GETATTR3resok { obj_attributes: Self::attributes(Self::number(&object.data)) })
            }
            Procedure::Lookup => {
                let LOOKUP3args { what } = call::decode(arguments).expect("arguments");
                let directory = Self::number(&what.dir.data);
                let name = std::str::from_utf8(what.name.as_ref()).expect("UTF-8");
                let digits = name.chars().filter(char::is_ascii_digit).skip(4).collect::<String>();
                let step = if directory == ROOT { DIRECTORY } else { 1 };
                let number = directory + digits.parse::<u64>().expect("a number") * step;
                packed(&LOOKUP3resok {
                    object: Self::handle(number).to_fh3(),
                    obj_attributes: Nfs3Option::Some(Self::attributes(number)),
                    dir_attributes: Nfs3Option::Some(Self::attributes(directory)),
                })
            }
            Procedure::Readdirplus => {
                let READDIRPLUS3args { dir, cookie, .. } = call::decode(arguments).expect("arguments");
                let directory = Self::number(&dir.data);
                let (page, eof) = self.page(directory, cookie);
                let step = if directory == ROOT { DIRECTORY } else { 1 };
                let names: Vec<String> =
                    page.iter().map(|&(_, number)| Self::name((number - directory) / step)).collect();
                let entries = page.iter().zip(&names).map(|(&(cookie, number), name)| entryplus3 {
                    fileid: number,
                    name: name.as_bytes().into(),
                    cookie,
                    name_attributes: Nfs3Option::Some(Self::attributes(number)),
                    name_handle: Nfs3Option::Some(Self::handle(number).to_fh3()),
                });
                packed(&READDIRPLUS3resok {
                    dir_attributes: Nfs3Option::Some(Self::attributes(directory)),
                    cookieverf: cookieverf3([0; 8]),
                    reply: dirlistplus3 { entries: List(entries.collect()), eof },
                })
            }
            Procedure::Read => {
                let READ3args { file, offset, count } = call::decode(arguments).expect("arguments");
                let file = Self::attributes(Self::number(&file.data));
                let data = vec![1; (file.size - offset).min(count.into()) as usize];
                packed(&READ3resok {
                    file_attributes: Nfs3Option::Some(file),
                    count: data.len() as u32,
                    eof: true,
                    data: Opaque::borrowed(&data),
                })
            }
            other => panic!("the cache calls {other}"),
        }
    }
}

fn packed(results: &impl Pack) -> Bytes {
    let mut bytes = vec![0; 4];
    encode(&mut bytes, results);
    bytes.into()
}

/// Keeps records in files, and no data.
#[derive(Clone)]
struct Files(Option<PathBuf>);

impl Files {
    fn file(&self, key: &[u8]) -> PathBuf {
        let name: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        self.0.as_ref().expect("it lasts").join(name)
    }
}

impl Store for Files {
    fn put(&mut self, _: NodeId, _: u64, _: &Bytes) -> Result<(), StoreFull> {
        Err(StoreFull)
    }

    fn get(&mut self, _: NodeId, _: u64) -> Option<Bytes> {
        None
    }

    fn remove(&mut self, _: NodeId, _: u64) {}

    fn is_lasting(&self) -> bool {
        self.0.is_some()
    }

    fn recall(&mut self, _: NodeId, key: &[u8]) -> Option<Bytes> {
        fs::read(self.file(key)).ok().map(Bytes::from)
    }

    fn keep(&mut self, _: NodeId, record: &Record<'_>) {
        fs::write(self.file(record.key), &record.body).unwrap();
    }
}

struct World<S> {
    now: Instant,
    server: Server,
    cache: Cache<S>,
}

impl<S: Store> World<S> {
    fn new(directories: Vec<u64>, store: S, config: CacheConfig) -> Self {
        let now = Instant::now() + Duration::from_secs(60);
        let root = Metadata::from(&Server::attributes(ROOT));
        let cache = Cache::new(config, now, Server::handle(ROOT), root, store);
        Self { now, server: Server { directories }, cache }
    }

    /// Begins with what was kept, without a server.
    fn disconnected(store: S) -> Self {
        let (now, root) = (Instant::now(), Server::handle(ROOT));
        let since_1970 = Duration::from_secs(1_700_000_000);
        let cache = Cache::disconnected(CacheConfig::default(), now, since_1970, root, store);
        Self { now, server: Server { directories: Vec::new() }, cache: cache.expect("the root was kept") }
    }

    fn run(&mut self, begin: impl FnOnce(&mut Cache<S>, Instant) -> OperationId) -> Result<Answer, Failure> {
        let begun = begin(&mut self.cache, self.now);
        for _ in 0..1000 {
            while let Some(event) = self.cache.poll_event() {
                if let Event::Done { operation, result } = event
                    && operation == begun
                {
                    return result;
                }
            }
            while let Some(sent) = self.cache.poll_transmit(self.now) {
                let results = self.server.answer(&sent);
                self.cache.handle_reply(self.now, sent.call, Outcome::Results(results));
            }
        }
        panic!("it waits")
    }

    /// Lists a directory, and asks for the attributes of all that is in it, as `ls -l` does; returns the nodes.
    fn list(&mut self, node: NodeId) -> Vec<NodeId> {
        let Ok(Answer::Listing(entries)) = self.run(|cache, now| cache.list(now, node)) else {
            panic!("not listed")
        };
        let mut nodes = Vec::new();
        for entry in &*entries {
            let Ok(Answer::Entry { node, metadata }) =
                self.run(|cache, now| cache.lookup(now, node, &entry.name))
            else {
                panic!("not found")
            };
            assert_eq!(metadata.fileid, entry.fileid);
            nodes.push(node);
        }
        nodes
    }

    /// Lists everything, and returns the directories and how many files are in them.
    fn list_all(&mut self) -> Vec<(NodeId, u64)> {
        let directories = self.list(NodeId::ROOT);
        directories.into_iter().map(|node| (node, self.list(node).len() as u64)).collect()
    }

    /// Looks every file up, as a program does that opens them by their names.
    fn look_up_all(&mut self, directories: &[(NodeId, u64)]) {
        for &(node, files) in directories {
            for file in 1..=files {
                let name = Server::name(file);
                let found = self.run(|cache, now| cache.lookup(now, node, name.as_bytes()));
                assert!(matches!(found, Ok(Answer::Entry { .. })), "{found:?}");
            }
        }
    }
}

/// Fills a cache, and returns the bytes that it takes, and those that it took at most.
fn measure(directories: Vec<u64>, store: Files) -> (usize, usize) {
    let objects = 1 + directories.len() + directories.iter().sum::<u64>() as usize;
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let mut world = World::new(directories, store.clone(), CacheConfig::default());
    let all = world.list_all();
    world.cache.keep_all();
    let (held, peak) = (HELD.load(Ordering::Relaxed) - before, PEAK.load(Ordering::Relaxed) - before);
    assert_eq!(world.cache.stats().objects, objects);
    // Everything is asked for again.
    world.now += Duration::from_secs(120);
    world.list_all();
    world.now += Duration::from_secs(120);
    world.look_up_all(&all);
    let (again, most) = (HELD.load(Ordering::Relaxed) - before, PEAK.load(Ordering::Relaxed) - before);
    let mib = |bytes: usize| bytes as f64 / MIB as f64;
    println!(
        "{objects} objects: {:.1} MiB held, {:.1} at the peak; asked for again {:.1} and {:.1}; {} bytes an object",
        mib(held),
        mib(peak),
        mib(again),
        mib(most),
        held / objects,
    );
    if !store.is_lasting() {
        return (held.max(again), peak.max(most));
    }
    world.cache.keep_all();
    drop(world);
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let mut world = World::disconnected(store);
    world.list_all();
    assert_eq!(world.cache.stats().objects, objects);
    let (kept, most_kept) = (HELD.load(Ordering::Relaxed) - before, PEAK.load(Ordering::Relaxed) - before);
    println!("from the store {:.1} MiB held, {:.1} at the peak", mib(kept), mib(most_kept));
    (held.max(again).max(kept), peak.max(most).max(most_kept))
}

#[test]
fn a_hundred_thousand_objects_take_at_most_64_mib() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for directories in [vec![1000; 100], [vec![900; 100], vec![10_000]].concat(), vec![100_000]] {
        let place = tempfile::tempdir().unwrap();
        for store in [None, Some(place.path().to_owned())] {
            let (held, peak) = measure(directories.clone(), Files(store));
            assert!(held <= LIMIT, "{held} bytes are held");
            assert!(peak <= LIMIT, "{peak} bytes at the peak");
        }
    }
}

/// Keeps grains by node in memory, as a store on disk keeps them in files.
#[derive(Clone, Default)]
struct Nodes(Rc<RefCell<BTreeMap<NodeId, BTreeMap<u64, Bytes>>>>);

impl Store for Nodes {
    fn put(&mut self, node: NodeId, grain: u64, data: &Bytes) -> Result<(), StoreFull> {
        let mut nodes = self.0.borrow_mut();
        // The cache has said what the node is.
        let grains = nodes.get_mut(&node).ok_or(StoreFull)?;
        grains.insert(grain, Bytes::copy_from_slice(data));
        Ok(())
    }

    fn get(&mut self, node: NodeId, grain: u64) -> Option<Bytes> {
        self.0.borrow().get(&node)?.get(&grain).cloned()
    }

    fn remove(&mut self, node: NodeId, grain: u64) {
        self.0.borrow_mut().get_mut(&node).expect("a node that was recalled").remove(&grain);
    }

    fn is_lasting(&self) -> bool {
        true
    }

    fn recall(&mut self, node: NodeId, _: &[u8]) -> Option<Bytes> {
        self.0.borrow_mut().entry(node).or_default();
        None
    }

    fn release(&mut self, node: NodeId, _: &[u8], _: bool) {
        self.0.borrow_mut().remove(&node);
    }
}

/// Files that were read, and of which nothing is held any more, take as much as those that were never read.
#[test]
fn what_was_read_and_dropped_takes_no_memory() {
    const FILES: u64 = 20_000;
    const FILE_BYTES: u64 = 4000;
    const HELD_FILES: u64 = 100;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let store = Nodes::default();
    let mut config = CacheConfig::default();
    config.size_bytes = FILE_BYTES * HELD_FILES;
    let mut world = World::new(vec![1000; (FILES / 1000) as usize], store.clone(), config);
    let directories = world.list_all();
    world.now += Duration::from_secs(120);
    world.look_up_all(&directories);
    world.cache.keep_all();
    let before = HELD.load(Ordering::Relaxed);
    for (directory, _) in directories {
        for file in world.list(directory) {
            let Ok(Answer::Opened { open, .. }) = world.run(|cache, now| cache.open(now, file)) else {
                panic!("not opened")
            };
            let read = world.run(|cache, now| cache.read(now, open, 0, FILE_BYTES as u32));
            assert!(matches!(read, Ok(Answer::Data(_))), "{read:?}");
            world.cache.release(open);
        }
    }
    world.cache.keep_all();
    let (held, data) = (HELD.load(Ordering::Relaxed) - before, world.cache.stats().held_bytes as usize);
    let nodes = store.0.borrow().len() as u64 - 1 - FILES / 1000;
    println!(
        "{nodes} files in the store; {} bytes for each file that was read",
        (held - data) as u64 / FILES
    );
    assert!(nodes <= HELD_FILES, "{nodes} files in the store");
    assert!((held - data) as u64 <= FILES * 100, "{held} bytes, {data} of them data");
}
