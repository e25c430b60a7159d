//! What the server announces (FSINFO, RFC 1813 §3.3.19), and what it turns out to take.
//!
//! A READ or WRITE never exceeds what was announced: Linux closes the connection over a larger record, FreeBSD answers I/O error. Servers that
//! announce nothing, or what is not so, are found out by what they do: short answers, silence, rejections, closed connections.

use std::time::{Duration, Instant};

use nfs_wire::{
    FileHandle, Procedure, encode,
    nfs3_types::nfs3::FSINFO3resok,
    reply,
    rpc::{Program, Rejection},
};

use super::{Session, TransferId};
use crate::{
    config::MIN_BLOCK_BYTES,
    engine::{CallSpec, Class, Owner, Repeat, Withdrawal},
    transfer::Limits,
};

/// Bytes per READ and WRITE where the server does not say what it takes, or says zero: what every server that is known takes over TCP.
const UNANNOUNCED_BYTES: u32 = 32 << 10;

/// How long READs and WRITEs wait to hear what the server takes. Then they begin with [`UNANNOUNCED_BYTES`].
const PATIENCE: Duration = Duration::from_secs(5);

/// The FSINFO call of a session's own.
pub(super) const FSINFO: Owner = Owner(u64::MAX - 1);

/// What a server announces about one file system, as far as it bounds READs and WRITEs (FSINFO, RFC 1813 §3.3.19). Its preferred sizes are not
/// followed: where they differ from the largest, those are as fast or faster (docs/servers.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Largest READ, in bytes (`rtmax`).
    pub read_max: u32,
    /// Largest WRITE, in bytes (`wtmax`).
    pub write_max: u32,
    /// Largest file, in bytes (`maxfilesize`).
    pub max_file_bytes: u64,
}

impl ServerLimits {
    /// Of a server that announces nothing.
    const UNANNOUNCED: Self =
        Self { read_max: UNANNOUNCED_BYTES, write_max: UNANNOUNCED_BYTES, max_file_bytes: u64::MAX };
}

impl From<&FSINFO3resok> for ServerLimits {
    fn from(info: &FSINFO3resok) -> Self {
        let most = |announced: u32| if announced == 0 { UNANNOUNCED_BYTES } else { announced };
        Self {
            read_max: most(info.rtmax),
            write_max: most(info.wtmax),
            max_file_bytes: if info.maxfilesize == 0 { u64::MAX } else { info.maxfilesize },
        }
    }
}

/// What bounds the READs and WRITEs of a session.
#[derive(Debug)]
pub(super) struct Bounds {
    /// As configured.
    configured: Limits,
    /// The root of the export: what FSINFO is asked about.
    root: Option<FileHandle>,
    announced: Option<ServerLimits>,
    /// READs and WRITEs wait for FSINFO until then.
    wait_until: Option<Instant>,
    /// Sizes that the server did not take were larger.
    found: Limits,
    /// Bytes that the last READ and WRITE moved, if fewer than asked.
    short: [Option<u32>; 2],
}

impl Bounds {
    pub(super) fn new(configured: Limits) -> Self {
        let found = Limits { read_block: u32::MAX, write_block: u32::MAX, ..Limits::default() };
        let (announced, root, wait_until) = (None, None, None);
        Self { configured, root, announced, wait_until, found, short: [None; 2] }
    }

    pub(super) const fn announced(&self) -> Option<ServerLimits> {
        self.announced
    }

    /// Returns the largest READ and WRITE.
    pub(super) fn limits(&self) -> Limits {
        let Limits { read_block, write_block, pace } = self.configured;
        let (read, write) = self
            .announced
            .map_or((u32::MAX, u32::MAX), |announced| (announced.read_max, announced.write_max));
        Limits {
            read_block: read_block.min(read).min(self.found.read_block),
            write_block: write_block.min(write).min(self.found.write_block),
            pace,
        }
    }

    /// The server does not take blocks of `bytes`, or not whole; at most `smaller` from now on.
    pub(super) fn shrink(&mut self, class: Class, smaller: u32) {
        match class {
            Class::Control => {}
            Class::Read => self.found.read_block = self.found.read_block.min(smaller),
            Class::Write => self.found.write_block = self.found.write_block.min(smaller),
        }
        tracing::debug!(?class, bytes = smaller, "the server does not take larger blocks");
    }

