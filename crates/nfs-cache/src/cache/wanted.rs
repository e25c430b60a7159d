//! What is to be fetched before anybody asks, in pieces.

use std::ops::Bound;

use crate::{
    call::Question,
    directory::{Directory, Edge},
    ids::NodeId,
    object::Known,
};

/// Where a name leads.
pub(super) enum Seen {
    Nothing,
    /// This is to be asked to know.
    Unknown(Question),
    Object(NodeId, Known),
}

/// A file that is fetched whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole {
    pub(super) node: NodeId,
    pub(super) next: u64,
}

/// A grain to fetch.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) node: NodeId,
    pub(super) grain: u64,
    pub(super) is_hoarded: bool,
    /// It was fetched before, when that proved nothing.
    pub(super) is_again: bool,
    /// Where the file is, if its head is to be told.
    pub(super) path: Option<Vec<u8>>,
}

/// What to do next.
#[derive(Debug)]
pub(super) enum Next {
    Ask(Question),
    /// A listing of a directory.
    List(NodeId),
    /// Something was queued, or more is to be looked at in the same place.
    Again,
    /// The same, but let others have a turn.
    Later,
}

/// Returns the name after another one.
pub(super) fn after<'a>(directory: &'a Directory, name: Option<&[u8]>) -> Option<(&'a [u8], &'a Edge)> {
    let from = name.map_or(Bound::Unbounded, Bound::Excluded);
    let (name, edge) = directory.names.range::<[u8], _>((from, Bound::Unbounded)).next()?;
    Some((name, edge))
}

/// Joins a path and a name.
pub(super) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
    [path, slash, name].concat()
}
