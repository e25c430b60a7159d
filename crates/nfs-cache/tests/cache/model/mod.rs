//! A server with one directory, which remembers every version of everything.

#![allow(dead_code, reason = "every test program uses its own part")]

pub(crate) mod bad_store;
pub(crate) mod calm;
pub(crate) mod disk;

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use nfs_proto::attr::Metadata;
use nfs_wire::{
    FileHandle, Procedure, Reader, Status, call, encode,
    nfs3_types::{
        nfs3::{
            GETATTR3args, GETATTR3resok, LOOKUP3args, LOOKUP3resok, Nfs3Option, READ3args, READ3resok,
            READDIR3args, READDIR3resok, READDIRPLUS3args, READDIRPLUS3resok, cookieverf3, dirlist3,
            dirlistplus3, entry3, entryplus3, fattr3, ftype3, nfstime3, post_op_attr, specdata3,
        },
        xdr_codec::{List, Opaque, Pack},
    },
};
use rand_chacha::{ChaCha8Rng, rand_core::Rng};

/// The directory's file number.
pub(crate) const ROOT: u64 = 1;

/// The names that files may have.
pub(crate) const NAMES: [&str; 5] = ["a", "b.jpg", "c.zip", "d", "e.mp4"];

/// Seeds that are run; `NFSW_SEED` replays one, or all from one up to another: `1500..10000`.
pub(crate) fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    match std::env::var("NFSW_SEED") {
        Ok(text) => match text.split_once("..") {
            Some((first, end)) => number(first)..number(end),
            None => number(&text)..number(&text) + 1,
        },
        Err(_) => 0..count,
    }
}

/// A number below `bound`.
pub(crate) fn below(random: &mut ChaCha8Rng, bound: u64) -> u64 {
    random.next_u64() % bound
}

/// A version of a file.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    /// Until when it was there; since the start.
    pub(crate) until: Duration,
    pub(crate) data: Bytes,
    pub(crate) stamp: u64,
    /// When its attributes changed last.
    changed: u64,
}

#[derive(Debug, Default)]
pub(crate) struct File {
    pub(crate) versions: Vec<Version>,
    pub(crate) removed: bool,
    /// Its mode lets its owner in alone.
    pub(crate) is_closed: bool,
}

/// How a server answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    /// Nanoseconds between two ticks of its clock.
    pub(crate) tick: u64,
    pub(crate) has_plus: bool,
    /// It leaves attributes out where it may.
    pub(crate) is_terse: bool,
    /// Changes happen between the bytes and the attributes of a reply.
    pub(crate) is_torn: bool,
    /// One call in so many is to be made later; 0 for none.
    pub(crate) busy: u64,
    /// Files that have no name any more can be read for as long as the server runs, as on Linux while they are in its file cache.
    pub(crate) lingers: bool,
    /// One file is replaced most of the time, by bytes of the same size.
    pub(crate) is_hectic: bool,
}

impl Habits {
    /// Those of a server that tells everything at once, and whose clock ticks always.
    pub(crate) const fn calm(has_plus: bool) -> Self {
        Self { tick: 1, has_plus, is_terse: false, is_torn: false, busy: 0, lingers: false, is_hectic: false }
    }
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) habits: Habits,
    pub(crate) files: BTreeMap<u64, File>,
    /// The directory from a time on.
    pub(crate) names: Vec<(Duration, BTreeMap<&'static str, u64>)>,
    directory_stamp: u64,
    last: u64,
    /// Identifies the file system: another server has another one.
    pub(crate) fsid: u64,
}

/// 2023 in nanoseconds.
const EPOCH: u64 = 1_700_000_000_000_000_000;

impl Server {
    pub(crate) fn new(habits: Habits) -> Self {
        let names = vec![(Duration::ZERO, BTreeMap::new())];
        Self { habits, files: BTreeMap::new(), names, directory_stamp: EPOCH, last: ROOT, fsid: 7 }
    }

