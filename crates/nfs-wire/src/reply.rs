//! NFSv3 results, decoded within bounds (RFC 1813 §3.3).
//!
//! [`decode`] reads whole results; [`ReadHead`] reads only what precedes a READ's data, so that the data can
//! be moved to its file without passing through here.

use nfs3_types::{
    nfs3::{
        ACCESS3resok, COMMIT3resok, CREATE3resok, FSINFO3resok, FSSTAT3resok, GETATTR3resok, LINK3resok,
        LOOKUP3resok, MKDIR3resok, MKNOD3resok, Nfs3Option, PATHCONF3resok, READ3resok, READDIR3resok,
        READDIRPLUS3resok, READLINK3resok, REMOVE3resok, RENAME3resok, RMDIR3resok, SETATTR3resok,
        SYMLINK3resok, WRITE3resok, cookieverf3, dirlist3, dirlistplus3, entry3, entryplus3, fattr3,
        filename3, ftype3, nfs_fh3, nfspath3, nfstime3, post_op_attr, post_op_fh3, specdata3, stable_how,
        wcc_attr, wcc_data, writeverf3,
    },
    xdr_codec::{List, Opaque},
};

use crate::{
    handle::FileHandle,
    status::Status,
    xdr::{DecodeError, Reader},
};

type Decoded<T> = Result<T, DecodeError>;

/// The successful results of one procedure.
pub trait Results<'a>: Sized {
    /// Reads the results that follow `NFS3_OK`.
    ///
    /// # Errors
    /// [`DecodeError`] when they are malformed.
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError>;
}

/// Reads a whole set of results: the procedure's own, or the status of a failure.
///
/// What follows the status of a failure is attributes that nobody needs, and that some servers leave out; it
/// is not looked at. Neither is what follows complete results: go-nfs adds four bytes to those of FSSTAT.
///
/// # Errors
/// [`DecodeError`] when successful results are malformed or cut short.
pub fn decode<'a, T: Results<'a>>(results: &'a [u8]) -> Result<Result<T, Status>, DecodeError> {
    let mut reader = Reader::new(results);
    if let Some(status) = Status::from_code(reader.u32("status")?) {
        return Ok(Err(status));
    }
    T::decode(&mut reader).map(Ok)
}

/// Reads the attributes that successful results begin with: those of READDIR, READDIRPLUS, READLINK and READ
/// (RFC 1813 §3.3); `None` where the server leaves them out, and in those of a failure.
///
/// # Errors
/// [`DecodeError`] when they are malformed or cut short.
pub fn leading_attributes(results: &[u8]) -> Result<Option<fattr3>, DecodeError> {
    let mut reader = Reader::new(results);
    if Status::from_code(reader.u32("status")?).is_some() {
        return Ok(None);
    }
    Ok(match post_op_attr(&mut reader)? {
        Nfs3Option::Some(attributes) => Some(attributes),
        Nfs3Option::None => None,
    })
}

/// The results of READ up to its data (RFC 1813 §3.3.6).
#[derive(Clone, Debug)]
pub struct ReadHead {
    /// The file's attributes after the read, when the server tells them.
    pub attributes: Option<fattr3>,
    /// Bytes of data that follow, at most as many as were asked for.
    pub count: u32,
    /// Whether the data reaches the end of the file.
    pub eof: bool,
}

impl ReadHead {
    /// Reads the head and leaves the reader at the first byte of data; `asked` is the count of the call.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] while the head is not all there; any other error is final: the length of the
    /// data exceeds `asked` or contradicts the count.
    pub fn decode(reader: &mut Reader<'_>, asked: u32) -> Result<Result<Self, Status>, DecodeError> {
        if let Some(status) = Status::from_code(reader.u32("status")?) {
            return Ok(Err(status));
        }
        let attributes = match post_op_attr(reader)? {
            Nfs3Option::Some(attributes) => Some(attributes),
            Nfs3Option::None => None,
        };
        let count = reader.u32("count")?;
        let eof = reader.bool("eof")?;
        let length = reader.length("data", asked as usize)?;
        if length != count as usize {
            return Err(DecodeError::Inconsistent { field: "count" });
        }
        Ok(Ok(Self { attributes, count, eof }))
    }
}

impl<'a> Results<'a> for () {
    fn decode(_: &mut Reader<'a>) -> Decoded<Self> {
        Ok(())
    }
}

