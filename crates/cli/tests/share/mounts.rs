//! Mounts of shares: what the kernel has kept ends with the share.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    time::{Duration, Instant},
};

use rustix::{io::Errno, process::Signal};

use crate::{
    Receiver, Shared, at,
    common::{Server, needs_root, stderr, until},
    mounted::Mount,
    photos,
};

/// How long after its end something may still be seen of a share: half of it is for a machine that does other things, too.
const PROMPT: Duration = Duration::from_secs(2);

/// A mount of a share, a file of which a program has open and has read.
pub(crate) struct Used {
    mount: Mount,
    open: File,
}

impl Used {
    pub(crate) fn of(receiver: &Receiver, place: &str) -> Self {
        needs_root("mounts");
        let place = format!("{place}:/");
        let mount = Mount::with(&place, &[], &at(receiver.0.path()));
        let open = File::open(mount.path("trip/file")).unwrap();
        let used = Self { mount, open };
        assert!(used.tries().iter().all(|(_, result)| result.is_ok()), "{:?}", used.tries());
        used
    }

    /// What programs try.
    pub(crate) fn tries(&self) -> Vec<(&'static str, io::Result<()>)> {
        let (mut byte, path) = ([0], self.mount.path("trip/file"));
        vec![
            ("open", File::open(&path).map(drop)),
            ("read what is open", self.open.read_exact_at(&mut byte, 0)),
            ("read the end of what is open", self.open.read_exact_at(&mut byte, 199_999)),
            ("stat", fs::metadata(&path).map(drop)),
            ("stat what is open", self.open.metadata().map(drop)),
            ("ls", fs::read_dir(&self.mount.path).and_then(|mut names| names.next().unwrap()).map(drop)),
            ("ls below", fs::read_dir(self.mount.path("trip")).map(drop)),
            ("df", rustix::fs::statvfs(&self.mount.path).map(drop).map_err(io::Error::from)),
        ]
    }

    /// Expects that everything fails with ESTALE from now on.
    pub(crate) fn is_over(&self) {
        let begun = Instant::now();
        let stale = Some(Errno::STALE.raw_os_error());
        let is_stale =
            |result: &io::Result<()>| result.as_ref().err().and_then(io::Error::raw_os_error) == stale;
        until("nothing is shown any more", || self.tries().iter().all(|(_, result)| is_stale(result)));
        assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
        // Neither does it come back.
        let tries = self.tries();
        assert!(tries.iter().all(|(_, result)| is_stale(result)), "{tries:?}");
    }
}

#[test]
fn two_people_see_a_share_at_the_same_path() {
    needs_root("mounts");
    let (photos, state) = (photos(), tempfile::tempdir().unwrap());
    let options = ["--name", "the trip", "--to", "sophia", "--to", "boss"];
    let shared = Shared::start(photos.path(), state.path(), &options);
    let mut seen = Vec::new();
    for (name, background) in [(" for sophia", true), (" for boss", false)] {
        let receiver = Receiver::new();
        let home = receiver.0.path();
        let mount = |options: &[&str]| {
            let mut command = receiver.command(&["mount"]);
            command.args(options).arg(format!("{}:/", shared.place(name))).env("HOME", home);
            command.env("XDG_CACHE_HOME", home.join("cache"));
            command
        };
        let made = || {
            fs::read_dir(home.join("nfsw"))
                .ok()?
                .map(|it| it.unwrap().path())
                .find(|it| it.join("trip").exists())
        };
        let foreground = if background {
            let output = mount(&["--background"]).output().unwrap();
            assert!(output.status.success(), "{}", stderr(&output));
            None
        } else {
            Some(mount(&[]).spawn().unwrap())
        };
        until("it is mounted", || made().is_some());
        let path = made().unwrap();
        assert!(path.join("trip/file").exists());
        seen.push(path.strip_prefix(home).unwrap().to_owned());
        receiver.ok(&["umount", path.to_str().unwrap()]);
        until("what was made for it is gone", || !path.exists());
        if let Some(mut process) = foreground {
            assert!(process.wait().unwrap().success());
        }
    }
    let name = seen[0].file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("the_trip-") && name.len() == "the_trip-".len() + 4, "{name}");
    assert_eq!(seen[0], seen[1]);
}

