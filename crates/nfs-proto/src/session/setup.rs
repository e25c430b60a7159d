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

/// WRITE call before the data, without credential and handle: RPC header with verifier 32, lengths and fields 24 bytes.
const WRITE_OVERHEAD: u32 = 32 + 24;

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
        let setup = Setup { options, peer, protocol, credential_bytes: credential.len() };
        let limits = setup.limits();
        Self {
            engine: EngineConfig {
                tuning: Tuning::default(),
                carrier: match protocol {
                    Protocol::Udp => Carrier::Datagrams,
                    Protocol::Tcp => Carrier::Connection,
                },
                retry: options.retry,
                window: setup.window(receive_buffer),
                blocks: setup.blocks(&limits),
                prior: options.prior.filter(|_| setup.is_adaptive()),
                credential,
            },
            limits,
            measure_writes: protocol == Protocol::Tcp && is_automatic(options.write_block),
            stall_timeout: options.stall_timeout,
            rate_limit: options.rate_limit,
        }
    }
}

/// What the settings of a session are derived from.
struct Setup<'a> {
    options: &'a SessionOptions,
    peer: SocketAddr,
    protocol: Protocol,
    credential_bytes: usize,
}

impl Setup<'_> {
    /// Whether window and blocks follow the path; over TCP that is the kernel's task.
    fn is_adaptive(&self) -> bool {
        self.options.retry == RetryPolicy::Adaptive && self.protocol == Protocol::Udp
    }

    /// Returns the sizes of READs and WRITEs.
    fn limits(&self) -> Limits {
        let (most, auto_read, auto_write) = match self.protocol {
            Protocol::Tcp => (MAX_BLOCK_BYTES, MAX_BLOCK_BYTES, MAX_BLOCK_BYTES),
            Protocol::Udp if self.is_adaptive() => (MAX_UDP_BLOCK, MAX_UDP_BLOCK, MAX_UDP_BLOCK),
            Protocol::Udp => {
                let (read, write) = unfragmented(self.peer, self.credential_bytes);
                (MAX_UDP_BLOCK, read, write)
            }
        };
        let block = |size, auto: u32| match size {
            BlockSize::Auto { max } => auto.min(max.unwrap_or(u32::MAX)),
            BlockSize::Exact(bytes) => bytes.min(most),
        };
        Limits {
            read_block: block(self.options.read_block, auto_read),
            write_block: block(self.options.write_block, auto_write),
            ..Limits::default()
        }
    }

    /// Returns the blocks that the policy may choose from; `None` if it may not choose.
    fn blocks(&self, limits: &Limits) -> Option<BlockRange> {
        let SessionOptions { read_block, write_block, .. } = *self.options;
        let may_choose = self.is_adaptive() && is_automatic(read_block) && is_automatic(write_block);
        may_choose.then(|| BlockRange {
            headers: write_headers(self.peer, self.credential_bytes),
            largest: limits.read_block.max(limits.write_block),
        })
    }

    /// Returns what may be in flight.
    fn window(&self, receive_buffer: usize) -> WindowLimits {
        let is_adaptive = self.is_adaptive();
        let window = match self.protocol {
            Protocol::Udp => WindowLimits {
                // The adaptive policy finds the window; the others cannot.
                calls: if is_adaptive { MAX_UDP_CALLS } else { UDP_WINDOW_CALLS },
                // The kernel counts its own bookkeeping too: half of the buffer is data at best.
                read_bytes: receive_buffer as u64 / 4,
                write_bytes: if is_adaptive { u64::MAX } else { UDP_WRITE_BYTES },
            },
            Protocol::Tcp => WindowLimits {
                calls: TCP_WINDOW_CALLS,
                read_bytes: TCP_WINDOW_BYTES,
                write_bytes: TCP_WINDOW_BYTES,
            },
        };
        match self.options.window {
            Window::Auto => window,
            // The user's number of calls counts; only our own receive buffer still limits it.
            Window::Calls(calls) => WindowLimits { calls, write_bytes: u64::MAX, ..window },
        }
    }
}

