//! What a store keeps of a large directory is bounded. Allocations of a thread are counted, so that this is a program of its own.

use std::time::Instant;

use futures_util::TryStreamExt as _;
use nfs_object_store::NfsObjectStore;
use nfs_wireless_client::{ClientConfig, TransportChoice};
use nfs_wireless_server::{Memory, Server, Service, ServiceConfig, nfs3_types::nfs3::nfstime3};
use object_store::ObjectStore as _;
use tokio::runtime::Builder;

/// Objects, which take 40 MB as a whole.
const OBJECTS: usize = 80_000;

/// Bytes of what is told at once, and of the client's buffers, at most.
const MOST_BYTES: u64 = 16 << 20;

#[test]
fn a_large_directory_is_listed_in_little_memory() {
    let elsewhere = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let service = Service::new(ServiceConfig::default(), Memory::default(), 1, Instant::now()).unwrap();
    let address = "127.0.0.1:0".parse().unwrap();
    let server = elsewhere.block_on(Server::bind(address, service)).unwrap();
    server.with_service(|service| {
        for number in 0..OBJECTS {
            let path = format!("/large/{number:0200}");
            service.backend().write_file(nfstime3::default(), path.as_bytes(), &[]).unwrap();
        }
    });
    let counted = allocation_counter::measure(|| {
        let here = Builder::new_current_thread().enable_all().build().unwrap();
        here.block_on(async {
            let mut config = ClientConfig::default();
            config.transport = TransportChoice::Tcp;
            config.portmap_port = server.local_addr().port();
            let store = NfsObjectStore::connect("127.0.0.1", b"/", config).await.unwrap();
            let count = |count, _| std::future::ready(Ok(count + 1));
            assert_eq!(store.list(None).try_fold(0, count).await.unwrap(), OBJECTS);
        });
    });
    assert!(counted.bytes_max < MOST_BYTES, "{} bytes", counted.bytes_max);
}
