//! A Parquet file on a server behind a fading link: a query reads the columns and row groups that it
//! needs, and nothing else crosses the link.

use std::{ops::Range, sync::Arc, time::Duration};

use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, cast::AsArray as _};
use bytes::Bytes;
use futures_util::{FutureExt as _, TryStreamExt as _, future::BoxFuture};
use linkemu::{
    BitRate, ChannelConfig, Preset, Shape,
    proxy::{Forward, Proxy, ProxyConfig, ProxyHandle},
};
use nfs_object_store::NfsObjectStore;
use nfs_wireless_client::{ClientConfig, TransportChoice};
use nfs_wireless_server::{Faults, Server};
use object_store::{GetOptions, GetRange, ObjectStore as _, ObjectStoreExt as _, path::Path};
use parquet::{
    arrow::{
        ArrowWriter, ProjectionMask,
        arrow_reader::ArrowReaderOptions,
        async_reader::{AsyncFileReader, MetadataSuffixFetch, ParquetRecordBatchStreamBuilder},
    },
    basic::Compression,
    errors::{ParquetError, Result},
    file::{
        metadata::{ParquetMetaData, ParquetMetaDataReader},
        properties::WriterProperties,
    },
};

use crate::common::embedded;

/// Rows of the file, and of each of its row groups.
const ROWS: i64 = 80_000;
const GROUP: i64 = 10_000;

/// Bad periods of 20 ms on average, after 180 ms: the link is gone for a tenth of the time.
const GOOD: Duration = Duration::from_millis(180);
const BAD: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread")]
async fn a_query_over_a_fading_link_reads_the_columns_and_row_groups_that_it_needs() {
    let (server, near) = embedded(TransportChoice::Tcp, Faults::default()).await;
    let file = table();
    let location = Path::from("lake/table.parquet");
    near.put(&location, file.clone().into()).await.unwrap();

    let (far, link) = behind_a_link(&server).await;
    let before = server.with_service(|service| service.stats());
    let reader = Object { store: far, location };
    let builder = ParquetRecordBatchStreamBuilder::new(reader).await.unwrap();
    let columns = ProjectionMask::columns(builder.parquet_schema(), ["id", "value"]);
    let stream = builder.with_projection(columns).with_row_groups(vec![2, 5]).build().unwrap();
    let batches: Vec<_> = stream.try_collect().await.unwrap();

    let wanted: Vec<i64> = (2 * GROUP..3 * GROUP).chain(5 * GROUP..6 * GROUP).collect();
    let ids = batches.iter().flat_map(|batch| batch["id"].as_primitive::<Int64Type>().values().to_vec());
    assert_eq!(ids.collect::<Vec<_>>(), wanted);
    let values =
        batches.iter().flat_map(|batch| batch["value"].as_primitive::<Float64Type>().values().to_vec());
    assert!(values.eq(wanted.iter().map(|id| value(*id))));
    assert!(batches.iter().all(|batch| batch.num_columns() == 2));

    let after = server.with_service(|service| service.stats());
    let read = after.read_bytes - before.read_bytes;
    let size = file.len() as u64;
    assert!(read * 8 < size, "{read} of {size} bytes were read");
    let crossed = link.stats().await.unwrap().link.stats;
    assert!(crossed.frames_lost > 0, "the link did not fade: {crossed:?}");
    assert!(crossed.payload_bytes * 4 < size, "more than a quarter of the file crossed: {crossed:?}");
}

/// An object as Parquet reads it.
struct Object {
    store: NfsObjectStore,
    location: Path,
}

impl AsyncFileReader for Object {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        async { self.store.get_range(&self.location, range).await.map_err(external) }.boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        async move { self.store.get_ranges(&self.location, &ranges).await.map_err(external) }.boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>>> {
        let reader = ParquetMetaDataReader::new().with_arrow_reader_options(options);
        async { Ok(Arc::new(reader.load_via_suffix_and_finish(self).await?)) }.boxed()
    }
}

impl MetadataSuffixFetch for &mut Object {
    fn fetch_suffix(&mut self, length: usize) -> BoxFuture<'_, Result<Bytes>> {
        let options = GetOptions::new().with_range(Some(GetRange::Suffix(length as u64)));
        async {
            let found = self.store.get_opts(&self.location, options).await.map_err(external)?;
            found.bytes().await.map_err(external)
        }
        .boxed()
    }
}

fn external(error: object_store::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

/// A table whose column `name` is most of it.
fn table() -> Vec<u8> {
    let ids = 0..ROWS;
    // Each differs from the others everywhere, so that it cannot be compressed.
    let name = |id: i64| {
        let word = |salt: i64| format!("{:016x}", (id + salt).wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64));
        word(1) + &word(ROWS) + &word(3 * ROWS)
    };
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(ids.clone().collect::<Int64Array>())),
        ("name", Arc::new(StringArray::from_iter_values(ids.clone().map(name)))),
        ("value", Arc::new(ids.map(value).map(Some).collect::<Float64Array>())),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(GROUP as usize))
        .set_compression(Compression::SNAPPY)
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

fn value(id: i64) -> f64 {
    f64::from(id as i32) / 7.0
}

/// Opens the server's root over UDP behind a wireless link with fades.
async fn behind_a_link(server: &Server) -> (NfsObjectStore, ProxyHandle) {
    let mut link = Preset::named("wifi-54").unwrap().config();
    // So slow that the query meets several fades.
    link.rate = BitRate::megabits(1).into();
    link.channel = ChannelConfig::alternating(Shape::Exponential, GOOD, BAD);
    let mut config = ProxyConfig::new(link, 7);
    config.forwards.push(Forward { listen: "127.0.0.1:0".parse().unwrap(), to: server.local_addr() });
    let proxy = Proxy::bind(config).await.unwrap();
    let port = proxy.local_addresses().unwrap()[0].port();
    let handle = proxy.handle();
    tokio::spawn(proxy.run());
    let mut config = ClientConfig::default();
    config.transport = TransportChoice::Udp;
    (config.nfs_port, config.mount_port) = (Some(port), Some(port));
    (NfsObjectStore::connect("127.0.0.1", b"/", config).await.unwrap(), handle)
}
