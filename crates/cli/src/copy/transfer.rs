//! One regular file, from beginning to end.

mod receive;
mod relay;
mod send;

use std::path::Path;

use nfs_wireless_client::{self as client, Client};

use super::{
    Copy, Links, Run,
    frame::Frame,
    node::{Attributes, Kind, Node, Origin, RemoteFile},
    place::{Name, Place, Present},
};
use crate::{
    error::{about, is_stale, local},
    exit::{Exit, Failure},
    local::{self as files, Directory},
    outcome::Skip,
    progress::{Activity, Share},
    remote,
    report::event,
    units,
};

/// How often a source that changes while it is copied is begun again.
const MAX_VERSIONS: usize = 3;

/// What came of trying to copy a file.
enum Attempt {
    /// It is complete; its attributes, as far as known.
    Complete(Option<Attributes>),
    /// The source changed meanwhile and is this now.
    Changed(Attributes),
}

/// A local file that is to be made.
#[derive(Clone, Copy)]
struct Target<'a> {
    directory: &'a Directory,
    name: &'a [u8],
    mode: u32,
    share: &'a Share,
}

impl Run<'_> {
    /// Copies one file.
    pub(super) async fn file(
        &self,
        node: &Node,
        frame: &Frame,
        name: &[u8],
        share: &Share,
    ) -> anyhow::Result<()> {
        let present = frame.place.present(self.connections, self.reporter, name).await?;
        let (shown, source) = (frame.place.name(name), node.attributes.identity());
        let target = &shown.shown;
        if let (Some(done), Some(present)) = (&self.done, &present)
            && done.holds(&frame.place.key(name), source, &present.attributes)
        {
            // It belongs to what this run is to copy and, if asked, to compare.
            if self.is_to_be_verified(node, Some(&frame.place)) {
                let verified = self.verify(node, None, &frame.place, name).await;
                if verified.is_err() {
                    done.forget(&frame.place.key(name));
                }
                verified?;
            }
            share.leave_out(u64::MAX);
            return self.skip(node, &shown, Skip::Complete);
        }
        if !self.wants(node, frame, name, present.as_ref()).await? {
            share.leave_out(u64::MAX);
            return Ok(());
        }
        if let Some(Present { kind: Kind::Special(what), .. }) = present {
            return Err(Failure::with(
                Exit::SomeFailed,
                format!("{target}: is a {what}, which is not overwritten"),
            ));
        }
        if self.copy.inplace && matches!(present, Some(Present { kind: Kind::Symlink, .. })) {
            let text = format!("{target}: is a symbolic link, which --inplace does not write through");
            return Err(Failure::with(Exit::SomeFailed, text));
        }
        if !self.copy.dry_run {
            let mode = mode(self.copy, node.attributes, present.as_ref());
            let mut was = None;
            let copied = match (&node.origin, &frame.place) {
                (_, Place::Planned(_)) => None,
                (Origin::Remote(source), Place::Local { directory, .. }) => {
                    let target = Target { directory, name, mode, share };
                    let known = (source.clone(), node.attributes);
                    let find = async || self.find_again(source).await;
                    let copy = async |(source, attributes): &_| {
                        self.download(node, *attributes, source, target).await
                    };
                    self.while_stale(&known, |(source, _)| &source.client, find, copy).await?
                }
                (Origin::Local(path), Place::Remote(place)) => {
                    let find = async || place.find_again(self.connections, self.reporter).await;
                    let copy = async |place: &_| self.upload(node, path, place, name, mode, share).await;
                    self.while_stale(&**place, |place| &place.client, find, copy).await?
                }
                (Origin::Remote(_) | Origin::Standard, Place::Remote(place)) => {
                    was = Some(self.relay(node, place, name, mode, target).await?);
                    None
                }
                (Origin::Local(_) | Origin::Standard, Place::Local { .. }) => {
                    return Err(Failure::usage(format!("{node}: neither side is on a server")));
                }
            };
            if self.is_to_be_verified(node, Some(&frame.place)) {
                self.verify(node, was.as_ref(), &frame.place, name).await?;
            }
            if let (Some(done), Some(copied)) = (&self.done, copied) {
                done.add(&frame.place.key(name), source, &copied);
            }
        }
        self.say("file", node, frame, name)
    }

    /// Copies with what is known of the server, and goes on with what is found there now when it has forgotten a handle.
    async fn while_stale<Known>(
        &self,
        known: &Known,
        client: impl Fn(&Known) -> &Client,
        find: impl AsyncFn() -> anyhow::Result<Known>,
        copy: impl AsyncFn(&Known) -> anyhow::Result<Option<Attributes>>,
    ) -> anyhow::Result<Option<Attributes>> {
        let mut forgotten = client(known).clone();
        let mut copied = copy(known).await;
        let mut patience = Patience::default();
        while copied.as_ref().is_err_and(is_stale) && patience.allows(self.reporter.activity()) {
            self.connections.forget(&forgotten);
            let found = find().await?;
            forgotten = client(&found).clone();
            copied = copy(&found).await;
        }
        copied
    }

    /// Looks a source up again by its path.
    async fn find_again(&self, source: &RemoteFile) -> anyhow::Result<(RemoteFile, Attributes)> {
        let mut found = remote::find_again(self.connections, self.reporter, &source.remote).await?;
        if self.copy.links != Links::Never {
            found = remote::follow(self.connections, self.reporter, found).await?;
        }
        let attributes = Attributes::from(&found.metadata);
        Ok((RemoteFile { client: found.client, handle: found.handle, remote: found.remote }, attributes))
    }

    fn say_changed(&self, node: &Node) {
        let text = format!("{node}: changed since its copy was begun, so it is copied from the beginning");
        self.reporter.warning_once(&text);
    }

    /// Says, once, how much of a file is there already and need not be copied.
    fn say_resumed(&self, node: &Node, target: &Name, bytes: u64, share: &Share) -> anyhow::Result<()> {
        if bytes == 0 || !share.resume(bytes) {
            return Ok(());
        }
        let mut event = event("resumed", &[("source", &node.to_bytes()), ("target", &target.bytes)]);
        event["bytes"] = bytes.into();
        let size = units::bytes(node.attributes.size);
        self.reporter.resumed(
            format_args!("{}: going on after {} of {size}", target.shown, units::bytes(bytes)),
            &event,
        )
    }
}

