//! The numbers of a whole run, over all servers it talked to.

use std::{fmt::Write as _, time::Duration};

use nfs_wireless_client::{Client, PathEstimate, Protocol, Stats};
use serde_json::{Value, json};

use crate::{outcome::Outcome, remembered::transport_name, schema, servers::Servers, units, url::Remote};

/// What a run did, for `--stats` and for the last line of `--json`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    /// File bytes moved.
    pub(crate) bytes: u64,
    /// Counters of each server's client, with its transport and block size.
    pub(crate) clients: Vec<ClientSummary>,
}

/// The numbers of one client.
#[derive(Clone, Debug)]
pub(crate) struct ClientSummary {
    /// Its counters.
    pub(crate) stats: Stats,
    /// What carried READs and WRITEs.
    pub(crate) transport: Protocol,
    /// Bytes in one READ or WRITE.
    pub(crate) block_size: u32,
    /// What it has measured of its path.
    pub(crate) path: Option<PathEstimate>,
}

impl Summary {
    /// Returns the numbers of a run so far.
    pub(crate) fn of(servers: &Servers) -> Self {
        let clients = servers.clients().iter().map(|(_, client)| ClientSummary::of(client)).collect();
        Self { bytes: servers.activity().bytes(), clients }
    }

    /// Returns the last JSON line of a run.
    pub(crate) fn to_json(&self, elapsed: Duration, outcome: &Outcome) -> Value {
        let exit = outcome.exit();
        let seconds = elapsed.as_secs_f64();
        let rtt = |share| self.rtt(share).map(|rtt| round(rtt.as_secs_f64() * 1e3, 3));
        let rtt_ns = |share| self.rtt(share).map(units::nanoseconds);
        json!({
            "event": "summary",
            "schema_version": schema::VERSION,
            "bytes": self.bytes,
            "seconds": round(seconds, 6),
            "elapsed_ns": units::nanoseconds(elapsed),
            "goodput_bps": (self.bytes as f64 * 8.0 / seconds.max(1e-6)).round() as u64,
            "calls": self.sum(|stats| stats.calls),
            "resends": {
                "timeout": self.sum(|stats| stats.resends.timeout),
                "rack": self.sum(|stats| stats.resends.rack),
                "probe": self.sum(|stats| stats.resends.probe),
                "hedge": self.sum(|stats| stats.resends.hedge),
                "reconnect": self.sum(|stats| stats.resends.reconnect),
            },
            "withdrawn": {
                "resegment": self.sum(|stats| stats.withdrawn.resegment),
                "too_large": self.sum(|stats| stats.withdrawn.too_large),
                "hand_over": self.sum(|stats| stats.withdrawn.hand_over),
            },
            "spurious_resends": self.sum(|stats| stats.spurious_resends),
            "rtt_ms": {"p50": rtt(0.5), "p95": rtt(0.95), "p99": rtt(0.99)},
            "rtt_ns": {"p50": rtt_ns(0.5), "p95": rtt_ns(0.95), "p99": rtt_ns(0.99)},
            "transport": self.transport(),
            "block_size": self.clients.first().map(|client| client.block_size),
            "counts": outcome.to_json(),
            "outcome": exit.outcome(),
            "exit_code": exit.code(),
        })
    }

    /// Returns the lines of `--stats`.
    pub(crate) fn for_people(&self, elapsed: Duration) -> String {
        let mut out = String::new();
        let rate = units::rate(self.bytes, elapsed);
        let _ = writeln!(out, "{} in {}, {rate}", units::bytes(self.bytes), units::duration(elapsed));
        let resends = self.sum(|stats| stats.resends.total());
        let spurious = self.sum(|stats| stats.spurious_resends);
        let _ = write!(
            out,
            "{} calls, {resends} retransmissions ({spurious} spurious)",
            self.sum(|stats| stats.calls)
        );
        if let Some(transport) = self.transport() {
            let _ = write!(out, ", {transport}");
        }
        if let Some(client) = self.clients.first() {
            let _ = write!(out, ", blocks of {}", units::bytes(client.block_size.into()));
        }
        out.push('\n');
        if let (Some(p50), Some(p95), Some(p99)) = (self.rtt(0.5), self.rtt(0.95), self.rtt(0.99)) {
            let ms = |rtt: Duration| rtt.as_secs_f64() * 1e3;
            let _ = writeln!(
                out,
                "round trips: median {:.2} ms, 95 % {:.2} ms, 99 % {:.2} ms",
                ms(p50),
                ms(p95),
                ms(p99)
            );
        }
        out
    }

    /// Returns a line for each link that was learned.
    pub(crate) fn links(&self) -> Vec<String> {
        self.clients.iter().filter_map(|client| client.path).map(|path| link(&path)).collect()
    }

    fn sum(&self, count: impl Fn(&Stats) -> u64) -> u64 {
        self.clients.iter().map(|client| count(&client.stats)).sum()
    }

