//! A channel that is good or bad in time, as a pure function of (seed, link, time) (Dube et al. 1997 §4.2).

mod loss;
mod periods;
mod trace;

use std::time::Duration;

pub(crate) use self::loss::LossDraws;
use self::periods::Renewal;
pub use self::trace::ChannelTrace;
use crate::{
    ChannelConfig, ConfigError, Periods, Rate,
    units::{Nanos, nanos},
};

/// The state of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelState {
    /// Frames pass, unless the configuration says otherwise.
    Good,
    /// Frames are lost, unless the configuration says otherwise.
    Bad,
}

impl ChannelState {
    /// `"good"` or `"bad"`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Bad => "bad",
        }
    }
}

/// A stretch of time in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// The state.
    pub state: ChannelState,
    /// Its beginning, in channel time.
    pub start: Duration,
    /// Its end, in channel time; `Duration::MAX` if it never ends.
    pub end: Duration,
}

/// The good and bad periods of one link and seed.
///
/// Every answer depends on the configuration, the seed, the number of the link and the time asked about, never on what
/// was asked before: `&mut self` is a cache. Times count from the channel's time 0. Asking forward in time is cheap;
/// asking back costs the regeneration of some periods. Memory does not grow with time.
///
/// ```
/// use std::time::Duration;
/// use linkemu::{Channel, ChannelConfig, Shape};
///
/// let second = Duration::from_secs(1);
/// let config = ChannelConfig::alternating(Shape::Uniform, second, second / 10);
/// let mut channel = Channel::new(&config, 7, 0)?;
/// let minute = channel.good_time(Duration::ZERO, 60 * second);
/// assert!(minute > 48 * second && minute < 60 * second);
/// # Ok::<(), linkemu::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Channel {
    source: Source,
    /// The last span looked at.
    current: Span,
}

#[derive(Clone, Debug)]
enum Source {
    AlwaysGood,
    Renewal(Box<Renewal>),
    Trace(ChannelTrace),
}

/// A stretch in one state; neighbours may have the same state. `end` is `u64::MAX` if it never ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    state: ChannelState,
    start: Nanos,
    end: Nanos,
}

impl Channel {
    /// The channel number `link` of a seed: 0 for a shared channel; 0 down and 1 up with one per direction; the number
    /// of the mobile with one per mobile.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration is out of bounds.
    pub fn new(config: &ChannelConfig, seed: u64, link: u32) -> Result<Self, ConfigError> {
        config.validate()?;
        let source = match &config.periods {
            Periods::AlwaysGood => Source::AlwaysGood,
            Periods::Drawn { bad, .. } if bad.mean.is_zero() => Source::AlwaysGood,
            Periods::Drawn { good, bad } => {
                Source::Renewal(Box::new(Renewal::new(config, *good, *bad, seed, link)))
            }
            Periods::Trace(trace) => Source::Trace(trace.clone()),
        };
        let mut channel = Self { source, current: Span { state: ChannelState::Good, start: 0, end: 0 } };
        channel.current = channel.look(0);
        Ok(channel)
    }

    /// A channel without bad periods.
    pub(crate) const fn always_good() -> Self {
        let current = Span { state: ChannelState::Good, start: 0, end: Nanos::MAX };
        Self { source: Source::AlwaysGood, current }
    }

    /// The state at `time`. A period contains its beginning, not its end.
    pub fn state(&mut self, time: Duration) -> ChannelState {
        self.span(nanos(time)).state
    }

    /// The first change of state after `time`, if there is one.
    pub fn next_edge(&mut self, time: Duration) -> Option<Duration> {
        let end = self.run_end(nanos(time));
        (end != Nanos::MAX).then(|| Duration::from_nanos(end))
    }

    /// Good time between two moments.
    pub fn good_time(&mut self, from: Duration, to: Duration) -> Duration {
        let (mut at, to) = (nanos(from), nanos(to));
        let mut good = 0;
        while at < to {
            let span = self.span(at);
            if span.state == ChannelState::Good {
                good += span.end.min(to) - at;
            }
            at = span.end;
        }
        Duration::from_nanos(good)
    }

    /// The moment at which the channel has offered `amount` of good time since `from`; `None` if that never comes.
    pub fn offered(&mut self, from: Duration, amount: Duration) -> Option<Duration> {
        let mut left = nanos(amount);
        self.use_good(from, |start, end| {
            let enough = end - start >= left;
            if !enough {
                left -= end - start;
            }
            enough.then(|| start + left)
        })
    }

    /// The moment at which a medium of this rate has carried `bits` in good periods since `from`; `None` if that never comes.
    pub(crate) fn carried(&mut self, rate: &Rate, from: Duration, bits: u64) -> Option<Duration> {
        let trace = match rate {
            Rate::Constant(rate) => return self.offered(from, Duration::from_nanos(rate.nanos(bits))),
            Rate::Trace(trace) => trace,
            Rate::Cellular => unreachable!("a link draws its rates before it carries anything"),
        };
        let mut left = bits;
        self.use_good(from, |start, end| {
            let through = Some(rate.finish(start, left)).filter(|&through| through <= end);
            if through.is_none() {
                left -= trace.offered_bits(start, end).min(left);
            }
            through
        })
    }

    /// Hands the stretches of good time since `from` to `use_up`, until it says when it has enough; `None` if there are no more.
    fn use_good(
        &mut self,
        from: Duration,
        mut use_up: impl FnMut(Nanos, Nanos) -> Option<Nanos>,
    ) -> Option<Duration> {
        let mut at = nanos(from);
        loop {
            let span = self.span(at);
            if span.state == ChannelState::Good
                && let Some(enough) = use_up(at, span.end)
            {
                return Some(Duration::from_nanos(enough));
            }
            if span.end == Nanos::MAX {
                return None;
            }
            at = span.end;
        }
    }

    /// The number of bad periods that begin before `to` and end after `from`: one that is under way at `from` counts.
    pub fn bad_periods(&mut self, from: Duration, to: Duration) -> u64 {
        let (mut at, to) = (nanos(from), nanos(to));
        let mut count = 0;
        while at < to {
            if self.span(at).state == ChannelState::Bad {
                count += 1;
            }
            at = self.run_end(at);
        }
        count
    }

    /// The periods between two moments, cut at both.
    pub fn periods(&mut self, from: Duration, to: Duration) -> Vec<Period> {
        let (mut at, to) = (nanos(from), nanos(to));
        let mut periods = Vec::new();
        while at < to {
            let state = self.span(at).state;
            let end = self.run_end(at).min(to);
            periods.push(Period { state, start: Duration::from_nanos(at), end: Duration::from_nanos(end) });
            at = end;
        }
        periods
    }

    /// The end of the stretch of one state that contains `time`.
    pub(crate) fn run_end(&mut self, time: Nanos) -> Nanos {
        let first = self.span(time);
        let mut end = first.end;
        while end != Nanos::MAX {
            let next = self.span(end);
            if next.state != first.state {
                break;
            }
            end = next.end;
        }
        end
    }

    fn span(&mut self, time: Nanos) -> Span {
        if time < self.current.start || time >= self.current.end {
            self.current = self.look(time);
        }
        self.current
    }

    fn look(&mut self, time: Nanos) -> Span {
        match &mut self.source {
            Source::AlwaysGood => Span { state: ChannelState::Good, start: 0, end: Nanos::MAX },
            Source::Renewal(renewal) => renewal.span(time),
            Source::Trace(trace) => trace.span(time),
        }
    }
}

#[cfg(test)]
mod tests;
