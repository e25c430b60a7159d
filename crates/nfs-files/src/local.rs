//! The local file system: directories that are written into, and nothing outside them.

mod acl;
mod holes;
mod marked;
#[cfg(linux)]
pub mod mounts;
mod names;
mod opened;
mod output;
mod own;
mod part;
mod source;

use std::{
    fs::File,
    io::{self, Read, Seek},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::FileExt},
    },
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use nix::unistd::{Group, User};
use rustix::{
    fs::{self, AtFlags, FileType as Kind, Mode, OFlags, RawMode, Stat, Timespec, Timestamps},
    io::Errno,
};

pub use acl::Acl;
pub use holes::{Sparse, Writer, holes};
pub use marked::Marked;
pub use names::Adjusted;
use opened::Opened;
pub use output::{descriptor, open_special};
pub use own::Own;
pub use part::{Mark, Named, Part, close_copy, removed};
pub use source::{SourceDirectory, SourcePath};

/// An open directory. Names are used in it as single components and links are never followed, so whatever a server
/// sends lands inside. A clone is the same open directory.
#[derive(Clone, Debug)]
pub struct Directory {
    opened: Arc<Opened>,
    path: PathBuf,
    /// What [`Directory::session`] returns, once it was asked for.
    session: OnceLock<[u8; 16]>,
    /// What [`Directory::most_mode`] returns, once it was asked for.
    most_mode: OnceLock<u32>,
}

/// Times of a file: last access, last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Last access.
    pub accessed: SystemTime,
    /// Last change of the contents.
    pub modified: SystemTime,
}

/// Whether nothing can be read from standard input: it is open for writing only, as behind `nohup`, or was closed when the program
/// started. The runtime then opens `/dev/null` in its place, for reading and writing.
pub fn is_closed_input() -> bool {
    let input = io::stdin();
    let access = fs::fcntl_getfl(&input).map(|flags| flags & OFlags::ACCMODE);
    let [null, device] = [fs::stat("/dev/null"), fs::fstat(&input)].map(|it| it.ok().map(|it| it.st_rdev));
    match access {
        Ok(OFlags::RDWR) => null.is_some() && null == device,
        Ok(access) => access == OFlags::WRONLY,
        Err(_) => true,
    }
}

