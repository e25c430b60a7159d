//! What a caller may choose, with defaults and their sources.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use nfs_wire::auth::Credential;
use thiserror::Error;

use crate::engine::Belief;

/// Smallest block of a READ or WRITE that may be configured, in bytes.
pub const MIN_BLOCK_BYTES: u32 = 512;

/// Largest block of a READ or WRITE, in bytes: above 1 MiB nothing is gained and servers allocate it at once.
pub const MAX_BLOCK_BYTES: u32 = 1 << 20;

/// Everything a [`Client`](crate::Client) needs to know besides the server's name.
///
/// The default suits a person who copies files: ask the port mapper, try TCP and then UDP, use the largest
/// safe blocks, wait for ever while saying so.
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
    /// What is remembered of the path to a server from earlier runs. Default: nothing.
    pub recall: Option<Recall>,
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
            recall: None,
            reserved_port: true,
            own_thread: false,
        }
    }
}

impl ClientConfig {
    /// Checks what no single field's type can.
    ///
    /// # Errors
    /// [`ConfigError`] names the field, its value and the bound.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.read_block.check("read_block")?;
        self.write_block.check("write_block")?;
        self.retry.check()?;
        if self.window == Window::Calls(0) {
            return Err(ConfigError::TooSmall { field: "window", value: "0".into(), bound: "1 call".into() });
        }
        if let Some(rate) = self.rate_limit.filter(|&rate| rate < MIN_RATE_LIMIT) {
            let bound = format!("{MIN_RATE_LIMIT} bit/s");
            return Err(ConfigError::TooSmall { field: "rate_limit", value: rate.to_string(), bound });
        }
        Ok(())
    }
}

/// Answers what was believed about the path to an address, for [`ClientConfig::recall`].
#[derive(Clone)]
pub struct Recall(Arc<dyn Fn(SocketAddr) -> Option<Belief> + Send + Sync>);

impl Recall {
    /// Asks `memory` when a server's address is known.
    pub fn new(memory: impl Fn(SocketAddr) -> Option<Belief> + Send + Sync + 'static) -> Self {
        Self(Arc::new(memory))
    }

    pub(crate) fn ask(&self, peer: SocketAddr) -> Option<Belief> {
        (self.0)(peer)
    }
}

impl fmt::Debug for Recall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recall")
    }
}

/// Returns the AUTH_SYS credential of this process: effective user and group, supplementary groups, host name.
#[cfg(feature = "tokio")]
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

/// Returns AUTH_NONE: without system calls we do not know who we are.
#[cfg(not(feature = "tokio"))]
const fn process_credential() -> Credential {
    Credential::None
}

/// Lowest rate limit, in bit/s: one smallest block every four seconds.
const MIN_RATE_LIMIT: u64 = 1000;

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

/// Bytes of file data in one READ or WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSize {
    /// What the transport carries best, at most `max` bytes if given.
    Auto {
        /// Upper bound in bytes, from 512 to 1 MiB.
        max: Option<u32>,
    },
    /// Exactly this many bytes: a multiple of 512 from 512 to 1 MiB. A server that does not answer this size is
    /// asked for less.
    Exact(u32),
}

impl Default for BlockSize {
    fn default() -> Self {
        Self::Auto { max: None }
    }
}

impl BlockSize {
    fn check(self, field: &'static str) -> Result<(), ConfigError> {
        let bytes = match self {
            Self::Auto { max: None } => return Ok(()),
            Self::Auto { max: Some(bytes) } | Self::Exact(bytes) => bytes,
        };
        let value = bytes.to_string();
        if bytes < MIN_BLOCK_BYTES {
            return Err(ConfigError::TooSmall { field, value, bound: format!("{MIN_BLOCK_BYTES} bytes") });
        }
        if bytes > MAX_BLOCK_BYTES {
            return Err(ConfigError::TooLarge { field, value, bound: format!("{MAX_BLOCK_BYTES} bytes") });
        }
        if matches!(self, Self::Exact(_)) && !bytes.is_multiple_of(MIN_BLOCK_BYTES) {
            return Err(ConfigError::NotAMultiple { field, value, factor: MIN_BLOCK_BYTES });
        }
        Ok(())
    }
}

/// How many READs and WRITEs may be in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Window {
    /// As many as the transport needs.
    #[default]
    Auto,
    /// At most this many.
    Calls(u32),
}

