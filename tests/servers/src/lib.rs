//! Private NFS servers for tests and benchmarks, of many kinds, each with ports and files of its own.
//!
//! A kind that cannot be started is an error that says what is missing: a test cannot go on without.

#![forbid(unsafe_code)]

mod client;
mod embedded;
pub mod ganesha;
mod go_nfs;
pub mod knfsd;
pub mod lane;
pub mod loopback;
pub mod matrix;
mod nfs3_server;
mod nfsserve;
mod process;
mod program;
pub mod proxy;
mod ready;
mod rpcbind;
mod served;
mod server;
pub mod speed;
pub mod unfs3;

use std::path::{Path, PathBuf};

pub use client::binary as nfsw;
pub use matrix::difference;
pub use served::{Call, Served};
pub use server::{Caller, Server, View};

/// Returns the directory of the build that this program belongs to: a place for what outlives a test.
fn build_directory() -> PathBuf {
    let program = std::env::current_exe().expect("a path of this program");
    // All programs of one build share it; cargo marks its directory.
    let build = program.ancestors().find(|directory| directory.join("CACHEDIR.TAG").exists());
    build.map_or_else(std::env::temp_dir, Path::to_owned)
}
