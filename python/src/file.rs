//! An open file: what Python's buffers stand on.

use std::{
    io::SeekFrom,
    sync::{
        Arc, Mutex as BriefMutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use nfs_wireless_client::{
    self as client, Client, Entry, Error, FileHandle, OpenOptions, Range, RangeSet, Sink,
};
use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyBytes, PyDict},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _},
    sync::Mutex,
};

use crate::{
    buffer::{Buffer, Lent, Memory},
    error::Fault,
    process::{Owned, Process},
    server::{Server, with_fs},
    waiting::{begin, wait},
};

/// Reads from this size on are transfers of exactly these bytes, with many READs in flight. Shorter ones read ahead where they continue
/// the one before.
const TRANSFER_BYTES: usize = 256 << 10;

/// Bytes of Python's buffers, unless it is said. A buffer reads what is long in two steps: as many whole buffers as there are in it, and
/// then one for the rest.
pub(crate) const BUFFER_BYTES: usize = 16 << 10;

/// Bytes read at once where it is not known how many there are.
const UNKNOWN_BYTES: usize = 64 << 10;

/// How a file is opened: the letters of `open`, without those for text and binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    reads: bool,
    writes: bool,
    appends: bool,
    truncates: bool,
    creates: bool,
    creates_new: bool,
}

impl Mode {
    const READ: Self = Self {
        reads: true,
        writes: false,
        appends: false,
        truncates: false,
        creates: false,
        creates_new: false,
    };

    fn parse(letters: &str) -> PyResult<Self> {
        let wrong = || PyValueError::new_err(format!("invalid mode: {letters:?}"));
        let first = letters.chars().next().ok_or_else(wrong)?;
        let mut mode = match first {
            'r' => Self::READ,
            'w' => Self { reads: false, writes: true, truncates: true, creates: true, ..Self::READ },
            'a' => Self { reads: false, writes: true, appends: true, creates: true, ..Self::READ },
            'x' => Self { reads: false, writes: true, creates_new: true, ..Self::READ },
            _ => return Err(wrong()),
        };
        match &letters[1..] {
            "" => {}
            "+" => (mode.reads, mode.writes) = (true, true),
            _ => return Err(wrong()),
        }
        Ok(mode)
    }
}

/// What is opened, and what is known of it.
struct Core {
    server: Server,
    path: Vec<u8>,
    name: String,
    mode: Mode,
    /// The position of the next read or write.
    position: AtomicU64,
    /// Operations of this process that use the state.
    running: AtomicU32,
    state: Mutex<Option<State>>,
}

/// A file that is open on the server.
struct State {
    client: Client,
    handle: FileHandle,
    file: client::File,
    /// Its size when somebody asked last.
    size: u64,
    /// Where writes go, if they append.
    end: u64,
    /// Where the last read ended.
    read_end: u64,
    /// What was read beyond the last transfer, and where that begins: the rest of what a buffer is asked for, which would take another
    /// round trip.
    rest: (u64, Vec<u8>),
}

impl Core {
    fn new(server: &Server, path: &[u8], name: &str, mode: Mode, position: u64) -> Self {
        let (running, state) = Default::default();
        let (server, path, name) = (server.clone(), path.to_vec(), name.to_owned());
        Self { server, path, name, mode, position: AtomicU64::new(position), running, state }
    }

    fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    fn go_to(&self, position: u64) {
        self.position.store(position, Ordering::Relaxed);
    }

