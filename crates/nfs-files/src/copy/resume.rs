//! Keeping track of a large file while it is copied, so that a later run goes on where this one ends.
//!
//! A download's journal lies beside its temporary file. An upload's lies in the state directory of this machine: the
//! source may be read-only, and the server would have to be told every time.
//!
//! It has the identity of the source (file, size, times) and of the temporary file, the ranges that are on stable storage, and the ranges
//! that are copied as long as a *token* has not changed. The token of a download is the boot id of this machine and the number of the
//! mount: after a power failure only what had been flushed counts. That of an upload is the server's write verifier: the next run sends a
//! COMMIT, and sends the ranges again if the reply has another one (RFC 1813 §3.3.21). A journal never claims a range before its bytes are
//! written, and a file is never truncated before its journal says so. Locks (`flock`) keep a second run away.

pub(in crate::copy) mod completed;
pub(in crate::copy) mod state;

use std::{
    fs::File,
    io,
    net::SocketAddr,
    os::{
        fd::BorrowedFd,
        unix::fs::{FileExt, MetadataExt},
    },
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use nfs_wireless_client::{Checkpoint, Metadata, Range, RangeSet, Sink, Source, Time, Upload};

use tokio::sync::oneshot;

use super::{file::Watched, tags::Tags};
use crate::{
    journal::{Identity, Journal, LENGTH, State},
    local::{Directory, Key, Mark, Part, StateHome, Writer, removed},
    name,
};

/// Files up to this size have no journal, and are copied from the beginning: sixteen of them, the usual number in flight, are 2 MiB.
pub(super) const SMALL_BYTES: u64 = 128 << 10;

/// Bytes copied after which the journal is written: a sixteenth of the file, within these bounds.
const INTERVAL_BYTES: (u64, u64) = (32 << 10, 512 << 10);

/// Time after which the journal is written with whatever was copied: on a slow link few bytes are a lot.
const INTERVAL: Duration = Duration::from_millis(250);

/// Bytes of a download that may be in the memory of this machine alone, roughly, before they are flushed to its disk.
const FLUSH_BYTES: u64 = 32 << 20;

/// Time after which they are flushed, however few they are.
const FLUSH_INTERVAL: Duration = Duration::from_secs(10);

/// How often it is looked whether there is something to flush.
const FLUSH_CHECK: Duration = Duration::from_millis(500);

/// In the journal of a download, what stands for a temporary name that no other run finds. For the usual one it is 0, and for one with the
/// tag of a run it is the number of that, and 1.
const NO_RUN: u64 = u64::MAX;

/// Where the token of an upload has the number of the run under whose temporary name the file is, behind the verifier of the server.
const NUMBER: usize = 8;

/// Where it has the number, and 1, of another run under whose temporary name the file may still be.
const FORMER: usize = 9;

/// A journal with the state that it is to hold.
#[derive(Debug)]
struct Recorder {
    journal: Journal,
    state: State,
    unrecorded: u64,
    interval: u64,
    recorded: Instant,
}

impl Recorder {
    fn new(journal: Journal, state: State) -> Self {
        let interval = (state.source.size / 16).clamp(INTERVAL_BYTES.0, INTERVAL_BYTES.1);
        Self { journal, state, unrecorded: 0, interval, recorded: Instant::now() }
    }

    /// Counts bytes; whether it is time to write the journal.
    fn is_due(&mut self, bytes: u64) -> bool {
        self.unrecorded += bytes;
        self.unrecorded >= self.interval || self.recorded.elapsed() >= INTERVAL
    }

    /// Writes the journal. When that fails, say because the disk is full, the last state stands.
    fn record(&mut self) {
        let _ = self.journal.write(&self.state);
        self.unrecorded = 0;
        self.recorded = Instant::now();
    }
}

/// A download that is kept track of.
#[derive(Debug)]
pub(super) struct Receiving {
    recorder: Arc<Mutex<Recorder>>,
    file: Arc<File>,
    /// Bytes that were there before.
    pub(super) had: RangeSet,
    /// Whether there was something of another version of the source.
    pub(super) source_changed: bool,
}

/// Takes the bytes of a download.
struct Recorded {
    file: Writer,
    recorder: Arc<Mutex<Recorder>>,
}

impl Receiving {
    /// Looks what an earlier run of this user, who has the `key`, has left, and forgets what is not of this source.
    ///
    /// # Errors
    /// `AlreadyExists` where somebody else has taken the name of the journal; what reading or writing the files fails of.
    pub(super) fn open(
        directory: &Directory,
        name: &[u8],
        mode: u32,
        source: Identity,
        (key, tags): (Key, &Tags),
    ) -> io::Result<(Self, Part)> {
        let journal = directory.lock_sealed(&name::journal(name), 0o600)?;
        let owner = journal.metadata()?.uid();
        let (journal, found) = Journal::open(journal, key)?;
        // Of another version nothing is kept, and what may be read by others then may not be what others may read.
        let is_of_source = found.as_ref().is_some_and(|found| found.source == source);
        let left = found.as_ref().and_then(|found| left(found, name, tags));
        let known = left.as_ref().filter(|_| is_of_source);
        let known = known.map(|(mark, at)| (*mark, &at[..]));
        if let Some((mark, at)) = left.as_ref().filter(|_| !is_of_source) {
            // What cannot be removed is in nobody's way.
            let _ = directory.remove_known(at, *mark);
        }
        let mut part = Part::beside(directory, name, mode, known, || tags.temporary(name))?;
        let (mark, token, size) = (part.mark()?, directory.session(), part.size()?);
        if mark.owner_and_mode >> 32 != u64::from(owner) {
            // Who has the journal can put what was in it there again.
            part.discard();
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "belongs to somebody else"));
        }
        let run = match part.other_name() {
            None => 0,
            Some(other) => {
                // It has the name that it had.
                let was = left.as_ref().filter(|(_, at)| at == other).and(found.as_ref());
                let own = || tags.number().filter(|_| tags.temporary(name).as_deref() == Some(other));
                was.map(|was| was.target[3]).or_else(|| Some(u64::from(own()?) + 1)).unwrap_or(NO_RUN)
            }
        };
        if run != NO_RUN {
            part.keep();
        }
        let target = [0, mark.number, mark.owner_and_mode, run];
        let source_changed = found.as_ref().is_some_and(|found| found.source != source);
        let (mut solid, mut had) = (RangeSet::new(), RangeSet::new());
        if let Some(found) = found.filter(|_| part.is_known()) {
            solid = found.solid.below(size);
            had = solid.clone();
            // What had not reached the disk when the machine or the file system went down may be anything.
            if found.token == token && token != [0; 16] {
                found.tentative.below(size).iter().for_each(|range| had.insert(range));
            }
        }
        let state = State { source, target, solid, token, tentative: had.clone() };
        let mut recorder = Recorder::new(journal, state);
        // Before the file is emptied: no state may claim what is not there.
        recorder.journal.write(&recorder.state)?;
        if had.is_empty() {
            part.clear()?;
        }
        let recorder = Arc::new(Mutex::new(recorder));
        let receiving = Self { recorder, file: part.writer(), had, source_changed };
        Ok((receiving, part))
    }

    /// Removes the journal of a copy that was complete when a run was killed, and has its name. What has that now may be anything: there is
    /// no telling which change of its attributes was the one that gave it the name.
    pub(super) fn remove_complete(
        directory: &Directory,
        name: &[u8],
        (key, tags): (Key, &Tags),
    ) -> io::Result<()> {
        let Some(file) = directory.lock_there(&name::journal(name))? else { return Ok(()) };
        let (journal, Some(state)) = Journal::open(file, key)? else { return Ok(()) };
        let is_whole = state.solid.bytes().max(state.tentative.bytes()) == state.source.size;
        let at = left(&state, name, tags).map_or_else(|| name::temporary(name), |(_, at)| at);
        if is_whole && directory.stat(&at)?.is_none() {
            directory.remove_open(&name::journal(name), journal.file())?;
        }
        Ok(())
    }

    /// Removes the journal that this user may have left: of a copy that is begun without one it may claim nothing.
    ///
    /// # Errors
    /// `WouldBlock` when another run has it; what removing it fails of.
    pub(super) fn remove_left(directory: &Directory, name: &[u8]) -> io::Result<()> {
        let journal = name::journal(name);
        if directory.stat(&journal)?.is_none() {
            return Ok(());
        }
        let _held = directory.lock_there(&journal)?;
        match directory.remove(&journal) {
            Err(error) if directory.read_own(&journal)?.is_some() => Err(error),
            // What others keep there is believed by no run of this user.
            _ => Ok(()),
        }
    }

    /// Removes the journal: the copy has its name. What cannot be removed is believed by no run.
    pub(super) fn finish(self, directory: &Directory, name: &[u8]) {
        let _ = directory.remove_open(&name::journal(name), lock(&self.recorder).journal.file());
    }

    /// Records that everything is copied.
    pub(super) fn record(&self) {
        lock(&self.recorder).record();
    }

    /// Returns what takes the missing bytes and writes them with `file`.
    pub(super) fn sink(&self, file: Writer) -> impl Sink + use<> {
        Recorded { file, recorder: Arc::clone(&self.recorder) }
    }

    /// Flushes the bytes to the disk from time to time, so that they also outlast a power failure. Ends when that fails, and when somebody
    /// has removed the file, for then they are for nothing.
    pub(super) async fn flush(&self) -> io::Error {
        let mut flushed = Instant::now();
        loop {
            tokio::time::sleep(FLUSH_CHECK).await;
            if self.file.metadata().is_ok_and(|file| file.nlink() == 0) {
                return removed();
            }
            let written = lock(&self.recorder).state.tentative.clone();
            let waiting = written.bytes() - lock(&self.recorder).state.solid.bytes();
            if !is_to_be_flushed(waiting, flushed.elapsed()) {
                continue;
            }
            let file = Arc::clone(&self.file);
            // An error is told once, and nobody knows of which bytes.
            match tokio::task::spawn_blocking(move || file.sync_data()).await {
                Ok(Ok(())) => {
                    let mut recorder = lock(&self.recorder);
                    recorder.state.solid = written;
                    recorder.record();
                }
                Ok(Err(error)) => {
                    let mut recorder = lock(&self.recorder);
                    recorder.state.tentative = recorder.state.solid.clone();
                    recorder.record();
                    return error;
                }
                Err(error) => return io::Error::other(error),
            }
            flushed = Instant::now();
        }
    }
}

