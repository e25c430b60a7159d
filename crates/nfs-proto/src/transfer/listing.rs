//! The entries of a directory, page by page.

use nfs_wire::{
    FileHandle, Procedure, Status, encode,
    nfs3_types::nfs3::{
        Nfs3Option, READDIR3args, READDIR3resok, READDIRPLUS3args, READDIRPLUS3resok, cookieverf3,
    },
    reply,
    rpc::Rejection,
};

use super::TransferError;
use crate::attr::{Metadata, optional};

/// Pages without a single entry before we give up.
const MAX_EMPTY_PAGES: u32 = 8;

/// A name in a directory. `.` and `..` are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirEntry {
    /// The name as the server gave it: any bytes, not to be trusted as a path.
    pub name: Vec<u8>,
    /// Identifies the file within its file system.
    pub fileid: u64,
    /// Attributes, where the server sends them along.
    pub metadata: Option<Metadata>,
    /// Handle, where the server sends it along.
    pub handle: Option<FileHandle>,
}

/// Lists a directory with READDIRPLUS, or READDIR where that is not offered (RFC 1813 §3.3.16, §3.3.17).
///
/// Pages follow from each other, so one call is outstanding at a time.
#[derive(Debug)]
pub struct Listing {
    directory: FileHandle,
    plus: bool,
    page_bytes: u32,
    cookie: u64,
    verifier: cookieverf3,
    /// Finds a circle of cookies in constant space: one cookie to meet again, how many pages ago it was taken, and when the
    /// next one is (Brent 1980).
    landmark: (u64, u64, u64),
    empty_pages: u32,
    done: bool,
    attributes: Option<Metadata>,
}

impl Listing {
    /// Starts at the first entry; replies may have up to about `page_bytes` bytes.
    pub const fn new(directory: FileHandle, page_bytes: u32) -> Self {
        Self {
            directory,
            plus: true,
            page_bytes,
            cookie: 0,
            verifier: cookieverf3([0; 8]),
            landmark: (0, 0, 1),
            empty_pages: 0,
            done: false,
            attributes: None,
        }
    }

    /// Starts as [`new`](Self::new), with READDIR: names without attributes, of which a page holds five times as many.
    pub const fn of_names(directory: FileHandle, page_bytes: u32) -> Self {
        Self { plus: false, ..Self::new(directory, page_bytes) }
    }

    /// Whether the last page has been taken in.
    pub const fn is_done(&self) -> bool {
        self.done
    }

    /// Returns the directory's own attributes, where the server has sent them with the last page.
    pub const fn attributes(&self) -> Option<&Metadata> {
        self.attributes.as_ref()
    }

    /// Returns the procedure of the next call.
    pub const fn procedure(&self) -> Procedure {
        if self.plus { Procedure::Readdirplus } else { Procedure::Readdir }
    }

    /// Appends the arguments of the next call.
    pub fn encode(&self, buffer: &mut Vec<u8>) {
        self.encode_page(buffer, self.page_bytes);
    }

    /// Appends the arguments of the next call, whose reply may have up to about `page_bytes` bytes where those of the listing are fewer.
    pub fn encode_page(&self, buffer: &mut Vec<u8>, page_bytes: u32) {
        let (dir, cookie, cookieverf) = (self.directory.to_fh3(), self.cookie, self.verifier);
        let page_bytes = page_bytes.max(self.page_bytes);
        if self.plus {
            // The size of the reply is what matters, and names alone never reach it first.
            let (dircount, maxcount) = (page_bytes, page_bytes);
            encode(buffer, &READDIRPLUS3args { dir, cookie, cookieverf, dircount, maxcount });
        } else {
            encode(buffer, &READDIR3args { dir, cookie, cookieverf, count: page_bytes });
        }
    }

