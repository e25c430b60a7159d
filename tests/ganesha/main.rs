//! The client library and the command against a real nfs-ganesha.
//!
//! Every test has a server of its own: it needs root and the packages nfs-ganesha and nfs-ganesha-vfs, and says so.

mod cli;
mod exec;
mod interruptions;
#[path = "../../crates/cli/tests/common/killing.rs"]
mod killing;
mod library;
mod link;
mod nfsw;
#[path = "../../crates/cli/tests/common/part.rs"]
mod part;
mod tree;

use part::part;
use private_servers::ganesha as server;
