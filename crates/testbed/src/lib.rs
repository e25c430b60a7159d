//! The machine room in virtual time: client, link and server joined under one clock.
//!
//! This crate owns no client, link or server logic; it drives the machines of `nfs-wireless-client`, `linkemu` and
//! `nfs-wireless-server` from one event queue. A [`Plan`] says what is copied in which [`Room`]; [`run`] copies it once for
//! one seed, and [`sweep()`] for many, in parallel. The same plan and seed give the same [`Run`] on every machine.
//!
//! ```
//! use testbed::{Plan, Room, run};
//!
//! let plan = Plan::new(Room::named("modern")?);
//! let run = run(&plan, 1)?;
//! let seconds = run.copies[0].response.unwrap().as_secs_f64();
//! assert!((9.24..11.0).contains(&seconds), "1 MB at 1 Mbit/s, without errors: {seconds} s");
//! # Ok::<(), testbed::Error>(())
//! ```

#![forbid(unsafe_code)]

mod address;
mod agent;
mod client;
mod competitor;
mod connections;
mod error;
mod export;
pub mod figures;
mod headers;
mod host;
mod limit;
mod listing;
mod mobile;
mod mounted;
mod part;
mod path;
mod ping;
mod plan;
pub mod plot;
pub mod published;
pub mod report;
mod room;
mod row;
mod server;
mod stream;
mod sweep;
mod tcp;
mod trace;
mod world;

pub use error::Error;
pub use export::{csv, json_lines, table};
pub use limit::Limit;
pub use part::{PartError, Parts, Sweep, part_lines};
pub use plan::{Operation, Outage, Plan, Transport};
pub use room::{HostCosts, Room, ServerModel};
pub use row::{OrAuto, Row, policy_name};
pub use sweep::{Samples, confidence, mean, sweep, sweep_part};
pub use tcp::TcpStats;
pub use trace::{TraceEvent, TraceKind, trace};
pub use world::{Copy, Run, run, run_observed};
