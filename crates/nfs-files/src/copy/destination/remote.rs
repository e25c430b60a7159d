//! Destination directories on a server.

use std::{cell::Cell, collections::HashMap};

use nfs_wireless_client::{
    self as client, Client, FileHandle, FileType, Metadata, NfsStatus, SetAttributes, Stability, Uploaded,
};

use super::{Present, is_refused, made_by_another, set_times, target_key};
use crate::{
    chain::Entry,
    context::Context,
    copy::{
        file::{Opened, Replaces},
        resume::{Earlier, SMALL_BYTES},
        source::{Attributes, Kind},
    },
    error::{Error, Result, ResultExt, has_status, is_missing, is_taken},
    find::{self, Children, Found},
    local::StateHome,
    name::{self, MARKER, Tag, is_linked, is_ours},
    servers::Servers,
    url::Remote,
};

/// Names of a directory that are known at once, at most: some 30 MB.
const MOST_KNOWN: usize = 100_000;

/// A directory on a server.
#[derive(Debug)]
pub(in crate::copy) struct RemoteLocation {
    pub(in crate::copy) client: Client,
    pub(in crate::copy) handle: FileHandle,
    pub(in crate::copy) remote: Remote,
    /// File system and file, by which it is known again.
    pub(super) file: (u64, u64),
    /// The directory that holds it, if it was reached by a name.
    above: Option<FileHandle>,
    /// What names stand for, if anything; others are looked up one by one, unless these are all.
    pub(super) known: HashMap<Vec<u8>, Option<Present>>,
    pub(super) knows_all: bool,
    /// What was listed is said to be another directory.
    pub(super) lists_another: bool,
    pub(super) was_created: bool,
    /// The temporary file of the one that is copied here, made ahead.
    pub(super) ahead: Cell<Option<client::Entry>>,
}

impl From<Found> for RemoteLocation {
    fn from(found: Found) -> Self {
        let file = Attributes::from(&found.metadata).file;
        let above = found.above.directory();
        Self { above, ..Self::new(found.client, found.handle, found.remote, file) }
    }
}

impl RemoteLocation {
    /// A directory of which nothing is known.
    pub(super) fn new(client: Client, handle: FileHandle, remote: Remote, file: (u64, u64)) -> Self {
        let (known, ahead) = (HashMap::new(), Cell::default());
        Self {
            client,
            handle,
            remote,
            file,
            above: None,
            known,
            knows_all: false,
            lists_another: false,
            was_created: false,
            ahead,
        }
    }

    /// Returns the name by which it was reached, to be looked up again.
    pub(in crate::copy) fn entry(&self) -> Option<Entry> {
        let Self { client, handle, remote, file, .. } = self;
        let (client, remote) = (client.clone(), remote.clone());
        Some(Entry { client, parent: self.above?, remote, handle: *handle, file: *file })
    }

    /// Returns the temporary file that was made ahead, once.
    pub(in crate::copy) fn take_ahead(&self) -> Option<client::Entry> {
        self.ahead.take()
    }

    /// Returns the names of what is `left` of making links and small files, and of large ones that have no journal, none of which is ever
    /// resumed; they are not known any more.
    pub(in crate::copy) fn take_left(
        &mut self,
        state: &StateHome,
        left: impl Fn(&[u8]) -> bool,
    ) -> Vec<Vec<u8>> {
        let handle = self.handle;
        let has_journal = |name: &[u8]| {
            name::written_for(name).is_none_or(|name| Earlier::exists(state, &target_key(handle, name)))
        };
        let is_resumed = |name: &[u8], there: &Present| match there.kind {
            Kind::File => there.attributes.size > SMALL_BYTES && !is_linked(name) && has_journal(name),
            Kind::Symlink => false,
            Kind::Directory | Kind::Special(_) => true,
        };
        let is_left = |name: &Vec<u8>, there: &mut Option<Present>| {
            is_ours(name) && left(name) && there.as_ref().is_some_and(|there| !is_resumed(name, there))
        };
        self.known.extract_if(is_left).map(|(name, _)| name).collect()
    }

