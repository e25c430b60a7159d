//! Reads requests for as long as the mount is there.

use std::{io, os::fd::OwnedFd, sync::Arc, thread};

use polyfuse_kernel as kernel;
use rustix::io::Errno;
use tokio::sync::Notify;

use super::{Answer, Notifier, Operation, Request, request::Malformed};

/// Event loops: one that answers while another reads the next request.
const LOOPS: usize = 2;

/// Room for a request: the longest ones have names, or nodes that were forgotten.
const REQUEST_BYTES: usize = 64 << 10;

/// Requests that the kernel has under way for reading ahead.
const MAX_BACKGROUND: u16 = 64;

/// Most pages of one READ: what the kernel takes by default.
const MAX_PAGES: u16 = 256;

/// The protocol is that of Linux 3.15 at least: its answers have the sizes of today.
const OLDEST_MINOR: u32 = 23;

/// What the kernel shall do. It drops its pages of a file whose size has changed by itself, as long as neither AUTO_INVAL_DATA nor
/// EXPLICIT_INVAL_DATA is set; of one that has other bytes there is another node.
const WANTED: u32 = kernel::FUSE_ASYNC_READ
    | kernel::FUSE_DO_READDIRPLUS
    | kernel::FUSE_READDIRPLUS_AUTO
    | kernel::FUSE_PARALLEL_DIROPS
    | kernel::FUSE_MAX_PAGES;

/// Threads that read the requests of a mount.
#[derive(Debug)]
pub(crate) struct Session {
    ended: Arc<Notify>,
    notifier: Notifier,
}

