//! A file from a server to this machine.

use std::{
    cell::Cell,
    fs::File,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use nfs_wireless_client::{self as client, Metadata, RangeSet, Sink, TransferError};
use tokio::io::{AsyncSeekExt, AsyncWriteExt};

use super::{
    Attempt, Copied, MAX_VERSIONS, MOST_DECISIONS, Replaces, SET_ID_IS_LEFT_OUT, Target,
    changes_all_the_time, for_any_group, keeps_changing, mode_now, narrowed, transfer_error,
};
use crate::{
    copy::{
        Run,
        destination::Present,
        file::{
            stream::Filled,
            verify::Digest,
            version::{Pieces, Since, Told, WHOLE_BYTES, told},
        },
        resume::{Left, Receiving, SMALL_BYTES},
        source::{Attributes, Kind, Node, RemoteFile, SET_ID},
        written::Which,
    },
    error::{Partial, Result, ResultExt, full_disk, io_text, is_full, local, show},
    event::{Name, Warning},
    local::{Directory, Named, Part, Writer},
    name::journal,
};

/// Bytes of a file of size 0 that are asked for, to see whether it has any.
const FIRST_BYTES: u32 = 512;

/// Takes the bytes of a download, and notices whether the file has changed since its attributes were told.
struct Comparing {
    writer: Writer,
    before: Attributes,
    differs: Arc<AtomicBool>,
}

impl Sink for Comparing {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_at(offset, bytes)
    }

    fn told(&mut self, attributes: Option<Metadata>) {
        let version = |it: &Attributes| (it.size, it.times.modified, it.changed);
        if attributes.is_some_and(|it| version(&Attributes::from(&it)) != version(&self.before)) {
            self.differs.store(true, Ordering::Relaxed);
        }
    }
}

