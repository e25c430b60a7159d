//! A server in this process, for tests.

mod watched;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    thread,
    time::Instant,
};

use nfs_wireless_server::{Directory, DirectoryConfig, Server, Service, ServiceConfig, Vfs};

pub use self::watched::Call;

/// A server of a directory of its own, on a free port of the loopback.
#[derive(Debug)]
pub struct Served {
    root: tempfile::TempDir,
    server: Server,
}

impl Served {
    /// Starts it with an empty directory.
    pub fn start() -> Self {
        Self::of(|_, directory| directory)
    }

    /// As [`Served::start`]; `watch` is told of calls and of the directory on this machine, before the reply leaves.
    pub fn watched(watch: impl FnMut(&Path, Call<'_>) + Send + 'static) -> Self {
        Self::of(|root, directory| watched::Watched::new(root, directory, watch))
    }

    fn of<V: Vfs + 'static>(back_end: impl FnOnce(&Path, Directory) -> V) -> Self {
        let root = tempfile::tempdir().unwrap();
        let directory = Directory::open(root.path(), DirectoryConfig::default()).unwrap();
        let back_end = back_end(root.path(), directory);
        let service = Service::new(ServiceConfig::default(), back_end, 1, Instant::now()).unwrap();
        let (bound, server) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listen = "127.0.0.1:0".parse().unwrap();
                bound.send(Server::bind(listen, service).await.unwrap()).unwrap();
                std::future::pending::<()>().await;
            });
        });
        let server = server.recv().unwrap();
        Self { root, server }
    }

    /// Where a path on the server is on this machine.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// A path on the server as a user names it.
    pub fn url(&self, path: &str) -> String {
        let address = self.address();
        format!("nfs://{address}{path}?mountport={}", address.port())
    }

    /// Gives access to the service.
    pub fn service<T>(&self, access: impl FnOnce(&mut Service) -> T) -> T {
        self.server.with_service(access)
    }
}
