//! What was sent and is not acknowledged: the scoreboard of RFC 6675 §3, one entry a segment, with what RACK needs (RFC 8985 §5.2).

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// A segment on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) start: u64,
    pub(super) end: u64,
    /// When it was sent last.
    pub(super) at: Instant,
    /// It was sent more than once.
    pub(super) repeated: bool,
    /// Its last transmission was a retransmission, and is thought to be on its way.
    pub(super) repeating: bool,
    pub(super) sacked: bool,
    pub(super) lost: bool,
}

/// What an acknowledgement said.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Acked {
    /// Segments that arrived, as is known since this acknowledgement.
    pub(super) delivered: u32,
    /// Some were acknowledged cumulatively.
    pub(super) advanced: bool,
    /// Some were acknowledged selectively.
    pub(super) sacked: bool,
    /// Some of what was acknowledged cumulatively had been retransmitted.
    pub(super) repeated: bool,
    /// Some were sent once, and before `high`.
    pub(super) original: bool,
    /// One that was sent once arrived after one that was sent later.
    pub(super) reordered: bool,
    /// When the first and the last of those were sent that were acknowledged cumulatively and sent once.
    pub(super) first: Option<Instant>,
    pub(super) last: Option<Instant>,
    /// The same of those acknowledged selectively.
    pub(super) first_sacked: Option<Instant>,
    pub(super) last_sacked: Option<Instant>,
}

/// The segment that was sent last of those that arrived (RFC 8985 §5.1).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rack {
    newest: Option<(Instant, u64)>,
    rtt: Duration,
}

impl Rack {
    /// RFC 8985 §6.2, step 2.
    fn handle_delivered(&mut self, now: Instant, sent: &Sent, minimum: Duration) {
        let rtt = now.saturating_duration_since(sent.at);
        if sent.repeated && rtt < minimum {
            // It is the first transmission that arrived.
            return;
        }
        self.rtt = rtt;
        self.newest = self.newest.max(Some((sent.at, sent.end)));
    }
}

/// Segments in order of their sequence numbers.
#[derive(Debug, Default)]
pub(super) struct Scoreboard {
    segments: VecDeque<Sent>,
    sacked: u32,
    lost: u32,
    repeating: u32,
    /// The end of what was acknowledged selectively (`tcp_highest_sack_seq`).
    highest: u64,
}

impl Scoreboard {
    pub(super) fn push(&mut self, now: Instant, start: u64, end: u64) {
        self.segments.push_back(Sent {
            start,
            end,
            at: now,
            repeated: false,
            repeating: false,
            sacked: false,
            lost: false,
        });
    }

    /// Takes an acknowledgement with its SACK blocks.
    pub(super) fn handle_ack(
        &mut self,
        now: Instant,
        ack: u64,
        blocks: &[(u64, u64)],
        high: u64,
        rack: &mut Rack,
        minimum: Duration,
    ) -> Acked {
        let mut acked = Acked::default();
        let highest = self.highest;
        for &(start, end) in blocks {
            let from = self.segments.partition_point(|sent| sent.start < start);
            for sent in self.segments.iter_mut().skip(from).take_while(|sent| sent.end <= end) {
                if sent.sacked {
                    continue;
                }
                sent.sacked = true;
                self.sacked += 1;
                self.lost -= u32::from(sent.lost);
                self.repeating -= u32::from(sent.repeating);
                rack.handle_delivered(now, sent, minimum);
                if !sent.repeated {
                    acked.reordered |= sent.start < highest;
                    acked.original |= sent.end <= high;
                    acked.first_sacked.get_or_insert(sent.at);
                    acked.last_sacked = Some(sent.at);
                }
                (sent.lost, sent.repeating) = (false, false);
                acked.sacked = true;
                acked.delivered += 1;
                self.highest = self.highest.max(sent.end);
            }
        }
        while let Some(sent) = self.segments.front().copied().filter(|sent| sent.end <= ack) {
            self.segments.pop_front();
            acked.advanced = true;
            self.sacked -= u32::from(sent.sacked);
            self.lost -= u32::from(sent.lost);
            self.repeating -= u32::from(sent.repeating);
            acked.repeated |= sent.repeated;
            if sent.sacked {
                continue;
            }
            acked.delivered += 1;
            rack.handle_delivered(now, &sent, minimum);
            if !sent.repeated {
                acked.reordered |= sent.start < highest;
                acked.original |= sent.end <= high;
                acked.first.get_or_insert(sent.at);
                acked.last = Some(sent.at);
            }
        }
        acked
    }

    /// Marks what RACK takes for lost (RFC 8985 §6.2, step 5). Returns how many, whether a retransmission was among them, and when
    /// the next may be.
    pub(super) fn mark_lost(
        &mut self,
        now: Instant,
        rack: &Rack,
        reordering: Duration,
    ) -> (u32, bool, Option<Instant>) {
        let Some(newest) = rack.newest else { return (0, false, None) };
        let (mut count, mut again, mut next) = (0, false, None::<Instant>);
        for sent in &mut self.segments {
            if sent.sacked || (sent.lost && !sent.repeating) || (sent.at, sent.end) >= newest {
                continue;
            }
            let due = sent.at + rack.rtt + reordering;
            if due <= now {
                self.repeating -= u32::from(sent.repeating);
                self.lost += u32::from(!sent.lost);
                again |= sent.repeating;
                (sent.lost, sent.repeating) = (true, false);
                count += 1;
            } else {
                next = Some(next.map_or(due, |next| next.max(due)));
            }
        }
        (count, again, next)
    }

