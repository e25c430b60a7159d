//! One regular file, from beginning to end.

mod download;
mod relay;
pub mod stream;
mod upload;
pub(in crate::copy) mod verify;
pub(in crate::copy) mod version;

use std::{
    cell::{Cell, RefCell},
    fmt::Display,
    fs::File,
    path::Path,
    sync::Arc,
    time::SystemTime,
};

use nfs_wireless_client::{self as client, Client, FileHandle, SetAttributes};

pub(super) use self::upload::Watched;
use super::{
    Links, Options, Overwrite, Run,
    decision::MOST_DECISIONS,
    destination::{Location, Present, RemoteLocation, directory::TargetDirectory, is_refused},
    file::verify::Digest,
    resume::{Receiving, SMALL_BYTES},
    source::{Attributes, Kind, Node, Origin, RemoteFile},
    written::Which,
};
use crate::{
    error::{Error, Result, ResultExt, about, local},
    event::{Change, Event, Name, Skip, Warning},
    find,
    local::{self as files, Directory, Part},
    name::journal,
    progress::Share,
};

/// How often a source that changes while it is copied is begun again.
const MAX_VERSIONS: usize = 3;

/// What came of trying to copy a file.
enum Attempt {
    /// It is complete.
    Complete(Box<Copied>),
    /// The source changed meanwhile and is this now.
    Changed(Attributes),
    /// The source has another length than its size says: it is to be read to its end.
    IsNotItsSize,
    /// The server does not keep what is set at the end.
    NotKept(client::Error),
    /// Somebody else has taken the temporary name.
    IsTaken,
}

/// A local file that is to be made.
#[derive(Clone, Copy)]
struct Target<'a> {
    directory: &'a Directory,
    name: &'a [u8],
    mode: u32,
    share: &'a Share,
    target_directory: &'a TargetDirectory,
    replaces: &'a Cell<Replaces>,
    /// What is written in place, once it was opened: its name may stand for another file by then.
    opened: &'a RefCell<Option<Part>>,
}

/// A name on a server that a file is to get.
#[derive(Clone, Copy)]
struct Goal<'a> {
    target_directory: &'a TargetDirectory,
    name: &'a [u8],
    mode: u32,
    replaces: &'a Cell<Replaces>,
    /// What is written in place, once it was opened.
    opened: &'a Cell<Option<Opened>>,
}

/// A file on a server that is written in place. Its name may stand for another by now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened {
    pub(super) handle: FileHandle,
    /// The numbers of its file system and of the file in it.
    pub(super) file: (u64, u64),
    /// Its mode, if this run has made it.
    pub(super) made_mode: Option<u32>,
}

/// What may lose its name to a copy.
#[derive(Clone, Copy, Debug)]
pub(super) enum Replaces {
    /// Whatever has it by then; whether something had.
    Anything { was_there: bool },
    /// Nothing: there was nothing.
    Nothing,
    /// What was there, as it was.
    Only(Version),
}

/// What tells a file from what it becomes, and from others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    file: (u64, u64),
    size: u64,
    modified: SystemTime,
    changed: SystemTime,
    links: u32,
}

impl From<&Present> for Version {
    fn from(present: &Present) -> Self {
        let Attributes { size, times, changed, links, file, .. } = present.attributes;
        Self { file, size, modified: times.modified, changed, links }
    }
}

impl Version {
    fn is(&self, other: &Self) -> bool {
        let is_changed = self.changed != other.changed;
        // A file that gets or loses a name is changed by that: this run may have replaced another of its names.
        let is_by_name = self.links != other.links;
        (self.file, self.size, self.modified) == (other.file, other.size, other.modified)
            && (!is_changed || is_by_name)
    }
}

/// One file on its way to a name in a directory.
#[derive(Clone, Copy)]
pub(super) struct Item<'a> {
    pub(super) node: &'a Node,
    pub(super) target_directory: &'a TargetDirectory,
    pub(super) name: &'a [u8],
    pub(super) share: &'a Share,
}