/// What an interrupted download has left, of which a copy in place has no use. While that lasts no other run takes it.
#[derive(Debug)]
pub(super) struct Left {
    /// Locked.
    _journal: File,
    /// The temporary file, and its name.
    part: Option<(Mark, Vec<u8>)>,
}

impl Left {
    /// Looks for the journal of a download; `None` if there is none of this user, who has the `key`.
    ///
    /// # Errors
    /// `WouldBlock` when another run has it.
    pub(super) fn find(
        directory: &Directory,
        name: &[u8],
        (key, tags): (impl FnOnce() -> Option<Key>, &Tags),
    ) -> io::Result<Option<Self>> {
        let Some(file) = directory.lock_there(&name::journal(name))? else { return Ok(None) };
        let found = match key() {
            Some(key) => Journal::open(file.try_clone()?, key)?.1,
            None => None,
        };
        // That of another user, whose copy may be resumed.
        if found.is_none() && directory.read_own(&name::journal(name))?.is_none() {
            return Ok(None);
        }
        let part = found.and_then(|found| left(&found, name, tags));
        Ok(Some(Self { _journal: file, part }))
    }

    /// Removes it: the copy in place is complete. What cannot be removed is in nobody's way.
    pub(super) fn remove(self, directory: &Directory, name: &[u8]) {
        if let Some((mark, at)) = self.part {
            let _ = directory.remove_known(&at, mark);
        }
        let _ = directory.remove(&name::journal(name));
    }
}

