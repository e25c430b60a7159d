//! Rooms: a link and the hosts on it, as TOML files that a user can copy and change.

use std::{num::NonZeroUsize, time::Duration};

use linkemu::{LinkConfig, parse_duration};
use serde::Deserialize;

use crate::Error;

/// A link and the hosts on it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Room {
    /// Its name, as on a command line.
    pub name: String,
    /// What it is.
    pub summary: String,
    /// Where its numbers come from.
    pub source: String,
    /// The link, the queues and the wire.
    pub link: LinkConfig,
    /// What a mobile host spends on each call.
    pub client: HostCosts,
    /// Calls that the client makes at once unless the plan says otherwise; `None` leaves it to the client.
    pub window: Option<u32>,
    /// What the server spends on each call.
    pub server: ServerModel,
}

/// Time a mobile host spends on its one processor, one message after the other, to take in the reply of a READ or to
/// prepare a WRITE. The default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct HostCosts {
    /// For each READ reply.
    pub read_per_call: Duration,
    /// For each 1024 bytes of data in it.
    pub read_per_kib: Duration,
    /// For each WRITE.
    pub write_per_call: Duration,
    /// For each 1024 bytes of data in it.
    pub write_per_kib: Duration,
    /// The share of received frames with file data that the interface loses because its buffer is full, 0 to 1
    /// (Dube et al. 1997 §5.1).
    pub overflow: f64,
}

impl HostCosts {
    /// The time for one READ reply with so many bytes of data.
    pub fn read(&self, bytes: u64) -> Duration {
        self.read_per_call + scaled(self.read_per_kib, bytes)
    }

    /// The time for one WRITE with so many bytes of data.
    pub fn write(&self, bytes: u64) -> Duration {
        self.write_per_call + scaled(self.write_per_kib, bytes)
    }
}

fn scaled(per_kib: Duration, bytes: u64) -> Duration {
    Duration::from_nanos(u64::try_from(per_kib.as_nanos() * u128::from(bytes) / 1024).unwrap_or(u64::MAX))
}

/// What the server spends on each call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerModel {
    /// Calls in service at once. Default 8.
    pub threads: NonZeroUsize,
    /// Time of a READ. Default 0.
    pub read: Duration,
    /// Time of a WRITE. Default 0.
    pub write: Duration,
    /// Time of a COMMIT. Default 0.
    pub commit: Duration,
    /// Bytes of datagrams that its socket takes at one moment, in which the link may deliver many: the server reads them after that. More are
    /// lost. Default: no limit.
    pub receive_buffer: Option<usize>,
    /// Whether it sends little to an address that may be forged, as `nfsw serve` does. Default false, as servers of other makers.
    pub validates_addresses: bool,
}

impl Default for ServerModel {
    fn default() -> Self {
        let none = Duration::ZERO;
        let threads = const { NonZeroUsize::new(8).expect("eight is not zero") };
        Self {
            threads,
            read: none,
            write: none,
            commit: none,
            receive_buffer: None,
            validates_addresses: false,
        }
    }
}

/// The rooms of this crate, with their files.
const ROOMS: [(&str, &str); 8] = [
    ("modern", include_str!("../rooms/modern.toml")),
    ("paper-1997", include_str!("../rooms/paper-1997.toml")),
    ("slip-9600", include_str!("../rooms/slip-9600.toml")),
    ("bluetooth", include_str!("../rooms/bluetooth.toml")),
    ("wifi-54", include_str!("../rooms/wifi-54.toml")),
    ("lan-50ms", include_str!("../rooms/lan-50ms.toml")),
    ("satellite-600", include_str!("../rooms/satellite-600.toml")),
    ("wired-10", include_str!("../rooms/wired-10.toml")),
];

impl Room {
    /// The room of this name.
    ///
    /// # Errors
    /// [`Error::UnknownRoom`] names those there are.
    pub fn named(name: &str) -> Result<Self, Error> {
        let Some((_, text)) = ROOMS.iter().find(|(known, _)| *known == name) else {
            let known = Self::names().collect::<Vec<_>>().join(", ");
            return Err(Error::UnknownRoom { name: name.to_owned(), known });
        };
        Self::from_toml(name, text)
    }

