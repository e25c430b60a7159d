//! Behind a link: each test makes a server, and runs a part of `inside.rs` in a network whose only way out is the link.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use super::{Table, inside::Part, least, most};
use crate::{
    common::{Server, command, noise, stderr},
    mounted::age,
};

/// 75 kB/s, round trip 27 ms: the link of the 2005 paper (Michalakis and Kalofonos 2005 §IV).
pub(super) const BLUETOOTH: [&str; 2] = ["--preset", "bluetooth-1.1"];

/// Times of good and bad periods that are always the same.
pub(super) const PATTERN: [&str; 6] =
    ["--distribution", "deterministic", "--phase", "good", "--start", "creation"];

/// What a part has measured.
pub(super) type Found = BTreeMap<String, Vec<f64>>;

/// Runs a part behind a link, with a server of this host.
pub(super) fn run(server: &Server, options: &[&str], part: Part) -> Found {
    run_with(server, options, part, "")
}

/// The same with words for the part.
pub(super) fn run_with(server: &Server, options: &[&str], part: Part, words: &str) -> Found {
    let place = tempfile::tempdir().unwrap();
    let results = place.path().join("results");
    let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let output = command(["link", "exec", "-q"])
        .args(options)
        .arg("--")
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "inside::a_part_behind_a_link"])
        .env("NFSW_PART", part.name())
        .env("NFSW_PART_BEGUN", begun.as_secs_f64().to_string())
        .env("NFSW_PART_PORT", server.address().port().to_string())
        .env("NFSW_PART_OPTIONS", words)
        .env("NFSW_PART_RESULTS", &results)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output);
    assert!(output.status.success(), "{}: {said}", part.name());
    let mut found = Found::new();
    for line in fs::read_to_string(&results).unwrap().lines() {
        let (name, number) = line.rsplit_once(' ').unwrap();
        found.entry(name.to_owned()).or_default().push(number.parse().unwrap());
    }
    found
}

/// Makes a directory with files that have names as a camera gives them.
pub(super) fn pictures(directory: &Path, count: usize, bytes: usize) {
    fs::create_dir(directory).unwrap();
    let data = noise(bytes);
    for number in 0..count {
        let path = directory.join(format!("IMG_{number:04}.jpg"));
        fs::write(&path, &data).unwrap();
        age(&path);
    }
    age(directory);
}

#[test]
#[ignore = "takes a minute"]
fn a_cold_listing_over_a_slow_link() {
    let server = Server::everywhere();
    pictures(&server.path("/album"), 300, 1000);
    let table = Table::begin("75 kB/s, round trip 27 ms");
    let found = run(&server, &BLUETOOTH, Part::ColdListing);
    table.at_most("cold ls -l of 300 entries", "s", 0.75, least(found["cold"].iter().copied()));
    let fade = ["--good", "8s", "--bad", "5500"];
    let found = run(&server, &[&BLUETOOTH[..], &fade, &PATTERN].concat(), Part::ColdListingInFade);
    // Without a fade it takes 0.63 s on the air.
    table.at_most(
        "the same, begun 0.1 s before a disconnection of 5.5 s",
        "s",
        0.63 + 5.5 + 0.1,
        found["cold"][0],
    );
}

#[test]
#[ignore = "takes a minute"]
fn what_is_held_through_disconnections() {
    let server = Server::everywhere();
    pictures(&server.path("/album"), 300, 50_000);
    let table = Table::begin("75 kB/s, disconnections of 5.5 s, 20 s apart, warm");
    let fades = ["--good", "14.5s", "--bad", "5500"];
    let found = run(&server, &[&BLUETOOTH[..], &fades, &PATTERN].concat(), Part::Warm);
    let sum = |name: &str| found.get(name).map_or(0.0, |values| values.iter().sum());
    println!("| listings, reads | | {}, {} | |", found["listing"].len(), found["first byte"].len());
    table.at_most("errors of ls -l and of reads", "", 0.0, sum("errors"));
    table.at_most("ls -l of 300 entries, p99", "ms", 10.0, super::quantile(&found["listing"], 0.99));
    table.at_most("the same, worst", "ms", 10.0, most(found["listing"].iter().copied()));
    table.at_most(
        "the same, p99 while disconnected",
        "ms",
        10.0,
        super::quantile(&found["listing in fade"], 0.99),
    );
    table.at_most(
        "file of 50 kB while disconnected, first byte, p99",
        "ms",
        2.0,
        super::quantile(&found["first byte in fade"], 0.99),
    );
    table.at_most("the same, worst", "ms", 2.0, most(found["first byte in fade"].iter().copied()));
    println!(
        "| file of 50 kB while connected, first byte, p99, ms | | {:.1} | |",
        super::quantile(&found["first byte"], 0.99)
    );
}

#[test]
#[ignore = "takes a minute"]
fn programs_that_wait_while_the_link_is_down() {
    let server = Server::everywhere();
    pictures(&server.path("/album"), 10, 50_000);
    fs::create_dir(server.path("/other")).unwrap();
    let table = Table::begin("link down");
    let fade = ["--good", "4s", "--bad", "120s"];
    let found = run(&server, &[&BLUETOOTH[..], &fade, &PATTERN].concat(), Part::Kills);
    table.at_most(
        "SIGKILL until a process is gone that waits in LOOKUP, worst of 10",
        "ms",
        200.0,
        most(found["lookup"].iter().copied()),
    );
    table.at_most("the same in READ", "ms", 200.0, most(found["read"].iter().copied()));
}

#[test]
#[ignore = "takes a minute"]
fn reads_at_a_gigabit() {
    let server = Server::everywhere();
    let data = noise(128 << 20);
    for number in 0..3 {
        let path = server.path(&format!("/file{number}"));
        fs::write(&path, &data).unwrap();
        age(&path);
    }
    let table = Table::begin("uncached reads behind a link");
    for rate in ["100M", "1G"] {
        let link = ["--rate", rate, "--delay", "200us", "--duplex", "full"];
        let found = run(&server, &link, Part::Reads);
        let (direct, through) = (most(found["cp"].iter().copied()), most(found["mount"].iter().copied()));
        println!(
            "| nfsw cp, through the mount, at {rate}bit/s, MB/s | | {:.1}, {:.1} | |",
            direct / 1e6,
            through / 1e6
        );
        table.at_least("uncached sequential read against nfsw cp", "", 0.9, through / direct);
    }
}
