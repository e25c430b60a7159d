//! A file's bytes, to the server's stable storage.

mod arguments;
mod checkpoint;
mod completion;
mod control;
mod quirks;
mod sync_time;

use std::time::Duration;

use nfs_wire::{
    FileHandle, Procedure, Status, encode,
    nfs3_types::nfs3::{COMMIT3resok, LOOKUP3resok, Nfs3Option, WRITE3resok, fattr3, nfs_fh3, stable_how},
    reply::{self, Results},
    rpc::Rejection,
};

pub use self::checkpoint::Checkpoint;
use self::{quirks::ServerQuirks, sync_time::SyncTime};
use super::{
    Effort, Limits, Machine, NextCall, Step, TransferError,
    ranges::{Range, RangeSet},
    stability::{SentUnder, Stability},
};
use crate::{
    attr::{Metadata, SetAttributes, Time, optional},
    engine::{Class, Payload, Repeat},
};

/// Bytes written UNSTABLE before a COMMIT is sent alongside: it starts the disk early and bounds what a server
/// restart makes us send again.
const COMMIT_INTERVAL_BYTES: u64 = 16 << 20;

/// WRITEs that accept nothing before we give up.
const MAX_EMPTY_WRITES: u32 = 8;

/// How often a temporary name may be found taken, and cleared, before we give up.
const MAX_ROUNDS: u32 = 3;

/// Parts that name the one control call and the one COMMIT in flight.
pub(crate) const CONTROL: u32 = u32::MAX;
const COMMIT: u32 = u32::MAX - 1;

/// Where the bytes go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Into a new file of this temporary name, which takes the target's name when all is stable.
    Temporary(Vec<u8>),
    /// As `Temporary`, in a way that another upload can go on with later.
    Resumable {
        /// The temporary name.
        name: Vec<u8>,
        /// Time of last access of a new temporary file: to be different every time, such as the time of day.
        made: Time,
        /// What an earlier upload of the same bytes has left.
        earlier: Option<Box<Checkpoint>>,
    },
    /// Into the target itself, which is made when missing.
    InPlace,
    /// Into this file, which exists and keeps what it has beyond the source's end.
    Existing(FileHandle),
}

/// What an [`Upload`] is to make.
#[derive(Clone, Debug)]
pub struct UploadSpec {
    /// Directory of the target.
    pub directory: FileHandle,
    /// Name of the target.
    pub name: Vec<u8>,
    /// How the target comes to be.
    pub placement: Placement,
    /// The temporary file, where the caller has made it ahead, empty, and an earlier upload has left none.
    pub made: Option<(FileHandle, Metadata)>,
    /// Size of the source, in bytes.
    pub size: u64,
    /// Ranges of the source that hold only zeros: a new file gets holes there, and no WRITE. Written
    /// all the same where the file may have bytes already (`InPlace`, `Existing`).
    pub holes: RangeSet,
    /// Permission bits of a new file.
    pub mode: u32,
    /// Attributes to set when the data is stable.
    pub attributes: SetAttributes,
    /// Whether a temporary file gets the target's name in the end, in the place of what has it; without that it keeps its own, and the
    /// caller names it.
    pub gets_name: bool,
}

impl UploadSpec {
    /// `size` bytes, none of them known to be a hole; a new file has mode 0644 (`rw-r--r--`), and no attribute is set.
    pub fn new(directory: FileHandle, name: impl Into<Vec<u8>>, placement: Placement, size: u64) -> Self {
        Self {
            directory,
            name: name.into(),
            placement,
            made: None,
            size,
            holes: RangeSet::new(),
            mode: 0o644,
            attributes: SetAttributes::default(),
            gets_name: true,
        }
    }
}

