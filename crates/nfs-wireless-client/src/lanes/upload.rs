//! An upload that moves to the other transport when that does better.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use nfs_wire::portmap::Protocol;

use super::{Counted, Direction, Lanes, TICK, choice::other, lock};
use crate::{
    driver::{Observer, Source, Storage, Task, clock},
    error::Error,
    session::Transfer,
    transfer::Upload,
};

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
        let watch: Observer = {
            let (accepted, over_tcp, choice) = (Arc::clone(&accepted), Arc::clone(&over_tcp), choice.clone());
            Arc::new(move |bytes| {
                accepted.fetch_add(bytes, Ordering::Relaxed);
                if let Some(choice) = &choice {
                    let over = if over_tcp.load(Ordering::Relaxed) { Protocol::Tcp } else { Protocol::Udp };
                    lock(choice).handle_bytes(clock(), over, bytes);
                }
                if let Some(observer) = &observer {
                    observer(bytes);
                }
            })
        };
        let mut task = Task {
            transfer: Transfer::Upload(Box::new(upload)),
            storage: Storage::Source(source),
            observer: Some(watch),
        };
        let mut place = self.decide(Direction::Up, size).current;
        loop {
            let lane = self.find(place, 0).unwrap_or_else(|| Arc::clone(&self.first));
            place = lane.protocol;
            over_tcp.store(place == Protocol::Tcp, Ordering::Relaxed);
            let mut underway = lane.connection.start(task);
            let (accepted, choice) = (&accepted, &choice);
            let asking = async move {
                loop {
                    tokio::time::sleep(TICK).await;
                    let left = size.saturating_sub(accepted.load(Ordering::Relaxed));
                    // Over TCP only a stall is a reason to try UDP.
                    let uses = self.decide(Direction::Up, if place == Protocol::Tcp { 0 } else { left });
                    if uses.ask && self.answering(other(uses.current)).await.is_some() {
                        if let Some(choice) = choice {
                            lock(choice).handle_answer(clock());
                        }
                        continue;
                    }
                    let wanted = if uses.trial { other(uses.current) } else { uses.current };
                    if wanted != place && self.find(wanted, 0).is_some() {
                        return wanted;
                    }
                }
            };
            tokio::pin!(asking);
            task = loop {
                let wanted = tokio::select! {
                    biased;
                    result = underway.done() => return result,
                    wanted = &mut asking => wanted,
                };
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
}
