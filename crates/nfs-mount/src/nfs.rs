//! The view for NFS clients of this machine: calls of a loopback server become operations of the cache.
//!
//! The server crate takes calls and makes replies; between the two, calls wait here for the cache, each in a task of its own. A call
//! that the cache cannot answer is held back for as long as `--wait` says, and fails with NFS3ERR_IO then.

mod answered;
mod files;
pub(crate) mod handles;
mod names;
mod owner;

use std::{cell::RefCell, convert::Infallible, future::pending, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use nfs_cache::{Answer, Failure, Identity, NodeId, OperationId};
use nfs_wire::{
    DecodeError, FileHandle, Procedure, Reader,
    call::decode,
    mount::decode_path,
    nfs3_types::nfs3::{
        ACCESS3args, FSINFO3args, FSSTAT3args, GETATTR3args, LOOKUP3args, PATHCONF3args, READ3args,
        READDIR3args, READDIRPLUS3args, READLINK3args, fattr3, ftype3, nfs_fh3, nfstime3, specdata3,
    },
};
use nfs_wireless_client::{FileType, Metadata, NfsStatus, Time};
use nfs_wireless_server::{Done, Server, Service, ServiceConfig, Work, vfs::Space};
use tokio::{
    sync::{mpsc::UnboundedReceiver, oneshot},
    time::{Instant, interval},
};

use self::{
    answered::{Answered, Body, Known},
    files::State,
    handles::Handles,
    owner::Owners,
};
use crate::{
    start::Mount,
    store::Holder,
    view::{Asker, Reply, View},
};

/// What is shown.
type Cache = nfs_cache::Cache<Holder>;

/// Calls that may wait for the cache at once.
const MAX_WAITING: usize = 1024;

/// Most bytes of a READ: what a kernel reads ahead in one call without making others wait for long.
const READ_BYTES: u32 = 256 << 10;

/// How often files that nobody reads any more are closed.
const TIDY: Duration = Duration::from_secs(10);

/// The administrator, in whose name kernels make calls for everybody.
const ROOT_UID: u32 = 0;

/// Who may read what is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Who serves it, and the administrator of this machine.
    Owner,
    /// Whoever reaches it.
    Everybody,
}

/// A view that is served to NFS clients.
#[derive(Debug)]
pub struct Export {
    view: Arc<View>,
    root: FileHandle,
    uid: u32,
    readers: Readers,
    /// Who is asked, once it is known where this is served.
    owners: RefCell<Option<Owners>>,
    handles: RefCell<Handles>,
    state: RefCell<State>,
}

/// An object of the cache, which keeps it for as long as this lives.
#[derive(Debug)]
struct Held<'a> {
    view: &'a View,
    node: NodeId,
    server: FileHandle,
    metadata: Metadata,
    /// The operation that found it.
    found_by: OperationId,
}

impl Held<'_> {
    /// Returns what names it for clients.
    fn identity(&self) -> Identity {
        let identity = self.view.lock().cache.identity(self.node);
        identity.unwrap_or(Identity { handle: self.server, version: 0 })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.view.lock().cache.forget(self.node, 1);
    }
}

/// What a call comes to: the object that its handle leads to, and the rest.
type Answers = (Result<Option<Known>, NfsStatus>, Body);

impl Export {
    /// Serves what is mounted.
    pub fn new(mount: &Mount, readers: Readers) -> Self {
        let (view, (root, numbers)) = (Arc::clone(mount.view()), mount.root());
        let handles = RefCell::new(Handles::new(&root, numbers));
        let uid = rustix::process::geteuid().as_raw();
        let (owners, state) = Default::default();
        Self { view, root, uid, readers, owners, handles, state }
    }

    /// Returns the service that takes its calls, for [`Server::bind_deferred`].
    ///
    /// # Panics
    /// Never: the settings are valid.
    pub fn service(&self, seed: u64) -> Service {
        let mut config = ServiceConfig::default();
        config.timing.threads = MAX_WAITING.try_into().expect("not zero");
        config.tcp_transfer_bytes = READ_BYTES;
        let nothing = self.answered((Err(NfsStatus::IO), Body::Nothing));
        Service::new(config, nothing, seed, Instant::now().into_std()).expect("the settings are valid")
    }

    /// Answers calls for as long as it is polled.
    pub async fn serve(&self, server: &Server, mut works: UnboundedReceiver<Work>) -> Infallible {
        self.owners.replace(Some(Owners::new(server.local_addr())));
        let mut calls = FuturesUnordered::new();
        let mut tidy = interval(TIDY);
        loop {
            tokio::select! {
                biased;
                Some(done) = calls.next() => server.done(done),
                work = works.recv() => match work {
                    Some(work) => calls.push(self.make(work)),
                    None => pending().await,
                },
                _ = tidy.tick() => {
                    let closed = self.state.borrow_mut().tidy(Instant::now().into_std());
                    let mut inner = self.view.lock();
                    closed.into_iter().for_each(|open| inner.cache.release(open));
                }
            }
        }
    }

