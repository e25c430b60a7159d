//! A back end that tells a test what it is asked for, so that the test can change something at that moment.

use std::{
    fmt,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Mutex,
};

use nfs_wireless_client::NfsStatus;
use nfs_wireless_server::{
    Directory, Vfs,
    nfs3_types::nfs3::{fattr3, ftype3, nfstime3, sattr3, stable_how},
    vfs::{Detail, EndOfFile, Entry, Name, NewObject, NodeId, Owner, Space},
};

/// A call, and what it was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call<'a> {
    /// A directory was listed from its beginning; some are listed twice.
    Listed(NodeId),
    /// Bytes of a file are read.
    Read,
    /// The target of a link is asked for.
    ReadLink,
    /// A name was looked up.
    LookUp(&'a [u8]),
    /// The attributes of what was looked up were read for the reply.
    LookedUp(&'a [u8]),
    /// A file is removed.
    Remove(&'a [u8]),
    /// A file gets another name.
    Link(&'a [u8]),
    /// It has got that.
    Linked(&'a [u8]),
    /// Attributes are set.
    SetAttributes,
    /// Bytes of a file are written.
    Write,
    /// A file or directory was made.
    Made(&'a [u8]),
}

type Watch = Box<dyn FnMut(&Path, Call<'_>) + Send>;

pub(super) struct Watched {
    root: PathBuf,
    directory: Directory,
    watch: Mutex<Watch>,
    /// What was looked up last.
    found: Mutex<Option<(NodeId, Vec<u8>)>>,
}

impl Watched {
    pub(super) fn new(
        root: &Path,
        directory: Directory,
        watch: impl FnMut(&Path, Call<'_>) + Send + 'static,
    ) -> Self {
        Self { root: root.to_owned(), directory, watch: Mutex::new(Box::new(watch)), found: Mutex::default() }
    }

    fn tell(&self, call: Call<'_>) {
        (self.watch.lock().unwrap())(&self.root, call);
    }
}

/// A directory with the sticky bit stands for one on another file system.
fn is_elsewhere(attributes: &fattr3) -> bool {
    matches!(attributes.type_, ftype3::NF3DIR) && attributes.mode & 0o1000 != 0
}

impl fmt::Debug for Watched {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.directory.fmt(formatter)
    }
}

impl Vfs for Watched {
    fn root(&self) -> NodeId {
        self.directory.root()
    }

    fn instance(&self) -> Option<u64> {
        self.directory.instance()
    }

    fn may_block(&self) -> bool {
        self.directory.may_block()
    }

    fn rest(&self) {
        self.directory.rest();
    }

    fn attributes(&self, node: NodeId) -> Result<fattr3, NfsStatus> {
        let attributes = self.directory.attributes(node).map(|mut attributes| {
            if is_elsewhere(&attributes) {
                attributes.fsid = !attributes.fsid;
            }
            attributes
        });
        let found = self.found.lock().unwrap().take_if(|(found, _)| *found == node);
        if let Some((_, name)) = found {
            self.tell(Call::LookedUp(&name));
        }
        attributes
    }

    fn set_attributes(&self, now: nfstime3, node: NodeId, changes: &sattr3) -> Result<(), NfsStatus> {
        let set = self.directory.set_attributes(now, node, changes);
        self.tell(Call::SetAttributes);
        set
    }

    fn lookup(&self, directory: NodeId, name: Name<'_>) -> Result<NodeId, NfsStatus> {
        let found = self.directory.lookup(directory, name);
        *self.found.lock().unwrap() = found.ok().map(|node| (node, name.as_bytes().to_vec()));
        self.tell(Call::LookUp(name.as_bytes()));
        found
    }

    fn parent(&self, directory: NodeId) -> Result<NodeId, NfsStatus> {
        self.directory.parent(directory)
    }

    fn read_link(&self, node: NodeId) -> Result<Vec<u8>, NfsStatus> {
        self.tell(Call::ReadLink);
        self.directory.read_link(node)
    }

    fn read(
        &self,
        now: nfstime3,
        node: NodeId,
        offset: u64,
        count: u32,
        buffer: &mut Vec<u8>,
    ) -> Result<EndOfFile, NfsStatus> {
        self.tell(Call::Read);
        self.directory.read(now, node, offset, count, buffer)
    }

    fn write(
        &self,
        now: nfstime3,
        node: NodeId,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> Result<stable_how, NfsStatus> {
        self.tell(Call::Write);
        self.directory.write(now, node, offset, data, stable)
    }

    fn commit(&self, node: NodeId, offset: u64, count: u32) -> Result<(), NfsStatus> {
        self.directory.commit(node, offset, count)
    }

    fn create(
        &self,
        now: nfstime3,
        directory: NodeId,
        name: Name<'_>,
        object: NewObject<'_>,
        attributes: &sattr3,
        owner: Owner,
    ) -> Result<NodeId, NfsStatus> {
        let made = self.directory.create(now, directory, name, object, attributes, owner);
        self.tell(Call::Made(name.as_bytes()));
        made
    }

    fn create_exclusive(
        &self,
        now: nfstime3,
        directory: NodeId,
        name: Name<'_>,
        verifier: [u8; 8],
        owner: Owner,
    ) -> Result<NodeId, NfsStatus> {
        self.directory.create_exclusive(now, directory, name, verifier, owner)
    }

    fn remove(&self, now: nfstime3, directory: NodeId, name: Name<'_>) -> Result<(), NfsStatus> {
        self.tell(Call::Remove(name.as_bytes()));
        self.directory.remove(now, directory, name)
    }

    fn remove_directory(&self, now: nfstime3, directory: NodeId, name: Name<'_>) -> Result<(), NfsStatus> {
        self.directory.remove_directory(now, directory, name)
    }

    fn rename(
        &self,
        now: nfstime3,
        from: (NodeId, Name<'_>),
        to: (NodeId, Name<'_>),
    ) -> Result<(), NfsStatus> {
        self.directory.rename(now, from, to)
    }

    fn link(&self, now: nfstime3, node: NodeId, directory: NodeId, name: Name<'_>) -> Result<(), NfsStatus> {
        self.tell(Call::Link(name.as_bytes()));
        let linked = self.directory.link(now, node, directory, name);
        self.tell(Call::Linked(name.as_bytes()));
        linked
    }

    fn list(
        &self,
        directory: NodeId,
        after: u64,
        detail: Detail,
        visit: &mut dyn FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, NfsStatus> {
        let listed = self.directory.list(directory, after, detail, visit);
        if after < nfs_wireless_server::vfs::FIRST_COOKIE {
            self.tell(Call::Listed(directory));
        }
        listed
    }

    fn space(&self) -> Result<Space, NfsStatus> {
        self.directory.space()
    }
}
