//! What acknowledgements mean: loss detection (RACK-TLP, RFC 8985), fast recovery with PRR (RFC 6937), timeouts with F-RTO (RFC
//! 5682), and the undo of both (RFC 4015 by timestamps, RFC 3708 by D-SACK), as `net/ipv4/tcp_input.c` of Linux has them.

use std::time::{Duration, Instant};

use super::{
    recovery::{Ack, State},
    scoreboard::Acked,
    segment::MSS,
    sender::{Sender, Timer},
};

/// Segments acknowledged selectively that show a loss where no reordering was seen (RFC 6675 §5, DupThresh).
const DUPLICATE_THRESHOLD: u32 = 3;

/// Recoveries that a wider reordering window lasts (RFC 8985 §6.2, step 4).
const REORDERING_PERSISTENCE: u32 = 16;

impl Sender {
    /// Takes an acknowledgement (RFC 9293 §3.10.7.4).
    pub(super) fn handle_ack(&mut self, now: Instant, ack: &Ack<'_>) {
        if ack.ack > self.next || ack.ack < self.acknowledged && ack.blocks.is_empty() {
            return;
        }
        self.handle_window(ack.edge);
        let before = self.acknowledged;
        let point = ack.ack.max(before);
        let duplicate = self.duplicate(ack, point);
        let blocks = &ack.blocks[usize::from(duplicate.is_some())..];
        let (lost_before, high) = (self.board.lost(), self.recovery.high);
        let minimum = self.rtt.minimum();
        let acked = self.board.handle_ack(now, point, blocks, high, &mut self.rack, minimum);
        self.forget(point);
        self.recovery.reordering_seen |= acked.reordered;
        self.widen_reordering_window(duplicate.is_some());
        self.measure(now, ack, &acked);
        let advanced = point > before;
        if advanced {
            self.recovery.timeouts = 0;
        }
        if advanced || acked.sacked {
            self.silent_since = (self.board.outstanding() > 0).then_some(now);
        }
        self.handle_probe_ack(point, duplicate.is_some(), ack, &acked);
        let is_duplicate = !advanced && !ack.has_data && duplicate.is_none();
        let is_dubious =
            acked.sacked || duplicate.is_some() || is_duplicate || self.recovery.state != State::Open;
        let mut reordering_timer = false;
        if is_dubious && (self.board.outstanding() > 0 || self.recovery.state != State::Open) {
            reordering_timer = self.alert(now, ack, &acked, advanced, is_duplicate);
        }
        if (acked.advanced || acked.sacked) && !reordering_timer {
            self.arm(now);
        }
        self.control(now, &acked, advanced, self.board.lost() > lost_before);
    }

    /// A timer that RACK had set (RFC 8985 §6.2, `tcp_rack_reo_timeout`).
    pub(super) fn handle_reordering_timeout(&mut self, now: Instant) {
        let before = self.board.in_flight();
        self.detect(now);
        if self.board.in_flight() < before {
            if self.recovery.state != State::Recovery {
                self.enter_recovery();
            }
            self.reduce(1, true, false);
        }
    }

    /// A retransmission timeout (RFC 6298 §5.4 to §5.7, RFC 5681 §3.1, `tcp_enter_loss`).
    pub(super) fn handle_loss(&mut self, now: Instant) {
        let (state, again) = (self.recovery.state, self.recovery.timeouts > 0);
        let is_new = matches!(state, State::Open | State::Disorder);
        self.board.mark_all_lost(now, &self.rack);
        if is_new || self.acknowledged >= self.recovery.high || (state == State::Loss && !again) {
            self.recovery.prior = Some((self.cubic.window, self.cubic.threshold));
            self.cubic.threshold = self.cubic.reduce();
            self.begin_undo();
        }
        self.recovery.timeouts += 1;
        self.cubic.forget(now, self.next);
        self.cubic.window = self.board.in_flight() + 1;
        self.recovery.state = State::Loss;
        self.recovery.high = self.next;
        self.recovery.frto = is_new || again;
        self.recovery.holds_back = false;
        self.probe = None;
    }

    /// The range that the peer got twice, if the first block says so (RFC 2883 §4).
    fn duplicate(&mut self, ack: &Ack<'_>, point: u64) -> Option<(u64, u64)> {
        let (first, rest) = ack.blocks.split_first()?;
        let is_inside = rest.first().is_some_and(|second| second.0 <= first.0 && first.1 <= second.1);
        if first.1 > point && !is_inside {
            return None;
        }
        if self.recovery.undo_from.is_some_and(|from| first.1 > from) {
            let segments = (first.1 - first.0).div_ceil(MSS) as u32;
            self.recovery.undo_count = self.recovery.undo_count.map(|count| count.saturating_sub(segments));
        }
        Some(*first)
    }

