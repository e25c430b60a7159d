//! What the adaptive policy is to reach, case by case, and what it reaches.

use std::time::Duration;

use linkemu::{ArqKind, Probability, Scheduler, Shape};
use nfs_proto::config::{BlockSize, RetryPolicy, Window};

use super::{Experiment, Panel};
use crate::{Error, Operation, Outage, Plan, Room, Row};

/// The name of the experiment, which no report of the papers' figures holds.
pub(super) const NAME: &str = "adaptive-targets";

/// A case, and what is to be reached in it.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// Room, link and task.
    pub(super) case: String,
    /// What is run, each under a name.
    pub(super) plans: Vec<(String, Plan)>,
    pub(super) checks: Vec<Check>,
}

/// One property of a case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Check {
    /// What is looked at, with its unit.
    pub(super) what: &'static str,
    /// Which plans are judged: every `step`-th; those after it are its company.
    pub(super) step: usize,
    pub(super) value: fn(&[Row]) -> f64,
    pub(super) bound: Bound,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Bound {
    Most(f64),
    Least(f64),
    /// For the record.
    None,
}

impl Bound {
    pub(super) fn holds(self, value: f64) -> bool {
        match self {
            Self::Most(bound) => value <= bound,
            Self::Least(bound) => value >= bound,
            Self::None => true,
        }
    }

    /// Whether `value` is further from being good than `other`.
    pub(super) fn is_worse(self, value: f64, other: f64) -> bool {
        match self {
            Self::Least(_) => value < other,
            Self::Most(_) | Self::None => value > other,
        }
    }
}

pub(super) const OPERATIONS: [Operation; 2] = [Operation::Read, Operation::Write];
pub(super) const AUTO: BlockSize = BlockSize::Auto { max: None };

/// The blocks that `auto` is compared with.
const FIXED: [u32; 6] = [1024, 2560, 4096, 5632, 8704, 32 << 10];

/// Mean bad periods of the papers' link, in milliseconds.
const BAD: [u64; 9] = [0, 20, 40, 60, 80, 100, 120, 140, 160];

pub(super) fn plan(room: &str, operation: Operation, block: BlockSize) -> Result<Plan, Error> {
    let mut plan = Plan::new(Room::named(room)?);
    (plan.operation, plan.block, plan.window) = (operation, block, Window::Auto);
    plan.policy = RetryPolicy::Adaptive;
    plan.patience = Duration::from_secs(9000);
    Ok(plan)
}

pub(super) fn with_bad(mut plan: Plan, bad: u64) -> Plan {
    plan.room.link.channel.set_bad_mean(Duration::from_millis(bad));
    plan
}

pub(super) const fn most(what: &'static str, value: fn(&[Row]) -> f64, bound: f64) -> Check {
    Check { what, step: 1, value, bound: Bound::Most(bound) }
}

pub(super) const fn least(what: &'static str, value: fn(&[Row]) -> f64, bound: f64) -> Check {
    Check { what, step: 1, value, bound: Bound::Least(bound) }
}

const fn over_limit(bound: f64) -> Check {
    most("over the limit (%)", |rows| rows[0].over_limit_pct, bound)
}

const fn over_edge(bound: f64) -> Check {
    most("over the edge-aware limit (%)", |rows| rows[0].over_edge_limit_pct, bound)
}

const fn worst_edge(bound: f64) -> Check {
    most("worst seed over its edge-aware limit (%)", |rows| rows[0].worst_over_edge_limit_pct, bound)
}

const fn spurious(bound: f64) -> Check {
    most("spurious retransmissions per 100 calls", |rows| 100.0 * rows[0].spurious_resends_per_call, bound)
}

const fn jain(bound: f64) -> Check {
    least("Jain's index", |rows| rows[0].jain, bound)
}

/// Over the whole air time of all clients, until the last is done.
const fn last_over(bound: f64) -> Check {
    most(
        "last client over the limit (%)",
        |rows| 100.0 * (rows[0].last_done_s / rows[0].limit_s - 1.0),
        bound,
    )
}

const fn of_limit(bound: f64) -> Check {
    least("rate of the limit's (%)", |rows| 100.0 / (1.0 + rows[0].over_limit_pct / 100.0), bound)
}

/// Every case for both directions and all bad periods.
fn over_bads(room: &str, block: BlockSize, change: impl Fn(&mut Plan)) -> Result<Vec<(String, Plan)>, Error> {
    let mut plans = Vec::new();
    for operation in OPERATIONS {
        for bad in BAD {
            let mut plan = with_bad(plan(room, operation, block)?, bad);
            change(&mut plan);
            plans.push((format!("{} {bad} ms", operation.name()), plan));
        }
    }
    Ok(plans)
}

