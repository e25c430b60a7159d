//! x
#![forbid(unsafe_code)]
pub mod config;
pub mod engine;
