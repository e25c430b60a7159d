//! An embedded server in memory, on a port of the loopback.

use std::time::Instant;

use nfs_wireless_server::{Memory, Server, Service, ServiceConfig};

pub(crate) async fn serve() -> Server {
    let service = Service::new(ServiceConfig::default(), Memory::default(), 1, Instant::now()).unwrap();
    Server::bind("127.0.0.1:0".parse().unwrap(), service).await.unwrap()
}
