//! The device that the kernel's requests come from, and the mount that belongs to it.

use std::{
    ffi::{CString, OsStr, OsString},
    fs::File,
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::Path,
    process::{Command, Stdio},
};

use rustix::{
    io::Errno,
    mount::MountFlags,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
        recvmsg, socketpair,
    },
    process::{geteuid, getgid, getuid},
};

/// The helper of ordinary users (package fuse3).
const HELPER: &str = "fusermount3";

/// Mounts a read-only file system under the name `source`, and returns the device that its requests are read from.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] if the helper that ordinary users need is missing, else what the system says.
pub(crate) fn mount(source: &OsStr, point: &Path) -> io::Result<OwnedFd> {
    if geteuid().is_root() {
        match by_ourselves(source, point) {
            // An administrator without the right to mount, as in a container.
            Err(error) if error == Errno::PERM => {}
            mounted => return Ok(mounted?),
        }
    }
    by_helper(source, point)
}

fn by_ourselves(source: &OsStr, point: &Path) -> rustix::io::Result<OwnedFd> {
    let device = File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let options = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        device.as_raw_fd(),
        getuid().as_raw(),
        getgid().as_raw()
    );
    let options = CString::new(options).expect("digits and letters");
    let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOATIME;
    rustix::mount::mount(source, point, "fuse", flags, &*options)?;
    Ok(device.into())
}

/// Has the helper mount, which passes the device over a socket: its standard input, whose number it is told.
fn by_helper(source: &OsStr, point: &Path) -> io::Result<OwnedFd> {
    let (ours, its) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let mut options = OsString::from("ro,nodev,nosuid,noatime,fsname=");
    options.push(escape(source));
    let mut child = Command::new(HELPER)
        .arg("-o")
        .arg(options)
        .arg("--")
        .arg(point)
        .env("_FUSE_COMMFD", "0")
        .stdin(its)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    // Without a device it closes its end.
    let device = receive(&ours);
    let mut said = String::new();
    if let Some(stderr) = &mut child.stderr {
        let _ = io::Read::read_to_string(stderr, &mut said);
    }
    let status = child.wait()?;
    match device? {
        Some(device) if status.success() => Ok(device),
        _ => Err(io::Error::other(match said.trim() {
            "" => format!("{HELPER} failed: {status}"),
            said => said.to_owned(),
        })),
    }
}

/// Receives a descriptor; `None` if the other end is closed without one.
fn receive(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut byte = [0];
    loop {
        let mut buffer = RecvAncillaryBuffer::new(&mut space);
        match recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut buffer, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => {
                return Ok(buffer.drain().find_map(|message| match message {
                    RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
                    _ => None,
                }));
            }
        }
    }
}

/// A comma would end the option, and a backslash stands before what does not.
fn escape(source: &OsStr) -> OsString {
    let escaped = source.as_bytes().iter().flat_map(|&byte| {
        let mark = (byte == b',' || byte == b'\\').then_some(b'\\');
        mark.into_iter().chain([byte])
    });
    OsString::from_vec(escaped.collect())
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn a_descriptor_comes_over_the_socket_or_does_not() {
        let (ours, its) = pair();
        drop(its);
        assert!(receive(&ours).unwrap().is_none(), "closed");
        let (ours, its) = pair();
        let file = File::open("/dev/null").unwrap();
        let descriptors = [std::os::fd::AsFd::as_fd(&file)];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut buffer = SendAncillaryBuffer::new(&mut space);
        assert!(buffer.push(SendAncillaryMessage::ScmRights(&descriptors)));
        sendmsg(&its, &[IoSlice::new(&[0])], &mut buffer, SendFlags::empty()).unwrap();
        let received = rustix::fs::fstat(receive(&ours).unwrap().unwrap()).unwrap();
        assert_eq!(received.st_rdev, rustix::fs::fstat(&file).unwrap().st_rdev);
    }

    #[test]
    fn names_of_servers_do_not_end_the_option() {
        assert_eq!(escape(OsStr::new(r"nfsw#nas:/a,dev\b")), r"nfsw#nas:/a\,dev\\b");
    }
}