    /// RTT samples: of segments that were sent once (Karn), else by the peer's timestamp (RFC 7323 §4).
    fn measure(&mut self, now: Instant, ack: &Ack<'_>, acked: &Acked) {
        let since = |sent: Instant| now.saturating_duration_since(sent);
        let whole = acked.first.filter(|_| !acked.repeated).map(since);
        let last = acked.last.filter(|_| !acked.repeated);
        let newest = acked.last_sacked.or(last).map(since);
        if let Some(newest) = newest {
            self.rtt.saw(newest);
        }
        let by_echo = ack.echo.filter(|_| acked.advanced).map(since);
        let selective = acked.first_sacked.map(since);
        if let Some(sample) = whole.or(selective).or(by_echo) {
            self.rtt.sample(sample, self.acknowledged, self.next);
        }
        if let Some(newest) = newest {
            self.cubic.handle_rtt(now, newest, self.acknowledged, self.next);
        }
    }

    /// RFC 8985 §7.4.2: a probe that repaired a loss is a reason to slow down.
    fn handle_probe_ack(&mut self, point: u64, duplicate: bool, ack: &Ack<'_>, acked: &Acked) {
        let Some(probe) = self.probe.filter(|probe| point >= probe.end) else { return };
        if !probe.is_retransmission || duplicate {
            self.probe = None;
        } else if point > probe.end {
            self.probe = None;
            self.enter_reduction();
            self.end_reduction();
            self.recovery.undo_from = None;
            self.try_to_open();
        } else if !acked.advanced && !acked.sacked && !ack.has_data {
            // Original and probe have both arrived.
            self.probe = None;
        }
    }

    /// `tcp_fastretrans_alert`: whether RACK has set its timer.
    fn alert(
        &mut self,
        now: Instant,
        ack: &Ack<'_>,
        acked: &Acked,
        advanced: bool,
        is_duplicate: bool,
    ) -> bool {
        self.recovery.holds_back = false;
        if self.recovery.state == State::Open {
            if self.board.repeating() == 0 {
                self.recovery.retransmitted_at = None;
            }
        } else if self.acknowledged >= self.recovery.high && self.recovery.state == State::Recovery {
            if self.may_undo(ack) {
                self.undo(false);
            } else {
                self.end_reduction();
            }
            self.recovery.state = State::Open;
            self.recovery.undo_from = None;
        }
        match self.recovery.state {
            State::Recovery => {
                if advanced && self.undo_partial(ack) {
                    return false;
                }
                if self.undo_by_duplicates() {
                    self.try_to_open();
                }
                let (_, timer) = self.detect(now);
                if self.recovery.state != State::Recovery {
                    self.recover_if_lost();
                }
                timer
            }
            State::Loss => {
                self.handle_ack_in_loss(ack, acked, advanced, is_duplicate);
                let (again, timer) = self.detect(now);
                // A lost retransmission reduces the window once more.
                if self.recovery.state != State::Loss || again {
                    self.recover_if_lost();
                }
                timer
            }
            State::Open | State::Disorder => {
                self.undo_by_duplicates();
                let (_, timer) = self.detect(now);
                self.recover_if_lost();
                timer
            }
        }
    }

    /// Marks what is lost; whether a retransmission was, and whether the timer is set for more.
    fn detect(&mut self, now: Instant) -> (bool, bool) {
        let window = self.reordering_window();
        let (_, again, next) = self.board.mark_lost(now, &self.rack, window);
        if let Some(next) = next {
            self.timer = Some((Timer::Reordering, next.max(now + Duration::from_micros(1))));
        }
        (again, next.is_some())
    }

    /// RFC 8985 §6.2, step 4 (`tcp_rack_reo_wnd`).
    fn reordering_window(&self) -> Duration {
        if !self.recovery.reordering_seen
            && (matches!(self.recovery.state, State::Recovery | State::Loss)
                || self.board.sacked() >= DUPLICATE_THRESHOLD)
        {
            return Duration::ZERO;
        }
        let steps = self.recovery.reordering_steps + 1;
        (self.rtt.minimum() / 4 * steps).min(self.rtt.smoothed().unwrap_or_default())
    }

    /// The reordering window grows with each round trip that shows a spurious retransmission.
    fn widen_reordering_window(&mut self, duplicate: bool) {
        let recovery = &mut self.recovery;
        recovery.duplicate_seen |= duplicate && self.acknowledged >= recovery.reordering_round;
        if recovery.duplicate_seen && recovery.reordering_seen {
            recovery.reordering_steps = (recovery.reordering_steps + 1).min(255);
            recovery.reordering_persists = REORDERING_PERSISTENCE;
            recovery.reordering_round = self.next;
        }
        recovery.duplicate_seen = false;
    }

    fn recover_if_lost(&mut self) {
        if self.board.lost() > 0 {
            self.enter_recovery();
        } else {
            self.try_to_open();
        }
    }

    fn enter_recovery(&mut self) {
        let recovery = &mut self.recovery;
        recovery.reordering_persists = recovery.reordering_persists.saturating_sub(1);
        if recovery.reordering_persists == 0 {
            recovery.reordering_steps = 0;
        }
        recovery.prior = Some((self.cubic.window, self.cubic.threshold));
        self.begin_undo();
        self.enter_reduction();
        self.recovery.state = State::Recovery;
    }

