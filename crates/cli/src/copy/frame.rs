//! Destination directories, and what is left to do when everything in them is copied.

use std::rc::Rc;

use super::{
    node::{Attributes, Node},
    place::Place,
};
use crate::{connections::Connections, local, report::Reporter};

/// A destination directory that is being filled. Whoever copies into it holds it; the last one to let go sets its
/// mode and times.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) place: Place,
    parent: Option<Rc<Self>>,
    /// Whether directories that are made in it have the mark of an unfinished copy.
    marks: bool,
    /// The source directory whose contents go here.
    source: Option<(u64, u64)>,
    /// What to set at the end.
    last: Option<Attributes>,
}

impl Frame {
    /// A directory that was there before.
    pub(super) fn top(place: Place) -> Self {
        Self { place, parent: None, marks: false, source: None, last: None }
    }

    /// A directory that was there before, and in which the destination is made.
    pub(super) fn above_target(place: Place) -> Self {
        Self { marks: true, ..Self::top(place) }
    }

    /// Whether directories that are made here have the mark of an unfinished copy.
    pub(super) const fn marks(&self) -> bool {
        self.marks
    }

    /// A directory made for a source directory with these attributes, or found in its place.
    pub(super) fn below(parent: &Rc<Self>, place: Place, source: Attributes, preserve: bool) -> Self {
        let plain = source.mode & 0o777 & !local::umask();
        let was_widened = place.was_created() && plain != plain | 0o700;
        let last =
            if preserve { Some(source) } else { was_widened.then_some(Attributes { mode: plain, ..source }) };
        Self { place, parent: Some(Rc::clone(parent)), marks: false, source: Some(source.file), last }
    }

    /// Whether what is copied here, or into one above it, is from this source directory.
    pub(super) fn is_copied_from(&self, source: (u64, u64)) -> bool {
        let frames = std::iter::successors(Some(self), |frame| frame.parent.as_deref());
        frames.into_iter().any(|frame| frame.source == Some(source))
    }

    /// Whether a source directory is this one or one above it.
    pub(super) fn is_inside(&self, node: &Node) -> bool {
        let mut next = Some(self);
        while let Some(frame) = next {
            if frame.place.is_directory(node) {
                return true;
            }
            next = frame.parent.as_deref();
        }
        false
    }

    /// Lets go of a directory, and of those above it that are complete with it.
    ///
    /// # Errors
    /// The first failure to set mode or times.
    pub(super) async fn release(
        frame: Rc<Self>,
        connections: &Connections,
        reporter: &Reporter,
        preserve: bool,
    ) -> anyhow::Result<()> {
        let mut next = Some(frame);
        let mut result = Ok(());
        while let Some(frame) = next.take().and_then(Rc::into_inner) {
            if let Some(attributes) = frame.last {
                let set = frame.place.set_last(connections, reporter, attributes, preserve).await;
                result = result.and(set);
            }
            next = frame.parent;
        }
        result
    }
}
