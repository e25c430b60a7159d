//! Directory listings as a stream.

use std::collections::{BTreeSet, VecDeque};

use nfs_proto::{
    attr::Metadata,
    endpoint::ListingPlan,
    transfer::{DirEntry, Listing},
};
use nfs_wire::{FileHandle, Status};

use crate::{
    client::{BUSY_PAUSES, Client},
    error::Error,
};

/// Bytes that a page may have at least, on every transport; [`ListingPlan`] says where there may be more.
const LEAST_PAGE_BYTES: u32 = 4096;

/// Names that were not found and are looked for in another listing, at most.
const MOST_MISSING: usize = 10_000;

/// The entries of a directory, in the server's order, without `.` and `..`.
#[derive(Debug)]
pub struct ReadDir {
    client: Client,
    directory: FileHandle,
    listing: Listing,
    plan: ListingPlan,
    entries: VecDeque<DirEntry>,
    /// Names that were listed and not found.
    missing: BTreeSet<Vec<u8>>,
    /// The directory is listed once more, for those of them that it lists still.
    is_again: bool,
    /// Why the directory is not listed.
    refusal: Option<Error>,
}

impl ReadDir {
    pub(crate) fn new(client: Client, directory: FileHandle, plan: ListingPlan) -> Self {
        let (directory, refusal) = match client.inside(directory) {
            Ok(directory) => (directory, None),
            Err(error) => (directory, Some(error)),
        };
        let listing = Listing::new(directory, LEAST_PAGE_BYTES);
        let (entries, missing, is_again) = Default::default();
        Self { client, directory, listing, plan, entries, missing, is_again, refusal }
    }

    /// Returns the directory's own attributes, where the server has sent them with the entries that it sent last (RFC 1813 §3.3.17,
    /// `dir_attributes`).
    pub const fn attributes(&self) -> Option<&Metadata> {
        self.listing.attributes()
    }

    /// Returns the next entry, or `None` at the end.
    ///
    /// Attributes and handle are there when the server sends them along, and the name is no export of its own;
    /// [`ReadDir::next_complete`] asks for them.
    ///
    /// # Errors
    /// [`Error`]; the listing must not be used further. `NFS3ERR_BAD_COOKIE` means: start again.
    pub async fn next(&mut self) -> Result<Option<DirEntry>, Error> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        let mut pauses = BUSY_PAUSES.iter();
        while self.entries.is_empty() && !self.listing.is_done() {
            let page = match self.client.call_page(&mut self.plan, &self.listing).await {
                Ok(results) => self.listing.handle_results(&results).map_err(Error::from),
                Err(Error::Rejected { rejection, .. }) => {
                    self.listing.handle_rejection(rejection)?;
                    continue;
                }
                Err(error) => Err(error),
            };
            match page {
                Ok(mut page) => {
                    let entries = page.iter_mut().map(|it| (&it.name[..], &mut it.handle, &mut it.metadata));
                    self.client.hide_mount_points(self.directory, entries);
                    self.entries.extend(page);
                }
                // The same page is asked for again.
                Err(error) if self.client.is_only_busy(self.directory, &error, &mut pauses).await => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.entries.pop_front())
    }

    /// Returns the next entry with attributes and handle, or `None` at the end. Entries that are gone by the time they are asked for are
    /// left out. Those that the server lists and does not find have neither handle nor attributes; some come last, after the directory
    /// was listed once more.
    ///
    /// ```no_run
    /// # use nfs_wireless_client::{Client, Error};
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// let mut entries = client.read_dir(client.root());
    /// while let Some(entry) = entries.next_complete().await? {
    ///     println!("{} {:?}", entry.name.escape_ascii(), entry.metadata);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`ReadDir::next`].
    pub async fn next_complete(&mut self) -> Result<Option<DirEntry>, Error> {
        loop {
            let Some(mut entry) = self.next().await? else {
                if self.is_again || self.missing.is_empty() {
                    return Ok(None);
                }
                self.listing = Listing::new(self.directory, LEAST_PAGE_BYTES);
                self.is_again = true;
                continue;
            };
            if self.is_again {
                if self.missing.remove(&entry.name) {
                    (entry.metadata, entry.handle) = (None, None);
                    return Ok(Some(entry));
                }
                continue;
            }
            if entry.metadata.is_some() && entry.handle.is_some() {
                return Ok(Some(entry));
            }
            match self.client.lookup(self.directory, &entry.name).await {
                Ok(found) => {
                    entry.metadata = Some(found.metadata);
                    entry.handle = Some(found.handle);
                    return Ok(Some(entry));
                }
                Err(error) if error.status() == Some(Status::NOENT) => {
                    if self.missing.len() < MOST_MISSING {
                        self.missing.insert(entry.name);
                    } else {
                        return Ok(Some(entry));
                    }
                }
                Err(error) if self.client.is_of_name(self.directory, &error).await => return Ok(Some(entry)),
                Err(error) => return Err(error),
            }
        }
    }
}
