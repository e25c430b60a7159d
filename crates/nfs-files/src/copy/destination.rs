//! Destination directories, on this machine or on a server.

pub(in crate::copy) mod directory;
pub(in crate::copy) mod early_create;
pub(in crate::copy) mod marker;
mod names;
pub(in crate::copy) mod one_name;
mod remote;

use std::{fmt::Display, os::unix::ffi::OsStringExt, time::Duration};

use nfs_wireless_client::{
    self as client, Entry, FileHandle, Metadata, NfsStatus, SetAttributes, SetTime, Time,
    nfs3_types::nfs3::nfstime3,
};

use rustix::fs::Stat;

pub(super) use self::remote::RemoteLocation;
use super::{
    file::Replaces,
    resume::state,
    source::{Attributes, Kind, Node, Origin},
    tags::Tags,
    written::Which,
};
use crate::{
    context::Context,
    error::{Error, Result, ResultExt, has_status, io_text, is_missing, local, show},
    escape::escape,
    event::{Event, Name, Warning},
    find::Found,
    local::{Directory, Marked, StateHome, Times},
    name::{MARKER, journal, temporary, user_of},
    url::Remote,
};

/// A directory that files are copied into.
#[derive(Debug)]
pub(super) enum Location {
    /// On this machine.
    Local { directory: Directory, was_created: bool },
    /// On a server.
    Remote(Box<RemoteLocation>),
    /// Would be created if this were not a dry run; its path, for people and for programs.
    Planned(Name),
}

/// What has a name already.
#[derive(Clone, Copy, Debug)]
pub(super) struct Present {
    pub(super) kind: Kind,
    pub(super) attributes: Attributes,
    /// On a server.
    pub(super) handle: Option<FileHandle>,
}

impl Location {
    /// A local directory that was there before.
    pub(super) fn local(directory: Directory) -> Self {
        Self::Local { directory, was_created: false }
    }

    /// A server directory that was there before; names in it are looked up.
    pub(super) fn remote(found: Found) -> Self {
        Self::Remote(Box::new(RemoteLocation::from(found)))
    }

    /// A server directory that was there before, in which one name was looked up; with the temporary file of that name, if it was
    /// made ahead.
    pub(super) fn remote_around(
        found: Found,
        name: &[u8],
        there: Option<&Found>,
        ahead: Option<Entry>,
    ) -> Self {
        let mut location = RemoteLocation::from(found);
        let there = there.map(|it| Present::remote(it.handle, &it.metadata));
        location.known.insert(name.to_vec(), there);
        location.ahead.set(ahead);
        Self::Remote(Box::new(location))
    }

    pub(super) fn was_created(&self) -> bool {
        match self {
            Self::Local { was_created, .. } => *was_created,
            Self::Remote(location) => location.was_created,
            Self::Planned(_) => false,
        }
    }

    /// Returns what has this name; a link stands for itself.
    pub(super) async fn present(&self, context: Context<'_>, name: &[u8]) -> Result<Option<Present>> {
        match self {
            Self::Planned(_) | Self::Local { was_created: true, .. } => Ok(None),
            Self::Local { .. } => self.look_up(context, name).await,
            Self::Remote(location) => match location.known.get(name) {
                Some(known) => Ok(*known),
                None if location.knows_all => Ok(None),
                None => self.look_up(context, name).await,
            },
        }
    }

    /// As [`Location::present`], whatever was known of the name before.
    pub(super) async fn look_up(&self, context: Context<'_>, name: &[u8]) -> Result<Option<Present>> {
        match self {
            Self::Planned(_) => Ok(None),
            Self::Local { directory, .. } => {
                let found = directory.stat(name).map_err(|error| local(&directory.join(name), &error))?;
                Ok(found.as_ref().map(Present::local))
            }
            Self::Remote(location) => {
                location.with(context, async |at: &_| Self::look_up_in(at, name).await).await
            }
        }
    }

