//! Sources: files, directories and links, wherever they are.

use std::{
    fmt, fs, io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::MetadataExt,
    },
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
    vec,
};

use nfs_wireless_client::{Client, FileHandle, FileType, Metadata};
use rustix::fs::Stat;
use tokio::io::AsyncReadExt;

use super::resume::state;
use crate::{
    context::Context,
    error::{Error, ErrorKind, Result, ResultExt, is_missing, local, remote_error, show},
    event::{Name, What},
    find::{Child, Children, Found, find, follow, real},
    journal::{Identity, nanoseconds},
    local::{Acl, SourcePath, Sparse, Times},
    url::{Remote, components, is_within},
};

/// A source.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) origin: Origin,
    pub(super) kind: Kind,
    pub(super) attributes: Attributes,
}

/// Where a source is.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// On this machine.
    Local(SourcePath),
    /// On a server.
    Remote(RemoteFile),
    /// Standard input.
    Standard,
}

/// A file on a server.
#[derive(Clone, Debug)]
pub(super) struct RemoteFile {
    pub(super) client: Client,
    pub(super) handle: FileHandle,
    pub(super) remote: Remote,
}

/// What a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Symlink,
    /// Nothing that can be copied, by its usual name.
    Special(&'static str),
}

/// Attributes that a copy may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u64,
    /// Names that it has.
    pub(super) links: u32,
    /// Bytes that it takes on its disk.
    pub(super) stored: u64,
    pub(super) times: Times,
    /// Last change of contents or attributes.
    pub(super) changed: SystemTime,
    /// File system and file.
    pub(super) file: (u64, u64),
    /// The number of the file system stays the same: those of devices change when the machine restarts.
    pub(super) is_lasting: bool,
}

/// What a listing of a directory has shown of it.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// Something disappeared meanwhile.
    pub(super) has_vanished: bool,
    /// What the directory was when it was listed, where that is told.
    pub(super) now: Option<Attributes>,
}

/// What is left of a directory that is listed part by part.
#[derive(Debug)]
pub(super) enum Rest {
    /// Names of this machine that were not looked at yet, in their order.
    Local(vec::IntoIter<Vec<u8>>),
    /// Entries that the server was not asked for yet.
    Remote(Box<Children>),
}

/// Names of a local directory that are looked at for one part: 30 MiB of work.
const PART_NAMES: usize = 32_768;

/// Set-user-ID and set-group-ID (RFC 1813 §2.5, `mode`).
pub(super) const SET_ID: u32 = 0o6000;

/// What a [`Kind::Special`] is that can be read to its end.
pub(super) const FIFO: &str = "fifo";

impl Attributes {
    /// Takes those of a source on a server. Files of somebody else's share are not to run as anybody here.
    pub(super) fn of_source(remote: &Remote, metadata: &Metadata) -> Self {
        let attributes = Self::from(metadata);
        let left_out = if remote.is_in_share() { SET_ID } else { 0 };
        Self { mode: attributes.mode & !left_out, ..attributes }
    }

    /// Takes those of an open file on this machine.
    pub(super) fn of_open(file: &fs::File) -> io::Result<Self> {
        let mut attributes = Self::from(&file.metadata()?);
        attributes.narrow(|| Acl::of(file));
        Ok(attributes)
    }

    /// Leaves the mode of a source what may be done with it without its access list, which no copy on a server has.
    fn narrow(&mut self, list: impl FnOnce() -> Option<Acl>) {
        if self.mode & 0o077 != 0
            && let Some(list) = list()
        {
            self.mode = list.of_group(self.mode);
        }
    }

    /// Whether a copy of this file is to have holes.
    pub(super) const fn wants_holes(&self, sparse: Sparse) -> bool {
        match sparse {
            Sparse::Auto => self.stored < self.size,
            Sparse::Always => true,
            Sparse::Never => false,
        }
    }

