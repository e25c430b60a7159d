//! How many bytes may be in flight: what the path holds, and a little more.
//!
//! The rate is what was *delivered* between the sending of a call and its reply; bytes in flight divided by the round-trip
//! time would run away with the queue that they themselves make.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{Answered, Class};

/// Rounds over which the highest rate counts.
const RATE_ROUNDS: usize = 8;

/// Calls in flight at first.
const INITIAL_CALLS: u64 = 4;

/// Calls that may always be in flight: three if they are together not longer than [`SMALL_BLOCKS`] bytes and no queue was full lately. With two
/// blocks of one frame a half-duplex link carries both replies, and is then idle until both next calls have crossed it and the wire behind it.
const MIN_CALLS: u64 = 2;
const SMALL_BLOCKS: u64 = 4096;

/// Of longer blocks a window holds few, and what is left over beside them is a large part of it. Where the path holds more than one of them as many
/// may be in flight as the window comes nearest to, and not those that it holds whole.
const LARGE_BLOCK: u64 = 8192;
const HELD_BLOCKS: f64 = 1.5;

/// Queueing delay that the window may cause beyond one block: an eighth of the base, or eight times the base up to this. It is what keeps
/// a short burst from emptying the path.
const ALLOWANCE: Duration = Duration::from_millis(10);

/// What it may become on paths whose rate rises (cellular links): a window that is full before the rate has risen is too small afterwards,
/// and growing takes round trips. Chosen on recorded channels: 25 ms is too little, 80 ms overflows 250 packets.
const MAX_ALLOWANCE: Duration = Duration::from_millis(40);

/// Rounds after a full queue in which a rate that rises is the part that others have left.
const SHARED: u32 = 100;

/// Paths with a shorter base are wires without fades, and the narrowest place is a server's socket buffer, which holds about a
/// hundred datagrams: less than that of WRITEs, and so many calls of READs. What READs bring comes in our own buffer, which bounds them, too.
const WIRED: Duration = Duration::from_millis(1);
const WIRED_ALLOWANCE: Duration = Duration::from_micros(500);
const WIRED_READS: f64 = 64.0;

/// How long a base round-trip time is believed, at least, and in round trips: to measure it again costs a part of one.
const BASE_LIFETIME: Duration = Duration::from_secs(10);
const BASE_LIFETIME_TRIPS: u32 = 128;

/// Part of what the path holds that is left in flight to drain its queue.
const DRAINED: f64 = 0.85;

/// A first round trip that is twice an earlier run's base and this much longer belongs to another path.
const WRONG_BASE: Duration = Duration::from_millis(50);

/// Rounds after a drain in which an empty queue says nothing about the window.
const REFILLING: u32 = 3;

/// Rounds after a full queue in which the window grows by half a block at most, or by a small one: TCP's grows by a segment (RFC 5681 §3.1),
/// and a block may be 22.
const CAREFUL: u32 = 20;
const SMALL_STEP: u64 = 1460;

/// Blocks in a window that is drained to one call.
const NARROW: u64 = 8;

/// A round without this much growth of the rate ends the start (RFC 9743 has no number; a fifth is the prototype's).
const START_GROWTH: f64 = 1.2;

/// Most by which one round of the start widens the window.
const START_FACTOR: u64 = 256;

/// Spacings whose median counts.
const SPACINGS: usize = 5;

/// Replies that come closer together than this were held up together, by the link or by the system.
const CLUMP: Duration = Duration::from_micros(50);

/// How far deliveries had come when something was sent.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Progress {
    /// Bytes delivered.
    pub(in crate::engine) bytes: u64,
    /// When the call was sent that was answered last.
    pub(in crate::engine) answered: Instant,
}

