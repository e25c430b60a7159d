//! Files on a server, by path.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt as _, future::join_all, stream};
use nfs_wireless_client::{
    self as client, Client, Entry, Error, FileType, Fs, Metadata, NfsStatus, OpenOptions, Placement,
    Procedure, Range, RangeSet, SetAttributes, SetTime, Sink, Source, TransportChoice, UploadSpec,
    url::{NfsUrl, UrlOptions},
};
use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyBytes, PyDict, PyList},
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    buffer::{Buffer, Memory},
    error::Fault,
    file::{File, download},
    process::{Address, Process},
    waiting::{wait, wait_and},
};

/// Paths that are looked up at once.
const AT_ONCE: usize = 64;

/// Bytes of a file of this machine that has no size, at most: they are held in memory.
const MAX_UNSIZED_BYTES: u64 = 256 << 20;

/// Bytes of a copy from file to file that are on their way at once.
const COPY_BYTES: usize = 1 << 20;

/// A server as it is asked: who asks, over what, and for how long. It has no connection of its own: the process keeps those.
#[pyclass(frozen, module = "nfsw._nfsw")]
#[derive(Clone)]
pub(crate) struct Server {
    address: Address,
    timeout: Option<Duration>,
}

/// Does something with the files of the export that holds a path. Where the server has forgotten its handles, it is mounted again.
pub(crate) async fn with_fs<T, F: Future<Output = Result<T, Error>>>(
    process: &Process,
    server: &Server,
    path: &[u8],
    operation: impl Fn(Fs) -> F,
) -> Result<T, Error> {
    let client = process.client(&server.address, path).await?;
    match operation(Fs::new(client.clone(), "/")).await {
        Err(error) if error.is_stale() => {
            process.forget(&server.address, &client).await;
            let client = process.client(&server.address, path).await?;
            operation(Fs::new(client, "/")).await
        }
        done => done,
    }
}

/// What a server says where a path leads to something else.
pub(crate) const fn refused(status: NfsStatus) -> Error {
    Error::Status { procedure: Procedure::Lookup, status }
}

pub(crate) fn seconds(timeout: Option<f64>) -> PyResult<Option<Duration>> {
    let limit = timeout.map(Duration::try_from_secs_f64).transpose();
    limit.map_err(|_| PyValueError::new_err("a timeout is a number of seconds, and not negative"))
}

pub(crate) fn transport(name: Option<&str>) -> PyResult<TransportChoice> {
    match name {
        None | Some("auto") => Ok(TransportChoice::Auto),
        Some("udp") => Ok(TransportChoice::Udp),
        Some("tcp") => Ok(TransportChoice::Tcp),
        Some(_) => Err(PyValueError::new_err("transport is 'auto', 'udp' or 'tcp'")),
    }
}

/// Returns a path as people read it.
fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

