//! Names in directories of servers, for a user who waits: what is not known in time is known at the next key.
//!
//! Another process lists the directory and keeps what it found in the user's cache, so that a listing that takes longer than the user waits is not
//! in vain.

use std::{
    ffi::OsStr,
    io::Read,
    os::unix::{ffi::OsStrExt, process::CommandExt},
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use clap::CommandFactory;
use clap_complete::engine::CompletionCandidate;
use rustix::fs::Stat;

use super::word;
use nfs_files::Context;

use crate::{
    args::{self, Cli, LsArgs, OutputArgs},
    config,
    error::ErrorKind,
    find::{Children, exports_below, find, follow},
    local::Directory,
    name::fnv1a,
    path_cache::cache,
    report::Reporter,
    url::{Remote, encode_url, escape_pattern},
};

/// Says to a process of this program which directory to list.
pub(super) const LIST: &str = "NFSW_COMPLETE_LIST";

/// How long the user waits.
const PATIENCE: Duration = Duration::from_millis(180);

/// A listing is as good as a new one for this long.
const FRESH: Duration = Duration::from_secs(20);

/// An older listing is better than none for this long.
const USABLE: Duration = Duration::from_secs(24 * 3600);

/// A listing that is being made is waited for, and not begun again, for this long.
const BUSY: Duration = Duration::from_secs(15);

/// Names that are offered, at most.
const MOST: usize = 5000;

/// Bytes of a listing that is kept, at most: a server's names may be longer than those of file systems here.
const MAX_BYTES: u64 = 8 << 20;

/// Offers what is in the directory that a word names, if it names one on a server.
pub(super) fn complete(begun: &OsStr) -> Vec<CompletionCandidate> {
    let bytes = begun.as_bytes();
    let directory = match bytes.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => bytes[..=slash].to_vec(),
        None if bytes.ends_with(b":") => [bytes, b"/"].concat(),
        None => return Vec::new(),
    };
    if Remote::parse_listed(OsStr::from_bytes(&directory)).is_err() {
        return Vec::new();
    }
    let is_url = directory.starts_with(b"nfs://");
    let names = names(&directory).into_iter().map(|name| {
        let name = if is_url { encode_url(&name) } else { escape_pattern(&name) };
        [&directory[..], &name].concat()
    });
    // As in shells, hidden files are offered to whoever begins one.
    let last = directory.len();
    let is_wanted = |path: &Vec<u8>| {
        path.starts_with(bytes) && (path.get(last) != Some(&b'.') || bytes.get(last) == Some(&b'.'))
    };
    names.filter(is_wanted).map(|path| CompletionCandidate::new(word(path))).collect()
}

/// Returns the names in a directory, those of directories with a slash at their end.
fn names(directory: &[u8]) -> Vec<Vec<u8>> {
    let Some(cache) = Cached::of(directory) else { return Vec::new() };
    let begun = Instant::now();
    if cache.age().is_none_or(|age| age > FRESH) {
        cache.renew(directory);
        while begun.elapsed() < PATIENCE && cache.age().is_none_or(|age| age > FRESH) {
            thread::sleep(Duration::from_millis(3));
        }
    }
    if cache.age().is_some_and(|age| age < USABLE) { cache.read() } else { Vec::new() }
}

/// Where a listing is kept.
struct Cached {
    directory: Directory,
    name: Vec<u8>,
}

impl Cached {
    fn of(directory: &[u8]) -> Option<Self> {
        let cache = cache("completions")?.open().ok()?;
        Some(Self { directory: cache, name: format!("{:016x}", fnv1a(directory)).into_bytes() })
    }

    fn busy(&self) -> Vec<u8> {
        [&self.name[..], b".busy"].concat()
    }

    fn age(&self) -> Option<Duration> {
        age(&self.directory.stat(&self.name).ok()??)
    }

