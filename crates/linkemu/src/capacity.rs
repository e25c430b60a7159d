//! What a link can carry at most, whatever protocol is used: for limits.

use std::time::Duration;

use crate::{
    Channel, Duplex, LinkConfig, Loss, Probability, Side,
    fragment::{IP_HEADER_BYTES, UDP_HEADER_BYTES},
    headers::LEAST_HEADER_BYTES,
};

/// Bits that a link has to carry, without acknowledgements of the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// On the medium, from the mobiles and to them.
    medium: [u64; 2],
    /// On the wire behind it.
    wire: [u64; 2],
}

impl Load {
    /// Adds `count` UDP datagrams from `side` with `payload_bytes`, the last `data_bytes` of which are no header. Where headers are
    /// compressed and the datagram fits one frame, it has the shortest header.
    pub fn add(
        &mut self,
        link: &LinkConfig,
        side: Side,
        payload_bytes: usize,
        data_bytes: usize,
        count: u64,
    ) {
        let frames = link.frames(payload_bytes);
        let ip = payload_bytes as u64 + u64::from(UDP_HEADER_BYTES) + u64::from(frames * IP_HEADER_BYTES);
        let air = if link.header_compression && frames == 1 {
            data_bytes as u64 + u64::from(LEAST_HEADER_BYTES + link.link_header_bytes)
        } else {
            link.air_bytes(payload_bytes)
        };
        let direction = direction(side);
        self.medium[direction] += count * air * u64::from(link.bits_per_byte);
        self.wire[direction] += count * ip * 8;
    }

    /// Returns this load and `count` times `other`.
    #[must_use]
    pub fn plus(&self, other: &Self, count: u64) -> Self {
        let sum = |a: [u64; 2], b: [u64; 2]| [a[0] + count * b[0], a[1] + count * b[1]];
        Self { medium: sum(self.medium, other.medium), wire: sum(self.wire, other.wire) }
    }
}

impl LinkConfig {
    /// The link of a seed: rates that are drawn are traces in it. A [`crate::Cell`] does this itself.
    #[must_use]
    pub fn drawn(&self, seed: u64) -> Self {
        let mut link = self.clone();
        link.rate = link.rate.drawn(seed, 0);
        link.uplink_rate = link.uplink_rate.map(|rate| rate.drawn(seed, 1));
        link
    }

    /// The earliest moment of `channel`'s time at which a load that is there from `from` on can have crossed the link, without its
    /// delays; `None` if that never comes.
    ///
    /// The medium carries while the channel is good, or always if something survives the bad state. Where each direction or each
    /// mobile has a channel of its own, `channel` counts for all.
    ///
    /// # Panics
    /// If a rate is still to be drawn ([`LinkConfig::drawn`]).
    pub fn earliest_end(&self, channel: &mut Channel, from: Duration, load: &Load) -> Option<Duration> {
        let mut always_good = Channel::always_good();
        let channel = match self.channel.bad_loss {
            Loss::Frame(loss) if loss == Probability::ONE => channel,
            Loss::Frame(_) | Loss::Bits(_) => &mut always_good,
        };
        let [up, down] = load.medium;
        let medium = match self.duplex {
            Duplex::Half => channel.carried(&self.rate, from, up + down)?,
            Duplex::Full => {
                let uplink = self.uplink_rate.as_ref().unwrap_or(&self.rate);
                channel.carried(uplink, from, up)?.max(channel.carried(&self.rate, from, down)?)
            }
        };
        let wire = from + Duration::from_nanos(self.wired.rate.nanos(load.wire[0].max(load.wire[1])));
        Some(medium.max(wire))
    }
}

const fn direction(from: Side) -> usize {
    match from {
        Side::Mobile => 0,
        Side::Host => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BitRate, ChannelConfig, ChannelTrace, Periods, Rate, RateTrace};

    const SECOND: Duration = Duration::from_secs(1);

    /// A link without headers and wire, and the end of so many bytes each way.
    fn end(change: impl FnOnce(&mut LinkConfig), bytes: [usize; 2]) -> Option<Duration> {
        let mut link = LinkConfig { link_header_bytes: 0, mtu_bytes: 65_535, ..LinkConfig::default() };
        link.rate = BitRate::kilobits(80).into();
        link.wired = crate::WiredConfig::unlimited();
        change(&mut link);
        let mut channel = Channel::new(&link.channel, 1, 0).expect("a valid channel");
        let mut load = Load::default();
        for (side, bytes) in [Side::Mobile, Side::Host].into_iter().zip(bytes) {
            load.add(&link, side, bytes - 28, 0, 1);
        }
        link.earliest_end(&mut channel, SECOND, &load)
    }

    #[test]
    fn directions_share_a_half_duplex_medium_and_have_rates_of_their_own_otherwise() {
        assert_eq!(end(|_| {}, [10_000, 20_000]), Some(4 * SECOND));
        assert_eq!(end(|link| link.duplex = Duplex::Full, [10_000, 20_000]), Some(3 * SECOND));
        let slow_uplink = |link: &mut LinkConfig| {
            link.duplex = Duplex::Full;
            link.uplink_rate = Some(BitRate::kilobits(20).into());
        };
        assert_eq!(end(slow_uplink, [10_000, 20_000]), Some(5 * SECOND));
    }

    #[test]
    fn a_slower_wire_is_the_limit() {
        let wire = |link: &mut LinkConfig| link.wired.rate = BitRate::kilobits(16);
        assert_eq!(end(wire, [10_000, 20_000]), Some(11 * SECOND));
    }

    #[test]
    fn a_recorded_rate_offers_what_it_did_at_that_time() {
        // One opportunity of 1504 bytes a millisecond in the first of two seconds.
        let lines: String = (1..=1000).chain([2000]).map(|time| format!("{time}\n")).collect();
        let trace = RateTrace::parse(&lines).expect("a valid trace");
        let recorded = |link: &mut LinkConfig| link.rate = Rate::Trace(trace);
        // At 1 s the first second is over: one opportunity at 2 s, then one every millisecond.
        assert_eq!(end(recorded, [1504, 9 * 1504]), Some(2 * SECOND + Duration::from_millis(9)));
    }

    #[test]
    fn only_a_bad_state_that_loses_all_stops_the_medium() {
        let fades = |link: &mut LinkConfig| {
            let trace = ChannelTrace::parse("0,good\n1500,bad\n9000,good\n").expect("a valid trace");
            link.channel = ChannelConfig { periods: Periods::Trace(trace), ..ChannelConfig::default() };
        };
        assert_eq!(end(fades, [10_000, 10_000]), Some(Duration::from_millis(10_500)));
        let leaky = |link: &mut LinkConfig| {
            fades(link);
            link.channel.bad_loss = Loss::Frame(Probability::new(0.9).expect("a probability"));
        };
        assert_eq!(end(leaky, [10_000, 10_000]), Some(3 * SECOND));
        let for_ever = |link: &mut LinkConfig| {
            let trace = ChannelTrace::parse("0,good\n1500,bad\n").expect("a valid trace");
            link.channel = ChannelConfig { periods: Periods::Trace(trace), ..ChannelConfig::default() };
        };
        assert_eq!(end(for_ever, [10_000, 10_000]), None);
    }
}
