//! Files by path against `std::fs`: the same operations in the same order have the same results, errors and trees.

use std::{
    collections::BTreeMap,
    fmt, fs,
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::Path,
};

use nfs_wireless_client::{ClientConfig, Error, FileType, Fs, NfsStatus, OpenOptions, SetAttributes};
use nfs_wireless_server::Server;
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use crate::embedded;

async fn connect(server: &Server, path: &str) -> Fs {
    let mut config = ClientConfig::default();
    config.portmap_port = server.local_addr().port();
    Fs::connect("127.0.0.1", path, config).await.unwrap()
}

/// Names of a small tree, so that operations meet.
const PATHS: [&str; 18] = [
    "a",
    "b",
    "a/x",
    "a/y",
    "a/x/deep",
    "b/x",
    "link",
    "link/x",
    "a/../b",
    "missing/x",
    "loop",
    "dangling",
    // What can only be a directory.
    "a/",
    "b//",
    "link/",
    "loop/",
    "a/x/.",
    "./b/./",
];

/// What both have: files, directories and links, by path.
#[derive(PartialEq, Eq)]
enum Seen {
    File(Vec<u8>),
    Directory,
    Link(Vec<u8>),
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(bytes) => write!(f, "{} bytes, the last of them {:?}", bytes.len(), bytes.last()),
            Self::Directory => f.write_str("directory"),
            Self::Link(target) => write!(f, "-> {}", String::from_utf8_lossy(target)),
        }
    }
}

fn local_tree(at: &Path, below: &str, tree: &mut BTreeMap<String, Seen>) {
    for entry in fs::read_dir(at).unwrap() {
        let (path, kind) = entry.map(|it| (it.path(), it.file_type().unwrap())).unwrap();
        let name = format!("{below}/{}", path.file_name().unwrap().to_str().unwrap());
        if kind.is_dir() {
            local_tree(&path, &name, tree);
            tree.insert(name, Seen::Directory);
        } else if kind.is_symlink() {
            tree.insert(name, Seen::Link(fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()));
        } else {
            tree.insert(name, Seen::File(fs::read(&path).unwrap()));
        }
    }
}

async fn remote_tree(nas: &Fs) -> BTreeMap<String, Seen> {
    let (mut tree, mut open) = (BTreeMap::new(), vec![String::new()]);
    while let Some(below) = open.pop() {
        let mut listing = nas.read_dir(&below).await.unwrap();
        while let Some(entry) = listing.next_entry().await.unwrap() {
            let path = str::from_utf8(entry.path()).unwrap();
            let seen = match entry.file_type().unwrap() {
                FileType::Directory => {
                    open.push(path.to_owned());
                    Seen::Directory
                }
                FileType::Symlink => Seen::Link(nas.read_link(path).await.unwrap()),
                _ => Seen::File(nas.read(path).await.unwrap()),
            };
            tree.insert(format!("/{path}"), seen);
        }
    }
    tree
}

/// What came of an operation.
type Outcome = Result<Vec<u8>, ErrorKind>;

fn of<T>(result: io::Result<T>, told: impl FnOnce(T) -> Vec<u8>) -> Outcome {
    result.map(told).map_err(|error| error.kind())
}

/// What came of an operation that tells nothing, there and here.
fn both(what: String, there: Result<(), Error>, here: io::Result<()>) -> (String, Outcome, Outcome) {
    (what, of(there.map_err(Into::into), |()| Vec::new()), of(here, |()| Vec::new()))
}

