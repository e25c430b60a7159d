//! What a caller may choose, with defaults and their sources.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use nfs_proto::{
    config::{BlockSize, ConfigError, RetryPolicy, SessionOptions, Window},
    engine::PathEstimate,
};
use nfs_wire::auth::Credential;

use crate::{channel::Channel, known::KnownServer, url::UrlOptions};

/// Everything a [`Client`](crate::Client) needs to know besides the server's name.
///
/// The default suits a person who copies files: ask the port mapper, try TCP and then UDP, use the largest
/// safe blocks, wait for ever while saying so.
///
/// ```
/// use std::time::Duration;
///
/// use nfs_wireless_client::{ClientConfig, TransportChoice};
///
/// let config = ClientConfig::default()
///     .with_transport(TransportChoice::Tcp)
///     .with_nfs_port(2049)
///     .with_call_timeout(Duration::from_secs(60));
/// config.check()?;
/// # Ok::<(), nfs_wireless_client::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientConfig {
    /// Transports to try. Default: [`TransportChoice::Auto`].
    pub transport: TransportChoice,
    /// Port of the NFS service; `None` asks the port mapper.
    pub nfs_port: Option<u16>,
    /// Port of the MOUNT service; `None` asks the port mapper.
    pub mount_port: Option<u16>,
    /// Port of the port mapper. Default: 111 (RFC 1833).
    pub portmap_port: u16,
    /// Who the calls claim to come from. Default: AUTH_SYS with the ids of this process.
    pub credential: Credential,
    /// When an unanswered datagram is sent again. Default: [`RetryPolicy::Adaptive`].
    pub retry: RetryPolicy,
    /// Bytes per READ. Default: as large as the transport carries safely.
    pub read_block: BlockSize,
    /// Bytes per WRITE. Default: as large as the transport carries safely.
    pub write_block: BlockSize,
    /// READs and WRITEs in flight. Default: [`Window::Auto`].
    pub window: Window,
    /// How long one call may stay unanswered. Default: `None`, for ever.
    pub call_timeout: Option<Duration>,
    /// How long a transfer may go without accepted bytes. Default: `None`, for ever.
    pub stall_timeout: Option<Duration>,
    /// How long reaching the server may take, all transports together. Default: `None`: as long as somebody
    /// has not refused.
    pub connect_timeout: Option<Duration>,
    /// Upper bound of the transfer rate in bit/s, counted in file bytes. Default: `None`.
    pub rate_limit: Option<u64>,
    /// Estimates of paths from earlier runs. Default: none.
    pub path_cache: Option<PathCache>,
    /// What an earlier client found out about the server. It is asked there first, and looked for again where that leads to nothing.
    /// Default: none.
    pub known: Option<KnownServer>,
    /// Encrypts what is sent, and says where to. UDP only, and no other port is asked for. Default: none.
    pub channel: Option<Arc<dyn Channel>>,
    /// Whether to send from a port below 1024 where the system allows it, as servers ask that export with
    /// the `secure` option. Default: true.
    pub reserved_port: bool,
    /// Whether the client's connections run on a thread of their own. Default: false, as tasks of the runtime that the client connects on.
    ///
    /// On the caller's runtime sinks, sources and observers are called on threads of its blocking pool, so that a slow disk or callback
    /// delays nobody else; each block is copied once more for that. A task that does not yield delays the connections. They end with the
    /// runtime.
    ///
    /// A thread of its own calls sinks, sources and observers itself, in turn with the network. That is fastest for whole files on local
    /// disks, as `nfsw` copies them, and does not depend on what the application does. A slow disk delays the other transfers and
    /// calls of this client, and is not taken for a loss.
    pub own_thread: bool,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            transport: TransportChoice::Auto,
            nfs_port: None,
            mount_port: None,
            portmap_port: nfs_wire::portmap::PORT,
            credential: process_credential(),
            retry: RetryPolicy::default(),
            read_block: BlockSize::default(),
            write_block: BlockSize::default(),
            window: Window::Auto,
            call_timeout: None,
            stall_timeout: None,
            connect_timeout: None,
            rate_limit: None,
            path_cache: None,
            known: None,
            channel: None,
            reserved_port: true,
            own_thread: false,
        }
    }
}

