//! The testbed's TCP beside the kernel's: `nfsw curve --transport tcp` and `nfsw cp --transport tcp` behind `nfsw link exec`, over
//! the same links with the same seeds. docs/experiments.md has the table.

use std::{
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use crate::common::{Server, behind, noise, stderr};
use linkemu::{DatagramRecord, Fate, Observer, Offered, Station};
use nfs_wireless_client::{BlockSize, Window};
use serde_json::Value;
use testbed::{Plan, Room, Transport, confidence, mean, run_observed};

/// Packets from this length on are full segments of the file, in bytes.
const FULL_PACKET: u64 = 1000;

/// READs in flight: a number of one's own keeps a download on one connection.
const READS: u32 = 16;

/// A machine that delivers later than this at times makes TCP look worse than it is, in ms.
const LATE_MS: f64 = 30.0;

/// How far the two may be apart.
const WITHIN: f64 = 0.1;

/// A link to compare on.
struct Case {
    name: &'static str,
    /// Options of `nfsw link exec`.
    options: &'static [&'static str],
    /// The same as a room's link.
    link: &'static str,
    size: u64,
    seeds: u64,
    /// Real copies at once: more only where they leave the processor idle.
    at_once: usize,
}

const CASES: [Case; 9] = [
    Case {
        name: "paper-1997, no fades",
        options: &["--preset", "paper-1997"],
        link: "preset = 'paper-1997'",
        size: 1 << 20,
        seeds: 1,
        at_once: 4,
    },
    Case {
        name: "paper-1997, fades of 40 ms",
        options: &["--preset", "paper-1997", "--bad", "40"],
        link: "preset = 'paper-1997'\nchannel.bad = 40",
        size: 1 << 20,
        seeds: 20,
        at_once: 4,
    },
    Case {
        name: "paper-1997, fades of 80 ms",
        options: &["--preset", "paper-1997", "--bad", "80"],
        link: "preset = 'paper-1997'\nchannel.bad = 80",
        size: 1 << 20,
        seeds: 20,
        at_once: 4,
    },
    Case {
        name: "paper-1997, fades of 160 ms",
        options: &["--preset", "paper-1997", "--bad", "160"],
        link: "preset = 'paper-1997'\nchannel.bad = 160",
        size: 1 << 20,
        seeds: 20,
        at_once: 4,
    },
    Case {
        name: "wifi-54, 1 %",
        options: &["--preset", "wifi-54"],
        link: "preset = 'wifi-54'",
        size: 16 << 20,
        seeds: 20,
        at_once: 1,
    },
    Case {
        name: "lan-50ms, no loss",
        options: &["--preset", "lan-50ms", "--bad", "0"],
        link: "preset = 'lan-50ms'\nchannel.bad = 0",
        size: 16 << 20,
        seeds: 5,
        at_once: 1,
    },
    Case {
        name: "lan-50ms, 1 %",
        options: &["--preset", "lan-50ms"],
        link: "preset = 'lan-50ms'",
        size: 16 << 20,
        seeds: 40,
        at_once: 1,
    },
    Case {
        name: "20 Mbit/s, 40 ms, 50 packets",
        options: &["--rate", "20M", "--delay", "20ms", "--duplex", "full", "--queue", "50"],
        link: "rate = '20M'\ndelay = '20ms'\nduplex = 'full'\nqueue.packets = 50",
        size: 16 << 20,
        seeds: 5,
        at_once: 1,
    },
    Case {
        name: "20 Mbit/s, 40 ms, 250 packets",
        options: &["--rate", "20M", "--delay", "20ms", "--duplex", "full", "--queue", "250"],
        link: "rate = '20M'\ndelay = '20ms'\nduplex = 'full'\nqueue.packets = 250",
        size: 16 << 20,
        seeds: 5,
        at_once: 1,
    },
];

/// From the first full segment that is sent to the last that arrives, in s, and how many were sent.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    first: Option<f64>,
    last: f64,
    packets: u64,
}

impl Span {
    fn take(&mut self, offered: f64, ended: f64, is_delivered: bool) {
        self.first = Some(self.first.map_or(offered, |first| first.min(offered)));
        self.packets += 1;
        if is_delivered {
            self.last = self.last.max(ended);
        }
    }

    fn seconds(&self) -> f64 {
        self.last - self.first.unwrap_or(self.last)
    }
}

/// Looks at the packets of a simulated link.
struct Watch(Arc<Mutex<Span>>);