/// Delivered rate, base round-trip time, and the window they make.
#[derive(Debug)]
pub(super) struct Window {
    /// Bytes.
    window: u64,
    /// Bytes delivered so far.
    delivered: u64,
    /// When the call was sent that was answered last, unless nothing was outstanding then.
    answered: Option<Instant>,
    /// The round ends with the reply to a call sent after this much was delivered.
    round_end: u64,
    /// Bytes lost in this round.
    lost: u64,
    /// Whether something came in this round that had been held.
    clumped: bool,
    /// Highest rate in bytes per second, of each of the last rounds.
    rates: VecDeque<f64>,
    base: Option<Duration>,
    base_seen: Instant,
    /// What it was with other blocks, and when that was seen.
    bases: Vec<(u32, Duration, Instant)>,
    /// Lowest round-trip time in this round.
    round_min: Option<Duration>,
    starting: bool,
    /// Whether what was answered last is a READ.
    reads: bool,
    /// Rate and base are an earlier run's.
    unconfirmed: bool,
    stale_rounds: u32,
    best_rate: f64,
    /// Most that was in flight in this round.
    used: u64,
    /// When the window was last cut, in delivered bytes.
    cut_at: Option<u64>,
    draining: Option<Instant>,
    /// Rounds until the path is as full again as before it was drained.
    refilling: u32,
    /// Queueing delay that the window may cause.
    allowed: Duration,
    /// Rounds since a queue was full.
    since_full: u32,
    /// Times between the last replies of the start, to bytes.
    spacing: VecDeque<f64>,
    /// Bytes since the first of them.
    clump: u64,
    last_reply: Option<(Instant, Instant)>,
    last_rtt: Duration,
    /// The window when this round of the start began.
    round_window: u64,
}

