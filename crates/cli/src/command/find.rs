//! `nfsw find`: what is shared around here.

use std::{
    fmt::Write as _,
    net::SocketAddr,
    time::{Instant, SystemTime},
};

use futures_util::future::join_all;
use jiff::{Timestamp, tz::TimeZone};
use nfs_share::{
    Discovery, DiscoveryError, Found, Greeting, Interfaces, KeyPrefix, Met, Notice, ShareChannel,
};
use nfs_wireless_client::Channel;
use serde_json::json;

use crate::{
    args::{FindArgs, OutputArgs},
    exit::{Exit, Failure},
    report::Reporter,
    shares::{
        kept::{Kept, keep},
        label,
    },
    signals::ended,
    summary::Summary,
    text::{escape, exact_time, listing_time},
    units,
};

pub(super) fn execute(arguments: &FindArgs) -> Exit {
    let output = OutputArgs { json: arguments.json, ..OutputArgs::default() };
    let reporter = Reporter::new(&output, Instant::now());
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return reporter.finish(Err(error.into()), &Summary::default()),
    };
    let result = runtime.block_on(async {
        let ended = ended();
        tokio::select! {
            () = ended => None,
            result = run(arguments, &reporter) => Some(result),
        }
    });
    match result {
        Some(result) => reporter.finish(result, &Summary::default()),
        None => reporter.end(Exit::Interrupted, &Summary::default()),
    }
}

/// Returns which interfaces options name.
pub(super) fn interfaces(named: &[String]) -> Interfaces {
    if named.is_empty() { Interfaces::Nearby } else { Interfaces::Named(named.to_vec()) }
}

/// An error of discovery: of the command line, if an interface is named that cannot be used.
pub(super) fn failure(error: &DiscoveryError) -> anyhow::Error {
    match error {
        DiscoveryError::Unknown { .. } | DiscoveryError::PointToPoint(_) => {
            Failure::usage(format!("--interface: {error}"))
        }
        error => Failure::with(Exit::LocalIo, error.to_string()),
    }
}

/// A share, and how it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Share {
    name: String,
    key: KeyPrefix,
    addresses: Vec<SocketAddr>,
    codes: Vec<u16>,
    since: Option<SystemTime>,
    is_announced: bool,
    is_known: bool,
}

async fn run(arguments: &FindArgs, reporter: &Reporter) -> anyhow::Result<()> {
    let looking = async {
        match Discovery::start(&interfaces(&arguments.interface)) {
            Ok(discovery) => {
                let names = discovery.interfaces().to_vec();
                Ok((discovery.all(arguments.time).await, names))
            }
            Err(error) => Err(error),
        }
    };
    let asking = join_all(Kept::all().into_iter().map(|(file, kept)| async {
        let asked = ask(file, kept);
        tokio::time::timeout(arguments.time, asked).await.ok().flatten()
    }));
    let (looked, answered) = tokio::join!(looking, asking);
    let (announced, looked_on) = match looked {
        Ok((announced, names)) => (announced, format!("on {}", names.join(", "))),
        Err(error @ (DiscoveryError::NoInterface | DiscoveryError::Refused(_))) => {
            reporter.warning(format_args!("warning: announcements cannot be heard: {error}"));
            (Vec::new(), "where shares were before".to_owned())
        }
        Err(error) => return Err(failure(&error)),
    };
    let shares = joined(announced, answered.into_iter().flatten());
    if shares.is_empty() {
        let time = units::duration(arguments.time);
        reporter.note(format_args!(
            "no share was found {looked_on} within {time}; the address that nfsw share has printed works all the same \
             (--interface chooses a network)"
        ));
    }
    if reporter.json() {
        return shares.iter().try_for_each(|share| reporter.event(&share.event()));
    }
    reporter.print(lines(&shares).as_bytes())
}

/// Asks a share that was used here whether it is still where it was.
async fn ask(file: String, kept: Kept) -> Option<(Met, SocketAddr)> {
    let greeting = Greeting::Known(kept.membership, None);
    let reached = kept.reached?;
    let mut channel = ShareChannel::new([reached.address], greeting, &label(), move |joined, reached| {
        keep(&file, joined, reached);
    });
    if reached.by_stream {
        channel = channel.with_stream_at_once();
    }
    let address = channel.open().await.ok()?;
    Some((channel.met()?, address))
}