/// What is to be done about a file.
pub(super) enum Todo {
    /// Copy it, with these permissions, for this reason, in the place of what is there.
    Copy(u32, Change, Option<Version>),
    /// An interrupted run has copied it, and neither side has changed since.
    Complete,
    /// What is there stays. That was said.
    Leave,
}

/// What is known of a file that was copied.
#[derive(Default)]
struct Copied {
    /// What the bytes were, if they passed through this process.
    was: Option<Digest>,
    /// How long the source was when its copy was begun; it may be longer now.
    length: Option<u64>,
    /// What the copy is now, as far as known.
    attributes: Option<Attributes>,
    /// The copy itself, on this machine.
    file: Option<Arc<File>>,
    /// Something else got its name meanwhile, and stays, which was said.
    is_left: bool,
}

impl Copied {
    /// Something else got the name.
    fn left() -> Self {
        Self { is_left: true, ..Self::default() }
    }
}

impl Replaces {
    /// Whether something had the name, as far as that is known.
    pub(super) const fn was_there(&self) -> bool {
        matches!(self, Self::Anything { was_there: true } | Self::Only(_))
    }

    /// Whether nothing may lose its name.
    pub(super) const fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }

    /// Whether something that has the name may lose it.
    pub(super) fn may_replace(&self, there: Option<&Present>) -> bool {
        match (self, there) {
            (Self::Anything { .. }, _) | (_, None) => true,
            (Self::Nothing, Some(_)) => false,
            (Self::Only(before), Some(there)) => before.is(&Version::from(there)),
        }
    }
}

