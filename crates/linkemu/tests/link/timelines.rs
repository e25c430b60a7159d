//! Schedules computed by hand, to the nanosecond. A datagram of 1000 B is one frame of 1046 B: 8368 µs at 1 Mbit/s.

use std::time::Duration;

use crate::common::{World, bare, host, megabits, mobile, traced};
use linkemu::{ArqKind, Duplex, Fate, Jitter, JitterSpread, LinkConfig, Probe, ReceiveBufferConfig};

const FADE: &str = "0,good\n10,bad\n20,good\n";

/// Offers `count` datagrams of 1000 B from the host to the mobile at time 0 and tells when they arrive.
fn burst(config: LinkConfig, count: usize) -> Vec<(u64, u64)> {
    let mut world = World::new(config, 1, 1);
    for _ in 0..count {
        world.send(0, host(), mobile(0), 1000);
    }
    world.arrivals(1_000_000)
}

/// As nanoseconds.
fn micros(times: &[(u64, u64)]) -> Vec<(u64, u64)> {
    times.iter().map(|&(datagram, at)| (datagram, at * 1000)).collect()
}

/// ```text
/// ms  0        8.368    16.736   25.104   33.472
///     |-- A ---|-- B ---|-- C ---|-- D ---|
///     good       |= bad 10..20 =|
/// ```
#[test]
fn without_arq_every_frame_that_touches_the_fade_is_lost() {
    let arrivals = burst(traced(FADE, ArqKind::None), 4);
    assert_eq!(arrivals, micros(&[(0, 8368), (3, 33_472)]));
}

/// B ends in the fade and comes out at its end; C ends after it and arrives then.
#[test]
fn ideal_arq_holds_frames_until_the_fade_is_over() {
    let arrivals = burst(traced(FADE, ArqKind::Ideal), 4);
    assert_eq!(arrivals, micros(&[(0, 8368), (1, 20_000), (2, 25_104), (3, 33_472)]));
}

/// ```text
/// A data 0..8.368, ack ..8.668
/// B data 8.668..17.036 lost, no ack by 17.336, pause until 22.336
///   RTS ..22.586, CTS ..22.836, data ..31.204, ack ..31.504
/// C data ..39.872, ack ..40.172
/// ```
#[test]
fn stop_and_wait_repeats_after_an_rts_got_through() {
    let arrivals = burst(traced(FADE, ArqKind::StopAndWait), 3);
    assert_eq!(arrivals, micros(&[(0, 8368), (1, 31_204), (2, 39_872)]));
}

/// B data 8.668..17.036 lost, again 22.336..30.704, ack ..31.004; C data ..39.372.
#[test]
fn bare_stop_and_wait_repeats_the_frame_itself() {
    let mut config = traced(FADE, ArqKind::StopAndWait);
    config.arq.probe = Probe::Off;
    assert_eq!(burst(config, 3), micros(&[(0, 8368), (1, 30_704), (2, 39_372)]));
}

/// ```text
/// A RTS+CTS 0..0.5, data ..8.868, ack ..9.168
/// B RTS+CTS ..9.668, data ..18.036 lost, no ack by 18.336, pause until 23.336
///   RTS+CTS ..23.836, data ..32.204, ack ..32.504
/// C RTS+CTS ..33.004, data ..41.372
/// ```
#[test]
fn rts_cts_reserves_every_frame() {
    let arrivals = burst(traced(FADE, ArqKind::RtsCts), 3);
    assert_eq!(arrivals, micros(&[(0, 8868), (1, 32_204), (2, 41_372)]));
}

/// ```text
/// A ..8.368 is alone and polls, block ack ..8.468
/// B ..16.836 lost, C ..25.204 lost, D ..33.572 polls, block ack ..33.672
/// B again ..42.040, C again ..50.408 polls; D waited for them
/// ```
#[test]
fn selective_repeat_resends_only_what_is_missing_and_keeps_the_order() {
    let arrivals = burst(traced(FADE, ArqKind::SelectiveRepeat), 4);
    assert_eq!(arrivals, micros(&[(0, 8368), (1, 42_040), (2, 50_408), (3, 50_408)]));
}

