//! The calls of an upload that move no bytes: what their results lead to.

use nfs_wire::{
    Procedure, Status,
    nfs3_types::nfs3::{
        COMMIT3resok, CREATE3resok, GETATTR3resok, LOOKUP3resok, Nfs3Option, REMOVE3resok, RENAME3resok,
        SETATTR3resok, fattr3, nfs_fh3,
    },
};

use super::{MAX_ROUNDS, Phase, Placement, Stability, Upload, decode, refused};
use crate::{
    attr::{Metadata, optional},
    transfer::{RangeSet, TransferError},
};

impl Upload {
    /// Takes in the results of the control call of a phase.
    pub(super) fn handle_control(&mut self, attempts: u32, results: &[u8]) -> Result<(), TransferError> {
        self.busy = false;
        match self.phase {
            Phase::Recover => self.handle_recover(results),
            Phase::LookAhead => self.handle_look_ahead(results),
            Phase::Settle => self.handle_settle(results),
            Phase::Create => self.handle_create(attempts, results),
            Phase::Find { may_be_ours } => self.handle_find(may_be_ours, results),
            Phase::Clear => self.handle_clear(results),
            Phase::Attributes => self.handle_attributes(results),
            Phase::Latest => self.handle_latest(results),
            Phase::Rename => self.handle_rename(results),
            Phase::Check => self.handle_check(results),
            Phase::Confirm => self.handle_confirm(results),
            Phase::Data | Phase::Done => Ok(()),
        }
    }

    fn handle_recover(&mut self, results: &[u8]) -> Result<(), TransferError> {
        match decode::<LOOKUP3resok>(Procedure::Lookup, results)? {
            Ok(found) => self.recover(found),
            Err(Status::NOENT) if self.spec.gets_name => self.phase = Phase::LookAhead,
            Err(Status::NOENT) => self.phase = Phase::Create,
            Err(status) => return Err(refused(Procedure::Lookup, status)),
        }
        Ok(())
    }

    fn handle_look_ahead(&mut self, results: &[u8]) -> Result<(), TransferError> {
        match decode::<LOOKUP3resok>(Procedure::Lookup, results)? {
            Ok(found) if self.is_complete(&found) => {
                self.file = found.object;
                self.latest = optional(&found.obj_attributes);
                self.phase = Phase::Done;
            }
            Ok(_) | Err(Status::NOENT) => self.phase = Phase::Create,
            Err(status) => return Err(refused(Procedure::Lookup, status)),
        }
        Ok(())
    }

    fn handle_settle(&mut self, results: &[u8]) -> Result<(), TransferError> {
        let done = decode::<COMMIT3resok>(Procedure::Commit, results)?
            .map_err(|status| refused(Procedure::Commit, status))?;
        self.take_up(Some(done.verf.0));
        Ok(())
    }

    fn handle_create(&mut self, attempts: u32, results: &[u8]) -> Result<(), TransferError> {
        match decode::<CREATE3resok>(Procedure::Create, results)? {
            Ok(CREATE3resok { obj: Nfs3Option::Some(file), obj_attributes, .. }) => {
                self.start_data(file, &obj_attributes);
            }
            Ok(_) => self.find(true)?,
            Err(Status::EXIST) => self.find(attempts > 1)?,
            // A mode is all that every server takes (unfs3 refuses more).
            Err(Status::INVAL | Status::NOTSUPP) if self.mark().is_some() => {
                self.quirks.lacks_times_in_create = true;
            }
            // A server without GUARDED; a look does what it would have done.
            Err(Status::NOTSUPP) if self.is_guarded() => {
                tracing::info!("the server has no GUARDED CREATE: a LOOKUP takes its place");
                self.quirks.lacks_guarded = true;
                self.find(attempts > 1)?;
            }
            Err(status) => return Err(refused(Procedure::Create, status)),
        }
        Ok(())
    }

    fn handle_find(&mut self, may_be_ours: bool, results: &[u8]) -> Result<(), TransferError> {
        match decode::<LOOKUP3resok>(Procedure::Lookup, results)? {
            Ok(found) => {
                let empty = matches!(&found.obj_attributes, Nfs3Option::Some(it) if it.size == 0);
                if (empty && may_be_ours) || self.spec.placement == Placement::InPlace {
                    self.start_data(found.object, &found.obj_attributes);
                } else {
                    self.phase = Phase::Clear;
                }
            }
            Err(Status::NOENT) => self.phase = Phase::Create,
            Err(status) => return Err(refused(Procedure::Lookup, status)),
        }
        Ok(())
    }