/// Returns the permissions of a copy: the source's own, those of the file it replaces, or those of any new file.
pub(super) fn mode(copy: &Copy, source: Attributes, present: Option<&Present>) -> u32 {
    match present {
        _ if copy.preserve => source.mode,
        Some(Present { kind: Kind::File, attributes, .. }) => attributes.mode & 0o777,
        _ => source.mode & 0o777 & !files::umask(),
    }
}

/// How often handles may be looked up again: once, and once more whenever bytes have moved since.
#[derive(Default)]
pub(super) struct Patience {
    bytes: Option<u64>,
}

impl Patience {
    pub(super) fn allows(&mut self, activity: &Activity) -> bool {
        let bytes = activity.bytes();
        self.bytes.replace(bytes) != Some(bytes)
    }
}

/// Whether a file's contents may have changed between two looks at it, or it is another file.
pub(super) fn differ(now: &Attributes, before: &Attributes) -> bool {
    (now.file.1, now.size, now.times.modified) != (before.file.1, before.size, before.times.modified)
}

fn keeps_changing(node: &Node) -> anyhow::Error {
    let text = format!("{node}: changes faster than it can be copied; try again when it is at rest");
    Failure::with(Exit::SomeFailed, text)
}

/// Returns the error of a transfer, about the local file or the one on the server.
fn transfer_error(error: client::Error, path: &Path, remote: &str) -> anyhow::Error {
    match error {
        client::Error::Local(error) => local(path, &error),
        other => about(other, remote),
    }
}
