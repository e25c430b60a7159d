//! A bad link that you can hold in your hand: seeded, deterministic, with errors that come in bursts of *time*.
//!
//! Radio links do not lose every hundredth packet. They lose everything for eighty milliseconds, then nothing for a second,
//! and whether your protocol survives depends on what it does in between. `linkemu` gives a test such a link, the same one
//! in every run:
//!
//! - **Good and bad periods in time.** The state of the channel at a moment is a pure function of seed, link and time. It does
//!   not depend on what you send, so two versions of a protocol meet the same fades, and their difference is not luck.
//! - **Link-level retransmission.** Stop-and-wait, RTS/CTS or 802.11-style selective repeat, with real state machines on both
//!   ends whose acknowledgements take air time and get lost; or an oracle that holds frames until a fade is over.
//! - **What surrounds it.** IP fragments (one lost frame loses the datagram), a half-duplex medium that stations take turns
//!   on, bounded queues, per-destination scheduling, a slow receiver, a wire behind the base station.
//! - **Three ways to run it.** In virtual time, millions of frames a second ([`Link`], [`Cell`], [`Simulation`]); on real
//!   sockets, as a UDP proxy that needs no privileges ([`proxy`]); between TUN devices, under any program and protocol
//!   ([`tunnel`]). The same seed gives the same fades in all of them.
//!
//! # How bad is it for my telemetry?
//!
//! A sensor sends 20 bytes every 20 ms over the edge of a wireless LAN. How many readings in a row go missing in a minute?
//!
//! ```
//! use std::time::Duration;
//!
//! use bytes::Bytes;
//! use linkemu::{Link, Preset, Side, virtual_epoch};
//!
//! let start = virtual_epoch();
//! let mut link = Link::new(Preset::named("wifi-edge")?.config(), 1, start)?;
//! let mut arrived = [false; 3000];
//! for reading in 0..3000 {
//!     let now = start + Duration::from_millis(20) * reading;
//!     link.handle_input(now, Side::Mobile, Bytes::copy_from_slice(&[0; 20]));
//!     while let Some((_, delivery)) = link.poll_transmit(now) {
//!         arrived[delivery.datagram as usize] = true;
//!     }
//! }
//! let longest = arrived.split(|&arrived| arrived).map(<[bool]>::len).max();
//! println!("{} lost, longest gap {longest:?}", link.stats().lost());
//! # assert!(link.stats().lost() > 20 && longest > Some(2));
//! # Ok::<(), linkemu::ConfigError>(())
//! ```
//!
//! Switch on retransmission, and nothing is lost but time:
//!
//! ```
//! # use linkemu::{ArqKind, Preset};
//! let mut config = Preset::named("wifi-edge")?.config();
//! config.arq.kind = ArqKind::SelectiveRepeat;
//! # Ok::<(), linkemu::ConfigError>(())
//! ```
//!
//! # What to read next
//!
//! | to do this | look at |
//! |---|---|
//! | pick a link with known numbers | [`Preset`]; [`LinkConfig::from_toml`] for a file |
//! | describe your own | [`LinkConfig`]: every field has its unit, default and source |
//! | know when the fades are | [`Channel`]; [`ChannelReport`] draws them |
//! | join two programs | [`Link`], for one mobile and one host |
//! | have several mobiles in a cell | [`Cell`] |
//! | let whole machines talk in virtual time | [`Simulation`] and [`Node`] |
//! | test asynchronous programs, without the system's network and without waiting | [`net::pair`] |
//! | put it between real programs | [`proxy`] for UDP, [`tunnel`] for whole network stacks |
//! | see what happened | [`Stats`], [`RecordWriter`] (NDJSON), [`CaptureWriter`] (Wireshark), [`Observer`] |
//!
//! # The model
//!
//! A datagram from a host crosses the wire (rate, delay), waits in the base station's queue as IP fragments, crosses the
//! medium frame by frame, passes the mobile's receive buffer and latency, and is delivered when its last fragment is there. A
//! datagram from a mobile goes the other way round. On the medium a frame takes (payload + UDP and IP headers + link
//! header) × bits per byte / rate. It is lost if it overlaps a bad period, even by a nanosecond, unless the configuration
//! gives the state a frame loss or bit error rate of its own. Channel time starts with the first datagram.
//!
//! Signals of the ARQ cross the same channel. On a half-duplex medium the time for an answer is kept free, whether the
//! answer comes or not (as the duration field of IEEE 802.11 does); after a failed attempt others may send during the
//! pause. On a full-duplex link answers go before frames, and wait for propagation.
//!
//! Not modelled: collisions, capture, rate adaptation, CPU time.
//!
//! # Speed
//!
//! `cargo run --release -p linkemu --example speed` prints frames per second in virtual time, `--example proxy_speed` the
//! lateness and rate of the proxy on your machine. Memory depends on queues and flights, never on simulated time.
//!
//! # Features
//!
//! `tokio` (default): the [`proxy`], [`net`] and, on Linux, the [`tunnel`]. `config-file` (default): [`LinkConfig::from_toml`]. Without both the
//! crate is a plain library for virtual time.
#![forbid(unsafe_code)]
// The documentation speaks of all features.
#![cfg_attr(not(all(feature = "tokio", feature = "config-file")), allow(rustdoc::broken_intra_doc_links))]

mod arq;
mod capacity;
mod cell;
mod channel;
mod config;
mod error;
mod export;
#[cfg(feature = "config-file")]
mod file;
mod fragment;
mod headers;
mod link;
mod names;
#[cfg(feature = "tokio")]
pub mod net;
mod packet;
mod preset;
#[cfg(feature = "tokio")]
pub mod proxy;
mod queue;
mod rate;
#[cfg(feature = "tokio")]
mod realtime;
mod reassembly;
mod record;
mod rng;
mod show;
mod sim;
mod stats;
#[cfg(all(feature = "tokio", target_os = "linux", not(portable_only)))]
pub mod tunnel;
mod units;
mod validate;
mod wire;

pub use capacity::Load;
pub use cell::{Cell, Delivery, Snapshot};
pub use channel::{Channel, ChannelState, ChannelTrace, Period};
pub use config::*;
pub use error::ConfigError;
pub use export::{CaptureWriter, RecordWriter};
pub use headers::{HeaderCodec, HeaderError};
pub use link::{Link, Side};
pub use preset::Preset;
pub use rate::{Rate, RateTrace};
#[cfg(feature = "tokio")]
pub use realtime::Lateness;
pub use record::{Content, DatagramRecord, Endpoint, Fate, FrameRecord, Observer, Offered, Station};
pub use show::ChannelReport;
pub use sim::{Node, Outgoing, Simulation, virtual_epoch};
pub use stats::Stats;
pub use units::{BitRate, Probability, parse_duration};
