//! Recorded periods.

use std::{sync::Arc, time::Duration};

use super::{ChannelState, Span};
use crate::{
    ConfigError,
    units::{Nanos, nanos, parse_duration},
};

/// A recorded channel: CSV lines `start_ms,state`.
///
/// The first line starts at 0; states alternate between `good` and `bad`. A last line with the state `end` closes the
/// trace, which then repeats; without it the last state holds for ever. Empty lines and lines that begin with `#` are
/// skipped, and so is the heading `start_ms,state`.
///
/// ```
/// let trace = linkemu::ChannelTrace::parse("start_ms,state\n0,good\n950,bad\n1000,end\n")?;
/// assert_eq!(trace.length(), Some(std::time::Duration::from_secs(1)));
/// # Ok::<(), linkemu::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelTrace(Arc<Recorded>);

#[derive(Debug, PartialEq, Eq)]
struct Recorded {
    starts: Vec<(Nanos, ChannelState)>,
    length: Option<Nanos>,
}

impl ChannelTrace {
    /// Reads the CSV form.
    ///
    /// # Errors
    /// [`ConfigError::Trace`] naming the line that does not begin at 0, goes back in time, repeats a state, follows
    /// the end, or is no `start_ms,state` at all.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut starts: Vec<(Nanos, ChannelState)> = Vec::new();
        let mut length = None;
        let mut last_line = 1;
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            let fail = |problem: String| Err(ConfigError::trace(number, problem));
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') || (starts.is_empty() && line == "start_ms,state") {
                continue;
            }
            last_line = number;
            if length.is_some() {
                return fail("a line follows the end of the trace".to_owned());
            }
            let Some((start, state)) = line.split_once(',') else {
                return fail(format!("{line:?} is not start_ms,state"));
            };
            let Ok(start) =
                parse_duration("start_ms", start.trim(), Some(Duration::from_millis(1))).map(nanos)
            else {
                return fail(format!("{start:?} is not a time in milliseconds"));
            };
            match starts.last() {
                None if start != 0 => return fail("a gap: the first period must start at 0".to_owned()),
                Some(&(before, _)) if before >= start => {
                    return fail("the time does not lie after that of the line above".to_owned());
                }
                _ => {}
            }
            let state = match state.trim() {
                "good" => ChannelState::Good,
                "bad" => ChannelState::Bad,
                "end" if !starts.is_empty() => {
                    length = Some(start);
                    continue;
                }
                other => return fail(format!("{other:?} is neither good, bad nor, after a period, end")),
            };
            if starts.last().is_some_and(|&(_, before)| before == state) {
                return fail(format!("a gap: {} follows {}, an edge is missing", state.name(), state.name()));
            }
            starts.push((start, state));
        }
        if starts.is_empty() {
            return Err(ConfigError::trace(last_line, "the trace has no periods"));
        }
        if starts.len() == 1 && length.is_some() {
            return Err(ConfigError::trace(last_line, "a trace that repeats needs a good and a bad period"));
        }
        Ok(Self(Arc::new(Recorded { starts, length })))
    }

    /// How long the trace is before it repeats; `None` if its last state holds for ever.
    pub fn length(&self) -> Option<Duration> {
        self.0.length.map(Duration::from_nanos)
    }

    pub(super) fn span(&self, time: Nanos) -> Span {
        let starts = &self.0.starts;
        let base = self.0.length.map_or(0, |length| time - time % length);
        let after = starts.partition_point(|&(start, _)| start <= time - base);
        // The first period starts at 0, so `after` is at least 1.
        let (start, state) = starts[after - 1];
        let end = match (starts.get(after), self.0.length) {
            (Some(&(end, _)), _) | (None, Some(end)) => base.saturating_add(end),
            (None, None) => Nanos::MAX,
        };
        Span { state, start: base + start, end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_repeats_after_its_end() {
        let trace = ChannelTrace::parse("0,good\n10,bad\n15.5,end\n").expect("a valid trace");
        let at = |micros: Nanos| trace.span(micros * 1000);
        assert_eq!(at(9_999).state, ChannelState::Good);
        assert_eq!(at(10_000).state, ChannelState::Bad);
        let second = at(15_500);
        assert_eq!((second.state, second.start, second.end), (ChannelState::Good, 15_500_000, 25_500_000));
        assert_eq!(at(15_500 * 1000 + 12_000).state, ChannelState::Bad);
    }

    #[test]
    fn without_an_end_the_last_state_holds() {
        let trace = ChannelTrace::parse("0,bad\n5,good\n").expect("a valid trace");
        assert_eq!(trace.span(u64::MAX - 1).state, ChannelState::Good);
        assert_eq!(trace.length(), None);
    }

    #[test]
    fn bad_traces_name_the_line_and_the_problem() {
        for (text, line, word) in [
            ("5,good\n", 1, "gap"),
            ("0,good\n10,bad\n9,good\n", 3, "after"),
            ("0,good\n10,good\n", 2, "gap"),
            ("start_ms,state\n0,good\nxyz\n", 3, "start_ms,state"),
            ("0,good\nten,bad\n", 2, "milliseconds"),
            ("0,fine\n", 1, "neither"),
            ("0,good\n5,end\n6,bad\n", 3, "follows the end"),
            ("\n# nothing\n", 1, "no periods"),
            ("0,good\n5,end\n", 2, "needs"),
        ] {
            let message = ChannelTrace::parse(text).expect_err(text).to_string();
            assert!(message.starts_with(&format!("trace line {line}:")), "{text:?}: {message}");
            assert!(message.contains(word), "{text:?}: {message}");
        }
    }
}
