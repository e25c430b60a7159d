//! `nfsw cache`, on what a real mount has left. Makes mounts, so it needs root and /dev/fuse, as CI has.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::{
    common::{self, Server, nfsw, noise, stderr},
    mounted::{Mount, age},
};
use rustix::process::Signal;
use serde_json::Value;

/// Runs `nfsw cache` with a cache, and returns its status, what it printed, and what it complained of.
fn cache(place: &Path, arguments: &[&str]) -> (i32, String, String) {
    let (first, rest) = arguments.split_first().unwrap();
    let all = ["cache", first, "--cache", place.to_str().unwrap()];
    let output = nfsw(all.iter().chain(rest));
    let printed = String::from_utf8(output.stdout.clone()).unwrap();
    (output.status.code().unwrap(), printed, stderr(&output))
}

fn events(place: &Path, arguments: &[&str], kind: &str) -> Vec<Value> {
    let (_, printed, _) = cache(place, &[arguments, &["--json"]].concat());
    let all = printed.lines().map(|line| serde_json::from_str(line).unwrap());
    all.filter(|event: &Value| event["event"] == kind).collect()
}

/// The file of a cache with most data.
fn data(place: &Path) -> PathBuf {
    let below = |directory: PathBuf| fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let objects = below(place.to_owned()).map(|root| root.join("objects"));
    let files = objects
        .flat_map(below)
        .flat_map(below)
        .filter(|path| path.extension().is_some_and(|it| it == "data"));
    files.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap()
}

#[test]
fn what_is_kept_is_listed_verified_and_dropped() {
    let server = Server::start();
    fs::create_dir(server.path("/album")).unwrap();
    for (name, size) in [("album/large", 300_000), ("album/small", 10), ("other", 1000)] {
        fs::write(server.path("/").join(name), noise(size)).unwrap();
        age(&server.path("/").join(name));
    }
    let mut mount = Mount::of(&server, &[]);
    let place = mount.cache.clone();
    for name in ["album/large", "album/small", "other"] {
        fs::read(mount.path(name)).unwrap();
    }
    let (code, _, said) = cache(&place, &["drop", "--all"]);
    assert!(code == 7 && said.contains("is mounted; unmount it first"), "{code}: {said}");
    assert_eq!(mount.end(Signal::TERM), Some(0));

    let (code, printed, _) = cache(&place, &["ls"]);
    assert!(code == 0 && printed.contains(&server.name("/")) && printed.lines().count() == 2, "{printed}");
    let roots = events(&place, &["ls"], "cached");
    assert_eq!((&roots[0]["files"], &roots[0]["bytes"]), (&3.into(), &301_010.into()), "{roots:?}");
    assert_eq!(roots[0]["mounted"], false);
    let album = server.name("/album");
    let files = events(&place, &["ls", &album], "cached_file");
    let listed: Vec<_> = files
        .iter()
        .map(|file| (file["target"].as_str().unwrap(), file["bytes"].as_u64().unwrap()))
        .collect();
    assert_eq!(listed, [(&*format!("{album}/large"), 300_000), (&*format!("{album}/small"), 10)]);

    let (code, printed, _) = cache(&place, &["verify"]);
    assert!(code == 0 && printed.contains("3 files: all as they were fetched"), "{printed}");
    File::options().write(true).open(data(&place)).unwrap().write_all_at(b"!", 70_000).unwrap();
    let (code, printed, said) = cache(&place, &["verify"]);
    assert!(code == 6 && printed.contains("album/large: 1 damaged pieces"), "{code}: {printed}");
    assert!(said.contains("1 files in the cache are damaged"), "{said}");
    assert_eq!(events(&place, &["verify"], "damaged").len(), 1);

    let (code, _, said) = cache(&place, &["drop", &server.name("/album/small")]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(events(&place, &["ls", &album], "cached_file").len(), 1);
    let (code, _, said) = cache(&place, &["drop", "nas:/elsewhere"]);
    assert!(code == 4 && said.contains("nothing of it is in the cache"), "{code}: {said}");
    let dropped = events(&place, &["drop", "--all"], "dropped");
    assert_eq!((&dropped[0]["files"], &dropped[0]["bytes"]), (&2.into(), &301_000.into()));
    // Right after an umount, too.
    mount.again(&server.url("/"), &[]);
    fs::read(mount.path("other")).unwrap();
    common::ok(["umount", mount.path.to_str().unwrap()]);
    let (code, _, said) = cache(&place, &["drop", "--all"]);
    assert_eq!(code, 0, "{said}");
    let (code, printed, _) = cache(&place, &["ls"]);
    assert!(code == 0 && printed.starts_with("Nothing is in the cache"), "{printed}");
}

#[test]
fn what_is_pinned_stays_when_room_is_made_whether_it_is_mounted_or_not() {
    let server = Server::start();
    fs::create_dir(server.path("/album")).unwrap();
    let name = |number: u32| if number == 0 { "album/0".to_owned() } else { number.to_string() };
    for number in 0..10 {
        fs::write(server.path("/").join(name(number)), noise(1 << 20)).unwrap();
        age(&server.path("/").join(name(number)));
    }
    let options = ["--cache-size", "3M"];
    let mut mount = Mount::of(&server, &options);
    let place = mount.cache.clone();
    let read = |mount: &Mount, numbers: std::ops::Range<u32>| {
        for number in numbers {
            assert!(fs::read(mount.path(&name(number))).unwrap() == noise(1 << 20));
        }
    };
    let is_kept = || {
        let files = events(&place, &["ls", &server.name("/album")], "cached_file");
        files.iter().any(|file| file["bytes"] == 1 << 20 && file["pinned"] == true)
    };
    read(&mount, 0..1);
    let album = server.name("/album");
    assert_eq!(cache(&place, &["pin", &album]).0, 0);
    // The mount takes note, and the record says so.
    let begun = Instant::now();
    while !is_kept() {
        assert!(begun.elapsed() < Duration::from_secs(30));
        thread::sleep(Duration::from_millis(100));
    }
    thread::sleep(Duration::from_secs(3));
    read(&mount, 1..10);
    assert_eq!(mount.end(Signal::TERM), Some(0));
    assert!(is_kept());
    mount.again(&server.url("/"), &options);
    read(&mount, 1..10);
    assert_eq!(mount.end(Signal::TERM), Some(0));
    assert!(is_kept());
    let (_, printed, _) = cache(&place, &["ls"]);
    assert!(printed.contains(&format!("pinned: {album}")), "{printed}");

    assert_eq!(cache(&place, &["pin", "--remove", &album]).0, 0);
    assert!(!is_kept());
    mount.again(&server.url("/"), &options);
    read(&mount, 1..10);
    assert_eq!(mount.end(Signal::TERM), Some(0));
    assert_eq!(events(&place, &["ls", &album], "cached_file").len(), 0, "it is no longer kept");
}
