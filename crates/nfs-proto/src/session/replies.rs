//! What replies mean for the transfers that wait for them.

use std::time::Instant;

use nfs_wire::rpc::Rejection;

use super::{Arriving, Event, Incoming, Session, TransferId};
use crate::{
    engine::{CallId, Reply},
    transfer::{Effort, Step, Upload},
};

impl Session {
    pub(super) fn handle_transfer_reply(
        &mut self,
        now: Instant,
        reply: &Reply,
        id: TransferId,
        part: u32,
        results: &[u8],
        complete: bool,
    ) -> Incoming {
        let too_large = matches!(reply.outcome, Err(Rejection::SystemError | Rejection::GarbageArguments));
        if too_large && self.shrink_rejected(now, reply, id, part) {
            return Incoming::Done;
        }
        let Some(active) = self.find(id) else {
            self.complete(now, reply.id);
            return Incoming::Done;
        };
        let machine = active.transfer.machine();
        let step = match reply.outcome {
            Ok(()) => {
                let effort = Effort { attempts: reply.attempts, elapsed: reply.elapsed };
                machine.handle_results(part, effort, results, complete)
            }
            Err(rejection) => machine.handle_rejection(part, rejection).map(|()| Step::Done),
        };
        if !matches!(step, Ok(Step::NeedMore)) {
            active.later = None;
        }
        match step {
            Ok(Step::NeedMore) => Incoming::NeedMore,
            Ok(Step::Data { offset, length, asked, attributes, data_at }) => {
                self.proven.read_block = self.proven.read_block.max(length);
                self.arriving = Some(Arriving { call: reply.id, transfer: id, part, asked, length });
                let data_at = reply.results_at + data_at;
                Incoming::Data { transfer: id, offset, length, attributes, data_at }
            }
            Ok(Step::Written { asked, accepted }) => {
                self.proven.write_block = self.proven.write_block.max(accepted);
                if let Some(write_size) = &mut self.write_size {
                    write_size.handle_accepted(now, accepted.into());
                }
                self.complete(now, reply.id);
                self.handle_moved(now, id, asked, accepted);
                self.accept(now, id, accepted.into());
                Incoming::Done
            }
            Ok(Step::Done) => {
                self.complete(now, reply.id);
                self.accept(now, id, 0);
                Incoming::Done
            }
            Err(error) => {
                self.complete(now, reply.id);
                self.stop(now, id);
                self.events.push_back(Event::Failed(id, error));
                Incoming::Done
            }
        }
    }

    /// Ends a call, which makes room for another.
    pub(super) fn complete(&mut self, now: Instant, id: CallId) {
        self.engine.complete(now, id);
        self.has_work = true;
    }

    pub(super) fn accept(&mut self, now: Instant, id: TransferId, bytes: u64) {
        if let Some(active) = self.find(id) {
            active.last_progress = now;
        }
        if bytes > 0 {
            self.events.push_back(Event::Progress(id, bytes));
        }
        self.finish_if_done(id);
    }

    pub(super) fn finish_if_done(&mut self, id: TransferId) {
        let done = self.find(id).is_some_and(|active| active.transfer.machine().is_done());
        if done {
            let made = self.upload(id).and_then(Upload::made);
            self.events.extend(made.map(|made| Event::Uploaded(id, made)));
            self.transfers.retain(|active| active.id != id);
            self.events.push_back(Event::Finished(id));
        }
    }
}
