//! A store of `object_store` 0.14 for DataFusion 55, which is built on 0.13. It reads; what would write
//! is refused. It goes when DataFusion moves to 0.14.

use std::{fmt, ops::Range};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use nfs_object_store::NfsObjectStore;
use object_store::ObjectStore as _;
use object_store_013::{
    Attributes, CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    path::Path,
};

/// A store under the older trait.
#[derive(Debug)]
pub(crate) struct Bridge(pub(crate) NfsObjectStore);

impl fmt::Display for Bridge {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[async_trait]
impl ObjectStore for Bridge {
    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        Err(self.reads_only("put_opts"))
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(self.reads_only("put_multipart_opts"))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let found = self.0.get_opts(&new_path(location)?, new_options(options)).await.map_err(old_error)?;
        let (meta, range) = (old_meta(&found.meta)?, found.range.clone());
        let payload = GetResultPayload::Stream(found.into_stream().map_err(old_error).boxed());
        Ok(GetResult { payload, meta, range, attributes: Attributes::default() })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.0.get_ranges(&new_path(location)?, ranges).await.map_err(old_error)
    }

    fn delete_stream(&self, _: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        futures_util::stream::iter([Err(self.reads_only("delete_stream"))]).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match prefix.map(new_path).transpose() {
            Ok(prefix) => {
                let found = self.0.list(prefix.as_ref()).map_err(old_error);
                found.and_then(|meta| std::future::ready(old_meta(&meta))).boxed()
            }
            Err(error) => futures_util::stream::iter([Err(error)]).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let prefix = prefix.map(new_path).transpose()?;
        let found = self.0.list_with_delimiter(prefix.as_ref()).await.map_err(old_error)?;
        Ok(ListResult {
            common_prefixes: found.common_prefixes.iter().map(old_path).collect::<Result<_>>()?,
            objects: found.objects.iter().map(old_meta).collect::<Result<_>>()?,
        })
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(self.reads_only("copy_opts"))
    }
}

impl Bridge {
    fn reads_only(&self, operation: &str) -> Error {
        Error::NotImplemented { operation: operation.to_owned(), implementer: format!("{self}, read only") }
    }
}

fn new_path(path: &Path) -> Result<object_store::path::Path> {
    object_store::path::Path::parse(path)
        .map_err(|source| Error::Generic { store: "NFS", source: source.into() })
}

fn old_path(path: &object_store::path::Path) -> Result<Path> {
    Ok(Path::parse(path)?)
}

fn old_meta(meta: &object_store::ObjectMeta) -> Result<ObjectMeta> {
    Ok(ObjectMeta {
        location: old_path(&meta.location)?,
        last_modified: meta.last_modified,
        size: meta.size,
        e_tag: meta.e_tag.clone(),
        version: meta.version.clone(),
    })
}

fn new_options(options: GetOptions) -> object_store::GetOptions {
    let range = options.range.map(|range| match range {
        GetRange::Bounded(range) => object_store::GetRange::Bounded(range),
        GetRange::Offset(offset) => object_store::GetRange::Offset(offset),
        GetRange::Suffix(length) => object_store::GetRange::Suffix(length),
    });
    object_store::GetOptions::new()
        .with_if_match(options.if_match)
        .with_if_none_match(options.if_none_match)
        .with_if_modified_since(options.if_modified_since)
        .with_if_unmodified_since(options.if_unmodified_since)
        .with_range(range)
        .with_version(options.version)
        .with_head(options.head)
}

fn old_error(error: object_store::Error) -> Error {
    use object_store::Error as New;
    match error {
        New::NotFound { path, source } => Error::NotFound { path, source },
        New::Precondition { path, source } => Error::Precondition { path, source },
        New::NotModified { path, source } => Error::NotModified { path, source },
        New::PermissionDenied { path, source } => Error::PermissionDenied { path, source },
        New::Unauthenticated { path, source } => Error::Unauthenticated { path, source },
        New::NotImplemented { operation, implementer } => Error::NotImplemented { operation, implementer },
        New::NotSupported { source } => Error::NotSupported { source },
        other => Error::Generic { store: "NFS", source: other.into() },
    }
}
