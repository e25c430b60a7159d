//! What lies are made of: results that are read, changed and written again.

use nfs_wire::{
    FileHandle, Procedure, Reader, encode,
    nfs3_types::{
        nfs3::{
            COMMIT3resok, Nfs3Option, READ3resok, READDIR3resok, READDIRPLUS3resok, WRITE3resok, entryplus3,
            fattr3, filename3, ftype3, nfs_fh3, post_op_attr, post_op_fh3,
        },
        xdr_codec::Pack,
    },
    reply::{Results, decode},
};

use super::liar::{Call, HEADER};

/// Changes the results of a call that succeeded.
pub(crate) fn edit<T>(reply: &mut Vec<u8>, change: impl FnOnce(&mut T))
where
    T: for<'a> Results<'a> + Pack,
{
    if let Ok(Ok(mut results)) = decode::<T>(&reply[HEADER..]) {
        change(&mut results);
        reply.truncate(HEADER + 4);
        encode(reply, &results);
    }
}

/// Changes a listing with attributes and handles; `first` says whether it is the first page.
pub(crate) fn page(
    call: &Call,
    reply: &mut Vec<u8>,
    change: impl for<'a> FnOnce(&mut READDIRPLUS3resok<'a>, &[entryplus3<'a>]),
) {
    if !call.is(Procedure::Readdirplus) {
        return;
    }
    let results = reply[HEADER..].to_vec();
    if let Ok(Ok(mut page)) = decode::<READDIRPLUS3resok<'_>>(&results) {
        let honest = decode::<READDIRPLUS3resok<'_>>(&results).unwrap().unwrap().reply.entries.0;
        change(&mut page, &honest);
        reply.truncate(HEADER + 4);
        encode(reply, &page);
    }
}

/// Gives `beta` another name.
pub(crate) fn rename(call: &Call, reply: &mut Vec<u8>, name: &[u8]) {
    page(call, reply, |page, _| {
        for entry in page.reply.entries.0.iter_mut().filter(|entry| entry.name.as_ref() == b"beta") {
            entry.name = filename3::from(name.to_vec());
        }
    });
}

/// Adds an entry that is `beta` under another name.
pub(crate) fn add(call: &Call, reply: &mut Vec<u8>, name: &[u8]) {
    page(call, reply, |page, honest| {
        for entry in honest.iter().filter(|entry| entry.name.as_ref() == b"beta") {
            page.reply.entries.0.push(named(entry, name.to_vec(), entry.cookie));
        }
    });
}

/// An entry like another one.
pub(crate) fn named<'a>(entry: &entryplus3<'_>, name: Vec<u8>, cookie: u64) -> entryplus3<'a> {
    let handle = match &entry.name_handle {
        Nfs3Option::Some(handle) => Nfs3Option::Some(copy(handle)),
        Nfs3Option::None => Nfs3Option::None,
    };
    let name_attributes = match &entry.name_attributes {
        Nfs3Option::Some(attributes) => Nfs3Option::Some(attributes.clone()),
        Nfs3Option::None => Nfs3Option::None,
    };
    entryplus3 {
        fileid: entry.fileid,
        name: filename3::from(name),
        cookie,
        name_attributes,
        name_handle: handle,
    }
}

fn copy(handle: &nfs_fh3) -> nfs_fh3 {
    FileHandle::try_from(handle).unwrap().to_fh3()
}

/// Makes a listing that has no end and always new names.
pub(crate) fn endless(call: &Call, reply: &mut Vec<u8>, entries: u64, name_bytes: usize) {
    page(call, reply, |page, honest| {
        let Some(file) =
            honest.iter().find(|entry| entry.name.as_ref() == b"beta").or_else(|| honest.first())
        else {
            return;
        };
        let mut made = Vec::new();
        for number in call.before * entries..(call.before + 1) * entries {
            made.push(named(file, format!("{number:0>name_bytes$}").into_bytes(), number + 1000));
        }
        page.reply.entries.0 = made;
        page.reply.eof = false;
    });
}