impl Server {
    /// Waits for something that is done with a path.
    fn run<T: Send, F: Future<Output = Result<T, Error>> + Send>(
        &self,
        py: Python<'_>,
        path: &[u8],
        operation: impl Fn(Fs) -> F + Send + Sync,
    ) -> PyResult<T> {
        let process = Process::of_this(py)?;
        let done = wait(py, self.timeout, with_fs(process, self, path, operation))?;
        done.map_err(|error| Fault::of_client(&error, &shown(path)).raise(py))
    }
}

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (host, *, port = None, mountport = None, uid = None, gid = None, rsize = None, wsize = None, transport = None, timeout = None))]
    #[expect(clippy::too_many_arguments, reason = "they are named")]
    fn new(
        host: String,
        port: Option<u16>,
        mountport: Option<u16>,
        uid: Option<u32>,
        gid: Option<u32>,
        rsize: Option<u32>,
        wsize: Option<u32>,
        transport: Option<&str>,
        timeout: Option<f64>,
    ) -> PyResult<Self> {
        let mut options = UrlOptions::default();
        (options.nfs_port, options.mount_port) = (port, mountport);
        (options.uid, options.gid) = (uid, gid);
        (options.read_block, options.write_block) = (rsize, wsize);
        let transport = self::transport(transport)?;
        Ok(Self { address: Address { host, options, transport }, timeout: seconds(timeout)? })
    }

    /// Returns the server that a URL names, and the path on it.
    #[staticmethod]
    #[pyo3(signature = (url, *, uid = None, gid = None, transport = None, timeout = None))]
    fn of_url<'py>(
        py: Python<'py>,
        url: &[u8],
        uid: Option<u32>,
        gid: Option<u32>,
        transport: Option<&str>,
        timeout: Option<f64>,
    ) -> PyResult<(Self, Bound<'py, PyBytes>)> {
        let url = NfsUrl::parse(url).map_err(|error| Fault::usage(error.to_string()).raise(py))?;
        let NfsUrl { host, path, mut options, .. } = url;
        options.uid = options.uid.or(uid);
        options.gid = options.gid.or(gid);
        options.warnings.clear();
        let path = if path.is_empty() { b"/".to_vec() } else { path };
        let transport = self::transport(transport)?;
        let server = Self { address: Address { host, options, transport }, timeout: seconds(timeout)? };
        Ok((server, PyBytes::new(py, &path)))
    }

    /// Opens a file.
    fn open(&self, py: Python<'_>, path: &[u8], name: &str, mode: &str) -> PyResult<File> {
        File::open(py, self, path, name, mode, self.timeout)
    }

    /// Returns a file that is opened by `open_later` or the first operation.
    fn unopened(&self, path: &[u8], name: &str, mode: &str) -> PyResult<File> {
        File::unopened(self, path, name, mode, self.timeout)
    }

    /// Returns what a path leads to, with what a symbolic link says.
    fn info<'py>(&self, py: Python<'py>, path: &[u8]) -> PyResult<Bound<'py, PyDict>> {
        let listed = self.run(py, path, |fs| async move {
            let own = fs.symlink_metadata(path).await?;
            if own.file_type != FileType::Symlink {
                return Ok(Listed { path: path.to_vec(), own, link: None });
            }
            let link = Some(follow(&fs, path).await?);
            Ok(Listed { path: path.to_vec(), own, link })
        })?;
        listed.describe(py, true)
    }

    /// Lists a directory; of a file, the file.
    fn ls<'py>(&self, py: Python<'py>, path: &[u8]) -> PyResult<Bound<'py, PyList>> {
        let all = self.run(py, path, |fs| async move {
            let mut entries = match fs.read_dir(path).await {
                Err(error) if error.status() == Some(NfsStatus::NOTDIR) => {
                    let own = fs.metadata(path).await?;
                    return Ok(vec![Listed { path: path.to_vec(), own, link: None }]);
                }
                entries => entries?,
            };
            let mut all = Vec::new();
            while let Some(entry) = entries.next_entry().await? {
                // What is gone meanwhile is not listed.
                if let Ok(own) = entry.metadata() {
                    all.push(Listed { path: entry.path().to_vec(), own, link: None });
                }
            }
            let is_link = |entry: &Listed| entry.own.file_type == FileType::Symlink;
            let links: Vec<usize> = (0..all.len()).filter(|&at| is_link(&all[at])).collect();
            for some in links.chunks(AT_ONCE) {
                let followed = join_all(some.iter().map(|&at| follow(&fs, &all[at].path))).await;
                for (&at, link) in some.iter().zip(followed) {
                    all[at].link = Some(link?);
                }
            }
            Ok(all)
        })?;
        let list = PyList::empty(py);
        for entry in all {
            list.append(entry.describe(py, false)?)?;
        }
        Ok(list)
    }

    #[pyo3(signature = (path, parents = false))]
    fn mkdir(&self, py: Python<'_>, path: &[u8], parents: bool) -> PyResult<()> {
        self.run(py, path, |fs| async move {
            match fs.create_dir(path).await {
                Err(error) if parents && error.status() == Some(NfsStatus::NOENT) => {
                    fs.create_dir_all(parent(path)).await?;
                    fs.create_dir(path).await
                }
                done => done,
            }
        })
    }

    /// Makes a directory and those above it; one that is there is fine.
    fn makedirs(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.run(py, path, |fs| async move { fs.create_dir_all(path).await })
    }

    fn rmdir(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.run(py, path, |fs| async move { fs.remove_dir(path).await })
    }

    fn rm_file(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.run(py, path, |fs| async move { fs.remove_file(path).await })
    }

    /// Removes a directory and all in it, without following links; a file, too.
    fn rm_tree(&self, py: Python<'_>, path: &[u8]) -> PyResult<()> {
        self.run(py, path, |fs| async move {
            match fs.remove_dir_all(path).await {
                Err(error) if error.status() == Some(NfsStatus::NOTDIR) => fs.remove_file(path).await,
                done => done,
            }
        })
    }

    fn mv(&self, py: Python<'_>, from: &[u8], to: &[u8]) -> PyResult<()> {
        self.run(py, from, |fs| async move { fs.rename(from, to).await })
    }

    /// Gives a file a name in the same directory that nothing has. `EXIST` if something has it.
    fn mv_new(&self, py: Python<'_>, from: &[u8], to: &[u8]) -> PyResult<()> {
        self.run(py, from, |fs| async move {
            let (file, directory) = (fs.entry(from).await?.handle, fs.entry(parent(to)).await?.handle);
            let [from, to] = [from, to].map(name).map(|name| (directory, name));
            match fs.client().rename_if_free(file, from, to).await? {
                true => Ok(()),
                false => Err(refused(NfsStatus::EXIST)),
            }
        })
    }

    /// Makes an empty file, or gives one that is there the server's time.
    fn touch(&self, py: Python<'_>, path: &[u8], truncate: bool) -> PyResult<()> {
        self.run(py, path, |fs| async move {
            let mut options = OpenOptions::new();
            make_above(&fs, path, || async {
                options.clone().write(true).create(true).truncate(truncate).open(&fs, path).await
            })
            .await?;
            options.write(true);
            let now = SetAttributes { mtime: Some(SetTime::ServerTime), ..SetAttributes::default() };
            fs.set_attributes(path, now).await
        })
    }

    /// Copies a file on the server, by way of this machine. `EXIST` if both are one file.
    fn cp_file(&self, py: Python<'_>, from: &[u8], to: &[u8]) -> PyResult<()> {
        self.run(py, from, |fs| async move {
            let (_, source) = regular(&fs, from).await?;
            let there = match fs.entry(to).await {
                Ok(there) => Some(there),
                Err(error) if error.status() == Some(NfsStatus::NOENT) => None,
                Err(error) => return Err(error),
            };
            if there.as_ref().is_some_and(|there| is_one(there, &source)) {
                return Err(refused(NfsStatus::EXIST));
            }
            if there.as_ref().is_some_and(|there| there.metadata.is_dir()) {
                return Err(refused(NfsStatus::ISDIR));
            }
            // Through a symbolic link in place, as `store` does.
            if there.is_some() && fs.symlink_metadata(to).await?.is_symlink() {
                return copy(&fs, from, to).await;
            }
            let name = format!("/.nfsw-put-{:016x}", fastrand::u64(..));
            let temporary = [parent(to), name.as_bytes()].concat();
            let copied = async {
                copy(&fs, from, &temporary).await?;
                if let Some(there) = there {
                    let mode = Some(there.metadata.mode & 0o777);
                    fs.set_attributes(&temporary, SetAttributes { mode, ..SetAttributes::default() }).await?;
                }
                fs.rename(&temporary, to).await
            };
            let copied = copied.await;
            if copied.is_err() {
                let _ = fs.remove_file(&temporary).await;
            }
            copied
        })
    }

    /// Returns the bytes of a file from `start` to `end`; below zero, they count from its end.
    #[pyo3(signature = (path, start = None, end = None))]
    fn cat_file<'py>(
        &self,
        py: Python<'py>,
        path: &[u8],
        start: Option<i64>,
        end: Option<i64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (client, entry) = self.run(py, path, |fs| async move { regular(&fs, path).await })?;
        let range = wanted(start, end, entry.metadata.size);
        let length = usize::try_from(range.end - range.start)?;
        PyBytes::new_with(py, length, |bytes| {
            let memory = Memory::of(bytes);
            let done = wait(py, self.timeout, async {
                if length == 0 {
                    Ok(())
                } else {
                    download(&client, entry.handle, range, [memory, Memory::of(&mut [])]).await
                }
            })?;
            done.map_err(|error| Fault::of_client(&error, &shown(path)).raise(py))
        })
    }

    /// Returns the bytes of many ranges of files, each or an exception, all read at the same time.
    #[pyo3(signature = (ranges))]
    fn cat_ranges<'py>(
        &self,
        py: Python<'py>,
        ranges: Vec<(Vec<u8>, Option<i64>, Option<i64>)>,
    ) -> PyResult<Bound<'py, PyList>> {
        let process = Process::of_this(py)?;
        let mut files = BTreeMap::<&[u8], Vec<(usize, Option<i64>, Option<i64>)>>::new();
        for (index, (path, start, end)) in ranges.iter().enumerate() {
            files.entry(path).or_default().push((index, *start, *end));
        }
        let read = stream::iter(files)
            .map(|(path, wanted)| async move {
                let pieces = with_fs(process, self, path, |fs| pieces(fs, path, &wanted)).await;
                (path, wanted, pieces)
            })
            .buffer_unordered(AT_ONCE)
            .collect::<Vec<_>>();
        let read = wait(py, self.timeout, read)?;
        let mut results: Vec<_> = ranges.iter().map(|_| py.None()).collect();
        for (path, wanted, pieces) in read {
            match pieces {
                Ok(pieces) => {
                    for ((index, ..), piece) in wanted.iter().zip(pieces.cut()) {
                        results[*index] = PyBytes::new(py, piece).into_any().unbind();
                    }
                }
                Err(error) => {
                    let fault = Fault::of_client(&error, &shown(path));
                    for (index, ..) in wanted {
                        results[index] = fault.raise(py).into_value(py).into_any();
                    }
                }
            }
        }
        PyList::new(py, results)
    }

    /// Writes a file whole: it gets its name when all is on stable storage.
    #[pyo3(signature = (path, value, create = false))]
    fn pipe_file(&self, py: Python<'_>, path: &[u8], value: &Bound<'_, PyAny>, create: bool) -> PyResult<()> {
        let value = Buffer::of(value)?;
        let bytes: Arc<[u8]> = value.memory().bytes().into();
        let size = bytes.len() as u64;
        let store = |fs: Fs| {
            let source = Held(Arc::clone(&bytes));
            async move { store(&fs, path, source, size, create, None).await }
        };
        self.run(py, path, store)
    }

    /// Copies a local file here: it gets its name when all is on stable storage. `progress` is called with bytes more.
    #[pyo3(signature = (local, path, create = false, progress = None))]
    fn put_file(
        &self,
        py: Python<'_>,
        local: PathBuf,
        path: &[u8],
        create: bool,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let file = std::fs::File::open(&local)?;
        let metadata = file.metadata()?;
        let size = metadata.len();
        if size == 0 && metadata.is_file() {
            // What lies on no disk may have bytes all the same, as in /proc.
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut std::io::Read::take(&file, MAX_UNSIZED_BYTES + 1), &mut bytes)?;
            let size = bytes.len() as u64;
            if size > MAX_UNSIZED_BYTES {
                return Err(std::io::Error::from(std::io::ErrorKind::FileTooLarge).into());
            }
            let bytes = bytes::Bytes::from(bytes);
            self.run(py, path, |fs| {
                let bytes = bytes.clone();
                async move { store(&fs, path, bytes, size, create, None).await }
            })?;
            return Ok(size);
        }
        let moved = Moved::default();
        let upload = |fs: Fs| {
            let (file, observer) = (file.try_clone(), moved.observer());
            async move {
                let file = file.map_err(Error::from)?;
                store(&fs, path, file, size, create, Some(observer)).await
            }
        };
        let process = Process::of_this(py)?;
        let done = with_fs(process, self, path, upload);
        let done = wait_and(py, self.timeout, done, |_| moved.tell(progress))?;
        done.map_err(|error| Fault::of_client(&error, &shown(path)).raise(py))?;
        moved.tell(progress)?;
        Ok(size)
    }

    /// Copies a file to this machine. `progress` is called with bytes more, and `sized` with the size before.
    #[pyo3(signature = (path, local, progress = None, sized = None))]
    fn get_file(
        &self,
        py: Python<'_>,
        path: &[u8],
        local: PathBuf,
        progress: Option<&Bound<'_, PyAny>>,
        sized: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let (client, entry) = self.run(py, path, |fs| async move { regular(&fs, path).await })?;
        let Entry { handle, metadata: Metadata { size, .. } } = entry;
        if let Some(sized) = sized {
            sized.call1((size,))?;
        }
        if size == 0 {
            // What lies on no disk of the server may have bytes all the same.
            let bytes = self.run(py, path, |fs| async move { fs.read(path).await })?;
            std::fs::write(&local, &bytes)?;
            return Ok(bytes.len() as u64);
        }
        let target = std::fs::File::create(&local)?;
        let moved = Moved::default();
        let done = client.download(handle, size, target, Some(moved.observer()));
        let done = wait_and(py, self.timeout, done, |_| moved.tell(progress))?;
        done.map_err(|error| Fault::of_client(&error, &shown(path)).raise(py))?;
        moved.tell(progress)?;
        Ok(size)
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<((String,), Bound<'py, PyDict>)> {
        let Address { host, options, transport } = &self.address;
        let named = PyDict::new(py);
        named.set_item("port", options.nfs_port)?;
        named.set_item("mountport", options.mount_port)?;
        named.set_item("uid", options.uid)?;
        named.set_item("gid", options.gid)?;
        named.set_item("rsize", options.read_block)?;
        named.set_item("wsize", options.write_block)?;
        let transport = match transport {
            TransportChoice::Auto => "auto",
            TransportChoice::Udp => "udp",
            TransportChoice::Tcp => "tcp",
        };
        named.set_item("transport", transport)?;
        named.set_item("timeout", self.timeout.map(|limit| limit.as_secs_f64()))?;
        Ok(((host.clone(),), named))
    }
}

