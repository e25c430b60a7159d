//! Table I of Michalakis and Kalofonos (2005): clients and servers that move, in network namespaces.
//!
//! Needs root, as CI has. `cargo test -p nfsw --test link roaming -- --ignored --nocapture` measures how long each row takes.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    common::{self, assert_same_tree, noise, stderr},
    network::Network,
};

/// A row of the table: what happens to which machine, and how it ends.
struct Row {
    name: &'static str,
    start: fn(&Network),
    end: fn(&Network),
}

/// The rows, for a client that has mounted.
const ROWS: [Row; 6] = [
    Row {
        name: "client IP address change",
        start: |network| network.client.run("ip addr del 10.9.0.1/24 dev near"),
        end: |network| network.client.run("ip addr add 10.9.0.7/24 dev near"),
    },
    Row {
        name: "server IP address change",
        start: |network| {
            network.server.run("ip addr del 10.9.0.2/24 dev far");
            network.name_server("10.9.0.3");
        },
        end: |network| network.server.run("ip addr add 10.9.0.3/24 dev far"),
    },
    Row {
        name: "client network interface down",
        start: |network| network.client.run("ip link set near down"),
        end: |network| network.client.run("ip link set near up"),
    },
    Row {
        name: "server network interface down",
        start: |network| network.server.run("ip link set far down"),
        end: |network| network.server.run("ip link set far up"),
    },
    Row {
        name: "client disconnects and reconnects with old IP address",
        start: |network| network.client.run("ip addr del 10.9.0.7/24 dev near"),
        end: |network| network.client.run("ip addr add 10.9.0.7/24 dev near"),
    },
    Row {
        name: "server disconnects and reconnects with old IP address",
        start: |network| network.server.run("ip addr del 10.9.0.3/24 dev far"),
        end: |network| network.server.run("ip addr add 10.9.0.3/24 dev far"),
    },
];

/// A network with a server that has `down`, a file, and copies that move bulk data and metadata both ways.
struct Field {
    network: Network,
    server: Child,
    place: tempfile::TempDir,
    /// The program that copies.
    nfsw: String,
    /// Bytes of the large files.
    size: usize,
}

const SMALL_FILES: usize = 120;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(100);

impl Field {
    fn new(size: usize) -> Self {
        let network = Network::start();
        let place = tempfile::tempdir().unwrap();
        let (export, tree) = (place.path().join("export"), place.path().join("tree"));
        fs::create_dir_all(tree.join("many")).unwrap();
        fs::create_dir(&export).unwrap();
        fs::write(export.join("down"), noise(size)).unwrap();
        fs::write(tree.join("large"), noise(size)).unwrap();
        for number in 0..SMALL_FILES {
            fs::write(tree.join(format!("many/{number}")), noise(number * 97 % 6000)).unwrap();
        }
        let server = network.serve(&export);
        let nfsw = std::env::var("NFSW_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_nfsw").to_owned());
        Self { network, server, place, nfsw, size }
    }

    /// A network in which the addresses are those that a row begins with.
    fn before(number: usize, size: usize) -> Self {
        let field = Self::new(size);
        for earlier in ROWS[..number].iter().take(2) {
            (earlier.start)(&field.network);
            (earlier.end)(&field.network);
        }
        field
    }

    fn path(&self, path: &str) -> PathBuf {
        self.place.path().join(path)
    }

    fn nfsw<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = self.network.client.command(&self.nfsw);
        command.env("XDG_STATE_HOME", self.path("state"));
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Starts a copy, slowly enough that something can happen meanwhile.
    fn copy(&self, transport: &str, from: &str, to: &str) -> Child {
        let options = ["cp", "-r", "--quiet", "--bwlimit", "32Mbit", "--max-block", "16384", "--transport"];
        self.nfsw(options.into_iter().chain([transport, from, to])).spawn().unwrap()
    }

    /// Bytes that a tree or a file takes, complete or not.
    fn bytes(&self, path: &str) -> u64 {
        let path = self.path(path);
        let part = common::part(&path);
        [path, part].iter().map(|path| blocks(path)).sum()
    }

    /// Starts copies both ways, which move bulk data and metadata.
    fn start_copies(&self, transport: &str) -> [Child; 2] {
        for path in ["export/up", "back"] {
            let path = self.path(path);
            let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
        let (tree, back) = (self.path("tree"), self.path("back"));
        let down = self.copy(transport, &url("down"), back.to_str().unwrap());
        let up = self.copy(transport, tree.to_str().unwrap(), &url("up"));
        let part = self.size as u64 / 8;
        assert!(wait_for(|| self.moved().iter().all(|&bytes| bytes > part)), "the copies do not begin");
        [down, up]
    }

    /// Bytes that have arrived, down and up.
    fn moved(&self) -> [u64; 2] {
        [self.bytes("back"), self.bytes("export/up")]
    }

    /// Lets a row happen under copies both ways, which notice no more than a delay.
    fn survive(&self, row: &Row, transport: &str) {
        let mut copies = self.start_copies(transport);
        (row.start)(&self.network);
        thread::sleep(Duration::from_millis(300));
        (row.end)(&self.network);
        let name = row.name;
        let ended = wait_for(|| copies.iter_mut().all(|copy| copy.try_wait().unwrap().is_some()));
        assert!(ended, "{name} over {transport}: the copies do not end");
        for copy in copies {
            let output = copy.wait_with_output().unwrap();
            assert!(output.status.success(), "{name} over {transport}: {}", stderr(&output));
        }
        assert_same_tree(&self.path("export/down"), &self.path("back"), false);
        assert_same_tree(&self.path("tree"), &self.path("export/up"), false);
    }

    /// Lets a row happen; returns how long the next byte took, down and up, if it came at all.
    fn measure(&self, row: &Row, transport: &str, outage: Duration) -> [Option<Duration>; 2] {
        let copies = self.start_copies(transport);
        (row.start)(&self.network);
        thread::sleep(outage);
        let before = self.moved();
        (row.end)(&self.network);
        let restored = Instant::now();
        let mut next = [None; 2];
        wait_for(|| {
            for ((next, now), before) in next.iter_mut().zip(self.moved()).zip(before) {
                if now != before {
                    next.get_or_insert(restored.elapsed());
                }
            }
            next.iter().all(Option::is_some)
        });
        for mut copy in copies {
            copy.kill().unwrap();
            copy.wait().unwrap();
        }
        next
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn url(path: &str) -> String {
    format!("nfs://mobile/{path}?nfsport=2049&mountport=2049")
}

fn blocks(path: &Path) -> u64 {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| blocks(&entry.path())).sum(),
        Err(_) => fs::metadata(path).map_or(0, |file| file.blocks() * 512),
    }
}

