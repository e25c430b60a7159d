//! The protocol of an NFSv3 client for bad links, as machines without sockets, clocks and threads.
//!
//! Plain structs that take the time as an argument: a driver on real sockets and a simulation in virtual time run the same code.
//!
//! | layer | what it is |
//! |---|---|
//! | [`endpoint`] | several connections: choice of transport, pieces, moves |
//! | [`session`] | an engine and the transfers that feed it |
//! | [`transfer`] | download, upload, listing and stream as machines |
//! | [`engine`] | calls, XIDs, retransmission, window |
//! | [`attr`], [`config`] | file attributes, and what may be chosen |

#![forbid(unsafe_code)]

pub mod attr;
pub mod config;
pub mod endpoint;
pub mod engine;
pub mod session;
pub mod transfer;
