//! A directory of a server in the file tree of this machine, through FUSE (`nfsw mount`).
//!
//! [`View`] joins three sides under one lock: requests of the kernel come in on the threads of [`Front`] and become operations of
//! the [`nfs_cache::Cache`]; [`carry`] makes the calls that it asks for; replies to the kernel leave as soon as the cache has an answer.

mod attributes;
mod carrier;
mod front;
mod interrupt;
mod nfs;
mod point;
mod view;

pub(crate) use self::{
    carrier::carry,
    front::Front,
    nfs::{Export, Readers},
    point::{MountPoint, SOURCE, is_mounted, served_port, unmount},
    view::{Notice, View},
};
