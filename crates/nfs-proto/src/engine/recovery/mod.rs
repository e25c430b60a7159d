//! Loss recovery: by timers alone (the classic policies), or by all that replies tell (the adaptive policy).

mod adaptive;
mod black_hole;
mod block_policy;
mod controller;
mod delivery_rate;
#[cfg(test)]
mod for_tests;
mod fragments;
mod link_arq;
mod loss_detector;
mod loss_episodes;
mod min_rtt;
mod pacer;
mod path_estimator;
mod path_mtu;
mod policy;
mod probe_timeout;
mod reordering_window;
mod reply_interval;
mod rtt;
pub mod tuning;

use std::time::{Duration, Instant};

pub use self::adaptive::BlockRange;
use self::policy::Policy;
use self::tuning::Tuning;
pub(super) use self::{
    adaptive::{Acked, Adaptive},
    delivery_rate::Delivered,
};
use super::{
    in_flight::{Pace, WindowLimits},
    message::{Carrier, Class, Direction},
    retry_policy::RetryPolicy,
    stats::PathEstimate,
};

/// What decides that a call is sent again.
#[derive(Debug)]
pub(super) enum Recovery {
    /// A connection loses nothing.
    Connection,
    /// A timer for each call.
    Timers(Box<dyn Policy>),
    /// Later replies, silences, and what was learned from them.
    Adaptive(Box<Adaptive>),
}

impl Recovery {
    pub(super) fn new(
        carrier: Carrier,
        retry: RetryPolicy,
        tuning: &Tuning,
        range: Option<BlockRange>,
        prior: Option<&PathEstimate>,
        now: Instant,
    ) -> Self {
        match (carrier, policy::build(retry)) {
            (Carrier::Connection, _) => Self::Connection,
            (Carrier::Datagrams, Some(policy)) => Self::Timers(policy),
            (Carrier::Datagrams, None) => Self::Adaptive(Box::new(Adaptive::new(tuning, range, prior, now))),
        }
    }

    pub(super) const fn gives_fresh_xids(&self) -> bool {
        matches!(self, Self::Adaptive(_))
    }

    /// Returns what has been delivered so far.
    pub(super) fn delivered(&self, now: Instant) -> Delivered {
        match self {
            Self::Connection | Self::Timers(_) => Delivered { bytes: 0, acked_sent: now },
            Self::Adaptive(adaptive) => adaptive.delivered(now),
        }
    }

    /// Returns the timeout of an attempt, if there is one.
    pub(super) fn timeout(&self, class: Class, resends: u32) -> Option<Duration> {
        match self {
            Self::Connection | Self::Adaptive(_) => None,
            Self::Timers(policy) => Some(policy.timeout(class, resends)),
        }
    }

    /// Returns how long a call usually takes at most, where that is measured.
    pub(super) fn usual_timeout(&self, class: Class) -> Option<Duration> {
        match self {
            Self::Connection | Self::Timers(_) => None,
            Self::Adaptive(adaptive) => Some(adaptive.usual_timeout(class)),
        }
    }

    /// Narrows the limits of the window.
    pub(super) fn limits(&self, limits: WindowLimits) -> WindowLimits {
        match self {
            Self::Connection => limits,
            Self::Timers(policy) => WindowLimits {
                calls: policy.window().map_or(limits.calls, |it| it.min(limits.calls)),
                ..limits
            },
            Self::Adaptive(adaptive) => adaptive.limits(limits),
        }
    }

    /// Returns the bytes of the next READ or WRITE, if the policy chooses them.
    pub(super) fn next_block(&mut self, now: Instant) -> Option<u32> {
        match self {
            Self::Connection | Self::Timers(_) => None,
            Self::Adaptive(adaptive) => adaptive.next_block(now),
        }
    }

    /// Returns the largest block that arrives, once when the policy finds that larger ones do not.
    pub(super) fn take_cut(&mut self) -> Option<u32> {
        match self {
            Self::Connection | Self::Timers(_) => None,
            Self::Adaptive(adaptive) => adaptive.take_cut(),
        }
    }

    /// Returns the bytes of the last READ or WRITE, or of the first, if the policy chooses them.
    pub(super) fn block(&self) -> Option<u32> {
        match self {
            Self::Connection | Self::Timers(_) => None,
            Self::Adaptive(adaptive) => adaptive.block(),
        }
    }

    /// The server takes at most so many bytes per READ and WRITE.
    pub(super) const fn bound_blocks(&mut self, largest: u32) {
        match self {
            Self::Connection | Self::Timers(_) => {}
            Self::Adaptive(adaptive) => adaptive.bound_blocks(largest),
        }
    }

    /// Returns the policy that learns about the path, if it is in use.
    pub(super) fn adaptive(&mut self) -> Option<&mut Adaptive> {
        match self {
            Self::Connection | Self::Timers(_) => None,
            Self::Adaptive(adaptive) => Some(adaptive),
        }
    }

    /// Whether a datagram of so many bytes must not be fragmented.
    pub(super) const fn keeps_whole(&self, bytes: u32) -> bool {
        match self {
            Self::Connection | Self::Timers(_) => false,
            Self::Adaptive(adaptive) => adaptive.keeps_whole(bytes),
        }
    }

    /// Returns how blocks leave.
    pub(super) fn pace(&self) -> Pace {
        match self {
            Self::Connection | Self::Timers(_) => Pace::default(),
            Self::Adaptive(adaptive) => adaptive.pace(),
        }
    }

    /// Returns the path estimate, once something was delivered.
    pub(super) fn path_estimate(&self) -> Option<PathEstimate> {
        match self {
            Self::Connection | Self::Timers(_) => None,
            Self::Adaptive(adaptive) => adaptive.path_estimate(),
        }
    }

    /// A call was sent; whether the order of transmissions matters.
    pub(super) fn handle_sent(
        &mut self,
        now: Instant,
        class: Class,
        bytes: u32,
        alone: bool,
        in_flight: u64,
    ) -> bool {
        let Self::Adaptive(adaptive) = self else { return false };
        adaptive.handle_sent(now, class, bytes, alone, in_flight);
        true
    }

    /// Returns when the probe timeout is over (RFC 9002 §6.2).
    pub(super) fn next_probe(&self) -> Option<Instant> {
        match self {
            Self::Connection | Self::Timers(_) => None,
            Self::Adaptive(adaptive) => adaptive.next_probe(),
        }
    }

    /// Returns when the next READ or WRITE may leave, if not now.
    pub(super) fn paced_until(&self, now: Instant) -> Option<Instant> {
        match self {
            Self::Connection | Self::Timers(_) => None,
            Self::Adaptive(adaptive) => adaptive.paced_until(now),
        }
    }
}