    /// A READ or WRITE for `asked` bytes moved `moved`. A server that stops twice at the same size takes no more at once.
    /// Whether this was found out now.
    pub(super) fn handle_moved(&mut self, class: Class, asked: u32, moved: u32) -> bool {
        let at = match class {
            Class::Control => return false,
            Class::Read => 0,
            Class::Write => 1,
        };
        // No server's limit is so low: one that knows an address only from what claims to come from it sends little there.
        if moved < MIN_BLOCK_BYTES.min(asked) {
            return false;
        }
        let short = (moved < asked).then_some(moved);
        // A whole block that is smaller says nothing about larger ones.
        if short.is_none() && self.short[at].is_some_and(|before| asked <= before) {
            return false;
        }
        let before = std::mem::replace(&mut self.short[at], short);
        let found = short.is_some() && short == before;
        if found {
            self.shrink(class, moved);
        }
        found
    }

    /// Returns until when READs and WRITEs have to wait, if they have to.
    pub(super) const fn wait_until(&self) -> Option<Instant> {
        self.wait_until
    }

    /// Whether READs and WRITEs have to wait.
    pub(super) fn waits(&self, now: Instant) -> bool {
        self.wait_until.is_some_and(|until| now < until)
    }
}

impl Session {
    /// Records the export's root, and asks what the server takes; READs and WRITEs wait for the answer if they could be larger than
    /// 32 KiB. `known`: another connection over the same transport has asked already.
    ///
    /// It may be called with a handle that is merely expected, before MNT has returned it. What the server announced for that stays, unless it
    /// is another one or the server refused it.
    pub fn handle_mount(&mut self, now: Instant, root: FileHandle, known: Option<ServerLimits>) {
        let before = self.bounds.root.replace(root);
        match known {
            None if before == Some(root) && self.bounds.announced != Some(ServerLimits::UNANNOUNCED) => {}
            Some(known) => self.handle_limits(now, known),
            None => {
                // What every server takes need not wait.
                let Limits { read_block, write_block, .. } = self.bounds.configured;
                let is_large = read_block.max(write_block) > UNANNOUNCED_BYTES;
                self.bounds.wait_until = is_large.then_some(now + PATIENCE);
                self.ask_limits(now);
            }
        }
    }

    /// Returns what the server has announced.
    pub const fn server_limits(&self) -> Option<ServerLimits> {
        self.bounds.announced()
    }

    /// Asks what the server takes, if an export is mounted.
    pub(super) fn ask_limits(&mut self, now: Instant) {
        let Some(root) = self.bounds.root else { return };
        self.engine.cancel_matching(now, |owner, _, _, _| owner == FSINFO);
        let spec = CallSpec {
            program: Program::NFS,
            procedure: Procedure::Fsinfo.number(),
            class: Class::Control,
            repeat: Repeat::Idempotent,
            hedge: true,
            owner: FSINFO,
            payload: None,
            bytes: 0,
            deadline: None,
            not_before: None,
        };
        let asked = self.engine.submit(now, spec, |buffer| encode(buffer, &root.to_fh3()));
        if asked.is_none() {
            self.bounds.wait_until = None;
        }
    }

    /// Takes in what FSINFO was answered.
    pub(super) fn handle_fsinfo(&mut self, now: Instant, outcome: Result<(), Rejection>, results: &[u8]) {
        let told = outcome.ok().and_then(|()| reply::decode::<FSINFO3resok>(results).ok()?.ok());
        let limits = told.as_ref().map_or(ServerLimits::UNANNOUNCED, ServerLimits::from);
        tracing::debug!(?limits, announced = told.is_some(), "limits of the server");
        self.handle_limits(now, limits);
    }

    /// Ends a wait for limits that has lasted too long.
    pub(super) fn stop_waiting_for_limits(&mut self, now: Instant) {
        if self.bounds.wait_until.is_some_and(|until| until <= now) {
            self.handle_limits(now, self.bounds.announced.unwrap_or(ServerLimits::UNANNOUNCED));
        }
    }

    fn handle_limits(&mut self, now: Instant, limits: ServerLimits) {
        self.bounds.wait_until = None;
        self.bounds.announced = Some(limits);
        self.apply_bounds(now);
    }

