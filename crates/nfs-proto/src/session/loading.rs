//! WRITEs whose bytes come later, where whoever has them must not be waited for.

use std::time::Instant;

use nfs_wire::{padding, rpc::Program};

use super::{Session, TRANSFER_BIT, Transfer, TransferId};
use crate::{
    engine::{CallSpec, Owner, Writes},
    transfer::{Copies, NextCall},
};

/// Whether the bytes of a transfer's WRITEs are asked for before these are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loading {
    /// The driver has them when it sends.
    Never,
    /// They are, and this WRITE waits for its own.
    Each(Option<NextCall>),
}

impl Loading {
    pub(super) const fn is_some(&self) -> bool {
        matches!(self, Self::Each(Some(_)))
    }
}

impl Session {
    /// Starts a transfer. The bytes of its WRITEs are asked for, one WRITE at a time, by [`Event::Load`](super::Event::Load), and
    /// are part of the messages then.
    pub fn start_loading(&mut self, now: Instant, transfer: Transfer) -> TransferId {
        let id = self.start(now, transfer);
        if let Some(active) = self.find(id) {
            active.loading = Loading::Each(None);
        }
        id
    }

    /// Takes the bytes in that [`Event::Load`](super::Event::Load) asked for, all of them.
    pub fn handle_loaded(&mut self, now: Instant, id: TransferId, bytes: &[u8]) {
        let Some(active) = self.transfers.iter_mut().find(|active| active.id == id) else { return };
        let Loading::Each(loading) = &mut active.loading else { return };
        let Some(call) = loading.take() else { return };
        let machine = active.transfer.machine();
        let mut spec = spec_of(id, &call, now);
        spec.payload = None;
        let queued = self.engine.submit(now, spec, |buffer| {
            machine.encode(&call, buffer);
            buffer.extend_from_slice(bytes);
            buffer.resize(buffer.len() + padding(bytes.len()), 0);
        });
        debug_assert!(queued.is_some(), "a WRITE that waits for its bytes has its place");
        self.has_work = true;
    }

    /// Returns the sizes of the WRITEs that wait for their bytes.
    pub(super) fn loads(&self) -> impl Iterator<Item = u32> {
        self.transfers.iter().filter_map(|active| match active.loading {
            Loading::Never => None,
            Loading::Each(call) => call.map(|call| call.bytes),
        })
    }

    /// Returns what the WRITEs that wait for their bytes take of the window, so that no more is loaded than can be sent then. One of
    /// them takes nothing: a single slow file leaves the others the whole window.
    pub(super) fn loads_in_window(&self) -> Writes {
        self.loads().skip(1).fold(Writes::default(), |Writes { calls, bytes }, more| Writes {
            calls: calls + 1,
            bytes: bytes + u64::from(more),
        })
    }
}

/// Returns how a call of a transfer is made.
pub(super) fn spec_of(id: TransferId, call: &NextCall, now: Instant) -> CallSpec {
    CallSpec {
        program: Program::NFS,
        procedure: call.procedure.number(),
        class: call.class,
        repeat: call.repeat,
        hedge: Copies::of_nfs(call.procedure).hedge,
        owner: Owner(TRANSFER_BIT | u64::from(id.0) << 32 | u64::from(call.part)),
        payload: call.payload,
        bytes: call.bytes,
        deadline: None,
        not_before: Some(now + call.delay),
    }
}
