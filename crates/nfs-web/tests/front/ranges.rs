//! Conditions, ranges and what is told of a file.

use std::fs::File;

use crate::{Site, client::open, noise};

#[test]
fn ranges_conditions_and_heads_are_those_of_http() {
    let (site, data) = (Site::new(), noise(1000));
    site.put("a.jpg", &data);
    site.put("empty", b"");
    let whole = site.get("/files/a.jpg");
    assert_eq!((whole.status, &whole.body, whole.is_whole), (200, &data, true));
    let told = ["content-type", "content-length", "accept-ranges", "x-content-type-options", "cache-control"];
    let expected = ["image/jpeg", "1000", "bytes", "nosniff", "private, no-cache"];
    assert_eq!(told.map(|name| whole.header(name)), expected);
    assert_eq!(whole.header("access-control-allow-origin"), "");
    let (tag, modified) = (whole.header("etag"), whole.header("last-modified"));

    let head = site.request("HEAD", "/files/a.jpg", &[]);
    assert_eq!((head.status, head.header("content-length"), head.header("etag")), (200, "1000", tag));
    assert!(head.is_whole);
    assert_eq!(site.request("PUT", "/files/a.jpg", &[]).status, 405);
    assert_eq!(site.request("DELETE", "/files/a.jpg", &[]).header("allow"), "GET, HEAD");

    for (name, value, status) in [
        ("If-None-Match", tag, 304),
        ("If-None-Match", "*", 304),
        ("If-None-Match", "\"other\"", 200),
        ("If-Modified-Since", modified, 304),
        ("If-Modified-Since", "Thu, 01 Jan 1998 00:00:00 GMT", 200),
        ("Range", "bytes=1000-", 416),
        ("Range", "bytes=5-2", 200),
        ("Range", "bytes=0-1,5-6", 200),
        ("Range", "lines=1-2", 200),
        ("Range", "bytes=0-18446744073709551615", 206),
    ] {
        let reply = site.request("GET", "/files/a.jpg", &[(name, value)]);
        assert_eq!(reply.status, status, "{name}: {value}");
        assert!(reply.is_whole || status == 416, "{name}: {value}");
    }
    for (range, part) in
        [("bytes=0-0", 0..1), ("bytes=999-", 999..1000), ("bytes=-10", 990..1000), ("bytes=5-99", 5..100)]
    {
        let reply = site.request("GET", "/files/a.jpg", &[("Range", range)]);
        let said = format!("bytes {}-{}/1000", part.start, part.end - 1);
        assert_eq!((reply.status, reply.header("content-range")), (206, &*said), "{range}");
        assert_eq!((&reply.body[..], reply.is_whole), (&data[part], true), "{range}");
    }
    assert_eq!(
        site.request("GET", "/files/a.jpg", &[("Range", "bytes=1000-")]).header("content-range"),
        "bytes */1000"
    );
    let empty = site.get("/files/empty");
    assert_eq!((empty.status, empty.header("content-length"), empty.is_whole), (200, "0", true));
}

#[test]
fn a_file_that_has_changed_is_not_resumed() {
    let site = Site::new();
    site.put("a.bin", &noise(1000));
    let before = site.get("/files/a.bin");
    let tag = before.header("etag").to_owned();
    let resume =
        |tag: &str| site.request("GET", "/files/a.bin", &[("Range", "bytes=500-"), ("If-Range", tag)]);
    assert_eq!((resume(&tag).status, resume(&tag).body), (206, noise(1000)[500..].to_vec()));
    let time = std::fs::metadata(site.folder.path().join("a.bin")).unwrap().modified().unwrap();
    site.put("a.bin", &[b"x", &noise(999)[..]].concat());
    // Size and time are the same.
    File::options().write(true).open(site.folder.path().join("a.bin")).unwrap().set_modified(time).unwrap();
    let again = resume(&tag);
    assert_eq!((again.status, again.body.len()), (200, 1000));
    assert_ne!(again.header("etag"), tag);
    assert_eq!(site.request("GET", "/files/a.bin", &[("If-None-Match", &tag)]).status, 200);
}

#[test]
fn a_file_that_shrinks_meanwhile_ends_the_connection() {
    const BYTES: u64 = 64 << 20;
    let site = Site::new();
    let file = File::create(site.folder.path().join("film.mp4")).unwrap();
    file.set_len(BYTES).unwrap();
    let cookie = site.cookie();
    let mut opened =
        open(site.address, "GET", "/files/film.mp4", &[("Host", "127.0.0.1"), ("Cookie", &cookie)], b"");
    assert_eq!(opened.head.header("content-length"), BYTES.to_string());
    opened.some(1000);
    file.set_len(1 << 20).unwrap();
    let reply = opened.rest();
    assert!(!reply.is_whole && (reply.body.len() as u64) < BYTES, "{} bytes", reply.body.len());
}
