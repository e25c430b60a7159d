//! What happens in a run, as types: whoever begins one puts them into words, counts them, or takes them as they are.

use std::{collections::BTreeMap, io, ops::Range, os::unix::ffi::OsStrExt, path::Path};

use crate::{
    error::{Error, show},
    url::{encode_url, join},
};

/// The name of a file for people and for programs.
#[derive(Clone, Debug)]
pub struct Name {
    /// Escaped.
    pub shown: String,
    /// As it is.
    pub bytes: Vec<u8>,
}

impl Name {
    /// Returns the name of standard output.
    pub fn standard_output() -> Self {
        Self { shown: "standard output".to_owned(), bytes: b"-".to_vec() }
    }

    /// Returns the name of a local file.
    pub fn local(path: &Path) -> Self {
        Self { shown: show(path), bytes: path.as_os_str().as_bytes().to_vec() }
    }

    /// Returns what is at a path in this directory, as it is. What begins so is a URL, and no local file.
    pub fn join(&self, path: &[u8]) -> Vec<u8> {
        let path = if self.bytes.starts_with(b"nfs://") { encode_url(path) } else { path.to_vec() };
        join(&self.bytes, &path)
    }
}

/// What is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
}

/// Why something is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
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
    /// Only its owner, mode or time is another.
    Attributes,
    /// It becomes another name of a file.
    Link,
}

impl Change {
    /// Whether bytes are copied for it.
    pub const fn moves_bytes(self) -> bool {
        !matches!(self, Self::Attributes | Self::Link)
    }
}

/// Why a file was left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Skip {
    /// An interrupted run of the same command has copied it.
    Complete,
    /// Something has its name, and nothing that exists was to be replaced.
    Exists,
    /// What has its name is newer, or as new.
    NotOlder,
    /// What has its name is newer and was not to be replaced, which is a failure of the run.
    Newer,
    /// It is as its source.
    Unchanged,
    /// It is a fifo, a socket or a device.
    Special,
    /// It is what an interrupted copy of the file beside it has left, and its name is needed for the copy of that file.
    Partial,
    /// It is a link in somebody else's share that leads out of what is copied.
    LeadsOut,
}

