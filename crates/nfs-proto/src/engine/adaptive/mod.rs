//! The adaptive policy: what it believes about the path, and what follows from it.
//!
//! One file for each idea; this one only joins them. `docs/algorithm.md` describes the whole.

mod draining;
mod fragments;
mod margin;
mod pacer;
mod patience;
mod rtt;
mod silence;
mod sizer;
mod trial;
mod window;

use std::time::{Duration, Instant};

pub(super) use self::window::Progress;
use self::{
    draining::Draining,
    fragments::Fragments,
    margin::Margin,
    pacer::Pacer,
    patience::Patience,
    rtt::{MIN_ALLOWANCE, RoundTrips},
    silence::{PROBE_BYTES, Silence},
    sizer::{Blocks, Sizer},
    window::Window,
};
use super::{Class, Direction, Fades, Pace, PathEstimate, WindowLimits, path_mtu::PathMtu};

/// What blocks may be chosen from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// Bytes of headers of a datagram with a block: IP, UDP, RPC and those of a WRITE.
    pub headers: u32,
    /// Largest block, in bytes.
    pub largest: u32,
}

/// What is believed about the path to one server.
#[derive(Debug)]
pub(super) struct Adaptive {
    trips: RoundTrips,
    silence: Silence,
    patience: Patience,
    fades: Fades,
    margin: Margin,
    window: Window,
    /// Bytes of the last READ or WRITE.
    block: u32,
    /// The smaller block that was asked for before: its replies, still on their way, come sooner and closer together.
    outgoing: Option<u32>,
    /// What may be chosen for the next ones; `None` leaves the choice to the caller.
    range: Option<BlockRange>,
    sizer: Sizer,
    /// Meaningful only where blocks are chosen here.
    path_mtu: PathMtu,
    /// The block of one frame when the last one was chosen.
    one_frame: u32,
    fragments: Fragments,
    /// Blocks larger than this do not arrive, and those under way are to be re-segmented.
    cut: Option<u32>,
    pacer: Pacer,
    draining: Draining,
    lost: Losses,
}

/// An attempt that was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) class: Class,
    pub(super) bytes: u32,
    pub(super) sent: Instant,
    /// How far deliveries had come when it was sent.
    pub(super) before: Progress,
    /// Whether the time since `sent` is its round-trip time.
    pub(super) exact: bool,
    /// Whether it was the oldest call outstanding, sent before the silence that it ends.
    pub(super) held: bool,
    /// Whether other calls are outstanding.
    pub(super) waiting: bool,
    /// Whether it was a probe.
    pub(super) probe: bool,
    /// Bytes of the IP packet that the reply came in.
    pub(super) size: u32,
}

/// Losses and replies of the last rounds, to tell a full queue from a burst.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    losses: u32,
    replies: u32,
    heavy_rounds: u32,
    round_end: u64,
}

/// A call that is lost more often waits before it is sent again, each time for twice as long.
const OFTEN: u32 = 4;

/// Longest time for which a call that is lost again and again waits to be sent.
const MAX_MARGIN: Duration = Duration::from_secs(4);

/// Rounds with heavy loss that mean a full queue, whatever the silences.
const HEAVY_ROUNDS: u32 = 3;

/// Replies in one of these rounds, at least.
const LOSS_ROUND: u32 = 10;

/// Timeout before a READ or WRITE was answered: its block may be large and the link slow.
const PATIENCE_WITH_THE_FIRST: Duration = Duration::from_secs(2);

/// On a way so long a NULL call follows every small call that is alone: if it was lost, that is known a round trip earlier.
const FAR: Duration = Duration::from_millis(200);

/// On a way so long small calls are sent twice instead: a NULL call takes hardly less of a link that is not slow.
const VERY_FAR: Duration = Duration::from_millis(400);

/// So many probes in a round trip are next to nothing.
const MANY_PROBES: f64 = 300.0;

/// Block of the first READ or WRITE at most, in bytes: one frame, as the link may be slow.
const FIRST_BLOCK: u32 = 1280;

/// Largest block of several frames, in bytes: some servers take no larger one, and one lost frame loses all of it.
const MAX_FRAGMENTED: u32 = 32 << 10;

