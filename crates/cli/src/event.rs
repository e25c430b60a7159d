//! What happens in a run, as types: whoever begins one puts them into words, counts them, or takes them as they are.

use std::{io, ops::Range, os::unix::ffi::OsStrExt, path::Path};

use crate::{
    error::show,
    outcome::Skip,
    url::{encode_url, join},
};

/// The name of a file for people and for programs.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    /// Escaped.
    pub(crate) shown: String,
    /// As it is.
    pub(crate) bytes: Vec<u8>,
}

impl Name {
    /// Returns the name of standard output.
    pub(crate) fn standard_output() -> Self {
        Self { shown: "standard output".to_owned(), bytes: b"-".to_vec() }
    }

    /// Returns the name of a local file.
    pub(crate) fn local(path: &Path) -> Self {
        Self { shown: show(path), bytes: path.as_os_str().as_bytes().to_vec() }
    }

    /// Returns what is at a path in this directory, as it is. What begins so is a URL, and no local file.
    pub(crate) fn join(&self, path: &[u8]) -> Vec<u8> {
        let path = if self.bytes.starts_with(b"nfs://") { encode_url(path) } else { path.to_vec() };
        join(&self.bytes, &path)
    }
}

/// What is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    File,
    Directory,
    /// A symbolic link.
    Link,
}

/// Why something is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing has its name.
    New,
    /// What is there is replaced, whatever it is.
    Replaced,
    /// It has another size, this one.
    Size(u64),
    /// It has another time.
    Time,
    /// It has other bytes.
    Contents,
    /// It is a link to something else.
    Target,
    /// It is something else.
    Kind,
    /// Only its mode or time is another.
    Attributes,
    /// It becomes another name of a file.
    Link,
}

impl Change {
    /// Whether bytes are copied for it.
    pub(crate) const fn moves_bytes(self) -> bool {
        !matches!(self, Self::Attributes | Self::Link)
    }
}

/// What happens. Events of a dry run say what would happen.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    /// Sources and destination were found.
    Planned { is_sync: bool, is_dry_run: bool },
    /// Something is at the destination now.
    Copied {
        what: What,
        source: &'a Name,
        target: &'a Name,
        /// Its size in bytes.
        bytes: u64,
        /// Where it is below the destination, and why it was copied; `None` for a destination itself.
        change: Option<(&'a [u8], Change)>,
    },
    /// The source was copied to where there is no name: standard output.
    Written,
    /// What has the name of a copy is left as it is.
    Skipped { source: &'a Name, target: &'a Name, reason: Skip },
    /// It is newer than its source and was not to be replaced. It may be the same all the same, where contents are not compared.
    KeptNewer { source: &'a Name, target: &'a Name, may_be_same: bool },
    /// A copy is resumed after the bytes that an earlier run has copied.
    Resumed { source: &'a Name, target: &'a Name, bytes: u64, size: u64 },
    /// A copy was read again and is equal to its source.
    Verified,
    /// A copy was read again and differs from its source in these bytes.
    Differs { source: &'a Name, target: &'a Name, ranges: &'a [Range<u64>] },
    /// Something that the source does not have is deleted.
    Deleted { target: &'a Name, path: &'a [u8], is_directory: bool },
    /// The run goes on, and the user should know.
    Warning(Warning<'a>),
    /// All that could be done was done.
    Done { is_verified: bool },
}

/// What the user should know.
#[derive(Debug)]
pub(crate) enum Warning<'a> {
    /// The destination does not keep modes or times, for this reason.
    NotKept(&'a str),
    /// A server does not keep set-user-ID and set-group-ID bits.
    SetIdNotKept(&'a str),
    /// An interrupted run cannot be resumed, as its state cannot be written.
    NotResumable(&'a io::Error),
    /// An interrupted run cannot be resumed, as another run has the state of its destination.
    NotResumableBesideAnother,
    /// A server has lost what an earlier run sent.
    LostUpload { target: &'a Name },
    /// Identifications of fragments come again before those of lost ones have expired (RFC 4963).
    IdentificationsWrap,
    /// A file of the same time has another size, and is left as it is.
    OtherSize { source: &'a Name, target: &'a Name },
    /// A file has changed while it was copied, and is copied again.
    Changed(&'a Name),
    /// A file has grown while it was copied: the copy has so many bytes.
    Grew(&'a Name, u64),
    /// It is nothing that can be copied, but this.
    Special(&'a Name, &'static str),
    /// An interrupted copy of the file beside it has left it.
    Left(&'a Name),
    /// The mark of an incomplete copy in a source.
    Marker(&'a Name),
    /// Nothing is deleted, or nothing else.
    NothingDeleted { is_rest: bool, why: NotDone },
}

/// What did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotDone {
    Copying,
    Listing,
}
