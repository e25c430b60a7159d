//! The line of the bar, for a terminal of any width.

use std::time::Duration;

use crate::{color::Style, text::cut, units};

/// What the line tells.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    /// File bytes that are at their destination, those of interrupted runs among them.
    pub(super) bytes: u64,
    /// File bytes that are to be there, as far as known; 0 if nothing is.
    pub(super) expected: u64,
    /// Files that are done, and files in all.
    pub(super) files: (u64, u64),
    /// Bytes a second while something moves; `None` while copies are only compared.
    pub(super) rate: Option<f64>,
    /// How long the rest will take.
    pub(super) left: Option<Duration>,
    /// Why nothing moves.
    pub(super) trouble: Option<String>,
    /// In which of the last seconds the server did not respond, if it did not in any.
    pub(super) strip: Option<String>,
    /// Median round trip.
    pub(super) rtt: Option<Duration>,
    /// Share of the attempts that were retransmissions.
    pub(super) retransmitted: Option<f64>,
    /// What is being done with which file.
    pub(super) current: Option<String>,
}

/// Columns between two parts.
const GAP: usize = 2;

/// The place of the rate, or of what is wrong, among the parts.
const RATE: usize = 3;

/// Columns of the bar with its ends, at least and at most.
const BAR: (usize, usize) = (12, 32);

/// Columns of a file's name, at least.
const NAME: usize = 12;

impl Told {
    /// Words it in so many columns: what matters less is left out where there is no room.
    pub(super) fn fit(&self, width: usize) -> Line {
        let share = (self.expected > 0).then(|| (self.bytes as f64 / self.expected as f64).min(1.0));
        let percent = share.map(|share| format!("{:.0} %", (share * 100.0).floor()));
        let amount = match self.expected {
            0 => units::bytes(self.bytes),
            expected => format!("{} of {}", units::bytes(self.bytes), units::bytes(expected)),
        };
        let (rate, left) = match &self.trouble {
            Some(trouble) => (trouble.clone(), None),
            None => match self.rate {
                Some(rate) => (format!("{}/s", units::bytes(rate as u64)), self.left),
                None => ("verifying".to_owned(), None),
            },
        };
        let left = left.map(|left| format!("{} left", units::whole_seconds(left)));
        let files = (self.files.1 > 1).then(|| format!("{}/{} files", self.files.0, self.files.1));
        let rtt = self.rtt.map(|rtt| format!("RTT {:.1} ms", rtt.as_secs_f64() * 1e3));
        let retransmitted = self.retransmitted.map(|share| format!("{:.1} % retransmitted", share * 100.0));
        // In the order in which they stand; the numbers say which ones go first where there is room.
        let parts = [
            (1, percent),
            (3, Some(amount)),
            (5, files),
            (2, Some(rate)),
            (4, left),
            (6, self.strip.clone()),
            (7, rtt),
            (8, retransmitted),
        ];
        let mut by_weight: Vec<_> = parts
            .iter()
            .enumerate()
            .filter_map(|(at, (weight, text))| Some((weight, at, text.as_ref()?)))
            .collect();
        by_weight.sort_unstable();
        let (mut kept, mut used) = (Vec::new(), 0);
        for (_, at, text) in by_weight {
            let more = text.chars().count() + if kept.is_empty() { 0 } else { GAP };
            if used + more <= width {
                used += more;
                kept.push((at, text.clone()));
            }
        }
        kept.sort_unstable();
        let is_trouble = |at: usize| at == RATE && self.trouble.is_some();
        let style = |at| if is_trouble(at) { Style::Warning } else { Style::Plain };
        let mut words: Vec<(Style, String)> = kept.into_iter().map(|(at, text)| (style(at), text)).collect();
        let mut room = width.saturating_sub(used);
        if let Some(current) = self.current.as_ref().filter(|_| room >= NAME + GAP + BAR.0 + GAP) {
            let most = room - GAP - (BAR.0 + GAP);
            let shown = cut(current, most);
            room -= shown.chars().count() + GAP;
            words.push((Style::Plain, shown));
        }
        if let Some(share) = share.filter(|_| room >= BAR.0 + GAP) {
            words.insert(0, (Style::Good, bar(share, (room - GAP).min(BAR.1))));
        }
        Line { words }
    }
}

