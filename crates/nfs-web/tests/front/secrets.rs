//! Who gets in, for how long, and by which address.

use std::{
    thread,
    time::{Duration, Instant},
};

use nfs_web::Secret;

use crate::{
    HOUR, Site,
    client::{exchange, open},
    files, noise,
};

#[test]
fn without_the_secret_there_is_nothing_and_wrong_ones_are_answered_late() {
    let site = Site::new();
    site.put("file", b"inside");
    let local = [("Host", "127.0.0.1"), ("Connection", "close")];
    let port = site.address.port();
    for cookie in
        ["", "nfsw=1", &format!("nfsw-{port}={}", site.secret), &format!("nfsw-{port}={}", "0".repeat(96))]
    {
        let headers = [&local[..], &[("Cookie", cookie)]].concat();
        for path in ["/files/", "/files/file", "/files/none", "/files/?zip"] {
            let reply = exchange(site.address, "GET", path, &headers, b"");
            assert_eq!(reply.status, 403, "{path}");
            assert!(!reply.text().contains("inside"), "{path}");
        }
    }
    // The page at which the secret is told needs none, and does not have it.
    for path in ["/", "/page.js", "/page.css"] {
        let reply = exchange(site.address, "GET", path, &local, b"");
        assert_eq!(reply.status, 200, "{path}");
        assert!(!reply.text().contains(&site.secret.to_string()), "{path}");
    }
    let begun = Instant::now();
    for wrong in ["", "0", &Secret::draw().to_string()] {
        let reply = site.enter(wrong);
        assert_eq!((reply.status, reply.header("set-cookie")), (403, ""), "{wrong}");
    }
    assert!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!(site.enter(&"0".repeat(5000)).status, 400);
    assert_eq!(site.get("/files/file").text(), "inside");
}

/// Their number is bounded, and the right one does not wait for them.
#[test]
fn many_wrong_secrets_do_not_keep_the_right_one_out() {
    let site = Site::new();
    let statuses: Vec<u16> = thread::scope(|scope| {
        let guesses: Vec<_> = (0..60).map(|_| scope.spawn(|| site.enter("00").status)).collect();
        site.cookie();
        guesses.into_iter().map(|guess| guess.join().unwrap()).collect()
    });
    assert!(statuses.iter().all(|status| [403, 429].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&429), "{statuses:?}");
}

#[test]
fn each_member_sees_only_what_is_theirs() {
    let site = Site::new();
    let (others, secret) = (tempfile::tempdir().unwrap(), Secret::draw());
    std::fs::write(others.path().join("file"), "of the boss").unwrap();
    site.put("file", b"of sophia");
    let until = Instant::now() + HOUR;
    site.front.as_ref().unwrap().admit(&secret, files(others.path()), move || Some(until));
    assert_eq!(site.get("/files/file").text(), "of sophia");
    let cookie = site.enter(&secret.to_string()).header("set-cookie").split(';').next().unwrap().to_owned();
    let headers = [("Host", "127.0.0.1"), ("Cookie", &*cookie), ("Connection", "close")];
    assert_eq!(exchange(site.address, "GET", "/files/file", &headers, b"").text(), "of the boss");
}

/// A page of somebody whose name was made to point here afterwards is not this one for the browser.
#[test]
fn other_hosts_than_the_number_are_refused() {
    let site = Site::new();
    let port = site.address.port();
    let ask = |headers: &[(&str, &str)]| {
        let headers = [headers, &[("Connection", "close")]].concat();
        exchange(site.address, "GET", "/", &headers, b"").status
    };
    for good in [
        "127.0.0.1",
        &format!("127.0.0.1:{port}"),
        "localhost",
        &format!("LocalHost:{port}"),
        "[::ffff:127.0.0.1]:1",
    ] {
        assert_eq!(ask(&[("Host", good)]), 200, "{good}");
    }
    for bad in [
        "evil.example",
        &format!("evil.example:{port}"),
        "127.0.0.1.evil.example",
        "192.0.2.1",
        "",
        "127.0.0.1@evil",
    ] {
        assert_ne!(ask(&[("Host", bad)]), 200, "{bad}");
    }
    assert_eq!(ask(&[("Host", "evil.example")]), 421);
    assert_ne!(ask(&[]), 200);
    assert_ne!(ask(&[("Host", "127.0.0.1"), ("Host", "evil.example")]), 200);
}

#[test]
fn the_end_of_a_member_cuts_what_is_open_and_refuses_the_cookie() {
    let site = Site::new();
    site.put("a/file.mp4", b"");
    std::fs::File::options()
        .write(true)
        .open(site.folder.path().join("a/file.mp4"))
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    site.put("b/noise", &noise(64 << 20));
    let cookie = site.cookie();
    let headers = [("Host", "127.0.0.1"), ("Cookie", &*cookie)];
    let reading = |path| {
        let mut opened = open(site.address, "GET", path, &headers, b"");
        opened.some(100_000);
        opened
    };
    // One that takes nothing, and an archive.
    let all = [reading("/files/a/file.mp4"), reading("/files/b/?zip")];
    *site.until.lock().unwrap() = Some(Instant::now() + Duration::from_secs(1));
    thread::sleep(Duration::from_secs(2));
    let ended = Instant::now();
    for opened in all {
        let reply = opened.rest();
        assert!(!reply.is_whole && reply.body.len() < 1 << 24, "{} bytes", reply.body.len());
    }
    assert!(ended.elapsed() < Duration::from_secs(5), "{:?}", ended.elapsed());
    let headers = [("Host", "127.0.0.1"), ("Cookie", &*cookie), ("Connection", "close")];
    let refused = exchange(site.address, "GET", "/files/", &headers, b"");
    assert_eq!(refused.status, 403);
    assert_eq!(site.enter(&site.secret.to_string()).status, 403);
    // Prolonged meanwhile, as by somebody who thought better of it, the cookie is good again.
    *site.until.lock().unwrap() = Some(Instant::now() + HOUR);
    assert_eq!(exchange(site.address, "GET", "/files/", &headers, b"").status, 200);
}

#[test]
fn the_end_of_the_front_cuts_all() {
    let mut site = Site::new();
    std::fs::File::create(site.folder.path().join("film.mp4")).unwrap().set_len(1 << 30).unwrap();
    let cookie = site.cookie();
    let headers = [("Host", "127.0.0.1"), ("Cookie", &*cookie)];
    let mut opened = open(site.address, "GET", "/files/film.mp4", &headers, b"");
    opened.some(100_000);
    let begun = Instant::now();
    site.end();
    assert!(!opened.rest().is_whole);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(std::net::TcpStream::connect(site.address).is_err());
}
