//! `nfsw mount --offline` of a cache that cannot be written to, through the kernel. Makes mounts, so it needs root and /dev/fuse, as CI has.

use std::{
    fs::{self, Permissions},
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{
    common::{self, Server, command, names, noise, program},
    mounted::{self, Mount, age},
};
use rustix::{
    mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount},
    process::Signal,
};

/// What stands in the way of writing, and what is said of it.
struct Row {
    name: &'static str,
    prepare: fn(&Path),
    undo: fn(&Path),
    /// What is held is shown.
    shown: bool,
    said: &'static str,
}

const ROWS: [Row; 8] = [
    Row { name: "writable", prepare: |_| {}, undo: |_| {}, shown: true, said: "" },
    Row {
        name: "a file system that is mounted for reads alone",
        prepare: bind_read_only,
        undo: |cache| unmount(cache, UnmountFlags::DETACH).unwrap(),
        shown: true,
        said: "read-only file system",
    },
    Row {
        name: "the same, and nobody has left a lock",
        prepare: |cache| {
            let lock = root(cache).join("lock");
            fs::remove_file(lock).unwrap();
            bind_read_only(cache);
        },
        undo: |cache| unmount(cache, UnmountFlags::DETACH).unwrap(),
        shown: true,
        said: "read-only file system",
    },
    Row {
        name: "no file and no directory may be written",
        prepare: |cache| modes(cache, 0o500, 0o400),
        undo: |cache| modes(cache, 0o700, 0o600),
        shown: true,
        said: "permission denied",
    },
    Row {
        name: "no directory may be written",
        prepare: |cache| modes(cache, 0o500, 0o600),
        undo: |cache| modes(cache, 0o700, 0o600),
        shown: true,
        said: "permission denied",
    },
    Row {
        name: "the cache directory may not be read",
        prepare: |cache| set_mode(cache, 0o300),
        undo: |cache| set_mode(cache, 0o700),
        shown: false,
        said: "cache: permission denied",
    },
    Row {
        name: "what is held may not be read",
        prepare: |cache| set_mode(&root(cache), 0),
        undo: |cache| set_mode(&root(cache), 0o700),
        shown: false,
        said: "root: permission denied",
    },
    Row {
        name: "what the cache directory is may not be read",
        prepare: |cache| set_mode(&root(cache).join("root"), 0o200),
        undo: |cache| set_mode(&root(cache).join("root"), 0o600),
        shown: false,
        said: "root: permission denied",
    },
];

fn bind_read_only(cache: &Path) {
    mount_bind(cache, cache).unwrap();
    mount_remount(cache, MountFlags::BIND | MountFlags::RDONLY, "").unwrap();
}

/// What is held of the only directory that was mounted.
fn root(cache: &Path) -> PathBuf {
    fs::read_dir(cache).unwrap().next().unwrap().unwrap().path()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn modes(path: &Path, directories: u32, files: u32) {
    if !path.is_dir() {
        return set_mode(path, files);
    }
    set_mode(path, 0o700);
    for entry in fs::read_dir(path).unwrap() {
        modes(&entry.unwrap().path(), directories, files);
    }
    set_mode(path, directories);
}

/// A mount by somebody for whom modes count, even if that is root.
fn mount_offline(url: &str, cache: &Path, view: &Path) -> (Child, String) {
    let mut process = Command::new("setpriv");
    process.args(["--bounding-set", "-dac_override,-dac_read_search"]).arg(program());
    let plain = command(["mount", "--offline", "--cache"]);
    process.args(plain.get_args()).arg(cache).arg(url).arg(view);
    process.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut process = process.stderr(Stdio::piped()).spawn().unwrap();
    let (mut reader, mut said) = (BufReader::new(process.stderr.take().unwrap()), String::new());
    while !said.contains("is mounted at") && reader.read_line(&mut said).unwrap() > 0 {}
    (process, said)
}

#[test]
fn what_is_held_is_shown_where_nothing_can_be_written() {
    let server = Server::start();
    fs::create_dir(server.path("/album")).unwrap();
    let (song, other) = (noise(300_000), noise(5000));
    fs::write(server.path("/album/song"), &song).unwrap();
    fs::write(server.path("/album/other"), &other).unwrap();
    age(&server.path("/album/song"));
    let mut mount = Mount::of(&server, &[]);
    assert_eq!(names(&mount.path("album")), ["other", "song"]);
    assert!(fs::read(mount.path("album/song")).unwrap() == song);
    assert_eq!(mount.end(Signal::TERM), Some(0));
    let second = tempfile::tempdir().unwrap();
    for Row { name, prepare, undo, shown, said } in ROWS {
        prepare(&mount.cache);
        let (process, text) = mount_offline(&server.url("/"), &mount.cache, &mount.path);
        assert!(text.contains(said), "{name}: {text}");
        assert_eq!(text.contains("is mounted at"), shown, "{name}: {text}");
        mount.process = process;
        if shown {
            for _ in 0..2 {
                assert_eq!(names(&mount.path("album")), ["other", "song"], "{name}");
                assert!(fs::read(mount.path("album/song")).unwrap() == song, "{name}");
                fs::read(mount.path("album/other")).unwrap_err();
            }
            if !said.is_empty() {
                // Readers are not in each other's way.
                let (mut reader, text) = mount_offline(&server.url("/"), &mount.cache, second.path());
                assert!(text.contains("is mounted at"), "{name}: {text}");
                assert!(fs::read(second.path().join("album/song")).unwrap() == song, "{name}");
                mounted::send(&reader, Signal::TERM);
                assert!(reader.wait().unwrap().success(), "{name}");
            }
            assert_eq!(mount.end(Signal::TERM), Some(0), "{name}");
        } else {
            assert_eq!(mount.process.wait().unwrap().code(), Some(7), "{name}: {text}");
            assert_eq!(text.lines().count(), 1, "{name}: {text}");
        }
        undo(&mount.cache);
    }
    // A mount that may write keeps those out who only read.
    mount.again(&server.url("/"), &["--offline"]);
    bind_read_only(&mount.cache);
    let (mut process, text) = mount_offline(&server.url("/"), &mount.cache, second.path());
    unmount(&mount.cache, UnmountFlags::DETACH).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(3), "{text}");
    assert!(text.contains("another nfsw uses its cache"), "{text}");
}

#[test]
fn a_cache_directory_that_cannot_be_read_is_not_called_empty() {
    let place = tempfile::tempdir().unwrap();
    let cache = place.path().join("cache");
    fs::write(&cache, "a file").unwrap();
    let cache = cache.to_str().unwrap();
    for arguments in [&["cache", "ls", "--cache", cache][..], &["cache", "verify", "--cache", cache]] {
        let text = common::fails(7, arguments);
        assert!(text.contains("cache: not a directory"), "{text}");
    }
}
