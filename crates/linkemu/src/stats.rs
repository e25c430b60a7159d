//! Counters, by cause.

use std::{fmt::Write, time::Duration};

use crate::Fate;

/// What has passed a link so far. A copy; it does not change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Datagrams offered.
    pub datagrams: u64,
    /// UDP payload bytes offered.
    pub payload_bytes: u64,
    /// Datagrams whose fate is settled, by [`Fate`].
    fates: [u64; Fate::ALL.len()],
    /// UDP payload bytes delivered.
    pub delivered_bytes: u64,
    /// Frames that reached a queue before the medium, refused ones included.
    pub frames: u64,
    /// Frames put on the air, repeats included.
    pub transmissions: u64,
    /// Of these, repeats.
    pub repeats: u64,
    /// Of these, frames that the channel took.
    pub frames_lost: u64,
    /// Frames that ideal ARQ held until the end of a bad period.
    pub frames_held: u64,
    /// Frames received again, and removed by the link layer.
    pub duplicates: u64,
    /// Acknowledgements, RTS, CTS and requests put on the air.
    pub control: u64,
    /// Of these, taken by the channel.
    pub control_lost: u64,
    /// Attempts that brought no answer.
    pub failed_attempts: u64,
    /// Packets whose headers were compressed.
    pub headers_compressed: u64,
    /// Bytes that this saved, each packet counted once; packets that announce a header to be remembered cost some.
    pub header_bytes_saved: u64,
    /// Wrongly joined datagrams that the receiver's checksum caught.
    pub splices_caught: u64,
    /// Wrongly joined datagrams that were delivered.
    pub splices_delivered: u64,
    /// Air time of frames.
    pub air_data: Duration,
    /// Air time of acknowledgements, RTS, CTS and requests.
    pub air_control: Duration,
}

impl Stats {
    /// Datagrams that ended this way.
    pub const fn fate(&self, fate: Fate) -> u64 {
        self.fates[fate as usize]
    }

    /// Datagrams delivered.
    pub const fn delivered(&self) -> u64 {
        self.fate(Fate::Delivered)
    }

    /// Datagrams lost, for whatever cause.
    pub fn lost(&self) -> u64 {
        self.settled() - self.delivered()
    }

    /// Datagrams whose fate is settled.
    pub fn settled(&self) -> u64 {
        self.fates.iter().sum()
    }

    /// Datagrams whose fate is open.
    pub fn under_way(&self) -> u64 {
        self.datagrams - self.settled()
    }

    pub(crate) const fn count(&mut self, fate: Fate) {
        self.fates[fate as usize] += 1;
    }

    /// The counters as one JSON object.
    pub fn to_json(&self) -> String {
        let mut json = String::from("{");
        let mut number = |name: &str, value: u64| {
            let _ = write!(json, "\"{name}\":{value},");
        };
        number("datagrams", self.datagrams);
        number("payload_bytes", self.payload_bytes);
        number("delivered_bytes", self.delivered_bytes);
        number("frames", self.frames);
        number("transmissions", self.transmissions);
        number("repeats", self.repeats);
        number("frames_lost", self.frames_lost);
        number("frames_held", self.frames_held);
        number("duplicates", self.duplicates);
        number("control", self.control);
        number("control_lost", self.control_lost);
        number("failed_attempts", self.failed_attempts);
        number("headers_compressed", self.headers_compressed);
        number("header_bytes_saved", self.header_bytes_saved);
        number("splices_caught", self.splices_caught);
        number("splices_delivered", self.splices_delivered);
        let _ = write!(
            json,
            "\"air_data_s\":{:.6},\"air_control_s\":{:.6},\"under_way\":{},\"fates\":{{",
            self.air_data.as_secs_f64(),
            self.air_control.as_secs_f64(),
            self.under_way(),
        );
        for (index, fate) in Fate::ALL.into_iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(json, "{comma}\"{}\":{}", fate.name(), self.fate(fate));
        }
        json.push_str("}}");
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_names_every_fate() {
        let mut stats = Stats { datagrams: 3, ..Stats::default() };
        stats.count(Fate::Channel);
        stats.count(Fate::Delivered);
        assert_eq!((stats.delivered(), stats.lost(), stats.under_way()), (1, 1, 1));
        let json = stats.to_json();
        assert!(json.starts_with("{\"datagrams\":3,") && json.ends_with("}}"), "{json}");
        for fate in Fate::ALL {
            assert!(json.contains(&format!("\"{}\":", fate.name())), "{json}");
        }
    }
}