/// Something with a path, and where it leads if it is a symbolic link.
struct Listed {
    path: Vec<u8>,
    own: Metadata,
    link: Option<(Vec<u8>, Option<Metadata>)>,
}

/// Returns where a symbolic link points, and what is there, if anything is.
async fn follow(fs: &Fs, path: &[u8]) -> Result<(Vec<u8>, Option<Metadata>), Error> {
    let target = fs.read_link(path).await?;
    match fs.metadata(path).await {
        Ok(there) => Ok((target, Some(there))),
        // It leads nowhere.
        Err(error) if error.status().is_some() || matches!(error, Error::Local(_)) => Ok((target, None)),
        Err(error) => Err(error),
    }
}

impl Listed {
    /// Describes it as fsspec does. A link counts as what it leads to; to a directory it counts as one only where `enters` says so, as a tree
    /// is not to be walked or removed through it.
    fn describe<'py>(&self, py: Python<'py>, enters: bool) -> PyResult<Bound<'py, PyDict>> {
        let there = self.link.as_ref().map_or(Some(self.own), |(_, there)| *there);
        let seen = there.filter(|there| self.link.is_none() || enters || !there.is_dir());
        let info = PyDict::new(py);
        let path = match &self.path[..] {
            [path @ .., b'/'] if !path.is_empty() => path,
            path => path,
        };
        info.set_item("name", OsStr::from_bytes(path))?;
        let kind = match seen.map(|seen| seen.file_type) {
            Some(FileType::Regular) => "file",
            Some(FileType::Directory) => "directory",
            None => "link",
            Some(_) => "other",
        };
        let Metadata { size, mode, uid, gid, mtime, ctime, fileid, links, .. } = seen.unwrap_or(self.own);
        info.set_item("size", if kind == "directory" { 0 } else { size })?;
        info.set_item("type", kind)?;
        info.set_item("mode", mode)?;
        info.set_item("uid", uid)?;
        info.set_item("gid", gid)?;
        for (name, time) in [("mtime", mtime), ("ctime", ctime)] {
            info.set_item(name, f64::from(time.seconds) + f64::from(time.nanoseconds) / 1e9)?;
        }
        info.set_item("ino", fileid)?;
        info.set_item("nlink", links)?;
        info.set_item("islink", self.link.is_some())?;
        if let Some((target, _)) = &self.link {
            info.set_item("destination", OsStr::from_bytes(target))?;
        }
        Ok(info)
    }
}

