//! How many bytes one READ or WRITE should move.
//!
//! Large blocks waste fewer headers, small ones lose less to a burst: each burst destroys one block on average. With rate C and
//! λ bursts per second of good time, a block of b bytes takes D(b) = air(b)/C and costs air(b)/b · 1/(1 − λ·D(b)) per byte.

use std::time::{Duration, Instant};

use super::trial::Trial;

/// Blocks to choose from, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    /// Largest block whose message fits the path's MTU: one frame.
    pub(super) one_frame: u32,
    /// Largest block at all.
    pub(super) largest: u32,
    /// Bytes of a datagram in each of its frames.
    pub(super) frame: u32,
}

/// Blocks tried beside one frame and the largest: the small ones leave little of Ethernet's frames empty.
const BLOCKS: [u32; 7] = [2560, 4096, 5632, 8704, 12800, 16 << 10, 32 << 10];

/// Where frames are large, blocks of one Ethernet frame are tried, too: they lose least to a burst.
const SMALL: u32 = 1280;

/// Headers of call and reply, link headers of the smaller one included, in bytes (RFC 1813 §3.3.6).
const HEADERS: f64 = 340.0;

/// The same where the link compresses headers, for a block of one frame, and for fragments, which are not compressed.
const HEADERS_OF_ONE_FRAME: f64 = 20.0;
const HEADERS_OF_FRAGMENTS: f64 = 190.0;

/// What a trial of one-frame blocks must promise: they would cost this much less if headers are compressed.
const WORTH_A_TRIAL: f64 = 0.985;

/// Seconds that a frame takes at least where there may be a trial: headers are compressed on slow links (RFC 1144 §2), and only there
/// does the pace of a few replies mean anything.
const TRIAL_FRAME: f64 = 0.004;

/// Headers of IP and link in each frame.
const FRAME_HEADERS: f64 = 38.0;

/// Bursts and good time that are taken for granted before anything was seen: one burst a second, but not for long.
const PRIOR_BURSTS: f64 = 0.7;
const PRIOR_SECONDS: f64 = 0.7;

/// Good time without a single burst after which it is as likely as not that there are none, and how fast that becomes certain, in 1/s.
const EVEN_ODDS: f64 = 1.6;
const CERTAINTY: f64 = 2.0;

/// Good time that an earlier run's rate of bursts is worth.
const RESUMED_SECONDS: f64 = 10.0;

/// Good time after which the past counts half.
const MEMORY: f64 = 60.0;

/// How long a full queue keeps blocks small; then they may be twice as large, for as long again.
const CAP_LIFETIME: Duration = Duration::from_secs(30);

/// IP identifications that may be used in the 30 s that receivers keep fragments: half of them (RFC 4963 §3).
const SAFE_DATAGRAMS_PER_SECOND: f64 = 65_536.0 / 2.0 / 30.0;

/// Bytes of incomplete datagrams that a receiver keeps: four fifths of Linux's `ipfrag_high_thresh`. What comes beyond is dropped, and that for up
/// to 30 s. A burst leaves two blocks incomplete, half of each there on average, in buffers 1.6 times as large (2304 bytes for a frame).
const INCOMPLETE_BYTES: f64 = 0.8 * 4_194_304.0;
const KEPT_FOR_A_BURST: f64 = 1.6 * 30.0;

/// So many bursts in a row with fewer blocks than this between them: bursts are seldom as regular as a queue that is shorter than a block.
const STRIKES: u32 = 3;
const FEW_INTACT: u32 = 8;

/// Losses so far apart, and what was sent between them arrived: two bursts, even if neither was known yet when the second was sent.
const APART: Duration = Duration::from_millis(100);

/// What earlier losses count when another one comes.
const FORGETTING: f64 = 0.9;

/// Full queues that make blocks small.
const TWO_IN_A_ROW: f64 = 1.0 + FORGETTING;

/// A change of block must gain this much, and one in three of what bursts cost now: it unsettles base and pace, by which they are found.
const HYSTERESIS: f64 = 0.003;
const UNSETTLED: f64 = 1.0 / 3.0;

impl Blocks {
    /// Returns the block that loses least to a burst.
    fn small(self) -> u32 {
        SMALL.min(self.one_frame)
    }
}