macro_rules! results {
    ($($type:ty { $($field:ident: $decode:expr),* $(,)? })*) => {
        $(impl<'a> Results<'a> for $type {
            fn decode(reader: &mut Reader<'a>) -> Decoded<Self> {
                Ok(Self { $($field: $decode(reader)?),* })
            }
        })*
    };
}

results! {
    GETATTR3resok { obj_attributes: fattr }
    SETATTR3resok { obj_wcc: wcc }
    LOOKUP3resok { object: handle, obj_attributes: post_op_attr, dir_attributes: post_op_attr }
    ACCESS3resok { obj_attributes: post_op_attr, access: word }
    READLINK3resok<'a> { symlink_attributes: post_op_attr, data: path }
    WRITE3resok { file_wcc: wcc, count: word, committed: stable, verf: write_verifier }
    CREATE3resok { obj: post_op_handle, obj_attributes: post_op_attr, dir_wcc: wcc }
    MKDIR3resok { obj: post_op_handle, obj_attributes: post_op_attr, dir_wcc: wcc }
    SYMLINK3resok { obj: post_op_handle, obj_attributes: post_op_attr, dir_wcc: wcc }
    MKNOD3resok { obj: post_op_handle, obj_attributes: post_op_attr, dir_wcc: wcc }
    REMOVE3resok { dir_wcc: wcc }
    RMDIR3resok { dir_wcc: wcc }
    RENAME3resok { fromdir_wcc: wcc, todir_wcc: wcc }
    LINK3resok { file_attributes: post_op_attr, linkdir_wcc: wcc }
    READDIR3resok<'a> { dir_attributes: post_op_attr, cookieverf: cookie_verifier, reply: listing }
    READDIRPLUS3resok<'a> { dir_attributes: post_op_attr, cookieverf: cookie_verifier, reply: listing_plus }
    FSSTAT3resok {
        obj_attributes: post_op_attr, tbytes: hyper, fbytes: hyper, abytes: hyper, tfiles: hyper,
        ffiles: hyper, afiles: hyper, invarsec: word,
    }
    FSINFO3resok {
        obj_attributes: post_op_attr, rtmax: word, rtpref: word, rtmult: word, wtmax: word, wtpref: word,
        wtmult: word, dtpref: word, maxfilesize: hyper, time_delta: time, properties: word,
    }
    PATHCONF3resok {
        obj_attributes: post_op_attr, linkmax: word, name_max: word, no_trunc: flag, chown_restricted: flag,
        case_insensitive: flag, case_preserving: flag,
    }
    COMMIT3resok { file_wcc: wcc, verf: write_verifier }
}

impl<'a> Results<'a> for READ3resok<'a> {
    fn decode(reader: &mut Reader<'a>) -> Decoded<Self> {
        let file_attributes = post_op_attr(reader)?;
        let count = reader.u32("count")?;
        let eof = reader.bool("eof")?;
        let data = reader.opaque("data", count as usize)?;
        if data.len() != count as usize {
            return Err(DecodeError::Inconsistent { field: "count" });
        }
        Ok(Self { file_attributes, count, eof, data: Opaque::borrowed(data) })
    }
}

fn word(reader: &mut Reader<'_>) -> Decoded<u32> {
    reader.u32("results")
}

fn hyper(reader: &mut Reader<'_>) -> Decoded<u64> {
    reader.u64("results")
}

fn flag(reader: &mut Reader<'_>) -> Decoded<bool> {
    reader.bool("results")
}

fn handle(reader: &mut Reader<'_>) -> Decoded<nfs_fh3> {
    FileHandle::decode(reader).map(|handle| handle.to_fh3())
}

fn post_op_handle(reader: &mut Reader<'_>) -> Decoded<post_op_fh3> {
    reader.option("handle follows", handle).map(nfs3_option)
}

