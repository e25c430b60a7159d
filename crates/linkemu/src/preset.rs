//! Links with a name and a source.

use std::{fmt, time::Duration};

use crate::{
    BitRate, ChannelConfig, ConfigError, Duplex, Jitter, JitterSpread, Lengths, LinkConfig, Periods,
    Probability, Rate, Shape, WiredConfig,
};

/// A link with a name and a source.
///
/// ```
/// let config = linkemu::Preset::named("paper-1997")?.config();
/// assert_eq!(config.mtu_bytes, 1500);
/// # Ok::<(), linkemu::ConfigError>(())
/// ```
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Preset {
    /// Its name, as on a command line.
    pub name: &'static str,
    /// What it is.
    pub summary: &'static str,
    /// Where its numbers come from.
    pub source: &'static str,
    build: fn() -> LinkConfig,
}

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 11] = [
        Self {
            name: "paper-1997",
            summary: "1 Mbit/s infrared, half duplex; give the mean bad period, 0 to 160 ms against 1 s of good",
            source: "Dube et al. 1997 §4",
            build: paper_1997,
        },
        Self {
            name: "slip-9600",
            summary: "9.6 kbit/s serial line, 10 bits a byte, MTU 576, 15 packets of queue",
            source: "Bachmann et al. 1993 §1-2",
            build: slip_9600,
        },
        Self {
            name: "bluetooth-1.1",
            summary: "75 kB/s, 27 ms round trip, half duplex",
            source: "Michalakis and Kalofonos 2005 §IV",
            build: bluetooth,
        },
        Self {
            name: "bluetooth-1.1-dark-zone",
            summary: "75 kB/s at the edge of coverage: round trip 220 ms with a standard deviation of 120 ms",
            source: "Michalakis and Kalofonos 2005 §IV; exponential jitter of 85 ms each way chosen to match both numbers",
            build: dark_zone,
        },
        Self {
            name: "802.11b",
            summary: "5 Mbit/s of 802.11b, 4 ms round trip, half duplex",
            source: "Michalakis and Kalofonos 2005 §IV",
            build: wifi_b,
        },
        Self {
            name: "wifi-54",
            summary: "54 Mbit/s wireless LAN, bursts of 5 ms, 1% of the time unless a loss is given",
            source: "chosen: the nominal rate of 802.11g",
            build: wifi_54,
        },
        Self {
            name: "wifi-edge",
            summary: "12 Mbit/s at the edge of a cell: heavy-tailed bursts, mean 5.4 ms, 5% of the time",
            source: "bursts of da Silva and Pedroso 2022: mean 5.37 packets, deviation 31.68, one packet taken as 1 ms; \
                     a log-normal length with sigma 1.89 has that ratio. Rate and share chosen",
            build: wifi_edge,
        },
        Self {
            name: "lan-50ms",
            summary: "100 Mbit/s with 50 ms round trip, full duplex, bursts of 5 ms, 1% of the time unless a loss is given",
            source: "chosen: a fast path across a continent",
            build: lan_50ms,
        },
        Self {
            name: "satellite-600",
            summary: "20 Mbit/s with 600 ms round trip, full duplex, bursts of 10 ms, 1% unless a loss is given",
            source: "chosen: a geostationary path, 4 x 35,786 km at the speed of light, and its ground stations",
            build: satellite_600,
        },
        Self {
            name: "train",
            summary: "20 Mbit/s cellular with 70 ms round trip, full duplex, and fades of seconds: mean 3 s a minute",
            source: "chosen: cuttings and tunnels of 120 m on average (log-normal, sigma 1) at 40 m/s, one in 2.4 km",
            build: train,
        },
        Self {
            name: "cellular",
            summary: "cellular with a rate that wanders from 0 to 12 Mbit/s, 40 ms round trip, outages of a second, full duplex",
            source: "Winstein, Sivaraman and Balakrishnan, NSDI 2013, section 3.1: sigma 200 packets/s per sqrt(s), outages left \
                     once a second, at most 1000 packets/s. Delay and queue chosen",
            build: cellular,
        },
    ];

    /// The preset of this name.
    ///
    /// # Errors
    /// [`ConfigError::Malformed`] if there is none.
    pub fn named(name: &str) -> Result<Self, ConfigError> {
        Self::ALL.into_iter().find(|preset| preset.name == name).ok_or_else(|| {
            ConfigError::malformed(
                "preset",
                name,
                "paper-1997, slip-9600, bluetooth-1.1, bluetooth-1.1-dark-zone, 802.11b, wifi-54, wifi-edge, lan-50ms, \
                 satellite-600, train or cellular",
            )
        })
    }

    /// The link.
    pub fn config(&self) -> LinkConfig {
        (self.build)()
    }
}