    /// Returns a quantile of the round trips: that of the slowest server where there are several.
    fn rtt(&self, share: f64) -> Option<Duration> {
        self.clients.iter().filter_map(|client| client.stats.rtt.quantile(share)).max()
    }

    fn transport(&self) -> Option<&'static str> {
        let first = self.clients.first()?.transport;
        if self.clients.iter().any(|client| client.transport != first) {
            return Some("mixed");
        }
        Some(transport_name(first))
    }
}

/// A path estimate, for people.
fn link(path: &PathEstimate) -> String {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let fades = match (path.retransmits, path.mean_fade) {
        (true, fade) => format!("fades of {:.0} ms that lose nothing", ms(fade)),
        (false, fade) if fade.is_zero() => "no fades seen".to_owned(),
        (false, fade) => format!("fades of {:.0} ms, {}", ms(fade), how_often(path)),
    };
    format!(
        "link {:.2} Mbit/s, round trip {:.1} ms, {fades}, blocks of {}, {} in flight",
        path.rate * 8.0 / 1e6,
        ms(path.min_rtt),
        units::bytes(path.block.into()),
        path.in_flight,
    )
}

/// Says how often a path fades, in all of the time: the estimate counts fades per second of good time.
fn how_often(path: &PathEstimate) -> String {
    let period = path.fades_per_second.recip() + path.mean_fade.as_secs_f64();
    if period < 10.0 { format!("{:.1} a second", period.recip()) } else { format!("one in {period:.0} s") }
}

impl ClientSummary {
    /// Copies a client's numbers.
    pub(crate) fn of(client: &Client) -> Self {
        let status = client.status();
        // Whichever direction the blocks went, the larger of the two is the one that was not cut down.
        let block_size = status.read_block.max(status.write_block);
        Self { stats: status.stats, transport: client.protocol(), block_size, path: status.path_estimate }
    }
}

/// Returns which transport is in use for what, and why, a line for each server.
pub(crate) fn transports(servers: &Servers) -> Vec<String> {
    let name = |protocol| transport_name(protocol).to_uppercase();
    let lines = servers.clients().into_iter().map(|(remote, client)| {
        let [(down, why), (up, why_up)] = client.transports();
        let host = remote.server();
        if (down, why) == (up, why_up) {
            return format!("{host} over {}: {why}", name(down));
        }
        format!("{host}: READs over {} ({why}), WRITEs over {} ({why_up})", name(down), name(up))
    });
    lines.collect()
}

/// Returns what is connected, for messages: `nas over TCP`.
pub(crate) fn connected(servers: &Servers) -> String {
    let name = |(remote, client): (Remote, Client)| {
        format!("{} over {}", remote.server(), transport_name(client.protocol()).to_uppercase())
    };
    let hosts: Vec<String> = servers.clients().into_iter().map(name).collect();
    if hosts.is_empty() { "the server".to_owned() } else { hosts.join(", ") }
}

fn round(value: f64, decimals: i32) -> f64 {
    let factor = 10_f64.powi(decimals);
    (value * factor).round() / factor
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn the_json_summary_has_every_field_of_the_contract() {
        let summary = Summary { bytes: 1000, clients: Vec::new() };
        let json = summary.to_json(Duration::from_secs(2), &Outcome::of_failure(Exit::GaveUp));
        assert_eq!(json["goodput_bps"], 4000);
        assert_eq!(json["outcome"], "gave_up");
        assert_eq!(json["exit_code"], 5);
        assert_eq!(json["counts"]["failed"], 1);
        let fields = "event bytes seconds goodput_bps calls resends withdrawn spurious_resends rtt_ms transport block_size counts outcome exit_code";
        for field in fields.split(' ') {
            assert!(json.get(field).is_some(), "{field}");
        }
        for cause in ["timeout", "rack", "probe", "hedge", "reconnect"] {
            assert_eq!(json["resends"][cause], 0, "{cause}");
        }
    }

    #[test]
    fn fades_take_no_more_than_all_of_the_time() {
        let path = |fades_per_second, fade| PathEstimate {
            rate: 1e5,
            is_app_limited: false,
            min_rtt: Duration::from_millis(40),
            fades_per_second,
            mean_fade: Duration::from_millis(fade),
            retransmits: false,
            block: 4096,
            in_flight: 4,
            fast: None,
        };
        for (fades_per_second, fade, words) in [
            (1.0, 80, "fades of 80 ms, 0.9 a second,"),
            (2.2, 4078, "fades of 4078 ms, 0.2 a second,"),
            (2.2, 30_000, "fades of 30000 ms, one in 30 s,"),
            (0.01, 500, "fades of 500 ms, one in 100 s,"),
            (1.0, 0, "no fades seen,"),
        ] {
            let line = link(&path(fades_per_second, fade));
            assert!(line.contains(words), "{line}");
        }
    }
}