/// Does one operation in both places. Returns its words, and what came of it there and here.
async fn operate(random: &mut ChaCha8Rng, nas: &Fs, local: &Path) -> (String, Outcome, Outcome) {
    let mut below = |bound: u32| random.next_u32() % bound;
    let mut any_path = || PATHS[below(PATHS.len() as u32) as usize];
    let (path, other) = (any_path(), any_path());
    let (bits, bytes, offset) = (below(64), vec![below(256) as u8; below(3000) as usize], below(4000));
    let here = local.join(path);
    let error = |error: Error| io::Error::from(error);
    match below(17) {
        0 => both(format!("create_dir {path}"), nas.create_dir(path).await, fs::create_dir(&here)),
        // Here std::fs wants what is above to be there.
        1 if !path.ends_with("/.") && !path.ends_with("/./") => {
            both(format!("create_dir_all {path}"), nas.create_dir_all(path).await, fs::create_dir_all(&here))
        }
        2 => both(format!("remove_file {path}"), nas.remove_file(path).await, fs::remove_file(&here)),
        3 => both(format!("remove_dir {path}"), nas.remove_dir(path).await, fs::remove_dir(&here)),
        // std::fs empties what such a path leads to, and fails then.
        4 if !path.contains("..") && !path.ends_with(['/', '.']) => {
            both(format!("remove_dir_all {path}"), nas.remove_dir_all(path).await, fs::remove_dir_all(&here))
        }
        5 | 6 => {
            let (what, there, here) = both(
                format!("rename {path} {other}"),
                nas.rename(path, other).await,
                fs::rename(&here, local.join(other)),
            );
            // Which of several reasons counts is the server's choice.
            let why = |outcome: Outcome| outcome.map_err(|_| ErrorKind::Other);
            (what, why(there), why(here))
        }
        7 => both(
            format!("hard_link {path} {other}"),
            nas.hard_link(path, other).await,
            fs::hard_link(&here, local.join(other)),
        ),
        8 => {
            let target = ["a", "../b", "loop", "gone", "b/x", "a/", "./gone/"][below(7) as usize];
            let what = format!("symlink {target} {path}");
            both(what, nas.symlink(target, path).await, symlink(target, &here))
        }
        9 => both(
            format!("write {} bytes to {path}", bytes.len()),
            nas.write(path, &bytes).await,
            fs::write(&here, &bytes),
        ),
        10 => {
            let done = (nas.metadata(path).await.map_err(error), fs::metadata(&here));
            let size = |size: u64| size.to_string().into_bytes();
            let there = of(done.0, |it| size(if it.file_type == FileType::Regular { it.size } else { 0 }));
            (
                format!("metadata {path}"),
                there,
                of(done.1, |it| size(if it.is_file() { it.len() } else { 0 })),
            )
        }
        11 => {
            let done = (nas.try_exists(path).await.map_err(error), here.try_exists());
            (format!("try_exists {path}"), of(done.0, |it| vec![it.into()]), of(done.1, |it| vec![it.into()]))
        }
        12 => {
            let names = |mut names: Vec<Vec<u8>>| {
                names.sort();
                names.concat()
            };
            let there = async {
                let (mut listing, mut found) = (nas.read_dir(path).await?, Vec::new());
                while let Some(entry) = listing.next_entry().await? {
                    found.push(entry.file_name().to_vec());
                }
                Result::<_, Error>::Ok(found)
            };
            let here = fs::read_dir(&here)
                .map(|listing| listing.map(|entry| entry.unwrap().file_name().as_bytes().to_vec()).collect());
            (format!("read_dir {path}"), of(there.await.map_err(error), names), of(here, names))
        }
        13 => {
            let done = (nas.symlink_metadata(path).await.map_err(error), fs::symlink_metadata(&here));
            let kinds = |it: [bool; 3]| it.map(u8::from).to_vec();
            (
                format!("symlink_metadata {path}"),
                of(done.0, |it| kinds([it.is_dir(), it.is_file(), it.is_symlink()])),
                of(done.1, |it| kinds([it.is_dir(), it.is_file(), it.is_symlink()])),
            )
        }
        _ => {
            let on = |bit: u32| bits & 1 << bit != 0;
            let (mut ours, mut theirs) = (OpenOptions::new(), fs::OpenOptions::new());
            ours.read(on(0)).write(on(1)).append(on(2)).truncate(on(3)).create(on(4)).create_new(on(5));
            theirs.read(on(0)).write(on(1)).append(on(2)).truncate(on(3)).create(on(4)).create_new(on(5));
            let there = async {
                let mut file = ours.open(nas, path).await?;
                let mut read = Vec::new();
                if on(0) {
                    file.read_to_end(&mut read).await?;
                    file.seek(SeekFrom::End(-(offset as i64).min(file.metadata().await?.size as i64)))
                        .await?;
                    file.read_to_end(&mut read).await?;
                }
                if on(1) || on(2) {
                    file.write_all(&bytes).await?;
                    file.flush().await?;
                    file.set_len(u64::from(offset)).await?;
                    file.seek(SeekFrom::End(3)).await?;
                    file.write_all(b"end").await?;
                    file.flush().await?;
                }
                io::Result::Ok(read)
            };
            let here = || {
                let mut file = theirs.open(&here)?;
                let mut read = Vec::new();
                if on(0) {
                    file.read_to_end(&mut read)?;
                    file.seek(SeekFrom::End(-(offset as i64).min(file.metadata()?.len() as i64)))?;
                    file.read_to_end(&mut read)?;
                }
                if on(1) || on(2) {
                    file.write_all(&bytes)?;
                    file.set_len(u64::from(offset))?;
                    file.seek(SeekFrom::End(3))?;
                    file.write_all(b"end")?;
                }
                io::Result::Ok(read)
            };
            (format!("{theirs:?} {path}"), of(there.await, |read| read), of(here(), |read| read))
        }
    }
}

