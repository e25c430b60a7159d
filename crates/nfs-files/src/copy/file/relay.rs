//! A stream to a server, under a temporary name until it is complete.

use nfs_wireless_client::{self as client, Client, FileHandle, Procedure, SetAttributes};

use super::{Copied, Goal, MAX_VERSIONS, for_any_group, keeps_changing, mode_now, part_mode};
use crate::{
    copy::{
        Run,
        destination::{RemoteLocation, is_refused},
        file::stream::Filled,
        source::{Attributes, Node},
    },
    error::{Result, ResultExt, is_missing, is_taken},
    name::fresh,
};

impl Run<'_> {
    /// Copies a stream to a server, from another server or from standard input; returns what it was.
    pub(super) async fn relay(
        &self,
        node: &Node,
        location: &RemoteLocation,
        goal: Goal<'_>,
        target: &str,
    ) -> Result<Copied> {
        let (mut node, mut goal) = (node.clone(), goal);
        let mut attributes = node.attributes;
        if self.copy.inplace && self.begin_in_place(&node, location, goal).await?.is_none() {
            return Ok(Copied::left());
        }
        for _ in 0..MAX_VERSIONS {
            match self.relay_version(&node, attributes, location, goal, target).await? {
                None => return Ok(Copied::left()),
                Some(Filled::Complete(digest)) => {
                    let length = (node.attributes.size > 0).then_some(digest.bytes());
                    return Ok(Copied { was: Some(*digest), length, ..Copied::default() });
                }
                Some(Filled::Changed(now)) => {
                    self.say_changed(&node);
                    goal.mode = mode_now(self.copy, goal.mode, &node.attributes, &now);
                    node.attributes = node.attributes.with_rights_of(&now);
                    attributes = now;
                }
            }
        }
        Err(keeps_changing(&node))
    }

    async fn relay_version(
        &self,
        node: &Node,
        attributes: Attributes,
        location: &RemoteLocation,
        goal: Goal<'_>,
        target: &str,
    ) -> Result<Option<Filled>> {
        let Goal { name, mode, replaces, .. } = goal;
        let RemoteLocation { client, handle: directory, .. } = location;
        let narrows = self.narrows(replaces.get());
        let until_named = if narrows { for_any_group(mode) } else { mode };
        let mut working = if self.copy.inplace { name.to_vec() } else { self.temporary(name) };
        let opened = goal.opened.get();
        let mut file = match &opened {
            Some(opened) => empty(client, opened.handle).await,
            None => create(client, *directory, &working, part_mode(until_named)).await,
        };
        // Nobody may remove what somebody else has put there.
        if !self.copy.inplace
            && matches!(file, Err(client::Error::Status { procedure: Procedure::Remove, .. }))
        {
            working = fresh(name);
            file = create(client, *directory, &working, part_mode(until_named)).await;
        }
        let file = file.at(target)?;
        let finished = async {
            let filled = self.fill(node, attributes, client, file, target).await?;
            if let Filled::Changed(_) = filled {
                return Ok(Some(filled));
            }
            if self.copy.preserve || opened.is_none() {
                self.give_attributes(location, file, (node, attributes), until_named, target).await?;
            }
            if let Some(opened) = &opened {
                self.end_in_place(location, goal, opened).await?;
                return Ok(Some(filled));
            }
            let made = (file, None, &working[..]);
            let is_named = self.give_name_there(node, location, goal, made, true, None).await?;
            Ok(is_named.then_some(filled))
        };
        let finished: Result<_> = finished.await;
        let is_kept = match &finished {
            Ok(Some(Filled::Complete(_)) | None) => true,
            Ok(Some(Filled::Changed(_))) => false,
            Err(error) => error.is_silence(),
        };
        if !is_kept && !self.copy.inplace {
            let _ = client.remove(*directory, &working).await;
        }
        finished
    }

    async fn give_attributes(
        &self,
        location: &RemoteLocation,
        file: FileHandle,
        (node, source): (&Node, Attributes),
        mode: u32,
        target: &str,
    ) -> Result<()> {
        let attributes = self.last_attributes(source.times, mode);
        if !attributes.is_empty() {
            match location.client.set_attributes(file, attributes).await {
                Err(error) if is_refused(&error) => self.say_not_kept(error),
                set => set.at(target)?,
            }
        }
        if self.copy.preserve { self.give(location, file, node, mode).await } else { Ok(()) }
    }
}

/// Creates a file, instead of one that is there. A late duplicate of the call cannot empty it, as it could one that was opened.
async fn create(
    client: &Client,
    directory: FileHandle,
    name: &[u8],
    mode: u32,
) -> Result<FileHandle, client::Error> {
    let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
    match client.create_new(directory, name, attributes).await {
        Err(error) if is_taken(&error) => match client.remove(directory, name).await {
            Err(error) if !is_missing(&error) => Err(error),
            _ => client.create_new(directory, name, attributes).await.map(|entry| entry.handle),
        },
        other => other.map(|entry| entry.handle),
    }
}

/// Empties a file that is written in place.
async fn empty(client: &Client, file: FileHandle) -> Result<FileHandle, client::Error> {
    let attributes = SetAttributes { size: Some(0), ..SetAttributes::default() };
    client.set_attributes(file, attributes).await.map(|()| file)
}
