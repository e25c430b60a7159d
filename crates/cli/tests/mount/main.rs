//! What programs see of a server through `nfsw mount`, by FUSE and by NFS. Makes mounts, so it needs root and /dev/fuse, as CI has.
//!
//! No test here makes a tree of mounts of its own: that would keep the mounts of the others in use.

#![cfg(mount)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../hostile_server/liar.rs"]
#[allow(dead_code, reason = "other test programs use other parts")]
mod liar;
#[path = "../hostile_server/lies.rs"]
#[allow(dead_code, reason = "other test programs use other parts")]
mod lies;
#[path = "../common/mounted.rs"]
mod mounted;
#[path = "../common/photo.rs"]
mod photo;

mod cache;
mod entries;
mod fuse;
mod kept;
mod modes;
mod nfs;
mod nfs_users;
mod programs;
mod read_only_cache;
mod thumbnails;
