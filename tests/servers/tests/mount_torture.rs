//! `nfsw mount` of the Linux kernel's server and of nfs-ganesha, whose files change while processes read them.
//!
//! A shorter form of the torture in the tests of the command, with its blocks and its processes. Makes mounts, so it needs root and
//! /dev/fuse, as CI has.

#[path = "../../../crates/cli/tests/mount_torture/blocks.rs"]
mod blocks;
#[path = "../../../crates/cli/tests/mount_torture/worker.rs"]
mod worker;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use blocks::{Label, Random, contents};
use private_servers::{
    Server,
    ganesha::{self, Ganesha},
    knfsd::{self, Knfsd},
    nfsw,
};
use worker::Worker;

/// Files that change.
const FILES: u64 = 4;

/// Versions of each, all of one size.
const VERSIONS: u64 = 40;

/// Blocks of a file: more than one READ of the mount, and one write of the server.
const BLOCKS: u64 = 400;

/// How long the mount waits for the server.
const WAIT: Duration = Duration::from_secs(5);

/// Processes that read.
const READERS: u64 = 3;

/// A mount with a cache of its own, gone when this is dropped.
struct Mount {
    path: PathBuf,
    _place: tempfile::TempDir,
}

impl Mount {
    fn of(server: &impl Server) -> Self {
        let place = tempfile::tempdir().unwrap();
        let (path, url) = (place.path().join("view"), url(server, ""));
        fs::create_dir(&path).unwrap();
        let output = Command::new(nfsw())
            .args(["mount", "--background", "--wait", "5s", "--cache"])
            .args([&place.path().join("cache"), Path::new(&url), &path])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { path, _place: place }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new(nfsw()).arg("umount").arg(&self.path).status();
    }
}

/// A version, and since when it may be seen and until when it may be.
#[derive(Clone, Copy)]
struct Moment {
    version: u64,
    since: Instant,
    until: Option<Instant>,
    /// It was written over the one before, whose blocks may be seen beside its own until that was done.
    in_place: bool,
}

/// Versions of all files, by file.
type History = Mutex<Vec<Vec<Moment>>>;

/// URL of a path below the export.
fn url(server: &impl Server, path: &str) -> String {
    let (nfs, mount) = server.ports();
    format!("nfs://127.0.0.1:{nfs}{}{path}?mountport={mount}", server.export())
}

