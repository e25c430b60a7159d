//! Directories that file systems are mounted on.

use std::{
    fs, io,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc,
    thread,
    time::Duration,
};

use rustix::{io::Errno, mount::UnmountFlags};

use nfs_files::{
    Error, ErrorKind, Result,
    error::{io_text, local, show},
    local::mounts,
};

/// What the sources of our mounts begin with in /proc/self/mountinfo: their type is that of every FUSE mount.
pub(crate) const SOURCE: &str = "nfsw#";

/// A directory that something may be mounted on.
#[derive(Clone, Debug)]
pub struct MountPoint {
    /// Its absolute path, without links.
    pub path: PathBuf,
    /// There was a mount whose server is gone; it has been removed.
    pub was_dead: bool,
}

impl MountPoint {
    /// Checks that a directory can be mounted on; the mount of a program that was killed is removed.
    ///
    /// # Errors
    /// What is wrong with it, or with FUSE on this machine.
    pub fn prepare(path: &Path) -> Result<Self> {
        match fs::metadata("/dev/fuse") {
            Ok(device) if device.file_type().is_char_device() => {}
            Ok(_) | Err(_) => {
                let text = "/dev/fuse is missing: FUSE is not there (modprobe fuse; in a container: --device /dev/fuse)";
                return Err(Error::new(ErrorKind::LocalIo, text));
            }
        }
        bounded(path, prepare)
    }
}

/// Checks that something can be mounted on a directory, and returns its absolute path, without links.
///
/// # Errors
/// What is wrong with it.
pub fn directory(path: &Path) -> Result<PathBuf> {
    bounded(path, |path| checked(absolute(&path)?))
}

fn prepare(path: PathBuf) -> Result<MountPoint> {
    let path = absolute(&path)?;
    let mut was_dead = false;
    // What is mounted already may be stopped, and whoever touches it then waits for ever.
    while let Some(mount) = mount_at(&path)? {
        if is_dead(&path) {
            detach(&path)?;
            was_dead = true;
        } else if mount.is_ours {
            let text = format!("{0} is mounted already (nfsw umount {0})", show(&path));
            return Err(Error::new(ErrorKind::LocalIo, text));
        } else {
            break;
        }
    }
    Ok(MountPoint { path: checked(path)?, was_dead })
}

/// Whether the program that served a mount is gone. The kernel knows the attributes of its root for a while then, but not its space.
fn is_dead(path: &Path) -> bool {
    /// How long one that lives may take to answer; one that does not is known at once.
    const ALIVE: Duration = Duration::from_secs(1);
    let path = path.to_owned();
    within(ALIVE, move || rustix::fs::statvfs(path).err()) == Some(Some(Errno::NOTCONN))
}

fn checked(path: PathBuf) -> Result<PathBuf> {
    let metadata = fs::metadata(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let shown = show(&path);
            Error::new(ErrorKind::LocalIo, format!("{shown} does not exist; create it first: mkdir {shown}"))
        }
        _ => local(&path, &error),
    })?;
    if !metadata.is_dir() {
        return Err(Error::new(ErrorKind::LocalIo, format!("{} is not a directory", show(&path))));
    }
    Ok(path)
}

/// Looks at a path, which may be on a file system that does not respond.
fn bounded<T: Send + 'static>(
    path: &Path,
    look: impl FnOnce(PathBuf) -> Result<T> + Send + 'static,
) -> Result<T> {
    const LONGEST: Duration = Duration::from_secs(5);
    let owned = path.to_owned();
    within(LONGEST, || look(owned)).unwrap_or_else(|| {
        let text = format!("{}: its file system does not respond", show(path));
        Err(Error::new(ErrorKind::LocalIo, text))
    })
}

/// Runs something that may hang on a thread of its own; `None` if it takes longer.
fn within<T: Send + 'static>(longest: Duration, run: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(run()));
    receiver.recv_timeout(longest).ok()
}

