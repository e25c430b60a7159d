//! Uploads in parts.

use std::{
    io::SeekFrom,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use nfs_wireless_client::File;
use object_store::{
    MultipartUpload, PutMultipartOptions, PutPayload, PutResult, Result, UploadPart, path::Path,
};
use tokio::io::{AsyncSeekExt as _, AsyncWriteExt as _};

use crate::{
    NfsObjectStore,
    error::Refusal,
    stage::{Staged, Target},
    write::explain_io,
};

/// An object in parts, each at its offset in a temporary file.
#[derive(Debug)]
struct Upload {
    store: NfsObjectStore,
    location: Path,
    /// The file, until the upload is complete or aborted.
    staged: Option<Staged>,
    /// Where the next part begins.
    offset: u64,
    /// Parts so far.
    parts: u64,
    /// Those that are on stable storage.
    stable: Arc<AtomicU64>,
}

/// Begins an upload: its temporary file is there when this returns.
pub(crate) async fn begin(
    store: &NfsObjectStore,
    location: &Path,
    options: &PutMultipartOptions,
) -> Result<Box<dyn MultipartUpload>> {
    if !options.attributes.is_empty() {
        return Err(store.not_implemented("`put_multipart_opts` with attributes"));
    }
    let staged = Some(Staged::create(store, location).await?);
    let (store, location, stable) = (store.clone(), location.clone(), Arc::default());
    Ok(Box::new(Upload { store, location, staged, offset: 0, parts: 0, stable }))
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let file = self.staged.as_ref().map(|staged| staged.file().handle);
        let (client, location) = (self.store.client.clone(), self.location.clone());
        let (offset, stable) = (self.offset, Arc::clone(&self.stable));
        self.offset += data.content_length() as u64;
        self.parts += 1;
        Box::pin(async move {
            let file = file.ok_or_else(|| Refusal::Ended.at(&location))?;
            let mut file = File::new(client, file);
            let written = async {
                file.seek(SeekFrom::Start(offset)).await?;
                for bytes in &data {
                    file.write_all(bytes).await?;
                }
                file.flush().await
            };
            written.await.map_err(|error| explain_io(error, &location))?;
            stable.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let staged = self.staged.take().ok_or_else(|| Refusal::Ended.at(&self.location))?;
        let missing = self.parts - self.stable.load(Ordering::Relaxed);
        if missing > 0 {
            staged.discard().await;
            return Err(Refusal::Incomplete { missing, parts: self.parts }.at(&self.location));
        }
        staged.publish(Target::Replace).await
    }

    async fn abort(&mut self) -> Result<()> {
        let staged = self.staged.take().ok_or_else(|| Refusal::Ended.at(&self.location))?;
        staged.abort().await
    }
}
