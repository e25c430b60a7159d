//! What a mount shows of a server that is odd, slow, wrong or away, and of files that change while programs read them.
//!
//! The server is in this process, its files are in memory (`tree`), and what it does is data (`faults`). Programs read through the
//! kernel. Makes mounts, so it needs root and /dev/fuse, as CI has.

#![cfg(mount)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/mounted.rs"]
mod mounted;

mod blocks;
mod faults;
mod model;
mod procedures;
mod program;
mod server;
mod tree;
mod worker;

mod contents;
mod lies;
mod listings;
mod outages;
mod points;
mod soak;
mod torture;
