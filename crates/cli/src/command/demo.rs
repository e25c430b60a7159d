//! `nfsw demo`: the main job on this machine alone: a tree there and back, a file over a bad link, and how others do.

mod link;
mod tree;

use std::{
    io::Write,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use clap::Parser;
use nfs_wireless_server::{DirectoryConfig, Metadata};
use tokio::sync::oneshot;

use super::{cp, serve};
use crate::{
    advice::explain,
    args::{Cli, Command, DemoArgs},
    error::{local, show},
    exit::{Exit, Failure},
    progress::Aside,
    summary::Summary,
    units,
};

/// Prints a line. Whether anybody reads it changes nothing.
macro_rules! say {
    ($($text:tt)*) => {{
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

pub(super) fn execute(arguments: &DemoArgs) -> Exit {
    match run(arguments) {
        Ok(()) => Exit::Done,
        Err(error) => {
            eprintln!("nfsw: {}", explain(error.as_ref()));
            Exit::of(error.as_ref())
        }
    }
}

fn run(arguments: &DemoArgs) -> anyhow::Result<()> {
    let started = Instant::now();
    let place = tempfile::Builder::new().prefix("nfsw-demo-").tempdir();
    let place = place.map_err(|error| local(&std::env::temp_dir(), &error))?;
    let here = place.path().to_owned();
    let original = here.join("served/tree");
    let content = tree::generate(&original).map_err(|error| local(&original, &error))?;
    say!("A tree of {content}, with odd names, links and old dates,");

    let server = Background::start(here.join("served"))?;
    say!("served by a small NFS server on this machine, at {}.", server.address);
    say!("Each transport fetches the tree, sends the copy back, and both copies are compared.\n");
    let url = serve::url(server.address);
    for transport in ["udp", "tcp"] {
        let fetched = here.join(format!("fetched-{transport}"));
        let returned = format!("returned-{transport}");
        say!("{}", transport.to_uppercase());
        copy(transport, &format!("{url}/tree"), &show(&fetched))?;
        copy(transport, &show(&fetched), &format!("{url}/{returned}"))?;
        for copied in [&fetched, &here.join("served").join(returned)] {
            compare(&original, copied)?;
        }
        say!("  both copies are the same as the original: every byte, mode, time and link\n");
    }
    over_a_bad_link(&here, server.address)?;
    say!(
        "1 MiB over that link, mean of 20 others with the same statistics, computed by `nfsw curve` in virtual time:\n"
    );
    say!("{}", link::chart()?);
    say!("The whole report, with the figures of four papers run again: nfsw curve --figure all --out report");
    say!("All of it worked, in {}.", units::duration(started.elapsed()));
    if arguments.keep {
        say!("The files are in {}.", show(&place.keep()));
    } else {
        say!("Next: nfsw serve DIR on one machine, nfsw cp -r HOST:/PATH . on another; nfsw --help.");
    }
    Ok(())
}

/// Bytes of the file that crosses the link: four seconds of its time.
const SMALL_FILE: usize = 480 << 10;

/// Fetches a file over the papers' link in real time, with both policies and the same fades.
fn over_a_bad_link(here: &Path, server: SocketAddr) -> anyhow::Result<()> {
    let original = here.join("served/small.bin");
    std::fs::write(&original, tree::noise(SMALL_FILE, 0)).map_err(|error| local(&original, &error))?;
    say!(
        "Now a bad link in between: 1 Mbit/s, half duplex, fades of 80 ms on average every second (Dube et al. 1997),"
    );
    say!("and {} in real time. In the strip # is good, . is faded.\n", units::bytes(SMALL_FILE as u64));
    for policy in ["adaptive", "exponential"] {
        let link = link::BadLink::start(server)?;
        let (url, fetched) = (serve::url(link.address), here.join(format!("small-{policy}")));
        let source = format!("{url}/small.bin");
        say!("  nfsw cp -p --policy {policy} {source} {}", show(&fetched));
        let line = [
            "nfsw",
            "cp",
            "-p",
            "--no-resume",
            "--transport",
            "udp",
            "--policy",
            policy,
            &source,
            &show(&fetched),
        ];
        run_copy(&line, Some(&link.strip))?;
        if let Some(told) = link.stop() {
            say!("    {told}");
        }
        compare(&original, &fetched)?;
    }
    say!("");
    Ok(())
}

/// Runs one quiet `nfsw cp` and says how it went.
fn copy(transport: &str, source: &str, target: &str) -> anyhow::Result<()> {
    let line = ["nfsw", "cp", "-rp", "--no-resume", "--quiet", "--transport", transport, source, target];
    say!("  nfsw cp -rp --transport {transport} {source} {target}");
    run_copy(&line, None)
}

fn run_copy(line: &[&str], aside: Option<&Aside>) -> anyhow::Result<()> {
    let Command::Cp(arguments) = Cli::try_parse_from(line)?.command else {
        unreachable!("the line says cp");
    };
    let started = Instant::now();
    let (exit, Summary { bytes, clients }) = cp::execute(arguments, aside.map(Arc::clone));
    let elapsed = started.elapsed();
    if exit != Exit::Done {
        return Err(Failure::with(exit, format!("{} failed", line.join(" "))));
    }
    let calls: u64 = clients.iter().map(|client| client.stats.calls).sum();
    let resends: u64 = clients.iter().map(|client| client.stats.resends.total()).sum();
    let rtt = clients.first().and_then(|client| client.stats.rtt.quantile(0.5)).unwrap_or(Duration::ZERO);
    say!(
        "    {} in {}: {}, {calls} calls, {resends} retransmissions, round trip {:.2} ms",
        units::bytes(bytes),
        units::duration(elapsed),
        units::rate(bytes, elapsed),
        rtt.as_secs_f64() * 1e3,
    );
    Ok(())
}

fn compare(original: &Path, copied: &Path) -> anyhow::Result<()> {
    match tree::first_difference(original, copied).map_err(|error| local(copied, &error))? {
        None => Ok(()),
        Some(path) => {
            let text = format!("{} differs from the original: {}", show(copied), show(&path));
            Err(Failure::with(Exit::Mismatch, text))
        }
    }
}

/// A server on a thread of its own, so that it works while this one copies.
struct Background {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    fn start(directory: PathBuf) -> anyhow::Result<Self> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, started) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => {
                    let _ = ready.send(Err(error.into()));
                    return;
                }
            };
            runtime.block_on(async {
                let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
                let mut config = DirectoryConfig::default();
                // The tree is gone when the demonstration ends.
                config.metadata = Metadata::Cached;
                match serve::serve(&directory, config, listen, "--listen").await {
                    Ok(server) => {
                        let _ = ready.send(Ok(server.local_addr()));
                        // Either way it is over.
                        let _ = stopped.await;
                        server.shutdown().await;
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                    }
                }
            });
        });
        let address = started.recv()??;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic was printed there.
            let _ = thread.join();
        }
    }
}
