//! A client that may choose its transport, behind a relay that treats UDP and TCP differently.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    io::ErrorKind,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::embedded::serve;
use nfs_wireless_client::{
    Client, ClientConfig, Observer, Placement, Protocol, Sink, TransportChoice, UploadSpec,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UdpSocket},
    task::JoinSet,
    time::{sleep, timeout},
};

/// Bytes of one READ of a test.
const READ: u32 = 16 << 10;

/// What the relay does.
#[derive(Clone, Copy)]
struct Rules {
    /// Largest datagram let through, either way: a filter of fragments.
    largest_datagram: usize,
    /// CREATE calls over UDP are lost for so long.
    lost_creates: Duration,
    /// GETATTR calls over UDP are lost.
    loses_getattr: bool,
    /// Bytes per second of datagrams: a policer.
    datagram_rate: Option<u64>,
    /// Bytes per second at which the server's datagrams leave a queue, none lost.
    queue_rate: Option<f64>,
    /// How late TCP connections are served that are made within this time, those to MOUNT and NFS: UDP has answered by then.
    first_streams_late: Duration,
    /// Delay of what the server sends over TCP, as of a link of some length.
    delay: Duration,
    /// The first two bring so many bytes from the server and no more; they stay open.
    first_streams_bytes: u64,
    /// Pause after every 64 KiB that a client sends over TCP.
    up_pause: Duration,
}

const OPEN: Rules = Rules {
    largest_datagram: usize::MAX,
    lost_creates: Duration::ZERO,
    loses_getattr: false,
    datagram_rate: None,
    queue_rate: None,
    first_streams_late: Duration::ZERO,
    delay: Duration::ZERO,
    first_streams_bytes: u64::MAX,
    up_pause: Duration::ZERO,
};

