//! What an [`Agent`] does next with its download or its upload.

use std::time::Instant;

use nfs_proto::{
    endpoint::{Carrier, DownloadStep, UploadStep},
    session::Transfer,
    transfer,
};

use super::{
    Agent,
    copy::{Task, TransferKey},
};
use crate::mobile::Progress;

impl Agent {
    pub(super) fn step_download(&mut self, now: Instant) {
        loop {
            let Task::Down(download) = &mut self.task else { return };
            let Some(step) = download.plan.poll(now, &mut self.endpoint, true) else { break };
            match step {
                DownloadStep::Read { connection, run, ranges } => {
                    let transfer = Transfer::Download(transfer::Download::ranges(&self.work.file, ranges));
                    let id = self.paths[connection.0].path.session.start(now, transfer);
                    download.runs.push((run, (connection, id)));
                }
                DownloadStep::Cancel(run) => {
                    if let Some(at) = download.runs.iter().position(|(it, _)| *it == run) {
                        let (_, (connection, id)) = download.runs.remove(at);
                        self.paths[connection.0].path.session.stop(now, id);
                    }
                }
                DownloadStep::Join { protocol, number, must_answer } => {
                    self.ask(now, protocol, number, must_answer);
                    self.answer(now);
                }
            }
        }
        let Task::Down(download) = &self.task else { return };
        if download.plan.left() == 0 {
            self.stop(now);
            self.finish(now, Progress::Finished(now));
        }
    }

    pub(super) fn step_upload(&mut self, now: Instant) {
        loop {
            let Task::Up(upload) = &mut self.task else { return };
            if upload.is_done {
                self.finish(now, Progress::Finished(now));
                return;
            }
            let Some((connection, id)) = upload.place else { return };
            let known = &mut self.paths[connection.0];
            let session = &mut known.path.session;
            if upload.is_held && !session.is_asking(id) {
                upload.plan.handle_drained();
            }
            let carrier = Carrier {
                last_heard: known.heard,
                min_rtt: session.path_estimate().map(|estimate| estimate.min_rtt),
                overflow: session.stats().overflow,
            };
            match upload.plan.poll(now, &mut self.endpoint, carrier) {
                None => return,
                Some(UploadStep::Ask(protocol)) => {
                    self.ask(now, protocol, 0, true);
                    self.answer(now);
                }
                Some(UploadStep::Hold) => {
                    session.hold(id);
                    upload.is_held = true;
                }
                Some(UploadStep::Detach) => {
                    upload.is_held = false;
                    let (estimate, taken) = (session.path_estimate(), session.detach(now, id));
                    upload.plan.handle_detached(now, &self.endpoint, taken.is_some());
                    if let Some(transfer) = taken {
                        let to = &mut self.paths[upload.connection().0].path.session;
                        if let Some(estimate) = estimate {
                            to.expect_rate(estimate.rate);
                        }
                        upload.start(now, to, transfer);
                    }
                }
            }
        }
    }

    /// Ends whatever is under way.
    pub(super) fn stop(&mut self, now: Instant) {
        let places: Vec<TransferKey> = match &mut self.task {
            Task::Down(download) => download.runs.drain(..).map(|(_, place)| place).collect(),
            Task::Up(upload) => upload.place.take().into_iter().collect(),
            Task::Waiting | Task::Connecting(_) | Task::Calling(_) | Task::Ended => Vec::new(),
        };
        for (connection, id) in places {
            self.paths[connection.0].path.session.stop(now, id);
        }
    }
}
