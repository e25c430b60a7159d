//! What a call is let in with: its header, the faults that strike it, and what its reply may carry.

use nfs_wire::{
    DecodeError, Reader,
    portmap::Protocol,
    rpc::{CallError, CallHeader, Rejection},
};

use super::{Peer, Service, Transmit, rejection};
use crate::{
    address_validation::Grant,
    faults::{CallShape, Plan},
};

impl Service {
    /// Decodes the header of a call; `None` for another version of RPC, which is rejected.
    pub(super) fn decode_header(
        &mut self,
        peer: Peer,
        reader: &mut Reader<'_>,
    ) -> Result<Option<CallHeader>, DecodeError> {
        match CallHeader::decode(reader) {
            Ok(header) => Ok(Some(header)),
            Err(CallError::Decode(error)) => {
                self.stats.malformed += 1;
                Err(error)
            }
            Err(CallError::RpcVersion { xid, .. }) => {
                self.stats.rejected += 1;
                let bytes = rejection(xid, Rejection::RpcMismatch { low: 2, high: 2 });
                self.ready.push_back(Transmit { peer, bytes });
                Ok(None)
            }
        }
    }

    /// Returns what goes wrong with a call.
    pub(super) fn plan(&mut self, header: &CallHeader, arguments: Reader<'_>) -> Plan {
        if self.faults.is_empty() {
            return Plan::default();
        }
        let shape = CallShape::new(header.program, header.procedure, arguments);
        self.faults.plan(&shape)
    }

    /// Says what the reply of a call may carry, and sets that aside.
    pub(super) fn grant(
        &mut self,
        peer: Peer,
        header: &CallHeader,
        call_bytes: usize,
        arguments: Reader<'_>,
    ) -> Grant {
        if !self.config.validates_addresses {
            return Grant::UNLIMITED;
        }
        let address = peer.address.ip();
        match peer.protocol {
            Protocol::Tcp => {
                self.addresses.validate(address);
                Grant::UNLIMITED
            }
            Protocol::Udp => {
                let transfer = self.config.udp_transfer_bytes;
                let grant = self.addresses.admit(address, call_bytes, header, arguments, transfer);
                self.stats.unvalidated += u64::from(grant.is_limited());
                grant
            }
        }
    }

    /// Settles what was set aside for a reply; whether it may have so many bytes.
    pub(super) fn is_granted(&mut self, peer: Peer, grant: Grant, reply_bytes: usize) -> bool {
        let is_granted = reply_bytes <= grant.reply_bytes;
        let used = if is_granted { reply_bytes } else { 0 };
        self.addresses.give_back(peer.address.ip(), grant.reply_bytes - used);
        is_granted
    }
}
