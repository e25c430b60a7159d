//! No copy ends before the limit that is printed beside it.

use std::time::Duration;

use linkemu::{ArqKind, BitRate, Duplex, LinkConfig, Loss, Preset, Probability, Rate, RateTrace};
use nfs_proto::config::{BlockSize, Window};
use testbed::{Operation, Plan, Room, run};

/// Every preset with fades of its own and with shorter good periods, each ARQ that obeys physics, and links whose
/// rates are recorded, differ, or are those of the wire.
fn links() -> Vec<(String, LinkConfig)> {
    let mut links = Vec::new();
    for preset in Preset::ALL {
        let config = preset.config();
        links.push((preset.name.to_owned(), config.clone()));
        for arq in [ArqKind::None, ArqKind::StopAndWait, ArqKind::SelectiveRepeat] {
            // One frame a round trip takes a quarter of an hour over a satellite.
            if arq == ArqKind::StopAndWait && config.delay > Duration::from_millis(50) {
                continue;
            }
            let mut faded = config.clone();
            faded.arq.kind = arq;
            // A block must fit between two fades.
            faded.channel.set_good_mean(Duration::from_secs(1).max(10 * config.air_time(4096)));
            faded.channel.set_bad_mean(Duration::from_millis(80));
            links.push((format!("{} with fades and {arq:?}", preset.name), faded));
        }
    }
    let mut link = Preset::named("lan-50ms").unwrap().config();
    link.channel.set_bad_mean(Duration::ZERO);
    let recorded = |times: &mut dyn Iterator<Item = u64>| {
        let lines: String = times.map(|time| format!("{time}\n")).collect();
        Rate::Trace(RateTrace::parse(&lines).unwrap())
    };
    let gap = recorded(&mut (1..=400).chain(900..1500).map(|time| time * 2));
    let ramp = recorded(&mut (1..=3000_u64).map(|index| index.isqrt() * 40));
    for (name, rate) in [("with gaps", gap), ("that slows down", ramp)] {
        for duplex in [Duplex::Full, Duplex::Half] {
            let mut traced = link.clone();
            (traced.rate, traced.duplex) = (rate.clone(), duplex);
            links.push((format!("a trace {name}, {duplex:?}"), traced));
        }
    }
    let mut slow_uplink = link.clone();
    slow_uplink.uplink_rate = Some(BitRate::kilobits(500).into());
    links.push(("a slow uplink".into(), slow_uplink));
    let mut slow_wire = link.clone();
    slow_wire.wired.rate = BitRate::megabits(2);
    links.push(("a slow wire".into(), slow_wire));
    let mut leaky = Preset::named("paper-1997").unwrap().config();
    leaky.channel.set_bad_mean(Duration::from_millis(500));
    leaky.channel.bad_loss = Loss::Frame(Probability::new(0.3).unwrap());
    links.push(("fades that some frames survive".into(), leaky));
    links
}

#[test]
fn nothing_ends_before_its_limit() {
    let (mut nearest, mut wrong) = (f64::INFINITY, Vec::new());
    for (name, link) in links() {
        for operation in [Operation::Read, Operation::Write] {
            for (block, window) in
                [(BlockSize::Exact(4096), Window::Calls(4)), (BlockSize::Auto { max: None }, Window::Auto)]
            {
                let mut room = Room::named("modern").unwrap();
                room.link = link.clone();
                let mut plan = Plan::new(room);
                // Four seconds at the mean rate, so that recorded rates matter.
                let bits = link.rate.mean().bits_per_second().min(4_000_000);
                (plan.operation, plan.size, plan.block, plan.window) = (operation, bits / 2, block, window);
                for seed in 1..=3 {
                    let done = run(&plan, seed).unwrap();
                    let (response, limit) = (done.copies[0].response, done.limit.physical);
                    let over = response.map(|it| it.as_secs_f64() / limit.as_secs_f64());
                    if over.is_none_or(|over| over < 1.0) {
                        wrong.push(format!(
                            "{name}, {operation:?}, {block:?}, seed {seed}: {response:?}, not {limit:?}"
                        ));
                    }
                    nearest = nearest.min(over.unwrap_or(f64::INFINITY));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(nearest < 1.02, "the limit is reached by nobody: {nearest}");
}

#[test]
fn recorded_rates_and_slow_wires_are_what_keeps_a_copy() {
    for (name, link) in links() {
        if !(name.starts_with("a trace") || name.starts_with("a slow")) {
            continue;
        }
        let mut room = Room::named("modern").unwrap();
        room.link = link;
        let mut plan = Plan::new(room);
        (plan.operation, plan.size, plan.window) = (Operation::Write, 2 << 20, Window::Auto);
        plan.block = BlockSize::Auto { max: None };
        let done = run(&plan, 1).unwrap();
        let over = done.copies[0].response.unwrap().as_secs_f64() / done.limit.physical.as_secs_f64();
        assert!(over < 1.5, "{name}: {over} times the limit, which leaves something out");
    }
}