    fn handle_clear(&mut self, results: &[u8]) -> Result<(), TransferError> {
        match decode::<REMOVE3resok>(Procedure::Remove, results)? {
            Ok(_) => self.phase = Phase::Create,
            // Nothing is there, whatever CREATE said: nothing needs guarding.
            Err(Status::NOENT) => (self.phase, self.quirks.lacks_guarded) = (Phase::Create, true),
            Err(status) => return Err(refused(Procedure::Remove, status)),
        }
        Ok(())
    }

    fn handle_attributes(&mut self, results: &[u8]) -> Result<(), TransferError> {
        match decode::<SETATTR3resok>(Procedure::Setattr, results)? {
            Ok(done) => {
                self.time_is_set(&done.obj_wcc.after);
                self.phase = self.rename_or_done();
            }
            Err(Status::NOT_SYNC) if self.guard().is_some() => self.phase = Phase::Latest,
            Err(status) => return Err(refused(Procedure::Setattr, status)),
        }
        Ok(())
    }

    fn handle_latest(&mut self, results: &[u8]) -> Result<(), TransferError> {
        let found = decode::<GETATTR3resok>(Procedure::Getattr, results)?
            .map_err(|status| refused(Procedure::Getattr, status))?;
        let now = Metadata::from(&found.obj_attributes);
        // The server refuses what is so.
        let is_broken = self.latest.is_some_and(|it| it.ctime == now.ctime);
        self.quirks.refused_guards += if is_broken { u32::from(u16::MAX) } else { 1 };
        self.latest = Some(now);
        self.phase = Phase::Attributes;
        Ok(())
    }

    fn handle_rename(&mut self, results: &[u8]) -> Result<(), TransferError> {
        match decode::<RENAME3resok>(Procedure::Rename, results)? {
            Ok(_) => self.complete(),
            Err(Status::NOENT) => self.phase = Phase::Check,
            Err(status) => return Err(refused(Procedure::Rename, status)),
        }
        Ok(())
    }

    fn handle_check(&mut self, results: &[u8]) -> Result<(), TransferError> {
        match decode::<LOOKUP3resok>(Procedure::Lookup, results)? {
            Ok(found) if self.is_ours(&found) => self.complete(),
            Ok(_) => return Err(refused(Procedure::Rename, Status::NOENT)),
            Err(status) => return Err(refused(Procedure::Lookup, status)),
        }
        Ok(())
    }

    fn handle_confirm(&mut self, results: &[u8]) -> Result<(), TransferError> {
        self.confirmations += 1;
        let touched = match decode::<GETATTR3resok>(Procedure::Getattr, results)? {
            Ok(found) => {
                let mtime = Metadata::from(&found.obj_attributes).mtime;
                self.observe(&Nfs3Option::Some(found.obj_attributes));
                self.is_touched(mtime)
            }
            // Somebody removed it meanwhile.
            Err(Status::STALE) => false,
            Err(status) => return Err(refused(Procedure::Getattr, status)),
        };
        self.phase = if touched { Phase::Attributes } else { Phase::Done };
        Ok(())
    }

    /// Looks what has the temporary name: perhaps a file that we made.
    fn find(&mut self, may_be_ours: bool) -> Result<(), TransferError> {
        self.rounds += 1;
        if self.rounds > MAX_ROUNDS {
            let reason = "it finds the temporary name taken, again and again, though nothing has it";
            return Err(TransferError::NoProgress { procedure: Procedure::Create, reason });
        }
        self.phase = Phase::Find { may_be_ours };
        Ok(())
    }

    pub(super) fn start_data(&mut self, file: nfs_fh3, attributes: &Nfs3Option<fattr3>) {
        self.file = file;
        self.found = optional(attributes);
        self.latest = self.found;
        let is_empty = self.found.is_some_and(|found| found.size == 0);
        self.leftovers = !self.is_guarded() && !is_empty && self.spec.placement != Placement::InPlace;
        if self.leftovers {
            self.spec.holes = RangeSet::new();
            self.todo = RangeSet::new().missing(self.spec.size);
            self.stability = Stability::default();
        }
        self.phase = Phase::Data;
        self.advance_from_data();
    }
}
