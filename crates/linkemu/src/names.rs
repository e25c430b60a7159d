//! Names of the choices, as on command lines and in files.

use std::{fmt, str::FromStr};

use crate::{
    ArqKind, ChannelScope, ChannelStart, ConfigError, Duplex, Phase, Probe, Scheduler, Shape, UdpChecksum,
};

macro_rules! names {
    ($type:ident, $field:literal, $expected:literal, $($variant:ident = $name:literal),+) => {
        impl $type {
            /// The name on command lines and in files.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl FromStr for $type {
            type Err = ConfigError;

            fn from_str(text: &str) -> Result<Self, ConfigError> {
                match text {
                    $($name => Ok(Self::$variant),)+
                    _ => Err(ConfigError::malformed($field, text, $expected)),
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

names!(Duplex, "duplex", "half or full", Half = "half", Full = "full");
names!(Phase, "channel.phase", "random or good", Random = "random", Good = "good");
names!(
    ChannelScope,
    "channel.scope",
    "shared, per-direction or per-mobile",
    Shared = "shared",
    PerDirection = "per-direction",
    PerMobile = "per-mobile"
);
names!(
    ChannelStart,
    "start",
    "first-datagram or creation",
    FirstDatagram = "first-datagram",
    Creation = "creation"
);
names!(
    ArqKind,
    "arq.kind",
    "none, ideal, stop-and-wait, rts-cts or selective-repeat",
    None = "none",
    Ideal = "ideal",
    StopAndWait = "stop-and-wait",
    RtsCts = "rts-cts",
    SelectiveRepeat = "selective-repeat"
);
names!(Probe, "arq.probe", "rts or off", Rts = "rts", Off = "off");
names!(
    Scheduler,
    "queue.scheduler",
    "fifo, round-robin-frame, round-robin-datagram or channel-state",
    Fifo = "fifo",
    RoundRobinFrame = "round-robin-frame",
    RoundRobinDatagram = "round-robin-datagram",
    ChannelState = "channel-state"
);
names!(UdpChecksum, "reassembly.checksum", "verified or off", Verified = "verified", Off = "off");

impl FromStr for Shape {
    type Err = ConfigError;

    /// Reads `uniform`, `exponential`, `deterministic`, `pareto:EXPONENT` or `log-normal:SIGMA`.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let bad = || {
            let expected = "uniform, exponential, deterministic, pareto:EXPONENT or log-normal:SIGMA";
            ConfigError::malformed("channel.distribution", text, expected)
        };
        let (name, number) = text.split_once(':').map_or((text, None), |(name, number)| (name, Some(number)));
        let number = number.map(|number| number.parse::<f64>().map_err(|_| bad())).transpose()?;
        match (name, number) {
            ("uniform", None) => Ok(Self::Uniform),
            ("exponential", None) => Ok(Self::Exponential),
            ("deterministic", None) => Ok(Self::Deterministic),
            ("pareto", Some(exponent)) => Ok(Self::Pareto(exponent)),
            ("log-normal", Some(sigma)) => Ok(Self::LogNormal(sigma)),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Exponential => f.write_str("exponential"),
            Self::Deterministic => f.write_str("deterministic"),
            Self::Pareto(exponent) => write!(f, "pareto:{exponent}"),
            Self::LogNormal(sigma) => write!(f, "log-normal:{sigma}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for kind in ["none", "ideal", "stop-and-wait", "rts-cts", "selective-repeat"] {
            assert_eq!(kind.parse::<ArqKind>().map(ArqKind::name), Ok(kind));
        }
        for shape in ["uniform", "exponential", "deterministic", "pareto:2.5", "log-normal:1.89"] {
            assert_eq!(shape.parse::<Shape>().map(|shape| shape.to_string()), Ok(shape.to_owned()));
        }
        for bad in ["pareto", "uniform:3", "log-normal:x", ""] {
            assert!(bad.parse::<Shape>().is_err(), "{bad}");
        }
        let error = "wifi".parse::<ArqKind>().expect_err("no such protocol").to_string();
        assert!(error.contains("arq.kind") && error.contains("selective-repeat"), "{error}");
    }
}
