//! From a code to a key that both ends have: SPAKE2 over Ed25519 (RFC 9382). The only file that knows `spake2`.
//!
//! The sharer keeps nothing between the two messages of a receiver: what it draws is derived from a secret and the
//! receiver's message, so that it can be derived again.

use rand_core_06::{CryptoRng, RngCore};
use spake2::{Ed25519Group, Identity, Password, Spake2};
use zeroize::Zeroizing;

use crate::code::Code;

/// Bytes of either end's share.
pub(crate) const SHARE_BYTES: usize = 33;

/// What both ends put in.
pub(crate) type Share = [u8; SHARE_BYTES];

/// A key that both ends have if they have the same code.
pub(crate) type Key = Zeroizing<[u8; 32]>;

/// The receiver's half of an agreement. It is the same for each share of the sharer that comes.
pub(crate) struct Pairing {
    code: Code,
    /// What the half is derived from.
    secret: Zeroizing<[u8; 32]>,
}

impl Pairing {
    /// Begins an agreement; returns what the sharer needs.
    pub(crate) fn begin(code: Code) -> (Self, Share) {
        let pairing = Self { code, secret: Zeroizing::new(crate::random()) };
        let (_, share) = pairing.start();
        (pairing, share)
    }

    /// Returns the number of the code.
    pub(crate) const fn number(&self) -> u16 {
        self.code.number()
    }

    /// Returns the key; `None` for a share that is none. Each share that is taken is a guess of who has made it.
    pub(crate) fn finish(&self, theirs: &Share) -> Option<Key> {
        key(self.start().0.finish(theirs).ok()?)
    }

    fn start(&self) -> (Spake2<Ed25519Group>, Share) {
        let derived = Derived(blake3::Hasher::new_keyed(&self.secret).finalize_xof());
        let (state, share) = Spake2::start_a_with_rng(&password(&self.code), &receiver(), &sharer(), derived);
        (state, share.try_into().expect("shares over Ed25519 have one length"))
    }
}

/// Makes the sharer's half: its share, and the key. The same `secret` and the same share of the receiver give the same half.
pub(crate) fn answer(code: &Code, secret: &[u8; 32], theirs: &Share) -> (Share, Option<Key>) {
    let mut hasher = blake3::Hasher::new_keyed(secret);
    hasher.update(b"nfsw share: pairing").update(theirs).update(code.secret().as_bytes());
    let derived = Derived(hasher.finalize_xof());
    let (state, share) =
        Spake2::<Ed25519Group>::start_b_with_rng(&password(code), &receiver(), &sharer(), derived);
    let share = share.try_into().expect("shares over Ed25519 have one length");
    (share, state.finish(theirs).ok().and_then(key))
}

fn key(agreed: Vec<u8>) -> Option<Key> {
    let agreed = Zeroizing::new(agreed);
    Some(Zeroizing::new(agreed[..].try_into().ok()?))
}

fn password(code: &Code) -> Password {
    Password::new(Zeroizing::new(code.secret()).as_bytes())
}

fn receiver() -> Identity {
    Identity::new(b"nfsw share: receiver")
}

fn sharer() -> Identity {
    Identity::new(b"nfsw share: sharer")
}

/// Random numbers that a secret and a message decide.
struct Derived(blake3::OutputReader);

impl RngCore for Derived {
    fn next_u32(&mut self) -> u32 {
        rand_core_06::impls::next_u32_via_fill(self)
    }

    fn next_u64(&mut self) -> u64 {
        rand_core_06::impls::next_u64_via_fill(self)
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), rand_core_06::Error> {
        self.fill_bytes(bytes);
        Ok(())
    }
}

impl CryptoRng for Derived {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_code_makes_one_key_and_another_code_another() {
        let secret = crate::random();
        let code = Code::draw(7);
        let (pairing, ours) = Pairing::begin(code.clone());
        let (share, key) = answer(&code, &secret, &ours);
        assert_eq!(answer(&code, &secret, &ours).0, share, "nothing has to be kept");
        assert_ne!(answer(&code, &crate::random(), &ours).0, share);
        assert_eq!(pairing.finish(&share), key);
        let other: Code = "7-zoo-zone".parse().unwrap();
        let (guess, ours) = Pairing::begin(other);
        let (share, key) = answer(&code, &secret, &ours);
        assert_ne!(guess.finish(&share), key);
    }

    #[test]
    fn what_is_no_share_makes_no_key() {
        let (pairing, _) = Pairing::begin(Code::draw(1));
        assert_eq!(pairing.finish(&[0xff; SHARE_BYTES]), None);
        assert_eq!(answer(&Code::draw(1), &[0; 32], &[0xff; SHARE_BYTES]).1, None);
    }
}
