//! What a store keeps of an object, as bytes: they outlast the program, and whatever becomes of them meanwhile, reading them gives
//! something that makes sense or nothing.

use nfs_proto::attr::{FileType, Metadata, Time};
use nfs_wire::{
    FileHandle,
    nfs3_types::nfs3::{fattr3, ftype3, nfstime3, specdata3},
};

use crate::directory::{Name, Target};

/// A file, directory or link as it was when it was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) handle: FileHandle,
    pub(crate) metadata: Metadata,
    /// When the server was asked for them, in milliseconds since 1970.
    pub(crate) asked: u64,
}

/// A directory and what its names lead to.
#[derive(Clone, Debug)]
pub(crate) struct KeptDirectory<'a> {
    pub(crate) subject: Subject,
    /// Other names were not there; and whether that holds for as long as the directory has these attributes.
    pub(crate) complete: Option<bool>,
    pub(crate) names: Names<'a>,
}

/// Names in a record: they need not all be in memory twice.
#[derive(Clone, Debug)]
pub(crate) struct Names<'a> {
    rest: &'a [u8],
    left: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptName {
    pub(crate) name: Name,
    pub(crate) target: Target,
    /// It holds for as long as the directory has these attributes.
    pub(crate) proven: bool,
    pub(crate) child: Option<KeptChild>,
}

/// What a name led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptChild {
    pub(crate) metadata: Metadata,
    pub(crate) asked: u64,
    /// The name was known before its object changed: it may lead elsewhere.
    pub(crate) doubted: bool,
    pub(crate) link: Option<Vec<u8>>,
}

/// A version of a file, and which grains of it are held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptFile {
    pub(crate) subject: Subject,
    /// Grains from one up to another, and whether their version is proven.
    pub(crate) runs: Vec<(u64, u64, bool)>,
}

const DIRECTORY: u8 = 1;
const FILE: u8 = 2;

/// Room for what a record begins with.
const SUBJECT_BYTES: usize = 256;

/// Room for a name in a record besides its bytes and those of its handle: with attributes, and without a link's target.
const NAME_BYTES: usize = 4 + 1 + 1 + 8 + METADATA_BYTES + 8 + 1;
const METADATA_BYTES: usize = 1 + 6 * 4 + 4 * 8 + 3 * 8;

/// Longest target of a link that is kept.
const LONGEST_LINK: usize = 1 << 16;

/// Returns what names the record of an object: a directory's handle; of a file also its version.
pub(crate) fn key(handle: &FileHandle, metadata: &Metadata) -> Vec<u8> {
    if metadata.file_type != FileType::Regular {
        return root_key(handle);
    }
    let mut key = named(handle, FILE);
    for number in [metadata.fileid, metadata.size] {
        key.extend_from_slice(&number.to_le_bytes());
    }
    put_time(&mut key, metadata.mtime);
    put_time(&mut key, metadata.ctime);
    key
}

/// Returns what names the record of a root, whose attributes may not be known.
pub(crate) fn root_key(handle: &FileHandle) -> Vec<u8> {
    named(handle, DIRECTORY)
}

fn named(handle: &FileHandle, kind: u8) -> Vec<u8> {
    let mut key = Vec::with_capacity(handle.as_bytes().len() + 34);
    put_handle(&mut key, handle);
    key.push(kind);
    key
}

/// Returns a number that tells versions of a file apart; 0 for what has no versions.
pub(crate) fn version(metadata: &Metadata) -> u64 {
    if metadata.file_type != FileType::Regular {
        return 0;
    }
    let Metadata { size, mtime, ctime, fileid, .. } = *metadata;
    let times = [mtime, ctime].map(|time| u64::from(time.seconds) << 32 | u64::from(time.nanoseconds));
    // FNV-1a over words, with a multiplication more so that low and high bits mix.
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
    [size, times[0], times[1], fileid].into_iter().fold(0xcbf2_9ce4_8422_2325, mix).max(1)
}

