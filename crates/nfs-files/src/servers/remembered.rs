//! Where things were on servers, kept for the next run: `servers.json` in the user's cache.
//!
//! A run that knows ports, export and the handles of directories asks all its questions at once instead of one after the other. Nothing of
//! it is believed: every answer is asked for again, and what has changed costs a round trip as ever.

use nfs_wireless_client::{FileHandle, KnownServer, Protocol};
use serde_json::{Value, json};

use crate::{
    servers::path_cache::{cache, keep, load, now},
    url::{is_within, join},
};

/// How long it is kept.
const LIFETIME_SECONDS: u64 = 7 * 24 * 60 * 60;

/// The file of the cache.
const FILE: &str = "servers.json";

/// What tells exports apart.
pub const KEYS: [&str; 3] = ["host", "asked_ports", "export"];

/// Directories of an export that are kept, the latest first.
pub const MOST_DIRECTORIES: usize = 256;

/// How a server was asked for: the name or address, and the ports of NFS and MOUNT as far as they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub host: String,
    pub ports: (Option<u16>, Option<u16>),
}

/// An export, and directories in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub server: KnownServer,
    pub directories: Vec<(Vec<u8>, FileHandle)>,
}

impl Known {
    /// Returns the handle that a directory had.
    pub fn directory(&self, path: &[u8]) -> Option<FileHandle> {
        self.directories.iter().find(|(known, _)| known == path).map(|(_, handle)| *handle)
    }

    /// Returns where the names of a path below a directory are expected: in directories that are known, one below the other.
    pub fn places<'a>(
        &self,
        directory: (Option<FileHandle>, &[u8]),
        names: impl Iterator<Item = &'a Vec<u8>>,
    ) -> Vec<(FileHandle, Vec<u8>)> {
        let (mut handle, mut path) = (directory.0, directory.1.to_vec());
        let mut places = Vec::new();
        for name in names.take_while(|name| **name != b"..") {
            let Some(parent) = handle else { break };
            places.push((parent, name.clone()));
            path = join(&path, name);
            handle = self.directory(&path);
        }
        places
    }

    /// Adds directories, the latest first.
    pub fn add(&mut self, directories: impl IntoIterator<Item = (Vec<u8>, FileHandle)>) {
        for (path, handle) in directories {
            self.directories.retain(|(known, _)| *known != path);
            self.directories.insert(0, (path, handle));
        }
        self.directories.truncate(MOST_DIRECTORIES);
    }
}

/// Returns the latest that is known of the export that holds a path.
pub fn find(asked: &Asked, path: &[u8]) -> Option<Known> {
    find_in(&load(&cache("")?, FILE), asked, path, now()?)
}

/// Keeps what was found out.
pub fn remember(found: impl Iterator<Item = (Asked, Known)>) {
    let (Some(cache), Some(now)) = (cache(""), now()) else { return };
    let new: Vec<Value> = found.filter_map(|(asked, known)| entry(&asked, &known, now)).collect();
    keep(&cache, FILE, new, &KEYS);
}

/// `None` for an export whose path is no text.
pub fn entry(asked: &Asked, Known { server, directories }: &Known, now: u64) -> Option<Value> {
    let texts = directories
        .iter()
        .filter_map(|(path, it)| Some(json!([std::str::from_utf8(path).ok()?, hex::encode(it.as_bytes())])));
    let (mount, mount_port) = server.mount;
    Some(json!({
        "host": asked.host,
        "asked_ports": [asked.ports.0, asked.ports.1],
        "at": now,
        "nfs_port": server.nfs_port,
        "mount": [transport_name(mount), mount_port],
        "export": std::str::from_utf8(&server.export).ok()?,
        "directories": texts.collect::<Vec<_>>(),
    }))
}

pub fn find_in(entries: &[Value], asked: &Asked, path: &[u8], now: u64) -> Option<Known> {
    let ports = json!([asked.ports.0, asked.ports.1]);
    let fitting = entries.iter().filter(|it| it["host"] == *asked.host && it["asked_ports"] == ports);
    let known = fitting.filter_map(|it| {
        let age = now.checked_sub(it["at"].as_u64()?)?;
        (age <= LIFETIME_SECONDS).then(|| decode(it)).flatten()
    });
    let holds = |known: &Known| is_within(path, &known.server.export);
    known.filter(holds).max_by_key(|known| known.server.export.len())
}

