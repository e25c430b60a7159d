//! Descriptors of directories. Where many directories wait, those that were used least lately are closed, and opened again by their names
//! when they are needed.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::{
    fs::{self, Mode, OFlags},
    io::Errno,
    path::Arg,
};

use super::{OPEN_DIRECTORY, number};
use crate::descriptors;

/// Directories that may be opened again and are open at once, at most, however many files may be open.
const MOST_OPEN: usize = 1000;

/// Directories that are open and may be closed, those that were opened last at the end.
static OPEN: Mutex<VecDeque<Weak<Opened>>> = Mutex::new(VecDeque::new());

/// A directory that is open, or can be opened again.
#[derive(Debug)]
pub(super) struct Opened {
    fd: Mutex<Option<Arc<OwnedFd>>>,
    /// The numbers of the file system and of the directory in it; zeros where the system does not tell.
    pub(super) number: (u64, u64),
    /// The directory that it lies in and its name there; without these it stays open.
    above: Option<(Arc<Self>, Vec<u8>)>,
    /// Whether it was used since somebody looked for one to close.
    is_used: AtomicBool,
}

impl Opened {
    /// A directory that stays open.
    pub(super) fn lasting(fd: OwnedFd) -> Arc<Self> {
        Self::new(fd, None)
    }

    fn new(fd: OwnedFd, above: Option<(Arc<Self>, Vec<u8>)>) -> Arc<Self> {
        let number = fs::fstat(&fd).map_or((0, 0), |stat| number(&stat));
        let (fd, is_used) = (Mutex::new(Some(Arc::new(fd))), AtomicBool::new(true));
        let opened = Arc::new(Self { fd, number, above, is_used });
        opened.close_others();
        opened
    }

    /// Enters a directory in this one.
    pub(super) fn enter(self: &Arc<Self>, name: &[u8]) -> io::Result<Arc<Self>> {
        let fd = open(self.fd()?, name)?;
        Ok(Self::new(fd, Some((Arc::clone(self), name.to_vec()))))
    }

    /// Returns the same directory, which has got another name in the one that it lies in.
    pub(super) fn renamed(self: &Arc<Self>, name: &[u8]) -> io::Result<Arc<Self>> {
        let fd = self.fd()?.try_clone()?;
        Ok(Self::new(fd, self.above.as_ref().map(|(above, _)| (Arc::clone(above), name.to_vec()))))
    }

    /// Returns its descriptor; it is opened again if it was closed.
    ///
    /// # Errors
    /// Also that its name leads to something else now.
    pub(super) fn fd(self: &Arc<Self>) -> io::Result<Arc<OwnedFd>> {
        self.is_used.store(true, Ordering::Relaxed);
        let mut held = lock(&self.fd);
        let opened = match (&*held, &self.above) {
            (Some(fd), _) => return Ok(Arc::clone(fd)),
            (None, Some((above, name))) => open(above.fd()?, name),
            (None, None) => Err(Errno::BADF),
        };
        let is_the_one = |fd: &OwnedFd| fs::fstat(fd).is_ok_and(|stat| number(&stat) == self.number);
        let fd = match opened {
            Ok(fd) if is_the_one(&fd) => Arc::new(fd),
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Err(moved()),
            Err(error) => return Err(error.into()),
        };
        *held = Some(Arc::clone(&fd));
        drop(held);
        self.close_others();
        Ok(fd)
    }

    /// Notes that it is open, and closes others while there are too many.
    fn close_others(self: &Arc<Self>) {
        static MOST: OnceLock<usize> = OnceLock::new();
        if self.above.is_none() {
            return;
        }
        let most = *MOST.get_or_init(|| descriptors::at_once().min(MOST_OPEN));
        let mut open = lock(&OPEN);
        open.push_back(Arc::downgrade(self));
        keep_open(&mut open, most);
    }

    /// Closes it, unless it is just being opened; whether it is closed.
    fn close(&self) -> bool {
        let held = self.fd.try_lock();
        held.is_ok_and(|mut fd| fd.take().is_some())
    }
}