/// Whether the size of a block is left to us.
const fn is_automatic(size: BlockSize) -> bool {
    matches!(size, BlockSize::Auto { .. })
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
    use std::time::{Duration, Instant};

    use nfs_wire::{
        FileHandle,
        auth::{AuthSys, Credential},
    };

    use super::*;
    use crate::{
        engine::PathEstimate,
        session::{Session, Transfer},
        transfer::{Placement, Upload, UploadSpec},
    };

    const IPV4: &str = "192.0.2.1:2049";
    const IPV6: &str = "[2001:db8::1]:2049";

    /// What becomes of these options with a receive buffer of 1 MiB.
    fn config(protocol: Protocol, peer: &str, options: &SessionOptions) -> SessionConfig {
        SessionConfig::new(options, peer.parse().unwrap(), protocol, 1 << 20)
    }

    fn limits(protocol: Protocol, options: &SessionOptions) -> (u32, u32) {
        let Limits { read_block, write_block, .. } = config(protocol, IPV4, options).limits;
        (read_block, write_block)
    }

    fn hybrid() -> SessionOptions {
        SessionOptions { retry: RetryPolicy::hybrid(), ..SessionOptions::default() }
    }

    /// AUTH_NONE, and the largest AUTH_SYS.
    fn credentials() -> [Credential; 2] {
        let machine_name = vec![b'm'; 255];
        let largest = AuthSys { machine_name, gids: vec![100; 16], ..AuthSys::default() };
        [Credential::None, Credential::Sys(largest)]
    }

    #[test]
    fn blocks_are_as_large_as_the_transport_carries() {
        assert_eq!(limits(Protocol::Tcp, &SessionOptions::default()), (1 << 20, 1 << 20));
        assert_eq!(limits(Protocol::Udp, &SessionOptions::default()), (61_440, 61_440));
        assert_eq!(limits(Protocol::Udp, &hybrid()), (1344, 1344), "one frame of Ethernet");
        let config = config(Protocol::Udp, IPV6, &hybrid());
        assert_eq!((config.limits.read_block, config.limits.write_block), (1324, 1280));
    }

    #[test]
    fn blocks_of_a_given_size_have_it_where_the_transport_carries_it() {
        let mut options = hybrid();
        options.read_block = BlockSize::Exact(1 << 20);
        options.write_block = BlockSize::Exact(8192);
        assert_eq!(limits(Protocol::Tcp, &options), (1 << 20, 8192));
        assert_eq!(limits(Protocol::Udp, &options), (61_440, 8192), "rtmax over UDP lies");
        let bounded = BlockSize::Auto { max: Some(4096) };
        options.read_block = bounded;
        options.write_block = bounded;
        assert_eq!(limits(Protocol::Tcp, &options), (4096, 4096));
        assert_eq!(limits(Protocol::Udp, &options), (1344, 1344));
        options.retry = RetryPolicy::Adaptive;
        assert_eq!(limits(Protocol::Udp, &options), (4096, 4096));
    }

    #[test]
    fn the_window_is_found_over_the_adaptive_policy_and_fixed_otherwise() {
        fn window(protocol: Protocol, options: &SessionOptions) -> WindowLimits {
            config(protocol, IPV4, options).engine.window
        }
        let stream = WindowLimits { calls: 64, read_bytes: 4 << 20, write_bytes: 4 << 20 };
        assert_eq!(window(Protocol::Tcp, &hybrid()), stream);
        let quarter = 256 << 10;
        let adaptive = WindowLimits { calls: 1024, read_bytes: quarter, write_bytes: u64::MAX };
        assert_eq!(window(Protocol::Udp, &SessionOptions::default()), adaptive);
        let fixed = WindowLimits { calls: 16, read_bytes: quarter, write_bytes: 64 << 10 };
        assert_eq!(window(Protocol::Udp, &hybrid()), fixed);
        // Calls that the user allows may carry as much as they can.
        let options = SessionOptions { window: Window::Calls(3), ..hybrid() };
        for (protocol, usual) in [(Protocol::Tcp, stream), (Protocol::Udp, fixed)] {
            let expected = WindowLimits { calls: 3, write_bytes: u64::MAX, ..usual };
            assert_eq!(window(protocol, &options), expected);
        }
    }

    #[test]
    fn blocks_are_chosen_over_datagrams_by_the_adaptive_policy_if_both_sizes_are_left_to_it() {
        let exact = BlockSize::Exact(8192);
        let auto = BlockSize::Auto { max: Some(16_384) };
        let largest = BlockSize::Auto { max: Some(32_768) };
        for (protocol, retry, read_block, write_block, chosen) in [
            (Protocol::Udp, RetryPolicy::Adaptive, auto, largest, Some(32_768)),
            (Protocol::Udp, RetryPolicy::Adaptive, largest, auto, Some(32_768)),
            (Protocol::Udp, RetryPolicy::Adaptive, exact, auto, None),
            (Protocol::Udp, RetryPolicy::Adaptive, auto, exact, None),
            (Protocol::Udp, RetryPolicy::hybrid(), auto, auto, None),
            (Protocol::Tcp, RetryPolicy::Adaptive, auto, auto, None),
        ] {
            let options = SessionOptions { retry, read_block, write_block, ..SessionOptions::default() };
            let blocks = config(protocol, IPV4, &options).engine.blocks;
            assert_eq!(blocks.map(|range| range.largest), chosen, "{protocol:?} {options:?}");
        }
    }

    #[test]
    fn writes_over_a_connection_are_measured_unless_their_size_is_given() {
        let exact = SessionOptions { write_block: BlockSize::Exact(8192), ..SessionOptions::default() };
        assert!(config(Protocol::Tcp, IPV4, &SessionOptions::default()).measure_writes);
        assert!(!config(Protocol::Tcp, IPV4, &exact).measure_writes);
        assert!(!config(Protocol::Udp, IPV4, &SessionOptions::default()).measure_writes);
    }

    #[test]
    fn an_earlier_estimate_of_the_path_is_for_the_adaptive_policy_over_datagrams() {
        let prior = PathEstimate {
            rate: 1e6,
            is_app_limited: false,
            min_rtt: Duration::from_millis(50),
            fades_per_second: 0.0,
            mean_fade: Duration::ZERO,
            retransmits: false,
            block: 8192,
            in_flight: 6,
            fast: None,
        };
        let with_prior = |options| SessionOptions { prior: Some(prior), ..options };
        let prior_of = |protocol, options| config(protocol, IPV4, &with_prior(options)).engine.prior;
        assert_eq!(prior_of(Protocol::Udp, SessionOptions::default()), Some(prior));
        assert_eq!(prior_of(Protocol::Udp, hybrid()), None);
        assert_eq!(prior_of(Protocol::Tcp, SessionOptions::default()), None);
    }

    /// Returns the bytes of the largest datagram that a WRITE with these options is, and of the headers in it.
    fn write(peer: &str, options: &SessionOptions) -> (u32, u32) {
        #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
        let now = Instant::now();
        let ip_and_udp = if peer == IPV4 { 28 } else { 48 };
        let config = config(Protocol::Udp, peer, options);
        let mut session = Session::new(config, peer.parse().unwrap(), 1, now);
        let handle = || FileHandle::try_from(&[1; 64][..]).unwrap();
        let spec = UploadSpec::new(handle(), *b"name", Placement::Existing(handle()), 1 << 20);
        session.start(now, Transfer::Upload(Box::new(Upload::new(spec))));
        let transmit = session.poll_transmit(now).unwrap();
        let headers = ip_and_udp + u32::try_from(transmit.head.len()).unwrap();
        (headers + transmit.payload.unwrap().length, headers)
    }

    #[test]
    fn a_write_has_as_many_headers_as_blocks_leave_room_for() {
        for peer in [IPV4, IPV6] {
            for credential in credentials() {
                let options = SessionOptions { credential, ..SessionOptions::default() };
                let estimate = config(Protocol::Udp, peer, &options).engine.blocks.unwrap().headers;
                let (_, headers) = write(peer, &options);
                assert_eq!(estimate, headers);
            }
        }
    }

    #[test]
    fn a_write_fills_one_frame_as_far_as_multiples_of_64_bytes_can() {
        for peer in [IPV4, IPV6] {
            for credential in credentials() {
                let options = SessionOptions { credential, ..hybrid() };
                let (datagram, headers) = write(peer, &options);
                assert!((1500 - 63..=1500).contains(&datagram), "{datagram} bytes");
                assert!((datagram - headers).is_multiple_of(64), "{headers} bytes of headers");
            }
        }
    }
}