    /// Takes back what is larger than it may be now, to be made again in smaller blocks.
    pub(super) fn apply_bounds(&mut self, now: Instant) {
        let Limits { read_block, write_block, .. } = self.bounds.limits();
        self.engine.bound_blocks(read_block.max(write_block));
        self.withdraw(now, Withdrawal::TooLarge, |class, bytes, _| match class {
            Class::Control => false,
            Class::Read => bytes > read_block,
            Class::Write => bytes > write_block,
        });
        self.has_work = true;
    }

    /// The peer closed the connection, as some servers do over a record that is too large for them: a READ or WRITE larger than any that was
    /// answered is made again at half the size. `again`: so did it the connection before, and what was answered once does not count any more.
    pub fn handle_close(&mut self, now: Instant, again: bool) {
        if again {
            self.proven = Limits { read_block: 0, write_block: 0, ..self.proven };
        }
        let mut largest = [0_u32; 2];
        let proven = self.proven;
        self.engine.look(|owner, class, bytes, attempts| {
            let (at, proven) = match class {
                Class::Control => return,
                Class::Read => (0, proven.read_block),
                Class::Write => (1, proven.write_block),
            };
            if attempts > 0 && bytes > proven.max(MIN_BLOCK_BYTES) && super::owner_transfer(owner).is_some() {
                largest[at] = largest[at].max(bytes);
            }
        });
        for (class, bytes) in [(Class::Read, largest[0]), (Class::Write, largest[1])] {
            if bytes > 0 {
                self.bounds.shrink(class, half(bytes));
            }
        }
        self.apply_bounds(now);
    }

    /// A READ or WRITE of a transfer moved `moved` of the `asked` bytes.
    pub(super) fn handle_moved(&mut self, now: Instant, id: TransferId, asked: u32, moved: u32) {
        let Some(class) = self.find(id).map(|active| active.transfer.class()) else { return };
        if let Some(pacer) = &mut self.pacer {
            pacer.refund(asked - moved.min(asked));
        }
        if self.bounds.handle_moved(class, asked, moved) {
            self.apply_bounds(now);
        }
    }
}

