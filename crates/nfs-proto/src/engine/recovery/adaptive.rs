//! The adaptive policy: joins what is known of the path, loss detection, congestion control and the choice of blocks.
//!
//! `docs/algorithm.md` is the specification.

use std::time::{Duration, Instant};

use super::{
    Class, Direction, Pace, PathEstimate, WindowLimits,
    block_policy::{self, Blocks},
    controller::Controller,
    delivery_rate::Delivered,
    fragments::Fragments,
    loss_detector::LossDetector,
    loss_episodes::LossEpisodes,
    pacer::Pacer,
    path_estimator::PathEstimator,
    path_mtu::PathMtu,
    tuning::{BlockTuning, Tuning},
};

/// What blocks may be chosen from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// Bytes of headers of a datagram with a block: IP, UDP, RPC and those of a WRITE.
    pub headers: u32,
    /// Largest block, in bytes.
    pub largest: u32,
}

/// Recovery and congestion control for one path.
#[derive(Debug)]
pub(in crate::engine) struct Adaptive {
    path: PathEstimator,
    detector: LossDetector,
    episodes: LossEpisodes,
    controller: Controller,
    pacer: Pacer,
    tuning: BlockTuning,
    /// Bytes of the last READ or WRITE.
    block: u32,
    /// What may be chosen for the next ones; `None` leaves the choice to the caller.
    range: Option<BlockRange>,
    /// Meaningful only where blocks are chosen here.
    path_mtu: PathMtu,
    /// The block of one frame when the last one was chosen.
    one_frame: u32,
    fragments: Fragments,
    /// Blocks larger than this do not arrive, and those under way are to be re-segmented.
    cut: Option<u32>,
}

/// An attempt that was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Acked {
    pub(in crate::engine) class: Class,
    pub(in crate::engine) bytes: u32,
    pub(in crate::engine) sent: Instant,
    /// What had been delivered when it was sent.
    pub(in crate::engine) before: Delivered,
    /// Whether the time since `sent` is its round-trip time.
    pub(in crate::engine) exact: bool,
    /// Whether it was the oldest call outstanding.
    pub(in crate::engine) oldest: bool,
    /// Whether other calls are outstanding.
    pub(in crate::engine) waiting: bool,
    /// Whether it was a probe.
    pub(in crate::engine) probe: bool,
    /// Bytes of the IP packet that the reply came in.
    pub(in crate::engine) size: u32,
    /// Whether something had to wait for the window since the last reply.
    pub(in crate::engine) window_limited: bool,
}

impl Acked {
    /// Returns the file bytes that were delivered: those of a short READ (RFC 1813 §3.3.6) are no more than have arrived.
    pub(in crate::engine) fn delivered(&self) -> u32 {
        match self.class {
            Class::Read => self.bytes.min(self.size),
            Class::Write | Class::Control => self.bytes,
        }
    }

    /// Whether it was a short READ: what the server leaves out says nothing of what the path carries.
    pub(in crate::engine) fn is_short(&self) -> bool {
        self.delivered() < self.bytes
    }
}

/// Block of the first READ or WRITE at most, in bytes: one frame, as the link may be slow.
const FIRST_BLOCK: u32 = 1280;

/// Largest block of several frames, in bytes: some servers take no larger one, and one lost frame loses all of it.
const MAX_FRAGMENTED: u32 = 32 << 10;

/// Highest rate of an earlier estimate that is believed, in bytes a second: 8 Tbit/s, ten times that of the fastest Ethernet.
const HIGHEST_RATE: f64 = 1e12;

/// Most fades a second of one: one for each microsecond.
const MOST_FADES: f64 = 1e6;

/// Longest round-trip time and mean fade of one: after that, operations have timed out.
const LONGEST_TIME: Duration = Duration::from_secs(3600);

/// Largest block of one, in bytes: that of TCP.
const LARGEST_BLOCK: u32 = 1 << 20;

/// IPv4 header, which each fragment has (RFC 791 §3.1).
const IP_HEADER: u32 = 20;

