//! Which files of a tree an interrupted run has copied, so that the same command does not copy them again.

use std::{
    cell::RefCell,
    collections::HashMap,
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    net::SocketAddr,
    os::unix::fs::FileExt,
};

use crate::{
    copy::{resume::state, source::Attributes},
    journal::Identity,
    local::{Directory, StateHome},
    name::fnv1a,
};

/// The files that are complete. Kept in the state directory until a run of the command has copied everything.
///
/// A file counts only if neither source nor copy has changed since, so that leaving it out makes no difference.
#[derive(Debug)]
pub(in crate::copy) struct Done {
    directory: Directory,
    name: Vec<u8>,
    file: RefCell<File>,
    /// For each copy, what it and its source were.
    known: HashMap<u64, u64>,
    /// Whether copies keep modes and times: those that were made without are not complete for a run that does.
    preserve: bool,
    /// Whether the last change of a copy's attributes is known: of one on a server, giving it its name is the last one, and no reply
    /// tells when that was.
    knows_changes: bool,
}

/// What the list begins with; the last byte is the version of the format.
const MAGIC: [u8; 8] = *b"nfswdon\x03";

/// Then follow the session of the destination and who has the list.
const HEADER: usize = HOLDER_AT + state::HOLDER_BYTES as usize;
const HOLDER_AT: usize = 8 + 16;

/// The directory and name of a copy, and what it and its source were, both hashed, and a checksum.
const RECORD: usize = 8 + 8 + 4;

/// What the hash of a copy that is not complete stands for.
const NOTHING: u64 = 0;

/// Bytes that are read of a list: of a million files.
const MAX_BYTES: u64 = 20 << 20;

impl Done {
    /// Opens the list of the copies of what `key` stands for: sources and target, in whatever words
    /// they are named. Copies on this machine count only in the `session` of their file system, for a
    /// file may have its name before its bytes are on the disk.
    ///
    /// `None` if another run has it, which copies to another server with the same handles.
    ///
    /// # Errors
    /// `WouldBlock` when another run copies the same; or why nothing can be kept.
    pub(in crate::copy) fn open(
        state: &StateHome,
        key: &[u8],
        server: Option<SocketAddr>,
        session: [u8; 16],
        preserve: bool,
    ) -> io::Result<Option<Self>> {
        let name = format!("tree-{:016x}", fnv1a(key)).into_bytes();
        let list = Self::open_in(state.open()?, name, server, session)?;
        Ok(list.map(|list| Self { preserve, ..list }))
    }

    fn open_in(
        directory: Directory,
        name: Vec<u8>,
        server: Option<SocketAddr>,
        session: [u8; 16],
    ) -> io::Result<Option<Self>> {
        let Some(mut file) = state::lock(&directory, &name, server, HOLDER_AT as u64)? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        (&mut file).take(MAX_BYTES).read_to_end(&mut bytes)?;
        let (header, records) = bytes.split_at(HEADER.min(bytes.len()));
        let is_ours = header.len() == HEADER && header.starts_with(&MAGIC);
        let records = if is_ours && header[8..24] == session { records } else { &[] };
        let known: Vec<_> = records.chunks_exact(RECORD).map_while(decode).collect();
        file.set_len((HEADER + known.len() * RECORD) as u64)?;
        file.write_all_at(&[&MAGIC[..], &session].concat(), 0)?;
        file.seek(SeekFrom::End(0))?;
        let (known, file) = (known.into_iter().collect(), RefCell::new(file));
        Ok(Some(Self { directory, name, file, known, preserve: false, knows_changes: server.is_none() }))
    }

    /// Whether `copy`, which is there now, is the complete copy of `source`.
    pub(in crate::copy) fn holds(&self, target: &[u8], source: Identity, copy: &Attributes) -> bool {
        let pair = self.pair(source, copy);
        pair != NOTHING && self.known.get(&fnv1a(target)) == Some(&pair)
    }

    /// Adds a complete copy. When that fails it is copied again by the next run, and nothing else happens.
    pub(in crate::copy) fn add(&self, target: &[u8], source: Identity, copy: &Attributes) {
        self.write(target, self.pair(source, copy));
    }

    /// Lets the next run copy a file again: what is there is not what was copied.
    pub(in crate::copy) fn forget(&self, target: &[u8]) {
        self.write(target, NOTHING);
    }