    pub(crate) fn now_names(&self) -> &BTreeMap<&'static str, u64> {
        &self.names.last().expect("never empty").1
    }

    fn stamp(&self, now: Duration) -> u64 {
        let time = EPOCH + now.as_nanos() as u64;
        time - time % self.habits.tick
    }

    fn write(&mut self, now: Duration, file: u64, data: Vec<u8>) {
        let stamp = self.stamp(now);
        let versions = &mut self.files.entry(file).or_default().versions;
        if let Some(last) = versions.last_mut() {
            last.until = now;
        }
        versions.push(Version { until: Duration::MAX, data: data.into(), stamp, changed: stamp });
    }

    fn rename(&mut self, now: Duration, change: impl FnOnce(&mut BTreeMap<&'static str, u64>)) {
        let stamp = self.stamp(now);
        let mut names = self.now_names().clone();
        change(&mut names);
        for (&number, file) in &mut self.files {
            if !names.values().any(|&named| named == number) && !file.removed {
                file.removed = true;
                let last = file.versions.last_mut().expect("written once");
                last.until = now;
                last.changed = stamp;
            }
        }
        self.names.push((now, names));
        self.directory_stamp = self.stamp(now);
    }

    /// Changes something: appends, truncates, replaces with the same size, creates, replaces by renaming, renames or removes.
    pub(crate) fn change(&mut self, now: Duration, random: &mut ChaCha8Rng) {
        let names = if self.habits.is_hectic { 1 } else { NAMES.len() as u64 };
        let name = NAMES[below(random, names) as usize];
        let old = self.now_names().get(name).copied();
        let mut data: Vec<u8> = old.map_or_else(Vec::new, |file| {
            self.files[&file].versions.last().expect("written once").data.to_vec()
        });
        let salt = random.next_u64();
        let fresh = |length: usize| -> Vec<u8> {
            (0..length).map(|at| (salt >> (at % 7 * 8)) as u8 ^ (at / 7) as u8 ^ (at >> 9) as u8).collect()
        };
        let kind = if self.habits.is_hectic && below(random, 4) > 0 { 2 } else { below(random, 8) };
        match (kind, old) {
            (0, Some(file)) => {
                data.extend(fresh(1 + below(random, 90_000) as usize));
                data.truncate(300_000);
                self.write(now, file, data);
            }
            (1, Some(file)) => {
                data.truncate(below(random, data.len() as u64 + 1) as usize);
                self.write(now, file, data);
            }
            (2 | 3, Some(file)) => self.write(now, file, fresh(data.len())),
            (4, Some(_)) => self.rename(now, |names| _ = names.remove(name)),
            (5, Some(file)) => {
                let other = NAMES[below(random, NAMES.len() as u64) as usize];
                self.rename(now, |names| {
                    names.remove(name);
                    names.insert(other, file);
                });
            }
            // A new file takes the name, of the same size half of the time.
            (kind, _) => {
                let length = if kind % 2 == 0 { data.len() } else { below(random, 200_000) as usize };
                self.last += 1;
                let file = self.last;
                self.write(now, file, fresh(length));
                self.rename(now, |names| _ = names.insert(name, file));
            }
        }
    }

    /// Makes a file.
    pub(crate) fn put(&mut self, now: Duration, name: &'static str, file: u64, data: Vec<u8>) {
        self.last = self.last.max(file);
        self.write(now, file, data);
        self.rename(now, |names| _ = names.insert(name, file));
    }

    /// Changes attributes of a file, and none of its bytes.
    pub(crate) fn change_mode(&mut self, now: Duration, file: u64) {
        let changed = self.stamp(now);
        let file = self.files.get_mut(&file).expect("it is there");
        file.is_closed = !file.is_closed;
        file.versions.last_mut().expect("written once").changed = changed;
    }

    /// Writes other bytes, and sets the time of the last change of the file back to what it was.
    pub(crate) fn overwrite(&mut self, now: Duration, file: u64, data: Vec<u8>) {
        let stamp = self.files[&file].versions.last().expect("written once").stamp;
        self.write(now, file, data);
        let version = self.files.get_mut(&file).and_then(|file| file.versions.last_mut());
        version.expect("just written").stamp = stamp;
    }

    pub(crate) fn handle(file: u64) -> FileHandle {
        FileHandle::try_from(&file.to_be_bytes()[..]).expect("eight bytes")
    }

    pub(crate) fn attributes(&self, number: u64) -> Option<fattr3> {
        let time = |stamp: u64| nfstime3 {
            seconds: (stamp / 1_000_000_000) as u32,
            nseconds: (stamp % 1_000_000_000) as u32,
        };
        let (type_, size, stamp, changed, nlink) = match self.files.get(&number) {
            None if number == ROOT => (ftype3::NF3DIR, 4096, self.directory_stamp, self.directory_stamp, 2),
            Some(file) if !file.removed || self.habits.lingers => {
                let Version { data, stamp, changed, .. } = file.versions.last().expect("written once");
                (ftype3::NF3REG, data.len() as u64, *stamp, *changed, u32::from(!file.removed))
            }
            _ => return None,
        };
        Some(fattr3 {
            type_,
            mode: if self.files.get(&number).is_some_and(|file| file.is_closed) { 0o700 } else { 0o755 },
            nlink,
            uid: 0,
            gid: 0,
            size,
            used: size,
            rdev: specdata3 { specdata1: 0, specdata2: 0 },
            fsid: self.fsid,
            fileid: number,
            atime: time(EPOCH),
            mtime: time(stamp),
            ctime: time(changed),
        })
    }

    pub(crate) fn metadata(&self, number: u64) -> Metadata {
        Metadata::from(&self.attributes(number).expect("it is there"))
    }

    fn post_op(&self, number: u64) -> post_op_attr {
        let shown = self.attributes(number).filter(|_| !self.habits.is_terse);
        shown.map_or(Nfs3Option::None, Nfs3Option::Some)
    }

    /// Carries a call out.
    pub(crate) fn answer(
        &mut self,
        now: Duration,
        random: &mut ChaCha8Rng,
        procedure: Procedure,
        arguments: &[u8],
    ) -> Bytes {
        let results = if self.habits.busy > 0 && below(random, self.habits.busy) == 0 {
            Err(Status::JUKEBOX)
        } else {
            self.results(now, random, procedure, Reader::new(arguments))
        };
        match results {
            Ok(results) => results.into(),
            Err(status) => status.code().to_be_bytes().to_vec().into(),
        }
    }

    fn results(
        &mut self,
        now: Duration,
        random: &mut ChaCha8Rng,
        procedure: Procedure,
        arguments: Reader<'_>,
    ) -> Result<Vec<u8>, Status> {
        let number = |handle: &[u8]| u64::from_be_bytes(handle.try_into().expect("eight bytes"));
        // What happens between looking and telling the attributes.
        let tear = |server: &mut Self, random: &mut ChaCha8Rng| {
            if server.habits.is_torn && below(random, 8) == 0 {
                server.change(now, random);
            }
        };
        match procedure {
            Procedure::Getattr => {
                let GETATTR3args { object } = call::decode(arguments).expect("arguments");
                let obj_attributes = self.attributes(number(&object.data)).ok_or(Status::STALE)?;
                Ok(packed(&GETATTR3resok { obj_attributes }))
            }
            Procedure::Lookup => {
                let LOOKUP3args { what } = call::decode(arguments).expect("arguments");
                let name = std::str::from_utf8(what.name.as_ref()).expect("UTF-8");
                let file = *self.now_names().get(name).ok_or(Status::NOENT)?;
                tear(self, random);
                Ok(packed(&LOOKUP3resok {
                    object: Self::handle(file).to_fh3(),
                    obj_attributes: self.post_op(file),
                    dir_attributes: self.post_op(ROOT),
                }))
            }
            Procedure::Read => {
                let READ3args { file, offset, count } = call::decode(arguments).expect("arguments");
                let file = number(&file.data);
                self.attributes(file).ok_or(Status::STALE)?;
                let data = self.files[&file].versions.last().expect("written once").data.clone();
                let start = (offset as usize).min(data.len());
                let mut end = (start + count as usize).min(data.len());
                if end > start + 1 && below(random, 6) == 0 {
                    end = start + 1 + below(random, (end - start) as u64) as usize;
                }
                let eof = end == data.len();
                tear(self, random);
                Ok(packed(&READ3resok {
                    file_attributes: self.post_op(file),
                    count: (end - start) as u32,
                    eof,
                    data: Opaque::borrowed(&data[start..end]),
                }))
            }
            Procedure::Readdirplus if !self.habits.has_plus => Err(Status::NOTSUPP),
            Procedure::Readdirplus => {
                let READDIRPLUS3args { cookie, .. } = call::decode(arguments).expect("arguments");
                let (page, eof) = self.page(cookie);
                tear(self, random);
                let entries = page.into_iter().map(|(cookie, name, fileid)| entryplus3 {
                    fileid,
                    name: name.as_bytes().into(),
                    cookie,
                    name_attributes: self.post_op(fileid),
                    name_handle: Nfs3Option::Some(Self::handle(fileid).to_fh3()),
                });
                Ok(packed(&READDIRPLUS3resok {
                    dir_attributes: self.post_op(ROOT),
                    cookieverf: cookieverf3([0; 8]),
                    reply: dirlistplus3 { entries: List(entries.collect()), eof },
                }))
            }
            Procedure::Readdir => {
                let READDIR3args { cookie, .. } = call::decode(arguments).expect("arguments");
                let (page, eof) = self.page(cookie);
                tear(self, random);
                let entries = page.into_iter().map(|(cookie, name, fileid)| entry3 {
                    fileid,
                    name: name.as_bytes().into(),
                    cookie,
                });
                Ok(packed(&READDIR3resok {
                    dir_attributes: self.post_op(ROOT),
                    cookieverf: cookieverf3([0; 8]),
                    reply: dirlist3 { entries: List(entries.collect()), eof },
                }))
            }
            other => panic!("the cache calls {other}"),
        }
    }

    /// Two names, with their cookies, and whether there are no more. A name's cookie is its place among all names.
    fn page(&self, cookie: u64) -> (Vec<(u64, &'static str, u64)>, bool) {
        let names = self.now_names();
        let rest = NAMES.iter().enumerate().skip(cookie as usize);
        let mut rest =
            rest.filter_map(|(at, &name)| names.get(name).map(|&file| (at as u64 + 1, name, file)));
        let page = rest.by_ref().take(2).collect();
        (page, rest.next().is_none())
    }
}

fn packed(results: &impl Pack) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    encode(&mut bytes, results);
    bytes
}