/// The ack at 8.368..8.668 is lost: pause until 13.668, RTS+CTS ..14.168, the frame again ..22.536.
#[test]
fn a_lost_ack_makes_a_duplicate_that_the_receiver_removes() {
    let mut world = World::new(traced("0,good\n8.4,bad\n8.5,good\n", ArqKind::StopAndWait), 1, 1);
    world.send(0, host(), mobile(0), 1000);
    world.send(0, host(), mobile(0), 1000);
    // The second frame follows the ack at 22.836.
    assert_eq!(world.arrivals(100_000), micros(&[(0, 8368), (1, 31_204)]));
    let stats = world.cell.stats();
    assert_eq!((stats.duplicates, stats.repeats, stats.delivered()), (1, 1, 2));
    assert_eq!(stats.air_control, Duration::from_micros(3 * 300 + 500));
}

/// The block ack at 8.368..8.468 is lost: pause until 13.468, request ..13.568, block ack ..13.668.
#[test]
fn a_lost_block_ack_is_asked_for_again() {
    let mut world = World::new(traced("0,good\n8.4,bad\n8.45,good\n", ArqKind::SelectiveRepeat), 1, 1);
    world.send(0, host(), mobile(0), 1000);
    world.send(10_000, host(), mobile(0), 1000);
    assert_eq!(world.arrivals(100_000), micros(&[(0, 8368), (1, 22_036)]));
    assert_eq!(world.cell.stats().repeats, 0);
}

/// Data ..8.368 fails at 8.668, RTS 13.668 fails at 14.168, RTS 19.168 fails at 19.668: two retries are allowed.
#[test]
fn the_retry_limit_hands_the_loss_upward() {
    let mut config = traced("0,bad\n", ArqKind::StopAndWait);
    config.arq.retry_limit = Some(2);
    let mut world = World::new(config, 1, 1);
    world.send(0, host(), mobile(0), 1000);
    assert_eq!(world.arrivals(19_667), []);
    assert_eq!(world.cell.stats().fate(Fate::RetryLimit), 0);
    world.run(19_668);
    let stats = world.cell.stats();
    assert_eq!((stats.fate(Fate::RetryLimit), stats.failed_attempts, stats.transmissions), (1, 3, 1));
    assert_eq!(world.cell.poll_timeout(), None);
}

/// A 160 ms fade costs a probe of 0.5 ms every 5.5 ms, and no data.
#[test]
fn probing_keeps_frames_out_of_a_long_fade() {
    let mut world = World::new(traced("0,good\n1,bad\n161,good\n", ArqKind::StopAndWait), 1, 1);
    world.send(0, host(), mobile(0), 1000);
    // Failed at 8.668; RTS at 13.668 + 5.5 k; the first at or after 161 is k = 27: 162.168.
    assert_eq!(world.arrivals(1_000_000), micros(&[(0, 162_168 + 500 + 8368)]));
    assert_eq!(world.cell.stats().transmissions, 2);
}

/// The two directions of a half-duplex medium take turns, frame by frame.
#[test]
fn stations_take_turns_on_a_half_duplex_medium() {
    let mut world = World::new(bare(), 1, 1);
    for _ in 0..2 {
        world.send(0, host(), mobile(0), 1000);
    }
    for _ in 0..2 {
        world.send(0, mobile(0), host(), 1000);
    }
    assert_eq!(world.arrivals(100_000), micros(&[(0, 8368), (2, 16_736), (1, 25_104), (3, 33_472)]));
}

#[test]
fn both_directions_of_a_full_duplex_link_send_at_once_and_propagate() {
    let mut config = bare();
    config.duplex = Duplex::Full;
    config.delay = Duration::from_millis(300);
    let mut world = World::new(config, 1, 1);
    world.send(0, host(), mobile(0), 1000);
    world.send(0, mobile(0), host(), 1000);
    assert_eq!(world.arrivals(1_000_000), micros(&[(0, 308_368), (1, 308_368)]));
}

