//! A server in this process, for tests.

use std::{ffi::OsStr, sync::Arc};

use nfs_wireless_client::ClientConfig;

pub(crate) use private_servers::{Call, Served};

use crate::{
    Events, Result,
    event::Event,
    servers::{Access, Servers},
    url::{Remote, Target},
};

/// A path on the server as a user names it.
pub(crate) fn remote(served: &Served, path: &str) -> Remote {
    Target::parse_remote(OsStr::new(&served.url(path))).unwrap()
}

/// Servers that are asked as they are when nothing is said.
pub(crate) fn servers() -> Servers {
    let configure = |remote: &Remote| {
        let mut config = ClientConfig::default();
        config.own_thread = true;
        remote.options.configure(&mut config);
        Ok(Access { address: remote.host.to_string(), config })
    };
    Servers::new(configure, Arc::default())
}

/// Hears what happens and says nothing.
pub(crate) struct Silent;

impl Events for Silent {
    fn tell(&self, _: &Event<'_>) -> Result<()> {
        Ok(())
    }
}
