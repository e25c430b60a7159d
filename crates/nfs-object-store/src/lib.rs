//! [`object_store::ObjectStore`] on an NFSv3 server: no mount, UDP and TCP, made for bad links.
//!
//! ```no_run
//! use nfs_object_store::NfsObjectStore;
//! use nfs_wireless_client::ClientConfig;
//! use object_store::{ObjectStoreExt, path::Path};
//!
//! # async fn example() -> object_store::Result<()> {
//! let store = NfsObjectStore::connect("fileserver", b"/srv/lake", ClientConfig::default()).await?;
//! let footer = store.get_range(&Path::from("sales/2026.parquet"), 4096..8192).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Objects and files
//!
//! An object is a regular file below one directory of the server, the root of the store. The parts of
//! a [`Path`] are the names of directories and file, byte for byte: `a/b%2Fc` is the
//! file `b%2Fc` in the directory `a`, as with `object_store`'s own `LocalFileSystem`. No path leads
//! out of the root: `.`, `..` and `/` cannot be parts of a `Path`, and symbolic links are not followed.
//!
//! | what is there | as an object |
//! |---|---|
//! | regular file | an object |
//! | directory, empty or not | a prefix; `delete` leaves it when its last object is gone |
//! | symbolic link, device, socket, pipe | not listed and not found; `put` replaces it |
//! | name that is no UTF-8, or has control characters | listing its directory is an error that names it |
//! | name that begins with `.nfs-object-store.` | an unfinished `put`: not listed, not found, not written |
//!
//! # What is promised
//!
//! - **A reader sees the old object or the new one, whole.** An object is written to a temporary name
//!   beside its own, brought to stable storage, and then renamed (RFC 1813 §3.3.14). A reader of an
//!   object that is replaced or removed meanwhile gets its bytes or an
//!   [`Error::Precondition`](object_store::Error::Precondition), never a mixture. So does a reader of a
//!   file that somebody else writes in place, as far as size and time of last change show it.
//! - **Done is stable.** When `put`, `complete`, `copy`, `rename` or `delete` returns `Ok`, its effect is
//!   on the server's stable storage.
//! - **`Create` is atomic**, for `put`, `copy` and `rename`: LINK gives the complete file its name and
//!   fails when there is one (RFC 1813 §3.3.15). Of many writers at most one succeeds. Where a lost reply
//!   leaves it open which of those that copy or rename the same object that was, each gets an error that
//!   says so. A server without LINK answers [`Error::NotSupported`](object_store::Error::NotSupported).
//! - **A listing is whole, or an error.** A directory is left out only if its name is gone. A handle that
//!   the server does not know any more is looked up again once; a name that the server lists and does not
//!   find is an error.
//! - **Reads cross the link once.** A range reads its own bytes only, with many READs in flight;
//!   `get_ranges` reads all its ranges at the same time. A path of n parts takes n LOOKUPs first, one
//!   after the other.
//! - **Every future may be dropped.** A `put` or `copy` that is dropped removes its temporary name in the
//!   background, if a Tokio runtime still runs there and the server answers within a minute; the target is the old object or the new one. So it is
//!   after a `rename` that is dropped, and the object has its old name or its new one, or both where that is
//!   said below. What a program leaves that is killed begins with `.nfs-object-store.` and may be removed when
//!   nobody writes.
//!
//! # ETags
//!
//! An ETag is made of file number, size, mtime and ctime. A change of the bytes changes it, if the
//! server's clock ticks between two changes in place. It also changes when a file is copied (the copy
//! is a LINK), renamed, or given another mode: a condition may fail for nothing, but does not hold by
//! mistake.
//!
//! # Copies
//!
//! `copy` is a LINK, so that no byte crosses the network: both names are the same file until one of them
//! is replaced. Writers that write files in place, outside of this crate, change both. Where the server
//! refuses the LINK (across file systems, or because it offers none), the bytes are read and written.
//!
//! # What NFSv3 cannot do
//!
//! | what | answer | reason |
//! |---|---|---|
//! | `PutMode::Update` | `NotImplemented` | NFSv3 cannot rename only if the target is still the same file |
//! | attributes (content type, metadata) | `NotImplemented` | NFSv3 files have no such attributes |
//! | tags | ignored, as the trait asks | |
//! | `GetOptions::version` | `NotImplemented` | an NFSv3 server keeps one version |
//! | `MultipartStore`, `PaginatedListStore`, `Signer` | not offered | they speak of uploads, pages and URLs that a server keeps; an NFSv3 server keeps files |
//! | `rename` with `Create` | two steps | LINK, then REMOVE: between them, or after a failure or when it is dropped, both names are there |
//! | `rename` to another name of the same object | two steps | RENAME does nothing then (RFC 1813 §3.3.14), and REMOVE follows: likewise; also where the target becomes such a name right before the RENAME |

