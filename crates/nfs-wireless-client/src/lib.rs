//! x
#![forbid(unsafe_code)]
pub mod attr;
pub mod config;
pub mod engine;
pub mod session;
pub mod transfer;