    /// As [`Location::look_up`], in a directory of a server that is not looked for again.
    pub(super) async fn look_up_in(location: &RemoteLocation, name: &[u8]) -> Result<Option<Present>> {
        match location.client.lookup(location.handle, name).await {
            Ok(entry) => Ok(Some(Present::remote(entry.handle, &entry.metadata))),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error).at(location.remote.join(name)),
        }
    }

    /// Creates a directory in this one, or enters it when it is there.
    pub(super) async fn directory(
        &self,
        context: Context<'_>,
        (name, tags): (&[u8], &Tags),
        mode: u32,
        dry_run: bool,
        mark: Option<&[u8]>,
    ) -> Result<Self> {
        let present = self.present(context, name).await?;
        if present.is_some_and(|present| present.kind != Kind::Directory) {
            let text =
                format!("{}: is not a directory, so a directory cannot be copied there", self.show(name));
            return Err(Error::other(text));
        }
        if dry_run && present.is_none() {
            return Ok(Self::Planned(self.name(name)));
        }
        match (self, mark.filter(|_| present.is_none())) {
            (Self::Planned(_), _) => Ok(Self::Planned(self.name(name))),
            (Self::Local { directory, .. }, Some(source)) => {
                let make = || {
                    let made = Marked::make(directory, name, mode)?;
                    made.mark(source)?;
                    made.finish()
                };
                // What the name belongs to now was not there before.
                let is_taken = |error: &std::io::Error| {
                    use std::io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotADirectory};
                    matches!(error.kind(), AlreadyExists | DirectoryNotEmpty | NotADirectory)
                };
                let made = make().map_err(|error| match is_taken(&error) {
                    true => made_by_another(self.show(name)),
                    false => local(&directory.join(name), &error),
                })?;
                Ok(Self::Local { directory: made, was_created: true })
            }
            (Self::Remote(location), Some(source)) => {
                let named = (name, tags.own());
                let make =
                    async |at: &RemoteLocation| at.marked_directory(context, named, mode, source).await;
                Ok(Self::Remote(Box::new(location.with(context, make).await?)))
            }
            (Self::Local { directory, .. }, None) => match directory.create(name, mode) {
                Ok((directory, was_created)) => Ok(Self::Local { directory, was_created }),
                Err(error) => Err(local(&directory.join(name), &error)),
            },
            (Self::Remote(location), None) => {
                let make = async |at: &RemoteLocation| {
                    // Where this directory was forgotten, so was what is in it.
                    let present = present.filter(|_| std::ptr::eq(at, &raw const **location));
                    at.directory(context, name, mode, present).await
                };
                let made = location.with(context, make).await?;
                Ok(Self::Remote(Box::new(made)))
            }
        }
    }

    /// Returns what the directory is, whatever its name; nothing if it is not there.
    pub(super) fn which(&self) -> Option<Which> {
        match self {
            Self::Local { directory, .. } => Some(Which::Local(directory.number())),
            Self::Remote(location) => Some(Which::Remote(location.handle)),
            Self::Planned(_) => None,
        }
    }

    /// Removes links and the beginnings of files that earlier runs have left in the directory, which this run has written nothing into if
    /// that `is_new` to it; those of large files that have a journal are resumed. Whether there were any.
    pub(super) async fn remove_left(&mut self, state: &StateHome, tags: &Tags, is_new: bool) -> bool {
        let Self::Remote(location) = self else { return false };
        let left = location.take_left(state, |name| tags.is_of_earlier(name) || is_new && tags.is_own(name));
        for name in &left {
            // What cannot be removed is in nobody's way.
            let _ = location.client.remove(location.handle, name).await;
        }
        !left.is_empty()
    }

    /// Whether a temporary name or journal belongs to a file that another run of this user is writing: on this machine it has it locked.
    pub(super) fn is_being_written(&self, name: &[u8]) -> bool {
        let (Self::Local { directory, .. }, Some(user)) = (self, user_of(name)) else { return false };
        let is_locked = |name: &[u8]| {
            directory.lock_there(name).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
        };
        is_locked(&temporary(user)) || is_locked(&journal(user))
    }

    /// Takes the mark of an unfinished copy off the directory, if it has it.
    pub(super) async fn remove_mark(&self, context: Context<'_>) -> Result<()> {
        match self {
            Self::Planned(_) => Ok(()),
            Self::Local { directory, .. } => {
                directory.remove(MARKER).map_err(|error| local(&directory.join(MARKER), &error))
            }
            Self::Remote(location) => {
                let remove = async |at: &RemoteLocation| match at.client.remove(at.handle, MARKER).await {
                    Err(error) if !is_missing(&error) => Err(error).at(at.remote.join(MARKER)),
                    _ => Ok(()),
                };
                location.with(context, remove).await
            }
        }
    }

    /// Creates a symbolic link, where something is there or not; false if that is not to lose its name.
    pub(super) async fn symlink(
        &self,
        context: Context<'_>,
        (link, tags): (&[u8], &Tags),
        (target, kept): (&[u8], Option<Attributes>),
        replaces: Replaces,
    ) -> Result<bool> {
        match self {
            Self::Planned(_) => Ok(true),
            Self::Local { directory, .. } => {
                let path = directory.join(link);
                let may_replace = |there: &Stat| replaces.may_replace(Some(&Present::local(there)));
                let kept = kept.map(|it| (it.times, (it.uid, it.gid)));
                let made = directory.symlink(link, target, kept, may_replace);
                made.map_err(|error| local(&path, &error))
            }
            Self::Remote(location) => {
                let named = (link, tags.own());
                let link = (target, kept);
                let make = async |location: &RemoteLocation| {
                    location.symlink(context.servers, named, link, replaces).await
                };
                location.with(context, make).await
            }
        }
    }

    /// Gives the directory itself to the owner of its source, where that could work; it `was` another's, or is new.
    pub(super) async fn give(
        &self,
        context: Context<'_>,
        source: &Attributes,
        was: Option<&Attributes>,
    ) -> Result<()> {
        match self {
            Self::Planned(_) => Ok(()),
            Self::Local { directory, .. } => {
                directory.set_owner(source.uid, source.gid);
                Ok(())
            }
            Self::Remote(remote) => {
                let servers = context.servers;
                let give = async |location: &RemoteLocation| match was {
                    None => location.give(servers, location.handle, *source).await,
                    Some(was) if self.other_owner(servers, was, source).is_some() => {
                        location.give_away(servers, location.handle, *source).await
                    }
                    Some(_) => Ok(()),
                };
                remote.with(context, give).await
            }
        }
    }

    /// Sets the mode of the directory itself, and its times if they are kept.
    pub(super) async fn set_last(
        &self,
        context: Context<'_>,
        last: Attributes,
        preserve: bool,
    ) -> Result<()> {
        match self.try_last(context, last, preserve).await? {
            Some(why) if preserve => context.events.tell(&Event::Warning(Warning::NotKept(&why))),
            _ => Ok(()),
        }
    }

    /// As [`set_last`](Self::set_last); returns why it was refused.
    async fn try_last(
        &self,
        context: Context<'_>,
        last: Attributes,
        preserve: bool,
    ) -> Result<Option<String>> {
        match self {
            Self::Planned(_) => Ok(None),
            Self::Local { directory, was_created, .. } => {
                if preserve {
                    match *was_created {
                        true => directory.remove_lists(),
                        // The group's bits of a mode would give others in a list what it keeps from them.
                        false => directory.remove_list(),
                    }
                }
                let mut set = directory.set_mode(last.mode);
                if preserve {
                    set = directory.set_times(last.times).and(set);
                }
                Ok(set.err().map(|error| io_text(&error)))
            }
            Self::Remote(location) => {
                let mut attributes = if preserve { set_times(last.times) } else { SetAttributes::default() };
                attributes.mode = Some(last.mode);
                let set = async |location: &RemoteLocation| match location
                    .client
                    .set_attributes(location.handle, attributes)
                    .await
                {
                    Err(error) if is_refused(&error) => Ok(Some(error.to_string())),
                    set => set.at(&location.remote).map(|_| None),
                };
                let refused = location.with(context, set).await?;
                context.servers.activity().step();
                Ok(refused)
            }
        }
    }

    /// Takes permissions from a directory that was there.
    ///
    /// # Errors
    /// It belongs to somebody else, who has not even the mode set that it has. Where no modes are kept at all, it stays as it is.
    pub(super) async fn narrow(&self, context: Context<'_>, was: Attributes, mode: u32) -> Result<()> {
        let narrower = Attributes { mode, ..was };
        if self.try_last(context, narrower, false).await?.is_none() {
            return Ok(());
        }
        match self.try_last(context, was, false).await? {
            None => Ok(()),
            Some(why) => Err(Error::other(format!(
                "{}: others can read what is in it, its source is closed to them, and its permissions cannot be \
                 changed ({why}); nothing is copied into it",
                self.own_name().shown
            ))),
        }
    }

    /// Returns in what steps files here keep their times, where that is known; zero where it is not.
    pub(super) async fn time_step(&self, context: Context<'_>) -> Result<Duration> {
        match self {
            Self::Planned(_) => Ok(Duration::ZERO),
            Self::Local { directory, .. } => Ok(directory.time_step()),
            Self::Remote(location) => {
                let ask = async |location: &RemoteLocation| {
                    // A server that does not tell keeps times as finely as they look.
                    match location.client.fs_info(location.handle).await {
                        Err(error) if error.is_stale() || error.is_silence() => {
                            Err(error).at(&location.remote)
                        }
                        found => Ok(found.map_or(Duration::ZERO, |found| {
                            let nfstime3 { seconds, nseconds } = found.time_delta;
                            Duration::from_secs(seconds.into()) + Duration::from_nanos(nseconds.into())
                        })),
                    }
                };
                location.with(context, ask).await
            }
        }
    }

    /// Whether what is there is the source itself: by another name in a directory, of a server or of a mount, or because a server serves
    /// what is on this machine. What only may be so counts if the copy is written `in_place`, which would empty it.
    pub(super) fn is_same(&self, present: &Present, node: &Node, in_place: bool) -> bool {
        let there = &present.attributes;
        match (self, &node.origin) {
            (Self::Remote(location), Origin::Remote(source))
                if location.client.address() == source.client.address() =>
            {
                let attributes = &node.attributes;
                present.handle == Some(source.handle)
                    || attributes.looks_like(there)
                    || in_place && attributes.may_be(there)
            }
            _ if !in_place => false,
            (_, Origin::Standard) => {
                rustix::fs::fstat(std::io::stdin()).is_ok_and(|it| Attributes::from(&it).may_be(there))
            }
            _ => node.attributes.may_be(there),
        }
    }

    /// Whether this is the source directory itself, which a server may serve that is on this machine.
    ///
    /// # Errors
    /// What looking at the directories fails of.
    pub(super) async fn is_directory(&self, node: &Node) -> Result<bool> {
        let number = node.attributes.file.1;
        match (self, &node.origin) {
            (Self::Remote(location), Origin::Remote(source)) if location.handle == source.handle => {
                if location.client.address() == source.client.address() {
                    return Ok(true);
                }
                // A server may have two addresses, and two servers the same handles.
                let there = || look_at(&source.client, source.handle, &source.remote);
                are_one(there, || look_at(&location.client, location.handle, &location.remote)).await
            }
            (Self::Remote(location), Origin::Local(path)) if location.file.1 == number => {
                let here = async || {
                    let found = path.enter(number).and_then(|it| it.stat());
                    Ok(Attributes::from(&found.map_err(|error| local(path, &error))?))
                };
                are_one(here, || look_at(&location.client, location.handle, &location.remote)).await
            }
            (Self::Local { directory, .. }, Origin::Remote(source)) if directory.number().1 == number => {
                let here = async || {
                    let found = directory.own_stat().map_err(|error| local(directory.path(), &error))?;
                    Ok(Attributes::from(&found))
                };
                are_one(here, || look_at(&source.client, source.handle, &source.remote)).await
            }
            _ => Ok(false),
        }
    }

    /// Returns the path of a name, for messages.
    pub(super) fn show(&self, name: &[u8]) -> String {
        match self {
            Self::Local { directory, .. } => show(&directory.join(name)),
            Self::Remote(location) => location.remote.join(name).to_string(),
            Self::Planned(path) => escape(&path.join(name)).into_owned(),
        }
    }

    /// Returns what tells a name in this directory from any other, by whatever path the directory was reached; on this machine for as long
    /// as its file system is mounted.
    pub(super) fn key(&self, name: &[u8]) -> Vec<u8> {
        let ((file_system, number), session) = match self {
            Self::Local { directory, .. } => (directory.number(), directory.session()),
            Self::Remote(location) => (location.file, [0; 16]),
            Self::Planned(_) => ((0, 0), [0; 16]),
        };
        [&file_system.to_le_bytes()[..], &number.to_le_bytes(), &session, name].concat()
    }

    /// Returns what stands for this directory, or for a name in it, in the state of later runs: in
    /// whatever words it is named, and by whatever name or address of its server.
    pub(super) fn resume_key(&self, name: Option<&[u8]>) -> Vec<u8> {
        match self {
            Self::Local { directory, .. } => {
                let (device, inode) = directory.number();
                state::key([&device.to_le_bytes()[..], &inode.to_le_bytes()].into_iter().chain(name))
            }
            Self::Remote(location) => match name {
                Some(name) => target_key(location.handle, name),
                None => state::key([location.handle.as_bytes()]),
            },
            Self::Planned(_) => Vec::new(),
        }
    }

    /// Returns the path of a name, for people and for programs.
    pub(super) fn name(&self, name: &[u8]) -> Name {
        let bytes = match self {
            Self::Local { directory, .. } => directory.join(name).into_os_string().into_vec(),
            Self::Remote(location) => location.remote.join(name).to_bytes(),
            Self::Planned(path) => path.join(name),
        };
        Name { shown: self.show(name), bytes }
    }

    /// Returns the path of the directory itself, for people and for programs.
    pub(super) fn own_name(&self) -> Name {
        match self {
            Self::Local { directory, .. } => Name::local(directory.path()),
            Self::Remote(location) => {
                Name { shown: location.remote.to_string(), bytes: location.remote.to_bytes() }
            }
            Self::Planned(path) => path.clone(),
        }
    }
}