/// Reads the attributes of a file (RFC 1813 §2.6, `fattr3`).
fn fattr(reader: &mut Reader<'_>) -> Decoded<fattr3> {
    let type_ = match reader.u32("file type")? {
        1 => ftype3::NF3REG,
        2 => ftype3::NF3DIR,
        3 => ftype3::NF3BLK,
        4 => ftype3::NF3CHR,
        5 => ftype3::NF3LNK,
        6 => ftype3::NF3SOCK,
        7 => ftype3::NF3FIFO,
        value => {
            return Err(DecodeError::Unknown { field: "file type", value });
        }
    };
    const FIELD: &str = "attributes";
    Ok(fattr3 {
        type_,
        mode: reader.u32(FIELD)?,
        nlink: reader.u32(FIELD)?,
        uid: reader.u32(FIELD)?,
        gid: reader.u32(FIELD)?,
        size: reader.u64(FIELD)?,
        used: reader.u64(FIELD)?,
        rdev: specdata3 { specdata1: reader.u32(FIELD)?, specdata2: reader.u32(FIELD)? },
        fsid: reader.u64(FIELD)?,
        fileid: reader.u64(FIELD)?,
        atime: time(reader)?,
        mtime: time(reader)?,
        ctime: time(reader)?,
    })
}

fn time(reader: &mut Reader<'_>) -> Decoded<nfstime3> {
    Ok(nfstime3 { seconds: reader.u32("time")?, nseconds: reader.u32("time")? })
}

fn post_op_attr(reader: &mut Reader<'_>) -> Decoded<post_op_attr> {
    reader.option("attributes follow", fattr).map(nfs3_option)
}

fn wcc(reader: &mut Reader<'_>) -> Decoded<wcc_data> {
    let before = reader.option("attributes follow", |reader| {
        Ok(wcc_attr { size: reader.u64("size before")?, mtime: time(reader)?, ctime: time(reader)? })
    })?;
    Ok(wcc_data { before: nfs3_option(before), after: post_op_attr(reader)? })
}

fn stable(reader: &mut Reader<'_>) -> Decoded<stable_how> {
    match reader.u32("committed")? {
        0 => Ok(stable_how::UNSTABLE),
        1 => Ok(stable_how::DATA_SYNC),
        2 => Ok(stable_how::FILE_SYNC),
        value => Err(DecodeError::Unknown { field: "committed", value }),
    }
}

fn write_verifier(reader: &mut Reader<'_>) -> Decoded<writeverf3> {
    reader.fixed("write verifier").map(writeverf3)
}

fn cookie_verifier(reader: &mut Reader<'_>) -> Decoded<cookieverf3> {
    reader.fixed("cookie verifier").map(cookieverf3)
}

/// Reads a name of any length that fits the message; whether it is acceptable is for the caller to say.
fn name<'a>(reader: &mut Reader<'a>) -> Decoded<filename3<'a>> {
    let limit = reader.rest().len();
    reader.opaque("name", limit).map(filename3::from)
}

fn path<'a>(reader: &mut Reader<'a>) -> Decoded<nfspath3<'a>> {
    let limit = reader.rest().len();
    reader.opaque("link target", limit).map(nfspath3::from)
}

fn listing<'a>(reader: &mut Reader<'a>) -> Decoded<dirlist3<'a>> {
    let entries = list(reader, |reader| {
        Ok(entry3 { fileid: reader.u64("fileid")?, name: name(reader)?, cookie: reader.u64("cookie")? })
    })?;
    Ok(dirlist3 { entries, eof: reader.bool("eof")? })
}

fn listing_plus<'a>(reader: &mut Reader<'a>) -> Decoded<dirlistplus3<'a>> {
    let entries = list(reader, |reader| {
        Ok(entryplus3 {
            fileid: reader.u64("fileid")?,
            name: name(reader)?,
            cookie: reader.u64("cookie")?,
            name_attributes: post_op_attr(reader)?,
            name_handle: post_op_handle(reader)?,
        })
    })?;
    Ok(dirlistplus3 { entries, eof: reader.bool("eof")? })
}

/// Reads a linked list iteratively; its length is bounded by the message, as every entry takes bytes.
pub(crate) fn list<'a, T>(
    reader: &mut Reader<'a>,
    entry: impl Fn(&mut Reader<'a>) -> Decoded<T>,
) -> Decoded<List<T>> {
    let mut entries = Vec::new();
    while reader.bool("entry follows")? {
        entries.push(entry(reader)?);
    }
    Ok(List(entries))
}

fn nfs3_option<T>(value: Option<T>) -> Nfs3Option<T>
where
    T: nfs3_types::xdr_codec::Pack + nfs3_types::xdr_codec::Unpack,
{
    value.map_or(Nfs3Option::None, Nfs3Option::Some)
}

#[cfg(test)]
mod tests;
