//! Connections to servers: one client for each host and export, made when first needed.

use std::{cell::RefCell, sync::Arc, time::Duration};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, join_all},
};
use nfs_wireless_client::{
    self as client, BlockSize, Client, ClientConfig, Credential, FileHandle, LookedUp, MAX_BLOCK_BYTES,
    PathCache, RetryPolicy, Status, TransportChoice, Window,
};

use crate::{
    args::{ConnectionArgs, Host, Policy, Security, Transport},
    error::{Error, Result, unreachable},
    known::{self, Asked, Known},
    paths,
    progress::{Activity, LinkState},
    summary::{ClientSummary, Summary, transport_name},
    units::AutoOr,
    url::{Remote, UrlOptions, components, is_within},
};

/// The connections of one run.
#[derive(Debug)]
pub(crate) struct Connections {
    arguments: ConnectionArgs,
    rate_limit: Option<u64>,
    activity: Arc<Activity>,
    connected: RefCell<Vec<Connected>>,
    connecting: RefCell<Vec<Connecting>>,
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

impl Connections {
    /// Creates it without a connection.
    pub(crate) fn new(arguments: ConnectionArgs, rate_limit: Option<u64>, activity: Arc<Activity>) -> Self {
        let (connected, connecting) = Default::default();
        Self { arguments, rate_limit, activity, connected, connecting }
    }

