//! A file under a temporary name, until it has its own.

use std::{mem::take, time::Duration};

use bytes::Bytes;
use nfs_wireless_client::{
    Client, Entry, Error, FileHandle, Metadata, NfsStatus, Placement, SetAttributes, UploadSpec,
};
use object_store::{PutResult, Result, path::Path};
use tokio::runtime::Handle;

use crate::{NfsObjectStore, STAGING, error::explain, locate::NameInDirectory};

/// How long it is tried to remove a temporary file that nobody wants, while somebody waits.
const CLEAN_UP_TIME: Duration = Duration::from_secs(2);

/// How long it is tried in the background.
const BACKGROUND_TIME: Duration = Duration::from_secs(60);

/// Temporary names that are tried: one is enough, unless the server says that all are taken.
const NAMES: u32 = 8;

/// A temporary name. It is removed when it is dropped before it is settled, if the server answers within a minute.
#[derive(Debug)]
pub(crate) struct Temporary {
    client: Client,
    directory: FileHandle,
    name: Vec<u8>,
    is_settled: bool,
}

impl Temporary {
    /// A new name. It is there before the call that takes it: when that is dropped, it may be done.
    pub(crate) fn new(client: &Client, directory: FileHandle) -> Self {
        Self { client: client.clone(), directory, name: temporary_name(), is_settled: false }
    }

    /// Evaluates the error of the call that was to take the name, which fails where a name is taken.
    ///
    /// # Errors
    /// That error, unless another name is to be tried, after so many.
    pub(crate) fn refused(mut self, error: Error, tried: u32) -> Result<(), Error> {
        // Then the name is another's, or was not taken. Any other refusal may be of a second attempt, and the first one was carried out.
        self.is_settled = is_taken(&error) || error.is_no_link();
        if is_taken(&error) && tried < NAMES { Ok(()) } else { Err(error) }
    }

    /// The name as the client takes it.
    pub(crate) fn name(&self) -> (FileHandle, &[u8]) {
        (self.directory, &self.name)
    }

    /// Leaves the name alone from now on.
    pub(crate) const fn settle(&mut self) {
        self.is_settled = true;
    }

    /// Removes the name, if the server answers soon; if not, later.
    pub(crate) async fn remove(&mut self) {
        let removing = self.client.remove(self.directory, &self.name);
        let removed = tokio::time::timeout(CLEAN_UP_TIME, removing).await;
        self.is_settled = removed.is_ok_and(|it| !matches!(&it, Err(error) if error.is_outcome_unknown()));
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let (client, directory, name) = (self.client.clone(), self.directory, take(&mut self.name));
            runtime.spawn(async move {
                let removing = client.remove(directory, &name);
                let _ = tokio::time::timeout(BACKGROUND_TIME, removing).await;
            });
        }
    }
}

/// A new file that nobody sees yet. It is removed when it is dropped before it is published.
#[derive(Debug)]
pub(crate) struct Staged {
    client: Client,
    location: Path,
    target: NameInDirectory,
    file: Entry,
    temporary: Temporary,
}

/// What happens where the target's name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The file there is replaced.
    Replace,
    /// It is an error.
    MustBeFree,
}

impl Staged {
    /// Makes an empty file beside the one that it is to become.
    pub(crate) async fn create(store: &NfsObjectStore, location: &Path) -> Result<Self> {
        let (client, location) = (store.client.clone(), location.clone());
        let target = store.make_place(&location).await?;
        let mode = SetAttributes { mode: Some(store.file_mode), ..SetAttributes::default() };
        let mut tried = 1;
        loop {
            let temporary = Temporary::new(&client, target.directory);
            match client.create_guarded(target.directory, &temporary.name, mode).await {
                Ok(file) => return Ok(Self { client, location, target, file, temporary }),
                Err(error) => temporary.refused(error, tried).map_err(|error| explain(error, &location))?,
            }
            tried += 1;
        }
    }

    /// Its file.
    pub(crate) const fn file(&self) -> Entry {
        self.file
    }

    /// Writes all its bytes to stable storage.
    pub(crate) async fn fill(&self, bytes: Bytes) -> Result<()> {
        let spec = UploadSpec::new(
            self.target.directory,
            self.target.name.clone(),
            Placement::Existing(self.file.handle),
            bytes.len() as u64,
        );
        let done = self.client.upload(spec, bytes, None).await;
        done.map(drop).map_err(|error| explain(error, &self.location))
    }

    /// Gives it its name. What fails leaves no temporary file behind, if the server answers.
    pub(crate) async fn publish(mut self, target: Target) -> Result<PutResult> {
        let Self { client, location, target: place, file, temporary } = &mut self;
        let named = match target {
            Target::Replace => client.rename(file.handle, temporary.name(), place.name()).await,
            Target::MustBeFree => client.hard_link_of((file.handle, 1), place.directory, &place.name).await,
        };
        match named {
            Ok(()) if target == Target::Replace => temporary.settle(),
            Ok(()) => temporary.remove().await,
            Err(error) => {
                let error = explain(error, location);
                temporary.remove().await;
                return Err(error);
            }
        }
        // It is there and stable: an ETag that cannot be had is no failure of it.
        let metadata = match target {
            Target::Replace => self.client.metadata(self.file.handle).await.ok(),
            // If LINK was done: it was the only name beside the one that is removed.
            Target::MustBeFree => match self.client.lookup(self.target.directory, &self.target.name).await {
                Ok(found) if found.handle == self.file.handle => Some(found.metadata),
                Err(error) if error.status() == Some(NfsStatus::NOENT) => {
                    let name = String::from_utf8_lossy(&self.target.name).into_owned();
                    return Err(explain(Error::NotLinked { name }, &self.location));
                }
                _ => self.client.metadata(self.file.handle).await.ok(),
            },
        };
        let e_tag = metadata.as_ref().map(Metadata::version_tag);
        Ok(PutResult { e_tag, version: None, extensions: Default::default() })
    }

    /// Removes it, if the server answers soon.
    pub(crate) async fn discard(mut self) {
        self.temporary.remove().await;
    }

    /// Removes it.
    pub(crate) async fn abort(mut self) -> Result<()> {
        let (directory, name) = self.temporary.name();
        let removed = self.client.remove(directory, name).await;
        if removed.is_ok() {
            self.temporary.settle();
        }
        removed.map_err(|error| explain(error, &self.location))
    }
}

/// A name that is nobody's.
fn temporary_name() -> Vec<u8> {
    format!("{STAGING}{:016x}", fastrand::u64(..)).into_bytes()
}

/// Whether a name is taken, as far as that is known.
fn is_taken(error: &Error) -> bool {
    matches!(error, Error::Status { status: NfsStatus::EXIST, .. })
}
