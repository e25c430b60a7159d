//! Many files for a long time: what a mount takes has the bounds of docs/mount.md at the end.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    time::{Duration, Instant},
};

use crate::{
    blocks::Random,
    faults::Faults,
    mounted::Mount,
    program::{meanwhile, resident, run},
    server::Server,
};

const DIRECTORIES: usize = 200;

const FILES_EACH: usize = 1000;

/// A file has at most so many bytes.
const MOST_BYTES: usize = 8 << 10;

/// Much less than all files have, so that room is made all the time.
const CACHE_MIB: u64 = 64;

/// Most memory of a mount of 200,000 files: 450 bytes for each, a directory that is written to the disk, and the program itself
/// (docs/mount.md, The cache).
const MOST_MEMORY_KIB: u64 = 200 << 10;

/// Most descriptors: sockets, the cache, and files of the cache that are open at the moment.
const MOST_DESCRIPTORS: usize = 200;

fn path(random: &mut Random) -> String {
    format!("{}/{}", random.below(DIRECTORIES), random.below(FILES_EACH))
}

fn bytes(random: &mut Random) -> Vec<u8> {
    vec![random.next() as u8; random.below(MOST_BYTES)]
}

/// Space that everything below a directory takes.
fn disk_bytes(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(known) if known.is_dir() => disk_bytes(&entry.path()),
        Ok(known) => known.blocks() * 512,
        Err(_) => 0,
    };
    entries.map(size).sum()
}

fn soak(during: Duration) {
    let server = Server::new(Faults::default());
    let mut random = Random(1);
    server.edit(|tree| {
        for directory in 0..DIRECTORIES {
            tree.mkdir(&directory.to_string());
            (0..FILES_EACH)
                .for_each(|file| tree.create_old(&format!("{directory}/{file}"), bytes(&mut random)));
        }
    });
    let size = format!("{CACHE_MIB}M");
    let mount = Mount::at(&server.url("/"), &["--cache-size", &size, "--wait", "5s"]);
    let descriptors = || fs::read_dir(format!("/proc/{}/fd", mount.process.id())).unwrap().count();
    let begun = Instant::now();
    let report = |what: &str| {
        println!(
            "{what}: after {:.0?} {} MiB of memory, {} descriptors, {} MiB of disk",
            begun.elapsed(),
            resident(&mount) >> 10,
            descriptors(),
            disk_bytes(&mount.cache) >> 20
        );
    };
    report("at first");
    assert_eq!(run("find . -type f | wc -l", &mount.path).trim(), (DIRECTORIES * FILES_EACH).to_string());
    report("all listed");
    let mut changes = Random(2);
    let churn = |_| {
        server.edit(|tree| {
            for _ in 0..20 {
                let (path, bytes) = (path(&mut changes), bytes(&mut changes));
                match changes.below(3) {
                    0 => tree.replace(&path, bytes),
                    1 => tree.rewrite(&path, |old| *old = bytes),
                    _ => tree.change(&path, |node| node.mode ^= 0o040),
                }
            }
        });
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut reads = 0_u64;
    meanwhile(churn, || {
        while begun.elapsed() < during {
            let path = mount.path(&path(&mut random));
            if random.below(50) == 0 {
                assert!(fs::read_dir(path.parent().unwrap()).unwrap().count() >= FILES_EACH);
            }
            // It may be replaced between two calls.
            if let Ok(read) = fs::read(&path) {
                assert!(read.windows(2).all(|two| two[0] == two[1]), "{path:?} is of two versions");
                reads += 1;
            }
            if reads % 20_000 == 1 {
                report("on the way");
            }
        }
    });
    report("at the end");
    println!("{reads} files were read, by {} calls", server.all_calls());
    assert!(reads > during.as_secs() * 10, "only {reads} reads");
    let (memory, disk) = (resident(&mount), disk_bytes(&mount.cache));
    assert!(memory <= MOST_MEMORY_KIB, "{} MiB of memory", memory >> 10);
    assert!(descriptors() <= MOST_DESCRIPTORS, "{} descriptors", descriptors());
    // Small files take whole blocks of the disk, and records of names and versions come on top.
    assert!(
        disk <= (CACHE_MIB << 20) * 2 + (DIRECTORIES * FILES_EACH) as u64 * 1024,
        "{} MiB of disk",
        disk >> 20
    );
}

/// Issue 40. 200,000 files, 10 minutes of changes: memory, descriptors and disk are bounded at the end.
#[test]
#[ignore = "takes ten minutes"]
fn ten_minutes_of_changes_among_200_000_files_leave_a_mount_within_its_bounds() {
    soak(Duration::from_secs(600));
}
