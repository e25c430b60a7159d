//! Coming back later, where the server asks for that.

use std::time::{Duration, Instant};

use nfs_wire::{Procedure, rpc::Rejection};

use super::{Session, owner_transfer};
use crate::{
    engine::{Reply, back_off},
    transfer::CONTROL,
};

/// How long a server may refuse a credential that it has accepted before: as long as it takes to export again, or to start a service for names
/// again. Then it means it.
const CREDENTIAL_PATIENCE: Duration = Duration::from_secs(60);

/// The server wants another flavour, or a privileged port (RFC 5531 §9).
const AUTH_TOOWEAK: u32 = 5;

/// What a server thinks of our credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It was never judged.
    Unknown,
    /// It was accepted.
    Accepted,
    /// It was accepted before, and is refused since then.
    Refused(Instant),
}

impl Session {
    /// The server does not run a call for now. A transfer makes no calls until it is time, and then one, until something is answered: the many
    /// that it could have in flight would all be refused again.
    pub(super) fn put_off(&mut self, now: Instant, reply: &Reply) {
        self.has_work = true;
        let active = owner_transfer(reply.owner).and_then(|(id, part)| Some((self.find(id)?, part)));
        let Some((active, part)) = active.filter(|&(_, part)| part != CONTROL) else {
            self.engine.postpone(now, reply.id);
            return;
        };
        active.transfer.machine().put_off(part);
        // Refusals of what was sent before the first one are one with it.
        active.later = match active.later {
            Some((due, _)) if now < due => active.later,
            Some((_, before)) => Some((now + back_off(before), before + 1)),
            None => Some((now + back_off(0), 1)),
        };
        self.engine.refuse(now, reply.id);
    }

    /// Returns how many transfers the server has asked to come back later.
    pub fn put_off_transfers(&self) -> usize {
        self.transfers.iter().filter(|active| active.later.is_some()).count()
    }

    /// Whether a refusal of the credential is to be waited out, as it was accepted before.
    pub(super) fn waits_for_credential(&mut self, now: Instant, reply: &Reply) -> bool {
        match (reply.outcome, self.credential) {
            // NULL is answered to anybody.
            (Ok(()), _) if reply.procedure != Procedure::Null.number() => {
                self.credential = Standing::Accepted;
                false
            }
            // No restart makes a credential, or the port that it comes from, too weak.
            (Err(Rejection::Authentication(AUTH_TOOWEAK)), _) => false,
            (Err(Rejection::Authentication(_)), Standing::Accepted) => {
                self.credential = Standing::Refused(now);
                true
            }
            (Err(Rejection::Authentication(_)), Standing::Refused(since)) => {
                now.saturating_duration_since(since) < CREDENTIAL_PATIENCE
            }
            _ => false,
        }
    }
}
