//! The index page of a directory.

use axum::{
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use maud::{DOCTYPE, Markup, html};
use nfs_wireless_client::{Client, DirEntry, Error, FileHandle, FileType};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};

/// Files on one page: a server may list for ever.
const MOST_ENTRIES: usize = 10_000;

/// What a page may load: pictures and films of this site, and nothing else.
const POLICY: &str = "default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'";

const STYLE: &str = "body{font:1rem sans-serif;margin:1rem}\
    ul{display:grid;grid-template-columns:repeat(auto-fill,minmax(12rem,1fr));gap:1rem;padding:0;list-style:none}\
    img,video{width:100%;height:9rem;object-fit:cover;display:block}li{overflow-wrap:anywhere}";

/// A file or a directory on the page.
struct Item {
    name: String,
    link: String,
    size: Option<u64>,
}

/// Lists a directory with links and thumbnails.
pub(crate) async fn index(client: &Client, directory: FileHandle, path: &str) -> Response {
    match items(client, directory).await {
        Ok((items, complete)) => {
            let title = percent_decode_str(path).decode_utf8_lossy();
            ([(header::CONTENT_SECURITY_POLICY, POLICY)], page(&title, &items, complete)).into_response()
        }
        Err(error) => {
            let status: StatusCode = crate::status(&error);
            status.into_response()
        }
    }
}

/// What is in a directory, directories first, and whether that is all.
async fn items(client: &Client, directory: FileHandle) -> Result<(Vec<Item>, bool), Error> {
    let mut items = Vec::new();
    let mut listing = client.read_dir(directory);
    let complete = loop {
        let Some(DirEntry { name, metadata, .. }) = listing.next_complete().await? else { break true };
        if items.len() == MOST_ENTRIES {
            break false;
        }
        let Some(metadata) = metadata else { continue };
        let (slash, size) = match metadata.file_type {
            FileType::Directory => ("/", None),
            FileType::Regular => ("", Some(metadata.size)),
            _ => continue,
        };
        let link = percent_encode(&name, NON_ALPHANUMERIC).to_string() + slash;
        items.push(Item { name: String::from_utf8_lossy(&name).into_owned() + slash, link, size });
    };
    items.sort_unstable_by(|a, b| (a.size.is_some(), &a.name).cmp(&(b.size.is_some(), &b.name)));
    Ok((items, complete))
}

/// The page; every name is escaped.
fn page(title: &str, items: &[Item], complete: bool) -> Markup {
    html! {
        (DOCTYPE)
        html {
            head { meta charset="utf-8"; title { (title) } style { (maud::PreEscaped(STYLE)) } }
            body {
                h1 { (title) }
                @if title != "/" { p { a href="../" { "up" } } }
                ul { @for item in items { li { (thumbnail(item)) } } }
                @if !complete { p { "The directory has more files than fit here." } }
            }
        }
    }
}

fn thumbnail(Item { name, link, size }: &Item) -> Markup {
    let kind = mime_guess::from_path(name).first_or_octet_stream();
    html! {
        a href=(link) {
            @match (size, kind.type_().as_str()) {
                (Some(_), "image") => img src=(link) alt="" loading="lazy";,
                (Some(_), "video") => video src=(link) preload="metadata" {},
                _ => {},
            }
            (name)
        }
        @if let Some(size) = size { " " (size) " bytes" }
    }
}
