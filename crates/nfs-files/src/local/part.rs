//! A local file that is being written.

use std::{
    cell::Cell,
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::PathBuf,
    sync::Arc,
};

use rustix::{
    fs::{self, AtFlags, FlockOperation, Mode, OFlags, RawMode},
    io::Errno,
};

use super::{Acl, Directory, Times, give, number};
use crate::name::{MAX_NAME_BYTES, fresh, temporary};

/// A file on its way to its name: it is written beside the target and takes its place when complete. Dropped
/// before, it stays, so that an interrupted run leaves what it had.
#[derive(Debug)]
pub struct Part {
    file: Arc<File>,
    directory: Directory,
    name: Vec<u8>,
    /// Its numbers, once they were asked for.
    number: Cell<Option<Number>>,
    /// `None` when written in place.
    temporary: Option<Vec<u8>>,
    /// Its temporary name is the same every time.
    is_usual: bool,
    /// No later run will look for it.
    is_passing: bool,
    is_known: bool,
    /// This run has created it.
    is_new: bool,
    /// Its mode when it was made to be written in place; `None` where it was there.
    made_mode: Option<u32>,
}

/// Whether a file got its name, which nothing was to lose to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// It has it.
    Yes,
    /// Something else has it.
    Taken,
    /// The file system cannot do that, or not in one step.
    Unknown,
}

/// The numbers of a file system and of a file in it.
type Number = (u64, u64);

/// How often a name is tried that others take and leave.
pub(super) const MOST_ATTEMPTS: usize = 8;

/// What a file of this run is known by to a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// What tells it from others that had or will have its name.
    pub number: u64,
    /// Its owner and its mode when it was made. Some file systems have one for all files.
    pub owner_and_mode: u64,
}

impl Mark {
    // The types of the fields differ from system to system.
    #[allow(clippy::unnecessary_cast)]
    fn of(stat: &fs::Stat) -> Self {
        let mode = stat.st_mode as u64 & 0o7777;
        Self { number: stat.st_ino as u64, owner_and_mode: u64::from(stat.st_uid) << 32 | mode }
    }

    /// Whether a file is still what it was: nobody else could have written it, as far as its mode tells.
    fn holds(self, now: Self) -> bool {
        let [was, is] = [self, now].map(|it| it.owner_and_mode >> 32);
        // One that a run has given to its last owner before it was killed is not: that user has written what they liked since.
        let is_owned = was == is;
        // A run that was killed may have given it its last mode.
        let is_kept = self.owner_and_mode == now.owner_and_mode || now.owner_and_mode & 0o022 == 0;
        self.number == now.number && is_owned && is_kept
    }
}

impl Part {
    /// Creates the file under its temporary name; or opens what an earlier run has left there, or at another name, if that is the file which
    /// is `known`, and takes from that what `mode` does not allow. Whatever else has this name is removed; what cannot be removed, or may be in
    /// use by another run, keeps it, and the file gets a `spare` one, or one that nothing has.
    ///
    /// # Errors
    /// `InvalidFilename` before anything is written if it could never get its name.
    pub fn beside(
        directory: &Directory,
        name: &[u8],
        mode: u32,
        known: Option<(Mark, &[u8])>,
        spare: impl FnOnce() -> Option<Vec<u8>>,
    ) -> io::Result<Self> {
        if name.len() > MAX_NAME_BYTES {
            return Err(Errno::NAMETOOLONG.into());
        }
        let of_run = |file: File, temporary, (is_usual, is_known): (bool, bool)| {
            if is_known {
                narrow(&file, mode)?;
            }
            Ok(Self {
                file: Arc::new(file),
                directory: directory.clone(),
                name: name.to_vec(),
                number: Cell::default(),
                temporary: Some(temporary),
                is_usual,
                is_passing: !is_usual && !is_known,
                is_known,
                is_new: !is_known,
                made_mode: None,
            })
        };
        let usual = temporary(name);
        if let Some((mark, at)) = known
            && at != usual
            && let Found::Known(file) = look(directory, at, Some(mark))?
        {
            return of_run(file, at.to_vec(), (false, true));
        }
        let known = known.filter(|(_, at)| *at == usual).map(|(mark, _)| mark);
        if let Some((file, is_known)) = take(directory, &usual, mode, known)? {
            return of_run(file, usual, (true, is_known));
        }
        if let Some(spare) = spare()
            && let Some((file, _)) = take(directory, &spare, mode, None)?
        {
            return of_run(file, spare, (false, false));
        }
        let fresh = fresh(name);
        of_run(create_unlocked(directory, &fresh, mode)?, fresh, (false, false))
    }