    async fn make(&self, work: Work) -> Done {
        // What is garbage is rejected by the server crate, whatever the answer.
        let mut answers = self.answer(&work).await.unwrap_or((Err(NfsStatus::IO), Body::Nothing));
        // Who has asked may be gone by now, and another user have its address, where the answer goes.
        if !self.is_allowed(&work) {
            answers = (Err(NfsStatus::ACCES), Body::Nothing);
        }
        work.run_on(&self.answered(answers))
    }

    fn answered(&self, (object, body): Answers) -> Answered {
        Answered::new(self.handles.borrow().identity, object, body)
    }

    async fn answer(&self, work: &Work) -> Result<Answers, DecodeError> {
        if !self.is_allowed(work) {
            return Ok((Err(NfsStatus::ACCES), Body::Nothing));
        }
        let arguments = Reader::new(work.arguments());
        Ok(match work.procedure() {
            None => self.mount(decode_path(arguments)?).await,
            Some(Procedure::Getattr) => {
                self.alone(self.getattr(&decode::<GETATTR3args>(arguments)?.object).await)
            }
            Some(Procedure::Access) => self.alone(self.look(&decode::<ACCESS3args>(arguments)?.object).await),
            Some(Procedure::Fsinfo) => self.alone(self.look(&decode::<FSINFO3args>(arguments)?.fsroot).await),
            Some(Procedure::Pathconf) => {
                self.alone(self.look(&decode::<PATHCONF3args>(arguments)?.object).await)
            }
            Some(Procedure::Fsstat) => {
                let arguments: FSSTAT3args = decode(arguments)?;
                let object = self.look(&arguments.fsroot).await;
                (object.map(Some), self.space().await)
            }
            Some(Procedure::Lookup) => {
                let arguments: LOOKUP3args<'_> = decode(arguments)?;
                self.lookup(&arguments.what.dir, arguments.what.name.as_ref()).await
            }
            Some(Procedure::Readlink) => self.read_link(&decode::<READLINK3args>(arguments)?.symlink).await,
            Some(Procedure::Read) => self.read(&decode::<READ3args>(arguments)?).await,
            Some(Procedure::Readdir) => {
                let arguments: READDIR3args = decode(arguments)?;
                self.list(&arguments.dir, arguments.cookie).await
            }
            Some(Procedure::Readdirplus) => {
                let arguments: READDIRPLUS3args = decode(arguments)?;
                self.list(&arguments.dir, arguments.cookie).await
            }
            // The server crate refuses these before it needs anything.
            Some(
                Procedure::Null
                | Procedure::Setattr
                | Procedure::Write
                | Procedure::Create
                | Procedure::Mkdir
                | Procedure::Symlink
                | Procedure::Mknod
                | Procedure::Remove
                | Procedure::Rmdir
                | Procedure::Rename
                | Procedure::Link
                | Procedure::Commit,
            ) => (Ok(None), Body::Nothing),
        })
    }

    /// Whether a call comes from somebody who may read this. What it says of its user is believed where a kernel says it.
    fn is_allowed(&self, work: &Work) -> bool {
        if self.readers == Readers::Everybody {
            return true;
        }
        let is_reader = |uid| uid == self.uid || uid == ROOT_UID;
        let owned =
            self.owners.borrow_mut().as_mut().is_some_and(|owners| owners.are(work.peer(), is_reader));
        owned && work.uid().is_none_or(is_reader)
    }

    /// An answer without more than the object.
    fn alone(&self, object: Result<Known, NfsStatus>) -> Answers {
        (object.map(Some), Body::Nothing)
    }

    /// Has the cache do something, and waits for it.
    async fn ask(
        &self,
        ask: impl FnOnce(&mut Cache, std::time::Instant) -> OperationId,
    ) -> (OperationId, Result<Answer, Failure>) {
        let (sender, receiver) = oneshot::channel();
        let operation = self.view.begin(Asker::NOBODY, Reply::Task(sender), ask);
        (operation, receiver.await.unwrap_or(Err(Failure::Unreachable)))
    }

