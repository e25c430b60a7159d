//! `nfsw.copy` and `nfsw.sync`: what `nfsw cp` and `nfsw sync` do, with their options.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    ops::Range,
    os::unix::ffi::OsStrExt,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{Builder, JoinHandle},
    time::Duration,
};

use nfs_files::{
    Context, Error as FilesError,
    copy::{self, Compare, Filter, Links, Options, Overwrite, Shard, Sync},
    event::{Change, Counts as FilesCounts, Event, Name, NotDone, Skip, Warning, What},
    local::Sparse,
    servers::{Access, Servers},
    url::{Remote, Target},
};
use nfs_wireless_client::{ClientConfig, TransportChoice};
use pyo3::{prelude::*, types::PyDict};
use tokio::sync::oneshot;

use crate::{
    error::{CopyError, Fault},
    process::Process,
    server::{seconds, transport},
    waiting::{Cancel, Promise, promise},
};

/// Events that wait to be told.
const EVENTS: usize = 1024;

/// How long a signal waits for its handler, at most.
const SIGNALS: Duration = Duration::from_millis(50);

/// Stack of the thread of a run, as a program's first thread has it.
const STACK_BYTES: usize = 8 << 20;

/// Errors of single files that are kept.
const MOST_ERRORS: usize = 1000;

/// What a run has done.
#[pyclass(frozen, module = "nfsw", get_all)]
#[derive(Clone, Default)]
pub(crate) struct Counts {
    /// Files and links that were copied.
    copied: u64,
    /// Directories that copies went into.
    directories: u64,
    /// Copies that were resumed.
    resumed: u64,
    /// Copies that were read again and are equal to their sources.
    verified: u64,
    /// Files and directories that were deleted.
    deleted: u64,
    /// Files that were left as they are, by reason.
    skipped: BTreeMap<String, u64>,
    /// What failed.
    failed: u64,
}

#[pymethods]
impl Counts {
    fn __repr__(&self) -> String {
        let Self { copied, directories, resumed, verified, deleted, skipped, failed } = self;
        let skipped: Vec<_> = skipped.iter().map(|(reason, count)| format!("'{reason}': {count}")).collect();
        format!(
            "Counts(copied={copied}, directories={directories}, resumed={resumed}, verified={verified}, \
             deleted={deleted}, skipped={{{}}}, failed={failed})",
            skipped.join(", ")
        )
    }
}

impl From<FilesCounts> for Counts {
    fn from(counts: FilesCounts) -> Self {
        let FilesCounts { copied, directories, resumed, verified, deleted, skipped, failed } = counts;
        let skipped = skipped.into_iter().map(|(reason, count)| (skip(reason).to_owned(), count)).collect();
        Self { copied, directories, resumed, verified, deleted, skipped, failed }
    }
}

/// A run, as it is asked for. The thread of the run makes of it what does not move between threads.
struct Wanted {
    sources: Vec<Vec<u8>>,
    destination: Vec<u8>,
    is_sync: bool,
    flags: BTreeMap<String, bool>,
    sparse: Sparse,
    jobs: usize,
    rate_limit: Option<u64>,
    max_delete: Option<u64>,
    shard: Option<Shard>,
    rules: Vec<(bool, String)>,
    patterns: Vec<Vec<u8>>,
    listed: Option<Vec<u8>>,
    uid: Option<u32>,
    gid: Option<u32>,
    transport: TransportChoice,
    timeout: Option<Duration>,
}

/// The options that are on or off.
const FLAGS: [&str; 20] = [
    "recursive",
    "archive",
    "no_target_directory",
    "follow",
    "dereference",
    "no_dereference",
    "preserve",
    "no_clobber",
    "update",
    "dry_run",
    "inplace",
    "no_resume",
    "verify",
    "gitignore",
    "one_file_system",
    "delete",
    "checksum",
    "size_only",
    "ignore_existing",
    "force",
];