    /// The names of the rooms of this crate.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ROOMS.iter().map(|(name, _)| *name)
    }

    /// The file of a room of this crate, to be copied and changed.
    pub fn file(name: &str) -> Option<&'static str> {
        ROOMS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// Reads a room: `[link]` as in a link's file, `[client]` and `[server]` with durations.
    ///
    /// # Errors
    /// [`Error::Room`] with the place in the file, the field and its bound.
    pub fn from_toml(name: &str, text: &str) -> Result<Self, Error> {
        let wrong = |message: String| Error::Room { name: name.to_owned(), message };
        let raw: RawRoom = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let link = toml::to_string(&raw.link).map_err(|error| wrong(error.to_string()))?;
        let link = LinkConfig::from_toml(&link, |file| std::fs::read_to_string(file))
            .map_err(|error| wrong(error.to_string()))?;
        let duration = |text: &Option<String>, field: &'static str| match text {
            None => Ok(Duration::ZERO),
            Some(text) => parse_duration(field, text, None).map_err(|error| wrong(error.to_string())),
        };
        let threads = raw.server.threads.unwrap_or_else(|| ServerModel::default().threads.get());
        let threads = NonZeroUsize::new(threads).filter(|threads| threads.get() <= 10_000);
        if raw.client.window.is_some_and(|window| !(1..=1024).contains(&window)) {
            return Err(wrong("client.window must be 1 to 1024 calls".into()));
        }
        Ok(Self {
            name: name.to_owned(),
            summary: raw.summary,
            source: raw.source,
            link,
            client: HostCosts {
                read_per_call: duration(&raw.client.read_per_call, "client.read_per_call")?,
                read_per_kib: duration(&raw.client.read_per_kib, "client.read_per_kib")?,
                write_per_call: duration(&raw.client.write_per_call, "client.write_per_call")?,
                write_per_kib: duration(&raw.client.write_per_kib, "client.write_per_kib")?,
                overflow: match raw.client.overflow.unwrap_or(0.0) {
                    share if (0.0..=1.0).contains(&share) => share,
                    share => return Err(wrong(format!("client.overflow is {share}, must be 0 to 1"))),
                },
            },
            window: raw.client.window,
            server: ServerModel {
                threads: threads.ok_or_else(|| wrong("server.threads must be 1 to 10000".into()))?,
                read: duration(&raw.server.read, "server.read")?,
                write: duration(&raw.server.write, "server.write")?,
                commit: duration(&raw.server.commit, "server.commit")?,
                receive_buffer: raw.server.receive_buffer,
                validates_addresses: false,
            },
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRoom {
    #[serde(default)]
    summary: String,
    #[serde(default)]
    source: String,
    link: toml::Table,
    #[serde(default)]
    client: RawClient,
    #[serde(default)]
    server: RawServer,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawClient {
    window: Option<u32>,
    read_per_call: Option<String>,
    read_per_kib: Option<String>,
    write_per_call: Option<String>,
    write_per_kib: Option<String>,
    overflow: Option<f64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawServer {
    threads: Option<usize>,
    read: Option<String>,
    write: Option<String>,
    commit: Option<String>,
    receive_buffer: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_room_can_be_entered_and_says_where_its_numbers_come_from() {
        for name in Room::names() {
            let room = Room::named(name).unwrap();
            assert!(!room.summary.is_empty() && !room.source.is_empty(), "{name}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let check = |text: &str, part: &str| {
            let error = Room::from_toml("mine", text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        check("[link]\nrate = \"0\"", "rate");
        check("[link]\n[server]\nthreads = 0", "server.threads must be 1 to 10000");
        check("[link]\n[client]\nread_per_call = \"soon\"", "client.read_per_call");
        check("[link]\n[roof]", "roof");
        assert!(Room::named("attic").unwrap_err().to_string().contains("paper-1997"));
    }
}