#[test]
fn a_mount_ends_with_the_share() {
    let (photos, state, receiver) = (photos(), tempfile::tempdir().unwrap(), Receiver::new());
    let mut shared = Shared::start(photos.path(), state.path(), &[]);
    let mut used = Used::of(&receiver, &shared.place(""));
    assert_eq!(shared.signal(Signal::INT), 130);
    used.is_over();
    until("nothing of it is held any more", || held(&used.mount) == 0);
    assert_eq!(used.mount.end(Signal::TERM), Some(0), "and is unmounted as any other");
    assert_eq!(held(&used.mount), 0);
}

/// Directories of which something is in the cache on disk.
fn held(mount: &Mount) -> usize {
    fs::read_dir(&mount.cache).map_or(0, Iterator::count)
}

#[test]
fn what_is_held_of_a_share_is_deleted_when_it_cannot_be_reached() {
    needs_root("mounts");
    let (photos, state, receiver) = (photos(), tempfile::tempdir().unwrap(), Receiver::new());
    let mut shared = Shared::start(photos.path(), state.path(), &[]);
    let place = format!("{}:/", shared.place(""));
    let mut mount = Mount::with(&place, &[], &at(receiver.0.path()));
    fs::read(mount.path("trip/file")).unwrap();
    assert_eq!(mount.end(Signal::TERM), Some(0));
    assert_eq!(held(&mount), 1, "it is kept for the next mount");
    mount.again_with(&place, &["--forget", "2s"], &at(receiver.0.path()));
    // The time counts from the last answer.
    let begun = Instant::now();
    fs::read(mount.path("trip/file")).unwrap();
    shared.signal(Signal::KILL);
    assert_eq!(mount.process.wait().unwrap().code(), Some(0), "it is unmounted");
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(held(&mount), 0);
}

#[test]
fn what_is_held_of_shares_is_deleted_by_the_next_mount_after_that_time() {
    needs_root("mounts");
    let (photos, state, receiver) = (photos(), tempfile::tempdir().unwrap(), Receiver::new());
    let mut shared = Shared::start(photos.path(), state.path(), &[]);
    let mut mount = Mount::with(&format!("{}:/", shared.place("")), &[], &at(receiver.0.path()));
    fs::read(mount.path("trip/file")).unwrap();
    assert_eq!(mount.end(Signal::TERM), Some(0));
    shared.signal(Signal::KILL);
    let server = Server::start();
    fs::write(server.path("file"), "of a server").unwrap();
    let mut mount_server = |options: &[&str]| {
        mount.again(&server.url("/"), options);
        fs::read(mount.path("file")).unwrap();
        assert_eq!(mount.end(Signal::TERM), Some(0));
        held(&mount)
    };
    assert_eq!(mount_server(&[]), 2);
    // What is held of servers stays.
    assert_eq!(mount_server(&["--forget", "10ms"]), 1);
}

#[test]
fn a_mount_ends_at_the_time_that_the_share_had() {
    let (photos, state, receiver) = (photos(), tempfile::tempdir().unwrap(), Receiver::new());
    let mut shared = Shared::start(photos.path(), state.path(), &["--for", "15s"]);
    let end = Instant::now() + Duration::from_secs(15);
    let mut used = Used::of(&receiver, &shared.place(""));
    // It says nothing any more; the receiver has a clock, too.
    shared.signal(Signal::KILL);
    let tries = used.tries();
    assert!(tries.iter().all(|(_, result)| result.is_ok()), "what is held is shown in an outage: {tries:?}");
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    used.is_over();
    assert_eq!(used.mount.end(Signal::TERM), Some(0));
}