impl Wanted {
    fn new(
        sources: Vec<Vec<u8>>,
        destination: Vec<u8>,
        is_sync: bool,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let py = options.py();
        let get = |name: &str| options.get_item(name);
        let some = |name: &str| Ok::<_, PyErr>(get(name)?.filter(|value| !value.is_none()));
        let mut flags = BTreeMap::new();
        for flag in FLAGS {
            let on = some(flag)?.map_or(Ok(false), |value| value.is_truthy())?;
            flags.insert(flag.to_owned(), on);
        }
        let texts = |name: &str| some(name)?.map_or(Ok(Vec::new()), |value| value.extract::<Vec<String>>());
        let includes = texts("include")?.into_iter().map(|pattern| (true, pattern));
        let excludes = texts("exclude")?.into_iter().map(|pattern| (false, pattern));
        let sparse = match some("sparse")?.map(|value| value.extract::<String>()).transpose()?.as_deref() {
            None | Some("auto") => Sparse::Auto,
            Some("always") => Sparse::Always,
            Some("never") => Sparse::Never,
            Some(_) => return Err(Fault::usage("sparse is 'auto', 'always' or 'never'").raise(py)),
        };
        let jobs = some("jobs")?.map_or(Ok(64), |value| value.extract::<usize>())?;
        if !(1..=256).contains(&jobs) {
            return Err(Fault::usage("jobs is a number from 1 to 256").raise(py));
        }
        // In KiB/s, as the option of the command.
        let rate = some("bwlimit")?.map(|value| value.extract::<f64>()).transpose()?;
        let name = some("transport")?.map(|value| value.extract::<String>()).transpose()?;
        Ok(Self {
            sources,
            destination,
            is_sync,
            flags,
            sparse,
            jobs,
            rate_limit: rate.filter(|rate| *rate > 0.0).map(|rate| (rate * 8192.0) as u64),
            max_delete: some("max_delete")?.map(|value| value.extract()).transpose()?,
            shard: some("shard")?.map(|value| shard(&value)).transpose()?,
            rules: includes.chain(excludes).collect(),
            patterns: some("exclude_from")?.map_or(Ok(Vec::new()), |value| value.extract())?,
            listed: some("files_from")?.map(|value| value.extract()).transpose()?,
            uid: some("uid")?.map(|value| value.extract()).transpose()?,
            gid: some("gid")?.map(|value| value.extract()).transpose()?,
            transport: transport(name.as_deref())?,
            timeout: seconds(some("timeout")?.map(|value| value.extract()).transpose()?)?,
        })
    }

    fn is(&self, flag: &str) -> bool {
        self.flags.get(flag).copied().unwrap_or(false)
    }

