//! Faults for tests: what goes wrong, for which calls, and when.

use std::time::Duration;

use nfs_wire::{FileHandle, Procedure, Reader, Status, nfs3_types, rpc};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

use crate::stream;

/// What the server does wrong. The default is nothing.
///
/// Faults are for tests: replies that they hold back count against no bound.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Faults {
    /// Rules, all of which are looked at for each call; where two disagree the first one wins.
    pub rules: Vec<Rule>,
    /// The `rtmax` and `rtpref` that FSINFO claims instead of the true ones, in bytes; 0 and `u32::MAX` exist in the wild.
    pub claimed_read_bytes: Option<u32>,
    /// The `wtmax` and `wtpref` that FSINFO claims instead of the true ones, in bytes.
    pub claimed_write_bytes: Option<u32>,
    /// What MNT takes for the exported directory.
    pub mountable: Mountable,
    /// EXPORT lists nothing.
    pub hides_exports: bool,
    /// File systems that are mounted on directories of the export.
    pub inner_exports: Vec<InnerExport>,
}

/// A file system that is mounted on a directory of the export, and is exported itself: MNT and EXPORT know it, LOOKUP and READDIR go
/// on in the directory below it, as on Linux without `crossmnt`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InnerExport {
    /// Path that it is exported as.
    pub path: Vec<u8>,
    /// Directory of the back end that plays its root, as a path below the exported directory.
    pub stored: Vec<u8>,
    /// Whether MNT refuses it with ACCES.
    pub is_refused: bool,
    /// Whether EXPORT leaves it out, as it does paths that lead to an export through a link.
    pub is_unlisted: bool,
}

/// What MNT takes for the exported directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mountable {
    /// The export, and directories below it for what they are.
    #[default]
    Directories,
    /// The export alone; nothing below it can be mounted.
    Export,
    /// Any path, as `go-nfs` does.
    Anything,
    /// Any path but `/`.
    AnythingButRoot,
}

/// One fault.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Which calls it is about.
    pub calls: Calls,
    /// Which of these it strikes.
    pub when: When,
    /// What happens to them.
    pub action: Action,
}

/// A choice of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Calls {
    /// Every call, of any program.
    Any,
    /// Every call of the program with this number.
    Program(u32),
    /// Every call of the procedure of MOUNT with this number.
    Mount(u32),
    /// Every call of an NFS procedure.
    Procedure(Procedure),
    /// READs or WRITEs that touch the byte at `offset` or any later one.
    Reaching {
        /// `Read` or `Write`.
        procedure: Procedure,
        /// First byte concerned.
        offset: u64,
    },
    /// READs or WRITEs of more than `bytes`.
    Larger {
        /// `Read` or `Write`.
        procedure: Procedure,
        /// Largest size spared.
        bytes: u32,
    },
    /// CREATEs of the mode EXCLUSIVE.
    ExclusiveCreate,
    /// CREATEs of the mode GUARDED.
    GuardedCreate,
    /// CREATEs and MKDIRs that set a time of last access.
    TimedCreate,
}

/// Which of the chosen calls are struck. Retransmissions count as calls of their own.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum When {
    /// All.
    Always,
    /// The n-th alone, counted from 1.
    Nth(u64),
    /// The first n.
    First(u64),
    /// All after the first n.
    After(u64),
    /// Each with this probability, 0 to 1.
    Chance(f64),
}

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// The call is lost before anything is done.
    DropCall,
    /// The call is served, its reply lost.
    DropReply,
    /// The reply leaves later than it would.
    DelayReply(Duration),
    /// The reply leaves after the next one of the service, or after [`REORDER_TIME`] if none comes.
    ReorderReply,
    /// The reply leaves twice.
    DuplicateReply,
    /// The call is answered with a status and not served. Only NFS calls are struck.
    Fail(Status),
    /// The call is answered as if it was done, without attributes, and not served: LINK, REMOVE, RENAME or RMDIR.
    Pretend,
    /// The call is answered with an RPC rejection and not served.
    Reject(rpc::Rejection),
    /// A READ or WRITE moves at most this many bytes.
    Shorten(u32),
    /// A WRITE is made stable at once and says so, whatever was asked for.
    WriteStable,
    /// The write verifier changes before the call is served, as after a restart that lost nothing.
    ChangeVerifier,
    /// The back end loses what was not committed and the verifier changes, before the call is served.
    Crash,
    /// READDIR and READDIRPLUS give every entry the cookie that was asked with, and never end.
    StickCookie,
}

/// Longest time that a reordered reply is held back.
pub const REORDER_TIME: Duration = Duration::from_millis(100);

impl Rule {
    /// Makes a rule for all calls of one procedure.
    pub const fn always(procedure: Procedure, action: Action) -> Self {
        Self { calls: Calls::Procedure(procedure), when: When::Always, action }
    }
}

