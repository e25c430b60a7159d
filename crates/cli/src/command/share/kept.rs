//! What a share keeps while it lasts, so that the same command resumes it after it was killed: its keys, codes and members, where only this
//! user reads.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    path::Path,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nfs_share::{Identity, Member, MemberId, PublicKey};
use serde_json::{Value, json};

use crate::local::{Directory, Own, read_private};

/// Bytes of the file, at most.
const MAX_BYTES: u64 = 1 << 20;

/// The file of one share, which is this process's alone.
#[derive(Debug)]
pub(super) struct Kept {
    directory: Directory,
    name: String,
    _lock: File,
}

/// What is kept.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) identity: Identity,
    pub(super) port: u16,
    pub(super) until: Instant,
    /// By the names of the persons.
    pub(super) members: BTreeMap<String, Member>,
}

impl Kept {
    /// Opens what belongs to a directory, whomever it is shared with.
    ///
    /// # Errors
    /// `WouldBlock`, if another process has it.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        let name = blake3::hash(directory.as_os_str().as_encoded_bytes()).to_hex()[..32].to_owned();
        let place = Own::directory("XDG_STATE_HOME", ".local/state", "shared");
        let place = place.ok_or_else(|| io::Error::other("neither XDG_STATE_HOME nor HOME is set"))?;
        let directory = place.open()?;
        let lock = directory.lock(format!("{name}.lock").as_bytes(), 0o600)?;
        Ok(Self { directory, name, _lock: lock })
    }

    /// Returns what an earlier run has left whose time is not over.
    pub(super) fn load(&self, now: Instant) -> Option<Run> {
        let bytes = read_private(&self.directory.join(self.name.as_bytes()), MAX_BYTES).ok()?;
        let value: Value = serde_json::from_slice(&bytes).ok()?;
        let until = UNIX_EPOCH.checked_add(Duration::from_secs(value["until"].as_u64()?))?;
        let until = now.checked_add(until.duration_since(SystemTime::now()).ok()?)?;
        let identity = Identity::from_bytes(&bytes_of(&value["identity"])?);
        let members = value["members"].as_array()?.iter().map(|member| {
            Some((String::from_utf8(unhex(member["name"].as_str()?)?).ok()?, read_member(member, until)?))
        });
        let port = u16::try_from(value["port"].as_u64()?).ok()?;
        Some(Run { identity, port, until, members: members.collect::<Option<_>>()? })
    }

    /// Keeps a run.
    pub(super) fn save(&self, run: &Run) -> io::Result<()> {
        let remaining = run.until.saturating_duration_since(Instant::now());
        let until = (SystemTime::now() + remaining).duration_since(UNIX_EPOCH).unwrap_or_default();
        let value = json!({
            "identity": hex(&run.identity.to_bytes()[..]),
            "port": run.port,
            "until": until.as_secs(),
            "members": run.members.iter().map(write_member).collect::<Vec<_>>(),
        });
        self.directory.replace(self.name.as_bytes(), value.to_string().as_bytes())
    }

    /// Removes what is kept: the share has ended.
    pub(super) fn remove(&self) {
        for name in [self.name.clone(), format!("{}.lock", self.name)] {
            let _ = self.directory.remove(name.as_bytes());
        }
    }
}

fn write_member((name, member): (&String, &Member)) -> Value {
    json!({
        "name": hex(name.as_bytes()),
        "id": hex(&member.id.0),
        "code": member.code.as_ref().map(ToString::to_string),
        "key": member.key.map(|key| hex(&key.0)),
        "label": hex(&member.label),
        "withdrawn": member.withdrawn,
    })
}

fn read_member(value: &Value, until: Instant) -> Option<Member> {
    Some(Member {
        id: MemberId(bytes_of(&value["id"])?),
        until,
        code: value["code"].as_str().and_then(|code| code.parse().ok()),
        key: bytes_of(&value["key"]).map(PublicKey),
        label: unhex(value["label"].as_str()?)?,
        withdrawn: u32::try_from(value["withdrawn"].as_u64()?).ok()?,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

fn bytes_of<const N: usize>(value: &Value) -> Option<[u8; N]> {
    unhex(value.as_str()?)?.try_into().ok()
}
