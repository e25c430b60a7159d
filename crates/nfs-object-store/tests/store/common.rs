//! Servers with a store on them.

#![allow(dead_code, reason = "every test file uses a part")]

use std::time::Instant;

use nfs_object_store::NfsObjectStore;
use nfs_wireless_client::{ClientConfig, TransportChoice};
use nfs_wireless_server::{Faults, Memory, Server, Service, ServiceConfig};

/// Starts an embedded server with faults, and opens its root as a store.
pub(crate) async fn embedded(transport: TransportChoice, faults: Faults) -> (Server, NfsObjectStore) {
    let (server, store) = serve(ServiceConfig::default(), transport).await;
    server.with_service(|service| service.set_faults(faults));
    (server, store)
}

/// As [`embedded`], over UDP, without a duplicate request cache.
pub(crate) async fn forgetful() -> (Server, NfsObjectStore) {
    let mut config = ServiceConfig::default();
    config.reply_cache = None;
    serve(config, TransportChoice::Udp).await
}

async fn serve(config: ServiceConfig, transport: TransportChoice) -> (Server, NfsObjectStore) {
    let service = Service::new(config, Memory::default(), 1, Instant::now()).unwrap();
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), service).await.unwrap();
    let store = open(&server, transport).await;
    (server, store)
}

/// Opens the root of an embedded server once more: another client.
pub(crate) async fn open(server: &Server, transport: TransportChoice) -> NfsObjectStore {
    NfsObjectStore::connect("127.0.0.1", b"/", config(server, transport)).await.unwrap()
}

/// A configuration that finds an embedded server.
pub(crate) fn config(server: &Server, transport: TransportChoice) -> ClientConfig {
    let mut config = ClientConfig::default();
    config.transport = transport;
    config.portmap_port = server.local_addr().port();
    config
}
