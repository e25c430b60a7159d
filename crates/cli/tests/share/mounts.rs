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
    common::{needs_root, until},
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
fn a_mount_ends_with_the_share() {
    let (photos, state, receiver) = (photos(), tempfile::tempdir().unwrap(), Receiver::new());
    let mut shared = Shared::start(photos.path(), state.path(), &[]);
    let mut used = Used::of(&receiver, &shared.place(""));
    assert_eq!(shared.signal(Signal::INT), 130);
    used.is_over();
    assert_eq!(used.mount.end(Signal::TERM), Some(0), "and is unmounted as any other");
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
