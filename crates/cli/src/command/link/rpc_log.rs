//! What the datagrams on a link are to RPC: one line for each call and reply.

use std::{
    collections::{BTreeMap, VecDeque},
    io::Write,
};

use bytes::Bytes;
use linkemu::{DatagramRecord, Endpoint, Fate, Observer};
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
    fn label(&mut self, record: &DatagramRecord, payload: &Bytes) -> Option<(u32, String)> {
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
    fn procedures_are_in_the_order_of_their_numbers() {
        for (number, procedure) in (0..).zip(PROCEDURES) {
            assert_eq!(procedure.number(), number);
        }
    }
}