fn decode(entry: &Value) -> Option<Known> {
    let port = |value: &Value| u16::try_from(value.as_u64()?).ok();
    let protocol =
        [Protocol::Udp, Protocol::Tcp].into_iter().find(|it| entry["mount"][0] == transport_name(*it))?;
    let export = entry["export"].as_str()?.as_bytes().to_vec();
    let directories = entry["directories"].as_array()?.iter().filter_map(|it| {
        let bytes = hex::decode(it[1].as_str()?).ok()?;
        Some((it[0].as_str()?.as_bytes().to_vec(), FileHandle::try_from(&bytes[..]).ok()?))
    });
    let directories = directories.take(MOST_DIRECTORIES).collect();
    let mount = (protocol, port(&entry["mount"][1])?);
    Some(Known { server: KnownServer::new(port(&entry["nfs_port"])?, mount, export), directories })
}

/// Returns the name of a transport.
pub const fn transport_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Udp => "udp",
        Protocol::Tcp => "tcp",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::path_cache::{MOST, merged};

    fn asked(host: &str) -> Asked {
        Asked { host: host.into(), ports: (Some(2049), None) }
    }

    fn known(export: &[u8], port: u16) -> Known {
        let handle = FileHandle::try_from(&[0, 10, 255][..]).unwrap();
        let server = KnownServer::new(2049, (Protocol::Udp, port), export.to_vec());
        Known { server, directories: vec![(b"/srv/a".to_vec(), handle)] }
    }

    #[test]
    fn what_was_known_of_an_export_comes_back_for_a_week_and_for_the_same_question() {
        let [outer, inner] = [known(b"/srv", 1), known(b"/srv/a", 2)];
        let entries: Vec<Value> = [&outer, &inner].map(|it| entry(&asked("nas"), it, 1000).unwrap()).into();
        let found = |host: &str, path: &[u8], now| find_in(&entries, &asked(host), path, now);
        assert_eq!(found("nas", b"/srv/b", 1000), Some(outer));
        assert_eq!(found("nas", b"/srv/a/c", 1000 + LIFETIME_SECONDS), Some(inner), "the innermost export");
        assert_eq!(found("nas", b"/srv/a/c", 1001 + LIFETIME_SECONDS), None, "too old");
        assert_eq!(found("nas", b"/srv/a/c", 999), None, "the clock was set back");
        assert_eq!(found("other", b"/srv/a/c", 1000), None);
        assert_eq!(found("nas", b"/else", 1000), None);
        let other_ports = Asked { ports: (None, None), ..asked("nas") };
        assert_eq!(find_in(&entries, &other_ports, b"/srv", 1000), None);
    }

    #[test]
    fn the_latest_is_kept_and_no_more_than_there_is_room_for() {
        let older = vec![entry(&asked("nas"), &known(b"/srv", 1), 1000).unwrap()];
        let newer = entry(&asked("nas"), &known(b"/srv", 2), 2000).unwrap();
        assert_eq!(merged(vec![newer.clone()], older, &KEYS), [newer]);
        let many = (0..200).map(|at| entry(&asked(&at.to_string()), &known(b"/", 1), 5).unwrap());
        assert_eq!(merged(Vec::new(), many.collect(), &KEYS).len(), MOST);
        let mut known = known(b"/", 1);
        let handle = known.directories[0].1;
        known.add((0..300).map(|at: u32| (at.to_string().into_bytes(), handle)));
        known.add([(b"298".to_vec(), handle)]);
        assert_eq!(known.directories.len(), MOST_DIRECTORIES);
        assert_eq!((&known.directories[0].0[..], &known.directories[1].0[..]), (&b"298"[..], &b"299"[..]));
    }

    #[test]
    fn a_broken_file_is_no_memory() {
        let whole = entry(&asked("nas"), &known(b"/srv", 1), 5).unwrap();
        for key in ["at", "nfs_port", "mount", "export", "directories"] {
            let mut broken = whole.clone();
            broken[key] = json!("yesterday");
            assert_eq!(find_in(&[broken], &asked("nas"), b"/srv", 5), None, "{key}");
        }
        let mut odd = whole;
        odd["directories"] = json!([["/srv/a", "0"], ["/srv/b", "zz"], [3], ["/srv/c", "00"]]);
        let found = find_in(&[odd], &asked("nas"), b"/srv", 5).unwrap();
        assert_eq!(found.directories.len(), 1, "{found:?}");
    }
}
