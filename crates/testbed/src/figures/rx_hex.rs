//! Bachmann, Honeyman and Huston, The Rx Hex: figures 2 to 13, and 17.

use std::time::Duration;

use nfs_proto::config::{BlockSize, RetryPolicy, Window};

use super::{Experiment, Headers, Panel, Pick, RoundTrips, Sequence, Throughput};
use crate::{Error, Plan, Room};

/// Rx's window (Bachmann et al. 1993 §1.3).
const WINDOW: u32 = 15;

/// The file (Bachmann et al. 1993 §2).
const BYTES: u64 = 100 * 1024;

/// Our smallest block; an Rx packet of one frame has 520 bytes of data.
const BLOCK: u32 = 512;

/// MTU with which our smallest block and NFS's longer headers make one frame, as an Rx packet does with 576.
const MTU: u32 = 670;

/// The hosts on one Ethernet of figures 7 to 11. Nothing is published about them but the course of their round-trip
/// times: a call in a full window waits half a second, and more when the server is shared.
const ETHERNET: &str = "[link]\nrate = '10M'\nduplex = 'half'\ndelay = '0ms'\nqueue.packets = 200\nwired.rate = 'unlimited'\n\
                        wired.delay = '0ms'\n[server]\nthreads = 1\nread = '30ms'";

const PACKETS: &str = "Rx streams packets to the client; an NFS client asks for every block. What is compared is the timer's \
    part: fifteen blocks in flight, a fixed or an adaptive timeout, a queue of fifteen packets before the line. Our smallest \
    block, 512 bytes, has longer headers than an Rx packet, so the line's MTU is 670 instead of 576 bytes to keep one block \
    in one frame; the file is 200 blocks instead of 193 packets.";
const REPEATED: &str =
    "Every retransmitted call makes the server send its reply again, through the same line.";
const FIXED: &str = "The fixed timeout is the exponential policy with equal first and longest timeouts.";
const SLOWING: &str = "The paper's server slowed down for reasons of its own. Here three more clients start one after \
    the other, a second apart, and share the server, so that the round-trip time doubles, trebles and quadruples.";
const DEVIATIONS: &str = "No client here lets one choose how many mean deviations are added to the round-trip time: both \
    estimators add four, as Jacobson came to recommend.";

pub(super) fn experiments() -> Result<Vec<Experiment>, Error> {
    let slip = Room::named("slip-9600")?;
    let mut line = slip.clone();
    line.link.mtu_bytes = MTU;
    let ethernet = Room::from_toml("ethernet-1993", ETHERNET)?;
    let alone = |policy| read(&line, policy, BLOCK);
    let joined = |policy, at: u64| Plan { clients: 2, spacing: Duration::from_secs(at), ..alone(policy) };
    let shared = |policy| Plan {
        clients: 4,
        spacing: Duration::from_secs(1),
        size: 2 * BYTES,
        ..read(&ethernet, policy, 1024)
    };
    let subtitle = "100 KB over 9.6 kbit/s, window 15";
    let on_line = |number, title: &str, remarks, plan| {
        figure(number, title, subtitle, remarks, plan, RoundTrips::Hidden)
    };
    let on_ethernet = |number, title: &str, remarks, plan| {
        figure(
            number,
            title,
            "200 KB from a server that slows down, window 15",
            remarks,
            plan,
            RoundTrips::Shown,
        )
    };
    let adaptive = RetryPolicy::Adaptive;
    Ok(vec![
        on_line(
            2,
            "Fragmented packets, fixed timeout of 2 s",
            vec![
                "Blocks of 1536 bytes in four fragments each, MTU 576: the queue of fifteen packets holds less than four of \
                 them, and a block is lost with any of its fragments.",
                REPEATED,
                FIXED,
                "Rx gave the connection up. Our client does not; the copy is stopped after 300 s.",
            ],
            read(&slip, fixed(2), 1536),
        ),
        on_line(
            3,
            "One frame a packet, fixed timeout of 2 s",
            vec![PACKETS, REPEATED, FIXED],
            alone(fixed(2)),
        ),
        on_line(4, "One frame a packet, fixed timeout of 6 s", vec![PACKETS, FIXED], alone(fixed(6))),
        on_line(
            5,
            "One frame a packet, fixed timeout of 12 s",
            vec![
                PACKETS,
                "As published: a timeout longer than the window's round trip sends every packet exactly once. Throughput counts \
                 file bytes; the line carries 9.6 kbit/s with ten bits a byte.",
            ],
            alone(fixed(12)),
        ),
        on_line(
            6,
            "Fixed timeout of 12 s, a second transfer joins",
            vec![PACKETS, REPEATED],
            joined(fixed(12), 66),
        ),
        on_ethernet(
            7,
            "A timeout with little room",
            vec![
                "As published: once the server's answers take longer than the timeout, every packet is sent twice, for good. A \
                 fixed timeout of half a second, just above the round trip of a window, stands for RTT + MDEV before the change.",
                DEVIATIONS,
                SLOWING,
            ],
            shared(RetryPolicy::Exponential {
                initial: Duration::from_millis(500),
                maximum: Duration::from_millis(500),
            }),
        ),
        on_ethernet(
            8,
            "More deviations in the timeout",
            vec![
                "The kernel policy (round-trip time and four deviations) stands for RTT + 2 MDEV: it adapts after a few \
                 resends.",
                DEVIATIONS,
                SLOWING,
            ],
            shared(RetryPolicy::kernel()),
        ),
        on_ethernet(
            9,
            "Timers of outstanding calls follow each reply",
            vec![
                "The adaptive client measures silence, not single calls: every reply moves all timers.",
                SLOWING,
            ],
            shared(adaptive),
        ),
        on_ethernet(
            10,
            "Karn's rule",
            vec![
                "The kernel policy obeys Karn's rule: replies to calls that were sent again tell it nothing. Unlike Rx at the \
                 time it also backs off, and keeps the longer timeout, so it recovers sooner than the paper's figure.",
                SLOWING,
            ],
            shared(RetryPolicy::kernel()),
        ),
        on_ethernet(
            11,
            "Every reply is a sample",
            vec![
                "A call that is sent again has a new XID, as Rx has serial numbers: every reply names its attempt and is an exact \
                 sample.",
                SLOWING,
            ],
            shared(adaptive),
        ),
        on_line(
            12,
            "Adaptive, alone on the line",
            vec![PACKETS, "The adaptive client chooses its window itself, here at most 15."],
            alone(adaptive),
        ),
        on_line(
            13,
            "Adaptive, a second transfer joins",
            vec![PACKETS, "The adaptive client chooses its window itself, here at most 15."],
            joined(adaptive, 73),
        ),
        compression()?,
    ])
}

