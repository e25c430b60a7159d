//! `nfsw link proxy`: the link on real sockets.

use std::{
    io::{self, IsTerminal, Write},
    net::{SocketAddr, ToSocketAddrs},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use linkemu::{
    ChannelState,
    proxy::{Forward, Proxy, ProxyConfig, ProxyError, ProxyHandle, ProxyStats},
};

use crate::{
    args::LinkProxyArgs,
    error::io_text,
    exit::{Exit, Failure},
    signals::end_of,
    units,
};

/// How often the live view is redrawn.
const REDRAW: Duration = Duration::from_millis(200);

/// How often somebody looks whether an output has failed.
const LOOK: Duration = Duration::from_secs(1);

pub(super) fn run(arguments: &LinkProxyArgs) -> anyhow::Result<Exit> {
    // Every client takes a socket.
    crate::descriptors::raise_limit();
    let config = config(arguments)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut proxy = Proxy::bind(config).await.map_err(explained)?;
        for observer in super::observers(&arguments.capture)? {
            proxy.observe(observer);
        }
        announce(arguments, &proxy.local_addresses()?)?;
        let handle = proxy.handle();
        let running = tokio::spawn(proxy.run());
        let exit = tokio::select! {
            exit = end_of(arguments.lifetime) => exit,
            () = watch(&handle, !arguments.quiet) => Exit::Done,
        };
        handle.stop().await;
        let stats = running.await?;
        report(arguments, &stats)?;
        // A proxy without an end is ended by whoever started it.
        Ok(if arguments.lifetime.is_none() { Exit::Done } else { exit })
    })
}

fn config(arguments: &LinkProxyArgs) -> anyhow::Result<ProxyConfig> {
    let (listens, tos) = (arguments.listen.len(), arguments.to.len());
    if listens != tos {
        return Err(Failure::usage(format!(
            "{listens} --listen and {tos} --to; they match in order, so there must be as many of each"
        )));
    }
    let mut config = ProxyConfig::new(arguments.link.link()?, arguments.link.seed);
    for (listen, to) in arguments.listen.iter().zip(&arguments.to) {
        config.forwards.push(Forward { listen: *listen, to: resolve(to, *listen)? });
    }
    Ok(config)
}

/// Returns the first address of a host and port, of the family that clients use if there is one.
fn resolve(to: &str, listen: SocketAddr) -> anyhow::Result<SocketAddr> {
    if to.starts_with('[') {
        return units::parse_listen(to).map_err(|error| Failure::usage(format!("--to {to}: {error}")));
    }
    let found = to
        .to_socket_addrs()
        .map_err(|error| Failure::usage(format!("--to {to}: {}; it must be HOST:PORT", io_text(&error))))?;
    let mut found: Vec<_> = found.collect();
    found.sort_by_key(|address| address.is_ipv4() != listen.is_ipv4());
    found.first().copied().ok_or_else(|| Failure::usage(format!("--to {to}: the name has no address")))
}

fn explained(error: ProxyError) -> anyhow::Error {
    match error {
        ProxyError::Config(error) => Failure::usage(error.to_string()),
        ProxyError::Listen { address, source } => Failure::with(
            Exit::LocalIo,
            format!("cannot listen on {address}: {} (--listen takes another)", io_text(&source)),
        ),
        other => other.into(),
    }
}

fn announce(arguments: &LinkProxyArgs, addresses: &[SocketAddr]) -> io::Result<()> {
    let mut out = io::stderr().lock();
    for (address, to) in addresses.iter().zip(&arguments.to) {
        writeln!(out, "{address} leads to {to} over the link; Ctrl-C stops it")?;
    }
    out.flush()
}

/// Shows what is going on, and says when an output has failed. Ends when the proxy does.
async fn watch(handle: &ProxyHandle, live: bool) {
    let live = live && io::stderr().is_terminal();
    let bar = if live {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        bar.set_style(ProgressStyle::with_template("{msg}").expect("a template without fields but {msg}"));
        bar
    } else {
        ProgressBar::hidden()
    };
    let mut said = 0;
    let mut before: Option<ProxyStats> = None;
    while let Some(stats) = handle.stats().await {
        for problem in stats.problems.iter().skip(said) {
            bar.suspend(|| eprintln!("nfsw: {problem}; the link goes on"));
        }
        said = stats.problems.len();
        if live {
            bar.set_message(line(&stats, before.as_ref()));
        }
        before = Some(stats);
        tokio::time::sleep(if live { REDRAW } else { LOOK }).await;
    }
    bar.finish_and_clear();
}

/// The live view: state, rate, queues, loss.
fn line(now: &ProxyStats, before: Option<&ProxyStats>) -> String {
    let states = now.link.states.iter().map(|state| match state {
        ChannelState::Good => "good",
        ChannelState::Bad => "BAD ",
    });
    let states = states.collect::<Vec<_>>().join(" ");
    let stats = &now.link.stats;
    let seconds = REDRAW.as_secs_f64();
    let bits = before.map_or(0, |before| stats.delivered_bytes - before.link.stats.delivered_bytes) * 8;
    let lost = 100.0 * stats.lost() as f64 / stats.settled().max(1) as f64;
    let (down, up) =
        now.link.queue_packets.split_first().map_or((0, 0), |(down, up)| (*down, up.iter().sum()));
    format!(
        "{:8.1} s  channel {states}  {:8.1} kbit/s  queued {down} down {up} up  {} datagrams, {lost:.1} % lost  {} clients",
        now.link.channel_time.as_secs_f64(),
        bits as f64 / seconds / 1e3,
        stats.datagrams,
        now.clients,
    )
}

fn report(arguments: &LinkProxyArgs, stats: &ProxyStats) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if arguments.json {
        return writeln!(out, "{}", stats.to_json());
    }
    out.write_all(super::summary(&stats.link, &stats.lateness).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_the_server_keeps_its_zone() {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        for (to, found) in [
            ("192.0.2.7:53", Some("192.0.2.7:53")),
            ("[2001:db8::7]:53", Some("[2001:db8::7]:53")),
            ("[fe80::7%1]:53", Some("[fe80::7%1]:53")),
            // The loopback is the first interface.
            #[cfg(target_os = "linux")]
            ("[fe80::7%lo]:53", Some("[fe80::7%1]:53")),
            ("[fe80::7%nothing]:53", None),
            ("[fe80::7]", None),
            ("fe80::7%lo", None),
        ] {
            let resolved = resolve(to, listen).ok().map(|address| address.to_string());
            assert_eq!(resolved.as_deref(), found, "{to}");
        }
    }
}