    /// Looks for the directory by its path, after the server has forgotten its handle.
    ///
    /// # Errors
    /// When another directory is there now: what was copied so far is not in it.
    pub(in crate::copy) async fn find_again(&self, context: Context<'_>) -> Result<Self> {
        let found = Self::from(find::find_again(context, &self.remote).await?);
        if found.file != self.file {
            let text = format!(
                "{}: is another directory now than when this began; run it again to copy into that one",
                self.remote
            );
            return Err(Error::other(text).that_ends_run());
        }
        Ok(found)
    }

    /// Does something in the directory, and once more if the server has forgotten its handle.
    pub(in crate::copy) async fn with<T>(
        &self,
        context: Context<'_>,
        act: impl AsyncFn(&Self) -> Result<T>,
    ) -> Result<T> {
        match act(self).await {
            Err(error) if error.is_stale() => {
                context.servers.forget(&self.client);
                act(&self.find_again(context).await?).await
            }
            done => done,
        }
    }

    /// Gives a new file on the server to the source's owner, where we may: only root can, and not on
    /// every export.
    pub(in crate::copy) async fn give(
        &self,
        servers: &Servers,
        file: FileHandle,
        owner: Attributes,
    ) -> Result<()> {
        match servers.may_give(&self.remote, owner.uid, owner.gid) {
            true => self.give_away(servers, file, owner).await,
            false => Ok(()),
        }
    }

    /// As [`RemoteLocation::give`], of a file that may be somebody's.
    pub(super) async fn give_away(
        &self,
        servers: &Servers,
        file: FileHandle,
        owner: Attributes,
    ) -> Result<()> {
        let attributes =
            SetAttributes { uid: Some(owner.uid), gid: Some(owner.gid), ..SetAttributes::default() };
        match self.client.set_attributes(file, attributes).await {
            Err(error) if is_refused(&error) => {
                servers.note_keeps_owners(&self.remote);
                Ok(())
            }
            other => other.at(&self.remote),
        }
    }

    pub(super) async fn directory(
        &self,
        context: Context<'_>,
        name: &[u8],
        mode: u32,
        present: Option<Present>,
    ) -> Result<Self> {
        let remote = self.remote.join(name);
        find::check_depth(&remote)?;
        let client = self.client.clone();
        let known = present.and_then(|it| Some((it.handle?, it.attributes.file)));
        let (handle, file) = match known {
            Some(known) => known,
            None => {
                let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
                match client.mkdir(self.handle, name, attributes).await {
                    Ok(entry) => {
                        context.servers.activity().step();
                        let file = Attributes::from(&entry.metadata).file;
                        let location = Self::new(client, entry.handle, remote, file);
                        let above = Some(self.handle);
                        return Ok(Self { above, knows_all: true, was_created: true, ..location });
                    }
                    // Somebody else was faster.
                    Err(error) if is_taken(&error) => {
                        let entry = client.lookup(self.handle, name).await.at(&remote)?;
                        (entry.handle, Attributes::from(&entry.metadata).file)
                    }
                    Err(error) => return Err(error).at(&remote),
                }
            }
        };
        let location = Self { above: Some(self.handle), ..Self::new(client, handle, remote, file) };
        location.listed(context).await
    }

    /// Learns what is in the directory.
    pub(super) async fn listed(self, context: Context<'_>) -> Result<Self> {
        let mut children = Children::open(&self.client, self.handle, &self.remote)?.of_target();
        let mut known = HashMap::new();
        while !children.is_done() && known.len() < MOST_KNOWN {
            let found = children.next(context).await?;
            known.extend(found.into_iter().map(|child| {
                let present = Present::remote(child.handle, &child.metadata);
                (child.name, Some(present))
            }));
        }
        // Of a directory that is too large to know, names are asked for.
        let knows_all = children.is_done();
        let known = if knows_all { known } else { HashMap::new() };
        let lists_another = self.is_another(&children);
        Ok(Self { known, knows_all, lists_another, ..self })
    }