impl Run<'_> {
    /// Does for one file what is to be done: decide, copy, verify, record.
    pub(super) async fn file(&self, item: Item<'_>) -> Result<()> {
        let Item { node, target_directory, name, share } = item;
        let _turn = self.turn(target_directory, name).await?;
        self.claim(target_directory, name, node)?;
        match self.decide(item).await? {
            Todo::Leave => {
                self.remove_complete_journal(item);
                share.leave_out(u64::MAX);
                Ok(())
            }
            Todo::Complete => {
                self.remove_complete_journal(item);
                // It belongs to what this run is to copy and, if asked, to compare.
                let verified = self.verify_if_due(item, &Copied::default()).await;
                if verified.is_err() {
                    self.forget(item);
                }
                verified?;
                share.leave_out(u64::MAX);
                self.skip(node, &target_directory.location.name(name), Skip::Complete)
            }
            Todo::Copy(mode, change, was) => {
                if !self.copy.dry_run {
                    target_directory.touch(self.context).await;
                    let copied = self.copy(item, mode, was).await?;
                    if copied.is_left {
                        return Ok(());
                    }
                    self.verify_if_due(item, &copied).await?;
                    self.record(item, copied);
                }
                self.say_change(node, target_directory, name, change)
            }
        }
    }

    pub(super) async fn decide(&self, Item { node, target_directory, name, .. }: Item<'_>) -> Result<Todo> {
        let mut present = target_directory.location.present(self.context, name).await?;
        if let (Some(done), Some(present)) = (&self.done, &present)
            && done.holds(
                &target_directory.location.key(name),
                node.attributes.identity(),
                &present.attributes,
            )
        {
            return Ok(Todo::Complete);
        }
        let Some(mut change) = self.wants(node, target_directory, name, present.as_ref()).await? else {
            return Ok(Todo::Leave);
        };
        // The copy gets the mode of what it replaces, which may be another since the directory was listed.
        if let Location::Remote(location) = &target_directory.location
            && location.is_listed()
            && !self.copy.preserve
            && !self.copy.dry_run
            && present.is_some_and(|present| present.kind == Kind::File)
        {
            present = target_directory.location.look_up(self.context, name).await?;
            match self.wants(node, target_directory, name, present.as_ref()).await? {
                Some(now) => change = now,
                None => return Ok(Todo::Leave),
            }
        }
        let mode = mode(self.copy, node.attributes, present.as_ref());
        Ok(Todo::Copy(mode, change, present.as_ref().map(Version::from)))
    }

    async fn copy(&self, item: Item<'_>, mode: u32, was: Option<Version>) -> Result<Copied> {
        let Item { node, target_directory, name, share } = item;
        // What is written in place is this run's from then on, however often it is begun again.
        let is_in_new = matches!(target_directory.location, Location::Remote(_))
            && was.is_none()
            && target_directory.location.was_created();
        let replaces = &Cell::new(match self.copy.overwrite {
            // Nobody else has had a reason to put it there: on a long path a look would take a fifth of the time.
            Overwrite::Always if is_in_new => Replaces::Anything { was_there: false },
            _ => self.replaces(was),
        });
        let (opened, opened_there) = (&RefCell::new(None), &Cell::new(None));
        let goal = Goal { opened: opened_there, target_directory, name, mode, replaces };
        let held = match &target_directory.location {
            Location::Remote(location) if self.copy.inplace => {
                self.hold(node, location, name)?.map(|held| (held, location))
            }
            Location::Remote(_) | Location::Local { .. } | Location::Planned(_) => None,
        };
        let copied = match (&node.origin, &target_directory.location) {
            (_, Location::Planned(_)) => Ok(Copied::default()),
            (Origin::Remote(source), Location::Local { directory, .. }) => {
                let target = Target { directory, name, mode, share, target_directory, replaces, opened };
                let known = (source.clone(), node.attributes);
                let find = async || self.find_again(source).await;
                let copy =
                    async |(source, attributes): &_| self.download(node, *attributes, source, target).await;
                self.while_stale(share, &known, |(source, _)| &source.client, find, copy).await
            }
            (Origin::Local(path), Location::Remote(location)) if node.kind == Kind::File => {
                let find = async || location.find_again(self.context).await;
                let copy = async |location: &_| self.upload(node, path, location, goal, share).await;
                self.while_stale(share, &**location, |location| &location.client, find, copy).await
            }
            (_, Location::Remote(location)) => {
                self.relay(node, location, goal, &target_directory.location.show(name)).await
            }
            (Origin::Local(_) | Origin::Standard, Location::Local { .. }) => {
                Err(Error::usage(format!("{node}: neither side is on a server")))
            }
        };
        if let Some((held, location)) = held {
            self.let_go(held, location, name, &copied).await;
        }
        copied
    }

    /// Returns what may lose its name to a copy, where this was there. A sync keeps what is newer, so it looks again at what is another.
    pub(super) fn replaces(&self, was: Option<Version>) -> Replaces {
        let keeps_newer = self.sync.as_ref().is_some_and(|sync| !sync.options.force);
        match (self.copy.overwrite, was) {
            (Overwrite::Always, was) if !keeps_newer => Replaces::Anything { was_there: was.is_some() },
            (_, None) => Replaces::Nothing,
            (_, Some(was)) => Replaces::Only(was),
        }
    }

    /// Decides once more about a name, when something else has it than before: false if that stays, which was said.
    ///
    /// # Errors
    /// Also that nothing may be copied to what is there.
    async fn decide_again(
        &self,
        node: &Node,
        target_directory: &TargetDirectory,
        name: &[u8],
        replaces: &Cell<Replaces>,
    ) -> Result<bool> {
        let there = target_directory.location.look_up(self.context, name).await?;
        let is_replaced = self.wants(node, target_directory, name, there.as_ref()).await?.is_some();
        if is_replaced {
            replaces.set(self.replaces(there.as_ref().map(Version::from)));
        }
        Ok(is_replaced)
    }

    /// Makes or opens a file on a server that is to be written under its own name; `None` if what has that stays, which was said. What was
    /// opened before is found again.
    ///
    /// # Errors
    /// Also that its name stands for another by now.
    async fn begin_in_place(
        &self,
        node: &Node,
        location: &RemoteLocation,
        goal: Goal<'_>,
    ) -> Result<Option<Opened>> {
        let Goal { target_directory, name, mode, replaces, opened } = goal;
        if let Some(before) = opened.get() {
            let now = self.check_in_place(location, name, &before).await?;
            opened.set(Some(now));
            return Ok(Some(now));
        }
        let shown = target_directory.location.show(name);
        let claim = |file| self.written.claim(Which::Remote(file), &shown).map(drop);
        for _ in 0..MOST_DECISIONS {
            if let Some(begun) = location.begin_in_place(name, mode, replaces, &claim).await? {
                opened.set(Some(begun));
                return Ok(Some(begun));
            }
            if !self.decide_again(node, target_directory, name, replaces).await? {
                return Ok(None);
            }
        }
        Err(changes_all_the_time(target_directory.location.show(name)))
    }

    /// Looks whether a name still stands for the file that is written in place; returns that under the handle that it has now.
    ///
    /// # Errors
    /// It does not.
    async fn check_in_place(
        &self,
        location: &RemoteLocation,
        name: &[u8],
        opened: &Opened,
    ) -> Result<Opened> {
        match Location::look_up_in(location, name).await? {
            Some(Present { handle: Some(handle), attributes, .. }) if attributes.file == opened.file => {
                Ok(Opened { handle, ..*opened })
            }
            _ => {
                let text = "was removed or replaced while it was written; run it again";
                Err(Error::other(format!("{}: {text}", location.remote.join(name))))
            }
        }
    }

    /// Ends what was written in place: without -p, what was there keeps its mode, which somebody may have changed since, and what was made is
    /// given its last one.
    async fn end_in_place(&self, location: &RemoteLocation, goal: Goal<'_>, opened: &Opened) -> Result<()> {
        let Goal { name, mode, .. } = goal;
        if let Some(made) = opened.made_mode.filter(|made| !self.copy.preserve && *made != mode) {
            let now = location.client.metadata(opened.handle).await.at(location.remote.join(name))?.mode;
            let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
            if now & 0o7777 == made {
                match location.client.set_attributes(opened.handle, attributes).await {
                    Err(error) if is_refused(&error) => self.say_not_kept(error),
                    set => set.at(location.remote.join(name))?,
                }
            }
        }
        self.check_in_place(location, name, opened).await.map(drop)
    }

    /// Gives a complete file on a server, which is `made`, its name; decides again where something else has that than before, and removes the
    /// file if that stays: false then. What has the name now may have been looked at.
    async fn give_name_there(
        &self,
        node: &Node,
        location: &RemoteLocation,
        goal: Goal<'_>,
        (made, own, temporary): (FileHandle, Option<Attributes>, &[u8]),
        keeps: bool,
        mut there: Option<Option<Present>>,
    ) -> Result<bool> {
        let Goal { target_directory, name, mode, replaces, .. } = goal;
        let named = async {
            for _ in 0..MOST_DECISIONS {
                if keeps && self.narrows(replaces.get()) {
                    let own = match own {
                        Some(own) => own,
                        None => Attributes::from(&location.client.metadata(made).await.at(&location.remote)?),
                    };
                    self.narrow(location, name, (made, &own), mode).await?;
                }
                if self.sync.is_some()
                    && there.is_none()
                    && !matches!(replaces.get(), Replaces::Anything { .. })
                {
                    there = Some(Location::look_up_in(location, name).await?);
                }
                let is_named = match there.take() {
                    Some(there) => {
                        location.rename_in_place_of(made, (temporary, name), replaces.get(), there).await?
                    }
                    None => location.try_name(made, (temporary, name), replaces.get()).await?,
                };
                if is_named {
                    return Ok(true);
                }
                if !self.decide_again(node, target_directory, name, replaces).await? {
                    return Ok(false);
                }
            }
            Err(changes_all_the_time(target_directory.location.show(name)))
        };
        let named: Result<bool> = named.await;
        // What may still get its name is resumed.
        let stays = |error: &Error| error.is_stale() || error.is_silence();
        if named.as_ref().map_or_else(|error| !stays(error), |is_named| !is_named) {
            let _ = location.client.remove(location.handle, temporary).await;
        }
        named
    }

    /// Compares a copy with its source, if that is due.
    async fn verify_if_due(
        &self,
        Item { node, target_directory, name, .. }: Item<'_>,
        copied: &Copied,
    ) -> Result<()> {
        if self.is_to_be_verified(node, Some(&target_directory.location)) {
            let copy = (copied.file.as_deref(), &target_directory.location, name);
            self.verify(node, copied.was.as_ref(), copied.length, copy).await?;
        }
        Ok(())
    }

    /// Removes the journal that a run has left which was killed right after it gave a copy its name.
    fn remove_complete_journal(&self, Item { node, target_directory, name, .. }: Item<'_>) {
        if let Location::Local { directory, .. } = &target_directory.location
            && node.attributes.size > SMALL_BYTES
            && target_directory.may_have_journals()
            && !self.copy.dry_run
            && matches!(directory.stat(&journal(name)), Ok(Some(_)))
            && let Some(key) = self.key()
        {
            // What cannot be removed is believed by no run.
            let _ = Receiving::remove_complete(directory, name, (key, &self.tags));
        }
    }

    /// Lets the next run, if this one is interrupted, leave out a complete file.
    fn record(&self, Item { node, target_directory, name, .. }: Item<'_>, copied: Copied) {
        if let (Some(done), Some(attributes)) = (&self.done, copied.attributes) {
            done.add(&target_directory.location.key(name), node.attributes.identity(), &attributes);
        }
    }

    /// Lets the next run copy a file again.
    fn forget(&self, Item { target_directory, name, .. }: Item<'_>) {
        if let Some(done) = &self.done {
            done.forget(&target_directory.location.key(name));
        }
    }

    /// Copies with what is known of the server, and resumes with what is found there now when it
    /// has forgotten a handle.
    async fn while_stale<Known>(
        &self,
        share: &Share,
        known: &Known,
        client: impl Fn(&Known) -> &Client,
        find: impl AsyncFn() -> Result<Known>,
        copy: impl AsyncFn(&Known) -> Result<Copied>,
    ) -> Result<Copied> {
        let mut forgotten = client(known).clone();
        let mut copied = copy(known).await;
        let mut patience = Patience::default();
        while copied.as_ref().is_err_and(Error::is_stale) && patience.allows(share.remaining()) {
            self.context.servers.forget(&forgotten);
            let found = find().await?;
            forgotten = client(&found).clone();
            copied = copy(&found).await;
        }
        copied
    }

    /// Whether a copy gets the permissions of what it replaces, which are looked at right before it gets its name.
    const fn narrows(&self, replaces: Replaces) -> bool {
        replaces.was_there() && !self.copy.preserve && !self.copy.inplace
    }

    /// Gives a complete file on a server, `made` with these attributes, its permissions, or those of what has the name now if they are narrower.
    async fn narrow(
        &self,
        location: &RemoteLocation,
        name: &[u8],
        (made, own): (FileHandle, &Attributes),
        mode: u32,
    ) -> Result<()> {
        let there = Location::look_up_in(location, name).await?;
        let replaced = there.filter(|there| there.kind == Kind::File).map(|there| there.attributes);
        let mode = replaced.map_or(mode, |replaced| narrowed(mode, own.gid, &replaced));
        if mode == own.mode & 0o777 {
            return Ok(());
        }
        let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        match location.client.set_attributes(made, attributes).await {
            Err(error) if is_refused(&error) => self.say_not_kept(error),
            set => set.at(location.remote.join(name))?,
        }
        Ok(())
    }

    /// Looks a source up again by its path.
    async fn find_again(&self, source: &RemoteFile) -> Result<(RemoteFile, Attributes)> {
        let mut found = find::find_again(self.context, &source.remote).await?;
        if self.copy.links != Links::Never {
            found = find::follow(self.context, found).await?;
        }
        let attributes = Attributes::of_source(&found.remote, &found.metadata);
        Ok((RemoteFile { client: found.client, handle: found.handle, remote: found.remote }, attributes))
    }

    fn say_changed(&self, node: &Node) {
        self.warn(Warning::Changed(&node.name()));
    }

    /// Says, once, that the destination does not keep modes or times; where nobody has asked for them that is no matter.
    pub(super) fn say_not_kept(&self, why: impl Display) {
        if self.copy.preserve {
            self.warn(Warning::NotKept(&why.to_string()));
        }
    }

    /// Says of a file that was appended to what of it was copied.
    pub(super) fn say_grew(&self, node: &Node, size: u64) {
        self.warn(Warning::Grew(&node.name(), size));
    }

    /// Says, once, how much of a file is there already and need not be copied.
    fn say_resumed(&self, node: &Node, target: &Name, bytes: u64, share: &Share) -> Result<()> {
        if bytes == 0 || !share.resume(bytes) {
            return Ok(());
        }
        let (source, size) = (&node.name(), node.attributes.size);
        self.context.events.tell(&Event::Resumed { source, target, bytes, size })
    }
}

