//! What `nfsw sync` does beside copying: it decides what is unchanged, and what follows the copying.

pub(in crate::copy) mod delete;
pub(in crate::copy) mod hard_links;

use std::{
    cell::{Cell, RefCell},
    fs::File,
    io,
    rc::Rc,
};

use super::{
    Overwrite, Run, Work,
    destination::{Location, Present, directory::TargetDirectory},
    file::SET_ID_IS_LEFT_OUT,
    filter::below,
    source::{Attributes, Kind, Node, SET_ID},
    sync::{delete::Surplus, hard_links::HardLinks},
};
use crate::{
    error::Result,
    event::{Change, Name, NotDone, Skip, Warning},
    local::{Adjusted, Directory, StateHome},
};

/// How a sync differs from a copy.
#[derive(Clone, Copy, Debug)]
pub struct Sync {
    /// By what a file counts as unchanged.
    pub compare: Compare,
    /// Whether newer files are replaced, and all is deleted when the source is empty.
    pub force: bool,
    /// Whether what the source does not have is deleted.
    pub delete: bool,
    /// Files and directories that are deleted, at most; more than that, and none is.
    pub max_delete: Option<u64>,
}

/// By what a file counts as unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Its size and the time of its last change.
    SizeAndTime,
    /// Its size.
    Size,
    /// All of its bytes.
    Contents,
}

/// Keeps other syncs of this user out of a directory of this machine, while it is there.
#[derive(Debug)]
pub(super) struct Alone {
    state: Directory,
    name: Vec<u8>,
    _lock: File,
}

impl Alone {
    /// # Errors
    /// `WouldBlock` while another run has the directory; why nothing can be kept.
    pub(super) fn enter(state: &StateHome, directory: &Directory) -> io::Result<Self> {
        let (state, (file_system, file)) = (state.open()?, directory.number());
        let name = format!("sync-{file_system:x}-{file:x}").into_bytes();
        let lock = state.lock(&name, 0o600)?;
        Ok(Self { state, name, _lock: lock })
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.state.remove(&self.name);
    }
}

/// The state of a sync.
#[derive(Debug)]
pub(super) struct Syncing {
    pub(super) options: Sync,
    /// The source directory, which must not be deleted.
    pub(super) root: Option<Node>,
    pub(super) is_root_empty: Cell<bool>,
    /// Whether something in the source disappeared while it was listed.
    pub(super) has_vanished: Cell<bool>,
    /// The directories of the source, as they were when they were listed.
    pub(super) listed: RefCell<Vec<Node>>,
    pub(super) hard_links: HardLinks,
    /// What only the destination has, by directory.
    pub(super) surplus: RefCell<Vec<Surplus>>,
    /// What cannot be copied before something of another kind is deleted.
    pub(super) blocked: RefCell<Vec<Work>>,
}

impl Syncing {
    pub(super) fn new(options: Sync, root: Option<Node>) -> Self {
        Self {
            options,
            root,
            is_root_empty: Cell::default(),
            has_vanished: Cell::default(),
            listed: RefCell::default(),
            hard_links: HardLinks::default(),
            surplus: RefCell::default(),
            blocked: RefCell::default(),
        }
    }
}

/// Returns the permissions that a copy gets of its source, and whether some are left out: who runs it is to get the rights of nobody else
/// than of its owner there.
const fn last_mode(source: &Attributes, there: &Attributes) -> (u32, bool) {
    let is_same_owner = source.uid == there.uid && source.gid == there.gid;
    let leaves_out = source.mode & SET_ID != 0 && !is_same_owner;
    (source.mode & 0o7777 & if leaves_out { !SET_ID } else { !0 }, leaves_out)
}

