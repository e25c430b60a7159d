//! Calls of the application's own.

use std::time::Instant;

use nfs_wire::{Procedure, rpc::Program};

use super::{APPLICATION_CALLS, Session, TRANSFER_BIT};
use crate::{
    engine::{CallId, CallSpec, Class, Owner},
    transfer::Copies,
};

impl Session {
    /// Queues a call of the application's own. `token` comes back with the reply and must be below 2⁶³.
    ///
    /// Returns `None` when 1,024 of them are outstanding.
    pub fn submit(
        &mut self,
        now: Instant,
        token: u64,
        (program, procedure): (Program, u32),
        deadline: Option<Instant>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Option<CallId> {
        if self.application_calls >= APPLICATION_CALLS {
            return None;
        }
        let owner = Owner(token & !TRANSFER_BIT);
        let Copies { repeat, hedge } = Copies::of(program, procedure);
        let control = CallSpec {
            program,
            procedure,
            class: Class::Control,
            repeat,
            hedge,
            owner,
            payload: None,
            bytes: 0,
            deadline,
            not_before: None,
        };
        let id = if program == Program::NFS && procedure == Procedure::Read.number() {
            let mut arguments = Vec::new();
            encode(&mut arguments);
            // The count is the last of the arguments (RFC 1813 §3.3.6).
            let bytes = arguments.last_chunk().map_or(0, |count| u32::from_be_bytes(*count));
            let spec = CallSpec { class: Class::Read, bytes, ..control };
            let queued = self.engine.submit(now, spec, |buffer| buffer.extend_from_slice(&arguments));
            queued.inspect(|&id| self.put_rest_first(id))
        } else {
            self.engine.submit(now, control, encode)
        };
        self.application_calls += usize::from(id.is_some());
        id
    }

    /// Forgets a call of the application's own.
    pub fn cancel(&mut self, now: Instant, id: CallId) {
        self.application_calls -= usize::from(self.engine.cancel(now, id));
        self.has_work = true;
    }
}
