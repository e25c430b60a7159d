//! Hard links: files of a tree that have several names are copied once, and get the same names there.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use nfs_wireless_client::FileHandle;

use crate::{
    copy::{
        Overwrite, Run,
        compare::Age,
        destination::{Location, Present, directory::TargetDirectory},
        file::{Item, Version},
        resume::Receiving,
        source::{Attributes, Kind, Node, Origin},
        sync::{Compare, Syncing},
    },
    error::Result,
    event::Change,
    local::{Named, Part},
    name::temporary,
    progress::Share,
};

/// The files that have several names.
#[derive(Debug, Default)]
pub(in crate::copy) struct HardLinks {
    /// For each file of the source, the name under which it is copied, and what it was when it was listed.
    first: RefCell<BTreeMap<(u64, u64), (Name, Seen)>>,
    /// The other names, which wait for the copy.
    others: RefCell<Vec<Other>>,
}

/// A name in a directory of the destination.
type Name = (Rc<TargetDirectory>, Vec<u8>);

/// What a server shows of a file: some give one number to several.
type Seen = (Option<FileHandle>, Attributes);

/// A further name of a file.
#[derive(Debug)]
struct Other {
    node: Node,
    target_directory: Rc<TargetDirectory>,
    name: Vec<u8>,
}

impl HardLinks {
    /// Takes a name of a file that is to wait for the copy under another name; hands the others back.
    pub(in crate::copy) fn defer(
        &self,
        node: Node,
        target_directory: &Rc<TargetDirectory>,
        name: &[u8],
    ) -> Option<Node> {
        if node.kind != Kind::File || node.attributes.links < 2 {
            return Some(node);
        }
        let mut first = self.first.borrow_mut();
        let seen = (handle(&node), node.attributes);
        if let Some(((there, first), before)) = first.get(&node.attributes.file) {
            if Rc::ptr_eq(there, target_directory) && first == name || !is_one_file(before, &seen) {
                return Some(node);
            }
            self.others.borrow_mut().push(Other {
                node,
                target_directory: Rc::clone(target_directory),
                name: name.to_vec(),
            });
            return None;
        }
        first.insert(node.attributes.file, ((Rc::clone(target_directory), name.to_vec()), seen));
        Some(node)
    }
}

impl Run<'_> {
    /// Gives the files that were copied their other names. `more` may still come: names in whose place something is to be deleted.
    ///
    /// # Errors
    /// What ends the run; other failures are reported.
    pub(in crate::copy) async fn make_hard_links(&self, sync: &Syncing, more: bool) -> Result<()> {
        let others = sync.hard_links.others.take();
        let first = sync.hard_links.first.take();
        let mut end = Ok(());
        for Other { node, target_directory, name } in others {
            if end.is_ok() {
                let ((there, first), _) = &first[&node.attributes.file];
                let share = Share::new(self.context.servers.activity(), node.expected_bytes());
                let item =
                    Item { node: &node, target_directory: &target_directory, name: &name, share: &share };
                let make = async || self.make_hard_link(sync, item, there, first).await;
                end = self.in_open(&target_directory, make).await.or_else(|it| self.context.events.fail(it));
            }
            end = end.and(self.release(target_directory).await);
        }
        if more && end.is_ok() {
            *sync.hard_links.first.borrow_mut() = first;
            return Ok(());
        }
        for ((target_directory, _), _) in first.into_values() {
            end = end.and(self.release(target_directory).await);
        }
        end
    }

    async fn make_hard_link(
        &self,
        sync: &Syncing,
        item: Item<'_>,
        there: &TargetDirectory,
        first: &[u8],
    ) -> Result<()> {
        let Item { node, target_directory, name, share } = item;
        drop(self.turn(target_directory, name).await?);
        let copied = match there.is_touched() {
            true => there.location.look_up(self.context, first).await?,
            false => there.location.present(self.context, first).await?,
        };
        // What was skipped, or failed, is another file.
        let copied = match copied {
            Some(it) if it.kind == Kind::File && it.attributes.size == node.attributes.size => {
                let is_by_size = sync.options.compare == Compare::Size;
                let age = self.age(node, &there.location, &it.attributes).await?;
                (is_by_size || age == Age::Same).then_some(it)
            }
            _ => None,
        };
        let present = match self.copy.overwrite {
            Overwrite::Always => target_directory.location.present(self.context, name).await?,
            // Its listing may be long ago, and this run may have replaced another name of what was there.
            Overwrite::Never | Overwrite::Older => {
                target_directory.location.look_up(self.context, name).await?
            }
        };
        let Some(copied) = copied else {
            if self.copy.dry_run && present.is_none() {
                share.leave_out(u64::MAX);
                return self.say_change(node, target_directory, name, Change::Link);
            }
            // It was not copied: what is wrong with it is said again, or it is copied now.
            return self.file(item).await;
        };
        let seen = |it: &Present| (it.handle, it.attributes);
        if present.is_some_and(|present| is_one_file(&seen(&present), &seen(&copied))) {
            share.leave_out(u64::MAX);
            return self.unchanged(node, &target_directory.location.name(name));
        }
        if let Some(present) = &present {
            let is_newer =
                self.age(node, &target_directory.location, &present.attributes).await? == Age::Newer;
            let is_replaced = matches!(present.kind, Kind::File | Kind::Symlink);
            let is_kept = self.copy.overwrite == Overwrite::Never || is_newer && !sync.options.force;
            if (!is_replaced || is_kept)
                && self.wants(node, target_directory, name, Some(present)).await?.is_none()
            {
                return Ok(());
            }
        }
        share.leave_out(u64::MAX);
        if !self.copy.dry_run {
            target_directory.touch(self.context).await;
            let link = (&copied, there, first);
            let replaces = self.replaces(present.as_ref().map(Version::from));
            let named = (name, &self.tags);
            match target_directory.location.hard_link(self.context, named, link, replaces).await? {
                Named::Yes => remove_left(&target_directory.location, name),
                Named::Taken => {
                    let there = target_directory.location.look_up(self.context, name).await?;
                    if self.wants(node, target_directory, name, there.as_ref()).await?.is_none() {
                        return Ok(());
                    }
                    return self.file(item).await;
                }
                Named::Unknown => return self.file(item).await,
            }
        }
        self.say_change(node, target_directory, name, Change::Link)
    }
}

/// Removes what an interrupted copy has left here of a file that has become a link: it had the other name first. What cannot be removed
/// is what the next copy to this name removes.
fn remove_left(location: &Location, name: &[u8]) {
    let Location::Local { directory, .. } = location else { return };
    if matches!(directory.stat(&temporary(name)), Ok(Some(_)))
        && Receiving::remove_left(directory, name).is_ok()
        && let Ok(part) = Part::beside(directory, name, 0o600, None, || None)
    {
        part.discard();
    }
}

/// Returns the handle of a file on a server.
fn handle(node: &Node) -> Option<FileHandle> {
    match &node.origin {
        Origin::Remote(file) => Some(file.handle),
        Origin::Local(_) | Origin::Standard => None,
    }
}

/// Whether two names are of one file. On a server the number alone does not say that: several files may have it. Where handles differ, as they may by
/// the directories that they were found in, both must look the same.
fn is_one_file((one, a): &Seen, (other, b): &Seen) -> bool {
    a.file == b.file && (one == other || a.file.1 != 0 && a.looks_like(b))
}
