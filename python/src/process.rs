//! What a process has once: the runtime, and the connections to servers.
//!
//! A child of `fork` has the memory of its parent, but none of its threads: whatever they did never ends there, and locks that they held
//! stay locked. So the child begins with a [`Process`] of its own, and never touches that of its parent.

use std::{
    io, mem,
    mem::ManuallyDrop,
    ops::Deref,
    sync::{Arc, Mutex, PoisonError},
};

use nfs_files::url::is_within;
use nfs_wireless_client::{Client, ClientConfig, Error, TransportChoice, url::UrlOptions};
use pyo3::Python;
use tokio::runtime::{Builder, Runtime};

/// Servers that connections are kept to, at most. The one that was not used for longest is let go of.
const MOST_SERVERS: usize = 64;

/// Threads of the runtime. Connections have threads of their own, and whoever waits drives what it waits for: little is left.
const WORKERS: usize = 2;

/// The runtime and the connections of this process.
pub(crate) struct Process {
    id: u32,
    pub(crate) runtime: Runtime,
    /// The one that was used last is at the end.
    servers: Mutex<Vec<(Address, Slot)>>,
}

/// How a server is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) options: UrlOptions,
    pub(crate) transport: TransportChoice,
}

/// The clients of a server, one for each export. Who connects holds it, so that others wait for the same connection.
type Slot = Arc<tokio::sync::Mutex<Vec<Client>>>;

impl Process {
    /// Returns what this process has, and makes it when it is needed first.
    pub(crate) fn of_this(_attached: Python<'_>) -> io::Result<&'static Self> {
        // Locked by threads that are attached to the interpreter alone, as the one is that forks: no child finds it locked.
        static CURRENT: Mutex<Option<&'static Process>> = Mutex::new(None);
        let id = std::process::id();
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(process) = current.filter(|process| process.id == id) {
            return Ok(process);
        }
        let runtime =
            Builder::new_multi_thread().worker_threads(WORKERS).thread_name("nfsw").enable_time().build()?;
        let process = Box::leak(Box::new(Self { id, runtime, servers: Mutex::default() }));
        Ok(current.insert(process))
    }

    /// Returns a client for the export that holds a path, connecting where there is none yet.
    pub(crate) async fn client(&self, address: &Address, path: &[u8]) -> Result<Client, Error> {
        let slot = self.slot(address);
        let mut clients = slot.lock().await;
        // A client crosses to the exports within its own by itself.
        let fitting = clients.iter().filter(|client| is_within(path, client.export()));
        if let Some(client) = fitting.max_by_key(|client| client.export().len()) {
            return Ok(client.clone());
        }
        let mut config = ClientConfig::default().with_transport(address.transport).with_own_thread(true);
        address.options.configure(&mut config);
        let path = if path.is_empty() { b"/" } else { path };
        let client = Client::connect(&address.host, path, config).await?;
        clients.push(client.clone());
        Ok(client)
    }

    /// Forgets a client whose handles the server does not know any more: the next one mounts again.
    pub(crate) async fn forget(&self, address: &Address, stale: &Client) {
        self.slot(address).lock().await.retain(|client| !client.is_same(stale));
    }

    fn slot(&self, address: &Address) -> Slot {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = servers.iter().position(|(other, _)| other == address);
        let (_, slot) = known.map_or_else(|| (address.clone(), Slot::default()), |at| servers.remove(at));
        if servers.len() >= MOST_SERVERS {
            servers.remove(0);
        }
        servers.push((address.clone(), Arc::clone(&slot)));
        slot
    }
}

/// Something that belongs to the process that made it. In a child of that process it is neither used nor dropped.
pub(crate) struct Owned<T> {
    process: u32,
    value: ManuallyDrop<T>,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: std::process::id(), value: ManuallyDrop::new(value) }
    }

    /// Returns it, in the process that made it.
    pub(crate) fn ours(&self) -> Option<&T> {
        self.is_ours().then(|| self.value.deref())
    }

    /// Returns it, whose ever it is, for what no thread changes.
    pub(crate) fn anyones(&self) -> &T {
        &self.value
    }

    /// Puts something else in its place.
    pub(crate) fn replace(&mut self, value: T) {
        drop(mem::replace(self, Self::new(value)));
    }

    fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.is_ours() {
            let value = &mut self.value;
            // SAFETY: it is not used after this, as this is dropped.
            #[expect(unsafe_code, reason = "ManuallyDrop has no safe way to drop what it holds in a Drop")]
            unsafe {
                ManuallyDrop::drop(value);
            }
        }
    }
}
