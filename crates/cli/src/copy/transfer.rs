//! One regular file, from beginning to end.

use nfs_wireless_client::{Client, FileHandle, NfsStatus, Placement, SetAttributes, UploadSpec};

use super::{
    Run,
    frame::Frame,
    node::{Attributes, Kind, Node, Origin, RemoteFile},
    place::{Place, Present, RemotePlace, set_times},
};
use crate::{
    error::{ResultExt, has_status, is_missing, local},
    exit::{Exit, Failure},
    local::{self as files, Directory, Part},
    name::temporary,
};

impl Run<'_> {
    /// Copies one file.
    pub(super) async fn file(
        &self,
        node: &Node,
        frame: &Frame,
        name: &[u8],
        is_named: bool,
    ) -> anyhow::Result<()> {
        let present = frame.place.present(name).await?;
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
        if !self.copy.dry_run {
            let mode = self.mode(node.attributes, present.as_ref());
            match (&node.origin, &frame.place) {
                (_, Place::Planned(_)) => {}
                (Origin::Remote(source), Place::Local { directory, .. }) => {
                    self.download(node, source, directory, name, mode, is_named).await?;
                }
                (Origin::Local(path), Place::Remote(place)) => {
                    let target = frame.place.show(name);
                    self.upload(node, path, place, name, mode, &target).await?;
                }
                (Origin::Remote(_) | Origin::Standard, Place::Remote(place)) => {
                    let target = frame.place.show(name);
                    self.relay(node, place, name, mode, &target).await?;
                }
                (Origin::Local(_) | Origin::Standard, Place::Local { .. }) => {
                    return Err(Failure::usage(format!("{node}: neither side is on a server")));
                }
            }
            if self.copy.verify {
                self.verify(node, &frame.place, name).await?;
            }
        }
        self.say("file", node, frame, name)
    }

    async fn download(
        &self,
        node: &Node,
        source: &RemoteFile,
        directory: &Directory,
        name: &[u8],
        mode: u32,
        is_named: bool,
    ) -> anyhow::Result<()> {
        let path = directory.join(name);
        let here = |error: std::io::Error| local(&path, &error);
        let part = if self.copy.inplace {
            Part::in_place(directory, name, mode | 0o600, is_named)
        } else {
            Part::beside(directory, name, mode | 0o600)
        };
        let part = part.map_err(here)?;
        if node.attributes.size > 0 {
            let writer = part.writer().map_err(here)?;
            let observer = Some(self.context.activity.observer());
            let moved = source.client.download(source.handle, node.attributes.size, writer, observer).await;
            if let Err(error) = moved {
                // After silence the part is worth keeping; after a refusal it will never be complete.
                if !error.is_silence() {
                    part.discard();
                }
                let at = if matches!(error, nfs_wireless_client::Error::Local(_)) {
                    files_name(&path)
                } else {
                    node.to_string()
                };
                return Err(error).at(at);
            }
        }
        let finished = self.finish(&part, node.attributes, mode);
        match finished {
            Ok(()) => part.finish().map_err(here),
            Err(error) => {
                part.discard();
                Err(here(error))
            }
        }
    }

    /// Sets what belongs to a complete local file.
    fn finish(&self, part: &Part, attributes: Attributes, mode: u32) -> std::io::Result<()> {
        if self.copy.preserve {
            part.set_owner(attributes.uid, attributes.gid);
        }
        part.set_mode(mode)?;
        if self.copy.preserve { part.set_times(attributes.times) } else { Ok(()) }
    }

    async fn upload(
        &self,
        node: &Node,
        path: &std::path::Path,
        place: &RemotePlace,
        name: &[u8],
        mode: u32,
        target: &str,
    ) -> anyhow::Result<()> {
        let source = match files::open_source(path, self.copy.follow) {
            Ok(source) => source,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Failure::with(
                    Exit::SourceMissing,
                    format!("{node}: removed before it was copied"),
                ));
            }
            Err(error) => return Err(local(path, &error)),
        };
        // The size of the file that was opened, in case it was replaced since it was listed.
        let size = source.metadata().map_err(|error| local(path, &error))?.len();
        let placement =
            if self.copy.inplace { Placement::InPlace } else { Placement::Temporary(temporary(name)) };
        let attributes = self.last_attributes(node, mode);
        let spec = UploadSpec {
            directory: place.handle,
            name: name.to_vec(),
            placement,
            size,
            mode: mode | 0o600,
            attributes,
        };
        let observer = Some(self.context.activity.observer());
        if let Err(error) = place.client.upload(spec, source, observer).await {
            let at = if matches!(error, nfs_wireless_client::Error::Local(_)) {
                node.to_string()
            } else {
                target.to_owned()
            };
            return Err(error).at(at);
        }
        if self.copy.preserve
            && self.context.session.may_give(&place.remote, node.attributes.uid, node.attributes.gid)
        {
            let entry = place.client.lookup(place.handle, name).await.at(target)?;
            self.give(place, entry.handle, node, mode).await?;
        }
        Ok(())
    }

    /// Copies a stream to a server: from another server, or from standard input.
    async fn relay(
        &self,
        node: &Node,
        place: &RemotePlace,
        name: &[u8],
        mode: u32,
        target: &str,
    ) -> anyhow::Result<()> {
        let RemotePlace { client, handle: directory, .. } = place;
        let working = if self.copy.inplace { name.to_vec() } else { temporary(name) };
        let file = create(client, *directory, &working, mode | 0o600).await.at(target)?;
        let filled = self.fill(node, client, file, target).await;
        let filled = match filled {
            Ok(_) => self.give_attributes(place, file, node, mode, target).await,
            Err(error) => Err(error),
        };
        let finished = match filled {
            Ok(()) if self.copy.inplace => Ok(()),
            Ok(()) => client.rename((*directory, &working), (*directory, name)).await.at(target),
            Err(error) => Err(error),
        };
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

/// Creates an empty file, or empties the one that is there.
async fn create(
    client: &Client,
    directory: FileHandle,
    name: &[u8],
    mode: u32,
) -> Result<FileHandle, nfs_wireless_client::Error> {
    let attributes = SetAttributes { mode: Some(mode), size: Some(0), ..SetAttributes::default() };
    match client.create(directory, name, attributes).await {
        // Some servers refuse to open what is there.
        Err(error) if has_status(&error, NfsStatus::EXIST) => match client.remove(directory, name).await {
            Err(error) if !is_missing(&error) => Err(error),
            _ => client.create(directory, name, attributes).await.map(|entry| entry.handle),
        },
        other => other.map(|entry| entry.handle),
    }
}

fn files_name(path: &std::path::Path) -> String {
    crate::error::show(path)
}
