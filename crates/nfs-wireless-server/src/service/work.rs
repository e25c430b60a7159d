//! A call in service: what it is served with, and where it is made.

use std::{
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use nfs_wire::{
    Procedure, Reader,
    auth::Credential,
    mount::procedure::MNT,
    nfs3_types::nfs3::nfstime3,
    rpc::{CallHeader, Program, Rejection, ReplyHeader},
};

use super::{Peer, Service, rejection};
use crate::{
    Timing,
    address_validation::Grant,
    faults::{InnerExport, Mountable, Plan},
    handle::Handles,
    mount::{MountCall, Mounts},
    nfs3::{Call, Limits},
    portmap,
    reply_cache::CallKey,
    vfs::{NodeId, Owner, Vfs},
};

/// A call of the back end that is to be made outside the service, on any thread.
#[derive(Debug)]
pub struct Work {
    pub(super) common: Arc<Common>,
    pub(super) task: Task,
    pub(super) job: Job,
    pub(super) arguments: Vec<u8>,
    /// Where the reply goes: room for all of it, so that the threads that make calls allocate nothing large. Each has
    /// memory of its own, which others cannot use once it is free.
    pub(super) reply: Vec<u8>,
    pub(super) generation: u64,
}

/// What has come of a [`Work`].
#[derive(Debug)]
pub struct Done {
    pub(super) job: Job,
    pub(super) outcome: Outcome,
    pub(super) generation: u64,
}

/// What all calls share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) backend: Box<dyn Vfs>,
    pub(super) mounts: Mutex<Mounts>,
    pub(super) export: Vec<u8>,
}

impl Service {
    /// Returns what lets the back end [rest](Vfs::rest), which may wait, so that a driver calls it every few seconds on a thread for
    /// blocking work; `None` where calls are not [deferred](Self::defer_calls).
    pub fn rest(&self) -> Option<impl Fn() + Clone + Send + Sync + 'static> {
        let common = Arc::clone(&self.common);
        self.defers.then_some(move || common.backend.rest())
    }
}

/// A call that has been let in.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) peer: Peer,
    pub(super) header: CallHeader,
    pub(super) plan: Plan,
    /// In the duplicate request cache.
    pub(super) key: Option<CallKey>,
    /// Among the deferred calls, if it is not in there.
    pub(super) underway: Option<CallKey>,
    pub(super) grant: Grant,
    /// Bytes of the call and of the reply that it may bring; 0 unless it is deferred.
    pub(super) deferred_bytes: usize,
    /// Bytes of the reply among them.
    pub(super) reply_bytes: usize,
}

/// What a call is served with: the service as it was when the call began.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) now: nfstime3,
    pub(super) handles: Handles,
    pub(super) limits: Limits,
    pub(super) write_verifier: [u8; 8],
    pub(super) mountable: Mountable,
    pub(super) hides_exports: bool,
    pub(super) inner_exports: Vec<InnerExport>,
    /// Where the service is reached.
    pub(super) address: SocketAddr,
    /// How long the call takes in virtual time.
    pub(super) service_time: Duration,
}

/// What has come of a call.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) reply: Vec<u8>,
    pub(super) rejected: bool,
    pub(super) served: Option<Procedure>,
    pub(super) read_bytes: u64,
    pub(super) read: Option<NodeId>,
    pub(super) written_bytes: u64,
    pub(super) service_time: Duration,
}

/// Room for every reply without bulk data: 24 bytes of header, and RENAME's two sets of attributes.
pub(super) const SMALL_REPLY_BYTES: usize = 320;

/// Bytes of a reply beside data or entries, at most; the target of a link is shorter than that.
const REPLY_HEAD_BYTES: usize = 4608;

/// `AUTH_REJECTEDCRED`, what an unknown flavour is answered with (RFC 5531 §9).
const AUTH_REJECTED_CREDENTIAL: u32 = 2;

impl Work {
    /// Makes the call, which may take as long as a disk does.
    ///
    /// A back end that panics has lost this call, which is answered with SYSTEM_ERR; the others can go on.
    pub fn run(self) -> Done {
        let common = Arc::clone(&self.common);
        self.run_on(&*common.backend)
    }

    /// Makes the call on another back end than the service's: on one that was made for this call, and has the answer.
    pub fn run_on(self, backend: &dyn Vfs) -> Done {
        let Self { common, task, job, arguments, reply, generation } = self;
        let run = || task.run(&common, backend, &job, Reader::new(&arguments), reply);
        let mut outcome = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Outcome {
            reply: rejection(job.header.xid, Rejection::SystemError),
            rejected: true,
            ..Outcome::default()
        });
        outcome.reply.shrink_to_fit();
        Done { job, outcome, generation }
    }
}

impl Work {
    /// Returns the procedure of NFS that is called; `None` for MOUNT's MNT.
    pub fn procedure(&self) -> Option<Procedure> {
        let Program { number, version } = self.job.header.program;
        let is_nfs = (number, version) == (Program::NFS.number, Program::NFS.version);
        Procedure::from_number(self.job.header.procedure).filter(|_| is_nfs)
    }

    /// Returns the encoded arguments.
    pub fn arguments(&self) -> &[u8] {
        &self.arguments
    }

    /// Returns who made the call.
    pub const fn peer(&self) -> Peer {
        self.job.peer
    }

    /// Returns the user that the caller says to be, where it says so.
    pub fn uid(&self) -> Option<u32> {
        match &self.job.header.credential {
            Ok(Credential::Sys(sys)) => Some(sys.uid),
            Ok(Credential::None) | Err(_) => None,
        }
    }
}

impl Done {
    /// Returns who made the call.
    pub const fn peer(&self) -> Peer {
        self.job.peer
    }
}