/// Returns the directory that holds a path.
fn parent(path: &[u8]) -> &[u8] {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let end = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    &path[..end.max(1)]
}

/// Returns the last name of a path; that of a directory with a slash at its end is empty.
fn name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// Makes something at a path, and before it the directories above that are missing.
async fn make_above<T, F: Future<Output = Result<T, Error>>>(
    fs: &Fs,
    path: &[u8],
    make: impl Fn() -> F,
) -> Result<T, Error> {
    match make().await {
        Err(error) if error.status() == Some(NfsStatus::NOENT) => {
            fs.create_dir_all(parent(path)).await?;
            make().await
        }
        done => done,
    }
}

/// Returns a file that can be read, with its client.
async fn regular(fs: &Fs, path: &[u8]) -> Result<(Client, Entry), Error> {
    let entry = fs.entry(path).await?;
    if entry.metadata.is_dir() {
        return Err(refused(NfsStatus::ISDIR));
    }
    Ok((fs.client().clone(), entry))
}

/// Returns the range that two ends mean, as slices of Python do.
fn wanted(start: Option<i64>, end: Option<i64>, size: u64) -> Range {
    let place = |at: i64| {
        let at = if at < 0 { size.saturating_sub(at.unsigned_abs()) } else { at.unsigned_abs() };
        at.min(size)
    };
    let start = start.map_or(0, place);
    Range { start, end: end.map_or(size, place).max(start) }
}