impl Faults {
    /// A server that answers a procedure with JUKEBOX for the first `count` times.
    pub fn jukebox(procedure: Procedure, count: u64) -> Self {
        Self::from(vec![Rule {
            calls: Calls::Procedure(procedure),
            when: When::First(count),
            action: Action::Fail(Status::JUKEBOX),
        }])
    }

    /// A server that knows no COMMIT: it answers PROC_UNAVAIL and makes every WRITE stable, as `nfs3_server` does.
    pub fn no_commit() -> Self {
        Self::from(vec![
            Rule::always(Procedure::Commit, Action::Reject(rpc::Rejection::ProcedureUnavailable)),
            Rule::always(Procedure::Write, Action::WriteStable),
        ])
    }

    /// A server that answers READDIRPLUS with NOTSUPP, as `unfs3` does.
    pub fn no_readdirplus() -> Self {
        Self::from(vec![Rule::always(Procedure::Readdirplus, Action::Fail(Status::NOTSUPP))])
    }

    /// A server that answers EXCLUSIVE creates with NOTSUPP, as `go-nfs` does.
    pub fn no_exclusive_create() -> Self {
        Self::from(vec![Rule {
            calls: Calls::ExclusiveCreate,
            when: When::Always,
            action: Action::Fail(Status::NOTSUPP),
        }])
    }

    /// A server that tells no list of exports and mounts any path as its root, as `go-nfs` does.
    pub fn mounts_anything() -> Self {
        Self { mountable: Mountable::Anything, hides_exports: true, ..Self::default() }
    }

    /// A server that takes a mode and no other attribute in CREATE and MKDIR, as `unfs3` does.
    pub fn mode_only() -> Self {
        let action = Action::Fail(Status::INVAL);
        Self::from(vec![Rule { calls: Calls::TimedCreate, when: When::Always, action }])
    }

    /// A server that never answers READs and WRITEs above a size, as nfs-ganesha over UDP.
    pub fn silent_above(bytes: u32) -> Self {
        let rule = |procedure| Rule {
            calls: Calls::Larger { procedure, bytes },
            when: When::Always,
            action: Action::DropCall,
        };
        Self::from(vec![rule(Procedure::Read), rule(Procedure::Write)])
    }

    /// A server that fails READs or WRITEs which touch `offset` or later bytes.
    pub fn fail_at(procedure: Procedure, offset: u64, status: Status) -> Self {
        Self::from(vec![Rule {
            calls: Calls::Reaching { procedure, offset },
            when: When::Always,
            action: Action::Fail(status),
        }])
    }
}

impl From<Vec<Rule>> for Faults {
    fn from(rules: Vec<Rule>) -> Self {
        Self { rules, ..Self::default() }
    }
}

/// What a rule can know of a call before it is served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallShape {
    pub(crate) program: u32,
    number: u32,
    pub(crate) procedure: Option<Procedure>,
    range: Option<(u64, u32)>,
    create_mode: Option<u32>,
    sets_atime: bool,
}

impl CallShape {
    /// Looks into the arguments without judging them.
    pub(crate) fn new(program: rpc::Program, number: u32, arguments: Reader<'_>) -> Self {
        let is_nfs = program.number == rpc::Program::NFS.number;
        let procedure = Procedure::from_number(number).filter(|_| is_nfs);
        let mut shape = Self {
            program: program.number,
            number,
            procedure,
            range: None,
            create_mode: None,
            sets_atime: false,
        };
        match procedure {
            Some(Procedure::Read | Procedure::Write) => shape.range = range(arguments),
            Some(Procedure::Create | Procedure::Mkdir) => shape.look_at_attributes(arguments),
            _ => {}
        }
        shape
    }

    /// Looks at what a CREATE or MKDIR is to make, and how.
    fn look_at_attributes(&mut self, mut arguments: Reader<'_>) {
        let name = FileHandle::decode(&mut arguments)
            .and_then(|_| arguments.opaque("name", nfs3_types::mount::MNTPATHLEN).map(drop));
        if name.is_err() {
            return;
        }
        if self.procedure == Some(Procedure::Create) {
            self.create_mode = arguments.u32("create mode").ok();
        }
        if self.create_mode != Some(EXCLUSIVE) {
            self.sets_atime = sets_atime(&mut arguments).unwrap_or(false);
        }
    }

