//! One copy: by one program, in one cell, with one seed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use private_servers::ganesha::{Ganesha, Options};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tempfile::TempDir;
use testbed::{Limit, Operation};

use crate::{
    cell::{Beside, Cell},
    program::Program,
    sshd::Sshd,
    watch::Watch,
};

/// Times that a copy is made until the link was on time.
const ATTEMPTS: u32 = 3;

/// How long the machine may stand still during a copy, in ms.
const PAUSE_MS: f64 = 500.0;

/// Where files are, so that no disk is measured.
const MEMORY: &str = "/dev/shm";

/// Servers and programs, for all copies.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) nfsw: PathBuf,
    pub(crate) server: Ganesha,
    pub(crate) ssh: Option<Sshd>,
    pub(crate) scratch: TempDir,
    /// When a program is stopped.
    pub(crate) patience: Duration,
    pub(crate) watch: Watch,
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task<'a> {
    pub(crate) cell: Cell,
    pub(crate) program: Program,
    /// TCP's congestion control at both ends of the link; empty for programs without TCP.
    pub(crate) congestion: &'a str,
    pub(crate) seed: u64,
    pub(crate) size: u64,
}

/// What came of it: a line of the results.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Trial {
    pub(crate) cell: String,
    pub(crate) program: String,
    pub(crate) congestion: String,
    pub(crate) seed: u64,
    pub(crate) size: u64,
    /// The git tree of crates/ that was measured.
    #[serde(default)]
    pub(crate) tree: String,
    /// From the start of the program to its end, in seconds.
    pub(crate) seconds: f64,
    pub(crate) outcome: Outcome,
    /// What the channel of the seed allows, and that with what the edges of its bursts destroy.
    pub(crate) limit_s: f64,
    pub(crate) edge_limit_s: f64,
    /// How late deliveries of the link were at the 99th percentile.
    pub(crate) late_ms: f64,
    /// How long this machine stood still at once.
    #[serde(default)]
    pub(crate) pause_ms: f64,
    /// Whether either is too long, after all repetitions.
    pub(crate) late: bool,
    /// Copies made again because the link was late.
    pub(crate) repeated: u32,
    /// Mean round-trip time of pings beside the copy.
    pub(crate) ping_ms: Option<f64>,
}

/// How a copy ended.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    /// With status 0, and every byte is right.
    Intact,
    /// With another status.
    Failed,
    /// It was stopped.
    Stopped,
    /// With status 0, but bytes are wrong or missing.
    Broken,
}

impl Bench {
    pub(crate) fn start(nfsw: PathBuf, with_ssh: bool, patience: Duration) -> anyhow::Result<Self> {
        let place = Path::new(MEMORY);
        let scratch = TempDir::with_prefix_in("head-to-head-", place)?;
        let server = Ganesha::start_in(place, Options { everywhere: true, ..Options::default() });
        let ssh = if with_ssh { Some(Sshd::start(scratch.path())?) } else { None };
        Ok(Self { nfsw, server, ssh, scratch, patience, watch: Watch::start() })
    }

    /// Makes the source of all copies of a size, on both sides.
    pub(crate) fn prepare(&self, size: u64) -> anyhow::Result<()> {
        let state = &mut 1_u64;
        let contents: Vec<u8> = (0..size).map(|_| noise(state)).collect();
        let name = source(size);
        fs::write(self.scratch.path().join(&name), &contents)?;
        Ok(fs::write(self.server.export().join(&name), contents)?)
    }

    /// Makes a copy, again if the link was late.
    pub(crate) fn run(&self, task: &Task<'_>, tree: &str) -> anyhow::Result<Trial> {
        let mut best: Option<Trial> = None;
        for repeated in 0..ATTEMPTS {
            let mut trial =
                self.once(task, tree).with_context(|| format!("{} in {}", task.program.name, task.cell))?;
            if let Some(best) = &best
                && (best.pause_ms + best.late_ms) < (trial.pause_ms + trial.late_ms)
            {
                trial = best.clone();
            }
            trial.repeated = repeated;
            let late = trial.late;
            best = Some(trial);
            if !late {
                break;
            }
        }
        best.context("no attempt")
    }

