//! What `nfsw cp`, `sync` and the commands for files do: with files, names, links and times, with servers that end or move what they have,
//! with disks that are full, and after they were killed.
//!
//! No test here makes a tree of mounts of its own: that would keep the mounts of the others in use.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/killing.rs"]
mod killing;
#[cfg(target_os = "linux")]
#[path = "../common/mounted.rs"]
mod mounted;
#[cfg(all(target_os = "linux", not(portable_only)))]
#[path = "../common/odd.rs"]
mod odd;

mod beside_others;
mod copying;
mod files;
mod flapping;
mod integrity;
mod kill_points;
mod literal_names;
mod local_trouble;
mod moving_sources;
mod nested_exports;
#[cfg(all(target_os = "linux", not(portable_only)))]
mod odd_file_systems;
mod owners;
mod planted;
mod resume;
mod resume_names;
mod rsync_patterns;
mod serve_attacked;
mod server_restart;
mod shards;
mod sparse;
mod sync_again;
mod target_links;
mod two_names;
mod wrong_files;

// For `killing`, which has it from its parent.
use common::part;