/// Writes a file with many WRITEs in flight and commits it (RFC 1813 §3.3.7, §3.3.21).
///
/// CREATE (GUARDED, so that a late duplicate cannot cut the file), WRITE, COMMIT, SETATTR, RENAME. Whoever
/// drives the machine must be able to produce the source's bytes again until it is done: a range counts as
/// written only when a COMMIT with the write verifier of its WRITE has been answered.
#[derive(Clone, Debug)]
pub struct Upload {
    spec: UploadSpec,
    directory: nfs_fh3,
    phase: Phase,
    busy: bool,
    file: nfs_fh3,
    /// Attributes of the file when it was made or found.
    found: Option<Metadata>,
    /// The latest of its attributes that the server told.
    latest: Option<Metadata>,
    quirks: ServerQuirks,
    /// The file had, or may have had, bytes before the first WRITE, though it should be new.
    leftovers: bool,
    /// How often the temporary name was found taken.
    rounds: u32,
    block: u32,
    todo: RangeSet,
    sync_time: SyncTime,
    /// Bytes at the end of the file that are written stable, so that no COMMIT has to follow them.
    sync_tail: u64,
    /// The WRITEs in flight.
    parts: Vec<Option<Part>>,
    free: Vec<u32>,
    stability: Stability,
    resumed: u64,
    committing: bool,
    empty_writes: u32,
    /// How late a copy of a WRITE that was sent more than once may run: servers run calls side by side, and COMMIT, SETATTR and
    /// RENAME may all overtake it. Zero when there is none.
    lateness: Duration,
    /// It has its name.
    named: bool,
    confirmations: u32,
    /// The time that SETATTR left, if its reply told: the one that was asked for, as the server's file system rounds it.
    kept_time: Option<Time>,
}

/// The file that an upload has made or filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uploaded {
    /// The file, whatever name leads to it.
    pub file: FileHandle,
    /// The latest of its attributes that the server told.
    pub metadata: Option<Metadata>,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    range: Range,
    stable: stable_how,
    /// What was known of write verifiers when it was sent.
    sent_under: SentUnder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Is the temporary file of an earlier upload there?
    Recover,
    /// It is not: does it have the target's name already?
    LookAhead,
    /// Does the server still have what it was given then?
    Settle,
    Create,
    /// CREATE found the temporary name taken, or gave no handle. A file of that name that is empty may be one that we made.
    Find {
        may_be_ours: bool,
    },
    /// The temporary name holds somebody's leftover.
    Clear,
    Data,
    Attributes,
    /// SETATTR was refused as the file had changed: what has it become?
    Latest,
    Rename,
    /// RENAME found nothing: did an earlier attempt do it, or a duplicate of the only one?
    Check,
    /// A WRITE was sent more than once: did a late copy of it touch the time that was set?
    Confirm,
    Done,
}

impl Upload {
    /// Starts before CREATE, or before the first WRITE into a file that exists or was made ahead.
    pub fn new(mut spec: UploadSpec) -> Self {
        spec.holes = match spec.placement {
            Placement::Temporary(_) | Placement::Resumable { .. } => spec.holes.below(spec.size),
            Placement::InPlace | Placement::Existing(_) => RangeSet::new(),
        };
        let made = spec.made.map(|(_, metadata)| metadata);
        let (phase, file) = match (&spec.placement, spec.made) {
            (Placement::Existing(file), _) => (Phase::Data, file.to_fh3()),
            (_, Some((file, _))) => (Phase::Data, file.to_fh3()),
            (Placement::Resumable { earlier: Some(_), .. }, None) => (Phase::Recover, nfs_fh3::default()),
            (Placement::Temporary(_) | Placement::Resumable { .. } | Placement::InPlace, None) => {
                (Phase::Create, nfs_fh3::default())
            }
        };
        let mut upload = Self {
            directory: spec.directory.to_fh3(),
            todo: spec.holes.missing(spec.size),
            stability: Stability::resume(spec.holes.clone()),
            spec,
            phase,
            busy: false,
            file,
            found: made,
            latest: made,
            quirks: ServerQuirks::default(),
            leftovers: false,
            rounds: 0,
            block: 0,
            sync_time: SyncTime::default(),
            sync_tail: 0,
            parts: Vec::new(),
            free: Vec::new(),
            resumed: 0,
            committing: false,
            empty_writes: 0,
            lateness: Duration::ZERO,
            named: false,
            confirmations: 0,
            kept_time: None,
        };
        upload.advance_from_data();
        upload
    }

    /// Returns the handle of the file being written, once the server has given one.
    pub fn file(&self) -> Option<FileHandle> {
        FileHandle::try_from(&self.file).ok()
    }

    /// Returns the temporary name that may be lying about when the transfer ends early.
    pub fn leftover(&self) -> Option<&[u8]> {
        if self.named {
            return None;
        }
        match (&self.spec.placement, self.phase) {
            (_, Phase::Recover | Phase::LookAhead | Phase::Create | Phase::Done)
            | (Placement::InPlace | Placement::Existing(_), _) => None,
            (Placement::Temporary(name) | Placement::Resumable { name, .. }, _) => Some(name),
        }
    }

