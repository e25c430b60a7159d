//! Destination directories, and what is left to do when everything in them is copied.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    rc::Rc,
};

use tokio::{sync::OnceCell, time::Instant};

use crate::{
    chain::{self, Chain},
    context::Context,
    copy::{
        compare::{Age, age},
        destination::{Location, one_name::Names},
        file::for_any_group,
        filter::{self, Ignores},
        source::{Attributes, Node},
    },
    error::Result,
    local,
};

/// What a directory gets when everything in it is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::copy) enum Last {
    /// Mode, times and owner of its source.
    Source,
    /// The mode of a new directory, if it was made with a wider one.
    Mode,
    /// Nothing.
    Nothing,
}

/// A destination directory that is being filled. Whoever copies into it holds it; the last one to let go sets its
/// mode and times.
#[derive(Debug)]
pub(in crate::copy) struct TargetDirectory {
    pub(in crate::copy) location: Location,
    parent: Option<Rc<Self>>,
    /// Whether directories that are made in it have the mark of an unfinished copy.
    marks: bool,
    /// The source directory whose contents go here.
    source: Option<(u64, u64)>,
    /// What to set at the end.
    last: Cell<Option<Attributes>>,
    /// What it was when it was found.
    was: Option<Attributes>,
    /// Whether anything in it has changed.
    is_touched: Cell<bool>,
    /// Whether this run has put journals beside files in it.
    has_journals: Cell<bool>,
    /// Whether it has fewer permissions than it had.
    is_narrowed: Cell<bool>,
    /// Whether its owner was allowed to change what is in it.
    is_widened: OnceCell<()>,
    /// Whether it stands for one that was filled before.
    is_again: bool,
    /// Its path below SRC.
    relative: Vec<u8>,
    /// Patterns of what is left out in it.
    ignores: RefCell<Option<Rc<Ignores>>>,
    /// Names that its source has, while it is listed in parts.
    names: RefCell<BTreeSet<Vec<u8>>>,
    /// Those of them that are taken.
    taken: RefCell<BTreeSet<Vec<u8>>>,
    /// Names that were given in it.
    given: Rc<Names>,
    /// The names that lead to it, on a server.
    chain: std::cell::OnceCell<Chain>,
    /// Whether it was said that it is elsewhere now.
    is_told: Cell<bool>,
    /// Whether anything was copied into it, or below.
    is_filled: Cell<bool>,
}

impl TargetDirectory {
    /// A directory that was there before.
    pub(in crate::copy) fn top(location: Location) -> Self {
        Self {
            location,
            parent: None,
            marks: false,
            source: None,
            last: Cell::default(),
            was: None,
            is_touched: Cell::default(),
            has_journals: Cell::default(),
            is_narrowed: Cell::default(),
            is_widened: OnceCell::new(),
            is_again: false,
            relative: Vec::new(),
            ignores: RefCell::default(),
            names: RefCell::default(),
            taken: RefCell::default(),
            given: Rc::default(),
            chain: std::cell::OnceCell::new(),
            is_told: Cell::default(),
            is_filled: Cell::default(),
        }
    }

    /// A directory that was there before, into which several sources go.
    pub(in crate::copy) fn merged(location: Location) -> Self {
        Self { given: Rc::new(Names::merged()), ..Self::top(location) }
    }

    /// A directory that was there before, and in which the destination is made.
    pub(in crate::copy) fn above_target(location: Location) -> Self {
        Self { marks: true, ..Self::top(location) }
    }

    /// Returns the names that this run has given in it.
    pub(in crate::copy) fn given(&self) -> &Names {
        &self.given
    }

    /// Whether directories that are made here have the mark of an unfinished copy.
    pub(in crate::copy) const fn marks(&self) -> bool {
        self.marks
    }

    /// The same directory as `target_directory`, of which nothing is known any more, but for what this run has made in it.
    pub(in crate::copy) fn again(target_directory: &Rc<Self>, location: Location) -> Self {
        let ignores = RefCell::new(target_directory.ignores());
        let (parent, relative) = (Some(Rc::clone(target_directory)), target_directory.relative.clone());
        let (source, given) = (target_directory.source, Rc::clone(&target_directory.given));
        Self { parent, source, is_again: true, relative, ignores, given, ..Self::top(location) }
    }

