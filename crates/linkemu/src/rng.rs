//! Named, portable, seeded streams: one per random decision, so that one more draw in one place shifts no other.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};

/// What a stream decides.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stream {
    /// Lengths of good and bad periods.
    Periods,
    /// Whether a frame survives a state that loses only some.
    Loss,
    /// Extra delay of a frame.
    Jitter,
    /// Delivery opportunities of a cellular link.
    Rate,
}

/// The generator of one decision on one link.
///
/// The ChaCha key is the seed, the name of the decision and the number of the link, so it is the same on every platform.
pub(crate) fn stream(seed: u64, decision: Stream, link: u32) -> ChaCha8Rng {
    let name: &[u8; 8] = match decision {
        Stream::Periods => b"periods\0",
        Stream::Loss => b"loss\0\0\0\0",
        Stream::Jitter => b"jitter\0\0",
        Stream::Rate => b"rate\0\0\0\0",
    };
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(name);
    key[16..20].copy_from_slice(&link.to_le_bytes());
    ChaCha8Rng::from_seed(key)
}

/// A number in 0..1 with 53 random bits.
pub(crate) fn unit(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_one_seed_differ_and_repeat() {
        let draw = |seed, decision, link| stream(seed, decision, link).next_u64();
        assert_eq!(draw(1, Stream::Periods, 0), draw(1, Stream::Periods, 0));
        assert_ne!(draw(1, Stream::Periods, 0), draw(1, Stream::Loss, 0));
        assert_ne!(draw(1, Stream::Periods, 0), draw(1, Stream::Periods, 1));
        assert_ne!(draw(1, Stream::Periods, 0), draw(2, Stream::Periods, 0));
    }
}
