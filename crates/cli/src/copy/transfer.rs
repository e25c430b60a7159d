//! One regular file, from beginning to end.

use std::{
    io::{self, ErrorKind},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use nfs_wireless_client::{
    self as client, Client, FileHandle, Metadata, NfsStatus, Placement, SetAttributes, Time, TransferError,
    UploadSpec,
};
use serde_json::json;

use super::{
    Run,
    frame::Frame,
    node::{Attributes, Kind, Node, Origin, RemoteFile},
    place::{Place, Present, RemotePlace, set_times},
    resume::{Earlier, Receiving, SMALL_BYTES, Sending},
    verify::Digest,
};
use crate::{
    error::{ResultExt, about, has_status, is_missing, is_stale, local, show},
    exit::{Exit, Failure},
    journal::Identity,
    local::{self as files, Directory, Part},
    name::{journal, temporary},
    progress::Activity,
    remote, units,
};

/// How often a source that changes while it is copied is begun again.
const MAX_VERSIONS: usize = 3;

/// What came of trying to copy a file.
enum Attempt {
    /// It is complete; its attributes, as far as known.
    Complete(Option<Attributes>),
    /// The source changed meanwhile and is this now.
    Changed(Attributes),
}

/// A local file that is to be made.
#[derive(Clone, Copy)]
struct Target<'a> {
    directory: &'a Directory,
    name: &'a [u8],
    mode: u32,
    is_named: bool,
}

