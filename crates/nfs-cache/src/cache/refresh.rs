//! What is used is asked for again before its time is over, so that who uses it the next time does not wait.

use std::{sync::Arc, time::Instant};

use super::Cache;
use crate::{
    call::{Call, Question},
    directory::{Edge, Name, Target},
    ids::{CallId, NodeId},
    object::Object,
    store::Store,
};

impl<S: Store> Cache<S> {
    /// Asks for attributes again that will soon be too old.
    pub(super) fn refresh_attributes(&mut self, node: NodeId) {
        let Some(object) = self.tree.objects.get(node).filter(|_| self.server.is_up()) else { return };
        // A listing of its directory brings them.
        let is_listed = |directory: &Object| directory.directory().is_some_and(|it| it.run.is_some());
        let parent = object.parent().and_then(|parent| self.tree.objects.get(parent));
        if self.tree.freshness.is_due(object) && !parent.is_some_and(is_listed) {
            self.ask(None, Question::Getattr(object.handle()), CallId(0));
        }
    }

    /// Asks again for what a name leads to, and for the attributes of that, where they will soon be too old.
    pub(super) fn refresh_name(&mut self, directory: NodeId, name: &Name, node: NodeId) {
        let Some(parent) = self.tree.objects.get(directory).filter(|_| self.server.is_up()) else { return };
        let Some(names) = parent.directory().filter(|names| names.run.is_none()) else { return };
        let (handle, edge) = (parent.handle(), names.find(name));
        let is_proven = |edge: &Edge| edge.source.holds(&parent.known.metadata);
        let is_due = |edge: &Edge| self.tree.freshness.are_names_due(parent, &edge.source);
        match edge.filter(|edge| matches!(edge.target, Target::Handle(..)) && is_due(edge)) {
            // That the directory has not changed is enough.
            Some(edge) if is_proven(&edge) => _ = self.ask(None, Question::Getattr(handle), CallId(0)),
            Some(_) => {
                self.ask(None, Question::Lookup { directory: handle, name: Arc::clone(name) }, CallId(0));
            }
            None => {}
        }
        self.refresh_attributes(node);
    }

    /// When the server will have been silent for long enough though it was asked, by calls that nobody waits for and whose replies are
    /// short: operations that come then need not find that out.
    pub(super) fn unanswered_at(&self) -> Option<Instant> {
        let may_answer = self.server.may_answer();
        let is_short = |(_, call): &(CallId, &Call)| {
            let is_long = matches!(call.question, Question::Read { .. } | Question::Page(_));
            call.waiters.is_empty() && call.send_at.is_none() && !is_long
        };
        let sent =
            self.calls.iter().filter(is_short).filter_map(|(_, call)| call.sent.filter(|_| may_answer));
        sent.filter_map(|sent| self.server.silent_at(sent.at)).min()
    }
}