/// Figure 17, with NFS's headers instead of Rx's.
fn compression() -> Result<Experiment, Error> {
    let mut plan = Plan::new(Room::named("modern")?);
    plan.block = BlockSize::Exact(1024);
    plan.room.link.channel.set_bad_mean(Duration::from_millis(40));
    let title = "Headers of IP, UDP, RPC and NFS, compressed";
    Ok(Experiment {
        name: "rxhex-17".to_owned(),
        title: title.to_owned(),
        items: vec!["rxhex-17".to_owned()],
        remarks: vec![
            "1 MB read and written in blocks of 1024 bytes, then LOOKUP, ACCESS and GETATTR of 200 files, each over a link of its own \
             with bad periods of 40 ms on average. Names and file data are no header; acknowledgements between the ends are counted.",
            "NFS's headers are three times as long as Rx's and say more: replies to READ carry the time of that access, replies to \
             WRITE the file's times before and after, replies to LOOKUP a file handle. A file that is asked about once has no header \
             to be compared with but another file's.",
        ],
        panels: vec![Panel::Headers(Box::new(Headers {
            title: title.to_owned(),
            subtitle: "1 Mbit/s, bad periods of 40 ms".to_owned(),
            entries: 200,
            plan,
        }))],
    })
}

fn read(room: &Room, policy: RetryPolicy, block: u32) -> Plan {
    let mut plan = Plan::new(room.clone());
    plan.size = BYTES;
    plan.policy = policy;
    plan.block = BlockSize::Exact(block);
    plan.window = Window::Calls(WINDOW);
    plan
}

const fn fixed(seconds: u64) -> RetryPolicy {
    RetryPolicy::Exponential { initial: Duration::from_secs(seconds), maximum: Duration::from_secs(seconds) }
}

fn figure(
    number: u32,
    title: &str,
    subtitle: &str,
    remarks: Vec<&'static str>,
    plan: Plan,
    round_trips: RoundTrips,
) -> Experiment {
    let name = format!("rxhex-{number}");
    Experiment {
        items: vec![name.clone()],
        name,
        title: title.to_owned(),
        remarks,
        panels: vec![Panel::Sequence(Sequence {
            title: title.to_owned(),
            subtitle: subtitle.to_owned(),
            lanes: vec![("ours".to_owned(), plan)],
            seed: Pick::First,
            throughput: Throughput::Bits,
            round_trips,
        })],
    }
}