    /// Returns the temporary name, if it is not the usual one.
    pub fn other_name(&self) -> Option<&[u8]> {
        self.temporary.as_deref().filter(|_| !self.is_usual)
    }

    /// Leaves the file there when it is dropped: a later run will look for it.
    pub const fn keep(&mut self) {
        self.is_passing = false;
    }

    /// Whether it is the one that an earlier run has left.
    pub const fn is_known(&self) -> bool {
        self.is_known
    }

    /// Returns what a later run knows the file by.
    pub fn mark(&self) -> io::Result<Mark> {
        Ok(Mark::of(&self.stat()?))
    }

    /// Looks at the open file.
    pub fn stat(&self) -> io::Result<fs::Stat> {
        let stat = fs::fstat(&self.file)?;
        self.number.set(Some(number(&stat)));
        Ok(stat)
    }

    /// Returns its numbers, which an open file keeps.
    pub fn number(&self) -> io::Result<Number> {
        self.number.get().map_or_else(|| Ok(number(&self.stat()?)), Ok)
    }

    /// Returns the group that it belongs to.
    pub fn group(&self) -> io::Result<u32> {
        Ok(self.file.metadata()?.gid())
    }

    /// Whether a name in its directory still stands for it.
    fn is_named(&self, name: &[u8]) -> io::Result<bool> {
        Ok(self.directory.stat(name)?.as_ref().map(number) == Some(self.number()?))
    }

    /// Makes the target itself, which must not be there, or opens it, which must be a regular file.
    ///
    /// # Errors
    /// `WouldBlock` when another run is writing it; `AlreadyExists` or `NotFound`.
    pub fn in_place(directory: &Directory, name: &[u8], mode: u32, is_new: bool) -> io::Result<Self> {
        let file = if is_new { create(directory, name, mode)? } else { open(directory, name)? };
        let made_mode = if is_new { Some(mode_of(&fs::fstat(&file)?)) } else { None };
        Ok(Self {
            made_mode,
            file: Arc::new(file),
            directory: directory.clone(),
            name: name.to_vec(),
            number: Cell::default(),
            temporary: None,
            is_usual: false,
            is_passing: false,
            is_known: false,
            is_new: false,
        })
    }

    /// The same open file, which is written in place, for another attempt.
    pub fn again(&self) -> Self {
        Self {
            file: Arc::clone(&self.file),
            directory: self.directory.clone(),
            name: self.name.clone(),
            number: self.number.clone(),
            temporary: self.temporary.clone(),
            ..*self
        }
    }

    /// Whether it is written in place, and has a mode that this run has not given it.
    pub fn has_own_mode(&self) -> io::Result<bool> {
        Ok(self.temporary.is_none() && self.made_mode != Some(mode_of(&self.stat()?)))
    }

    /// Forgets what was in the file when it was opened.
    pub fn clear(&self) -> io::Result<()> {
        if !self.is_new && self.size()? > 0 { self.file.set_len(0) } else { Ok(()) }
    }

    /// Returns the size of the file, in bytes.
    pub fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Returns the bytes that the file takes on the disk.
    pub fn used(&self) -> io::Result<u64> {
        /// Bytes of what `st_blocks` counts (stat(2)).
        const BLOCK_BYTES: u64 = 512;
        Ok(self.file.metadata()?.blocks() * BLOCK_BYTES)
    }

    /// Returns the path under which it is until it is complete.
    pub fn path(&self) -> PathBuf {
        self.directory.join(self.temporary.as_ref().unwrap_or(&self.name))
    }

    /// Returns the file, for whoever fills it.
    pub fn writer(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Sets permissions, whatever the umask.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        if mode_of(&self.stat()?) == mode {
            return Ok(());
        }
        Ok(fs::fchmod(&self.file, Mode::from_raw_mode(mode as RawMode))?)
    }