/// On a full-duplex link the ack crosses it too: data ..8.368 +10, ack ..18.668 +10, next data 28.668..37.036 +10.
#[test]
fn acknowledgements_propagate_on_a_full_duplex_link() {
    let mut config = bare();
    config.duplex = Duplex::Full;
    config.delay = Duration::from_millis(10);
    config.arq.kind = ArqKind::StopAndWait;
    assert_eq!(burst(config, 2), micros(&[(0, 18_368), (1, 47_036)]));
}

/// Three frames of 1518, 1518 and 1310 B; the first leaves the 10 Mbit/s wire after 1214.4 + 1000 µs, the others
/// while it is on the air.
#[test]
fn fragments_flow_from_wire_to_medium_one_by_one() {
    let mut world = World::new(LinkConfig::default(), 1, 1);
    world.send(0, host(), mobile(0), 128 + 4096);
    assert_eq!(world.arrivals(100_000), [(0, 2_214_400 + (1518 + 1518 + 1310) * 8000)]);
}

/// Upwards the last fragment crosses the wire after the medium: 1310 B at 10 Mbit/s and 1 ms.
#[test]
fn fragments_flow_from_medium_to_wire_one_by_one() {
    let mut world = World::new(LinkConfig::default(), 1, 1);
    world.send(0, mobile(0), host(), 128 + 4096);
    assert_eq!(world.arrivals(100_000), [(0, (1518 + 1518 + 1310) * 8000 + 1_048_000 + 1_000_000)]);
}

/// A buffer of two and a host that takes 20 ms a frame: the third frame finds the first two.
#[test]
fn a_slow_host_overflows_its_receive_buffer() {
    let mut config = bare();
    let mut buffer = ReceiveBufferConfig::default();
    buffer.packets = 2;
    buffer.service = Duration::from_millis(20);
    config.receive_buffer = Some(buffer);
    let mut world = World::new(config, 1, 1);
    for _ in 0..4 {
        world.send(0, host(), mobile(0), 1000);
    }
    assert_eq!(world.arrivals(200_000), micros(&[(0, 28_368), (1, 48_368), (3, 68_368)]));
    assert_eq!(world.cell.stats().fate(Fate::ReceiveBufferFull), 1);
}

#[test]
fn a_full_queue_drops_the_last_comer() {
    let mut config = bare();
    config.queue.packets = Some(2);
    let mut world = World::new(config, 1, 1);
    // The first is on the air at once, two wait, the fourth is refused.
    for _ in 0..4 {
        world.send(0, host(), mobile(0), 1000);
    }
    assert_eq!(world.run(100_000).len(), 3);
    assert_eq!(world.cell.stats().fate(Fate::QueueFull), 1);

    let mut config = bare();
    config.queue.bytes = Some(2 * 1046 + 1045);
    let mut world = World::new(config, 1, 1);
    for _ in 0..4 {
        world.send(0, host(), mobile(0), 1000);
    }
    assert_eq!(world.run(100_000).len(), 3);
}

#[test]
fn latency_of_a_half_duplex_medium_delays_frames_and_not_acknowledgements() {
    let mut config = bare();
    config.delay = Duration::from_millis(13);
    config.arq.kind = ArqKind::StopAndWait;
    assert_eq!(burst(config, 2), micros(&[(0, 8368 + 13_000), (1, 8668 + 8368 + 13_000)]));
}

#[test]
fn jitter_keeps_the_order_unless_overtaking_is_asked_for() {
    let run = |overtaking| {
        let mut config = bare();
        config.rate = megabits(100);
        config.jitter = Jitter::new(JitterSpread::Uniform(Duration::from_millis(50)));
        config.jitter.overtaking = overtaking;
        let order: Vec<u64> = burst(config, 40).iter().map(|&(datagram, _)| datagram).collect();
        assert_eq!(order.len(), 40);
        order.is_sorted()
    };
    assert!(run(false));
    assert!(!run(true));
}
