//! `nfsw link`: an emulated link, as a proxy and as a picture.

mod proxy;
mod rpc_log;

use std::{
    fmt::Write as _,
    io::{self, Write as _},
};

use linkemu::{ChannelReport, Preset};

use crate::{
    args::{LinkArgs, LinkCommand, LinkShowArgs},
    error::explain,
    exit::{Exit, Failure},
};

pub(super) fn execute(arguments: &LinkArgs) -> Exit {
    let done = match &arguments.command {
        LinkCommand::Proxy(arguments) => proxy::run(arguments),
        LinkCommand::Show(arguments) => show(arguments),
        LinkCommand::Presets => presets(),
    };
    done.unwrap_or_else(|error| {
        eprintln!("nfsw: {}", explain(&error));
        Exit::of(&error)
    })
}

fn show(arguments: &LinkShowArgs) -> anyhow::Result<Exit> {
    let link = arguments.link.link()?;
    let report = ChannelReport::new(&link, arguments.link.seed, 0, arguments.length)
        .map_err(|error| Failure::usage(error.to_string()))?;
    print(&if arguments.json { format!("{}\n", report.to_json()) } else { report.to_string() })
}

fn presets() -> anyhow::Result<Exit> {
    let mut text = String::new();
    for preset in Preset::ALL {
        let config = preset.config();
        let report = ChannelReport::new(&config, 1, 0, std::time::Duration::from_secs(60))?;
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

/// Writes to standard output; that nobody reads on is no failure.
fn print(text: &str) -> anyhow::Result<Exit> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(Exit::Done),
    }
}
