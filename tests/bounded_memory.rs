//! What the client keeps of a large directory is bounded. Allocations of a thread are counted, so that this is a program of its own.

use std::time::Instant;

use nfs_wireless_client::{ClientConfig, Fs, TransportChoice};
use nfs_wireless_server::{Memory, Server, Service, ServiceConfig, nfs3_types::nfs3::nfstime3};
use tokio::runtime::Builder;

/// Files, whose names take 16 MB.
const FILES: usize = 60_000;

/// Bytes that names and the client's buffers take, at most.
const MOST_BYTES: u64 = 8 << 20;

#[test]
fn a_large_directory_is_removed_in_little_memory() {
    let elsewhere = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let service = Service::new(ServiceConfig::default(), Memory::default(), 1, Instant::now()).unwrap();
    let address = "127.0.0.1:0".parse().unwrap();
    let server = elsewhere.block_on(Server::bind(address, service)).unwrap();
    server.with_service(|service| {
        for number in 0..FILES {
            let path = format!("/top/{number:0200}");
            service.backend().write_file(nfstime3::default(), path.as_bytes(), &[]).unwrap();
        }
    });
    let counted = allocation_counter::measure(|| {
        let here = Builder::new_current_thread().enable_all().build().unwrap();
        here.block_on(async {
            let mut config = ClientConfig::default();
            config.transport = TransportChoice::Tcp;
            config.portmap_port = server.local_addr().port();
            let fs = Fs::connect("127.0.0.1", "/", config).await.unwrap();
            fs.remove_dir_all("top").await.unwrap();
            assert!(!fs.try_exists("top").await.unwrap());
        });
    });
    assert!(counted.bytes_max < MOST_BYTES, "{} bytes", counted.bytes_max);
}
