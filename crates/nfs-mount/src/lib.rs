//! A directory of an NFSv3 server in the file tree of this machine: read-only, cached on disk, and there in outages too.
//!
//! [`Mount::begin`] finds the directory, or what an earlier mount of it has left; [`fuse::mount`] puts it into the file tree, and
//! [`nfs::Export`] serves it to NFS clients. [`Mount::drive`] makes the calls, for as long as it is polled.
//!
//! ```no_run
//! # use std::{ffi::OsStr, path::Path};
//! # use nfs_files::{Context, Result, event::Event, servers::Servers, url::Target};
//! # use nfs_mount::{Mount, Options, fuse, point::MountPoint};
//! # async fn show() -> Result<()> {
//! let servers = Servers::default();
//! let context = Context { servers: &servers, events: &|_: &Event<'_>| Ok(()) };
//! let photos = Target::parse_remote(OsStr::new("nas:/srv/photos")).expect("a server and a path");
//! let tell = |event| println!("{event:?}");
//! let mount = Mount::begin(Options::new(photos), context, &tell).await?;
//! let mounted = fuse::mount(&mount, &MountPoint::prepare(Path::new("/home/me/photos"))?)?;
//! tokio::select! {
//!     never = mount.drive(context, &tell) => match never {},
//!     () = mounted.ended() => {}
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A mount joins three sides under one lock: requests of the kernel come in on the threads of a FUSE session, or as calls of
//! NFS clients, and become operations of an [`nfs_cache::Cache`]; the driver makes the calls that it asks for; answers leave as soon as
//! the cache has them.

#![cfg(target_os = "linux")]

mod driver;
mod errno;
mod event;
pub mod fuse;
#[doc(hidden)]
pub mod fuzzing;
mod hoard;
mod kernel;
pub mod nfs;
pub mod point;
mod start;
pub mod store;
mod thumbnails;
mod view;

pub use nfs_cache::{Failure, Stats};

pub use self::{
    event::{Event, NoDisk},
    hoard::Patterns,
    start::{Mount, Options},
    view::{Link, Snapshot},
};
