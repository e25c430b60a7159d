//! A directory of a server in the file tree of this machine, through FUSE (`nfsw mount`).
//!
//! [`View`] joins three sides under one lock: requests of the kernel come in on the threads of a [`Session`] and become
//! operations of the [`nfs_cache::Cache`] ([`Front`]); [`carry`] makes the calls that it asks for; answers to the kernel leave as soon as
//! the cache has them.

pub(crate) mod background;
mod carrier;
mod errors;
mod front;
mod fuse;
mod hoard;
mod interrupt;
pub(crate) mod line;
pub(crate) mod nfs;
mod point;
pub(crate) mod status;
pub(crate) mod thumbnails;
mod view;

pub(crate) use self::{
    carrier::carry,
    front::Front,
    fuse::{Session, device},
    hoard::Patterns,
    interrupt::ignores_hangup,
    nfs::{Export, Readers},
    point::{MountPoint, Mounted, SOURCE, directory, served_port, unmount, unmount_unused},
    thumbnails::{PHOTOS, Thumbnails},
    view::{Notice, Snapshot, View},
};
