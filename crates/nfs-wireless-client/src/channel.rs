//! A secure channel: datagrams that travel encrypted.

use std::{fmt, io, net::SocketAddr, pin::Pin, sync::Arc};

use crate::{
    config::{ClientConfig, TransportChoice},
    error::Error,
};

/// Encrypts the datagrams of a client on their way to one server ([`ClientConfig::channel`]).
///
/// All of them belong to one session, whatever socket they leave from, so that a change of address is no event. What is lost or arrives
/// twice is handled as without a channel: retransmission is above this.
pub trait Channel: fmt::Debug + Send + Sync {
    /// Agrees with the server on keys, unless that was done; returns where it serves NFS and MOUNT.
    fn open(&self) -> Pin<Box<dyn Future<Output = io::Result<SocketAddr>> + Send + '_>>;

    /// Returns how many bytes a datagram has beside its message.
    fn overhead_bytes(&self) -> u32;

    /// Appends the datagram that carries a message.
    fn seal(&self, message: &[u8], datagram: &mut Vec<u8>);

    /// Opens a datagram, and leaves its message in `message`; false, if there is none for this client.
    fn open_datagram(&self, datagram: &[u8], message: &mut Vec<u8>) -> bool;

    /// Returns why nothing will be answered any more, once that is so.
    fn end(&self) -> Option<Arc<io::Error>>;
}

impl ClientConfig {
    /// Opens the channel, if there is one, and fixes what it decides. Returns the host to connect to.
    pub(crate) async fn open_channel(&mut self, host: &str) -> Result<String, Error> {
        let Some(channel) = self.channel.clone() else { return Ok(host.to_owned()) };
        let address = channel.open().await.map_err(|source| Error::Channel(Arc::new(source)))?;
        self.transport = TransportChoice::Udp;
        (self.nfs_port, self.mount_port) = (Some(address.port()), Some(address.port()));
        (self.reserved_port, self.known) = (false, None);
        Ok(match address {
            SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
            address => address.ip().to_string(),
        })
    }
}
