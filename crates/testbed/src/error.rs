//! What can be wrong with an experiment.

use thiserror::Error;

/// An experiment that cannot be.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no room of this name.
    #[error("there is no room {name:?}; there are {known}")]
    UnknownRoom {
        /// The name given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// There is no figure of this name.
    #[error("there is no figure {name:?}; there are {known} and all")]
    UnknownFigure {
        /// The name given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// There are no recorded channels.
    #[error("recorded channels are not part of this program; name a directory with --traces")]
    NoChannels,
    /// A room's file cannot be read.
    #[error("room {name:?}: {message}")]
    Room {
        /// The room.
        name: String,
        /// What is wrong, and where.
        message: String,
    },
    /// The link cannot be.
    #[error(transparent)]
    Link(#[from] linkemu::ConfigError),
    /// The client's settings cannot be.
    #[error(transparent)]
    Client(#[from] nfs_proto::config::ConfigError),
    /// The server's settings cannot be.
    #[error(transparent)]
    Server(#[from] nfs_wireless_server::ConfigError),
    /// A number of the plan is out of its bounds.
    #[error("{field} is {value}, must be {bound}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// The value given.
        value: String,
        /// The values allowed.
        bound: &'static str,
    },
    /// The published numbers cannot be read.
    #[error(transparent)]
    Published(#[from] crate::published::PublishedError),
}
