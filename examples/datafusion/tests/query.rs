//! A query over two Parquet files on the embedded server.

use std::{sync::Arc, time::Instant};

use datafusion::{
    arrow::{
        array::{ArrayRef, AsArray as _, Int64Array, RecordBatch, StringArray},
        datatypes::Int64Type,
    },
    parquet::arrow::ArrowWriter,
    prelude::ParquetReadOptions,
};
use nfs_object_store::NfsObjectStore;
use nfs_wireless_client::ClientConfig;
use nfs_wireless_server::{Memory, Server, Service, ServiceConfig};
use object_store::{ObjectStoreExt as _, path::Path};

#[tokio::test(flavor = "multi_thread")]
async fn a_query_reads_the_columns_that_it_needs() {
    let service = Service::new(ServiceConfig::default(), Memory::default(), 1, Instant::now()).unwrap();
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), service).await.unwrap();
    let mut config = ClientConfig::default();
    config.portmap_port = server.local_addr().port();
    let store = NfsObjectStore::connect("127.0.0.1", b"/", config).await.unwrap();
    let mut size = 0;
    for year in [2025, 2026] {
        let file = sales(year);
        size += file.len() as u64;
        store.put(&Path::from(format!("sales/{year}.parquet")), file.into()).await.unwrap();
    }
    let read_bytes = || server.with_service(|service| service.stats().read_bytes);
    let before = read_bytes();

    let context = nfsw_datafusion::session(store).unwrap();
    let table = format!("{}sales/", nfsw_datafusion::ROOT);
    context.register_parquet("sales", table, ParquetReadOptions::default()).await.unwrap();
    let sql = "SELECT year, sum(amount) AS total FROM sales GROUP BY year ORDER BY year";
    let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
    let column = |name: &str| -> Vec<i64> {
        batches.iter().flat_map(|batch| batch[name].as_primitive::<Int64Type>().values().to_vec()).collect()
    };
    assert_eq!(column("year"), [2025, 2026]);
    let total: i64 = (0..ROWS).sum();
    assert_eq!(column("total"), [total * 2025, total * 2026]);
    let read = read_bytes() - before;
    assert!(read * 2 < size, "{read} of {size} bytes were read for two of three columns");
}

const ROWS: i64 = 50_000;

/// Sales of a year; the notes are most of the file.
fn sales(year: i64) -> Vec<u8> {
    let rows = 0..ROWS;
    let note =
        |row: i64| format!("note {row} of {year}, {:x}", row.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64));
    let columns: [(&str, ArrayRef); 3] = [
        ("year", Arc::new(rows.clone().map(|_| year).collect::<Int64Array>())),
        ("amount", Arc::new(rows.clone().map(|row| row * year).collect::<Int64Array>())),
        ("note", Arc::new(StringArray::from_iter_values(rows.map(note)))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}
