//! What calls, operations, open files and objects are named by.

/// Names an operation until its [`Event::Done`](crate::Event::Done).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub(crate) u64);

/// Names an open file until it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpenId(pub(crate) u64);

impl OpenId {
    /// Returns the number.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Takes a number that a kernel gave back.
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// Names a call until its outcome is known. Later calls have greater names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub(crate) u64);

impl CallId {
    /// Stands for all calls of earlier caches.
    pub(crate) const KEPT: Self = Self(0);
    /// Stands for what was known before the first call.
    pub(crate) const FIRST: Self = Self(1);
    /// After all calls.
    pub(crate) const LAST: Self = Self(u64::MAX);
}

/// Names a version of a file, or a directory, a link or another object whatever its version. Never used twice.
///
/// A front that hands it to a kernel as the number of an inode keeps the kernel's pages of two versions apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u64);

impl NodeId {
    /// The directory that the cache shows.
    pub const ROOT: Self = Self(1);

    /// Returns the number, at least 1.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Takes a number that a kernel gave back.
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }
}