/// When an unanswered datagram is sent again. TCP never resends on a timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryPolicy {
    /// Losses are found from later replies and from silences; window and block follow what the path delivers.
    #[default]
    Adaptive,
    /// The Linux kernel's UDP client, for comparison: round-trip timers that remember back-off.
    Kernel {
        /// Longest timeout. Default: 60 s.
        maximum: Duration,
    },
    /// The timeout doubles after every loss: "No changes" in Dube et al. 1997 §5.
    Exponential {
        /// Timeout of the first attempt. Default: 700 ms.
        initial: Duration,
        /// Longest timeout. Default: 60 s.
        maximum: Duration,
    },
    /// The timeout grows linearly at first, then doubles (Dube et al. 1997 §5.2).
    Hybrid {
        /// Timeout of the first attempt. Default: 700 ms.
        initial: Duration,
        /// How many resends lengthen the timeout linearly. Default: 3.
        linear_steps: u32,
        /// By how much each of them does. Default: 100 ms.
        linear_step: Duration,
        /// Longest timeout. Default: 60 s.
        maximum: Duration,
    },
}

impl RetryPolicy {
    /// Timeout of the first attempt in the 1997 testbed.
    pub const INITIAL: Duration = Duration::from_millis(700);
    /// Longest timeout of the 1997 testbed.
    pub const MAXIMUM: Duration = Duration::from_secs(60);
    /// Linear steps of the hybrid back-off.
    pub const LINEAR_STEPS: u32 = 3;
    /// Increment of a linear step.
    pub const LINEAR_STEP: Duration = Duration::from_millis(100);

    /// Returns the papers' unmodified client.
    pub const fn exponential() -> Self {
        Self::Exponential { initial: Self::INITIAL, maximum: Self::MAXIMUM }
    }

    /// Returns the papers' hybrid client.
    pub const fn hybrid() -> Self {
        Self::Hybrid {
            initial: Self::INITIAL,
            linear_steps: Self::LINEAR_STEPS,
            linear_step: Self::LINEAR_STEP,
            maximum: Self::MAXIMUM,
        }
    }

    /// Returns the Linux kernel's UDP client.
    pub const fn kernel() -> Self {
        Self::Kernel { maximum: Self::MAXIMUM }
    }

    fn check(&self) -> Result<(), ConfigError> {
        let (initial, maximum) = match *self {
            Self::Adaptive => return Ok(()),
            Self::Kernel { maximum } => (Duration::from_millis(100), maximum),
            Self::Exponential { initial, maximum } | Self::Hybrid { initial, maximum, .. } => {
                (initial, maximum)
            }
        };
        if initial < Duration::from_millis(1) {
            let value = format!("{initial:?}");
            return Err(ConfigError::TooSmall { field: "initial timeout", value, bound: "1 ms".into() });
        }
        if maximum < initial {
            let value = format!("{maximum:?}");
            let bound = format!("the initial timeout, {initial:?}");
            return Err(ConfigError::TooSmall { field: "maximum timeout", value, bound });
        }
        Ok(())
    }
}

/// A setting that cannot be.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value is below its bound.
    #[error("{field} is {value}, must be at least {bound}")]
    TooSmall {
        /// Name of the field.
        field: &'static str,
        /// The value given.
        value: String,
        /// The smallest value allowed.
        bound: String,
    },
    /// A value is above its bound.
    #[error("{field} is {value}, must be at most {bound}")]
    TooLarge {
        /// Name of the field.
        field: &'static str,
        /// The value given.
        value: String,
        /// The largest value allowed.
        bound: String,
    },
    /// A size has a remainder.
    #[error("{field} is {value}, must be a multiple of {factor}")]
    NotAMultiple {
        /// Name of the field.
        field: &'static str,
        /// The value given.
        value: String,
        /// What it must be a multiple of.
        factor: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_settings_name_the_field_and_the_bound() {
        let check = |change: fn(&mut ClientConfig), message: &str| {
            let mut config = ClientConfig::default();
            change(&mut config);
            assert_eq!(config.check().unwrap_err().to_string(), message);
        };
        check(|c| c.read_block = BlockSize::Exact(500), "read_block is 500, must be at least 512 bytes");
        check(|c| c.write_block = BlockSize::Exact(1000), "write_block is 1000, must be a multiple of 512");
        check(
            |c| c.read_block = BlockSize::Auto { max: Some(1 << 21) },
            "read_block is 2097152, must be at most 1048576 bytes",
        );
        check(|c| c.window = Window::Calls(0), "window is 0, must be at least 1 call");
        check(|c| c.rate_limit = Some(10), "rate_limit is 10, must be at least 1000 bit/s");
        ClientConfig::default().check().unwrap();
    }
}