    /// A directory made for a source directory with these attributes, or found in its place. `name` is its name below SRC, and none
    /// for SRC itself.
    pub(in crate::copy) fn below(
        parent: &Rc<Self>,
        location: Location,
        name: Option<&[u8]>,
        source: Attributes,
        was: Option<Attributes>,
        last: Last,
    ) -> Self {
        let plain = source.mode & 0o777 & !local::umask();
        let was_widened = location.was_created() && plain != plain | 0o700;
        let last = match last {
            Last::Source => Some(source),
            Last::Mode => was_widened.then_some(Attributes { mode: plain, ..source }),
            Last::Nothing => None,
        };
        let relative = name.map(|name| filter::below(&parent.relative, name)).unwrap_or_default();
        let (source, ignores) = (Some(source.file), RefCell::new(parent.ignores()));
        let (given, parent) = (parent.given.below(name), Some(Rc::clone(parent)));
        let last = Cell::new(last);
        Self { parent, source, last, was, relative, ignores, given, ..Self::top(location) }
    }

    /// Notes that something is copied into the directory; as [`TargetDirectory::touch_names`].
    pub(in crate::copy) async fn touch(&self, context: Context<'_>) {
        self.set_filled(true);
        self.touch_names(context).await;
    }

    /// Notes whether anything was copied into the directory.
    pub(in crate::copy) fn set_filled(&self, is_filled: bool) {
        self.is_filled.set(is_filled);
    }

    /// Notes that something in the directory changes, so that its times do. Where its mode does not let its owner do that, it gets
    /// another, until its own is set at the end.
    pub(in crate::copy) async fn touch_names(&self, context: Context<'_>) {
        self.is_touched.set(true);
        if let Some(was) = self.was.filter(|was| self.last.get().is_some() && was.mode & 0o300 != 0o300) {
            let wider = Attributes { mode: was.mode | 0o300, ..was };
            let widen = || async {
                // If that is refused, so is what follows, which is then reported.
                let _ = self.location.set_last(context, wider, false).await;
            };
            self.is_widened.get_or_init(widen).await;
        }
    }

    /// Lets a directory have no more permissions than its source has `now`, if those are others than when that was listed: its owner may not
    /// want it read any more. The mode of one that was there before is its own, unless modes are kept.
    pub(in crate::copy) async fn follow_source(
        &self,
        context: Context<'_>,
        preserve: bool,
        listed: &Attributes,
        now: Attributes,
    ) {
        if listed.rights() == now.rights() || listed.file.1 != now.file.1 || !preserve && self.was.is_some() {
            return;
        }
        let mode = if preserve { now.mode } else { listed.mode & now.mode & 0o777 & !local::umask() };
        let last = Attributes { mode, ..listed.with_rights_of(&now) };
        self.last.set(Some(last));
        // Before anything is in it. What is refused now is refused at the end, and reported then.
        let _ =
            self.location.set_last(context, Attributes { mode: mode & 0o777 | 0o700, ..last }, false).await;
    }

    /// Whether it lies on a file system that is mounted within the destination.
    pub(in crate::copy) fn is_on_inner_mount(&self) -> bool {
        let target_directories =
            std::iter::successors(Some(self), |target_directory| target_directory.parent.as_deref());
        target_directories.filter(|target_directory| !target_directory.relative.is_empty()).any(
            |target_directory| {
                target_directory
                    .parent
                    .as_ref()
                    .is_some_and(|above| target_directory.location.is_mounted_in(&above.location))
            },
        )
    }

    /// Lets its owner change what is in it once more, where that is not as its source has it; false where it is.
    pub(in crate::copy) async fn widen_again(&self, context: Context<'_>) -> bool {
        let Some(last) = self.last.get().filter(|last| last.mode & 0o300 != 0o300) else { return false };
        self.note_change();
        // If that is refused, so is what follows, which is then reported.
        let _ = self.location.set_last(context, Attributes { mode: last.mode | 0o300, ..last }, false).await;
        true
    }