/// Changes the server by NFS, for nfs-ganesha does not notice what is changed behind its back.
fn run(server: &impl Server, command: &str, arguments: &[&str]) -> Result<()> {
    let arguments =
        arguments.iter().map(|it| if it.starts_with("/d") { url(server, it) } else { (*it).to_owned() });
    let state = concat!(env!("CARGO_TARGET_TMPDIR"), "/state");
    let output = Command::new(nfsw()).arg(command).args(arguments).env("XDG_STATE_HOME", state).output()?;
    ensure!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Makes all versions of the files, the first of which have names.
fn prepare(server: &impl Server) -> Result<tempfile::TempDir> {
    let local = tempfile::tempdir()?;
    run(server, "mkdir", &["/d"])?;
    for file in 0..FILES {
        for version in 0..VERSIONS {
            let bytes = contents(Label { file, version }, 0..BLOCKS);
            fs::write(local.path().join(format!("{file}-{version}")), bytes)?;
        }
    }
    for (version, name) in
        [("0-0", "/d/0"), ("1-0", "/d/1"), ("2-0", "/d/2"), ("3-0", "/d/3"), ("0-0", "/d/stays")]
    {
        run(server, "cp", &[local.path().join(version).to_str().unwrap(), name])?;
    }
    Ok(local)
}

/// Changes files until there is no version left.
fn change(server: &impl Server, versions: &Path, history: &History, random: &mut Random) -> Result<()> {
    for turn in 1..FILES * VERSIONS {
        let (file, version) = (turn % FILES, turn / FILES);
        let (name, new) = (format!("/d/{file}"), versions.join(format!("{file}-{version}")));
        let (mode, kind) = (format!("6{}0", version % 8), random.below(4));
        let since = Instant::now();
        let moments = |then: &dyn Fn(&mut Vec<Moment>)| then(&mut history.lock().unwrap()[file as usize]);
        if kind < 2 {
            moments(&|moments| moments.push(Moment { version, since, until: None, in_place: kind == 1 }));
        }
        match kind {
            0 => run(server, "cp", &[new.to_str().unwrap(), &name])?,
            1 => run(server, "cp", &["--inplace", new.to_str().unwrap(), &name])?,
            2 => run(server, "chmod", &[&mode, &name, "/d/stays"])?,
            _ => {
                run(server, "ln", &[&name, "/d/link"])?;
                run(server, "rm", &["/d/link"])?;
            }
        }
        if kind < 2 {
            moments(&|moments| {
                let before = moments.len() - 2;
                moments[before].until = Some(Instant::now());
            });
        }
    }
    Ok(())
}

/// One process opens and reads, until all changes were made.
fn read(mount: &Mount, history: &History, over: &AtomicBool, seed: u64) -> (usize, Vec<String>) {
    let (mut worker, mut random, mut wrong, mut opens) = (Worker::start(), Random(seed), Vec::new(), 0);
    while !over.load(Ordering::Relaxed) {
        let file = random.below(FILES as usize);
        let begun = Instant::now();
        let opened = worker.run(&format!("open {}", mount.path.join("d").join(file.to_string()).display()));
        if let Err(error) = opened.words {
            wrong.push(format!("open {file}: {error}"));
            continue;
        }
        opens += 1;
        for request in ["pread 0 4096", "read", "mmap", "direct 102400 51200"] {
            let answer = worker.run(request);
            let ended = Instant::now();
            if answer.took > WAIT + Duration::from_secs(2) {
                wrong.push(format!("{request} of {file} took {:.1?}", answer.took));
            }
            let seen: Vec<_> = history.lock().unwrap()[file]
                .iter()
                .filter(|it| it.since <= ended && it.until.is_none_or(|until| until >= begun))
                .copied()
                .collect();
            let words = match answer.words {
                Ok(words) => words,
                Err(error) => {
                    if seen.len() == 1 {
                        wrong.push(format!("{request} of {file}, which did not change: {error}"));
                    }
                    break;
                }
            };
            let labels: Vec<_> = words[1..].iter().map(|word| word.split_once(':').unwrap()).collect();
            for (of, version) in &labels {
                let version: u64 = version.parse().unwrap();
                if *of != file.to_string() || !seen.iter().any(|it| it.version == version) {
                    let known: Vec<_> = seen.iter().map(|it| it.version).collect();
                    wrong.push(format!("{request} of {file}: {of}:{version}, and it had {known:?}"));
                }
            }
            if labels.len() != 1 && !seen.iter().any(|it| it.in_place) {
                wrong.push(format!("{request} of {file}: of several versions: {words:?}"));
            }
        }
    }
    (opens, wrong)
}

fn torture(server: &impl Server) -> Result<()> {
    let seed = std::env::var("NFSW_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let versions = prepare(server)?;
    let mount = Mount::of(server);
    let first = Moment { version: 0, since: Instant::now(), until: None, in_place: false };
    let (history, over) = (Mutex::new(vec![vec![first]; FILES as usize]), AtomicBool::new(false));
    let stays = mount.path.join("d/stays");
    ensure!(fs::read(&stays)? == contents(Label { file: 0, version: 0 }, 0..BLOCKS));
    let (changed, all) = thread::scope(|scope| {
        let (mount, history, over) = (&mount, &history, &over);
        let readers: Vec<_> = (0..READERS)
            .map(|number| scope.spawn(move || read(mount, history, over, seed + number)))
            .collect();
        let changed = change(server, versions.path(), history, &mut Random(seed));
        over.store(true, Ordering::Relaxed);
        (changed, readers.into_iter().map(|reader| reader.join().unwrap()).collect::<Vec<_>>())
    });
    changed?;
    let opens: usize = all.iter().map(|(opens, _)| opens).sum();
    let wrong: Vec<_> = all.into_iter().flat_map(|(_, wrong)| wrong).collect();
    println!("{} wrong in {opens} opens", wrong.len());
    assert!(
        wrong.is_empty(),
        "NFSW_SEED={seed}: {} wrong in {opens} opens: {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(9)]
    );
    ensure!(fs::read(&stays)? == contents(Label { file: 0, version: 0 }, 0..BLOCKS));
    Ok(())
}

#[test]
fn the_kernels_server_in_a_virtual_machine() {
    torture(&Knfsd::start(knfsd::Options::default()).unwrap()).unwrap();
}

#[test]
fn nfs_ganesha() {
    torture(&Ganesha::start(ganesha::Options::default())).unwrap();
}

/// Issue 40.1: a mount point inside the export is an entry without handle, and LOOKUP leads into it.
#[test]
fn a_file_system_inside_the_export_of_the_kernels_server_can_be_listed_and_entered() {
    let server = Knfsd::start(knfsd::Options::default()).unwrap();
    server
        .run(
            "mkdir -p d/nested; echo outer >d/outer; mount -t tmpfs none d/nested; echo inner >d/nested/inner
             exportfs -o rw,nohide,insecure,no_root_squash,no_subtree_check,fsid=2 '*:/export/d/nested'",
        )
        .unwrap();
    let mount = Mount::of(&server);
    let see = |script: &str| {
        let output = Command::new("sh").args(["-ec", script]).current_dir(&mount.path).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    let seen = [
        "ls -l d | grep nested | cut -c 1-4",
        "find d -printf '%y %P\\n' | sort",
        "cat d/nested/inner d/outer",
    ]
    .map(see);
    drop(mount);
    server.run("exportfs -u '*:/export/d/nested'; umount -l d/nested").unwrap();
    let expected = ["drwx\n", "d \nd nested\nf nested/inner\nf outer\n", "inner\nouter\n"];
    assert_eq!(seen, expected.map(|text| (true, text.to_owned())));
}

/// What was read is there while the kernel's server exports nothing, and when it has stopped.
#[test]
fn what_was_read_outlasts_a_reexport_and_a_stop_of_the_kernels_server() {
    let server = Knfsd::start(knfsd::Options::default()).unwrap();
    server.run("mkdir -p d; for file in 1 2 3; do echo $file >d/$file; done").unwrap();
    let mount = Mount::of(&server);
    let read = || [1, 2, 3].map(|file| fs::read_to_string(mount.path.join(format!("d/{file}"))).ok());
    let expected = ["1\n", "2\n", "3\n"].map(|text| Some(text.to_owned()));
    assert_eq!(fs::read_dir(mount.path.join("d")).unwrap().count(), 3);
    assert_eq!(read(), expected);
    thread::sleep(Duration::from_secs(3));
    assert_eq!(read(), expected);
    thread::scope(|scope| {
        let reexport = scope.spawn(|| server.reexport().unwrap());
        while !reexport.is_finished() {
            read();
            thread::sleep(Duration::from_millis(50));
        }
    });
    server.run("rpc.nfsd 0").unwrap();
    thread::sleep(Duration::from_secs(2));
    assert_eq!(read(), expected, "after a re-export, without the server");
    assert_eq!(fs::read_dir(mount.path.join("d")).unwrap().count(), 3);
}