/// The line of the bar.
#[derive(Debug)]
pub(crate) struct Line {
    words: Vec<(Style, String)>,
}

impl Line {
    /// Shows a text in so many columns.
    pub(crate) fn plain(text: String, width: usize) -> Self {
        let text = if text.chars().count() > width { cut(&text, width) } else { text };
        Self { words: vec![(Style::Plain, text)] }
    }

    /// Returns the line as a terminal shows it, with or without colours.
    pub(crate) fn painted(&self, color: bool) -> String {
        let words: Vec<_> = self.words.iter().map(|(style, text)| style.paint(text, color)).collect();
        words.join("  ")
    }
}

/// Draws a share in so many columns.
fn bar(share: f64, columns: usize) -> String {
    let inner = columns - 2;
    let full = ((share * inner as f64) as usize).min(inner);
    let head = if full < inner { ">" } else { "" };
    format!("[{:<inner$}]", "=".repeat(full) + head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told() -> Told {
        Told {
            bytes: 2 << 20,
            expected: 10 << 20,
            files: (3, 12),
            rate: Some(f64::from(2 << 20)),
            left: Some(Duration::from_secs(5)),
            trouble: None,
            strip: None,
            rtt: Some(Duration::from_millis(12)),
            retransmitted: Some(0.01),
            current: Some("photos/2026/summer/cat.jpg".to_owned()),
        }
    }

    #[test]
    fn the_line_fits_any_width() {
        let lines: Vec<String> =
            [10, 20, 40, 60, 80, 120, 200].map(|width| told().fit(width).painted(false)).to_vec();
        let wanted = [
            "20 %",
            "20 %  2.0 MiB/s",
            "20 %  2.0 MiB of 10 MiB  2.0 MiB/s",
            "20 %  2.0 MiB of 10 MiB  3/12 files  2.0 MiB/s  5 s left",
            "20 %  2.0 MiB of 10 MiB  3/12 files  2.0 MiB/s  5 s left  RTT 12.0 ms",
            "[==>       ]  20 %  2.0 MiB of 10 MiB  3/12 files  2.0 MiB/s  5 s left  RTT 12.0 ms  1.0 % retransmitted  photos...t.jpg",
            "[======>                       ]  20 %  2.0 MiB of 10 MiB  3/12 files  2.0 MiB/s  5 s left  RTT 12.0 ms  1.0 % retransmitted  \
             photos/2026/summer/cat.jpg",
        ];
        assert_eq!(lines, wanted);
        for width in 0..250 {
            let mut told = told();
            assert!(told.fit(width).painted(false).chars().count() <= width, "{width}");
            told.trouble = Some("server slow (RTT 2.1 s): no progress for 5 s".to_owned());
            assert!(told.fit(width).painted(false).chars().count() <= width, "{width}");
        }
    }

    #[test]
    fn seconds_of_silence_outweigh_the_numbers_of_the_link() {
        let told = Told { strip: Some("link [#####..###]".to_owned()), files: (0, 1), ..told() };
        assert_eq!(
            told.fit(80).painted(false),
            "20 %  2.0 MiB of 10 MiB  2.0 MiB/s  5 s left  link [#####..###]  RTT 12.0 ms"
        );
        assert_eq!(
            told.fit(70).painted(false),
            "20 %  2.0 MiB of 10 MiB  2.0 MiB/s  5 s left  link [#####..###]"
        );
    }

    #[test]
    fn a_bar_is_full_at_the_end_only() {
        assert_eq!(bar(0.0, 12), "[>         ]");
        assert_eq!(bar(0.999, 12), "[=========>]");
        assert_eq!(bar(1.0, 12), "[==========]");
        let done = Told { bytes: 999, expected: 1000, ..told() };
        assert!(done.fit(80).painted(false).contains("99 %"), "nothing is complete before it is");
    }

    #[test]
    fn trouble_stands_in_the_place_of_the_rate() {
        let told = Told { trouble: Some("link down for 4 s".to_owned()), ..told() };
        let [narrow, wide] = [80, 200].map(|width| told.fit(width).painted(false));
        assert!(narrow.contains("link down for 4 s") && !wide.contains("left"));
    }
}
