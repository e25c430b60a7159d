//! Deleting what only the destination has, after everything was copied.
//!
//! Nothing is deleted unless every file was listed and copied, but for what is in the way of something of another kind: that is deleted first,
//! before those are copied. Nothing outside the destination is deleted, for every step goes by one name in an open directory (or in one that
//! a handle stands for) and no link is followed.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    rc::Rc,
};

use futures_util::{StreamExt, TryStreamExt, stream};
use nfs_wireless_client::FileHandle;
use tokio::time::Instant;

use crate::{
    chain::{self, Chain},
    copy::{
        Run, Work,
        destination::{Location, Present, directory::TargetDirectory, one_name::is_same},
        filter::below,
        source::{Attributes, Kind, Node, Origin},
        sync::Syncing,
    },
    error::{Error, Result},
    event::{Event, NotDone, Warning},
    find::{MAX_DEPTH, too_deep},
    name::{MARKER, is_ours, untagged, used_by},
};

/// Directories that are listed, and names that are removed, at once.
const IN_FLIGHT: usize = 16;

/// What one directory of the destination has more than its source.
#[derive(Debug)]
pub(in crate::copy) struct Surplus {
    pub(in crate::copy) target_directory: Rc<TargetDirectory>,
    /// The names that were taken from the source.
    pub(in crate::copy) taken: BTreeSet<Vec<u8>>,
    pub(in crate::copy) entries: Vec<(Vec<u8>, Present)>,
    /// Whether they are in the way of something that is to be copied.
    pub(in crate::copy) is_in_the_way: bool,
}

/// All that is to be deleted.
#[derive(Debug)]
pub(in crate::copy) struct Deletions {
    doomed: Vec<Doomed>,
    /// Directories in which something stays.
    kept: BTreeSet<(usize, Vec<u8>)>,
    /// Directories in which their owner can delete nothing.
    narrow: Vec<Doomed>,
}

/// Something that is to be deleted.
#[derive(Clone, Debug)]
struct Doomed {
    group: usize,
    /// From the directory of the group on.
    path: Vec<u8>,
    present: Present,
    /// The directory that holds it, on a server.
    above: Option<FileHandle>,
    /// The names that lead there on a server or, to a directory, that lead to it.
    chain: Chain,
    /// The numbers of the directories that lead there, on this machine.
    numbers: Rc<[(u64, u64)]>,
}

impl Doomed {
    fn is_directory(&self) -> bool {
        self.present.kind == Kind::Directory
    }

    /// Returns the path of the directory that holds it, if that is not the one of the group.
    fn parent(&self) -> Option<&[u8]> {
        let end = self.path.iter().rposition(|&byte| byte == b'/')?;
        Some(&self.path[..end])
    }

    fn depth(&self) -> usize {
        self.path.iter().filter(|&&byte| byte == b'/').count()
    }
}

/// Returns the error for a directory in which nothing is deleted.
fn is_mounted_there(shown: &str) -> Error {
    Error::other(format!("{shown}: not deleted, another file system is mounted there"))
}

