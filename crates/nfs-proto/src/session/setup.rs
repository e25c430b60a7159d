//! What the transport and the caller's settings make of a session.

use std::net::SocketAddr;

use nfs_wire::portmap::Protocol;

use super::SessionConfig;
use crate::{
    config::{BlockSize, MAX_BLOCK_BYTES, RetryPolicy, SessionOptions, Window},
    engine::{BlockRange, Carrier, EngineConfig, Tuning, WindowLimits},
    transfer::Limits,
};

/// READs in flight over UDP when the window is automatic.
const UDP_WINDOW_CALLS: u32 = 16;

/// READs and WRITEs in flight over UDP at most.
const MAX_UDP_CALLS: u32 = 1024;

/// Bytes of WRITEs in flight over UDP: servers drop bursts in their own socket buffers, measured from 160 KiB on.
const UDP_WRITE_BYTES: u64 = 64 << 10;

/// Bytes in flight over TCP: more only fills caches, measured on loopback and at 1 ms.
const TCP_WINDOW_BYTES: u64 = 4 << 20;

/// READs and WRITEs in flight over TCP.
const TCP_WINDOW_CALLS: u32 = 64;

/// What policies that do not look for the path's MTU take for it.
const ETHERNET_MTU: u32 = 1500;

/// RPC and READ reply before the data: 24 + 104 bytes with attributes (RFC 1813 §3.3.6).
const READ_OVERHEAD: u32 = 128;

/// WRITE call before the data, without credential and handle: RPC header 40, lengths and fields 28 bytes.
const WRITE_OVERHEAD: u32 = 40 + 28;

/// Largest READ or WRITE over UDP that the IP header leaves room for, in bytes; nfs-ganesha answers up to 65,350.
const MAX_UDP_BLOCK: u32 = 60 << 10;

impl SessionConfig {
    /// Derives the settings of a session from what was chosen and the transport's limits; `receive_buffer` is the size of our
    /// UDP socket's, in bytes.
    pub fn new(
        options: &SessionOptions,
        peer: SocketAddr,
        protocol: Protocol,
        receive_buffer: usize,
    ) -> Self {
        let mut credential = Vec::new();
        options.credential.encode(&mut credential);
        let (auto_read, auto_write) = match protocol {
            Protocol::Tcp => (MAX_BLOCK_BYTES, MAX_BLOCK_BYTES),
            Protocol::Udp => unfragmented(peer, credential.len()),
        };
        let most = if protocol == Protocol::Udp { MAX_UDP_BLOCK } else { MAX_BLOCK_BYTES };
        let adaptive = options.retry == RetryPolicy::Adaptive && protocol == Protocol::Udp;
        let block = |size, auto: u32| match size {
            BlockSize::Auto { max } => (if adaptive { most } else { auto }).min(max.unwrap_or(u32::MAX)),
            BlockSize::Exact(bytes) => bytes.min(most),
        };
        let limits = Limits {
            read_block: block(options.read_block, auto_read),
            write_block: block(options.write_block, auto_write),
            ..Limits::default()
        };
        let chosen = |size| matches!(size, BlockSize::Auto { .. });
        let blocks =
            (adaptive && chosen(options.read_block) && chosen(options.write_block)).then(|| BlockRange {
                headers: write_headers(peer, credential.len()),
                largest: limits.read_block.max(limits.write_block),
            });
        let window = match protocol {
            Protocol::Udp => WindowLimits {
                // The adaptive policy finds the window; the others cannot.
                calls: if adaptive { MAX_UDP_CALLS } else { UDP_WINDOW_CALLS },
                // The kernel counts its own bookkeeping too: half of the buffer is data at best.
                read_bytes: receive_buffer as u64 / 4,
                write_bytes: if adaptive { u64::MAX } else { UDP_WRITE_BYTES },
            },
            Protocol::Tcp => WindowLimits {
                calls: TCP_WINDOW_CALLS,
                read_bytes: TCP_WINDOW_BYTES,
                write_bytes: TCP_WINDOW_BYTES,
            },
        };
        let window = match options.window {
            Window::Auto => window,
            // The user's number of calls counts; only our own receive buffer still limits it.
            Window::Calls(calls) => WindowLimits { calls, write_bytes: u64::MAX, ..window },
        };
        let carrier = match protocol {
            Protocol::Udp => Carrier::Datagrams,
            Protocol::Tcp => Carrier::Connection,
        };
        Self {
            engine: EngineConfig {
                tuning: Tuning::default(),
                carrier,
                retry: options.retry,
                window,
                blocks,
                prior: options.prior.filter(|_| adaptive),
                credential,
            },
            limits,
            measure_writes: protocol == Protocol::Tcp && chosen(options.write_block),
            stall_timeout: options.stall_timeout,
            rate_limit: options.rate_limit,
        }
    }
}

/// Returns the largest READ and WRITE blocks that fit one Ethernet frame.
fn unfragmented(peer: SocketAddr, credential: usize) -> (u32, u32) {
    let write = ETHERNET_MTU - write_headers(peer, credential);
    // Multiples of 64 keep source and file offsets aligned to cache lines.
    (ETHERNET_MTU - packet_headers(peer) - READ_OVERHEAD, write / 64 * 64)
}

/// Returns the bytes of a WRITE call before its data, IP and UDP headers included.
fn write_headers(peer: SocketAddr, credential: usize) -> u32 {
    let handle = nfs_wire::nfs3_types::nfs3::NFS3_FHSIZE as u32;
    let credential = u32::try_from(credential).expect("a credential has at most 408 bytes");
    packet_headers(peer) + WRITE_OVERHEAD + handle + credential
}

/// Returns the bytes of IP and UDP headers.
const fn packet_headers(peer: SocketAddr) -> u32 {
    if peer.is_ipv4() { 20 + 8 } else { 40 + 8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn automatic_udp_blocks_fit_one_frame() {
        let mut options = SessionOptions::default();
        let udp = |options: &SessionOptions, peer: &str| {
            SessionConfig::new(options, peer.parse().unwrap(), Protocol::Udp, 1 << 20).limits
        };
        let config = SessionConfig::new(&options, "192.0.2.1:2049".parse().unwrap(), Protocol::Udp, 1 << 20);
        let headers = config.engine.blocks.unwrap().headers;
        assert_eq!(headers, 28 + 40 + 28 + 64 + 8, "WRITE has more of them than READ");
        assert_eq!(udp(&options, "192.0.2.1:2049").read_block, MAX_UDP_BLOCK, "what may be chosen at most");
        options.retry = RetryPolicy::hybrid();
        let limits = udp(&options, "192.0.2.1:2049");
        assert_eq!(limits, Limits { read_block: 1344, write_block: 1280, ..Limits::default() });
        assert_eq!(udp(&options, "[2001:db8::1]:2049").read_block, 1324);
        options.read_block = BlockSize::Exact(1 << 20);
        assert_eq!(udp(&options, "192.0.2.1:2049").read_block, MAX_UDP_BLOCK, "rtmax over UDP lies");
    }
}
