//! Servers: one client for each host and export, made when first needed.

#[doc(hidden)]
pub mod path_cache;
#[doc(hidden)]
pub mod remembered;

use std::{cell::RefCell, collections::BTreeSet, fmt, sync::Arc, time::Duration};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, join_all},
};
use nfs_wireless_client::{
    self as client, AuthSys, Client, ClientConfig, Credential, FileHandle, LookedUp, PathCache, Status,
};

use self::remembered::{Asked, Known};
use crate::{
    error::{Result, unreachable},
    progress::{Activity, LinkState},
    url::{Remote, components, is_within},
};

/// Entries of one directory, at most, unless it is said.
const MAX_ENTRIES: u64 = 10_000_000;

/// Servers, and the connections to them.
pub struct Servers {
    configure: Configure,
    max_entries: u64,
    activity: Arc<Activity>,
    connected: RefCell<Vec<Connected>>,
    connecting: RefCell<Vec<Connecting>>,
    /// Those that let nobody give files away.
    keep_owners: RefCell<BTreeSet<String>>,
}

impl fmt::Debug for Servers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Servers").field("connected", &self.connected).finish_non_exhaustive()
    }
}

/// Tells how the server of a path is to be asked.
type Configure = Box<dyn Fn(&Remote) -> Result<Access>>;

/// How a server is to be asked.
#[derive(Clone, Debug)]
pub struct Access {
    /// Its name or address.
    pub address: String,
    /// How to talk to it; what is known of it is added.
    pub config: ClientConfig,
}

/// A mounted export.
#[derive(Debug)]
struct Connected {
    /// What was asked for first; its host and options are those of the connection.
    remote: Remote,
    client: Client,
    /// Paths that are known to be in this export, and in none inside it.
    known: Vec<Vec<u8>>,
    /// What the next run can begin with.
    memory: Known,
}

/// An attempt to connect, which ends for all who wait for it.
type Attempt = Shared<BoxFuture<'static, Result<Client, client::Error>>>;

/// A connection that is being made.
#[derive(Clone, Debug)]
struct Connecting {
    /// What it was begun for.
    remote: Remote,
    attempt: Attempt,
    /// What an earlier run knew.
    memory: Option<Known>,
}

impl Default for Servers {
    /// Asks every server as its URL says, and as [`ClientConfig::default`] where that says nothing.
    fn default() -> Self {
        let configure = |remote: &Remote| {
            let mut config = ClientConfig::default();
            remote.options.configure(&mut config);
            Ok(Access { address: remote.host.to_string(), config })
        };
        Self::new(configure, Arc::default())
    }
}

impl Servers {
    /// Creates it without a connection; `configure` tells how the server of a path is to be asked, and its errors are returned.
    pub fn new(configure: impl Fn(&Remote) -> Result<Access> + 'static, activity: Arc<Activity>) -> Self {
        let (connected, connecting, keep_owners) = Default::default();
        let configure = Box::new(configure);
        Self { configure, max_entries: MAX_ENTRIES, activity, connected, connecting, keep_owners }
    }

    /// Sets how many entries of one directory are read, at most: a server may list for ever.
    pub fn with_max_entries(self, max_entries: u64) -> Self {
        Self { max_entries, ..self }
    }

    /// Returns how many entries of one directory are read, at most.
    pub fn max_entries(&self) -> u64 {
        self.max_entries
    }

    /// Returns the counters of what is done.
    pub const fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Tells how the server of a path is to be asked.
    ///
    /// # Errors
    /// Options that it cannot be asked with.
    pub fn access(&self, remote: &Remote) -> Result<Access> {
        (self.configure)(remote)
    }

    /// Returns all connections, with what was asked for first.
    pub fn clients(&self) -> Vec<(Remote, Client)> {
        self.connected.borrow().iter().map(|it| (it.remote.clone(), it.client.clone())).collect()
    }

    /// Returns a client for the export that holds a path, connecting where there is none yet. A
    /// server is connected to once at a time, however many ask: who comes later waits, and takes
    /// the same connection where that holds its path, too.
    ///
    /// # Errors
    /// Status 3 when the server cannot be reached or does not let us mount.
    pub async fn client(&self, remote: &Remote) -> Result<Client> {
        loop {
            if let Some(client) = self.reuse(remote).await? {
                return Ok(client);
            }
            let Connecting { remote: asked, attempt, .. } = self.attempt(remote)?;
            // Whoever waits drives it, so that one who is not polled any more holds nobody up.
            let connected = attempt.clone().await;
            self.settle(&asked, &attempt, &connected);
            if asked.path == remote.path {
                return connected.map_err(|error| unreachable(error, remote));
            }
        }
    }

    /// Returns the port of NFS on the server that is being connected to, as far as it is known.
    pub fn awaited_port(&self) -> Option<u16> {
        const USUAL: u16 = 2049;
        let connecting = self.connecting.borrow();
        let access = self.access(&connecting.first()?.remote).ok()?;
        Some(access.config.nfs_port.unwrap_or(USUAL))
    }