impl Window {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            window: 0,
            delivered: 0,
            answered: None,
            round_end: 0,
            lost: 0,
            clumped: false,
            rates: VecDeque::from([0.0]),
            base: None,
            base_seen: now,
            bases: Vec::new(),
            round_min: None,
            starting: true,
            reads: false,
            unconfirmed: false,
            stale_rounds: 0,
            best_rate: 0.0,
            used: 0,
            cut_at: None,
            draining: None,
            refilling: 0,
            allowed: ALLOWANCE,
            since_full: u32::MAX,
            spacing: VecDeque::new(),
            clump: 0,
            last_reply: None,
            last_rtt: Duration::ZERO,
            round_window: 0,
        }
    }

    /// Starts from an earlier run's rate and base, carefully: half of what they allow until a reply confirms them, nothing of it if that
    /// refutes them.
    pub(super) fn resume(&mut self, now: Instant, rate: f64, base: Duration, block: u32) {
        self.rates = VecDeque::from([rate]);
        self.best_rate = rate;
        (self.base, self.base_seen) = (Some(base), now);
        (self.starting, self.unconfirmed) = (false, true);
        self.window = self.target(rate, block);
    }

    pub(super) const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Returns how far deliveries have come.
    pub(super) fn progress(&self, now: Instant) -> Progress {
        Progress { bytes: self.delivered, answered: self.answered.unwrap_or(now) }
    }

    /// Returns the delivered rate in bytes per second.
    pub(super) fn rate(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }

    /// Returns the round-trip time without queues, as far as it is known.
    pub(super) fn base(&self) -> Duration {
        self.base.unwrap_or_default()
    }

    /// Returns the window in bytes.
    pub(super) fn bytes(&self, block: u32) -> u64 {
        if self.draining.is_some() {
            let path = (DRAINED * self.rate() * self.base().as_secs_f64()) as u64;
            return if self.is_narrow(block) { block.into() } else { path.max(block.into()) };
        }
        let block = u64::from(block);
        let least = match self.delivered {
            0 => INITIAL_CALLS,
            _ if 3 * block <= SMALL_BLOCKS && self.since_full >= CAREFUL => MIN_CALLS + 1,
            _ => MIN_CALLS,
        };
        let window = if self.unconfirmed { self.window / 2 } else { self.window };
        let path = self.rate() * self.base().as_secs_f64();
        let is_rounded =
            block > LARGE_BLOCK && path >= HELD_BLOCKS * block as f64 && self.since_full >= CAREFUL;
        let window = if is_rounded { window + block / 2 } else { window };
        window.max(least * block)
    }

    /// So much is in flight now.
    pub(super) fn handle_sent(&mut self, in_flight: u64) {
        self.used = self.used.max(in_flight);
    }

    /// A READ or WRITE was answered. `outgoing`: its block is smaller than what is asked for now; `holds`: the link holds what meets a fade.
    pub(super) fn handle_reply(
        &mut self,
        now: Instant,
        answered: &Answered,
        block: u32,
        outgoing: bool,
        holds: bool,
    ) {
        let Answered { class, bytes, sent, before, waiting, .. } = *answered;
        let rtt = now.saturating_duration_since(sent).max(Duration::from_micros(1));
        if std::mem::take(&mut self.unconfirmed) && rtt > self.base() * 2 + WRONG_BASE {
            *self = Self { delivered: self.delivered, ..Self::new(now) };
        }
        self.reads = class == Class::Read;
        self.delivered += u64::from(bytes);
        self.answered = waiting.then_some(sent);
        // What was held comes at once, and was not delivered at once (draft-cheng-iccrg-delivery-rate-estimation §2.2).
        let sending = sent.saturating_duration_since(before.answered);
        let clumped = holds && sending > rtt * 5 / 4;
        let interval = if clumped { sending } else { rtt };
        self.clumped |= clumped;
        let rate = (self.delivered - before.bytes) as f64 / interval.as_secs_f64();
        if !outgoing {
            self.observe(now, rtt, bytes, block);
        }
        if self.draining.is_some_and(|since| sent >= since) {
            (self.base, self.base_seen) = (Some(rtt), now);
            (self.draining, self.refilling) = (None, REFILLING);
        }
        if let Some(highest) = self.rates.back_mut() {
            *highest = highest.max(rate);
        }
        if self.starting {
            self.grow(now, sent, bytes, block);
        }
        if before.bytes >= self.round_end {
            self.end_round(now, block);
        }
    }

    /// Takes a round-trip time in; what is smaller than the present block would have taken longer as one.
    fn observe(&mut self, now: Instant, rtt: Duration, bytes: u32, block: u32) {
        let missing = f64::from(block.saturating_sub(bytes)) / self.capacity().max(f64::from(block));
        let rtt = rtt + Duration::from_secs_f64(missing);
        self.last_rtt = rtt;
        if self.base.is_none_or(|base| rtt <= base) {
            (self.base, self.base_seen) = (Some(rtt), now);
        }
        self.round_min = Some(self.round_min.map_or(rtt, |least| least.min(rtt)));
    }

    /// During the start the spacing of replies to calls that were sent together tells the rate before a round has.
    fn grow(&mut self, now: Instant, sent: Instant, bytes: u32, block: u32) {
        self.window = self.window.max(INITIAL_CALLS * u64::from(block)) + u64::from(bytes);
        if let Some((last, last_sent)) = self.last_reply {
            let gap = now.saturating_duration_since(last);
            self.clump += u64::from(bytes);
            if gap < CLUMP {
                return;
            }
            let bytes = std::mem::take(&mut self.clump);
            if sent.saturating_duration_since(last_sent) * 2 <= gap {
                self.spacing.push_back(bytes as f64 / gap.as_secs_f64());
                if self.spacing.len() > SPACINGS {
                    self.spacing.pop_front();
                }
            }
        }
        self.last_reply = Some((now, sent));
        let rate = self.spacing_rate();
        if rate > 0.0 {
            self.window = self.target(rate, block).min(self.round_window * START_FACTOR);
        }
    }

    /// Returns the rate that the spacing of replies showed at the start; 0 before.
    fn spacing_rate(&self) -> f64 {
        if self.spacing.len() < 2 {
            return 0.0;
        }
        let mut rates: Vec<f64> = self.spacing.iter().copied().collect();
        rates.sort_unstable_by(f64::total_cmp);
        rates[rates.len() / 2]
    }

    /// Returns the highest rate there is a sign of, in bytes per second; 0 before anything is known.
    pub(super) fn peak(&self) -> f64 {
        if self.capacity() > 0.0 { self.rate().max(self.spacing_rate()) } else { 0.0 }
    }

    /// Returns what the bottleneck carries in bytes per second, at the start more than was delivered; 0 before anything is known.
    pub(super) fn capacity(&self) -> f64 {
        match self.spacing_rate() {
            _ if !self.starting => self.rate(),
            spacing if spacing > 0.0 => self.rate().max(spacing),
            _ => 0.0,
        }
    }

    fn end_round(&mut self, now: Instant, block: u32) {
        // What is in flight is more than arrives, whatever queues.
        let lossy = std::mem::take(&mut self.lost) * 8 > self.delivered - self.round_end;
        // The path was empty after a fade, and not for want of calls.
        let clumped = std::mem::take(&mut self.clumped);
        self.round_end = self.delivered;
        self.round_window = self.window.max(INITIAL_CALLS * u64::from(block));
        let rate = self.rate();
        let target = self.target(rate, block);
        if self.starting {
            let queueing = self.round_min.unwrap_or_default().saturating_sub(self.base());
            let allowance = self.allowance(rate, block) / rate.max(1.0);
            self.stale_rounds = if rate > self.best_rate * START_GROWTH { 0 } else { self.stale_rounds + 1 };
            self.best_rate = self.best_rate.max(rate);
            if queueing.as_secs_f64() > allowance || self.stale_rounds >= 3 {
                self.starting = false;
                self.window = target;
            }
        } else {
            let queueing = self.round_min.unwrap_or_default().saturating_sub(self.base()).as_secs_f64();
            let empty = 4.0 * queueing < self.allowance(rate, block) / rate.max(1.0);
            let step = u64::from(block / 2).max(SMALL_STEP.min(block.into()));
            let careful = (self.since_full < CAREFUL).then_some(self.window + step);
            let busy = self.used * 10 >= self.window * 7 || self.used + u64::from(block) > self.window;
            if empty && busy && !lossy && !clumped && self.refilling == 0 && self.draining.is_none() {
                // Nothing queues, so the window is what limits the rate.
                if self.rises() && self.since_full >= SHARED {
                    self.allowed = (self.allowed * 2).min(MAX_ALLOWANCE);
                }
                self.window = careful.unwrap_or_else(|| target.max(self.window + self.window / 4));
            } else if target < self.window || busy {
                let halfway = u64::midpoint(self.window, target);
                self.window = careful.map_or(halfway, |most| halfway.min(most));
            }
        }
        self.refilling = self.refilling.saturating_sub(1);
        self.since_full = self.since_full.saturating_add(1);
        if now.saturating_duration_since(self.base_seen) > self.base_lifetime() && self.draining.is_none() {
            // What is in flight now, and what leaves until it has arrived, still queues.
            let drained = if self.is_narrow(block) { now } else { now + self.last_rtt };
            self.draining = Some(drained);
        }
        self.used = 0;
        self.round_min = None;
        self.rates.push_back(0.0);
        if self.rates.len() > RATE_ROUNDS {
            self.rates.pop_front();
        }
    }

    /// Blocks of another size take another time on the path, and in hosts: what was measured with them lately, or else what their bytes
    /// take. Smaller ones show a shorter time themselves.
    pub(super) fn handle_block_change(&mut self, now: Instant, from: u32, to: u32) {
        if let Some(base) = self.base {
            let lifetime = self.base_lifetime();
            self.bases
                .retain(|&(block, _, seen)| block != from && now.saturating_duration_since(seen) <= lifetime);
            let change =
                Duration::from_secs_f64(f64::from(to.saturating_sub(from)) / self.capacity().max(1.0));
            let measured = self.bases.iter().find(|it| it.0 == to).map(|it| it.1);
            self.base = Some(measured.unwrap_or(base + change));
            self.bases.push((from, base, self.base_seen));
        }
        self.window = (self.window + u64::from(to)).saturating_sub(from.into());
    }

    /// Whether the last reply had queued for longer than the window allows.
    pub(super) fn is_queueing(&self, block: u32) -> bool {
        let rate = self.rate();
        let queueing = self.last_rtt.saturating_sub(self.base()).as_secs_f64();
        queueing * rate > self.allowance(rate, block)
    }

    /// A block was lost.
    pub(super) fn handle_loss(&mut self, bytes: u32) {
        self.lost += u64::from(bytes);
    }

    /// What was lost was no sign of too much in flight: the rate is looked for as at the start.
    pub(super) fn start_over(&mut self) {
        (self.starting, self.stale_rounds, self.best_rate) = (true, 0, 0.0);
        self.spacing.clear();
        self.last_reply = None;
    }

    /// Whether a full queue was found after so much had been delivered. What was sent after the last reply before that counts anew: where a whole window is
    /// lost, that is worse than one full queue.
    pub(super) fn was_cut_since(&self, delivered: u64) -> bool {
        self.cut_at.is_some_and(|cut| delivered < cut)
    }

    /// The queue is full.
    ///
    /// Returns whether that was news: it is acted on once for all that was in flight together.
    pub(super) fn handle_congestion(&mut self, delivered: u64, block: u32) -> bool {
        if self.was_cut_since(delivered) {
            return false;
        }
        self.cut_at = Some(self.delivered);
        self.starting = false;
        (self.allowed, self.since_full) = (ALLOWANCE, 0);
        self.window = (self.window * 7 / 10).max(MIN_CALLS * u64::from(block));
        self.rates.clear();
        self.rates.push_back(0.0);
        true
    }

    /// Whether this round had a higher rate than each of those before.
    fn rises(&self) -> bool {
        self.rates.back().is_some_and(|latest| self.rates.iter().rev().skip(1).all(|rate| rate < latest))
    }

    /// Whether the path holds so little that one call at a time costs next to nothing for a while.
    fn is_narrow(&self, block: u32) -> bool {
        self.window <= NARROW * u64::from(block)
    }

    fn base_lifetime(&self) -> Duration {
        BASE_LIFETIME.max(BASE_LIFETIME_TRIPS * self.base())
    }

    fn allowance(&self, rate: f64, block: u32) -> f64 {
        let base = self.base();
        let delay = if base < WIRED { WIRED_ALLOWANCE } else { (8 * base).min(self.allowed).max(base / 8) };
        let reads = if self.reads && base < WIRED {
            (rate * self.allowed.as_secs_f64()).min(WIRED_READS * f64::from(block))
        } else {
            0.0
        };
        f64::from(block).max(rate * delay.as_secs_f64()).max(reads)
    }

    fn target(&self, rate: f64, block: u32) -> u64 {
        let base = self.base().as_secs_f64();
        (rate * base + self.allowance(rate, block)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u32 = 1472;
    const BASE: Duration = Duration::from_millis(50);
    const MEGABYTE: f64 = 1e6;

    /// A round of a window that was used, at this rate, with so many milliseconds of queueing.
    fn round(window: &mut Window, rate: f64, queueing: u64) {
        *window.rates.back_mut().unwrap() = rate;
        window.round_min = Some(BASE + Duration::from_millis(queueing));
        window.used = window.window;
        window.delivered += (rate * BASE.as_secs_f64()) as u64;
        window.end_round(window.base_seen, BLOCK);
    }

    #[test]
    fn a_window_is_rounded_to_large_blocks_until_a_queue_is_full() {
        #[expect(clippy::disallowed_methods, reason = "any moment will do as the beginning of a test")]
        let mut window = Window::new(Instant::now());
        (window.starting, window.base, window.delivered) = (false, Some(BASE), 1);
        window.window = 90_000;
        window.rates = VecDeque::from([600_000.0]);
        assert_eq!(window.bytes(32_768) / 32_768, 2, "the path holds 30 KB");
        window.rates = VecDeque::from([MEGABYTE]);
        assert_eq!(window.bytes(32_768) / 32_768, 3, "90 KB are nearer to three than to two");
        assert_eq!((window.bytes(8192), window.bytes(4096)), (90_000, 90_000));
        window.window = 80_000;
        assert_eq!(window.bytes(32_768) / 32_768, 2);
        assert!(window.handle_congestion(1, 32_768));
        (window.window, window.rates) = (90_000, VecDeque::from([MEGABYTE]));
        assert_eq!(window.bytes(32_768) / 32_768, 2, "others need the queue, too");
    }

    #[test]
    fn a_rate_that_rises_gets_a_standing_queue_until_a_queue_is_full() {
        #[expect(clippy::disallowed_methods, reason = "any moment will do as the beginning of a test")]
        let mut window = Window::new(Instant::now());
        (window.starting, window.base) = (false, Some(BASE));
        for _ in 0..RATE_ROUNDS {
            round(&mut window, MEGABYTE, 10);
        }
        assert_eq!(window.allowed, ALLOWANCE, "a steady rate needs no more");
        round(&mut window, MEGABYTE, 0);
        assert_eq!(window.allowed, ALLOWANCE, "the rate is not higher");
        let allowed = [1.5, 2.0, 3.0].map(|rate| {
            round(&mut window, rate * MEGABYTE, 0);
            window.allowed.as_millis()
        });
        assert_eq!(allowed, [20, 40, 40]);
        let target = window.target(3.0 * MEGABYTE, BLOCK);
        assert_eq!(target, 270_000, "what the path holds, and 40 ms");

        assert!(window.handle_congestion(window.delivered, BLOCK));
        for number in 1..=SHARED {
            round(&mut window, f64::from(number) * MEGABYTE, 0);
            assert_eq!(window.allowed, ALLOWANCE, "round {number}: others may have left");
        }
        round(&mut window, f64::from(SHARED + 1) * MEGABYTE, 0);
        assert_eq!(window.allowed, 2 * ALLOWANCE);
    }

    #[test]
    fn on_a_wire_reads_may_queue_for_longer_than_writes_but_not_in_too_many_calls() {
        #[expect(clippy::disallowed_methods, reason = "any moment will do as the beginning of a test")]
        let mut window = Window::new(Instant::now());
        window.base = Some(Duration::from_micros(100));
        let rate = 100.0 * MEGABYTE;
        assert_eq!(window.target(rate, BLOCK), 60_000, "0.5 ms beyond what the path holds");
        window.reads = true;
        assert_eq!(window.target(rate, 32 << 10), 1_010_000, "10 ms");
        assert_eq!(window.target(rate, BLOCK), 10_000 + 64 * u64::from(BLOCK));
    }
}