    /// Returns who may do what with it.
    pub(super) const fn rights(&self) -> (u32, u32, u32) {
        (self.mode, self.uid, self.gid)
    }

    /// Returns the same, of a file with the rights of another one.
    pub(super) const fn with_rights_of(self, other: &Self) -> Self {
        let (mode, uid, gid) = other.rights();
        Self { mode, uid, gid, ..self }
    }

    /// Whether both are one file, as far as that can be told of two views of file systems: it changed last at the same nanosecond.
    pub(super) fn looks_like(&self, other: &Self) -> bool {
        let numbers = |it: &Self| (it.file.1, it.size, it.times.modified, it.changed);
        numbers(self) == numbers(other)
    }

    /// Whether both may be one file that somebody changes or that one of two views shows as it was.
    pub(super) fn may_be(&self, other: &Self) -> bool {
        self.file.1 == other.file.1
            && (self.size == other.size
                || self.times.modified == other.times.modified
                || self.changed == other.changed)
    }

    /// Returns what tells this file with these contents from any other.
    pub(super) fn identity(&self) -> Identity {
        let file_system = if self.is_lasting { self.file.0 } else { 0 };
        Identity {
            file: (file_system, self.file.1),
            size: self.size,
            modified: nanoseconds(self.times.modified),
            changed: nanoseconds(self.changed),
        }
    }
}

impl Node {
    /// Looks at a local path; a link is found itself unless it is to be followed.
    pub(super) fn local(path: PathBuf, follow: bool) -> io::Result<Self> {
        let path = SourcePath::named(path, follow);
        let stat = path.stat(follow)?;
        Ok(Self::of(path, &stat, SourcePath::list))
    }

    fn of(path: SourcePath, stat: &Stat, list: impl FnOnce(&SourcePath) -> Option<Acl>) -> Self {
        let (kind, mut attributes) = (stat.into(), Attributes::from(stat));
        if kind != Kind::Symlink {
            attributes.narrow(|| list(&path));
        }
        Self { kind, attributes, origin: Origin::Local(path) }
    }

    /// Takes a file found on a server.
    pub(super) fn remote(found: Found) -> Self {
        let Found { client, handle, remote, metadata, .. } = found;
        let attributes = Attributes::of_source(&remote, &metadata);
        let origin = Origin::Remote(RemoteFile { client, handle, remote });
        Self { origin, kind: metadata.file_type.into(), attributes }
    }

    /// Finds what a link stands for; it keeps the link's name.
    pub(super) async fn followed(self, context: Context<'_>) -> Result<Self> {
        match self.origin {
            Origin::Local(path) => {
                Self::local(path.to_path_buf(), true).map_err(|error| local(&path, &error))
            }
            Origin::Remote(RemoteFile { remote, .. }) => {
                Ok(Self::remote(follow(context, find(context, &remote).await?).await?))
            }
            Origin::Standard => unreachable!("standard input is no link"),
        }
    }

    /// As [`Node::followed`], of a link so many levels below SRC; `None` where it leads out of SRC.
    pub(super) async fn followed_within(self, levels: usize, context: Context<'_>) -> Result<Option<Self>> {
        match self.origin {
            Origin::Local(path) => {
                let found = path.within().and_then(|within| match within {
                    Some(path) => path.stat(false).map(|stat| Some(Self::of(path, &stat, SourcePath::list))),
                    None => Ok(None),
                });
                found.map_err(|error| local(&path, &error))
            }
            Origin::Remote(RemoteFile { remote, .. }) => {
                let top = (0..levels).fold(remote.clone(), |below, _| below.parent());
                let [top, there] = [real(context, &top).await?, real(context, &remote).await?];
                let is_within = is_within(&there.remote.path, &top.remote.path);
                Ok(is_within.then(|| Self::remote(Found { remote, ..there })))
            }
            Origin::Standard => unreachable!("standard input is no link"),
        }
    }