    /// Returns what a later upload needs to go on; `None` unless the placement is resumable and the server tells enough
    /// about the file.
    pub fn checkpoint(&self) -> Option<Checkpoint> {
        let Placement::Resumable { .. } = self.spec.placement else { return None };
        if self.leftovers {
            return None;
        }
        let (mut stable, verifier, unstable) = self.stability.state();
        self.spec.holes.iter().for_each(|hole| stable.remove(hole));
        Some(Checkpoint { stable, verifier, unstable, ..Checkpoint::of(self.found.as_ref()?) })
    }

    /// Returns what was made, once the server has given a handle.
    pub fn made(&self) -> Option<Uploaded> {
        Some(Uploaded { file: self.file()?, metadata: self.latest })
    }

    /// Returns the latest attributes of the file that the server told.
    pub const fn metadata(&self) -> Option<Metadata> {
        self.latest
    }

    /// Returns the number of bytes on stable storage, holes included.
    pub fn stable(&self) -> u64 {
        self.stability.stable()
    }

    /// Returns how many bytes of an earlier upload the server has confirmed, so that they are not written again. Known when the
    /// first WRITE leaves.
    pub const fn resumed(&self) -> u64 {
        self.resumed
    }

    /// Returns how many bytes had to be written again because the server lost them.
    pub const fn rewritten(&self) -> u64 {
        self.stability.lost()
    }

    /// Whether the file is made under a temporary name.
    const fn is_temporary(&self) -> bool {
        matches!(self.spec.placement, Placement::Temporary(_) | Placement::Resumable { .. })
    }

    /// Whether CREATE is to refuse a name that is taken.
    const fn is_guarded(&self) -> bool {
        self.is_temporary() && !self.quirks.lacks_guarded
    }

    fn working_name(&self) -> &[u8] {
        match &self.spec.placement {
            Placement::Temporary(name) | Placement::Resumable { name, .. } => name,
            Placement::InPlace | Placement::Existing(_) => &self.spec.name,
        }
    }

    fn control_call(&self) -> Option<NextCall> {
        let procedure = match self.phase {
            Phase::Create => Procedure::Create,
            Phase::Recover | Phase::LookAhead | Phase::Find { .. } | Phase::Check => Procedure::Lookup,
            Phase::Settle => Procedure::Commit,
            Phase::Clear => Procedure::Remove,
            Phase::Attributes => Procedure::Setattr,
            Phase::Rename => Procedure::Rename,
            Phase::Confirm | Phase::Latest => Procedure::Getattr,
            Phase::Data | Phase::Done => return None,
        };
        let delay = if self.phase == Phase::Confirm { self.lateness } else { Duration::ZERO };
        // No bytes: loading them is the last chance of the source to say that it has changed, before the copy gets its name.
        let payload = (self.phase == Phase::Rename).then_some(Payload { offset: self.spec.size, length: 0 });
        Some(NextCall { delay, payload, ..NextCall::control(CONTROL, procedure) })
    }

    fn data_call(&mut self, limits: Limits, has_room: &dyn Fn(Class, u32) -> bool) -> Option<NextCall> {
        // The fewer WRITEs are sent right before the time is set, the fewer late copies of them can touch it.
        let dated = self.final_attributes().mtime.is_some();
        (self.block, self.sync_tail) =
            (limits.write_block, if dated { 0 } else { self.sync_time.tail(limits.pace) });
        if self.wants_commit() {
            self.committing = true;
            self.stability.start_commit();
            return Some(NextCall::control(COMMIT, Procedure::Commit));
        }
        if self.todo.is_empty() || !has_room(Class::Write, limits.write_block) {
            return None;
        }
        let range = self.todo.take(limits.write_block.into())?;
        let part = match self.free.pop() {
            Some(part) => part,
            None => {
                self.parts.push(None);
                u32::try_from(self.parts.len() - 1).expect("bounded by the engine's calls")
            }
        };
        let is_last = self.is_one_block() || self.only_the_tail_is_left();
        let is_sample = !is_last && !dated && self.sync_time.wants_sample(limits, self.todo.bytes());
        let at_once = is_last || is_sample || self.quirks.forgets_writes || self.quirks.lacks_commit;
        let stable = if at_once { stable_how::FILE_SYNC } else { stable_how::UNSTABLE };
        self.parts[part as usize] = Some(Part { range, stable, sent_under: self.stability.sent_under() });
        let length = u32::try_from(range.length()).expect("at most one block");
        let payload = Some(Payload { offset: range.start, length });
        // No two WRITEs of a transfer overlap, so a late copy harms only the modification time that was set meanwhile; with one
        // block nothing else takes time in between.
        let repeat = if dated && self.is_one_block() { Repeat::SameXid } else { Repeat::Idempotent };
        Some(NextCall {
            part,
            procedure: Procedure::Write,
            class: Class::Write,
            repeat,
            payload,
            bytes: length,
            delay: Duration::ZERO,
        })
    }

