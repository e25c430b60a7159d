//! Quantities as people type and read them: bandwidths, sizes in bytes, times with a unit.

use std::{
    net::{Ipv6Addr, SocketAddr, ToSocketAddrs as _},
    time::Duration,
};

pub(crate) use nfs_files::url::{parse_block, parse_max_block, parse_size};

/// Parses a bandwidth limit as rsync and rclone do, and returns it in bit/s: a bare number counts KiB a second; `K`, `M`, `G` are
/// bytes a second in steps of 1024, `KB`, `MB`, `GB` in steps of 1000; `kbit`, `Mbit`, `Gbit` are bits a second. 0 is no limit.
pub(crate) fn parse_bandwidth(text: &str) -> Result<u64, String> {
    let wrong = || {
        "expected KiB a second (500), bytes a second (500K, 2M, 1.5G) or bits a second (80Mbit)".to_owned()
    };
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let unit = unit.to_ascii_lowercase();
    let unit = unit.strip_suffix("/s").unwrap_or(&unit);
    let bits = match unit {
        "" | "k" | "kib" => 8.0 * 1024.0,
        "b" => 8.0,
        "m" | "mib" => 8.0 * 1024.0 * 1024.0,
        "g" | "gib" => 8.0 * 1024.0 * 1024.0 * 1024.0,
        "kb" => 8e3,
        "mb" => 8e6,
        "gb" => 8e9,
        "bit" => 1.0,
        "kbit" => 1e3,
        "mbit" => 1e6,
        "gbit" => 1e9,
        _ => return Err(wrong()),
    };
    let rate = number * bits;
    let is_possible = rate == 0.0 || (1.0..u64::MAX as f64).contains(&rate);
    if is_possible { Ok(rate as u64) } else { Err(wrong()) }
}

/// Writes a bandwidth limit in bit/s for people: `2.0 MiB/s (16.8 Mbit/s)`.
pub(crate) fn bandwidth(bits: u64) -> String {
    let in_bits = match bits {
        0..1_000 => format!("{bits} bit/s"),
        1_000..1_000_000 => format!("{:.1} kbit/s", bits as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} Mbit/s", bits as f64 / 1e6),
        _ => format!("{:.1} Gbit/s", bits as f64 / 1e9),
    };
    format!("{}/s ({in_bits})", bytes(bits / 8))
}

/// Parses a duration with a unit: `250ms`, `4s`, `1.5m`, `2h`, `1d`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let expected = || "expected a time with its unit, such as 250ms, 4s, 30m or 2h".to_owned();
    if text.parse::<f64>().is_ok_and(|number| number > 0.0) {
        return Err(format!("a time needs its unit: {text}s for seconds, {text}ms for milliseconds"));
    }
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| expected())?;
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        "" if number == 0.0 => 1.0,
        _ => return Err(expected()),
    };
    Duration::try_from_secs_f64(number * seconds).map_err(|_| expected())
}

/// Parses a time that counts seconds if it has no unit, as the `--timeout` of rsync.
///
/// # Errors
/// What a time looks like.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let is_bare = text.ends_with(|last: char| last.is_ascii_digit());
    let parsed = if is_bare { parse_duration(&format!("{text}s")) } else { parse_duration(text) };
    parsed.map_err(|_| "expected a time in seconds (30), or with a unit, such as 250ms, 5m or 2h".to_owned())
}

/// A number, or the word `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AutoOr {
    /// Whatever is best.
    Auto,
    /// This one.
    Exactly(u32),
}

impl AutoOr {
    /// Returns the number, if one was given.
    pub(crate) fn number(self) -> Option<u32> {
        match self {
            Self::Auto => None,
            Self::Exactly(number) => Some(number),
        }
    }

    /// Parses a number of calls, at least 1, or `auto`.
    pub(crate) fn parse_calls(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "auto" => Ok(Self::Auto),
            Ok(calls) if calls > 0 => Ok(Self::Exactly(calls)),
            _ => Err("expected auto or a number of calls, at least 1".to_owned()),
        }
    }

    /// Parses a block size, or `auto`.
    pub(crate) fn parse_block(text: &str) -> Result<Self, String> {
        if text == "auto" { Ok(Self::Auto) } else { parse_block(text).map(Self::Exactly) }
    }
}

/// Writes a byte count for people: `512 B`, `4.0 KiB`, `64 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let (value, unit) = scale(count);
    let decimals = usize::from(value < 10.0);
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// Writes a byte count as `ls -h` and `df -h` do: `512`, `4.0K`, `64M`, rounded up.
pub(crate) fn short_bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    if count < 1024 {
        return count.to_string();
    }
    let (value, unit) = scale(count);
    let tenths = (value * 10.0).ceil() / 10.0;
    if tenths < 10.0 {
        format!("{tenths:.1}{}", UNITS[unit])
    } else {
        format!("{:.0}{}", value.ceil(), UNITS[unit])
    }
}

/// Writes a rate in bytes for people: `11 MiB/s`.
pub(crate) fn rate(count: u64, elapsed: Duration) -> String {
    let per_second = count as f64 / elapsed.as_secs_f64().max(1e-3);
    format!("{}/s", bytes(per_second as u64))
}

/// Writes a duration for people without a fraction: `0 s`, `4 s`, `3 min 20 s`.
pub(crate) fn whole_seconds(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        _ => duration(time),
    }
}

