//! READ, WRITE and COMMIT.

use nfs_wire::{
    Status, encode,
    nfs3_types::nfs3::{
        COMMIT3args, COMMIT3resfail, COMMIT3resok, Nfs3Option, READ3args, READ3resfail, WRITE3args,
        WRITE3resfail, WRITE3resok, stable_how, writeverf3,
    },
    padding,
};

use super::Call;
use crate::vfs::{EndOfFile, NodeId};

impl Call<'_> {
    /// READ (RFC 1813 §3.3.6). The data goes from the back end into the reply without a copy between.
    pub(super) fn read(&mut self, arguments: &READ3args) {
        let node = self.node(&arguments.file);
        let start = self.reply.len();
        if let Err(status) = node.and_then(|node| self.read_into_reply(node, arguments)) {
            self.reply.truncate(start);
            let file_attributes = self.after(node);
            self.fail(status, &READ3resfail { file_attributes });
        }
    }

    fn read_into_reply(&mut self, node: NodeId, arguments: &READ3args) -> Result<(), Status> {
        /// Size of the results beside the data: status, attributes, count, end mark, length, padding.
        const HEAD_BYTES: usize = 4 + 88 + 4 + 4 + 4 + 3;
        let attributes = self.look(node)?;
        let count = arguments.count.min(self.limits.transfer).min(self.plan.shorten.unwrap_or(u32::MAX));
        if count > 0 && self.grant.read_bytes == 0 {
            return Err(Status::JUKEBOX);
        }
        let count = count.min(self.grant.read_bytes);
        let there = attributes.size.saturating_sub(arguments.offset).min(count.into());
        self.reply.reserve_exact(HEAD_BYTES + there as usize);

        let start = self.reply.len();
        encode(self.reply, &0_u32);
        encode(self.reply, &Nfs3Option::Some(attributes));
        let head = self.reply.len();
        self.reply.extend_from_slice(&[0; 12]);
        let data = self.reply.len();
        let end = self.backend.read(self.now, node, arguments.offset, count, self.reply)?;
        let length = self.reply.len() - data;
        // Attributes on completion of the read: what is told must not be older than the data.
        let after = self.look(node)?;
        let mut told = Vec::with_capacity(HEAD_BYTES);
        encode(&mut told, &Nfs3Option::Some(after));
        self.reply[start + 4..head].copy_from_slice(&told);
        let words = [length as u32, u32::from(end == EndOfFile::Reached), length as u32];
        for (slot, word) in self.reply[head..data].chunks_exact_mut(4).zip(words) {
            slot.copy_from_slice(&word.to_be_bytes());
        }
        self.reply.resize(self.reply.len() + padding(length), 0);
        *self.read_bytes += length as u64;
        *self.read = Some(node);
        Ok(())
    }

    /// WRITE (RFC 1813 §3.3.7). More than the limit is a short write, as on Linux.
    pub(super) fn write(&mut self, arguments: &WRITE3args<'_>) {
        let node = self.node(&arguments.file);
        let before = self.before(node);
        let limit = self.limits.transfer.min(self.plan.shorten.unwrap_or(u32::MAX));
        let count = arguments.data.len().min(limit as usize);
        let stable = if self.plan.write_stable { stable_how::FILE_SYNC } else { arguments.stable };
        let written = node.and_then(|node| {
            self.writable()?;
            let data = &arguments.data.as_ref()[..count];
            self.backend.write(self.now, node, arguments.offset, data, stable)
        });
        let file_wcc = self.wcc(before, node);
        match written {
            Ok(committed) => {
                *self.written_bytes += count as u64;
                self.ok(&WRITE3resok {
                    file_wcc,
                    count: count as u32,
                    committed,
                    verf: writeverf3(self.write_verifier),
                });
            }
            Err(status) => self.fail(status, &WRITE3resfail { file_wcc }),
        }
    }

    /// COMMIT (RFC 1813 §3.3.21).
    pub(super) fn commit(&mut self, arguments: &COMMIT3args) {
        let node = self.node(&arguments.file);
        let before = self.before(node);
        let done = node.and_then(|node| {
            self.writable()?;
            self.backend.commit(node, arguments.offset, arguments.count)
        });
        let file_wcc = self.wcc(before, node);
        match done {
            Ok(()) => self.ok(&COMMIT3resok { file_wcc, verf: writeverf3(self.write_verifier) }),
            Err(status) => self.fail(status, &COMMIT3resfail { file_wcc }),
        }
    }
}
