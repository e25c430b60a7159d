//! `nfsw curve`: response times in virtual time.

mod plans;

use std::{
    io::{self, IsTerminal, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use testbed::{
    Plan, Row,
    export::{Csv, Exporter, JsonLines, TextTable},
    figures::{self, Figure},
    report,
};

use crate::{
    args::CurveArgs,
    context::interrupted,
    error::{explain, show},
    exit::{Exit, Failure},
};

/// How often the bar is drawn.
const REDRAW: Duration = Duration::from_millis(100);

pub(super) fn execute(arguments: &CurveArgs) -> Exit {
    let done = match &arguments.figure {
        Some(name) => published(arguments, name),
        None => free(arguments),
    };
    done.unwrap_or_else(|error| {
        eprintln!("nfsw: {}", explain(&error));
        Exit::of(&error)
    })
}

/// A user's own experiment.
fn free(arguments: &CurveArgs) -> anyhow::Result<Exit> {
    let plans: Vec<Plan> = plans::plans(arguments)?;
    let (runs, seed) = (arguments.runs, arguments.link.seed);
    let total = plans.len() * runs as usize;
    let job = {
        let plans = plans.clone();
        move |done: &(dyn Fn(usize) -> bool + Sync)| testbed::sweep(&plans, seed, runs, done)
    };
    let (samples, exit) = watched(total, job)?;
    let rows: Vec<Row> = plans
        .iter()
        .zip(&samples)
        .filter_map(|(plan, samples)| Some(Row::new(plan, seed, samples.as_ref()?)))
        .collect();
    let exporter: &dyn Exporter = match (arguments.json, arguments.csv) {
        (true, _) => &JsonLines,
        (_, true) => &Csv,
        _ => &TextTable,
    };
    print(|out| exporter.write(&rows, out))?;
    if exit == Exit::Interrupted {
        eprintln!("nfsw: interrupted; {} of {} rows are complete", rows.len(), plans.len());
    }
    if !rows.is_empty() {
        write_report(arguments, &[figures::free(&rows)])?;
    }
    Ok(exit)
}

/// Published experiments.
fn published(arguments: &CurveArgs, name: &str) -> anyhow::Result<Exit> {
    let experiments = figures::named(name).map_err(usage)?;
    let (runs, seed) = (arguments.runs, arguments.link.seed);
    let total = figures::jobs(&experiments, runs);
    let job = {
        let experiments = experiments.clone();
        move |done: &(dyn Fn(usize) -> bool + Sync)| figures::run(&experiments, runs, seed, done)
    };
    let (figures, exit) = watched(total, job)?;
    if arguments.json || arguments.csv {
        print(|out| rows(&figures, arguments.json, out))?;
    } else if arguments.out.is_none() || experiments.len() == 1 {
        print(|out| tables(&figures, out))?;
    }
    if exit == Exit::Interrupted {
        eprintln!(
            "nfsw: interrupted; {} of {} figures have points, and those that were not reached are missing",
            figures.len(),
            experiments.len()
        );
    }
    write_report(arguments, &figures)?;
    Ok(exit)
}

fn rows(figures: &[Figure], json: bool, out: &mut dyn Write) -> io::Result<()> {
    if json {
        for row in figures.iter().flat_map(|figure| &figure.rows) {
            serde_json::to_writer(&mut *out, row)?;
            writeln!(out)?;
        }
        return Ok(());
    }
    let rows: Vec<Row> = figures.iter().flat_map(|figure| &figure.rows).map(|row| row.row.clone()).collect();
    Csv.write(&rows, out)
}

fn tables(figures: &[Figure], out: &mut dyn Write) -> io::Result<()> {
    for figure in figures {
        writeln!(out, "{} {}\n{}\n", figure.name, figure.title, figure.source)?;
        figure.tables.iter().try_for_each(|table| writeln!(out, "{table}"))?;
        figure.remarks.iter().try_for_each(|remark| writeln!(out, "- {remark}"))?;
    }
    Ok(())
}

fn write_report(arguments: &CurveArgs, figures: &[Figure]) -> anyhow::Result<()> {
    let Some(directory) = &arguments.out else { return Ok(()) };
    if figures.is_empty() {
        return Ok(());
    }
    let page = report::write(figures, arguments.runs, arguments.link.seed, directory)
        .map_err(|error| Failure::with(Exit::LocalIo, error.to_string()))?;
    eprintln!("nfsw: wrote {}", show(Path::new(&page)));
    Ok(())
}

/// Runs a job of so many runs with a progress bar, until it is done or interrupted.
fn watched<T: Send + 'static>(
    total: usize,
    job: impl FnOnce(&(dyn Fn(usize) -> bool + Sync)) -> Result<T, testbed::Error> + Send + 'static,
) -> anyhow::Result<(T, Exit)> {
    let (stop, finished) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let bar = bar(total);
    let result = runtime.block_on(async {
        let (worker_stop, worker_finished) = (Arc::clone(&stop), Arc::clone(&finished));
        let mut worker = tokio::task::spawn_blocking(move || {
            job(&|done| {
                worker_finished.fetch_max(done, Ordering::Relaxed);
                !worker_stop.load(Ordering::Relaxed)
            })
        });
        let mut interruption = std::pin::pin!(interrupted());
        let mut redraw = tokio::time::interval(REDRAW);
        loop {
            tokio::select! {
                result = &mut worker => break result,
                () = &mut interruption, if !stop.load(Ordering::Relaxed) => stop.store(true, Ordering::Relaxed),
                _ = redraw.tick() => bar.set_position(finished.load(Ordering::Relaxed) as u64),
            }
        }
    });
    bar.finish_and_clear();
    let exit = if stop.load(Ordering::Relaxed) { Exit::Interrupted } else { Exit::Done };
    Ok((result?.map_err(usage)?, exit))
}

fn bar(total: usize) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} runs, {eta} left");
    ProgressBar::new(total as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Names the option where the testbed names the field.
fn usage(error: testbed::Error) -> anyhow::Error {
    let message = error.to_string();
    match error {
        testbed::Error::OutOfRange { field: "clients" | "size" | "block", .. } => {
            Failure::usage(format!("--{message}"))
        }
        testbed::Error::Published(_) => Failure::with(Exit::SomeFailed, message),
        _ => Failure::usage(message),
    }
}

/// Writes to standard output; that nobody reads on is no failure.
fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    match write(&mut io::BufWriter::new(io::stdout().lock())) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