/// Why a copy lacks these bits.
pub(super) const SET_ID_IS_LEFT_OUT: &str =
    "set-user-ID and set-group-ID belong to an owner that is not kept";

/// Returns the permissions of a copy: the source's own, those of the file it replaces, or those of any new file.
pub(super) fn mode(copy: &Options, source: Attributes, present: Option<&Present>) -> u32 {
    match present {
        _ if copy.preserve => source.mode,
        Some(Present { kind: Kind::File, attributes, .. }) => attributes.mode & 0o777,
        _ => source.mode & 0o777 & !files::umask(),
    }
}

/// Returns the permissions of a copy of a source that has others now than when it was listed: it may be another file, or its owner does not
/// want it read any more.
pub(super) fn mode_now(copy: &Options, mode: u32, listed: &Attributes, now: &Attributes) -> u32 {
    match listed.rights() == now.rights() {
        true => mode,
        false if copy.preserve => now.mode,
        false => mode & now.mode,
    }
}

/// Returns the permissions of a copy in the group `gid` that replaces a file: no others may read or write it than could do so with that.
fn narrowed(mode: u32, gid: u32, replaced: &Attributes) -> u32 {
    let there = if gid == replaced.gid { replaced.mode } else { for_any_group(replaced.mode) };
    mode & there
}

