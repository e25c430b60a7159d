//! READDIR and READDIRPLUS.

use std::ops::ControlFlow;

use nfs_wire::{
    FileHandle, Status, encode,
    nfs3_types::{
        nfs3::{
            Nfs3Option, READDIR3args, READDIR3resfail, READDIRPLUS3args, READDIRPLUS3resfail, cookieverf3,
        },
        xdr_codec::Opaque,
    },
    padding,
};

use super::{Call, present};
use crate::{
    handle::Handles,
    vfs::{Detail, Entry, NodeId, Vfs},
};

/// What a client asks a page of a listing to be.
struct Question {
    cookie: u64,
    verifier: cookieverf3,
    detail: Detail,
    /// Most bytes of the results.
    max_bytes: usize,
    /// Most bytes of names, file numbers and cookies.
    name_bytes: usize,
}

/// Cookies of the two entries that every directory has; back ends start behind them.
const CURRENT: u64 = 1;
const PARENT: u64 = 2;

/// Bytes of a reply before its status: XID, type, state, verifier, outcome, and the status itself.
const REPLY_HEADER_BYTES: usize = 28;

impl Call<'_> {
    /// READDIR (RFC 1813 §3.3.16).
    pub(super) fn readdir(&mut self, arguments: &READDIR3args) {
        let node = self.node(&arguments.dir);
        let question = Question {
            cookie: arguments.cookie,
            verifier: arguments.cookieverf,
            detail: Detail::Names,
            max_bytes: arguments.count.min(self.limits.transfer) as usize,
            name_bytes: usize::MAX,
        };
        let start = self.reply.len();
        if let Err(status) = self.page(node, &question) {
            self.reply.truncate(start);
            let dir_attributes = self.after(node);
            self.fail(status, &READDIR3resfail { dir_attributes });
        }
    }

    /// READDIRPLUS (RFC 1813 §3.3.17).
    pub(super) fn readdirplus(&mut self, arguments: &READDIRPLUS3args) {
        let node = self.node(&arguments.dir);
        let question = Question {
            cookie: arguments.cookie,
            verifier: arguments.cookieverf,
            detail: Detail::Attributes,
            max_bytes: arguments.maxcount.min(self.limits.transfer) as usize,
            name_bytes: arguments.dircount as usize,
        };
        let start = self.reply.len();
        if let Err(status) = self.page(node, &question) {
            self.reply.truncate(start);
            let dir_attributes = self.after(node);
            self.fail(status, &READDIRPLUS3resfail { dir_attributes });
        }
    }

    /// Appends a page of a listing; after an error, an unfinished one may be there.
    fn page(&mut self, directory: Result<NodeId, Status>, question: &Question) -> Result<(), Status> {
        let directory = directory?;
        let parent = self.backend.parent(directory)?;
        // Cookies stay valid whatever happens to the directory: the verifier says which back end it was, and has
        // something for the client to bring back.
        let instance = self.handles.instance >> 32;
        let verifier = cookieverf3((instance << 32 | u64::from(self.grant.challenge)).to_be_bytes());
        if question.cookie != 0 && question.verifier.0[..4] != verifier.0[..4] {
            return Err(Status::BAD_COOKIE);
        }
        let granted = self.grant.reply_bytes.saturating_sub(REPLY_HEADER_BYTES);
        let (max_bytes, too_small) = if granted < question.max_bytes {
            // The same call, made again, earns room for more.
            (granted, Status::JUKEBOX)
        } else {
            (question.max_bytes, Status::TOOSMALL)
        };
        let start = self.reply.len();
        let dir_attributes = self.after(Ok(directory));
        encode(self.reply, &0_u32);
        encode(self.reply, &dir_attributes);
        encode(self.reply, &verifier);

        let mut own = Vec::new();
        for (name, cookie, node) in [(&b"."[..], CURRENT, directory), (b"..", PARENT, parent)] {
            if question.cookie < cookie {
                let attributes = self.backend.attributes(node)?;
                own.push(Entry { name, file_id: attributes.fileid, cookie, node: Some((node, attributes)) });
            }
        }
        let results = start + 4;
        let mut page = Page {
            handles: self.handles,
            backend: self.backend,
            detail: question.detail,
            end: results + max_bytes,
            name_bytes: question.name_bytes,
            stuck: self.plan.stick_cookie.then_some(question.cookie),
            reply: self.reply,
            entries: 0,
        };
        let mut flow = own.into_iter().try_for_each(|entry| page.push(entry));
        if flow.is_continue() {
            flow =
                self.backend.list(directory, question.cookie.max(PARENT), question.detail, &mut |entry| {
                    page.push(entry)
                })?;
        }
        let (entries, stuck) = (page.entries, page.stuck.is_some());
        if self.reply.len() + Page::TAIL_BYTES > results + max_bytes || (flow.is_break() && entries == 0) {
            return Err(too_small);
        }
        encode(self.reply, &false);
        encode(self.reply, &(flow.is_continue() && !stuck));
        Ok(())
    }
}

/// The entries of one page, as they go into the reply.
struct Page<'a> {
    reply: &'a mut Vec<u8>,
    handles: Handles,
    backend: &'a dyn Vfs,
    detail: Detail,
    /// Where the reply must end at the latest.
    end: usize,
    name_bytes: usize,
    stuck: Option<u64>,
    entries: usize,
}

impl Page<'_> {
    /// The end of the list and the end mark.
    const TAIL_BYTES: usize = 8;

    /// Appends an entry, unless it does not fit.
    fn push(&mut self, entry: Entry<'_>) -> ControlFlow<()> {
        const ATTRIBUTE_BYTES: usize = 84;
        let name_bytes = 8 + 4 + entry.name.len() + padding(entry.name.len()) + 8;
        let handle = |node| self.handles.handle_of(self.backend, node);
        let plus = match (self.detail, entry.node) {
            (Detail::Names, _) => None,
            (Detail::Attributes, None) => Some(None),
            (Detail::Attributes, Some((node, attributes))) => Some(Some((handle(node), attributes))),
        };
        let plus_bytes = match &plus {
            None => 0,
            Some(None) => 8,
            Some(Some((handle, _))) => 4 + ATTRIBUTE_BYTES + 4 + 4 + padded(handle),
        };
        let fits = self.reply.len() + 4 + name_bytes + plus_bytes + Self::TAIL_BYTES <= self.end;
        if !fits || (name_bytes > self.name_bytes && self.entries > 0) {
            return ControlFlow::Break(());
        }
        self.name_bytes = self.name_bytes.saturating_sub(name_bytes);
        self.entries += 1;
        encode(self.reply, &true);
        encode(self.reply, &entry.file_id);
        encode(self.reply, &Opaque::borrowed(entry.name));
        encode(self.reply, &self.stuck.unwrap_or(entry.cookie));
        match plus {
            None => {}
            Some(None) => self.reply.extend_from_slice(&[0; 8]),
            Some(Some((handle, attributes))) => {
                encode(self.reply, &Nfs3Option::Some(present(self.handles, attributes)));
                encode(self.reply, &true);
                encode(self.reply, &handle);
            }
        }
        ControlFlow::Continue(())
    }
}

fn padded(handle: &FileHandle) -> usize {
    let length = handle.as_bytes().len();
    length + padding(length)
}
