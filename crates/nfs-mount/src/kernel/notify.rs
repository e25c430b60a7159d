//! What the kernel is told without having asked.

use std::{
    io::IoSlice,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Weak},
};

use nfs_cache::NodeId;
use polyfuse_kernel as kernel;
use zerocopy::IntoBytes;

/// Tells the kernel of one mount what it shall forget, for as long as that is there.
#[derive(Clone, Debug)]
pub(crate) struct Notifier(Weak<OwnedFd>);

/// What of a file the kernel shall forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forgotten {
    /// Only the attributes: this does not wait for pages.
    Attributes,
    /// Attributes and pages. It waits for reads of these pages, so whoever calls it must not hold up their answers.
    All,
}

impl Notifier {
    pub(super) fn new(device: &Arc<OwnedFd>) -> Self {
        Self(Arc::downgrade(device))
    }

    /// Makes the kernel forget what it has kept of a file. It waits for reads that are under way.
    pub(crate) fn forget(&self, node: NodeId) {
        if let Some(device) = self.0.upgrade() {
            forget(&*device, node, Forgotten::All);
        }
    }
}

/// Makes the kernel forget something of a file.
pub(super) fn forget(device: impl AsFd, node: NodeId, what: Forgotten) {
    let off = match what {
        Forgotten::Attributes => -1,
        // Up to the end.
        Forgotten::All => 0,
    };
    let out = kernel::fuse_notify_inval_inode_out { ino: node.number(), off, len: 0 };
    let head = kernel::fuse_out_header {
        len: (size_of::<kernel::fuse_out_header>() + out.as_bytes().len()) as u32,
        error: kernel::fuse_notify_code::FUSE_NOTIFY_INVAL_INODE as i32,
        unique: 0,
    };
    let sent = rustix::io::writev(device, &[IoSlice::new(head.as_bytes()), IoSlice::new(out.as_bytes())]);
    if let Err(error) = sent {
        // It may not know the node any more.
        tracing::debug!(%error, ?what, "the kernel has forgotten nothing");
    }
}