/// Returns what an earlier run has left by the words of its journal, and the name of that; `None` where no other run finds it.
fn left(found: &State, name: &[u8], tags: &Tags) -> Option<(Mark, Vec<u8>)> {
    let [_, number, owner_and_mode, run] = found.target;
    let at = match run.checked_sub(1) {
        None => name::temporary(name),
        // Another run may have the number now, and nothing to do with this file: who has locked the journal has what it names.
        Some(run) => tags.of_number(u8::try_from(run).ok()?)?.temporary(name),
    };
    Some((Mark { number, owner_and_mode }, at))
}

impl Drop for Receiving {
    fn drop(&mut self) {
        let mut recorder = lock(&self.recorder);
        if recorder.unrecorded > 0 {
            recorder.record();
        }
    }
}

impl Sink for Recorded {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, bytes)?;
        let length = bytes.len() as u64;
        let mut recorder = lock(&self.recorder);
        recorder.state.tentative.insert(Range { start: offset, end: offset + length });
        if recorder.is_due(length) {
            recorder.record();
        }
        Ok(())
    }
}

/// Whether it is time to flush bytes that wait for it, so long after the last time.
fn is_to_be_flushed(waiting: u64, elapsed: Duration) -> bool {
    waiting >= FLUSH_BYTES || waiting > 0 && elapsed >= FLUSH_INTERVAL
}