/// Ranges of one file that were read.
struct Pieces {
    wanted: Vec<Range>,
    read: Vec<Run>,
}

/// Bytes that follow each other.
#[derive(Default)]
struct Run {
    start: u64,
    bytes: Vec<u8>,
}

/// Reads ranges of a file, no byte twice.
async fn pieces(fs: Fs, path: &[u8], ends: &[(usize, Option<i64>, Option<i64>)]) -> Result<Pieces, Error> {
    let (client, Entry { handle, metadata }) = regular(&fs, path).await?;
    let wanted: Vec<_> = ends.iter().map(|(_, start, end)| wanted(*start, *end, metadata.size)).collect();
    let mut set = RangeSet::new();
    wanted.iter().for_each(|range| set.insert(*range));
    let run = |run: Range| Run { start: run.start, bytes: vec![0; (run.end - run.start) as usize] };
    let runs: Vec<_> = set.iter().map(run).collect();
    let is_empty = runs.is_empty();
    let runs = Arc::new(Mutex::new(runs));
    if !is_empty {
        client.download_ranges(handle, set, Gather(Arc::clone(&runs)), None).await?;
    }
    let read = std::mem::take(&mut *runs.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Pieces { wanted, read })
}

impl Pieces {
    /// Returns the bytes of each range.
    fn cut(&self) -> impl Iterator<Item = &[u8]> {
        self.wanted.iter().map(|range| {
            let at = self.read.partition_point(|run| run.start <= range.start).checked_sub(1);
            let Some(run) = at.map(|at| &self.read[at]).filter(|_| range.start < range.end) else {
                return &[][..];
            };
            &run.bytes[(range.start - run.start) as usize..(range.end - run.start) as usize]
        })
    }
}