/// Methods that set one field each. What may be `None` takes a value, too.
macro_rules! with {
    ($($with:ident: $field:ident, $type:ty;)*) => {
        impl ClientConfig {
            $(
                #[doc = concat!("Sets [`Self::", stringify!($field), "`].")]
                #[must_use]
                pub fn $with(mut self, $field: impl Into<$type>) -> Self {
                    self.$field = $field.into();
                    self
                }
            )*
        }
    };
}

with! {
    with_transport: transport, TransportChoice;
    with_nfs_port: nfs_port, Option<u16>;
    with_mount_port: mount_port, Option<u16>;
    with_portmap_port: portmap_port, u16;
    with_credential: credential, Credential;
    with_retry: retry, RetryPolicy;
    with_read_block: read_block, BlockSize;
    with_write_block: write_block, BlockSize;
    with_window: window, Window;
    with_call_timeout: call_timeout, Option<Duration>;
    with_stall_timeout: stall_timeout, Option<Duration>;
    with_connect_timeout: connect_timeout, Option<Duration>;
    with_rate_limit: rate_limit, Option<u64>;
    with_path_cache: path_cache, Option<PathCache>;
    with_known: known, Option<KnownServer>;
    with_channel: channel, Option<Arc<dyn Channel>>;
    with_reserved_port: reserved_port, bool;
    with_own_thread: own_thread, bool;
}

impl ClientConfig {
    /// Checks what no single field's type can.
    ///
    /// # Errors
    /// [`ConfigError`] names the field, its value and the bound.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.session(None).check()
    }

    /// Returns what a session with the server at `peer` is to do; without an address no estimate is looked up.
    pub(crate) fn session(&self, peer: Option<SocketAddr>) -> SessionOptions {
        SessionOptions {
            credential: self.credential.clone(),
            retry: self.retry,
            read_block: self.read_block,
            write_block: self.write_block,
            window: self.window,
            stall_timeout: self.stall_timeout,
            rate_limit: self.rate_limit,
            prior: peer.and_then(|peer| self.path_cache.as_ref()?.ask(peer)),
        }
    }
}

/// The estimates of paths that earlier runs have left, for [`ClientConfig::path_cache`].
#[derive(Clone)]
pub struct PathCache(Arc<dyn Fn(SocketAddr) -> Option<PathEstimate> + Send + Sync>);

impl PathCache {
    /// Asks `memory` when a server's address is known.
    pub fn new(memory: impl Fn(SocketAddr) -> Option<PathEstimate> + Send + Sync + 'static) -> Self {
        Self(Arc::new(memory))
    }

    pub(crate) fn ask(&self, peer: SocketAddr) -> Option<PathEstimate> {
        (self.0)(peer)
    }
}

impl fmt::Debug for PathCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PathCache")
    }
}

/// Returns the AUTH_SYS credential of this process: effective user and group, supplementary groups, host name.
fn process_credential() -> Credential {
    use rustix::{process, system};
    let groups = process::getgroups().unwrap_or_default();
    Credential::Sys(nfs_wire::auth::AuthSys {
        machine_name: system::uname().nodename().to_bytes().to_vec(),
        uid: process::geteuid().as_raw(),
        gid: process::getegid().as_raw(),
        gids: groups.into_iter().map(process::Gid::as_raw).collect(),
    })
}

/// Which transports a client may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// What the server answers on, for every program on its own. NFS takes UDP unless the server is near, and moves to the other transport
    /// where that does better, also in the middle of a file.
    #[default]
    Auto,
    /// UDP only, for portmap and MOUNT too.
    Udp,
    /// TCP only, for portmap and MOUNT too.
    Tcp,
}

impl UrlOptions {
    /// Changes a configuration to what the URL asks for. Who acts as another user or group does not carry along the groups of this one.
    pub fn configure(&self, config: &mut ClientConfig) {
        config.nfs_port = self.nfs_port.or(config.nfs_port);
        config.mount_port = self.mount_port.or(config.mount_port);
        config.credential.act_as(self.uid, self.gid);
        let exact = |bytes: Option<u32>, otherwise| bytes.map_or(otherwise, BlockSize::Exact);
        config.read_block = exact(self.read_block, config.read_block);
        config.write_block = exact(self.write_block, config.write_block);
        if let Some(initial) = self.initial_timeout {
            let maximum = RetryPolicy::MAXIMUM.max(initial);
            let (linear_steps, linear_step) = (RetryPolicy::LINEAR_STEPS, RetryPolicy::LINEAR_STEP);
            config.retry = RetryPolicy::Hybrid { initial, linear_steps, linear_step, maximum };
        }
    }
}
