//! A small NFSv3 server: the default for demonstrations and tests, and the server of simulations. It is not a NAS.
//!
//! [`Service`] is the server as a plain machine: RPC messages in, replies out, time as an argument. It answers NFSv3
//! and MOUNTv3 (RFC 1813), and portmap and rpcbind (RFC 1833) for itself. It exports one [`Vfs`]: [`Memory`], whose
//! unstable writes are really volatile, or [`Directory`], a directory of the host. [`Faults`] make it misbehave the way
//! real servers and links do.
//!
//! | module | what it does |
//! |---|---|
//! | `service` | dispatch, service time, replies; calls of back ends that may wait, for other threads |
//! | `nfs3`, `mount`, `portmap` | the procedures of the three programs |
//! | `vfs`, `memory`, `directory` | what is exported |
//! | `address_validation` | who receives what is sent to its address |
//! | `reply_cache` | answers retransmitted calls again without running them |
//! | `faults` | what goes wrong, for which calls, and when |
//! | `driver` | one UDP socket and one TCP listener (feature `tokio`) |

#![forbid(unsafe_code)]

mod address_validation;
mod config;
mod descriptors;
mod directory;
#[cfg(feature = "tokio")]
mod driver;
mod faults;
mod handle;
mod memory;
mod mount;
mod nfs3;
mod portmap;
mod reply_cache;
mod service;
mod stream;
#[cfg(test)]
mod testing;
pub mod vfs;

pub use config::{
    ConfigError, MAX_TCP_TRANSFER_BYTES, MAX_UDP_TRANSFER_BYTES, MIN_TRANSFER_BYTES, NFS_PORT,
    ReplyCacheConfig, ServiceConfig, Timing,
};
pub use descriptors::most_descriptors;
pub use directory::{Access, Directory, DirectoryConfig, Metadata};
#[cfg(feature = "tokio")]
pub use driver::{CalledSocket, Detached, Server};
pub use faults::{Action, Calls, Faults, InnerExport, Mountable, REORDER_TIME, Rule, When};
pub use handle::{MAX_HANDLE_BYTES, MIN_HANDLE_BYTES};
pub use memory::{Memory, MemoryConfig};
pub use nfs_wire::{self, nfs3_types, portmap::Protocol};
pub use service::{Done, Peer, Service, Stats, Transmit, Work};
pub use vfs::Vfs;