    /// Opens it, if it is not open.
    async fn open<'a>(
        &self,
        process: &Process,
        state: &'a mut Option<State>,
    ) -> Result<&'a mut State, Error> {
        if state.is_none() {
            let Mode { reads, writes, appends, truncates, creates, creates_new } = self.mode;
            let path = &self.path[..];
            *state = Some(
                with_fs(process, &self.server, path, |fs| async move {
                    if !writes {
                        let Entry { handle, metadata } = fs.entry(path).await?;
                        if metadata.is_dir() {
                            return Err(crate::server::refused(client::NfsStatus::ISDIR));
                        }
                        let client = fs.client().clone();
                        let file = client::File::new(client.clone(), handle);
                        let rest = Default::default();
                        return Ok(State {
                            client,
                            handle,
                            file,
                            size: metadata.size,
                            end: 0,
                            read_end: 0,
                            rest,
                        });
                    }
                    let mut options = OpenOptions::new();
                    options
                        .read(reads)
                        .write(true)
                        .truncate(truncates)
                        .create(creates)
                        .create_new(creates_new);
                    let mut file = options.open(&fs, path).await?;
                    let end = if appends { file.seek(SeekFrom::End(0)).await? } else { 0 };
                    let (client, handle, rest) = (fs.client().clone(), file.handle(), Default::default());
                    Ok(State { client, handle, file, size: end, end, read_end: 0, rest })
                })
                .await?,
            );
            if appends {
                self.go_to(state.as_ref().map_or(0, |state| state.end));
            }
        }
        Ok(state.as_mut().expect("it was opened just now"))
    }

    /// Reads into memory until it is full or the file ends. What is interrupted leaves the position where it was.
    async fn read(&self, process: &Process, memory: Memory) -> Result<usize, Error> {
        let mut state = self.state.lock().await;
        let writes = self.mode.writes;
        let state = self.open(process, &mut state).await?;
        let start = self.position();
        let mut done = state.take_rest(start, memory);
        let left = memory.len() - done;
        let goes_on = done > 0 || start == state.read_end;
        if !writes && (left >= TRANSFER_BYTES || left > BUFFER_BYTES && !goes_on) {
            done += state.transfer(start + done as u64, memory.part(done, usize::MAX)).await?;
        }
        if done < memory.len() && done < TRANSFER_BYTES {
            let from = start + done as u64;
            let buffer = memory.part(done, usize::MAX).bytes_mut();
            done += read_some(&mut state.file, from, buffer).await?;
        }
        state.read_end = start + done as u64;
        self.go_to(start + done as u64);
        Ok(done)
    }

    /// Writes all bytes. What is interrupted leaves the position where it was, so that they can be written there again.
    async fn write(&self, process: &Process, memory: Memory) -> Result<usize, Error> {
        let mut state = self.state.lock().await;
        let state = self.open(process, &mut state).await?;
        let start = if self.mode.appends { state.end } else { self.position() };
        state.file.seek(SeekFrom::Start(start)).await?;
        state.file.write_all(memory.bytes()).await?;
        let end = start + memory.len() as u64;
        if self.mode.appends {
            state.end = end;
        }
        self.go_to(end);
        Ok(memory.len())
    }

    async fn size(&self, process: &Process) -> Result<u64, Error> {
        let mut state = self.state.lock().await;
        let writes = self.mode.writes;
        let state = self.open(process, &mut state).await?;
        if writes {
            // What is not written yet may be behind the end.
            return Ok(state.file.seek(SeekFrom::End(0)).await?);
        }
        state.size = state.client.metadata(state.handle).await?.size;
        Ok(state.size)
    }

    async fn truncate(&self, process: &Process, size: u64) -> Result<(), Error> {
        let mut state = self.state.lock().await;
        let state = self.open(process, &mut state).await?;
        state.file.set_len(size).await?;
        state.end = size;
        Ok(())
    }

    async fn flush(&self) -> Result<(), Error> {
        match &mut *self.state.lock().await {
            Some(state) if self.mode.writes => state.file.sync_all().await,
            _ => Ok(()),
        }
    }

    async fn close(&self) -> Result<(), Error> {
        let mut state = self.state.lock().await;
        let flushed = match &mut *state {
            Some(state) if self.mode.writes => state.file.sync_all().await,
            _ => Ok(()),
        };
        *state = None;
        flushed
    }
}

