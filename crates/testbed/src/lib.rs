//! The machine room in virtual time: client, link and server joined under one clock.
//!
//! This crate owns no client, link or server logic; it drives the machines of `nfs-wireless-client`,
//! `linkemu` and `nfs-wireless-server` from one event queue.
#![forbid(unsafe_code)]

pub mod export;
pub mod published;
mod row;

pub use row::{Choice, Row};