/// Closes directories until so many are open.
fn keep_open(open: &mut VecDeque<Weak<Opened>>, most: usize) {
    if open.len() > most {
        open.retain(|it| it.strong_count() > 0);
    }
    // What was used stays for one round more.
    for _ in 0..2 * open.len() {
        if open.len() <= most {
            break;
        }
        let Some(next) = open.pop_front() else { break };
        let is_open = |it: Arc<Opened>| it.is_used.swap(false, Ordering::Relaxed) || !it.close();
        if next.upgrade().is_some_and(is_open) {
            open.push_back(next);
        }
    }
}

fn open(above: Arc<OwnedFd>, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    open_at(above, name, OFlags::NOFOLLOW)
}

/// Opens a directory, also one that may be entered and not be listed.
#[cfg(linux)]
pub(super) fn open_at(above: impl AsFd, name: impl Arg + Copy, links: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = OPEN_DIRECTORY | links;
    match fs::openat(&above, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) => fs::openat(above, name, flags | OFlags::PATH, Mode::empty()),
        opened => opened,
    }
}

/// Opens a directory.
#[cfg(not(linux))]
pub(super) fn open_at(above: impl AsFd, name: impl Arg, links: OFlags) -> rustix::io::Result<OwnedFd> {
    fs::openat(above, name, OPEN_DIRECTORY | links, Mode::empty())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the error for a directory that its name does not lead to any more.
fn moved() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "its directory was moved or replaced meanwhile; run it again")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(path: &std::path::Path) -> Arc<Opened> {
        Opened::lasting(fs::open(path, OPEN_DIRECTORY, Mode::empty()).unwrap())
    }

    #[test]
    fn what_was_closed_is_opened_again_if_its_names_lead_to_it() {
        type Change = fn(&std::path::Path);
        let changes: [(&str, bool, Change); 5] = [
            ("nothing", true, |_| {}),
            ("it was moved", false, |top| std::fs::rename(top.join("a/b"), top.join("c")).unwrap()),
            ("one above it was moved", false, |top| {
                std::fs::rename(top.join("a"), top.join("c")).unwrap();
            }),
            ("it was replaced", false, |top| {
                std::fs::rename(top.join("a/b"), top.join("c")).unwrap();
                std::fs::create_dir(top.join("a/b")).unwrap();
            }),
            ("a link to it has its name", false, |top| {
                std::fs::rename(top.join("a/b"), top.join("c")).unwrap();
                std::os::unix::fs::symlink(top.join("c"), top.join("a/b")).unwrap();
            }),
        ];
        for (what, is_there, change) in changes {
            let place = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(place.path().join("a/b")).unwrap();
            let a = opened(place.path()).enter(b"a").unwrap();
            let b = a.enter(b"b").unwrap();
            // Other tests may have closed them.
            let _ = [&b, &a].map(|it| it.close());
            assert!(!b.close());
            change(place.path());
            let found = b.fd();
            assert_eq!(found.is_ok(), is_there, "{what}: {found:?}");
        }
    }

    #[test]
    fn of_many_those_stay_open_that_were_used() {
        let place = tempfile::tempdir().unwrap();
        let top = opened(place.path());
        let all: Vec<_> = (0..20)
            .map(|number| {
                let name = number.to_string();
                std::fs::create_dir(place.path().join(&name)).unwrap();
                top.enter(name.as_bytes()).unwrap()
            })
            .collect();
        let mut open: VecDeque<_> = all.iter().map(Arc::downgrade).collect();
        keep_open(&mut open, 15);
        let of_all = |open: &VecDeque<Weak<Opened>>| -> Vec<usize> {
            let is_it = |it: &Weak<Opened>, other: &Arc<Opened>| {
                it.upgrade().is_some_and(|it| Arc::ptr_eq(&it, other))
            };
            (0..20).filter(|&index| open.iter().any(|it| is_it(it, &all[index]))).collect()
        };
        assert_eq!(of_all(&open), (5..20).collect::<Vec<_>>());
        all[7].fd().unwrap();
        keep_open(&mut open, 10);
        assert_eq!(of_all(&open), [&[7][..], &(11..20).collect::<Vec<_>>()].concat());
        assert!((0..5).all(|index| lock(&all[index].fd).is_none()));
        for it in &all {
            it.fd().unwrap();
        }
    }
}