/// A relay between clients and a server on one port of both transports; it ends when this is dropped.
struct Relay {
    address: SocketAddr,
    streams: Arc<AtomicU64>,
    /// Bytes from the server over TCP.
    stream_bytes: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl Relay {
    async fn start(server: SocketAddr, rules: Rules) -> Self {
        let (stream, datagrams) = loop {
            let stream = TcpListener::bind("127.0.0.1:0").await.unwrap();
            match UdpSocket::bind(stream.local_addr().unwrap()).await {
                Ok(datagrams) => break (stream, datagrams),
                Err(error) => assert_eq!(error.kind(), ErrorKind::AddrInUse),
            }
        };
        let address = stream.local_addr().unwrap();
        let [streams, stream_bytes] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        tasks.spawn(relay_streams(stream, server, rules, Arc::clone(&streams), Arc::clone(&stream_bytes)));
        tasks.spawn(relay_datagrams(datagrams, server, rules));
        Self { address, streams, stream_bytes, _tasks: tasks }
    }

    async fn client(&self, transport: TransportChoice) -> Client {
        let mut config = ClientConfig::default();
        config.transport = transport;
        (config.nfs_port, config.mount_port) = (Some(self.address.port()), Some(self.address.port()));
        Client::connect("127.0.0.1", b"/", config).await.unwrap()
    }
}

async fn relay_streams(
    listener: TcpListener,
    server: SocketAddr,
    rules: Rules,
    count: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
) {
    let mut tasks = JoinSet::new();
    let started = Instant::now();
    while let Ok((near, _)) = listener.accept().await {
        let is_early = started.elapsed() < rules.first_streams_late;
        let is_first = count.fetch_add(1, Ordering::Relaxed) < 2;
        let bytes = Arc::clone(&bytes);
        tasks.spawn(async move {
            if is_early {
                sleep(rules.first_streams_late).await;
            }
            let far = TcpStream::connect(server).await.unwrap();
            let (mut from_client, mut to_client) = near.into_split();
            let (mut from_server, mut to_server) = far.into_split();
            let up = async move {
                let mut buffer = vec![0; 64 << 10];
                loop {
                    let count = from_client.read(&mut buffer).await?;
                    if count == 0 {
                        return Ok::<(), std::io::Error>(());
                    }
                    to_server.write_all(&buffer[..count]).await?;
                    sleep(rules.up_pause).await;
                }
            };
            let down = async move {
                let mut left = if is_first { rules.first_streams_bytes } else { u64::MAX };
                let mut buffer = vec![0; 64 << 10];
                loop {
                    let count = from_server.read(&mut buffer).await?;
                    if count == 0 {
                        return Ok::<(), std::io::Error>(());
                    }
                    if left < count as u64 {
                        return std::future::pending().await;
                    }
                    left -= count as u64;
                    bytes.fetch_add(count as u64, Ordering::Relaxed);
                    sleep(rules.delay).await;
                    to_client.write_all(&buffer[..count]).await?;
                }
            };
            let _ = tokio::join!(up, down);
        });
    }
}

async fn relay_datagrams(near: UdpSocket, server: SocketAddr, rules: Rules) {
    let near = Arc::new(near);
    let mut clients: BTreeMap<SocketAddr, Arc<UdpSocket>> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    let mut buffer = vec![0; 1 << 16];
    let started = Instant::now();
    loop {
        let Ok((length, client)) = near.recv_from(&mut buffer).await else { continue };
        if let Entry::Vacant(new) = clients.entry(client) {
            let far = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
            far.connect(server).await.unwrap();
            new.insert(Arc::clone(&far));
            let near = Arc::clone(&near);
            tasks.spawn(async move {
                let mut buffer = vec![0; 1 << 16];
                let started = Instant::now();
                let mut sent = 0;
                while let Ok(length) = far.recv(&mut buffer).await {
                    let allowed =
                        rules.datagram_rate.map(|rate| rate as f64 * started.elapsed().as_secs_f64());
                    let policed = allowed.is_some_and(|allowed| (sent + length) as f64 > allowed + 65536.0);
                    if length <= rules.largest_datagram && !policed {
                        sent += length;
                        if let Some(rate) = rules.queue_rate {
                            sleep(Duration::from_secs_f64(length as f64 / rate)).await;
                        }
                        let _ = near.send_to(&buffer[..length], client).await;
                    }
                }
            });
        }
        let datagram = &buffer[..length];
        let lost = is_call(datagram, 8) && started.elapsed() < rules.lost_creates
            || is_call(datagram, 1) && rules.loses_getattr;
        if length <= rules.largest_datagram && !lost {
            let _ = clients[&client].send(&buffer[..length]).await;
        }
    }
}

/// Whether this is a call of a procedure of NFS (RFC 5531 §9, RFC 1813 §3.3).
fn is_call(datagram: &[u8], procedure: u32) -> bool {
    let word =
        |at: usize| datagram.get(4 * at..4 * at + 4).map(|it| u32::from_be_bytes(it.try_into().unwrap()));
    (word(1), word(3), word(5)) == (Some(0), Some(100_003), Some(procedure))
}

/// A file in memory.
#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Sink for Buffer {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        let mut buffer = self.0.lock().unwrap();
        let end = offset as usize + bytes.len();
        if buffer.len() < end {
            buffer.resize(end, 0);
        }
        buffer[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }
}

fn content(size: usize) -> Vec<u8> {
    (0..size as u32 / 4).flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

async fn upload(client: &Client, name: &[u8], bytes: &[u8]) {
    upload_watched(client, name, bytes, None).await;
}

async fn upload_watched(client: &Client, name: &[u8], bytes: &[u8], observer: Option<Observer>) {
    let mut source = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut source, bytes).unwrap();
    let spec = UploadSpec::new(
        client.root(),
        name.to_vec(),
        Placement::Temporary([b".", name].concat()),
        bytes.len() as u64,
    );
    client.upload(spec, source, observer).await.unwrap();
}

async fn download(client: &Client, name: &[u8]) -> Vec<u8> {
    let file = client.lookup(client.root(), name).await.unwrap();
    let buffer = Buffer::default();
    let counted = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&counted);
    let observer = Arc::new(move |bytes| {
        count.fetch_add(bytes, Ordering::Relaxed);
    });
    client.download(file.handle, file.metadata.size, buffer.clone(), Some(observer)).await.unwrap();
    assert_eq!(counted.load(Ordering::Relaxed), file.metadata.size, "what comes twice counts once");
    std::mem::take(&mut buffer.0.lock().unwrap())
}

