//! Objects that come, go and get other names.

use futures_util::TryStreamExt as _;
use nfs_wireless_client::{Entry, Error, File, NfsStatus, Procedure};
use object_store::{
    CopyMode, PutMode, PutOptions, PutPayload, PutResult, RenameTargetMode, Result, path::Path,
};
use tokio::io::AsyncWriteExt as _;

use crate::{
    NfsObjectStore,
    error::explain,
    locate::NameInDirectory,
    read::pieces,
    stage::{Staged, Target, Temporary},
};

impl NfsObjectStore {
    pub(crate) async fn put_object(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let target = match options.mode {
            PutMode::Overwrite => Target::Replace,
            PutMode::Create => Target::MustBeFree,
            PutMode::Update(_) => return Err(self.not_implemented("`put_opts` with mode `PutMode::Update`")),
        };
        if !options.attributes.is_empty() {
            return Err(self.not_implemented("`put_opts` with attributes"));
        }
        let staged = Staged::create(self, location).await?;
        match staged.fill(payload.into()).await {
            Ok(()) => staged.publish(target).await,
            Err(error) => {
                staged.discard().await;
                Err(error)
            }
        }
    }

    pub(crate) async fn delete_object(&self, location: &Path) -> Result<()> {
        let (place, _) = self.object(location).await?;
        let removed = self.client.remove(place.directory, &place.name).await;
        removed.map_err(|error| explain(error, location))
    }

    pub(crate) async fn copy_object(&self, from: &Path, to: &Path, mode: CopyMode) -> Result<()> {
        let (_, source) = self.object(from).await?;
        if from == to && mode == CopyMode::Overwrite {
            return Ok(());
        }
        if from == to {
            return Err(taken(to));
        }
        let place = self.make_place(to).await?;
        let (linked, target) = match mode {
            CopyMode::Create => {
                // Others may copy the same object to the same place.
                let file = (source.handle, source.metadata.links);
                let linked = self.client.hard_link_first(file, place.directory, &place.name).await;
                (linked, Target::MustBeFree)
            }
            CopyMode::Overwrite => (self.link_over(&source, &place).await, Target::Replace),
        };
        match linked {
            Err(error) if error.is_no_link() => self.copy_bytes(source, from, to, target).await,
            linked => linked.map_err(|error| explain(error, to)),
        }
    }

    pub(crate) async fn rename_object(&self, from: &Path, to: &Path, mode: RenameTargetMode) -> Result<()> {
        let (source, entry) = self.object(from).await?;
        if from == to && mode == RenameTargetMode::Overwrite {
            return Ok(());
        }
        if from == to {
            return Err(taken(to));
        }
        let place = self.make_place(to).await?;
        match mode {
            RenameTargetMode::Overwrite => {
                let is_same = self.is_file_of(&entry, &place).await.map_err(|error| explain(error, to))?;
                let renamed = self.client.rename(entry.handle, source.name(), place.name()).await;
                renamed.map_err(|error| explain(error, to))?;
                // RENAME does nothing where both names are the same file's (RFC 1813 §3.3.14).
                if is_same {
                    let removed = self.client.remove_if(entry.handle, source.directory, &source.name).await;
                    removed.map_err(|error| explain(error, from))?;
                }
            }
            RenameTargetMode::Create => {
                let file = (entry.handle, entry.metadata.links);
                let linked = self.client.hard_link_first(file, place.directory, &place.name).await;
                linked.map_err(|error| explain(error, to))?;
                let left = self.client.leave_old_name(entry.handle, source.name(), place.name()).await;
                // It was moved or removed meanwhile.
                let is_gone = |error: &Error| error.status() == Some(NfsStatus::NOENT);
                left.map_err(
                    |error| if is_gone(&error) { explain(error, from) } else { explain(error, to) },
                )?;
            }
        }
        Ok(())
    }

    /// Whether a name is one more of a file that may have several.
    async fn is_file_of(&self, file: &Entry, place: &NameInDirectory) -> Result<bool, Error> {
        if file.metadata.links < 2 {
            return Ok(false);
        }
        let number = |it: &Entry| (it.metadata.fsid, it.metadata.fileid);
        match self.client.lookup(place.directory, &place.name).await {
            // Some servers give one file several handles.
            Ok(there) => Ok(there.handle == file.handle || number(&there) == number(file)),
            Err(error) if error.status() == Some(NfsStatus::NOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Gives a file another name, which may be another file's.
    async fn link_over(&self, source: &Entry, place: &NameInDirectory) -> Result<(), Error> {
        let (client, file) = (&self.client, (source.handle, source.metadata.links));
        let mut tried = 1;
        let mut temporary = loop {
            let temporary = Temporary::new(client, place.directory);
            match client.hard_link_of(file, place.directory, temporary.name().1).await {
                Ok(()) => break temporary,
                Err(error) => temporary.refused(error, tried)?,
            }
            tried += 1;
        };
        let renamed = client.rename(source.handle, temporary.name(), place.name()).await;
        // Also after a RENAME that did nothing, as both names were the file's already.
        temporary.remove().await;
        renamed
    }

    /// Copies the bytes of one version of a file.
    async fn copy_bytes(&self, source: Entry, from: &Path, to: &Path, target: Target) -> Result<()> {
        let staged = Staged::create(self, to).await?;
        let mut bytes = pieces(self.client.clone(), from.clone(), source, 0..source.metadata.size);
        let mut writer = File::new(self.client.clone(), staged.file().handle);
        let copied = async {
            while let Some(piece) = bytes.try_next().await? {
                writer.write_all(&piece).await.map_err(|error| explain_io(error, to))?;
            }
            writer.flush().await.map_err(|error| explain_io(error, to))
        };
        if let Err(error) = copied.await {
            staged.discard().await;
            return Err(error);
        }
        staged.publish(target).await.map(drop)
    }

    pub(crate) fn not_implemented(&self, operation: &str) -> object_store::Error {
        object_store::Error::NotImplemented { operation: operation.to_owned(), implementer: self.to_string() }
    }
}

/// What LINK says of a name that is taken.
fn taken(location: &Path) -> object_store::Error {
    let (procedure, status) = (Procedure::Link, NfsStatus::EXIST);
    explain(Error::Status { procedure, status }, location)
}

/// What a `File` says is the client's error.
pub(crate) fn explain_io(error: std::io::Error, location: &Path) -> object_store::Error {
    match error.downcast::<Error>() {
        Ok(error) => explain(error, location),
        Err(error) => explain(Error::Local(error.into()), location),
    }
}
