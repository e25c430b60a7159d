//! Without a link: what the mount itself costs.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{Table, forget_pages, least, milliseconds, most, quantile, read_rate};
use crate::{
    common::{Server, nfsw, noise, stderr},
    mounted::{Mount, age},
};

/// Bytes of the files that are read in order.
const FILE_BYTES: usize = 256 << 20;
/// Pairs of which the best is shown.
const PAIRS: usize = 5;

#[test]
#[ignore = "takes a minute"]
fn reads_and_listings_on_this_machine() {
    let table = Table::begin("on this machine");
    reads(&table);
    listing(&table);
    stats(&table);
}

fn reads(table: &Table) {
    let server = Server::start();
    let data = noise(FILE_BYTES);
    let names: Vec<_> = (0..PAIRS).map(|number| format!("file{number}")).collect();
    for name in &names {
        fs::write(server.path("/").join(name), &data).unwrap();
        age(&server.path("/").join(name));
    }
    let mount = Mount::of(&server, &["--cache-size", "4G"]);
    let (mut direct, mut through) = (Vec::new(), Vec::new());
    for name in &names {
        // The copy lies on the same file system as the cache.
        let copy = mount.cache.with_file_name("copy");
        let begun = Instant::now();
        let output = nfsw(["cp".as_ref(), server.url(&format!("/{name}")).as_ref(), copy.as_os_str()]);
        assert!(output.status.success(), "{}", stderr(&output));
        direct.push(FILE_BYTES as f64 / begun.elapsed().as_secs_f64());
        fs::remove_file(copy).unwrap();
        through.push(read_rate(&mount.path(name)));
    }
    println!("| nfsw cp on loopback, GB/s | | {:.2} | |", most(direct.iter().copied()) / 1e9);
    println!("| uncached read through the mount, GB/s | | {:.2} | |", most(through.iter().copied()) / 1e9);
    let ratio = most(through) / most(direct);
    table.at_least("uncached sequential read against nfsw cp, loopback", "", 0.6, ratio);

    let file = mount.path(&names[PAIRS - 1]);
    let plain = mount.cache.with_file_name("plain");
    fs::write(&plain, &data).unwrap();
    let (mut second, mut stored, mut beside) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        beside.push(read_rate(&plain));
        second.push(read_rate(&file));
        forget_pages(&file);
        stored.push(read_rate(&file));
    }
    let beside = most(beside);
    println!("| plain cached file, GB/s | | {:.2} | |", beside / 1e9);
    table.at_least("cached read, second time, against a plain file", "", 0.5, most(second) / beside);
    table.at_least("cached read from our store, against a plain file", "", 0.15, most(stored) / beside);
    assert!(fs::read(&file).unwrap() == data);
}

fn listing(table: &Table) {
    let server = Server::start();
    let directory = server.path("/many");
    fs::create_dir(&directory).unwrap();
    for number in 0..10_000 {
        fs::write(directory.join(format!("IMG_{number:05}.jpg")), "x").unwrap();
    }
    age(&directory);
    let mount = Mount::of(&server, &[]);
    let list = |path: &Path| {
        let begun = Instant::now();
        let output = Command::new("ls").arg("-l").arg(path).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.stdout.iter().filter(|&&byte| byte == b'\n').count(), 10_001);
        milliseconds(begun.elapsed())
    };
    let first = list(&mount.path("many"));
    let (mut at_once, mut later, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        at_once.push(list(&mount.path("many")));
        // The kernel has forgotten what it knew.
        thread::sleep(Duration::from_millis(1100));
        later.push(list(&mount.path("many")));
        plain.push(list(&directory));
    }
    println!(
        "| ls -l of 10,000 in a plain directory, first time through the mount, ms | | {:.0}, {first:.0} | |",
        least(plain)
    );
    table.at_most("warm ls -l of 10,000, within the kernel's second", "ms", 60.0, least(at_once));
    table.at_most("warm ls -l of 10,000, after it", "ms", 60.0, least(later));
}

fn stats(table: &Table) {
    let server = Server::start();
    fs::create_dir(server.path("/directory")).unwrap();
    for number in 0..200 {
        let path = server.path(&format!("/directory/{number}"));
        fs::write(&path, "x").unwrap();
        age(&path);
    }
    age(&server.path("/directory"));
    age(&server.path("/"));
    let mount = Mount::of(&server, &[]);
    let paths: Vec<_> = (0..200).map(|number| mount.path(&format!("directory/{number}"))).collect();
    let pass = || -> Vec<f64> {
        let timed = |path: &std::path::PathBuf| {
            let begun = Instant::now();
            fs::symlink_metadata(path).unwrap();
            begun.elapsed().as_secs_f64() * 1e6
        };
        paths.iter().map(timed).collect()
    };
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    pass();
    for _ in 0..PAIRS {
        thread::sleep(Duration::from_millis(1100));
        outside.push(quantile(&pass(), 0.5));
        inside.push(quantile(&pass(), 0.5));
    }
    table.at_most("stat within the kernel's second, median", "µs", 5.0, least(inside));
    table.at_most("stat after it, median", "µs", 60.0, least(outside));
}
