//! A mount in the file tree, through FUSE.

use std::{ffi::OsString, io, path::Path, sync::Arc, time::Instant};

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use nfs_cache::{NodeId, OpenId, State};
use nfs_files::{
    Error, ErrorKind, Result,
    error::{io_text, show},
};
use rustix::{fs::Access, io::Errno};

use crate::{
    kernel::{Answer, Operation, Request, Session, device},
    point::{Attached, MountPoint, SOURCE},
    start::Mount,
    view::{Asker, DirectoryReader, Reply, View},
};

/// Extended attribute that says how a file in the cache relates to the one on the server.
const STATE: &[u8] = b"user.nfsw.state";

/// A mount that is in the file tree for as long as this lives.
#[derive(Debug)]
pub struct Mounted {
    attached: Attached,
    session: Session,
}

/// Puts a mount into the file tree, under the name `nfsw#HOST:/PATH`.
///
/// # Errors
/// What the system says against it; ordinary users need `fusermount3`, of the package fuse3.
pub fn mount(mount: &Mount, point: &MountPoint) -> Result<Mounted> {
    let file_system = FileSystem(Arc::clone(mount.view()));
    // Everybody reads the table of mounts.
    let source = OsString::from(format!("{SOURCE}{}", mount.options().source.without_code()));
    let begin = || {
        let device = device::mount(&source, &point.path)?;
        let attached = Attached::new(&point.path);
        let session = Session::start(device, move |request, answer| file_system.take(&request, answer))?;
        Ok(Mounted { attached, session })
    };
    let mounted = begin().map_err(|error| refused(&point.path, &error))?;
    mount.view().attach(mounted.session.notifier().clone());
    mount.make_thumbnails(&point.path);
    Ok(mounted)
}

fn refused(point: &Path, error: &io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => " (ordinary users need fusermount3, of package fuse3)",
        io::ErrorKind::PermissionDenied => " (are you allowed to use /dev/fuse?)",
        _ => "",
    };
    Error::new(ErrorKind::LocalIo, format!("cannot mount at {}: {}{hint}", show(point), io_text(error)))
}

impl Mounted {
    /// Returns when somebody else has unmounted it, or nobody answers any more.
    pub async fn ended(&self) {
        self.session.ended().await;
    }

    /// Whether it is still in the file tree. While programs use it after it was unmounted, something else may be mounted in its place.
    pub fn is_there(&self) -> bool {
        self.attached.is_there()
    }
}

/// The file system that the kernel sees: every request becomes an operation of the cache. Nothing here waits.
#[derive(Debug)]
struct FileSystem(Arc<View>);

impl FileSystem {
    /// Takes a request, which is answered now or later.
    fn take(&self, request: &Request<'_>, answer: Answer) {
        let (view, asker, named) = (&self.0, Asker::from(request), NodeId::from_number(request.node));
        let node = view.meant(named);
        match request.operation {
            // Agreed on before.
            Operation::Init { .. } => answer.none(),
            Operation::Destroy => answer.done(),
            Operation::Refused(error) => answer.fail(error),
            Operation::Forget(forgotten) => {
                answer.none();
                let mut inner = view.lock();
                forgotten.each(|node, times| inner.forget(NodeId::from_number(node), times));
            }
            Operation::Interrupt { unique } => {
                answer.none();
                view.interrupted(unique);
            }
            Operation::Lookup { name } => {
                let reply = Reply::Entry(node, name.into(), answer);
                view.begin(asker, reply, |cache, now| cache.lookup(now, node, name));
            }
            Operation::GetAttributes => {
                let reply = Reply::Attributes(answer);
                view.begin(asker, reply, |cache, now| cache.attributes(now, node));
            }
            Operation::Access { mask } => {
                let reply = Reply::Access(Access::from_bits_retain(mask), answer);
                view.begin(asker, reply, |cache, now| cache.attributes(now, node));
            }
            Operation::ReadLink => {
                view.begin(asker, Reply::Data(answer), |cache, now| cache.read_link(now, node));
            }
            Operation::Open => view.open(asker, named, answer),
            Operation::Read { handle, offset, size } => {
                let open = OpenId::from_number(handle);
                view.begin(asker, Reply::Data(answer), |cache, now| cache.read(now, open, offset, size));
            }
            Operation::Release { handle } => {
                view.lock().release(OpenId::from_number(handle));
                answer.done();
            }
            Operation::OpenDirectory => {
                let reply = Reply::OpenDirectory(node, answer);
                view.begin(asker, reply, |cache, now| cache.list(now, node));
            }
            Operation::ReadDirectory { handle, offset, size, with_attributes } => {
                let reader = DirectoryReader { node, handle, offset, room: size, with_attributes };
                self.read_directory(asker, reader, answer);
            }
            Operation::ReleaseDirectory { handle } => {
                view.lock().close_directory(handle);
                answer.done();
            }
            Operation::Space => view.ask_space(asker, Reply::Space(answer)),
            Operation::GetXattr { name: STATE, size } => self.state(node, size, answer),
            Operation::GetXattr { name, .. } => answer.fail(no_xattr(name)),
            // The state is not listed: programs that copy extended attributes would keep what is no part of the file.
            Operation::ListXattr { size } => answer.xattr(b"", size),
        }
    }

    /// Continues a listing that was begun, or begins one.
    fn read_directory(&self, asker: Asker, reader: DirectoryReader, answer: Answer) {
        let mut inner = self.0.lock();
        if let Some(entries) = inner.listing(reader) {
            return inner.send_listing(reader, answer, &entries);
        }
        drop(inner);
        let reply = Reply::Directory(reader, answer);
        self.0.begin(asker, reply, |cache, now| cache.list(now, reader.node));
    }

    fn state(&self, node: NodeId, room: u32, answer: Answer) {
        let now = Instant::now();
        let mut inner = self.0.lock();
        inner.cache.recall(node);
        let state = inner.cache.state(now, node);
        drop(inner);
        match state {
            Some(state) => answer.xattr(describe(&state, now).as_bytes(), room),
            None => answer.fail(Errno::STALE),
        }
    }
}

/// Returns why a file has no such extended attribute.
fn no_xattr(name: &[u8]) -> Errno {
    // Programs that look for access lists and labels, as `ls -l` does, ask no more after the first file then.
    if name.starts_with(b"user.") { Errno::NODATA } else { Errno::OPNOTSUPP }
}

/// Says how an object that is held relates to the server: `fresh` or `stale since TIME`, and of a file how much of it is held.
fn describe(state: &State, now: Instant) -> String {
    let mut text = if state.fresh {
        "fresh".to_owned()
    } else {
        let age = SignedDuration::try_from(now.saturating_duration_since(state.asked_at)).unwrap_or_default();
        let asked = Timestamp::now() - age;
        format!("stale since {}", asked.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %z"))
    };
    if state.held_bytes < state.size_bytes {
        // Rounded down: 100 % means all of it.
        let share = u128::from(state.held_bytes) * 100 / u128::from(state.size_bytes);
        text.push_str(&format!(", partial {share} %"));
    }
    text
}
