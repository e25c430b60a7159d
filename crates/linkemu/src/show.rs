//! The channel of a seed, for people: periods, what they imply, and a plot.

use std::{
    fmt::{self, Write as _},
    time::Duration,
};

use crate::{
    Channel, ChannelScope, ChannelState, ConfigError, LinkConfig, Period, Periods, Shape, config::Lengths,
};

/// Periods listed at most; the totals cover all of the time asked for.
const LISTED: usize = 10_000;
/// Columns of a plot.
const COLUMNS: usize = 100;
/// Rows of a plot at most.
const ROWS: u32 = 30;

/// What a seed makes of a channel in some time, and what its distribution implies in the long run.
///
/// [`fmt::Display`] gives the report for a terminal; [`ChannelReport::to_json`] one JSON object.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChannelReport {
    /// The seed.
    pub seed: u64,
    /// The time covered, from channel time 0.
    pub length: Duration,
    /// The first 10,000 periods.
    pub periods: Vec<Period>,
    /// The share of the time that is good.
    pub good_share: f64,
    /// Bad periods that begin in or reach into the time.
    pub bad_periods: u64,
    /// The share of time that is bad in the long run, from the means; `None` for a trace.
    pub implied_bad_share: Option<f64>,
    /// The share of full frames that touch a bad period in the long run; `None` for a trace.
    pub implied_frame_loss: Option<f64>,
    /// Full frames, back to back, in a bad period of mean length; `None` for a trace, or a link without a rate.
    pub mean_run_frames: Option<f64>,
    /// One line per channel of rows of `#` (good), `.` (bad) and `+` (both).
    plot: Vec<String>,
    row: Duration,
    scope: ChannelScope,
    link: u32,
}

impl ChannelReport {
    /// The channel number `link` of `seed` (see [`Channel::new`]) over `length`.
    ///
    /// # Errors
    /// [`ConfigError`] if the link is out of bounds, or `length` is zero or more than 1000 hours.
    pub fn new(config: &LinkConfig, seed: u64, link: u32, length: Duration) -> Result<Self, ConfigError> {
        config.validate()?;
        let longest = Duration::from_secs(1000 * 3600);
        if length.is_zero() || length > longest {
            return Err(ConfigError::out_of_range(
                "length",
                format!("{length:?}"),
                format!("more than 0 and at most {longest:?}"),
            ));
        }
        let mut channel = Channel::new(&config.channel, seed, link)?;
        let good = channel.good_time(Duration::ZERO, length);
        let bad_periods = channel.bad_periods(Duration::ZERO, length);
        let row = row_length(length);
        let plot = plot(&mut channel, length, row);
        let mut periods = Vec::new();
        let mut at = Duration::ZERO;
        while at < length && periods.len() < LISTED {
            let end = channel.next_edge(at).unwrap_or(length).min(length);
            periods.extend(channel.periods(at, end));
            at = end;
        }
        let frame = Duration::from_nanos(config.full_frame_nanos());
        Ok(Self {
            seed,
            length,
            periods,
            good_share: good.as_secs_f64() / length.as_secs_f64(),
            bad_periods,
            implied_bad_share: implied(config, Duration::ZERO),
            implied_frame_loss: implied(config, frame),
            mean_run_frames: match &config.channel.periods {
                Periods::Drawn { bad, .. } if !frame.is_zero() => {
                    Some(bad.mean.as_secs_f64() / frame.as_secs_f64())
                }
                Periods::Drawn { .. } | Periods::AlwaysGood | Periods::Trace(_) => None,
            },
            plot,
            row,
            scope: config.channel.scope,
            link,
        })
    }

    /// The report as one JSON object; periods are `[start_s, end_s, state]`.
    pub fn to_json(&self) -> String {
        let number =
            |value: Option<f64>| value.map_or_else(|| "null".to_owned(), |value| format!("{value:.6}"));
        let mut json = format!(
            "{{\"seed\":{},\"link\":{},\"length_s\":{:.6},\"good_share\":{:.6},\"bad_periods\":{},\
             \"implied_bad_share\":{},\"implied_frame_loss\":{},\"mean_run_frames\":{},\"periods\":[",
            self.seed,
            self.link,
            self.length.as_secs_f64(),
            self.good_share,
            self.bad_periods,
            number(self.implied_bad_share),
            number(self.implied_frame_loss),
            number(self.mean_run_frames),
        );
        for (index, period) in self.periods.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(
                json,
                "{comma}[{:.6},{:.6},\"{}\"]",
                period.start.as_secs_f64(),
                period.end.as_secs_f64(),
                period.state.name(),
            );
        }
        json.push_str("]}");
        json
    }
}

