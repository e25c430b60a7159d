//! Requests of the kernel.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, sync::Arc, time::Instant};

use fuser::{
    AccessFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyXattr, Request,
};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use nfs_cache::{NodeId, OpenId, State};

use super::view::{DirectoryReader, Reply, View};

/// Extended attribute that says how a file in the cache relates to the one on the server.
const STATE: &str = "user.nfsw.state";

/// Requests that the kernel has under way for reading ahead.
const MAX_BACKGROUND: u16 = 64;

/// The file system that the kernel sees: every request becomes an operation of the cache. Nothing here waits.
#[derive(Debug)]
pub(crate) struct Front(pub(crate) Arc<View>);

impl Filesystem for Front {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let wanted = [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_EXPLICIT_INVAL_DATA,
        ];
        for flag in wanted {
            // Older kernels do without.
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (parent, name) = (node(parent), name.as_bytes());
        self.0.begin(request.pid(), Reply::Entry(reply), |cache, now| cache.lookup(now, parent, name));
    }

    fn forget(&self, _: &Request, number: INodeNo, times: u64) {
        self.0.lock().cache.forget(node(number), times);
    }

    fn getattr(&self, request: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let node = node(number);
        let reply = Reply::Attributes(node, reply);
        self.0.begin(request.pid(), reply, |cache, now| cache.attributes(now, node));
    }

    fn readlink(&self, request: &Request, number: INodeNo, reply: ReplyData) {
        let node = node(number);
        self.0.begin(request.pid(), Reply::Data(reply), |cache, now| cache.read_link(now, node));
    }

    fn open(&self, request: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let node = node(number);
        self.0.begin(request.pid(), Reply::Open(reply), |cache, now| cache.open(now, node));
    }

    fn read(
        &self,
        request: &Request,
        _: INodeNo,
        open: FileHandle,
        offset: u64,
        count: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let open = OpenId::from_number(open.0);
        let reply = Reply::Data(reply);
        self.0.begin(request.pid(), reply, |cache, now| cache.read(now, open, offset, count));
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        open: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.0.lock().release(OpenId::from_number(open.0));
        reply.ok();
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let handle = self.0.lock().open_directory();
        reply.opened(handle, FopenFlags::empty());
    }

    fn readdir(
        &self,
        request: &Request,
        directory: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let reader = DirectoryReader { node: node(directory), handle, offset };
        let inner = self.0.lock();
        if let Some(entries) = inner.listing(reader) {
            inner.send_names(reader, reply, &entries);
            return;
        }
        drop(inner);
        let reply = Reply::Names(reader, reply);
        self.0.begin(request.pid(), reply, |cache, now| cache.list(now, reader.node));
    }

    fn readdirplus(
        &self,
        request: &Request,
        directory: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let reader = DirectoryReader { node: node(directory), handle, offset };
        let mut inner = self.0.lock();
        if let Some(entries) = inner.listing(reader) {
            inner.send_entries(reader, reply, &entries);
            return;
        }
        drop(inner);
        let reply = Reply::Entries(reader, reply);
        self.0.begin(request.pid(), reply, |cache, now| cache.list(now, reader.node));
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.0.lock().close_directory(handle);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.0.lock().space.push(reply);
        self.0.bell.notify_one();
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if name != STATE {
            // Programs that look for access lists and labels, as `ls -l` does, ask no more after the first file then.
            let is_possible = name.as_bytes().starts_with(b"user.");
            return reply.error(if is_possible { Errno::ENODATA } else { Errno::EOPNOTSUPP });
        }
        let now = Instant::now();
        let mut inner = self.0.lock();
        inner.cache.recall(node(number));
        let state = inner.cache.state(now, node(number));
        drop(inner);
        let Some(state) = state else {
            return reply.error(Errno::ESTALE);
        };
        let text = describe(&state, now);
        match u32::try_from(text.len()) {
            Ok(length) if size == 0 => reply.size(length),
            Ok(length) if length <= size => reply.data(text.as_bytes()),
            _ => reply.error(Errno::ERANGE),
        }
    }

    fn listxattr(&self, _: &Request, _: INodeNo, size: u32, reply: ReplyXattr) {
        // The state is not listed: programs that copy extended attributes would keep what is no part of the file.
        if size == 0 { reply.size(0) } else { reply.data(&[]) }
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        // Whoever may use the mount has the rights that the server gives; the kernel asks no more.
        reply.error(Errno::ENOSYS);
    }
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

fn node(number: INodeNo) -> NodeId {
    NodeId::from_number(number.0)
}
