//! `nfsw link`: an emulated link, as a proxy and as a picture.

#[cfg(linux)]
pub(crate) mod exec;
mod proxy;
mod rpc_log;

use std::{
    fmt::Write as _,
    fs::File,
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::json;

use linkemu::{CaptureWriter, ChannelReport, Lateness, Observer, Preset, RecordWriter, Snapshot};

use self::rpc_log::RpcLog;
use crate::{
    advice::explain,
    args::{CaptureArgs, LinkArgs, LinkCommand, LinkShowArgs},
    error::local,
    exit::{Exit, Failure},
    report::print_all,
};

pub(super) fn execute(arguments: &LinkArgs) -> ExitCode {
    let done = match &arguments.command {
        #[cfg(linux)]
        LinkCommand::Exec(arguments) => return exec::run(arguments),
        LinkCommand::Proxy(arguments) => proxy::run(arguments),
        LinkCommand::Show(arguments) => show(arguments),
        LinkCommand::Presets(arguments) => presets(arguments.json),
    };
    let exit = done.unwrap_or_else(|error| {
        eprintln!("nfsw: {}", explain(error.as_ref()));
        Exit::of(error.as_ref())
    });
    exit.into()
}

fn show(arguments: &LinkShowArgs) -> anyhow::Result<Exit> {
    let link = arguments.link.link()?;
    let report = ChannelReport::new(&link, arguments.link.seed, 0, arguments.length)
        .map_err(|error| Failure::usage(error.to_string()))?;
    print(&if arguments.json { format!("{}\n", report.to_json()) } else { report.to_string() })
}

fn presets(as_json: bool) -> anyhow::Result<Exit> {
    let mut text = String::new();
    for preset in Preset::ALL {
        let config = preset.config();
        let report = ChannelReport::new(&config, 1, 0, std::time::Duration::from_secs(60))?;
        if as_json {
            let object = json!({
                "event": "preset",
                "name": preset.name,
                "summary": preset.summary,
                "source": preset.source,
                "bad_share": report.implied_bad_share.map(|share| (share * 1e6).round() / 1e6),
                "mean_fade_frames": report.mean_run_frames,
            });
            let _ = writeln!(text, "{object}");
            continue;
        }
        let _ = writeln!(text, "{}\n    {}", preset.name, preset.summary);
        let _ = match (report.implied_bad_share, report.mean_run_frames) {
            (Some(bad), Some(run)) if bad > 0.0 => {
                let percent = 100.0 * bad;
                writeln!(text, "    bad {percent:.1} % of the time; a mean fade is {run:.1} full frames long")
            }
            _ => writeln!(text, "    no errors unless --bad or --loss asks for them"),
        };
        let _ = writeln!(text, "    source: {}", preset.source);
    }
    print(&text)
}

/// Opens what was asked to be written.
fn observers(arguments: &CaptureArgs) -> anyhow::Result<Vec<Box<dyn Observer>>> {
    let mut observers: Vec<Box<dyn Observer>> = Vec::new();
    if let Some(path) = &arguments.records {
        observers.push(Box::new(RecordWriter::new(create(path)?)));
    }
    if let Some(path) = &arguments.pcap {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        observers.push(Box::new(CaptureWriter::new(create(path)?, now)));
    }
    if let Some(path) = &arguments.rpc_log {
        observers.push(Box::new(RpcLog::new(io::BufWriter::new(create(path)?))));
    }
    Ok(observers)
}

fn create(path: &Path) -> anyhow::Result<File> {
    // What packets carry is nobody else's business.
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
    Ok(file.map_err(|error| local(path, &error))?)
}

/// What a link in real time did, in two lines.
fn summary(link: &Snapshot, late: &Lateness) -> String {
    let stats = &link.stats;
    format!(
        "{} datagrams in {:.1} s of channel time: {} delivered, {} lost ({} to the channel, {} to full queues)\n\
         deliveries late by {:.2} ms at most, 99 % by less than {:.2} ms\n",
        stats.datagrams,
        link.channel_time.as_secs_f64(),
        stats.delivered(),
        stats.lost(),
        stats.fate(linkemu::Fate::Channel),
        stats.fate(linkemu::Fate::QueueFull),
        late.most().as_secs_f64() * 1e3,
        late.quantile(0.99).as_secs_f64() * 1e3,
    )
}

fn print(text: &str) -> anyhow::Result<Exit> {
    print_all(text).map(|()| Exit::Done)
}