/// Takes the bytes of several ranges.
struct Gather(Arc<Mutex<Vec<Run>>>);

impl Sink for Gather {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = runs.partition_point(|run| run.start <= offset).checked_sub(1);
        let run = at.and_then(|at| runs.get_mut(at)).ok_or(std::io::ErrorKind::InvalidInput)?;
        let start = (offset - run.start) as usize;
        let place = run.bytes.get_mut(start..start + bytes.len()).ok_or(std::io::ErrorKind::InvalidInput)?;
        place.copy_from_slice(bytes);
        Ok(())
    }
}

/// Bytes to be written.
struct Held(Arc<[u8]>);

impl Source for Held {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = self.0.get(start..start.saturating_add(buffer.len()));
        buffer.copy_from_slice(bytes.ok_or(std::io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Whether two entries are one file.
fn is_one(one: &Entry, other: &Entry) -> bool {
    let number = |it: &Entry| (it.metadata.fsid, it.metadata.fileid);
    one.handle == other.handle || number(one) == number(other)
}

/// Copies what is in a file into another one, which is made or emptied.
async fn copy(fs: &Fs, from: &[u8], to: &[u8]) -> Result<(), Error> {
    let mut source = fs.open(from).await?;
    let mut target = make_above(fs, to, || fs.create(to)).await?;
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        let count = source.read(&mut buffer).await?;
        if count == 0 {
            return target.sync_all().await;
        }
        target.write_all(&buffer[..count]).await?;
    }
}

/// Writes a file whole, under a temporary name that becomes its own; through a symbolic link in place.
async fn store(
    fs: &Fs,
    path: &[u8],
    source: impl Source + 'static,
    size: u64,
    create: bool,
    observer: Option<client::Observer>,
) -> Result<(), Error> {
    let client = fs.client();
    let name = name(path);
    if !client::is_plain_name(name) {
        return Err(refused(NfsStatus::ISDIR));
    }
    let directory = make_above(fs, path, || fs.entry(parent(path))).await?;
    if !directory.metadata.is_dir() {
        return Err(refused(NfsStatus::NOTDIR));
    }
    let directory = directory.handle;
    let there = match client.lookup(directory, name).await {
        Ok(there) => Some(there.metadata),
        Err(error) if error.status() == Some(NfsStatus::NOENT) => None,
        Err(error) => return Err(error),
    };
    let temporary = format!(".nfsw-put-{:016x}", fastrand::u64(..)).into_bytes();
    let mut spec = UploadSpec::new(directory, name, Placement::Temporary(temporary.clone()), size);
    match there {
        Some(_) if create => return Err(refused(NfsStatus::EXIST)),
        Some(there) if there.is_dir() => return Err(refused(NfsStatus::ISDIR)),
        Some(there) if there.is_symlink() => {
            let file = fs.create(path).await?;
            spec.placement = Placement::Existing(file.handle());
        }
        Some(there) => spec.mode = there.mode & 0o777,
        None => {}
    }
    // What gets the name meanwhile is not replaced where the file is to be new.
    spec.gets_name = !create;
    let made = client.upload(spec, source, observer).await?;
    if create && !client.rename_if_free(made.file, (directory, &temporary), (directory, name)).await? {
        client.remove(directory, &temporary).await?;
        return Err(refused(NfsStatus::EXIST));
    }
    Ok(())
}

/// Bytes that a transfer has moved, and how many of them were told.
#[derive(Default)]
struct Moved {
    bytes: Arc<AtomicU64>,
    told: AtomicU64,
}

impl Moved {
    fn observer(&self) -> client::Observer {
        let bytes = Arc::clone(&self.bytes);
        Arc::new(move |more| _ = bytes.fetch_add(more, Ordering::Relaxed))
    }

    /// Tells the bytes that came since it did so last.
    fn tell(&self, progress: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let more = bytes - self.told.swap(bytes, Ordering::Relaxed);
        match progress {
            Some(progress) if more > 0 => progress.call1((more,)).map(drop),
            _ => Ok(()),
        }
    }
}