    fn write(&self, target: &[u8], pair: u64) {
        let mut record = [0; RECORD];
        record[..8].copy_from_slice(&fnv1a(target).to_le_bytes());
        record[8..16].copy_from_slice(&pair.to_le_bytes());
        let checksum = crc32fast::hash(&record[..16]);
        record[16..].copy_from_slice(&checksum.to_le_bytes());
        let _ = self.file.borrow_mut().write_all(&record);
    }

    /// What a source and its copy were.
    fn pair(&self, source: Identity, copy: &Attributes) -> u64 {
        let mut copy = copy.identity();
        if !self.knows_changes {
            copy.changed = 0;
        }
        fnv1a(&[&source.to_bytes()[..], &copy.to_bytes(), &[self.preserve.into()]].concat())
    }

    /// Forgets the list: everything is copied.
    pub(in crate::copy) fn finish(self) {
        let _ = self.directory.remove(&self.name);
    }
}

fn decode(record: &[u8]) -> Option<(u64, u64)> {
    let (target, rest) = record.split_first_chunk()?;
    let (pair, checksum) = rest.split_first_chunk()?;
    let checksum = u32::from_le_bytes(checksum.try_into().ok()?);
    (checksum == crc32fast::hash(&record[..16]))
        .then_some((u64::from_le_bytes(*target), u64::from_le_bytes(*pair)))
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, fs, time::Duration};

    use proptest::prelude::*;

    use super::*;
    use crate::{
        Context,
        copy::{self, Options},
        find,
        served::{Served, Silent, remote, servers},
        url::Target,
    };

    fn attributes(size: u64) -> Attributes {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        Attributes::from(&file.metadata().unwrap())
    }

    /// Its bytes are others, and its attributes do not tell.
    #[tokio::test]
    async fn a_complete_copy_that_is_rotten_is_found_by_verify_and_copied_again() {
        let [here, state] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let server = Served::start();
        fs::create_dir(server.path("/tree")).unwrap();
        fs::write(server.path("/tree/file"), "contents").unwrap();
        fs::write(server.path("/tree/other"), "").unwrap();
        // In the way of the other file: the run fails and leaves its list.
        let target = here.path().join("tree");
        fs::create_dir_all(target.join("other")).unwrap();
        let run = async |verify| {
            let [source, destination] = [server.url("/tree/."), target.display().to_string()]
                .map(|text| Target::parse(OsStr::new(&text)).unwrap());
            let mut copy = Options::new([source], destination);
            (copy.recursive, copy.verify, copy.state) = (true, verify, StateHome::at(state.path()));
            let servers = servers();
            Box::pin(copy::run(&copy, Context { servers: &servers, events: &Silent })).await.unwrap()
        };
        let counts = run(false).await;
        assert_eq!((counts.copied, counts.failed), (1, 1), "{counts:?}");
        fs::write(target.join("file"), "rotten..").unwrap();
        let copied = Attributes::from(&fs::metadata(target.join("file")).unwrap());
        let servers = servers();
        let context = Context { servers: &servers, events: &Silent };
        let found = find::find(context, &remote(&server, "/tree/file")).await.unwrap();
        let list = fs::read_dir(StateHome::at(state.path()).open().unwrap().path()).unwrap();
        let list = list.map(|entry| entry.unwrap().file_name().into_encoded_bytes());
        let list = list.into_iter().find(|name| name.starts_with(b"tree-")).unwrap();
        let location = Directory::open(&target).unwrap();
        let done = Done::open_in(StateHome::at(state.path()).open().unwrap(), list, None, location.session());
        let done = done.unwrap().unwrap();
        let (file_system, number) = location.number();
        let key =
            [&file_system.to_le_bytes()[..], &number.to_le_bytes(), &location.session(), b"file"].concat();
        done.add(&key, Attributes::from(&found.metadata).identity(), &copied);
        drop(done);
        // Nothing else would look at it.
        let counts = run(false).await;
        assert_eq!((counts.copied, counts.failed), (0, 1), "{counts:?}");
        let counts = run(true).await;
        assert_eq!((counts.copied, counts.failed), (0, 2), "{counts:?}");
        let counts = run(false).await;
        assert_eq!((counts.copied, counts.failed), (1, 1), "{counts:?}");
        assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "contents");
    }

    #[test]
    fn what_is_added_is_held_by_the_next_run_until_the_machine_restarts() {
        let location = tempfile::tempdir().unwrap();
        let open_for = |server, session| {
            let directory = Directory::open(location.path()).unwrap();
            Done::open_in(directory, b"list".to_vec(), server, [session; 16]).map(Option::unwrap)
        };
        let open = |session| open_for(None, session);
        let (source, copy, other) = (attributes(1).identity(), attributes(2), attributes(3));
        let done = open(1).unwrap();
        done.add(b"a", source, &copy);
        done.add(b"b", source, &copy);
        assert_eq!(open(1).unwrap_err().kind(), io::ErrorKind::WouldBlock, "one run at a time");
        drop(done);
        // The last record was cut short.
        let list_file = || File::options().write(true).open(location.path().join("list")).unwrap();
        list_file().set_len((HEADER + RECORD + 7) as u64).unwrap();
        let done = open(1).unwrap();
        assert!(done.holds(b"a", source, &copy) && !done.holds(b"b", source, &copy));
        assert!(!done.holds(b"a", source, &other) && !done.holds(b"a", other.identity(), &copy));
        done.add(b"c", source, &copy);
        done.forget(b"c");
        done.add(b"d", source, &copy);
        drop(done);
        let done = open(1).unwrap();
        assert!(done.holds(b"a", source, &copy) && done.holds(b"d", source, &copy));
        assert!(!done.holds(b"c", source, &copy));
        let renamed = Attributes { changed: copy.changed + Duration::from_secs(1), ..copy };
        assert!(!done.holds(b"a", source, &renamed));
        drop(done);
        let server = Some(SocketAddr::from(([192, 0, 2, 1], 2049)));
        let done = open_for(server, 1).unwrap();
        done.add(b"e", source, &copy);
        drop(done);
        assert!(open_for(server, 1).unwrap().holds(b"e", source, &renamed), "RENAME changes ctime");
        // Another version of the format.
        list_file().write_all_at(&[MAGIC[7] + 1], 7).unwrap();
        let done = open(1).unwrap();
        assert!(!done.holds(b"a", source, &copy));
        done.add(b"a", source, &copy);
        drop(done);
        let done = open(2).unwrap();
        assert!(!done.holds(b"a", source, &copy));
        done.finish();
        assert_eq!(fs::read_dir(location.path()).unwrap().count(), 0);
    }

    /// Why the time of the last change is not compared on servers: no reply tells it after this.
    #[test]
    fn a_name_changes_when_a_file_was_changed_last() {
        let location = tempfile::tempdir().unwrap();
        let [old, new] = ["old", "new"].map(|name| location.path().join(name));
        let file = File::create(&old).unwrap();
        let changed = || Attributes::from(&file.metadata().unwrap()).changed;
        let before = changed();
        while changed() == before {
            fs::rename(&old, &new).unwrap();
            fs::rename(&new, &old).unwrap();
        }
    }

    proptest! {
        #[test]
        fn whatever_is_in_a_list_it_is_opened(mut bytes in prop::collection::vec(any::<u8>(), 0..200), magic: bool) {
            let location = tempfile::tempdir().unwrap();
            if magic {
                bytes.splice(..0, MAGIC);
            }
            fs::write(location.path().join("list"), bytes).unwrap();
            let open = || {
                let directory = Directory::open(location.path()).unwrap();
                Done::open_in(directory, b"list".to_vec(), None, [0; 16]).map(Option::unwrap)
            };
            let (source, copy) = (attributes(1).identity(), attributes(2));
            let done = open().unwrap();
            prop_assert!(!done.holds(b"a", source, &copy));
            done.add(b"a", source, &copy);
            drop(done);
            prop_assert!(open().unwrap().holds(b"a", source, &copy));
        }

        #[test]
        fn no_record_is_taken_for_another(record in prop::array::uniform20(any::<u8>()), flip in 0_usize..160) {
            let mut whole = record;
            whole[16..].copy_from_slice(&crc32fast::hash(&record[..16]).to_le_bytes());
            prop_assert!(decode(&whole).is_some());
            whole[flip / 8] ^= 1 << (flip % 8);
            prop_assert_eq!(decode(&whole), None);
            prop_assert_eq!(decode(&record[..flip / 8]), None);
        }
    }
}
