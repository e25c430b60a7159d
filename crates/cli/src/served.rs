//! A server in this process, for tests.

mod watched;

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Instant,
};

use clap::Parser;
use nfs_wireless_server::{Directory, DirectoryConfig, Server, Service, ServiceConfig, Vfs};

pub(crate) use self::watched::Call;

use crate::{
    args::{Cli, Command, CpArgs, SyncArgs},
    servers::Servers,
    url::{Remote, Target},
};

/// A server of a directory of its own, on a free port of the loopback.
pub(crate) struct Served {
    root: tempfile::TempDir,
    server: Server,
}

impl Served {
    pub(crate) fn start() -> Self {
        Self::of(|_, directory| directory)
    }

    /// As [`Served::start`]; `watch` is told of calls and of the directory on this machine, before the reply leaves.
    pub(crate) fn watched(watch: impl FnMut(&Path, Call<'_>) + Send + 'static) -> Self {
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
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    /// A path on the server as a user names it.
    pub(crate) fn url(&self, path: &str) -> String {
        let address = self.server.local_addr();
        format!("nfs://{address}{path}?mountport={}", address.port())
    }

    pub(crate) fn remote(&self, path: &str) -> Remote {
        Target::parse_remote(OsStr::new(&self.url(path))).unwrap()
    }

    /// Gives access to the service.
    pub(crate) fn service<T>(&self, access: impl FnOnce(&mut Service) -> T) -> T {
        self.server.with_service(access)
    }
}

/// Reads the arguments of `nfsw cp`.
pub(crate) fn cp(arguments: &[&str]) -> CpArgs {
    match Cli::parse_from(["nfsw", "cp"].iter().chain(arguments)).command {
        Command::Cp(arguments) => arguments,
        other => panic!("{other:?}"),
    }
}

/// Reads the arguments of `nfsw sync`.
pub(crate) fn sync(arguments: &[&str]) -> SyncArgs {
    match Cli::parse_from(["nfsw", "sync"].iter().chain(arguments)).command {
        Command::Sync(arguments) => arguments,
        other => panic!("{other:?}"),
    }
}

/// Servers that are asked as they are when no option is given.
pub(crate) fn servers() -> Servers {
    cp(&["from", "to"]).connection.servers(None, Arc::default())
}