fn lock(recorder: &Mutex<Recorder>) -> std::sync::MutexGuard<'_, Recorder> {
    recorder.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A local file on its way to a server.
pub(super) struct Sending {
    file: File,
    recorder: Option<Recorder>,
    /// The attributes of the copy that the server told last.
    latest: Arc<Mutex<Option<Metadata>>>,
    watched: Arc<Watched>,
    /// To be told, once, what the server had already.
    confirmed: Option<oneshot::Sender<u64>>,
}

/// An upload's journal, found and locked.
#[derive(Debug)]
pub(super) struct Earlier {
    directory: Directory,
    name: Vec<u8>,
    /// Holds the lock for as long as this lives.
    file: File,
    found: Option<State>,
    source: Identity,
    key: Key,
    /// Of this run.
    number: u8,
}

impl Earlier {
    /// Opens the journal of an upload from this machine to the file that `target` stands for, on
    /// `server`, by the run that has this number.
    ///
    /// `None` if another run has it, which copies to another server with the same handles.
    ///
    /// # Errors
    /// `WouldBlock` when another run is copying there; or why nothing can be kept.
    pub(super) fn open(
        state: &StateHome,
        target: &[u8],
        server: SocketAddr,
        source: Identity,
        number: u8,
    ) -> io::Result<Option<Self>> {
        let (directory, name) = (state.open()?, Self::name(target));
        let Some(file) = state::lock(&directory, &name, Some(server), LENGTH)? else { return Ok(None) };
        let key = state.key()?;
        let (_, found) = Journal::open(file.try_clone()?, key)?;
        Ok(Some(Self { directory, name, file, found, source, key, number }))
    }

    /// Whether an upload to `target` is under way, or was interrupted.
    pub(super) fn exists(state: &StateHome, target: &[u8]) -> bool {
        state.open().is_ok_and(|it| !matches!(it.stat(&Self::name(target)), Ok(None)))
    }

    fn name(target: &[u8]) -> Vec<u8> {
        format!("upload-{:016x}", name::fnv1a(target)).into_bytes()
    }

    /// Whether there was something of another version of the source.
    pub(super) fn source_changed(&self) -> bool {
        self.found.as_ref().is_some_and(|found| found.source != self.source)
    }

    /// Returns the numbers of the runs under whose temporary names there may be what was left, without that of this one.
    pub(super) fn other_numbers(&self) -> Vec<u8> {
        let Some(State { token, .. }) = &self.found else { return Vec::new() };
        let all = [Some(token[NUMBER]), token[FORMER].checked_sub(1)];
        all.into_iter().flatten().filter(|number| *number != self.number).collect()
    }

