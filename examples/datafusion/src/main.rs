//! Runs one SQL statement over the Parquet files of a directory: `nfsw-datafusion HOST DIRECTORY SQL`.
//! In the statement the directory is the table `files`.

use std::{env, error::Error};

use datafusion::prelude::ParquetReadOptions;
use nfs_object_store::NfsObjectStore;
use nfs_wireless_client::ClientConfig;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [host, directory, sql] = &arguments[..] else {
        return Err("usage: nfsw-datafusion HOST DIRECTORY SQL".into());
    };
    let store = NfsObjectStore::connect(host, directory.as_bytes(), ClientConfig::default()).await?;
    let context = nfsw_datafusion::session(store)?;
    context.register_parquet("files", nfsw_datafusion::ROOT, ParquetReadOptions::default()).await?;
    context.sql(sql).await?.show().await?;
    Ok(())
}
