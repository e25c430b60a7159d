//! Browsers and others at a front, on loopback.

mod archives;
mod client;
mod limits;
mod paths;
mod ranges;
mod secrets;

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use nfs_web::{Front, Secret};
use nfs_wireless_server::{Access, Directory, DirectoryConfig};
use tokio::runtime::Runtime;

use client::{Reply, exchange};

const HOUR: Duration = Duration::from_secs(3600);

/// A front with one member, and a folder that the member may read.
struct Site {
    folder: tempfile::TempDir,
    secret: Secret,
    /// Until when the member may read.
    until: Arc<Mutex<Option<Instant>>>,
    front: Option<Front>,
    address: SocketAddr,
    runtime: Runtime,
}

impl Site {
    fn new() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let front = runtime.block_on(Front::bind("127.0.0.1:0".parse().unwrap(), "Photos & <more>")).unwrap();
        let (folder, secret) = (tempfile::tempdir().unwrap(), Secret::draw());
        let address = front.local_addr();
        let until = Arc::new(Mutex::new(Some(Instant::now() + HOUR)));
        let term = Arc::clone(&until);
        front.admit(&secret, files(folder.path()), move || *term.lock().unwrap());
        Self { folder, secret, until, front: Some(front), address, runtime }
    }

    fn put(&self, name: impl AsRef<Path>, bytes: &[u8]) {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn get(&self, path: &str) -> Reply {
        self.request("GET", path, &[])
    }

    /// Sends a request of the member's browser.
    fn request(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Reply {
        let cookie = self.cookie();
        let mut all = vec![("Host", "127.0.0.1"), ("Cookie", &cookie), ("Connection", "close")];
        all.extend_from_slice(headers);
        exchange(self.address, method, path, &all, b"")
    }

    /// Tells the secret, and returns the cookie.
    fn cookie(&self) -> String {
        let reply = self.enter(&self.secret.to_string());
        assert_eq!((reply.status, reply.header("location")), (303, "/files/"));
        let cookie = reply.header("set-cookie").to_owned();
        for attribute in ["; HttpOnly", "; SameSite=Strict", "; Path=/"] {
            assert!(cookie.contains(attribute), "{cookie}");
        }
        cookie.split(';').next().unwrap().to_owned()
    }

    fn enter(&self, secret: &str) -> Reply {
        let form = format!("secret={secret}");
        let length = form.len().to_string();
        let headers = [("Host", "127.0.0.1"), ("Content-Length", &length), ("Connection", "close")];
        exchange(self.address, "POST", "/enter", &headers, form.as_bytes())
    }

    fn end(&mut self) {
        self.runtime.block_on(self.front.take().unwrap().end());
    }
}

fn files(path: &Path) -> Directory {
    let mut config = DirectoryConfig::default();
    config.access = Access::ReadOnly;
    Directory::open(path, config).unwrap()
}

/// Bytes that do not shrink.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}