    /// Whether the server has listed another directory than this one, as far as it tells.
    pub(super) fn is_another(&self, listed: &Children) -> bool {
        listed.attributes().is_some_and(|metadata| metadata.fileid != self.file.1)
    }

    /// Whether what is known of its names was listed, which may be long ago.
    pub(in crate::copy) const fn is_listed(&self) -> bool {
        self.knows_all && !self.was_created
    }

    /// Returns the number of its file system.
    pub(in crate::copy) const fn file_system(&self) -> u64 {
        self.file.0
    }

    /// The same directory, of which nothing is known.
    pub(super) fn again(&self) -> Self {
        let again = Self::new(self.client.clone(), self.handle, self.remote.clone(), self.file);
        Self { above: self.above, ..again }
    }

    /// Creates a directory with the mark of an unfinished copy of what has the name `source`: it has no name before it has the
    /// mark.
    pub(super) async fn marked_directory(
        &self,
        context: Context<'_>,
        (name, tag): (&[u8], Tag),
        mode: u32,
        source: &[u8],
    ) -> Result<Self> {
        let made = self.make_marked(context, (name, tag), mode, source).await;
        let status = made.as_ref().err().and_then(|error| error.status());
        // Another run may have given its name to what this one was making; it was not there before.
        let may_be_another =
            matches!(status, Some(NfsStatus::NOENT | NfsStatus::EXIST | NfsStatus::NOTEMPTY));
        if may_be_another && self.client.lookup(self.handle, name).await.is_ok() {
            return Err(made_by_another(self.remote.join(name)));
        }
        made
    }

    async fn make_marked(
        &self,
        context: Context<'_>,
        (name, tag): (&[u8], Tag),
        mode: u32,
        source: &[u8],
    ) -> Result<Self> {
        let Self { client, handle: above, remote, .. } = self;
        let (remote, mut temporary) = (remote.join(name), tag.temporary(name));
        let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        let mut made = client.mkdir(*above, &temporary, attributes).await;
        if made.as_ref().is_err_and(is_taken) {
            // Of a run that ended here, or the beginning of a file.
            self.clear(&temporary).await;
            made = client.mkdir(*above, &temporary, attributes).await;
        }
        if made.as_ref().is_err_and(is_taken) {
            temporary = name::fresh(name);
            made = client.mkdir(*above, &temporary, attributes).await;
        }
        let made = made.at(&remote)?;
        // RENAME replaces an empty directory, and that is to be none that somebody else has made by now.
        let (mark, reserved) =
            tokio::join!(write_mark(client, made.handle, source), client.reserve((*above, name)));
        let reserved = match (mark, reserved) {
            (Ok(()), Ok(Some(reserved))) => reserved,
            (mark, reserved) => {
                self.clear(&temporary).await;
                let Some(reserved) = reserved.at(&remote)? else { return Err(made_by_another(remote)) };
                if client.lookup(*above, name).await.is_ok_and(|there| there.handle == reserved.handle) {
                    let _ = client.rmdir(*above, name).await;
                }
                return mark.at(&remote).and_then(|_| Err(made_by_another(remote)));
            }
        };
        let (from, to) = ((*above, &temporary[..]), (*above, name));
        client.rename_to_reserved(made.handle, from, to, &reserved).await.at(&remote)?;
        // Some servers make handles of names (nfs3_server): the one of the old name is stale.
        let made = client.lookup(*above, name).await.at(&remote)?;
        context.servers.activity().step();
        let file = Attributes::from(&made.metadata).file;
        let location = Self::new(client.clone(), made.handle, remote, file);
        Ok(Self { above: Some(*above), knows_all: true, was_created: true, ..location })
    }

    /// Removes what has a temporary name, as far as that is possible: a directory with nothing but a mark in it, or something else.
    async fn clear(&self, temporary: &[u8]) {
        let Self { client, handle: above, .. } = self;
        let Ok(found) = client.lookup(*above, temporary).await else { return };
        if found.metadata.file_type == FileType::Directory {
            let _ = client.remove(found.handle, MARKER).await;
            let _ = client.rmdir(*above, temporary).await;
        } else {
            let _ = client.remove(*above, temporary).await;
        }
    }

