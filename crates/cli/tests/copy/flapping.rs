//! Many small files while the link goes up and down: all there, none twice.
//!
//! The short form is part of every test run; the long one is `./ci.sh long`.

use std::{collections::BTreeMap, fs, path::Path};

use crate::common::{self, Link, assert_same_tree, command, embedded, noise};

/// Copies a tree there and back over a link that is up and down for such times, in milliseconds.
fn flap(files: usize, up: u32, down: u32) {
    let server = embedded();
    let (up, down) = (format!("{up}ms"), format!("{down}ms"));
    let speed = ["--preset", "paper-1997", "--granularity", "1ms", "--rate", "50M"];
    let flaps = ["--distribution", "deterministic", "--good", &up, "--bad", &down];
    let link = Link::to(server.local_addr(), &[&speed[..], &flaps[..]].concat());
    let place = tempfile::tempdir().unwrap();
    let (source, back) = (place.path().join("source"), place.path().join("back"));
    for number in 0..files {
        let directory = source.join(format!("dir {}", number % 50));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("file {number}")), noise(number * 37 % 8192)).unwrap();
    }
    let local = |path: &Path| path.to_str().unwrap().to_owned();
    let url = link.url("/copy");
    for (from, to) in [(local(&source), url.clone()), (url, local(&back))] {
        let output = command(["cp", "-r", "-j", "16", "--json", "--quiet", "--transport", "udp", &from, &to])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}: {}", output.status, common::stderr(&output));
        let mut copied = BTreeMap::new();
        let mut summary = serde_json::Value::Null;
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            match event["event"].as_str().unwrap() {
                "file" => *copied.entry(event["target"].as_str().unwrap().to_owned()).or_insert(0) += 1,
                "summary" => summary = event,
                _ => {}
            }
        }
        assert_eq!((copied.len(), copied.values().sum::<usize>()), (files, files), "each once");
        println!(
            "{from} -> {to}: {} files in {} s, {}",
            copied.len(),
            summary["seconds"],
            summary["resends"]
        );
    }
    assert_same_tree(&source, &back, false);
}

#[test]
fn five_hundred_files_over_a_link_that_flaps_are_all_there() {
    flap(500, 300, 100);
}

#[test]
#[ignore = "takes minutes"]
fn ten_thousand_files_over_a_link_that_flaps_are_all_there() {
    flap(10_000, 1500, 500);
}
