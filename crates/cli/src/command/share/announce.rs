//! Announcing a share to those around it.

use std::{net::SocketAddr, time::SystemTime};

use nfs_share::{Announcement, DiscoveryError, Notice, PublicKey};

use crate::{
    args::ShareArgs,
    command::find::{failure, interfaces},
    report::Reporter,
    shares::label,
};

/// An announcement, if there is one.
#[derive(Debug)]
pub(super) struct Announced {
    announcement: Option<Announcement>,
    /// Others have it.
    pub(super) is_sent: bool,
}

impl Announced {
    /// Begins to announce a share that listens there, unless its command line says otherwise. If that is not possible, its address leads to
    /// it all the same, and it is said.
    ///
    /// # Errors
    /// An interface was named that cannot be used.
    pub(super) async fn start(
        arguments: &ShareArgs,
        (key, listen): (PublicKey, SocketAddr),
        codes: Vec<u16>,
        reporter: &Reporter,
    ) -> anyhow::Result<Self> {
        let nobody = Self { announcement: None, is_sent: false };
        // Nobody else reaches a share on loopback.
        let is_alone = listen.ip().is_loopback() && arguments.interface.is_empty();
        if arguments.no_announce || is_alone {
            return Ok(nobody);
        }
        let name = arguments.name.clone().unwrap_or_else(label);
        let notice = Notice { name, key: key.into(), codes, since: SystemTime::now() };
        let warn = |error: &DiscoveryError| {
            reporter.warning(format_args!("warning: others find this share by its address only: {error}"));
        };
        let announcement = match Announcement::start(notice, listen, &interfaces(&arguments.interface)) {
            Ok(announcement) => announcement,
            Err(error @ (DiscoveryError::Unknown { .. } | DiscoveryError::PointToPoint(_))) => {
                return Err(failure(&error));
            }
            Err(error) => {
                warn(&error);
                return Ok(nobody);
            }
        };
        let sent = announcement.is_sent().await;
        if let Err(error) = &sent {
            warn(error);
        }
        Ok(Self { announcement: Some(announcement), is_sent: sent.is_ok() })
    }

    /// Announces these codes from now on.
    pub(super) fn set_codes(&mut self, codes: Vec<u16>) {
        if let Some(announcement) = &mut self.announcement {
            announcement.set_codes(codes);
        }
    }

    /// Withdraws it.
    pub(super) async fn end(self) {
        if let Some(announcement) = self.announcement {
            announcement.end().await;
        }
    }
}