    /// Standard input, of unknown size.
    pub(super) fn standard() -> Self {
        let now = SystemTime::now();
        let times = Times { accessed: now, modified: now };
        let attributes = Attributes {
            mode: 0o666,
            uid: 0,
            gid: 0,
            size: 0,
            links: 1,
            stored: 0,
            times,
            changed: now,
            file: (0, 0),
            is_lasting: false,
        };
        Self { origin: Origin::Standard, kind: Kind::File, attributes }
    }

    /// Whether it is on this machine.
    pub(super) const fn is_local(&self) -> bool {
        matches!(self.origin, Origin::Local(_))
    }

    /// Whether it is in a share of somebody else's.
    pub(super) fn is_in_share(&self) -> bool {
        matches!(&self.origin, Origin::Remote(file) if file.remote.is_in_share())
    }

    /// Whether a directory is on the file system of the one that it lies in.
    pub(super) fn is_on_file_system_of(&self, above: &Self) -> bool {
        let is_mount_point = match &self.origin {
            Origin::Remote(file) => file.client.is_inner_export(file.handle),
            Origin::Local(_) | Origin::Standard => false,
        };
        !is_mount_point && self.attributes.file.0 == above.attributes.file.0
    }

    /// Returns how many bytes there are to copy, as far as known; a link has none.
    pub(super) fn expected_bytes(&self) -> u64 {
        if self.kind == Kind::File { self.attributes.size } else { 0 }
    }

