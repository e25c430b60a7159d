//! One more mobile that calls NULL now and then: what somebody else feels while a file is copied.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;
use linkemu::{Endpoint, Node, Outgoing};
use nfs_wire::{
    Procedure, Reader,
    auth::{AuthSys, Credential},
    rpc::{Program, ReplyHeader, Xid, encode_call_header},
};

use crate::address::SERVER;

/// The port that pings come from.
const PORT: u16 = 701;

/// Calls NULL at regular times; a call of 72 bytes is an IP packet of 100.
#[derive(Debug)]
pub(crate) struct Ping {
    place: Endpoint,
    every: Duration,
    next: Option<Instant>,
    number: u32,
    under_way: VecDeque<(u32, Instant)>,
    answers: Vec<Duration>,
}

/// Pings that may be unanswered; older ones count as lost.
const MAX_UNDER_WAY: usize = 64;

impl Ping {
    pub(crate) fn new(number: u16, every: Duration, now: Instant) -> Self {
        Self {
            place: Endpoint::mobile(number, PORT),
            every,
            next: Some(now + every),
            number: 0,
            under_way: VecDeque::new(),
            answers: Vec::new(),
        }
    }

    /// Sends no more.
    pub(crate) const fn stop(&mut self) {
        self.next = None;
    }

    pub(crate) fn answers(&self) -> &[Duration] {
        &self.answers
    }
}

impl Node for Ping {
    fn handle_input(&mut self, now: Instant, _from: Endpoint, _to: Endpoint, payload: Bytes) {
        let Ok(header) = ReplyHeader::decode(&mut Reader::new(&payload)) else { return };
        let call = self.under_way.iter().position(|(number, _)| Xid(*number) == header.xid);
        if let Some((_, sent)) = call.and_then(|at| self.under_way.remove(at)) {
            self.answers.push(now - sent);
        }
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_transmit(&mut self, now: Instant) -> Option<Outgoing> {
        let due = self.next.filter(|next| *next <= now)?;
        self.next = Some(due + self.every);
        self.number += 1;
        if self.under_way.len() == MAX_UNDER_WAY {
            self.under_way.pop_front();
        }
        self.under_way.push_back((self.number, now));
        let (mut credential, mut call) = (Vec::new(), Vec::new());
        let user = AuthSys { machine_name: b"narmada1".to_vec(), uid: 1000, gid: 100, gids: vec![100] };
        Credential::Sys(user).encode(&mut credential);
        let (xid, null) = (Xid(self.number), Procedure::Null.number());
        encode_call_header(&mut call, xid, Program::NFS, null, &credential);
        Some(Outgoing { from: self.place, to: SERVER, payload: call.into() })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }
}