    /// Takes in the results of a call and returns the entries in them.
    ///
    /// # Errors
    /// [`TransferError`] ends the listing; [`Status::BAD_COOKIE`] in it means: start again.
    pub fn handle_results(&mut self, results: &[u8]) -> Result<Vec<DirEntry>, TransferError> {
        let procedure = self.procedure();
        let broken = |error| TransferError::Protocol { procedure, error };
        let page = if self.plus {
            reply::decode::<READDIRPLUS3resok<'_>>(results).map_err(broken)?.map(|page| {
                let entries = page.reply.entries.0.into_iter().map(|entry| {
                    let handle = match &entry.name_handle {
                        Nfs3Option::Some(handle) => FileHandle::try_from(handle).ok(),
                        Nfs3Option::None => None,
                    };
                    let name = entry.name.as_ref().to_vec();
                    let metadata = optional(&entry.name_attributes);
                    (entry.cookie, DirEntry { name, fileid: entry.fileid, metadata, handle })
                });
                (page.cookieverf, page.reply.eof, optional(&page.dir_attributes), entries.collect::<Vec<_>>())
            })
        } else {
            reply::decode::<READDIR3resok<'_>>(results).map_err(broken)?.map(|page| {
                let entries = page.reply.entries.0.into_iter().map(|entry| {
                    let name = entry.name.as_ref().to_vec();
                    (entry.cookie, DirEntry { name, fileid: entry.fileid, metadata: None, handle: None })
                });
                (page.cookieverf, page.reply.eof, optional(&page.dir_attributes), entries.collect::<Vec<_>>())
            })
        };
        match page {
            Ok((verifier, eof, attributes, entries)) => {
                self.attributes = attributes;
                self.take_page(verifier, eof, entries)
            }
            Err(Status::NOTSUPP) if self.plus => {
                self.plus = false;
                Ok(Vec::new())
            }
            // The page must hold at least one entry, however long its name.
            Err(Status::TOOSMALL) if self.page_bytes < MAX_PAGE_BYTES => {
                self.page_bytes = (self.page_bytes * 2).min(MAX_PAGE_BYTES);
                Ok(Vec::new())
            }
            Err(status) => Err(TransferError::Status { procedure, status }),
        }
    }

    /// Records that the server did not run a call.
    ///
    /// # Errors
    /// [`TransferError`] unless READDIR is left to try.
    pub const fn handle_rejection(&mut self, rejection: Rejection) -> Result<(), TransferError> {
        if self.plus && matches!(rejection, Rejection::ProcedureUnavailable) {
            self.plus = false;
            return Ok(());
        }
        Err(TransferError::Rejected { procedure: self.procedure(), rejection })
    }

    fn take_page(
        &mut self,
        verifier: cookieverf3,
        eof: bool,
        entries: Vec<(u64, DirEntry)>,
    ) -> Result<Vec<DirEntry>, TransferError> {
        self.verifier = verifier;
        self.done = eof;
        match entries.last() {
            None if !eof => {
                self.empty_pages += 1;
                if self.empty_pages > MAX_EMPTY_PAGES {
                    return Err(self.no_progress("pages are empty"));
                }
            }
            Some(&(cookie, _)) if !eof && self.has_met(cookie) => {
                return Err(self.no_progress("the directory's cookies go in circles"));
            }
            Some(&(cookie, _)) => self.cookie = cookie,
            None => {}
        }
        let named =
            |(_, entry): (u64, DirEntry)| (entry.name != b"." && entry.name != b"..").then_some(entry);
        Ok(entries.into_iter().filter_map(named).collect())
    }

    /// Whether a page ends where an earlier one did: exactly so for the page before, and within three rounds of a circle.
    const fn has_met(&mut self, cookie: u64) -> bool {
        let (met, age, limit) = self.landmark;
        self.landmark = if age + 1 == limit { (cookie, 0, limit * 2) } else { (met, age + 1, limit) };
        cookie == self.cookie || cookie == met
    }

    const fn no_progress(&self, reason: &'static str) -> TransferError {
        TransferError::NoProgress { procedure: self.procedure(), reason }
    }
}

/// Largest page asked for when the server finds ours too small for one entry.
const MAX_PAGE_BYTES: u32 = 1 << 16;

#[cfg(test)]
mod tests;
