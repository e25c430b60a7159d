//! The strip of the last seconds: in which ones the server answered, and in which ones it did not.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::LinkState;

/// Seconds that are shown.
const CELLS: usize = 10;

/// How long each is.
const CELL: Duration = Duration::from_secs(1);

/// What one second was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Cell {
    /// Nothing was asked, or it is not yet time for an answer.
    #[default]
    Idle,
    Answered,
    Silent,
}

/// What the last seconds were.
#[derive(Debug)]
pub(super) struct Strip {
    cells: VecDeque<Cell>,
    /// The second that is not over.
    current: Cell,
    began: Instant,
}

impl Strip {
    pub(super) fn new(now: Instant) -> Self {
        Self { cells: VecDeque::new(), current: Cell::Idle, began: now }
    }

    /// Takes in the state at a moment: whether replies have come, and when the last one came.
    pub(super) fn update(&mut self, now: Instant, has_answered: bool, answered: Instant, link: LinkState) {
        // On a long path it is no bad sign that nothing comes for a round trip.
        let due = CELL / 2 + link.rtt.unwrap_or_default();
        if has_answered {
            self.current = Cell::Answered;
        } else if self.current == Cell::Idle && link.outstanding > 0 && now.duration_since(answered) > due {
            self.current = Cell::Silent;
        }
        let over = now.duration_since(self.began).as_secs();
        self.began += CELL * u32::try_from(over).unwrap_or(u32::MAX);
        for _ in 0..over.min(CELLS as u64) {
            self.cells.push_back(std::mem::take(&mut self.current));
            if self.cells.len() > CELLS {
                self.cells.pop_front();
            }
        }
    }

    /// Shows it, if the server was silent in one of the seconds.
    pub(super) fn words(&self) -> Option<String> {
        self.cells.contains(&Cell::Silent).then(|| {
            let cells: String = self
                .cells
                .iter()
                .map(|cell| match cell {
                    Cell::Idle => ' ',
                    Cell::Answered => '#',
                    Cell::Silent => '.',
                })
                .collect();
            format!("link [{cells:>CELLS$}]")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets seconds pass, ten steps each: with answers (#), with calls that wait in vain (.) or with nothing to do (-).
    fn strip(seconds: &str, rtt: Duration) -> Option<String> {
        let mut now = Instant::now();
        let (mut strip, mut answered) = (Strip::new(now), now);
        for second in seconds.chars() {
            for _ in 0..10 {
                now += CELL / 10;
                let link = LinkState {
                    outstanding: usize::from(second != '-'),
                    rtt: Some(rtt),
                    ..LinkState::default()
                };
                if second != '.' {
                    answered = now;
                }
                strip.update(now, second == '#', answered, link);
            }
        }
        strip.words()
    }

    #[test]
    fn silence_is_shown_for_ten_seconds() {
        let near = Duration::from_millis(20);
        assert_eq!(strip("", near), None);
        assert_eq!(strip("####--####", near), None, "nothing was asked");
        assert_eq!(strip("##..#", near).unwrap(), "link [     ##..#]");
        assert_eq!(strip("..-#########", near), None, "too long ago");
        assert_eq!(strip("##..-########", near).unwrap(), "link [. ########]");
    }

    #[test]
    fn a_long_round_trip_is_no_silence() {
        let far = Duration::from_millis(900);
        assert_eq!(strip("##.##", far), None);
        assert_eq!(strip("##..##", far).unwrap(), "link [    ## .##]");
    }
}