#[tokio::test]
async fn reads_and_writes_that_udp_does_not_carry_take_tcp() {
    let server = serve().await;
    let rules = Rules { largest_datagram: 600, first_streams_late: Duration::from_millis(600), ..OPEN };
    let relay = Relay::start(server.local_addr(), rules).await;
    let client = relay.client(TransportChoice::Auto).await;
    assert_eq!(client.transports().map(|(protocol, _)| protocol), [Protocol::Udp; 2]);
    let bytes = content(300_000);
    upload(&client, b"a", &bytes).await;
    assert_eq!(client.transports()[1].0, Protocol::Tcp, "{:?}", client.transports());
    assert!(download(&client, b"a").await == bytes);
    assert_eq!(client.transports()[0].0, Protocol::Tcp, "{:?}", client.transports());
    assert!(download(&client, b"a").await == bytes);
}

/// The upload would rather be on TCP, but nobody knows whether its file was made.
#[tokio::test]
async fn a_call_that_must_not_be_made_twice_keeps_an_upload_where_it_is() {
    let server = serve().await;
    let lost_creates = Duration::from_secs(6);
    let rules = Rules { lost_creates, first_streams_late: Duration::from_millis(600), ..OPEN };
    let relay = Relay::start(server.local_addr(), rules).await;
    let client = relay.client(TransportChoice::Auto).await;
    assert_eq!(client.transports()[1].0, Protocol::Udp);
    let (bytes, started) = (content(300_000), Instant::now());
    upload(&client, b"a", &bytes).await;
    assert!(started.elapsed() > Duration::from_secs(4), "CREATE was not lost");
    assert!(download(&client, b"a").await == bytes);
}

#[tokio::test]
async fn what_one_connection_owes_comes_over_another() {
    let server = serve().await;
    let rules = Rules { delay: Duration::from_millis(3), first_streams_bytes: 1_000_000, ..OPEN };
    let relay = Relay::start(server.local_addr(), rules).await;
    let bytes = content(8 << 20);
    upload(&Relay::start(server.local_addr(), OPEN).await.client(TransportChoice::Tcp).await, b"a", &bytes)
        .await;
    let client = relay.client(TransportChoice::Tcp).await;
    assert!(download(&client, b"a").await == bytes);
    let streams = relay.streams.load(Ordering::Relaxed);
    assert!((3..=5).contains(&streams), "{streams} connections, the first of them to MOUNT");
}

/// Both calls need the other transport. The first begins to connect, and then nobody polls it.
#[tokio::test]
async fn a_future_that_is_not_polled_keeps_nobody_from_a_connection() {
    let server = serve().await;
    let first_streams_late = Duration::from_secs(3);
    let relay =
        Relay::start(server.local_addr(), Rules { loses_getattr: true, first_streams_late, ..OPEN }).await;
    let client = relay.client(TransportChoice::Auto).await;
    assert_eq!(client.protocol(), Protocol::Udp);
    let root = client.root();
    let mut first = Box::pin(client.metadata(root));
    assert!(timeout(Duration::from_millis(1500), &mut first).await.is_err(), "it connects");
    timeout(Duration::from_secs(30), client.metadata(root)).await.expect("it need not wait").unwrap();
    timeout(Duration::from_secs(30), first).await.expect("nor does the first").unwrap();
}