    fn begin_undo(&mut self) {
        self.recovery.undo_from = Some(self.acknowledged);
        self.recovery.undo_count = Some(self.board.repeating());
        self.recovery.retransmitted_at = None;
    }

    /// RFC 6937 §3: the beginning of a reduction.
    fn enter_reduction(&mut self) {
        let recovery = &mut self.recovery;
        (recovery.high, recovery.prior_window) = (self.next, self.cubic.window);
        (recovery.delivered, recovery.sent) = (0, 0);
        self.cubic.threshold = self.cubic.reduce();
    }

    fn end_reduction(&mut self) {
        self.cubic.window = self.cubic.threshold;
    }

    fn try_to_open(&mut self) {
        let is_disorder = self.board.sacked() + self.board.lost() + self.board.repeating() > 0;
        self.recovery.state = if is_disorder { State::Disorder } else { State::Open };
    }

    /// F-RTO (RFC 5682 §3.1, `tcp_process_loss`).
    fn handle_ack_in_loss(&mut self, ack: &Ack<'_>, acked: &Acked, advanced: bool, is_duplicate: bool) {
        let is_recovered = self.acknowledged >= self.recovery.high;
        if advanced && self.may_undo(ack) {
            self.undo(true);
            self.recovery.state = State::Open;
            return;
        }
        if self.recovery.frto {
            if acked.original {
                // Acknowledged without a retransmission: the timeout was spurious.
                self.undo(true);
                self.recovery.state = State::Open;
                return;
            }
            if self.next > self.recovery.high {
                if acked.sacked || is_duplicate {
                    self.recovery.frto = false;
                }
            } else if advanced && !is_recovered {
                self.recovery.high = self.next;
                if self.has_new() {
                    self.recovery.holds_back = true;
                } else {
                    self.recovery.frto = false;
                }
            }
        }
        if is_recovered {
            if self.may_undo(ack) {
                self.undo(false);
            }
            self.recovery.state = State::Open;
            self.recovery.undo_from = None;
        }
    }

    /// Eifel detection by timestamps (RFC 3522 §3.2): what is acknowledged was sent before the first retransmission.
    fn may_undo(&self, ack: &Ack<'_>) -> bool {
        self.recovery.undo_from.is_some() && (self.recovery.all_spurious() || self.recovery.is_original(ack))
    }

    /// Within recovery, when the first hole was filled by the original (`tcp_try_undo_partial`).
    fn undo_partial(&mut self, ack: &Ack<'_>) -> bool {
        if self.recovery.undo_from.is_none() || !self.recovery.is_original(ack) {
            return false;
        }
        if self.board.repeating() > 0 {
            return true;
        }
        if !self.board.any_repeated() {
            self.recovery.retransmitted_at = None;
        }
        self.undo(true);
        self.recovery.state = State::Open;
        self.try_to_open();
        true
    }

    /// All retransmissions were spurious (RFC 3708).
    fn undo_by_duplicates(&mut self) -> bool {
        let is_all = self.recovery.undo_from.is_some() && self.recovery.all_spurious();
        if is_all {
            self.undo(false);
            self.recovery.state = State::Open;
        }
        is_all
    }

    /// Gives the window back.
    fn undo(&mut self, unmark: bool) {
        if unmark {
            self.board.unmark();
        }
        if let Some((window, threshold)) = self.recovery.prior.take() {
            self.cubic.window = self.cubic.window.max(window);
            self.cubic.threshold = self.cubic.threshold.max(threshold);
            self.stats.undone += 1;
        }
        self.recovery.undo_from = None;
        self.recovery.frto = false;
    }

    /// What the window is now (`tcp_cong_control`).
    fn control(&mut self, now: Instant, acked: &Acked, advanced: bool, is_lost: bool) {
        if self.recovery.state == State::Recovery {
            self.reduce(acked.delivered, is_lost, advanced);
        } else if acked.advanced && self.is_window_limited() {
            self.cubic.handle_acked(now, acked.delivered);
        }
    }

    /// Proportional rate reduction (RFC 6937 §3, with the bound that Linux chooses of §3.1).
    fn reduce(&mut self, delivered: u32, is_lost: bool, advanced: bool) {
        if delivered == 0 || self.recovery.prior_window == 0 {
            return;
        }
        let recovery = &mut self.recovery;
        recovery.delivered += delivered;
        let (in_flight, threshold) = (self.board.in_flight(), self.cubic.threshold);
        let more = if in_flight > threshold {
            let share = u64::from(threshold) * u64::from(recovery.delivered);
            (share.div_ceil(recovery.prior_window.into()) as u32).saturating_sub(recovery.sent)
        } else {
            let mut more = recovery.delivered.saturating_sub(recovery.sent).max(delivered);
            more += u32::from(advanced && !is_lost);
            more.min(threshold - in_flight)
        };
        let more = more.max(u32::from(recovery.sent == 0));
        self.cubic.window = in_flight + more;
    }
}
