//! nfsw beside what people use instead: unmodified programs behind the same emulated link, at the same fades.
//!
//! `cargo run --release -p head-to-head -- --list` shows the matrix; docs/comparison.md has the commands.

#![forbid(unsafe_code)]

mod cell;
mod copy_with;
mod machine;
mod picture;
mod program;
mod report;
mod results;
mod sshd;
mod summary;
mod target;
mod trial;
mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use clap::{Parser, Subcommand};

use crate::{
    cell::Cell,
    machine::Machine,
    program::{PROGRAMS, Program, package},
    report::Summary,
    results::{Results, Setting},
    sshd::Sshd,
    trial::{Bench, Outcome, Task, Trial},
};

/// Copies files by nfsw and by other programs, each behind `nfsw link exec`, at the same fades.
///
/// Every line of the tables can be repeated: --cells with its cell, --programs with its program.
#[derive(Debug, Parser)]
#[command(max_term_width = 120)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Inner>,
    /// Cells whose names begin with one of these; * stands for any part [default: all].
    #[arg(long, value_delimiter = ',', value_name = "LINK[/FADES[/ARQ[/WAY]]]")]
    cells: Vec<String>,
    /// Programs, with one congestion control or all [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAME[/CONGESTION]")]
    programs: Vec<String>,
    /// Seeds of each cell.
    #[arg(long, value_name = "N", default_value_t = 5)]
    runs: u64,
    /// The first seed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How much runs at once: 10 for each copy, and three for each Mbit/s of its link.
    #[arg(long, value_name = "N", default_value_t = 240)]
    load: u64,
    /// Bytes of the file [default: 1 MB on the papers' link, 16 MB elsewhere].
    #[arg(long, value_name = "BYTES")]
    size: Option<u64>,
    /// Seconds after which a program is stopped, and has failed (Dube et al. 1995 §4.2).
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    patience: u64,
    /// Recorded channels, too: those of the link files (*.toml) of this directory.
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Good links instead: rates from 10 Mbit/s, round trips to 50 ms, without losses and with one of a thousand packets lost, on an
    /// idle machine and on a busy one.
    #[arg(long, conflicts_with = "traces")]
    good: bool,
    /// Make only the copies that are missing in trials.jsonl of --out, or were made by another tree of crates/.
    #[arg(long)]
    resume: bool,
    /// Where results go: trials.jsonl while it runs, then summary.json, tables.md and plots.
    #[arg(long, value_name = "DIR", default_value = "target/head-to-head")]
    out: PathBuf,
    /// Run nothing: show these results, a trials.jsonl each; of trials that occur twice the last counts.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    from: Vec<PathBuf>,
    /// Put the summary into docs/comparison.md of this directory.
    #[arg(long, value_name = "DIR")]
    renew: Option<PathBuf>,
    /// Show the cells and programs that would run, and about how long that takes.
    #[arg(long)]
    list: bool,
}

#[derive(Debug, Subcommand)]
enum Inner {
    /// Copies a file by a crate.
    #[command(hide = true)]
    CopyWith { name: String, from: String, to: String },
}

/// Set in the network of the servers.
const INSIDE: &str = "HEAD_TO_HEAD_NETWORK";

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("head-to-head: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Returns whether every copy of nfsw was intact.
fn run(arguments: Arguments) -> anyhow::Result<bool> {
    if let Some(Inner::CopyWith { name, from, to }) = &arguments.command {
        copy_with::run(name, from, to)?;
        return Ok(true);
    }
    let mut all = if arguments.good { Cell::good() } else { Cell::all() };
    if let Some(directory) = &arguments.traces {
        all.extend(Cell::recorded(directory)?);
    }
    if !arguments.from.is_empty() {
        let results = Results::read(&arguments.from)?;
        return show(&arguments, &all, &results);
    }
    ensure!(arguments.runs > 0 && arguments.load > 0, "--runs and --load must be at least 1");
    let cells = cells(&all, &arguments.cells)?;
    let contenders = contenders(&arguments.programs)?;
    if arguments.list {
        list(&arguments, &cells, &contenders);
        return Ok(true);
    }
    ensure!(
        rustix::process::geteuid().is_root(),
        "links and servers of one's own need root; nfsw curve computes copies without"
    );
    ensure!(
        Path::new("/usr/bin/ganesha.nfsd").exists(),
        "the server is missing: install nfs-ganesha and nfs-ganesha-vfs"
    );
    let nfsw = nfsw()?;
    if std::env::var_os(INSIDE).is_none() {
        build()?;
        enter_network()?;
    }
    let results = measure(&arguments, nfsw, &cells, &contenders)?;
    show(&arguments, &all, &results)
}

/// Starts this program again in namespaces of its own: it may change there what concerns all connections, its files are in
/// memory, and nothing is left of servers and links however it ends.
fn enter_network() -> anyhow::Result<()> {
    // What the kernel remembers of a path, it would know in the next copy. The address is one for documentation (RFC 5737
    // §3): ganesha listens only in a network that has another than 127.0.0.1. A server keeps what is left of fragmented datagrams for 30 s, in
    // a memory that all its clients share; here are as many at once, and one after the other, as no server has: each gets its own share.
    let script = "mount -t tmpfs tmpfs /dev/shm && ip link set lo up && ip address add 198.51.100.1/32 dev lo && \
                  echo 1 >/proc/sys/net/ipv4/tcp_no_metrics_save && cd /proc/sys/net/ipv4 && \
                  echo $((64 * $(cat ipfrag_high_thresh))) >ipfrag_high_thresh && cd \"$OLDPWD\" && \
                  \"$0\" \"$@\"; exit $?";
    let error = Command::new("unshare")
        .args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .exec();
    Err(error).context("unshare")
}

/// The command under test, beside this program.
fn nfsw() -> anyhow::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("nfsw"))
}

