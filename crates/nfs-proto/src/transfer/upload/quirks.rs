//! What a server turned out not to do, though RFC 1813 asks for it.

/// Learnt from a server's answers to one upload. By default it does all of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServerQuirks {
    /// CREATE takes no time of last access (unfs3 takes a mode alone).
    pub(super) lacks_times_in_create: bool,
    /// CREATE does not refuse a name that is taken (GUARDED, RFC 1813 §3.3.8), or refuses one that is free: a LOOKUP takes its place.
    pub(super) lacks_guarded: bool,
    /// Guards of SETATTR that it has refused.
    pub(super) refused_guards: u32,
    /// COMMIT is not offered.
    pub(super) lacks_commit: bool,
    /// COMMIT proves nothing: every WRITE must be stable itself.
    pub(super) forgets_writes: bool,
}
