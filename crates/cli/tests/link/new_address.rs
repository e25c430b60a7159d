//! A server that gets another address is used there at most 2 s after its name leads there: by a mount, by a copy under way, and by who connects
//! meanwhile. Makes networks and mounts, so it needs root and /dev/fuse, as CI has.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::MetadataExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    common::{self, noise, program},
    network::Network,
};

/// Who uses the server.
#[derive(Clone, Copy, Debug)]
enum User {
    /// A program that reads what is not held through a mount, and tries again when that fails.
    Mount,
    /// The same; nobody has used the mount since the server has left.
    IdleMount,
    /// The same; the mount was made when the server was away.
    MountMadeMeanwhile,
    /// A copy that had begun.
    Copy,
    /// A command that was started when the server was away.
    Command,
}

/// A server that moves.
#[derive(Clone, Copy, Debug)]
struct Case {
    user: User,
    transport: &'static str,
    /// How long the server is away until its name leads to its new address.
    away: Duration,
}

/// The promise, and what a busy machine may add.
const PROMISED: Duration = Duration::from_millis(2000 + 500);

/// How long what must come may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A network, its server, and a place for files.
struct Field {
    children: Vec<Child>,
    place: tempfile::TempDir,
    network: Network,
}

impl Field {
    fn new() -> Self {
        let network = Network::start();
        let place = tempfile::tempdir().unwrap();
        for directory in ["export", "view"] {
            fs::create_dir(place.path().join(directory)).unwrap();
        }
        fs::write(place.path().join("export/large"), noise(8 << 20)).unwrap();
        fs::write(place.path().join("export/small"), noise(3000)).unwrap();
        let server = network.serve(&place.path().join("export"));
        Self { children: vec![server], place, network }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.place.path().join(path)
    }

    /// A path as the client's machine sees it.
    fn seen(&self, path: &str) -> PathBuf {
        self.network.client.root().join(self.path(path).strip_prefix("/").unwrap())
    }

    fn nfsw(&self, arguments: &[&str]) -> Command {
        let mut command = self.network.client.command(program().to_str().unwrap());
        command.args(arguments).env("XDG_STATE_HOME", self.path("state"));
        command.env("XDG_CACHE_HOME", self.path("user")).stderr(Stdio::piped());
        command
    }

    fn mount(&mut self, transport: &str) {
        let (cache, view) = (self.path("cache"), self.path("view"));
        let [cache, view] = [&cache, &view].map(|path| path.to_str().unwrap());
        let options = ["mount", "--wait", "1s", "--transport", transport, "--cache", cache, &url(""), view];
        let mut process = self.nfsw(&options).spawn().unwrap();
        let mut reader = BufReader::new(process.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("is mounted at") {
            assert!(reader.read_line(&mut said).unwrap() > 0, "{said}");
        }
        // Whatever it says later must not fill the pipe.
        thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
        self.children.push(process);
    }

    /// Ends what was started last, cleanly.
    fn end(&mut self) {
        let mut last = self.children.pop().unwrap();
        let id = rustix::process::Pid::from_child(&last);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        assert!(last.wait().unwrap().success());
    }

    /// The server leaves; its name leads where it was.
    fn leave(&self) {
        self.network.server.run("ip addr del 10.9.0.2/24 dev far");
    }

    /// The server is elsewhere, and so says its name; returns when that was.
    fn arrive(&self) -> Instant {
        self.network.server.run("ip addr add 10.9.0.3/24 dev far");
        self.network.name_server("10.9.0.3");
        Instant::now()
    }

    /// Bytes that a copy has brought.
    fn copied(&self) -> u64 {
        fs::metadata(self.path(".back.nfsw-part")).map_or(0, |file| file.blocks() * 512)
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        for process in self.children.iter_mut().rev() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn url(path: &str) -> String {
    format!("nfs://mobile:2049/{path}?mountport=2049")
}

/// Waits until a condition is true.
fn wait_for(mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "it does not come");
        thread::sleep(Duration::from_millis(2));
    }
}

/// How long it takes from the moment at which the name leads to the new address until the user has something from there.
fn time(case: Case) -> Duration {
    let Case { user, transport, away } = case;
    let mut field = Field::new();
    match user {
        User::Mount | User::IdleMount | User::MountMadeMeanwhile => {
            field.mount(transport);
            let read = || fs::read(field.seen("view/small"));
            // What is held is not what is measured: `large` is read below.
            assert!(read().unwrap() == noise(3000));
            let uncached = |field: &Field| {
                fs::File::open(field.seen("view/large")).and_then(|it| {
                    let mut piece = vec![0; 4096];
                    std::os::unix::fs::FileExt::read_exact_at(&it, &mut piece, 4 << 20)
                })
            };
            if let User::MountMadeMeanwhile = user {
                // It is known by its name.
                assert!(fs::read_dir(field.seen("view")).unwrap().count() > 1);
                field.end();
            }
            field.leave();
            if let User::MountMadeMeanwhile = user {
                field.mount(transport);
            }
            let left = Instant::now();
            while left.elapsed() < away {
                match user {
                    User::Mount => assert!(uncached(&field).is_err()),
                    _ => thread::sleep(Duration::from_millis(10)),
                }
            }
            let arrived = field.arrive();
            wait_for(|| uncached(&field).is_ok());
            arrived.elapsed()
        }
        User::Copy => {
            let back = field.path("back");
            let options = ["cp", "--quiet", "--bwlimit", "16Mbit", "--max-block", "16384"];
            let mut copy = field.nfsw(&options);
            let copy = copy.args(["--transport", transport, &url("large")]).arg(back).spawn().unwrap();
            field.children.push(copy);
            wait_for(|| field.copied() > 100_000);
            field.leave();
            thread::sleep(away);
            let before = field.copied();
            let arrived = field.arrive();
            wait_for(|| field.copied() > before);
            arrived.elapsed()
        }
        User::Command => {
            field.leave();
            let start = || {
                let mut command = field.nfsw(&["cat", "--timeout", "30s", "--transport", transport]);
                command.arg(url("small")).stdout(Stdio::piped()).spawn().unwrap()
            };
            let mut command = start();
            thread::sleep(away);
            let arrived = field.arrive();
            loop {
                let output = command.wait_with_output().unwrap();
                let took = arrived.elapsed();
                if output.status.success() {
                    assert!(output.stdout == noise(3000));
                    break took;
                }
                // It had ended before, as nobody could be reached.
                assert!(output.status.code() == Some(3) && took < PATIENCE, "{}", common::stderr(&output));
                command = start();
            }
        }
    }
}

#[test]
fn a_new_address_is_used_within_two_seconds_after_the_name_leads_there() {
    let users = [User::Mount, User::IdleMount, User::MountMadeMeanwhile, User::Copy, User::Command];
    let aways = [0, 1500, 4000, 12_000].map(Duration::from_millis);
    let mut late = Vec::new();
    thread::scope(|scope| {
        let mut running = Vec::new();
        for user in users {
            for transport in ["udp", "tcp"] {
                for away in aways {
                    let case = Case { user, transport, away };
                    running.push((case, scope.spawn(move || time(case))));
                }
            }
        }
        for (case, thread) in running {
            let took = thread.join().unwrap_or_else(|_| panic!("{case:?}"));
            println!("{case:?}: {took:?}");
            if took > PROMISED {
                late.push((case, took));
            }
        }
    });
    assert!(late.is_empty(), "{late:#?}");
}