impl Observer for Watch {
    fn offered(&mut self, _offered: &Offered<'_>) {}

    fn datagram(&mut self, record: &DatagramRecord, payload: &bytes::Bytes) {
        if payload.len() as u64 >= FULL_PACKET && matches!(record.from.station, Station::Host(_)) {
            let (offered, ended) = (record.offered.as_secs_f64(), record.ended.as_secs_f64());
            self.0.lock().unwrap().take(offered, ended, record.fate == Fate::Delivered);
        }
    }
}

fn simulated(case: &Case, seed: u64) -> Span {
    let room = format!("[link]\n{}\n", case.link);
    let mut plan = Plan::new(Room::from_toml("compared", &room).unwrap());
    (plan.transport, plan.size) = (Transport::Tcp, case.size);
    (plan.block, plan.window) = (BlockSize::Auto { max: None }, Window::Calls(READS));
    let span = Arc::new(Mutex::new(Span::default()));
    let run = run_observed(&plan, seed, Some(Box::new(Watch(Arc::clone(&span))))).unwrap();
    assert!(run.copies[0].response.is_some(), "{}, seed {seed}", case.name);
    *span.lock().unwrap()
}

/// Copies behind the link; none if the machine was too busy to be believed.
fn real(case: &Case, server: &Server, seed: u64) -> Option<Span> {
    let directory = tempfile::tempdir().unwrap();
    let (records, stats) = (directory.path().join("records"), directory.path().join("stats"));
    let seed = seed.to_string();
    let mut options = case.options.to_vec();
    options.extend(["--congestion", "cubic", "--seed", &seed]);
    options.extend(["--records", records.to_str().unwrap(), "--stats", stats.to_str().unwrap()]);
    let (port, copy) = (server.address().port(), directory.path().join("copy"));
    let script = format!(
        "$nfsw cp -q --no-resume --transport tcp --window {READS} \"nfs://$NFSW_HOST:{port}/{}?mountport={port}\" {}",
        case.size,
        copy.display()
    );
    let output = behind(&options, &script).output().unwrap();
    assert!(output.status.success(), "{}: {}", case.name, stderr(&output));
    assert_eq!(fs::metadata(&copy).unwrap().len(), case.size);
    let stats: Value = serde_json::from_str(&fs::read_to_string(&stats).unwrap()).unwrap();
    if stats["lateness"]["max_ms"].as_f64().unwrap() > LATE_MS {
        return None;
    }
    let mut span = Span::default();
    for line in fs::read_to_string(&records).unwrap().lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let is_full = row["payload_bytes"].as_u64().is_some_and(|bytes| bytes >= FULL_PACKET);
        if row["event"] == "datagram" && is_full && row["from"].as_str().unwrap().starts_with("host") {
            let number = |field: &str| row[field].as_f64().unwrap();
            span.take(number("offered_s"), number("ended_s"), row["fate"] == "delivered");
        }
    }
    Some(span)
}

/// Copies with every seed, both ways of doing it; what the machine was too busy for is left out.
fn both(case: &Case, server: &Server) -> Vec<(Span, Span)> {
    let (next, pairs) = (AtomicU64::new(1), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..case.at_once {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > case.seeds {
                        return;
                    }
                    // A machine that was busy with something else gets another chance.
                    if let Some(real) = (0..3).find_map(|_| real(case, server, seed)) {
                        pairs.lock().unwrap().push((real, simulated(case, seed)));
                    }
                }
            });
        }
    });
    pairs.into_inner().unwrap()
}

/// Means over lossy fast links are made by a few seeds: what is judged is the geometric mean of the ratios seed by seed.
#[ignore = "takes ten minutes, and judges by the clock"]
#[test]
fn the_model_takes_as_long_as_the_kernel() {
    let server = Server::everywhere();
    for case in &CASES {
        fs::write(server.path(&case.size.to_string()), noise(case.size as usize)).unwrap();
    }
    println!("| link | runs | Linux, s | model, s | model / Linux, by seed (± 95 %) | segments |");
    println!("|---|---|---|---|---|---|");
    let mut wrong = Vec::new();
    for case in &CASES {
        let pairs = both(case, &server);
        assert!(2 * pairs.len() as u64 >= case.seeds, "{}: this machine is too busy", case.name);
        let of = |value: fn(&(Span, Span)) -> f64| pairs.iter().map(value).collect::<Vec<_>>();
        let theirs = of(|(real, _)| real.seconds());
        let ours = of(|(_, simulated)| simulated.seconds());
        let ratios = of(|(real, simulated)| (simulated.seconds() / real.seconds()).ln());
        let packets = of(|(real, simulated)| simulated.packets as f64 / real.packets as f64);
        let (name, runs, ratio, spread) = (case.name, pairs.len(), mean(&ratios).exp(), confidence(&ratios));
        println!(
            "| {name} | {runs} | {:.2} | {:.2} | {ratio:.3} ± {spread:.3} | {:.3} |",
            mean(&theirs),
            mean(&ours),
            mean(&packets)
        );
        if (ratio - 1.0).abs() > WITHIN {
            wrong.push(format!("{name}: {ratio:.3}, Linux {theirs:.2?}, model {ours:.2?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
