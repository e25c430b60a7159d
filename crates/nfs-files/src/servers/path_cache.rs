//! What was learned about the paths to servers, kept for the next run.
//!
//! A small file in the user's cache. Whatever is wrong with it, it is only a cache: it is ignored, and replaced.

use std::{
    io::Write,
    net::{IpAddr, SocketAddr, UdpSocket},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use nfs_wireless_client::{Client, PathEstimate};
use serde_json::{Value, json};

use crate::{
    error::{io_text, show},
    local::{Own, read_private},
};

/// How long a path is remembered.
const LIFETIME: Duration = Duration::from_secs(30 * 60);

/// Entries that a file of the cache keeps, the latest first.
pub const MOST: usize = 64;

/// Bytes of a file of the cache, at most: the entries of servers have up to 256 directories each.
const MAX_BYTES: u64 = 16 << 20;

/// The file of the cache.
const FILE: &str = "paths.json";

/// What tells paths apart.
const KEYS: [&str; 2] = ["server", "from"];

/// Returns the latest estimate of the path to a server from where we are now, if it is not old.
pub fn cached(server: SocketAddr) -> Option<PathEstimate> {
    let paths = load(&cache("")?, FILE);
    find(&paths, server, local(server)?, now()?)
}

/// Returns the servers to which there are paths.
pub fn known() -> impl Iterator<Item = SocketAddr> {
    let paths = cache("").map(|cache| load(&cache, FILE)).unwrap_or_default();
    paths.into_iter().filter_map(|path| path["server"].as_str()?.parse().ok())
}

/// Keeps the estimates of the clients. A copy too small to find the rate of the path does not replace an earlier one that has.
pub fn remember(clients: impl Iterator<Item = Client>) {
    let (Some(cache), Some(now)) = (cache(""), now()) else { return };
    let mut learned = Vec::new();
    for client in clients {
        let server = client.address();
        if let (Some(estimate), Some(local)) = (client.status().path_estimate, local(server))
            && !(estimate.is_app_limited
                && cached(server).is_some_and(|known| known.fast.is_some() == estimate.fast.is_some()))
        {
            learned.push(entry(server, local, now, &estimate));
        }
    }
    keep(&cache, FILE, learned, &KEYS);
}

/// Adds entries to a file of the cache, in the place of those that have the same values under `keys`, as far as that can be done: what
/// was asked for is done all the same. In a directory that others may change, nothing is kept.
pub fn keep(cache: &Own, file: &str, new: Vec<Value>, keys: &[&str]) {
    if !new.is_empty()
        && let Ok(directory) = cache.open()
    {
        let values = merged(new, load(cache, file), keys);
        let _ = directory.replace(file.as_bytes(), Value::Array(values).to_string().as_bytes());
    }
}

/// Returns the directory of the user's cache, or what is below that.
pub fn cache(below: &str) -> Option<Own> {
    Own::directory("XDG_CACHE_HOME", ".cache", below)
}

/// The address that we send from: behind another one there is another link, and on this machine alone none.
fn local(server: SocketAddr) -> Option<IpAddr> {
    if server.ip().is_loopback() {
        return None;
    }
    let any: SocketAddr = if server.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(server).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Returns the seconds since 1970.
pub fn now() -> Option<u64> {
    Some(SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs())
}

/// Reads a file of the cache; whatever is wrong with it, there is nothing in it.
pub fn load(cache: &Own, file: &str) -> Vec<Value> {
    let file = cache.path().join(file);
    let read = || -> Option<Vec<Value>> {
        let bytes = read_private(&file, MAX_BYTES);
        if let Err(error) = &bytes
            && !matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
        {
            refuse(&file, error);
        }
        Some(entries(&bytes.ok()?))
    };
    read().unwrap_or_default()
}

/// Returns what is in a file of the cache.
pub fn entries(bytes: &[u8]) -> Vec<Value> {
    match serde_json::from_slice(bytes) {
        Ok(Value::Array(entries)) => entries,
        _ => Vec::new(),
    }
}

/// Says, once, that a file of the cache is not used.
fn refuse(file: &Path, error: &std::io::Error) {
    static SAID: std::sync::Once = std::sync::Once::new();
    SAID.call_once(|| {
        // The line may have nobody to read it.
        let _ = writeln!(std::io::stderr(), "nfsw: warning: not used: {}: {}", show(file), io_text(error));
    });
}

pub fn entry(server: SocketAddr, local: IpAddr, now: u64, estimate: &PathEstimate) -> Value {
    json!({
        "server": server.to_string(),
        "from": local.to_string(),
        "at": now,
        "bytes_per_second": estimate.rate,
        "app_limited": estimate.is_app_limited,
        "base_us": estimate.min_rtt.as_micros() as u64,
        "fades_per_second": estimate.fades_per_second,
        "mean_fade_us": estimate.mean_fade.as_micros() as u64,
        "holds": estimate.retransmits,
        "block": estimate.block,
        "fast": estimate.fast,
    })
}

pub fn find(paths: &[Value], server: SocketAddr, local: IpAddr, now: u64) -> Option<PathEstimate> {
    let (server, local) = (server.to_string(), local.to_string());
    let path = paths.iter().find(|it| it["server"] == *server && it["from"] == *local)?;
    let age = now.checked_sub(path["at"].as_u64()?)?;
    if age > LIFETIME.as_secs() {
        return None;
    }
    Some(PathEstimate {
        rate: path["bytes_per_second"].as_f64()?,
        is_app_limited: path["app_limited"].as_bool()?,
        min_rtt: Duration::from_micros(path["base_us"].as_u64()?),
        fades_per_second: path["fades_per_second"].as_f64()?,
        mean_fade: Duration::from_micros(path["mean_fade_us"].as_u64()?),
        retransmits: path["holds"].as_bool()?,
        block: path["block"].as_u64()?.try_into().ok()?,
        in_flight: 0,
        fast: path["fast"].as_f64(),
    })
}

/// The new entries, then the old ones that differ from them under a key.
pub fn merged(mut new: Vec<Value>, old: Vec<Value>, keys: &[&str]) -> Vec<Value> {
    for entry in old {
        let same = |it: &Value| keys.iter().all(|key| it[*key] == entry[*key]);
        if new.len() < MOST && !new.iter().any(same) {
            new.push(entry);
        }
    }
    new.truncate(MOST);
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    const ESTIMATE: PathEstimate = PathEstimate {
        rate: 1e5,
        is_app_limited: false,
        min_rtt: Duration::from_millis(40),
        fades_per_second: 1.5,
        mean_fade: Duration::from_millis(80),
        retransmits: false,
        block: 4096,
        in_flight: 0,
        fast: Some(2e7),
    };

    #[test]
    fn a_path_is_remembered_for_a_while_and_from_the_same_place_only() {
        let server = "192.0.2.1:2049".parse().unwrap();
        let (here, there) = ("192.0.2.7".parse().unwrap(), "198.51.100.7".parse().unwrap());
        let paths = merged(vec![entry(server, here, 1000, &ESTIMATE)], Vec::new(), &KEYS);
        assert_eq!(find(&paths, server, here, 1000), Some(ESTIMATE));
        assert_eq!(find(&paths, server, here, 1000 + LIFETIME.as_secs()), Some(ESTIMATE));
        assert_eq!(find(&paths, server, here, 1001 + LIFETIME.as_secs()), None, "too old");
        assert_eq!(find(&paths, server, here, 999), None, "the clock was set back");
        assert_eq!(find(&paths, server, there, 1000), None);
        let newer = merged(vec![entry(server, here, 2000, &ESTIMATE)], paths, &KEYS);
        assert_eq!(newer.len(), 1);
    }

    #[test]
    fn nothing_is_kept_where_others_could_replace_it() {
        use std::os::unix::fs::PermissionsExt;

        for (mode, is_kept) in [(0o700, true), (0o777, false)] {
            let place = tempfile::tempdir().unwrap();
            let file = place.path().join("nfsw/paths.json");
            std::fs::create_dir(place.path().join("nfsw")).unwrap();
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(place.path().join("nfsw"), mode).unwrap();
            keep(&Own::within(place.path().to_owned(), "nfsw"), FILE, vec![json!({})], &KEYS);
            assert_eq!(file.exists(), is_kept);
        }
    }

    #[test]
    fn a_broken_file_is_no_memory_and_a_long_one_is_cut() {
        let (server, here) = ("192.0.2.1:2049".parse().unwrap(), "192.0.2.7".parse().unwrap());
        let broken = [json!(3), json!({"server": "192.0.2.1:2049", "from": "192.0.2.7", "at": "yesterday"})];
        assert_eq!(find(&broken, server, here, 5), None);
        let many = (0..200).map(|port| entry(SocketAddr::from(([192, 0, 2, 1], port)), here, 5, &ESTIMATE));
        assert_eq!(merged(Vec::new(), many.collect(), &KEYS).len(), MOST);
    }
}
