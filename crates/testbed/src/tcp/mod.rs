//! TCP between machines on the emulated link: a connection as a machine without a clock, close enough to Linux to decide by.
//!
//! A [`Connection`] is one end. Segments travel as datagrams of linkemu ([`Segment`]), as long as those of Linux. What is modelled:
//! three-way handshake; a stream both ways; CUBIC (RFC 9438) with HyStart, initial window 10; SACK, D-SACK and timestamps; RACK-TLP
//! (RFC 8985), PRR (RFC 6937), RTO (RFC 6298) with F-RTO and Eifel undo; delayed and quick acknowledgements; flow control with a
//! constant receive buffer of 6 MiB. What is not: FIN, Nagle's algorithm (the programs switch it off), ECN, pacing, the deferral
//! of segments for segmentation offload, path MTU discovery, and autotuning of the receive buffer. docs/experiments.md compares
//! it with a kernel.
//!
//! After [`Connection::handle_input`] or [`Connection::handle_timeout`] drain [`Connection::poll_transmit`], then read
//! [`Connection::poll_timeout`].

mod acknowledgements;
mod connection;
mod cubic;
mod receiver;
mod recovery;
mod rtt;
mod scoreboard;
mod segment;
mod sender;
#[cfg(test)]
mod tests;

pub use self::sender::TcpStats;
pub(crate) use self::{
    connection::{Connection, Phase},
    segment::{MSS, Segment},
};