    fn wants_commit(&self) -> bool {
        let unstable_in_flight = || self.parts.iter().flatten().any(|it| it.stable == stable_how::UNSTABLE);
        let all_written = self.only_the_tail_is_left() && !unstable_in_flight();
        let unstable = self.stability.unstable_bytes();
        !self.committing && (unstable >= COMMIT_INTERVAL_BYTES || (unstable > 0 && all_written))
    }

    fn is_one_block(&self) -> bool {
        self.spec.size <= u64::from(self.block)
    }

    /// What is still to be written, if anything, is stable at once: a COMMIT for it would take a round trip more.
    fn only_the_tail_is_left(&self) -> bool {
        self.todo.is_empty() || self.todo.bytes() < self.sync_tail
    }

    /// Moves on from data when every byte is stable.
    fn advance_from_data(&mut self) {
        if self.phase == Phase::Data && self.stability.stable() == self.spec.size {
            self.phase =
                if self.final_attributes().is_empty() { self.rename_or_done() } else { Phase::Attributes };
        }
    }

    /// The attributes to set at the end: those asked for, and what creating and writing had to bend.
    fn final_attributes(&self) -> SetAttributes {
        let mut attributes = self.spec.attributes;
        let made = !matches!(self.spec.placement, Placement::Existing(_));
        if made && attributes.mode.is_none() && self.spec.mode & OWNER_WRITE == 0 {
            attributes.mode = Some(self.spec.mode);
        }
        let ends_in_a_hole = !self.spec.holes.is_empty() && self.spec.holes.end() == self.spec.size;
        if self.spec.placement == Placement::InPlace || ends_in_a_hole || self.leftovers {
            attributes.size = Some(self.spec.size);
        }
        attributes
    }

    /// Records attributes; replies may overtake each other, times do not.
    fn observe(&mut self, attributes: &Nfs3Option<fattr3>) {
        let told = optional(attributes);
        if told.map(|it| it.ctime) >= self.latest.map(|it| it.ctime) {
            self.latest = told.or(self.latest);
        }
    }

    fn is_ours(&self, found: &LOOKUP3resok) -> bool {
        let fileid = optional(&found.obj_attributes).map(|it| it.fileid);
        found.object == self.file || (fileid.is_some() && fileid == self.found.map(|it| it.fileid))
    }

    fn handle_write(&mut self, part: u32, results: &[u8]) -> Result<Step, TransferError> {
        const WRITE: Procedure = Procedure::Write;
        let Part { range, stable, sent_under } =
            self.parts[part as usize].take().expect("results of a WRITE in flight");
        self.free.push(part);
        let done = decode::<WRITE3resok>(WRITE, results)?.map_err(|status| refused(WRITE, status))?;
        let accepted = u64::from(done.count);
        if accepted > range.length() {
            let reason = "WRITE claims more bytes than it was given";
            return Err(TransferError::NoProgress { procedure: WRITE, reason });
        }
        if accepted == 0 {
            self.empty_writes += 1;
            if self.empty_writes > MAX_EMPTY_WRITES {
                let reason = "WRITE accepts no bytes";
                return Err(TransferError::NoProgress { procedure: WRITE, reason });
            }
        }
        let written = Range { start: range.start, end: range.start + accepted };
        self.todo.insert(Range { start: written.end, end: range.end });
        self.observe(&done.file_wcc.after);
        if self.quirks.lacks_commit && done.committed == stable_how::UNSTABLE {
            if stable != stable_how::UNSTABLE {
                let reason = "there is no COMMIT, and WRITE makes nothing stable";
                return Err(TransferError::NoProgress { procedure: WRITE, reason });
            }
            // It left before it was known that there is no COMMIT.
            self.todo.insert(written);
        } else {
            self.stability.written(written, done.committed, done.verf, sent_under, &mut self.todo);
        }
        self.check_verifiers(WRITE)?;
        let asked = u32::try_from(range.length()).expect("at most one block");
        Ok(Step::Written { asked, accepted: done.count })
    }