/// Reads what is there without waiting for more than the first bytes; 0 is the end of the file.
async fn read_some(file: &mut client::File, from: u64, buffer: &mut [u8]) -> Result<usize, Error> {
    file.seek(SeekFrom::Start(from)).await?;
    let mut done = 0;
    while done < buffer.len() {
        match file.read(&mut buffer[done..]).await? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

impl State {
    /// Copies what was read beyond the last transfer, if that begins here.
    fn take_rest(&mut self, start: u64, memory: Memory) -> usize {
        let (from, bytes) = std::mem::take(&mut self.rest);
        if from != start {
            return 0;
        }
        let count = bytes.len().min(memory.len());
        memory.part(0, count).bytes_mut().copy_from_slice(&bytes[..count]);
        count
    }

    /// Reads exactly the bytes that the file has there; and the rest, if this may be the first step of a buffer.
    async fn transfer(&mut self, start: u64, memory: Memory) -> Result<usize, Error> {
        let is_of_buffer = memory.len().is_multiple_of(BUFFER_BYTES);
        let wanted = start.saturating_add(memory.len() as u64);
        if wanted > self.size {
            self.size = self.client.metadata(self.handle).await?.size;
        }
        let end = wanted.min(self.size);
        if start >= end {
            return Ok(0);
        }
        let beyond = if is_of_buffer { BUFFER_BYTES as u64 } else { 0 }.min(self.size - end);
        let mut rest = vec![0; beyond as usize];
        let range = Range { start, end: end + beyond };
        let (client, file) = (&self.client, self.handle);
        download(client, file, range, [memory.part(0, (end - start) as usize), Memory::of(&mut rest)])
            .await?;
        self.rest = (end, rest);
        Ok((end - start) as usize)
    }
}

/// Reads a range of a file into two pieces of memory, one after the other, which nobody writes into after this has ended or was dropped.
pub(crate) async fn download(
    client: &Client,
    file: FileHandle,
    range: Range,
    [first, second]: [Memory; 2],
) -> Result<(), Error> {
    let split = first.len();
    let ((first, _first_taken), (second, _second_taken)) = (Lent::new(first), Lent::new(second));
    let mut ranges = RangeSet::new();
    ranges.insert(range);
    let target = Target { start: range.start, split, first, second };
    client.download_ranges(file, ranges, target, None).await.map(drop)
}

/// Takes the bytes of a transfer into memory.
struct Target {
    start: u64,
    /// Bytes that go into the first piece.
    split: usize,
    first: Lent,
    second: Lent,
}

impl Sink for Target {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        let offset = usize::try_from(offset - self.start).unwrap_or(usize::MAX);
        let (first, second) = bytes.split_at(self.split.saturating_sub(offset).min(bytes.len()));
        let is_written = (first.is_empty() || self.first.write(offset, first))
            && (second.is_empty() || self.second.write(offset.max(self.split) - self.split, second));
        if is_written { Ok(()) } else { Err(std::io::ErrorKind::Interrupted.into()) }
    }
}

/// A file on a server, without a buffer: `nfsw.open` makes it.
#[pyclass(frozen, module = "nfsw._nfsw")]
pub(crate) struct File {
    /// Locked by threads that are attached alone, so that no child of a fork finds it locked.
    core: BriefMutex<Owned<Arc<Core>>>,
    is_closed: AtomicBool,
    timeout: Option<Duration>,
}

impl File {
    pub(crate) fn open(
        py: Python<'_>,
        server: &Server,
        path: &[u8],
        name: &str,
        mode: &str,
        timeout: Option<Duration>,
    ) -> PyResult<Self> {
        let file = Self::unopened(server, path, name, mode, timeout)?;
        file.run(py, |core, process| async move {
            core.open(process, &mut *core.state.lock().await).await.map(drop)
        })?;
        Ok(file)
    }

    /// Returns a file that the first operation opens.
    pub(crate) fn unopened(
        server: &Server,
        path: &[u8],
        name: &str,
        mode: &str,
        timeout: Option<Duration>,
    ) -> PyResult<Self> {
        let core = Core::new(server, path, name, Mode::parse(mode)?, 0);
        let core = BriefMutex::new(Owned::new(Arc::new(core)));
        Ok(Self { core, is_closed: AtomicBool::new(false), timeout })
    }

    /// Returns what this process has open. What its parent has open to be read is opened again; what it writes is the parent's.
    fn core(&self, py: Python<'_>) -> PyResult<Arc<Core>> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(PyValueError::new_err("I/O operation on closed file."));
        }
        let mut owned = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(core) = owned.ours() {
            return Ok(Arc::clone(core));
        }
        let Core { server, path, name, mode, position, .. } = &**owned.anyones();
        if mode.writes {
            let why = "opened for writing by the parent of this process, which goes on writing it";
            return Err(Fault::of_number(libc::EBADF, why, name).raise(py));
        }
        let core = Arc::new(Core::new(server, path, name, *mode, position.load(Ordering::Relaxed)));
        owned.replace(Arc::clone(&core));
        Ok(core)
    }

    /// Waits for an operation.
    fn run<T: Send, F>(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(Arc<Core>, &'static Process) -> F,
    ) -> PyResult<T>
    where
        F: Future<Output = Result<T, Error>> + Send,
    {
        let core = self.core(py)?;
        let process = Process::of_this(py)?;
        core.running.fetch_add(1, Ordering::Relaxed);
        let done = wait(py, self.timeout, operation(Arc::clone(&core), process));
        core.running.fetch_sub(1, Ordering::Relaxed);
        done?.map_err(|error| Fault::of_client(&error, &core.name).raise(py))
    }

    /// Begins an operation for a coroutine.
    fn begin<'py, T: Send + 'static, F>(
        &self,
        py: Python<'py>,
        operation: impl FnOnce(Arc<Core>, &'static Process) -> F,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Bound<'py, PyAny>>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let core = self.core(py)?;
        let name = core.name.clone();
        let future = operation(core, Process::of_this(py)?);
        begin(py, self.timeout, future, move |py, done| {
            convert(py, done.map_err(|error| Fault::of_client(&error, &name).raise(py))?)
        })
    }
}

fn none(py: Python<'_>, (): ()) -> PyResult<Py<PyAny>> {
    Ok(py.None())
}

fn number(py: Python<'_>, number: u64) -> PyResult<Py<PyAny>> {
    Ok(number.into_pyobject(py)?.into_any().unbind())
}

/// Returns where a seek leads.
fn target(from: u64, offset: i64) -> PyResult<u64> {
    from.checked_add_signed(offset).ok_or_else(|| PyValueError::new_err("negative seek position"))
}

#[pymethods]
impl File {
    /// Fills a buffer; returns how many bytes that were, fewer only at the end of the file.
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let buffer = Buffer::writable(buffer)?;
        let memory = buffer.memory();
        self.run(py, |core, process| async move { core.read(process, memory).await })
    }

    /// Returns all bytes from the position to the end.
    fn readall<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let size = self.size(py)?;
        let length = usize::try_from(size.saturating_sub(self.tell(py)?))?;
        let mut read = 0;
        let mut all = PyBytes::new_with(py, length, |bytes| {
            let memory = Memory::of(bytes);
            read = self.run(py, |core, process| async move { core.read(process, memory).await })?;
            Ok(())
        })?;
        if read < length {
            all = PyBytes::new(py, &all.as_bytes()[..read]);
        }
        // It may have grown, and some files have no size (/proc).
        let mut more = Vec::new();
        loop {
            let mut piece = vec![0; UNKNOWN_BYTES];
            let memory = Memory::of(&mut piece);
            let count = self.run(py, |core, process| async move { core.read(process, memory).await })?;
            more.extend_from_slice(&piece[..count]);
            if count == 0 {
                break;
            }
        }
        if !more.is_empty() {
            all = PyBytes::new(py, &[all.as_bytes(), &more].concat());
        }
        Ok(all)
    }

    /// Writes all bytes of a buffer, and returns how many that were.
    fn write(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let buffer = Buffer::of(buffer)?;
        let memory = buffer.memory();
        self.run(py, |core, process| async move { core.write(process, memory).await })
    }

    #[pyo3(signature = (offset, whence = 0))]
    fn seek(&self, py: Python<'_>, offset: i64, whence: i32) -> PyResult<u64> {
        let core = self.core(py)?;
        let from = match whence {
            0 => 0,
            1 => core.position(),
            2 => self.size(py)?,
            _ => {
                return Err(PyValueError::new_err(format!("invalid whence ({whence}, should be 0, 1 or 2)")));
            }
        };
        let position = target(from, offset)?;
        core.go_to(position);
        Ok(position)
    }

    fn tell(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.core(py)?.position())
    }

    /// Returns the size, with all that was written.
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        self.run(py, |core, process| async move { core.size(process).await })
    }

    #[pyo3(signature = (size = None))]
    fn truncate(&self, py: Python<'_>, size: Option<u64>) -> PyResult<u64> {
        let size = size.map_or_else(|| self.tell(py), Ok)?;
        self.run(py, |core, process| async move { core.truncate(process, size).await })?;
        Ok(size)
    }

    /// Returns when all that was written is on the server's stable storage.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |core, _| async move { core.flush().await })
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let is_ours = self.core.lock().unwrap_or_else(PoisonError::into_inner).ours().is_some();
        let done = match self.is_closed.load(Ordering::Relaxed) || !is_ours {
            true => Ok(()),
            false => self.run(py, |core, _| async move { core.close().await }),
        };
        self.is_closed.store(true, Ordering::Relaxed);
        done
    }

    /// Whether an operation was under way when this process was forked off: locks around this file stay locked then.
    fn is_torn(&self) -> bool {
        let owned = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        owned.ours().is_none() && owned.anyones().running.load(Ordering::Relaxed) > 0
    }

    fn open_later<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let operation = |core: Arc<Core>, process| async move {
            core.open(process, &mut *core.state.lock().await).await.map(drop)
        };
        self.begin(py, operation, none)
    }

    fn read_later<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Bound<'py, PyAny>> {
        let operation = |core: Arc<Core>, process| async move {
            let mut bytes = vec![0; count];
            let read = core.read(process, Memory::of(&mut bytes)).await?;
            bytes.truncate(read);
            Ok(bytes)
        };
        self.begin(py, operation, |py, bytes| Ok(PyBytes::new(py, &bytes).into_any().unbind()))
    }

    fn write_later<'py>(&self, py: Python<'py>, buffer: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let mut bytes = Buffer::of(buffer)?.memory().bytes().to_vec();
        let operation =
            |core: Arc<Core>, process| async move { core.write(process, Memory::of(&mut bytes)).await };
        self.begin(py, operation, |py, count| number(py, count as u64))
    }

    fn size_later<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.begin(py, |core, process| async move { core.size(process).await }, number)
    }

    fn truncate_later<'py>(&self, py: Python<'py>, size: u64) -> PyResult<Bound<'py, PyAny>> {
        self.begin(py, move |core, process| async move { core.truncate(process, size).await }, none)
    }

    fn flush_later<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.begin(py, |core, _| async move { core.flush().await }, none)
    }

    fn close_later<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let begun = self.begin(py, |core, _| async move { core.close().await }, none)?;
        self.is_closed.store(true, Ordering::Relaxed);
        Ok(begun)
    }

    /// Returns `(server, path, url, mode letters)` as far as opening it again needs them.
    fn origin<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let owned = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        let core = owned.anyones();
        let origin = PyDict::new(py);
        origin.set_item("server", core.server.clone())?;
        origin.set_item("path", PyBytes::new(py, &core.path))?;
        origin.set_item("name", &core.name)?;
        Ok(origin)
    }
}