    /// Returns a client for the export that holds a path, connecting where there is none yet. A
    /// server is connected to once at a time, however many ask: who comes later waits, and takes
    /// the same connection where that holds its path, too.
    ///
    /// # Errors
    /// Status 3 when the server cannot be reached or does not let us mount.
    pub(crate) async fn client(&self, remote: &Remote) -> Result<Client> {
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

    /// Returns the counters of what is done.
    pub(crate) const fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Returns how many entries of one directory are read, at most: a server may list for ever.
    pub(crate) fn max_entries(&self) -> u64 {
        self.arguments.or_default().max_entries()
    }

    /// Returns the name or address under which a host is looked for.
    pub(crate) fn address_of<'a>(&'a self, remote: &'a Remote) -> &'a str {
        self.host(remote).and_then(|host| host.name.as_deref()).unwrap_or(&remote.host)
    }

    /// Returns the ports of NFS and MOUNT, as far as the URL or the configuration file says them.
    pub(crate) fn ports_of(&self, remote: &Remote) -> (Option<u16>, Option<u16>) {
        let (url, host) = (&remote.options, self.host(remote));
        let nfs = url.nfs_port.or_else(|| host?.nfs_port);
        // Ports that belong together are taken together.
        let mount = host.filter(|_| url.nfs_port.is_none()).and_then(|host| host.mount_port);
        (nfs, url.mount_port.or(mount))
    }

    /// Returns the port of NFS on the server that is being connected to, as far as it is known.
    pub(crate) fn awaited_port(&self) -> Option<u16> {
        const USUAL: u16 = 2049;
        let connecting = self.connecting.borrow();
        connecting.first().map(|it| self.ports_of(&it.remote).0.unwrap_or(USUAL))
    }

    /// Returns the options for a server: those of the run, then those of the configuration file for this host, then for all.
    pub(crate) fn arguments_for(&self, remote: &Remote) -> ConnectionArgs {
        let arguments = self.host(remote).map(|host| self.arguments.or(&host.connection));
        arguments.as_ref().unwrap_or(&self.arguments).or_default()
    }

    fn host(&self, remote: &Remote) -> Option<&Host> {
        self.arguments.hosts.as_ref()?.hosts.get(&*remote.host)
    }

    /// Translates the options of the URL, which is the most specific, of the command line and of the configuration file.
    ///
    /// # Errors
    /// A usage error that names the option.
    pub(crate) fn config(&self, remote: &Remote) -> Result<ClientConfig> {
        let url = &*remote.options;
        let arguments = &self.arguments_for(remote);
        let mut config = ClientConfig::default();
        config.own_thread = true;
        config.transport = match arguments.transport() {
            Transport::Auto => TransportChoice::Auto,
            Transport::Udp => TransportChoice::Udp,
            Transport::Tcp => TransportChoice::Tcp,
        };
        (config.nfs_port, config.mount_port) = self.ports_of(remote);
        if self.host(remote).is_some_and(|host| host.security == Security::None) {
            config.credential = Credential::None;
        }
        act_as(&mut config.credential, url.uid.or(arguments.uid), url.gid.or(arguments.gid));
        config.retry = retry(arguments, url)?;
        let block = |exact: Option<u32>| match exact.or_else(|| arguments.exact_block()) {
            Some(bytes) => BlockSize::Exact(bytes),
            None => {
                BlockSize::Auto { max: arguments.max_block.or_else(|| self.rate_limit.map(smooth_block)) }
            }
        };
        config.read_block = block(url.read_block);
        config.write_block = block(url.write_block);
        config.window = arguments.window.and_then(AutoOr::number).map_or(Window::Auto, Window::Calls);
        config.connect_timeout = arguments.timeout;
        config.rate_limit = self.rate_limit;
        config.path_cache = Some(PathCache::new(paths::cached));
        config.check().map_err(|error| Error::usage(error.to_string()))?;
        Ok(config)
    }

    /// Whether giving a file to somebody could work: only root may, and what is its own needs no giving.
    pub(crate) fn may_give(&self, remote: &Remote, uid: u32, gid: u32) -> bool {
        let mut credential = ClientConfig::default().credential;
        let (url, arguments) = (&remote.options, self.arguments_for(remote));
        act_as(&mut credential, url.uid.or(arguments.uid), url.gid.or(arguments.gid));
        matches!(credential, Credential::Sys(user) if user.uid == 0 && (uid, gid) != (user.uid, user.gid))
    }

    /// Returns the counters of all connections together.
    pub(crate) fn link_state(&self) -> LinkState {
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
    pub(crate) async fn ask(&self) -> Option<Duration> {
        let clients: Vec<Client> =
            self.connected.borrow().iter().map(|connected| connected.client.clone()).collect();
        let answers = join_all(clients.iter().map(Client::null)).await;
        answers.into_iter().filter_map(Result::ok).max()
    }

    /// Says to all connections that a link or an address of this machine has changed.
    pub(crate) fn link_event(&self) {
        for Connected { client, .. } in &*self.connected.borrow() {
            client.link_event();
        }
    }

    /// Forgets a connection whose handles the server does not know any more: the next one mounts again.
    pub(crate) fn forget(&self, stale: &Client) {
        self.connected.borrow_mut().retain(|connected| !connected.client.is_same(stale));
    }

    /// Keeps what was learned about paths and servers for the next run.
    pub(crate) fn remember(&self) {
        let connected = self.connected.borrow();
        paths::remember(connected.iter().map(|connected| connected.client.clone()));
        // On this machine nothing is far.
        let far = connected.iter().filter(|connected| !connected.client.address().ip().is_loopback());
        known::remember(far.map(|it| (self.asked(&it.remote), it.memory.clone())));
    }

    /// Looks up the names of a path below an export's root all at once, as far as it is known which directories they lead to.
    pub(crate) async fn look_ahead<'a>(
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
    pub(crate) fn note(&self, client: &Client, directories: &[(FileHandle, Vec<u8>)]) {
        let mut connected = self.connected.borrow_mut();
        if let Some(connected) = connected.iter_mut().find(|it| it.client.is_same(client)) {
            connected.memory.add(directories.iter().map(|(handle, path)| (path.clone(), *handle)));
        }
    }

    fn asked(&self, remote: &Remote) -> Asked {
        Asked { host: self.address_of(remote).to_owned(), ports: self.ports_of(remote) }
    }

    /// Returns the numbers of the run so far.
    pub(crate) fn summary(&self) -> Summary {
        let clients =
            self.connected.borrow().iter().map(|connected| ClientSummary::of(&connected.client)).collect();
        Summary { bytes: self.activity.bytes(), clients }
    }

    /// Returns which transport is in use for what, and why, a line for each server.
    pub(crate) fn transports(&self) -> Vec<String> {
        let name = |protocol| transport_name(protocol).to_uppercase();
        let connected = self.connected.borrow();
        let lines = connected.iter().map(|Connected { remote, client, .. }| {
            let [(down, why), (up, why_up)] = client.transports();
            let host = remote.server();
            if (down, why) == (up, why_up) {
                return format!("{host} over {}: {why}", name(down));
            }
            format!("{host}: READs over {} ({why}), WRITEs over {} ({why_up})", name(down), name(up))
        });
        lines.collect()
    }

    /// Returns where `--block-size` is more than the server or the transport takes, a line for each server.
    pub(crate) fn reduced_blocks(&self) -> Vec<String> {
        let connected = self.connected.borrow();
        let reduced = connected.iter().filter_map(|Connected { remote, client, .. }| {
            let arguments = self.arguments_for(remote);
            let exact = |url: Option<u32>| url.or_else(|| arguments.exact_block());
            let asked = [exact(remote.options.read_block), exact(remote.options.write_block)];
            let Status { read_block, write_block, stats, .. } = client.status();
            let used = [("READ", read_block), ("WRITE", write_block)];
            let less: Vec<String> = asked
                .iter()
                .zip(used)
                .filter(|(asked, (_, used))| asked.is_some_and(|asked| asked > *used))
                .map(|(_, (what, used))| format!("{used} bytes per {what}"))
                .collect();
            let host = remote.server();
            (stats.calls > 0 && !less.is_empty() && self.activity.bytes() > 0).then(|| {
                format!("{host} takes less than --block-size at once: at most {}", less.join(" and "))
            })
        });
        reduced.collect()
    }

    /// Returns what is connected, for messages: `nas over TCP`.
    pub(crate) fn describe(&self) -> String {
        let hosts: Vec<String> = self
            .connected
            .borrow()
            .iter()
            .map(|connected| {
                format!(
                    "{} over {}",
                    connected.remote.server(),
                    transport_name(connected.client.protocol()).to_uppercase()
                )
            })
            .collect();
        if hosts.is_empty() { "the server".to_owned() } else { hosts.join(", ") }
    }

    /// Returns the attempt to connect to a server that is under way, or begins one.
    fn attempt(&self, remote: &Remote) -> Result<Connecting> {
        let mut connecting = self.connecting.borrow_mut();
        if let Some(other) = connecting.iter().find(|other| other.remote.is_on_server_of(remote)) {
            return Ok(other.clone());
        }
        let (mut config, path) = (self.config(remote)?, remote.path.clone());
        let memory = known::find(&self.asked(remote), &path);
        config.known = memory.as_ref().map(|memory| {
            let export = &memory.server.export[..];
            let names = components(path.strip_prefix(export).unwrap_or_default());
            let root = (memory.directory(export), export);
            let mut server = memory.server.clone();
            server.names = memory.places(root, names.iter());
            server
        });
        let host = self.address_of(remote).to_owned();
        let attempt = async move { Client::connect(&host, &path, config).await };
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

/// Changes a credential's ids. Groups belong to the user: whoever acts as somebody else does not carry them along.
fn act_as(credential: &mut Credential, uid: Option<u32>, gid: Option<u32>) {
    let Credential::Sys(user) = credential else { return };
    if uid.is_some() || gid.is_some() {
        user.gids.clear();
    }
    user.uid = uid.unwrap_or(user.uid);
    user.gid = gid.unwrap_or(user.gid);
}

/// Largest block that keeps a limited rate smooth: a tenth of a second of it.
fn smooth_block(rate: u64) -> u32 {
    /// Less would only cost calls.
    const SMALLEST: u64 = 4096;
    let bytes = (rate / 8 / 10).clamp(SMALLEST, MAX_BLOCK_BYTES.into());
    bytes as u32
}

fn retry(arguments: &ConnectionArgs, url: &UrlOptions) -> Result<RetryPolicy> {
    let ConnectionArgs { timeo, linear_steps, linear_step, max_timeo, .. } = *arguments;
    let timers = timeo.is_some() || linear_steps.is_some() || linear_step.is_some() || max_timeo.is_some();
    let policy = match arguments.policy {
        Some(policy) => policy,
        None if timers || url.initial_timeout.is_some() => Policy::Hybrid,
        None => Policy::Adaptive,
    };
    let initial = url.initial_timeout.or(timeo).unwrap_or(RetryPolicy::INITIAL);
    let maximum = max_timeo.unwrap_or_else(|| RetryPolicy::MAXIMUM.max(initial));
    match policy {
        Policy::Adaptive if timers => Err(Error::usage(
            "--timeo, --linear-steps, --linear-step and --max-timeo set timers that --policy adaptive does not have; leave them out, or use --policy hybrid",
        )),
        Policy::Adaptive => Ok(RetryPolicy::Adaptive),
        Policy::Kernel => Ok(RetryPolicy::Kernel { maximum }),
        Policy::Exponential => Ok(RetryPolicy::Exponential { initial, maximum }),
        Policy::Hybrid => Ok(RetryPolicy::Hybrid {
            initial,
            linear_steps: linear_steps.unwrap_or(RetryPolicy::LINEAR_STEPS),
            linear_step: linear_step.unwrap_or(RetryPolicy::LINEAR_STEP),
            maximum,
        }),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::error::ErrorKind;
    use crate::{
        args::{Cli, Command},
        served::{Served, connection},
    };

    fn config(options: &[&str]) -> Result<ClientConfig> {
        let line = ["nfsw", "stat"].iter().chain(options);
        let Command::Stat(arguments) = Cli::parse_from(line).command else { panic!("stat") };
        Connections::new(arguments.connection, None, Arc::default()).config(&arguments.targets[0])
    }

    #[test]
    fn the_url_outweighs_the_options() {
        let url = "nfs://h:99/x?rsize=1024&timeo=20&uid=5";
        let config =
            config(&["--block-size", "8K", "--timeo", "1s", "--uid", "6", "--gid", "7", url]).unwrap();
        assert_eq!(config.nfs_port, Some(99));
        assert_eq!(config.read_block, BlockSize::Exact(1024));
        assert_eq!(config.write_block, BlockSize::Exact(8192));
        let RetryPolicy::Hybrid { initial, .. } = config.retry else { panic!("{:?}", config.retry) };
        assert_eq!(initial.as_secs(), 2, "a timer was asked for, so the policy is one with timers");
        let Credential::Sys(user) = config.credential else { panic!("no credential") };
        assert_eq!((user.uid, user.gid, user.gids), (5, 7, vec![]));
    }

    #[test]
    fn the_policy_is_adaptive_unless_timers_are_asked_for() {
        assert_eq!(config(&["h:/x"]).unwrap().retry, RetryPolicy::Adaptive);
        assert_eq!(config(&["--policy", "kernel", "h:/x"]).unwrap().retry, RetryPolicy::kernel());
        let error = config(&["--policy", "adaptive", "--timeo", "1s", "h:/x"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
    }

    #[test]
    fn impossible_options_are_usage_errors() {
        let error = config(&["--max-timeo", "1ms", "h:/x"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
    }

    #[tokio::test]
    async fn who_asks_for_a_server_at_once_gets_one_connection() {
        let server = Served::start();
        std::fs::create_dir(server.path("a")).unwrap();
        std::fs::create_dir(server.path("b")).unwrap();
        let connections = Connections::new(connection(), None, Arc::default());
        let paths = ["/a", "/b", "/a/x", "/"].map(|path| server.remote(path));
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
        let remote = server.remote("/");
        loop {
            let connections = Connections::new(connection(), None, Arc::default());
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
