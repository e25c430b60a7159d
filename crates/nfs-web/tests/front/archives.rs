//! Folders as zip files.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{PermissionsExt as _, symlink},
    },
    path::Path,
    process::Command,
};

use crate::{
    Site,
    client::{exchange, open},
    noise,
};

/// Files and folders below a path: contents, and seconds since 1970.
fn tree(top: &Path, below: &Path, found: &mut BTreeMap<Vec<u8>, (Option<Vec<u8>>, u64)>) {
    for entry in fs::read_dir(top.join(below)).unwrap().map(Result::unwrap) {
        let path = below.join(entry.file_name());
        let metadata = entry.metadata().unwrap();
        if metadata.is_symlink() {
            continue;
        }
        let time = metadata.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        if metadata.is_dir() {
            found.insert(path.as_os_str().as_bytes().to_vec(), (None, 0));
            tree(top, &path, found);
        } else {
            let content = fs::read(top.join(&path)).unwrap();
            found.insert(path.as_os_str().as_bytes().to_vec(), (Some(content), time));
        }
    }
}

fn unzip(archive: &Path, options: &[&str]) {
    let output = Command::new("unzip").arg("-q").args(options).arg(archive).env("LC_ALL", "C.UTF-8").output();
    let output = output.expect("unzip is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn an_archive_has_the_tree_and_programs_read_it() {
    let site = Site::new();
    for name in [
        "trip/a b.txt",
        "trip/deep/er/\"quoted\".jpg",
        "trip/.hidden",
        "trip/ä.txt",
        "trip/empty",
        "outside.txt",
    ] {
        let bytes = if name.ends_with("empty") { 0 } else { 700_000 };
        site.put(name, &noise(bytes));
    }
    site.put("trip/text.txt", &b"the same again and again\n".repeat(40_000));
    site.put(Path::new("trip").join(OsStr::from_bytes(b"new\nline")), b"1");
    (0..700).for_each(|number| site.put(format!("trip/many/{number}"), number.to_string().as_bytes()));
    let trip = site.folder.path().join("trip");
    fs::create_dir(trip.join("no files")).unwrap();
    symlink("../outside.txt", trip.join("link")).unwrap();
    fs::set_permissions(trip.join("text.txt"), fs::Permissions::from_mode(0o751)).unwrap();
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_001);
    File::options().write(true).open(trip.join("text.txt")).unwrap().set_modified(old).unwrap();

    let reply = site.get("/files/trip/?zip");
    assert_eq!((reply.status, reply.header("content-type"), reply.is_whole), (200, "application/zip", true));
    assert_eq!(
        reply.header("content-disposition"),
        "attachment; filename=\"trip.zip\"; filename*=UTF-8''trip.zip"
    );
    let place = tempfile::tempdir().unwrap();
    let archive = place.path().join("trip.zip");
    fs::write(&archive, &reply.body).unwrap();
    unzip(&archive, &["-t"]);
    unzip(&archive, &["-^", "-d", place.path().join("out").to_str().unwrap()]);
    let (mut sent, mut received) = (BTreeMap::new(), BTreeMap::new());
    tree(&trip, Path::new(""), &mut sent);
    tree(&place.path().join("out/trip"), Path::new(""), &mut received);
    let others: Vec<_> = sent
        .keys()
        .filter(|name| !received.contains_key(*name))
        .map(|name| String::from_utf8_lossy(name))
        .collect();
    assert!(others.is_empty() && sent.len() == received.len(), "{others:?}");
    assert!(sent == received, "contents or times differ");
    let mode = fs::metadata(place.path().join("out/trip/text.txt")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o751);
    assert!(reply.body.len() < 4_000_000, "{} bytes", reply.body.len());
    let python = Command::new("python3")
        .args(["-m", "zipfile", "-t"])
        .arg(&archive)
        .output()
        .expect("python3 is installed");
    assert!(String::from_utf8_lossy(&python.stdout).contains("Done testing"), "{python:?}");
    assert!(!String::from_utf8_lossy(&python.stdout).contains("corrupted"), "{python:?}");
}

#[test]
fn names_that_are_not_utf_8_are_in_the_archive_as_they_are() {
    let site = Site::new();
    site.put(Path::new("trip").join(OsStr::from_bytes(b"\xe9t\xe9.txt")), b"summer");
    let reply = site.get("/files/trip/?zip");
    let needle = b"trip/\xe9t\xe9.txt";
    assert!(reply.is_whole && reply.body.windows(needle.len()).any(|bytes| bytes == needle));
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("a.zip"), &reply.body).unwrap();
    unzip(&place.path().join("a.zip"), &["-t"]);
}

/// The end of the archive is not sent then, and not that of the response.
#[test]
fn an_error_in_the_middle_breaks_the_connection() {
    let site = Site::new();
    site.put("trip/a.jpg", &noise(64 << 20));
    let file = File::options().write(true).open(site.folder.path().join("trip/a.jpg")).unwrap();
    let cookie = site.cookie();
    let mut opened =
        open(site.address, "GET", "/files/trip/?zip", &[("Host", "127.0.0.1"), ("Cookie", &cookie)], b"");
    opened.some(1000);
    file.set_len(0).unwrap();
    let reply = opened.rest();
    assert!(!reply.is_whole && reply.body.len() < 64 << 20, "{} bytes", reply.body.len());
    assert!(!reply.body.windows(4).any(|bytes| bytes == b"PK\x05\x06"), "there is an end");
}

#[test]
fn archives_are_made_for_one_member_two_at_a_time() {
    let site = Site::new();
    site.put("a.jpg", &noise(64 << 20));
    let cookie = site.cookie();
    let headers = [("Host", "127.0.0.1"), ("Cookie", &*cookie), ("Connection", "close")];
    let all: Vec<_> = (0..2).map(|_| open(site.address, "GET", "/files/?zip", &headers, b"")).collect();
    assert!(all.iter().all(|opened| opened.head.status == 200));
    let refused = exchange(site.address, "GET", "/files/?zip", &headers, b"");
    assert_eq!((refused.status, refused.header("retry-after")), (503, "30"));
    assert_eq!(exchange(site.address, "HEAD", "/files/?zip", &headers, b"").status, 200);
    drop(all);
    let begun = std::time::Instant::now();
    while open(site.address, "GET", "/files/?zip", &headers, b"").head.status != 200 {
        assert!(begun.elapsed().as_secs() < 60, "those who went away are still counted");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// A file whose size does not fit into 32 bits.
#[test]
#[ignore = "compresses 5 GiB, which takes minutes"]
fn large_files_have_wide_numbers() {
    let site = Site::new();
    File::create(site.folder.path().join("a.bin")).unwrap().set_len(5 << 30).unwrap();
    let cookie = site.cookie();
    let place = tempfile::tempdir().unwrap();
    let archive = place.path().join("a.zip");
    let status = Command::new("curl")
        .args(["-sf", "-H", &format!("Cookie: {cookie}"), "-o", archive.to_str().unwrap()])
        .arg(format!("http://{}/files/?zip", site.address))
        .status();
    assert!(status.expect("curl is installed").success());
    unzip(&archive, &["-t"]);
    let listed = Command::new("unzip").args(["-l"]).arg(&archive).output().unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("5368709120"), "{listed:?}");
}