/// Makes one of a share that is announced and was used here.
fn joined(announced: Vec<Found>, answered: impl Iterator<Item = (Met, SocketAddr)>) -> Vec<Share> {
    let mut shares: Vec<Share> = announced
        .into_iter()
        .map(|Found { notice: Notice { name, key, codes, since, .. }, addresses, .. }| Share {
            name,
            key,
            addresses,
            codes,
            since: Some(since),
            is_announced: true,
            is_known: false,
        })
        .collect();
    for (met, address) in answered {
        let key = met.sharer.into();
        // Another one may say that it has the same key, but not at the same address.
        let same = shares.iter_mut().find(|share| share.key == key && share.addresses.contains(&address));
        match same {
            Some(share) => share.is_known = true,
            None => shares.push(Share {
                name: met.title,
                key,
                addresses: vec![address],
                codes: Vec::new(),
                since: None,
                is_announced: false,
                is_known: true,
            }),
        }
    }
    shares.sort_by(|a, b| (&a.name, a.key, &a.addresses).cmp(&(&b.name, b.key, &b.addresses)));
    shares
}

impl Share {
    fn found(&self) -> Vec<&'static str> {
        let ways = [(self.is_announced, "mdns"), (self.is_known, "known")];
        ways.into_iter().filter_map(|(is_so, way)| is_so.then_some(way)).collect()
    }

    fn event(&self) -> serde_json::Value {
        let mut event = json!({
            "event": "share",
            "name": self.name,
            "key": self.key.to_string(),
            "addresses": self.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "codes": self.codes,
            "found": self.found(),
        });
        if let Some(since) = self.since.and_then(|since| Timestamp::try_from(since).ok()) {
            event["since"] = exact_time(since).into();
        }
        event
    }

    fn row(&self) -> [String; 6] {
        let since = self.since.and_then(|since| Timestamp::try_from(since).ok()).map(|since| {
            let time = listing_time(since.as_second(), Timestamp::now(), &TimeZone::system());
            format!("since {time}")
        });
        let codes: Vec<String> = self.codes.iter().map(ToString::to_string).collect();
        let codes = match &codes[..] {
            [] => String::new(),
            [one] => format!("code {one}"),
            several if several.len() <= MOST_CODES => format!("codes {}", several.join(",")),
            several => format!("{} codes", several.len()),
        };
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        [
            escape(self.name.as_bytes()).into_owned(),
            format!("key {}", self.key.short()),
            addresses.join(", "),
            since.unwrap_or_default(),
            codes,
            format!("({})", self.found().join(", ")),
        ]
    }
}

/// Codes of one share that are listed for people, at most.
const MOST_CODES: usize = 8;

/// Returns the list for people.
fn lines(shares: &[Share]) -> String {
    let rows: Vec<[String; 6]> = shares.iter().map(Share::row).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).filter(|(_, width)| *width > 0);
        let cells: Vec<String> = cells.map(|(cell, width)| format!("{cell:width$}")).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use nfs_share::PublicKey;

    use super::*;

    fn found(name: &str, key: u8, address: &str, codes: &[u16]) -> Found {
        let since = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let notice = Notice { name: name.to_owned(), key: KeyPrefix([key; 8]), codes: codes.to_vec(), since };
        Found { notice, addresses: vec![address.parse().unwrap()] }
    }

    #[test]
    fn what_is_announced_and_answers_is_one_share_and_a_namesake_is_another() {
        let announced = vec![
            found("sophia@laptop", 7, "10.0.0.7:7049", &[12, 13]),
            found("sophia@laptop", 7, "10.0.0.66:7049", &[12]),
            found("\u{1b}[2J", 8, "10.0.0.8:7049", &[]),
        ];
        let met = |title: &str, key| Met { title: title.to_owned(), sharer: PublicKey([key; 32]) };
        let answered = [(met("photos", 7), "10.0.0.7:7049"), (met("papers", 9), "10.0.0.9:7049")]
            .map(|(met, address)| (met, address.parse().unwrap()));
        let shares = joined(announced, answered.into_iter());
        let ways: Vec<_> = shares.iter().map(|share| (share.key.short(), share.found())).collect();
        let [first, second] = [vec!["mdns"], vec!["mdns", "known"]];
        let key = |digits: &str| digits.to_owned();
        let expected = [
            (key("0808"), first.clone()),
            (key("0909"), vec!["known"]),
            (key("0707"), second),
            (key("0707"), first),
        ];
        assert_eq!(ways, expected);
        let text = lines(&shares);
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(!text.contains('\u{1b}') && text.contains("codes 12,13"), "{text}");
        assert!(text.contains("papers         key 0909  10.0.0.9:7049"), "{text}");
        let event = shares[1].event();
        assert_eq!((&event["since"], &event["found"][0]), (&serde_json::Value::Null, &"known".into()));
        assert_eq!(shares[2].event()["since"], "2023-11-14T22:13:20.000000000Z");
    }
}
