//! RPC (RFC 5531), NFSv3 and MOUNTv3 (RFC 1813) and portmap/rpcbind (RFC 1833) messages.
//!
//! Types and encoding come from [`nfs3_types`]. Decoding is our own: a [`Reader`] that borrows from the
//! datagram or record, checks every length before it allocates, and keeps unknown status codes as numbers.
//! The crate holds no state, does no I/O and makes no decisions.
//!
//! | module | what it reads and writes |
//! |---|---|
//! | [`rpc`] | call and reply headers, rejections |
//! | [`auth`] | AUTH_NONE and AUTH_SYS credentials |
//! | [`record`] | record marking on TCP |
//! | [`call`] | NFSv3 arguments (for servers) |
//! | [`reply`] | NFSv3 results (for clients) |
//! | [`mount`], [`portmap`] | the two programs that lead to the NFS service |

#![forbid(unsafe_code)]

pub mod auth;
pub mod call;
mod handle;
pub mod mount;
pub mod portmap;
mod procedure;
pub mod record;
pub mod reply;
pub mod rpc;
mod status;
mod xdr;

pub use handle::{FileHandle, HandleError};
pub use nfs3_types;
pub use procedure::Procedure;
pub use status::{MountStatus, Status};
pub use xdr::{DecodeError, Reader, encode, padding};
