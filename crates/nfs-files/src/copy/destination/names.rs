//! What a sync does with the names in a destination directory.

use std::collections::BTreeSet;

use nfs_wireless_client::{self as client, FileHandle, NfsStatus, SetAttributes, Time};
use rustix::fs::Stat;

use super::{Location, Present, RemoteLocation, is_refused, set_times};
use crate::{
    chain::{self, Chain, Entry},
    context::Context,
    copy::{
        destination::directory::TargetDirectory,
        file::{Replaces, Version},
        source::{Attributes, Kind, SET_ID},
        tags::Tags,
    },
    error::{Error, Result, ResultExt, exists, has_status, is_missing, local},
    event::{Event, Warning},
    find::Children,
    local::{Adjusted, Named, Times, may_give},
    name::{Tag, fresh},
    servers::Servers,
    url::Remote,
};

impl Location {
    /// The same directory, of which nothing is known; in a dry run one in which there is nothing.
    pub(in crate::copy) fn again(&self, dry_run: bool) -> Result<Self> {
        Ok(match self {
            _ if dry_run => Self::Planned(self.own_name()),
            Self::Planned(name) => Self::Planned(name.clone()),
            Self::Local { directory, .. } => Self::local(directory.clone()),
            Self::Remote(location) => Self::Remote(Box::new(location.again())),
        })
    }

    /// Learns what is in the directory, if that is not known.
    pub(in crate::copy) async fn listed(self, context: Context<'_>) -> Result<Self> {
        match self {
            Self::Remote(location) if !location.knows_all => {
                Ok(Self::Remote(Box::new(location.listed(context).await?)))
            }
            other => Ok(other),
        }
    }

    /// Returns the handle of the directory, on a server.
    pub(in crate::copy) fn handle(&self) -> Option<FileHandle> {
        match self {
            Self::Remote(location) => Some(location.handle),
            Self::Local { .. } | Self::Planned(_) => None,
        }
    }

    /// Enters a directory below this one that was found `there`; through no link, and on this machine only through directories with
    /// these numbers.
    ///
    /// # Errors
    /// Also that it is another one now.
    pub(in crate::copy) fn enter(
        &self,
        path: &[u8],
        there: &Present,
        numbers: &[(u64, u64)],
    ) -> Result<Self> {
        Ok(match self {
            Self::Planned(_) => Self::Planned(self.name(path)),
            Self::Local { directory, .. } => {
                let numbers = [numbers, &[there.attributes.file]].concat();
                let entered = directory.enter_path(path, &numbers);
                match entered.map_err(|error| local(&directory.join(path), &error))? {
                    Ok(entered) => Self::local(entered),
                    Err(_) => return Err(chain::moved(self.show(path))),
                }
            }
            Self::Remote(location) => {
                let handle = there.handle.unwrap_or(location.handle);
                Self::Remote(Box::new(location.inside(path, handle, there.attributes.file)))
            }
        })
    }

    /// Returns the chain of what was found `there` in the directory `above`, which `chain` leads to: its own, of a directory on a server.
    pub(in crate::copy) fn chain_to(
        &self,
        chain: &Chain,
        path: &[u8],
        above: Option<FileHandle>,
        there: &Present,
    ) -> Chain {
        match (self, above, there.handle) {
            (Self::Remote(location), Some(parent), Some(handle)) if there.kind == Kind::Directory => {
                let (client, remote) = (location.client.clone(), location.remote.join(path));
                chain.to_entry(Some(Entry { client, parent, remote, handle, file: there.attributes.file }))
            }
            _ => chain.clone(),
        }
    }