impl fmt::Display for ChannelReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scope = match self.scope {
            ChannelScope::Shared => "shared by all".to_owned(),
            ChannelScope::PerDirection if self.link == 0 => "down".to_owned(),
            ChannelScope::PerDirection => "up".to_owned(),
            ChannelScope::PerMobile => format!("mobile {}", self.link),
        };
        writeln!(f, "seed {}, channel {} ({scope}), {:?}", self.seed, self.link, self.length)?;
        writeln!(
            f,
            "  this seed  good {:.2}% of the time, {} bad periods",
            100.0 * self.good_share,
            self.bad_periods,
        )?;
        if let (Some(bad), Some(frames)) = (self.implied_bad_share, self.implied_frame_loss) {
            write!(
                f,
                "  implied    bad {:.2}% of the time, {:.2}% of full frames",
                100.0 * bad,
                100.0 * frames
            )?;
            match self.mean_run_frames {
                Some(run) => writeln!(f, ", mean bad period {run:.1} full frames long")?,
                None => writeln!(f)?,
            }
        }
        writeln!(f, "  # good, . bad, + both; a row is {:?}", self.row)?;
        for (index, line) in self.plot.iter().enumerate() {
            writeln!(f, "{:>9.3} s {line}", (self.row * index as u32).as_secs_f64())?;
        }
        Ok(())
    }
}

/// A round row length that gives at most 30 rows.
fn row_length(length: Duration) -> Duration {
    let mut row = Duration::from_secs(1);
    for factor in [2, 5, 2].into_iter().cycle() {
        if row * ROWS >= length {
            break;
        }
        row = if factor == 5 { row * 5 / 2 } else { row * 2 };
    }
    row
}

fn plot(channel: &mut Channel, length: Duration, row: Duration) -> Vec<String> {
    let cell = row / COLUMNS as u32;
    let mut lines = Vec::new();
    let mut at = Duration::ZERO;
    while at < length {
        let mut line = String::with_capacity(COLUMNS);
        for _ in 0..COLUMNS {
            if at >= length {
                break;
            }
            let end = at + cell;
            let state = channel.state(at);
            let whole = channel.next_edge(at).is_none_or(|edge| edge >= end);
            line.push(match (whole, state) {
                (true, ChannelState::Good) => '#',
                (true, ChannelState::Bad) => '.',
                (false, _) => '+',
            });
            at = end;
        }
        lines.push(line);
    }
    lines
}

/// The share of frames of air time `frame` that touch a bad period: `1 - E[(G - frame)+] / (E[G] + E[B])`.
fn implied(config: &LinkConfig, frame: Duration) -> Option<f64> {
    match &config.channel.periods {
        Periods::AlwaysGood => Some(0.0),
        Periods::Trace(_) => None,
        Periods::Drawn { bad, .. } if bad.mean.is_zero() => Some(0.0),
        Periods::Drawn { good, bad } => {
            let cycle = good.mean.as_secs_f64() + bad.mean.as_secs_f64();
            Some(1.0 - excess(*good, frame.as_secs_f64()) / cycle)
        }
    }
}

/// E[(G - f)+] in seconds.
fn excess(lengths: Lengths, f: f64) -> f64 {
    let mean = lengths.mean.as_secs_f64();
    if f <= 0.0 {
        return mean;
    }
    match lengths.shape {
        Shape::Uniform => (2.0 * mean - f).max(0.0).powi(2) / (4.0 * mean),
        Shape::Exponential => mean * (-f / mean).exp(),
        Shape::Deterministic => (mean - f).max(0.0),
        Shape::Pareto(exponent) => {
            let scale = mean * (exponent - 1.0) / exponent;
            if f <= scale { mean - f } else { f * (scale / f).powf(exponent) / (exponent - 1.0) }
        }
        Shape::LogNormal(sigma) => {
            let mu = mean.ln() - sigma * sigma / 2.0;
            let d = (mu - f.ln()) / sigma;
            mean * normal(d + sigma) - f * normal(d)
        }
    }
}