impl Adaptive {
    pub(in crate::engine) fn new(
        tuning: &Tuning,
        range: Option<BlockRange>,
        prior: Option<&PathEstimate>,
        now: Instant,
    ) -> Self {
        let mut adaptive = Self {
            path: PathEstimator::new(tuning, now),
            detector: LossDetector::new(tuning.loss, tuning.probes, now),
            episodes: LossEpisodes::new(tuning.episodes, now),
            controller: Controller::new(tuning.window),
            pacer: Pacer::new(tuning.pacing, now),
            tuning: tuning.blocks,
            block: 0,
            range,
            path_mtu: PathMtu::new(
                tuning.mtu,
                tuning.probes,
                range.map_or(0, |it| it.headers),
                range.map_or(0, |it| it.largest),
            ),
            one_frame: 0,
            fragments: Fragments::new(tuning.mtu),
            cut: None,
        };
        // Rejects what no path has, such as a rate that is not finite, and what a connection with little to send has seen of it.
        let is_sound = |it: &&PathEstimate| {
            let has_rate = it.rate > 0.0 && it.rate <= HIGHEST_RATE && !it.is_app_limited;
            let has_fades = (0.0..=MOST_FADES).contains(&it.fades_per_second) && it.mean_fade <= LONGEST_TIME;
            has_rate && has_fades && it.min_rtt <= LONGEST_TIME && (1..=LARGEST_BLOCK).contains(&it.block)
        };
        if let Some(prior) = prior.filter(is_sound) {
            adaptive.resume(prior, now);
        }
        adaptive
    }

    /// Starts from the estimate of an earlier connection.
    fn resume(&mut self, prior: &PathEstimate, now: Instant) {
        if let Some(range) = self.blocks() {
            self.block = prior.block.clamp(range.one_frame.min(range.largest), range.largest);
        }
        let block = if self.block == 0 { prior.block } else { self.block };
        self.path.resume(now, prior);
        self.controller.resume(&self.path, block);
        self.episodes.resume(prior.fades_per_second);
        self.pacer.set_rate(now, prior.rate, block);
    }

    /// Returns the estimate, once something was delivered.
    pub(in crate::engine) fn path_estimate(&self) -> Option<PathEstimate> {
        let rate = self.path.rate();
        (self.path.delivery.bytes() > 0 && rate > 0.0 && self.block > 0).then(|| PathEstimate {
            rate,
            is_app_limited: self.path.is_startup,
            min_rtt: self.path.min_rtt.get(),
            fades_per_second: self.episodes.per_second(),
            mean_fade: self.detector.pto.mean_fade(),
            retransmits: self.path.arq.retransmits(),
            block: self.block,
            in_flight: u32::try_from(self.window() / u64::from(self.block)).unwrap_or(u32::MAX),
            fast: None,
        })
    }

    /// Returns what has been delivered so far.
    pub(in crate::engine) fn delivered(&self, now: Instant) -> Delivered {
        self.path.delivery.delivered(now)
    }

    /// Returns the bytes of WRITEs that came all at once, and found the server's receive buffer full.
    pub(in crate::engine) const fn overflow(&self) -> u64 {
        self.path.arq.overflow()
    }

    /// Returns the congestion window in bytes.
    fn window(&self) -> u64 {
        self.controller.window(&self.path, self.block)
    }

    /// Returns the bytes of the last READ or WRITE, or of the first, if the choice is ours.
    pub(in crate::engine) fn block(&self) -> Option<u32> {
        let range = self.blocks()?;
        let first = FIRST_BLOCK.min(range.one_frame).min(range.largest);
        Some(if self.block == 0 { first } else { self.block })
    }

