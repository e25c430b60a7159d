//! The temporary file of an upload, made before it is known what has the target's name: on a long way that is a round trip less.

use std::time::Duration;

use nfs_wireless_client::{Client, Entry, FileHandle, SetAttributes};
use tokio::task::JoinHandle;

use crate::{
    copy::{
        Options, Overwrite,
        destination::target_key,
        file::{mode, part_mode},
        resume::{Earlier, SMALL_BYTES},
        source::{Kind, Node, Origin},
        tags::Tags,
    },
    local::StateHome,
};

/// Round trips from this on are long. On shorter ones nothing is worth a file that may have been made for nothing.
const LONG: Duration = Duration::from_millis(100);

/// What could be made ahead.
#[derive(Clone, Copy, Debug)]
pub(in crate::copy) struct Ahead<'a> {
    attributes: SetAttributes,
    tags: &'a Tags,
    /// Where an earlier run may have left the state of a part of it.
    state: Option<&'a StateHome>,
}

/// A file that is being made ahead.
#[derive(Debug)]
pub(in crate::copy) struct Making {
    client: Client,
    directory: FileHandle,
    name: Vec<u8>,
    temporary: Vec<u8>,
    task: JoinHandle<Option<Entry>>,
}

impl<'a> Ahead<'a> {
    /// Returns what the copy of a file to a server could begin with; `None` where what is there decides whether it is copied at all.
    pub(in crate::copy) fn of(copy: &'a Options, tags: &'a Tags, node: &Node) -> Option<Self> {
        let Node { origin: Origin::Local(_), kind: Kind::File, attributes: source } = node else {
            return None;
        };
        if copy.overwrite != Overwrite::Always || copy.inplace || copy.dry_run {
            return None;
        }
        let mode = Some(part_mode(mode(copy, *source, None)));
        let state = (copy.resume && source.size > SMALL_BYTES).then_some(&copy.state);
        Some(Self { attributes: SetAttributes { mode, ..SetAttributes::default() }, tags, state })
    }

    /// Whether the path is long, and no earlier run has left anything of `name` in `directory` that
    /// would be resumed.
    pub(in crate::copy) fn pays(&self, client: &Client, directory: FileHandle, name: &[u8]) -> bool {
        let exists = |state| Earlier::exists(state, &target_key(directory, name));
        client.round_trip() >= LONG && !self.state.is_some_and(exists)
    }

    /// Begins to make the temporary file of `name`.
    pub(in crate::copy) fn make(self, client: &Client, directory: FileHandle, name: &[u8]) -> Making {
        let (client, name) = (client.clone(), name.to_vec());
        let temporary = self.tags.own().temporary(&name);
        let task = {
            let (client, temporary) = (client.clone(), temporary.clone());
            // What this fails of, the copy itself will fail of, and say.
            async move { client.create_guarded(directory, &temporary, self.attributes).await.ok() }
        };
        Making { task: tokio::spawn(task), client, directory, name, temporary }
    }
}

impl Making {
    /// Whether this is the temporary file of `name` in `directory`.
    pub(in crate::copy) fn is_of(&self, directory: FileHandle, name: &[u8]) -> bool {
        self.directory == directory && self.name == name
    }

    /// Returns the file, empty, once it is made; `None` if it could not be.
    pub(in crate::copy) async fn finish(self) -> Option<Entry> {
        self.task.await.ok().flatten()
    }

    /// Begins to remove the file once it is made. Where that fails, what is left is what the next copy to this name removes.
    pub(in crate::copy) fn discard(self) -> JoinHandle<()> {
        tokio::spawn(async move {
            if let Ok(Some(_)) = self.task.await {
                let _ = self.client.remove(self.directory, &self.temporary).await;
            }
        })
    }
}
