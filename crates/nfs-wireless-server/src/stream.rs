//! The streams that a seed is split into, one per kind of decision, so that a new draw shifts no other.

/// File handles.
pub(crate) const INSTANCE: u64 = 0;
/// Write verifiers.
pub(crate) const VERIFIER: u64 = 1;
/// What shows that an address receives its replies.
pub(crate) const ADDRESSES: u64 = 2;
/// The first fault rule; the others follow.
pub(crate) const FIRST_RULE: u64 = 16;