/// A block of so many bytes was too large: half of it may do.
pub(super) fn half(bytes: u32) -> u32 {
    (bytes / 2).next_multiple_of(MIN_BLOCK_BYTES).max(MIN_BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use nfs_wire::nfs3_types::nfs3::{Nfs3Option, nfstime3};

    use super::*;

    fn info(max: u32) -> FSINFO3resok {
        FSINFO3resok {
            obj_attributes: Nfs3Option::None,
            rtmax: max,
            rtpref: 512,
            rtmult: 512,
            wtmax: max,
            wtpref: 512,
            wtmult: 512,
            dtpref: 4096,
            maxfilesize: 0,
            time_delta: nfstime3 { seconds: 0, nseconds: 1 },
            properties: 0,
        }
    }

    fn bounds(block: u32, max: u32) -> u32 {
        let configured = Limits { read_block: block, write_block: block, ..Limits::default() };
        let mut bounds = Bounds::new(configured);
        bounds.announced = Some(ServerLimits::from(&info(max)));
        let Limits { read_block, write_block, .. } = bounds.limits();
        assert_eq!(read_block, write_block);
        write_block
    }

    #[test]
    fn blocks_stay_within_what_the_server_announces() {
        assert_eq!(bounds(1 << 20, 256 << 10), 256 << 10);
        assert_eq!(bounds(8192, 256 << 10), 8192);
        assert_eq!(bounds(1 << 20, 64 << 20), 1 << 20);
    }

    #[test]
    fn announcements_that_cannot_be_are_not_followed() {
        assert_eq!(bounds(1 << 20, 0), UNANNOUNCED_BYTES, "zero is no announcement");
        assert_eq!(bounds(1 << 20, 1000), 1000, "small limits are limits");
    }

    #[test]
    fn a_server_that_stops_twice_at_the_same_size_takes_no_more() {
        let mut bounds = Bounds::new(Limits { write_block: 1 << 20, ..Limits::default() });
        assert!(!bounds.handle_moved(Class::Write, 1 << 20, 65536));
        assert!(!bounds.handle_moved(Class::Write, 1 << 20, 4096), "a full disk stops anywhere");
        assert!(!bounds.handle_moved(Class::Write, 1 << 20, 1 << 20));
        assert!(!bounds.handle_moved(Class::Write, 1 << 20, 65536));
        assert!(!bounds.handle_moved(Class::Write, 512, 512), "a small block says nothing about large ones");
        assert!(bounds.handle_moved(Class::Write, 1 << 20, 65536));
        assert_eq!(bounds.limits().write_block, 65536);
    }

    #[test]
    fn a_server_takes_a_read_and_a_write_of_the_sizes_that_it_announces_for_each() {
        let info = FSINFO3resok { rtmax: 65_536, wtmax: 8192, maxfilesize: 1 << 40, ..info(0) };
        let announced = ServerLimits { read_max: 65_536, write_max: 8192, max_file_bytes: 1 << 40 };
        assert_eq!(ServerLimits::from(&info), announced);
        let unbounded = FSINFO3resok { maxfilesize: 0, ..info };
        assert_eq!(ServerLimits::from(&unbounded).max_file_bytes, u64::MAX, "zero is no announcement");
    }

    #[test]
    fn a_server_that_stops_once_or_moves_nothing_may_take_more() {
        let configured = Limits { read_block: 1 << 20, write_block: 1 << 20, ..Limits::default() };
        let mut bounds = Bounds::new(configured);
        for class in [Class::Read, Class::Write, Class::Control] {
            assert!(!bounds.handle_moved(class, 1 << 20, 0) && !bounds.handle_moved(class, 1 << 20, 0));
        }
        assert!(!bounds.handle_moved(Class::Read, 1 << 20, 4096));
        assert!(!bounds.handle_moved(Class::Write, 1 << 20, 4096), "each direction has its own");
        assert!(!bounds.handle_moved(Class::Control, 1 << 20, 4096));
        assert!(!bounds.handle_moved(Class::Control, 1 << 20, 4096));
        assert_eq!(bounds.limits(), configured);
    }

    #[test]
    fn less_than_the_smallest_block_is_no_limit() {
        for (moved, found) in [(511, false), (512, true)] {
            let mut bounds = Bounds::new(Limits::default());
            assert!(!bounds.handle_moved(Class::Read, 1344, moved));
            assert_eq!(bounds.handle_moved(Class::Read, 1344, moved), found, "{moved} bytes");
        }
        let mut bounds = Bounds::new(Limits::default());
        for moved in [4096, 169] {
            assert!(!bounds.handle_moved(Class::Read, 1 << 20, moved));
        }
        assert!(
            bounds.handle_moved(Class::Read, 1 << 20, 4096),
            "nor does it say anything about another one"
        );
    }

    #[test]
    fn a_whole_block_says_something_about_stops_at_smaller_ones_alone() {
        for (whole, found) in [(4095, true), (4096, true), (4097, false)] {
            let mut bounds = Bounds::new(Limits { read_block: 1 << 20, ..Limits::default() });
            assert!(!bounds.handle_moved(Class::Read, 1 << 20, 4096));
            assert!(!bounds.handle_moved(Class::Read, whole, whole));
            assert_eq!(bounds.handle_moved(Class::Read, 1 << 20, 4096), found, "{whole} bytes arrived");
            assert_eq!(bounds.limits().read_block, if found { 4096 } else { 1 << 20 });
        }
    }

    #[test]
    fn what_a_server_does_not_take_only_ever_becomes_smaller() {
        let mut bounds =
            Bounds::new(Limits { read_block: 1 << 20, write_block: 1 << 20, ..Limits::default() });
        bounds.shrink(Class::Control, 512);
        bounds.shrink(Class::Read, 4096);
        bounds.shrink(Class::Read, 8192);
        assert_eq!((bounds.limits().read_block, bounds.limits().write_block), (4096, 1 << 20));
        bounds.shrink(Class::Write, 2048);
        bounds.shrink(Class::Write, 4096);
        assert_eq!((bounds.limits().read_block, bounds.limits().write_block), (4096, 2048));
    }

    #[test]
    fn half_a_block_is_a_multiple_of_the_smallest() {
        let table =
            [(1 << 20, 512 << 10), (65_536, 32_768), (3000, 1536), (1024, 512), (1000, 512), (512, 512)];
        for (bytes, expected) in table {
            assert_eq!(half(bytes), expected, "{bytes}");
        }
    }
}