    /// Whether giving a new file to somebody could work: only root may, and what is its own needs no giving.
    pub fn may_give(&self, remote: &Remote, uid: u32, gid: u32) -> bool {
        self.credential(remote).is_some_and(|user| user.uid == 0 && (uid, gid) != (user.uid, user.gid))
    }

    /// Whether giving a file away that is somebody's could work: only root may, and the server has not refused it yet.
    pub fn may_give_away(&self, remote: &Remote) -> bool {
        self.credential(remote).is_some_and(|user| user.uid == 0)
            && !self.keep_owners.borrow().contains(&remote.server())
    }

    /// Notes that a server lets nobody give files away.
    pub fn note_keeps_owners(&self, remote: &Remote) {
        self.keep_owners.borrow_mut().insert(remote.server());
    }

    fn credential(&self, remote: &Remote) -> Option<AuthSys> {
        match self.access(remote).ok()?.config.credential {
            Credential::Sys(user) => Some(user),
            _ => None,
        }
    }

    /// Returns the counters of all connections together.
    pub fn link_state(&self) -> LinkState {
        let mut state = LinkState::default();
        for Connected { client, .. } in &*self.connected.borrow() {
            let Status { stats, outstanding, .. } = client.status();
            state.replies += stats.replies;
            state.calls += stats.calls;
            state.resends += stats.resends.total();
            state.outstanding += outstanding;
            state.rtt = state.rtt.max(stats.rtt.quantile(0.5));
        }
        state
    }

    /// Asks every server something that costs it nothing, and returns how long the slowest took. A link that is down lets
    /// this wait; a server that is busy with something else does not.
    pub async fn ask(&self) -> Option<Duration> {
        let clients: Vec<Client> =
            self.connected.borrow().iter().map(|connected| connected.client.clone()).collect();
        let answers = join_all(clients.iter().map(Client::null)).await;
        answers.into_iter().filter_map(Result::ok).max()
    }

    /// Says to all connections that a link or an address of this machine has changed.
    pub fn link_event(&self) {
        for Connected { client, .. } in &*self.connected.borrow() {
            client.link_event();
        }
    }

    /// Forgets a connection whose handles the server does not know any more: the next one mounts again.
    pub fn forget(&self, stale: &Client) {
        self.connected.borrow_mut().retain(|connected| !connected.client.is_same(stale));
    }

    /// Keeps what was learned about paths and servers for the next run.
    pub fn remember(&self) {
        let connected = self.connected.borrow();
        path_cache::remember(connected.iter().map(|connected| connected.client.clone()));
        // On this machine nothing is far.
        let far = connected.iter().filter(|connected| !connected.client.address().ip().is_loopback());
        let known = far.filter_map(|it| {
            let access = self.access(&it.remote).ok()?;
            // A share is not there for long, and its name is a secret.
            access.config.channel.is_none().then(|| (asked(&access), it.memory.clone()))
        });
        remembered::remember(known);
    }

