//! An upload that moves to the other transport when that does better.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use nfs_proto::{session::Transfer, transfer::Upload};
use nfs_wire::portmap::Protocol;

use super::{
    Counted, Direction, Lane, Lanes, TICK,
    bridged::bridged,
    choice::{Reason, other},
    lock,
};
use crate::{
    driver::{Observer, Source, Storage, Strand, Supply, Task, Underway, clock},
    error::Error,
};

/// Whoever moves waits for what is in flight until so long nothing has come, and looks that often.
const SILENT: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(5);

impl Lanes {
    /// Runs an upload of `size` bytes. WRITEs are made on one connection at a time.
    pub(crate) async fn upload(
        &self,
        upload: Upload,
        size: u64,
        source: Box<dyn Source>,
        observer: Option<Observer>,
    ) -> Result<(), Error> {
        let choice = self.choice(Direction::Up).cloned();
        let _counted = Counted::begin(choice.as_ref());
        let accepted = Arc::new(AtomicU64::new(0));
        let over_tcp = Arc::new(AtomicBool::new(false));
        let supply = Strand::new(Supply::new(source, observer), self.reactor.storage_pool());
        let watch: Observer = {
            let (accepted, over_tcp, choice) = (Arc::clone(&accepted), Arc::clone(&over_tcp), choice.clone());
            Arc::new(move |bytes| {
                accepted.fetch_add(bytes, Ordering::Relaxed);
                if let Some(choice) = &choice {
                    let over = if over_tcp.load(Ordering::Relaxed) { Protocol::Tcp } else { Protocol::Udp };
                    lock(choice).handle_bytes(clock(), over, bytes);
                }
            })
        };
        let mut task = Task {
            transfer: Transfer::Upload(Box::new(upload)),
            storage: Storage::Source(supply),
            accepted: Some(watch),
            rate: None,
        };
        let mut place = self.decide(Direction::Up, size).current;
        loop {
            let lane = self.find(place, 0).unwrap_or_else(|| Arc::clone(&self.first));
            place = lane.protocol;
            over_tcp.store(place == Protocol::Tcp, Ordering::Relaxed);
            let mut underway = lane.connection.start(task);
            task = loop {
                let left = || size.saturating_sub(accepted.load(Ordering::Relaxed));
                let wanted = tokio::select! {
                    biased;
                    result = underway.done() => return result,
                    wanted = self.better(&lane, &left) => wanted,
                };
                if let Some(result) = drained(&mut underway, &lane, &accepted).await {
                    return result;
                }
                match underway.detach().await {
                    Some(task) => {
                        place = wanted;
                        break task;
                    }
                    // It waits for a call that must not be made twice, or has ended.
                    None => tokio::select! {
                        result = underway.done() => return result,
                        () = tokio::time::sleep(TICK) => {}
                    },
                }
            };
        }
    }

    /// Waits until WRITEs should be made over the other transport, and returns that.
    async fn better(&self, lane: &Lane, left: &impl Fn() -> u64) -> Protocol {
        let choice = self.choice(Direction::Up);
        loop {
            tokio::time::sleep(TICK).await;
            // Over TCP only a stall is a reason to try UDP.
            let left = if lane.protocol == Protocol::Tcp { 0 } else { left() };
            if lane.connection.snapshot().path_estimate.is_some_and(|path| bridged(&path, left))
                && let Some(choice) = choice
            {
                lock(choice).advise(clock(), Protocol::Tcp, Reason::Bridged);
            }
            let uses = self.decide(Direction::Up, left);
            if uses.ask && self.answering(other(uses.current)).await.is_some() {
                if let Some(choice) = choice {
                    lock(choice).handle_answer(clock());
                }
                continue;
            }
            let wanted = if uses.trial { other(uses.current) } else { uses.current };
            if wanted != lane.protocol && self.find(wanted, 0).is_some() {
                return wanted;
            }
        }
    }
}

/// Waits while what the upload has in flight is answered, but not for ever; what is not is sent again elsewhere. Returns the result if
/// that was all.
async fn drained(
    underway: &mut Underway<'_>,
    lane: &Lane,
    accepted: &AtomicU64,
) -> Option<Result<(), Error>> {
    let mut drained = underway.hold();
    let (began, patience) = (clock(), SILENT + lane.round_trip * 2);
    let mut heard = lane.connection.snapshot().last_heard.unwrap_or(began).max(began - patience);
    let mut known = accepted.load(Ordering::Relaxed);
    loop {
        tokio::select! {
            biased;
            result = underway.done() => return Some(result),
            _ = &mut drained => return None,
            () = tokio::time::sleep(LOOK) => {}
        }
        let (now, bytes) = (clock(), accepted.load(Ordering::Relaxed));
        if bytes != known {
            (heard, known) = (now, bytes);
        }
        if now >= (heard + patience).min(began + patience * 4) {
            return None;
        }
    }
}