/// What was mounted by this program. It is taken out of the file tree when this is dropped, also while programs use it: these get errors
/// once this program has ended.
#[derive(Debug)]
pub(crate) struct Attached {
    path: PathBuf,
    number: Option<Vec<u8>>,
}

impl Attached {
    /// Takes charge of what was just mounted.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), number: number(path) }
    }

    /// Whether it is still in the file tree. While programs use it after `nfsw umount`, something else may be mounted in its place.
    pub(crate) fn is_there(&self) -> bool {
        self.number.is_some() && number(&self.path) == self.number
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if self.is_there()
            && let Err(error) = unmount(&self.path)
        {
            tracing::debug!(%error, "cannot unmount");
        }
    }
}

/// Unmounts what `nfsw mount` has mounted on a directory. Returns whether something still uses it: then it goes when that ends.
///
/// # Errors
/// If there is no such mount, or the system refuses.
pub fn unmount(path: &Path) -> Result<bool> {
    let path = absolute(path)?;
    let Some(mount) = mount_at(&path)?.filter(|mount| mount.is_ours || mount.served_port.is_some()) else {
        let text = format!("{} is no mount of nfsw", show(&path));
        return Err(Error::new(ErrorKind::LocalIo, text));
    };
    match rustix::mount::unmount(&path, UnmountFlags::empty()) {
        Ok(()) => Ok(false),
        Err(Errno::BUSY) => detach(&path).map(|()| true),
        Err(Errno::PERM) if mount.is_ours => with_helper(&path).map(|()| false),
        Err(Errno::PERM) => {
            let shown = show(&path);
            let text = format!("cannot unmount {shown}: only the superuser may (sudo umount {shown})");
            Err(Error::new(ErrorKind::LocalIo, text))
        }
        Err(error) => Err(local(&path, &error.into())),
    }
}

/// Unmounts what nobody uses; whether that was so.
pub fn unmount_unused(path: &Path) -> bool {
    match rustix::mount::unmount(path, UnmountFlags::empty()) {
        Ok(()) => true,
        Err(Errno::PERM) => {
            let output = Command::new("fusermount3").args(["-u", "--"]).arg(path).output();
            output.is_ok_and(|output| output.status.success())
        }
        Err(_) => false,
    }
}

/// Removes a mount from the file tree; whoever uses it keeps it.
fn detach(path: &Path) -> Result<()> {
    match rustix::mount::unmount(path, UnmountFlags::DETACH) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => with_helper(path),
        Err(error) => Err(local(path, &error.into())),
    }
}

/// Unmounts as an ordinary user, who needs FUSE's helper for it.
fn with_helper(path: &Path) -> Result<()> {
    let output = Command::new("fusermount3").args(["-u", "-z", "--"]).arg(path).output();
    let failed =
        |text: String| Error::new(ErrorKind::LocalIo, format!("cannot unmount {}: {text}", show(path)));
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        Err(error) => Err(failed(format!("fusermount3: {} (package fuse3)", io_text(&error)))),
    }
}

/// Returns the port of the server on this machine that is mounted on a directory by NFS.
pub fn served_port(path: &Path) -> Option<u16> {
    let path = absolute(path).ok()?;
    mount_at(&path).ok()??.served_port
}

/// Returns what tells the mount on a directory from every other, its device number, and `None` if there is no mount.
fn number(path: &Path) -> Option<Vec<u8>> {
    mount_at(path).ok()?.map(|mount| mount.device)
}

/// A line of /proc/self/mountinfo.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    path: PathBuf,
    device: Vec<u8>,
    is_ours: bool,
    /// Port of the server on this machine, where it is mounted from one by NFS.
    served_port: Option<u16>,
}

/// Returns the mount on a directory that lies above all others there.
fn mount_at(path: &Path) -> Result<Option<Mount>> {
    Ok(mounts()?.into_iter().rfind(|mount| mount.path == path))
}

