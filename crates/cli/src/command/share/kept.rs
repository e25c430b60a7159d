//! What a share keeps while it lasts, so that the same command resumes it after it was killed: its keys, codes and members, where only this
//! user reads.

use std::{
    fs::{self, File},
    io,
    path::Path,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nfs_share::{Identity, Member, MemberId, PublicKey};
use serde_json::{Value, json};

use super::people::{Known, Origin, Person};
use crate::local::{Directory, Own, read_private};

/// Bytes of the file, at most.
const MAX_BYTES: u64 = 1 << 20;

/// Bytes of the name of a share's file.
const ID_LENGTH: usize = 32;

/// The file of one share, which is this process's alone.
#[derive(Debug)]
pub(super) struct Kept {
    directory: Directory,
    name: String,
    _lock: File,
}

/// What is kept.
#[derive(Debug)]
pub(super) struct SavedShare {
    pub(super) identity: Identity,
    pub(super) port: u16,
    /// In the order of the list.
    pub(super) people: Vec<Known>,
}

impl Kept {
    /// Opens what belongs to a directory, whomever it is shared with.
    ///
    /// # Errors
    /// `WouldBlock`, if another process has it.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        let place = Own::directory("XDG_STATE_HOME", ".local/state", "shared");
        let place = place.ok_or_else(|| io::Error::other("neither XDG_STATE_HOME nor HOME is set"))?;
        let kept = Self::named(&place, id(directory))?;
        kept.forget_others(&place);
        Ok(kept)
    }

    fn named(place: &Own, name: String) -> io::Result<Self> {
        let directory = place.open()?;
        let lock = directory.lock(format!("{name}.lock").as_bytes(), 0o600)?;
        Ok(Self { directory, name, _lock: lock })
    }

    /// Removes what shares of other directories have left that were killed and are over: their keys are of no use to anybody.
    fn forget_others(&self, place: &Own) {
        let entries = fs::read_dir(place.path()).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let now = Instant::now();
        for name in names {
            // What was being written when a share was killed has its keys, too.
            let begun = name.strip_prefix('.').and_then(|rest| rest.get(..ID_LENGTH));
            let Some(id) = begun.or_else(|| (name.len() == ID_LENGTH).then_some(&*name)) else { continue };
            let other = match id == self.name {
                true => None,
                // That of another process is in use.
                false => match Self::named(place, id.to_owned()) {
                    Ok(other) => Some(other),
                    Err(_) => continue,
                },
            };
            if begun.is_some() {
                let _ = self.directory.remove(name.as_bytes());
            }
            if let Some(other) = other.filter(|other| other.load(now).is_none()) {
                other.remove();
            }
        }
    }

    /// Returns what an earlier run has left whose time is not over.
    pub(super) fn load(&self, now: Instant) -> Option<SavedShare> {
        let bytes = read_private(&self.directory.join(self.name.as_bytes()), MAX_BYTES).ok()?;
        let value: Value = serde_json::from_slice(&bytes).ok()?;
        // Nobody knows what time has passed since, if the clock was set back.
        let kept = UNIX_EPOCH.checked_add(Duration::from_secs(value["kept"].as_u64()?))?;
        SystemTime::now().duration_since(kept).ok()?;
        let identity = Identity::from_bytes(&bytes_of(&value["identity"])?);
        let people = value["people"].as_array()?.iter().map(|person| read_known(person, now));
        let people: Vec<Known> = people.collect::<Option<_>>()?;
        // Where nobody may read any more, nothing is left of it.
        if people.iter().all(|known| known.member.is_none()) {
            return None;
        }
        let port = u16::try_from(value["port"].as_u64()?).ok()?;
        Some(SavedShare { identity, port, people })
    }

    /// Keeps a run.
    pub(super) fn save(&self, run: &SavedShare) -> io::Result<()> {
        let value = json!({
            "identity": hex::encode(&run.identity.to_bytes()[..]),
            "port": run.port,
            "kept": wall(Instant::now()),
            "people": run.people.iter().map(write_known).collect::<Vec<_>>(),
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

/// Names a directory in a file name.
pub(super) fn id(directory: &Path) -> String {
    blake3::hash(directory.as_os_str().as_encoded_bytes()).to_hex()[..ID_LENGTH].to_owned()
}

/// Returns the time of the wall clock at an instant, in seconds since 1970.
fn wall(at: Instant) -> u64 {
    let time = SystemTime::now() + at.saturating_duration_since(Instant::now());
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Returns the instant of a time of the wall clock, if that is still to come.
fn instant(value: &Value, now: Instant) -> Option<Instant> {
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(value.as_u64()?))?;
    now.checked_add(time.duration_since(SystemTime::now()).ok()?)
}

fn write_known(Known { person, origin, member }: &Known) -> Value {
    json!({
        "name": person.name,
        "below": person.below,
        "typed": *origin == Origin::Typed,
        "member": member.as_ref().map(write_member),
    })
}

fn read_known(value: &Value, now: Instant) -> Option<Known> {
    let text = |key: &str| Some(value[key].as_str()?.to_owned());
    let person = Person { name: text("name")?, below: text("below")? };
    let origin = if value["typed"].as_bool()? { Origin::Typed } else { Origin::Allowed };
    // Whose time is over is not a member any more.
    let member = match instant(&value["member"]["until"], now) {
        Some(until) => Some(read_member(&value["member"], until)?),
        None => None,
    };
    Some(Known { person, origin, member })
}

fn write_member(member: &Member) -> Value {
    json!({
        "until": wall(member.until),
        "id": hex::encode(member.id.0),
        "code": member.code.as_ref().map(ToString::to_string),
        "key": member.key.map(|key| hex::encode(key.0)),
        "label": hex::encode(&member.label),
        "withdrawn": member.withdrawn,
    })
}

fn read_member(value: &Value, until: Instant) -> Option<Member> {
    Some(Member {
        id: MemberId(bytes_of(&value["id"])?),
        until,
        code: value["code"].as_str().and_then(|code| code.parse().ok()),
        key: bytes_of(&value["key"]).map(PublicKey),
        label: hex::decode(value["label"].as_str()?).ok()?,
        withdrawn: u32::try_from(value["withdrawn"].as_u64()?).ok()?,
    })
}

fn bytes_of<const N: usize>(value: &Value) -> Option<[u8; N]> {
    hex::decode(value.as_str()?).ok()?.try_into().ok()
}