    /// Returns it as a user would write it, for programs.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match &self.origin {
            Origin::Local(path) => path.as_os_str().as_bytes().to_vec(),
            Origin::Remote(file) => file.remote.to_bytes(),
            Origin::Standard => b"-".to_vec(),
        }
    }

    /// Returns its name for people and for programs.
    pub(super) fn name(&self) -> Name {
        Name { shown: self.to_string(), bytes: self.to_bytes() }
    }

    /// Returns its path: on this machine from the root, on a server as it is named, with the server.
    pub(super) fn path(&self) -> Vec<u8> {
        match &self.origin {
            Origin::Local(path) => {
                let path = fs::canonicalize(&**path).unwrap_or_else(|_| path.to_path_buf());
                path.into_os_string().into_vec()
            }
            Origin::Remote(file) => file.remote.to_bytes(),
            Origin::Standard => Vec::new(),
        }
    }

    /// Returns what stands for it in the state of later runs: in whatever words it is named, and by
    /// whatever name or address of its server.
    pub(super) fn resume_key(&self) -> Vec<u8> {
        let (file_system, file) = self.attributes.file;
        match &self.origin {
            Origin::Local(path) => {
                let path = fs::canonicalize(&**path).unwrap_or_else(|_| path.to_path_buf());
                state::key([&file.to_le_bytes()[..], path.as_os_str().as_bytes()])
            }
            Origin::Remote(source) => state::key([&file_system.to_le_bytes()[..], source.handle.as_bytes()]),
            Origin::Standard => Vec::new(),
        }
    }

    /// Whether the path of a directory still leads to it.
    pub(super) async fn is_still_there(&self) -> Result<bool> {
        Ok(self.now().await?.file.1 == self.attributes.file.1)
    }

    /// Returns the attributes that a directory has now. Its path may be that of a link that leads to it.
    async fn now(&self) -> Result<Attributes> {
        match &self.origin {
            Origin::Local(path) => Ok((&fs::metadata(&**path).map_err(|error| local(path, &error))?).into()),
            Origin::Remote(file) => Ok((&file.client.metadata(file.handle).await.at(&file.remote)?).into()),
            Origin::Standard => Ok(self.attributes),
        }
    }

    /// Whether something was moved into a directory since these attributes of it were taken: it has changed, and something in it has
    /// changed since, but not its contents. A new name is no change of a file, but a rename sets its ctime (of Linux, of all file systems
    /// that it keeps on disks). A file that is made there has one time for both.
    pub(super) async fn was_moved_into(&self, context: Context<'_>) -> Result<bool> {
        let before = &self.attributes;
        let now = match self.now().await {
            // Nothing can be moved into what is gone.
            Err(error) if error.is_gone() => return Ok(false),
            now => now?,
        };
        if now.file != before.file {
            return Ok(true);
        }
        if (now.changed, now.times.modified) == (before.changed, before.times.modified) {
            return Ok(false);
        }
        let (mut rest, mut shown) = (None, Shown::default());
        loop {
            // It is large, and rarely needed.
            let children = Box::pin(self.children(context, &mut rest, &mut shown)).await?;
            let is_moved = |it: &Attributes| it.changed > before.changed && it.changed > it.times.modified;
            if children.iter().any(|(_, child)| is_moved(&child.attributes)) {
                return Ok(true);
            }
            if rest.is_none() {
                return Ok(false);
            }
        }
    }

    /// Looks for a name in a directory.
    pub(super) async fn child(&self, name: &[u8]) -> Result<Option<Self>> {
        match &self.origin {
            Origin::Local(path) => {
                let directory = path.enter(self.attributes.file.1).map_err(|error| local(path, &error))?;
                let (path, found) = directory.child(name);
                let found = found.map_err(|error| local(&path, &error))?;
                Ok(found.map(|stat| Self::of(path, &stat, |_| directory.list(name))))
            }
            Origin::Remote(RemoteFile { client, handle, remote }) => {
                let remote = remote.join(name);
                match client.lookup(*handle, name).await {
                    Ok(entry) => {
                        let kind = entry.metadata.file_type.into();
                        let attributes = Attributes::of_source(&remote, &entry.metadata);
                        let file = RemoteFile { client: client.clone(), handle: entry.handle, remote };
                        Ok(Some(Self { origin: Origin::Remote(file), kind, attributes }))
                    }
                    Err(error) if is_missing(&error) => Ok(None),
                    Err(error) => Err(error).at(remote),
                }
            }
            Origin::Standard => Ok(None),
        }
    }

    /// Reads a small file: its first bytes, at most so many.
    pub(super) async fn read_start(&self, most: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match &self.origin {
            Origin::Local(path) => {
                let file = path.open(false).await.map_err(|error| local(path, &error))?;
                io::Read::read_to_end(&mut io::Read::take(file, most), &mut bytes)
                    .map_err(|error| local(path, &error))?;
            }
            Origin::Remote(RemoteFile { client, handle, remote }) => {
                let file = nfs_wireless_client::File::new(client.clone(), *handle);
                file.take(most).read_to_end(&mut bytes).await.map_err(|error| remote_error(error, remote))?;
            }
            Origin::Standard => {}
        }
        Ok(bytes)
    }

    /// Lists a directory in the order of the names. Of one that is too large to hold this is a part; `rest` leads to the next.
    pub(super) async fn children(
        &self,
        context: Context<'_>,
        rest: &mut Option<Rest>,
        shown: &mut Shown,
    ) -> Result<Vec<(Vec<u8>, Self)>> {
        match &self.origin {
            Origin::Standard => Ok(Vec::new()),
            Origin::Local(path) => self.local_children(path, context, rest, shown),
            Origin::Remote(RemoteFile { client, handle, remote }) => {
                // Its handle is as old as the listing of the directory above.
                let is_begun = rest.is_none();
                let mut listing = match rest.take() {
                    Some(Rest::Remote(rest)) => rest,
                    _ => Box::new(Children::open(client, *handle, remote)?),
                };
                let listed = match listing.next(context).await {
                    Err(error) if is_begun && error.is_stale() => {
                        context.servers.forget(client);
                        let found = find(context, remote).await?;
                        if Attributes::from(&found.metadata).file != self.attributes.file {
                            return Err(error);
                        }
                        listing = Box::new(Children::open(&found.client, found.handle, remote)?);
                        listing.next(context).await?
                    }
                    listed => listed?,
                };
                shown.has_vanished |= listing.has_vanished();
                shown.now = listing.attributes().map(|metadata| Attributes::of_source(remote, metadata));
                *rest = Some(Rest::Remote(listing)).filter(|rest| !rest.is_empty());
                let node = |Child { name, handle, metadata }: Child| {
                    let (client, remote) = (client.clone(), remote.join(&name));
                    let attributes = Attributes::of_source(&remote, &metadata);
                    let origin = Origin::Remote(RemoteFile { client, handle, remote });
                    (name, Self { origin, kind: metadata.file_type.into(), attributes })
                };
                Ok(listed.into_iter().map(node).collect())
            }
        }
    }

    /// As [`Node::children`], of a directory on this machine.
    fn local_children(
        &self,
        path: &SourcePath,
        context: Context<'_>,
        rest: &mut Option<Rest>,
        shown: &mut Shown,
    ) -> Result<Vec<(Vec<u8>, Self)>> {
        let directory = path.enter(self.attributes.file.1).map_err(|error| local(path, &error))?;
        let mut now = Attributes::from(&directory.stat().map_err(|error| local(path, &error))?);
        now.narrow(|| directory.own_list());
        shown.now = Some(now);
        let (mut names, is_first) = match rest.take() {
            Some(Rest::Local(names)) => (names, false),
            _ => {
                let mut names = directory.names().map_err(|error| local(path, &error))?;
                names.sort_unstable();
                (names.into_iter(), true)
            }
        };
        let mut found = Vec::new();
        for name in names.by_ref().take(PART_NAMES) {
            match directory.child(&name) {
                (path, Ok(Some(stat))) => {
                    let node = Self::of(path, &stat, |_| directory.list(&name));
                    found.push((name, node));
                }
                // Removed since it was listed.
                (_, Ok(None)) if is_first => shown.has_vanished = true,
                // That may be long ago, and it may have another name now that was not listed.
                (path, Ok(None)) => {
                    shown.has_vanished = true;
                    let text = format!("{}: removed before it was copied", show(&path));
                    context.events.fail(Error::new(ErrorKind::SourceMissing, text))?;
                }
                (path, Err(error)) => context.events.fail(local(&path, &error))?,
            }
        }
        context.servers.activity().step();
        *rest = Some(Rest::Local(names)).filter(|rest| !rest.is_empty());
        Ok(found)
    }

    /// Reads where a link points to.
    pub(super) async fn read_link(&self) -> Result<Vec<u8>> {
        match &self.origin {
            Origin::Local(path) => path.read_link().map_err(|error| local(path, &error)),
            Origin::Remote(file) => file.client.read_link(file.handle).await.at(&file.remote),
            Origin::Standard => unreachable!("standard input is a file"),
        }
    }
}

