//! `nfsw curve`: response times in virtual time.

use std::{
    fs,
    io::{self, IsTerminal},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use linkemu::LinkConfig;
use nfs_files::copy::Shard;
use nfs_wireless_client::{BlockSize, RetryPolicy, Window};
use testbed::{
    Operation, Outage, Parts, Plan, Room, Row, Samples, Sweep, Transport,
    figures::{self, Figure, link_files},
    report,
};
use toml::{Table, Value};

use crate::{
    advice::explain,
    args::{CurveArgs, CurveTransport, LinkOptions, Op, Policy},
    error::{local, show},
    exit::{Exit, Failure},
    link_options::link_of_file,
    report::print_all,
    signals::interrupted,
    units::AutoOr,
};

/// Most points of one run.
const MAX_POINTS: usize = 100_000;

pub(super) fn execute(arguments: &CurveArgs) -> Exit {
    match run(arguments) {
        Ok(exit) => exit,
        Err(error) => {
            eprintln!("nfsw: {}", explain(error.as_ref()));
            Exit::of(error.as_ref())
        }
    }
}

fn run(arguments: &CurveArgs) -> anyhow::Result<Exit> {
    if let Some(name) = &arguments.print_room {
        let Some(file) = Room::file(name) else { return Err(unknown(name)) };
        print_all(file)?;
        return Ok(Exit::Done);
    }
    if let Some(name) = &arguments.figure {
        return published(arguments, name);
    }
    let plans = plans(arguments)?;
    for plan in &plans {
        plan.check().map_err(|error| Failure::usage(error.to_string()))?;
    }
    let (runs, seed) = (arguments.runs, arguments.link.seed);
    if let Some(shard) = arguments.shard {
        return part(arguments, &plans, shard);
    }
    let (samples, interrupted) = if arguments.merge.is_empty() {
        watched(plans.len() * runs as usize, |done| testbed::sweep(&plans, seed, runs, done))?
    } else {
        (merged(arguments, &plans)?.into_iter().map(Some).collect(), false)
    };
    let rows: Vec<Row> = plans
        .iter()
        .zip(&samples)
        .filter_map(|(plan, samples)| Some(Row::new(plan, samples.as_ref()?, seed)))
        .collect();
    print_all(&if arguments.json { testbed::json_lines(&rows) } else { testbed::table(&rows) })?;
    if !rows.is_empty() {
        write(arguments, &[figures::free(&rows)])?;
    }
    if interrupted {
        eprintln!("nfsw: interrupted: {} of {} points are complete", rows.len(), plans.len());
        return Ok(Exit::Interrupted);
    }
    Ok(Exit::Done)
}

/// Runs a part of the seeds, and prints what they show for a later run that merges all parts.
fn part(arguments: &CurveArgs, plans: &[Plan], shard: Shard) -> anyhow::Result<Exit> {
    let head = sweep_of(arguments, plans);
    let indexes: Vec<u32> = (0..head.runs).filter(|index| shard.has_index((*index).into())).collect();
    let (samples, interrupted) =
        watched(plans.len() * indexes.len(), |done| testbed::sweep_part(plans, head.seed, &indexes, done))?;
    let Some(samples) = samples.into_iter().collect::<Option<Vec<_>>>().filter(|_| !interrupted) else {
        eprintln!("nfsw: interrupted: a part that is not complete is of no use");
        return Ok(Exit::Interrupted);
    };
    print_all(testbed::part_lines(&head, &shard.to_string(), &samples))?;
    Ok(Exit::Done)
}

/// Reads all parts of a sweep.
fn merged(arguments: &CurveArgs, plans: &[Plan]) -> anyhow::Result<Vec<Samples>> {
    let mut parts = Parts::new(sweep_of(arguments, plans));
    for file in &arguments.merge {
        let text = fs::read_to_string(file).map_err(|error| local(file, &error))?;
        parts.add(&text).map_err(|error| Failure::usage(format!("{}: {error}", show(file))))?;
    }
    parts.finish().map_err(|error| Failure::usage(format!("--merge: {error}")))
}

/// Returns what tells a sweep from others: all that its options have become.
fn sweep_of(arguments: &CurveArgs, plans: &[Plan]) -> Sweep {
    let text = format!("{} {plans:?}", env!("CARGO_PKG_VERSION"));
    let digits = blake3::hash(text.as_bytes()).to_hex();
    let (points, runs, seed) = (plans.len(), arguments.runs, arguments.link.seed);
    Sweep { options: digits[..16].to_owned(), points, runs, seed }
}

/// Runs published figures again.
fn published(arguments: &CurveArgs, name: &str) -> anyhow::Result<Exit> {
    let channels = arguments.traces.as_deref().map(recorded_channels).transpose()?.unwrap_or_default();
    let experiments = figures::named(name, &channels).map_err(|error| Failure::usage(error.to_string()))?;
    let (runs, seed) = (arguments.runs, arguments.link.seed);
    let (figures, interrupted) =
        watched(figures::jobs(&experiments, runs), |done| figures::run(&experiments, runs, seed, done))?;
    for figure in &figures {
        print_all(&if arguments.json { testbed::json_lines(&figure.rows) } else { described(figure) })?;
    }
    write(arguments, &figures)?;
    if interrupted {
        let (shown, all) = (figures.len(), experiments.len());
        eprintln!("nfsw: interrupted: {shown} of {all} figures have complete points");
        return Ok(Exit::Interrupted);
    }
    Ok(Exit::Done)
}

/// The links that are described in a directory, by their names.
fn recorded_channels(directory: &Path) -> anyhow::Result<Vec<(String, LinkConfig)>> {
    let wrong = |error: io::Error| Failure::usage(format!("--traces {}: {error}", show(directory)));
    let files = link_files(directory).map_err(wrong)?;
    if files.is_empty() {
        return Err(Failure::usage(format!("--traces {}: no *.toml there", show(directory))));
    }
    let name = |file: &Path| file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    files.iter().map(|file| Ok((name(file), link_of_file(file)?))).collect()
}

/// A figure for a terminal.
fn described(figure: &Figure) -> String {
    let mut text = format!("{} {}\n{}\n", figure.name, figure.title, figure.source);
    for table in &figure.tables {
        text += &format!("\n{table}");
    }
    for (index, remark) in figure.remarks.iter().enumerate() {
        text += &format!("{}- {remark}\n", if index == 0 { "\n" } else { "" });
    }
    text + "\n"
}

/// Writes the report that `--out` asks for.
fn write(arguments: &CurveArgs, figures: &[Figure]) -> anyhow::Result<()> {
    let Some(directory) = arguments.out.as_ref().filter(|_| !figures.is_empty()) else { return Ok(()) };
    let page = report::write(figures, arguments.runs, arguments.link.seed, directory)
        .map_err(|error| Failure::with(Exit::LocalIo, error.to_string()))?;
    eprintln!("nfsw: wrote {}", show(&page));
    Ok(())
}

/// Does a job of so many runs with a progress bar; true if it was interrupted.
fn watched<T: Send>(
    total: usize,
    job: impl FnOnce(&(dyn Fn(usize) -> bool + Sync)) -> Result<T, testbed::Error> + Send,
) -> anyhow::Result<(T, bool)> {
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicUsize::new(0));
    let bar = if io::stderr().is_terminal() {
        let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr_with_hz(10));
        let style = "{bar:40} {pos} of {len} runs, {elapsed} elapsed, {eta} to go";
        bar.set_style(ProgressStyle::with_template(style).expect("a template with known fields"));
        bar
    } else {
        ProgressBar::hidden()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = std::thread::scope(|scope| {
        let working = scope.spawn(|| {
            job(&|count| {
                done.fetch_max(count, Ordering::Relaxed);
                !stop.load(Ordering::Relaxed)
            })
        });
        runtime.block_on(async {
            let watch = async {
                while !working.is_finished() {
                    bar.set_position(done.load(Ordering::Relaxed) as u64);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            tokio::select! {
                () = interrupted() => stop.store(true, Ordering::Relaxed),
                () = watch => {}
            }
        });
        working.join().expect("a sweep that panics is a bug")
    });
    bar.finish_and_clear();
    let result = result.map_err(|error| Failure::usage(error.to_string()))?;
    // A signal that came when all was done interrupted nothing.
    Ok((result, done.load(Ordering::Relaxed) < total))
}

/// Every combination of what the options list.
fn plans(arguments: &CurveArgs) -> anyhow::Result<Vec<Plan>> {
    let operations: &[Operation] = match arguments.op {
        Op::Read => &[Operation::Read],
        Op::Write => &[Operation::Write],
        Op::Both => &[Operation::Read, Operation::Write],
    };
    let rooms = rooms(arguments)?;
    let windows: Vec<Option<AutoOr>> = match arguments.window.as_slice() {
        [] => vec![None],
        windows => windows.iter().copied().map(Some).collect(),
    };
    let mut plans = Vec::new();
    for (operation, transport) in
        operations.iter().flat_map(|operation| arguments.transport.iter().map(move |it| (operation, it)))
    {
        for policy in &arguments.policy {
            for clients in &arguments.clients {
                for block in &arguments.block {
                    for window in &windows {
                        for room in &rooms {
                            let mut plan = Plan::new(room.clone());
                            plan.operation = *operation;
                            plan.transport = transport_of(*transport);
                            plan.policy = policy_of(*policy);
                            plan.clients = *clients;
                            plan.block = match block.number() {
                                Some(bytes) => BlockSize::Exact(bytes),
                                None => BlockSize::Auto { max: arguments.max_block },
                            };
                            if let Some(window) = window {
                                plan.window = window.number().map_or(Window::Auto, Window::Calls);
                            }
                            plan.size = arguments.size;
                            plan.warm = arguments.warm.then_some(plan.size);
                            plan.competitor = arguments.competitor.is_some();
                            plan.patience = arguments.patience;
                            plan.outages = arguments
                                .outage
                                .iter()
                                .map(|&(at, length)| Outage { at, length, over: None })
                                .collect();
                            plans.push(plan);
                        }
                    }
                }
            }
        }
    }
    if plans.len() > MAX_POINTS {
        return Err(Failure::usage(format!("{} points; at most {MAX_POINTS} at once", plans.len())));
    }
    Ok(plans)
}

/// The room with every link that the options list.
fn rooms(arguments: &CurveArgs) -> anyhow::Result<Vec<Room>> {
    let (name, text) = match Room::file(&arguments.room) {
        Some(text) => (arguments.room.clone(), text.to_owned()),
        None => {
            let path = Path::new(&arguments.room);
            let is_path = arguments.room.contains(['/', '.']);
            let text = match fs::read_to_string(path) {
                Ok(text) => text,
                Err(error) if is_path => return Err(local(path, &error).into()),
                Err(_) => return Err(unknown(&arguments.room)),
            };
            (path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), text)
        }
    };
    let table = text.parse::<Table>().map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    let bads = list(arguments.link.bad.as_deref()).map_err(Failure::usage)?;
    let arqs = list(arguments.link.arq.as_deref()).map_err(Failure::usage)?;
    let schedulers = list(arguments.link.scheduler.as_deref()).map_err(Failure::usage)?;
    let mut rooms = Vec::new();
    for arq in &arqs {
        for scheduler in &schedulers {
            for bad in &bads {
                let options = LinkOptions {
                    bad: bad.clone(),
                    arq: arq.clone(),
                    scheduler: scheduler.clone(),
                    ..arguments.link.clone()
                };
                let mut table = table.clone();
                let mut link = options.base()?;
                if let (true, Some(Value::Table(own))) = (link.is_empty(), table.remove("link")) {
                    link = own;
                }
                if let Some(directory) = options.config.as_deref().and_then(Path::parent) {
                    find_traces_in(directory, &mut link);
                }
                options.amend(&mut link)?;
                table.insert("link".into(), Value::Table(link));
                let room = Room::from_toml(&name, &table.to_string());
                rooms.push(room.map_err(|error| Failure::usage(error.to_string()))?);
            }
        }
    }
    Ok(rooms)
}

/// Traces lie beside the file that names them.
fn find_traces_in(directory: &Path, link: &mut Table) {
    for (key, value) in link {
        match value {
            Value::String(file) if key == "rate_trace" => {
                *file = directory.join(&*file).to_string_lossy().into_owned();
            }
            Value::Table(part) => find_traces_in(directory, part),
            _ => {}
        }
    }
}

/// Reads `a,b,c`; `0,20,..,160` counts on. Nothing is one value that is not set.
fn list(text: Option<&str>) -> Result<Vec<Option<String>>, String> {
    let Some(text) = text else { return Ok(vec![None]) };
    let items: Vec<&str> = text.split(',').map(str::trim).collect();
    let mut values = Vec::new();
    for (index, item) in items.iter().enumerate() {
        if *item != ".." {
            values.push(Some((*item).to_owned()));
            continue;
        }
        let number = |at: usize| items.get(at).and_then(|it| it.parse::<f64>().ok());
        let (Some(first), Some(second), Some(last)) =
            (index.checked_sub(2).and_then(number), index.checked_sub(1).and_then(number), number(index + 1))
        else {
            return Err(format!("{text}: .. counts on from two numbers to a third, as in 0,20,..,160"));
        };
        let step = second - first;
        if step <= 0.0 || (last - second) / step > 10_000.0 {
            return Err(format!("{text}: .. must count upwards, 10000 steps at most"));
        }
        let mut next = second + step;
        while next < last - step / 2.0 {
            values.push(Some(next.to_string()));
            next += step;
        }
    }
    Ok(values)
}

const fn transport_of(transport: CurveTransport) -> Transport {
    match transport {
        CurveTransport::Udp => Transport::Udp,
        CurveTransport::Tcp => Transport::Tcp,
        CurveTransport::Auto => Transport::Auto,
    }
}

const fn policy_of(policy: Policy) -> RetryPolicy {
    match policy {
        Policy::Adaptive => RetryPolicy::Adaptive,
        Policy::Hybrid => RetryPolicy::hybrid(),
        Policy::Exponential => RetryPolicy::exponential(),
        Policy::Kernel => RetryPolicy::kernel(),
    }
}

fn unknown(name: &str) -> anyhow::Error {
    let known = Room::names().collect::<Vec<_>>().join(", ");
    Failure::usage(format!("there is no room {name:?}; there are {known}, or give a file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_count_on() {
        let values =
            |text| list(Some(text)).map(|values| values.into_iter().flatten().collect::<Vec<_>>().join(" "));
        assert_eq!(values("0,20,..,80").unwrap(), "0 20 40 60 80");
        assert_eq!(values("none,ideal").unwrap(), "none ideal");
        assert!(values("..,3").is_err() && values("3,2,..,1").is_err());
        assert_eq!(list(None).unwrap(), [None]);
    }
}