    /// Looks up a name that the file has which an upload has made.
    ///
    /// # Errors
    /// As [`Client::lookup`]; that the name leads to another file by now.
    pub(in crate::copy) async fn find_made(&self, (name, made): (&[u8], &Uploaded)) -> Result<client::Entry> {
        let found = self.client.lookup(self.handle, name).await.at(self.remote.join(name))?;
        // Some servers make handles of names (nfs3_server).
        let file = |it: &Metadata| (it.fsid, it.fileid);
        if found.handle == made.file || made.metadata.as_ref().map(file) == Some(file(&found.metadata)) {
            return Ok(found);
        }
        let text = format!("{}: was replaced while it was copied; run it again", self.remote.join(name));
        Err(Error::other(text))
    }

    /// Gives a file its name, if what has that may lose it; false if not, and the file is removed.
    pub(in crate::copy) async fn give_name(
        &self,
        file: FileHandle,
        names: (&[u8], &[u8]),
        replaces: Replaces,
    ) -> Result<bool> {
        let is_given = self.try_name(file, names, replaces).await?;
        if !is_given {
            let _ = self.client.remove(self.handle, names.0).await;
        }
        Ok(is_given)
    }

    /// As [`RemoteLocation::give_name`], of what was `there` a moment ago: what gets the name after that loses it, which spares a sync two
    /// round trips for each file. The file stays.
    pub(in crate::copy) async fn rename_in_place_of(
        &self,
        file: FileHandle,
        (temporary, name): (&[u8], &[u8]),
        replaces: Replaces,
        there: Option<Present>,
    ) -> Result<bool> {
        let Self { client, handle, remote, .. } = self;
        if !replaces.may_replace(there.as_ref()) {
            return Ok(false);
        }
        let renamed = client.rename(file, (*handle, temporary), (*handle, name)).await;
        renamed.at(remote.join(name)).map(|()| true)
    }

    /// As [`RemoteLocation::give_name`], but the file stays.
    pub(in crate::copy) async fn try_name(
        &self,
        file: FileHandle,
        (temporary, name): (&[u8], &[u8]),
        replaces: Replaces,
    ) -> Result<bool> {
        let Self { client, handle, remote, .. } = self;
        let (from, to) = ((*handle, temporary), (*handle, name));
        let given = match replaces {
            Replaces::Anything { .. } => client.rename(file, from, to).await.map(|()| true),
            Replaces::Nothing => client.rename_if_free(file, from, to).await,
            Replaces::Only(_) => {
                let may_replace = |it: &client::Entry| {
                    replaces.may_replace(Some(&Present::remote(it.handle, &it.metadata)))
                };
                client.rename_if(file, from, to, may_replace).await
            }
        };
        given.at(remote.join(name))
    }

