//! Bytes that the network changed without a checksum noticing: what `--verify` finds, and when it needs not be asked.

use std::{fs, ops::Range, path::Path};

use crate::common::{Link, Server, command, noise, ok, stderr};

/// A link that loses fragments, so that those of later datagrams with the same identification take their place, and a receiver
/// that does not see it: every splice passes, as one in 65,536 does with checksums (RFC 4963 §4).
fn splicing(server: &Server, place: &Path, loss: &str) -> Link {
    // An address that is validated gets whole READs over UDP: splices of replies of different lengths are no replies.
    ok(["ls", "--transport", "tcp", &server.url("/")]);
    let config = place.join("link.toml");
    let wired =
        "[wired]\nrate = '1G'\ndelay = '0.1ms'\n[reassembly]\nidentifications = 64\nchecksum = 'off'\n";
    fs::write(&config, wired).unwrap();
    let config = config.to_str().unwrap();
    let speed = ["--rate", "400M", "--duplex", "full", "--queue", "5000"];
    let loss = ["--bad", "0.2ms", "--loss", loss, "--granularity", "0.01ms"];
    Link::to(server.address(), &[&["--config", config][..], &speed[..], &loss[..]].concat())
}

/// Runs a copy over UDP; returns the exit status and the ranges that are said to differ.
fn copy(options: &[&str], from: &str, to: &str) -> (i32, Vec<Range<usize>>, String) {
    let output =
        command(["cp", "--transport", "udp", "--json"]).args(options).args([from, to]).output().unwrap();
    let mut ranges = Vec::new();
    for line in String::from_utf8(output.stdout.clone()).unwrap().lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        if event["event"] == "differs" {
            for range in event["ranges"].as_array().unwrap() {
                let at = |index: usize| range[index].as_u64().unwrap() as usize;
                ranges.push(at(0)..at(1));
            }
        }
    }
    (output.status.code().unwrap(), ranges, stderr(&output))
}

/// How many bytes differ, all of which lie in the ranges.
fn wrong_bytes(copy: &[u8], source: &[u8], ranges: &[Range<usize>]) -> usize {
    assert_eq!(copy.len(), source.len());
    let wrong: Vec<_> = (0..copy.len()).filter(|&at| copy[at] != source[at]).collect();
    assert!(
        wrong.iter().all(|at| ranges.iter().any(|range| range.contains(at))),
        "a wrong byte was not named"
    );
    wrong.len()
}

#[test]
fn mis_spliced_fragments_are_found() {
    let (server, place) = (Server::start(), tempfile::tempdir().unwrap());
    let link = splicing(&server, place.path(), "5%");
    let content = noise(4 << 20);
    fs::write(server.path("file"), &content).unwrap();
    let (url, here) = (link.url("/file"), place.path().join("file"));
    let target = here.to_str().unwrap();
    // Nobody notices without being asked ...
    let whole = Range { start: 0, end: content.len() };
    let (status, ranges, error) = copy(&["--block-size", "8K"], &url, target);
    assert_eq!((status, ranges.len()), (0, 0), "{error}");
    assert!(wrong_bytes(&fs::read(&here).unwrap(), &content, &[whole]) > 0, "the link splices");
    // ... and everything is named when they are.
    let (status, ranges, error) = copy(&["--block-size", "8K", "--verify"], &url, target);
    assert_eq!(status, 6, "{error}");
    assert!(wrong_bytes(&fs::read(&here).unwrap(), &content, &ranges) > 0);
    // The other way, too: what is on the server is read back.
    let source = place.path().join("source");
    fs::write(&source, &content).unwrap();
    let options = ["--block-size", "8K", "--verify"];
    let (status, ranges, error) = copy(&options, source.to_str().unwrap(), &link.url("/copy"));
    assert_eq!(status, 6, "{error}");
    assert!(wrong_bytes(&fs::read(server.path("copy")).unwrap(), &content, &ranges) > 0);
    // A datagram of one frame cannot be spliced.
    let (status, _, error) = copy(&["--verify", "--max-block", "1024"], &url, target);
    assert_eq!(status, 0, "{error}");
    assert_eq!(wrong_bytes(&fs::read(&here).unwrap(), &content, &[]), 0);
}

/// Fragmented datagrams after which verification is automatic, and a little more; each with a block of 1.5 KiB.
const WRAPPING_BYTES: usize = (49_152 + 1000) * 1536;

#[test]
fn splices_are_found_without_being_asked() {
    let (server, place) = (Server::start(), tempfile::tempdir().unwrap());
    let content = noise(WRAPPING_BYTES);
    fs::write(server.path("file"), &content).unwrap();
    // Some fifty fades in each of the two readings: that none spliced the first is out of the question.
    let link = splicing(&server, place.path(), "0.5%");
    let here = place.path().join("file");
    let options = ["--block-size", "1536"];
    let (status, ranges, error) = copy(&options, &link.url("/file"), here.to_str().unwrap());
    assert_eq!(status, 6, "{error}");
    assert!(error.contains("read again and compared"), "{error}");
    let wrong = wrong_bytes(&fs::read(&here).unwrap(), &content, &ranges);
    println!("{wrong} of {} bytes were wrong, all in the {} ranges named", content.len(), ranges.len());
    assert!(wrong > 0);
    // Few fragments, or none at all, are nothing to fear.
    fs::write(server.path("file"), noise(1 << 20)).unwrap();
    for block in ["1536", "1024"] {
        let (status, _, error) = copy(&["--block-size", block], &server.url("/file"), here.to_str().unwrap());
        assert!(status == 0 && error.is_empty(), "{error}");
    }
}