    /// A timeout: what was not acknowledged is taken for lost (RFC 8985 §6.3), but for what was sent within the last RTT.
    pub(super) fn mark_all_lost(&mut self, now: Instant, rack: &Rack) {
        for (index, sent) in self.segments.iter_mut().enumerate().filter(|(_, sent)| !sent.sacked) {
            if index > 0 && sent.at + rack.rtt > now {
                continue;
            }
            self.lost += u32::from(!sent.lost);
            self.repeating -= u32::from(sent.repeating);
            (sent.lost, sent.repeating) = (true, false);
        }
    }

    /// Takes back that segments were lost.
    pub(super) fn unmark(&mut self) {
        self.segments.iter_mut().for_each(|sent| sent.lost = false);
        self.lost = 0;
    }

    /// The next segment to retransmit: lost, and not on its way again.
    pub(super) fn next_lost(&self) -> Option<(u64, u64)> {
        if self.lost == 0 {
            return None;
        }
        self.segments.iter().find(|sent| sent.lost && !sent.repeating).map(|sent| (sent.start, sent.end))
    }

    /// Records that a segment is sent again.
    pub(super) fn repeat(&mut self, now: Instant, start: u64) {
        let at = self.segments.partition_point(|sent| sent.start < start);
        if let Some(sent) = self.segments.get_mut(at) {
            // What a tail-loss probe sends again is not lost.
            self.repeating += u32::from(!sent.repeating);
            (sent.at, sent.repeated, sent.repeating) = (now, true, true);
        }
    }

    pub(super) fn first(&self) -> Option<&Sent> {
        self.segments.front()
    }

    /// The end that a tail-loss probe repeats.
    pub(super) fn last(&self) -> Option<&Sent> {
        self.segments.back()
    }

    pub(super) fn any_repeated(&self) -> bool {
        self.segments.iter().any(|sent| sent.repeated)
    }

    /// Segments that are not acknowledged cumulatively.
    pub(super) fn outstanding(&self) -> u32 {
        self.segments.len() as u32
    }

    pub(super) const fn sacked(&self) -> u32 {
        self.sacked
    }

    pub(super) const fn lost(&self) -> u32 {
        self.lost
    }

    pub(super) const fn repeating(&self) -> u32 {
        self.repeating
    }

    /// Segments thought to be in the network ("pipe", RFC 6675 §2).
    pub(super) fn in_flight(&self) -> u32 {
        self.outstanding() + self.repeating - self.sacked - self.lost
    }
}

#[cfg(test)]
mod tests {
    use linkemu::virtual_epoch;

    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Ten segments of ten bytes, a millisecond apart.
    fn ten(epoch: Instant) -> Scoreboard {
        let mut board = Scoreboard::default();
        (0..10).for_each(|number| board.push(epoch + ms(number), 10 * number, 10 * number + 10));
        board
    }

    #[test]
    fn what_was_sent_before_something_that_arrived_is_lost_after_the_reordering_window() {
        let (epoch, mut rack) = (virtual_epoch(), Rack::default());
        let mut board = ten(epoch);
        let acked = board.handle_ack(epoch + ms(103), 20, &[(30, 40)], 0, &mut rack, ms(100));
        assert_eq!((acked.delivered, acked.advanced, acked.sacked, acked.reordered), (3, true, true, false));
        assert_eq!(
            board.mark_lost(epoch + ms(103), &rack, ms(25)),
            (0, false, Some(epoch + ms(2 + 102 + 25)))
        );
        assert_eq!(board.mark_lost(epoch + ms(129), &rack, ms(25)), (1, false, None));
        assert_eq!((board.next_lost(), board.in_flight()), (Some((20, 30)), 6));
        board.repeat(epoch + ms(129), 20);
        assert_eq!((board.next_lost(), board.in_flight()), (None, 7));
    }

    /// RFC 8985 §3.1: a retransmission is judged as any other segment.
    #[test]
    fn a_lost_retransmission_is_found_by_what_was_sent_after_it() {
        let (epoch, mut rack) = (virtual_epoch(), Rack::default());
        let mut board = ten(epoch);
        board.handle_ack(epoch + ms(110), 0, &[(10, 100)], 0, &mut rack, ms(100));
        assert_eq!(board.mark_lost(epoch + ms(110), &rack, ms(0)), (1, false, None));
        board.repeat(epoch + ms(110), 0);
        board.push(epoch + ms(111), 100, 110);
        board.handle_ack(epoch + ms(211), 0, &[(100, 110)], 0, &mut rack, ms(100));
        assert_eq!(board.mark_lost(epoch + ms(211), &rack, ms(0)), (1, true, None));
        assert_eq!(board.next_lost(), Some((0, 10)));
    }

    #[test]
    fn a_late_original_shows_reordering_and_a_retransmission_does_not() {
        let (epoch, mut rack) = (virtual_epoch(), Rack::default());
        let mut board = ten(epoch);
        assert!(!board.handle_ack(epoch + ms(103), 10, &[(30, 40)], 0, &mut rack, ms(100)).reordered);
        board.repeat(epoch + ms(104), 10);
        assert!(!board.handle_ack(epoch + ms(204), 20, &[(30, 40)], 0, &mut rack, ms(100)).reordered);
        assert!(board.handle_ack(epoch + ms(205), 30, &[], 0, &mut rack, ms(100)).reordered);
        assert_eq!((board.outstanding(), board.sacked(), board.repeating()), (7, 1, 0));
    }
}