    /// Sets permissions that are none or some of those of the file that it replaces, and its access list: nobody may do more than with
    /// that, and with all its permissions whoever is in the list may do the same.
    pub fn set_mode_of(&self, replaced: &fs::Stat, mode: u32) -> io::Result<()> {
        let list = self.directory.list(&self.name);
        let is_the_same = mode == mode_of(replaced) && self.group()? == replaced.st_gid;
        match list {
            Some(list) if is_the_same && list.give(&self.file).is_ok() => self.set_mode(mode),
            list => {
                let removed = self.remove_list();
                self.set_mode(list.map_or(mode, |list| list.of_all(mode))).and(removed)
            }
        }
    }

    /// Takes its access list from the file, for a copy with the permissions of its source and no more.
    pub fn remove_list(&self) -> io::Result<()> {
        Acl::remove(&self.file)
    }

    /// Gives the file to somebody, if we may.
    pub fn set_owner(&self, uid: u32, gid: u32) {
        give(self.file.as_fd(), uid, gid);
    }

    /// Whether it belongs to this user and this group.
    pub fn is_owned_by(&self, uid: u32, gid: u32) -> bool {
        self.file.metadata().is_ok_and(|it| (it.uid(), it.gid()) == (uid, gid))
    }

    /// Sets the times.
    pub fn set_times(&self, times: Times) -> io::Result<()> {
        Ok(fs::futimens(&self.file, &times.to_timestamps())?)
    }

