//! Whether an NFS service answers, without mounting anything.

use std::{net::SocketAddr, time::Duration};

use nfs_wire::{Procedure, rpc::Program};

use super::{open_channel, within};
use crate::{
    config::ClientConfig,
    connect::Finder,
    driver::{CallFailure, Connection, Reactor},
    error::Error,
};

/// Calls NULL on the NFS service of `host` over one transport, without mounting: for reachability tests.
#[derive(Debug)]
pub struct Pinger {
    connection: Connection,
    address: SocketAddr,
    timeout: Option<Duration>,
    _reactor: Reactor,
}

impl Pinger {
    /// Connects to the NFS service; the transport is the configuration's.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{ClientConfig, Error, Pinger};
    /// # async fn example() -> Result<(), Error> {
    /// let pinger = Pinger::connect("nas", ClientConfig::default()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::connect`](super::Client::connect).
    pub async fn connect(host: &str, mut config: ClientConfig) -> Result<Self, Error> {
        config.check()?;
        let host = &open_channel(host, &mut config).await?;
        let reactor = Reactor::start(config.own_thread).await?;
        let finder = Finder { reactor: &reactor, config: &config, host };
        let path = within(&config, host, finder.nfs_only()).await?;
        let (address, connection) = (path.address(), path.connection);
        connection.persist();
        Ok(Self { connection, address, timeout: config.call_timeout, _reactor: reactor })
    }

    /// Returns the address of the NFS service.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Calls NULL once and returns how long the answer took, and how often the call was sent.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Error, Pinger};
    /// # async fn example(pinger: Pinger) -> Result<(), Error> {
    /// let (time, attempts) = pinger.ping().await?;
    /// println!("{} ms, sent {attempts} times", time.as_millis());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Silent`] when the configured call timeout passes.
    pub async fn ping(&self) -> Result<(Duration, u32), Error> {
        let what = Procedure::Null.name();
        let start = tokio::time::Instant::now();
        match self.connection.call((Program::NFS, 0), self.timeout, Vec::new()).await {
            Ok(answer) => {
                answer.outcome.map_err(|rejection| Error::Rejected { what, rejection })?;
                Ok((start.elapsed(), answer.attempts))
            }
            Err(CallFailure::Expired { attempts, elapsed }) => Err(Error::Silent { what, attempts, elapsed }),
            Err(CallFailure::Broken(reason)) => Err(Error::Broken { address: self.address, reason }),
            Err(_) => Err(Error::Closed),
        }
    }
}