impl Run<'_> {
    /// Copies a file from a server; returns the attributes of the copy.
    pub(super) async fn download(
        &self,
        node: &Node,
        mut attributes: Attributes,
        source: &RemoteFile,
        target: Target<'_>,
    ) -> Result<Copied> {
        let mut is_its_size = true;
        for _ in 0..MAX_VERSIONS {
            match self.receive(node, attributes, source, target, is_its_size).await? {
                Attempt::Complete(copied) => return Ok(*copied),
                Attempt::Changed(now) => attributes = now,
                Attempt::IsNotItsSize => is_its_size = false,
                Attempt::NotKept(_) | Attempt::IsTaken => {}
            }
        }
        Err(keeps_changing(node))
    }

    async fn receive(
        &self,
        node: &Node,
        mut attributes: Attributes,
        source: &RemoteFile,
        target: Target<'_>,
        is_its_size: bool,
    ) -> Result<Attempt> {
        let Target { directory, name, share, target_directory, .. } = target;
        // They may have changed since the file was listed.
        let mut mode = mode_now(self.copy, target.mode, &node.attributes, &attributes);
        if !self.copy.preserve && !target.replaces.get().was_there() {
            mode &= directory.most_mode();
        }
        share.begin(attributes.size);
        let path = directory.join(name);
        let here = |error: io::Error| local(&path, &error);
        // Until it has its owner and group, those of the directory are not to read it.
        let part_mode = match mode {
            mode if self.copy.preserve => mode & 0o700,
            mode if self.narrows(target.replaces.get()) => {
                let list = directory.list(name);
                for_any_group(list.map_or(mode, |list| list.of_all(mode)))
            }
            mode => mode,
        };
        let part_mode = part_mode | 0o600;
        let left = if self.copy.inplace && target_directory.may_have_journals() {
            Left::find(directory, name, (|| self.key(), &self.tags)).map_err(here)?
        } else {
            None
        };
        let is_large = attributes.size > SMALL_BYTES;
        let keeps = is_large && is_its_size && self.copy.resume && !self.copy.inplace;
        let key = if keeps { self.key() } else { None };
        if key.is_some() {
            target_directory.note_journal();
        }
        let identity = attributes.identity();
        let open = |key| Receiving::open(directory, name, part_mode, identity, (key, &self.tags));
        let kept = key.map(open);
        let (receiving, part) = match kept {
            Some(Ok((receiving, part))) => (Some(receiving), part),
            Some(Err(error)) if error.kind() != io::ErrorKind::AlreadyExists => return Err(here(error)),
            _ if self.copy.inplace => match self.open_in_place(node, target, part_mode).await? {
                Some(part) => (None, part),
                None => return Ok(Attempt::Complete(Box::new(Copied::left()))),
            },
            kept => {
                if kept.is_some() {
                    // Somebody else has put something there that stays.
                    self.warn(Warning::JournalIsTaken(&Name::local(&directory.join(&journal(name)))));
                }
                if target_directory.may_have_journals() {
                    Receiving::remove_left(directory, name).map_err(here)?;
                }
                let part = Part::beside(directory, name, part_mode, None, || self.tags.temporary(name));
                (None, part.map_err(here)?)
            }
        };
        let mut was = None;
        let differs = Arc::<AtomicBool>::default();
        let moved = if let Some(receiving) = &receiving {
            self.fetch_missing(node, attributes, source, target, (receiving, &part)).await?
        } else if is_its_size {
            self.fetch_all(attributes, source, target, &part, &differs).await?
        } else {
            match self.fetch_stream(node, attributes, source, &part, &path).await {
                Ok(Filled::Complete(digest)) => was = Some(*digest),
                Ok(Filled::Changed(now)) => {
                    part.discard();
                    return Ok(Attempt::Changed(now));
                }
                Err(error) => {
                    part.discard();
                    return Err(error);
                }
            }
            Ok(None)
        };
        let has_shrunk = matches!(moved, Err(client::Error::Transfer(TransferError::SourceShrank { .. })));
        // The replies may have told that it is the same file still.
        let is_same = |it: &Metadata| told(&Attributes::from(it), &attributes) == Told::Is(Since::Same);
        let is_doubtful = has_shrunk
            || is_its_size && differs.load(Ordering::Relaxed)
            || is_large && is_its_size && matches!(&moved, Ok(told) if !told.as_ref().is_some_and(is_same));
        if is_doubtful {
            let metadata = source.client.metadata(source.handle).await.at(node)?;
            let now = Attributes::of_source(&source.remote, &metadata);
            let since = self.since(source, (&now, &attributes), &part).await;
            match since.map_err(|error| transfer_error(error, &path, &node.to_string()))? {
                // Nothing of it has changed, and it ends before its size: so do files that lie on no disk. Of others a part is missing, unless
                // they have bytes and no size.
                Since::Same if has_shrunk && (metadata.used == 0 || attributes.size == 0) => {
                    return Ok(Attempt::IsNotItsSize);
                }
                Since::Same => {}
                // Its listing may be long ago, and a short copy is soon made again.
                Since::Grew if !is_large && attributes == node.attributes => {
                    return Ok(Attempt::Changed(now));
                }
                Since::Grew if !has_shrunk => self.say_grew(node, attributes.size),
                Since::Grew | Since::Changed => return Ok(Attempt::Changed(now)),
            }
            mode = mode_now(self.copy, mode, &attributes, &now);
            attributes = attributes.with_rights_of(&now);
        }
        if let Err(error) = moved {
            // What was large enough to be kept track of is worth keeping; the rest only until the server answers again.
            if !is_large && !error.is_silence() {
                part.discard();
                return Err(transfer_error(error, &path, &node.to_string()));
            }
            return Err(match error {
                // What is written in place is the user's own.
                client::Error::Local(error) if is_full(&error) && !self.copy.inplace => {
                    let used = part.used().unwrap_or(0);
                    let partial = Partial { name: show(&part.path()), bytes: used, is_local: true };
                    full_disk(&path, &error, partial)
                }
                error => transfer_error(error, &path, &node.to_string()),
            });
        }
        // What it replaces may have a narrower one by now, and another group.
        self.finish(&part, attributes, if self.narrows(target.replaces.get()) { part_mode } else { mode });
        let copy = part.writer();
        let is_named = self.give_name(node, part, Target { mode, ..target }).await?;
        if let Some(receiving) = receiving {
            receiving.finish(directory, name);
        }
        if let Some(left) = left {
            left.remove(directory, name);
        }
        if !is_named {
            return Ok(Attempt::Complete(Box::new(Copied::left())));
        }
        let length = was.is_none().then_some(attributes.size);
        self.copied(target, copy, was, length)
    }

    /// As [`open_in_place`], and decides again about what has the name if that is another than before; `None` if it stays, which was said.
    async fn open_in_place(&self, node: &Node, target: Target<'_>, mode: u32) -> Result<Option<Part>> {
        let Target { directory, name, target_directory, replaces, .. } = target;
        let mut kept = target.opened.borrow().as_ref().map(Part::again);
        for _ in 0..MOST_DECISIONS {
            let opened = match kept.take() {
                Some(part) => Ok(Some(part)),
                None => open_in_place(directory, name, mode, replaces),
            };
            let here = |error: io::Error| local(&directory.join(name), &error);
            if let Some(part) = opened.map_err(here)? {
                let number = part.number().map_err(here)?;
                self.written.claim(Which::Local(number), &target_directory.location.show(name))?;
                *target.opened.borrow_mut() = Some(part.again());
                return Ok(Some(part));
            }
            if !self.decide_again(node, target_directory, name, replaces).await? {
                return Ok(None);
            }
        }
        Err(changes_all_the_time(target_directory.location.show(name)))
    }

    /// Gives a complete file its name, unless that leads to one that another source has become; false if something has it that is not
    /// to be replaced.
    async fn give_name(&self, node: &Node, mut part: Part, target: Target<'_>) -> Result<bool> {
        let Target { directory, name, mode, target_directory, .. } = target;
        let here = |error: io::Error| local(&directory.join(name), &error);
        let (_, made) = part.number().map_err(here)?;
        for _ in 0..MOST_DECISIONS {
            let replaces = target.replaces.get();
            let mut named =
                if replaces.was_there() { Named::Unknown } else { part.finish_new().map_err(here)? };
            if named == Named::Unknown && replaces.is_nothing() {
                named = part.finish_linked().map_err(here)?;
            }
            if named == Named::Yes {
                target_directory.given().add_made(made, name);
                return Ok(true);
            }
            let there = directory.stat(name).map_err(here)?;
            if !self.copy.inplace {
                match (replaces, there) {
                    // It is gone: nothing is to lose the name to this copy now.
                    (Replaces::Only(_), None) => {
                        target.replaces.set(Replaces::Nothing);
                        continue;
                    }
                    (Replaces::Nothing, None) if named == Named::Taken => continue,
                    (_, there) if !replaces.may_replace(there.as_ref().map(Present::local).as_ref()) => {
                        match self.decide_again(node, target_directory, name, target.replaces).await {
                            Ok(true) => continue,
                            stays => {
                                part.discard();
                                return stays;
                            }
                        }
                    }
                    _ => {}
                }
            }
            // The types of the fields differ from system to system.
            #[allow(clippy::unnecessary_cast)]
            let other = there.and_then(|there| target_directory.given().made_as(there.st_ino as u64, name));
            if let Some(other) = other
                && let Err(error) = self.refuse_if_one(&target_directory.location, name, &other).await
            {
                part.discard();
                return Err(error);
            }
            if !self.copy.preserve && !self.copy.inplace {
                let replaced = there.filter(|it| Kind::from(it) == Kind::File);
                let group = part.group().map_err(here)?;
                let set = match replaced {
                    Some(it) => part.set_mode_of(&it, narrowed(mode, group, &Attributes::from(&it))),
                    None => part.set_mode(mode),
                };
                if let Err(error) = set {
                    self.say_not_kept(io_text(&error));
                }
            }
            part.finish().map_err(here)?;
            target_directory.given().add_made(made, name);
            return Ok(true);
        }
        part.discard();
        Err(changes_all_the_time(target_directory.location.show(name)))
    }

    /// Returns what has become of a source, of which `part` has what it had before.
    async fn since(
        &self,
        source: &RemoteFile,
        (now, before): (&Attributes, &Attributes),
        part: &Part,
    ) -> Result<Since, client::Error> {
        match told(now, before) {
            Told::Is(since) => Ok(since),
            // Pieces do not tell what was overwritten between them, and nothing else tells it.
            Told::IfSame(Since::Same) if before.size > WHOLE_BYTES => Ok(Since::Changed),
            Told::IfSame(since) => {
                let part = part.writer();
                let there = Pieces::Remote(&source.client, source.handle);
                let is_same = Pieces::Local(&part).are_same(&there, before.size).await?;
                Ok(if is_same { since } else { Since::Changed })
            }
        }
    }

    /// Fetches a file from its beginning to its end, wherever that is.
    async fn fetch_stream(
        &self,
        node: &Node,
        attributes: Attributes,
        source: &RemoteFile,
        part: &Part,
        path: &Path,
    ) -> Result<Filled> {
        let here = |error: io::Error| local(path, &error);
        part.clear().map_err(here)?;
        let mut sink = tokio::fs::File::from_std(part.writer().try_clone().map_err(here)?);
        sink.rewind().await.map_err(here)?;
        let filled = self.drain(node, attributes, source, &mut sink).await?;
        sink.flush().await.map_err(here)?;
        Ok(filled)
    }

    /// Fetches what the journal beside the target says is missing, and keeps that journal.
    async fn fetch_missing(
        &self,
        node: &Node,
        attributes: Attributes,
        source: &RemoteFile,
        Target { directory, name, share, .. }: Target<'_>,
        (receiving, part): (&Receiving, &Part),
    ) -> Result<Result<Option<Metadata>, client::Error>> {
        let path = directory.join(name);
        let here = |error: io::Error| local(&path, &error);
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
        differs: &Arc<AtomicBool>,
    ) -> Result<Result<Option<Metadata>, client::Error>> {
        let path = directory.join(name);
        let here = |error: io::Error| local(&path, &error);
        part.clear().map_err(here)?;
        if attributes.size == 0 {
            // Some file systems do not know how long their files are before they are read.
            return Ok(match source.client.read(source.handle, 0, FIRST_BYTES).await {
                Ok((bytes, _)) if bytes.is_empty() => Ok(None),
                Ok(_) => Err(TransferError::SourceShrank { expected: 0, found: 0 }.into()),
                Err(error) => Err(error),
            });
        }
        let writer =
            self.writer(part, attributes, &RangeSet::new().missing(attributes.size)).map_err(here)?;
        let observer = Some(share.observer());
        let sink = Comparing { writer, before: attributes, differs: Arc::clone(differs) };
        Ok(source.client.download(source.handle, attributes.size, sink, observer).await)
    }

    /// Returns what writes the missing ranges of a file.
    fn writer(&self, part: &Part, attributes: Attributes, missing: &RangeSet) -> io::Result<Writer> {
        if attributes.wants_holes(self.copy.sparse) {
            Writer::sparse(part.writer(), missing, attributes.size)
        } else {
            Ok(Writer::new(part.writer()))
        }
    }

    /// Looks at a complete copy on this machine, if anybody wants to know; its name may stand for another file by now.
    fn copied(
        &self,
        Target { directory, name, .. }: Target<'_>,
        copy: Arc<File>,
        was: Option<Digest>,
        length: Option<u64>,
    ) -> Result<Attempt> {
        let attributes = match self.done {
            None => None,
            Some(_) => Some(copy.metadata().map_err(|error| local(&directory.join(name), &error))?),
        };
        let attributes = attributes.as_ref().map(Attributes::from);
        Ok(Attempt::Complete(Box::new(Copied { was, length, attributes, file: Some(copy), is_left: false })))
    }

    /// Sets what belongs to a complete local file, as far as its file system keeps that.
    fn finish(&self, part: &Part, attributes: Attributes, mode: u32) {
        let mut mode = mode;
        if self.copy.preserve {
            let _ = part.remove_list();
            part.set_owner(attributes.uid, attributes.gid);
            // Who runs it is to get the rights of nobody else than of its owner there.
            if mode & SET_ID != 0 && !part.is_owned_by(attributes.uid, attributes.gid) {
                mode &= !SET_ID;
                self.say_not_kept(SET_ID_IS_LEFT_OUT);
            }
        }
        // What was there keeps its mode: somebody may have changed it since.
        let keeps_mode = !self.copy.preserve && part.has_own_mode().unwrap_or(true);
        let mut set = if keeps_mode { Ok(()) } else { part.set_mode(mode) };
        if self.copy.preserve {
            set = part.set_times(attributes.times).and(set);
        }
        if let Err(error) = set {
            self.say_not_kept(io_text(&error));
        }
    }
}