    fn options(&self) -> Result<Options, FilesError> {
        let target =
            |path: &Vec<u8>| match Target::parse(OsStr::from_bytes(path)).map_err(FilesError::usage)? {
                Target::Standard => Err(FilesError::usage("'-' is no file here; './-' is one")),
                target => Ok(target),
            };
        let destination = target(&self.destination)?;
        let mut sources = self.sources.iter().map(target).collect::<Result<Vec<_>, _>>()?;
        let mut options = if self.is_sync {
            let source = sources.pop().ok_or_else(|| FilesError::usage("sync takes a source"))?;
            let options = Options::sync(source.literal(), destination.literal());
            let compare = match (self.is("checksum"), self.is("size_only")) {
                (true, true) => return Err(FilesError::usage("checksum and size_only exclude each other")),
                (true, false) => Compare::Contents,
                (false, true) => Compare::Size,
                (false, false) => Compare::SizeAndTime,
            };
            let (force, delete, max_delete) = (self.is("force"), self.is("delete"), self.max_delete);
            if delete && self.listed.is_some() {
                let text = "delete and files_from exclude each other: what is not listed is not known";
                return Err(FilesError::usage(text));
            }
            Options { sync: Some(Sync { compare, force, delete, max_delete }), ..options }
        } else {
            let mut options = Options::new(sources, destination);
            let archive = self.is("archive");
            options.recursive = archive || self.is("recursive");
            options.preserve = archive || self.is("preserve");
            options.is_whole_target = self.is("no_target_directory");
            options.inplace = self.is("inplace");
            options
        };
        options.links = match (self.is("dereference"), self.is("follow")) {
            (true, _) => Links::All,
            (false, true) => Links::Named,
            (false, false) if self.is_sync => Links::Named,
            (false, false) if options.recursive || self.is("no_dereference") => Links::Never,
            (false, false) => Links::Named,
        };
        let never = self.is("no_clobber") || self.is("ignore_existing");
        options.overwrite = match (never, self.is("update")) {
            (true, true) => return Err(FilesError::usage("update and no_clobber exclude each other")),
            (true, false) => Overwrite::Never,
            (false, true) => Overwrite::Older,
            (false, false) => Overwrite::Always,
        };
        options.sparse = self.sparse;
        options.resume = !self.is("no_resume");
        options.verify = self.is("verify");
        options.dry_run = self.is("dry_run");
        options.shard = self.shard;
        options.jobs = self.jobs;
        options.rate_limit = self.rate_limit;
        options.filter = self.filter()?;
        Ok(options)
    }

    fn filter(&self) -> Result<Filter, FilesError> {
        let rule = |(takes, pattern): &(bool, String)| {
            let wrong = |why| FilesError::usage(format!("{pattern}: {why}"));
            Ok::<_, FilesError>((*takes, pattern.parse().map_err(wrong)?))
        };
        let rules = self.rules.iter().map(rule).collect::<Result<_, _>>()?;
        let mut filter = Filter::new(rules, self.is("gitignore"));
        filter.set_one_file_system(self.is("one_file_system"));
        for text in &self.patterns {
            filter.add_patterns(text).map_err(|why| FilesError::usage(format!("exclude_from: {why}")))?;
        }
        if let Some(text) = &self.listed {
            filter.set_listed(text).map_err(|why| FilesError::usage(format!("files_from: {why}")))?;
        }
        Ok(filter)
    }

    fn servers(&self) -> Servers {
        let (uid, gid, transport) = (self.uid, self.gid, self.transport);
        let (timeout, rate_limit) = (self.timeout, self.rate_limit);
        let access = move |remote: &Remote| {
            let mut config = ClientConfig::default().with_transport(transport).with_own_thread(true);
            config.credential.act_as(uid, gid);
            remote.options.configure(&mut config);
            (config.connect_timeout, config.call_timeout, config.stall_timeout) = (timeout, timeout, timeout);
            config.rate_limit = rate_limit;
            Ok(Access { address: remote.host.to_string(), config })
        };
        Servers::new(access, Arc::default())
    }
}

/// Reads `"K/N"` or `(K, N)`.
fn shard(value: &Bound<'_, PyAny>) -> PyResult<Shard> {
    let read = match value.extract::<(u32, u32)>() {
        Ok((number, count)) => format!("{number}/{count}"),
        Err(_) => value.extract()?,
    };
    read.parse().map_err(|wrong: &str| Fault::usage(wrong).raise(value.py()))
}

