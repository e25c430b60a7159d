//! Copies over a bad link that are killed again and again, and servers that crash under them.
//!
//! The short forms are part of every test run; the long ones are of `./ci.sh long`.

use std::{collections::HashMap, fs, path::Path, thread, time::Duration};

use crate::{
    common::{self, Link, Served, command, noise},
    killing::{Job, MOST_AGAIN},
};

/// The 1997 paper's link, this many times as fast: its rate and its fades.
const FASTER: u32 = 32;

/// The paper's link in front of a server, faster.
fn paper(server: &Served, seed: u64) -> Link {
    let (rate, good, bad) = (format!("{FASTER}M"), 1e3 / f64::from(FASTER), 80.0 / f64::from(FASTER));
    let (good, bad, seed) = (format!("{good}ms"), format!("{bad}ms"), seed.to_string());
    let preset = ["--preset", "paper-1997", "--granularity", "0.1ms"];
    let fades = ["--rate", &rate, "--good", &good, "--bad", &bad, "--seed", &seed];
    Link::to(server.address(), &[&preset[..], &fades[..]].concat())
}

/// Kills copies of `source` both ways, half of `kills` each.
fn kill(source: &Path, options: &[&str], patience: Duration, kills: u32, seed: u64) {
    let server = Served::start();
    let link = paper(&server, seed);
    let place = tempfile::tempdir().unwrap();
    let mut sizes = HashMap::new();
    let mut add = |path: &Path, name: &str| {
        sizes.insert(name.into(), fs::metadata(path).unwrap().len());
    };
    if source.is_dir() {
        for entry in walk(source) {
            add(&entry, entry.file_name().unwrap().to_str().unwrap());
        }
    } else {
        add(source, "copy");
        add(source, "back");
    }
    let local = |path: &Path| path.to_str().unwrap().to_owned();
    let (copy, back) = (server.path("copy"), place.path().join("back"));
    let url = link.url("/copy");
    let job = |from: &str, to: &str, source: &Path, target: &Path| Job {
        nfsw: env!("CARGO_BIN_EXE_nfsw").into(),
        state: place.path().join("state"),
        options: options.iter().map(ToString::to_string).collect(),
        from: from.to_owned(),
        to: to.to_owned(),
        source: source.to_owned(),
        target: target.to_owned(),
        sizes: sizes.clone(),
        patience,
        moved: Box::new(|| server.moved_bytes()),
    };
    let up = job(&local(source), &url, source, &copy).run(kills / 2, seed);
    let down = job(&url, &local(&back), &copy, &back).run(kills / 2, seed + 1);
    assert!(up.worst <= MOST_AGAIN && down.worst <= MOST_AGAIN);
}

fn walk(root: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(walk(&path));
        } else {
            files.push(path);
        }
    }
    files
}

fn kill_a_file(size: usize, kills: u32, seed: u64) {
    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("source");
    fs::write(&source, noise(size)).unwrap();
    // A quarter of the time that the link needs for it.
    let patience = Duration::from_secs_f64(size as f64 * 8.0 / f64::from(FASTER) / 1e6 / 4.0);
    kill(&source, &["--transport", "udp"], patience, kills, seed);
}

fn kill_a_tree(files: usize, kills: u32, seed: u64) {
    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("source");
    for number in 0..files {
        let directory = source.join(format!("dir {}", number % 20));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("file {number}")), noise(number * 37 % 8192 + 1)).unwrap();
    }
    let patience = Duration::from_millis(files as u64 * 3 / 2);
    kill(&source, &["-r", "--transport", "udp"], patience, kills, seed);
}

#[test]
fn a_file_survives_ten_kills() {
    kill_a_file(8 << 20, 10, 1);
}

#[test]
fn a_tree_survives_ten_kills() {
    kill_a_tree(200, 10, 2);
}

#[test]
#[ignore = "takes minutes"]
fn a_file_of_64_mib_survives_100_kills() {
    kill_a_file(64 << 20, 100, seed());
}

#[test]
#[ignore = "takes minutes"]
fn a_tree_of_2000_files_survives_100_kills() {
    kill_a_tree(2000, 100, seed());
}

/// The seed of the long forms: another one every time, unless `NFSW_SEED` says which.
fn seed() -> u64 {
    let now = || std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    std::env::var("NFSW_SEED").map_or_else(|_| now(), |seed| seed.parse().unwrap())
}

/// Uploads to a server that loses everything uncommitted, now and then: what `nfsw` says is done is there.
fn crash(uploads: u32, crashes: u32) {
    let server = common::embedded();
    let address = server.local_addr();
    let place = tempfile::tempdir().unwrap();
    let (source, content) = (place.path().join("source"), noise(6 << 20));
    fs::write(&source, &content).unwrap();
    for upload in 0..uploads {
        let transport = ["udp", "tcp"][upload as usize % 2];
        let url = format!("nfs://{address}/copy{upload}?mountport={}", address.port());
        let mut copy = command(["cp", "--quiet", "--bwlimit", "60Mbit", "--transport", transport])
            .arg(&source)
            .arg(&url)
            .spawn()
            .unwrap();
        for _ in 0..crashes {
            thread::sleep(Duration::from_millis(150));
            server.with_service(|service| service.crash());
        }
        assert!(copy.wait().unwrap().success());
        let name = format!("/copy{upload}");
        let stored = server.with_service(|service| {
            service.crash();
            service.backend().read_file(name.as_bytes()).unwrap()
        });
        assert!(stored == content, "upload {upload} over {transport}");
    }
    println!("{uploads} uploads, {crashes} crashes in each: nothing lost");
}

#[test]
fn what_is_said_to_be_done_outlasts_crashes_of_the_server() {
    crash(4, 3);
}

#[test]
#[ignore = "takes minutes"]
fn what_is_said_to_be_done_outlasts_fifty_crashes_of_the_server() {
    crash(20, 5);
}
