//! The loop of a link in real time, and how other tasks reach it.

use std::{fmt, io, time::Instant};

use tokio::sync::{mpsc, oneshot};

use super::{Lateness, alarm::Alarm, clock};
use crate::{Cell, Delivery};

/// Batches that may wait between a descriptor and the link; more stay in the system's own buffer.
const BATCHES: usize = 64;
/// Questions that may wait.
const QUESTIONS: usize = 16;

/// The descriptors at the ends of a link.
pub(crate) trait Ends {
    /// Where something was read.
    type Source: Copy;
    /// What was read.
    type Datagram;

    /// Lets what was read at `source` into the link, if it may pass.
    fn offer(&mut self, now: Instant, cell: &mut Cell, source: Self::Source, datagram: Self::Datagram);

    /// Writes what has crossed the link; false if that cannot be done now.
    fn deliver(&mut self, delivery: &Delivery) -> bool;

    /// Fires what is due.
    fn handle_timeout(&mut self, now: Instant);
}

/// What was read from one descriptor at once.
pub(crate) type Batch<E> = (<E as Ends>::Source, Vec<<E as Ends>::Datagram>);

/// A link between descriptors.
pub(crate) struct Running<E: Ends> {
    pub(crate) cell: Cell,
    pub(crate) ends: E,
    /// Deliveries that the ends did not take.
    pub(crate) unsent: u64,
    pub(crate) lateness: Lateness,
    alarm: Alarm,
    inputs: mpsc::Receiver<Batch<E>>,
    questions: mpsc::Receiver<Question<E>>,
    remote: Remote<E>,
    is_stopped: bool,
}

/// What another task wants of a running link.
type Question<E> = Box<dyn FnOnce(&mut Running<E>) + Send>;

/// Reaches a running link from another task.
pub(crate) struct Remote<E: Ends>(mpsc::Sender<Question<E>>);

impl<E: Ends> Running<E> {
    /// Joins `cell` with the ends that `ends` makes for readers that report to the sender.
    ///
    /// # Errors
    /// That of `ends`, or of the system when it has no timer to offer.
    pub(crate) fn new<X>(
        cell: Cell,
        no_timer: impl FnOnce(io::Error) -> X,
        ends: impl FnOnce(mpsc::Sender<Batch<E>>) -> Result<E, X>,
    ) -> Result<Self, X> {
        let (input, inputs) = mpsc::channel(BATCHES);
        let (question, questions) = mpsc::channel(QUESTIONS);
        Ok(Self {
            cell,
            ends: ends(input)?,
            unsent: 0,
            lateness: Lateness::default(),
            alarm: Alarm::new().map_err(no_timer)?,
            inputs,
            questions,
            remote: Remote(question),
            is_stopped: false,
        })
    }

    pub(crate) fn remote(&self) -> Remote<E> {
        self.remote.clone()
    }

    /// Runs until [`Remote::stop`], then closes the records.
    pub(crate) async fn run(&mut self) {
        while !self.is_stopped {
            let now = clock();
            self.cell.handle_timeout(now);
            self.deliver(now);
            self.ends.handle_timeout(now);
            let deadline = self.cell.poll_timeout();
            tokio::select! {
                biased;
                Some(question) = self.questions.recv() => question(self),
                () = self.alarm.wait(deadline) => {}
                Some((source, datagrams)) = self.inputs.recv() => {
                    for datagram in datagrams {
                        let now = clock();
                        self.ends.offer(now, &mut self.cell, source, datagram);
                        self.deliver(now);
                    }
                }
            }
        }
        self.cell.close_records();
    }

    fn deliver(&mut self, now: Instant) {
        while let Some(delivery) = self.cell.poll_transmit(now) {
            self.unsent += u64::from(!self.ends.deliver(&delivery));
            self.lateness.record(clock().saturating_duration_since(delivery.at));
        }
    }
}

impl<E: Ends> Remote<E> {
    /// What `question` finds out; `None` if the link has ended.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Running<E>) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        // Whoever asked may have gone.
        self.tell(move |link| drop(answer.send(question(link)))).await;
        answered.await.ok()
    }

    /// Has `command` done soon; a link that has ended does nothing.
    pub(crate) async fn tell(&self, command: impl FnOnce(&mut Running<E>) + Send + 'static) {
        let _ = self.0.send(Box::new(command)).await;
    }

    /// Ends [`Running::run`].
    pub(crate) async fn stop(&self) {
        self.tell(|link| link.is_stopped = true).await;
    }
}

impl<E: Ends> Clone for Remote<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<E: Ends> fmt::Debug for Remote<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Remote").finish_non_exhaustive()
    }
}