fn both(room: &str, change: impl Fn(&mut Plan)) -> Result<Vec<(String, Plan)>, Error> {
    let mut plans = Vec::new();
    for operation in OPERATIONS {
        let mut plan = plan(room, operation, AUTO)?;
        change(&mut plan);
        plans.push((operation.name().to_owned(), plan));
    }
    Ok(plans)
}

fn one_way(plans: Vec<(String, Plan)>, operation: Operation) -> Vec<(String, Plan)> {
    plans.into_iter().filter(|(_, plan)| plan.operation == operation).collect()
}

/// The links of 1997, without and with link-level retransmission.
fn papers_link() -> Result<Vec<Target>, Error> {
    let block = BlockSize::Exact(4096);
    let mut targets = Vec::new();
    for (reads, writes, change) in [
        ("4096 B, read", "4096 B, write", None),
        ("4096 B, exponential periods, read", "4096 B, exponential periods, write", Some(Shape::Exponential)),
        (
            "4096 B, deterministic periods, read",
            "4096 B, deterministic periods, write",
            Some(Shape::Deterministic),
        ),
    ] {
        let plans = over_bads("modern", block, |plan| {
            if let Some(shape) = change {
                plan.room.link.channel.set_shape(shape);
            }
        })?;
        for (case, operation, bound) in [(reads, Operation::Read, 1.0), (writes, Operation::Write, 1.5)] {
            let checks = vec![over_edge(bound), worst_edge(4.0), spurious(0.5)];
            targets.push(Target { case: case.into(), plans: one_way(plans.clone(), operation), checks });
        }
    }
    let ticks = over_bads("modern", block, |plan| {
        plan.room.link.channel.granularity = Some(Duration::from_millis(20));
    })?;
    targets.push(Target {
        case: "4096 B, 20 ms ticks".into(),
        plans: ticks,
        checks: vec![over_edge(1.5), worst_edge(4.0), spurious(0.5)],
    });
    let mut contest = Vec::new();
    for operation in OPERATIONS {
        for bad in BAD {
            for block in std::iter::once(AUTO).chain(FIXED.map(BlockSize::Exact)) {
                contest.push((
                    format!("{} {bad} ms", operation.name()),
                    with_bad(plan("modern", operation, block)?, bad),
                ));
            }
        }
    }
    targets.push(Target {
        case: "block auto".into(),
        plans: contest,
        checks: vec![Check {
            what: "over the best fixed block (%)",
            step: 1 + FIXED.len(),
            value: |rows| {
                let best = rows[1..=FIXED.len()].iter().map(|row| row.mean_s).fold(f64::INFINITY, f64::min);
                100.0 * (rows[0].mean_s / best - 1.0)
            },
            bound: Bound::Most(1.0),
        }],
    });
    targets.push(Target {
        case: "4096 B, no errors".into(),
        plans: one_way(over_bads("modern", block, |_| {})?, Operation::Read).into_iter().take(1).collect(),
        checks: vec![over_limit(0.3)],
    });
    let pinged = |block| over_bads("modern", block, |plan| plan.ping = Some(Duration::from_secs(1)));
    let ping = |bound| Check {
        what: "mean ping beside the copy (ms)",
        step: 1,
        value: |rows| rows[0].ping_ms.unwrap_or(f64::NAN),
        bound,
    };
    targets.push(Target {
        case: "4096 B and a ping".into(),
        plans: pinged(block)?,
        checks: vec![ping(Bound::Most(120.0))],
    });
    targets.push(Target {
        case: "block auto and a ping".into(),
        plans: pinged(AUTO)?,
        checks: vec![ping(Bound::None)],
    });
    for (case, bad) in [("4096 B, good 4 s, bad 1 s", 1000), ("4096 B, good 4 s, bad 2 s", 2000)] {
        let mut plans = Vec::new();
        for operation in OPERATIONS {
            let mut plan = with_bad(plan("modern", operation, block)?, bad);
            plan.room.link.channel.set_good_mean(Duration::from_secs(4));
            plans.push((operation.name().to_owned(), plan));
        }
        targets.push(Target {
            case: case.into(),
            plans,
            checks: vec![over_limit(4.0), worst_edge(8.0), spurious(0.5)],
        });
    }
    for (case, fixed, arq, bound) in [
        ("stop-and-wait, block auto", "stop-and-wait, 32768 B", ArqKind::StopAndWait, 4.0),
        ("selective-repeat, block auto", "selective-repeat, 32768 B", ArqKind::SelectiveRepeat, 1.8),
    ] {
        for (case, block) in [(case, AUTO), (fixed, BlockSize::Exact(32 << 10))] {
            let plans = over_bads("modern", block, |plan| plan.room.link.arq.kind = arq)?;
            targets.push(Target { case: case.into(), plans, checks: vec![over_limit(bound), spurious(0.5)] });
        }
    }
    Ok(targets)
}