/// What happens. Events of a dry run say what would happen.
#[derive(Debug)]
pub enum Event<'a> {
    /// Sources and destination were found.
    Planned {
        /// Whether it is a sync.
        is_sync: bool,
        /// Whether nothing is done but told.
        is_dry_run: bool,
    },
    /// Something is at the destination now.
    Copied {
        /// What it is.
        what: What,
        /// What was copied.
        source: &'a Name,
        /// Its copy.
        target: &'a Name,
        /// Bytes of a file; 0 of anything else.
        bytes: u64,
        /// Where it is below the destination, and why it was copied; `None` for a destination itself.
        change: Option<(&'a [u8], Change)>,
    },
    /// The source was copied to where there is no name: standard output.
    Written,
    /// What has the name of a copy is left as it is.
    Skipped {
        /// What is copied.
        source: &'a Name,
        /// What has the name of its copy.
        target: &'a Name,
        /// Why.
        reason: Skip,
    },
    /// It is newer than its source and was not to be replaced. It may be the same all the same, where contents are not compared.
    KeptNewer {
        /// What is copied.
        source: &'a Name,
        /// What has the name of its copy.
        target: &'a Name,
        /// Whether it may be the same.
        may_be_same: bool,
    },
    /// A copy is resumed after the bytes that an earlier run has copied.
    Resumed {
        /// What is copied.
        source: &'a Name,
        /// Its copy.
        target: &'a Name,
        /// The bytes that are there.
        bytes: u64,
        /// The bytes of the source.
        size: u64,
    },
    /// A copy was read again and is equal to its source.
    Verified,
    /// A copy was read again and differs from its source in these bytes.
    Differs {
        /// What is copied.
        source: &'a Name,
        /// Its copy.
        target: &'a Name,
        /// The bytes that differ.
        ranges: &'a [Range<u64>],
    },
    /// Something that the source does not have is deleted.
    Deleted {
        /// What was there.
        target: &'a Name,
        /// Where it is below the destination.
        path: &'a [u8],
        /// Whether it is a directory.
        is_directory: bool,
    },
    /// Something failed, and the run goes on.
    Failed(&'a Error),
    /// The run goes on, and the user should know.
    Warning(Warning<'a>),
    /// All that could be done was done.
    Done {
        /// Whether copies were read again.
        is_verified: bool,
    },
}

/// What the user should know.
#[derive(Debug)]
pub enum Warning<'a> {
    /// Something is odd about the options of a URL.
    Option(&'a str),
    /// The destination does not keep modes or times, for this reason.
    NotKept(&'a str),
    /// A server does not keep set-user-ID and set-group-ID bits.
    SetIdNotKept(&'a str),
    /// An interrupted run cannot be resumed, as its state cannot be written.
    NotResumable(&'a io::Error),
    /// An interrupted run cannot be resumed, as another run has the state of its destination.
    NotResumableBesideAnother,
    /// An interrupted download cannot be resumed, as somebody else keeps the name of its journal.
    JournalIsTaken(&'a Name),
    /// A server has lost what an earlier run sent.
    LostUpload {
        /// Its copy.
        target: &'a Name,
    },
    /// Identifications of fragments come again before those of lost ones have expired (RFC 4963).
    IdentificationsWrap,
    /// A file of the same time has another size, and is left as it is.
    OtherSize {
        /// What is copied.
        source: &'a Name,
        /// What has its time.
        target: &'a Name,
    },
    /// A file has changed while it was copied, and is copied again.
    Changed(&'a Name),
    /// A file has grown while it was copied: the copy has so many bytes.
    Grew(&'a Name, u64),
    /// It is nothing that can be copied, but this.
    Special(&'a Name, &'static str),
    /// An interrupted copy of the file beside it has left it.
    Left(&'a Name),
    /// It is a link in somebody else's share that leads out of what is copied.
    LeadsOut(&'a Name),
    /// The mark of an incomplete copy in a source.
    Marker(&'a Name),
    /// Nothing is deleted, or nothing else.
    NothingDeleted {
        /// Whether something was deleted before.
        is_rest: bool,
        /// Why.
        why: NotDone,
    },
}

/// Says what the mark of an incomplete copy in a source means.
pub fn says_incomplete(mark: &Name) -> String {
    format!("{}: skipped; it says that SRC itself is an incomplete copy", mark.shown)
}

/// What did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDone {
    /// Not everything could be copied.
    Copying,
    /// Not everything could be listed.
    Listing,
}

/// What a run has done, or would do.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Files and links that were copied.
    pub copied: u64,
    /// Directories that copies went into.
    pub directories: u64,
    /// Copies that were resumed.
    pub resumed: u64,
    /// Copies that were read again and are equal to their sources.
    pub verified: u64,
    /// Files and directories that a sync has deleted.
    pub deleted: u64,
    /// Files that were left as they are.
    pub skipped: BTreeMap<Skip, u64>,
    /// What failed.
    pub failed: u64,
}

impl Counts {
    /// Counts an event.
    pub fn count(&mut self, event: &Event<'_>) {
        let count = match event {
            Event::Copied { what: What::Directory, .. } => &mut self.directories,
            Event::Copied { .. } | Event::Written => &mut self.copied,
            Event::Resumed { .. } => &mut self.resumed,
            Event::Verified => &mut self.verified,
            Event::Deleted { .. } => &mut self.deleted,
            Event::Skipped { reason, .. } => self.skipped.entry(*reason).or_default(),
            Event::KeptNewer { .. } => self.skipped.entry(Skip::Newer).or_default(),
            Event::Failed(_) => &mut self.failed,
            Event::Planned { .. } | Event::Differs { .. } | Event::Warning(_) | Event::Done { .. } => return,
        };
        *count += 1;
    }

    /// Whether anything failed, or a newer file was kept.
    pub fn has_failures(&self) -> bool {
        self.failed > 0 || self.skipped.contains_key(&Skip::Newer)
    }
}
