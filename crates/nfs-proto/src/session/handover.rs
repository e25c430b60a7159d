//! A transfer leaves its session, to go on in another one.

use std::{cell::Cell, time::Instant};

use super::{Active, Loading, Session, Transfer, TransferId, owner_transfer};
use crate::{engine::Withdrawal, transfer::CONTROL};

impl Session {
    /// Lets a transfer make no further calls, so that [`Session::detach`] takes nothing back that is about to be answered.
    pub fn hold(&mut self, id: TransferId) {
        if let Some(active) = self.find(id) {
            active.leaving = true;
        }
    }

    /// Gives a transfer away: the READs, WRITEs and COMMITs that it waits for are to be made again by whoever takes it. Their
    /// replies, and late copies of its WRITEs, which write the same bytes to the same place, may still come.
    ///
    /// `None` while it waits for a call that must not be made twice, or has ended; it goes on here then.
    pub fn detach(&mut self, now: Instant, id: TransferId) -> Option<Transfer> {
        let held = Cell::new(false);
        let part_of = |owner| owner_transfer(owner).filter(|&(it, _)| it == id).map(|(_, part)| part);
        self.engine.cancel_matching(now, |owner, _, _, _| {
            held.set(held.get() || part_of(owner) == Some(CONTROL));
            false
        });
        let at = self.transfers.iter().position(|active| active.id == id)?;
        if held.get() {
            self.transfers[at].leaving = false;
            self.has_work = true;
            return None;
        }
        let Active { mut transfer, loading, .. } = self.transfers.remove(at);
        if let Loading::Each(Some(call)) = loading {
            transfer.machine().take_back(call.part);
        }
        self.arriving.take_if(|arriving| arriving.transfer == id);
        let taken =
            self.engine.withdraw(now, Withdrawal::HandOver, |owner, _, _, _| part_of(owner).is_some());
        for (owner, _) in taken {
            if let Some(part) = part_of(owner) {
                transfer.machine().take_back(part);
            }
        }
        self.has_work = true;
        Some(transfer)
    }
}