impl fmt::Debug for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Preset").field("name", &self.name).finish_non_exhaustive()
    }
}

fn paper_1997() -> LinkConfig {
    let mut config = LinkConfig::default();
    config.queue.packets = Some(50);
    config.channel = ChannelConfig::alternating(Shape::Uniform, Duration::from_millis(1000), Duration::ZERO);
    config
}

fn slip_9600() -> LinkConfig {
    let mut config = unwired(BitRate::bits(9600), Duration::ZERO, Duplex::Full, 15);
    config.bits_per_byte = 10;
    config.mtu_bytes = 576;
    config.link_header_bytes = 2;
    config
}

fn bluetooth() -> LinkConfig {
    unwired(BitRate::kilobits(600), Duration::from_micros(13_000), Duplex::Half, 50)
}

fn dark_zone() -> LinkConfig {
    let mut config = unwired(BitRate::kilobits(600), Duration::from_millis(25), Duplex::Half, 50);
    config.jitter = Jitter::new(JitterSpread::Exponential(Duration::from_millis(85)));
    config
}

fn wifi_b() -> LinkConfig {
    unwired(BitRate::megabits(5), Duration::from_millis(2), Duplex::Half, 50)
}

fn wifi_54() -> LinkConfig {
    let mut config = unwired(BitRate::megabits(54), Duration::from_micros(1500), Duplex::Half, 450);
    config.wired.delay = Duration::from_millis(1);
    config.channel = bursts(5);
    config
}

fn wifi_edge() -> LinkConfig {
    let mut config = unwired(BitRate::megabits(12), Duration::from_micros(1500), Duplex::Half, 200);
    config.wired.delay = Duration::from_millis(1);
    let bad = Duration::from_micros(5370);
    config.channel.periods = Periods::Drawn {
        good: Lengths::new(Shape::Exponential, bad * 19),
        bad: Lengths::new(Shape::LogNormal(1.89), bad),
    };
    config
}

fn lan_50ms() -> LinkConfig {
    let mut config = unwired(BitRate::megabits(100), Duration::from_millis(24), Duplex::Full, 820);
    config.wired.delay = Duration::from_millis(1);
    config.channel = bursts(5);
    config
}

fn satellite_600() -> LinkConfig {
    let mut config = unwired(BitRate::megabits(20), Duration::from_millis(299), Duplex::Full, 1000);
    config.wired.delay = Duration::from_millis(1);
    config.channel = bursts(10);
    config
}

fn train() -> LinkConfig {
    let mut config = unwired(BitRate::megabits(20), Duration::from_millis(25), Duplex::Full, 400);
    config.wired.delay = Duration::from_millis(10);
    config.channel.periods = Periods::Drawn {
        good: Lengths::new(Shape::Exponential, Duration::from_secs(57)),
        bad: Lengths::new(Shape::LogNormal(1.0), Duration::from_secs(3)),
    };
    config
}

fn cellular() -> LinkConfig {
    let mut config = unwired(BitRate::UNLIMITED, Duration::from_millis(20), Duplex::Full, 250);
    config.rate = Rate::Cellular;
    config
}

/// A link whose wire adds neither delay nor limit.
fn unwired(rate: BitRate, delay: Duration, duplex: Duplex, packets: u32) -> LinkConfig {
    let mut config = LinkConfig {
        rate: rate.into(),
        delay,
        duplex,
        wired: WiredConfig::unlimited(),
        ..LinkConfig::default()
    };
    config.queue.packets = Some(packets);
    config
}

/// Exponential bursts of a mean length for 1% of the time.
fn bursts(bad_ms: u64) -> ChannelConfig {
    let bad = Duration::from_millis(bad_ms);
    ChannelConfig::alternating(Shape::Exponential, bad * 99, bad)
}

/// Changes to the periods, as options on top of a preset. A channel without periods gets those of the papers: uniform,
/// good 1 s, bad none.
impl ChannelConfig {
    /// Sets the mean good period.
    pub fn set_good_mean(&mut self, mean: Duration) {
        self.lengths().0.mean = mean;
    }

    /// Sets the mean bad period.
    pub fn set_bad_mean(&mut self, mean: Duration) {
        self.lengths().1.mean = mean;
    }