#[tokio::test]
async fn whatever_is_done_by_path_does_what_std_fs_does() {
    for seed in 0..60 {
        let (server, place) = (embedded::serve().await, tempfile::tempdir().unwrap());
        let root = connect(&server, "/").await;
        root.create_dir("base").await.unwrap();
        // Links may lead out of it, and into nothing else.
        let (nas, local) = (Fs::new(root.client().clone(), "/base"), place.path().join("base"));
        fs::create_dir(&local).unwrap();
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        for number in 0..120 {
            let (what, there, here) = operate(&mut random, &nas, &local).await;
            let shown = |it: &Outcome| it.as_ref().map(Vec::len).map_err(|&kind| kind);
            assert_eq!(shown(&there), shown(&here), "seed {seed}, operation {number}: {what}");
            assert!(there == here, "seed {seed}, operation {number}: {what}");
            let mut expected = BTreeMap::new();
            local_tree(&local, "", &mut expected);
            let seen = remote_tree(&nas).await;
            assert!(
                seen == expected,
                "seed {seed}, after operation {number}: {what}: {seen:?}, not {expected:?}"
            );
        }
    }
}

#[tokio::test]
async fn paths_are_below_what_was_connected_to_or_absolute_and_stay_in_the_export() {
    let server = embedded::serve().await;
    let root = connect(&server, "/").await;
    root.create_dir_all("srv/music/new").await.unwrap();
    root.write("srv/music/song", "la").await.unwrap();
    let music = connect(&server, "/srv/music").await;
    for path in ["song", "./song", "new/../song", "/srv/music/song", "../music/song", "//srv/./music//song"] {
        assert_eq!(music.read(path).await.unwrap(), b"la", "{path}");
    }
    music.symlink("/srv/music/song", "new/link").await.unwrap();
    assert_eq!(music.read("new/link").await.unwrap(), b"la");
    let song = music.entry("new/link").await.unwrap();
    assert_eq!(song.metadata.size, 2, "links are followed");
    assert_eq!(music.client().read(song.handle, 0, 9).await.unwrap().0, &b"la"[..]);
    assert_eq!(music.read_link("new/link").await.unwrap(), b"/srv/music/song");
    for path in ["../../../song", "/srv/../../x"] {
        assert_eq!(music.metadata(path).await.unwrap_err().kind(), ErrorKind::NotFound, "{path}");
    }
    assert!(music.metadata("song/x").await.is_err_and(|error| error.status() == Some(NfsStatus::NOTDIR)));
    let mode = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    music.set_attributes("new/link", mode).await.unwrap();
    assert_eq!(music.metadata("song").await.unwrap().mode & 0o777, 0o600);
    let same = Fs::new(music.client().clone(), "/srv");
    assert_eq!(same.read("music/song").await.unwrap(), b"la");
}
