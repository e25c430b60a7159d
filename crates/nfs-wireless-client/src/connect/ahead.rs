//! LOOKUPs that are sent with the first call to the NFS service, before it is certain that the directories are those of the export.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use nfs_proto::attr::optional;
use nfs_wire::{
    FileHandle, Procedure, Status,
    nfs3_types::nfs3::{LOOKUP3args, LOOKUP3resok},
    reply,
    rpc::Program,
};

use super::{Found, ONE_DATAGRAM, all, nfs_null};
use crate::{
    client::{Entry, packed, place},
    driver::Connection,
    error::Error,
    known::LookedUp,
};

/// Calls NULL, and beside it asks for limits and looks up names, of which the first is in the root of the export. Returns the round-trip time of NULL, and the entries that were found.
///
/// LOOKUPs are waited for one round trip longer than NULL. What is missing then is looked up when its turn comes.
pub(super) async fn null_and_lookups(
    connection: &Connection,
    found: Found,
    names: &[(FileHandle, Vec<u8>)],
) -> Result<(Duration, LookedUp), Error> {
    let looked_up = Mutex::new(LookedUp::default());
    let mut lookups = Box::pin(all(names.iter().map(|(directory, name)| async {
        let answer = look_up(connection, *directory, name).await;
        let mut looked_up = looked_up.lock().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Some(Ok(entry)) => looked_up.found.push(((*directory, name.clone()), Ok(entry))),
            Some(Err(_)) => looked_up.refused.push((*directory, name.clone())),
            None => {}
        }
    })));
    // READs wait to hear what the server takes.
    if let Some((root, _)) = names.first() {
        connection.mounted(*root, None);
    }
    let null = nfs_null(connection, found);
    tokio::pin!(null);
    let (round_trip, are_done) = tokio::select! {
        round_trip = &mut null => (round_trip?, false),
        _ = &mut lookups => (null.await?, true),
    };
    if !are_done {
        // Whatever is there when the time is over counts.
        let _ = tokio::time::timeout(round_trip + ONE_DATAGRAM, &mut lookups).await;
    }
    drop(lookups);
    Ok((round_trip, looked_up.into_inner().unwrap_or_else(PoisonError::into_inner)))
}

/// Returns what a name in a directory stands for, or that the server refuses it; `None` without an answer or without attributes.
async fn look_up(
    connection: &Connection,
    directory: FileHandle,
    name: &[u8],
) -> Option<Result<Entry, Status>> {
    let arguments = packed(&LOOKUP3args { what: place(directory, name) });
    let procedure = (Program::NFS, Procedure::Lookup.number());
    let answer = connection.call(procedure, None, arguments).await.ok()?;
    answer.outcome.ok()?;
    let found: LOOKUP3resok = match reply::decode(&answer.results).ok()? {
        Ok(found) => found,
        Err(status) => return Some(Err(status)),
    };
    let handle = FileHandle::try_from(&found.object).ok()?;
    Some(Ok(Entry { handle, metadata: optional(&found.obj_attributes)? }))
}