/// Returns the permissions that give no group, and nobody else, more than `mode` does, whatever group it is about: who is of the group of one
/// file may be one of the others for another.
pub(super) const fn for_any_group(mode: u32) -> u32 {
    let others = (mode >> 3) & mode & 0o7;
    mode & !0o77 | others << 3 | others
}

/// Returns the permissions of a file on a server until it is complete: nobody else is to write it then, but for a group, which would
/// take a call for each file of those who have their own.
pub(super) const fn part_mode(mode: u32) -> u32 {
    (mode | 0o600) & !0o002
}

/// How often the handle of a file may be looked up again: once, and once more whenever less of this
/// file is left to copy than ever before. What other files do does not count; `--timeout` is about
/// the run as a whole.
#[derive(Default)]
pub(super) struct Patience {
    least: Option<u64>,
}

impl Patience {
    /// Whether it may be looked up now, with so many bytes left to copy.
    pub(super) fn allows(&mut self, remaining: u64) -> bool {
        let is_first_or_less = self.least.is_none_or(|least| remaining < least);
        self.least = Some(self.least.map_or(remaining, |least| least.min(remaining)));
        is_first_or_less
    }
}

/// Whether a file's contents may have changed between two looks at it, or it is another file.
pub(super) fn differ(now: &Attributes, before: &Attributes) -> bool {
    (now.file.1, now.size, now.times.modified) != (before.file.1, before.size, before.times.modified)
}

/// Returns the error for a name that stands for something else whenever a copy is to get it.
pub(super) fn changes_all_the_time(target: impl Display) -> Error {
    Error::other(format!("{target}: is replaced all the time; try again when it is at rest"))
}

fn keeps_changing(node: &Node) -> Error {
    let text = format!("{node}: changes faster than it can be copied; try again when it is at rest");
    Error::other(text)
}

/// Returns the error of a transfer, about the local file or the one on the server.
fn transfer_error(error: client::Error, path: &Path, remote: &str) -> Error {
    match error {
        client::Error::Local(error) => local(path, &error),
        other => about(other, remote),
    }
}