/// The normal distribution function, to 1e-7 (Abramowitz and Stegun 7.1.26).
fn normal(x: f64) -> f64 {
    let z = x.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let series = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let tail =
        series.into_iter().fold(0.0, |sum, coefficient| (sum + coefficient) * t) * (-z * z).exp() / 2.0;
    if x < 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChannelConfig, ChannelTrace, Preset};

    #[test]
    fn the_plot_shows_the_periods() {
        let mut config = LinkConfig::default();
        config.channel.periods =
            Periods::Trace(ChannelTrace::parse("0,good\n200,bad\n255,good\n").expect("valid"));
        let report = ChannelReport::new(&config, 1, 0, Duration::from_secs(1)).expect("a report");
        let text = report.to_string();
        let row = format!("    0.000 s {}.....+{}\n", "#".repeat(20), "#".repeat(74));
        assert!(text.ends_with(&row), "{text}");
        assert!(text.contains("good 94.50% of the time, 1 bad periods"), "{text}");
        assert!(report.to_json().ends_with(
            "\"periods\":[[0.000000,0.200000,\"good\"],[0.200000,0.255000,\"bad\"],[0.255000,1.000000,\"good\"]]}"
        ));
    }

    #[test]
    fn implied_loss_matches_the_formula_for_the_papers_channel() {
        let mut config = Preset::named("paper-1997").expect("a preset").config();
        config.channel.set_bad_mean(Duration::from_millis(80));
        let report = ChannelReport::new(&config, 1, 0, Duration::from_secs(10)).expect("a report");
        let close =
            |value: Option<f64>, expected: f64| value.is_some_and(|value| (value - expected).abs() < 1e-9);
        assert!(close(report.implied_bad_share, 0.08 / 1.08));
        let frame: f64 = 1518.0 * 8e-6;
        assert!(close(report.implied_frame_loss, 1.0 - (2.0 - frame).powi(2) / 4.0 / 1.08));
        assert!(close(report.mean_run_frames, 0.08 / frame));
    }

    #[test]
    fn implied_excess_agrees_with_integration() {
        // E[(G - f)+] is the integral of the survival function beyond f, here summed from draws of the channel itself.
        for shape in [Shape::Exponential, Shape::Pareto(2.5), Shape::LogNormal(0.7)] {
            let lengths = Lengths::new(shape, Duration::from_millis(100));
            let mut config = ChannelConfig::alternating(shape, lengths.mean, Duration::from_millis(10));
            config.phase = crate::Phase::Good;
            let mut channel = Channel::new(&config, 2, 0).expect("a valid channel");
            let (mut at, mut sum, mut squares, count) = (Duration::ZERO, 0.0, 0.0, 200_000);
            for _ in 0..count {
                if channel.state(at) == ChannelState::Bad {
                    at = channel.next_edge(at).expect("periods alternate");
                }
                let end = channel.next_edge(at).expect("periods alternate");
                let over = ((end - at).as_secs_f64() - 0.08).max(0.0);
                sum += over;
                squares += over * over;
                at = end;
            }
            let mean = sum / f64::from(count);
            let bound = 5.0 * ((squares / f64::from(count) - mean * mean) / f64::from(count)).sqrt();
            assert!((mean - excess(lengths, 0.08)).abs() < bound, "{shape:?}: {mean}");
        }
    }

    #[test]
    fn every_preset_can_be_shown() {
        for preset in Preset::ALL {
            let report =
                ChannelReport::new(&preset.config(), 1, 0, Duration::from_secs(60)).expect(preset.name);
            assert!(report.to_string().lines().count() >= 30, "{}", preset.name);
        }
        let error = ChannelReport::new(&LinkConfig::default(), 1, 0, Duration::ZERO).expect_err("no length");
        assert!(error.to_string().contains("length"), "{error}");
    }
}