/// What happened, for Python.
struct Told {
    event: &'static str,
    names: Vec<(&'static str, Vec<u8>)>,
    words: Vec<(&'static str, String)>,
    numbers: Vec<(&'static str, u64)>,
    ranges: Option<Vec<Range<u64>>>,
    fault: Option<Fault>,
    is_planned: bool,
}

impl Told {
    fn new(event: &'static str, names: &[(&'static str, &Name)]) -> Self {
        let names = names.iter().map(|(key, name)| (*key, name.bytes.clone())).collect();
        let (words, numbers) = Default::default();
        Self { event, names, words, numbers, ranges: None, fault: None, is_planned: false }
    }

    /// Takes what happens, in the words of docs/json.md; `None` where that has none.
    fn of(event: &Event<'_>) -> Option<Self> {
        Some(match event {
            Event::Copied { what, source, target, bytes, change } => {
                let kind = match what {
                    What::File => "file",
                    What::Directory => "directory",
                    What::Link => "link",
                };
                let mut told = Self::new(kind, &[("source", source), ("target", target)]);
                told.numbers.push(("bytes", *bytes));
                told.words.extend(change.map(|(_, change)| ("change", word(change).to_owned())));
                told
            }
            Event::Skipped { source, target, reason } => {
                let mut told = Self::new("skipped", &[("source", source), ("target", target)]);
                told.words.push(("reason", skip(*reason).to_owned()));
                told
            }
            Event::KeptNewer { source, target, .. } => {
                let mut told = Self::new("skipped", &[("source", source), ("target", target)]);
                told.words.push(("reason", skip(Skip::Newer).to_owned()));
                told
            }
            Event::Resumed { source, target, bytes, .. } => {
                let mut told = Self::new("resumed", &[("source", source), ("target", target)]);
                told.numbers.push(("bytes", *bytes));
                told
            }
            Event::Differs { source, target, ranges } => {
                let mut told = Self::new("differs", &[("source", source), ("target", target)]);
                told.ranges = Some(ranges.to_vec());
                told
            }
            Event::Deleted { target, .. } => Self::new("deleted", &[("path", target)]),
            Event::Failed(error) => {
                let mut told = Self::new("error", &[]);
                told.fault = Some(Fault::of_files(error));
                told
            }
            Event::Warning(warning) => {
                let mut told = Self::new("warning", &[]);
                told.words.push(("message", say(warning)));
                told
            }
            Event::Planned { .. } | Event::Written | Event::Verified | Event::Done { .. } => return None,
        })
    }

    fn describe<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let told = PyDict::new(py);
        told.set_item("event", self.event)?;
        for (key, name) in &self.names {
            told.set_item(key, OsStr::from_bytes(name))?;
        }
        for (key, text) in &self.words {
            told.set_item(key, text)?;
        }
        for (key, number) in &self.numbers {
            told.set_item(key, number)?;
        }
        if let Some(ranges) = &self.ranges {
            let pairs: Vec<_> = ranges.iter().map(|range| (range.start, range.end)).collect();
            told.set_item("ranges", pairs)?;
        }
        if let Some(fault) = &self.fault {
            told.set_item("error", fault.raise(py).into_value(py))?;
        }
        if self.is_planned {
            told.set_item("dry_run", true)?;
        }
        Ok(told)
    }
}

/// Returns the word of docs/json.md for why something is copied.
const fn word(change: Change) -> &'static str {
    match change {
        Change::New => "new",
        Change::Replaced => "replaced",
        Change::Size(_) => "size",
        Change::Time => "time",
        Change::Contents => "contents",
        Change::Target => "target",
        Change::Kind => "kind",
        Change::Attributes => "attributes",
        Change::Link => "hard_link",
    }
}

/// Returns the word of docs/json.md for why a file was left as it is.
const fn skip(reason: Skip) -> &'static str {
    match reason {
        Skip::Complete => "complete",
        Skip::Exists => "exists",
        Skip::NotOlder => "not_older",
        Skip::Newer => "newer",
        Skip::Unchanged => "unchanged",
        Skip::Special => "special",
        Skip::Partial => "partial",
        Skip::LeadsOut => "leads_out",
    }
}

