//! What the configuration says of servers (docs/config.md).

use std::collections::BTreeMap;

use super::ConnectionArgs;

/// What the configuration says of connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    /// Options for every server.
    pub(crate) defaults: ConnectionArgs,
    /// How many of them are given.
    pub(crate) given: usize,
    /// Servers by the name that targets have.
    pub(crate) hosts: BTreeMap<String, Host>,
}

/// What is known of one server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Host {
    /// Name or address to connect to, if that is another one.
    pub(crate) name: Option<String>,
    /// Port of the NFS service.
    pub(crate) nfs_port: Option<u16>,
    /// Port of the MOUNT service.
    pub(crate) mount_port: Option<u16>,
    /// How calls say whom they come from.
    pub(crate) security: Security,
    /// Options.
    pub(crate) connection: ConnectionArgs,
}

/// How calls say whom they come from (RFC 5531 §8.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Security {
    /// AUTH_SYS.
    #[default]
    Sys,
    /// AUTH_NONE.
    None,
}