    /// Returns the numbers of all runs under whose temporary names there may be what was left; none if nothing was.
    pub(super) fn numbers(&self) -> Vec<u8> {
        let own = self.found.as_ref().map(|_| self.number);
        own.into_iter().chain(self.other_numbers()).collect()
    }

    /// Whether a file on the server is what was left: another run may use the same temporary name by now.
    pub(super) fn is_of(&self, file: &Metadata) -> bool {
        let is_it =
            |found: &State| found.target[..2] == [file.fsid, file.fileid] && made(found) == file.atime;
        self.found.as_ref().is_some_and(is_it)
    }

    /// Records that what was left gets the temporary name of this run, and has that of another until then.
    pub(super) fn note_rename(&mut self, from: u8) {
        let Some(found) = &mut self.found else { return };
        (found.token[NUMBER], found.token[FORMER]) = (self.number, from + 1);
        // A journal that cannot be written now will not be written later either.
        let _ = self.file.try_clone().and_then(|file| Journal::open(file, self.key)?.0.write(found));
    }

    /// Returns what of this version of the source was copied.
    pub(super) fn checkpoint(&self) -> Option<Checkpoint> {
        let found = self.found.as_ref().filter(|found| found.source == self.source)?;
        let [fsid, fileid, third, fourth] = found.target;
        let ([owner, _], [mode, _]) = (halves(third), halves(fourth));
        let (verifier, _) = found.token.split_first_chunk()?;
        Some(Checkpoint {
            fsid,
            fileid,
            made: made(found),
            owner,
            mode,
            stable: found.solid.clone(),
            verifier: *verifier,
            unstable: found.tentative.clone(),
        })
    }

    fn recorder(&self) -> io::Result<Recorder> {
        let (journal, _) = Journal::open(self.file.try_clone()?, self.key)?;
        let nothing = RangeSet::new();
        let (solid, tentative) = (nothing.clone(), nothing);
        let mut token = [0; 16];
        token[NUMBER] = self.number;
        let state = State { source: self.source, target: [0; 4], solid, token, tentative };
        Ok(Recorder::new(journal, state))
    }

    /// Forgets the upload: it is complete.
    pub(super) fn finish(self) {
        let _ = self.directory.remove(&self.name);
        drop(self.file);
    }
}

impl Sending {
    /// Keeps track of the upload in `earlier`, if there is one. The attributes that the server tells go to `latest`.
    ///
    /// Also returns what tells, with the first bytes that the server accepts, how many it turned out to have of earlier runs; nothing
    /// if it needs no more.
    ///
    /// # Errors
    /// When the system has no file descriptor left.
    pub(super) fn new(
        file: File,
        earlier: Option<&Earlier>,
        latest: Arc<Mutex<Option<Metadata>>>,
        watched: Arc<Watched>,
    ) -> io::Result<(Self, oneshot::Receiver<u64>)> {
        let recorder = earlier.map(Earlier::recorder).transpose()?;
        let (confirmed, told) = oneshot::channel();
        Ok((Self { file, recorder, latest, watched, confirmed: Some(confirmed) }, told))
    }
}

/// Returns the time of last access that an upload has made its temporary file with.
const fn made(state: &State) -> Time {
    let [_, _, third, fourth] = state.target;
    let ([_, seconds], [_, nanoseconds]) = (halves(third), halves(fourth));
    Time { seconds, nanoseconds }
}

/// Two numbers as one.
fn whole([high, low]: [u32; 2]) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

const fn halves(whole: u64) -> [u32; 2] {
    [(whole >> 32) as u32, whole as u32]
}