/// Counts bursts, and chooses the block.
#[derive(Debug)]
pub(super) struct Sizer {
    bursts: f64,
    seconds: f64,
    counted_until: Instant,
    last_burst: Option<Instant>,
    /// What it is known to have destroyed.
    victims: u32,
    /// When the last block was sent that was lost, and the first one after it that arrived.
    lost: Option<Instant>,
    arrived: Option<Instant>,
    /// Losses to bursts and to full queues, the latest counting most.
    fades: f64,
    drops: f64,
    /// No larger blocks: their fragments overflow a queue.
    cap: Option<(u32, Instant)>,
    /// Blocks of the size in use that arrived since the last burst, and bursts in a row with few between them.
    size: u32,
    intact: u32,
    strikes: u32,
    trial: Trial,
}

impl Sizer {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            bursts: 0.0,
            seconds: 0.0,
            counted_until: now,
            last_burst: None,
            victims: 0,
            lost: None,
            arrived: None,
            fades: 0.0,
            drops: 0.0,
            cap: None,
            size: 0,
            intact: 0,
            strikes: 0,
            trial: Trial::default(),
        }
    }

    /// Starts from an earlier rate of bursts, which counts as much as a few seconds' own experience.
    pub(super) fn resume(&mut self, bursts_per_second: f64) {
        self.seconds = RESUMED_SECONDS;
        self.bursts = (bursts_per_second * (self.seconds + PRIOR_SECONDS) - PRIOR_BURSTS).max(0.0);
    }

    /// Replies flow: the time since the last one was good, but for `silence`.
    pub(super) fn handle_flow(&mut self, now: Instant, silence: Duration) {
        let passed = now.saturating_duration_since(self.counted_until).saturating_sub(silence);
        self.counted_until = now;
        self.seconds += passed.as_secs_f64().min(1.0);
        if !silence.is_zero() {
            self.trial.interrupt();
        }
        if self.seconds > 2.0 * MEMORY {
            self.seconds /= 2.0;
            self.bursts /= 2.0;
        }
    }

    /// Nothing was in flight until now.
    pub(super) fn handle_idle(&mut self, now: Instant) {
        self.counted_until = now;
        self.trial.interrupt();
    }

    /// A block of `bytes` was asked for.
    pub(super) fn handle_sent(&mut self, bytes: u32) {
        self.trial.handle_sent(bytes);
        if self.size != bytes {
            (self.size, self.intact, self.strikes) = (bytes, 0, 0);
        }
    }

    /// A block of `bytes` is there; `waiting`: others are awaited.
    pub(super) fn handle_block(&mut self, now: Instant, bytes: u32, sent: Instant, waiting: bool) {
        if self.lost.is_some_and(|lost| sent > lost) && self.arrived.is_none_or(|arrived| sent < arrived) {
            self.arrived = Some(sent);
        }
        self.trial.handle_reply(now, bytes, waiting);
        if self.size == bytes {
            self.intact += 1;
        }
    }

    /// A burst destroyed what was sent at `sent`; what was sent before it was found is the same burst's, unless it is [`APART`] from that.
    pub(super) fn handle_burst(&mut self, now: Instant, sent: Instant) {
        self.trial.interrupt();
        let found = self.last_burst.is_none_or(|last| sent >= last);
        let apart = self.arrived.is_some_and(|arrived| arrived < sent)
            && self.lost.is_some_and(|lost| sent > lost + APART);
        if found || apart {
            self.bursts += 1.0;
            self.lost = None;
        }
        if self.lost.is_none_or(|lost| lost < sent) {
            (self.lost, self.arrived) = (Some(sent), None);
        }
        if found {
            self.fades = self.fades * FORGETTING + 1.0;
            self.drops *= FORGETTING;
            self.last_burst = Some(now);
            self.strikes = if self.intact < FEW_INTACT { self.strikes + 1 } else { 0 };
            self.intact = 0;
            self.victims = 0;
        }
        self.victims += 1;
    }

    /// What had been taken for lost is answered: if nothing else was lost then, there was no burst.
    pub(super) fn handle_false_alarm(&mut self) {
        if self.victims == 1 {
            self.bursts = (self.bursts - 1.0).max(0.0);
            self.fades = ((self.fades - 1.0) / FORGETTING).max(0.0);
            self.strikes = self.strikes.saturating_sub(1);
            self.last_burst = None;
        }
        self.victims = self.victims.saturating_sub(1);
    }

    /// A queue is full. If that is what usually loses blocks here, fewer fragments at once are better; one frame is none.
    pub(super) fn handle_congestion(&mut self, now: Instant, block: u32, range: Blocks) {
        self.drops = self.drops * FORGETTING + 1.0;
        self.fades *= FORGETTING;
        if self.drops >= TWO_IN_A_ROW && self.drops > 2.0 * self.fades {
            self.cap = Some(((block / 2).max(range.one_frame), now));
            self.drops = 0.0;
        }
    }

    /// Bursts per second of good time.
    pub(super) fn burst_rate(&self) -> f64 {
        let rate = (self.bursts + PRIOR_BURSTS) / (self.seconds + PRIOR_SECONDS);
        if self.bursts > 0.0 {
            return rate;
        }
        rate / (1.0 + (CERTAINTY * (self.seconds - EVEN_ODDS)).exp())
    }

    /// The same for a link that seems to hold what meets a fade. Such a link loses nothing but what was lost before that was known. Where more is lost, others fill
    /// a queue: silences end there without a loss now and then, too.
    fn unexpected_burst_rate(&self) -> f64 {
        (self.bursts - 1.0).max(0.0) / (self.seconds + PRIOR_SECONDS)
    }

    /// Returns the block to use from now on. `rate` is the path's in bytes per second, 0 if it is not known yet; `holds`: link-level
    /// retransmission makes bursts harmless.
    pub(super) fn choose(&mut self, now: Instant, rate: f64, holds: bool, block: u32, range: Blocks) -> u32 {
        if let Some((cap, since)) = self.cap
            && now.saturating_duration_since(since) > CAP_LIFETIME
        {
            self.cap = (2 * cap < range.largest).then_some((2 * cap, now));
        }
        if self.strikes >= STRIKES {
            self.cap = Some(((self.size / 2).max(range.one_frame), now));
            self.strikes = 0;
        }
        let largest = self.cap.map_or(range.largest, |(cap, _)| cap.min(range.largest));
        if rate <= 0.0 {
            return block.min(largest);
        }
        let bursts = if holds { self.unexpected_burst_rate() } else { self.burst_rate() };
        let one_frame = range.one_frame.min(range.largest);
        let small = range.small().min(largest);
        let kept = KEPT_FOR_A_BURST * bursts;
        let allowed = |bytes: u32| {
            bytes <= one_frame
                || f64::from(rate_of(rate, bytes)) < SAFE_DATAGRAMS_PER_SECOND
                    && f64::from(bytes) * kept < INCOMPLETE_BYTES
        };
        let candidates = BLOCKS.into_iter().chain([one_frame, largest, small]).filter(|&it| it <= largest);
        let headers = match self.trial.answer(now) {
            Some(true) => Headers::Compressed,
            Some(false) | None => Headers::Whole,
        };
        let price = |bytes: u32, headers| cost(bytes, range, headers, rate, bursts);
        let best = candidates
            .filter(|&bytes| allowed(bytes))
            .map(|bytes| (price(bytes, headers), bytes))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        let Some((least, bytes)) = best else {
            return block;
        };
        // A link that compresses headers looks like any other until blocks of one frame are tried.
        if self.bursts >= 1.0
            && bytes > small
            && !holds
            && self.fades > 2.0 * self.drops
            && rate < f64::from(small) / TRIAL_FRAME
            && self.trial.answer(now).is_none()
            && price(small, Headers::Compressed) < WORTH_A_TRIAL * least
        {
            self.trial.begin(small, |larger| {
                let ratio = |headers| overhead(small, range, headers) / overhead(larger, range, headers);
                (ratio(Headers::Compressed), ratio(Headers::Whole))
            });
        }
        if let Some(tried) = self.trial.block() {
            return tried;
        }
        let doubt = UNSETTLED * bursts * f64::from(block) / rate;
        let gains = least < price(block, headers) * (1.0 - HYSTERESIS - doubt);
        if block > largest || !allowed(block) || gains { bytes } else { block }
    }
}

