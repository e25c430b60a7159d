//! `nfsw share --plain`: the same files for every NFS client, without a code.

use std::{
    fmt::Write as _,
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use nfs_wireless_server::{Access, DirectoryConfig, Server, Service};

use crate::command::serve::serve;

/// A server that asks for no code.
#[derive(Debug)]
pub(super) struct Plain {
    server: Server,
    addresses: Vec<SocketAddr>,
    /// Calls that were counted last, and when there were more than before.
    calls: u64,
    used: Option<Instant>,
}

impl Plain {
    /// Serves a directory; `reachable` tells at which addresses others may reach one.
    pub(super) async fn bind(
        listen: SocketAddr,
        directory: &Path,
        reachable: impl Fn(SocketAddr) -> Vec<SocketAddr>,
    ) -> anyhow::Result<Self> {
        let mut config = DirectoryConfig::default();
        config.access = Access::ReadOnly;
        let server = serve(directory, config, listen, "--plain=ADDR:PORT").await?;
        let addresses = reachable(server.local_addr());
        Ok(Self { server, addresses, calls: 0, used: None })
    }

    /// Says what to type on a machine without nfsw.
    pub(super) fn invitation(&self) -> String {
        let mut said = "\nwithout a code, for any NFS client:\n".to_owned();
        for address in &self.addresses {
            let (host, port) = (address.ip(), address.port());
            let host = if address.is_ipv6() { format!("[{host}]") } else { host.to_string() };
            let _ = writeln!(
                said,
                "  mount -t nfs -o ro,vers=3,tcp,nolock,soft,port={port},mountport={port} {host}:/ /mnt"
            );
        }
        said + "  not encrypted: whoever reaches this address can read all of it, whoever listens what is read\n"
    }

    /// Returns when a client has asked for something last, as far as this was asked before.
    pub(super) fn used(&mut self) -> Option<Instant> {
        let calls = self.server.with_service(|service| service.stats().calls);
        if calls > self.calls {
            (self.calls, self.used) = (calls, Some(Instant::now()));
        }
        self.used
    }

    /// Says how much clients have read.
    pub(super) fn line(&self) -> String {
        let bytes = self.server.with_service(|service| service.stats().read_bytes);
        format!("without a code, NFS clients read {bytes} bytes\n")
    }

    /// Ends it: files that are open are stale for a while first, so that programs do not wait.
    pub(super) async fn end(self, farewell: Duration) {
        self.server.with_service(Service::revoke);
        tokio::time::sleep(farewell).await;
        self.server.shutdown().await;
    }
}