    fn handle_commit(&mut self, results: &[u8]) -> Result<(), TransferError> {
        self.committing = false;
        let done = decode::<COMMIT3resok>(Procedure::Commit, results)?
            .map_err(|status| refused(Procedure::Commit, status))?;
        self.stability.committed(done.verf, &mut self.todo);
        self.check_verifiers(Procedure::Commit)
    }

    fn check_verifiers(&mut self, procedure: Procedure) -> Result<(), TransferError> {
        self.quirks.forgets_writes |= self.stability.wants_write_through();
        if self.stability.is_hopeless() {
            let reason = "its write verifier changes all the time, so that nothing becomes stable";
            return Err(TransferError::NoProgress { procedure, reason });
        }
        Ok(())
    }
}

impl Machine for Upload {
    fn next_call(&mut self, limits: Limits, has_room: &dyn Fn(Class, u32) -> bool) -> Option<NextCall> {
        if self.phase == Phase::Data {
            return self.data_call(limits, has_room);
        }
        if self.busy {
            return None;
        }
        let call = self.control_call();
        self.busy = call.is_some();
        call
    }

    fn encode(&self, call: &NextCall, buffer: &mut Vec<u8>) {
        match call.payload {
            _ if call.part == CONTROL => self.encode_control(buffer),
            None => self.encode_commit(buffer),
            Some(Payload { offset, length }) => {
                encode(buffer, &self.file);
                encode(buffer, &offset);
                encode(buffer, &length);
                let part = self.parts[call.part as usize].as_ref();
                encode(buffer, &part.map_or(stable_how::FILE_SYNC, |it| it.stable));
                encode(buffer, &length);
            }
        }
    }

    fn handle_results(
        &mut self,
        part: u32,
        effort: Effort,
        results: &[u8],
        complete: bool,
    ) -> Result<Step, TransferError> {
        if !complete {
            return Ok(Step::NeedMore);
        }
        let step = match part {
            CONTROL => {
                self.handle_control(effort.attempts, results)?;
                Step::Done
            }
            COMMIT => {
                self.handle_commit(results)?;
                Step::Done
            }
            part => {
                if effort.attempts > 1 {
                    self.expect_late_copies(effort.elapsed);
                }
                if let Some(Part { stable, .. }) = self.parts[part as usize] {
                    self.sync_time.handle_reply(stable != stable_how::UNSTABLE, effort);
                }
                self.handle_write(part, results)?
            }
        };
        self.advance_from_data();
        Ok(step)
    }

    fn handle_payload_done(&mut self, _part: u32) {}

    fn handle_rejection(&mut self, part: u32, rejection: Rejection) -> Result<(), TransferError> {
        let procedure = match part {
            COMMIT if rejection == Rejection::ProcedureUnavailable => {
                self.committing = false;
                self.quirks.lacks_commit = true;
                self.stability.abandon(&mut self.todo);
                return Ok(());
            }
            COMMIT => Procedure::Commit,
            CONTROL if self.phase == Phase::Settle && rejection == Rejection::ProcedureUnavailable => {
                self.busy = false;
                self.quirks.lacks_commit = true;
                self.take_up(None);
                return Ok(());
            }
            CONTROL => self.control_call().map_or(Procedure::Null, |call| call.procedure),
            _ => Procedure::Write,
        };
        Err(TransferError::Rejected { procedure, rejection })
    }

    fn take_back(&mut self, part: u32) {
        self.put_off(part);
        if part != COMMIT {
            self.expect_late_copies(Duration::ZERO);
        }
    }

    fn put_off(&mut self, part: u32) {
        if part == COMMIT {
            self.committing = false;
            self.stability.abandon_commit();
        }
        if let Some(Part { range, .. }) = self.parts.get_mut(part as usize).and_then(Option::take) {
            self.todo.insert(range);
            self.free.push(part);
        }
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }
}

/// Without it some servers refuse the WRITEs of the very file they just made.
const OWNER_WRITE: u32 = 0o200;

fn decode<'a, T: Results<'a>>(
    procedure: Procedure,
    results: &'a [u8],
) -> Result<Result<T, Status>, TransferError> {
    reply::decode(results).map_err(|error| TransferError::Protocol { procedure, error })
}

const fn refused(procedure: Procedure, status: Status) -> TransferError {
    TransferError::Status { procedure, status }
}

#[cfg(test)]
mod tests;