fn mounts() -> Result<Vec<Mount>> {
    let path = Path::new(mounts::TABLE);
    let text = fs::read(path).map_err(|error| local(path, &error))?;
    Ok(text.split(|&byte| byte == b'\n').filter_map(parse).collect())
}

/// Parses a line of the table of mounts.
fn parse(line: &[u8]) -> Option<Mount> {
    let mounts::Line { path, device, kind, source, options } = mounts::Line::parse(line)?;
    let is_here = [&b"127.0.0.1:/"[..], b"[::1]:/"].contains(&&source[..]);
    let port = || options.split(|&byte| byte == b',').find_map(|option| option.strip_prefix(b"port="));
    let served_port = match kind == b"nfs" && is_here {
        true => port().and_then(|port| std::str::from_utf8(port).ok()?.parse().ok()),
        false => None,
    };
    let device = device.to_vec();
    Some(Mount { path, device, is_ours: source.starts_with(SOURCE.as_bytes()), served_port })
}

/// Makes a path absolute, and follows links, without touching what is mounted there, which may be dead or stopped.
fn absolute(path: &Path) -> Result<PathBuf> {
    /// Links that lead on (Linux' limit).
    const MAX_LINKS: usize = 40;
    let mut path = std::path::absolute(path).map_err(|error| local(path, &error))?;
    let real = |path: &Path| fs::canonicalize(path).map_err(|error| local(path, &error));
    for _ in 0..MAX_LINKS {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return real(&path) };
        let parent = real(parent)?;
        path = parent.join(name);
        if mount_at(&path)?.is_some() {
            return Ok(path);
        }
        match fs::read_link(&path) {
            Ok(target) => path = parent.join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(local(&path, &Errno::LOOP.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mountinfo_are_read() {
        let line =
            br"99 28 0:54 / /mnt/my\040files ro,nosuid,nodev shared:5 - fuse nfsw\043nas:/a\040b ro,user_id=0";
        let mount = |path: &str, device: &str, is_ours, served_port| {
            Some(Mount { path: path.into(), device: device.into(), is_ours, served_port })
        };
        assert_eq!(parse(line), mount("/mnt/my files", "0:54", true, None));
        let line = b"24 28 0:22 / /proc rw - proc proc rw";
        assert_eq!(parse(line), mount("/proc", "0:22", false, None));
        let line = b"60 28 0:48 / /mnt ro,relatime - nfs 127.0.0.1:/ ro,vers=3,rsize=262144,port=20490,mountport=20490";
        assert_eq!(parse(line), mount("/mnt", "0:48", false, Some(20490)));
        let line =
            b"60 28 0:48 / /mnt ro,relatime - nfs nas:/ ro,vers=3,rsize=262144,port=20490,mountport=20490";
        assert_eq!(parse(line), mount("/mnt", "0:48", false, None), "of another machine");
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn links_are_followed_and_circles_end() {
        let place = tempfile::tempdir().unwrap();
        let place = fs::canonicalize(place.path()).unwrap();
        fs::create_dir_all(place.join("a/view")).unwrap();
        let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, place.join(name)).unwrap();
        link("a/view", "one");
        link("../one", "a/two");
        link("three", "three");
        link("a/view/..", "four");
        for name in ["a/view", "one", "a/two", "a/../one", "a/view/."] {
            assert_eq!(absolute(&place.join(name)).unwrap(), place.join("a/view"), "{name}");
        }
        assert_eq!(absolute(&place.join("four")).unwrap(), place.join("a"));
        assert_eq!(absolute(&place.join("missing")).unwrap(), place.join("missing"));
        assert!(absolute(&place.join("three")).is_err());
    }

    #[test]
    fn what_hangs_is_not_waited_for() {
        let begun = std::time::Instant::now();
        let (_sender, receiver) = mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(50), move || receiver.recv().is_ok()), None);
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert_eq!(within(Duration::from_secs(10), || 7), Some(7));
    }
}
