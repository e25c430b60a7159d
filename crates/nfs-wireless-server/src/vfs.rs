//! What the service needs from a file system.

use std::{fmt, ops::ControlFlow};

use nfs_wire::{
    FileHandle, Status,
    nfs3_types::nfs3::{fattr3, ftype3, nfstime3, sattr3, specdata3, stable_how},
};

/// Longest name of a directory entry, in bytes, as on nearly every file system.
pub const MAX_NAME_BYTES: usize = 255;

/// Longest target of a symbolic link, in bytes (Linux `PATH_MAX`, without its final NUL).
pub const MAX_LINK_TARGET_BYTES: usize = 4095;

/// A back end's number for a file; never used again for another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// A name that one directory entry can have: no separator, no NUL, not `.` or `..`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name<'a>(&'a [u8]);

/// What a name off the wire stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Component<'a> {
    Current,
    Parent,
    Entry(Name<'a>),
}

impl<'a> Component<'a> {
    /// Checks a name off the wire; empty and impossible names are refused with ACCES (RFC 1813 §3.2).
    pub(crate) fn parse(name: &'a [u8]) -> Result<Self, Status> {
        match name {
            b"." => Ok(Self::Current),
            b".." => Ok(Self::Parent),
            name => Name::new(name).map(Self::Entry),
        }
    }
}

impl<'a> Name<'a> {
    /// Checks a name.
    ///
    /// # Errors
    /// `NFS3ERR_ACCES` when it is empty, `.`, `..` or has a slash or a NUL in it; `NFS3ERR_NAMETOOLONG` above
    /// [`MAX_NAME_BYTES`].
    pub fn new(name: &'a [u8]) -> Result<Self, Status> {
        match name {
            b"" | b"." | b".." => Err(Status::ACCES),
            name if name.iter().any(|&byte| matches!(byte, b'/' | 0)) => Err(Status::ACCES),
            name if name.len() > MAX_NAME_BYTES => Err(Status::NAMETOOLONG),
            name => Ok(Self(name)),
        }
    }

    /// Returns the bytes of the name.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.0.escape_ascii().to_string())
    }
}

/// The user and group that a new file belongs to, where the back end keeps such a thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// User number.
    pub uid: u32,
    /// Group number.
    pub gid: u32,
}

/// What is to be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewObject<'a> {
    /// An empty regular file.
    File,
    /// An empty directory.
    Directory,
    /// A symbolic link with this target.
    Symlink(&'a [u8]),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharacterDevice(u32, u32),
    /// A block device.
    BlockDevice(u32, u32),
}

impl NewObject<'_> {
    /// Returns the file type that results.
    pub const fn file_type(self) -> ftype3 {
        match self {
            Self::File => ftype3::NF3REG,
            Self::Directory => ftype3::NF3DIR,
            Self::Symlink(_) => ftype3::NF3LNK,
            Self::Fifo => ftype3::NF3FIFO,
            Self::Socket => ftype3::NF3SOCK,
            Self::CharacterDevice(..) => ftype3::NF3CHR,
            Self::BlockDevice(..) => ftype3::NF3BLK,
        }
    }

    /// Returns the device numbers, which are zero for everything but devices.
    pub const fn device(self) -> specdata3 {
        let (specdata1, specdata2) = match self {
            Self::CharacterDevice(major, minor) | Self::BlockDevice(major, minor) => (major, minor),
            _ => (0, 0),
        };
        specdata3 { specdata1, specdata2 }
    }
}

/// Whether a READ reached the end of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOfFile {
    /// The last byte of the file is among those read, or lies before them.
    Reached,
    /// More follows.
    NotReached,
}

/// How much a listing tells about each entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Names and file numbers.
    Names,
    /// Also the node and its attributes.
    Attributes,
}

/// One entry of a listing.
#[derive(Debug)]
pub struct Entry<'a> {
    /// Name of the entry.
    pub name: &'a [u8],
    /// File number, as in the attributes.
    pub file_id: u64,
    /// Where to go on after this entry: at least [`FIRST_COOKIE`], rising, and the same for as long as the
    /// entry exists.
    pub cookie: u64,
    /// With [`Detail::Attributes`]: the file itself, unless it cannot be looked at.
    pub node: Option<(NodeId, fattr3)>,
}

/// The smallest cookie of a back end; smaller ones belong to `.` and `..`, which the service adds.
pub const FIRST_COOKIE: u64 = 3;