impl<'a> KeptDirectory<'a> {
    /// Makes the record of a directory with these `count` names, whose bytes and handles take `bytes`. They need not all be in memory
    /// at once.
    pub(crate) fn encode(
        subject: &Subject,
        complete: Option<bool>,
        (count, bytes): (usize, usize),
        names: impl Iterator<Item = KeptName>,
    ) -> Vec<u8> {
        let mut out = Vec::with_capacity(SUBJECT_BYTES + count * NAME_BYTES + bytes);
        out.push(DIRECTORY);
        subject.encode(&mut out);
        out.push(complete.map_or(0, |proven| 1 + u8::from(proven)));
        out.extend_from_slice(&(count as u32).to_le_bytes());
        for KeptName { name, target, proven, child } in names {
            put_bytes(&mut out, &name);
            let kind = match &target {
                Target::Handle(..) => 0,
                Target::Listed(_) => 1,
                Target::Absent => 2,
            };
            let flags = [proven, child.is_some()];
            out.push(
                flags.iter().enumerate().fold(kind, |byte, (at, &flag)| byte | u8::from(flag) << (at + 2)),
            );
            match &target {
                Target::Handle(handle, fileid) => {
                    put_handle(&mut out, &handle.get());
                    out.extend_from_slice(&fileid.to_le_bytes());
                }
                Target::Listed(fileid) => out.extend_from_slice(&fileid.to_le_bytes()),
                Target::Absent => {}
            }
            let Some(KeptChild { metadata, asked, doubted, link }) = child else { continue };
            put_metadata(&mut out, &metadata);
            out.extend_from_slice(&asked.to_le_bytes());
            out.push(u8::from(doubted) | u8::from(link.is_some()) << 1);
            if let Some(link) = link {
                put_bytes(&mut out, &link);
            }
        }
        out
    }

    /// Reads a record; `None` unless all of it makes sense.
    pub(crate) fn decode(body: &'a [u8]) -> Option<Self> {
        let mut rest = body;
        if take_byte(&mut rest)? != DIRECTORY {
            return None;
        }
        let subject = Subject::decode(&mut rest)?;
        let complete = match take_byte(&mut rest)? {
            0 => None,
            proven => Some(proven == 2),
        };
        let names = Names { left: take_u32(&mut rest)?, rest };
        let mut all = names.clone();
        all.by_ref().for_each(drop);
        (all.left == 0 && all.rest.is_empty()).then_some(Self { subject, complete, names })
    }
}

impl Iterator for Names<'_> {
    type Item = KeptName;

    fn next(&mut self) -> Option<KeptName> {
        let left = self.left.checked_sub(1)?;
        let name = KeptName::decode(&mut self.rest)?;
        self.left = left;
        Some(name)
    }
}

impl KeptName {
    fn decode(rest: &mut &[u8]) -> Option<Self> {
        let (name, flags) = (take_bytes(rest)?.into(), take_byte(rest)?);
        let target = match flags & 3 {
            0 => Target::Handle(take_handle(rest)?.into(), take_u64(rest)?),
            1 => Target::Listed(take_u64(rest)?),
            _ => Target::Absent,
        };
        let child = if flags & 8 == 0 { None } else { Some(KeptChild::decode(rest)?) };
        Some(Self { name, target, proven: flags & 4 != 0, child })
    }
}

impl KeptChild {
    fn decode(rest: &mut &[u8]) -> Option<Self> {
        let (metadata, asked, flags) = (take_metadata(rest)?, take_u64(rest)?, take_byte(rest)?);
        let link = if flags & 2 == 0 { None } else { Some(take_bytes(rest)?) };
        Some(Self { metadata, asked, doubted: flags & 1 != 0, link })
    }
}

impl KeptFile {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FILE];
        self.subject.encode(&mut out);
        out.extend_from_slice(&(self.runs.len() as u32).to_le_bytes());
        for &(start, end, proven) in &self.runs {
            out.extend_from_slice(&start.to_le_bytes());
            out.extend_from_slice(&end.to_le_bytes());
            out.push(u8::from(proven));
        }
        out
    }

    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut rest = body;
        if take_byte(&mut rest)? != FILE {
            return None;
        }
        let subject = Subject::decode(&mut rest)?;
        let grains = subject.metadata.size.div_ceil(crate::GRAIN_BYTES);
        let count = take_u32(&mut rest)?;
        let mut runs = Vec::new();
        for _ in 0..count {
            let (start, end) = (take_u64(&mut rest)?, take_u64(&mut rest)?);
            if start >= end || end > grains || runs.last().is_some_and(|&(_, last, _)| last > start) {
                return None;
            }
            runs.push((start, end, take_byte(&mut rest)? == 1));
        }
        rest.is_empty().then_some(Self { subject, runs })
    }
}

impl Subject {
    fn encode(&self, out: &mut Vec<u8>) {
        put_handle(out, &self.handle);
        put_metadata(out, &self.metadata);
        out.extend_from_slice(&self.asked.to_le_bytes());
    }

