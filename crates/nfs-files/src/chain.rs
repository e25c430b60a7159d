//! The names that lead to a directory, from what the user named on, and whether they still do.
//!
//! Handles stay with a directory that somebody moves away. Whoever removes or changes what is in directories below a
//! named one looks the names up again first: what was moved is not below it any more, and what has its name now was not listed.

use std::{cell::Cell, fmt::Display, rc::Rc, time::Duration};

use futures_util::future::try_join_all;
use nfs_wireless_client::{Client, FileHandle, Metadata, NfsStatus};
use tokio::{sync::Mutex, time::Instant};

use crate::{
    context::Context,
    error::{Error, ErrorKind, Result, ResultExt, has_status, is_missing},
    find::{self, Found},
    url::Remote,
};

/// How long a look counts while something is removed or changed, at least.
const LOOK_LASTS: Duration = Duration::from_secs(1);

/// How long it counts on a path with long round trips, which is so many of them: looks take a fifth of the time then.
const LOOK_LASTS_ROUND_TRIPS: u32 = 4;

/// For how many removals or changes it counts, for each name that leads to where they are: looks are one call in so many.
const LOOK_LASTS_CHANGES: u32 = 64;

/// Names at the end of a chain that are looked up before a directory is listed. All of them would be too many in a deep tree.
const LOOKED_UP_AT_ONCE: usize = 8;

/// How a directory was reached; empty for what was reached by no name, such as the root of an export.
#[derive(Clone, Debug, Default)]
pub struct Chain(Option<Rc<Link>>);

/// One name on the way.
#[derive(Debug)]
struct Link {
    above: Chain,
    entry: Entry,
    /// When the name was looked up last.
    looked: Cell<Option<Instant>>,
    /// Held by who looks.
    looking: Mutex<()>,
    /// Removals and changes since a look was begun.
    changes: Cell<u32>,
    /// Whether it led elsewhere.
    is_lost: Cell<bool>,
    is_told: Cell<bool>,
}

/// A name in a directory on a server, and the directory that it stood for.
#[derive(Clone, Debug)]
pub struct Entry {
    pub client: Client,
    pub parent: FileHandle,
    pub remote: Remote,
    pub handle: FileHandle,
    /// The numbers of file system and file.
    pub file: (u64, u64),
}

impl Chain {
    /// Returns the chain of a directory below the one that this leads to; of one without a name, there is nothing to look at.
    pub fn to(&self, found: &Found) -> Self {
        let Some(parent) = found.above.directory() else { return self.clone() };
        let entry = Entry {
            client: found.client.clone(),
            parent,
            remote: found.remote.clone(),
            handle: found.handle,
            file: file_of(&found.metadata),
        };
        self.to_entry(Some(entry))
    }

    /// As [`Chain::to`].
    pub fn to_entry(&self, entry: Option<Entry>) -> Self {
        let Some(entry) = entry else { return self.clone() };
        let (looked, looking, changes, is_lost, is_told) = Default::default();
        let above = self.clone();
        Self(Some(Rc::new(Link { above, entry, looked, looking, changes, is_lost, is_told })))
    }

    /// Returns the chain of the directory that holds the one that this leads to.
    pub fn above(&self) -> Self {
        self.0.as_ref().map(|link| link.above.clone()).unwrap_or_default()
    }

    /// Whether one of the names was found to lead elsewhere.
    pub fn is_lost(&self) -> bool {
        self.links().any(|link| link.is_lost.get())
    }

    fn links(&self) -> impl Iterator<Item = &Link> {
        std::iter::successors(self.0.as_deref(), |link| link.above.0.as_deref())
    }

    /// Whether all names still lead to the directories that they did; if not, that is said, once for each name. The last names are
    /// looked up, all at once, and those further up unless that was done a moment ago.
    ///
    /// # Errors
    /// What looking fails of.
    pub async fn holds_now(&self, context: Context<'_>) -> Result<bool> {
        self.holds_since(Instant::now(), context).await
    }

    /// As [`Chain::holds_now`]; what was looked up after `begun` is not looked up again.
    ///
    /// # Errors
    /// As [`Chain::holds_now`].
    pub async fn holds_since(&self, begun: Instant, context: Context<'_>) -> Result<bool> {
        self.look(LOOKED_UP_AT_ONCE, begun, context).await
    }

