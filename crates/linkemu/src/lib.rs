//! A seeded link emulator: burst errors in time, IP fragments, queues and link-level retransmission.
#![forbid(unsafe_code)]

mod arq;
mod cell;
mod channel;
mod config;
mod error;
mod export;
mod fragment;
mod link;
mod preset;
#[cfg(feature = "tokio")]
pub mod proxy;
mod queue;
mod rate;
mod reassembly;
mod record;
mod rng;
mod show;
mod sim;
mod stats;
mod units;
mod validate;
mod wire;

pub use cell::{Cell, Delivery, Snapshot};
pub use channel::{Channel, ChannelState, ChannelTrace, Period};
pub use config::*;
pub use error::ConfigError;
pub use export::{CaptureWriter, RecordWriter};
pub use link::{Link, Side};
pub use preset::Preset;
pub use rate::{Rate, RateTrace};
pub use record::{DatagramRecord, Endpoint, Fate, FrameRecord, Observer, Offered, Station};
pub use show::ChannelReport;
pub use sim::{Node, Outgoing, Simulation, virtual_epoch};
pub use stats::Stats;
pub use units::{BitRate, Probability, parse_duration};
