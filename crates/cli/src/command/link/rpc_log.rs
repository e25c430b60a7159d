//! What the datagrams on a link are to RPC: one line for each call and reply.

use std::{
    collections::{BTreeMap, VecDeque},
    io::Write,
};

use bytes::Bytes;
use linkemu::{Content, DatagramRecord, Endpoint, Fate, Observer};
use nfs_wire::{
    Procedure, Reader,
    rpc::{CallHeader, Program, ReplyHeader, Xid},
};

/// Calls that are remembered, to name their replies and count their attempts.
const REMEMBERED: usize = 8192;

/// Writes a line when the fate of a message is settled.
pub(super) struct RpcLog<W> {
    out: W,
    calls: BTreeMap<(Endpoint, u32), Call>,
    order: VecDeque<(Endpoint, u32)>,
    problem: Option<String>,
}

struct Call {
    name: String,
    attempts: u32,
}

impl<W: Write> RpcLog<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, calls: BTreeMap::new(), order: VecDeque::new(), problem: None }
    }

    /// Returns XID, name and attempt of a message.
    fn label(&mut self, record: &DatagramRecord, payload: &[u8]) -> Option<(u32, String)> {
        let payload = match record.content {
            Content::UdpPayload => payload,
            Content::IpPacket => udp_payload(payload)?,
        };
        if let Ok(header) = CallHeader::decode(&mut Reader::new(payload)) {
            let Xid(xid) = header.xid;
            let key = (record.from, xid);
            if !self.calls.contains_key(&key) {
                self.order.push_back(key);
                if self.order.len() > REMEMBERED
                    && let Some(oldest) = self.order.pop_front()
                {
                    self.calls.remove(&oldest);
                }
            }
            let name = name(header.program, header.procedure);
            let call = self.calls.entry(key).or_insert(Call { name, attempts: 0 });
            call.attempts += 1;
            return Some((xid, format!("call  {} attempt {}", call.name, call.attempts)));
        }
        let header = ReplyHeader::decode(&mut Reader::new(payload)).ok()?;
        let Xid(xid) = header.xid;
        let called = self.calls.get(&(record.to, xid));
        let name = called.map_or("?", |call| &call.name);
        Some((xid, format!("reply {name}{}", if header.outcome.is_err() { " rejected" } else { "" })))
    }
}

impl<W: Write + Send> Observer for RpcLog<W> {
    fn datagram(&mut self, record: &DatagramRecord, payload: &Bytes) {
        if self.problem.is_some() {
            return;
        }
        let label = self.label(record, payload);
        let (xid, label) = match &label {
            Some((xid, label)) => (format!("{xid:08x}"), label.as_str()),
            None => ("-".to_owned(), "no RPC"),
        };
        let fate = match record.fate {
            Fate::Delivered => "delivered".to_owned(),
            other => format!("lost: {}", other.name()),
        };
        let line = writeln!(
            self.out,
            "{:12.6} {:12.6} {xid:>8} {label}, {} bytes, {} -> {}, {fate}, channel {} then {}",
            record.offered.as_secs_f64(),
            record.ended.as_secs_f64(),
            record.payload_bytes,
            record.from,
            record.to,
            record.state_offered.name(),
            record.state_ended.name(),
        );
        if let Err(error) = line {
            self.problem = Some(format!("the RPC log has stopped: {error}"));
        }
    }

    fn flush(&mut self) {
        if let Err(error) = self.out.flush() {
            self.problem = Some(format!("the RPC log is incomplete: {error}"));
        }
    }

    fn problem(&self) -> Option<String> {
        self.problem.clone()
    }
}

/// What an IP packet carries over UDP, or the beginning of it if this is the first fragment (RFC 791 §3.1, RFC 8200 §3, §4.5).
fn udp_payload(packet: &[u8]) -> Option<&[u8]> {
    const UDP: u8 = 17;
    const FRAGMENT: u8 = 44;
    let word = |at: usize| Some(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?));
    let udp = match packet.first()? >> 4 {
        4 if packet.get(9) == Some(&UDP) && word(6)? & 0x1fff == 0 => usize::from(packet[0] & 15) * 4,
        6 if packet.get(6) == Some(&UDP) => 40,
        6 if packet.get(6) == Some(&FRAGMENT) && packet.get(40) == Some(&UDP) && word(42)? >> 3 == 0 => 48,
        _ => return None,
    };
    packet.get(udp + 8..)
}

fn name(program: Program, procedure: u32) -> String {
    if program == Program::NFS {
        match (0..=21).zip(PROCEDURES).find(|(number, _)| *number == procedure) {
            Some((_, procedure)) => procedure.name().to_owned(),
            None => format!("NFS procedure {procedure}"),
        }
    } else if program == Program::MOUNT {
        format!("MOUNT procedure {procedure}")
    } else {
        format!("program {} procedure {procedure}", program.number)
    }
}

/// The procedures by number (RFC 1813 §3.3).
const PROCEDURES: [Procedure; 22] = [
    Procedure::Null,
    Procedure::Getattr,
    Procedure::Setattr,
    Procedure::Lookup,
    Procedure::Access,
    Procedure::Readlink,
    Procedure::Read,
    Procedure::Write,
    Procedure::Create,
    Procedure::Mkdir,
    Procedure::Symlink,
    Procedure::Mknod,
    Procedure::Remove,
    Procedure::Rmdir,
    Procedure::Rename,
    Procedure::Link,
    Procedure::Readdir,
    Procedure::Readdirplus,
    Procedure::Fsstat,
    Procedure::Fsinfo,
    Procedure::Pathconf,
    Procedure::Commit,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn udp_is_found_in_packets_and_first_fragments() {
        let packet = |head: &[(usize, u8)]| {
            let mut packet: Vec<u8> = (0..100).collect();
            packet[6..8].fill(0);
            for &(at, byte) in head {
                packet[at] = byte;
            }
            udp_payload(&packet).map(|payload| payload[0])
        };
        assert_eq!(packet(&[(0, 0x45), (9, 17)]), Some(28));
        assert_eq!(packet(&[(0, 0x46), (9, 17)]), Some(32));
        // More fragments follow; a later fragment; TCP.
        assert_eq!(packet(&[(0, 0x45), (9, 17), (6, 0x20)]), Some(28));
        assert_eq!(packet(&[(0, 0x45), (9, 17), (7, 1)]), None);
        assert_eq!(packet(&[(0, 0x45), (9, 6)]), None);
        assert_eq!(packet(&[(0, 0x60), (6, 17)]), Some(48));
        assert_eq!(packet(&[(0, 0x60), (6, 44), (40, 17), (42, 0), (43, 1)]), Some(56));
        assert_eq!(packet(&[(0, 0x60), (6, 44), (40, 17), (42, 0), (43, 8)]), None);
        for length in 0..100 {
            // Whatever is cut off.
            let mut cut: Vec<u8> = vec![0x4f; length];
            if let Some(protocol) = cut.get_mut(9) {
                *protocol = 17;
            }
            udp_payload(&cut);
        }
    }

    #[test]
    fn procedures_are_in_the_order_of_their_numbers() {
        for (number, procedure) in (0..).zip(PROCEDURES) {
            assert_eq!(procedure.number(), number);
        }
    }
}