/// Whether a condition becomes true.
fn wait_for(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > PATIENCE {
            return false;
        }
        thread::sleep(Duration::from_millis(2));
    }
    true
}

/// Whoever has mounted notices no more than a delay.
fn every_row(transport: &str) {
    thread::scope(|scope| {
        for (number, row) in ROWS.iter().enumerate() {
            scope.spawn(move || Field::before(number, 2 << 20).survive(row, transport));
        }
    });
}

#[test]
fn copies_survive_every_move_over_udp() {
    every_row("udp");
}

#[test]
fn copies_survive_every_move_over_tcp() {
    every_row("tcp");
}

#[test]
fn another_server_under_the_same_name_is_told_apart() {
    for transport in ["udp", "tcp"] {
        let mut field = Field::new(2 << 20);
        let other = field.path("other");
        fs::create_dir_all(other.join("up/many")).unwrap();
        fs::write(other.join("down"), noise((2 << 20) + 1)).unwrap();
        let copies = field.start_copies(transport);
        field.server.kill().unwrap();
        field.server.wait().unwrap();
        field.network.server.run("ip addr del 10.9.0.2/24 dev far && ip addr add 10.9.0.3/24 dev far");
        field.network.name_server("10.9.0.3");
        field.server = field.network.serve(&other);
        for copy in copies {
            let output = copy.wait_with_output().unwrap();
            let text = stderr(&output);
            assert_eq!(output.status.code(), Some(1), "over {transport}: {text}");
            assert!(text.lines().count() == 1 && text.contains("another server now"), "{transport}: {text}");
        }
        assert!(!field.path("back").exists());
        assert_eq!(blocks(&other.join("up")), 0, "nothing was written to the other server");
    }
}

/// Whoever has not mounted is told that it cannot be done now, and can mount afterwards.
#[test]
fn mounting_works_after_every_move() {
    let field = Field::new(10_000);
    for transport in ["udp", "tcp"] {
        let list = |timeout| {
            let target = url("");
            field.nfsw(["ls", "--timeout", timeout, "--transport", transport, &target]).output().unwrap()
        };
        assert!(list("1m").status.success());
        for row in &ROWS {
            (row.start)(&field.network);
            let output = list("300ms");
            let (name, text) = (row.name, stderr(&output));
            assert_eq!(output.status.code(), Some(3), "{name} over {transport}: {text}");
            assert_eq!(text.lines().count(), 1, "{name} over {transport}: {text}");
            (row.end)(&field.network);
            let output = list("1m");
            assert!(output.status.success(), "{name} over {transport}: {}", stderr(&output));
        }
        field.network.client.run("ip addr flush dev near && ip addr add 10.9.0.1/24 dev near");
        field.network.server.run("ip addr flush dev far && ip addr add 10.9.0.2/24 dev far");
        field.network.name_server("10.9.0.2");
    }
}

#[test]
#[ignore = "takes minutes"]
fn how_long_every_move_takes() {
    const OUTAGES: [u64; 3] = [300, 3000, 10_000];
    let measured = |number: usize, transport: &str, outage: u64| {
        let field = Field::before(number, 16 << 20);
        let next = field.measure(&ROWS[number], transport, Duration::from_millis(outage));
        next.map(|next| next.map_or_else(|| "never".to_owned(), |next| next.as_millis().to_string()))
            .join(" / ")
    };
    println!("milliseconds until the next byte, download / upload, after an outage of {OUTAGES:?} ms");
    for transport in ["udp", "tcp"] {
        for (number, row) in ROWS.iter().enumerate() {
            let cells: Vec<String> = thread::scope(|scope| {
                let run = |outage| scope.spawn(move || measured(number, transport, outage));
                OUTAGES.map(run).into_iter().map(|cell| cell.join().unwrap()).collect()
            });
            println!("| {} | {transport} | {} |", row.name, cells.join(" | "));
        }
    }
}