/// Says what the user should know.
fn say(warning: &Warning<'_>) -> String {
    match warning {
        Warning::Option(what) => (*what).to_owned(),
        Warning::NotKept(why) => format!("the destination does not keep modes or times: {why}"),
        Warning::SetIdNotKept(server) => format!("{server}: set-user-ID and set-group-ID bits are not kept"),
        Warning::NotResumable(error) => format!("if this run is interrupted, it cannot be resumed: {error}"),
        Warning::NotResumableBesideAnother => {
            "if this run is interrupted, it cannot be resumed: another one is copying there".to_owned()
        }
        Warning::JournalIsTaken(journal) => {
            format!("{}: belongs to somebody else; if this run is interrupted, it cannot be resumed", journal.shown)
        }
        Warning::LostUpload { target } => {
            format!("{}: the server does not have what an earlier run sent; copied from the beginning", target.shown)
        }
        Warning::IdentificationsWrap => {
            "datagrams are fragmented faster than their identifications last (RFC 4963); transport='tcp' avoids that"
                .to_owned()
        }
        Warning::OtherSize { source, target } => {
            format!("{}: kept, it has the time of {} but another size", target.shown, source.shown)
        }
        Warning::Changed(file) => format!("{}: changed while it was copied; copied again", file.shown),
        Warning::Grew(file, bytes) => format!("{}: grew while it was copied; the copy has {bytes} bytes", file.shown),
        Warning::Special(file, what) => format!("{}: skipped, it is a {what}", file.shown),
        Warning::Left(file) => format!("{}: skipped, it is left of an interrupted copy", file.shown),
        Warning::LeadsOut(file) => format!("{}: skipped, it leads out of what is copied", file.shown),
        Warning::Marker(file) => nfs_files::event::says_incomplete(file),
        Warning::NothingDeleted { why, .. } => {
            let what = if *why == NotDone::Copying { "copied" } else { "listed" };
            format!("nothing is deleted, as not everything could be {what}")
        }
    }
}

/// A run on a thread of its own, which ends when this is dropped.
struct Run {
    told: Option<Receiver<Told>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Ended>>,
}

/// What came of a run, and what failed in it.
type Ended = Result<Counts, Fault>;

impl Run {
    fn begin(wanted: Wanted) -> std::io::Result<Self> {
        let (tell, told) = sync_channel(EVENTS);
        let (stop, stopped) = oneshot::channel();
        let thread = Builder::new()
            .name("nfsw-copy".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || run_here(&wanted, &tell, stopped))?;
        Ok(Self { told: Some(told), stop: Some(stop), thread: Some(thread) })
    }

    /// Ends the run, unless it has ended, and returns what came of it.
    fn end(&mut self) -> Option<Ended> {
        // Who waits to tell something learns that nobody listens.
        self.told = None;
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        self.thread.take()?.join().ok()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.end();
    }
}

fn run_here(wanted: &Wanted, tell: &SyncSender<Told>, stopped: oneshot::Receiver<()>) -> Ended {
    let failed = |error: &FilesError| Fault::of_files(error);
    let options = wanted.options().map_err(|error| failed(&error))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Fault::of_io(error, "the runtime of a copy"))?;
    let events = |event: &Event<'_>| {
        let Some(mut told) = Told::of(event) else { return Ok(()) };
        told.is_planned = options.dry_run && told.event != "warning" && told.event != "error";
        tell.send(told).map_err(|_| FilesError::stopped("nobody listens any more"))
    };
    let servers = wanted.servers();
    runtime.block_on(async {
        let run = copy::run(&options, Context { servers: &servers, events: &events });
        tokio::select! {
            done = run => done.map(Counts::from).map_err(|error| failed(&error)),
            _ = stopped => Err(Fault::usage("the run was stopped")),
        }
    })
}

/// What failed in a run, as exceptions.
#[derive(Default)]
struct Failures(Vec<Fault>);

impl Failures {
    fn note(&mut self, told: &Told) {
        if let Some(fault) = told.fault.as_ref().filter(|_| self.0.len() < MOST_ERRORS) {
            self.0.push(fault.clone());
        }
    }