    /// Makes or opens a file that is to be written under its own name, if what has that may be overwritten; `None` if not. It is this
    /// run's then, which writes it by its handle, if it may `claim` that. That it is what it was, is told by the guard of SETATTR in one step, which empties it
    /// (RFC 1813 §3.3.2).
    pub(in crate::copy) async fn begin_in_place(
        &self,
        name: &[u8],
        mode: u32,
        replaces: &Cell<Replaces>,
        claim: &dyn Fn(FileHandle) -> Result<()>,
    ) -> Result<Option<Opened>> {
        let Self { client, handle, remote, .. } = self;
        let mut opened = None;
        let mut is_free = matches!(replaces.get(), Replaces::Nothing);
        // A second look, in case a server refuses every guard.
        for may_be_guarded in [true, false] {
            let Replaces::Only(_) = replaces.get() else { break };
            match client.lookup(*handle, name).await {
                Err(error) if is_missing(&error) => is_free = true,
                Err(error) => return Err(error).at(remote.join(name)),
                Ok(there)
                    if !replaces.get().may_replace(Some(&Present::remote(there.handle, &there.metadata))) =>
                {
                    return Ok(None);
                }
                Ok(there) if may_be_guarded => {
                    claim(there.handle)?;
                    let empty = SetAttributes { size: Some(0), ..SetAttributes::default() };
                    match client.set_attributes_if(there.handle, empty, there.metadata.ctime).await {
                        // It is another, or it is gone.
                        Err(error) if has_status(&error, NfsStatus::NOT_SYNC) || error.is_stale() => continue,
                        // What may not be emptied fails when it is written.
                        Err(error) if error.status().is_some() && !error.is_stale() => {}
                        emptied => emptied.at(remote.join(name))?,
                    }
                    opened = Some(there);
                }
                Ok(there) => opened = Some(there),
            }
            break;
        }
        let mode = mode | 0o600;
        let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        let entry = match opened {
            Some(there) => there,
            None if is_free => match client.create_new(*handle, name, attributes).await {
                Err(error) if has_status(&error, NfsStatus::EXIST) => return Ok(None),
                made => made.at(remote.join(name))?,
            },
            None => match client.create(*handle, name, attributes).await {
                // Some servers refuse to open what is there.
                Err(error) if has_status(&error, NfsStatus::EXIST) => {
                    client.lookup(*handle, name).await.at(remote.join(name))?
                }
                made => made.at(remote.join(name))?,
            },
        };
        if entry.metadata.file_type != FileType::Regular {
            return Err(Error::other(format!("{}: is not a regular file", remote.join(name))));
        }
        claim(entry.handle)?;
        let is_made = !replaces.get().was_there() && entry.metadata.size == 0;
        let made_mode = Some(entry.metadata.mode & 0o7777).filter(|it| is_made && *it == mode);
        replaces.set(Replaces::Anything { was_there: true });
        let file = Attributes::from(&entry.metadata).file;
        Ok(Some(Opened { handle: entry.handle, file, made_mode }))
    }

    /// Makes a symbolic link, where something is there or not; false if that is not to lose its name.
    pub(super) async fn symlink(
        &self,
        servers: &Servers,
        (link, tag): (&[u8], Tag),
        (target, kept): (&[u8], Option<Attributes>),
        replaces: Replaces,
    ) -> Result<bool> {
        let Self { client, handle, remote, .. } = self;
        let shown = remote.join(link);
        let entry = if replaces.was_there() {
            let mut temporary = tag.temporary(link);
            match client.remove(*handle, &temporary).await {
                Err(error) if is_missing(&error) => {}
                // Nobody may remove what somebody else has put there.
                Err(client::Error::Status { .. }) => temporary = name::fresh(link),
                removed => removed.at(&shown)?,
            }
            let entry = client.symlink(*handle, &temporary, target).await.at(&shown)?;
            if !self.give_name(entry.handle, (&temporary, link), replaces).await? {
                return Ok(false);
            }
            entry
        } else {
            match client.symlink(*handle, link, target).await {
                Err(error) if replaces.is_nothing() && has_status(&error, NfsStatus::EXIST) => {
                    return Ok(false);
                }
                made => made.at(&shown)?,
            }
        };
        if let Some(kept) = kept {
            // Few servers can; a link without them is still the link.
            let times = client.set_attributes(entry.handle, set_times(kept.times));
            let _ = tokio::join!(self.give(servers, entry.handle, kept), times);
        }
        Ok(true)
    }
}

/// Puts the mark of an unfinished copy into a directory.
async fn write_mark(client: &Client, directory: FileHandle, mark: &[u8]) -> Result<(), client::Error> {
    let attributes = SetAttributes { mode: Some(0o600), size: Some(0), ..SetAttributes::default() };
    let made = client.create(directory, MARKER, attributes).await?;
    let mut rest = mark;
    while !rest.is_empty() {
        let offset = (mark.len() - rest.len()) as u64;
        let written = client.write(made.handle, offset, rest, Stability::Stable).await?;
        match rest.get(written.count as usize..) {
            Some(left) if written.count > 0 => rest = left,
            // It is no mark of this user then.
            _ => break,
        }
    }
    Ok(())
}
