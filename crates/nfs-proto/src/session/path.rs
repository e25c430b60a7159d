//! What becomes of the path to the server.

use std::{net::SocketAddr, time::Instant};

use nfs_wire::{Procedure, Status};

use super::{Event, Session, Transfer};
use crate::transfer::TransferError;

impl Session {
    /// Records that the link below has changed: asks at once whether the server answers.
    pub fn handle_link_event(&mut self, now: Instant) {
        self.engine.handle_link_event(now);
        self.has_work = true;
    }

    /// Records the MTU of the route to the server: before anything is sent, and whenever the system has learned another one.
    /// `sees_fragments`: [`Session::handle_fragments`] will say what arrives in fragments.
    pub fn handle_route_mtu(&mut self, mtu: u32, sees_fragments: bool) {
        self.engine.handle_route_mtu(mtu, sees_fragments);
        self.has_work = true;
    }

    /// Records that the datagram for the next [`Session::handle_head`] was put together of fragments, the largest of which has so many
    /// bytes, IP header included; `None`: of none.
    pub fn handle_fragments(&mut self, largest: Option<u32>) {
        self.engine.handle_fragments(largest);
    }

    /// Records that the server has another address now. Downloads and calls go on there. Uploads end as stale, for
    /// what was written is at the new address only if a look at the file says so.
    pub fn handle_move(&mut self, now: Instant, peer: SocketAddr) {
        self.engine.handle_move(peer);
        let uploads = self.transfers.iter().filter(|it| matches!(it.transfer, Transfer::Upload(_)));
        for id in uploads.map(|active| active.id).collect::<Vec<_>>() {
            self.stop(now, id);
            let error = TransferError::Status { procedure: Procedure::Write, status: Status::STALE };
            self.events.push_back(Event::Failed(id, error));
        }
        self.handle_link_event(now);
    }
}
