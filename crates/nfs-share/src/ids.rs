//! What datagrams begin with: names of sessions and members.

use std::fmt;

/// Session and counter.
pub(crate) const HEAD_BYTES: usize = 16;

/// Names a session. It is no secret: whoever sees a datagram knows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(pub [u8; 8]);

impl SessionId {
    /// What datagrams begin with that belong to no session.
    pub(crate) const NONE: Self = Self([0; 8]);

    /// Draws one.
    pub(crate) fn draw() -> Self {
        loop {
            let id = Self(crate::random());
            if id != Self::NONE {
                return id;
            }
        }
    }

    /// Returns the session that a datagram says it belongs to.
    pub(crate) fn of(datagram: &[u8]) -> Option<Self> {
        datagram.first_chunk().copied().map(Self)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SessionId({:016x})", u64::from_be_bytes(self.0))
    }
}

/// Names a member. It is no secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberId(pub [u8; 8]);

impl fmt::Debug for MemberId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "MemberId({:016x})", u64::from_be_bytes(self.0))
    }
}