/// Changes the results of a READ; the data may be cut or grown, and the count with it.
pub(crate) fn read(call: &Call, reply: &mut Vec<u8>, change: impl FnOnce(&mut Read)) {
    if !call.is(Procedure::Read) {
        return;
    }
    let results = reply[HEADER..].to_vec();
    let Ok(Ok(honest)) = decode::<READ3resok<'_>>(&results) else { return };
    let mut arguments = Reader::new(&call.arguments);
    FileHandle::decode(&mut arguments).unwrap();
    let mut read = Read {
        offset: arguments.u64("offset").unwrap(),
        attributes: matches!(honest.file_attributes, Nfs3Option::Some(_))
            .then(|| reply[HEADER + 8..HEADER + 92].to_vec()),
        count: honest.count,
        eof: honest.eof,
        length: honest.count,
        data: honest.data.to_vec(),
    };
    change(&mut read);
    reply.truncate(HEADER + 4);
    encode(reply, &read.attributes.is_some());
    reply.extend(read.attributes.into_iter().flatten());
    for word in [read.count, u32::from(read.eof), read.length] {
        encode(reply, &word);
    }
    reply.extend_from_slice(&read.data);
    reply.resize(reply.len().next_multiple_of(4), 0);
}

/// A READ's results, each field on its own.
pub(crate) struct Read {
    pub(crate) offset: u64,
    /// 84 bytes.
    pub(crate) attributes: Option<Vec<u8>>,
    pub(crate) count: u32,
    pub(crate) eof: bool,
    pub(crate) length: u32,
    pub(crate) data: Vec<u8>,
}

impl Read {
    /// Sets data that is consistent with its count.
    pub(crate) fn set(&mut self, data: Vec<u8>) {
        (self.count, self.length, self.data) = (data.len() as u32, data.len() as u32, data);
    }
}

/// Changes the attributes of every file that is not a directory, wherever they come: in listings, LOOKUP and GETATTR.
pub(crate) fn attributes(call: &Call, reply: &mut Vec<u8>, change: impl Fn(&mut fattr3)) {
    use nfs_wire::nfs3_types::nfs3::{GETATTR3resok, LOOKUP3resok};
    let on_file = |attributes: &mut fattr3| {
        if attributes.type_ == ftype3::NF3REG {
            change(attributes);
        }
    };
    let optional = |attributes: &mut post_op_attr| {
        if let Nfs3Option::Some(attributes) = attributes {
            on_file(attributes);
        }
    };
    if call.is(Procedure::Getattr) {
        edit::<GETATTR3resok>(reply, |results| on_file(&mut results.obj_attributes));
    } else if call.is(Procedure::Lookup) {
        edit::<LOOKUP3resok>(reply, |results| optional(&mut results.obj_attributes));
    } else {
        page(call, reply, |page, _| {
            for entry in &mut page.reply.entries.0 {
                optional(&mut entry.name_attributes);
            }
        });
    }
}

/// Takes attributes and handles out of a listing.
pub(crate) fn bare(call: &Call, reply: &mut Vec<u8>, keep_attributes: bool) {
    page(call, reply, |page, _| {
        for entry in &mut page.reply.entries.0 {
            entry.name_handle = post_op_fh3::None;
            if !keep_attributes {
                entry.name_attributes = post_op_attr::None;
            }
        }
    });
}

/// Changes the results of WRITE.
pub(crate) fn write(call: &Call, reply: &mut Vec<u8>, change: impl FnOnce(&mut WRITE3resok)) {
    if call.is(Procedure::Write) {
        edit(reply, change);
    }
}

/// Changes the results of COMMIT.
pub(crate) fn commit(call: &Call, reply: &mut Vec<u8>, change: impl FnOnce(&mut COMMIT3resok)) {
    if call.is(Procedure::Commit) {
        edit(reply, change);
    }
}

/// Puts words in the place of the results of a procedure.
pub(crate) fn results(call: &Call, reply: &mut Vec<u8>, procedure: Procedure, words: &[u32]) {
    if call.is(procedure) {
        reply.truncate(HEADER);
        reply.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    }
}

/// Puts words in the place of a reply after its XID.
pub(crate) fn message(reply: &mut Vec<u8>, words: &[u32]) {
    reply.truncate(4);
    reply.extend(words.iter().flat_map(|word| word.to_be_bytes()));
}

/// Changes a listing without attributes.
pub(crate) fn plain_page(
    call: &Call,
    reply: &mut Vec<u8>,
    change: impl for<'a> FnOnce(&mut READDIR3resok<'a>),
) {
    if call.is(Procedure::Readdir) {
        let results = reply[HEADER..].to_vec();
        if let Ok(Ok(mut page)) = decode::<READDIR3resok<'_>>(&results) {
            change(&mut page);
            reply.truncate(HEADER + 4);
            encode(reply, &page);
        }
    }
}