/// Several clients, and queues that overflow.
fn shared_links() -> Result<Vec<Target>, Error> {
    let mut targets = Vec::new();
    for (case, clients) in [("2 clients, one queue", 2), ("8 clients, one queue", 8)] {
        let plans = both("modern", |plan| (plan.clients, plan.block) = (clients, BlockSize::Exact(4096)))?;
        targets.push(Target {
            case: case.into(),
            plans,
            checks: vec![jain(0.98), last_over(1.0), spurious(0.5)],
        });
    }
    let plans = both("modern", |plan| {
        (plan.clients, plan.block) = (8, BlockSize::Exact(4096));
        plan.room.link.queue.scheduler = Scheduler::RoundRobinDatagram;
        plan.room.link.arq.kind = ArqKind::StopAndWait;
        plan.room.link.channel.set_bad_mean(Duration::from_millis(160));
    })?;
    targets.push(Target {
        case: "8 clients, queues by datagram, stop-and-wait, 160 ms".into(),
        plans,
        checks: vec![last_over(9.0), jain(0.99), spurious(0.5)],
    });
    for (case, fixed, packets, block) in [
        ("wired-10, 4 clients, 20 packets", "wired-10, 4 clients, 20 packets, 4096 B", 20, 4096),
        ("wired-10, 4 clients, 64 packets", "wired-10, 4 clients, 64 packets, 4096 B", 64, 4096),
        ("wired-10, 4 clients, 250 packets", "wired-10, 4 clients, 250 packets, 8192 B", 250, 8192),
    ] {
        let wired = |clients, competitor, block| {
            both("wired-10", |plan| {
                (plan.clients, plan.competitor, plan.block) = (clients, competitor, block);
                plan.size = 8 << 20;
                plan.room.link.queue.packets = Some(packets);
            })
        };
        for (case, block) in [(case, AUTO), (fixed, BlockSize::Exact(block))] {
            targets.push(Target {
                case: case.into(),
                plans: wired(4, false, block)?,
                checks: vec![last_over(4.0), spurious(0.1), jain(0.95)],
            });
        }
        let share = |rows: &[Row]| 100.0 * rows[0].competitor_share.unwrap_or(f64::NAN);
        targets.push(Target {
            case: "the same queue, one client beside TCP".into(),
            plans: wired(1, true, AUTO)?,
            checks: vec![least("TCP's part of its fair share (%)", share, 40.0)],
        });
    }
    Ok(targets)
}

/// Slow, fast and long links.
fn other_links() -> Result<Vec<Target>, Error> {
    let slip = |clients, max| {
        both("slip-9600", |plan| {
            plan.clients = clients;
            if clients > 1 {
                plan.spacing = Duration::from_secs(720);
            }
            plan.block = BlockSize::Auto { max };
        })
    };
    let mut targets = vec![
        Target {
            case: "slip-9600, block 512".into(),
            plans: slip(1, Some(512))?,
            checks: vec![over_limit(0.5), spurious(0.5)],
        },
        Target {
            case: "slip-9600, block 512, a second client midway".into(),
            plans: slip(2, Some(512))?,
            checks: vec![last_over(5.0), spurious(0.5)],
        },
        Target {
            case: "slip-9600, --max-block 4096".into(),
            plans: slip(1, Some(4096))?,
            checks: vec![over_limit(10.0)],
        },
        Target {
            case: "slip-9600, --max-block 4096, a second client midway".into(),
            plans: slip(2, Some(4096))?,
            checks: vec![last_over(10.0)],
        },
    ];
    let rooms = [
        (
            "wifi-54",
            5,
            [("wifi-54, 32 MB", 98.0), ("wifi-54, 32 MB, 1 %", 98.0), ("wifi-54, 32 MB, 3 %", 98.0)],
            None,
        ),
        (
            "lan-50ms",
            5,
            [("lan-50ms, 32 MB", 95.0), ("lan-50ms, 32 MB, 1 %", 93.0), ("lan-50ms, 32 MB, 3 %", 90.0)],
            None,
        ),
        (
            "satellite-600",
            10,
            [
                ("satellite-600, 32 MB", 85.0),
                ("satellite-600, 32 MB, 1 %", 82.0),
                ("satellite-600, 32 MB, 3 %", 78.0),
            ],
            Some([
                ("satellite-600, 32 MB, warm", 93.0),
                ("satellite-600, 32 MB, 1 %, warm", 90.0),
                ("satellite-600, 32 MB, 3 %, warm", 85.0),
            ]),
        ),
    ];
    for (room, bad, cold, warm) in rooms {
        let groups = [(Some(cold), false), (warm, true)];
        for (cases, warm) in groups.into_iter().filter_map(|(cases, warm)| Some((cases?, warm))) {
            for ((case, bound), loss) in cases.into_iter().zip([0.0, 0.01, 0.03]) {
                let loss = Probability::new(loss)?;
                let mut plans =
                    both(room, |plan| (plan.size, plan.warm) = (32 << 20, warm.then_some(32 << 20)))?;
                for (_, plan) in plans.iter_mut().filter(|_| loss != Probability::ZERO) {
                    plan.room.link.channel.set_bad_mean(Duration::from_millis(bad));
                    plan.room.link.channel.set_loss(loss)?;
                }
                targets.push(Target {
                    case: case.into(),
                    plans,
                    checks: vec![of_limit(bound), spurious(0.5)],
                });
            }
        }
    }
    Ok(targets)
}

