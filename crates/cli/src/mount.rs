//! A directory of a server in the file tree of this machine, through FUSE (`nfsw mount`).
//!
//! [`View`] joins three sides under one lock: requests of the kernel come in on the threads of [`Front`] and become operations of
//! the [`nfs_cache::Cache`]; [`carry`] makes the calls that it asks for; replies to the kernel leave as soon as the cache has an answer.

mod attributes;
pub(crate) mod background;
mod carrier;
mod front;
mod hoard;
mod interrupt;
pub(crate) mod line;
mod nfs;
mod point;
pub(crate) mod status;
mod thumbnails;
mod view;

pub(crate) use self::{
    carrier::carry,
    front::Front,
    hoard::Patterns,
    nfs::{Export, Readers},
    point::{MountPoint, SOURCE, device, served_port, unmount, unmount_unused},
    thumbnails::{PHOTOS, Thumbnails},
    view::{Notice, Snapshot, View},
};