    fn is_among(&self, calls: Calls) -> bool {
        match calls {
            Calls::Any => true,
            Calls::Program(number) => self.program == number,
            Calls::Mount(number) => self.program == rpc::Program::MOUNT.number && self.number == number,
            Calls::Procedure(procedure) => self.procedure == Some(procedure),
            Calls::Reaching { procedure, offset } => {
                let end = self.range.map(|(start, count)| start.saturating_add(count.into()));
                self.procedure == Some(procedure) && end.is_some_and(|end| end > offset)
            }
            Calls::Larger { procedure, bytes } => {
                self.procedure == Some(procedure) && self.range.is_some_and(|(_, count)| count > bytes)
            }
            Calls::ExclusiveCreate => self.create_mode == Some(EXCLUSIVE),
            Calls::GuardedCreate => self.create_mode == Some(GUARDED),
            Calls::TimedCreate => self.sets_atime,
        }
    }
}

fn range(mut arguments: Reader<'_>) -> Option<(u64, u32)> {
    FileHandle::decode(&mut arguments).ok()?;
    Some((arguments.u64("offset").ok()?, arguments.u32("count").ok()?))
}

/// Modes of CREATE (RFC 1813 §3.3.8).
const GUARDED: u32 = 1;
const EXCLUSIVE: u32 = 2;

/// Whether a `sattr3` sets the time of last access to one of the client's (RFC 1813 §2.6).
fn sets_atime(arguments: &mut Reader<'_>) -> Option<bool> {
    const SET_TO_CLIENT_TIME: u32 = 2;
    for field in ["mode", "uid", "gid"] {
        if arguments.u32(field).ok()? != 0 {
            arguments.u32(field).ok()?;
        }
    }
    if arguments.u32("size").ok()? != 0 {
        arguments.u64("size").ok()?;
    }
    Some(arguments.u32("atime").ok()? == SET_TO_CLIENT_TIME)
}

/// What the rules have decided for one call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) drop_call: bool,
    pub(crate) drop_reply: bool,
    pub(crate) reorder_reply: bool,
    pub(crate) duplicate_reply: bool,
    pub(crate) write_stable: bool,
    pub(crate) change_verifier: bool,
    pub(crate) crash: bool,
    pub(crate) stick_cookie: bool,
    pub(crate) pretend: bool,
    pub(crate) delay: Option<Duration>,
    pub(crate) fail: Option<Status>,
    pub(crate) reject: Option<rpc::Rejection>,
    pub(crate) shorten: Option<u32>,
}

impl Plan {
    fn add(&mut self, action: Action) {
        match action {
            Action::DropCall => self.drop_call = true,
            Action::DropReply => self.drop_reply = true,
            Action::ReorderReply => self.reorder_reply = true,
            Action::DuplicateReply => self.duplicate_reply = true,
            Action::WriteStable => self.write_stable = true,
            Action::ChangeVerifier => self.change_verifier = true,
            Action::Crash => self.crash = true,
            Action::StickCookie => self.stick_cookie = true,
            Action::Pretend => self.pretend = true,
            Action::DelayReply(delay) => self.delay = self.delay.or(Some(delay)),
            Action::Fail(status) => self.fail = self.fail.or(Some(status)),
            Action::Reject(rejection) => self.reject = self.reject.or(Some(rejection)),
            Action::Shorten(bytes) => self.shorten = self.shorten.or(Some(bytes)),
        }
    }
}

/// The rules with what they have counted and drawn so far.
#[derive(Debug)]
pub(crate) struct FaultState {
    faults: Faults,
    counters: Vec<Counter>,
}

#[derive(Debug)]
struct Counter {
    seen: u64,
    random: ChaCha8Rng,
}

impl FaultState {
    /// Starts counting; every rule draws from a stream of its own.
    pub(crate) fn new(faults: Faults, seed: u64) -> Self {
        let counter = |index| {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            random.set_stream(stream::FIRST_RULE + index as u64);
            Counter { seen: 0, random }
        };
        Self { counters: (0..faults.rules.len()).map(counter).collect(), faults }
    }

    pub(crate) const fn faults(&self) -> &Faults {
        &self.faults
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.faults.rules.is_empty()
    }

    pub(crate) fn plan(&mut self, shape: &CallShape) -> Plan {
        let mut plan = Plan::default();
        for (rule, counter) in self.faults.rules.iter().zip(&mut self.counters) {
            if shape.is_among(rule.calls) && counter.strikes(rule.when) {
                plan.add(rule.action);
            }
        }
        plan
    }
}

impl Counter {
    fn strikes(&mut self, when: When) -> bool {
        self.seen += 1;
        match when {
            When::Always => true,
            When::Nth(n) => self.seen == n,
            When::First(n) => self.seen <= n,
            When::After(n) => self.seen > n,
            When::Chance(probability) => uniform(&mut self.random) < probability,
        }
    }
}

/// Draws from [0, 1) with 53 bits, the same on every machine.
fn uniform(random: &mut ChaCha8Rng) -> f64 {
    const SCALE: f64 = 1.0 / (1_u64 << 53) as f64;
    (random.next_u64() >> 11) as f64 * SCALE
}

#[cfg(test)]
mod tests;