    /// Finds what a handle of the server leads to.
    async fn held(&self, server: FileHandle) -> Result<Held<'_>, NfsStatus> {
        match self.ask(|cache, now| cache.find(now, server)).await {
            (found_by, Ok(Answer::Entry { node, metadata })) => {
                Ok(Held { view: &self.view, node, server, metadata, found_by })
            }
            (_, Ok(_)) => Err(NfsStatus::SERVERFAULT),
            (_, Err(failure)) => Err(status(&failure)),
        }
    }

    /// Finds what one of our handles leads to, if that is still the version that it was made for.
    async fn object(&self, handle: &nfs_fh3) -> Result<Held<'_>, NfsStatus> {
        let parts = self.handles.borrow().parts(handle.data.as_ref())?;
        let held = self.held(parts.server).await?;
        self.is_same(handle, &held).map(|()| held)
    }

    fn known(&self, held: &Held<'_>) -> Known {
        self.describe(&held.identity(), &held.metadata)
    }

    fn describe(&self, identity: &Identity, metadata: &Metadata) -> Known {
        let handle = self.handles.borrow_mut().handle(identity);
        Known { handle, attributes: attributes(metadata) }
    }

    /// GETATTR is how NFS clients open files: what it tells of a file is what the server says now.
    async fn getattr(&self, handle: &nfs_fh3) -> Result<Known, NfsStatus> {
        let held = self.object(handle).await?;
        let held = self.confirmed(held).await?;
        self.is_same(handle, &held).map(|()| self.known(&held))
    }

    /// Makes sure that a regular file is still what it was when the operation that found it began; of others, that they were not
    /// asked about for too long.
    async fn confirmed<'a>(&self, mut held: Held<'a>) -> Result<Held<'a>, NfsStatus> {
        let (node, since) = (held.node, held.found_by);
        let is_file = held.metadata.file_type == FileType::Regular;
        let ask = |cache: &mut Cache, now| match is_file {
            true => cache.confirm(now, node, Some(since)),
            false => cache.attributes(now, node),
        };
        match self.ask(ask).await.1 {
            Ok(Answer::Attributes(metadata)) => held.metadata = metadata,
            Ok(_) => return Err(NfsStatus::SERVERFAULT),
            Err(failure) => return Err(status(&failure)),
        }
        if is_file {
            self.state.borrow_mut().confirmed(node, since, Instant::now().into_std());
        }
        Ok(held)
    }

    /// Attributes for procedures that open nothing.
    async fn look(&self, handle: &nfs_fh3) -> Result<Known, NfsStatus> {
        let mut held = self.object(handle).await?;
        let node = held.node;
        match self.ask(|cache, now| cache.attributes(now, node)).await.1 {
            Ok(Answer::Attributes(metadata)) => held.metadata = metadata,
            Ok(_) => return Err(NfsStatus::SERVERFAULT),
            Err(failure) => return Err(status(&failure)),
        }
        // It may have turned out to be another version.
        self.is_same(handle, &held).map(|()| self.known(&held))
    }

    /// Whether a handle is for the version that was found.
    fn is_same(&self, handle: &nfs_fh3, held: &Held<'_>) -> Result<(), NfsStatus> {
        let handles = self.handles.borrow();
        let parts = handles.parts(handle.data.as_ref())?;
        if handles.is_of(&parts, held.identity().version) { Ok(()) } else { Err(NfsStatus::STALE) }
    }

    /// Returns the space of the server's file system, as it was told last.
    async fn space(&self) -> Body {
        match self.view.space().await {
            Some(it) => Body::Space(Space {
                total_bytes: it.total_bytes,
                free_bytes: it.free_bytes,
                available_bytes: it.available_bytes,
                total_files: it.total_files,
                free_files: it.free_files,
            }),
            None => Body::Failed(NfsStatus::IO),
        }
    }
}

/// Says a failure as NFS does.
fn status(failure: &Failure) -> NfsStatus {
    match failure {
        Failure::Status(status) => *status,
        Failure::Stale => NfsStatus::STALE,
        Failure::WrongKind => NfsStatus::INVAL,
        // `Unreachable` and others that say nothing of the file. JUKEBOX would make clients ask for ever.
        _ => NfsStatus::IO,
    }
}

/// Puts attributes on the wire again.
const fn attributes(metadata: &Metadata) -> fattr3 {
    const fn time(time: Time) -> nfstime3 {
        nfstime3 { seconds: time.seconds, nseconds: time.nanoseconds }
    }
    fattr3 {
        type_: match metadata.file_type {
            FileType::Regular => ftype3::NF3REG,
            FileType::Directory => ftype3::NF3DIR,
            FileType::Symlink => ftype3::NF3LNK,
            FileType::BlockDevice => ftype3::NF3BLK,
            FileType::CharacterDevice => ftype3::NF3CHR,
            FileType::Socket => ftype3::NF3SOCK,
            FileType::Fifo => ftype3::NF3FIFO,
        },
        mode: metadata.mode,
        nlink: metadata.links,
        uid: metadata.uid,
        gid: metadata.gid,
        size: metadata.size,
        used: metadata.used,
        rdev: specdata3 { specdata1: metadata.device.0, specdata2: metadata.device.1 },
        fsid: metadata.fsid,
        fileid: metadata.fileid,
        atime: time(metadata.atime),
        mtime: time(metadata.mtime),
        ctime: time(metadata.ctime),
    }
}
