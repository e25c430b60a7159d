//! `nfsw ping`: round-trip time and loss of calls that do nothing.

use std::{
    cell::RefCell,
    io::{self, Write},
    time::Duration,
};

use nfs_wireless_client::{Error, Pinger, RetryPolicy, TransportChoice};
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use nfs_files::Context;

use crate::{
    args::{PingArgs, Transport},
    error::unreachable,
    exit::{Exit, Failure},
    process::Process,
    report::Reporter,
    servers::Access,
    units::nanoseconds,
};

pub(super) fn execute(arguments: PingArgs) -> Exit {
    let begun = RefCell::default();
    let exit = Process::new(&arguments.connection, &arguments.output)
        .run(async |context, reporter| run(&arguments, context, reporter, &begun).await);
    // Who ends it wants to know what came of it until then, as with ping(8).
    if exit == Exit::Interrupted
        && !arguments.output.json
        && let Some((transport, tally)) = begun.take()
    {
        let _ = write!(io::stdout(), "{}", tally.for_people(transport));
    }
    exit
}

/// The transport that is being measured, and what it has answered.
type Begun = RefCell<Option<(&'static str, Tally)>>;

/// What one transport answered.
#[derive(Clone, Debug, Default)]
struct Tally {
    sent: u32,
    answered: Vec<Duration>,
}

async fn run(
    arguments: &PingArgs,
    context: Context<'_>,
    reporter: &Reporter,
    begun: &Begun,
) -> anyhow::Result<()> {
    let transports = match arguments.connection.of(&arguments.host).transport() {
        Transport::Auto => &[TransportChoice::Udp, TransportChoice::Tcp][..],
        Transport::Udp => &[TransportChoice::Udp],
        Transport::Tcp => &[TransportChoice::Tcp],
    };
    let mut errors = Vec::new();
    let mut answered = false;
    for &transport in transports {
        match ping(arguments, context, reporter, transport, begun).await {
            Ok(tally) => answered |= !tally.answered.is_empty(),
            Err(error) => errors.push((transport, error)),
        }
    }
    if errors.len() == transports.len() {
        let (_, error) = errors.swap_remove(0);
        return Err(error);
    }
    for (transport, error) in errors {
        reporter.warning(format!("{}: {}", name(transport), crate::advice::explain(error.as_ref())));
    }
    if answered {
        Ok(())
    } else {
        Err(Failure::with(Exit::Unreachable, "no call was answered (nfsw doctor tells more)"))
    }
}

async fn ping(
    arguments: &PingArgs,
    context: Context<'_>,
    reporter: &Reporter,
    transport: TransportChoice,
    begun: &Begun,
) -> anyhow::Result<Tally> {
    let host = &arguments.host;
    let Access { address, mut config } = context.servers.access(host)?;
    config.transport = transport;
    config.connect_timeout = config.connect_timeout.or(Some(arguments.wait));
    config.call_timeout = Some(arguments.wait);
    // One call, one datagram: what gets lost is counted, not sent again.
    let never = arguments.wait.saturating_mul(2).max(Duration::from_millis(1));
    config.retry = RetryPolicy::Exponential { initial: never, maximum: never };
    let pinger =
        Pinger::connect(&address, config).await.map_err(|error| unreachable(error, host.server()))?;
    reporter.activity().set_mounted();
    let (shown, address) = (name(transport), pinger.address());
    if !reporter.json() {
        let line = format!("NULL calls to {} ({address}) over {}\n", host.server(), shown.to_uppercase());
        reporter.print(line.as_bytes())?;
    }
    let mut tally = Tally::default();
    let start = Instant::now();
    for number in 0..arguments.count {
        sleep_until(start + arguments.interval * number).await;
        tally.sent += 1;
        begun.replace(Some((shown, tally.clone())));
        let answer = match pinger.ping().await {
            Ok((rtt, _)) => {
                reporter.activity().step();
                tally.answered.push(rtt);
                Some(rtt)
            }
            Err(Error::Silent { .. }) => None,
            Err(error) => return Err(unreachable(error, host.server()).into()),
        };
        if reporter.json() {
            reporter.event(
                &json!({"event": "ping", "transport": shown, "number": number + 1, "rtt_ns": answer.map(nanoseconds)}),
            )?;
        } else {
            let words = answer
                .map_or_else(|| "no answer".to_owned(), |rtt| format!("{:.3} ms", rtt.as_secs_f64() * 1e3));
            reporter.print(format!("  {:>3}: {words}\n", number + 1).as_bytes())?;
        }
    }
    begun.take();
    if reporter.json() {
        reporter.event(&tally.to_json(shown))?;
    } else {
        reporter.print(tally.for_people(shown).as_bytes())?;
    }
    Ok(tally)
}

impl Tally {
    fn loss_percent(&self) -> f64 {
        100.0 * (1.0 - self.answered.len() as f64 / f64::from(self.sent.max(1)))
    }

    /// Shortest, mean and longest round trip in milliseconds.
    fn round_trips(&self) -> Option<[f64; 3]> {
        let ms: Vec<f64> = self.answered.iter().map(|rtt| rtt.as_secs_f64() * 1e3).collect();
        let shortest = ms.iter().copied().reduce(f64::min)?;
        let longest = ms.iter().copied().reduce(f64::max)?;
        Some([shortest, ms.iter().sum::<f64>() / ms.len() as f64, longest])
    }

    fn for_people(&self, transport: &str) -> String {
        let (sent, answered, loss) = (self.sent, self.answered.len(), self.loss_percent());
        let calls = if sent == 1 { "call" } else { "calls" };
        let mut line = format!("{transport}: {sent} {calls}, {answered} answered, {loss:.0} % lost");
        if let Some([shortest, mean, longest]) = self.round_trips() {
            line += &format!("; round trip {shortest:.3} / {mean:.3} / {longest:.3} ms (min / mean / max)");
        }
        line + "\n"
    }

    fn to_json(&self, transport: &str) -> serde_json::Value {
        let ns = |ms: f64| (ms * 1e6).round() as u64;
        let [shortest, mean, longest] =
            self.round_trips().map_or([None; 3], |times| times.map(|ms| Some(ns(ms))));
        json!({
            "event": "transport",
            "transport": transport,
            "sent": self.sent,
            "answered": self.answered.len(),
            "loss_pct": self.loss_percent(),
            "rtt_min_ns": shortest,
            "rtt_mean_ns": mean,
            "rtt_max_ns": longest,
        })
    }
}

fn name(transport: TransportChoice) -> &'static str {
    match transport {
        TransportChoice::Udp => "udp",
        TransportChoice::Tcp => "tcp",
        TransportChoice::Auto => "auto",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_and_round_trips_are_summed_up() {
        let tally = Tally { sent: 4, answered: [1, 2, 3].map(Duration::from_millis).to_vec() };
        let line = tally.for_people("udp");
        assert_eq!(
            line,
            "udp: 4 calls, 3 answered, 25 % lost; round trip 1.000 / 2.000 / 3.000 ms (min / mean / max)\n"
        );
        assert_eq!(
            Tally { sent: 1, answered: vec![] }.for_people("tcp"),
            "tcp: 1 call, 0 answered, 100 % lost\n"
        );
    }
}
