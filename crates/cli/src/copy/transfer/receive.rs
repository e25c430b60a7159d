//! A file from a server to this machine.

use std::io;

use nfs_wireless_client::{self as client, Metadata, RangeSet, TransferError};

use super::{Attempt, MAX_VERSIONS, Target, differ, keeps_changing, transfer_error};
use crate::{
    copy::{
        Run,
        node::{Attributes, Node, RemoteFile},
        place::Name,
        resume::{Receiving, SMALL_BYTES},
    },
    error::{ResultExt, full, io_text, is_full, local, show},
    exit::Exit,
    local::{Part, Writer},
    name::journal,
};

impl Run<'_> {
    /// Copies a file from a server; returns the attributes of the copy.
    pub(super) async fn download(
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
        let Target { directory, name, mode, share } = target;
        share.begin(attributes.size);
        let path = directory.join(name);
        let here = |error: io::Error| local(&path, &error);
        let is_large = attributes.size > SMALL_BYTES;
        let resumes = is_large && self.copy.resume && !self.copy.inplace;
        if resumes && Receiving::is_complete(directory, name, attributes.identity()).map_err(here)? {
            let _ = directory.remove(&journal(name));
            self.say_resumed(node, &Name::local(&path), attributes.size, share)?;
            return self.copied(target);
        }
        let part = if self.copy.inplace {
            Part::in_place(directory, name, mode | 0o600)
        } else {
            Part::beside(directory, name, mode | 0o600)
        };
        let part = part.map_err(here)?;
        let moved = if resumes {
            self.fetch_missing(node, attributes, source, target, &part).await?
        } else {
            self.fetch_all(attributes, source, target, &part).await?
        };
        match moved {
            // The replies have told that it is the same file still.
            Ok(Some(told)) if !differ(&Attributes::from(&told), &attributes) => {}
            Ok(_) | Err(client::Error::Transfer(TransferError::SourceShrank { .. })) if is_large => {
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
                return Err(transfer_error(error, &path, &node.to_string()));
            }
            return Err(match error {
                client::Error::Local(error) if is_full(&error) => {
                    let used = part.used().unwrap_or(0);
                    full(Exit::LocalIo, show(&path), io_text(&error), show(&part.path()), used)
                }
                error => transfer_error(error, &path, &node.to_string()),
            });
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

    /// Fetches what the journal beside the target says is missing, and keeps that journal.
    async fn fetch_missing(
        &self,
        node: &Node,
        attributes: Attributes,
        source: &RemoteFile,
        Target { directory, name, share, .. }: Target<'_>,
        part: &Part,
    ) -> anyhow::Result<Result<Option<Metadata>, client::Error>> {
        let path = directory.join(name);
        let here = |error: io::Error| local(&path, &error);
        let receiving = Receiving::open(directory, name, part, attributes.identity()).map_err(here)?;
        if receiving.source_changed {
            self.say_changed(node);
        }
        self.say_resumed(node, &Name::local(&path), receiving.had.bytes(), share)?;
        let missing = receiving.had.missing(attributes.size);
        let sink = receiving.sink(self.writer(part, attributes, &missing).map_err(here)?);
        let observer = Some(share.observer());
        let moved = tokio::select! {
            moved = source.client.download_ranges(source.handle, missing, sink, observer) => moved,
            error = receiving.flush() => return Err(here(error)),
        };
        receiving.record();
        Ok(moved)
    }

    /// Fetches a file from its beginning, without a journal.
    async fn fetch_all(
        &self,
        attributes: Attributes,
        source: &RemoteFile,
        Target { directory, name, share, .. }: Target<'_>,
        part: &Part,
    ) -> anyhow::Result<Result<Option<Metadata>, client::Error>> {
        let path = directory.join(name);
        let here = |error: io::Error| local(&path, &error);
        // No journal may claim anything of the file that is begun here, or outlast it.
        directory.remove(&journal(name)).map_err(here)?;
        part.clear().map_err(here)?;
        if attributes.size == 0 {
            return Ok(Ok(None));
        }
        let writer =
            self.writer(part, attributes, &RangeSet::new().missing(attributes.size)).map_err(here)?;
        let observer = Some(share.observer());
        Ok(source.client.download(source.handle, attributes.size, writer, observer).await)
    }

    /// Returns what writes the missing ranges of a file.
    fn writer(&self, part: &Part, attributes: Attributes, missing: &RangeSet) -> io::Result<Writer> {
        if attributes.wants_holes(self.copy.sparse) {
            Writer::sparse(part.writer()?, missing, attributes.size)
        } else {
            Ok(Writer::new(part.writer()?))
        }
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
}