impl Rest {
    fn is_empty(&self) -> bool {
        match self {
            Self::Local(names) => names.len() == 0,
            Self::Remote(children) => children.is_done(),
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Local(path) => formatter.write_str(&show(path)),
            Origin::Remote(file) => file.remote.fmt(formatter),
            Origin::Standard => formatter.write_str("standard input"),
        }
    }
}

impl From<Kind> for What {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Directory => Self::Directory,
            Kind::Symlink => Self::Link,
            // What is no file is read as one, if it is copied.
            Kind::File | Kind::Special(_) => Self::File,
        }
    }
}

impl From<FileType> for Kind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::Regular => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            FileType::Fifo => Self::Special(FIFO),
            FileType::Socket => Self::Special("socket"),
            FileType::BlockDevice | FileType::CharacterDevice => Self::Special("device"),
        }
    }
}

impl From<&Metadata> for Attributes {
    fn from(metadata: &Metadata) -> Self {
        let times = Times { accessed: metadata.atime.into(), modified: metadata.mtime.into() };
        let Metadata { mode, uid, gid, size, links, used: stored, fsid, fileid, .. } = *metadata;
        Self {
            mode,
            uid,
            gid,
            size,
            links,
            stored,
            times,
            changed: metadata.ctime.into(),
            file: (fsid, fileid),
            is_lasting: true,
        }
    }
}