async fn look_at(client: &client::Client, handle: FileHandle, remote: &Remote) -> Result<Attributes> {
    Ok(Attributes::from(&client.metadata(handle).await.at(remote)?))
}

/// Whether two views of directories that have one number show one directory, by when it changed last. It may be changing: then it is
/// looked at again.
///
/// # Errors
/// What looking at it fails of.
async fn are_one(
    look: impl AsyncFn() -> Result<Attributes>,
    look_there: impl AsyncFn() -> Result<Attributes>,
) -> Result<bool> {
    const MOST_LOOKS: usize = 8;
    let mut before = look().await?;
    for _ in 0..MOST_LOOKS {
        if before.looks_like(&look_there().await?) {
            return Ok(true);
        }
        let now = look().await?;
        if before.looks_like(&now) {
            return Ok(false);
        }
        before = now;
    }
    Ok(true)
}

/// Statuses of a server that does not keep what SETATTR sets, or not for us (RFC 1813 §3.3.2).
const NOT_KEPT: [NfsStatus; 4] = [NfsStatus::PERM, NfsStatus::ACCES, NfsStatus::NOTSUPP, NfsStatus::INVAL];

/// Whether a server refuses to set attributes.
pub(super) fn is_refused(error: &client::Error) -> bool {
    NOT_KEPT.iter().any(|&status| has_status(error, status))
}

