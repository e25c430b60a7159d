//! Links in virtual time, and on sockets.

mod common;

mod conservation;
mod export;
mod loss;
mod packets;
#[cfg(feature = "tokio")]
mod proxy;
mod timelines;
#[cfg(all(feature = "tokio", target_os = "linux", not(portable_only)))]
mod tunnel;
