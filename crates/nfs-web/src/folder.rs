//! What is in a folder.

use std::ops::ControlFlow;

use nfs_wireless_server::{
    Vfs,
    nfs_wire::Status,
    nfs3_types::nfs3::{fattr3, ftype3},
    vfs::{Detail, NodeId},
};

/// Names on one page.
const MAX_ITEMS: usize = 10_000;

/// Names that are read at once: the back end may hold a lock meanwhile.
pub(crate) const BATCH: usize = 256;

/// A name in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) name: Vec<u8>,
    pub(crate) what: What,
    /// Seconds since 1970.
    pub(crate) modified: u32,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    Folder,
    /// So many bytes.
    File(u64),
    /// A link, which is not followed, or something that has no bytes.
    Other,
}

/// A page of names, folders first.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) items: Vec<Item>,
    pub(crate) is_complete: bool,
}

/// Lists a folder.
///
/// # Errors
/// The status of the READDIR that fails.
pub(crate) fn list(files: &dyn Vfs, folder: NodeId) -> Result<Listing, Status> {
    let (mut items, mut after) = (Vec::new(), 0);
    let is_complete = loop {
        let (batch, next) = batch(files, folder, after)?;
        items.extend(batch.into_iter().map(|(name, _, attributes)| Item {
            what: What::of(&attributes),
            modified: attributes.mtime.seconds,
            name,
        }));
        match next {
            None => break true,
            Some(_) if items.len() >= MAX_ITEMS => break false,
            Some(next) => after = next,
        }
    };
    items.sort_by_cached_key(|item| {
        let is_last = item.what != What::Folder;
        (is_last, String::from_utf8_lossy(&item.name).to_lowercase(), item.name.clone())
    });
    Ok(Listing { items, is_complete })
}

/// Names, what they stand for, and where the next ones begin.
type Batch = (Vec<(Vec<u8>, NodeId, fattr3)>, Option<u64>);

/// Reads some names of a folder.
pub(crate) fn batch(files: &dyn Vfs, folder: NodeId, after: u64) -> Result<Batch, Status> {
    let (mut entries, mut seen, mut last) = (Vec::new(), 0, after);
    let flow = files.list(folder, after, Detail::Attributes, &mut |entry| {
        (seen, last) = (seen + 1, entry.cookie);
        if let Some((node, attributes)) = entry.node {
            entries.push((entry.name.to_vec(), node, attributes));
        }
        if seen == BATCH { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok((entries, flow.is_break().then_some(last)))
}

impl What {
    pub(crate) fn of(attributes: &fattr3) -> Self {
        match attributes.type_ {
            ftype3::NF3DIR => Self::Folder,
            ftype3::NF3REG => Self::File(attributes.size),
            _ => Self::Other,
        }
    }
}