impl Present {
    pub(super) fn local(found: &Stat) -> Self {
        Self { kind: found.into(), attributes: found.into(), handle: None }
    }

    pub(super) fn remote(handle: FileHandle, metadata: &Metadata) -> Self {
        Self { kind: metadata.file_type.into(), attributes: metadata.into(), handle: Some(handle) }
    }
}

/// Returns the error for a directory that got its name while this run was making it.
fn made_by_another(directory: impl Display) -> Error {
    let text = format!(
        "{directory}: another run has just made this directory; wait for its end, and run this again"
    );
    Error::other(text)
}

/// Returns what stands for a name in a directory of a server, in the state of later runs.
pub(super) fn target_key(directory: FileHandle, name: &[u8]) -> Vec<u8> {
    state::key([directory.as_bytes(), name])
}

/// Returns the attributes that set these times.
pub(super) fn set_times(times: Times) -> SetAttributes {
    SetAttributes {
        atime: Some(SetTime::To(Time::from_system(times.accessed))),
        mtime: Some(SetTime::To(Time::from_system(times.modified))),
        ..SetAttributes::default()
    }
}

#[cfg(test)]
mod tests {
    use nfs_wireless_server::{
        Action, Calls, Faults, Rule, When,
        nfs_wire::{Procedure, Status},
    };