/// Free and total space (RFC 1813 §3.3.18).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Size of the file system, in bytes.
    pub total_bytes: u64,
    /// Unused, in bytes.
    pub free_bytes: u64,
    /// Unused and available to ordinary users, in bytes.
    pub available_bytes: u64,
    /// Most files the file system can hold.
    pub total_files: u64,
    /// Files that can still be created.
    pub free_files: u64,
}

/// A file system that the service can export.
///
/// Methods do what their NFS procedure does and report failures as its status. `now` is the time of day for
/// back ends that keep times themselves. They may be called by several threads at once.
pub trait Vfs: fmt::Debug + Send + Sync {
    /// Returns the exported directory.
    fn root(&self) -> NodeId;

    /// Returns what tells this back end from others, if its nodes mean the same files the next time it is made, so
    /// that handles survive the server; `None` if they do not.
    fn instance(&self) -> Option<u64> {
        None
    }

    /// Returns the handle of a node, where the back end makes its handles itself; [`node_of`](Self::node_of) takes them
    /// back then.
    fn handle_of(&self, _node: NodeId) -> Option<FileHandle> {
        None
    }

    /// Returns what a handle of the back end's own leads to; `None` where the service makes the handles.
    ///
    /// The procedure continues with the node, or fails with the status: `NFS3ERR_STALE`, `NFS3ERR_BADHANDLE`, or why it is not
    /// known.
    fn node_of(&self, _handle: &[u8]) -> Option<Result<NodeId, Status>> {
        None
    }

    /// Returns whether methods may wait, as for a disk; a driver calls them on threads of their own then, several at
    /// once.
    fn may_block(&self) -> bool {
        false
    }

    /// Lets go of what is kept for later calls that cannot come any more, such as open files that have no name. A driver calls it
    /// every few seconds if methods [may wait](Self::may_block).
    fn rest(&self) {}

    /// Returns where a file is below the root, as far as the back end knows: names with `/` between them.
    fn path(&self, _node: NodeId) -> Option<Vec<u8>> {
        None
    }

    /// Returns a file's attributes.
    ///
    /// # Errors
    /// `NFS3ERR_STALE` when the file is gone, as in all methods below.
    fn attributes(&self, node: NodeId) -> Result<fattr3, Status>;

    /// Changes attributes; on stable storage when it returns (RFC 1813 §3.3.2).
    ///
    /// # Errors
    /// The status of SETATTR.
    fn set_attributes(&self, now: nfstime3, node: NodeId, changes: &sattr3) -> Result<(), Status>;