#![forbid(unsafe_code)]

mod error;
mod list;
mod locate;
mod multipart;
mod read;
mod stage;
mod write;

use std::{fmt, ops::Range};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream::BoxStream};
use nfs_wireless_client::{Client, ClientConfig, FileHandle, FileType};
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result, path::Path,
};

/// What the names of unfinished writes begin with.
pub(crate) const STAGING: &str = ".nfs-object-store.";

/// The name of this store in errors.
const STORE: &str = "NFS";

/// Deletions of one stream at the same time.
const DELETIONS: usize = 10;

/// The files below a directory of an NFSv3 server as objects. Cheap to clone.
#[derive(Clone)]
pub struct NfsObjectStore {
    client: Client,
    root: FileHandle,
    file_mode: u32,
    directory_mode: u32,
}

impl NfsObjectStore {
    /// Connects to `host` and opens the directory with the absolute path `path` as root.
    ///
    /// # Errors
    /// [`object_store::Error`]: what could not be reached or found, or who refused.
    pub async fn connect(host: &str, path: &[u8], config: ClientConfig) -> Result<Self> {
        let location = String::from_utf8_lossy(path);
        let client = Client::connect(host, path, config).await.map_err(|e| error::explain(e, &location))?;
        let root = client.resolve(path).await.map_err(|e| error::explain(e, &location))?;
        if root.metadata.file_type != FileType::Directory {
            return Err(error::NotADirectory.at(&location));
        }
        Ok(Self::new(client, root.handle))
    }

    /// Opens a directory of a connected client as root.
    pub const fn new(client: Client, root: FileHandle) -> Self {
        Self { client, root, file_mode: 0o644, directory_mode: 0o755 }
    }

    /// Gives new files and directories these permission bits. Default: `0o644` and `0o755`.
    #[must_use]
    pub const fn with_modes(mut self, file: u32, directory: u32) -> Self {
        (self.file_mode, self.directory_mode) = (file, directory);
        self
    }

    /// Returns the client: its counters, its transport, and [`Client::link_event`].
    pub const fn client(&self) -> &Client {
        &self.client
    }
}

#[async_trait]
impl ObjectStore for NfsObjectStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.put_object(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        multipart::begin(self, location, &options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.get_object(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.read_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let delete = move |location: Result<Path>| {
            let store = store.clone();
            async move {
                let location = location?;
                store.delete_object(&location).await?;
                Ok(location)
            }
        };
        locations.map(delete).buffered(DELETIONS).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        list::walk(self.clone(), prefix.cloned().unwrap_or_default())
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        list::one_level(self, &prefix.cloned().unwrap_or_default()).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.copy_object(from, to, options.mode).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.rename_object(from, to, options.target_mode).await
    }
}

impl fmt::Display for NfsObjectStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = String::from_utf8_lossy(self.client.export());
        write!(formatter, "NfsObjectStore({}, export {export})", self.client.address())
    }
}

impl fmt::Debug for NfsObjectStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, root, .. } = self;
        formatter
            .debug_struct("NfsObjectStore")
            .field("client", client)
            .field("root", root)
            .finish_non_exhaustive()
    }
}