    /// Whether two directories on this machine are on the same file system, mounted in one place; servers tell that otherwise.
    pub(in crate::copy) fn is_on_file_system_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Local { directory, .. }, Self::Local { directory: other, .. }) => {
                directory.is_on_mount_of(other)
            }
            _ => true,
        }
    }

    /// Whether another file system is mounted on this directory than that of the directory above it.
    pub(in crate::copy) fn is_mounted_in(&self, above: &Self) -> bool {
        let is_elsewhere = match (self, above) {
            (Self::Remote(location), Self::Remote(above)) => location.file_system() != above.file_system(),
            _ => false,
        };
        is_elsewhere || self.is_inner_export() || !self.is_on_file_system_of(above)
    }

    /// Whether this is an export within the one that was mounted, as far as that is known.
    pub(in crate::copy) fn is_inner_export(&self) -> bool {
        match self {
            Self::Remote(location) => location.client.is_inner_export(location.handle),
            Self::Local { .. } | Self::Planned(_) => false,
        }
    }

    /// Lists what is in the directory now.
    pub(in crate::copy) async fn entries(&self, context: Context<'_>) -> Result<Vec<(Vec<u8>, Present)>> {
        self.surplus(context, &BTreeSet::new(), false).await
    }

    /// Lists what is in the directory under other names; what is known is not asked for again if that `may_be_known`. It may be deleted: where
    /// the server says that it has listed another directory, that is an error.
    pub(in crate::copy) async fn surplus(
        &self,
        context: Context<'_>,
        names: &BTreeSet<Vec<u8>>,
        may_be_known: bool,
    ) -> Result<Vec<(Vec<u8>, Present)>> {
        let mut found = Vec::new();
        match self {
            Self::Planned(_) => {}
            Self::Local { directory, .. } => {
                let entries = directory.entries().map_err(|error| local(directory.path(), &error))?;
                let others = entries.into_iter().filter(|(name, _)| !names.contains(name));
                found.extend(others.map(|(name, stat)| (name, Present::local(&stat))));
            }
            Self::Remote(location) if may_be_known && location.knows_all => {
                if location.lists_another {
                    return Err(is_another(&location.remote));
                }
                let known = location.known.iter().filter(|(name, _)| !names.contains(*name));
                found.extend(known.filter_map(|(name, present)| Some((name.clone(), (*present)?))));
                found.sort_by(|a, b| a.0.cmp(&b.0));
            }
            Self::Remote(location) => {
                let mut children =
                    Children::open(&location.client, location.handle, &location.remote)?.of_target();
                while !children.is_done() {
                    let part = children.next(context).await?;
                    if location.is_another(&children) {
                        return Err(is_another(&location.remote));
                    }
                    let others = part.into_iter().filter(|child| !names.contains(&child.name));
                    found.extend(
                        others.map(|child| (child.name, Present::remote(child.handle, &child.metadata))),
                    );
                }
            }
        }
        self.without_wanted(context, names, found).await
    }

    /// Reads where a link points to.
    pub(in crate::copy) async fn read_link(&self, context: Context<'_>, name: &[u8]) -> Result<Vec<u8>> {
        match self {
            Self::Planned(_) => Ok(Vec::new()),
            Self::Local { directory, .. } => {
                directory.read_link(name).map_err(|error| local(&directory.join(name), &error))
            }
            Self::Remote(location) => {
                let read = async |at: &RemoteLocation| {
                    let link = at.handle_of(name).await?;
                    at.client.read_link(link).await.at(at.remote.join(name))
                };
                location.with(context, read).await
            }
        }
    }

    /// Returns to whom what is there is to be given for its owner to be that of its source, where that could work.
    pub(in crate::copy) fn other_owner(
        &self,
        servers: &Servers,
        there: &Attributes,
        source: &Attributes,
    ) -> Option<(u32, u32)> {
        let (from, to) = ((there.uid, there.gid), (source.uid, source.gid));
        let may = match self {
            Self::Planned(_) => false,
            Self::Local { .. } => may_give(from, to),
            // The highest number is nobody's.
            Self::Remote(location) => {
                from != to && to.0.max(to.1) < u32::MAX && servers.may_give_away(&location.remote)
            }
        };
        may.then_some(to)
    }

    /// Gives a file, which is no link, to an owner, and sets its mode and times, if it is what it was found to be.
    pub(in crate::copy) async fn set_file(
        &self,
        context: Context<'_>,
        name: &[u8],
        found: &Present,
        owner: Option<(u32, u32)>,
        mode: Option<u32>,
        times: Option<Times>,
    ) -> Result<Adjusted> {
        let before = Replaces::Only(Version::from(found));
        match self {
            Self::Planned(_) => Ok(Adjusted::Yes),
            Self::Local { directory, .. } => {
                let is_the_one = |there: &Stat| before.may_replace(Some(&Present::local(there)));
                let set = directory.set_file(name, is_the_one, owner, mode, times);
                set.map_err(|error| local(&directory.join(name), &error))
            }
            Self::Remote(location) => {
                let set = async |at: &RemoteLocation| {
                    let attributes = times.map(set_times).unwrap_or_default();
                    let (uid, gid) = owner.unzip();
                    let attributes = SetAttributes { mode, uid, gid, ..attributes };
                    let file = at.handle_of(name).await?;
                    let Some(set) = at.set_if(name, file, (found, before), attributes).await? else {
                        return Ok(Adjusted::Another);
                    };
                    match set {
                        Err(error) if owner.is_some() && is_refused(&error) => {
                            context.servers.note_keeps_owners(&at.remote);
                            Ok(Adjusted::OwnerKept)
                        }
                        Err(error)
                            if has_status(&error, NfsStatus::PERM)
                                || has_status(&error, NfsStatus::NOTSUPP) =>
                        {
                            Ok(Adjusted::NotKept)
                        }
                        Ok(()) if owner.is_some() || mode.is_some_and(|mode| mode & SET_ID != 0) => {
                            let kept = at.client.metadata(file).await.at(at.remote.join(name))?;
                            if owner.is_some_and(|owner| owner != (kept.uid, kept.gid)) {
                                context.servers.note_keeps_owners(&at.remote);
                                return Ok(Adjusted::OwnerKept);
                            }
                            let are_kept = mode.is_some_and(|mode| mode & SET_ID == kept.mode & SET_ID);
                            if !are_kept {
                                let server = at.remote.server().to_string();
                                context.events.tell(&Event::Warning(Warning::SetIdNotKept(&server)))?;
                            }
                            let is_set = are_kept
                                || owner.is_some()
                                || times.is_some()
                                || kept.mode & 0o7777 != found.attributes.mode & 0o7777;
                            Ok(if is_set { Adjusted::Yes } else { Adjusted::NotKept })
                        }
                        set => set.at(at.remote.join(name)).map(|()| Adjusted::Yes),
                    }
                };
                location.with(context, set).await
            }
        }
    }

    /// Gives a file of the destination another name, where something is there or not; unknown where that is not possible.
    pub(in crate::copy) async fn hard_link(
        &self,
        context: Context<'_>,
        (name, tags): (&[u8], &Tags),
        (file, there, first): (&Present, &TargetDirectory, &[u8]),
        replaces: Replaces,
    ) -> Result<Named> {
        let named = match (self, &there.location) {
            (Self::Local { directory, .. }, Self::Local { directory: there, .. }) => {
                let may_replace = |there: &Stat| replaces.may_replace(Some(&Present::local(there)));
                let file = (there, first, file.attributes.file);
                let linked = directory.hard_link(name, file, replaces.was_there(), may_replace);
                linked.map_err(|error| local(&directory.join(name), &error))?
            }
            (Self::Remote(location), Self::Remote(_)) => {
                let Some(handle) = file.handle else { return Ok(Named::Unknown) };
                let (named, file) = ((name, tags.own()), (handle, file.attributes.links));
                let link = async |at: &RemoteLocation| at.hard_link(named, file, replaces).await;
                let linked = location.with(context, link).await?;
                context.servers.activity().step();
                linked
            }
            _ => Named::Unknown,
        };
        if named == Named::Taken && !replaces.was_there() && !replaces.is_nothing() {
            return Err(exists(self.show(name)));
        }
        Ok(named)
    }

    /// Removes a file, a link or an empty directory of a path below this directory, if it is there; on a server by its name in the
    /// directory `above` it, and on this machine through directories with these numbers: if one of them is another one now, returns its
    /// path.
    pub(in crate::copy) async fn remove<'a>(
        &self,
        context: Context<'_>,
        (path, is_directory): (&'a [u8], bool),
        (above, numbers): (Option<FileHandle>, &[(u64, u64)]),
    ) -> Result<Option<&'a [u8]>> {
        match (self, above) {
            (Self::Local { directory, .. }, _) => {
                let removed = directory.remove_path(path, is_directory, numbers);
                let removed = removed.map_err(|error| local(&directory.join(path), &error))?;
                Ok(removed.err().map(|entered| {
                    let mut slashes = (0..path.len()).filter(|&at| path[at] == b'/');
                    &path[..slashes.nth(entered).unwrap_or(path.len())]
                }))
            }
            (Self::Remote(location), Some(above)) => {
                let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
                let remove = async |at: &RemoteLocation| {
                    // Only what is right in this directory is found again after the server has forgotten it.
                    let above = if name == path { at.handle } else { above };
                    at.remove(above, name, path, is_directory).await
                };
                location.with(context, remove).await.map(|()| None)
            }
            _ => Ok(None),
        }
    }
}