/// IPv4 header, which each fragment has (RFC 791 §3.1).
const IP_HEADER: u32 = 20;

impl Adaptive {
    pub(super) fn new(range: Option<BlockRange>, prior: Option<&PathEstimate>, now: Instant) -> Self {
        let mut adaptive = Self {
            trips: RoundTrips::default(),
            silence: Silence::new(now),
            patience: Patience::default(),
            fades: Fades::default(),
            margin: Margin::default(),
            window: Window::new(now),
            block: 0,
            outgoing: None,
            range,
            sizer: Sizer::new(now),
            path_mtu: PathMtu::new(range.map_or(0, |it| it.headers), range.map_or(0, |it| it.largest)),
            one_frame: 0,
            fragments: Fragments::default(),
            cut: None,
            pacer: Pacer::new(now),
            draining: Draining::default(),
            lost: Losses::default(),
        };
        // Rejects what no path has, such as a rate that is not finite.
        let sound = |it: &&PathEstimate| {
            it.rate.is_finite() && it.rate > 0.0 && it.fades_per_second >= 0.0 && it.block > 0
        };
        if let Some(prior) = prior.filter(sound) {
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
        self.window.resume(now, prior.rate, prior.min_rtt, block);
        self.sizer.resume(prior.fades_per_second);
        self.patience.resume(prior.retransmits);
        self.pacer.set_rate(now, prior.rate, block);
    }

    /// Returns the estimate, once something was delivered.
    pub(super) fn path_estimate(&self) -> Option<PathEstimate> {
        let rate = self.window.rate();
        (self.window.delivered() > 0 && rate > 0.0 && self.block > 0).then(|| PathEstimate {
            rate,
            min_rtt: self.window.base(),
            fades_per_second: self.sizer.burst_rate(),
            mean_fade: self.silence.mean_fade(),
            fades: self.fades,
            retransmits: self.patience.holds(),
            block: self.block,
            in_flight: u32::try_from(self.window.bytes(self.block) / u64::from(self.block))
                .unwrap_or(u32::MAX),
        })
    }

    /// Returns how far deliveries have come.
    pub(super) fn progress(&self, now: Instant) -> Progress {
        self.window.progress(now)
    }

    /// Returns the bytes of the last READ or WRITE, or of the first, if the choice is ours.
    pub(super) fn block(&self) -> Option<u32> {
        let range = self.blocks()?;
        let first = FIRST_BLOCK.min(range.one_frame).min(range.largest);
        Some(if self.block == 0 { first } else { self.block })
    }

    /// Returns the bytes of the next READ or WRITE, if the choice is ours.
    pub(super) fn next_block(&mut self, now: Instant) -> Option<u32> {
        let mut range = self.blocks()?;
        let mut block = self.block()?;
        let rate = self.window.capacity();
        // Blocks of one frame stay so when the path's MTU turns out to be smaller.
        if std::mem::replace(&mut self.one_frame, range.one_frame) == block {
            block = block.min(range.one_frame);
        }
        if block <= range.one_frame
            && let Some(probe) = self.path_mtu.read_to_probe(now)
        {
            return Some(probe);
        }
        if self.fragments.wants_trial(now) {
            // Not more than fits beside what arrives.
            let fitting = u32::try_from(self.window.bytes(block) / 4).unwrap_or(u32::MAX);
            return Some(fitting.max(2 * range.one_frame).min(range.largest));
        }
        if self.fragments.are_barred() {
            range.largest = range.one_frame.min(range.largest);
        }
        let next = self.sizer.choose(now, rate, self.patience.holds(), block, range);
        if next != self.block && self.block > 0 && rate > 0.0 {
            self.outgoing = (next > self.block).then_some(self.block);
            self.window.handle_block_change(now, self.block, next);
            self.silence.handle_block_change(self.block, next);
        }
        self.block = next;
        Some(next)
    }

    /// The server takes at most so many bytes per READ and WRITE.
    pub(super) const fn bound_blocks(&mut self, largest: u32) {
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
    pub(super) fn handle_route_mtu(&mut self, mtu: u32, sees_fragments: bool) {
        if self.path_mtu.handle_route_mtu(mtu, sees_fragments) {
            self.cut = Some(self.path_mtu.block());
        }
    }

    /// Whether what is taken in next was put together of fragments, and the size of the largest.
    pub(super) const fn handle_fragments(&mut self, largest: Option<u32>) {
        self.path_mtu.handle_fragments(largest);
    }

    /// Whether a datagram of so many bytes must not be fragmented.
    pub(super) const fn keeps_whole(&self, bytes: u32) -> bool {
        self.range.is_some() && self.path_mtu.keeps_whole(bytes)
    }

    /// Returns the size of a padded call that is to be sent now, to learn whether it arrives.
    pub(super) fn poll_mtu_probe(&mut self, now: Instant) -> Option<u32> {
        self.range?;
        self.path_mtu.poll_probe(now, self.trips.timeout(Class::Control))
    }

    /// A padded call of so many bytes was answered.
    pub(super) fn handle_mtu_probe_reply(&mut self, bytes: u32) {
        self.path_mtu.handle_probe_reply(bytes);
    }

    /// Returns how blocks leave.
    pub(super) fn pace(&self) -> Pace {
        // What is not known yet is slow.
        let spacing = f64::from(self.block) / self.window.rate().max(1.0);
        Pace { bytes: self.window.bytes(self.block), spacing: Duration::from_secs_f64(spacing) }
    }

    /// Returns how much may be in flight.
    pub(super) fn limits(&self, limits: WindowLimits) -> WindowLimits {
        let bytes = self.window.bytes(self.block);
        WindowLimits {
            calls: limits.calls,
            read_bytes: limits.read_bytes.min(bytes),
            write_bytes: limits.write_bytes.min(bytes),
        }
    }

    /// A call was sent; `alone`: nothing else was outstanding; `in_flight` is in bytes, it included.
    pub(super) fn handle_sent(
        &mut self,
        now: Instant,
        class: Class,
        bytes: u32,
        alone: bool,
        in_flight: u64,
    ) {
        if self.range.is_none() {
            self.block = self.block.max(bytes);
        }
        let (timeout, patient) = (self.trips.timeout(class), self.patience.holds());
        let smoothed = self.trips.known(class).filter(|_| !patient);
        let (longest, company) = match (class, smoothed) {
            (_, None) => (timeout, None),
            // Nothing follows a small call that could show its loss, and whoever waits for it waits for all of it.
            (Class::Control, Some(it)) => (it + it / 8 + MIN_ALLOWANCE, (it >= FAR).then_some(it / 8)),
            // A block that is alone finds no queue of its own; what is known of deviations at first is that they may be anything (RFC 6298 §2.2).
            (Class::Read | Class::Write, Some(it)) => (2 * it, None),
        };
        self.silence.handle_sent(now, alone, timeout.min(longest), company, patient);
        self.window.handle_sent(in_flight);
        if class != Class::Control {
            self.pacer.spend(now, bytes, self.block);
            self.sizer.handle_sent(bytes);
            if self.needs_fragments(class, bytes) {
                self.fragments.handle_sent(now);
            }
            let direction = Direction::of(class);
            self.path_mtu.handle_sent(now, direction, bytes, self.trips.timeout(class));
        }
        if alone {
            self.sizer.handle_idle(now);
        }
    }

    /// A reply is there; what it overtook and what it means comes after this.
    pub(super) fn look_back(&mut self, now: Instant) {
        self.silence.look_back(now);
    }

    /// Takes a reply in.
    pub(super) fn handle_reply(&mut self, now: Instant, answered: &Answered) {
        let Answered { class, bytes, sent, before, exact, held, waiting, probe, size } = *answered;
        let moved = (class != Class::Control).then(|| (Direction::of(class), bytes));
        if let Some(probe) = self.path_mtu.handle_reply(now, sent, size, moved) {
            self.cut = Some(probe - 1);
        }
        let rtt = now.saturating_duration_since(sent);
        let outgoing = self.outgoing == Some(bytes);
        let stopped = self.silence.stopped(now, sent);
        if exact {
            // A fade is no part of the round trip; but a way that has become so long shows that again and again.
            self.trips.sample(class, stopped.map_or(rtt, |most| rtt.min(most)));
            if class != Class::Control {
                self.window.handle_reply(now, answered, self.block, outgoing, self.patience.holds());
                self.pacer.set_rate(now, self.window.peak(), self.block);
                self.path_mtu.set_rate(self.window.rate());
            }
        }
        let overtook_nothing = held;
        let held = overtook_nothing && sent <= self.silence.since();
        let (timeout, patient) = (self.trips.timeout(class), self.patience.holds());
        let at_a_pace = !outgoing && !probe && overtook_nothing;
        let ended = self.silence.handle_reply(now, bytes, at_a_pace, waiting, timeout, patient);
        if held && stopped.is_some() {
            self.draining.begin(now, ended.probes, self.block, self.window.rate());
        }
        self.sizer.handle_flow(now, if ended.asked { ended.excess } else { Duration::ZERO });
        if class != Class::Control {
            self.sizer.handle_block(now, bytes, sent, waiting);
            if self.needs_fragments(class, bytes) {
                self.fragments.handle_arrival();
            }
        }
        // A block larger than those before takes longer on any link.
        let own = self.time_on_the_path(bytes);
        // And what a fade holds is late: it does not only come after a pause between two windows.
        let delayed = rtt > self.window.base() + own;
        if ended.asked && (ended.long && ended.excess > own && delayed || !held) {
            self.patience.handle_silence(now, held);
            if !held {
                self.fades.count(ended.excess);
            }
        }
        if probe {
            self.draining.handle_probe(sent);
            if stopped.is_some() {
                self.patience.handle_held_probe(now);
            }
        }
        self.patience.handle_reply(sent);
        self.lost.replies += 1;
        if before.bytes >= self.lost.round_end && self.lost.replies >= LOSS_ROUND {
            self.end_loss_round(before.bytes);
        }
    }

    /// An attempt was answered that something had been sent again for.
    pub(super) fn handle_needless_resend(&mut self) {
        self.margin.lengthen();
    }

    /// A call for `bytes` that was sent at `sent` was taken for lost, and is answered: it was late while others passed.
    pub(super) fn handle_false_alarm(&mut self, sent: Instant, bytes: u32) {
        // Between two windows there is a pause, too.
        let pause = self.window.base() + self.time_on_the_path(bytes);
        self.patience.handle_false_alarm(self.silence.has_met(sent, pause));
        self.sizer.handle_false_alarm();
    }

    /// How long the path takes for a block.
    fn time_on_the_path(&self, bytes: u32) -> Duration {
        let bytes = f64::from(bytes.max(1));
        Duration::from_secs_f64(bytes / self.window.rate().max(bytes))
    }

    /// Whether a block is one of several frames, and the choice ours.
    fn needs_fragments(&self, class: Class, bytes: u32) -> bool {
        self.range.is_some() && self.path_mtu.is_fragmented(Direction::of(class), bytes)
    }

    /// Returns how long a call usually takes at most.
    pub(super) fn usual_timeout(&self, class: Class) -> Duration {
        self.trips.timeout(class)
    }

    /// Returns the largest block that arrives, once when it is found that larger ones do not.
    pub(super) fn take_cut(&mut self) -> Option<u32> {
        self.cut.take()
    }

    /// A call for `bytes` was lost that was sent at `sent`, when `delivered` bytes had been delivered.
    pub(super) fn handle_loss(
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
        if self.patience.handle_loss(sent) {
            return;
        }
        let barred = self.fragments.are_barred();
        let vain = self.needs_fragments(class, bytes) && self.fragments.handle_loss(now, sent);
        let hole = self.range.is_some() && self.path_mtu.handle_loss(now, Direction::of(class), bytes, sent);
        if vain || hole {
            self.cut = Some(self.path_mtu.block());
            if hole || !barred {
                self.lost = Losses::default();
                self.window.start_over();
            }
        }
        self.lost.losses += 1;
        self.window.handle_loss(self.block);
        let smoothed = self.trips.smoothed(Class::Read).unwrap_or_default();
        let explained = self.silence.explains(now, 2 * smoothed + Duration::from_millis(500));
        let full =
            self.window.was_cut_since(delivered) || (!explained && self.window.is_queueing(self.block));
        if full || self.lost.heavy_rounds >= HEAVY_ROUNDS {
            if self.window.handle_congestion(delivered, self.block)
                && let Some(range) = self.blocks()
            {
                self.sizer.handle_congestion(now, self.block, range);
            }
        } else {
            self.sizer.handle_burst(now, sent);
        }
    }

    /// Returns how long an overtaken call may still be answered before it is sent again.
    pub(super) fn margin(
        &self,
        now: Instant,
        suspect: Class,
        sent: Instant,
        losses: u32,
        evidence: Class,
    ) -> Duration {
        let smoothed = self.trips.smoothed(suspect).unwrap_or_default();
        let mut margin = self.margin.get(self.window.base(), smoothed, evidence != suspect);
        if evidence != suspect {
            // A small call overtakes data that is still on its way, and what changes something may take a disk's time.
            let usual = match suspect {
                Class::Control => self.trips.timeout(suspect),
                Class::Read | Class::Write => self.window.base(),
            };
            margin += (sent + usual).saturating_duration_since(now);
            margin = margin.max(self.silence.pace() / 2);
            if self.trips.known(suspect).is_none() {
                // Nobody knows how long such a call takes.
                margin = margin.max(now.saturating_duration_since(sent));
            }
        }
        if losses > OFTEN {
            let doublings = (losses - OFTEN - 1).min(16);
            margin += (self.trips.timeout(suspect) * (1 << doublings)).min(MAX_MARGIN);
        }
        margin
    }

    /// Returns when [`Adaptive::handle_silence`] is wanted.
    pub(super) const fn next_probe(&self) -> Option<Instant> {
        self.silence.next()
    }

    /// Returns when the next READ or WRITE may leave, if not now.
    pub(super) fn paced_until(&self, now: Instant) -> Option<Instant> {
        self.pacer.next(now).max(self.draining.next(now))
    }

    /// Nothing is outstanding any more.
    pub(super) fn handle_idle(&mut self) {
        self.silence.stop();
    }

    /// The link below has changed: asks at once into a silence.
    pub(super) fn handle_link_event(&mut self, now: Instant) {
        self.path_mtu.handle_link_event();
        self.silence.handle_link_event(now);
    }

    /// Whether a small call had better be sent again than a probe: nothing was heard yet, or the way is very long.
    pub(super) fn wants_hedge(&self) -> bool {
        self.silence.is_unheard() || self.very_far().is_some() && self.silence.keeps_company()
    }

    /// Returns when a small call is to be sent again whatever else is in flight: on a way that is very long, and not slow.
    pub(super) fn hedge_after(&self) -> Option<Duration> {
        let far = self.very_far()?;
        (self.window.rate() * far.as_secs_f64() >= MANY_PROBES * PROBE_BYTES).then_some(far / 8)
    }

    /// Returns how long the way is without queues and blocks, if that is very long.
    fn very_far(&self) -> Option<Duration> {
        let way = if self.window.rate() > 0.0 {
            self.window.base().saturating_sub(self.time_on_the_path(self.block))
        } else {
            self.trips.known(Class::Control)?
        };
        (way >= VERY_FAR).then_some(way)
    }

    /// The silence has lasted: asks into it. Whether the oldest call itself is to be sent again, too. `more`: other calls want company.
    pub(super) fn handle_silence(&mut self, now: Instant, more: bool) -> bool {
        let timeout = match self.trips.known(Class::Read).or_else(|| self.trips.known(Class::Write)) {
            Some(_) => self.trips.timeout(Class::Read).max(self.trips.timeout(Class::Write)),
            // Nobody knows how long the first block takes.
            None => PATIENCE_WITH_THE_FIRST,
        };
        self.silence.handle_probe(now, self.window.rate(), timeout, self.patience.holds(), more)
    }

    fn end_loss_round(&mut self, delivered: u64) {
        let Losses { losses, replies, heavy_rounds, .. } = self.lost;
        let heavy = losses * 4 > replies;
        self.lost = Losses {
            losses: 0,
            replies: 0,
            heavy_rounds: if heavy { heavy_rounds + 1 } else { 0 },
            round_end: self.window.delivered().max(delivered),
        };
    }
}
