//! A file from this machine to a server.

use std::{
    fmt::Display,
    fs::File,
    io,
    path::Path,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use nfs_wireless_client::{
    self as client, FileHandle, Metadata, Placement, Procedure, RangeSet, SetAttributes, Time, UploadSpec,
};

use super::{
    Attempt, Copied, Goal, MAX_VERSIONS, Replaces, SET_ID_IS_LEFT_OUT, for_any_group, keeps_changing,
    mode_now, part_mode, transfer_error,
};
use crate::{
    copy::{
        Links, Run,
        destination::{Location, RemoteLocation, is_refused, set_times, target_key},
        file::{
            stream::on_thread,
            version::{Looked, Sample, Since, Told, told},
        },
        resume::{Earlier, SMALL_BYTES, Sending},
        source::{Attributes, Node, SET_ID},
    },
    error::{Error, ErrorKind, Partial, Result, ResultExt, full_server, has_no_room, local},
    event::{Name, Warning},
    journal::Identity,
    local::{self as files, SourcePath, Sparse, Times},
    name,
    progress::Share,
    url::Remote,
};

/// Refusals of a server to keep modes and times after which it is not asked any more.
const MOST_REFUSALS: u32 = 3;

impl Run<'_> {
    /// Copies a file to a server.
    pub(super) async fn upload(
        &self,
        node: &Node,
        path: &SourcePath,
        location: &RemoteLocation,
        goal: Goal<'_>,
        share: &Share,
    ) -> Result<Copied> {
        let name = goal.name;
        let copied = async {
            // A server that has refused it for some files is not asked for each.
            let mut keeps = self.refusals.get() < MOST_REFUSALS;
            let mut fresh = None;
            let (mut goal, mut is_begun) = (goal, false);
            for _ in 0..=MAX_VERSIONS + 1 {
                if self.copy.inplace {
                    goal.mode = self.mode_of_now(node, path, goal.mode).await;
                    if !is_begun && self.begin_in_place(node, location, goal).await?.is_none() {
                        return Ok(Copied::left());
                    }
                    is_begun = true;
                }
                match self.send(node, path, location, (goal, keeps), fresh.as_deref(), share).await? {
                    Attempt::Complete(copied) => return Ok(*copied),
                    Attempt::Changed(_) => self.say_changed(node),
                    Attempt::IsTaken => fresh = Some(name::fresh(name)),
                    Attempt::NotKept(error) => {
                        self.say_not_kept(error);
                        keeps = false;
                    }
                    Attempt::IsNotItsSize => {
                        let target = location.remote.join(name).to_string();
                        return self.relay(node, location, goal, &target).await;
                    }
                }
            }
            if !self.copy.inplace {
                // It has something of several versions. What cannot be removed is what the next copy to this name removes.
                let temporary = self.temporary(name);
                let _ = location.client.remove(location.handle, &temporary).await;
            }
            Err(keeps_changing(node))
        };
        let copied = copied.await;
        if location.take_ahead().is_some() {
            // Nothing was sent into it. What cannot be removed is what the next copy to this name removes.
            let temporary = self.temporary(name);
            let _ = location.client.remove(location.handle, &temporary).await;
        }
        copied
    }

    /// Returns the mode of a copy that gets its name before its source is read: that may have other permissions than when it was listed.
    async fn mode_of_now(&self, node: &Node, path: &SourcePath, mode: u32) -> u32 {
        let now =
            path.open(self.copy.links != Links::Never).await.and_then(|file| Attributes::of_open(&file));
        now.map_or(mode, |now| mode_now(self.copy, mode, &node.attributes, &now))
    }

    async fn send(
        &self,
        node: &Node,
        path: &SourcePath,
        location: &RemoteLocation,
        (goal, keeps): (Goal<'_>, bool),
        fresh: Option<&[u8]>,
        share: &Share,
    ) -> Result<Attempt> {
        let Goal { name, mode, .. } = goal;
        let replaces = goal.replaces.get();
        let here = |error: io::Error| local(path, &error);
        let source = match path.open(self.copy.links != Links::Never).await {
            Ok(source) => source,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let text = format!("{node}: removed before it was copied");
                return Err(Error::new(ErrorKind::SourceMissing, text));
            }
            Err(error) => return Err(here(error)),
        };
        let watched = Watched::new(&source).await.map_err(here)?;
        let Some(watched) = watched else { return Ok(Attempt::IsNotItsSize) };
        let attributes = watched.attributes;
        let watched = Arc::new(watched);
        // What is read has its own rights, whatever was listed.
        let mode = mode_now(self.copy, mode, &node.attributes, &attributes);
        let node = &Node { attributes: node.attributes.with_rights_of(&attributes), ..node.clone() };
        let earlier = match fresh {
            Some(_) => None,
            None => self.earlier_upload(location, name, attributes.identity()).await?,
        };
        let holes = self.holes(&source, &attributes).await.map_err(here)?;
        share.begin(attributes.size - holes.bytes());
        let mut had = 0;
        let opened = goal.opened.get();
        let narrows = self.narrows(replaces);
        let until_named = if narrows { for_any_group(mode) } else { mode };
        let part_mode = part_mode(until_named);
        let placement = match (&earlier, &opened) {
            (_, Some(opened)) => Placement::Existing(opened.handle),
            (None, None) => Placement::Temporary(fresh.map_or_else(|| self.temporary(name), <[u8]>::to_vec)),
            (Some(earlier), None) => {
                let checkpoint = earlier.checkpoint();
                if earlier.source_changed() {
                    self.say_changed(node);
                }
                if checkpoint.as_ref().is_some_and(|left| left.mode & 0o777 & !part_mode != 0) {
                    self.narrow_left(location, name, earlier, part_mode).await?;
                }
                had = checkpoint.as_ref().map_or(0, |it| it.stable.bytes() + it.unstable.bytes());
                let made = Time::from_system(SystemTime::now());
                Placement::Resumable { name: self.temporary(name), made, earlier: checkpoint.map(Box::new) }
            }
        };
        let latest = Arc::new(Mutex::new(None));
        let (sending, confirmed) =
            Sending::new(source, earlier.as_ref(), Arc::clone(&latest), Arc::clone(&watched))
                .map_err(here)?;
        let gets_name = self.copy.inplace || !narrows && matches!(replaces, Replaces::Anything { .. });
        let mut spec = UploadSpec {
            mode: part_mode,
            attributes: if keeps && (self.copy.preserve || opened.is_none()) {
                self.last_attributes(attributes.times, until_named)
            } else {
                SetAttributes::default()
            },
            holes,
            gets_name,
            ..UploadSpec::new(location.handle, name.to_vec(), placement, attributes.size)
        };
        if opened.is_some() {
            // It may have been longer.
            spec.attributes.size = Some(attributes.size);
        }
        // One that more may read is replaced by its own.
        let may_be_used = |made: &client::Entry| made.metadata.mode & 0o777 & !spec.mode == 0;
        if let Some(made) = location.take_ahead().filter(may_be_used) {
            spec.made = Some((made.handle, made.metadata));
            if keeps && made.metadata.mode & 0o777 != spec.mode & 0o777 {
                spec.attributes.mode = Some(until_named);
            }
        }
        let target = location.remote.join(name);
        let sent = {
            let mut upload = pin!(location.client.upload(spec, sending, Some(share.observer())));
            tokio::select! {
                biased;
                Ok(confirmed) = confirmed => {
                    self.say_confirmed(node, &target, had, confirmed, share)?;
                    upload.await
                }
                sent = &mut upload => {
                    // Not even one WRITE was needed.
                    if sent.is_ok() && had > 0 {
                        self.say_confirmed(node, &target, had, attributes.size, share)?;
                    }
                    sent
                }
            }
        };
        let is_resumable = earlier.is_some();
        let finish = || earlier.into_iter().for_each(Earlier::finish);
        let made = match sent {
            // When it got its name, it was looked at.
            Ok(made) => {
                let since = match watched.seen() {
                    Some(since) => since,
                    None => watched.since().map_err(here)?,
                };
                match since {
                    Since::Same => {}
                    Since::Grew => self.say_grew(node, attributes.size),
                    Since::Changed => {
                        finish();
                        return Ok(Attempt::Changed(watched.now().map_err(here)?));
                    }
                }
                made
            }
            Err(client::Error::SourceChanged) => {
                return Ok(match watched.since().map_err(here)? {
                    Since::Same => Attempt::IsNotItsSize,
                    Since::Grew | Since::Changed => Attempt::Changed(watched.now().map_err(here)?),
                });
            }
            Err(error @ client::Error::Status { procedure: Procedure::Setattr, .. })
                if keeps && is_refused(&error) =>
            {
                self.refusals.set(self.refusals.get() + 1);
                return Ok(Attempt::NotKept(error));
            }
            // Nobody may remove what somebody else has put there: not where each has their own in one directory.
            Err(client::Error::Status { procedure: Procedure::Remove, .. }) if fresh.is_none() => {
                return Ok(Attempt::IsTaken);
            }
            Err(error) => {
                if let Some(fresh) = fresh.filter(|_| !error.is_silence()) {
                    let _ = location.client.remove(location.handle, fresh).await;
                }
                return Err(self.refused(error, path, location, name).await);
            }
        };
        let mut latest: Option<Metadata> = *latest.lock().unwrap_or_else(PoisonError::into_inner);
        let is_named = gets_name || {
            let temporary = fresh.map_or_else(|| self.temporary(name), <[u8]>::to_vec);
            let is_looked_at = self.sync.is_some() && !matches!(replaces, Replaces::Anything { .. });
            // A sync into a directory that others fill, too, pays for one look at each file, not for two: a name that was free gets what was
            // made by its name alone, as in a directory of its own.
            let is_known = is_looked_at && !narrows && !is_resumable && matches!(replaces, Replaces::Nothing);
            let look = async {
                match made.metadata.filter(|_| is_known) {
                    Some(metadata) => Ok(metadata),
                    None => location.find_made((&temporary, &made)).await.map(|found| found.metadata),
                }
            };
            let (metadata, there) = if is_looked_at {
                let (metadata, there) = tokio::join!(look, Location::look_up_in(location, name));
                (metadata?, Some(there?))
            } else {
                (look.await?, None)
            };
            latest = Some(metadata);
            let made = (made.file, Some(Attributes::from(&metadata)), &temporary[..]);
            self.give_name_there(node, location, goal, made, keeps, there).await?
        };
        finish();
        if let Some(opened) = &opened {
            self.end_in_place(location, goal, opened).await?;
        }
        if !is_named {
            return Ok(Attempt::Complete(Box::new(Copied::left())));
        }
        let is_given =
            || self.context.servers.may_give(&location.remote, node.attributes.uid, node.attributes.gid);
        if self.copy.preserve && (mode & SET_ID != 0 || is_given()) {
            let file = match &opened {
                Some(opened) => opened.handle,
                None => location.find_made((name, &made)).await?.handle,
            };
            self.give(location, file, node, mode).await?;
        }
        let copied = latest.map(|latest| {
            let mut copied = Attributes { size: attributes.size, ..Attributes::from(&latest) };
            if self.copy.preserve {
                copied.times.modified = Time::from_system(attributes.times.modified).into();
            }
            copied
        });
        Ok(Attempt::Complete(Box::new(Copied {
            length: Some(attributes.size),
            attributes: copied,
            ..Copied::default()
        })))
    }

    /// Words the end of an upload; where the server has no room, with what the partial file takes of it.
    async fn refused(
        &self,
        error: client::Error,
        path: &Path,
        location: &RemoteLocation,
        name: &[u8],
    ) -> Error {
        let target = location.remote.join(name);
        if !self.copy.inplace && has_no_room(&error) {
            let temporary = self.temporary(name);
            if let Ok(part) = location.client.lookup(location.handle, &temporary).await {
                let shown = location.remote.join(&temporary);
                let partial = Partial { name: shown.to_string(), bytes: part.metadata.used, is_local: false };
                return full_server(target, error, partial);
            }
        }
        transfer_error(error, path, &target.to_string())
    }

    /// Returns the name that a file on a server has until its copy is complete.
    pub(super) fn temporary(&self, name: &[u8]) -> Vec<u8> {
        self.tags.own().temporary(name)
    }

    /// Returns where a file has only zeros that need not be sent.
    async fn holes(&self, file: &File, attributes: &Attributes) -> io::Result<RangeSet> {
        let (sparse, size) = (self.copy.sparse, attributes.size);
        if self.copy.inplace || !attributes.wants_holes(sparse) {
            return Ok(RangeSet::new());
        }
        if sparse != Sparse::Always {
            return files::holes(file, size, sparse);
        }
        let file = file.try_clone()?;
        on_thread(move || files::holes(&file, size, sparse)).await
    }

    /// Says how much of the `had` bytes that earlier runs sent the server has confirmed.
    fn say_confirmed(
        &self,
        node: &Node,
        target: &Remote,
        had: u64,
        confirmed: u64,
        share: &Share,
    ) -> Result<()> {
        let name = Name { shown: target.to_string(), bytes: target.to_bytes() };
        if had > 0 && confirmed == 0 {
            self.warn(Warning::LostUpload { target: &name });
        }
        self.say_resumed(node, &name, confirmed, share)
    }

    /// Opens the journal of a large upload; `None` where none is kept.
    async fn earlier_upload(
        &self,
        location: &RemoteLocation,
        name: &[u8],
        source: Identity,
    ) -> Result<Option<Earlier>> {
        if source.size <= SMALL_BYTES || !self.copy.resume || self.copy.inplace {
            return Ok(None);
        }
        // By its number a later run finds what this one leaves.
        let number = self.tags.number();
        let (target, key) = (location.remote.join(name), target_key(location.handle, name));
        let server = location.client.address();
        match Earlier::open(&self.copy.state, &key, server, source, number.unwrap_or_default()) {
            Ok(earlier) if earlier.is_none() || number.is_none() => {
                self.warn(Warning::NotResumableBesideAnother);
                Ok(None)
            }
            Ok(mut earlier) => {
                if let Some(earlier) = &mut earlier {
                    self.take_over(location, name, earlier).await;
                }
                Ok(earlier)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(in_use(target)),
            Err(error) => {
                self.warn(Warning::NotResumable(&error));
                Ok(None)
            }
        }
    }

    /// Keeps other runs of this user away from a file that is written in place, as far as the state directory can tell them of it.
    ///
    /// # Errors
    /// Another run is copying there.
    pub(super) fn hold(
        &self,
        node: &Node,
        location: &RemoteLocation,
        name: &[u8],
    ) -> Result<Option<Earlier>> {
        let (key, number) = (target_key(location.handle, name), self.tags.number().unwrap_or_default());
        let server = location.client.address();
        match Earlier::open(&self.copy.state, &key, server, node.attributes.identity(), number) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(in_use(location.remote.join(name)))
            }
            held => Ok(held.unwrap_or_default()),
        }
    }

    /// Ends that. Once the copy is complete, what an interrupted one has left is removed.
    pub(super) async fn let_go(
        &self,
        held: Earlier,
        location: &RemoteLocation,
        name: &[u8],
        copied: &Result<Copied>,
    ) {
        let RemoteLocation { client, handle, .. } = location;
        let numbers = held.numbers();
        if !numbers.is_empty() && !copied.as_ref().is_ok_and(|copied| !copied.is_left) {
            return;
        }
        for tag in numbers.into_iter().filter_map(|number| self.tags.of_number(number)) {
            let temporary = tag.temporary(name);
            if let Ok(left) = client.lookup(*handle, &temporary).await
                && held.is_of(&left.metadata)
            {
                // What cannot be removed is in nobody's way.
                let _ = client.remove(*handle, &temporary).await;
            }
        }
        held.finish();
    }

    /// Takes from what an earlier run has left the permissions that a mode does not have, before it gets more of the source.
    async fn narrow_left(
        &self,
        location: &RemoteLocation,
        name: &[u8],
        earlier: &Earlier,
        mode: u32,
    ) -> Result<()> {
        let RemoteLocation { client, handle, remote, .. } = location;
        let Ok(left) = client.lookup(*handle, &self.temporary(name)).await else { return Ok(()) };
        if !earlier.is_of(&left.metadata) || left.metadata.mode & 0o777 & !mode == 0 {
            return Ok(());
        }
        let mode = Some(left.metadata.mode & mode);
        let attributes = SetAttributes { mode, ..SetAttributes::default() };
        match client.set_attributes(left.handle, attributes).await {
            // It keeps no modes.
            Err(error) if is_refused(&error) => Ok(()),
            set => set.at(remote.join(name)),
        }
    }

    /// Gives the name that this run would use to what an earlier run has left, which had another number: who has locked the journal has the
    /// file that it names, also where that number is another run's by now. Where that is not possible, the file is copied from the beginning.
    async fn take_over(&self, location: &RemoteLocation, name: &[u8], earlier: &mut Earlier) {
        let RemoteLocation { client, handle, .. } = location;
        for number in earlier.other_numbers() {
            let Some(tag) = self.tags.of_number(number) else { continue };
            let (from, to) = (tag.temporary(name), self.temporary(name));
            if let Ok(left) = client.lookup(*handle, &from).await
                && earlier.is_of(&left.metadata)
            {
                earlier.note_rename(number);
                let _ = client.rename(left.handle, (*handle, &from), (*handle, &to)).await;
                return;
            }
        }
    }

    /// Gives a file to the source's owner, where we may. If it is theirs then, it gets the bits by which a program has the rights of its owner:
    /// nobody is to run it with those of somebody else.
    pub(super) async fn give(
        &self,
        location: &RemoteLocation,
        file: FileHandle,
        node: &Node,
        mode: u32,
    ) -> Result<()> {
        location.give(self.context.servers, file, node.attributes).await?;
        if mode & SET_ID != 0 {
            let now = location.client.metadata(file).await.at(node)?;
            let Attributes { uid, gid, .. } = node.attributes;
            if (now.uid, now.gid) != (uid, gid) {
                self.say_not_kept(SET_ID_IS_LEFT_OUT);
                return Ok(());
            }
            let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
            match location.client.set_attributes(file, attributes).await {
                Err(error) if is_refused(&error) => self.say_not_kept(error),
                set => set.at(node)?,
            }
        }
        Ok(())
    }

    /// Returns what to set when the bytes are stable; nothing, where creating it was enough. The times are those of the source.
    pub(super) fn last_attributes(&self, times: Times, mode: u32) -> SetAttributes {
        let mut attributes = if self.copy.preserve { set_times(times) } else { SetAttributes::default() };
        if self.copy.preserve || mode != part_mode(mode) {
            attributes.mode = Some(mode & !SET_ID);
        }
        attributes
    }
}

