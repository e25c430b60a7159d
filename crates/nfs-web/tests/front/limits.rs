//! What those who want to do harm can take.

use std::{
    env,
    fs::{self, File},
    io::{Read as _, Write as _},
    net::TcpStream,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::{
    Site,
    client::{exchange, open},
    noise,
};

#[test]
fn headers_have_a_size_and_a_time() {
    let site = Site::new();
    let long = "x".repeat(20_000);
    let headers = [("Host", "127.0.0.1"), ("X-Long", &*long), ("Connection", "close")];
    assert_eq!(exchange(site.address, "GET", "/", &headers, b"").status, 431);
    let many = vec![("X-A", "b"); 100];
    assert_eq!(exchange(site.address, "GET", "/", &many, b"").status, 431);
    // A byte from time to time, as from somebody who wants to hold a connection.
    let mut slow = TcpStream::connect(site.address).unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ").unwrap();
    slow.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let begun = Instant::now();
    let is_closed = |stream: &mut TcpStream| {
        // A last response may come before the end.
        !matches!(stream.read(&mut [0; 1000]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    };
    while !is_closed(&mut slow) {
        let _ = slow.write_all(b"x");
        assert!(begun.elapsed() < Duration::from_secs(60), "it is held");
    }
    assert!(begun.elapsed() > Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn one_address_has_not_all_connections() {
    let site = Site::new();
    let begun = Instant::now();
    // Those beyond the limit are closed at once, others when no header comes.
    let mut held: Vec<_> = (0..80).map(|_| TcpStream::connect(site.address).unwrap()).collect();
    let closed = held.iter_mut().map(|stream| {
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)) && {
            // An error for lack of time is none.
            !matches!(stream.peek(&mut [0; 1]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
        }
    });
    let closed = closed.filter(|closed| *closed).count();
    assert!(closed == 16 || begun.elapsed() > Duration::from_secs(12), "{closed} were closed");
    drop(held);
    let begun = Instant::now();
    let works = || {
        let mut stream = TcpStream::connect(site.address).unwrap();
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).is_ok() && reply.starts_with(b"HTTP/1.1 200")
    };
    while !works() {
        assert!(begun.elapsed() < Duration::from_secs(60), "closed connections are still counted");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Runs the test of this name in a process of its own, whose memory no other test of this binary takes:
/// true in that process.
fn is_alone(name: &str) -> bool {
    const MARK: &str = "NFS_WEB_TEST_ALONE";
    if env::var_os(MARK).is_some() {
        return true;
    }
    let mut itself = Command::new(env::current_exe().unwrap());
    let output = itself.args(["--exact", name, "--nocapture"]).env(MARK, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{errors}");
    false
}

/// The memory of this process, in bytes.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// A page of 10,000 names has megabytes, and is sent to some at once; others wait.
#[test]
fn readers_of_long_pages_who_take_nothing_cost_little_memory() {
    if !is_alone("limits::readers_of_long_pages_who_take_nothing_cost_little_memory") {
        return;
    }
    let site = Site::new();
    let folder = site.folder.path().join("many");
    fs::create_dir(&folder).unwrap();
    (0..10_000).for_each(|number| _ = File::create(folder.join(format!("{number:0100}"))).unwrap());
    let (cookie, before) = (site.cookie(), resident());
    let request = format!("GET /files/many/ HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n\r\n");
    let readers: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = TcpStream::connect(site.address).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            stream
        })
        .collect();
    thread::sleep(Duration::from_secs(3));
    let grown = resident().saturating_sub(before);
    assert!(grown < 160 << 20, "{grown} bytes for {} readers", readers.len());
    drop(readers);
    // Those who have waited get theirs, once the first have gone.
    let page = site.get("/files/many/");
    assert_eq!((page.status, page.text().len() > 2 << 20), (200, true));
}

#[test]
fn readers_who_take_nothing_cost_no_memory() {
    if !is_alone("limits::readers_who_take_nothing_cost_no_memory") {
        return;
    }
    let site = Site::new();
    File::create(site.folder.path().join("film.mp4")).unwrap().set_len(256 << 20).unwrap();
    site.put("noise/noise", &noise(64 << 20));
    let cookie = site.cookie();
    let before = resident();
    let headers = [("Host", "127.0.0.1"), ("Cookie", &*cookie)];
    let mut readers: Vec<_> = (0..50)
        .map(|index| {
            let path = if index % 16 == 0 { "/files/noise/?zip" } else { "/files/film.mp4" };
            open(site.address, "GET", path, &headers, b"")
        })
        .collect();
    readers.iter_mut().filter(|reader| reader.head.status == 200).for_each(|reader| drop(reader.some(1000)));
    thread::sleep(Duration::from_secs(1));
    let grown = resident().saturating_sub(before);
    assert!(grown < 48 << 20, "{grown} bytes for {} readers", readers.len());
}