/// Calls that wait behind others of their kind are late, not lost: the other transport has the same link.
#[tokio::test]
async fn calls_in_a_long_queue_are_not_made_over_the_other_transport() {
    let server = serve().await;
    let bytes = content(10 * READ as usize);
    let direct = Relay::start(server.local_addr(), OPEN).await;
    upload(&direct.client(TransportChoice::Tcp).await, b"a", &bytes).await;
    let rules = Rules { queue_rate: Some(50e3), first_streams_late: Duration::from_millis(600), ..OPEN };
    let relay = Relay::start(server.local_addr(), rules).await;
    let client = Arc::new(relay.client(TransportChoice::Auto).await);
    assert_eq!(client.protocol(), Protocol::Udp);
    let file = client.lookup(client.root(), b"a").await.unwrap().handle;
    let mut reads = JoinSet::new();
    for number in 0..10 {
        let client = Arc::clone(&client);
        reads.spawn(
            async move { (number, client.read(file, number * u64::from(READ), READ).await.unwrap().0) },
        );
    }
    while let Some(read) = reads.join_next().await {
        let (number, read) = read.unwrap();
        let at = number as usize * READ as usize;
        assert!(read == bytes[at..at + READ as usize]);
    }
    let over_tcp = relay.stream_bytes.load(Ordering::Relaxed);
    assert!(over_tcp < u64::from(READ), "{over_tcp} bytes came over TCP");
}

/// A message of which a part has left needs its end, whoever has lost interest in it.
#[tokio::test]
async fn uploads_that_are_stopped_leave_the_connection_to_the_others() {
    let server = serve().await;
    let relay = Relay::start(server.local_addr(), Rules { up_pause: Duration::from_millis(2), ..OPEN }).await;
    let client = relay.client(TransportChoice::Tcp).await;
    let streams = relay.streams.load(Ordering::Relaxed);
    let bytes = content(8 << 20);
    let (client, bytes) = (Arc::new(client), Arc::new(bytes));
    let spawn = |number: usize| {
        let (client, bytes) = (Arc::clone(&client), Arc::clone(&bytes));
        tokio::spawn(async move { upload(&client, format!("{number}").as_bytes(), &bytes).await })
    };
    let stopped: Vec<_> = (0..8).map(spawn).collect();
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let observer: Observer = Arc::new(move |bytes| {
        counted.fetch_add(bytes, Ordering::Relaxed);
    });
    let last = async {
        upload_watched(&client, b"last", &bytes, Some(observer)).await;
    };
    let stops = async {
        while count.load(Ordering::Relaxed) == 0 {
            sleep(Duration::from_millis(5)).await;
        }
        // One after the other: some are in the middle of a message then.
        for task in stopped {
            task.abort();
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::join!(last, stops);
    assert_eq!(relay.streams.load(Ordering::Relaxed), streams, "a connection was made again");
    assert_eq!(client.status().stats.resends.reconnect, 0);
    assert!(download(&client, b"last").await == *bytes);
}

#[tokio::test]
async fn a_short_copy_over_a_fast_path_is_remembered_for_tcp() {
    let server = serve().await;
    let relay = Relay::start(server.local_addr(), OPEN).await;
    let client = relay.client(TransportChoice::Udp).await;
    let bytes = content(4 << 20);
    upload(&client, b"a", &bytes).await;
    assert!(download(&client, b"a").await == bytes);
    let path = client.status().path_estimate.unwrap();
    assert_eq!(
        path.fast,
        (path.mean_fade.is_zero() && path.rate >= f64::from(8 << 20)).then_some(path.rate),
        "{path:?}"
    );
}

/// Takes a quarter of a minute: the first comparison is made after 8 s.
#[tokio::test]
#[ignore = "as long as a comparison of transports takes"]
async fn a_policer_of_udp_is_noticed_in_the_middle_of_a_file() {
    let server = serve().await;
    let rules = Rules {
        datagram_rate: Some(1 << 20),
        first_streams_late: Duration::from_millis(600),
        delay: Duration::from_millis(5),
        ..OPEN
    };
    let bytes = content(48 << 20);
    upload(&Relay::start(server.local_addr(), OPEN).await.client(TransportChoice::Tcp).await, b"a", &bytes)
        .await;
    let relay = Relay::start(server.local_addr(), rules).await;
    let client = relay.client(TransportChoice::Auto).await;
    assert_eq!(client.protocol(), Protocol::Udp);
    let started = Instant::now();
    assert!(download(&client, b"a").await == bytes);
    println!("{:.1} s: {:?}", started.elapsed().as_secs_f64(), client.transports()[0]);
    assert_eq!(client.protocol(), Protocol::Tcp);
}