/// The link is gone for so many milliseconds, two seconds after the first call; what that costs beyond those, at most.
fn outage<const MILLIS: u64>(case: &'static str, most_beyond: f64) -> Result<Target, Error> {
    let mut plans = Vec::new();
    for operation in OPERATIONS {
        let plan = plan("modern", operation, BlockSize::Exact(4096))?;
        let mut cut = plan.clone();
        cut.outages =
            vec![Outage { at: Duration::from_secs(2), length: Duration::from_millis(MILLIS), over: None }];
        plans.extend([(operation.name().to_owned(), cut), (operation.name().to_owned(), plan)]);
    }
    let beyond: fn(&[Row]) -> f64 = |rows| 1e3 * (rows[0].mean_s - rows[1].mean_s) - MILLIS as f64;
    let beyond = most("lost beyond the outage (ms)", beyond, most_beyond);
    let checks =
        [beyond, most("probes", |rows| rows[0].probes, 100.0)].map(|check| Check { step: 2, ..check });
    Ok(Target { case: case.into(), plans, checks: checks.into() })
}

/// Times without a link, and the hosts of 1997.
fn outages_and_old_hosts() -> Result<Vec<Target>, Error> {
    let mut targets = vec![
        outage::<500>("an outage of 0.5 s", 100.0)?,
        outage::<2000>("an outage of 2 s", 100.0)?,
        outage::<10_000>("an outage of 10 s", 1000.0)?,
        outage::<60_000>("an outage of 60 s", 1000.0)?,
    ];
    let mut plans = Vec::new();
    for operation in OPERATIONS {
        for policy in [RetryPolicy::Adaptive, RetryPolicy::exponential()] {
            let mut plan = with_bad(Plan::new(Room::named("paper-1997")?), 160);
            (plan.operation, plan.policy) = (operation, policy);
            if policy == RetryPolicy::Adaptive {
                (plan.block, plan.window) = (AUTO, Window::Auto);
            }
            plans.push((operation.name().to_owned(), plan));
        }
    }
    let gain: fn(&[Row]) -> f64 = |rows| 100.0 * (rows[0].mean_s / rows[1].mean_s - 1.0);
    targets.push(Target {
        case: "paper-1997 at 160 ms".into(),
        plans,
        checks: vec![
            Check {
                what: "response time against exponential (%)",
                step: 2,
                value: gain,
                bound: Bound::Most(-46.0),
            },
            Check {
                what: "over the room's limit (%)",
                step: 2,
                value: |rows| rows[0].over_limit_pct,
                bound: Bound::Most(8.0),
            },
        ],
    });
    Ok(targets)
}

/// All of it under one name.
/// Every case.
fn cases() -> Result<Vec<Target>, Error> {
    let mut targets = papers_link()?;
    targets.extend(shared_links()?);
    targets.extend(other_links()?);
    targets.extend(outages_and_old_hosts()?);
    Ok(targets)
}

/// The plans of all cases.
pub(super) fn plans() -> Result<Vec<Plan>, Error> {
    Ok(cases()?.into_iter().flat_map(|target| target.plans).map(|(_, plan)| plan).collect())
}

pub(super) fn experiments() -> Result<Vec<Experiment>, Error> {
    let title = "What the adaptive policy is to reach, and what it reaches";
    Ok(vec![Experiment {
        name: NAME.to_owned(),
        title: title.to_owned(),
        items: Vec::new(),
        remarks: Vec::new(),
        panels: vec![Panel::Targets(cases()?)],
    }])
}