    /// Looks up the names of a path below an export's root all at once, as far as it is known which directories they lead to.
    pub async fn look_ahead<'a>(
        &self,
        client: &Client,
        names: impl Iterator<Item = &'a Vec<u8>>,
    ) -> LookedUp {
        let root = (Some(client.root()), client.export());
        let mut places = {
            let connected = self.connected.borrow();
            let memory = connected.iter().find(|it| it.client.is_same(client)).map(|it| &it.memory);
            memory.map(|memory| memory.places(root, names)).unwrap_or_default()
        };
        let mut looked_up = client.take_looked_up();
        places.retain(|(directory, name)| !looked_up.was_answered(*directory, name));
        // A single name is looked up when its turn comes.
        if places.len() > 1 {
            looked_up.add(client.look_up_all(places).await);
        }
        looked_up
    }

    /// Notes which directories paths have led to, from an export's root down.
    pub fn note(&self, client: &Client, directories: &[(FileHandle, Vec<u8>)]) {
        let mut connected = self.connected.borrow_mut();
        if let Some(connected) = connected.iter_mut().find(|it| it.client.is_same(client)) {
            connected.memory.add(directories.iter().map(|(handle, path)| (path.clone(), *handle)));
        }
    }

    /// Returns the attempt to connect to a server that is under way, or begins one.
    fn attempt(&self, remote: &Remote) -> Result<Connecting> {
        let mut connecting = self.connecting.borrow_mut();
        if let Some(other) = connecting.iter().find(|other| other.remote.is_on_server_of(remote)) {
            return Ok(other.clone());
        }
        let (access, path) = (self.access(remote)?, remote.path.clone());
        let memory = remembered::find(&asked(&access), &path);
        let Access { address, mut config } = access;
        config.path_cache = Some(PathCache::new(path_cache::cached));
        config.known = memory.as_ref().map(|memory| {
            let export = &memory.server.export[..];
            let names = components(path.strip_prefix(export).unwrap_or_default());
            let root = (memory.directory(export), export);
            let mut server = memory.server.clone();
            server.names = memory.places(root, names.iter());
            server
        });
        let attempt = async move { Client::connect(&address, &path, config).await };
        let begun = Connecting { remote: remote.clone(), attempt: attempt.boxed().shared(), memory };
        connecting.push(begun.clone());
        Ok(begun)
    }

    /// Keeps what came of an attempt, once.
    fn settle(&self, asked: &Remote, attempt: &Attempt, connected: &Result<Client, client::Error>) {
        let mut connecting = self.connecting.borrow_mut();
        let Some(at) = connecting.iter().position(|other| other.attempt.ptr_eq(attempt)) else { return };
        let Connecting { memory, .. } = connecting.swap_remove(at);
        if let Ok(client) = connected {
            self.activity.set_mounted();
            let directories = memory.map(|memory| memory.directories).unwrap_or_default();
            self.connected.borrow_mut().push(Connected {
                remote: asked.clone(),
                client: client.clone(),
                known: vec![asked.path.clone(), asked.parent().path],
                memory: Known { server: client.known(), directories },
            });
        }
    }

    /// Returns the client for a path, if there is one. An export may lie inside another one, where it is a mere empty directory: so
    /// it is made sure that a second path is in the same export.
    async fn reuse(&self, remote: &Remote) -> Result<Option<Client>> {
        let Some((client, is_known)) = self.find(remote) else {
            return Ok(None);
        };
        if is_known {
            return Ok(Some(client));
        }
        let export = client.export_of(&remote.path).await.map_err(|error| unreachable(error, remote))?;
        if export != client.export() {
            return Ok(None);
        }
        // Others may have come and gone meanwhile.
        let mut all = self.connected.borrow_mut();
        if let Some(connected) = all.iter_mut().find(|connected| connected.client.is_same(&client)) {
            connected.known.extend([remote.path.clone(), remote.parent().path]);
        }
        Ok(Some(client))
    }

    /// Returns the connection whose export holds a path most closely, and whether the path is known to be in it.
    fn find(&self, remote: &Remote) -> Option<(Client, bool)> {
        let connected = self.connected.borrow();
        let fitting = connected.iter().filter(|connected| {
            connected.remote.is_on_server_of(remote) && is_within(&remote.path, connected.client.export())
        });
        let closest = fitting.max_by_key(|connected| connected.client.export().len())?;
        Some((closest.client.clone(), closest.known.contains(&remote.path)))
    }
}

/// Returns what a server is known by.
fn asked(Access { address, config }: &Access) -> Asked {
    Asked { host: address.clone(), ports: (config.nfs_port, config.mount_port) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::served::{self, Served};

    #[tokio::test]
    async fn who_asks_for_a_server_at_once_gets_one_connection() {
        let server = Served::start();
        std::fs::create_dir(server.path("a")).unwrap();
        std::fs::create_dir(server.path("b")).unwrap();
        let connections = served::servers();
        let paths = ["/a", "/b", "/a/x", "/"].map(|path| served::remote(&server, path));
        let asked = join_all(paths.iter().cycle().take(16).map(|path| connections.client(path))).await;
        let clients: Vec<Client> = asked.into_iter().map(Result::unwrap).collect();
        assert!(clients.iter().all(|client| client.is_same(&clients[0])));
        assert_eq!(connections.connected.borrow().len(), 1);
        // All find that it is of no use any more, one after the other: they get one new connection.
        let again = join_all(clients.iter().zip(paths.iter().cycle()).map(async |(client, path)| {
            connections.forget(client);
            connections.client(path).await.unwrap()
        }));
        let again = again.await;
        assert!(again.iter().all(|client| client.is_same(&again[0]) && !client.is_same(&clients[0])));
        assert_eq!(connections.connected.borrow().len(), 1);
    }

    #[tokio::test]
    async fn who_stops_asking_holds_nobody_up() {
        let server = Served::start();
        let remote = served::remote(&server, "/");
        loop {
            let connections = served::servers();
            // It has begun to connect, and is not polled any more; on a busy machine it may be connected by then.
            let mut first = Box::pin(connections.client(&remote));
            if (&mut first).now_or_never().is_none() {
                let second = connections.client(&remote).await.unwrap();
                assert!(first.await.unwrap().is_same(&second));
                assert_eq!(connections.connected.borrow().len(), 1);
                return;
            }
        }
    }

    #[test]
    fn paths_lie_within_whole_components_only() {
        assert!(is_within(b"/srv/a", b"/srv"));
        assert!(is_within(b"/srv", b"/srv"));
        assert!(is_within(b"/srv", b"/"));
        assert!(!is_within(b"/srv2", b"/srv"));
    }
}