/// Whether the link compresses headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Headers {
    Whole,
    Compressed,
}

fn rate_of(rate: f64, block: u32) -> f32 {
    (rate / f64::from(block)) as f32
}

/// Bytes on the air for each byte of the file.
fn overhead(block: u32, range: Blocks, headers: Headers) -> f64 {
    let bytes = f64::from(block);
    let headers = match (headers, block <= range.small()) {
        (Headers::Whole, _) => HEADERS,
        (Headers::Compressed, true) => HEADERS_OF_ONE_FRAME,
        (Headers::Compressed, false) => HEADERS_OF_FRAGMENTS,
    };
    (bytes + headers + FRAME_HEADERS * ((bytes + 136.0) / f64::from(range.frame)).ceil()) / bytes
}

fn cost(block: u32, range: Blocks, headers: Headers, rate: f64, bursts: f64) -> f64 {
    let overhead = overhead(block, range, headers);
    let time = f64::from(block) * overhead / (rate * 1.06);
    overhead / (1.0 - (bursts * time).min(0.99))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a beginning of time")]
mod tests {
    use super::*;

    const RANGE: Blocks = Blocks { one_frame: 1280, largest: 32 << 10, frame: 1480 };

    #[test]
    fn after_full_queues_blocks_grow_again_a_step_at_a_time() {
        let epoch = Instant::now();
        let mut sizer = Sizer::new(epoch);
        let mut block = 8192;
        for _ in 0..2 {
            sizer.handle_congestion(epoch, block, RANGE);
        }
        // On a link that holds, as large as may be is best.
        let mut most = |seconds| {
            block = sizer.choose(epoch + Duration::from_secs(seconds), 1e6, true, block, RANGE);
            block
        };
        assert_eq!([1, 30, 31, 61, 62, 92, 93].map(&mut most), [4096, 4096, 8192, 8192, 16384, 16384, 32768]);
    }

    #[test]
    fn a_full_queue_is_no_reason_for_less_than_one_frame() {
        let epoch = Instant::now();
        let range = Blocks { one_frame: 8768, largest: 32 << 10, frame: 8980 };
        let mut sizer = Sizer::new(epoch);
        for _ in 0..2 {
            sizer.handle_congestion(epoch, 8768, range);
        }
        assert_eq!(sizer.choose(epoch, 1e6, true, 8768, range), 8768);
    }

    #[test]
    fn what_seems_to_hold_and_loses_is_no_link_for_the_largest_block() {
        let epoch = Instant::now();
        let at = |millis| epoch + Duration::from_millis(millis);
        let mut sizer = Sizer::new(epoch);
        let mut choose_after = |bursts: u64| {
            for burst in 0..bursts {
                sizer.handle_flow(at(250 * burst), Duration::ZERO);
                sizer.handle_burst(at(250 * burst), at(250 * burst));
            }
            sizer.choose(at(250 * bursts), 3e5, true, 8704, RANGE)
        };
        assert_eq!(choose_after(1), 32 << 10, "lost before anybody knew");
        assert!(choose_after(8) < 16 << 10);
    }

    #[test]
    fn losses_that_are_found_together_are_one_burst_unless_something_arrived_between_them() {
        let epoch = Instant::now();
        let at = |millis| epoch + Duration::from_millis(millis);
        let bursts = |arrived: &[u64], lost: &[u64]| {
            let mut sizer = Sizer::new(epoch);
            for &sent in lost {
                for &sent in arrived.iter().filter(|&&it| it < sent + 10) {
                    sizer.handle_block(at(sent + 600), 4096, at(sent), true);
                }
                sizer.handle_burst(at(sent + 610), at(sent));
            }
            sizer.bursts
        };
        for (arrived, lost, number) in [
            (&[][..], &[100, 201, 302][..], 1.0),
            (&[150], &[100, 201, 302], 2.0),
            (&[150, 250], &[100, 201, 302], 3.0),
            (&[150, 250], &[100, 200, 300], 1.0),
            (&[], &[100, 800], 2.0),
        ] {
            let found = bursts(arrived, lost);
            assert!((found - number).abs() < 1e-9, "{found} bursts, {arrived:?} arrived, {lost:?} lost");
        }
    }
}