impl Run<'_> {
    /// Gives a file with the right contents the owner, the mode and the time of its source, unless it is another one now. What it was given
    /// is said.
    pub(super) async fn adjust(
        &self,
        node: &Node,
        target_directory: &TargetDirectory,
        name: &[u8],
        present: &Present,
        is_same_time: bool,
    ) -> Result<Adjusted> {
        let owner = self.other_owner(node, target_directory, present);
        match self.adjust_to(owner, node, target_directory, name, present, is_same_time).await? {
            Adjusted::OwnerKept => {
                self.adjust_to(None, node, target_directory, name, present, is_same_time).await
            }
            adjusted => Ok(adjusted),
        }
    }

    /// Returns to whom a file is to be given, if that could work and no other file has it as one of its names; on a server only trying tells.
    fn other_owner(
        &self,
        node: &Node,
        target_directory: &TargetDirectory,
        present: &Present,
    ) -> Option<(u32, u32)> {
        let owner = target_directory.location.other_owner(
            self.context.servers,
            &present.attributes,
            &node.attributes,
        );
        let may_be_of_others = present.attributes.links > 1 && !self.copy.inplace;
        let is_told = !self.copy.dry_run || matches!(target_directory.location, Location::Local { .. });
        owner.filter(|_| is_told && !may_be_of_others)
    }

    async fn adjust_to(
        &self,
        owner: Option<(u32, u32)>,
        node: &Node,
        target_directory: &TargetDirectory,
        name: &[u8],
        present: &Present,
        is_same_time: bool,
    ) -> Result<Adjusted> {
        let (uid, gid) = owner.unwrap_or((present.attributes.uid, present.attributes.gid));
        let there = Attributes { uid, gid, ..present.attributes };
        let (mode, leaves_out) = last_mode(&node.attributes, &there);
        let is_same_mode = present.attributes.mode & 0o7777 == mode;
        if node.kind != Kind::File || (is_same_mode && is_same_time && owner.is_none()) {
            return Ok(Adjusted::NotKept);
        }
        if !self.copy.dry_run {
            let last = (!is_same_mode || owner.is_some()).then_some(mode);
            if leaves_out && !is_same_mode {
                self.say_not_kept(SET_ID_IS_LEFT_OUT);
            }
            let times = (!is_same_time).then_some(node.attributes.times);
            let set =
                target_directory.location.set_file(self.context, name, present, owner, last, times).await?;
            if set == Adjusted::NotKept && mode & SET_ID == 0 {
                self.say_not_kept("a file there belongs to somebody else");
            }
            if set != Adjusted::Yes {
                return Ok(set);
            }
        }
        self.say_change(node, target_directory, name, Change::Attributes).map(|()| Adjusted::Yes)
    }

    /// Whether a file with the right contents has further names, which may be those of other files of the source: they would get owner, mode
    /// and time of this one.
    pub(super) fn is_of_others(
        &self,
        node: &Node,
        target_directory: &TargetDirectory,
        present: &Present,
        is_same_time: bool,
    ) -> bool {
        let [source, there] = [&node.attributes, &present.attributes];
        // Few servers let anybody give files away: it would be replaced again and again.
        let has_other_owner = matches!(target_directory.location, Location::Local { .. })
            && target_directory.location.other_owner(self.context.servers, there, source).is_some();
        let is_as_it_is =
            is_same_time && there.mode & 0o7777 == last_mode(source, there).0 && !has_other_owner;
        node.kind == Kind::File && there.links > 1 && !is_as_it_is && !self.copy.inplace
    }

    /// Says that something is as its source.
    pub(super) fn unchanged(&self, node: &Node, target: &Name) -> Result<()> {
        self.skip(node, target, Skip::Unchanged)
    }

    /// Returns what has the name of what is to be copied, is of another kind, and is to be deleted.
    pub(super) async fn blocker(&self, work: &Work) -> Result<Option<Present>> {
        let (Some(sync), Some(name), false) = (&self.sync, &work.name, work.is_named) else {
            return Ok(None);
        };
        let deletes = sync.options.delete && self.copy.overwrite != Overwrite::Never;
        if !deletes || work.target_directory.is_again() || matches!(work.node.kind, Kind::Special(_)) {
            return Ok(None);
        }
        let present = work.target_directory.location.present(self.context, name).await?;
        let is_of_another_kind = |present: &Present| match (work.node.kind, present.kind) {
            (Kind::Directory, there) => there != Kind::Directory,
            (_, there) => matches!(there, Kind::Directory | Kind::Special(_)),
        };
        // What filters exclude stays, and the copy fails.
        let is_excluded = |present: &Present| {
            let path = below(work.target_directory.relative(), name);
            let is_directory = present.kind == Kind::Directory;
            !self.copy.filter.takes(&path, is_directory, work.target_directory.ignores().as_deref())
        };
        Ok(present.filter(|present| is_of_another_kind(present) && !is_excluded(present)))
    }

    /// Does what follows the copying: further names of files, deletions, and what had to wait for these.
    ///
    /// # Errors
    /// What ends the run.
    pub(super) async fn follow_up(&self, sync: &Syncing) -> Result<()> {
        let blocked = sync.blocked.take();
        self.make_hard_links(sync, !blocked.is_empty()).await?;
        let mut works = Vec::with_capacity(blocked.len());
        for work in blocked {
            let Work { node, target_directory, name, is_named, rest } = work;
            // What this run has copied under another name is in the way of nothing.
            if let Some(name) = &name
                && let Err(error) = self.turn(&target_directory, name).await.map(drop)
            {
                self.go_on(Err::<(), _>(error))?;
            }
            let again = Rc::new(TargetDirectory::again(
                &target_directory,
                target_directory.location.again(self.copy.dry_run)?,
            ));
            works.push(Work { node, target_directory: again, name, is_named, rest });
            self.release(target_directory).await?;
        }
        let mut groups = sync.surplus.take();
        groups.retain(|group| !group.entries.is_empty());
        let mut ended = self.delete_and_copy(sync, &groups, works).await;
        for group in groups {
            ended = ended.and(self.release(group.target_directory).await);
        }
        ended
    }

    /// Deletes what is in the way of these, copies them, and deletes the rest.
    async fn delete_and_copy(&self, sync: &Syncing, groups: &[Surplus], works: Vec<Work>) -> Result<()> {
        let is_in_the_way = |group: &Surplus| group.is_in_the_way;
        // What is awaited here is large, each for itself.
        let deletions = self.go_on(Box::pin(self.find_deletions(sync, groups)).await)?.flatten();
        if let Some(deletions) = &deletions {
            self.go_on(self.delete(groups, deletions, true).await)?;
        }
        if deletions.is_some() || !self.told.has_failures() {
            Box::pin(self.work_off(works)).await?;
        } else {
            for work in works {
                self.release(work.target_directory).await?;
            }
        }
        self.make_hard_links(sync, false).await?;
        let Some(deletions) = deletions.filter(|_| !groups.iter().all(is_in_the_way)) else { return Ok(()) };
        if self.told.has_failures() {
            let is_rest = groups.iter().any(is_in_the_way);
            self.warn(Warning::NothingDeleted { is_rest, why: NotDone::Copying });
            return Ok(());
        }
        self.go_on(self.delete(groups, &deletions, false).await).map(drop)
    }

    /// Reports what failed, unless that ends the run.
    fn go_on<T>(&self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) => self.context.events.fail(error).map(|()| None),
        }
    }
}