    /// Notes that something in the directory has changed.
    pub(in crate::copy) fn note_change(&self) {
        self.is_touched.set(true);
    }

    /// Whether anything in the directory has changed.
    pub(in crate::copy) fn is_touched(&self) -> bool {
        self.is_touched.get()
    }

    /// Returns the names that lead to it, on a server.
    pub(in crate::copy) fn chain(&self) -> Chain {
        let find = || {
            let above = self.parent.as_ref().map(|parent| parent.chain()).unwrap_or_default();
            match &self.location {
                Location::Remote(location) if !self.is_again => above.to_entry(location.entry()),
                _ => above,
            }
        };
        self.chain.get_or_init(find).clone()
    }

    /// Whether the names that lead to it still do; if not, that is said. On a server what was looked up after `begun` counts or, without
    /// that, a moment ago.
    ///
    /// # Errors
    /// What looking fails of.
    pub(in crate::copy) async fn holds(&self, begun: Option<Instant>, context: Context<'_>) -> Result<bool> {
        match (&self.location, begun) {
            (Location::Planned(_), _) => Ok(true),
            (Location::Remote(_), Some(begun)) => self.chain().holds_since(begun, context).await,
            (Location::Remote(_), None) => self.chain().holds(context).await,
            (Location::Local { .. }, _) => {
                let target_directories =
                    std::iter::successors(Some(self), |target_directory| target_directory.parent.as_deref());
                match target_directories.filter(|target_directory| !target_directory.is_at_its_name()).last()
                {
                    None => Ok(true),
                    Some(moved) if moved.is_told.replace(true) => Ok(false),
                    Some(moved) => {
                        context.events.fail(chain::moved(moved.location.own_name().shown)).map(|()| false)
                    }
                }
            }
        }
    }

    /// Whether it is the directory that the user named, or the one that holds that.
    pub(in crate::copy) const fn is_top(&self) -> bool {
        self.parent.is_none()
    }

    /// Whether its name leads to it, on this machine.
    pub(in crate::copy) fn is_at_its_name(&self) -> bool {
        let Location::Local { directory, .. } = &self.location else { return true };
        match self.parent.as_ref().map(|parent| &parent.location) {
            _ if self.is_again => true,
            Some(Location::Local { directory: above, .. }) => above.leads_to(directory),
            _ => directory.is_at_its_path(),
        }
    }

    /// Notes that a journal is put beside a file in it.
    pub(in crate::copy) fn note_journal(&self) {
        self.has_journals.set(true);
    }

    /// Whether there may be journals in it: in a directory that this run has created there are none but its own.
    pub(in crate::copy) fn may_have_journals(&self) -> bool {
        self.has_journals.get() || !self.location.was_created()
    }

    /// Whether it stands for one that was filled before.
    pub(in crate::copy) const fn is_again(&self) -> bool {
        self.is_again
    }

    /// Returns its path below SRC.
    pub(in crate::copy) fn relative(&self) -> &[u8] {
        &self.relative
    }

    /// Returns the patterns of what is left out in it.
    pub(in crate::copy) fn ignores(&self) -> Option<Rc<Ignores>> {
        self.ignores.borrow().clone()
    }

    /// Sets the patterns of what is left out in it.
    pub(in crate::copy) fn set_ignores(&self, ignores: Option<Rc<Ignores>>) {
        *self.ignores.borrow_mut() = ignores;
    }

    /// Adds a name that its source has.
    pub(in crate::copy) fn add_name(&self, name: &[u8]) {
        self.names.borrow_mut().insert(name.to_vec());
    }

    /// Adds a name that is copied.
    pub(in crate::copy) fn add_taken(&self, name: &[u8]) {
        self.taken.borrow_mut().insert(name.to_vec());
    }

    /// Returns the names that its source has, and those of them that are copied; they are not needed any more.
    pub(in crate::copy) fn take_names(&self) -> [BTreeSet<Vec<u8>>; 2] {
        [self.names.take(), self.taken.take()]
    }