    /// Sets the shape of both distributions.
    pub fn set_shape(&mut self, shape: Shape) {
        let (good, bad) = self.lengths();
        good.shape = shape;
        bad.shape = shape;
    }

    /// Sets the mean good period so that `loss` of all time is bad; zero removes the bad periods.
    ///
    /// # Errors
    /// `loss` must be less than 1, and the channel must have bad periods.
    pub fn set_loss(&mut self, loss: Probability) -> Result<(), ConfigError> {
        let (good, bad) = self.lengths();
        if loss == Probability::ZERO {
            bad.mean = Duration::ZERO;
            return Ok(());
        }
        if bad.mean.is_zero() {
            return Err(ConfigError::out_of_range(
                "channel.bad",
                "0 ms",
                "more than 0 ms for a loss to be set",
            ));
        }
        good.mean = Self::good_mean_for(bad.mean, loss)?;
        Ok(())
    }

    fn lengths(&mut self) -> (&mut Lengths, &mut Lengths) {
        if !matches!(self.periods, Periods::Drawn { .. }) {
            self.periods = Periods::Drawn {
                good: Lengths::new(Shape::Uniform, Duration::from_millis(1000)),
                bad: Lengths::new(Shape::Uniform, Duration::ZERO),
            };
        }
        match &mut self.periods {
            Periods::Drawn { good, bad } => (good, bad),
            Periods::AlwaysGood | Periods::Trace(_) => unreachable!("the periods were just set"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_valid_and_has_a_source() {
        for preset in Preset::ALL {
            assert_eq!(preset.config().validate(), Ok(()), "{}", preset.name);
            assert!(!preset.source.is_empty() && !preset.summary.is_empty());
        }
        let error = Preset::named("lte").expect_err("no such preset").to_string();
        assert!(error.contains("preset") && error.contains("lte") && error.contains("paper-1997"), "{error}");
    }

    #[test]
    fn presets_have_the_numbers_of_their_sources() {
        // (name, bit/s, round trip in ms, duplex, queue, mean bad and good in ms)
        for (name, rate, round_trip, duplex, queue, means) in [
            ("paper-1997", 1_000_000, 2.0, Duplex::Half, 50, Some((0.0, 1000.0))),
            ("slip-9600", 9600, 0.0, Duplex::Full, 15, None),
            ("bluetooth-1.1", 600_000, 26.0, Duplex::Half, 50, None),
            ("802.11b", 5_000_000, 4.0, Duplex::Half, 50, None),
            ("wifi-54", 54_000_000, 5.0, Duplex::Half, 450, Some((5.0, 495.0))),
            ("lan-50ms", 100_000_000, 50.0, Duplex::Full, 820, Some((5.0, 495.0))),
            ("satellite-600", 20_000_000, 600.0, Duplex::Full, 1000, Some((10.0, 990.0))),
        ] {
            let config = Preset::named(name).expect(name).config();
            assert_eq!(config.rate.mean().bits_per_second(), rate, "{name}");
            let delays = 2.0 * (config.delay + config.wired.delay).as_secs_f64() * 1e3;
            assert!((delays - round_trip).abs() < 1e-9, "{name}: {delays}");
            assert_eq!((config.duplex, config.queue_packets()), (duplex, queue), "{name}");
            let drawn = match config.channel.periods {
                Periods::Drawn { good, bad } => {
                    Some((bad.mean.as_secs_f64() * 1e3, good.mean.as_secs_f64() * 1e3))
                }
                Periods::AlwaysGood | Periods::Trace(_) => None,
            };
            assert_eq!(drawn, means, "{name}");
        }
        let slip = Preset::named("slip-9600").expect("a preset").config();
        assert_eq!((slip.bits_per_byte, slip.mtu_bytes, slip.link_header_bytes), (10, 576, 2));
        // "a single packet takes 0.6 seconds" (Bachmann et al. 1993 §2): 578 bytes of 10 bits.
        assert_eq!(slip.air_time(576 - 28).as_millis(), 602);
    }

    #[test]
    fn a_loss_sets_the_good_period() {
        let mut channel = bursts(5);
        channel.set_loss("3%".parse().expect("a probability")).expect("bad periods to relate to");
        let Periods::Drawn { good, .. } = channel.periods else { panic!("drawn") };
        assert!((good.mean.as_secs_f64() - 0.005 * 97.0 / 3.0).abs() < 1e-6);
        let mut paper = paper_1997().channel;
        let error = paper.set_loss("3%".parse().expect("a probability")).expect_err("no bad period");
        assert!(error.to_string().contains("channel.bad"), "{error}");
    }
}