    fn once(&self, task: &Task<'_>, tree: &str) -> anyhow::Result<Trial> {
        let Task { cell, program, congestion, seed, size } = *task;
        let directory = TempDir::new_in(self.scratch.path())?;
        let path = |name: &str| directory.path().join(name);
        let (export, source) = (self.server.export(), source(size));
        let target = format!("target-{}", directory.path().file_name().unwrap_or_default().display());
        let (file, local, copy) = match cell.operation {
            Operation::Read => (source.clone(), path("copy"), path("copy")),
            Operation::Write => (target.clone(), self.scratch.path().join(&source), export.join(&target)),
        };
        let (nfs, mount) = self.server.ports();
        let mut command = Command::new(&self.nfsw);
        command.args(["link", "exec", "--quiet", "--seed", &seed.to_string(), "--stats"]).arg(path("stats"));
        command.args(cell.options());
        if !congestion.is_empty() {
            command.args(["--congestion", congestion]);
        }
        command
            .args(["--", "bash", "-c", STOPWATCH])
            .env("LC_ALL", "C")
            .env("SCRIPT", program.script(cell.operation))
            .env("PATIENCE", self.patience.as_secs().to_string())
            .env("TIMES", path("times"))
            .env("PINGS", if cell.beside == Beside::Ping { path("pings") } else { PathBuf::new() })
            .env("EXPORT", &export)
            .env("FILE", file)
            .env("LOCAL", local)
            .env("NFS_PORT", nfs.to_string())
            .env("MOUNT_PORT", mount.to_string())
            .env("NFSW", &self.nfsw)
            .env("HEAD_TO_HEAD", std::env::current_exe()?)
            // Nobody knows the link from an earlier copy.
            .env("XDG_CACHE_HOME", path("cache"))
            .env("XDG_STATE_HOME", path("state"));
        if let Some(ssh) = &self.ssh {
            command.env("SSH_PORT", ssh.port.to_string()).env("SSH_OPTIONS", &ssh.options);
        }
        let _busy = (cell.beside == Beside::Busy).then(BusyMachine::start).transpose()?;
        let begun = Instant::now();
        let errors = fs::File::create(path("errors"))?;
        command.stdin(Stdio::null()).stdout(errors.try_clone()?).stderr(errors).status()?;

        let pause_ms = 1e3 * self.watch.longest(begun).as_secs_f64();

        let said = || fs::read_to_string(path("errors")).unwrap_or_default();
        let times = fs::read_to_string(path("times")).with_context(|| format!("no link: {}", said()))?;
        let times: Vec<f64> = times.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [begin, end, status] = times[..] else { anyhow::bail!("no times: {}", said()) };
        let stats: Value = serde_json::from_str(&fs::read_to_string(path("stats"))?)?;
        let late_ms = stats["lateness"]["p99_ms"].as_f64().context("no lateness in the link's counters")?;
        let same = || Ok::<_, std::io::Error>(fs::read(&copy)? == fs::read(export.join(&source))?);
        let outcome = match status as u8 {
            0 if same().unwrap_or(false) => Outcome::Intact,
            0 => Outcome::Broken,
            // 128 + SIGKILL.
            137 => Outcome::Stopped,
            _ => Outcome::Failed,
        };
        if outcome == Outcome::Failed {
            eprintln!("{} in {cell}, seed {seed}: status {status}: {}", program.name, said().trim_end());
        }
        if cell.operation == Operation::Write {
            // It may not be there.
            let _ = fs::remove_file(copy);
        }
        let limit = Limit::of_seed(&cell.limiting(size)?, seed)?.context("no limit")?;
        Ok(Trial {
            cell: cell.to_string(),
            program: program.name.to_owned(),
            congestion: congestion.to_owned(),
            seed,
            size,
            tree: tree.to_owned(),
            seconds: end - begin,
            outcome,
            limit_s: limit.physical.as_secs_f64(),
            edge_limit_s: limit.edge_aware.as_secs_f64(),
            late_ms,
            pause_ms,
            late: late_ms > cell.late_ms() || pause_ms > PAUSE_MS,
            repeated: 0,
            ping_ms: (cell.beside == Beside::Ping).then(|| round_trip(&path("pings"))).flatten(),
        })
    }
}

/// One process per processor that computes, until it is dropped.
struct BusyMachine(Vec<Child>);

impl BusyMachine {
    fn start() -> anyhow::Result<Self> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let one = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
        Ok(Self((0..processors).map(one).collect::<Result<_, _>>()?))
    }
}

impl Drop for BusyMachine {
    fn drop(&mut self) {
        for process in &mut self.0 {
            // One that has ended computes no longer.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Times `$SCRIPT`, which is stopped after `$PATIENCE` seconds, and pings beside it if there is a file for that.
const STOPWATCH: &str = r#"
if [ -n "$PINGS" ]; then ping -n -i 0.2 "$NFSW_HOST" >"$PINGS" 2>&1 & fi
begin=$EPOCHREALTIME
timeout --signal KILL "$PATIENCE" bash -c "$SCRIPT"
status=$?
echo "$begin $EPOCHREALTIME $status" >"$TIMES"
"#;

/// The mean of the times that ping(8) printed, in ms.
fn round_trip(path: &Path) -> Option<f64> {
    let text = fs::read_to_string(path).ok()?;
    let times: Vec<f64> =
        text.lines().filter_map(|line| line.split("time=").nth(1)?.split(' ').next()?.parse().ok()).collect();
    (!times.is_empty()).then(|| testbed::mean(&times))
}

fn source(size: u64) -> String {
    format!("source-{size}")
}

/// The next byte of a file that nothing compresses (xorshift, Marsaglia 2003).
fn noise(state: &mut u64) -> u8 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 32) as u8
}