impl From<&fs::Metadata> for Attributes {
    fn from(metadata: &fs::Metadata) -> Self {
        let times = Times {
            accessed: system_time(metadata.atime(), metadata.atime_nsec()),
            modified: system_time(metadata.mtime(), metadata.mtime_nsec()),
        };
        Self {
            mode: metadata.mode() & 0o7777,
            uid: metadata.uid(),
            gid: metadata.gid(),
            size: metadata.size(),
            links: u32::try_from(metadata.nlink()).unwrap_or(u32::MAX),
            stored: metadata.blocks().saturating_mul(STAT_BLOCK_BYTES),
            times,
            changed: system_time(metadata.ctime(), metadata.ctime_nsec()),
            file: (metadata.dev(), metadata.ino()),
            is_lasting: false,
        }
    }
}

impl From<&Stat> for Kind {
    fn from(stat: &Stat) -> Self {
        use rustix::fs::FileType;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            FileType::Fifo => Self::Special(FIFO),
            FileType::Socket => Self::Special("socket"),
            _ => Self::Special("device"),
        }
    }
}

impl From<&Stat> for Attributes {
    // The types of the fields differ from system to system.
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
    fn from(stat: &Stat) -> Self {
        let times = Times {
            accessed: system_time(stat.st_atime, stat.st_atime_nsec as i64),
            modified: system_time(stat.st_mtime, stat.st_mtime_nsec as i64),
        };
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        Self {
            mode: u32::from(stat.st_mode) & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size,
            links: stat.st_nlink as u32,
            stored: u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(STAT_BLOCK_BYTES),
            times,
            changed: system_time(stat.st_ctime, stat.st_ctime_nsec as i64),
            file: (stat.st_dev as u64, stat.st_ino as u64),
            is_lasting: false,
        }
    }
}

/// Whether a link so many levels below SRC could lead out of it: only links are looked at by which none does.
pub(super) fn leads_out(target: &[u8], levels: usize) -> bool {
    let parts = components(target);
    let ups = parts.iter().take_while(|part| *part == b"..").count();
    target.starts_with(b"/") || ups > levels || parts[ups..].iter().any(|part| part == b"..")
}

/// The unit of `st_blocks` (stat(3type)).
const STAT_BLOCK_BYTES: u64 = 512;