    use super::*;
    use crate::{
        find,
        local::StateHome,
        served::{self, Served},
    };

    #[tokio::test]
    async fn who_makes_a_directory_that_another_run_has_just_made_hears_of_it() {
        let server = Served::start();
        let connections = served::servers();
        let context = Context { servers: &connections, events: &served::Silent };
        let state = tempfile::tempdir().unwrap();
        let tags = Tags::new(&StateHome::at(state.path()));
        for (procedure, is_empty) in [
            (Some(Procedure::Create), false),
            (Some(Procedure::Rename), false),
            // Nothing fails: RENAME replaces an empty directory.
            (None, true),
        ] {
            for is_there in [true, false] {
                let found = find::find(context, &served::remote(&server, "/")).await.unwrap();
                let location = Location::remote_around(found, b"new", None, None);
                // The other one has renamed it by then.
                let rule = |procedure| {
                    let (calls, when) = (Calls::Procedure(procedure), When::Nth(1));
                    Rule { calls, when, action: Action::Fail(Status::NOENT) }
                };
                let rules: Vec<_> = procedure.map(rule).into_iter().collect();
                server.service(|service| service.set_faults(Faults::from(rules)));
                if is_there {
                    std::fs::create_dir(server.path("new")).unwrap();
                    if !is_empty {
                        std::fs::write(server.path("new/file"), "").unwrap();
                    }
                }
                let (named, mark) = ((&b"new"[..], &tags), Some(&b"/source\nkey"[..]));
                let made = location.directory(context, named, 0o755, false, mark);
                let said = made.await.map_or_else(|error| error.to_string(), |_| "made".to_owned());
                let is_said = said.contains("/new: another run has just made this directory");
                assert_eq!(is_said, is_there, "{procedure:?}: {said}");
                let _ = std::fs::remove_dir_all(server.path("new"));
            }
        }
    }

    #[tokio::test]
    async fn what_changes_all_the_time_is_taken_for_one_directory() {
        let file = tempfile::tempfile().unwrap();
        let attributes = Attributes::from(&file.metadata().unwrap());
        let looks = std::cell::Cell::new(0);
        for (changes, other, are_one) in
            [(0, 0, true), (0, 1, false), (5, 1, false), (5, 0, true), (99, 0, true), (99, 1, true)]
        {
            looks.set(0);
            // The first so many looks each find another time.
            let look = async |number: u64| {
                looks.set(looks.get() + 1);
                let changed = attributes.changed + Duration::from_secs(number + looks.get().min(changes));
                Ok(Attributes { changed, ..attributes })
            };
            let found = super::are_one(async || look(0).await, async || look(other).await).await.unwrap();
            assert_eq!(found, are_one, "{changes} {other}");
        }
    }

    #[tokio::test]
    async fn a_server_tells_the_step_of_its_times() {
        let server = Served::start();
        let connections = served::servers();
        let context = Context { servers: &connections, events: &served::Silent };
        let found = find::find(context, &served::remote(&server, "/")).await.unwrap();
        let step = Location::remote(found).time_step(context).await.unwrap();
        assert_eq!(step, Duration::from_nanos(1));
    }
}