    /// Returns the bytes of the next READ or WRITE, if the choice is ours.
    pub(in crate::engine) fn next_block(&mut self, now: Instant) -> Option<u32> {
        let mut range = self.blocks()?;
        let mut block = self.block()?;
        // Blocks of one frame stay so when the path's MTU turns out to be smaller.
        if std::mem::replace(&mut self.one_frame, range.one_frame) == block {
            block = block.min(range.one_frame);
        }
        if block <= range.one_frame
            && let Some(probe) = self.path_mtu.read_to_probe(now)
        {
            return Some(probe);
        }
        if let Some(largest) = self.fragments.largest(now) {
            range.largest = range.largest.min(largest.max(range.one_frame));
        }
        let link_retransmits = self.path.arq.retransmits();
        let rate = self.path.bottleneck_rate();
        let path = block_policy::Path {
            rate,
            episodes_per_second: if link_retransmits {
                self.episodes.unexpected_per_second()
            } else {
                self.episodes.per_second()
            },
            bdp: rate * self.path.min_rtt.get().as_secs_f64(),
            queue: self.controller.allowance(&self.path, rate, range.one_frame, 1.0),
            delivered: self.path.delivery.bytes(),
        };
        let next = block_policy::choose(&self.tuning, path, block, range);
        if next != self.block && self.block > 0 && path.rate > 0.0 {
            self.path.handle_block_change(self.block, next);
            self.controller.handle_block_change(self.block, next);
            self.detector.pto.handle_block_change(self.block, next);
        }
        self.block = next;
        Some(next)
    }

    /// The server takes at most so many bytes per READ and WRITE.
    pub(in crate::engine) const fn bound_blocks(&mut self, largest: u32) {
        if let Some(range) = &mut self.range
            && largest < range.largest
        {
            range.largest = largest;
            self.path_mtu.bound_blocks(largest);
        }
    }

    /// Returns the blocks that may be chosen now, if the choice is ours.
    fn blocks(&self) -> Option<Blocks> {
        let most = self.range?.largest;
        let one_frame = self.path_mtu.block();
        let largest = most.min(MAX_FRAGMENTED).max(one_frame);
        Some(Blocks { one_frame, largest, frame: self.path_mtu.size() - IP_HEADER })
    }

    /// The driver has found out the MTU of the route; `sees_fragments`: it will say what arrives in fragments.
    pub(in crate::engine) fn handle_route_mtu(&mut self, mtu: u32, sees_fragments: bool) {
        if self.path_mtu.handle_route_mtu(mtu, sees_fragments) {
            self.cut = Some(self.path_mtu.block());
        }
    }

    /// Whether what is taken in next was put together of fragments, and the size of the largest.
    pub(in crate::engine) const fn handle_fragments(&mut self, largest: Option<u32>) {
        self.path_mtu.handle_fragments(largest);
    }

    /// Whether a datagram of so many bytes must not be fragmented.
    pub(in crate::engine) const fn keeps_whole(&self, bytes: u32) -> bool {
        self.range.is_some() && self.path_mtu.keeps_whole(bytes)
    }

    /// Returns the size of a padded call that is to be sent now, to learn whether it arrives.
    pub(in crate::engine) fn poll_mtu_probe(&mut self, now: Instant) -> Option<u32> {
        self.range?;
        self.path_mtu.poll_probe(now, self.path.rtt.timeout(Class::Control))
    }

    /// A padded call of so many bytes was answered.
    pub(in crate::engine) fn handle_mtu_probe_reply(&mut self, bytes: u32) {
        self.path_mtu.handle_probe_reply(bytes);
    }

    /// Returns how blocks leave.
    pub(in crate::engine) fn pace(&self) -> Pace {
        // What is not known yet is slow.
        let spacing = f64::from(self.block) / self.path.rate().max(1.0);
        Pace { bytes: self.window(), spacing: Duration::from_secs_f64(spacing) }
    }

    /// Returns how much may be in flight.
    pub(in crate::engine) fn limits(&self, limits: WindowLimits) -> WindowLimits {
        let bytes = self.window();
        WindowLimits {
            calls: limits.calls,
            read_bytes: limits.read_bytes.min(bytes),
            write_bytes: limits.write_bytes.min(bytes),
        }
    }

