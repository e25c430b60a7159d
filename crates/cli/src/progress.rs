//! How far a run is, on a terminal and for programs.

mod line;
mod strip;

use std::{
    fmt::Write as _,
    io::{self, IsTerminal},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

pub(crate) use nfs_files::progress::{Activity, LinkState};

pub(crate) use self::line::Line;
use self::{line::Told, strip::Strip};
use crate::{color::Color, units};

/// What somebody else wants to be seen beside the progress.
pub(crate) type Aside = Arc<Mutex<String>>;

/// Columns of a terminal that does not say.
const DEFAULT_COLUMNS: usize = 80;

/// The bar on the terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    aside: Option<Aside>,
    /// Whether the line has colours.
    color: bool,
}

impl Progress {
    /// Creates a bar on standard error, if that is a terminal.
    pub(crate) fn on_terminal(aside: Option<Aside>, color: Color) -> Option<Self> {
        let usable = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        if !usable || !io::stderr().is_terminal() {
            return None;
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        bar.set_style(ProgressStyle::with_template("{wide_msg}").expect("a valid template"));
        Some(Self { bar, aside, color: color.shows(true) })
    }

    /// Runs something that prints, with the bar out of the way.
    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Removes the bar; whether somebody else says what was done.
    pub(crate) fn end(self) -> bool {
        self.bar.finish_and_clear();
        self.aside.is_some()
    }

    /// Draws the line again, which is told how many columns there are.
    pub(crate) fn show(&self, line: impl FnOnce((usize, bool)) -> Line) {
        let aside = self.aside.as_ref().map(|it| it.lock().unwrap_or_else(PoisonError::into_inner).clone());
        let is_link_shown = aside.is_some();
        let aside = aside.unwrap_or_default();
        let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
        let columns = size.map(|size| usize::from(size.ws_col)).filter(|&columns| columns > 0);
        // The last column stays free: some terminals begin a new line there.
        let width = columns.unwrap_or(DEFAULT_COLUMNS).saturating_sub(aside.chars().count() + 1);
        self.bar.set_message(aside + &line((width, is_link_shown)).painted(self.color));
    }
}

/// Follows a run and words its state.
#[derive(Debug)]
pub(crate) struct Observation {
    /// When progress was last seen.
    progressed: Instant,
    mark: u64,
    /// When a reply was last seen.
    answered: Instant,
    replies: u64,
    /// How long the answer to a question into a stall took.
    round_trip: Option<Duration>,
    /// In which of the last seconds there were replies.
    strip: Strip,
    /// How long something has moved, and when that was counted.
    moving: Duration,
    updated: Instant,
    /// Recent samples of (time in which something moved, bytes) for the rate.
    samples: Vec<(Duration, u64)>,
    /// The rate by which the time left is told.
    smooth_rate: f64,
}

/// Silence shorter than this is not worth a word.
const WORTH_MENTIONING: Duration = Duration::from_secs(2);

/// Where nothing has come for longer, nothing moves.
const MOVING: Duration = Duration::from_millis(500);

/// Time constant of the rate by which the time left is told, so that this does not jump.
const SMOOTHING: Duration = Duration::from_secs(8);

/// The rate is that of this last stretch.
const RATE_SPAN: Duration = Duration::from_secs(4);

impl Observation {
    /// Starts to follow.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            progressed: now,
            mark: 0,
            answered: now,
            replies: 0,
            round_trip: None,
            strip: Strip::new(now),
            moving: Duration::ZERO,
            updated: now,
            samples: vec![(Duration::ZERO, 0)],
            smooth_rate: 0.0,
        }
    }

    /// Takes in the state at a moment.
    pub(crate) fn update(&mut self, now: Instant, activity: &Activity, link: LinkState) {
        let mark = activity.mark();
        if mark != self.mark {
            self.mark = mark;
            self.progressed = now;
            self.round_trip = None;
        }
        let has_answered = link.replies != self.replies;
        if has_answered {
            self.replies = link.replies;
            self.answered = now;
        }
        if activity.mounted() && link.outstanding == 0 {
            // It is not the server that is waited for, but a pipe or the local disk.
            self.progressed = now;
            self.answered = now;
        }
        self.strip.update(now, has_answered, self.answered, link);
        let step = now.duration_since(self.updated);
        self.updated = now;
        if self.stalled(now) < MOVING {
            self.moving += step;
        }
        let moving = self.moving;
        self.samples.push((moving, activity.bytes()));
        let old = self.samples.partition_point(|&(at, _)| moving.saturating_sub(at) > RATE_SPAN);
        self.samples.drain(..old.min(self.samples.len() - 1));
        let rate = self.bytes_per_second();
        let weight = 1.0 - (-step.as_secs_f64() / SMOOTHING.as_secs_f64()).exp();
        // Until there is a history, the present is all that is known.
        let weight = if moving < RATE_SPAN { 1.0 } else { weight };
        self.smooth_rate += weight * (rate - self.smooth_rate);
    }

    /// Records how long a server took for a call that costs it nothing.
    pub(crate) fn answered_after(&mut self, round_trip: Duration) {
        self.round_trip = Some(round_trip);
    }

    /// Returns how long there has been no progress.
    pub(crate) fn stalled(&self, now: Instant) -> Duration {
        now.duration_since(self.progressed)
    }

    /// Says why nothing moves, when nothing has moved for a while.
    pub(crate) fn trouble(&self, now: Instant, mounted: bool) -> Option<String> {
        let (stalled, silent) = (self.stalled(now), now.duration_since(self.answered));
        if stalled < WORTH_MENTIONING {
            return None;
        }
        Some(if !mounted {
            format!("no answer for {}", units::whole_seconds(stalled))
        } else if silent >= WORTH_MENTIONING {
            format!("link down for {}", units::whole_seconds(silent))
        } else {
            let round_trip = self.round_trip.map(|it| format!(" (RTT {})", units::duration(it)));
            format!(
                "server slow{}: no progress for {}",
                round_trip.unwrap_or_default(),
                units::whole_seconds(stalled)
            )
        })
    }

    /// Words the line of the bar, in so many columns; whether somebody else shows the link beside it is said, too.
    pub(crate) fn line(
        &self,
        now: Instant,
        activity: &Activity,
        link: LinkState,
        (width, is_link_shown): (usize, bool),
    ) -> Line {
        if !activity.mounted() {
            return Line::plain(self.trouble(now, false).unwrap_or_else(|| "connecting".to_owned()), width);
        }
        let present = activity.present_bytes();
        let (bytes, expected) = (activity.bytes(), activity.expected_bytes());
        let rate = self.bytes_per_second();
        // Nothing is copied meanwhile.
        let is_verifying = rate < 1.0 && activity.is_verifying();
        let left = (expected > bytes && self.smooth_rate >= 1.0 && !is_verifying).then(|| {
            let left = Duration::from_secs_f64((expected - bytes) as f64 / self.smooth_rate);
            Duration::from_secs(left.as_secs() + 1)
        });
        let told = Told {
            bytes: bytes + present,
            expected: if expected > 0 { expected + present } else { 0 },
            files: activity.files(),
            rate: (!is_verifying).then_some(rate),
            left,
            trouble: self.trouble(now, true),
            strip: self.strip.words().filter(|_| !is_link_shown),
            rtt: link.rtt,
            retransmitted: (link.resends > 0)
                .then(|| link.resends as f64 / (link.calls + link.resends).max(1) as f64),
            current: activity.current(),
        };
        told.fit(width)
    }

    /// Returns the state for programs.
    pub(crate) fn event(&self, now: Instant, activity: &Activity, link: LinkState) -> Value {
        json!({
            "event": "progress",
            "bytes": activity.bytes(),
            "expected_bytes": activity.expected_bytes(),
            "files": activity.files().0,
            "expected_files": activity.files().1,
            "rate_bps": (self.bytes_per_second() * 8.0) as u64,
            "stalled_ns": units::nanoseconds(self.stalled(now)),
            "rtt_ns": link.rtt.map(units::nanoseconds),
            "resends": link.resends,
        })
    }

    /// Words how much was moved, for the end of a run.
    pub(crate) fn closing_line(activity: &Activity, link: LinkState, elapsed: Duration) -> String {
        let bytes = activity.bytes();
        let mut line = format!(
            "{} in {}, {}",
            units::bytes(bytes),
            units::duration(elapsed),
            units::rate(bytes, elapsed)
        );
        if link.resends > 0 {
            let plural = if link.resends == 1 { "" } else { "s" };
            let _ = write!(line, ", {} retransmission{plural}", link.resends);
        }
        line
    }

    fn bytes_per_second(&self) -> f64 {
        let (Some((start, before)), Some((end, after))) = (self.samples.first(), self.samples.last()) else {
            return 0.0;
        };
        after.saturating_sub(*before) as f64 / end.saturating_sub(*start).as_secs_f64().max(1e-3)
    }
}