impl RemoteLocation {
    /// A directory below this one.
    fn inside(&self, path: &[u8], handle: FileHandle, file: (u64, u64)) -> Self {
        Self::new(self.client.clone(), handle, self.remote.join(path), file)
    }

    async fn handle_of(&self, name: &[u8]) -> Result<FileHandle> {
        match self.known.get(name).copied().flatten().and_then(|present| present.handle) {
            Some(handle) => Ok(handle),
            None => Ok(self.client.lookup(self.handle, name).await.at(self.remote.join(name))?.handle),
        }
    }

    /// Sets attributes of a file if it is what it was `found` to be, which the guard of SETATTR tells (RFC 1813 §3.3.2); `None` if it is
    /// not. This run may have changed its links meanwhile, and a server may refuse every guard: then it is looked at once more.
    async fn set_if(
        &self,
        name: &[u8],
        file: FileHandle,
        (found, before): (&Present, Replaces),
        attributes: SetAttributes,
    ) -> Result<Option<Result<(), client::Error>>> {
        const MOST_LOOKS: usize = 4;
        let mut changed = found.attributes.changed;
        for _ in 0..MOST_LOOKS {
            let set = self.client.set_attributes_if(file, attributes, Time::from_system(changed)).await;
            if !set.as_ref().is_err_and(|error| has_status(error, NfsStatus::NOT_SYNC)) {
                return Ok(Some(set));
            }
            let there = Location::look_up_in(self, name).await?;
            match there.filter(|there| before.may_replace(Some(there))) {
                None => return Ok(None),
                Some(there) if there.attributes.changed == changed => {
                    return Ok(Some(self.client.set_attributes(file, attributes).await));
                }
                Some(there) => changed = there.attributes.changed,
            }
        }
        Ok(None)
    }