    fn read(&self) -> Vec<Vec<u8>> {
        let mut listed = Vec::new();
        if let Ok(Some(file)) = self.directory.read_own(&self.name) {
            let _ = file.take(MAX_BYTES).read_to_end(&mut listed);
        }
        listed.split(|&byte| byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
    }

    /// Begins to list the directory, unless that has begun already.
    fn renew(&self, directory: &[u8]) {
        let begun = self.directory.stat(&self.busy()).ok().flatten();
        if begun.and_then(|it| age(&it)).is_some_and(|age| age < BUSY) {
            return;
        }
        let Ok(program) = std::env::current_exe() else { return };
        if self.directory.replace(&self.busy(), b"").is_err() {
            return;
        }
        let mut lister = Command::new(program);
        lister
            .env(LIST, OsStr::from_bytes(directory))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // Ctrl-C is for what the user types.
        let _ = lister.process_group(0).spawn();
    }

    fn write(&self, names: &[Vec<u8>]) -> std::io::Result<()> {
        self.directory.replace(&self.name, &names.join(&0))?;
        for (name, stat) in self.directory.entries()? {
            if age(&stat).is_some_and(|age| age > USABLE) {
                let _ = self.directory.remove(&name);
            }
        }
        Ok(())
    }
}

#[allow(clippy::unnecessary_cast, reason = "the types of the fields differ from system to system")]
fn age(stat: &Stat) -> Option<Duration> {
    let since_1970 =
        Duration::new(u64::try_from(stat.st_mtime).ok()?, u32::try_from(stat.st_mtime_nsec).ok()?);
    // One of the future is as old as can be: the clock was set back.
    let modified = UNIX_EPOCH.checked_add(since_1970)?;
    Some(SystemTime::now().duration_since(modified).unwrap_or(Duration::MAX))
}

/// Lists a directory and keeps what was found.
pub(super) fn list(directory: &OsStr) {
    let Some(cache) = Cached::of(directory.as_bytes()) else { return };
    if let Some(names) = listed(directory) {
        // Whoever asks again lists again.
        let _ = cache.write(&names);
    }
    let _ = cache.directory.remove(&cache.busy());
}

fn listed(directory: &OsStr) -> Option<Vec<Vec<u8>>> {
    let line = ["nfsw", "ls", "--deadline", "10s"]
        .map(Into::into)
        .into_iter()
        .chain([directory.to_owned()])
        .collect();
    let line: Vec<_> = line;
    let mut program = Cli::command();
    let plain = config::read(&mut program, &line).ok()?;
    let args::Command::Ls(LsArgs { targets, connection, .. }) =
        config::apply(&mut program, line, plain).ok()?.command
    else {
        return None;
    };
    let reporter = Reporter::new(&OutputArgs::default(), Instant::now());
    let connections = connection.servers(None, Arc::clone(reporter.activity()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let names = runtime.block_on(async {
        let reading = read(Context { servers: &connections, events: &reporter }, targets.first()?);
        tokio::time::timeout(Duration::from_secs(10), reading).await.ok()?.ok()
    });
    runtime.shutdown_background();
    names
}

async fn read(context: Context<'_>, target: &Remote) -> anyhow::Result<Vec<Vec<u8>>> {
    let found = match find(context, target).await {
        Err(error) if error.kind() == ErrorKind::MountRefused => {
            let exports = exports_below(context.servers, target).await?;
            let below = |path: &Vec<u8>| path[target.path.len()..].to_vec();
            let names =
                exports.iter().map(below).map(|path| path.strip_prefix(b"/").unwrap_or(&path).to_vec());
            return Ok(names.map(|name| [&name[..], b"/"].concat()).collect());
        }
        found => follow(context, found?).await?,
    };
    let mut children = Children::of(&found)?;
    let mut names = Vec::new();
    while !children.is_done() && names.len() < MOST {
        for child in children.next(context).await? {
            // A link may well be one to a directory, but that is a round trip to find out.
            let is_directory = child.metadata.file_type == nfs_wireless_client::FileType::Directory;
            names.push(if is_directory { [&child.name[..], b"/"].concat() } else { child.name });
        }
    }
    Ok(names)
}
