//! What takes bytes in order on this machine: descriptors that this process was started with, fifos and devices.

use std::{
    fs::{self as paths, File},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
};

/// Links that are followed on the way to a descriptor, at most, as the system does (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// Returns the descriptor that a path names, as `/dev/stdout` and `/dev/fd/3` do, if this process was started with it; `None` for other
/// paths, and where it is a directory.
///
/// # Errors
/// What duplicating it fails of.
pub fn descriptor(path: &Path) -> io::Result<Option<File>> {
    let Some(number) = descriptor_number(path) else { return Ok(None) };
    let file = File::from(duplicate(number)?);
    Ok(Some(file).filter(|file| file.metadata().is_ok_and(|it| !it.is_dir())))
}

fn descriptor_number(path: &Path) -> Option<i32> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let above = paths::canonicalize(above.unwrap_or_else(|| Path::new("."))).ok()?;
        if is_table(&above) {
            let number = path.file_name()?.to_str()?.parse().ok()?;
            return Some(number).filter(|_| is_inherited(&above, number));
        }
        path = above.join(paths::read_link(&path).ok()?);
    }
    None
}

/// Whether a directory has the descriptors of this process.
fn is_table(directory: &Path) -> bool {
    let own = PathBuf::from(format!("/proc/{}", std::process::id()));
    directory == Path::new("/dev/fd")
        || directory == own.join("fd")
        || directory.ends_with("fd") && directory.starts_with(own.join("task"))
}

/// Whether a descriptor was there when this program was started: those that it opens itself are closed when it starts another.
fn is_inherited(table: &Path, number: i32) -> bool {
    const CLOSED_AT_EXEC: u32 = rustix::fs::OFlags::CLOEXEC.bits();
    let Ok(about) = paths::read_to_string(table.with_file_name("fdinfo").join(number.to_string())) else {
        // Other systems do not tell.
        return (0..=2).contains(&number) || table == Path::new("/dev/fd");
    };
    let flags = about.lines().find_map(|line| line.strip_prefix("flags:"));
    flags.and_then(|it| u32::from_str_radix(it.trim(), 8).ok()).is_some_and(|it| it & CLOSED_AT_EXEC == 0)
}

fn duplicate(number: i32) -> io::Result<OwnedFd> {
    match number {
        0 => io::stdin().as_fd().try_clone_to_owned(),
        1 => io::stdout().as_fd().try_clone_to_owned(),
        2 => io::stderr().as_fd().try_clone_to_owned(),
        other => duplicate_other(other),
    }
}

#[cfg(linux)]
fn duplicate_other(number: i32) -> io::Result<OwnedFd> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

    let own = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(own, number, PidfdGetfdFlags::empty())?)
}

/// Elsewhere opening the path duplicates the descriptor.
#[cfg(not(linux))]
fn duplicate_other(number: i32) -> io::Result<OwnedFd> {
    Ok(File::options().write(true).open(format!("/dev/fd/{number}"))?.into())
}

/// Opens a fifo or device for writing that was seen with these numbers; waits for the reader of a fifo.
///
/// # Errors
/// Also that it is something else now.
pub fn open_special(path: &Path, seen: (u64, u64)) -> io::Result<File> {
    let file = File::options().write(true).open(path)?;
    let found = file.metadata()?;
    if found.is_file() || (found.dev(), found.ino()) != seen {
        return Err(io::Error::other("is something else than it was; run it again"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_seen_is_opened() {
        let place = tempfile::tempdir().unwrap();
        let (file, null) = (place.path().join("file"), Path::new("/dev/null"));
        paths::write(&file, "content").unwrap();
        let number = |path: &Path| paths::metadata(path).map(|it| (it.dev(), it.ino())).unwrap();
        for (path, seen, is_opened) in [
            (null, number(null), true),
            (null, number(&file), false),
            (&file, number(&file), false),
            (&file, number(null), false),
        ] {
            assert_eq!(open_special(path, seen).is_ok(), is_opened, "{path:?}");
        }
        assert_eq!(paths::read(&file).unwrap(), b"content");
    }

    #[test]
    fn paths_of_descriptors_are_known_and_what_this_program_opens_is_not_taken() {
        let file = tempfile::tempfile().unwrap();
        let own = std::os::fd::AsRawFd::as_raw_fd(&file);
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("link");
        std::os::unix::fs::symlink("/dev/stdout", &link).unwrap();
        for (path, number) in [
            ("/dev/stdout".into(), Some(1)),
            ("/dev/fd/2".into(), Some(2)),
            ("/proc/self/fd/1".into(), Some(1)),
            (link.to_str().unwrap().to_owned(), Some(1)),
            (format!("/dev/fd/{own}"), None),
            ("/dev/fd/x".into(), None),
            ("/dev/null".into(), None),
            ("stdout".into(), None),
        ] {
            assert_eq!(descriptor_number(Path::new(&path)), number, "{path}");
        }
    }
}