    /// Gives the file its name if nothing has that and that can be told in one step.
    ///
    /// # Errors
    /// As [`Part::finish`].
    #[cfg(linux)]
    pub fn finish_new(&mut self) -> io::Result<Named> {
        use rustix::fs::RenameFlags;

        let Some(temporary) = &self.temporary else { return Ok(Named::Unknown) };
        if !self.is_named(temporary)? {
            return Err(removed());
        }
        close_copy(&self.file)?;
        let (directory, flags) = (&self.directory.fd()?, RenameFlags::NOREPLACE);
        match fs::renameat_with(directory, &temporary[..], directory, &self.name[..], flags) {
            Ok(()) => {
                self.is_passing = false;
                Ok(Named::Yes)
            }
            Err(Errno::EXIST) => Ok(Named::Taken),
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM | Errno::NOTTY) => {
                Ok(Named::Unknown)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Cannot tell in one step whether something has the name.
    #[cfg(not(linux))]
    pub const fn finish_new(&mut self) -> io::Result<Named> {
        Ok(Named::Unknown)
    }

    /// As [`Part::finish_new`], where a rename cannot tell: by a second name.
    ///
    /// # Errors
    /// As [`Part::finish`].
    pub fn finish_linked(&mut self) -> io::Result<Named> {
        let Some(temporary) = &self.temporary else { return Ok(Named::Unknown) };
        if !self.is_named(temporary)? {
            return Err(removed());
        }
        close_copy(&self.file)?;
        let directory = &self.directory.fd()?;
        match fs::linkat(directory, &temporary[..], directory, &self.name[..], AtFlags::empty()) {
            Ok(()) => {
                self.directory.remove(temporary)?;
                self.is_passing = false;
                Ok(Named::Yes)
            }
            Err(Errno::EXIST) => Ok(Named::Taken),
            Err(Errno::XDEV | Errno::MLINK | Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
                Ok(Named::Unknown)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// `NotFound` when somebody removed or replaced the temporary file, or the one that was written in place.
    pub fn finish(mut self) -> io::Result<()> {
        close_copy(&self.file)?;
        if self.temporary.is_none() && !self.is_named(&self.name)? {
            let text = "was removed or replaced while it was written; run it again";
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        if let Some(temporary) = &self.temporary {
            if !self.is_named(temporary)? {
                return Err(removed());
            }
            let directory = &self.directory.fd()?;
            fs::renameat(directory, &temporary[..], directory, &self.name[..])?;
        }
        self.is_passing = false;
        Ok(())
    }

    /// Removes the file when it was temporary: it will not become complete.
    pub fn discard(self) {
        if let Some(temporary) = &self.temporary {
            let _ = self.directory.remove(temporary);
        }
    }
}

/// Closes a copy of a descriptor, as programs close files: some file systems, those of other machines, say only then that what was written
/// has no room.
pub fn close_copy(file: &impl AsFd) -> io::Result<()> {
    let copy = file.as_fd().try_clone_to_owned()?;
    Ok(nix::unistd::close(copy)?)
}

/// Returns the error for a temporary file that is not there any more.
pub fn removed() -> io::Error {
    let text = "its temporary file was removed or replaced meanwhile; run it again";
    io::Error::new(io::ErrorKind::NotFound, text)
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.as_ref().filter(|_| self.is_passing) {
            let _ = self.directory.remove(temporary);
        }
    }
}

/// What has a temporary name.
enum Found {
    /// The file that was looked for.
    Known(File),
    /// Something else.
    Other,
    /// A file that another run, or somebody else, is writing, as far as can be told.
    InUse,
    /// Nothing any more.
    Gone,
}

const OPEN: OFlags =
    OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NOCTTY).union(OFlags::NONBLOCK);

/// Creates a file and locks it.
///
/// # Errors
/// `AlreadyExists`, whatever has the name.
pub(super) fn create(directory: &Directory, name: &[u8], mode: u32) -> io::Result<File> {
    let file = create_unlocked(directory, name, mode)?;
    lock(&file)?;
    Ok(file)
}

/// As [`create`], under a name that no other run looks for.
fn create_unlocked(directory: &Directory, name: &[u8], mode: u32) -> io::Result<File> {
    // Nobody else is to write it before it is complete, whatever its last mode.
    let mode = Mode::from_raw_mode((mode & !0o022) as RawMode);
    let flags = OPEN | OFlags::CREATE | OFlags::EXCL;
    Ok(File::from(fs::openat(directory.fd()?, name, flags, mode)?))
}

/// Locks a file. Some file systems have no locks: that is no reason not to write.
fn lock(file: &File) -> io::Result<()> {
    if let Err(Errno::WOULDBLOCK) = fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        return Err(io::Error::new(io::ErrorKind::WouldBlock, "another nfsw is writing this file"));
    }
    Ok(())
}

/// Creates a file under a temporary name, or opens the one that is `known`, which is said; `None` if others keep the name.
fn take(
    directory: &Directory,
    temporary: &[u8],
    mode: u32,
    known: Option<Mark>,
) -> io::Result<Option<(File, bool)>> {
    for _ in 0..MOST_ATTEMPTS {
        match create(directory, temporary, mode) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            file => return Ok(Some((file?, false))),
        }
        match look(directory, temporary, known)? {
            Found::Known(file) => return Ok(Some((file, true))),
            Found::Gone => {}
            Found::InUse => break,
            Found::Other => {
                if directory.remove(temporary).is_err() {
                    break;
                }
            }
        }
    }
    Ok(None)
}

/// Looks what has a temporary name.
fn look(directory: &Directory, name: &[u8], known: Option<Mark>) -> io::Result<Found> {
    // What cannot be opened is not what is looked for: a link, a directory, or a file that has its last mode already.
    let file = match fs::openat(directory.fd()?, name, OPEN, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(Found::Gone),
        Err(Errno::ACCESS) if directory.stat(name)?.is_some_and(|stat| is_file(&stat) && !is_ours(&stat)) => {
            return Ok(Found::InUse);
        }
        Err(error) if is_of_name(error) => return Ok(Found::Other),
        Err(error) => return Err(error.into()),
    };
    let stat = fs::fstat(&file)?;
    let is_known = is_file(&stat) && known.is_some_and(|known| known.holds(Mark::of(&stat)));
    if !is_known && !is_own(&file) {
        let is_in_use = is_file(&stat) && !is_ours(&stat) && lock(&file).is_err();
        return Ok(if is_in_use { Found::InUse } else { Found::Other });
    }
    // Another run writes it, or who can read it holds the lock: that is no reason to wait for them.
    if lock(&file).is_err() {
        return Ok(Found::InUse);
    }
    // Another run may have given the file its name between the two calls: then it is complete, and not ours.
    if !is_at(&file, directory, name)? {
        return Ok(Found::Gone);
    }
    Ok(if is_known { Found::Known(file) } else { Found::Other })
}

/// Whether opening a file fails of what has its name, and not of a machine or a disk that has no more of something. Who has put the file
/// there may have leased it (fcntl(2)), which an open that does not wait finds busy.
pub(super) const fn is_of_name(error: Errno) -> bool {
    matches!(
        error,
        Errno::ACCESS
            | Errno::AGAIN
            | Errno::ISDIR
            | Errno::LOOP
            | Errno::MLINK
            | Errno::NODEV
            | Errno::NXIO
            | Errno::OPNOTSUPP
            | Errno::PERM
            | Errno::TXTBSY
    )
}

/// Takes from a file all permissions that a mode does not have, as far as its file system keeps modes.
fn narrow(file: &File, mode: u32) -> io::Result<()> {
    let now = mode_of(&fs::fstat(file)?);
    if now & !mode == 0 {
        return Ok(());
    }
    match fs::fchmod(file, Mode::from_raw_mode((now & mode) as RawMode)) {
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        set => Ok(set?),
    }
}

/// Whether it is a regular file with one name.
fn is_file(stat: &fs::Stat) -> bool {
    fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::RegularFile && stat.st_nlink == 1
}

/// Whether it is a regular file of this user's that has one name, and that nobody else may write.
pub(super) fn is_own(file: &File) -> bool {
    fs::fstat(file).is_ok_and(|stat| is_file(&stat) && is_ours(&stat) && stat.st_mode & 0o022 == 0)
}

fn is_ours(stat: &fs::Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw()
}

/// Opens and locks a file of this user's for writing, creating it if need be. What others have put there is removed.
pub(super) fn open_own(directory: &Directory, name: &[u8], mode: u32) -> io::Result<File> {
    open_if(directory, name, mode, is_own)
}

/// As [`open_own`], of any regular file with one name.
pub(super) fn open_sealed(directory: &Directory, name: &[u8], mode: u32) -> io::Result<File> {
    let is_regular = |file: &File| fs::fstat(file).is_ok_and(|stat| is_file(&stat));
    open_if(directory, name, mode, is_regular)
}

fn open_if(
    directory: &Directory,
    name: &[u8],
    mode: u32,
    is_good: impl Fn(&File) -> bool,
) -> io::Result<File> {
    let taken = || io::Error::new(io::ErrorKind::AlreadyExists, "belongs to somebody else");
    for _ in 0..MOST_ATTEMPTS {
        match create(directory, name, mode) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created,
        }
        match fs::openat(directory.fd()?, name, OPEN, Mode::empty()).map(File::from) {
            Ok(file) if is_good(&file) => {
                // Others may hold a lock of their own file for as long as they like.
                lock(&file).map_err(|error| if is_own(&file) { error } else { taken() })?;
                if is_at(&file, directory, name)? {
                    return Ok(file);
                }
            }
            Err(Errno::NOENT) => {}
            Err(error) if !is_of_name(error) => return Err(error.into()),
            Ok(_) | Err(_) => directory.remove(name).map_err(|_| taken())?,
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "is made and removed all the time"))
}

/// Opens and locks a regular file with one name, if there is one that nobody else keeps.
///
/// # Errors
/// `WouldBlock` when another run of this user has it; what opening it fails of.
pub(super) fn open_there(directory: &Directory, name: &[u8]) -> io::Result<Option<File>> {
    let file = match fs::openat(directory.fd()?, name, OPEN, Mode::empty()).map(File::from) {
        Ok(file) if is_file(&fs::fstat(&file)?) => file,
        Err(error) if error != Errno::NOENT && !is_of_name(error) => return Err(error.into()),
        Ok(_) | Err(_) => return Ok(None),
    };
    match lock(&file) {
        Err(error) if is_own(&file) => Err(error),
        Err(_) => Ok(None),
        Ok(()) => Ok(is_at(&file, directory, name)?.then_some(file)),
    }
}

/// Removes an open file if it still has a name.
pub(super) fn remove_open(directory: &Directory, name: &[u8], file: &File) -> io::Result<()> {
    if is_at(file, directory, name)? { directory.remove(name) } else { Ok(()) }
}

/// Removes what has a temporary name if it is the file that an earlier run has left, and no run is writing it.
pub(super) fn remove_known(directory: &Directory, name: &[u8], known: Mark) -> io::Result<()> {
    match look(directory, name, Some(known)) {
        Ok(Found::Known(_)) => directory.remove(name),
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns the permissions of a file, and the bits above them.
#[allow(clippy::unnecessary_cast, reason = "a mode has 16 bits on some systems")]
const fn mode_of(stat: &fs::Stat) -> u32 {
    stat.st_mode as u32 & 0o7777
}

/// Opens and locks the target itself for writing; never through a link.
///
/// # Errors
/// `NotFound`; `InvalidInput` where it is no regular file.
fn open(directory: &Directory, name: &[u8]) -> io::Result<File> {
    const WRITE_ONLY: OFlags = OPEN.difference(OFlags::RDWR).union(OFlags::WRONLY);
    loop {
        let open = |flags| fs::openat(directory.fd()?, name, flags, Mode::empty()).map_err(io::Error::from);
        let file = super::regular(match open(OPEN) {
            // Its mode may let it be written and not be read.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => open(WRITE_ONLY)?,
            file => file?,
        })?;
        lock(&file)?;
        // Another run may have replaced it between the two calls.
        if is_at(&file, directory, name)? {
            return Ok(file);
        }
    }
}

/// Whether a name still stands for an open file.
fn is_at(file: &File, directory: &Directory, name: &[u8]) -> io::Result<bool> {
    Ok(directory.stat(name)?.as_ref().map(number) == Some(number(&fs::fstat(file)?)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_appears_only_when_finished() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path()).unwrap();
        let part = Part::beside(&directory, b"a", 0o644, None, || None).unwrap();
        part.writer().write_all(b"content").unwrap();
        assert!(!place.path().join("a").exists());
        let other = Part::beside(&directory, b"a", 0o644, None, || None).unwrap();
        assert_ne!(other.path(), part.path(), "two runs do not write one file");
        part.finish().unwrap();
        assert_eq!(std::fs::read(place.path().join("a")).unwrap(), b"content");
    }

    #[test]
    fn a_part_that_was_replaced_does_not_get_the_name() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path()).unwrap();
        let part = Part::beside(&directory, b"a", 0o644, None, || None).unwrap();
        std::fs::rename(place.path().join(".a.nfsw-part"), place.path().join("b")).unwrap();
        std::fs::write(place.path().join(".a.nfsw-part"), b"other").unwrap();
        assert_eq!(part.finish().unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!place.path().join("a").exists());
    }

    #[test]
    fn a_name_that_something_has_is_not_given() {
        type Finish = fn(&mut Part) -> io::Result<Named>;
        for finish in [Part::finish_new as Finish, Part::finish_linked] {
            let place = tempfile::tempdir().unwrap();
            let directory = Directory::open(place.path()).unwrap();
            let mut part = Part::beside(&directory, b"a", 0o644, None, || None).unwrap();
            part.writer().write_all(b"new").unwrap();
            std::fs::write(place.path().join("a"), "another").unwrap();
            let named = finish(&mut part).unwrap();
            assert!(matches!(named, Named::Taken | Named::Unknown));
            assert_eq!(std::fs::read(place.path().join("a")).unwrap(), b"another");
            std::fs::remove_file(place.path().join("a")).unwrap();
            if named == Named::Taken {
                assert_eq!(finish(&mut part).unwrap(), Named::Yes);
                assert_eq!(std::fs::read(place.path().join("a")).unwrap(), b"new");
                assert!(!place.path().join(".a.nfsw-part").exists());
            }
        }
    }

    #[test]
    fn a_part_is_kept_unless_discarded() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path()).unwrap();
        drop(Part::beside(&directory, b"a", 0o644, None, || None).unwrap());
        assert!(place.path().join(".a.nfsw-part").exists());
        Part::beside(&directory, b"a", 0o644, None, || None).unwrap().discard();
        assert!(!place.path().join(".a.nfsw-part").exists());
    }

    #[test]
    fn a_planted_link_is_not_written_through() {
        let place = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/tmp/elsewhere", place.path().join(".a.nfsw-part")).unwrap();
        let directory = Directory::open(place.path()).unwrap();
        Part::beside(&directory, b"a", 0o644, None, || None).unwrap().finish().unwrap();
        assert!(std::fs::symlink_metadata(place.path().join("a")).unwrap().is_file());
        std::os::unix::fs::symlink("/tmp/elsewhere", place.path().join(".a.nfsw-part")).unwrap();
        assert!(Part::in_place(&directory, b".a.nfsw-part", 0o644, false).is_err());
    }

    #[test]
    fn what_another_user_is_writing_is_left_alone() {
        assert!(rustix::process::geteuid().is_root(), "this test is two users: run it as root, as CI does");
        for is_locked in [true, false] {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join(".file.nfsw-part");
            let theirs = File::create(&path).unwrap();
            std::os::unix::fs::chown(&path, Some(1234), Some(1234)).unwrap();
            if is_locked {
                lock(&theirs).unwrap();
            }
            let directory = Directory::open(place.path()).unwrap();
            let part = Part::beside(&directory, b"file", 0o644, None, || None).unwrap();
            assert_eq!(part.path() == path, !is_locked, "{:?}", part.path());
            assert_eq!(theirs.metadata().unwrap().nlink() == 1, is_locked, "{is_locked}");
        }
    }

    /// Who can read a file can lock it.
    #[test]
    fn a_lock_that_others_hold_does_not_stop_a_copy() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path()).unwrap();
        let usual = b".a.nfsw-part";
        let part = Part::beside(&directory, b"a", 0o644, None, || None).unwrap();
        let mark = part.mark().unwrap();
        drop(part);
        let theirs = File::open(place.path().join(".a.nfsw-part")).unwrap();
        lock(&theirs).unwrap();
        for known in [Some((mark, &usual[..])), None] {
            let part = Part::beside(&directory, b"a", 0o644, known, || None).unwrap();
            assert!(!part.is_known(), "what is locked is not resumed");
            part.writer().write_all(b"content").unwrap();
            part.finish().unwrap();
            assert_eq!(std::fs::read(place.path().join("a")).unwrap(), b"content");
        }
    }

    #[test]
    fn what_others_may_have_put_there_is_not_written_into() {
        use std::os::unix::fs::PermissionsExt;

        type Plant = fn(&std::path::Path);
        let plants: [(&str, Plant); 5] = [
            ("a file that others may write", |path| {
                std::fs::write(path, "planted").unwrap();
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).unwrap();
            }),
            ("a file with another name", |path| {
                std::fs::write(path, "planted").unwrap();
                std::fs::hard_link(path, path.with_file_name("other")).unwrap();
            }),
            ("a file of which nothing is known", |path| std::fs::write(path, "planted").unwrap()),
            ("a fifo", |path| {
                fs::mknodat(fs::CWD, path, fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
            }),
            ("a directory", |path| std::fs::create_dir(path).unwrap()),
        ];
        for (what, plant) in plants {
            let place = tempfile::tempdir().unwrap();
            let directory = Directory::open(place.path()).unwrap();
            let path = place.path().join(".a.nfsw-part");
            plant(&path);
            let planted = std::fs::metadata(&path).unwrap();
            // Its number is not given to another file while it is open.
            let _held = planted.is_file().then(|| File::open(&path).unwrap());
            // What is known is not what a planter has made.
            let known = Mark { number: planted.ino(), owner_and_mode: u64::MAX };
            let part =
                Part::beside(&directory, b"a", 0o644, Some((known, b".a.nfsw-part")), || None).unwrap();
            assert!(!part.is_known(), "{what}");
            part.writer().write_all(b"secret").unwrap();
            if planted.is_file() {
                let leftover = std::fs::metadata(&path).ok().filter(|it| it.ino() == planted.ino());
                assert!(leftover.is_none(), "{what}");
            }
            part.finish().unwrap();
            assert_eq!(std::fs::read(place.path().join("a")).unwrap(), b"secret", "{what}");
            if let Ok(other) = std::fs::read(place.path().join("other")) {
                assert_eq!(other, b"planted", "{what}");
            }
        }
    }

    #[test]
    fn what_an_earlier_run_has_left_is_known_again() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path()).unwrap();
        let part = Part::beside(&directory, b"a", 0o644, None, || None).unwrap();
        let mark = part.mark().unwrap();
        part.set_mode(0o444).unwrap();
        drop(part);
        assert!(
            Part::beside(&directory, b"a", 0o644, Some((mark, b".a.nfsw-part")), || None).unwrap().is_known()
        );
        assert!(!Part::beside(&directory, b"a", 0o644, None, || None).unwrap().is_known());
    }
}
