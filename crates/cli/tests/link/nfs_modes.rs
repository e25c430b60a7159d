//! `nfsw mount --via nfs` in the background, without programs that use it, and where a run before it was killed. Makes mounts, so it needs
//! root, as CI has.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Output, Stdio},
    thread,
    time::Duration,
};

use crate::common::{Server, command, ok, stderr, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A server with a file, and where a mount has its cache and everything else.
struct Place {
    server: Server,
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let (server, directory) = (Server::start(), tempfile::tempdir().unwrap());
        fs::write(server.path("/file"), "text").unwrap();
        for name in ["view", "run"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        Self { server, directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Lets a program, or `nfsw`, have its state here.
    fn at_home<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("XDG_RUNTIME_DIR", self.path("run")).env("XDG_STATE_HOME", self.path("state"))
    }

    fn mount(&self, options: &[&str]) -> Output {
        let mut command = command(["mount", "--via", "nfs", "--cache"]);
        self.at_home(&mut command).arg(self.path("cache")).args(options).output().unwrap()
    }

    /// What the mounts of this place tell of themselves.
    fn states(&self) -> Vec<Value> {
        let output = self.at_home(&mut command(["mount", "--status", "--json"])).output().unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        let events = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.filter(|event| event["event"] == "mounted").collect()
    }
}

/// The port in what was said.
fn port(said: &str) -> u16 {
    let rest =
        said.split("served at nfs://127.0.0.1:").nth(1).unwrap_or_else(|| panic!("no port in: {said}"));
    rest.split('/').next().unwrap().parse().unwrap()
}

fn read(port: u16) -> String {
    ok(["cat", &format!("nfs://127.0.0.1:{port}/file?mountport={port}")])
}

fn is_served(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

#[test]
fn what_is_served_in_the_background_works_when_the_command_returns_and_ends_when_nobody_uses_it() {
    let place = Place::new();
    let listen = ["--background", "--idle", "3s", "--listen", "127.0.0.1:0"];
    let output = place.mount(&[&listen[..], &[&place.server.url("/")]].concat());
    let said = stderr(&output);
    assert!(output.status.success() && said.contains("mount it with: "), "{said}");
    let port = port(&said);
    assert_eq!(read(port), "text");
    let states = place.states();
    assert_eq!(states.len(), 1, "{states:?}");
    assert_eq!(states[0]["directory"], format!("nfs://127.0.0.1:{port}"));
    assert!(said.contains(&format!("end it: kill {}", states[0]["pid"])), "{said}");
    // For longer than it may be unused.
    for _ in 0..10 {
        thread::sleep(Duration::from_millis(500));
        assert_eq!(read(port), "text");
    }
    until("its end", || !is_served(port));
    until("its end", || place.states().is_empty());

    let output = place.mount(&["--background", "--listen", "127.0.0.1:0", &place.server.url("/nowhere")]);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert!(stderr(&output).contains("no such file or directory"), "{}", stderr(&output));
}

/// NFS clients keep what they have read, and only ask whether the file has changed.
#[test]
fn what_was_read_just_after_a_change_is_there_without_the_server_though_nobody_reads_it_again() {
    let place = Place::new();
    let output =
        place.mount(&["--background", "--wait", "1s", "--listen", "127.0.0.1:0", &place.server.url("/")]);
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    let port = port(&said);
    let state = || place.states().into_iter().next().expect("it is served");
    let pid = Pid::from_raw(state()["pid"].as_i64().unwrap() as i32).unwrap();
    fs::write(place.server.path("/file"), "just now").unwrap();
    assert_eq!(read(port), "just now");
    ok(["ls", &format!("nfs://127.0.0.1:{port}/file?mountport={port}")]);
    until("it is fetched again", || state()["held_bytes"] == 8);
    kill_process(Pid::from_child(&place.server.process), Signal::STOP).unwrap();
    assert_eq!(read(port), "just now");
    kill_process(pid, Signal::TERM).unwrap();
    until("its end", || !is_served(port));
}

/// Where the kernel has no NFS client, the command says so, and leaves nothing behind.
#[test]
fn a_mount_in_the_background_is_there_or_nothing_is() {
    let place = Place::new();
    let view = place.path("view");
    let output = place.mount(&["--background", &place.server.url("/"), view.to_str().unwrap()]);
    let said = stderr(&output);
    if output.status.success() {
        assert_eq!(fs::read(view.join("file")).unwrap(), b"text");
        ok([Path::new("umount"), &view]);
    } else {
        assert_eq!(output.status.code(), Some(7), "{said}");
        assert!(said.contains("not mounted at") && said.contains("without DIR it is served"), "{said}");
    }
    until("its end", || !is_served(port(&said)));
    assert!(place.states().is_empty());
}

/// A mount of this kernel's NFS client as `nfsw` sees it: another file system, and a line that says what it is.
struct LeftMounted<'a> {
    place: &'a Place,
    port: u16,
}

impl<'a> LeftMounted<'a> {
    fn new(place: &'a Place) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self { place, port: listener.local_addr().unwrap().port() }
    }

    /// Runs `nfsw mount` where that is mounted, in a tree of mounts of its own.
    fn run(&self, options: &[&str]) -> Run {
        let (view, port) = (self.place.path("view"), self.port);
        let line = format!(
            "60 28 0:48 / {} ro,relatime - nfs 127.0.0.1:/ ro,vers=3,port={port},mountport={port}\n",
            view.display()
        );
        fs::write(self.place.path("mounts"), line).unwrap();
        let script = r#"view=$1 mounts=$2; shift 2
            [ ! -d "$view" ] || mount -t tmpfs tmpfs "$view"
            mount --bind "$mounts" /proc/$$/mountinfo && exec "$@""#;
        let nfsw = command(["mount", "--via", "nfs", "--cache"]);
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-ec", script, "sh"]).arg(&view).arg(self.place.path("mounts"));
        command.arg(nfsw.get_program()).args(nfsw.get_args()).arg(self.place.path("cache"));
        command.args(options).arg(self.place.server.url("/")).arg(&view).stdin(Stdio::null());
        let mut process = self.place.at_home(&mut command).stderr(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(process.stderr.take().unwrap());
        Run { process, said }
    }
}

struct Run {
    process: Child,
    said: BufReader<ChildStderr>,
}

impl Run {
    fn until_said(&mut self, words: &str) -> String {
        let mut text = String::new();
        while !text.contains(words) {
            let before = text.len();
            self.said.read_line(&mut text).unwrap();
            assert!(text.len() > before, "{text}");
        }
        text
    }

    fn ended(&mut self) -> (Option<i32>, String) {
        let mut text = String::new();
        self.said.read_to_string(&mut text).unwrap();
        (self.process.wait().unwrap().code(), text)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_mount_whose_program_was_killed_is_taken_over() {
    let place = Place::new();
    let left = LeftMounted::new(&place);
    // The kernel continues with the port that it knows, and the handles that it has.
    let mut first = left.run(&[]);
    let said = first.until_said("is mounted at");
    assert_eq!(port(&said), left.port, "{said}");
    assert_eq!(read(left.port), "text");
    assert_eq!(place.states()[0]["directory"], place.path("view").to_str().unwrap());
    // It has a program now.
    let (code, said) = left.run(&[]).ended();
    assert!(code == Some(7) && said.contains("is mounted already (nfsw umount"), "{code:?}: {said}");
    kill_process(Pid::from_child(&first.process), Signal::KILL).unwrap();
    first.process.wait().unwrap();

    let (code, said) = left.run(&["--listen", "127.0.0.1:1"]).ended();
    let words = format!("is mounted already, from port {}", left.port);
    assert!(code == Some(7) && said.contains(&words), "{code:?}: {said}");
    let mut second = left.run(&[]);
    second.until_said("is mounted at");
    assert_eq!(read(left.port), "text");
    kill_process(Pid::from_child(&second.process), Signal::TERM).unwrap();
    let (code, said) = second.ended();
    assert!(code == Some(0) && said.contains("is unmounted"), "{code:?}: {said}");

    let mut unused = left.run(&["--idle", "500ms"]);
    let (code, said) = unused.ended();
    assert!(code == Some(0) && said.contains("has not been used for"), "{code:?}: {said}");

    // What answers there is not what was mounted.
    fs::remove_dir(place.path("view")).unwrap();
    let (code, said) = left.run(&[]).ended();
    assert!(code == Some(7) && said.contains("is the mount of something else"), "{code:?}: {said}");
}