impl Run<'_> {
    /// Copies one file.
    pub(super) async fn file(
        &self,
        node: &Node,
        frame: &Frame,
        name: &[u8],
        is_named: bool,
    ) -> anyhow::Result<()> {
        let present = frame.place.present(self.context, name).await?;
        if !self.wants(node, frame, name, present.as_ref())? {
            return Ok(());
        }
        if let Some(Present { kind: Kind::Special(what), .. }) = present {
            let target = frame.place.show(name);
            return Err(Failure::with(
                Exit::SomeFailed,
                format!("{target}: is a {what}, which is not overwritten"),
            ));
        }
        let (target, source) = (frame.place.show(name), node.attributes.identity());
        if let (Some(done), Some(present)) = (&self.done, &present)
            && done.holds(&target, source, &present.attributes)
        {
            return self.skip(node, &target, "was copied by the interrupted run");
        }
        if !self.copy.dry_run {
            let mode = self.mode(node.attributes, present.as_ref());
            let mut was = None;
            let copied = match (&node.origin, &frame.place) {
                (_, Place::Planned(_)) => None,
                (Origin::Remote(source), Place::Local { directory, .. }) => {
                    self.download_again(node, source, Target { directory, name, mode, is_named }).await?
                }
                (Origin::Local(path), Place::Remote(place)) => {
                    self.upload_again(node, path, place, name, mode).await?
                }
                (Origin::Remote(_) | Origin::Standard, Place::Remote(place)) => {
                    was = Some(self.relay(node, place, name, mode, &target).await?);
                    None
                }
                (Origin::Local(_) | Origin::Standard, Place::Local { .. }) => {
                    return Err(Failure::usage(format!("{node}: neither side is on a server")));
                }
            };
            if self.is_to_be_verified(node, Some(&frame.place)) {
                self.verify(node, was.as_ref(), &frame.place, name).await?;
            }
            if let (Some(done), Some(copied)) = (&self.done, copied) {
                done.add(&target, source, &copied);
            }
        }
        self.say("file", node, frame, name)
    }

    /// Copies a file from a server, and goes on with the same file when the server has forgotten its handle.
    async fn download_again(
        &self,
        node: &Node,
        source: &RemoteFile,
        target: Target<'_>,
    ) -> anyhow::Result<Option<Attributes>> {
        let mut stale = match self.download(node, node.attributes, source, target).await {
            Err(error) if is_stale(&error) => error,
            copied => return copied,
        };
        let mut patience = Patience::default();
        let mut client = source.client.clone();
        while patience.allows(&self.context.activity) {
            self.context.session.forget(&client);
            let found = remote::find(self.context, &source.remote).await?;
            let attributes = Attributes::from(&found.metadata);
            client = found.client.clone();
            let again = RemoteFile { client: found.client, handle: found.handle, remote: found.remote };
            match self.download(node, attributes, &again, target).await {
                Err(error) if is_stale(&error) => stale = error,
                copied => return copied,
            }
        }
        Err(stale)
    }

    /// Copies a file to a server, and goes on when the server has forgotten the handle of the directory or the file.
    async fn upload_again(
        &self,
        node: &Node,
        path: &Path,
        place: &RemotePlace,
        name: &[u8],
        mode: u32,
    ) -> anyhow::Result<Option<Attributes>> {
        let mut stale = match self.upload(node, path, place, name, mode).await {
            Err(error) if is_stale(&error) => error,
            copied => return copied,
        };
        let mut patience = Patience::default();
        let mut client = place.client.clone();
        while patience.allows(&self.context.activity) {
            self.context.session.forget(&client);
            let again = place.find_again(self.context).await?;
            client = again.client.clone();
            match self.upload(node, path, &again, name, mode).await {
                Err(error) if is_stale(&error) => stale = error,
                copied => return copied,
            }
        }
        Err(stale)
    }

    /// Copies a file from a server; returns the attributes of the copy.
    async fn download(
        &self,
        node: &Node,
        mut attributes: Attributes,
        source: &RemoteFile,
        target: Target<'_>,
    ) -> anyhow::Result<Option<Attributes>> {
        for _ in 0..MAX_VERSIONS {
            match self.receive(node, attributes, source, target).await? {
                Attempt::Complete(copied) => return Ok(copied),
                Attempt::Changed(now) => attributes = now,
            }
        }
        Err(keeps_changing(node))
    }

    async fn receive(
        &self,
        node: &Node,
        attributes: Attributes,
        source: &RemoteFile,
        target: Target<'_>,
    ) -> anyhow::Result<Attempt> {
        let Target { directory, name, mode, is_named } = target;
        let path = directory.join(name);
        let here = |error: io::Error| local(&path, &error);
        let is_large = attributes.size > SMALL_BYTES;
        let resumes = is_large && self.copy.resume && !self.copy.inplace;
        if resumes && Receiving::is_complete(directory, name, attributes.identity()).map_err(here)? {
            let _ = directory.remove(&journal(name));
            self.say_resumed(node, &show(&path), attributes.size)?;
            return self.copied(target);
        }
        let part = if self.copy.inplace {
            Part::in_place(directory, name, mode | 0o600, is_named)
        } else {
            Part::beside(directory, name, mode | 0o600)
        };
        let part = part.map_err(here)?;
        let moved = if resumes {
            let receiving = Receiving::open(directory, name, &part, attributes.identity()).map_err(here)?;
            if receiving.source_changed {
                self.say_changed(node);
            }
            self.say_resumed(node, &show(&path), receiving.had.bytes())?;
            let (sink, missing) = (receiving.sink().map_err(here)?, receiving.had.missing(attributes.size));
            let observer = Some(self.context.activity.observer());
            let moved = tokio::select! {
                moved = source.client.download_ranges(source.handle, missing, sink, observer) => moved,
                error = receiving.flush() => return Err(here(error)),
            };
            receiving.record();
            moved
        } else {
            // No journal may claim anything of the file that is begun here.
            if is_large || part.size().map_err(here)? > 0 {
                directory.remove(&journal(name)).map_err(here)?;
            }
            part.clear().map_err(here)?;
            let writer = part.writer().map_err(here)?;
            let observer = Some(self.context.activity.observer());
            if attributes.size > 0 {
                source.client.download(source.handle, attributes.size, writer, observer).await
            } else {
                Ok(())
            }
        };
        match moved {
            Ok(()) | Err(client::Error::Transfer(TransferError::SourceShrank { .. })) if is_large => {
                let now = Attributes::from(&source.client.metadata(source.handle).await.at(node)?);
                if differ(&now, &attributes) {
                    return Ok(Attempt::Changed(now));
                }
            }
            _ => {}
        }
        if let Err(error) = moved {
            // What was large enough to be kept track of is worth keeping; the rest only until the server answers again.
            if !is_large && !error.is_silence() {
                part.discard();
            }
            return Err(transfer_error(error, &path, &node.to_string()));
        }
        if let Err(error) = self.finish(&part, attributes, mode) {
            part.discard();
            return Err(here(error));
        }
        part.finish().map_err(here)?;
        if resumes {
            let _ = directory.remove(&journal(name));
        }
        self.copied(target)
    }

    /// Looks at a complete copy on this machine, if anybody wants to know.
    fn copied(&self, Target { directory, name, .. }: Target<'_>) -> anyhow::Result<Attempt> {
        if self.done.is_none() {
            return Ok(Attempt::Complete(None));
        }
        let copied = directory.stat(name).map_err(|error| local(&directory.join(name), &error))?;
        Ok(Attempt::Complete(copied.as_ref().map(Attributes::from)))
    }

    /// Sets what belongs to a complete local file.
    fn finish(&self, part: &Part, attributes: Attributes, mode: u32) -> io::Result<()> {
        if self.copy.preserve {
            part.set_owner(attributes.uid, attributes.gid);
        }
        part.set_mode(mode)?;
        if self.copy.preserve { part.set_times(attributes.times) } else { Ok(()) }
    }

    /// Copies a file to a server; returns the attributes of the copy, as far as they are known.
    async fn upload(
        &self,
        node: &Node,
        path: &Path,
        place: &RemotePlace,
        name: &[u8],
        mode: u32,
    ) -> anyhow::Result<Option<Attributes>> {
        for _ in 0..MAX_VERSIONS {
            match self.send(node, path, place, name, mode).await? {
                Attempt::Complete(copied) => return Ok(copied),
                Attempt::Changed(_) => self.say_changed(node),
            }
        }
        Err(keeps_changing(node))
    }

    async fn send(
        &self,
        node: &Node,
        path: &Path,
        place: &RemotePlace,
        name: &[u8],
        mode: u32,
    ) -> anyhow::Result<Attempt> {
        let here = |error: io::Error| local(path, &error);
        let source = match files::open_source(path, self.copy.follow) {
            Ok(source) => source,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let text = format!("{node}: removed before it was copied");
                return Err(Failure::with(Exit::SourceMissing, text));
            }
            Err(error) => return Err(here(error)),
        };
        // The attributes of the file that was opened, in case it was replaced since it was listed.
        let attributes = Attributes::from(&source.metadata().map_err(here)?);
        let watched = source.try_clone().map_err(here)?;
        let earlier = self.earlier_upload(place, name, attributes.identity())?;
        let placement = match &earlier {
            _ if self.copy.inplace => Placement::InPlace,
            None => Placement::Temporary(temporary(name)),
            Some(earlier) => {
                let checkpoint = earlier.checkpoint();
                if earlier.source_changed() {
                    self.say_changed(node);
                }
                let had = checkpoint.as_ref().map_or(0, |it| it.stable.bytes() + it.unstable.bytes());
                self.say_resumed(node, &place.remote.join(name).to_string(), had)?;
                let made = Time::from_system(SystemTime::now());
                Placement::Resumable { name: temporary(name), made, earlier: checkpoint.map(Box::new) }
            }
        };
        let spec = UploadSpec {
            directory: place.handle,
            name: name.to_vec(),
            placement,
            size: attributes.size,
            mode: mode | 0o600,
            attributes: self.last_attributes(node, mode),
        };
        let latest = Arc::new(Mutex::new(None));
        let sending = Sending::new(source, earlier.as_ref(), Arc::clone(&latest)).map_err(here)?;
        let observer = Some(self.context.activity.observer());
        let target = place.remote.join(name);
        let sent = place.client.upload(spec, sending, observer).await;
        if let (Ok(()), Some(earlier)) = (&sent, earlier) {
            earlier.finish();
        }
        let now = Attributes::from(&watched.metadata().map_err(here)?);
        if matches!(sent, Ok(()) | Err(client::Error::SourceChanged)) && differ(&now, &attributes) {
            return Ok(Attempt::Changed(now));
        }
        sent.map_err(|error| transfer_error(error, path, &target.to_string()))?;
        if self.copy.preserve
            && self.context.session.may_give(&place.remote, node.attributes.uid, node.attributes.gid)
        {
            let entry = place.client.lookup(place.handle, name).await.at(&target)?;
            self.give(place, entry.handle, node, mode).await?;
        }
        let latest: Option<Metadata> = *latest.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Attempt::Complete(latest.map(|latest| {
            let mut copied = Attributes { size: attributes.size, ..Attributes::from(&latest) };
            if self.copy.preserve {
                copied.times.modified = Time::from_system(node.attributes.times.modified).into();
            }
            copied
        })))
    }

    /// Opens the journal of a large upload; `None` where none is kept.
    fn earlier_upload(
        &self,
        place: &RemotePlace,
        name: &[u8],
        source: Identity,
    ) -> anyhow::Result<Option<Earlier>> {
        if source.size <= SMALL_BYTES || !self.copy.resume || self.copy.inplace {
            return Ok(None);
        }
        let target = place.remote.join(name);
        match Earlier::open(&target, source) {
            Ok(earlier) => Ok(Some(earlier)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let text = format!("{target}: another nfsw is copying to this file; wait for it, or stop it");
                Err(Failure::with(Exit::SomeFailed, text))
            }
            Err(error) => {
                self.context.reporter.keeps_nothing(&error);
                Ok(None)
            }
        }
    }

    fn say_changed(&self, node: &Node) {
        let text = format!("{node}: changed since its copy was begun, so it is copied from the beginning");
        self.context.reporter.warning_once(&text);
    }

    /// Says how much of a file is there already.
    fn say_resumed(&self, node: &Node, target: &str, bytes: u64) -> anyhow::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.context.activity.had(bytes);
        let event = json!({"event": "resumed", "source": node.to_string(), "target": target, "bytes": bytes});
        let size = units::bytes(node.attributes.size);
        self.context
            .reporter
            .remark(format_args!("{target}: going on after {} of {size}", units::bytes(bytes)), &event)
    }

    /// Copies a stream to a server, from another server or from standard input; returns what it was.
    async fn relay(
        &self,
        node: &Node,
        place: &RemotePlace,
        name: &[u8],
        mode: u32,
        target: &str,
    ) -> anyhow::Result<Digest> {
        let RemotePlace { client, handle: directory, .. } = place;
        let working = if self.copy.inplace { name.to_vec() } else { temporary(name) };
        let file = if self.copy.inplace {
            open_empty(client, *directory, &working, mode | 0o600).await
        } else {
            create(client, *directory, &working, mode | 0o600).await
        };
        let file = file.at(target)?;
        let finished = async {
            let digest = self.fill(node, client, file, target).await?;
            self.give_attributes(place, file, node, mode, target).await?;
            if !self.copy.inplace {
                client.rename(file, (*directory, &working), (*directory, name)).await.at(target)?;
            }
            Ok(digest)
        };
        let finished = finished.await;
        if let Err(error) = &finished
            && !self.copy.inplace
            && Exit::of(error) != Exit::GaveUp
        {
            let _ = client.remove(*directory, &working).await;
        }
        finished
    }

    async fn give_attributes(
        &self,
        place: &RemotePlace,
        file: FileHandle,
        node: &Node,
        mode: u32,
        target: &str,
    ) -> anyhow::Result<()> {
        let attributes = self.last_attributes(node, mode);
        if !attributes.is_empty() {
            place.client.set_attributes(file, attributes).await.at(target)?;
        }
        if self.copy.preserve { self.give(place, file, node, mode).await } else { Ok(()) }
    }

    /// Gives a file to the source's owner, where we may, and repeats the mode, which that may clear bits of.
    async fn give(
        &self,
        place: &RemotePlace,
        file: FileHandle,
        node: &Node,
        mode: u32,
    ) -> anyhow::Result<()> {
        place.give(self.context, file, node.attributes).await?;
        if mode & 0o6000 != 0 {
            let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
            place.client.set_attributes(file, attributes).await.at(node)?;
        }
        Ok(())
    }

    /// Returns what to set when the bytes are stable; nothing, where creating it was enough.
    fn last_attributes(&self, node: &Node, mode: u32) -> SetAttributes {
        let mut attributes =
            if self.copy.preserve { set_times(node.attributes.times) } else { SetAttributes::default() };
        if self.copy.preserve || mode & 0o600 != 0o600 {
            attributes.mode = Some(mode);
        }
        attributes
    }

    /// Returns the permissions of the copy: the source's own, those of the file it replaces, or those of any new file.
    fn mode(&self, source: Attributes, present: Option<&Present>) -> u32 {
        match present {
            _ if self.copy.preserve => source.mode,
            Some(Present { kind: Kind::File, attributes, .. }) => attributes.mode & 0o777,
            _ => source.mode & 0o777 & !files::umask(),
        }
    }
}

