//! What every operation on files needs.

use std::cell::RefCell;

use crate::{
    error::{Error, Result},
    event::{Counts, Event},
    servers::Servers,
};

/// The servers, and who is told what happens.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    /// The connections to servers.
    pub(crate) servers: &'a Servers,
    /// Who is told.
    pub(crate) events: &'a dyn Events,
}

/// Who is told what happens.
pub(crate) trait Events {
    /// Takes what happens.
    ///
    /// # Errors
    /// One that [stops](Error::stopped) the run.
    fn tell(&self, event: &Event<'_>) -> Result<()>;
}

impl dyn Events + '_ {
    /// Says that something failed, unless nothing else can succeed.
    ///
    /// # Errors
    /// Hands the error back when the run cannot go on after it.
    pub(crate) fn fail(&self, error: Error) -> Result<()> {
        if error.ends_run() { Err(error) } else { self.tell(&Event::Failed(&error)) }
    }
}

/// Counts what it passes on.
pub(crate) struct Counting<'a> {
    events: &'a dyn Events,
    counts: RefCell<Counts>,
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
