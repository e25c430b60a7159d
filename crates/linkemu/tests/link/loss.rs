//! What the channel takes, against arithmetic.

use std::time::Duration;

use crate::common::{World, bare, host, mobile};
use linkemu::{ArqKind, ChannelConfig, ChannelScope, LinkConfig, Scheduler, Shape};

fn alternating(shape: Shape, good_ms: u64, bad_ms: u64) -> LinkConfig {
    let mut config = bare();
    config.channel =
        ChannelConfig::alternating(shape, Duration::from_millis(good_ms), Duration::from_millis(bad_ms));
    config
}

/// With deterministic periods and a random phase, a datagram whose frames take `d` in all is lost if it begins in a bad
/// period or less than `d` before one: with probability (b + d) / (g + b).
#[test]
fn a_datagram_of_k_frames_is_lost_as_often_as_its_air_time_says() {
    let seeds = 100_000;
    for payload in [100_usize, 1472, 4224, 8320] {
        let config = alternating(Shape::Deterministic, 400, 60);
        let air = config.air_time(payload).as_secs_f64();
        let expected: f64 = (0.06 + air) / 0.46;
        let mut lost = 0;
        for seed in 0..seeds {
            let mut world = World::new(config.clone(), 1, seed);
            world.send(0, host(), mobile(0), payload);
            world.run(1_000_000);
            lost += world.cell.stats().lost();
        }
        let measured = lost as f64 / seeds as f64;
        // Five standard errors.
        let bound = 5.0 * (expected * (1.0 - expected) / seeds as f64).sqrt();
        assert!((measured - expected).abs() < bound, "{payload} B: {measured} not {expected}");
    }
}

/// Uniform good periods 0..2g: the share of frames that fit is E[(G - f)+] / (g + b) = (2g - f)^2 / 4g / (g + b).
#[test]
fn a_stream_of_frames_loses_the_share_that_the_distribution_says() {
    let (good, bad, frame) = (0.1, 0.02, 1046.0 * 8e-6);
    let mut world = World::new(alternating(Shape::Uniform, 100, 20), 1, 42);
    let frames = 400_000_u64;
    for number in 0..frames {
        // Irregular gaps, so that the stream does not step along with the periods.
        let at = number * 20_000 + number * number % 9973;
        world.run(at);
        world.send(at, host(), mobile(0), 1000);
    }
    world.run(frames * 20_000 + 100_000);
    let measured = world.cell.stats().delivered() as f64 / frames as f64;
    let expected: f64 = (2.0 * good - frame) * (2.0 * good - frame) / (4.0 * good) / (good + bad);
    // Neighbours 20 ms apart share their period, a cycle of 120 ms holds six: five standard errors of a sixth as many.
    let bound = 5.0 * (expected * (1.0 - expected) / (frames as f64 / 6.0)).sqrt();
    assert!((measured - expected).abs() < bound, "{measured} not {expected}");
}

#[test]
fn both_directions_meet_the_same_fade_unless_each_has_its_own() {
    let lost_together = |scope| {
        let mut config = alternating(Shape::Uniform, 100, 50);
        config.duplex = linkemu::Duplex::Full;
        config.channel.scope = scope;
        let mut world = World::new(config, 1, 9);
        let mut together = 0;
        for number in 0..2000 {
            let at = number * 50_000;
            world.run(at);
            let before = world.cell.stats().lost();
            world.send(at, host(), mobile(0), 1000);
            world.send(at, mobile(0), host(), 1000);
            world.run(at + 40_000);
            let lost = world.cell.stats().lost() - before;
            together += u32::from(lost != 1);
        }
        together
    };
    assert_eq!(lost_together(ChannelScope::Shared), 2000);
    assert!(lost_together(ChannelScope::PerDirection) < 1500);
}

/// The edges that traffic shows are those of the channel alone: bit for bit the same for two kinds of traffic.
#[test]
fn fades_do_not_depend_on_traffic() {
    let config = alternating(Shape::Exponential, 200, 50);
    let edges = |gap: u64, kind| {
        let mut config = config.clone();
        config.arq.kind = kind;
        let mut world = World::new(config, 1, 77);
        for number in 0..500 {
            world.run(number * gap);
            world.send(number * gap, host(), mobile(0), 500);
        }
        let mut channel = world.cell.channel(0).expect("mobile 0");
        channel.periods(Duration::ZERO, Duration::from_secs(60))
    };
    let first = edges(3000, ArqKind::None);
    assert!(first.len() > 100);
    assert_eq!(first, edges(70_000, ArqKind::SelectiveRepeat));
    let mut alone = linkemu::Channel::new(&config.channel, 77, 0).expect("a valid channel");
    assert_eq!(first, alone.periods(Duration::ZERO, Duration::from_secs(60)));
}

/// Bits per second that reach four mobiles, each with its own fades, from a saturated base station.
fn throughput(scheduler: Scheduler) -> f64 {
    let mut config = alternating(Shape::Uniform, 400, 200);
    config.channel.scope = ChannelScope::PerMobile;
    config.arq.kind = ArqKind::StopAndWait;
    config.queue.scheduler = scheduler;
    config.queue.packets = Some(400);
    let mut world = World::new(config, 4, 5);
    for tick in 0..6000 {
        world.run(tick * 10_000);
        for number in 0..4 {
            // Keep 20 frames for each, whatever the others have.
            let waiting = world.cell.snapshot().queue_packets[0];
            if waiting < 80 {
                world.send(tick * 10_000, host(), mobile(number), 1000);
            }
        }
    }
    world.cell.stats().delivered_bytes as f64 * 8.0 / 60.0
}

/// Bhagwat et al. 1996: a FIFO in front of a persistent ARQ is blocked by its head; queues per destination are not, and
/// passing over a destination that failed saves the air its probes would take.
#[test]
fn queues_per_destination_end_head_of_line_blocking() {
    let fifo = throughput(Scheduler::Fifo);
    let round_robin = throughput(Scheduler::RoundRobinFrame);
    let by_datagram = throughput(Scheduler::RoundRobinDatagram);
    let channel_state = throughput(Scheduler::ChannelState);
    let all = format!("{fifo} {round_robin} {by_datagram} {channel_state}");
    assert!(round_robin > 1.2 * fifo, "{all}");
    assert!(by_datagram > 1.2 * fifo, "{all}");
    assert!(channel_state > 1.01 * round_robin, "{all}");
}

/// One megabyte as fast as the link takes it arrives, with ideal ARQ, when the air has carried it or the fade ends; with
/// stop-and-wait the acknowledgements and edges cost what the model says and no more.
#[test]
fn a_megabyte_takes_the_air_time_that_the_model_says() {
    let finish = |kind: ArqKind| {
        let mut config = LinkConfig::default();
        config.arq.kind = kind;
        config.queue.packets = Some(100_000);
        let mut world = World::new(config, 1, 1);
        for _ in 0..256 {
            world.send(0, host(), mobile(0), 128 + 4096);
        }
        let arrivals = world.arrivals(60_000_000);
        arrivals.last().map_or(0, |&(_, at)| at)
    };
    // 2214.4 µs until the first fragment reaches the base station, then 256 x 4346 B of air.
    let data = 2_214_400 + 256 * 4346 * 8000;
    assert_eq!(finish(ArqKind::None), data);
    assert_eq!(finish(ArqKind::Ideal), data);
    // 768 frames, an ack of 0.3 ms after each; the last one ends after the last arrival.
    assert_eq!(finish(ArqKind::StopAndWait), data + 767 * 300_000);
    assert_eq!(finish(ArqKind::RtsCts), data + 767 * 300_000 + 768 * 500_000);
}
