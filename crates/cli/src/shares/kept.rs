//! What leads back to the shares that were used here, where only this user reads: the system forgets it when the user is logged out.

use std::{
    fs::{self, File},
    io,
    thread::sleep,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nfs_share::{Code, Greeting, Identity, Joined, Membership, Reached};
use serde_json::{Value, json};

use crate::local::{Own, read_private};

/// Bytes of a file's name.
const NAME_LENGTH: usize = 32;

/// How long a command waits for another one that draws keys.
const LOCKED: Duration = Duration::from_secs(1);

/// Bytes of a file, at most: the membership, and what was said of the share.
const MAX_BYTES: usize = Membership::BYTES + 1024;

/// What is kept of one share.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) membership: Membership,
    /// Where it was last.
    pub(crate) reached: Option<Reached>,
    /// Until when it lets this member in, as it said last.
    until: Option<SystemTime>,
}

impl Kept {
    /// Returns what is kept in a file.
    pub(crate) fn load(file: &str) -> Option<Self> {
        Self::parse(&read(file)?)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (membership, rest) = bytes.split_first_chunk::<{ Membership::BYTES }>()?;
        let said: Value = serde_json::from_slice(rest).unwrap_or_default();
        let until = said["until"].as_u64().and_then(|it| UNIX_EPOCH.checked_add(Duration::from_secs(it)));
        let address = said["address"].as_str().and_then(|address| address.parse().ok());
        let by_stream = said["stream"].as_bool().unwrap_or_default();
        let reached = address.map(|address| Reached { address, by_stream });
        Some(Self { membership: Membership::from_bytes(membership), reached, until })
    }

    /// Returns the names of the files of all shares whose time is not over, and what is in them.
    pub(crate) fn all() -> Vec<(String, Self)> {
        let entries =
            place().and_then(|place| fs::read_dir(place.path()).ok()).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let now = SystemTime::now();
        let kept = names.filter(|name| name.len() == NAME_LENGTH).filter_map(|name| {
            let kept = Self::load(&name)?;
            kept.until.is_none_or(|until| now < until).then_some((name, kept))
        });
        kept.collect()
    }
}

/// Where memberships are kept.
fn place() -> Option<Own> {
    Own::directory("XDG_RUNTIME_DIR", ".local/state", "shares")
}

/// Reads a file of them.
fn read(file: &str) -> Option<Vec<u8>> {
    read_private(&place()?.path().join(file), MAX_BYTES as u64).ok()
}

/// Codes are short: their hash hides them from who looks over a shoulder, and from nobody else.
pub(super) fn file_name(code: &Code) -> String {
    blake3::hash(code.to_string().as_bytes()).to_hex()[..NAME_LENGTH].to_owned()
}

/// Returns what to show a share, and where it was. The keys of a new member are kept before the code is shown, as it is used up for all who have
/// others: an earlier command with the same code may have ended before it was let in.
pub(super) fn greeting(file: &str, code: Code) -> (Greeting, Option<Reached>) {
    // Commands that begin at once are one member.
    let _lock = lock(file);
    let bytes = read(file).unwrap_or_default();
    if let Some(kept) = Kept::parse(&bytes) {
        return (Greeting::Known(kept.membership, Some(code)), kept.reached);
    }
    let identity = match bytes[..].try_into() {
        Ok(bytes) => Identity::from_bytes(bytes),
        Err(_) => {
            let identity = Identity::draw();
            let _ = replace(file, &identity.to_bytes()[..]);
            identity
        }
    };
    (Greeting::Code(code, identity), None)
}

/// Keeps other commands out, for as long as they wait; what keeps from that is no reason not to join.
fn lock(file: &str) -> Option<File> {
    let place = place()?.open().ok()?;
    let end = Instant::now() + LOCKED;
    loop {
        match place.lock(file.as_bytes(), 0o600) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < end => {
                sleep(LOCKED / 100)
            }
            locked => return locked.ok(),
        }
    }
}

fn replace(file: &str, bytes: &[u8]) -> Option<()> {
    place()?.open().ok()?.replace(file.as_bytes(), bytes).ok()
}

/// Keeps what leads back to a share, and where it is.
pub(crate) fn keep(file: &str, joined: &Joined, reached: Reached) {
    let until = SystemTime::now().checked_add(joined.remaining);
    let until = until.and_then(|until| Some(until.duration_since(UNIX_EPOCH).ok()?.as_secs()));
    let address = reached.address.to_string();
    let said = json!({ "address": address, "stream": reached.by_stream, "until": until }).to_string();
    let bytes = [&joined.membership.to_bytes()[..], said.as_bytes()].concat();
    if replace(file, &bytes).is_none() {
        eprintln!("nfsw: warning: this code is used up: what leads back to the share cannot be kept here");
    }
}