/// Builds the command under test, if need be.
fn build() -> anyhow::Result<()> {
    let own = std::env::current_exe()?;
    let cargo = Path::new(env!("CARGO"));
    let mut build = Command::new(cargo);
    // Its own compiler: what PATH names may choose another one for each package's directory.
    build.env("RUSTC", cargo.with_file_name("rustc")).args(["build", "--quiet"]);
    if own.parent().is_some_and(|profile| profile.ends_with("release")) {
        build.args(["--package", "nfsw", "--release"]);
    } else {
        // Beside a test it has the features that a test of the workspace has built it with: nothing is built twice.
        build.args(["--workspace", "--bin", "nfsw", "--test", "architecture"]);
    }
    ensure!(build.status()?.success(), "nfsw does not build");
    Ok(())
}

fn cells(all: &[Cell], patterns: &[String]) -> anyhow::Result<Vec<Cell>> {
    for pattern in patterns {
        ensure!(
            all.iter().any(|cell| cell.matches(pattern)),
            "--cells {pattern}: there is no such cell; --list shows all"
        );
    }
    let chosen = |cell: &Cell| patterns.is_empty() || patterns.iter().any(|pattern| cell.matches(pattern));
    Ok(all.iter().copied().filter(chosen).collect())
}

/// Programs with the congestion controls they run under.
fn contenders(wanted: &[String]) -> anyhow::Result<Vec<(Program, String)>> {
    let kernel =
        fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    let known = ["cubic", "bbr"].into_iter().filter(|name| kernel.split_whitespace().any(|it| it == *name));
    let known: Vec<&str> = known.collect();
    ensure!(!known.is_empty(), "this kernel has neither cubic nor bbr: modprobe tcp_cubic tcp_bbr");
    let mut all = Vec::new();
    for program in PROGRAMS {
        let controls = if program.uses_tcp() { &known[..] } else { &[""][..] };
        all.extend(controls.iter().map(|control| (program, (*control).to_owned())));
    }
    let matches = |(program, congestion): &(Program, String), wanted: &str| match wanted.split_once('/') {
        None => program.name == wanted,
        Some((name, control)) => program.name == name && (congestion == control || congestion.is_empty()),
    };
    for wanted in wanted {
        ensure!(
            all.iter().any(|contender| matches(contender, wanted)),
            "--programs {wanted}: there is no such program, or this kernel has no such congestion control; --list shows all"
        );
    }
    all.retain(|contender| wanted.is_empty() || wanted.iter().any(|wanted| matches(contender, wanted)));
    let (mut present, mut missing) = (Vec::new(), BTreeMap::new());
    for contender in all {
        let program = contender.0;
        if program.version().is_some() && (!program.needs_ssh() || Sshd::installed()) {
            present.push(contender);
        } else {
            missing.insert(program.name, program.advice());
        }
    }
    for (name, advice) in missing {
        eprintln!("head-to-head: goes on without {name}: {advice}");
    }
    ensure!(!present.is_empty(), "none of these programs is installed");
    Ok(present)
}

/// Every copy: programs that are compared follow each other, whatever changes meanwhile on this machine.
fn tasks<'a>(arguments: &Arguments, cells: &[Cell], contenders: &'a [(Program, String)]) -> Vec<Task<'a>> {
    let mut tasks = Vec::new();
    for seed in arguments.seed..arguments.seed + arguments.runs {
        for cell in cells {
            let size = arguments.size.unwrap_or_else(|| cell.size());
            let first = tasks.len();
            for (program, congestion) in contenders.iter().filter(|(program, _)| program.belongs(cell)) {
                tasks.push(Task { cell: *cell, program: *program, congestion, seed, size });
            }
            // What one copy leaves behind in this machine concerns each program as often as the others.
            if seed % 2 == 0 {
                tasks[first..].reverse();
            }
        }
    }
    tasks
}

fn list(arguments: &Arguments, cells: &[Cell], contenders: &[(Program, String)]) {
    for (program, congestion) in contenders {
        let control = if congestion.is_empty() { String::new() } else { format!("/{congestion}") };
        println!("{}{control}", program.name);
    }
    println!();
    let (mut seconds, mut copies) = (0.0, 0);
    for cell in cells {
        let count = tasks(arguments, std::slice::from_ref(cell), contenders).len();
        println!("{cell}: {count} copies");
        copies += count;
        seconds += count as f64 * cell.usual_seconds() * cell.load().min(arguments.load) as f64;
    }
    println!("\n{copies} copies, about {:.0} min", seconds / arguments.load as f64 / 60.0);
}