/// Opens what has the name of a file, or makes that, if it may be overwritten; it is this run's then.
fn open_in_place(
    directory: &Directory,
    name: &[u8],
    mode: u32,
    replaces: &Cell<Replaces>,
) -> io::Result<Option<Part>> {
    for _ in 0..MOST_DECISIONS {
        let now = replaces.get();
        let part = match Part::in_place(directory, name, mode, !now.was_there()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match now {
                Replaces::Anything { .. } => {
                    replaces.set(Replaces::Anything { was_there: true });
                    continue;
                }
                Replaces::Nothing | Replaces::Only(_) => return Ok(None),
            },
            Err(error) if now.was_there() && error.kind() == io::ErrorKind::NotFound => {
                replaces.set(match now {
                    Replaces::Anything { .. } => Replaces::Anything { was_there: false },
                    Replaces::Nothing | Replaces::Only(_) => Replaces::Nothing,
                });
                continue;
            }
            part => part?,
        };
        if now.was_there() && !now.may_replace(Some(&Present::local(&part.stat()?))) {
            return Ok(None);
        }
        replaces.set(Replaces::Anything { was_there: true });
        return Ok(Some(part));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_in_place_is_what_it_was() {
        type Change = fn(&Path);
        let changes: [(&str, Change, [bool; 3]); 4] = [
            ("nothing", |_| {}, [true, false, true]),
            ("other bytes", |path| std::fs::write(path, "another").unwrap(), [true, false, false]),
            (
                "another file",
                |path| {
                    std::fs::write(path.with_file_name("b"), "old").unwrap();
                    std::fs::rename(path.with_file_name("b"), path).unwrap();
                },
                [true, false, false],
            ),
            ("gone", |path| std::fs::remove_file(path).unwrap(), [true; 3]),
        ];
        for (what, change, expected) in changes {
            for (index, is_opened) in expected.into_iter().enumerate() {
                let location = tempfile::tempdir().unwrap();
                let (directory, path) =
                    (Directory::open(location.path()).unwrap(), location.path().join("a"));
                std::fs::write(&path, "old").unwrap();
                let was = Present::local(&directory.stat(b"a").unwrap().unwrap());
                change(&path);
                let there = std::fs::read(&path).unwrap_or_default();
                let replaces = [
                    Replaces::Anything { was_there: true },
                    Replaces::Nothing,
                    Replaces::Only((&was).into()),
                ][index];
                let replaces = Cell::new(replaces);
                let part = open_in_place(&directory, b"a", 0o644, &replaces).unwrap();
                assert_eq!(part.is_some(), is_opened, "{what} {replaces:?}");
                assert_eq!(
                    matches!(replaces.get(), Replaces::Anything { .. }),
                    is_opened,
                    "{what} {replaces:?}"
                );
                assert_eq!(std::fs::read(&path).unwrap(), there, "{what}");
            }
        }
    }
}
