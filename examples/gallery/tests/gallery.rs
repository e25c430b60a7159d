//! Browsers at the gallery: on the embedded server over UDP and TCP, and on nfs-ganesha.

use std::{net::SocketAddr, time::Duration, time::Instant};

use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use nfs_wireless_client::{
    Client, ClientConfig, Error, FileHandle, Placement, SetAttributes, TransportChoice, UploadSpec,
};
use nfs_wireless_server::{Memory, Server, Service, ServiceConfig};
use private_servers::ganesha::{Ganesha, Options};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::sleep,
};

const MIB: usize = 1 << 20;

/// Browsers at the same time.
const BROWSERS: u64 = 16;

/// Requests of each.
const REQUESTS: u32 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn many_browsers_read_ranges_of_a_file_over_udp() {
    let (_server, client) = embedded(TransportChoice::Udp).await;
    ranges(client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_browsers_read_ranges_of_a_file_over_tcp() {
    let (_server, client) = embedded(TransportChoice::Tcp).await;
    ranges(client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_browsers_read_ranges_of_a_file_on_ganesha() {
    let server = Ganesha::start(Options::default());
    let export = server.export();
    let path = export.as_os_str().as_encoded_bytes();
    for transport in [TransportChoice::Udp, TransportChoice::Tcp] {
        ranges(Client::connect("localhost", path, server.config(transport)).await.unwrap()).await;
    }
}

async fn ranges(client: Client) {
    let data: Bytes = (0..3 * MIB as u32).map(|number| (number / 5) as u8).collect();
    put(&client, client.root(), b"film.mp4", data.clone()).await.unwrap();
    let address = serve(&client, client.root()).await;
    let mut browsers = JoinSet::new();
    for seed in 0..BROWSERS {
        let data = data.clone();
        browsers.spawn(async move {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            for _ in 0..REQUESTS {
                let mut below = |limit: usize| random.next_u64() as usize % limit;
                let (start, length) = (below(data.len()), 1 + below(300_000));
                let end = data.len().min(start + length);
                let (range, start, end) = match below(3) {
                    0 => (format!("bytes={start}-{}", start + length - 1), start, end),
                    1 => (format!("bytes=-{length}"), data.len() - length, data.len()),
                    _ => {
                        let start = data.len() - length;
                        (format!("bytes={start}-"), start, data.len())
                    }
                };
                let answer = request(address, Method::GET, "/film.mp4", &[("range", &range)]).await;
                assert_eq!(answer.status, StatusCode::PARTIAL_CONTENT);
                let said = format!("bytes {start}-{}/{}", end - 1, data.len());
                assert_eq!(answer.header("content-range"), said);
                assert!(answer.body == data[start..end], "seed {seed}, {range}: other bytes");
            }
        });
    }
    browsers.join_all().await;
    let whole = request(address, Method::GET, "/film.mp4", &[]).await;
    assert!(whole.status == StatusCode::OK && whole.body == data);
}

#[tokio::test]
async fn conditions_ranges_and_heads_are_those_of_http() {
    let (_server, client) = embedded(TransportChoice::Tcp).await;
    let data = Bytes::from(vec![7; 1000]);
    put(&client, client.root(), b"a.jpg", data.clone()).await.unwrap();
    put(&client, client.root(), b"empty", Bytes::new()).await.unwrap();
    let address = serve(&client, client.root()).await;
    let get = async |headers: &[(&str, &str)]| request(address, Method::GET, "/a.jpg", headers).await;

    let whole = get(&[]).await;
    assert_eq!((whole.status, &whole.body), (StatusCode::OK, &data));
    let told = ["content-type", "content-length", "accept-ranges", "x-content-type-options"];
    assert_eq!(told.map(|name| whole.header(name)), ["image/jpeg", "1000", "bytes", "nosniff"]);
    let (tag, modified) = (whole.header("etag"), whole.header("last-modified"));

    let head = request(address, Method::HEAD, "/a.jpg", &[]).await;
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (StatusCode::OK, "1000", 0));
    assert_eq!(head.header("etag"), tag);
    let post = request(address, Method::POST, "/a.jpg", &[]).await;
    assert_eq!(post.status, StatusCode::METHOD_NOT_ALLOWED);

    for (name, value, status) in [
        ("if-none-match", tag, 304),
        ("if-none-match", "*", 304),
        ("if-none-match", "\"other\"", 200),
        ("if-modified-since", modified, 304),
        ("if-modified-since", "Thu, 01 Jan 1998 00:00:00 GMT", 200),
        ("range", "bytes=1000-", 416),
        ("range", "bytes=-0", 416),
        ("range", "bytes=999-", 206),
        ("range", "bytes=-5000", 206),
        ("range", "bytes=0-18446744073709551615", 206),
        ("range", "bytes=0-1,5-6", 200),
        ("range", "bytes=9-1", 200),
        ("range", "pages=1-2", 200),
    ] {
        let answer = get(&[(name, value)]).await;
        assert_eq!(answer.status.as_u16(), status, "{name}: {value}");
        if status == 416 {
            assert_eq!(answer.header("content-range"), "bytes */1000");
        }
    }
    for (condition, status) in [(tag, 206), (modified, 206), ("\"other\"", 200)] {
        let answer = get(&[("range", "bytes=0-1"), ("if-range", condition)]).await;
        assert_eq!(answer.status.as_u16(), status, "{condition}");
    }
    // Another version has another tag.
    put(&client, client.root(), b"a.jpg", Bytes::from(vec![8; 1000])).await.unwrap();
    assert_eq!(get(&[("if-none-match", tag)]).await.body, vec![8; 1000]);
    let empty = request(address, Method::GET, "/empty", &[]).await;
    assert_eq!((empty.status, empty.header("content-length")), (StatusCode::OK, "0"));
}

#[tokio::test]
async fn every_link_of_a_page_leads_to_its_file_and_no_name_is_markup() {
    let (_server, client) = embedded(TransportChoice::Tcp).await;
    let names: [&[u8]; 8] = [
        b"<script>alert(1)<!--.png",
        b"\"><img src=x>.jpg",
        b"a b&amp;c.txt",
        b"100%41?x=1#y.mp4",
        b"http:.txt",
        "\u{fc}\u{1f640}.gif".as_bytes(),
        b"\xff\xfe",
        b"..%2f..",
    ];
    let folder = client.mkdir(client.root(), b"<b>", SetAttributes::default()).await.unwrap().handle;
    for name in names {
        put(&client, folder, name, Bytes::copy_from_slice(name)).await.unwrap();
    }
    client.symlink(folder, b"link.png", b"a b&amp;c.txt").await.unwrap();
    let address = serve(&client, client.root()).await;

    let top = request(address, Method::GET, "/", &[]).await;
    assert_eq!(links(&top), ["%3Cb%3E/"]);
    let moved = request(address, Method::GET, "/%3Cb%3E", &[]).await;
    assert_eq!((moved.status.as_u16(), moved.header("location")), (308, "/%3Cb%3E/"));
    let page = request(address, Method::GET, "/%3Cb%3E/", &[]).await;
    let text = String::from_utf8(page.body.to_vec()).unwrap();
    for markup in ["<script", "<img src=x", "<b>", "link.png"] {
        assert!(!text.contains(markup), "{markup} in {text}");
    }
    assert_eq!((text.matches("<img").count(), text.matches("<video").count()), (3, 1), "{text}");
    let mut found = Vec::new();
    for link in links(&page).iter().filter(|link| *link != "../") {
        let file = request(address, Method::GET, &format!("/%3Cb%3E/{link}"), &[]).await;
        assert_eq!(file.status, StatusCode::OK, "{link}");
        found.push(file.body.to_vec());
    }
    found.sort_unstable();
    let mut expected = names.map(<[u8]>::to_vec);
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn no_url_leads_out_of_the_root() {
    let (_server, client) = embedded(TransportChoice::Tcp).await;
    put(&client, client.root(), b"secret", Bytes::from_static(b"secret")).await.unwrap();
    let inside = client.mkdir(client.root(), b"inside", SetAttributes::default()).await.unwrap().handle;
    client.symlink(inside, b"link", b"../secret").await.unwrap();
    client.symlink(inside, b"up", b"..").await.unwrap();
    let address = serve(&client, inside).await;
    for path in [
        "/../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/%2e%2e%2fsecret",
        "//secret",
        "//",
        "/./secret",
        "/link",
        "/up/",
        "/up/secret",
        "/secret",
        "/a%00b",
        "/%2e%2e/",
    ] {
        let answer = request(address, Method::GET, path, &[]).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
    }
}

/// What a browser does not take is not read from the server; when it goes, its READs are cancelled.
#[tokio::test(flavor = "multi_thread")]
async fn a_browser_that_goes_away_takes_its_reads_along() {
    let (server, client) = embedded(TransportChoice::Tcp).await;
    let size = 64 * MIB;
    put(&client, client.root(), b"long.mp4", Bytes::from(vec![1; size])).await.unwrap();
    let address = serve(&client, client.root()).await;
    let read_bytes = || server.with_service(|service| service.stats().read_bytes);

    let mut body = begin(address, Method::GET, "/long.mp4", &[]).await.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(!first.is_empty());
    let stalled = settled(read_bytes).await;
    assert!(stalled < 24 * MIB as u64, "{stalled} bytes are read for a browser that takes none");
    drop(body);
    let gone = settled(read_bytes).await;
    assert!(gone - stalled < MIB as u64, "{} bytes are read for nobody", gone - stalled);
    assert_eq!(client.status().outstanding, 0);
    // Others are served.
    let other = request(address, Method::GET, "/long.mp4", &[("range", "bytes=0-9")]).await;
    assert_eq!(other.body, vec![1; 10]);
}

/// Waits until a counter stands still, and returns it.
async fn settled(counter: impl Fn() -> u64) -> u64 {
    let mut before = counter();
    loop {
        sleep(Duration::from_millis(300)).await;
        let now = counter();
        if now == before {
            return now;
        }
        before = now;
    }
}

async fn embedded(transport: TransportChoice) -> (Server, Client) {
    let service = Service::new(ServiceConfig::default(), Memory::default(), 1, Instant::now()).unwrap();
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), service).await.unwrap();
    let mut config = ClientConfig::default();
    config.transport = transport;
    config.portmap_port = server.local_addr().port();
    let client = Client::connect("127.0.0.1", b"/", config).await.unwrap();
    (server, client)
}

/// Runs a gallery on a port of its own.
async fn serve(client: &Client, root: FileHandle) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let gallery = gallery::router(client.clone(), root);
    tokio::spawn(async move { axum::serve(listener, gallery).await });
    address
}

/// Puts a file on the server.
async fn put(client: &Client, directory: FileHandle, name: &[u8], bytes: Bytes) -> Result<(), Error> {
    let spec = UploadSpec::new(
        directory,
        name.to_vec(),
        Placement::Temporary(b".part".to_vec()),
        bytes.len() as u64,
    );
    client.upload(spec, bytes, None).await.map(drop)
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

async fn request(address: SocketAddr, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
    let (head, body) = begin(address, method, path, headers).await.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answer { status: head.status, headers: head.headers, body }
}

/// Sends a request on a connection of its own, which lives as long as the answer's body.
async fn begin(
    address: SocketAddr,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
) -> hyper::Response<Incoming> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path).header(header::HOST, "gallery");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap()
}

/// The links of a page, as they are written.
fn links(page: &Answer) -> Vec<String> {
    let text = String::from_utf8(page.body.to_vec()).unwrap();
    let links = text.split("href=\"").skip(1);
    links.map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
}
