//! SQL over Parquet files on an NFS server, with DataFusion.

#![forbid(unsafe_code)]

mod bridge;

use std::sync::Arc;

use datafusion::{error::Result, prelude::SessionContext};
use nfs_object_store::NfsObjectStore;
use url::Url;

/// The URL that a store is registered under: tables lie below it.
pub const ROOT: &str = "nfs://store/";

/// A DataFusion session that reads what lies below the root of a store.
///
/// # Errors
/// Never: the URL is one.
pub fn session(store: NfsObjectStore) -> Result<SessionContext> {
    let url = Url::parse(ROOT).map_err(|error| datafusion::error::DataFusionError::External(error.into()))?;
    let context = SessionContext::new();
    context.register_object_store(&url, Arc::new(bridge::Bridge(store)));
    Ok(context)
}