fn system_time(seconds: i64, nanoseconds: i64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = if seconds < 0 { UNIX_EPOCH - whole } else { UNIX_EPOCH + whole };
    base + Duration::from_nanos(nanoseconds.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, os::unix::fs::FileExt, path::Path};

    use super::*;
    use crate::{event::Event, served};

    #[tokio::test]
    async fn what_was_moved_into_a_directory_is_told_from_what_was_made_there() {
        type Change = fn(&Path);
        let changes: [(&str, Change, bool); 7] = [
            ("nothing", |_| {}, false),
            ("a file is made", |path| fs::write(path.join("new"), "").unwrap(), false),
            ("a file is written", |path| fs::write(path.join("old"), "again").unwrap(), false),
            ("a file is removed", |path| fs::remove_file(path.join("old")).unwrap(), false),
            ("a directory is made", |path| fs::create_dir(path.join("new")).unwrap(), false),
            ("a file arrives", |path| fs::rename(path.join("../file"), path.join("new")).unwrap(), true),
            (
                "a directory arrives",
                |path| fs::rename(path.join("../below"), path.join("new")).unwrap(),
                true,
            ),
        ];
        let servers = served::servers();
        let context = Context { servers: &servers, events: &served::Silent };
        for (what, change, is_moved) in changes {
            let here = tempfile::tempdir().unwrap();
            let path = here.path().join("directory");
            fs::create_dir(&path).unwrap();
            fs::create_dir(here.path().join("below")).unwrap();
            fs::write(path.join("old"), "").unwrap();
            fs::write(here.path().join("file"), "").unwrap();
            // Times have the grain of the kernel's clock.
            std::thread::sleep(Duration::from_millis(20));
            let node = Node::local(path.clone(), false).unwrap();
            change(&path);
            assert_eq!(node.was_moved_into(context).await.unwrap(), is_moved, "{what}");
        }
    }

    #[test]
    fn a_file_that_takes_less_of_its_disk_than_its_size_has_holes() {
        let attributes = |size: u64, content: &[u8]| {
            let file = tempfile::tempfile().unwrap();
            file.set_len(size).unwrap();
            file.write_all_at(content, 0).unwrap();
            file.sync_all().unwrap();
            Attributes::from(&file.metadata().unwrap())
        };
        let (sparse, dense) = (attributes(1 << 20, b"x"), attributes(1 << 20, &vec![1; 1 << 20]));
        assert!(sparse.wants_holes(Sparse::Auto) && !dense.wants_holes(Sparse::Auto));
        assert!(!sparse.wants_holes(Sparse::Never) && dense.wants_holes(Sparse::Always));
        let exact = Attributes { stored: 1 << 20, ..dense };
        assert!(!exact.wants_holes(Sparse::Auto));
    }

    #[test]
    fn links_that_could_lead_out_of_what_is_copied_are_known() {
        for (target, levels, expected) in [
            (&b"beach.jpg"[..], 0, false),
            (b"./below/../../x", 1, true),
            (b"../beach.jpg", 1, false),
            (b"../beach.jpg", 0, true),
            (b"../../x", 1, true),
            (b"/etc/passwd", 3, true),
            // "below" may be a link.
            (b"below/../x", 3, true),
            (b".././../x", 2, false),
            (b"..x/...", 0, false),
            (b"", 0, false),
        ] {
            assert_eq!(leads_out(target, levels), expected, "{} {levels}", target.escape_ascii());
        }
    }

    #[tokio::test]
    async fn a_directory_of_many_names_is_listed_in_parts() {
        let here = tempfile::tempdir().unwrap();
        let count = PART_NAMES + 3;
        (0..count)
            .for_each(|number| drop(fs::File::create(here.path().join(format!("{number:05}"))).unwrap()));
        let servers = served::servers();
        let context = Context { servers: &servers, events: &served::Silent };
        let node = Node::local(here.path().to_path_buf(), false).unwrap();
        let (mut rest, mut shown) = (None, Shown::default());
        let mut names = node.children(context, &mut rest, &mut shown).await.unwrap();
        assert!(names.len() == PART_NAMES && !shown.has_vanished);
        // What has another name by then is missing, which is said.
        let [gone, here_still] =
            [count - 1, count - 2].map(|number| here.path().join(format!("{number:05}")));
        fs::rename(gone, here.path().join("00000-was-last")).unwrap();
        let failed = RefCell::new(Vec::new());
        let tell = |event: &Event<'_>| {
            if let Event::Failed(error) = event {
                failed.borrow_mut().push(error.to_string());
            }
            Ok(())
        };
        let context = Context { servers: &servers, events: &tell };
        names.extend(node.children(context, &mut rest, &mut shown).await.unwrap());
        assert!(names.len() == count - 1 && names.is_sorted_by_key(|(name, _)| name.clone()));
        assert!(shown.has_vanished);
        assert!(rest.is_none() && here_still.exists());
        let failed = failed.into_inner();
        assert!(failed.len() == 1 && failed[0].ends_with("removed before it was copied"), "{failed:?}");
    }
}
