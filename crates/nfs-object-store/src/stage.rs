//! A file under a temporary name, until it has its own.

use std::{mem::take, time::Duration};

use bytes::Bytes;
use nfs_wireless_client::{Client, Entry, Error, Metadata, NfsStatus, Placement, SetAttributes, UploadSpec};
use object_store::{PutResult, Result, path::Path};
use tokio::runtime::Handle;

use crate::{
    NfsObjectStore,
    error::explain,
    locate::{Place, STAGING},
};

/// How long it is tried to remove a temporary file that nobody wants.
const CLEAN_UP_TIME: Duration = Duration::from_secs(2);

/// Temporary names that are tried: one is enough, unless the server says that all are taken.
pub(crate) const NAMES: u32 = 8;

/// A new file that nobody sees yet. It is removed when it is dropped before it is published.
#[derive(Debug)]
pub(crate) struct Staged {
    client: Client,
    location: Path,
    target: Place,
    file: Entry,
    /// Its temporary name.
    name: Vec<u8>,
    /// The temporary name is no more.
    settled: bool,
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
        let mut attempt = 1;
        loop {
            let name = temporary_name();
            match client.create_guarded(target.directory, &name, mode).await {
                Ok(file) => return Ok(Self { client, location, target, file, name, settled: false }),
                Err(error) if is_taken(&error) && attempt < NAMES => attempt += 1,
                Err(error) => return Err(explain(error, &location)),
            }
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
        let Self { client, location, target: place, file, name, .. } = &self;
        let temporary = (place.directory, &name[..]);
        let named = match target {
            Target::Replace => client.rename(file.handle, temporary, place.name()).await,
            Target::MustBeFree => client.hard_link(file.handle, place.directory, &place.name).await,
        };
        match named {
            Ok(()) if target == Target::Replace => self.settled = true,
            Ok(()) => self.remove_name().await,
            Err(error) => {
                let error = explain(error, location);
                self.remove_name().await;
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
        self.remove_name().await;
    }

    /// Removes it.
    pub(crate) async fn abort(mut self) -> Result<()> {
        self.settled = true;
        let removed = self.client.remove(self.target.directory, &self.name).await;
        removed.map_err(|error| explain(error, &self.location))
    }

    async fn remove_name(&mut self) {
        remove(self.client.clone(), self.target.clone(), self.name.clone()).await;
        self.settled = true;
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(remove(self.client.clone(), self.target.clone(), take(&mut self.name)));
        }
    }
}

/// Removes a temporary name, if the server answers soon.
pub(crate) async fn remove(client: Client, place: Place, name: Vec<u8>) {
    let _ = tokio::time::timeout(CLEAN_UP_TIME, client.remove(place.directory, &name)).await;
}

/// A name that is nobody's.
pub(crate) fn temporary_name() -> Vec<u8> {
    format!("{STAGING}{:016x}", fastrand::u64(..)).into_bytes()
}

/// Whether a name is taken, as far as that is known.
pub(crate) fn is_taken(error: &Error) -> bool {
    matches!(error, Error::Status { status: NfsStatus::EXIST, .. })
}
