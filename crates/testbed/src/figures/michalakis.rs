//! Michalakis and Kalofonos 2005: figures 2 to 4.

use std::time::Duration;

use linkemu::{BitRate, Loss, Preset, Probability, Rate};
use nfs_proto::config::{BlockSize, RetryPolicy, Window};

use super::{Curve, Curves, Experiment, Listing, Panel, Published, mounted::Mounted};
use crate::{
    Error, Outage, Plan, Room, Transport,
    listing::Style,
    plot::{Axis, Scale},
};

/// Bandwidths of figure 2, in 1000 bytes a second.
const BANDWIDTHS: [u32; 7] = [16, 32, 64, 128, 256, 512, 1024];

/// Round-trip times of figure 2, in ms (Michalakis and Kalofonos 2005 §IV.B).
const ROUND_TRIPS: [(&str, u64); 2] = [("Bluetooth, 27 ms", 27), ("802.11b, 4 ms", 4)];

/// Bytes in a READ, the default of the kernel they used.
const BLOCK: u32 = 4096;

/// Bytes of the file of figures 2 and 4.
const FILE: u64 = 1 << 20;

const SYNCHRONOUS: &str = "The papers' client makes one call after the other; that of this project as many as the path holds, \
    so that only bandwidth counts. The text does not give file and block; 1 MB in 4096-byte blocks is assumed.";
const TCP: &str = "TCP is CUBIC at both ends, not the Reno of the kernels of 2005.";

pub(super) fn experiments() -> Result<Vec<Experiment>, Error> {
    Ok(vec![bandwidth()?, dark_zone()?, disconnections_and_loss()?])
}

fn room(preset: &str) -> Result<Room, Error> {
    let mut room = Room::from_toml(preset, "[link]")?;
    room.link = Preset::named(preset)?.config();
    Ok(room)
}

/// A kernel's client of the time: one call at a time, exponential back-off.
fn kernel(room: &Room, timeout: Duration) -> Plan {
    let mut plan = Plan::new(room.clone());
    plan.policy = RetryPolicy::Exponential { initial: timeout, maximum: RetryPolicy::MAXIMUM };
    plan.window = Window::Calls(1);
    plan.block = BlockSize::Exact(BLOCK);
    plan
}

fn round_trip_timers(room: &Room) -> Plan {
    Plan { policy: RetryPolicy::kernel(), ..kernel(room, Duration::from_secs(1)) }
}

/// One call at a time over a connection.
fn tcp(room: &Room) -> Plan {
    Plan { transport: Transport::Tcp, ..kernel(room, RetryPolicy::INITIAL) }
}

fn adaptive(room: &Room) -> Plan {
    Plan { policy: RetryPolicy::Adaptive, window: Window::Auto, ..kernel(room, RetryPolicy::INITIAL) }
}

fn experiment(
    number: &str,
    items: &[&str],
    title: &str,
    remarks: Vec<&'static str>,
    panels: Vec<Panel>,
) -> Experiment {
    Experiment {
        name: format!("2005-{number}"),
        title: title.to_owned(),
        items: items.iter().map(|&item| item.to_owned()).collect(),
        remarks,
        panels,
    }
}

