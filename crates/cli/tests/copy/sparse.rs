//! Copies of files with holes.

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    time::{Duration, SystemTime},
};

use crate::common::{Server, noise, ok};
use serde_json::Value;

const SIZE: u64 = 16 << 20;
const DATA: u64 = 1 << 20;

/// A file of [`SIZE`] with [`DATA`] bytes in the middle and a hole on either side.
fn plant(path: &Path) -> Vec<u8> {
    let file = File::create(path).unwrap();
    let data = noise(DATA as usize);
    file.write_all_at(&data, 4 << 20).unwrap();
    file.set_len(SIZE).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_234_567_890)).unwrap();
    file.sync_all().unwrap();
    assert!(stored(path) < 2 * DATA, "this file system has no holes");
    fs::read(path).unwrap()
}

/// Bytes that a file takes on the disk.
fn stored(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// Copies, and returns the file bytes that were moved.
fn moved(arguments: &[&str]) -> u64 {
    let output = ok(["cp", "--json"].iter().chain(arguments));
    let summary: Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
    summary["bytes"].as_u64().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn holes_stay_holes_in_both_directions() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let source = here.path().join("source");
    let content = plant(&source);
    for transport in ["udp", "tcp"] {
        for resume in [&["--sparse", "auto"][..], &["--no-resume"]] {
            let options = [&["-p", "--transport", transport], resume].concat();
            let (there, back) = (server.path("there"), here.path().join("back"));
            let bytes = moved(&[&options, &[text(&source), &server.url("/there")][..]].concat());
            assert_eq!(bytes, DATA, "holes are not sent");
            assert!(fs::read(&there).unwrap() == content);
            assert!(stored(&there) < 2 * DATA);
            ok([&["cp"], &options[..], &[&server.url("/there"), text(&back)]].concat());
            assert!(fs::read(&back).unwrap() == content);
            assert!(stored(&back) < 2 * DATA);
            for copy in [&there, &back] {
                assert_eq!(fs::metadata(copy).unwrap().mtime(), 1_234_567_890);
                fs::remove_file(copy).unwrap();
            }
        }
    }
}

#[test]
fn zeros_become_holes_where_and_only_where_asked() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let (sparse, full) = (here.path().join("sparse"), here.path().join("full"));
    let content = plant(&sparse);
    fs::write(&full, &content).unwrap();
    let (there, back) = (server.path("there"), here.path().join("back"));
    // (what, --sparse, bytes sent, whether the copies are sparse)
    let cases = [
        (&sparse, "auto", DATA, true),
        (&sparse, "never", SIZE, false),
        (&sparse, "always", DATA, true),
        (&full, "auto", SIZE, false),
        (&full, "never", SIZE, false),
        (&full, "always", DATA, true),
    ];
    for (source, sparse, bytes, is_sparse) in cases {
        let case = format!("{} --sparse {sparse}", source.display());
        assert_eq!(moved(&["--sparse", sparse, text(source), &server.url("/there")]), bytes, "{case}");
        assert!(fs::read(&there).unwrap() == content, "{case}");
        assert_eq!(stored(&there) < 2 * DATA, is_sparse, "{case}");
        let origin = server.path("origin");
        let _ = fs::remove_file(&origin);
        if source == &full {
            fs::write(&origin, &content).unwrap()
        } else {
            drop(plant(&origin))
        }
        ok(["cp", "--sparse", sparse, &server.url("/origin"), text(&back)]);
        assert!(fs::read(&back).unwrap() == content, "{case}");
        assert_eq!(stored(&back) < 2 * DATA, is_sparse, "{case}");
        fs::remove_file(&back).unwrap();
    }
}

#[test]
fn a_hole_replaces_what_a_target_has() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let source = here.path().join("source");
    let content = plant(&source);
    let (there, back) = (server.path("there"), here.path().join("back"));
    for options in [&[][..], &["--inplace"]] {
        for target in [&there, &back] {
            fs::write(target, noise(SIZE as usize + 1000)).unwrap();
        }
        ok([&["cp"], options, &[text(&source), &server.url("/there")]].concat());
        assert!(fs::read(&there).unwrap() == content);
        ok([&["cp", "--sparse", "always"], options, &[&server.url("/there"), text(&back)]].concat());
        assert!(fs::read(&back).unwrap() == content);
        assert!(stored(&back) < 2 * DATA);
    }
}