impl Run<'_> {
    /// Finds all that is to be deleted, if all is as it must be for that; `None` if something failed, which was said.
    ///
    /// # Errors
    /// Why nothing is deleted.
    pub(in crate::copy) async fn find_deletions(
        &self,
        sync: &Syncing,
        groups: &[Surplus],
    ) -> Result<Option<Deletions>> {
        if groups.is_empty() {
            return Ok(None);
        }
        let refuse = |why: &str| Error::other(format!("nothing is deleted: {why}"));
        if self.told.has_failures() {
            self.warn(Warning::NothingDeleted { is_rest: false, why: NotDone::Copying });
            return Ok(None);
        }
        if sync.has_vanished.get() {
            return Err(refuse("the source changed while it was listed; run it again"));
        }
        let Some(root) = &sync.root else { return Err(refuse("the source is not known")) };
        if sync.is_root_empty.get() && !sync.options.force {
            let why = format!(
                "{root} is empty, as a file system that is not mounted is (--force deletes all the same)"
            );
            return Err(refuse(&why));
        }
        if !root.is_still_there().await? {
            return Err(refuse(&format!("{root} is another directory now than when this began")));
        }
        if let Some(directory) = self.find_moved_into(sync).await? {
            return Err(refuse(&format!("{directory} changed while the source was listed; run it again")));
        }
        let (mut doomed, kept) = self.expand(sync, groups).await?;
        let is_narrow = |it: &&Doomed| it.is_directory() && it.present.attributes.mode & 0o300 != 0o300;
        let narrow = doomed.iter().filter(is_narrow).cloned().collect();
        if self.told.has_failures() {
            self.warn(Warning::NothingDeleted { is_rest: false, why: NotDone::Listing });
            return Ok(None);
        }
        // What is in the way goes whole, or it stays in the way.
        let stays_in_the_way = |it: &Doomed| {
            let group = &groups[it.group];
            group.is_in_the_way
                && group.entries.iter().any(|(name, _)| kept.contains(&(it.group, name.clone())))
        };
        doomed.retain(|it| !kept.contains(&(it.group, it.path.clone())) && !stays_in_the_way(it));
        self.leave_out_used(groups, &mut doomed).await?;
        let count = doomed.len() as u64;
        if let Some(most) = self.copy.accepted.as_ref().map(|it| it.deleted).filter(|&most| count > most) {
            return Err(refuse(&format!(
                "--delete would delete {count}, and {most} were shown; run it again"
            )));
        }
        if let Some(most) = sync.options.max_delete.filter(|&most| count > most) {
            return Err(refuse(&format!("--delete would delete {count}, and --max-delete is {most}")));
        }
        Ok(Some(Deletions { doomed, kept, narrow }))
    }

    /// Deletes what is in the way of something, or all else.
    ///
    /// # Errors
    /// Why nothing of it is deleted, or what ends the run.
    pub(in crate::copy) async fn delete(
        &self,
        groups: &[Surplus],
        deletions: &Deletions,
        is_in_the_way: bool,
    ) -> Result<()> {
        let Deletions { doomed, kept, narrow } = deletions;
        let of_these = |it: &&Doomed| groups[it.group].is_in_the_way == is_in_the_way;
        let mut doomed: Vec<_> = doomed.iter().filter(of_these).cloned().collect();
        self.check_names(groups.iter().filter(|group| group.is_in_the_way == is_in_the_way)).await?;
        if self.copy.dry_run {
            return self.delete_all(groups, doomed).await;
        }
        self.leave_out_used(groups, &mut doomed).await?;
        self.leave_out_moved(groups, &mut doomed).await?;
        let parents: BTreeSet<_> = doomed.iter().filter_map(|it| Some((it.group, it.parent()?))).collect();
        let is_parent = |it: &&Doomed| parents.contains(&(it.group, &it.path));
        let narrow: Vec<_> = narrow.iter().filter(is_parent).cloned().collect();
        self.set_modes(groups, &narrow, 0o300).await;
        let deleted = self.delete_all(groups, doomed).await;
        let failed = deleted.is_err() || self.told.has_failures();
        let left = narrow.into_iter().filter(|it| failed || kept.contains(&(it.group, it.path.clone())));
        self.set_modes(groups, &left.collect::<Vec<_>>(), 0).await;
        deleted
    }

    /// Returns a source directory into which something was moved after it was listed: what was moved may be missing where it was, which
    /// was listed later, and is not a surplus then.
    async fn find_moved_into(&self, sync: &Syncing) -> Result<Option<Node>> {
        let listed = sync.listed.take();
        let looks = listed.into_iter().map(|directory| async move {
            let has_more = directory.was_moved_into(self.context).await?;
            Ok::<_, Error>(has_more.then_some(directory))
        });
        let mut looks = pin!(stream::iter(looks).buffer_unordered(IN_FLIGHT));
        while let Some(looked) = looks.next().await {
            if let Some(directory) = looked? {
                return Ok(Some(directory));
            }
        }
        Ok(None)
    }

    /// Leaves out what is in directories that the names that led to them do not lead to any more, which is said.
    async fn leave_out_moved(&self, groups: &[Surplus], doomed: &mut Vec<Doomed>) -> Result<()> {
        let used: BTreeSet<_> = doomed.iter().map(|it| it.group).collect();
        let begun = Some(Instant::now());
        let looks = used.into_iter().map(|group| async move {
            let holds = groups[group].target_directory.holds(begun, self.context).await?;
            Ok((!holds).then_some(group))
        });
        let moved: Vec<_> = stream::iter(looks).buffer_unordered(IN_FLIGHT).try_collect().await?;
        let moved: BTreeSet<_> = moved.into_iter().flatten().collect();
        doomed.retain(|it| !moved.contains(&it.group));
        Ok(())
    }

    /// Leaves out the temporary files and journals of an interrupted run that the copies of this run have used up, or would.
    async fn leave_out_used(&self, groups: &[Surplus], doomed: &mut Vec<Doomed>) -> Result<()> {
        let is_ours = |it: &Doomed| is_ours(&it.path) && !it.path.contains(&b'/') && !it.is_directory();
        let with_ours: BTreeSet<_> = doomed.iter().filter(|it| is_ours(it)).map(|it| it.group).collect();
        let mut used = BTreeMap::new();
        for group in with_ours {
            let Surplus { target_directory, taken, .. } = &groups[group];
            let names: BTreeSet<_> = taken.iter().flat_map(|name| used_by(name)).collect();
            let mut left = BTreeSet::new();
            if !self.copy.dry_run {
                let there = target_directory.location.entries(self.context).await?;
                left.extend(there.into_iter().map(|(name, _)| name));
            }
            used.insert(group, (names, left));
        }
        doomed.retain(|it| {
            let Some((names, left)) = used.get(&it.group) else { return true };
            left.contains(&it.path) || !names.contains(untagged(&it.path))
        });
        Ok(())
    }

    /// Finds what only the destination has, once its source is listed.
    pub(in crate::copy) async fn find_surplus(
        &self,
        sync: &Syncing,
        target_directory: &Rc<TargetDirectory>,
    ) -> Result<()> {
        let [mut names, taken] = target_directory.take_names();
        if target_directory.relative().is_empty() {
            sync.is_root_empty.set(names.is_empty());
        }
        if target_directory.location.was_created() {
            return Ok(());
        }
        names.insert(MARKER.to_vec());
        let mut entries = target_directory.location.surplus(self.context, &names, true).await?;
        entries.retain(|(name, present)| {
            let path = below(target_directory.relative(), name);
            !self.tags.is_in_use(name)
                && !target_directory.location.is_being_written(name)
                && self.copy.filter.takes(
                    &path,
                    present.kind == Kind::Directory,
                    target_directory.ignores().as_deref(),
                )
        });
        if !entries.is_empty() {
            if target_directory.is_on_inner_mount() {
                return self
                    .context
                    .events
                    .fail(is_mounted_there(&target_directory.location.own_name().shown));
            }
            let target_directory = Rc::clone(target_directory);
            sync.surplus.borrow_mut().push(Surplus {
                target_directory,
                taken,
                entries,
                is_in_the_way: false,
            });
        }
        Ok(())
    }

    /// Checks that the names which were taken from the source are listed: a file system that changes names lists others, and one of them may
    /// look as if only the destination had it.
    async fn check_names(&self, groups: impl Iterator<Item = &Surplus>) -> Result<()> {
        let checks = groups.map(|group| async move {
            let location = &group.target_directory.location;
            let listed = location.entries(self.context).await?;
            let names: BTreeSet<_> = listed.iter().map(|(name, _)| name).collect();
            let is_surplus = |name: &Vec<u8>| group.entries.iter().any(|(surplus, _)| surplus == name);
            for name in group.taken.iter().filter(|name| !names.contains(name)) {
                let is_kept = match location.look_up(self.context, name).await? {
                    // What was not written may have been missing before.
                    None => !group.target_directory.is_touched(),
                    Some(there) => {
                        let mut same = listed.iter().filter(|(_, it)| is_same(it, &there)).peekable();
                        same.peek().is_some() && !same.any(|(name, _)| is_surplus(name))
                    }
                };
                if !is_kept {
                    let text = format!(
                        "nothing is deleted: {} is not listed under this name (does the file system change names?)",
                        location.show(name)
                    );
                    return Err(Error::other(text));
                }
            }
            Ok(())
        });
        stream::iter(checks).buffer_unordered(IN_FLIGHT).try_collect().await
    }

    /// Lists all that is in the directories that are to be deleted; also returns the directories that stay, as something in them
    /// does.
    async fn expand(
        &self,
        sync: &Syncing,
        groups: &[Surplus],
    ) -> Result<(Vec<Doomed>, BTreeSet<(usize, Vec<u8>)>)> {
        let mut all = Vec::new();
        let mut kept = BTreeSet::new();
        let mut level = Vec::new();
        for (group, Surplus { target_directory, entries, .. }) in groups.iter().enumerate() {
            let (above, chain, numbers) =
                (target_directory.location.handle(), target_directory.chain(), Rc::default());
            level.extend(entries.iter().map(|(name, present)| Doomed {
                group,
                path: name.clone(),
                present: *present,
                above,
                chain: target_directory.location.chain_to(&chain, name, above, present),
                numbers: Rc::clone(&numbers),
            }));
        }
        while !level.is_empty() {
            let listed: Vec<_> = {
                let directories = level.iter().filter(|it| it.is_directory());
                let list = directories
                    .map(|it| async move { (it, self.list_doomed(sync, &groups[it.group], it).await) });
                stream::iter(list).buffer_unordered(IN_FLIGHT).collect().await
            };
            let mut next = Vec::new();
            for (directory, children) in listed {
                let mut keep = || {
                    let mut path = Some(&directory.path[..]);
                    while let Some(directory_path) = path {
                        kept.insert((directory.group, directory_path.to_vec()));
                        path = directory_path
                            .iter()
                            .rposition(|&byte| byte == b'/')
                            .map(|end| &directory_path[..end]);
                    }
                };
                let children = match children {
                    Ok(children) => children,
                    Err(error) => {
                        self.context.events.fail(error)?;
                        keep();
                        continue;
                    }
                };
                let Doomed { group, chain, present: Present { handle: above, attributes, .. }, .. } =
                    directory;
                let numbers: Rc<[_]> = [&directory.numbers[..], &[attributes.file]].concat().into();
                let target_directory = &groups[*group].target_directory;
                for (name, present) in children {
                    let path = [&directory.path[..], b"/", &name].concat();
                    let relative = below(target_directory.relative(), &path);
                    let is_directory = present.kind == Kind::Directory;
                    if self.copy.filter.takes(&relative, is_directory, target_directory.ignores().as_deref())
                    {
                        let chain = target_directory.location.chain_to(chain, &path, *above, &present);
                        let (group, above, numbers) = (*group, *above, Rc::clone(&numbers));
                        next.push(Doomed { group, path, present, above, chain, numbers });
                    } else {
                        keep();
                    }
                }
            }
            all.append(&mut level);
            level = next;
        }
        Ok((all, kept))
    }

    /// Lists a directory that is to be deleted.
    async fn list_doomed(
        &self,
        sync: &Syncing,
        group: &Surplus,
        directory: &Doomed,
    ) -> Result<Vec<(Vec<u8>, Present)>> {
        let top = &group.target_directory.location;
        let shown = top.show(&directory.path);
        if sync.root.as_ref().is_some_and(|root| may_be_source(root, &directory.present)) {
            let text = format!("nothing is deleted: {shown} is the source itself");
            return Err(Error::other(text).that_ends_run());
        }
        if directory.depth() > MAX_DEPTH {
            return Err(too_deep(shown));
        }
        let location = top.enter(&directory.path, &directory.present, &directory.numbers)?;
        if location.is_mounted_in(top) {
            return Err(is_mounted_there(&shown));
        }
        let entries = location.entries(self.context).await?;
        // Only the listing may have shown it.
        if location.is_inner_export() { Err(is_mounted_there(&shown)) } else { Ok(entries) }
    }

    /// Deletes files first, then directories from the deepest upwards.
    async fn delete_all(&self, groups: &[Surplus], doomed: Vec<Doomed>) -> Result<()> {
        let mut steps: BTreeMap<usize, Vec<Doomed>> = BTreeMap::new();
        for it in doomed {
            let step = if it.is_directory() { usize::MAX - it.depth() } else { 0 };
            steps.entry(step).or_default().push(it);
        }
        // Directories on this machine that were moved, which was said.
        let moved = &RefCell::new(BTreeSet::new());
        for doomed in steps.into_values() {
            let removals = doomed.iter().map(|it| async move {
                let target_directory = &groups[it.group].target_directory;
                let is_left = |path: &[u8]| moved.borrow().contains(&(it.group, path.to_vec()));
                if !self.copy.dry_run {
                    if is_left(&it.path) || !self.leads_to(target_directory, it).await? {
                        return Ok(());
                    }
                    target_directory.touch_names(self.context).await;
                    let (what, location) = ((&it.path[..], it.is_directory()), &target_directory.location);
                    let removed = location.remove(self.context, what, (it.above, &it.numbers)).await?;
                    if let Some(path) = removed {
                        let is_new = moved.borrow_mut().insert((it.group, path.to_vec()));
                        return if is_new { Err(chain::moved(location.show(path))) } else { Ok(()) };
                    }
                }
                self.say_deleted(target_directory, it)
            });
            let mut removals = stream::iter(removals).buffered(IN_FLIGHT);
            while let Some(removed) = removals.next().await {
                if let Err(error) = removed {
                    self.context.events.fail(error)?;
                }
            }
        }
        Ok(())
    }

    /// Whether the names that led to what is to be deleted still do, as far as that is known before it is.
    async fn leads_to(&self, target_directory: &TargetDirectory, doomed: &Doomed) -> Result<bool> {
        let context = self.context;
        match &target_directory.location {
            Location::Local { .. } | Location::Planned(_) => target_directory.holds(None, context).await,
            Location::Remote(_) if doomed.chain.is_lost() => Ok(false),
            Location::Remote(_) if doomed.is_directory() => doomed.chain.above().holds(context).await,
            Location::Remote(_) => doomed.chain.holds(context).await,
        }
    }

    /// Lets the owners of these directories remove what is in them, or sets their own modes again.
    async fn set_modes(&self, groups: &[Surplus], directories: &[Doomed], wider: u32) {
        let mut depths: Vec<_> = directories.iter().map(Doomed::depth).collect();
        depths.sort_unstable();
        depths.dedup();
        if wider == 0 {
            depths.reverse();
        }
        // Each can be entered then: from the top down, and in the end from the bottom up.
        for depth in depths {
            let set = directories.iter().filter(|it| it.depth() == depth).map(|it| async move {
                let attributes = it.present.attributes;
                let last = Attributes { mode: attributes.mode | wider, ..attributes };
                let above = &groups[it.group].target_directory.location;
                let location = above.enter(&it.path, &it.present, &it.numbers)?;
                if wider != 0 && !it.chain.holds(self.context).await? {
                    return Ok(());
                }
                location.set_last(self.context, last, false).await
            });
            // If that is refused, so is what follows, which is then reported; and what is deleted needs no mode.
            let _: Vec<Result<()>> = stream::iter(set).buffer_unordered(IN_FLIGHT).collect().await;
        }
    }

    fn say_deleted(&self, target_directory: &TargetDirectory, doomed: &Doomed) -> Result<()> {
        let target = target_directory.location.name(&doomed.path);
        let path = below(target_directory.relative(), &doomed.path);
        let is_directory = doomed.is_directory();
        self.context.events.tell(&Event::Deleted { target: &target, path: &path, is_directory })
    }
}

impl Syncing {
    /// Adds what is in the way of something.
    pub(in crate::copy) fn add_surplus(&self, work: &Work, present: Present) {
        let entries = work.name.iter().map(|name| (name.clone(), present)).collect();
        let (target_directory, taken) = (Rc::clone(&work.target_directory), BTreeSet::new());
        self.surplus.borrow_mut().push(Surplus { target_directory, taken, entries, is_in_the_way: true });
    }
}

/// Whether what is in the destination may be the source directory, also where one of the two is seen on this machine and the other
/// through a server, or both through servers. Either may show times that are old: the number is enough, for what is left alone once in a
/// million times is not lost.
fn may_be_source(root: &Node, present: &Present) -> bool {
    let is_same_handle = match (&root.origin, present.handle) {
        (Origin::Remote(source), Some(handle)) => source.handle == handle,
        _ => false,
    };
    let is_same_number = root.attributes.file.1 == present.attributes.file.1;
    is_same_handle || present.kind == Kind::Directory && is_same_number
}