fn bandwidth() -> Result<Experiment, Error> {
    let base = room("802.11b")?;
    let at = |kilobytes: u32, round_trip: u64| {
        let mut room = base.clone();
        room.link.rate = Rate::Constant(BitRate::kilobits(8 * u64::from(kilobytes)));
        room.link.delay = Duration::from_millis(round_trip) / 2;
        room
    };
    let mut curves = Vec::new();
    for (style, (name, round_trip)) in ROUND_TRIPS.into_iter().enumerate() {
        let plans = BANDWIDTHS.map(|it| (it.into(), kernel(&at(it, round_trip), Duration::from_secs(5))));
        // T = N (RTT + rpc/bw), with the equation's own neglect of headers.
        let formula = BANDWIDTHS.map(|it| {
            let (calls, block) = ((FILE / u64::from(BLOCK)) as f64, f64::from(BLOCK));
            let mean = calls * (round_trip as f64 / 1e3 + block / (1e3 * f64::from(it)));
            Published { x: it.into(), min: None, mean, max: None }
        });
        let name = format!("{name}: one call at a time");
        curves.push(Curve { name, style, plans: plans.to_vec(), published: formula.to_vec() });
    }
    for (style, (name, round_trip)) in ROUND_TRIPS.into_iter().enumerate() {
        let plans = BANDWIDTHS.map(|it| (it.into(), adaptive(&at(it, round_trip))));
        let name = format!("{name}: adaptive");
        curves.push(Curve { name, style: style + 2, plans: plans.to_vec(), published: Vec::new() });
    }
    let panel = Curves {
        title: "Bandwidth and round-trip time".to_owned(),
        subtitle: "reading 1 MB in 4096-byte blocks; published: the paper's equation".to_owned(),
        x: Axis { label: "bandwidth (1000 bytes/s)".to_owned(), scale: Scale::PowersOfTwo, max: None },
        curves,
        ..Curves::default()
    };
    let remarks = vec![
        SYNCHRONOUS,
        "The published points are the paper's equation, T = N (RTT + rpc/bw), with N = 256 calls. Ours lie above it by the \
         headers, about 9 %, and the calls' own air time.",
    ];
    let title = "Effect of bandwidth and round-trip time";
    Ok(experiment("2", &["2005-2"], title, remarks, vec![Panel::Curves(panel)]))
}

fn dark_zone() -> Result<Experiment, Error> {
    let zone = room("bluetooth-1.1-dark-zone")?;
    let timeouts = [100, 200, 300, 500, 700, 1000, 1500, 2000, 3000];
    let file = |plan| Plan { size: 50_000, ..plan };
    let fixed = |calls| {
        timeouts.map(|ms: u32| {
            let plan = kernel(&zone, Duration::from_millis(ms.into()));
            (f64::from(ms) / 1e3, file(Plan { window: Window::Calls(calls), ..plan }))
        })
    };
    let curve = |name: &str, style, plans: &[(f64, Plan)]| Curve {
        name: name.to_owned(),
        style,
        plans: plans.to_vec(),
        published: Vec::new(),
    };
    let panel = Curves {
        title: "Timeouts at the edge of coverage".to_owned(),
        subtitle: "reading 50 KB at 75 KB/s, round trip 220 ± 120 ms; whiskers: 95 % confidence".to_owned(),
        x: Axis::linear("first timeout (s)"),
        curves: vec![
            curve("exponential, one call", 0, &fixed(1)),
            curve("exponential, four calls", 1, &fixed(4)),
            curve("TCP, one call", 3, &timeouts.map(|ms| (f64::from(ms) / 1e3, file(tcp(&zone))))),
            curve("adaptive", 4, &timeouts.map(|ms| (f64::from(ms) / 1e3, file(adaptive(&zone))))),
        ],
        ..Curves::default()
    };
    let remarks = vec![
        "As published, a longer timeout is better: nothing is lost here, only late, so every retransmission is spurious and delays \
         what is queued behind it. The text gives no times.",
        "Bluetooth's own retransmission appears as a random delay with the published mean and deviation, not as a model of \
         its stop-and-wait protocol.",
        "The adaptive client has no first timeout to choose, and TCP has its own, so their lines are level.",
        TCP,
    ];
    let title = "Effect of timeouts in a zone of bad reception";
    Ok(experiment("3", &["2005-3"], title, remarks, vec![Panel::Curves(panel)]))
}

