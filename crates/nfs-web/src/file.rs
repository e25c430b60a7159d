//! A file as a response: conditions, ranges and bodies (RFC 9110 §13, §14).

use std::{
    io,
    ops::Range,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use futures_util::stream::try_unfold;
use headers::{
    AcceptRanges, ContentLength, ContentRange, ETag, HeaderMapExt as _, IfModifiedSince, IfNoneMatch,
    IfRange, LastModified,
};
use http_body_util::StreamBody;
use http_range_header::parse_range_header;
use hyper::{HeaderMap, Method, Response, StatusCode, body::Frame, header};
use nfs_wireless_server::{
    Vfs,
    nfs3_types::nfs3::{fattr3, nfstime3},
    vfs::NodeId,
};

use crate::{
    body::{Body, boxed, empty},
    names::{Handling, disposition, kind},
    tree::{Disk, Found},
};

/// Bytes that are read at once: all that is in memory of a response, and what the system has of it.
const PIECE_BYTES: u32 = 128 << 10;

/// Answers a request for a regular file.
pub(crate) fn respond(
    disk: &Disk,
    files: &Arc<dyn Vfs>,
    found: &Found,
    method: &Method,
    request: &HeaderMap,
) -> Response<Body> {
    let size = found.attributes.size;
    let (tag, modified) = (version(&found.attributes), LastModified::from(time(&found.attributes.mtime)));
    let (status, range) = if is_unchanged(request, &tag, modified) {
        (StatusCode::NOT_MODIFIED, None)
    } else {
        match wanted(request, &tag, modified, size) {
            Wanted::All => (StatusCode::OK, Some(0..size)),
            Wanted::Part(range) => (StatusCode::PARTIAL_CONTENT, Some(range)),
            Wanted::Nothing => (StatusCode::RANGE_NOT_SATISFIABLE, None),
        }
    };
    let body = match &range {
        Some(range) if method != Method::HEAD => {
            body(disk.clone(), Arc::clone(files), found.node, range.clone())
        }
        _ => empty(),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    match range {
        Some(range) => {
            headers.typed_insert(ContentLength(range.end - range.start));
            if status == StatusCode::PARTIAL_CONTENT
                && let Ok(range) = ContentRange::bytes(range, size)
            {
                headers.typed_insert(range);
            }
        }
        None if status == StatusCode::RANGE_NOT_SATISFIABLE => {
            headers.typed_insert(ContentRange::unsatisfied_bytes(size));
        }
        None => {}
    }
    headers.typed_insert(tag);
    headers.typed_insert(modified);
    headers.typed_insert(AcceptRanges::bytes());
    describe(headers, &found.name);
    response
}

/// Says what a file is, and what a browser may do with it.
fn describe(headers: &mut HeaderMap, name: &[u8]) {
    let kind = kind(name);
    let disposition = disposition(kind.handling, &String::from_utf8_lossy(name));
    // A copy may be kept, but it is asked for again whether the member may still read it.
    let mut said = vec![
        (header::CONTENT_TYPE, kind.media_type.as_str()),
        (header::CONTENT_DISPOSITION, &disposition),
        (header::CACHE_CONTROL, "private, no-cache"),
    ];
    if kind.handling != Handling::ShowDocument {
        said.push((header::CONTENT_SECURITY_POLICY, "sandbox"));
    }
    for (name, value) in said {
        if let Ok(value) = value.parse() {
            headers.insert(name, value);
        }
    }
}

/// What a request asks for.
enum Wanted {
    All,
    Part(Range<u64>),
    /// A range beyond the end.
    Nothing,
}

/// Whether the browser has the file as it is (RFC 9110 §13.2.2).
fn is_unchanged(request: &HeaderMap, tag: &ETag, modified: LastModified) -> bool {
    if let Some(known) = request.typed_get::<IfNoneMatch>() {
        return !known.precondition_passes(tag);
    }
    let since = request.typed_get::<IfModifiedSince>();
    since.is_some_and(|since| !since.is_modified(modified.into()))
}

/// Which bytes are asked for. Several ranges, and what is no range, are answered with the whole file, as RFC 9110 §14.2 allows.
fn wanted(request: &HeaderMap, tag: &ETag, modified: LastModified, size: u64) -> Wanted {
    let is_stale =
        request.typed_get::<IfRange>().is_some_and(|it| it.is_modified(Some(tag), Some(&modified)));
    let range = request.get(header::RANGE).filter(|_| !is_stale).and_then(|range| range.to_str().ok());
    let Some(Ok(ranges)) = range.map(parse_range_header) else { return Wanted::All };
    match ranges.validate(size).as_deref() {
        Ok([range]) => Wanted::Part(*range.start()..range.end() + 1),
        Ok(_) => Wanted::All,
        Err(_) => Wanted::Nothing,
    }
}

/// These bytes of a file, each piece read when the browser has taken the one before.
fn body(disk: Disk, files: Arc<dyn Vfs>, node: NodeId, range: Range<u64>) -> Body {
    boxed(StreamBody::new(try_unfold((disk, files, range), move |(disk, files, range)| async move {
        if range.is_empty() {
            return Ok(None);
        }
        let count = u32::try_from(range.end - range.start).map_or(PIECE_BYTES, |rest| rest.min(PIECE_BYTES));
        let (source, offset) = (Arc::clone(&files), range.start);
        let piece = disk.run(move || {
            let mut piece = Vec::new();
            source.read(nfstime3::default(), node, offset, count, &mut piece)?;
            Ok(piece)
        });
        let piece = piece.await.map_err(|status| io::Error::other(format!("{status:?}")))?;
        if piece.is_empty() {
            // What was promised is not there any more: the connection has to end.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let rest = offset + piece.len() as u64..range.end;
        Ok(Some((Frame::data(Bytes::from(piece)), (disk, files, rest))))
    })))
}

/// A name for these bytes: another one after any change, also of attributes.
fn version(attributes: &fattr3) -> ETag {
    let fattr3 { fsid, fileid, size, mtime, ctime, .. } = attributes;
    let time = |time: &nfstime3| format!("{:x}.{:x}", time.seconds, time.nseconds);
    let tag = format!("\"{fsid:x}-{fileid:x}-{size:x}-{}-{}\"", time(mtime), time(ctime));
    tag.parse().expect("hexadecimal digits in quotes are an entity tag")
}

fn time(time: &nfstime3) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(time.seconds.into(), time.nseconds.min(999_999_999))
}
