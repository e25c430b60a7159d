//! What every operation on files needs.

use std::{cell::RefCell, fmt};

use crate::{
    error::{Error, Result},
    event::{Counts, Event},
    servers::Servers,
};

/// The servers, and who is told what happens.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The connections to servers.
    pub servers: &'a Servers,
    /// Who is told.
    pub events: &'a dyn Events,
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Context").field("servers", self.servers).finish_non_exhaustive()
    }
}

/// Who is told what happens.
pub trait Events {
    /// Takes what happens.
    ///
    /// # Errors
    /// One that [stops](Error::stopped) the run.
    fn tell(&self, event: &Event<'_>) -> Result<()>;
}

/// A function that takes what happens.
impl<F: Fn(&Event<'_>) -> Result<()>> Events for F {
    fn tell(&self, event: &Event<'_>) -> Result<()> {
        self(event)
    }
}

impl dyn Events + '_ {
    /// Says that something failed, unless nothing else can succeed.
    ///
    /// # Errors
    /// Returns the error itself if it ends the run.
    pub fn fail(&self, error: Error) -> Result<()> {
        if error.ends_run() { Err(error) } else { self.tell(&Event::Failed(&error)) }
    }
}

/// Counts what it passes on.
pub(crate) struct Counting<'a> {
    events: &'a dyn Events,
    counts: RefCell<Counts>,
}

impl fmt::Debug for Counting<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Counting").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl<'a> Counting<'a> {
    /// Begins to count.
    pub(crate) fn new(events: &'a dyn Events) -> Self {
        Self { events, counts: RefCell::default() }
    }

    /// Whether anything failed so far, or a newer file was kept.
    pub(crate) fn has_failures(&self) -> bool {
        self.counts.borrow().has_failures()
    }

    /// Returns what was counted.
    pub(crate) fn counts(self) -> Counts {
        self.counts.into_inner()
    }
}

impl Events for Counting<'_> {
    fn tell(&self, event: &Event<'_>) -> Result<()> {
        self.counts.borrow_mut().count(event);
        self.events.tell(event)
    }
}