    /// Returns what was done, or raises what failed: the exception of one file, or one for several.
    fn raise(self, py: Python<'_>, ended: Option<Ended>) -> PyResult<Counts> {
        let ended = ended.unwrap_or_else(|| Err(Fault::usage("the thread of the run has ended early")));
        let counts = ended.map_err(|fault| fault.raise(py))?;
        let error = match &self.0[..] {
            [] => return Ok(counts),
            [only] if counts.failed == 1 => only.raise(py),
            all => {
                let text = format!("{} files could not be copied, such as {}", counts.failed, all[0].words());
                let error = CopyError::new_err((libc::EIO, text));
                let errors: Vec<_> = all.iter().map(|fault| fault.raise(py).into_value(py)).collect();
                error.value(py).setattr("errors", errors)?;
                error
            }
        };
        error.value(py).setattr("counts", Py::new(py, counts)?)?;
        Err(error)
    }
}

/// Runs a copy or a sync, and calls `events` with what happens. What that raises ends the run.
#[pyfunction]
#[pyo3(signature = (sources, destination, is_sync, options, events = None))]
pub(crate) fn run(
    py: Python<'_>,
    sources: Vec<Vec<u8>>,
    destination: Vec<u8>,
    is_sync: bool,
    options: &Bound<'_, PyDict>,
    events: Option<&Bound<'_, PyAny>>,
) -> PyResult<Counts> {
    let mut run = Run::begin(Wanted::new(sources, destination, is_sync, options)?)?;
    let mut failures = Failures::default();
    let told = run.told.take();
    let listen = || -> PyResult<()> {
        let Some(mut told) = told else { return Ok(()) };
        loop {
            // A receiver moves between threads, but is not shared by them.
            let (next, receiver) = py.detach(move || (told.recv_timeout(SIGNALS), told));
            told = receiver;
            match next {
                Ok(next) => {
                    failures.note(&next);
                    if let Some(events) = events {
                        events.call1((next.describe(py)?,))?;
                    }
                }
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    };
    if let Err(error) = listen() {
        py.detach(move || drop(run));
        return Err(error);
    }
    // It ends by itself.
    let thread = run.thread.take();
    let ended = py.detach(move || thread.and_then(|thread| thread.join().ok()));
    failures.raise(py, ended)
}

/// Begins a copy or a sync for a coroutine: returns an `asyncio.Future`. `events` is called in the thread of its loop.
#[pyfunction]
#[pyo3(signature = (sources, destination, is_sync, options, events = None))]
pub(crate) fn start<'py>(
    py: Python<'py>,
    sources: Vec<Vec<u8>>,
    destination: Vec<u8>,
    is_sync: bool,
    options: &Bound<'py, PyDict>,
    events: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut run = Run::begin(Wanted::new(sources, destination, is_sync, options)?)?;
    let (promise, awaited) = promise(py)?;
    let stop = run.stop.take();
    Process::of_this(py)?.runtime.spawn_blocking(move || {
        let mut failures = Failures::default();
        while let Some(Ok(next)) = run.told.as_ref().map(Receiver::recv) {
            failures.note(&next);
            if let Some(events) = &events {
                tell(&promise, events, &next);
            }
        }
        let ended = run.thread.take().and_then(|thread| thread.join().ok());
        promise.settle(|py| Ok(Py::new(py, failures.raise(py, ended)?)?.into_any()));
    });
    let cancel = Cancel(
        stop.map(|stop| Box::new(move || _ = stop.send(())) as Box<dyn FnOnce() + Send + std::marker::Sync>),
    );
    awaited.call_method1("add_done_callback", (cancel,))?;
    Ok(awaited)
}

fn tell(promise: &Promise, events: &Py<PyAny>, told: &Told) {
    let _ = Python::try_attach(|py| -> PyResult<()> {
        let arguments = pyo3::types::PyTuple::new(py, [told.describe(py)?])?;
        promise.call(py, events.bind(py), &arguments);
        Ok(())
    });
}