impl Session {
    /// Hands every request to `handle`, with the right to answer it.
    ///
    /// # Errors
    /// If there cannot be more threads.
    pub(crate) fn start<F>(device: OwnedFd, handle: F) -> io::Result<Self>
    where
        F: Fn(Request<'_>, Answer) + Send + Sync + 'static,
    {
        let (device, handle, ended) = (Arc::new(device), Arc::new(handle), Arc::new(Notify::new()));
        let notifier = Notifier::new(&device);
        for _ in 0..LOOPS {
            let (device, handle, ending) =
                (Arc::clone(&device), Arc::clone(&handle), Ending(Arc::clone(&ended)));
            thread::Builder::new().name("fuse".to_owned()).spawn(move || {
                // Told however it ends.
                let _ending = ending;
                read_all(&device, &*handle);
            })?;
        }
        Ok(Self { ended, notifier })
    }

    /// Returns who tells the kernel what it shall forget.
    pub(crate) const fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// Returns when somebody else has unmounted it, or nobody answers any more.
    pub(crate) async fn ended(&self) {
        self.ended.notified().await;
    }
}

struct Ending(Arc<Notify>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

fn read_all(device: &Arc<OwnedFd>, handle: &impl Fn(Request<'_>, Answer)) {
    let mut buffer = vec![0; REQUEST_BYTES];
    loop {
        match rustix::io::read(&**device, &mut buffer) {
            Ok(length) => take(device, &buffer[..length], handle),
            // ENOENT: whoever asked was killed while the request was read.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
            Err(error) => {
                tracing::debug!(%error, "no more requests");
                return;
            }
        }
    }
}

fn take(device: &Arc<OwnedFd>, bytes: &[u8], handle: &impl Fn(Request<'_>, Answer)) {
    let answer = |unique| Answer::new(Arc::clone(device), unique);
    match Request::parse(bytes) {
        Ok(Request { unique, operation: Operation::Init { major, minor, max_readahead, flags }, .. }) => {
            init(answer(unique), (major, minor), max_readahead, flags);
        }
        Ok(request) => handle(request, answer(request.unique)),
        Err(Malformed { unique }) => {
            tracing::debug!(?unique, "a request cannot be read");
            // Answers EIO.
            drop(unique.map(answer));
        }
    }
}

/// Agrees with the kernel on what both do.
fn init(answer: Answer, (major, minor): (u32, u32), max_readahead: u32, offered: u32) {
    let ours = kernel::FUSE_KERNEL_VERSION;
    if major < ours || major == ours && minor < OLDEST_MINOR {
        return answer.fail(Errno::PROTO);
    }
    let mut out = kernel::fuse_init_out { max_readahead, ..Default::default() };
    // A kernel with a later protocol asks again in ours.
    if major == ours {
        out.flags = WANTED & offered;
        (out.max_background, out.congestion_threshold) = (MAX_BACKGROUND, MAX_BACKGROUND / 4 * 3);
        (out.max_write, out.max_pages, out.time_gran) = (4096, MAX_PAGES, 1);
    }
    answer.init(&out);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use zerocopy::{FromBytes, IntoBytes};

    use super::*;

    /// A connection that keeps the bounds of messages, as the device does.
    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    fn ask(kernel: &OwnedFd, opcode: u32, body: &[u8]) {
        let len = (size_of::<kernel::fuse_in_header>() + body.len()) as u32;
        let header = kernel::fuse_in_header { len, opcode, unique: 4, nodeid: 1, ..Default::default() };
        rustix::io::write(kernel, &[header.as_bytes(), body].concat()).unwrap();
    }

    fn answered(kernel: &OwnedFd) -> (i32, Vec<u8>) {
        let mut buffer = vec![0; 4096];
        let length = rustix::io::read(kernel, &mut buffer).unwrap();
        let (header, body) = kernel::fuse_out_header::read_from_prefix(&buffer[..length]).unwrap();
        assert_eq!((header.unique, header.len as usize), (4, length));
        (header.error, body.to_vec())
    }

    #[test]
    fn kernel_and_we_agree_and_what_is_malformed_gets_an_error() {
        let (ours, kernel) = pair();
        let (sender, seen) = mpsc::channel();
        let _session = Session::start(ours, move |request, answer| {
            sender.send(request.node).unwrap();
            answer.done();
        })
        .unwrap();
        let init = |major, minor| kernel::fuse_init_in { major, minor, max_readahead: 7, flags: u32::MAX };
        ask(&kernel, kernel::FUSE_INIT, init(7, 45).as_bytes());
        let (error, body) = answered(&kernel);
        let (out, rest) = kernel::fuse_init_out::read_from_prefix(&body).unwrap();
        assert_eq!((error, out.major, out.minor, out.max_readahead, rest.len()), (0, 7, 31, 7, 0));
        assert_eq!(out.flags, WANTED);
        assert_eq!(out.flags & (kernel::FUSE_AUTO_INVAL_DATA | kernel::FUSE_EXPLICIT_INVAL_DATA), 0);
        ask(&kernel, kernel::FUSE_INIT, init(8, 0).as_bytes());
        let (out, _) = kernel::fuse_init_out::read_from_prefix(&answered(&kernel).1).unwrap();
        assert_eq!((out.major, out.flags), (7, 0), "it asks again");
        ask(&kernel, kernel::FUSE_INIT, init(7, 22).as_bytes());
        assert_eq!(answered(&kernel).0, -Errno::PROTO.raw_os_error());
        ask(&kernel, kernel::FUSE_LOOKUP, b"without an end");
        assert_eq!(answered(&kernel).0, -Errno::IO.raw_os_error());
        assert!(seen.try_recv().is_err(), "it was not handed on");
        ask(&kernel, kernel::FUSE_LOOKUP, b"name\0");
        assert_eq!(answered(&kernel), (0, Vec::new()));
        assert_eq!(seen.recv().unwrap(), 1);
    }

    #[tokio::test]
    async fn a_session_ends_when_nobody_answers_any_more() {
        let (ours, kernel) = pair();
        let session = Session::start(ours, |_, answer| {
            answer.none();
            panic!("a fault of ours");
        })
        .unwrap();
        ask(&kernel, kernel::FUSE_GETATTR, &[]);
        tokio::time::timeout(std::time::Duration::from_secs(10), session.ended()).await.unwrap();
    }
}