fn disconnections_and_loss() -> Result<Experiment, Error> {
    let bluetooth = room("bluetooth-1.1")?;
    let length = Duration::from_millis(5500);
    let outages: Vec<Outage> =
        [1, 21, 41].map(|at| Outage { at: Duration::from_secs(at), length, over: None }).to_vec();
    let with = |plan| Plan { outages: outages.clone(), ..plan };
    let second = Duration::from_secs(1);
    let hybrid = RetryPolicy::Hybrid {
        initial: second,
        linear_steps: RetryPolicy::LINEAR_STEPS,
        linear_step: RetryPolicy::LINEAR_STEP,
        maximum: RetryPolicy::MAXIMUM,
    };
    let lane = |name: &str, plan: Plan, style| (name.to_owned(), with(plan), style);
    let listing = Listing {
        title: "Listing 300 entries through three disconnections".to_owned(),
        subtitle: "Bluetooth, 27 ms round trip; disconnected for 5.5 s at 1, 21 and 41 s".to_owned(),
        entries: 300,
        lanes: vec![
            lane("exponential, 1 s", kernel(&bluetooth, second), Style::OneByOne),
            lane("hybrid, 1 s", Plan { policy: hybrid, ..kernel(&bluetooth, second) }, Style::OneByOne),
            lane("kernel (round-trip timers)", round_trip_timers(&bluetooth), Style::OneByOne),
            lane("TCP", tcp(&bluetooth), Style::OneByOne),
            lane("adaptive", adaptive(&bluetooth), Style::OneByOne),
            lane("adaptive, READDIRPLUS", adaptive(&bluetooth), Style::Pages),
            lane("adaptive, nfsw mount, nothing held", adaptive(&bluetooth), Style::Mounted),
        ],
    };
    let mounted = Mounted {
        title: "The same through the cache of nfsw mount, adaptive".to_owned(),
        entries: listing.entries,
        plan: with(adaptive(&bluetooth)),
    };
    let wifi = room("802.11b")?;
    let percent = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
    let losing = |plan: &Plan| -> Result<Vec<(f64, Plan)>, Error> {
        let point = |percent: f64| {
            let mut plan = plan.clone();
            plan.room.link.channel.good_loss = Loss::Frame(Probability::new(percent / 100.0)?);
            Ok((percent, plan))
        };
        percent.into_iter().map(point).collect()
    };
    let curve = |name: &str, style, plan: &Plan| -> Result<Curve, Error> {
        Ok(Curve { name: name.to_owned(), style, plans: losing(plan)?, published: Vec::new() })
    };
    let loss = Curves {
        title: "Random loss".to_owned(),
        subtitle: "reading 1 MB over 802.11b; whiskers: 95 % confidence".to_owned(),
        x: Axis::linear("frames lost (%)"),
        curves: vec![
            curve("exponential, 1 s", 0, &kernel(&wifi, second))?,
            curve("exponential, 0.7 s", 1, &kernel(&wifi, RetryPolicy::INITIAL))?,
            curve("kernel (round-trip timers)", 2, &round_trip_timers(&wifi))?,
            curve("TCP", 3, &tcp(&wifi))?,
            curve("adaptive", 4, &adaptive(&wifi))?,
        ],
        ..Curves::default()
    };
    let remarks = vec![
        "As published, back-off wastes time after every disconnection: with a timeout of 1 s that doubles, the first resend \
         after 5.5 s comes 7 s after the loss. Hybrid back-off does no better against fades that long; probes into the silence \
         do.",
        "The text does not say when the first disconnection begins, nor how long the listing takes undisturbed. Here a listing \
         is LOOKUP, ACCESS and GETATTR for every entry, one call after the other, and the disconnections begin 20 s apart. With \
         READDIRPLUS a handful of calls do it, before the first disconnection. Clients that list again ask for everything again, but \
         for nfsw mount.",
        "As published, TCP loses more than UDP after each disconnection.",
        "As published, a whole timeout is lost for every datagram that random loss takes.",
        TCP,
    ];
    let title = "Effect of disconnections and of random loss";
    let panels = vec![Panel::Listing(listing), Panel::Mounted(Box::new(mounted)), Panel::Curves(loss)];
    Ok(experiment("4", &["2005-4-left", "2005-4-right"], title, remarks, panels))
}
