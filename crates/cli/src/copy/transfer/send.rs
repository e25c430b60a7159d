//! A file from this machine to a server.

use std::{
    fs::File,
    io::{self, ErrorKind},
    path::Path,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use nfs_wireless_client::{
    self as client, FileHandle, Metadata, Placement, RangeSet, SetAttributes, Time, UploadSpec,
};

use super::{Attempt, MAX_VERSIONS, differ, keeps_changing, transfer_error};
use crate::{
    copy::{
        Links, Run,
        node::{Attributes, Node},
        place::{Name, RemotePlace, set_times, target_key},
        resume::{Earlier, SMALL_BYTES, Sending},
    },
    error::{ResultExt, full, has_no_room, local},
    exit::{Exit, Failure},
    journal::Identity,
    local::{self as files, Sparse, Times},
    name::temporary,
    progress::Share,
    target::Remote,
};

impl Run<'_> {
    /// Copies a file to a server; returns the attributes of the copy, as far as they are known.
    pub(super) async fn upload(
        &self,
        node: &Node,
        path: &Path,
        place: &RemotePlace,
        name: &[u8],
        mode: u32,
        share: &Share,
    ) -> anyhow::Result<Option<Attributes>> {
        let copied = async {
            for _ in 0..MAX_VERSIONS {
                match self.send(node, path, place, name, mode, share).await? {
                    Attempt::Complete(copied) => return Ok(copied),
                    Attempt::Changed(_) => self.say_changed(node),
                }
            }
            Err(keeps_changing(node))
        };
        let copied = copied.await;
        if place.take_ahead().is_some() {
            // Nothing was sent into it. What cannot be removed is what the next copy to this name removes.
            let _ = place.client.remove(place.handle, &temporary(name)).await;
        }
        copied
    }

    async fn send(
        &self,
        node: &Node,
        path: &Path,
        place: &RemotePlace,
        name: &[u8],
        mode: u32,
        share: &Share,
    ) -> anyhow::Result<Attempt> {
        let here = |error: io::Error| local(path, &error);
        let source = match files::open_source(path, self.copy.links != Links::Never) {
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
        let holes = self.holes(&source, &attributes).await.map_err(here)?;
        share.begin(attributes.size - holes.bytes());
        let mut had = 0;
        let placement = match &earlier {
            _ if self.copy.inplace => Placement::InPlace,
            None => Placement::Temporary(temporary(name)),
            Some(earlier) => {
                let checkpoint = earlier.checkpoint();
                if earlier.source_changed() {
                    self.say_changed(node);
                }
                had = checkpoint.as_ref().map_or(0, |it| it.stable.bytes() + it.unstable.bytes());
                let made = Time::from_system(SystemTime::now());
                Placement::Resumable { name: temporary(name), made, earlier: checkpoint.map(Box::new) }
            }
        };
        let latest = Arc::new(Mutex::new(None));
        let (sending, confirmed) =
            Sending::new(source, earlier.as_ref(), Arc::clone(&latest)).map_err(here)?;
        let mut spec = UploadSpec {
            mode: mode | 0o600,
            attributes: self.last_attributes(attributes.times, mode),
            holes,
            ..UploadSpec::new(place.handle, name.to_vec(), placement, attributes.size)
        };
        if let Some(made) = place.take_ahead() {
            spec.made = Some((made.handle, made.metadata));
            if made.metadata.mode & 0o777 != spec.mode & 0o777 {
                spec.attributes.mode = Some(mode);
            }
        }
        let target = place.remote.join(name);
        let sent = {
            let mut upload = pin!(place.client.upload(spec, sending, Some(share.observer())));
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
        if let (Ok(()), Some(earlier)) = (&sent, earlier) {
            earlier.finish();
        }
        let now = Attributes::from(&watched.metadata().map_err(here)?);
        if matches!(sent, Ok(()) | Err(client::Error::SourceChanged)) && differ(&now, &attributes) {
            return Ok(Attempt::Changed(now));
        }
        if let Err(error) = sent {
            return Err(self.refused(error, path, place, name).await);
        }
        if self.copy.preserve
            && self.connections.may_give(&place.remote, node.attributes.uid, node.attributes.gid)
        {
            let entry = place.client.lookup(place.handle, name).await.at(&target)?;
            self.give(place, entry.handle, node, mode).await?;
        }
        let latest: Option<Metadata> = *latest.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Attempt::Complete(latest.map(|latest| {
            let mut copied = Attributes { size: attributes.size, ..Attributes::from(&latest) };
            if self.copy.preserve {
                copied.times.modified = Time::from_system(attributes.times.modified).into();
            }
            copied
        })))
    }

    /// Words the end of an upload; where the server has no room, with what the partial file takes of it.
    async fn refused(
        &self,
        error: client::Error,
        path: &Path,
        place: &RemotePlace,
        name: &[u8],
    ) -> anyhow::Error {
        let target = place.remote.join(name);
        if !self.copy.inplace && has_no_room(&error) {
            let temporary = temporary(name);
            if let Ok(part) = place.client.lookup(place.handle, &temporary).await {
                let shown = place.remote.join(&temporary);
                return full(Exit::SomeFailed, target, error, shown, part.metadata.used);
            }
        }
        transfer_error(error, path, &target.to_string())
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
        tokio::task::spawn_blocking(move || files::holes(&file, size, sparse))
            .await
            .map_err(io::Error::other)?
    }

    /// Says how much of the `had` bytes that earlier runs sent the server has confirmed.
    fn say_confirmed(
        &self,
        node: &Node,
        target: &Remote,
        had: u64,
        confirmed: u64,
        share: &Share,
    ) -> anyhow::Result<()> {
        if had > 0 && confirmed == 0 {
            let text = format!(
                "{target}: the server does not have what an earlier run sent, so it is copied from the beginning"
            );
            self.reporter.warning_once(&text);
        }
        let name = Name { shown: target.to_string(), bytes: target.to_bytes() };
        self.say_resumed(node, &name, confirmed, share)
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
        match Earlier::open(&self.copy.state, &target_key(place.handle, name), place.client.address(), source)
        {
            Ok(None) => {
                self.reporter.keeps_nothing_beside_another();
                Ok(None)
            }
            Ok(earlier) => Ok(earlier),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let text = format!("{target}: another nfsw is copying to this file; wait for it, or stop it");
                Err(Failure::with(Exit::SomeFailed, text))
            }
            Err(error) => {
                self.reporter.keeps_nothing(&error);
                Ok(None)
            }
        }
    }

    /// Gives a file to the source's owner, where we may, and repeats the mode, which that may clear bits of.
    pub(super) async fn give(
        &self,
        place: &RemotePlace,
        file: FileHandle,
        node: &Node,
        mode: u32,
    ) -> anyhow::Result<()> {
        place.give(self.connections, file, node.attributes).await?;
        if mode & 0o6000 != 0 {
            let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
            place.client.set_attributes(file, attributes).await.at(node)?;
        }
        Ok(())
    }

    /// Returns what to set when the bytes are stable; nothing, where creating it was enough. The times are those of the source.
    pub(super) fn last_attributes(&self, times: Times, mode: u32) -> SetAttributes {
        let mut attributes = if self.copy.preserve { set_times(times) } else { SetAttributes::default() };
        if self.copy.preserve || mode & 0o600 != 0o600 {
            attributes.mode = Some(mode);
        }
        attributes
    }
}
