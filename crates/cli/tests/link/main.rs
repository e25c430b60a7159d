//! Emulated links, networks that are made for a test, and what crosses them. Needs root, as CI has.
//!
//! These tests make networks and trees of mounts of their own, and unmount nothing that another test could have in such a tree.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/network.rs"]
mod network;

#[cfg(mount)]
mod disconnections;
mod exec;
#[cfg(mount)]
mod new_address;
#[cfg(mount)]
mod nfs_modes;
mod path_mtu;
mod proxy;
mod roaming;
mod round_trips;
mod tcp_model;