    /// Finds an entry of a directory.
    ///
    /// # Errors
    /// The status of LOOKUP.
    fn lookup(&self, directory: NodeId, name: Name<'_>) -> Result<NodeId, Status>;

    /// Returns the directory that contains `directory`; for the exported directory that is itself.
    ///
    /// # Errors
    /// The status of LOOKUP.
    fn parent(&self, directory: NodeId) -> Result<NodeId, Status>;

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// The status of READLINK; `NFS3ERR_INVAL` when it is no symbolic link.
    fn read_link(&self, node: NodeId) -> Result<Vec<u8>, Status>;

    /// Appends at most `count` bytes at `offset` to `buffer`.
    ///
    /// # Errors
    /// The status of READ.
    fn read(
        &self,
        now: nfstime3,
        node: NodeId,
        offset: u64,
        count: u32,
        buffer: &mut Vec<u8>,
    ) -> Result<EndOfFile, Status>;

    /// Writes all of `data` at `offset` and says how stable it is: at least as stable as asked for.
    ///
    /// # Errors
    /// The status of WRITE; nothing, or a part, may have been written.
    fn write(
        &self,
        now: nfstime3,
        node: NodeId,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> Result<stable_how, Status>;

    /// Brings `count` bytes from `offset` to stable storage; a count of zero means to the end of the file.
    ///
    /// # Errors
    /// The status of COMMIT.
    fn commit(&self, node: NodeId, offset: u64, count: u32) -> Result<(), Status>;

    /// Creates an entry that must not exist yet.
    ///
    /// # Errors
    /// The status of CREATE, MKDIR, SYMLINK or MKNOD; `NFS3ERR_EXIST` when the name is taken.
    fn create(
        &self,
        now: nfstime3,
        directory: NodeId,
        name: Name<'_>,
        object: NewObject<'_>,
        attributes: &sattr3,
        owner: Owner,
    ) -> Result<NodeId, Status>;

    /// Creates a regular file once: again with the same verifier is the same file (RFC 1813 §3.3.8).
    ///
    /// # Errors
    /// The status of CREATE; `NFS3ERR_EXIST` when the name is taken and not by a file with this verifier.
    fn create_exclusive(
        &self,
        now: nfstime3,
        directory: NodeId,
        name: Name<'_>,
        verifier: [u8; 8],
        owner: Owner,
    ) -> Result<NodeId, Status>;

    /// Removes an entry that is no directory.
    ///
    /// # Errors
    /// The status of REMOVE; `NFS3ERR_ISDIR` for a directory.
    fn remove(&self, now: nfstime3, directory: NodeId, name: Name<'_>) -> Result<(), Status>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The status of RMDIR.
    fn remove_directory(&self, now: nfstime3, directory: NodeId, name: Name<'_>) -> Result<(), Status>;

    /// Renames an entry, over an existing one if it is compatible.
    ///
    /// # Errors
    /// The status of RENAME. Where the RFC says `NFS3ERR_EXIST` for an incompatible or filled target, back ends
    /// say what common servers do: `NFS3ERR_ISDIR`, `NFS3ERR_NOTDIR`, `NFS3ERR_NOTEMPTY`.
    fn rename(&self, now: nfstime3, from: (NodeId, Name<'_>), to: (NodeId, Name<'_>)) -> Result<(), Status>;

    /// Gives a file one more name.
    ///
    /// # Errors
    /// The status of LINK.
    fn link(&self, now: nfstime3, node: NodeId, directory: NodeId, name: Name<'_>) -> Result<(), Status>;

    /// Visits the entries after a cookie, without `.` and `..`, until the visitor breaks.
    ///
    /// Entries that exist from the first to the last call of a listing are visited exactly once, whatever else
    /// is created or removed between the calls.
    ///
    /// # Errors
    /// The status of READDIR.
    fn list(
        &self,
        directory: NodeId,
        after: u64,
        detail: Detail,
        visit: &mut dyn FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Status>;

    /// Returns free and total space.
    ///
    /// # Errors
    /// The status of FSSTAT.
    fn space(&self) -> Result<Space, Status>;

    /// Loses what was not committed, where the back end can.
    fn crash(&self) {}

    /// Returns whether changes are refused with `NFS3ERR_ROFS`.
    fn is_read_only(&self) -> bool {
        false
    }
}

/// Walks by path, for whoever fills or checks a file system without going through NFS.
impl dyn Vfs + '_ {
    /// Finds a file by its path from the exported directory; symbolic links are not followed.
    ///
    /// # Errors
    /// The status of the LOOKUP that fails.
    pub fn resolve(&self, path: &[u8]) -> Result<NodeId, Status> {
        let mut node = self.root();
        for component in path.split(|&byte| byte == b'/') {
            if !matches!(component, b"" | b".") {
                node = self.lookup(node, Name::new(component)?)?;
            }
        }
        Ok(node)
    }

    /// Returns the contents of a file.
    ///
    /// # Errors
    /// The status of the operation that fails.
    pub fn read_file(&self, path: &[u8]) -> Result<Vec<u8>, Status> {
        const BITE_BYTES: u32 = 1 << 20;
        let node = self.resolve(path)?;
        let mut contents = Vec::new();
        loop {
            let offset = contents.len() as u64;
            let end = self.read(nfstime3::default(), node, offset, BITE_BYTES, &mut contents)?;
            if end == EndOfFile::Reached {
                return Ok(contents);
            }
        }
    }

    /// Writes a file with these contents, creating it and the directories above it where they are missing.
    ///
    /// # Errors
    /// The status of the operation that fails.
    pub fn write_file(&self, now: nfstime3, path: &[u8], contents: &[u8]) -> Result<NodeId, Status> {
        let node = self.make(now, path, NewObject::File)?;
        self.write(now, node, 0, contents, stable_how::FILE_SYNC)?;
        Ok(node)
    }

    /// Creates an object and the directories above it; what exists already stays.
    ///
    /// # Errors
    /// The status of the operation that fails.
    pub fn make(&self, now: nfstime3, path: &[u8], object: NewObject<'_>) -> Result<NodeId, Status> {
        let components: Vec<_> =
            path.split(|&byte| byte == b'/').filter(|component| !component.is_empty()).collect();
        let mut node = self.root();
        for (index, component) in components.iter().enumerate() {
            let name = Name::new(component)?;
            let object = if index + 1 == components.len() { object } else { NewObject::Directory };
            node = match self.lookup(node, name) {
                Err(Status::NOENT) => {
                    self.create(now, node, name, object, &sattr3::default(), Owner::default())?
                }
                found => found?,
            };
        }
        Ok(node)
    }
}
