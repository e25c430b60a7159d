//! What is on the wire before there is a session. Numbers are big-endian.
//!
//! ```text
//! 0 (8) | version (1) | kind (1) | attempt (16) | what the kind has
//!
//! hello     code's number (2) | share (33) | zeros to 128 bytes   receiver: a code, and half of an agreement
//! offer     cookie (16) | share (33)                              sharer: the other half
//! proof     code's number (2) | cookie (16) | share (33) | handshake
//! welcome   handshake                                             sharer: a session
//! return    member (8) | handshake                                receiver: it is known already
//! refusal   reason (1)                                            sharer: neither
//! lost      session (8) | counter (8)                             sharer: it does not know this session; in place of `attempt`
//! ```
//!
//! No reply is longer than three times what it answers (RFC 9000 §8.1), and a proof without the cookie that was sent to the
//! address it comes from is no guess: it is answered by another offer.

use crate::{
    ids::{HEAD_BYTES, MemberId, SessionId},
    pairing::{SHARE_BYTES, Share},
};

const VERSION: u8 = 1;

/// Bytes of a hello.
const HELLO_BYTES: usize = 128;

/// What tells the attempts of receivers from each other; drawn at random, so that who does not see it cannot answer.
pub(crate) type Attempt = [u8; 16];

/// What shows that an address receives what is sent to it.
pub(crate) type Cookie = [u8; 16];

/// Why there is no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// No code has this number, the words are wrong, it was used, or withdrawn after wrong guesses.
    WrongCode,
    /// The sharer does not know this member.
    Unknown,
    /// The time of this member is over, or the sharer has ended it.
    Ended,
}

/// A datagram that belongs to no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Datagram<'a> {
    Hello {
        attempt: Attempt,
        number: u16,
        share: Share,
    },
    Offer {
        attempt: Attempt,
        cookie: Cookie,
        share: Share,
    },
    Proof {
        attempt: Attempt,
        number: u16,
        cookie: Cookie,
        share: Share,
        handshake: &'a [u8],
    },
    Welcome {
        attempt: Attempt,
        handshake: &'a [u8],
    },
    Return {
        attempt: Attempt,
        member: MemberId,
        handshake: &'a [u8],
    },
    Refusal {
        attempt: Attempt,
        reason: Refusal,
    },
    /// The head of the datagram whose session is not known.
    Lost {
        head: [u8; HEAD_BYTES],
    },
}

impl<'a> Datagram<'a> {
    /// Reads a datagram; `None` for what is none of these.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&SessionId::NONE.0)?.strip_prefix(&[VERSION])?;
        let (&kind, rest) = rest.split_first()?;
        let (&attempt, rest) = rest.split_first_chunk()?;
        match kind {
            1 => {
                let (&number, rest) = rest.split_first_chunk()?;
                let (&share, _) = rest.split_first_chunk()?;
                (bytes.len() >= HELLO_BYTES).then_some(Self::Hello {
                    attempt,
                    number: u16::from_be_bytes(number),
                    share,
                })
            }
            2 => {
                let (&cookie, rest) = rest.split_first_chunk()?;
                Some(Self::Offer { attempt, cookie, share: rest.try_into().ok()? })
            }
            3 => {
                let (&number, rest) = rest.split_first_chunk()?;
                let (&cookie, rest) = rest.split_first_chunk()?;
                let (&share, handshake) = rest.split_first_chunk()?;
                Some(Self::Proof { attempt, number: u16::from_be_bytes(number), cookie, share, handshake })
            }
            4 => Some(Self::Welcome { attempt, handshake: rest }),
            5 => {
                let (&member, handshake) = rest.split_first_chunk()?;
                Some(Self::Return { attempt, member: MemberId(member), handshake })
            }
            6 => {
                let reason = match rest {
                    [1] => Refusal::WrongCode,
                    [2] => Refusal::Unknown,
                    [3] => Refusal::Ended,
                    _ => return None,
                };
                Some(Self::Refusal { attempt, reason })
            }
            7 if rest.is_empty() => Some(Self::Lost { head: attempt }),
            _ => None,
        }
    }

    /// Writes it.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HELLO_BYTES);
        bytes.extend_from_slice(&SessionId::NONE.0);
        bytes.push(VERSION);
        match self {
            Self::Hello { attempt, number, share } => {
                put(&mut bytes, 1, attempt, &[&number.to_be_bytes(), share]);
                bytes.resize(HELLO_BYTES, 0);
            }
            Self::Offer { attempt, cookie, share } => put(&mut bytes, 2, attempt, &[cookie, share]),
            Self::Proof { attempt, number, cookie, share, handshake } => {
                put(&mut bytes, 3, attempt, &[&number.to_be_bytes(), cookie, share, handshake]);
            }
            Self::Welcome { attempt, handshake } => put(&mut bytes, 4, attempt, &[handshake]),
            Self::Return { attempt, member, handshake } => {
                put(&mut bytes, 5, attempt, &[&member.0, handshake])
            }
            Self::Refusal { attempt, reason } => {
                let reason = match reason {
                    Refusal::WrongCode => 1,
                    Refusal::Unknown => 2,
                    Refusal::Ended => 3,
                };
                put(&mut bytes, 6, attempt, &[&[reason]]);
            }
            Self::Lost { head } => put(&mut bytes, 7, head, &[]),
        }
        bytes
    }
}

/// Whether a datagram says that the sharer does not know a session. Anyone may have sent it who sees datagrams.
#[cfg(feature = "receiver")]
pub(crate) fn is_lost(datagram: &[u8], session: SessionId) -> bool {
    matches!(Datagram::decode(datagram), Some(Datagram::Lost { head }) if head[..8] == session.0)
}

fn put(bytes: &mut Vec<u8>, kind: u8, attempt: &Attempt, parts: &[&[u8]]) {
    bytes.push(kind);
    bytes.extend_from_slice(attempt);
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
}

/// Bytes of an offer.
const OFFER_BYTES: usize = 8 + 2 + 16 + 16 + SHARE_BYTES;

// A hello is answered by an offer, and so is a proof whose cookie does not fit, which has all of an offer and more.
const _: () = assert!(OFFER_BYTES <= HELLO_BYTES);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let (attempt, cookie, share) = (crate::random(), crate::random(), [7; SHARE_BYTES]);
        let (number, handshake) = (258, &b"noise"[..]);
        for datagram in [
            Datagram::Hello { attempt, number, share },
            Datagram::Offer { attempt, cookie, share },
            Datagram::Proof { attempt, number, cookie, share, handshake },
            Datagram::Welcome { attempt, handshake },
            Datagram::Return { attempt, member: MemberId([3; 8]), handshake },
            Datagram::Refusal { attempt, reason: Refusal::WrongCode },
            Datagram::Refusal { attempt, reason: Refusal::Unknown },
            Datagram::Refusal { attempt, reason: Refusal::Ended },
            Datagram::Lost { head: attempt },
        ] {
            let bytes = datagram.encode();
            assert_eq!(Datagram::decode(&bytes), Some(datagram));
            assert_eq!(SessionId::of(&bytes), Some(SessionId::NONE));
        }
    }

    proptest! {
        #[test]
        fn nothing_that_arrives_is_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0_u8..9) {
            Datagram::decode(&bytes);
            let mut begun = [&SessionId::NONE.0[..], &[VERSION, kind]].concat();
            begun.extend_from_slice(&bytes);
            if let Some(datagram) = Datagram::decode(&begun) {
                let bytes = datagram.encode();
                prop_assert_eq!(Datagram::decode(&bytes), Some(datagram));
            }
        }
    }
}