fn in_use(target: impl Display) -> Error {
    Error::other(format!("{target}: another nfsw is copying to this file; wait for it, or stop it"))
}

/// A local file on its way to a server, which others may change meanwhile.
#[derive(Debug)]
pub(in crate::copy) struct Watched {
    file: File,
    /// Those of the file that was opened, in case it was replaced since it was listed.
    attributes: Attributes,
    sample: Sample,
    /// What had become of it when the copy was to get its name.
    seen: Mutex<Option<Since>>,
}

impl Watched {
    /// Looks at a file; `None` if it has another length than its size says.
    async fn new(file: &File) -> io::Result<Option<Self>> {
        for _ in 0..MAX_VERSIONS {
            let (file, attributes) = (file.try_clone()?, Attributes::of_open(file)?);
            let looked = if attributes.size == 0 {
                // What has no size may be something that waits for its bytes.
                let file = file.try_clone()?;
                on_thread(move || Sample::look(&file, 0)).await?
            } else {
                Sample::look(&file, attributes.size)?
            };
            match looked {
                Looked::Whole(sample) => {
                    return Ok(Some(Self { file, attributes, sample, seen: Mutex::default() }));
                }
                // It has changed since its size was asked for.
                Looked::IsNotItsSize if file.metadata()?.len() != attributes.size => {}
                Looked::IsNotItsSize => return Ok(None),
            }
        }
        Err(io::Error::other("its size changes all the time"))
    }

    fn now(&self) -> io::Result<Attributes> {
        Attributes::of_open(&self.file)
    }

    /// Returns what has become of the file.
    fn since(&self) -> io::Result<Since> {
        Ok(match told(&self.now()?, &self.attributes) {
            Told::Is(since) => since,
            // A sample does not tell what was overwritten between its pieces, and nothing else tells it.
            Told::IfSame(Since::Grew) if self.sample.is_of(&self.file, self.attributes.size)? => Since::Grew,
            Told::IfSame(_) => Since::Changed,
        })
    }

    /// Looks at the file before its copy gets its name.
    ///
    /// # Errors
    /// `UnexpectedEof` when the copy is not of one version of it.
    pub(in crate::copy) fn check(&self) -> io::Result<()> {
        let since = self.since()?;
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(since);
        if since == Since::Changed { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    /// Returns what was seen when the copy was to get its name.
    fn seen(&self) -> Option<Since> {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
