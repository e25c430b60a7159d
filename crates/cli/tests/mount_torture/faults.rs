//! What a server does that is odd, slow or wrong, as data.

use nfs_wire::Status;

use crate::tree::Id;

/// What the server does. The default is what all servers do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// Which entries of READDIRPLUS lack something.
    pub(crate) entries: Entries,
    /// READDIRPLUS is answered with NOTSUPP.
    pub(crate) no_readdirplus: bool,
    /// Cookies are good only until the directory changes; then it is BAD_COOKIE.
    pub(crate) strict_cookies: bool,
    /// Attributes come in GETATTR, and nowhere else.
    pub(crate) no_post_op: bool,
    /// Directories have another fileid in every reply.
    pub(crate) changing_ids: bool,
    /// Nothing is answered.
    pub(crate) silent: bool,
    /// Nothing about this file is answered.
    pub(crate) silent_about: Option<Id>,
    /// All calls of NFS fail: STALE, JUKEBOX.
    pub(crate) fail: Option<Status>,
    /// READ gives no bytes, and no end of the file.
    pub(crate) empty_reads: bool,
    /// This directory has no end.
    pub(crate) endless: Option<Id>,
    /// The file of this name is replaced after every LOOKUP of it.
    pub(crate) replaced: Option<&'static str>,
    /// This name is among those of the root.
    pub(crate) hostile: Option<&'static [u8]>,
}

/// Entries of READDIRPLUS that lack something, which is legal (RFC 1813 §3.3.17).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Entries {
    #[default]
    Whole,
    /// Every second one has no handle.
    SomeWithoutHandles,
    /// Every second one has neither handle nor attributes.
    SomeBare,
    /// None has attributes.
    WithoutAttributes,
}
