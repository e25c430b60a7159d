//! Finds the largest READ and WRITE that a server takes, where it refuses or ignores larger ones.

use std::time::{Duration, Instant};

use nfs_wire::{Procedure, rpc::Program};

use super::{PROBE, Session, TransferId, owner_transfer, server_limits::half};
use crate::{
    config::MIN_BLOCK_BYTES,
    engine::{CallSpec, Class, Owner, Repeat, Reply, Withdrawal},
};

/// How often a large call is sent in vain before the server is asked whether it is there at all.
const SUSPICIOUS_ATTEMPTS: u32 = 2;

/// How long a large call has been sent in vain by then, at least: a fade is not a server that ignores it.
const SUSPICIOUS_TIME: Duration = Duration::from_secs(1);

/// How often a block is sent in vain before smaller ones take its place, if those are in use by then.
const VAIN_ATTEMPTS: u32 = 3;

impl Session {
    /// A large call was sent in vain: is it too large for the server, or is the server gone?
    pub(super) fn suspect_block(
        &mut self,
        now: Instant,
        class: Class,
        bytes: u32,
        attempts: u32,
        elapsed: Duration,
    ) {
        let suspicious =
            bytes > self.proven(class) && attempts >= SUSPICIOUS_ATTEMPTS && elapsed >= SUSPICIOUS_TIME;
        if suspicious && !self.probing {
            self.probe(now);
        }
    }

    /// A block of so many bytes was sent in vain, so many times. Where a receiver keeps no more fragments, or a queue is shorter than the
    /// block, it never arrives; smaller ones do.
    pub(super) fn resegment(&mut self, now: Instant, bytes: u32, attempts: u32) {
        if attempts < VAIN_ATTEMPTS || self.engine.next_block(now).is_none_or(|block| bytes <= block) {
            return;
        }
        self.withdraw(now, Withdrawal::Resegment, |_, size, attempts| {
            size == bytes && attempts >= VAIN_ATTEMPTS
        });
        self.has_work = true;
    }

    /// Where larger blocks than one frame turn out not to arrive, takes back those under way: smaller ones take their place.
    pub(super) fn resegment_for_path(&mut self, now: Instant) {
        if let Some(largest) = self.engine.take_cut() {
            self.withdraw(now, Withdrawal::Resegment, |_, size, _| size > largest);
        }
    }

    /// Takes the READs and WRITEs of transfers back that `vain` chooses by class, bytes and attempts.
    pub(super) fn withdraw(
        &mut self,
        now: Instant,
        reason: Withdrawal,
        vain: impl Fn(Class, u32, u32) -> bool,
    ) {
        let vain = self.engine.withdraw(now, reason, |owner, class, bytes, attempts| {
            class != Class::Control && owner_transfer(owner).is_some() && vain(class, bytes, attempts)
        });
        for (owner, _) in vain {
            self.take_back(owner);
        }
    }

    const fn proven(&self, class: Class) -> u32 {
        match class {
            Class::Control => u32::MAX,
            Class::Read => self.proven.read_block,
            Class::Write => self.proven.write_block,
        }
    }

    /// A server that says SYSTEM_ERR or GARBAGE_ARGS to a large READ or WRITE finds it too large; whether this
    /// was such a case.
    pub(super) fn shrink_rejected(&mut self, now: Instant, reply: &Reply, id: TransferId, part: u32) -> bool {
        let refused = self.engine.withdraw(now, Withdrawal::TooLarge, |owner, class, bytes, _| {
            owner == reply.owner && class != Class::Control && bytes > MIN_BLOCK_BYTES
        });
        let Some(&(_, bytes)) = refused.first() else { return false };
        if let Some(active) = self.find(id) {
            active.transfer.machine().take_back(part);
            let class = active.transfer.class();
            self.bounds.shrink(class, half(bytes));
        }
        self.has_work = true;
        true
    }

    /// Asks whether the server is there at all.
    fn probe(&mut self, now: Instant) {
        let spec = CallSpec {
            program: Program::NFS,
            procedure: Procedure::Null.number(),
            class: Class::Control,
            repeat: Repeat::Idempotent,
            hedge: false,
            owner: PROBE,
            payload: None,
            bytes: 0,
            deadline: None,
            not_before: None,
        };
        self.probing = self.engine.submit(now, spec, |_| {}).is_some();
    }

    /// The server answers small calls: the large ones it never answered are too large for it.
    pub(super) fn shrink_silent_blocks(&mut self, now: Instant) {
        self.probing = false;
        let proven = self.proven;
        let silent = self.engine.withdraw(now, Withdrawal::TooLarge, |owner, class, bytes, attempts| {
            attempts > 0
                && owner_transfer(owner).is_some()
                && match class {
                    Class::Control => false,
                    Class::Read => bytes > proven.read_block,
                    Class::Write => bytes > proven.write_block,
                }
        });
        for (owner, bytes) in silent {
            if let Some(class) = self.take_back(owner) {
                self.bounds.shrink(class, half(bytes));
            }
        }
        self.has_work = true;
    }

    /// Gives a cancelled block back to its transfer, if there still is one; returns the class of its calls.
    fn take_back(&mut self, owner: Owner) -> Option<Class> {
        let (id, part) = owner_transfer(owner)?;
        let active = self.find(id)?;
        active.transfer.machine().take_back(part);
        Some(active.transfer.class())
    }
}
