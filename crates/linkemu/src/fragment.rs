//! Frames: how IP cuts a UDP datagram (RFC 791 §3.2, RFC 768).

use crate::units::Nanos;

/// Bytes of an IPv4 header without options (RFC 791 §3.1).
pub(crate) const IP_HEADER_BYTES: u32 = 20;
/// Bytes of a UDP header (RFC 768).
pub(crate) const UDP_HEADER_BYTES: u32 = 8;
/// The largest UDP payload that IPv4 can carry: 65,535 less both headers.
pub(crate) const MAX_PAYLOAD_BYTES: usize = 65_507;

/// One fragment of a datagram on its way. The bytes stay with the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The datagram: its number and its place in the table of those under way.
    pub(crate) datagram: u64,
    pub(crate) slot: u32,
    /// Which fragment.
    pub(crate) index: u16,
    /// The end of the medium that sends it.
    pub(crate) end: u32,
    /// Bytes with headers, those of the link included.
    pub(crate) bytes: u32,
    /// The same on the medium, where headers may be compressed.
    pub(crate) air_bytes: u32,
    /// When it was offered to the queue before the medium.
    pub(crate) queued: Nanos,
    /// When it first went on the air; `Nanos::MAX` before.
    pub(crate) first_air: Nanos,
    /// Times it went on the air.
    pub(crate) attempts: u32,
}

/// Bytes of UDP header and payload in every fragment but the last.
pub(crate) fn fragment_bytes(mtu_bytes: u32) -> u32 {
    (mtu_bytes - IP_HEADER_BYTES) / 8 * 8
}

/// The number of fragments of a datagram.
pub(crate) fn count(payload_bytes: usize, mtu_bytes: u32) -> u32 {
    let whole = payload_bytes as u64 + u64::from(UDP_HEADER_BYTES);
    if whole <= u64::from(mtu_bytes - IP_HEADER_BYTES) {
        return 1;
    }
    whole.div_ceil(u64::from(fragment_bytes(mtu_bytes))) as u32
}

/// Bytes of UDP header and payload in fragment `index` of `count`.
pub(crate) fn content_bytes(payload_bytes: usize, mtu_bytes: u32, index: u32, count: u32) -> u32 {
    let whole = payload_bytes as u32 + UDP_HEADER_BYTES;
    if count == 1 {
        return whole;
    }
    let each = fragment_bytes(mtu_bytes);
    if index + 1 < count { each } else { whole - index * each }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::LinkConfig;

    #[test]
    fn a_full_datagram_fits_one_frame_and_one_byte_more_does_not() {
        assert_eq!(count(1472, 1500), 1);
        assert_eq!(count(1473, 1500), 2);
        // A last fragment may fill the MTU even where the MTU is no multiple of eight.
        assert_eq!(count(1003 - 28, 1003), 1);
        assert_eq!(count(0, 68), 1);
    }

    #[test]
    fn a_read_reply_of_4096_bytes_is_three_frames_and_4346_bytes() {
        let config = LinkConfig::default();
        // 128 B of RPC and NFS before the data: see the sizes in the experiments' model.
        assert_eq!(config.frames(128 + 4096), 3);
        assert_eq!(config.air_bytes(128 + 4096), 4346);
        assert_eq!(config.air_bytes(120), 166);
        let megabyte = 256 * (config.air_time(128 + 4096) + config.air_time(120));
        assert_eq!(megabyte, Duration::from_micros(9_240_576));
        let written = 256 * (config.air_time(128 + 4096) + config.air_time(160));
        assert_eq!(written, Duration::from_micros(9_322_496));
    }

    proptest! {
        #[test]
        fn fragments_add_up_and_fit(payload in 0_usize..=MAX_PAYLOAD_BYTES, mtu in 68_u32..=65_535) {
            let count = count(payload, mtu);
            let sizes: Vec<u32> = (0..count).map(|i| content_bytes(payload, mtu, i, count)).collect();
            prop_assert_eq!(sizes.iter().sum::<u32>(), payload as u32 + UDP_HEADER_BYTES);
            for (i, &size) in sizes.iter().enumerate() {
                prop_assert!(size > 0 && size + IP_HEADER_BYTES <= mtu);
                prop_assert!(i + 1 == sizes.len() || size % 8 == 0, "all but the last are multiples of eight");
            }
        }
    }
}