    fn decode(rest: &mut &[u8]) -> Option<Self> {
        Some(Self { handle: take_handle(rest)?, metadata: take_metadata(rest)?, asked: take_u64(rest)? })
    }
}

const TYPES: [(FileType, ftype3); 7] = [
    (FileType::Regular, ftype3::NF3REG),
    (FileType::Directory, ftype3::NF3DIR),
    (FileType::Symlink, ftype3::NF3LNK),
    (FileType::BlockDevice, ftype3::NF3BLK),
    (FileType::CharacterDevice, ftype3::NF3CHR),
    (FileType::Socket, ftype3::NF3SOCK),
    (FileType::Fifo, ftype3::NF3FIFO),
];

fn put_metadata(out: &mut Vec<u8>, it: &Metadata) {
    out.push(TYPES.iter().position(|(kind, _)| *kind == it.file_type).unwrap_or(0) as u8);
    for number in [it.mode, it.links, it.uid, it.gid, it.device.0, it.device.1] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for number in [it.size, it.used, it.fsid, it.fileid] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for time in [it.atime, it.mtime, it.ctime] {
        put_time(out, time);
    }
}

fn take_metadata(rest: &mut &[u8]) -> Option<Metadata> {
    let (_, type_) = *TYPES.get(usize::from(take_byte(rest)?))?;
    Some(Metadata::from(&fattr3 {
        type_,
        mode: take_u32(rest)?,
        nlink: take_u32(rest)?,
        uid: take_u32(rest)?,
        gid: take_u32(rest)?,
        rdev: specdata3 { specdata1: take_u32(rest)?, specdata2: take_u32(rest)? },
        size: take_u64(rest)?,
        used: take_u64(rest)?,
        fsid: take_u64(rest)?,
        fileid: take_u64(rest)?,
        atime: take_time(rest)?,
        mtime: take_time(rest)?,
        ctime: take_time(rest)?,
    }))
}

fn put_time(out: &mut Vec<u8>, time: Time) {
    out.extend_from_slice(&time.seconds.to_le_bytes());
    out.extend_from_slice(&time.nanoseconds.to_le_bytes());
}

fn take_time(rest: &mut &[u8]) -> Option<nfstime3> {
    Some(nfstime3 { seconds: take_u32(rest)?, nseconds: take_u32(rest)? })
}

fn put_handle(out: &mut Vec<u8>, handle: &FileHandle) {
    out.push(handle.as_bytes().len() as u8);
    out.extend_from_slice(handle.as_bytes());
}

fn take_handle(rest: &mut &[u8]) -> Option<FileHandle> {
    let length = usize::from(take_byte(rest)?);
    let (handle, left) = rest.split_at_checked(length)?;
    *rest = left;
    FileHandle::try_from(handle).ok()
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn take_bytes(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let length = take_u32(rest)? as usize;
    let (bytes, left) = rest.split_at_checked(length).filter(|_| length <= LONGEST_LINK)?;
    *rest = left;
    Some(bytes.to_vec())
}

fn take<const LENGTH: usize>(rest: &mut &[u8]) -> Option<[u8; LENGTH]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*taken)
}

