//! `nfsw share`, and those who have a code.

mod accept;
#[path = "../common/mod.rs"]
mod common;
mod control;
#[path = "../common/mounted.rs"]
mod mounted;
mod mounts;
mod nearby;
#[path = "../common/network.rs"]
mod network;
mod plain;
#[path = "../common/terminal.rs"]
mod terminal;
mod web;

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use common::{Link, assert_same_tree, command, noise, stderr, until};

/// A share, and what it has said.
struct Shared {
    process: Child,
    said: Arc<Mutex<String>>,
}

impl Shared {
    fn start(directory: &Path, state: &Path, options: &[&str]) -> Self {
        let mut command = command(["share"]);
        command.arg(directory).args(["--listen", "127.0.0.1:0"]).args(options);
        command.envs(at(state));
        Self::spawn(command, options)
    }

    /// Starts what such a command line says, with these options.
    fn spawn(mut command: Command, options: &[&str]) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let (output, saying) = (BufReader::new(process.stdout.take().unwrap()), Arc::clone(&said));
        thread::spawn(move || {
            output.lines().map_while(Result::ok).for_each(|line| *saying.lock().unwrap() += &(line + "\n"));
        });
        let shared = Self { process, said };
        let last = options.iter().rposition(|option| *option == "--to").map_or("", |at| options[at + 1]);
        let last = match last.split('=').next() {
            Some("") | None => String::new(),
            Some(name) => format!(" for {name}"),
        };
        until("it says what to type, or who knows that already", || {
            let said = shared.said();
            let end = said.rfind(&format!("code{last}: ")).map_or("", |at| &said[at..]);
            end.contains("nfsw cp -r ") || said.contains("has the code already")
        });
        shared
    }

    fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// The `CODE@HOST:PORT` that was shown last for a person.
    fn place(&self, person: &str) -> String {
        let said = self.said();
        let (_, after) = said.rsplit_once(&format!("code{person}: ")).expect("a code");
        after
            .lines()
            .find_map(|line| line.trim().strip_prefix("nfsw ls -l ")?.strip_suffix(":/"))
            .unwrap()
            .to_owned()
    }

    fn signal(&mut self, signal: Signal) -> i32 {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
        self.process.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What makes a process one of a machine that keeps everything in this directory.
fn at(state: &Path) -> [(&'static str, &Path); 2] {
    [("XDG_STATE_HOME", state), ("XDG_RUNTIME_DIR", state)]
}

/// A receiver's machine: what it keeps.
struct Receiver(tempfile::TempDir);

impl Receiver {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command.envs(at(self.0.path())).current_dir(self.0.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs it with a line on its standard input.
    fn told(&self, line: &str, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        process.stdin.take().unwrap().write_all(line.as_bytes()).unwrap();
        process.wait_with_output().unwrap()
    }

    fn fails(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
        stderr(&output)
    }
}

fn photos() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    for name in ["trip", "documents"] {
        fs::create_dir(place.path().join(name)).unwrap();
        fs::write(place.path().join(name).join("file"), noise(200_000)).unwrap();
    }
    place
}

#[test]
fn two_people_at_lunch_read_what_each_was_given() {
    let (photos, state) = (photos(), tempfile::tempdir().unwrap());
    let mut shared =
        Shared::start(photos.path(), state.path(), &["--to", "sophia=trip", "--to", "boss=documents"]);
    let (sophia, boss) = (Receiver::new(), Receiver::new());
    for (receiver, name, below) in [(&sophia, " for sophia", "trip"), (&boss, " for boss", "documents")] {
        let place = shared.place(name);
        assert!(receiver.ok(&["ls", &format!("{place}:/")]).contains("file"));
        // The code is spent; its member comes back with it.
        receiver.ok(&["cp", "-r", &format!("{place}:/"), "got"]);
        assert_same_tree(&photos.path().join(below), &receiver.0.path().join("got"), false);
        receiver.ok(&["sync", &format!("{place}:/"), "synced"]);
        assert_same_tree(&photos.path().join(below), &receiver.0.path().join("synced"), true);
        receiver.fails(4, &["cat", &format!("{place}:/../documents/none")]);
        assert!(receiver.fails(1, &["cp", "got/file", &format!("{place}:/new")]).contains("read-only"));
    }
    let refused = boss.fails(3, &["ls", &format!("{}:/", shared.place(" for sophia"))]);
    assert!(refused.contains("was used already"), "{refused}");
    assert!(shared.said().contains("boss has used the code: "), "{}", shared.said());
    // Nothing of a code is left where others read, and what is kept is this user's.
    let kept = fs::read_dir(sophia.0.path().join("nfsw/shares")).unwrap().count();
    assert_eq!(kept, 1);
    let place = shared.place(" for sophia");
    let (code, _) = place.split_once('@').unwrap();
    let files = sophia.0.path().join("nfsw");
    let found = Command::new("grep").args(["-r", code]).arg(files).output().unwrap();
    assert_eq!(found.status.code(), Some(1), "{}", String::from_utf8_lossy(&found.stdout));
    assert_eq!(shared.signal(Signal::INT), 130);
    assert!(shared.said().contains("sophia read "), "{}", shared.said());
    assert_eq!(fs::read_dir(state.path().join("nfsw/shared")).unwrap().count(), 0, "nothing is kept of it");
}

#[test]
fn a_code_that_is_not_typed_is_in_the_environment_or_on_standard_input() {
    let (photos, state, receiver) = (photos(), tempfile::tempdir().unwrap(), Receiver::new());
    let shared = Shared::start(photos.path(), state.path(), &[]);
    let place = shared.place("");
    let (code, address) = place.split_once('@').unwrap();
    let place = format!("@{address}:/trip");
    let none = receiver.fails(2, &["ls", &place]);
    assert!(none.contains("NFSW_CODE is not set, and standard input has no line"), "{none}");
    let wrong = receiver.told("7-velvit-cactus\n", &["ls", &place]);
    assert!(stderr(&wrong).contains("did you mean velvet?"), "{}", stderr(&wrong));
    let listed = receiver.told(&format!("{code}\nsomething else\n"), &["ls", &place]);
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "file\n", "{}", stderr(&listed));
    let mut copy = receiver.command(&["cp", "-r", &place, "got"]);
    let copied = copy.env("NFSW_CODE", code).output().unwrap();
    assert!(copied.status.success(), "{}", stderr(&copied));
    assert_same_tree(&photos.path().join("trip"), &receiver.0.path().join("got"), false);
    // It is in none of the messages either.
    let missing = receiver.told(code, &["cp", &format!("@{address}:/none"), "."]);
    assert_eq!(missing.status.code(), Some(4));
    assert!(!stderr(&missing).contains(code), "{}", stderr(&missing));
}

#[test]
fn wrong_guesses_replace_a_code_and_the_true_one_works() {
    let (photos, state) = (photos(), tempfile::tempdir().unwrap());
    let shared = Shared::start(photos.path(), state.path(), &[]);
    let first = shared.place("");
    let (code, address) = first.split_once('@').unwrap();
    let wrong = format!("{}-zoo-zone@{address}:/", code.split_once('-').unwrap().0);
    for _ in 0..3 {
        assert!(Receiver::new().fails(3, &["ls", &wrong]).contains("the code is wrong"));
    }
    until("another code is shown", || shared.place("") != first);
    Receiver::new().fails(3, &["ls", &format!("{first}:/")]);
    Receiver::new().ok(&["ls", &format!("{}:/", shared.place(""))]);
    let none = Receiver::new().fails(2, &["ls", "7-velvit-cactus@127.0.0.1:7049:/"]);
    assert!(none.contains("did you mean velvet?"), "{none}");
}

/// Over a link with fades, too: the sharer is killed at half of the file, and started again with the same command.
#[test]
fn a_sharer_that_was_killed_goes_on_and_so_does_the_copy() {
    const BYTES: usize = 12_000_000;
    let (photos, state, receiver) = (photos(), tempfile::tempdir().unwrap(), Receiver::new());
    fs::write(photos.path().join("large"), noise(BYTES)).unwrap();
    let mut shared = Shared::start(photos.path(), state.path(), &[]);
    let place = shared.place("");
    let (code, address) = place.split_once('@').unwrap();
    let link = Link::to(address.parse().unwrap(), &["--rate", "20M", "--bad", "80ms", "--good", "1s"]);
    let url = link.url("");
    let port = url.rsplit_once("mountport=").unwrap().1;
    let source = format!("{code}@127.0.0.1:{port}:/large");
    let mut copy = receiver.command(&["cp", &source, "large"]).spawn().unwrap();
    let part = receiver.0.path().join(".large.nfsw-part");
    until("half of it is there", || {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(&part).is_ok_and(|part| part.blocks() * 512 > BYTES as u64 / 2)
    });
    shared.signal(Signal::KILL);
    thread::sleep(Duration::from_secs(1));
    assert!(copy.try_wait().unwrap().is_none(), "it waits");
    let mut again = Shared::start(photos.path(), state.path(), &[]);
    assert!(again.said().contains("has the code already"), "{}", again.said());
    assert!(copy.wait().unwrap().success());
    assert_eq!(fs::read(receiver.0.path().join("large")).unwrap(), noise(BYTES));
    assert_eq!(again.signal(Signal::INT), 130);
    let said = again.said();
    let read = said.rsplit_once("read ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<usize>().ok());
    let read = read.unwrap_or_else(|| panic!("{said}"));
    assert!(read < BYTES / 2 + (2 << 20), "{read} bytes were sent by the second");
}

#[test]
fn a_killed_share_knows_people_by_their_names_and_lets_in_who_is_named() {
    let (photos, state) = (photos(), tempfile::tempdir().unwrap());
    for name in ["trip", "documents"] {
        fs::write(photos.path().join(name).join("whose"), name).unwrap();
    }
    let first = ["--to", "sophia=trip", "--to", "boss=documents", "--to", "carol=trip"];
    let mut shared = Shared::start(photos.path(), state.path(), &first);
    let [sophia, carol] = [(); 2].map(|()| Receiver::new());
    let of = |shared: &Shared, person: &str| format!("{}:/whose", shared.place(person));
    let [of_sophia, of_boss, of_carol] =
        [" for sophia", " for boss", " for carol"].map(|person| of(&shared, person));
    assert_eq!(sophia.ok(&["cat", &of_sophia]), "trip");
    assert_eq!(carol.ok(&["cat", &of_carol]), "trip");
    shared.signal(Signal::KILL);
    let second = ["--to", "dave=documents", "--to", "boss=documents", "--to", "sophia=trip"];
    let again = Shared::start(photos.path(), state.path(), &second);
    assert_eq!(sophia.ok(&["cat", &of_sophia]), "trip");
    assert_eq!(of(&again, " for boss"), of_boss, "the code was read to somebody, perhaps");
    assert_eq!(Receiver::new().ok(&["cat", &of_boss]), "documents");
    assert_eq!(Receiver::new().ok(&["cat", &of(&again, " for dave")]), "documents");
    let refused = carol.fails(3, &["cat", &of_carol]);
    assert!(refused.contains("ask for a new code"), "{refused}");
    // A directory is shared once.
    let mut other = command(["share"]);
    other.arg(photos.path()).args(["--to", "eve"]).envs(at(state.path()));
    let other = other.output().unwrap();
    assert_eq!(other.status.code(), Some(7));
    assert!(stderr(&other).contains("is shared already"), "{}", stderr(&other));
}

#[test]
fn what_killed_shares_have_left_goes_when_their_time_is_over() {
    let (state, places) = (tempfile::tempdir().unwrap(), [photos(), photos(), photos()]);
    for (place, time) in places.iter().zip(["2s", "1h"]) {
        Shared::start(place.path(), state.path(), &["--for", time]).signal(Signal::KILL);
    }
    let shared = state.path().join("nfsw/shared");
    let all = || {
        let names = fs::read_dir(&shared).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.ends_with(".lock")).collect::<Vec<_>>()
    };
    // A share that is killed while it writes leaves what it has begun.
    let kept = || all().iter().filter(|name| !name.starts_with('.')).count();
    assert_eq!(kept(), 2);
    let begun =
        shared.join(format!(".{}.nfsw-part-0", all().iter().find(|name| !name.starts_with('.')).unwrap()));
    fs::write(&begun, "keys").unwrap();
    until("one of them is over, and another share sees that", || {
        drop(Shared::start(places[2].path(), state.path(), &[]));
        kept() == 2
    });
    assert!(!begun.exists());
    let again = Shared::start(places[1].path(), state.path(), &["--for", "1h"]);
    assert!(Receiver::new().ok(&["ls", &format!("{}:/", again.place(""))]).contains("trip"));
}

#[test]
fn at_its_end_a_share_refuses_those_who_read() {
    let (photos, state, receiver) = (photos(), tempfile::tempdir().unwrap(), Receiver::new());
    fs::write(photos.path().join("large"), noise(8_000_000)).unwrap();
    let mut shared = Shared::start(photos.path(), state.path(), &[]);
    let place = shared.place("");
    let source = format!("{place}:/large");
    let mut copy = receiver.command(&["cp", "--bwlimit", "1M", &source, "large"]);
    let copy = copy.stderr(Stdio::piped()).spawn().unwrap();
    until("it reads", || receiver.0.path().join(".large.nfsw-part").exists());
    shared.signal(Signal::INT);
    let asked = Instant::now();
    let output = copy.wait_with_output().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    assert!(!output.status.success());
    assert!(stderr(&output).contains("the share has ended"), "{}", stderr(&output));
    // A share that is over by itself.
    let short = Shared::start(photos.path(), state.path(), &["--for", "2s"]);
    let place = short.place("");
    receiver.ok(&["ls", &format!("{place}:/")]);
    let mut short = short;
    assert_eq!(short.process.wait().unwrap().code(), Some(0));
}