#[cfg(test)]
mod tests {
    use nfs_files::progress::Share;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn silence_and_slowness_are_told_apart() {
        let start = Instant::now();
        let activity = Activity::default();
        let mut observation = Observation::new(start);
        activity.set_mounted();
        activity.expect(4096);
        activity.add_bytes(1024);
        let mut link = LinkState { replies: 3, outstanding: 1, ..LinkState::default() };
        observation.update(start, &activity, link);
        assert_eq!(observation.trouble(start + SECOND, true), None);
        assert_eq!(observation.trouble(start + 4 * SECOND, true).unwrap(), "link down for 4 s");
        assert_eq!(observation.trouble(start + 4 * SECOND, false).unwrap(), "no answer for 4 s");
        link.replies = 4;
        observation.update(start + 4 * SECOND, &activity, link);
        let words = observation.trouble(start + 5 * SECOND, true).unwrap();
        assert_eq!(words, "server slow: no progress for 5 s");
        observation.answered_after(Duration::from_millis(2100));
        let words = observation.trouble(start + 5 * SECOND, true).unwrap();
        assert_eq!(words, "server slow (RTT 2.1 s): no progress for 5 s");
        assert_eq!(observation.stalled(start + 5 * SECOND), 5 * SECOND);
        link.outstanding = 0;
        observation.update(start + 6 * SECOND, &activity, link);
        assert_eq!(observation.stalled(start + 6 * SECOND), Duration::ZERO, "nothing is asked of the server");
    }

