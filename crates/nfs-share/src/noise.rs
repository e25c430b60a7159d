//! From a key that both ends have to a session: the Noise protocol framework, revision 34. The only file that knows `snow`.
//!
//! A receiver with a code has the key that [`pairing`](crate::pairing) made (`NNpsk0`), and the ends tell each other their
//! public keys. Who is a member already comes back by these (`KK`). Either takes one exchange.

use std::fmt;

use snow::{Builder, HandshakeState, StatelessTransportState};
use zeroize::Zeroizing;

use crate::pairing::Key;

const WITH_CODE: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
const AMONG_MEMBERS: &str = "Noise_KK_25519_ChaChaPoly_BLAKE2s";

/// Bytes that encryption adds to a message.
pub(crate) const TAG_BYTES: usize = 16;

/// Bytes of a message of a handshake beside its payload: an ephemeral key and a tag.
pub(crate) const HANDSHAKE_BYTES: usize = KEY_BYTES + TAG_BYTES;

/// Bytes of an X25519 key (RFC 7748).
const KEY_BYTES: usize = 32;

/// An X25519 public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; KEY_BYTES]);

impl PublicKey {
    /// Returns four hexadecimal digits that tell this key from most others.
    pub fn short(&self) -> String {
        format!("{:02x}{:02x}", self.0[0], self.0[1])
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PublicKey({}…)", self.short())
    }
}

/// A pair of keys by which one end knows the other again. It is zeroed when dropped.
#[derive(Clone)]
pub struct Identity {
    private: Zeroizing<[u8; KEY_BYTES]>,
    public: PublicKey,
}

impl Identity {
    /// Draws a pair of keys.
    pub fn draw() -> Self {
        let pair = builder(AMONG_MEMBERS).generate_keypair().expect("the system has random numbers");
        let (private, public) = (Zeroizing::new(pair.private), pair.public);
        let public = PublicKey(public[..].try_into().expect("an X25519 key"));
        Self { private: Zeroizing::new(private[..].try_into().expect("an X25519 key")), public }
    }

    /// Returns the pair that [`Self::to_bytes`] has kept.
    pub fn from_bytes(bytes: &[u8; 2 * KEY_BYTES]) -> Self {
        let (private, public) = bytes.split_at(KEY_BYTES);
        let private = Zeroizing::new(private.try_into().expect("half of it"));
        Self { private, public: PublicKey(public.try_into().expect("half of it")) }
    }

    /// Returns both keys, to be kept where nobody else reads.
    pub fn to_bytes(&self) -> Zeroizing<[u8; 2 * KEY_BYTES]> {
        let mut bytes = Zeroizing::new([0; 2 * KEY_BYTES]);
        bytes[..KEY_BYTES].copy_from_slice(&self.private[..]);
        bytes[KEY_BYTES..].copy_from_slice(&self.public.0);
        bytes
    }

    /// Returns the public key.
    pub const fn public(&self) -> PublicKey {
        self.public
    }
}

/// Shows the public key only.
impl fmt::Debug for Identity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Identity({}…)", self.public.short())
    }
}

/// The keys of a session.
pub(crate) type Keys = StatelessTransportState;

/// A handshake, at either end. Both ends must name the same `context`.
pub(crate) struct Handshake(HandshakeState);

impl Handshake {
    /// The receiver's end, with a key that came of a code.
    pub(crate) fn with_code(key: &Key, context: &[u8]) -> Self {
        let builder = builder(WITH_CODE).psk(0, key).and_then(|it| it.prologue(context));
        Self(builder.and_then(Builder::build_initiator).expect("the pattern has one key, in place 0"))
    }

    /// The sharer's end of that.
    pub(crate) fn answer_code(key: &Key, context: &[u8]) -> Self {
        let builder = builder(WITH_CODE).psk(0, key).and_then(|it| it.prologue(context));
        Self(builder.and_then(Builder::build_responder).expect("the pattern has one key, in place 0"))
    }

    /// The receiver's end, among members.
    pub(crate) fn among_members(ours: &Identity, theirs: PublicKey, context: &[u8]) -> Self {
        Self(members(ours, &theirs, context, |builder| builder.build_initiator()))
    }

    /// The sharer's end of that.
    pub(crate) fn answer_member(ours: &Identity, theirs: PublicKey, context: &[u8]) -> Self {
        Self(members(ours, &theirs, context, |builder| builder.build_responder()))
    }

    /// Appends the next message, which carries `payload`. `None` where the other end's keys are none.
    pub(crate) fn write(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let start = out.len();
        out.resize(start + payload.len() + HANDSHAKE_BYTES, 0);
        let length = self.0.write_message(payload, &mut out[start..]).ok()?;
        out.truncate(start + length);
        Some(())
    }

    /// Takes a message and returns its payload; `None` unless it is of who has the same key.
    pub(crate) fn read(&mut self, message: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let mut payload = Zeroizing::new(vec![0; message.len()]);
        let length = self.0.read_message(message, &mut payload).ok()?;
        payload.truncate(length);
        Some(payload)
    }

    /// Returns the keys of the session, after both messages.
    pub(crate) fn finish(self) -> Option<Keys> {
        self.0.into_stateless_transport_mode().ok()
    }
}

fn members(
    ours: &Identity,
    theirs: &PublicKey,
    context: &[u8],
    build: impl for<'a> FnOnce(Builder<'a>) -> Result<HandshakeState, snow::Error>,
) -> HandshakeState {
    let builder = builder(AMONG_MEMBERS).local_private_key(&ours.private[..]);
    let builder = builder.and_then(|it| it.remote_public_key(&theirs.0)).and_then(|it| it.prologue(context));
    builder.and_then(build).expect("the pattern has a key at each end")
}

fn builder<'a>(pattern: &str) -> Builder<'a> {
    Builder::new(pattern.parse().expect("a pattern that snow knows"))
}
