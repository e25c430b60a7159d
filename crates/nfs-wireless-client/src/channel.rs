//! A secure channel: datagrams that travel encrypted.

use std::{fmt, io, net::SocketAddr, pin::Pin, sync::Arc};

/// Encrypts the datagrams of a client on their way to one server ([`ClientConfig::channel`](crate::ClientConfig::channel)).
///
/// All of them belong to one session, whatever socket they leave from, so that a change of address is no event. What is lost or arrives
/// twice is handled as without a channel: retransmission is above this.
pub trait Channel: fmt::Debug + Send + Sync {
    /// Agrees with the server on keys, unless that was done; returns where it serves NFS and MOUNT.
    fn open(&self) -> Pin<Box<dyn Future<Output = io::Result<SocketAddr>> + Send + '_>>;

    /// Looks where the server is now, as it has been silent for seconds, and agrees with it on keys once more; returns where that is.
    fn find(&self) -> Pin<Box<dyn Future<Output = io::Result<SocketAddr>> + Send + '_>>;

    /// Returns how many bytes a datagram has beside its message.
    fn overhead_bytes(&self) -> u32;

    /// Appends the datagram that carries a message.
    fn seal(&self, message: &[u8], datagram: &mut Vec<u8>);

    /// Opens a datagram, and leaves its message in `message`; false, if there is none for this client.
    fn open_datagram(&self, datagram: &[u8], message: &mut Vec<u8>) -> bool;

    /// Returns why nothing will be answered any more, once that is so.
    fn end(&self) -> Option<Arc<io::Error>>;

    /// Returns the same as soon as it is so.
    fn ended(&self) -> Pin<Box<dyn Future<Output = Arc<io::Error>> + Send + '_>>;
}