    async fn hard_link(
        &self,
        (name, tag): (&[u8], Tag),
        file: (FileHandle, u32),
        replaces: Replaces,
    ) -> Result<Named> {
        let Self { client, handle, remote, .. } = self;
        let (shown, is_there) = (remote.join(name), replaces.was_there());
        let mut linked = tag.linked(name);
        if is_there {
            match client.remove(*handle, &linked).await {
                Err(error) if is_missing(&error) => {}
                // Nobody may remove what somebody else has put there.
                Err(client::Error::Status { .. }) => linked = fresh(name),
                removed => removed.at(&shown)?,
            }
        }
        let first = if is_there { &linked[..] } else { name };
        match client.hard_link_of(file, *handle, first).await {
            Err(error) if error.is_no_link() => return Ok(Named::Unknown),
            Err(error) if !is_there && has_status(&error, NfsStatus::EXIST) => return Ok(Named::Taken),
            linked => linked.at(&shown)?,
        }
        let is_named = !is_there || self.give_name(file.0, (first, name), replaces).await?;
        Ok(if is_named { Named::Yes } else { Named::Taken })
    }

    async fn remove(&self, above: FileHandle, name: &[u8], path: &[u8], is_directory: bool) -> Result<()> {
        let Self { client, remote, .. } = self;
        let removed =
            if is_directory { client.rmdir(above, name).await } else { client.remove(above, name).await };
        match removed {
            Err(error) if is_missing(&error) => Ok(()),
            removed => removed.at(remote.join(path)),
        }
    }
}

fn is_another(remote: &Remote) -> Error {
    Error::other(format!("{remote}: nothing is deleted there, the server lists another directory for it"))
}