    /// Takes from a directory that was there what its source does not permit, before anything more is in it: who may not read that there is
    /// not to read it here.
    ///
    /// # Errors
    /// It belongs to somebody else and is open, and its source is closed to all but its owner. That the user has named the destination is
    /// enough for what lies there itself.
    pub(in crate::copy) async fn narrow(&self, context: Context<'_>) -> Result<()> {
        const READ_AND_SEARCH: u32 = 0o055;
        let (Some(was), Some(source)) = (self.was, self.last.get()) else { return Ok(()) };
        let owner = self.location.other_owner(context.servers, &was, &source);
        let changes_group = owner.is_some_and(|(_, group)| group != was.gid);
        let least = if changes_group { for_any_group(source.mode) } else { source.mode };
        if was.mode & 0o077 & !least == 0 {
            return Ok(());
        }
        self.is_narrowed.set(true);
        let narrowed = self.location.narrow(context, was, was.mode & (least & 0o777 | 0o7700)).await;
        let is_private = source.mode & 0o077 == 0 && was.mode & READ_AND_SEARCH != 0;
        // Anything else that is refused now is refused at the end, and reported then.
        if is_private && !self.relative.is_empty() { narrowed } else { Ok(()) }
    }

    /// Whether it has the owner, the mode and the time of its source already, as far as it could get them.
    fn is_as(&self, context: Context<'_>, source: Attributes) -> bool {
        self.was.is_some_and(|was| {
            was.mode & 0o7777 == source.mode & 0o7777
                && self.location.other_owner(context.servers, &was, &source).is_none()
                && age(source.times.modified, &was) == Some(Age::Same)
                && !self.is_touched()
                && !self.is_narrowed.get()
        })
    }

    /// Whether what is copied here, or into one above it, is from this source directory.
    pub(in crate::copy) fn is_copied_from(&self, source: (u64, u64)) -> bool {
        let target_directories =
            std::iter::successors(Some(self), |target_directory| target_directory.parent.as_deref());
        target_directories.into_iter().any(|target_directory| target_directory.source == Some(source))
    }

    /// Whether a source directory is this one or one above it.
    ///
    /// # Errors
    /// What looking at the directories fails of.
    pub(in crate::copy) async fn is_inside(&self, node: &Node) -> Result<bool> {
        let mut next = Some(self);
        while let Some(target_directory) = next {
            if target_directory.location.is_directory(node).await? {
                return Ok(true);
            }
            next = target_directory.parent.as_deref();
        }
        Ok(false)
    }

    /// Whether it was said that the names that led to it do not.
    fn is_told(&self) -> bool {
        self.is_told.get() || self.chain.get().is_some_and(Chain::is_lost)
    }

    /// Lets go of a directory, and of those above it that are complete with it. Those that something was copied into are handed to
    /// `look`, which tells whether their names still lead to them.
    ///
    /// # Errors
    /// The first failure to set mode or times.
    pub(in crate::copy) async fn release(
        target_directory: Rc<Self>,
        context: Context<'_>,
        preserve: bool,
        look: impl Fn(&Self) -> Result<()>,
    ) -> Result<()> {
        let mut next = Some(target_directory);
        let mut result = Ok(());
        while let Some(target_directory) = next.take().and_then(Rc::into_inner) {
            if let Some(attributes) = target_directory
                .last
                .get()
                .filter(|source| !preserve || !target_directory.is_as(context, *source))
            {
                if preserve {
                    let given = target_directory
                        .location
                        .give(context, &attributes, target_directory.was.as_ref())
                        .await;
                    result = result.and(given);
                }
                let set = target_directory.location.set_last(context, attributes, preserve).await;
                result = result.and(set);
            }
            if target_directory.is_filled.get() {
                if let Some(parent) = &target_directory.parent {
                    parent.is_filled.set(true);
                }
                if !target_directory.is_again && !target_directory.is_told() {
                    let looked = look(&target_directory);
                    result = result.and(looked);
                }
            }
            next = target_directory.parent;
        }
        result
    }
}
