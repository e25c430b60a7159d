//! How much later than computed datagrams leave.

use std::{fmt::Write as _, time::Duration};

/// Width of a bin.
const BIN_MICROS: usize = 10;
/// Bins: up to 50 ms.
const BINS: usize = 5000;

/// A histogram of lateness, in bins of 10 µs up to 50 ms.
#[derive(Clone, PartialEq, Eq)]
pub struct Lateness {
    bins: Vec<u64>,
    count: u64,
    most: Duration,
}

impl Default for Lateness {
    fn default() -> Self {
        Self { bins: vec![0; BINS + 1], count: 0, most: Duration::ZERO }
    }
}

impl Lateness {
    pub(crate) fn record(&mut self, late: Duration) {
        let bin = (late.as_micros() as usize / BIN_MICROS).min(BINS);
        self.bins[bin] += 1;
        self.count += 1;
        self.most = self.most.max(late);
    }

    /// Datagrams counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The largest lateness.
    pub fn most(&self) -> Duration {
        self.most
    }

    /// The lateness that `share` (0 to 1) of all datagrams do not exceed, rounded up to 10 µs.
    pub fn quantile(&self, share: f64) -> Duration {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bin, &count) in self.bins.iter().enumerate().take(BINS) {
            seen += count;
            if seen >= wanted {
                return Duration::from_micros(((bin + 1) * BIN_MICROS) as u64).min(self.most);
            }
        }
        self.most
    }

    /// The count and some quantiles as one JSON object.
    pub fn to_json(&self) -> String {
        let mut json = format!("{{\"count\":{}", self.count);
        for (name, share) in [("p50_ms", 0.5), ("p99_ms", 0.99), ("max_ms", 1.0)] {
            let _ = write!(json, ",\"{name}\":{:.3}", self.quantile(share).as_secs_f64() * 1e3);
        }
        json.push('}');
        json
    }
}

impl std::fmt::Debug for Lateness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lateness")
            .field("count", &self.count)
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("most", &self.most)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_rounded_up_to_their_bin() {
        let mut lateness = Lateness::default();
        for micros in 1..=1000 {
            lateness.record(Duration::from_micros(micros));
        }
        lateness.record(Duration::from_secs(1));
        assert_eq!(lateness.quantile(0.5), Duration::from_micros(510));
        assert_eq!(lateness.quantile(0.99), Duration::from_micros(1000));
        assert_eq!(lateness.quantile(1.0), Duration::from_secs(1));
        assert_eq!(lateness.count(), 1001);
    }
}