    /// As [`Chain::holds_now`], where only the last name is looked up whatever was looked up a moment ago: it is removed next.
    ///
    /// # Errors
    /// As [`Chain::holds_now`].
    pub async fn last_holds_now(&self, context: Context<'_>) -> Result<bool> {
        self.look(1, Instant::now(), context).await
    }

    /// As [`Chain::holds_now`], for one removal or change; what was looked up a moment ago, and few of them ago, is not looked up again.
    /// Others go on while one looks because of their number.
    ///
    /// # Errors
    /// As [`Chain::holds_now`].
    pub async fn holds(&self, context: Context<'_>) -> Result<bool> {
        self.look(0, Instant::now(), context).await
    }

    /// Looks the last `now` names up, and those above them that were not looked up a moment before `begun`.
    async fn look(&self, now: usize, begun: Instant, context: Context<'_>) -> Result<bool> {
        let links: Vec<&Link> = self.links().collect();
        let looks = links.iter().enumerate().map(|(index, link)| {
            let lasts = LOOK_LASTS.max(link.entry.client.round_trip() * LOOK_LASTS_ROUND_TRIPS);
            // The more names there are, the less often: the looks of a deep tree would take all of the time.
            let lasts = lasts * (1 + index / LOOKED_UP_AT_ONCE) as u32;
            let lasts_changes = LOOK_LASTS_CHANGES * links.len() as u32;
            let is_due = index < now || link.counts(lasts_changes);
            let since = if is_due { begun } else { begun.checked_sub(lasts).unwrap_or(begun) };
            link.holds_since(since, context)
        });
        let looks = try_join_all(looks).await?;
        // Of directories below one that was moved nothing need be said.
        let lost = links.iter().zip(looks).rev().find(|(_, holds)| !holds);
        lost.map_or(Ok(true), |(link, _)| link.tell(context).map(|()| false))
    }
}

impl Link {
    /// Counts a removal or change; whether there were so many since the last look.
    fn counts(&self, most: u32) -> bool {
        let changes = self.changes.get() + 1;
        self.changes.set(changes % most);
        changes >= most
    }

    /// Whether the name leads to the directory; what was found after `since` counts, and so does that it did not.
    async fn holds_since(&self, since: Instant, context: Context<'_>) -> Result<bool> {
        let is_known = || self.is_lost.get() || self.looked.get().is_some_and(|looked| looked >= since);
        if is_known() {
            return Ok(!self.is_lost.get());
        }
        let _looking = self.looking.lock().await;
        if is_known() {
            return Ok(!self.is_lost.get());
        }
        let begun = Instant::now();
        let holds = self.entry.holds(context).await?;
        self.looked.set(Some(begun));
        self.changes.set(0);
        self.is_lost.set(!holds);
        Ok(holds)
    }

    fn tell(&self, context: Context<'_>) -> Result<()> {
        if self.is_told.replace(true) {
            return Ok(());
        }
        context.events.fail(moved(&self.entry.remote))
    }
}

/// Returns the failure of a directory that is left alone.
pub fn moved(directory: impl Display) -> Error {
    let text = format!("{directory}: was moved or replaced meanwhile; left alone");
    Error::other(text)
}

impl Entry {
    /// Whether the name leads to the directory still.
    ///
    /// # Errors
    /// What looking fails of.
    pub async fn holds(&self, context: Context<'_>) -> Result<bool> {
        let Self { client, parent, remote, handle, file } = self;
        let Some(name) = remote.name() else { return Ok(true) };
        match client.lookup(*parent, name).await {
            // A handle may be another one after the server was restarted.
            Ok(found)
                if found.handle == *handle
                    || file_of(&found.metadata) == *file
                    || client.is_inner_export(*handle) && client.is_inner_export(found.handle) =>
            {
                return Ok(true);
            }
            Ok(_) => {}
            Err(error) if is_missing(&error) || has_status(&error, NfsStatus::NOTDIR) => {}
            Err(error) if error.is_stale() => context.servers.forget(client),
            Err(error) => return Err(error).at(remote),
        }
        // It may be the name of a link, or the server has forgotten what holds it.
        let found = match find::find_again(context, remote).await {
            Ok(found) => find::follow(context, found).await,
            missing => missing,
        };
        match found {
            Ok(found) => Ok(file_of(&found.metadata) == *file),
            Err(error) if error.kind() == ErrorKind::SourceMissing => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Returns the numbers of file system and file.
const fn file_of(metadata: &Metadata) -> (u64, u64) {
    (metadata.fsid, metadata.fileid)
}
