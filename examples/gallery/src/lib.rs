//! A web gallery whose files stay on an NFS server: no mount, and no copy on this machine's disk.
//!
//! [`router`] answers GET and HEAD: an index page for a directory, and a file's bytes, whole or one
//! range of them, to as many browsers as there are. One [`Client`] serves all of them. Bytes are read
//! as the browser takes them; when it goes away, its READs are cancelled with the body that is dropped.
//!
//! | part | what it does |
//! |---|---|
//! | this file | from a URL to a file, and from the client's errors to HTTP's |
//! | `file` | conditions, ranges, bodies (RFC 9110 §13, §14) |
//! | `page` | the index page |

#![forbid(unsafe_code)]

mod file;
mod page;

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, Uri, header::LOCATION},
    response::{IntoResponse, Response},
    routing::get,
};
use nfs_wireless_client::{Client, Entry, Error, FileHandle, FileType, NfsStatus};
use percent_encoding::percent_decode_str;

/// What all requests share.
#[derive(Clone)]
struct Gallery {
    client: Client,
    root: FileHandle,
}

/// Serves what is below a directory of a connected client.
///
/// A client with a `call_timeout` answers 504 where the server does not respond for so long; without
/// it the browser waits.
pub fn router(client: Client, root: FileHandle) -> Router {
    let gallery = Gallery { client, root };
    Router::new().route("/", get(serve)).route("/{*path}", get(serve)).with_state(gallery)
}

/// Answers one request.
async fn serve(State(gallery): State<Gallery>, uri: Uri, headers: HeaderMap) -> Response {
    let path = uri.path();
    match gallery.find(path).await {
        Ok(found) => match (found.metadata.file_type, path.ends_with('/')) {
            (FileType::Directory, true) => page::index(&gallery.client, found.handle, path).await,
            // Relative links of the index page need the slash.
            (FileType::Directory, false) => {
                (StatusCode::PERMANENT_REDIRECT, [(LOCATION, format!("{path}/"))]).into_response()
            }
            (FileType::Regular, false) => file::respond(gallery.client, &found, path, &headers),
            _ => StatusCode::NOT_FOUND.into_response(),
        },
        Err(status) => status.into_response(),
    }
}

impl Gallery {
    /// Finds the file of a URL's path, from the root down. Symbolic links are not followed.
    async fn find(&self, path: &str) -> Result<Entry, StatusCode> {
        if path == "/" {
            let metadata = self.client.metadata(self.root).await.map_err(|error| status(&error))?;
            return Ok(Entry { handle: self.root, metadata });
        }
        let inner = path.strip_prefix('/').unwrap_or(path);
        let inner = inner.strip_suffix('/').unwrap_or(inner);
        let mut found: Option<Entry> = None;
        for part in inner.split('/') {
            let name = name(part).ok_or(StatusCode::NOT_FOUND)?;
            let directory = found.map_or(self.root, |entry| entry.handle);
            found = Some(self.client.lookup(directory, &name).await.map_err(|error| status(&error))?);
        }
        found.ok_or(StatusCode::NOT_FOUND)
    }
}

/// The name of a file that a part of a URL's path stands for; `None` if it would lead elsewhere.
fn name(part: &str) -> Option<Vec<u8>> {
    let name: Vec<u8> = percent_decode_str(part).collect();
    let elsewhere = name.is_empty() || name == b"." || name == b".." || name.contains(&b'/');
    (!elsewhere && !name.contains(&0)).then_some(name)
}

/// What HTTP calls an error of the client.
fn status(error: &Error) -> StatusCode {
    match error.status() {
        Some(NfsStatus::NOENT | NfsStatus::NOTDIR | NfsStatus::STALE | NfsStatus::NAMETOOLONG) => {
            StatusCode::NOT_FOUND
        }
        Some(NfsStatus::ACCES | NfsStatus::PERM) => StatusCode::FORBIDDEN,
        _ if error.is_silence() => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::BAD_GATEWAY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_path_is_one_name_or_none() {
        assert_eq!(name("a%20b").unwrap(), b"a b");
        assert_eq!(name("%ff").unwrap(), b"\xff");
        assert_eq!(name("..%20").unwrap(), b".. ");
        for part in ["", ".", "..", "%2e%2E", "a%2fb", "..%2f..", "a%00b"] {
            assert_eq!(name(part), None, "{part}");
        }
    }
}