impl Common {
    pub(super) fn forget_mounts(&self) {
        *self.mounts.lock().unwrap_or_else(PoisonError::into_inner) = Mounts::default();
    }
}

impl Job {
    /// Returns whether the call has something to do with files.
    pub(super) fn needs_back_end(&self) -> bool {
        let program = self.header.program;
        match Procedure::from_number(self.header.procedure) {
            Some(procedure) if program == Program::NFS => procedure != Procedure::Null,
            _ => program == Program::MOUNT && self.header.procedure == MNT,
        }
    }

    /// Returns whom the files belong to that the call makes.
    fn owner(&self) -> Result<Owner, Rejection> {
        match &self.header.credential {
            Ok(Credential::Sys(sys)) => Ok(Owner { uid: sys.uid, gid: sys.gid }),
            Ok(Credential::None) => Ok(Owner::default()),
            Err(_) => Err(Rejection::Authentication(AUTH_REJECTED_CREDENTIAL)),
        }
    }

    /// Returns how long the call takes in virtual time.
    pub(super) fn service_time(&self, timing: &Timing, arguments: Reader<'_>) -> Duration {
        let is_nfs = self.header.program == Program::NFS;
        match Procedure::from_number(self.header.procedure).filter(|_| is_nfs) {
            Some(Procedure::Read) => timing.read_time,
            Some(Procedure::Write) if self.plan.write_stable || !is_unstable(arguments) => {
                timing.write_time + timing.commit_time
            }
            Some(Procedure::Write) => timing.write_time,
            Some(Procedure::Commit) => timing.commit_time,
            _ => Duration::ZERO,
        }
    }

    /// Returns how long the reply may become.
    pub(super) fn reply_limit(&self, arguments: Reader<'_>, transfer_bytes: u32) -> usize {
        let is_nfs = self.header.program == Program::NFS;
        let bulk = match Procedure::from_number(self.header.procedure).filter(|_| is_nfs) {
            // Bytes between the handle and the count: the offset; cookie and verifier; these and the count of names.
            Some(Procedure::Read) => bulk_bytes(arguments, 8),
            Some(Procedure::Readdir) => bulk_bytes(arguments, 16),
            Some(Procedure::Readdirplus) => bulk_bytes(arguments, 20),
            _ => None,
        };
        REPLY_HEAD_BYTES + bulk.unwrap_or(0).min(transfer_bytes) as usize
    }
}

fn is_unstable(mut arguments: Reader<'_>) -> bool {
    const UNSTABLE: u32 = 0;
    nfs_wire::FileHandle::decode(&mut arguments).is_ok()
        && arguments.u64("offset").is_ok()
        && arguments.u32("count").is_ok()
        && arguments.u32("stable") == Ok(UNSTABLE)
}

fn bulk_bytes(mut arguments: Reader<'_>, between: usize) -> Option<u32> {
    nfs_wire::FileHandle::decode(&mut arguments).ok()?;
    let count = arguments.rest().get(between..between + 4)?;
    Some(u32::from_be_bytes(count.try_into().ok()?))
}

impl Task {
    /// Serves a call, with its reply in `reply`.
    pub(super) fn run(
        &self,
        common: &Common,
        backend: &dyn Vfs,
        job: &Job,
        arguments: Reader<'_>,
        reply: Vec<u8>,
    ) -> Outcome {
        let mut outcome = Outcome { reply, service_time: self.service_time, ..Outcome::default() };
        let xid = job.header.xid;
        ReplyHeader { xid, outcome: Ok(()) }.encode(&mut outcome.reply);
        if let Err(reason) = self.serve(common, backend, job, arguments, &mut outcome) {
            outcome.rejected = true;
            outcome.reply = rejection(xid, reason);
        }
        outcome
    }

    fn serve(
        &self,
        common: &Common,
        backend: &dyn Vfs,
        job: &Job,
        arguments: Reader<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), Rejection> {
        if let Some(rejection) = job.plan.reject {
            return Err(rejection);
        }
        let owner = job.owner()?;
        let Program { number, version } = job.header.program;
        let procedure = job.header.procedure;
        let only_versions = |low, high| {
            let is_served = (low..=high).contains(&version);
            if is_served { Ok(()) } else { Err(Rejection::ProgramMismatch { low, high }) }
        };
        if number == Program::NFS.number {
            only_versions(Program::NFS.version, Program::NFS.version)?;
            let procedure = Procedure::from_number(procedure).ok_or(Rejection::ProcedureUnavailable)?;
            outcome.served = Some(procedure);
            let mut call = Call {
                backend,
                reply: &mut outcome.reply,
                read_bytes: &mut outcome.read_bytes,
                read: &mut outcome.read,
                written_bytes: &mut outcome.written_bytes,
                now: self.now,
                handles: self.handles,
                owner,
                limits: self.limits,
                grant: job.grant,
                write_verifier: self.write_verifier,
                plan: job.plan,
            };
            call.serve(procedure, arguments).map_err(|_| Rejection::GarbageArguments)
        } else if number == Program::MOUNT.number {
            only_versions(Program::MOUNT.version, Program::MOUNT.version)?;
            let mut call = MountCall {
                mounts: &common.mounts,
                backend,
                reply: &mut outcome.reply,
                export: &common.export,
                mountable: self.mountable,
                hides_exports: self.hides_exports,
                inner_exports: &self.inner_exports,
                handles: self.handles,
                client: job.peer.address.ip(),
            };
            call.serve(procedure, arguments)
        } else if number == Program::PORTMAP.number {
            only_versions(*portmap::VERSIONS.start(), *portmap::VERSIONS.end())?;
            portmap::serve(self.address, version, procedure, arguments, &mut outcome.reply)
        } else {
            Err(Rejection::ProgramUnavailable)
        }
    }
}