    /// A call was sent; `alone`: nothing else was outstanding; `in_flight` is in bytes, it included.
    pub(in crate::engine) fn handle_sent(
        &mut self,
        now: Instant,
        class: Class,
        bytes: u32,
        alone: bool,
        in_flight: u64,
    ) {
        if self.range.is_none() || self.block == 0 && class != Class::Control {
            self.block = self.block.max(bytes);
        }
        self.detector.on_sent(now, &self.path, class, alone);
        self.controller.on_sent(in_flight);
        if class != Class::Control {
            self.pacer.spend(now, bytes, self.block);
            let direction = Direction::of(class);
            self.path_mtu.handle_sent(now, direction, bytes, self.path.rtt.timeout(class));
        }
        if alone {
            self.episodes.handle_idle(now);
        }
    }

    /// A reply is there; what it overtook and what it means comes after this.
    pub(in crate::engine) fn look_back(&mut self, now: Instant) {
        self.detector.pto.look_back(now);
    }

    /// Takes a reply in.
    pub(in crate::engine) fn on_ack(&mut self, now: Instant, acked: &Acked) {
        let Acked { class, bytes, sent, before, exact, oldest, waiting, probe, size, window_limited } =
            *acked;
        if window_limited && !acked.is_short() {
            self.controller.on_window_limited();
        }
        let moved = (class != Class::Control).then(|| (Direction::of(class), bytes));
        if let Some(probe) = self.path_mtu.handle_reply(now, sent, size, moved) {
            self.cut = Some(probe - 1);
        }
        let rtt = now.saturating_duration_since(sent);
        if exact {
            self.path.rtt.sample(class, rtt);
            if class != Class::Control {
                self.controller.on_ack(now, &mut self.path, acked, self.block);
                let rate = self.path.highest_rate();
                if self.path.is_startup {
                    self.pacer.set_startup_rate(now, rate, self.block);
                } else {
                    self.pacer.set_rate(now, rate, self.block);
                }
                self.path_mtu.set_rate(self.path.rate());
            }
        }
        let is_held = oldest && sent <= self.detector.pto.since();
        let is_sample = !probe && oldest;
        let (timeout, link_retransmits) = (self.path.rtt.timeout(class), self.path.arq.retransmits());
        let gap = self.detector.pto.on_reply(now, bytes, is_sample, waiting, timeout, link_retransmits);
        self.episodes.handle_reply(now, if gap.is_probed { gap.excess } else { Duration::ZERO });
        if class != Class::Control && self.needs_fragments(class, bytes) {
            self.fragments.handle_arrival();
        }
        // A block larger than those before takes longer on any link.
        let own = self.path.time_of(bytes);
        // And what the link retransmits is late: it does not only come after a pause between two windows.
        let is_late = rtt > self.path.min_rtt.get() + own;
        if gap.is_probed && (gap.is_long && gap.excess > own && is_late || !is_held) {
            self.path.arq.handle_fade(now, is_held);
        }
        self.path.arq.handle_reply(sent);
        self.controller.on_reply(&self.path, before.bytes);
    }

    /// A retransmission was spurious: an earlier attempt is answered.
    pub(in crate::engine) fn on_spurious_retransmission(&mut self) {
        self.detector.on_spurious();
    }

    /// A call for `bytes` that was sent at `sent` was declared lost, and is answered: it was late while others passed.
    pub(in crate::engine) fn on_spurious_loss(&mut self, class: Class, sent: Instant, bytes: u32) {
        // Between two windows there is a pause, too.
        let pause = self.path.min_rtt.get() + self.path.time_of(bytes);
        self.path.arq.on_spurious(self.detector.pto.has_met(sent, pause));
        if class == Class::Write {
            self.path.arq.handle_spurious_write(sent, bytes);
        }
        self.episodes.on_spurious();
    }

