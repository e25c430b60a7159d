//! Settings of the service, checked once.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    time::Duration,
};

use nfs_wire::nfs3_types::nfs3::nfstime3;
use thiserror::Error;

use crate::handle::{MAX_HANDLE_BYTES, MIN_HANDLE_BYTES};

/// The port of NFS servers (RFC 1813 §3.1).
pub const NFS_PORT: u16 = 2049;

/// Most data that one UDP reply can carry beside its headers, in bytes.
///
/// A datagram has at most 65,507 bytes; READ's reply needs 128 beside the data, WRITE's call up to 604 with the
/// largest AUTH_SYS credential and handle.
pub const MAX_UDP_TRANSFER_BYTES: u32 = 64_512;

/// Most data of one READ or WRITE over TCP, in bytes: it bounds what a connection can make the server hold.
pub const MAX_TCP_TRANSFER_BYTES: u32 = 16 << 20;

/// Smallest READ and WRITE limit, in bytes.
pub const MIN_TRANSFER_BYTES: u32 = 512;

/// Settings of a [`Service`](crate::Service). The default is a quick server on one machine: no service time, one export
/// named `/`, the limits of a Linux server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServiceConfig {
    /// Where the service is reached, which is what its port mapper answers; the driver puts the real port here. An
    /// unspecified address is answered with the one the client asked at, where its question names one (RFC 1833 §2.1).
    /// Default 0.0.0.0:2049.
    pub address: SocketAddr,
    /// Path under which MOUNT knows the exported directory: absolute, without a slash at its end. Default `/`.
    pub export: Vec<u8>,
    /// Length of file handles, in bytes, 20 to 64. Default 20; lengths that are no multiple of four exist in the wild.
    pub handle_bytes: u8,
    /// Most data of one READ or WRITE over UDP, in bytes, 512 to 64,512. Default 32 KiB, as Linux has it.
    pub udp_transfer_bytes: u32,
    /// Most data of one READ or WRITE over TCP, in bytes, 512 to 16 MiB. Default 1 MiB, as Linux has it.
    pub tcp_transfer_bytes: u32,
    /// Time of day when the service starts, since 1970. The default is the beginning of 2000, so that simulations are
    /// repeatable; the driver puts the real time here.
    pub start_time: nfstime3,
    /// Bounds of the duplicate request cache; `None` switches it off, as some servers have none. Default 1024 replies, 1 MiB.
    pub reply_cache: Option<ReplyCacheConfig>,
    /// Whether UDP source addresses are taken for forged until something random that was sent there comes back; until
    /// then they get at most three times the bytes that came from them (RFC 9000 §8). Default true. Other servers
    /// believe every address, so models of them do, too.
    pub validates_addresses: bool,
    /// How long calls take and how many are served at once. Default: no time at all.
    pub timing: Timing,
}

/// Bounds of the duplicate request cache.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReplyCacheConfig {
    /// Most replies kept, at least 1. Default 1024: a second of small calls.
    pub max_replies: usize,
    /// Most bytes of replies kept; a larger reply is not kept. Default 1 MiB.
    pub max_bytes: usize,
}

/// A model of the server's slowness, for virtual time.
///
/// A call waits until one of `threads` is free, holds it for its time, and is answered then. Calls that are not named
/// here take no time but wait like all others.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Timing {
    /// Calls in service at once. Default 8, as Linux's `nfsd` starts.
    pub threads: NonZeroUsize,
    /// Time of a READ. Default 0.
    pub read_time: Duration,
    /// Time of a WRITE. Default 0.
    pub write_time: Duration,
    /// Time of a COMMIT, and of a WRITE that is not UNSTABLE on top of `write_time`. Default 0.
    pub commit_time: Duration,
}

/// A setting is out of its range.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A number is outside its bounds.
    #[error("{field} is {value}, not between {low} and {high}")]
    OutOfRange {
        /// Name of the setting.
        field: &'static str,
        /// Value given.
        value: u64,
        /// Smallest value allowed.
        low: u64,
        /// Largest value allowed.
        high: u64,
    },
    /// The export is not a path that MOUNT can carry.
    #[error("export must start with a slash, not end with one, and have at most 1024 bytes")]
    Export,
}

impl Default for ServiceConfig {
    fn default() -> Self {
        /// 2000-01-01 00:00:00 UTC.
        const YEAR_2000: u32 = 946_684_800;
        Self {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), NFS_PORT),
            export: b"/".to_vec(),
            handle_bytes: MIN_HANDLE_BYTES,
            udp_transfer_bytes: 32 << 10,
            tcp_transfer_bytes: 1 << 20,
            start_time: nfstime3 { seconds: YEAR_2000, nseconds: 0 },
            reply_cache: Some(ReplyCacheConfig::default()),
            validates_addresses: true,
            timing: Timing::default(),
        }
    }
}

impl Default for ReplyCacheConfig {
    fn default() -> Self {
        Self { max_replies: 1024, max_bytes: 1 << 20 }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            threads: const { NonZeroUsize::new(8).expect("eight is not zero") },
            read_time: Duration::ZERO,
            write_time: Duration::ZERO,
            commit_time: Duration::ZERO,
        }
    }
}

impl ServiceConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let range = |field, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(ConfigError::OutOfRange { field, value, low, high })
            }
        };
        range("handle_bytes", self.handle_bytes.into(), MIN_HANDLE_BYTES.into(), MAX_HANDLE_BYTES.into())?;
        for (field, value, high) in [
            ("udp_transfer_bytes", self.udp_transfer_bytes, MAX_UDP_TRANSFER_BYTES),
            ("tcp_transfer_bytes", self.tcp_transfer_bytes, MAX_TCP_TRANSFER_BYTES),
        ] {
            range(field, value.into(), MIN_TRANSFER_BYTES.into(), high.into())?;
        }
        if let Some(cache) = self.reply_cache {
            range("max_replies", cache.max_replies as u64, 1, u64::MAX)?;
        }
        let export = &self.export[..];
        let is_path = export == b"/" || (export.starts_with(b"/") && !export.ends_with(b"/"));
        if !is_path || export.len() > nfs_wire::mount::MAX_PATH_BYTES {
            return Err(ConfigError::Export);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid_and_values_out_of_range_are_named() {
        assert_eq!(ServiceConfig::default().check(), Ok(()));
        let short = ServiceConfig { handle_bytes: 8, ..ServiceConfig::default() };
        assert_eq!(short.check().unwrap_err().to_string(), "handle_bytes is 8, not between 20 and 64");
        for export in [&b""[..], b"srv", b"/srv/"] {
            let config = ServiceConfig { export: export.to_vec(), ..ServiceConfig::default() };
            assert_eq!(config.check(), Err(ConfigError::Export));
        }
    }
}
