//! How much a stream keeps in memory and in flight.

/// Limits of a [`Stream`](super::Stream).
#[derive(Clone, Debug)]
pub(super) struct StreamTuning {
    /// Bytes in memory that are not yet on stable storage, in whole pages of 4 KiB. More are not
    /// taken in until a COMMIT makes room. Above `commit_bytes`. Default: 8 MiB, twice that.
    pub(super) dirty_bytes: usize,
    /// Runs of such bytes with gaps between them, each a WRITE of its own. Above 0. Default: 1024.
    pub(super) fragments: usize,
    /// Unstable bytes after which a COMMIT is sent, while further WRITEs leave. Default: 4 MiB.
    pub(super) commit_bytes: u64,
    /// WRITEs in flight. Above 0. Default: 16.
    pub(super) writes: usize,
    /// Bytes of a WRITE. Above 0. Default: 128 KiB, as each is copied on its way.
    pub(super) write_bytes: u32,
    /// WRITEs one after the other that accept nothing before the server is given up. Default: 8, as
    /// for an upload.
    pub(super) empty_writes: u32,
    /// Bytes asked for ahead of the reader. Above 0. Default: 2 MiB.
    pub(super) read_ahead_bytes: u64,
    /// Bytes asked for ahead of a reader that has just gone somewhere else; they double with every
    /// block that it reads from there. Above 0. Default: 64 KiB.
    pub(super) read_ahead_after_seek_bytes: u64,
    /// READs in flight. Above 0. Default: 32.
    pub(super) reads: usize,
    /// Blocks in memory that were read ahead or are asked for. Above 0. Default: 2048, which is 2
    /// MiB in blocks of 1 KiB.
    pub(super) read_ahead_chunks: usize,
    /// READs one after the other that give neither data nor an end before the server is given up.
    /// Default: 8, as for a download.
    pub(super) empty_reads: u32,
}

impl Default for StreamTuning {
    fn default() -> Self {
        const COMMIT_BYTES: usize = 4 << 20;
        Self {
            dirty_bytes: 2 * COMMIT_BYTES,
            fragments: 1024,
            commit_bytes: COMMIT_BYTES as u64,
            writes: 16,
            write_bytes: 128 << 10,
            empty_writes: 8,
            read_ahead_bytes: 2 << 20,
            read_ahead_after_seek_bytes: 64 << 10,
            reads: 32,
            read_ahead_chunks: 2048,
            empty_reads: 8,
        }
    }
}
