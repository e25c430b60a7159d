//! A file as an HTTP response.

use std::{io::SeekFrom, ops::Range, time::SystemTime};

use axum::{
    body::Body,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use headers::{
    AcceptRanges, ContentLength, ContentRange, ETag, HeaderMapExt as _, IfModifiedSince, IfNoneMatch,
    IfRange, LastModified,
};
use http_range_header::parse_range_header;
use nfs_wireless_client::{Client, Entry, File, Metadata};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio_util::io::ReaderStream;

/// Bytes that are handed to the browser at once.
const PIECE_BYTES: usize = 64 << 10;

/// Answers a request for a regular file.
pub(crate) fn respond(client: Client, file: &Entry, path: &str, request: &HeaderMap) -> Response {
    let Metadata { size, mtime, .. } = file.metadata;
    let (e_tag, modified) = (e_tag(&file.metadata), LastModified::from(SystemTime::from(mtime)));
    let mut response = if is_unchanged(request, &e_tag, modified) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        match wanted(request, &e_tag, modified, size) {
            Wanted::All => body(client, file, 0..size),
            Wanted::Part(range) => {
                let mut response = body(client, file, range.clone());
                *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                // It lies within the file, so that it can be said.
                if let Ok(range) = ContentRange::bytes(range, size) {
                    response.headers_mut().typed_insert(range);
                }
                response
            }
            Wanted::Nothing => {
                let mut response = StatusCode::RANGE_NOT_SATISFIABLE.into_response();
                response.headers_mut().typed_insert(ContentRange::unsatisfied_bytes(size));
                response
            }
        }
    };
    let kind = mime_guess::from_path(path).first_or_octet_stream().to_string();
    let headers = response.headers_mut();
    headers.typed_insert(e_tag);
    headers.typed_insert(modified);
    headers.typed_insert(AcceptRanges::bytes());
    let of_ours = [
        (header::CONTENT_TYPE, kind.as_str()),
        // Nobody's file is a program in the name of this site.
        (header::CONTENT_SECURITY_POLICY, "sandbox"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    for (name, value) in of_ours {
        if let Ok(value) = value.parse() {
            headers.insert(name, value);
        }
    }
    response
}

/// What a request asks for.
enum Wanted {
    All,
    Part(Range<u64>),
    /// A range beyond the end.
    Nothing,
}

/// Whether the browser has the file as it is (RFC 9110 §13.2.2).
fn is_unchanged(request: &HeaderMap, e_tag: &ETag, modified: LastModified) -> bool {
    if let Some(known) = request.typed_get::<IfNoneMatch>() {
        return !known.precondition_passes(e_tag);
    }
    let since = request.typed_get::<IfModifiedSince>();
    since.is_some_and(|since| !since.is_modified(modified.into()))
}

/// Which bytes are asked for. Several ranges, and what is no range, are answered with the whole file,
/// as RFC 9110 §14.2 allows.
fn wanted(request: &HeaderMap, e_tag: &ETag, modified: LastModified, size: u64) -> Wanted {
    let stale = request.typed_get::<IfRange>().is_some_and(|it| it.is_modified(Some(e_tag), Some(&modified)));
    let range = request.get(header::RANGE).filter(|_| !stale).and_then(|range| range.to_str().ok());
    let Some(Ok(ranges)) = range.map(parse_range_header) else { return Wanted::All };
    match ranges.validate(size).as_deref() {
        Ok([range]) => Wanted::Part(*range.start()..range.end() + 1),
        Ok(_) => Wanted::All,
        Err(_) => Wanted::Nothing,
    }
}

/// A response of these bytes, which are read as they are taken.
fn body(client: Client, file: &Entry, range: Range<u64>) -> Response {
    let (length, handle) = (range.end - range.start, file.handle);
    let opened = async move {
        let mut file = File::new(client, handle);
        file.seek(SeekFrom::Start(range.start)).await?;
        Ok(ReaderStream::with_capacity(file.take(length), PIECE_BYTES))
    };
    let stream = futures_util::TryFutureExt::try_flatten_stream(opened);
    let mut response = Body::from_stream(stream).into_response();
    response.headers_mut().typed_insert(ContentLength(length));
    response
}

/// A name for these bytes: another one after any change, also of attributes.
fn e_tag(metadata: &Metadata) -> ETag {
    let tag = format!("\"{}\"", metadata.version_tag());
    tag.parse().expect("hexadecimal digits in quotes are an entity tag")
}