    #[test]
    fn while_copies_are_only_compared_the_line_says_that_and_no_time_left() {
        let start = Instant::now();
        let activity = Activity::default();
        let mut observation = Observation::new(start);
        activity.set_mounted();
        activity.expect(4 << 20);
        activity.add_bytes(3 << 20);
        let link = LinkState { replies: 1, ..LinkState::default() };
        let mut line = |seconds: u32| {
            activity.step();
            let now = start + seconds * SECOND;
            observation.update(now, &activity, link);
            observation.line(now, &activity, link, (79, false)).painted(false)
        };
        assert!(line(1).contains("left"));
        let verifying = activity.verify();
        let lines: Vec<_> = (2..20).map(&mut line).collect();
        let last = lines.last().unwrap();
        assert!(last.contains("verifying") && !last.contains("left") && !last.contains("/s"), "{last}");
        drop(verifying);
        assert!(!line(20).contains("verifying"));
    }

    #[test]
    fn the_line_has_rate_and_time_left() {
        let start = Instant::now();
        let activity = Activity::default();
        let mut observation = Observation::new(start);
        activity.set_mounted();
        activity.expect(10 << 20);
        activity.add_bytes(2 << 20);
        let rtt = Some(Duration::from_millis(12));
        let link = LinkState { replies: 1, resends: 1, calls: 99, outstanding: 0, rtt };
        observation.update(start + SECOND, &activity, link);
        let line = observation.line(start + SECOND, &activity, link, (79, false)).painted(false);
        assert_eq!(line, "20 %  2.0 MiB of 10 MiB  2.0 MiB/s  5 s left  RTT 12.0 ms  1.0 % retransmitted");
    }

    #[test]
    fn what_is_there_already_counts_as_a_part_of_the_file() {
        let start = Instant::now();
        let activity = Arc::<Activity>::default();
        activity.set_mounted();
        activity.expect(10 << 20);
        let share = Share::new(&activity, 10 << 20);
        share.begin(10 << 20);
        assert!(share.resume(8 << 20));
        share.observer()(1 << 20);
        let line =
            Observation::new(start).line(start, &activity, LinkState::default(), (79, false)).painted(false);
        assert!(line.contains("90 %  9.0 MiB of 10 MiB"), "{line}");
    }

    #[test]
    fn the_time_left_does_not_jump_over_a_link_with_outages() {
        let start = Instant::now();
        let activity = Activity::default();
        let mut observation = Observation::new(start);
        activity.set_mounted();
        activity.expect(100 << 20);
        let (mut last, mut jumps) = (None, 0);
        // One second of 1 MiB/s, two of nothing.
        for tick in 0..600_u32 {
            let now = start + tick * Duration::from_millis(100);
            if tick % 30 < 10 {
                activity.add_bytes(100 << 10);
            }
            let link = LinkState { outstanding: 1, ..LinkState::default() };
            observation.update(now, &activity, link);
            let rate = observation.smooth_rate;
            if tick > 60 {
                jumps += u32::from(last.is_some_and(|last: f64| (rate / last - 1.0).abs() > 0.05));
            }
            last = Some(rate);
        }
        assert_eq!(jumps, 0);
        // While something moves it is about 1 MiB/s; the half second in which a stall is noticed counts.
        assert!((600_000.0..1_100_000.0).contains(&observation.smooth_rate), "{}", observation.smooth_rate);
    }
}