/// How often handles may be looked up again: once, and once more whenever bytes have moved since.
#[derive(Default)]
pub(super) struct Patience {
    bytes: Option<u64>,
}

impl Patience {
    pub(super) fn allows(&mut self, activity: &Activity) -> bool {
        let bytes = activity.bytes();
        self.bytes.replace(bytes) != Some(bytes)
    }
}

/// Creates a file, instead of one that is there. A late duplicate of the call cannot empty it, as it could one that was opened.
async fn create(
    client: &Client,
    directory: FileHandle,
    name: &[u8],
    mode: u32,
) -> Result<FileHandle, client::Error> {
    let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
    match client.create_new(directory, name, attributes).await {
        Err(error) if has_status(&error, NfsStatus::EXIST) => match client.remove(directory, name).await {
            Err(error) if !is_missing(&error) => Err(error),
            _ => client.create_new(directory, name, attributes).await.map(|entry| entry.handle),
        },
        other => other.map(|entry| entry.handle),
    }
}

/// Creates an empty file, or empties the one that is there.
async fn open_empty(
    client: &Client,
    directory: FileHandle,
    name: &[u8],
    mode: u32,
) -> Result<FileHandle, client::Error> {
    let attributes = SetAttributes { mode: Some(mode), size: Some(0), ..SetAttributes::default() };
    match client.create(directory, name, attributes).await {
        // Some servers refuse to open what is there.
        Err(error) if has_status(&error, NfsStatus::EXIST) => create(client, directory, name, mode).await,
        other => other.map(|entry| entry.handle),
    }
}

/// Whether a file's contents may have changed between two looks at it, or it is another file.
pub(super) fn differ(now: &Attributes, before: &Attributes) -> bool {
    (now.file.1, now.size, now.times.modified) != (before.file.1, before.size, before.times.modified)
}

fn keeps_changing(node: &Node) -> anyhow::Error {
    let text = format!("{node}: changes faster than it can be copied; try again when it is at rest");
    Failure::with(Exit::SomeFailed, text)
}

/// Returns the error of a transfer, about the local file or the one on the server.
fn transfer_error(error: client::Error, path: &Path, remote: &str) -> anyhow::Error {
    match error {
        client::Error::Local(error) => local(path, &error),
        other => about(other, remote),
    }
}