const OPEN_DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Directory {
    fn of(fd: OwnedFd, path: PathBuf) -> Self {
        Self { opened: Opened::lasting(fd), path, session: OnceLock::new(), most_mode: OnceLock::new() }
    }

    fn fd(&self) -> io::Result<Arc<OwnedFd>> {
        self.opened.fd()
    }

    /// Opens a directory that the user named; links in its path are the user's.
    pub fn open(path: &Path) -> io::Result<Self> {
        let shown = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let fd = opened::open_at(fs::CWD, shown, OFlags::empty())?;
        Ok(Self::of(fd, path.to_owned()))
    }

    /// Creates a directory in this one, or enters it when it is there; says which.
    pub fn create(&self, name: &[u8], mode: u32) -> io::Result<(Self, bool)> {
        let created = match fs::mkdirat(self.fd()?, name, Mode::from_raw_mode(mode as RawMode)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        Ok((self.enter(name)?, created))
    }

    /// Creates a directory in this one and enters it; whether there was nothing of that name.
    fn create_or_else(&self, name: &[u8], mode: u32) -> io::Result<(Option<Self>, bool)> {
        match fs::mkdirat(self.fd()?, name, Mode::from_raw_mode(mode as RawMode)) {
            Ok(()) => Ok((Some(self.enter(name)?), true)),
            Err(Errno::EXIST) => Ok((None, false)),
            Err(error) => Err(error.into()),
        }
    }

    /// Enters a directory in this one.
    pub fn enter(&self, name: &[u8]) -> io::Result<Self> {
        let (opened, session, most_mode) = (self.opened.enter(name)?, OnceLock::new(), OnceLock::new());
        Ok(Self { opened, path: self.join(name), session, most_mode })
    }

    /// Returns what a name stands for; a link stands for itself.
    pub fn stat(&self, name: &[u8]) -> io::Result<Option<Stat>> {
        match fs::statat(self.fd()?, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a symbolic link, which may keep times and owner; a file or link of that name is replaced, if it may be. False if not.
    pub fn symlink(
        &self,
        name: &[u8],
        target: &[u8],
        kept: Option<(Times, (u32, u32))>,
        may_replace: impl Fn(&Stat) -> bool,
    ) -> io::Result<bool> {
        let fd = self.fd()?;
        if kept.is_none() {
            match fs::symlinkat(target, &fd, name) {
                Err(Errno::EXIST) => {}
                made => return Ok(made.map(|()| true)?),
            }
        }
        let mut temporary = crate::name::temporary(name);
        let mut made = fs::symlinkat(target, &fd, &temporary[..]);
        if let Err(Errno::EXIST) = made {
            if self.remove(&temporary).is_err() {
                temporary = crate::name::fresh(name);
            }
            made = fs::symlinkat(target, &fd, &temporary[..]);
        }
        made?;
        if let Some((times, owner)) = kept {
            // As on a server: a link without them is still the link.
            let _ = self.keep_of_link(&temporary, times, owner);
        }
        self.rename_if(&temporary, name, may_replace)
    }

    /// Sets owner and times of a link, and of nothing else that has its name now.
    #[cfg(linux)]
    fn keep_of_link(&self, name: &[u8], times: Times, (uid, gid): (u32, u32)) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = self.fd()?;
        let link = fs::openat(&fd, name, flags, Mode::empty())?;
        if Kind::from_raw_mode(fs::fstat(&link)?.st_mode) != Kind::Symlink {
            return Ok(());
        }
        if let Some((uid, gid)) = given(uid, gid) {
            let _ = fs::chownat(&link, "", uid, gid, AtFlags::EMPTY_PATH);
        }
        let times = times.to_timestamps();
        match fs::utimensat(&link, "", &times, AtFlags::EMPTY_PATH) {
            // Linux before 5.8.
            Err(Errno::INVAL) => Ok(fs::utimensat(&fd, name, &times, AtFlags::SYMLINK_NOFOLLOW)?),
            set => Ok(set?),
        }
    }

    /// Sets the times of a link: an owner could be given to whatever has its name now.
    #[cfg(not(linux))]
    fn keep_of_link(&self, name: &[u8], times: Times, _: (u32, u32)) -> io::Result<()> {
        Ok(fs::utimensat(self.fd()?, name, &times.to_timestamps(), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Gives what has a temporary name another, if what has that may be replaced; false if not. Then, and if it fails, it is removed.
    fn rename_if(
        &self,
        temporary: &[u8],
        name: &[u8],
        may_replace: impl Fn(&Stat) -> bool,
    ) -> io::Result<bool> {
        let renamed = self.rename_while(temporary, name, may_replace);
        if !matches!(renamed, Ok(true)) {
            let _ = self.remove(temporary);
        }
        renamed
    }

    /// As [`Directory::rename_if`]; what has the temporary name stays if that fails.
    fn rename_while(
        &self,
        temporary: &[u8],
        name: &[u8],
        may_replace: impl Fn(&Stat) -> bool,
    ) -> io::Result<bool> {
        let rename = || self.fd().and_then(|fd| Ok(fs::renameat(&fd, temporary, &fd, name).map(|()| true)?));
        for _ in 0..part::MOST_ATTEMPTS {
            match self.stat(name)? {
                Some(there) if may_replace(&there) => return rename(),
                Some(_) => return Ok(false),
                None => match self.rename_if_free(temporary, name)? {
                    Named::Yes => return Ok(true),
                    Named::Unknown => return rename(),
                    Named::Taken => {}
                },
            }
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "is made and removed all the time"))
    }

    /// Removes a file, if it is there.
    pub fn remove(&self, name: &[u8]) -> io::Result<()> {
        match fs::unlinkat(self.fd()?, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Sets the permissions of the directory itself.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        set_mode(&*self.fd()?, Mode::from_raw_mode(mode as RawMode))
    }

    /// Takes from the directory the access lists that the one above it has given it: its own, and that of what is made in it.
    pub fn remove_lists(&self) {
        if let Ok(fd) = self.fd() {
            let _ = (Acl::remove(&*fd), Acl::remove_default(&*fd));
        }
    }

    /// Takes from the directory its own access list.
    pub fn remove_list(&self) {
        if let Ok(fd) = self.fd() {
            let _ = Acl::remove(&*fd);
        }
    }

    /// Sets the times of the directory itself.
    pub fn set_times(&self, times: Times) -> io::Result<()> {
        set_times(&*self.fd()?, times)
    }

    /// Gives the directory itself to somebody, if we may.
    pub fn set_owner(&self, uid: u32, gid: u32) {
        if let Ok(fd) = self.fd() {
            give(fd, uid, gid);
        }
    }

    /// Opens a file of this user's in this directory for this run alone, creating it if need be: regular, with one name, nobody else's
    /// to write, and never through a link. What others have put there is removed.
    ///
    /// # Errors
    /// `WouldBlock` when another run has it open so; `AlreadyExists` when what others have put there cannot be removed.
    pub fn lock(&self, name: &[u8], mode: u32) -> io::Result<File> {
        part::open_own(self, name, mode)
    }

    /// As [`Directory::lock`], for what shows by its contents that this user has written it: its owner and mode are no matter, for some
    /// file systems have one for all files.
    ///
    /// # Errors
    /// As those of [`Directory::lock`]. `AlreadyExists` also where somebody else has locked it.
    pub fn lock_sealed(&self, name: &[u8], mode: u32) -> io::Result<File> {
        part::open_sealed(self, name, mode)
    }

    /// As [`Directory::lock_sealed`], of what is there; `None` if there is nothing, or only something of others.
    ///
    /// # Errors
    /// `WouldBlock` when another run has it open so; what opening it fails of.
    pub fn lock_there(&self, name: &[u8]) -> io::Result<Option<File>> {
        part::open_there(self, name)
    }

    /// Removes what has a temporary name if that is what an earlier run has left there.
    ///
    /// # Errors
    /// `WouldBlock` when another run is writing it; what removing it fails of.
    pub fn remove_known(&self, name: &[u8], known: Mark) -> io::Result<()> {
        part::remove_known(self, name, known)
    }

    /// Removes an open file if a name in this directory still stands for it.
    ///
    /// # Errors
    /// What removing it fails of.
    pub fn remove_open(&self, name: &[u8], file: &File) -> io::Result<()> {
        part::remove_open(self, name, file)
    }

    /// Opens a file of this user's in this directory for reading; `None` if there is none, or something that others may have made.
    pub fn read_own(&self, name: &[u8]) -> io::Result<Option<File>> {
        self.read_if(name, part::is_own)
    }

    fn read_if(&self, name: &[u8], is_good: impl Fn(&File) -> bool) -> io::Result<Option<File>> {
        match self.read(name) {
            Ok(file) => Ok(Some(file).filter(is_good)),
            // What this user may not open is not this user's.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput)
                    || Errno::from_io_error(&error).is_some_and(part::is_of_name) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Gives a file of ours in this directory these contents, in the place of older ones: whatever else has the name is not followed.
    pub fn replace(&self, name: &[u8], bytes: &[u8]) -> io::Result<()> {
        let new = crate::name::fresh(name);
        let file = part::create(self, &new, 0o600)?;
        let written = file.write_all_at(bytes, 0);
        let renamed = written.and_then(|()| Ok(fs::renameat(self.fd()?, &new[..], self.fd()?, name)?));
        renamed.inspect_err(|_| drop(self.remove(&new)))
    }

    /// Opens a regular file in this directory for reading; anything else is refused.
    pub fn read(&self, name: &[u8]) -> io::Result<File> {
        open_regular(self.fd()?, name, OFlags::NOFOLLOW)
    }

    /// Returns an open file once more, from its beginning, if a name in this directory still stands for it.
    ///
    /// # Errors
    /// `NotFound` if the name does not, `PermissionDenied` if it is open for writing alone.
    pub fn again(&self, name: &[u8], file: &File) -> io::Result<File> {
        if self.stat(name)?.as_ref().map(number) != Some(number(&fs::fstat(file)?)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if fs::fcntl_getfl(file)? & OFlags::ACCMODE == OFlags::WRONLY {
            let text = "its mode does not let this user read it, so that it cannot be compared";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let mut file = file.try_clone()?;
        file.rewind()?;
        Ok(file)
    }

    /// Returns which time a file here has that is given this one: a new file is made for it, and removed.
    pub fn held_time(&self, modified: SystemTime) -> io::Result<SystemTime> {
        let name = crate::name::fresh(b"time");
        let file = part::create(self, &name, 0o600)?;
        let set = fs::futimens(&file, &Times { accessed: modified, modified }.to_timestamps());
        let held = file.metadata().and_then(|metadata| metadata.modified());
        self.remove(&name)?;
        set?;
        held
    }

    /// Returns in what steps files here keep their times, where that cannot be seen in the times themselves.
    #[cfg(linux)]
    pub fn time_step(&self) -> Duration {
        /// The number of FAT in Linux (statfs(2)).
        const MSDOS_SUPER_MAGIC: u64 = 0x4d44;
        let found = self.fd().and_then(|fd| Ok(fs::fstatfs(fd)?));
        let is_fat = found.is_ok_and(|found| found.f_type as u64 == MSDOS_SUPER_MAGIC);
        if is_fat { Duration::from_secs(2) } else { Duration::ZERO }
    }

    /// Cannot tell in what steps files here keep their times.
    #[cfg(not(linux))]
    pub const fn time_step(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns the access list of what has a name in it, if that has one.
    pub fn list(&self, name: &[u8]) -> Option<Acl> {
        Acl::at(&*self.fd().ok()?, name)
    }

    /// Returns the permissions that a new file in it may have: those of the access list that new files get, if it has one.
    pub fn most_mode(&self) -> u32 {
        let list = || Acl::default_of(&*self.fd().ok()?);
        *self.most_mode.get_or_init(|| list().map_or(0o777, |list| list.mode()))
    }

    /// Returns the path of a name, for messages.
    pub fn join(&self, name: &[u8]) -> PathBuf {
        self.path.join(std::ffi::OsStr::from_bytes(name))
    }

    /// Returns what the directory itself is now.
    pub fn own_stat(&self) -> io::Result<Stat> {
        Ok(fs::fstat(self.fd()?)?)
    }

    /// Returns the numbers of the file system and of the directory in it; zeros where the system does not tell.
    pub fn number(&self) -> (u64, u64) {
        self.opened.number
    }

    /// Whether two directories are on one file system, mounted in one place, as far as the system tells: what is bound to a directory
    /// ("mount --bind") may be of the same file system.
    pub fn is_on_mount_of(&self, other: &Self) -> bool {
        let [Ok(mount), Ok(its)] = [self, other].map(|it| it.fd().map(|fd| mount_number(&fd))) else {
            return false;
        };
        self.number().0 == other.number().0 && (mount == its || [mount, its].contains(&0))
    }

    /// Whether the last name of another directory's path stands for that in this one, as far as that can be told.
    pub fn leads_to(&self, other: &Self) -> bool {
        let Some(name) = other.path.file_name() else { return true };
        match self.stat(name.as_bytes()) {
            Ok(found) => found.is_some_and(|found| number(&found) == other.number()),
            Err(_) => true,
        }
    }

    /// Whether its path, which may have links in it, still leads to it, as far as that can be told.
    pub fn is_at_its_path(&self) -> bool {
        let shown = if self.path.as_os_str().is_empty() { Path::new(".") } else { &self.path };
        match fs::stat(shown) {
            Ok(found) => number(&found) == self.number(),
            Err(error) => error != Errno::NOENT,
        }
    }

    /// Returns what changes when the machine is restarted or the file system of the directory is mounted again: until then what was
    /// written there is there, on the disk or in memory. Zeros where the system does not tell.
    pub fn session(&self) -> [u8; 16] {
        let session = || {
            let (boot, (device, _)) = (boot_id(), self.number());
            if boot == [0; 16] {
                return boot;
            }
            let numbers = [device.to_le_bytes(), self.fd().map_or(0, |fd| mount_number(&fd)).to_le_bytes()];
            let digest = blake3::hash(&[&boot[..], numbers.as_flattened()].concat());
            digest.as_bytes().first_chunk().copied().unwrap_or_default()
        };
        *self.session.get_or_init(session)
    }

    /// Returns the path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Where runs keep what later runs need to know.
#[derive(Clone, Debug)]
pub struct StateHome(Option<Own>);

impl StateHome {
    /// The user's: `$XDG_STATE_HOME/nfsw`, or `~/.local/state/nfsw`.
    pub fn of_user() -> Self {
        Self(Own::directory("XDG_STATE_HOME", ".local/state", ""))
    }

    /// The one at a path.
    pub fn at(path: &Path) -> Self {
        Self(Some(Own::within(path.to_owned(), "")))
    }

    /// Opens the directory, creating it if need be.
    ///
    /// # Errors
    /// `NotFound` when neither variable says where; or what creating it fails of.
    pub fn open(&self) -> io::Result<Directory> {
        let none = || io::Error::new(io::ErrorKind::NotFound, "neither XDG_STATE_HOME nor HOME is set");
        self.0.as_ref().ok_or_else(none)?.open()
    }

    /// Returns the key of this user, which is made when there is none.
    ///
    /// # Errors
    /// As [`StateHome::open`], and what reading and writing it fails of.
    pub fn key(&self) -> io::Result<Key> {
        const NAME: &[u8] = b"key";
        let directory = self.open()?;
        let fd = directory.fd()?;
        for _ in 0..KEY_ATTEMPTS {
            if let Some(file) = directory.read_own(NAME)? {
                let mut key = [0; 32];
                file.read_exact_at(&mut key, 0)?;
                return Ok(Key(key));
            }
            let mut key = [0; 32];
            File::open("/dev/urandom")?.read_exact(&mut key)?;
            // Whole before it has its name: another run may be looking for it.
            let temporary = crate::name::fresh(NAME);
            part::create(&directory, &temporary, 0o600)?.write_all_at(&key, 0)?;
            let mut linked = fs::linkat(&fd, &temporary[..], &fd, NAME, AtFlags::empty());
            if let Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) = linked {
                // A file system without hard links.
                linked = fs::renameat(&fd, &temporary[..], &fd, NAME);
            }
            directory.remove(&temporary)?;
            match linked {
                Ok(()) => return Ok(Key(key)),
                Err(Errno::EXIST) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "key: belongs to somebody else"))
    }
}

/// How often the key is looked for, while another run makes one.
const KEY_ATTEMPTS: usize = 20;

/// What only this user has: what is sealed with it was sealed by this user.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(pub [u8; 32]);

impl std::fmt::Debug for Key {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Key")
    }
}

/// Returns the numbers of the file system and of the file in it.
#[allow(clippy::unnecessary_cast, reason = "the types of the fields differ from system to system")]
const fn number(stat: &Stat) -> (u64, u64) {
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// Whether something belongs to this user or to the system, and nobody else may write it.
#[allow(clippy::unnecessary_cast, reason = "a mode has 16 bits on some systems")]
fn is_private(stat: &Stat) -> bool {
    let mode = stat.st_mode as u32;
    is_owned(stat) && mode & 0o002 == 0 && (mode & 0o020 == 0 || is_user_alone(stat.st_gid))
}

/// Whether a group is this user alone, as where each user has one of the same name or number.
fn is_user_alone(group: u32) -> bool {
    let user = rustix::process::geteuid().as_raw();
    if group != rustix::process::getegid().as_raw() {
        return false;
    }
    let name = User::from_uid(user.into()).ok().flatten().map(|user| user.name);
    match Group::from_gid(group.into()) {
        Ok(Some(known)) => {
            let is_own = group == user || name.as_ref() == Some(&known.name);
            is_own && known.mem.iter().all(|member| Some(member) == name.as_ref())
        }
        _ => group == user,
    }
}

fn is_owned(stat: &Stat) -> bool {
    stat.st_uid == 0 || stat.st_uid == rustix::process::geteuid().as_raw()
}

/// Makes a directory for this user alone, and those above it, unless it is there.
///
/// # Errors
/// `PermissionDenied` where it would be made in a directory of somebody else, as where root has the home of another user.
pub fn make_private(path: &Path) -> io::Result<()> {
    let there = path.ancestors().find_map(|above| Some((above, fs::stat(above).ok()?)));
    if let Some((above, stat)) = there
        && above != path
        && !is_private(&stat)
        && !is_sticky(&stat)
    {
        return Err(not_private());
    }
    std::os::unix::fs::DirBuilderExt::mode(std::fs::DirBuilder::new().recursive(true), 0o700).create(path)
}

/// Checks that a directory belongs to this user or to the system, that nobody else may change what is in it, and that nobody else may
/// put another one in its place.
///
/// # Errors
/// `PermissionDenied` where others may; what looking at it fails of.
pub fn check_private(path: &Path) -> io::Result<()> {
    let above = path.parent().map(fs::stat).transpose()?;
    let is_kept = above.is_none_or(|above| is_private(&above) || is_sticky(&above));
    if is_private(&fs::stat(path)?) && is_kept { Ok(()) } else { Err(not_private()) }
}

/// Whether all may make files in a directory of this user or of the system, and nobody may remove those of others: `/tmp`.
#[allow(clippy::unnecessary_cast, reason = "a mode has 16 bits on some systems")]
fn is_sticky(stat: &Stat) -> bool {
    is_owned(stat) && stat.st_mode as u32 & 0o1000 != 0
}

fn not_private() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "belongs to somebody else, or others may write it")
}

/// Reads a small file that belongs to this user: of so many bytes at most, regular, and in a directory that nobody else may write.
///
/// # Errors
/// `PermissionDenied` where others could have written it, `InvalidInput` where it is no file, `FileTooLarge`; what opening it fails of.
pub fn read_private(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(fs::CWD, path.as_os_str().as_bytes(), OFlags::empty())?;
    let directory = path.parent().map(fs::stat).transpose()?;
    if !is_private(&fs::fstat(&file)?) || directory.is_some_and(|it| !is_private(&it)) {
        return Err(not_private());
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "is too large"));
    }
    Ok(bytes)
}

/// Returns our directory below the base that `variable` names, or else `default` below the user's home (XDG Base
/// Directory Specification 0.8).
pub fn base_directory(variable: &str, default: &str) -> Option<PathBuf> {
    let (base, below) = user_base(variable, default)?;
    Some(base.join(below).join("nfsw"))
}

/// Returns the directory that `variable` names; or else the user's home, and `default`, which is below it.
fn user_base<'a>(variable: &str, default: &'a str) -> Option<(PathBuf, &'a str)> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(variable).map(|path| (path, "")).or_else(|| Some((absolute("HOME")?, default)))
}

/// Returns the number of the mount that an open directory is on. Before Linux 6.8 a later mount may get the same, before 5.8 all have 0.
#[cfg(linux)]
fn mount_number(directory: &OwnedFd) -> u64 {
    /// `STATX_MNT_ID_UNIQUE` (statx(2)): a number that no later mount gets.
    const UNIQUE: fs::StatxFlags = fs::StatxFlags::from_bits_retain(0x4000);
    let asked = fs::StatxFlags::MNT_ID | UNIQUE;
    let found = fs::statx(directory, "", AtFlags::EMPTY_PATH, asked);
    found.ok().filter(|it| it.stx_mask & asked.bits() != 0).map_or(0, |it| it.stx_mnt_id)
}

/// Cannot tell the number of a mount.
#[cfg(not(linux))]
const fn mount_number(_: &OwnedFd) -> u64 {
    0
}

/// Returns what changes when this machine is restarted; zeros where the system does not tell.
#[cfg(linux)]
fn boot_id() -> [u8; 16] {
    let mut id = [0; 16];
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (pair[0] * 16 + pair[1]) as u8;
    }
    id
}

/// Returns what changes when this machine is restarted; zeros where the system does not tell.
#[cfg(not(linux))]
fn boot_id() -> [u8; 16] {
    static ID: OnceLock<[u8; 16]> = OnceLock::new();
    *ID.get_or_init(|| {
        let (program, name) = if cfg!(target_vendor = "apple") {
            ("/usr/sbin/sysctl", "kern.bootsessionuuid")
        } else if cfg!(target_os = "linux") {
            ("/sbin/sysctl", "kernel.random.boot_id")
        } else {
            ("/sbin/sysctl", "kern.boottime")
        };
        let output = std::process::Command::new(program).args(["-n", name]).output();
        let text = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
        let digest = text.filter(|text| !text.is_empty()).map(|text| blake3::hash(&text));
        digest.and_then(|digest| digest.as_bytes().first_chunk().copied()).unwrap_or_default()
    })
}

impl Times {
    fn to_timestamps(self) -> Timestamps {
        Timestamps { last_access: to_timespec(self.accessed), last_modification: to_timespec(self.modified) }
    }
}

/// Sets the permissions of what is open, also as a mere place (`O_PATH`).
fn set_mode(fd: &OwnedFd, mode: Mode) -> io::Result<()> {
    match fs::fchmod(fd, mode) {
        Err(Errno::BADF) => Ok(fs::chmod(path_of(fd), mode)?),
        set => Ok(set?),
    }
}

/// Sets the times of what is open, also as a mere place (`O_PATH`).
fn set_times(fd: &OwnedFd, times: Times) -> io::Result<()> {
    let times = times.to_timestamps();
    match fs::futimens(fd, &times) {
        Err(Errno::BADF) => Ok(fs::utimensat(fs::CWD, path_of(fd), &times, AtFlags::empty())?),
        set => Ok(set?),
    }
}

/// Returns a path that leads to exactly what is open.
fn path_of(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Gives an open file to somebody. Only root may, and not everywhere; others may give it to a group that they are in.
pub fn give(file: impl std::os::fd::AsFd, uid: u32, gid: u32) {
    if let Some((uid, gid)) = given(uid, gid) {
        let _ = fs::fchown(file, uid, gid);
    }
}

/// Whether what is `from` an owner (user and group) could be given `to` another: root may give all, others what is theirs to their groups.
pub fn may_give(from: (u32, u32), to: (u32, u32)) -> bool {
    use rustix::process::{getegid, geteuid, getgroups};

    let [user, group] = [(from.0, to.0), (from.1, to.1)].map(|(from, to)| to != u32::MAX && from != to);
    let is_member = || {
        let group = fs::Gid::from_raw(to.1);
        getegid() == group || getgroups().is_ok_and(|groups| groups.contains(&group))
    };
    match geteuid() {
        user_id if user_id.is_root() => user || group,
        user_id => group && from.0 == user_id.as_raw() && is_member(),
    }
}

/// Returns to whom something is given, if we may. The highest number is nobody's: it asks the system to change nothing.
fn given(uid: u32, gid: u32) -> Option<(Option<fs::Uid>, Option<fs::Gid>)> {
    let is_root = rustix::process::geteuid().is_root();
    let uid = (is_root && uid != u32::MAX).then(|| fs::Uid::from_raw(uid));
    let gid = (gid != u32::MAX).then(|| fs::Gid::from_raw(gid));
    (uid.is_some() || gid.is_some()).then_some((uid, gid))
}

/// Returns the umask of the process.
#[allow(clippy::unnecessary_cast, reason = "a mode has 16 bits on some systems")]
pub fn umask() -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    *UMASK.get_or_init(|| {
        // The system call that reads it also sets it, for all threads.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let told = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        if let Some(mask) = told.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()) {
            return mask;
        }
        let mask = rustix::process::umask(Mode::empty());
        rustix::process::umask(mask);
        mask.as_raw_mode() as u32
    })
}

/// Opens a regular file for reading; anything else is refused, and not waited for.
pub fn open_regular(directory: impl std::os::fd::AsFd, name: &[u8], links: OFlags) -> io::Result<File> {
    let flags = links | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    regular(fs::openat(directory, name, flags, Mode::empty())?)
}

/// Refuses what is no regular file.
fn regular(fd: OwnedFd) -> io::Result<File> {
    let stat = fs::fstat(&fd)?;
    if Kind::from_raw_mode(stat.st_mode) != Kind::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file"));
    }
    Ok(File::from(fd))
}

fn to_timespec(time: SystemTime) -> Timespec {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Timespec { tv_sec: since.as_secs() as i64, tv_nsec: since.subsec_nanos().into() },
        Err(error) => {
            let before = error.duration();
            let whole = before.as_secs() as i64 + i64::from(before.subsec_nanos() > 0);
            let rest = Duration::from_secs(whole as u64) - before;
            Timespec { tv_sec: -whole, tv_nsec: rest.subsec_nanos().into() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_never_entered_or_read() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("file"), b"x").unwrap();
        let inside = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), inside.path().join("dir")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("file"), inside.path().join("file")).unwrap();
        let directory = Directory::open(inside.path()).unwrap();
        assert!(directory.create(b"dir", 0o755).is_err());
        assert!(directory.enter(b"dir").is_err());
        assert!(directory.read(b"file").is_err());
    }

    #[test]
    fn a_link_replaces_a_file_but_not_a_directory() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("file"), b"x").unwrap();
        std::fs::create_dir(place.path().join("dir")).unwrap();
        let directory = Directory::open(place.path()).unwrap();
        assert!(!directory.symlink(b"file", b"target", None, |_| false).unwrap());
        assert!(directory.symlink(b"file", b"target", None, |_| true).unwrap());
        assert_eq!(std::fs::read_link(place.path().join("file")).unwrap(), Path::new("target"));
        assert!(directory.symlink(b"dir", b"target", None, |_| true).is_err());
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_link_has_its_times_and_its_owner_before_it_has_its_name() {
        for is_there in [false, true] {
            let place = tempfile::tempdir().unwrap();
            if is_there {
                std::fs::write(place.path().join("link"), "old").unwrap();
            }
            let directory = Directory::open(place.path()).unwrap();
            let modified = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
            let owner =
                if rustix::process::geteuid().is_root() { (1234, 4321) } else { (u32::MAX, u32::MAX) };
            let is_kept = |stat: &Stat| {
                let found = [stat.st_uid, stat.st_gid];
                stat.st_mtime == 1_000_000_000 && (owner.0 == u32::MAX || found == [owner.0, owner.1])
            };
            let may_replace = |_: &Stat| {
                let entries = directory.entries().unwrap();
                let is_link = |stat: &Stat| Kind::from_raw_mode(stat.st_mode) == Kind::Symlink;
                assert!(entries.iter().any(|(_, stat)| is_link(stat) && is_kept(stat)));
                true
            };
            let kept = Some((Times { accessed: modified, modified }, owner));
            assert!(directory.symlink(b"link", b"target", kept, may_replace).unwrap());
            assert!(is_kept(&directory.stat(b"link").unwrap().unwrap()));
            assert_eq!(directory.entries().unwrap().len(), 1);
        }
    }

    #[test]
    fn times_before_1970_survive() {
        let time = UNIX_EPOCH - Duration::from_millis(1500);
        assert_eq!((to_timespec(time).tv_sec, to_timespec(time).tv_nsec), (-2, 500_000_000));
    }
}
