//! `nfsw share --web`, and those who have only a browser: curl.

use std::{fs, path::Path, process::Command};

use rustix::process::Signal;

use crate::{
    Shared,
    common::{assert_same_tree, noise, until},
    photos,
};

/// Somebody's browser, with its cookies.
struct Browser {
    place: tempfile::TempDir,
    /// As far as the port.
    address: String,
    secret: String,
}

impl Browser {
    /// Takes the addresses that were shown, in their order.
    fn all(shared: &Shared, count: usize) -> Vec<Self> {
        const BEFORE: &str = "in a browser: ";
        until("addresses are shown", || shared.said().matches(BEFORE).count() == count);
        let said = shared.said();
        let addresses = said.lines().filter_map(|line| line.trim().strip_prefix(BEFORE)?.split_once("/#"));
        let new = |(address, secret): (&str, &str)| Self {
            place: tempfile::tempdir().unwrap(),
            address: address.to_owned(),
            secret: secret.to_owned(),
        };
        addresses.map(new).collect()
    }

    fn curl(&self, options: &[&str], path: &str) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["-sSf", "-b", "cookies", "-c", "cookies"]).args(options);
        curl.arg(format!("{}{path}", self.address)).current_dir(self.place.path());
        curl
    }

    fn ok(&self, options: &[&str], path: &str) -> Vec<u8> {
        let output = self.curl(options, path).output().expect("curl is installed");
        assert!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    fn refused(&self, options: &[&str], path: &str) -> String {
        let output = self.curl(options, path).output().expect("curl is installed");
        assert!(!output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn enter(&self) -> String {
        let form = format!("secret={}", self.secret);
        String::from_utf8(self.ok(&["-L", "-d", &form], "/enter")).unwrap()
    }
}

#[test]
fn somebody_with_a_browser_reads_the_same_files_until_the_end() {
    let (photos, state) = (photos(), tempfile::tempdir().unwrap());
    let to = ["--to", "sophia=trip", "--to", "boss=documents"];
    fs::write(photos.path().join("documents/large.bin"), noise(8_000_000)).unwrap();
    let mut shared = Shared::start(photos.path(), state.path(), &[&to[..], &["--web=127.0.0.1:0"]].concat());
    let browsers = Browser::all(&shared, 2);
    let [sophia, boss] = &browsers[..] else { panic!("two people") };
    assert_ne!(sophia.secret, boss.secret);
    assert!(sophia.refused(&[], "/files/file").contains("403"));
    assert!(sophia.enter().contains(">file<") && boss.enter().contains(">large.bin<"));
    assert_eq!(sophia.ok(&[], "/files/file"), noise(200_000));
    for path in ["/files/large.bin", "/files/../documents/large.bin", "/files/%2e%2e/documents/large.bin"] {
        assert!(sophia.refused(&["--path-as-is"], path).contains("404"), "{path}");
    }
    // A download that is resumed, and an archive.
    boss.ok(&["-r", "0-2999999", "-o", "large.bin"], "/files/large.bin");
    boss.ok(&["-C", "-", "-o", "large.bin"], "/files/large.bin");
    assert_eq!(fs::read(boss.place.path().join("large.bin")).unwrap(), noise(8_000_000));
    boss.ok(&["-o", "all.zip"], "/files/?zip");
    let unzip = Command::new("unzip").args(["-q", "all.zip"]).current_dir(boss.place.path()).status();
    assert!(unzip.expect("unzip is installed").success());
    let name = photos.path().file_name().unwrap();
    assert_same_tree(&photos.path().join("documents"), &boss.place.path().join(name), false);

    // The same command, after it was killed: the same address, and pages that are open go on.
    shared.signal(Signal::KILL);
    let web = format!("--web={}", boss.address.trim_start_matches("http://"));
    let mut again = Shared::start(photos.path(), state.path(), &[&to[..], &[&web]].concat());
    let secrets: Vec<_> = Browser::all(&again, 2).into_iter().map(|browser| browser.secret).collect();
    assert_eq!(secrets, [&*sophia.secret, &*boss.secret]);
    assert_eq!(boss.ok(&[], "/files/large.bin"), noise(8_000_000));

    // More than the system holds of what was sent.
    fs::File::create(photos.path().join("documents/huge")).unwrap().set_len(1 << 30).unwrap();
    let mut slow = boss.curl(&["--limit-rate", "2M", "-o", "slow"], "/files/huge").spawn().unwrap();
    until("it reads", || fs::metadata(boss.place.path().join("slow")).is_ok_and(|file| file.len() > 0));
    assert_eq!(again.signal(Signal::INT), 130);
    // The browser may continue to read what it has been sent, but nothing more is sent.
    let port = boss.address.rsplit(':').next().unwrap().parse().unwrap();
    assert!(!has_connections(port), "the system sends on");
    assert!(!slow.wait().unwrap().success());
    assert!(!has(state.path(), &boss.secret), "no secret is kept");
}

#[test]
fn a_share_is_not_idle_while_a_browser_reads() {
    let (photos, state) = (photos(), tempfile::tempdir().unwrap());
    fs::write(photos.path().join("film"), noise(5_000_000)).unwrap();
    let mut shared = Shared::start(photos.path(), state.path(), &["--idle", "2s", "--web=127.0.0.1:0"]);
    let browser = Browser::all(&shared, 1).remove(0);
    browser.enter();
    browser.ok(&["--limit-rate", "1M", "-o", "film"], "/files/film");
    assert!(fs::read(browser.place.path().join("film")).unwrap() == noise(5_000_000));
    until("nobody reads any more", || shared.process.try_wait().unwrap().is_some());
    let said = shared.said();
    assert!(said.contains("nobody has read anything for 2 s"), "{said}");
    let read = said.lines().find_map(|line| line.strip_prefix("the receiver read ")).unwrap();
    let read: u64 = read.strip_suffix(" bytes").unwrap().parse().unwrap();
    assert!((5_000_000..5_100_000).contains(&read), "{said}");
}

/// Whether the system still sends from a port of this machine, for a process or after its end.
fn has_connections(port: u16) -> bool {
    const HAVE_ENDED: &str = "06"; // TIME_WAIT
    let local = format!(":{port:04X}");
    let connections = fs::read_to_string("/proc/net/tcp").unwrap();
    connections.lines().any(|line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        columns[1].ends_with(&local) && columns[3] != HAVE_ENDED
    })
}

/// Whether a text is in a file below a directory.
fn has(directory: &Path, text: &str) -> bool {
    Command::new("grep").args(["-rq", text]).arg(directory).status().unwrap().success()
}
