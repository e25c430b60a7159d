//! From a request to a response.
//!
//! | path | what it is |
//! |---|---|
//! | `/` | the page that the address leads to: its script tells the secret |
//! | `/enter` | takes the secret, and gives a cookie for it |
//! | `/files/...` | folders and files; a folder with `?zip` is an archive |
//! | `/page.css`, `/page.js` | what the pages load |

use std::{net::IpAddr, sync::Arc, time::Duration};

use headers::{ContentLength, Cookie, HeaderMapExt as _};
use http_body_util::{BodyExt as _, Limited};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::Incoming,
    header::{self, HeaderName, HeaderValue},
};
use nfs_wireless_server::nfs_wire::Status;
use percent_encoding::percent_decode;
use tokio::sync::Semaphore;

use crate::{
    archive,
    body::{Body, empty, full, noted, pieces},
    file, folder,
    members::Member,
    names::{Handling, disposition},
    page::{self, Entrance},
    site::{Caller, Site},
    tree::{self, Found},
};

/// Bytes of the form that has the secret, at most, and how long they may take.
const MAX_FORM_BYTES: usize = 1024;
const FORM_TIME: Duration = Duration::from_secs(10);

/// A page of so many bytes is one for which others wait, as long as it is in memory.
const SHORT_PAGE_BYTES: usize = 64 << 10;

/// How late a wrong secret is answered.
const LATE: Duration = Duration::from_secs(1);

/// What browsers are told with every response.
const ALWAYS: [(HeaderName, &str); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

const HTML: &str = "text/html; charset=utf-8";

/// Answers a request.
pub(crate) async fn answer(site: &Site, caller: &Arc<Caller>, request: Request<Incoming>) -> Response<Body> {
    let is_here = is_host(request.headers(), caller);
    let (response, member) = if is_here { route(site, caller, request).await } else { (misdirected(), None) };
    let mut response = response.map(|body| noted(body, caller, member));
    for (name, value) in ALWAYS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Whether the host that a request names is this one, by its number: a name may be made to point here by whoever owns it, whose pages the
/// browser then takes for ours. The port may be another one, as behind a tunnel.
fn is_host(headers: &HeaderMap, caller: &Caller) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let Ok(host) = host.to_str() else { return false };
    let Ok(authority) = host.parse::<hyper::http::uri::Authority>() else { return false };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let here = caller.local.ip().to_canonical();
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical() == here,
        Err(_) => host.eq_ignore_ascii_case("localhost") && here.is_loopback(),
    }
}

/// Returns the response, and the member who gets it.
async fn route(
    site: &Site,
    caller: &Caller,
    request: Request<Incoming>,
) -> (Response<Body>, Option<Arc<Member>>) {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let path = request.uri().path();
    let response = match path {
        "/enter" if request.method() == Method::POST => enter(site, caller, request).await,
        "/enter" => redirect(StatusCode::SEE_OTHER, "/"),
        _ if !is_read => {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            response
        }
        "/" => html(StatusCode::OK, page::entrance(&site.title, Entrance::Welcome)),
        "/page.css" => content(StatusCode::OK, "text/css; charset=utf-8", page::STYLE),
        "/page.js" => content(StatusCode::OK, "text/javascript; charset=utf-8", page::SCRIPT),
        "/files" => redirect(StatusCode::PERMANENT_REDIRECT, "/files/"),
        _ => match path.strip_prefix("/files/") {
            Some(path) => return files(site, caller, path, &request).await,
            None => html(StatusCode::NOT_FOUND, page::problem(&site.title, "There is nothing here.")),
        },
    };
    (response, None)
}

/// Takes the secret from a form.
async fn enter(site: &Site, caller: &Caller, request: Request<Incoming>) -> Response<Body> {
    let form = Limited::new(request.into_body(), MAX_FORM_BYTES).collect();
    let Ok(Ok(form)) = tokio::time::timeout(FORM_TIME, form).await else {
        return text(StatusCode::BAD_REQUEST, "a form with the secret is expected\n");
    };
    let form = form.to_bytes();
    let typed = form.split(|&byte| byte == b'&').find_map(|field| field.strip_prefix(b"secret="));
    // Spaces come as plus signs.
    let typed: Vec<u8> = percent_decode(typed.unwrap_or_default())
        .map(|byte| if byte == b'+' { b' ' } else { byte })
        .collect();
    if let Some(member) = site.members.find(|key| key.is_known_to(&typed)) {
        let mut response = redirect(StatusCode::SEE_OTHER, "/files/");
        let cookie =
            format!("{}={}; HttpOnly; SameSite=Strict; Path=/", cookie_name(caller), member.key.ticket());
        if let Ok(cookie) = cookie.parse() {
            response.headers_mut().insert(header::SET_COOKIE, cookie);
        }
        return response;
    }
    let Ok(_permit) = site.late.try_acquire() else {
        return text(StatusCode::TOO_MANY_REQUESTS, "too many wrong secrets\n");
    };
    tokio::time::sleep(LATE).await;
    html(StatusCode::FORBIDDEN, page::entrance(&site.title, Entrance::Wrong))
}

/// Cookies of all ports of a host are in one place.
fn cookie_name(caller: &Caller) -> String {
    format!("nfsw-{}", caller.local.port())
}

