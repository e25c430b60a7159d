//! How many frames a second the link carries in virtual time, on one core.
//!
//! ```text
//! cargo run --release -p linkemu --example speed
//! ```
//!
//! Frames of 1000 B of payload through one mobile at 100 Mbit/s with bad periods, 2,000,000 frames a row; wall time.
#![expect(clippy::disallowed_methods, reason = "wall time is what is measured")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use linkemu::{ArqKind, BitRate, ChannelConfig, ConfigError, Link, LinkConfig, Shape, Side, virtual_epoch};

const FRAMES: u64 = 2_000_000;

fn main() -> Result<(), ConfigError> {
    for (name, kind) in [
        ("none", ArqKind::None),
        ("ideal", ArqKind::Ideal),
        ("stop-and-wait", ArqKind::StopAndWait),
        ("rts-cts", ArqKind::RtsCts),
        ("selective-repeat", ArqKind::SelectiveRepeat),
    ] {
        let (seconds, simulated) = run(kind)?;
        println!(
            "{name:>16}: {:>9.0} frames per second of wall time, {simulated:.0} s simulated in {seconds:.2} s",
            FRAMES as f64 / seconds
        );
    }
    Ok(())
}

fn run(kind: ArqKind) -> Result<(f64, f64), ConfigError> {
    let mut config = LinkConfig::default();
    config.rate = BitRate::megabits(100).into();
    config.wired.rate = BitRate::UNLIMITED;
    config.wired.delay = Duration::ZERO;
    config.arq.kind = kind;
    config.channel =
        ChannelConfig::alternating(Shape::Uniform, Duration::from_millis(1000), Duration::from_millis(80));
    let epoch = virtual_epoch();
    let mut link = Link::new(config, 1, epoch)?;
    let payload = Bytes::from_static(&[0; 1000]);
    let (mut now, mut offered, mut settled) = (epoch, 0, 0);
    let start = Instant::now();
    while settled < FRAMES {
        // Keep 40 frames in the queue.
        while offered < FRAMES && offered - settled < 40 {
            link.handle_input(now, Side::Host, payload.clone());
            offered += 1;
        }
        let Some(next) = link.poll_timeout() else { break };
        now = next;
        link.handle_timeout(now);
        while link.poll_transmit(now).is_some() {}
        settled = link.cell().settled();
    }
    Ok((start.elapsed().as_secs_f64(), (now - epoch).as_secs_f64()))
}