fn take_byte(rest: &mut &[u8]) -> Option<u8> {
    take::<1>(rest).map(|[byte]| byte)
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    take(rest).map(u32::from_le_bytes)
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use rand_chacha::{
        ChaCha8Rng,
        rand_core::{Rng, SeedableRng},
    };

    use super::*;

    fn metadata(file_type: FileType, size: u64) -> Metadata {
        let time = |seconds| nfstime3 { seconds, nseconds: seconds / 2 };
        let (_, type_) = TYPES[TYPES.iter().position(|(kind, _)| *kind == file_type).unwrap()];
        Metadata::from(&fattr3 {
            type_,
            mode: 0o755,
            nlink: 2,
            uid: 3,
            gid: 4,
            size,
            used: 5,
            rdev: specdata3 { specdata1: 6, specdata2: 7 },
            fsid: 8,
            fileid: u64::MAX,
            atime: time(10),
            mtime: time(11),
            ctime: time(u32::MAX),
        })
    }

    fn handle(bytes: &[u8]) -> FileHandle {
        FileHandle::try_from(bytes).unwrap()
    }

    /// What a record of a directory is made of.
    type Parts = (Subject, Option<bool>, Vec<KeptName>);

    fn directory() -> Parts {
        let subject =
            Subject { handle: handle(&[1; 64]), metadata: metadata(FileType::Directory, 4096), asked: 9 };
        let child = |kind, link: Option<&str>, doubted| {
            let link = link.map(|link| link.as_bytes().to_vec());
            Some(KeptChild { metadata: metadata(kind, 70), asked: 3, doubted, link })
        };
        let name = |name: &str, target, proven, child| KeptName {
            name: name.as_bytes().into(),
            target,
            proven,
            child,
        };
        let names = vec![
            name("a", Target::Handle(handle(b"x").into(), 5), true, child(FileType::Regular, None, true)),
            name("", Target::Absent, true, None),
            name(
                "link",
                Target::Handle(handle(b"l").into(), 6),
                false,
                child(FileType::Symlink, Some("a"), false),
            ),
            name("listed", Target::Listed(7), false, None),
        ];
        (subject, Some(true), names)
    }

    fn encoded((subject, complete, names): Parts) -> Vec<u8> {
        KeptDirectory::encode(&subject, complete, (names.len(), 0), names.into_iter())
    }

    fn decoded(body: &[u8]) -> Option<Parts> {
        let KeptDirectory { subject, complete, names } = KeptDirectory::decode(body)?;
        Some((subject, complete, names.collect()))
    }

    fn file() -> KeptFile {
        let subject = Subject {
            handle: handle(b"file"),
            metadata: metadata(FileType::Regular, 10 * crate::GRAIN_BYTES),
            asked: 1,
        };
        KeptFile { subject, runs: vec![(0, 3, true), (3, 4, false), (9, 10, true)] }
    }

    #[test]
    fn records_survive_their_bytes() {
        assert_eq!(decoded(&encoded(directory())), Some(directory()));
        assert_eq!(KeptFile::decode(&file().encode()), Some(file()));
        for complete in [None, Some(false)] {
            let (subject, _, names) = directory();
            let directory = (subject, complete, names);
            assert_eq!(decoded(&encoded(directory.clone())), Some(directory));
        }
        assert_eq!(decoded(&file().encode()), None);
        assert_eq!(KeptFile::decode(&encoded(directory())), None);
    }

    #[test]
    fn whatever_the_bytes_are_grains_lie_within_the_file() {
        let mut random = ChaCha8Rng::seed_from_u64(5);
        let (directory, file) = (encoded(directory()), file().encode());
        for cut in 0..file.len() {
            assert_eq!(KeptFile::decode(&file[..cut]), None);
        }
        for cut in 0..directory.len() {
            assert_eq!(decoded(&directory[..cut]), None);
        }
        let mut whole = 0;
        for _ in 0..20_000 {
            let mut bytes = file.clone();
            let at = random.next_u64() as usize % bytes.len();
            bytes[at] ^= 1 << (random.next_u64() % 8);
            if let Some(read) = KeptFile::decode(&bytes) {
                whole += 1;
                let grains = read.subject.metadata.size.div_ceil(crate::GRAIN_BYTES);
                assert!(read.runs.iter().all(|&(start, end, _)| start < end && end <= grains));
            }
            let mut bytes = directory.clone();
            let at = random.next_u64() as usize % bytes.len();
            bytes[at] = random.next_u64() as u8;
            let _ = decoded(&bytes);
        }
        assert!(whole > 1000);
    }

    #[test]
    fn every_version_of_a_file_has_a_key_of_its_own_and_a_directory_has_one() {
        let before = metadata(FileType::Regular, 70);
        let at = handle(b"handle");
        let with = |change: fn(&mut Metadata)| {
            let mut after = before;
            change(&mut after);
            after
        };
        for after in [
            with(|it| it.size = 71),
            with(|it| it.fileid = 1),
            with(|it| it.mtime = it.atime),
            with(|it| it.ctime = it.atime),
        ] {
            assert_ne!(key(&at, &before), key(&at, &after));
            assert_ne!(version(&before), version(&after));
        }
        let same = with(|it| (it.mode, it.atime) = (0, it.ctime));
        assert_eq!((key(&at, &before), version(&before)), (key(&at, &same), version(&same)));
        assert_ne!(key(&at, &before), key(&handle(b"other"), &before));
        let directory = metadata(FileType::Directory, 1);
        assert_eq!(key(&at, &directory), key(&at, &metadata(FileType::Directory, 5)));
        assert_eq!(version(&directory), 0);
        assert_ne!(key(&at, &directory), key(&at, &before));
    }
}