async fn files(
    site: &Site,
    caller: &Caller,
    path: &str,
    request: &Request<Incoming>,
) -> (Response<Body>, Option<Arc<Member>>) {
    let cookie = request.headers().typed_get::<Cookie>();
    let ticket = cookie.as_ref().and_then(|cookie| cookie.get(&cookie_name(caller)));
    let Some(member) = ticket.and_then(|ticket| site.members.find(|key| key.has_made(ticket))) else {
        return (html(StatusCode::FORBIDDEN, page::entrance(&site.title, Entrance::Unknown)), None);
    };
    caller.note(&member);
    let response = match show(site, &member, path, request).await {
        Ok(response) => response,
        Err(status) => {
            let said = match tree::status_code(status) {
                StatusCode::FORBIDDEN => "The one who shares this may not read it.",
                StatusCode::NOT_FOUND => "There is no such file.",
                _ => "This cannot be read now.",
            };
            html(tree::status_code(status), page::problem(&site.title, said))
        }
    };
    (response, Some(member))
}

async fn show(
    site: &Site,
    member: &Member,
    path: &str,
    request: &Request<Incoming>,
) -> Result<Response<Body>, Status> {
    let (source, wanted) = (Arc::clone(&member.files), path.to_owned());
    let found = site.disk.run(move || tree::find(&*source, &wanted)).await?;
    let has_slash = path.is_empty() || path.ends_with('/');
    if found.is_folder() && !has_slash {
        let query = request.uri().query().map_or_else(String::new, |query| format!("?{query}"));
        return Ok(redirect(StatusCode::PERMANENT_REDIRECT, &format!("/files/{path}/{query}")));
    }
    if found.is_folder() && request.uri().query() == Some("zip") {
        return Ok(zip(site, member, found, request.method()));
    }
    if found.is_folder() {
        let permit = |of: &Arc<Semaphore>| Arc::clone(of).acquire_owned();
        let (Ok(own), Ok(permit)) = (permit(&member.pages).await, permit(&site.pages).await) else {
            return Err(Status::JUKEBOX);
        };
        let source = Arc::clone(&member.files);
        let listing = site.disk.run(move || folder::list(&*source, found.node)).await?;
        let page = page::folder(&site.title, path, &listing);
        if page.len() < SHORT_PAGE_BYTES {
            return Ok(html(StatusCode::OK, page));
        }
        let length = ContentLength(page.len() as u64);
        let mut response = html(StatusCode::OK, String::new());
        response.headers_mut().typed_insert(length);
        // The browser has asked for the headers alone.
        if request.method() != Method::HEAD {
            *response.body_mut() = pieces(page, [own, permit]);
        }
        return Ok(response);
    }
    if !found.is_file() || has_slash {
        return Err(Status::NOENT);
    }
    Ok(file::respond(&site.disk, &member.files, &found, request.method(), request.headers()))
}

fn zip(site: &Site, member: &Member, found: Found, method: &Method) -> Response<Body> {
    let name = if found.name.is_empty() { top_name(&site.title) } else { found.name };
    let shown = format!("{}.zip", String::from_utf8_lossy(&name));
    let body = if method == Method::HEAD {
        empty()
    } else {
        let permit = |of: &Arc<Semaphore>| Arc::clone(of).try_acquire_owned();
        let (Ok(own), Ok(permit)) = (permit(&member.archives), permit(&site.archives)) else {
            let mut response =
                text(StatusCode::SERVICE_UNAVAILABLE, "too many archives are being made; try again later\n");
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("30"));
            return response;
        };
        archive::body(Arc::clone(&member.files), found.node, name, [own, permit])
    };
    let mut response = content(StatusCode::OK, "application/zip", body);
    if let Ok(value) = disposition(Handling::Keep, &shown).parse() {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
    }
    response
}

/// The folder that everything is in, in an archive of the whole: the title may be any text.
fn top_name(title: &str) -> Vec<u8> {
    let name = title.replace(['/', '\\', '\0'], "_");
    if matches!(&*name, "" | "." | "..") { b"files".to_vec() } else { name.into_bytes() }
}

fn html(status: StatusCode, page: String) -> Response<Body> {
    let mut response = content(status, HTML, page);
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(page::POLICY));
    response
}

fn text(status: StatusCode, said: &'static str) -> Response<Body> {
    content(status, "text/plain; charset=utf-8", said)
}

fn misdirected() -> Response<Body> {
    text(StatusCode::MISDIRECTED_REQUEST, "this address is known by its number only\n")
}

fn redirect(status: StatusCode, to: &str) -> Response<Body> {
    let mut response = text(status, "");
    if let Ok(to) = to.parse() {
        response.headers_mut().insert(header::LOCATION, to);
    }
    response
}

fn content(status: StatusCode, media_type: &'static str, body: impl Into<Content>) -> Response<Body> {
    let mut response = Response::new(body.into().0);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// What becomes a body.
struct Content(Body);

impl From<Body> for Content {
    fn from(body: Body) -> Self {
        Self(body)
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self(full(text))
    }
}

impl From<&'static str> for Content {
    fn from(text: &'static str) -> Self {
        Self(full(text))
    }
}