/// Writes a duration for people: `850 ms`, `4.2 s`, `3 min 20 s`, `2 h 5 min`.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{} ms", time.as_millis()),
        1..10 => format!("{:.1} s", time.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// Returns a duration for JSON.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}

/// Divides by 1024 until the number is short, and says how often, less one.
fn scale(count: u64) -> (f64, usize) {
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 {
        value /= 1024.0;
        unit += 1;
    }
    (value, unit)
}

/// Reads an address and port to listen on. An IPv6 link-local address has a zone, by name or number: `[fe80::1%eth0]:20490`.
///
/// # Errors
/// A line for the user.
pub(crate) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let wrong = || "expected ADDR:PORT, as in 192.168.1.7:20490 or [fe80::1%eth0]:20490".to_owned();
    let (host, port) = text.strip_prefix('[').and_then(|rest| rest.split_once("]:")).ok_or_else(wrong)?;
    let (ip, zone) = host.split_once('%').ok_or_else(wrong)?;
    if ip.parse::<Ipv6Addr>().is_err() || zone.is_empty() {
        return Err(wrong());
    }
    let port: u16 = port.parse().map_err(|_| wrong())?;
    // Only the system knows the names of zones.
    let mut found = (host, port).to_socket_addrs().map_err(|_| format!("there is no interface {zone}"))?;
    found.next().ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_local_address_keeps_its_zone() {
        let scope = |text: &str| match parse_listen(text) {
            Ok(SocketAddr::V6(address)) => Some((address.scope_id(), address.port())),
            _ => None,
        };
        assert_eq!(scope("[fe80::1%1]:20490"), Some((1, 20490)));
        // The loopback is the first interface.
        #[cfg(target_os = "linux")]
        assert_eq!(scope("[fe80::1%lo]:20490"), Some((1, 20490)));
        assert_eq!(scope("[::1]:20490"), Some((0, 20490)));
        assert!(parse_listen("127.0.0.1:1").is_ok());
        for wrong in
            ["[fe80::1%nothing]:1", "[fe80::1%]:1", "[nas%lo]:1", "nas:1", "[fe80::1%lo]:x", "fe80::1%lo"]
        {
            assert!(parse_listen(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_count_in_1024() {
        assert_eq!(parse_size("8K"), Ok(8192));
        assert_eq!(parse_size("1M"), Ok(1 << 20));
        for wrong in ["", "M", "-1", "1.0001", "8KB", "99999999999G", "nan", "inf"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bandwidths_count_as_those_of_rsync_and_rclone() {
        for (text, bits) in [
            ("500", 500 << 13),
            ("500k", 500 << 13),
            ("1.5M", 3 << 22),
            ("2MiB/s", 2 << 23),
            ("2MB", 16_000_000),
            ("80Mbit", 80_000_000),
            ("9600bit", 9600),
            ("0", 0),
            ("0.0M", 0),
        ] {
            assert_eq!(parse_bandwidth(text), Ok(bits), "{text}");
        }
        for wrong in ["", "M", "-1", "0.1bit", "1x", "1 M", "nan", "99999999999G"] {
            assert!(parse_bandwidth(wrong).is_err(), "{wrong}");
        }
        assert_eq!(bandwidth(parse_bandwidth("2M").unwrap()), "2.0 MiB/s (16.8 Mbit/s)");
        assert_eq!(bandwidth(9600), "1.2 KiB/s (9.6 kbit/s)");
    }

    #[test]
    fn a_block_that_cannot_be_is_refused_with_its_bound() {
        assert_eq!(parse_block("8K"), Ok(8192));
        for (text, bound) in
            [("3", "at least 512"), ("600", "multiple of 512"), ("2M", "at most 1M"), ("8G", "at most 1M")]
        {
            assert!(parse_block(text).unwrap_err().contains(bound), "{text}");
        }
        assert_eq!(parse_max_block("1344"), Ok(1344));
        assert!(parse_max_block("511").is_err() && parse_max_block("1048577").is_err());
    }

    #[test]
    fn some_durations_are_in_seconds_without_a_unit() {
        assert_eq!(parse_seconds("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_seconds("5m"), Ok(Duration::from_secs(300)));
        assert!(parse_seconds("").is_err() && parse_seconds("-3").is_err());
        assert_eq!(parse_seconds("0"), Ok(Duration::ZERO));
        let said = parse_seconds("x").unwrap_err();
        assert!(said.starts_with("expected a time in seconds (30), or with a unit"), "{said}");
        assert!(parse_duration("10").unwrap_err().contains("10s for seconds"));
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        for wrong in ["", "5", "s", "-1s", "1e400s", "5 s", "99999999999999999999d"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_read_well_at_every_scale() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(4096), "4.0 KiB");
        assert_eq!(bytes(64 << 20), "64 MiB");
        assert_eq!(bytes((1 << 20) - 1), "1.0 MiB");
        assert_eq!(bytes(u64::MAX), "16 EiB");
        assert_eq!(short_bytes(1025), "1.1K");
        assert_eq!(short_bytes(64 << 20), "64M");
    }

    #[test]
    fn durations_read_well_at_every_scale() {
        assert_eq!(duration(Duration::from_millis(850)), "850 ms");
        assert_eq!(duration(Duration::from_millis(4200)), "4.2 s");
        assert_eq!(duration(Duration::from_secs(200)), "3 min 20 s");
        assert_eq!(duration(Duration::from_secs(7500)), "2 h 5 min");
    }
}