impl Source for Sending {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        // All is there, and the copy is to get its name.
        if buffer.is_empty() { self.watched.check() } else { self.file.read_exact_at(buffer, offset) }
    }

    fn as_file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_file()
    }

    fn progressed(&mut self, upload: &Upload, bytes: u64) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = upload.metadata();
        if let Some(confirmed) = self.confirmed.take() {
            let _ = confirmed.send(upload.resumed());
        }
        let Some(recorder) = &mut self.recorder else { return };
        if !recorder.is_due(bytes) {
            return;
        }
        let Some(Checkpoint { fsid, fileid, made, owner, mode, stable, verifier, unstable }) =
            upload.checkpoint()
        else {
            return;
        };
        let state = &mut recorder.state;
        state.target = [fsid, fileid, whole([owner, made.seconds]), whole([mode, made.nanoseconds])];
        state.token[..verifier.len()].copy_from_slice(&verifier);
        (state.solid, state.tentative) = (stable, unstable);
        recorder.record();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key([7; 32]);

    const SIZE: u64 = 4 << 20;

    const SOURCE: Identity = Identity { file: (1, 2), size: SIZE, modified: 3, changed: 4 };

    /// A directory on this machine that a file named `file` is copied into.
    struct Target {
        path: tempfile::TempDir,
        directory: Directory,
    }

    impl Target {
        fn new() -> Self {
            let path = tempfile::tempdir().unwrap();
            Self { directory: Directory::open(path.path()).unwrap(), path }
        }

        /// Those of a run.
        fn tags(&self) -> Tags {
            Tags::new(&StateHome::at(&self.path.path().join("state")))
        }

        fn receive(&self, source: Identity) -> (Receiving, Part) {
            Receiving::open(&self.directory, b"file", 0o600, source, (KEY, &self.tags())).unwrap()
        }

        /// What a later run would find in the journal.
        fn state(&self) -> State {
            Journal::open(self.journal(), KEY).unwrap().1.unwrap()
        }

        fn journal(&self) -> File {
            File::options().read(true).write(true).open(self.journal_path()).unwrap()
        }

        fn journal_path(&self) -> std::path::PathBuf {
            self.directory.join(&name::journal(b"file"))
        }

        fn change_state(&self, change: impl FnOnce(&mut State)) {
            let (mut journal, state) = Journal::open(self.journal(), KEY).unwrap();
            let mut state = state.unwrap();
            change(&mut state);
            journal.write(&state).unwrap();
        }

        /// Leaves so many bytes of an incomplete copy, and its journal.
        fn leave(&self, start: u64, length: u64) {
            let (receiving, part) = self.receive(SOURCE);
            write(&receiving, &part, start, length);
        }

        /// Leaves a complete copy under its name, and its journal.
        fn complete(&self) {
            let (receiving, part) = self.receive(SOURCE);
            write(&receiving, &part, 0, SIZE);
            receiving.record();
            part.finish().unwrap();
        }

        fn has_journal(&self) -> bool {
            self.journal_path().exists()
        }
    }

    fn write(receiving: &Receiving, part: &Part, start: u64, length: u64) {
        let mut sink = receiving.sink(Writer::new(part.writer()));
        sink.write_at(start, &vec![7; length as usize]).unwrap();
    }

    fn range(start: u64, end: u64) -> RangeSet {
        let mut set = RangeSet::new();
        set.insert(Range { start, end });
        set
    }

    #[test]
    fn the_journal_is_written_after_many_bytes_or_some_time() {
        let target = Target::new();
        let (receiving, part) = target.receive(SOURCE);
        // Where this takes long, it is written for that reason.
        let start = Instant::now();
        let has = |ranges: RangeSet| target.state().tentative == ranges || start.elapsed() >= INTERVAL;
        write(&receiving, &part, 0, SIZE / 16 - 1);
        assert!(has(RangeSet::new()));
        write(&receiving, &part, SIZE / 16 - 1, 1);
        assert!(has(range(0, SIZE / 16)));
        lock(&receiving.recorder).recorded -= INTERVAL;
        write(&receiving, &part, SIZE / 16, 1);
        assert_eq!(target.state().tentative, range(0, SIZE / 16 + 1));
        write(&receiving, &part, SIZE / 16 + 1, 1);
        assert!(has(range(0, SIZE / 16 + 1)));
        drop(receiving);
        assert_eq!(target.state().tentative, range(0, SIZE / 16 + 2), "nothing is lost at the end of a run");
    }

    #[test]
    fn few_bytes_are_flushed_after_some_seconds_and_many_at_once() {
        let second = Duration::from_secs(1);
        assert!(!is_to_be_flushed(0, 100 * second));
        assert!(!is_to_be_flushed(1, 9 * second) && is_to_be_flushed(1, 10 * second));
        assert!(!is_to_be_flushed((32 << 20) - 1, second) && is_to_be_flushed(32 << 20, second));
    }

    #[tokio::test]
    async fn what_is_flushed_is_good_after_a_power_failure() {
        let target = Target::new();
        let (receiving, part) = target.receive(Identity { size: 2 * FLUSH_BYTES, ..SOURCE });
        write(&receiving, &part, 0, FLUSH_BYTES);
        let is_flushed = async {
            while target.state().solid != range(0, FLUSH_BYTES) {
                tokio::time::sleep(FLUSH_CHECK / 10).await;
            }
        };
        tokio::select! {
            error = receiving.flush() => panic!("{error}"),
            flushed = tokio::time::timeout(Duration::from_secs(30), is_flushed) => flushed.unwrap(),
        }
    }

    #[test]
    fn what_a_run_has_received_is_there_for_the_next_one() {
        let target = Target::new();
        target.leave(10, 90);
        let next = target.receive(SOURCE);
        assert_eq!((&next.0.had, next.0.source_changed), (&range(10, 100), false));
        drop(next);
        let (changed, part) = target.receive(Identity { changed: 5, ..SOURCE });
        assert_eq!((&changed.had, changed.source_changed), (&RangeSet::new(), true));
        assert_eq!(part.size().unwrap(), 0);
    }

    #[test]
    fn what_others_may_have_written_is_not_resumed() {
        type Plant = fn(&Target);
        let plants: [(&str, Plant); 3] = [
            ("its mode lets others write", |target| {
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
                std::fs::set_permissions(target.path.path().join(".file.nfsw-part"), mode).unwrap();
            }),
            ("it has another name", |target| {
                let part = target.path.path().join(".file.nfsw-part");
                std::fs::hard_link(part, target.path.path().join("other")).unwrap();
            }),
            ("the journal is not sealed by this user", |target| {
                let (_, state) = Journal::open(target.journal(), KEY).unwrap();
                let (mut journal, _) = Journal::open(target.journal(), Key([8; 32])).unwrap();
                [0; 2].iter().for_each(|_| journal.write(state.as_ref().unwrap()).unwrap());
            }),
        ];
        for (what, plant) in plants {
            let target = Target::new();
            target.leave(0, 100);
            plant(&target);
            let (receiving, part) = target.receive(SOURCE);
            assert_eq!((&receiving.had, part.size().unwrap()), (&RangeSet::new(), 0), "{what}");
        }
    }

    #[test]
    fn what_was_given_to_its_last_owner_is_begun_again() {
        if !rustix::process::geteuid().is_root() {
            // Only root can give it to somebody else.
            return;
        }
        for mode in [0o600, 0o644, 0o2755, 0o4755] {
            let target = Target::new();
            target.leave(0, 100);
            let part = target.path.path().join(".file.nfsw-part");
            std::os::unix::fs::chown(&part, Some(65534), None).unwrap();
            let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(&part, permissions).unwrap();
            let (receiving, part) = target.receive(SOURCE);
            assert_eq!((&receiving.had, part.size().unwrap()), (&RangeSet::new(), 0), "{mode:o}");
        }
    }

    #[test]
    fn a_journal_of_somebody_else_is_not_believed_whatever_is_in_it() {
        if !rustix::process::geteuid().is_root() {
            // Only root can make it one of somebody else.
            return;
        }
        let target = Target::new();
        target.leave(0, 100);
        let journal = target.journal_path();
        std::os::unix::fs::chown(&journal, Some(65534), None).unwrap();
        let error =
            Receiving::open(&target.directory, b"file", 0o600, SOURCE, (KEY, &target.tags())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn after_a_power_failure_only_what_was_on_the_disk_is_there() {
        for token in [[0; 16], [9; 16]] {
            let target = Target::new();
            target.leave(0, 100);
            target.change_state(|state| {
                state.solid = range(0, 40);
                state.token = token;
            });
            assert_eq!(target.receive(SOURCE).0.had, range(0, 40), "{token:?}");
        }
    }

    #[test]
    fn what_a_journal_says_of_a_copy_that_has_its_name_is_not_believed() {
        let target = Target::new();
        target.complete();
        let (receiving, part) = target.receive(SOURCE);
        assert_eq!((receiving.had.clone(), part.size().unwrap()), (RangeSet::new(), 0));
    }

    #[test]
    fn the_journal_of_a_complete_copy_is_removed_and_no_other() {
        type Change = fn(&Target);
        let changes: [(&str, Change, bool); 5] = [
            ("nothing", |_| {}, false),
            ("a byte is missing", |it| it.change_state(|state| state.tentative = range(0, SIZE - 1)), true),
            ("all is on the disk", |it| it.change_state(|state| state.solid = range(0, SIZE)), false),
            (
                "something has the temporary name",
                |it| std::fs::write(it.path.path().join(".file.nfsw-part"), "a part").unwrap(),
                true,
            ),
            (
                "it is not sealed by this user",
                |it| {
                    let (_, state) = Journal::open(it.journal(), KEY).unwrap();
                    let (mut journal, _) = Journal::open(it.journal(), Key([8; 32])).unwrap();
                    [0; 2].iter().for_each(|_| journal.write(state.as_ref().unwrap()).unwrap());
                },
                true,
            ),
        ];
        for (what, change, is_left) in changes {
            let target = Target::new();
            target.complete();
            change(&target);
            Receiving::remove_complete(&target.directory, b"file", (KEY, &target.tags())).unwrap();
            assert_eq!(target.has_journal(), is_left, "{what}");
        }
        let target = Target::new();
        Receiving::remove_complete(&target.directory, b"file", (KEY, &target.tags())).unwrap();
    }

    #[test]
    fn an_upload_is_known_until_it_is_complete() {
        let location = tempfile::tempdir().unwrap();
        let state = StateHome::at(location.path());
        let server = "192.0.2.1:2049".parse().unwrap();
        let open = |source| Earlier::open(&state, b"target", server, source, 1).unwrap().unwrap();
        assert!(!Earlier::exists(&state, b"target"));
        let earlier = open(SOURCE);
        assert!(Earlier::exists(&state, b"target") && !Earlier::exists(&state, b"other"));
        assert!(!earlier.source_changed() && earlier.checkpoint().is_none());
        let mut recorder = earlier.recorder().unwrap();
        recorder.state.solid = range(0, 100);
        recorder.record();
        drop((recorder, earlier));
        let earlier = open(SOURCE);
        assert!(!earlier.source_changed());
        assert_eq!(earlier.checkpoint().unwrap().stable, range(0, 100));
        assert!(earlier.other_numbers().is_empty());
        drop(earlier);
        let of_run = |number| Earlier::open(&state, b"target", server, SOURCE, number).unwrap().unwrap();
        let mut other = of_run(2);
        assert_eq!(other.other_numbers(), [1]);
        // Killed before the server has done it, or after.
        other.note_rename(1);
        drop(other);
        for (number, others) in [(1, &[2][..]), (2, &[1]), (3, &[2, 1])] {
            let next = of_run(number);
            assert_eq!(next.other_numbers(), others);
            assert_eq!(next.checkpoint().unwrap().stable, range(0, 100));
        }
        let earlier = open(Identity { changed: 5, ..SOURCE });
        assert!(earlier.source_changed() && earlier.checkpoint().is_none());
        earlier.finish();
        assert!(!Earlier::exists(&state, b"target"));
    }
}
