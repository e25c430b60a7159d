//! An asynchronous NFSv3 client for bad links, in user space: no mount, no root, UDP and TCP.
//!
//! ```no_run
//! use nfs_wireless_client::{ClientConfig, Error, Fs};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Error> {
//!     let nas = Fs::connect_url("nfs://nas/srv/notes", ClientConfig::default()).await?;
//!     let text = nas.read_to_string("today.txt").await?;
//!     nas.create_dir_all("old/2026").await?;
//!     nas.rename("today.txt", "old/2026/monday.txt").await?;
//!     nas.write("today.txt", text + "buy milk\n").await
//! }
//! ```
//!
//! Whole files are fastest with [`Client::download`] and [`Client::upload`], which keep many calls in flight:
//!
//! ```no_run
//! use nfs_wireless_client::{Client, ClientConfig};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect("nas", b"/srv/music", ClientConfig::default()).await?;
//! let song = client.resolve(b"/srv/music/song.ogg").await?;
//! let target = std::fs::File::create("song.ogg")?;
//! client.download(song.handle, song.metadata.size, target, None).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Layers
//!
//! Protocol logic is plain structs that take the time as an argument, in `nfs-proto`; only this crate has sockets and a clock. The
//! same machines run in virtual time.
//!
//! | layer | what it is |
//! |---|---|
//! | [`Fs`], [`Client`], [`File`], [`ReadDir`] | the asynchronous interface: by path, and by file handle |
//! | driver | sockets, clock and files, on the caller's runtime or a thread of their own |
//! | `nfs-proto` | sessions, transfers and the engine, as machines |
//!
//! # What is promised
//!
//! An upload that returned is on the server's stable storage: data counts as written only when a COMMIT with the
//! same write verifier was answered (RFC 1813 §4.8). A reply is accepted only from the address that was called. A
//! repeated call that changes something keeps its XID and its bytes, so that a server's duplicate request cache can match
//! it; a refusal that an earlier attempt would explain is settled by looking.
//!
//! Every future may be dropped at any time: what that leaves is said where it is more than nothing, and in
//! docs/guarantees.md. Slow storage and callbacks delay nobody else unless the client has a thread of its own
//! ([`ClientConfig::own_thread`]).

#![forbid(unsafe_code)]

/// The examples of the document, which compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod channel;
mod client;
mod config;
mod connect;
mod driver;
mod endpoint;
mod error;
mod file;
mod fs;
mod known;
mod read_dir;
mod shown;
pub mod url;

pub use nfs_wire::{
    FileHandle, MountStatus, Procedure, Status as NfsStatus,
    auth::{AuthSys, Credential},
    mount::Export,
    nfs3_types,
    portmap::Protocol,
    rpc::Rejection,
};

pub use nfs_proto::{
    attr::{FileType, Metadata, SetAttributes, SetTime, Time},
    config::{BlockSize, ConfigError, MAX_BLOCK_BYTES, MIN_BLOCK_BYTES, RetryPolicy, Window},
    endpoint::Reason,
    engine::{PathEstimate, Resends, RttHistogram, Stats, Withdrawn},
    transfer::{
        Checkpoint, DirEntry, Placement, Range, RangeSet, TransferError, Upload, UploadSpec, Uploaded,
    },
};

pub use self::{
    channel::Channel,
    client::{Client, Entry, Pinger, SpecialFile, Stability, Status, Written, is_reservation},
    config::{ClientConfig, PathCache, TransportChoice},
    driver::{Observer, Sink, Source},
    error::Error,
    file::File,
    fs::{Fs, FsDirEntry, FsReadDir, OpenOptions, is_plain_name},
    known::{KnownServer, LookedUp},
    read_dir::ReadDir,
};
