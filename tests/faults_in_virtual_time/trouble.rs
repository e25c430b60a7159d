//! What the network does to datagrams.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use nfs_wire::{Procedure, rpc::Program};

use crate::world::Wire;

/// Nothing, or what was asked for.
#[derive(Default)]
pub(crate) struct Trouble {
    pub(crate) cut: Option<Cut>,
    pub(crate) mangler: Option<Mangler>,
    /// Nothing happens for now to what is sent.
    pub(crate) is_paused: bool,
}

/// The link is cut when a call is made for the `nth` time, for so long, in both directions.
pub(crate) struct Cut {
    pub(crate) program: Program,
    pub(crate) procedure: u32,
    pub(crate) nth: u32,
    /// Whether this call is lost already, or only its reply.
    pub(crate) loses_call: bool,
    pub(crate) length: Duration,
    /// When it ends, once it has begun.
    pub(crate) until: Option<Instant>,
}

/// Each of these befalls one datagram in ten: it comes twice, up to 20 ms late so that others overtake it, or up to 30 s late. And
/// if it is damaged, too, with checksums that were right afterwards: it is cut short, or a bit is flipped.
pub(crate) struct Mangler {
    random: u64,
    damages: bool,
    /// READs, WRITEs and COMMITs: in names and handles a flipped bit is beyond all help.
    data_calls: BTreeSet<u32>,
    /// What befell any datagram, counted.
    pub(crate) mangled: u64,
}

/// Longest delay.
pub(crate) const LATE: Duration = Duration::from_secs(30);
const OVERTAKEN: Duration = Duration::from_millis(20);

impl Trouble {
    /// Whether what arrives need not be what was sent.
    pub(crate) const fn mangles(&self) -> bool {
        self.mangler.is_some()
    }

    /// Puts on the wire what becomes of a datagram.
    pub(crate) fn pass(
        &mut self,
        now: Instant,
        delay: Duration,
        datagram: Vec<u8>,
        is_call: bool,
        wire: &mut Wire,
    ) {
        if let Some(cut) = &mut self.cut
            && cut.strikes(now, &datagram, is_call)
        {
            return;
        }
        match &mut self.mangler {
            Some(mangler) if !self.is_paused => mangler.pass(now + delay, datagram, is_call, wire),
            Some(_) | None => wire.send(now + delay, datagram),
        }
    }
}

impl Cut {
    fn strikes(&mut self, now: Instant, datagram: &[u8], is_call: bool) -> bool {
        if let Some(until) = self.until {
            return now < until;
        }
        if !is_call || called(datagram) != (self.program.number, self.procedure) {
            return false;
        }
        self.nth -= 1;
        if self.nth > 0 {
            return false;
        }
        self.until = Some(now + self.length);
        self.loses_call
    }
}

impl Mangler {
    pub(crate) const fn new(seed: u64, damages: bool) -> Self {
        Self { random: seed | 1, damages, data_calls: BTreeSet::new(), mangled: 0 }
    }

    fn pass(&mut self, arrives: Instant, mut datagram: Vec<u8>, is_call: bool, wire: &mut Wire) {
        let xid = word(&datagram, 0);
        if is_call {
            let data = [Procedure::Read, Procedure::Write, Procedure::Commit];
            let (program, procedure) = called(&datagram);
            if program == Program::NFS.number && data.iter().any(|data| data.number() == procedure) {
                self.data_calls.insert(xid);
            }
        }
        if self.damages && self.data_calls.contains(&xid) && self.chance() {
            let bit = self.below(datagram.len() as u64 * 8) as usize;
            datagram[bit / 8] ^= 1 << (bit % 8);
        }
        if self.damages && self.chance() {
            let length = self.below(datagram.len() as u64) as usize;
            datagram.truncate(length);
        }
        if self.chance() {
            let arrives = self.delayed(arrives);
            wire.send(arrives, datagram.clone());
        }
        let arrives = self.delayed(arrives);
        wire.send(arrives, datagram);
    }

    fn delayed(&mut self, arrives: Instant) -> Instant {
        let mut delay = Duration::ZERO;
        for most in [OVERTAKEN, LATE] {
            if self.chance() {
                delay += Duration::from_micros(self.below(most.as_micros() as u64));
            }
        }
        arrives + delay
    }

    /// One time in ten.
    fn chance(&mut self) -> bool {
        let strikes = self.below(10) == 0;
        self.mangled += u64::from(strikes);
        strikes
    }

    /// Xorshift (Marsaglia 2003).
    fn below(&mut self, most: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) % most
    }
}

/// Program and procedure of a call (RFC 5531 §9).
fn called(datagram: &[u8]) -> (u32, u32) {
    (word(datagram, 3), word(datagram, 5))
}

fn word(datagram: &[u8], index: usize) -> u32 {
    u32::from_be_bytes(*datagram[4 * index..].first_chunk().expect("messages of ours have headers"))
}