fn measure(
    arguments: &Arguments,
    nfsw: PathBuf,
    cells: &[Cell],
    contenders: &[(Program, String)],
) -> anyhow::Result<Results> {
    let with_ssh = contenders.iter().any(|(program, _)| program.needs_ssh());
    let bench = Bench::start(nfsw, with_ssh, Duration::from_secs(arguments.patience))?;
    let setting = setting(&bench, contenders);
    fs::create_dir_all(&arguments.out)?;
    let path = arguments.out.join("trials.jsonl");
    let tree = setting.versions["crates"].clone();
    let mut results = Results::new(setting);
    if arguments.resume && path.exists() {
        let made = Results::read(std::slice::from_ref(&path))?;
        made.trials().filter(|trial| trial.tree == tree).for_each(|trial| results.add(trial.clone()));
    }
    let mut file = File::create(&path).with_context(|| path.display().to_string())?;
    results.write(&mut file)?;
    let mut tasks = tasks(arguments, cells, contenders);
    tasks.retain(|task| !results.has(task));
    for size in tasks.iter().map(|task| task.size).collect::<BTreeSet<_>>() {
        bench.prepare(size)?;
    }
    let (total, begun) = (results.len() + tasks.len(), Instant::now());
    let (machine, done) = (Machine::new(arguments.load), Mutex::new((&mut file, &mut results)));
    let copy = |task: &Task<'_>| -> anyhow::Result<()> {
        let trial = bench.run(task, &tree)?;
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, results) = &mut *done;
        writeln!(file, "{}", serde_json::to_string(&trial)?)?;
        results.add(trial);
        let latest = results.latest();
        eprintln!("{:>5} of {total}, {:>4} s: {latest}", results.len(), begun.elapsed().as_secs());
        Ok(())
    };
    let failed = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut workers = Vec::new();
        for task in &tasks {
            let share = machine.take(task.cell.load());
            // The others end with what they are at.
            if failed.load(Ordering::Relaxed) {
                break;
            }
            let (copy, failed) = (&copy, &failed);
            workers.push(scope.spawn(move || {
                let _share = share;
                copy(task).inspect_err(|_| failed.store(true, Ordering::Relaxed))
            }));
        }
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker that panics is a bug"))
    })?;
    Ok(results)
}

/// What was measured on.
fn setting(bench: &Bench, contenders: &[(Program, String)]) -> Setting {
    let mut versions = BTreeMap::new();
    for (program, _) in contenders {
        versions.insert(program.source().to_owned(), program.version().unwrap_or_default());
    }
    let system = rustix::system::uname();
    versions.insert("linux".into(), system.release().to_string_lossy().into_owned());
    versions.insert("nfs-ganesha".into(), package("nfs-ganesha"));
    let commit = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let commit = commit.ok().filter(|output| output.status.success());
    if let Some(commit) = commit {
        versions.insert("commit".into(), String::from_utf8_lossy(&commit.stdout).trim().to_owned());
    }
    // What was measured: rows of one table may come from several days, not from several trees.
    let tree = Command::new("git").args(["rev-parse", "--short=12", "HEAD:crates"]).output();
    let tree = tree.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let clean = Command::new("git").args(["diff", "--quiet", "HEAD", "--", "crates"]).status();
    let mut tree = String::from_utf8_lossy(&tree.unwrap_or_default()).trim().to_owned();
    if !clean.is_ok_and(|status| status.success()) {
        tree += "-dirty";
    }
    versions.insert("crates".into(), tree);
    if bench.ssh.is_some() {
        versions.insert("sshd".into(), package("openssh-server"));
    }
    Setting { versions, processors: thread::available_parallelism().map_or(1, usize::from) }
}

/// Prints and writes what there is. Returns whether every copy of nfsw was intact.
fn show(arguments: &Arguments, all: &[Cell], results: &Results) -> anyhow::Result<bool> {
    if results.len() == 0 {
        bail!("there are no results");
    }
    let rows = results.rows(all);
    println!("{}", report::full(&rows));
    println!("{}", target::table(all, results, &rows)?);
    println!("{}", report::notes(results));
    fs::create_dir_all(&arguments.out)?;
    fs::write(arguments.out.join("summary.json"), serde_json::to_string_pretty(&rows)?)?;
    fs::write(arguments.out.join("tables.md"), report::page(all, results, &rows)?)?;
    picture::write(&arguments.out, all, &rows)?;
    if let Some(root) = &arguments.renew {
        if let Some(cell) = results.unknown(all) {
            eprintln!(
                "head-to-head: the tables will lack {cell}, which is in the results: name its directory with --traces"
            );
        }
        let summary = if arguments.good { Summary::GoodLinks } else { Summary::BadLinks };
        report::renew(root, summary, all, results, &rows)?;
    }
    let nfsw = |trial: &&Trial| trial.program.starts_with("nfsw");
    Ok(results.trials().filter(nfsw).all(|trial| trial.outcome == Outcome::Intact))
}