    /// Whether a block is one of several frames, and the choice ours.
    fn needs_fragments(&self, class: Class, bytes: u32) -> bool {
        self.range.is_some() && self.path_mtu.is_fragmented(Direction::of(class), bytes)
    }

    /// Returns how long a call usually takes at most.
    pub(in crate::engine) fn usual_timeout(&self, class: Class) -> Duration {
        self.path.rtt.timeout(class)
    }

    /// Returns the largest block that arrives, once when it is found that larger ones do not.
    pub(in crate::engine) fn take_cut(&mut self) -> Option<u32> {
        self.cut.take()
    }

    /// A call for `bytes` was lost that was sent at `sent`, when `delivered` bytes had been delivered.
    pub(in crate::engine) fn on_loss(
        &mut self,
        now: Instant,
        class: Class,
        bytes: u32,
        sent: Instant,
        delivered: u64,
    ) {
        if class == Class::Read && self.path_mtu.is_probe(bytes) {
            return;
        }
        self.path.arq.on_loss();
        if class == Class::Write {
            self.path.arq.handle_lost_write(sent, bytes);
        }
        let largest = if self.needs_fragments(class, bytes) {
            self.fragments.handle_loss(now, sent, bytes, self.path_mtu.block())
        } else if self.range.is_some() && self.path_mtu.handle_loss(now, Direction::of(class), bytes, sent) {
            Some(0)
        } else {
            None
        };
        if let Some(largest) = largest {
            self.cut = Some(largest.max(self.path_mtu.block()));
            // A few frames may still fit a full queue; where not even those arrive, no queue was full.
            if largest == 0 {
                self.controller.start_again(&mut self.path);
            }
        }
        self.controller.on_loss(self.block);
        let smoothed = self.path.rtt.smoothed(Class::Read).unwrap_or_default();
        let span = 2 * smoothed + Duration::from_millis(500);
        let is_explained = self.detector.pto.explains_loss(now, span);
        let is_full = self.controller.had_congestion_since(delivered)
            || !is_explained && self.controller.is_queueing(&self.path, self.block);
        if is_full || self.controller.loses_heavily() {
            self.controller.on_congestion_event(&mut self.path, delivered, self.block);
        } else {
            self.episodes.on_loss(now, sent);
        }
    }

    /// How long a call that must not run twice is given each time it was overtaken.
    pub(in crate::engine) const fn caution(&self) -> Duration {
        self.detector.caution()
    }

    /// Returns how long an overtaken call may still be answered before it is declared lost.
    pub(in crate::engine) fn reordering_window(
        &self,
        now: Instant,
        suspect: Class,
        sent: Instant,
        losses: u32,
        evidence: Class,
    ) -> Duration {
        self.detector.reordering_window(now, &self.path, suspect, sent, losses, evidence)
    }

    /// Returns when [`Adaptive::on_probe_timeout`] is wanted.
    pub(in crate::engine) const fn next_probe(&self) -> Option<Instant> {
        self.detector.pto.next()
    }

    /// Returns when the next READ or WRITE may leave, if not now.
    pub(in crate::engine) fn paced_until(&self, now: Instant) -> Option<Instant> {
        self.pacer.next(now)
    }

    /// Nothing is outstanding any more.
    pub(in crate::engine) fn handle_idle(&mut self) {
        self.detector.pto.stop();
    }

    /// The link below has changed: if nothing is received, a probe is due at once.
    pub(in crate::engine) fn handle_link_event(&mut self, now: Instant) {
        self.path_mtu.handle_link_event();
        self.detector.pto.handle_link_event(now);
    }

    /// Whether a small call had better be sent again than a probe: nothing was received yet.
    pub(in crate::engine) const fn wants_hedge(&self) -> bool {
        self.detector.pto.is_unheard()
    }

    /// The probe timeout is over. Whether the oldest call itself is to be sent again, too.
    pub(in crate::engine) fn on_probe_timeout(&mut self, now: Instant) -> bool {
        self.detector.on_probe(now, &self.path)
    }
}

#[cfg(test)]
mod tests;
