//! The link on real sockets of the loopback interface.

use std::{
    collections::BTreeSet,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use linkemu::{
    Channel, ChannelConfig, ChannelState, DatagramRecord, Fate, LinkConfig, Observer, Shape,
    proxy::{Forward, Proxy, ProxyConfig, ProxyError, ProxyHandle},
};
use tokio::{net::UdpSocket, time::timeout};

use crate::common::open;

const PATIENCE: Duration = Duration::from_secs(20);

/// Answers every datagram with itself, and remembers who asked.
async fn echo() -> (SocketAddr, Arc<Mutex<Vec<SocketAddr>>>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
    let address = socket.local_addr().expect("a bound socket");
    let peers = Arc::new(Mutex::new(Vec::new()));
    let seen = peers.clone();
    tokio::spawn(async move {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let (length, peer) = socket.recv_from(&mut buffer).await.expect("the echo socket works");
            seen.lock().expect("no panic in the echo").push(peer);
            socket.send_to(&buffer[..length], peer).await.expect("the echo socket works");
        }
    });
    (address, peers)
}

/// A running proxy in front of `servers`; its listening addresses in the same order.
async fn start(
    link: LinkConfig,
    servers: &[SocketAddr],
    observer: Option<Box<dyn Observer>>,
) -> (Vec<SocketAddr>, ProxyHandle) {
    let mut config = ProxyConfig::new(link, 7);
    for &to in servers {
        config.forwards.push(Forward { listen: "127.0.0.1:0".parse().expect("an address"), to });
    }
    let mut proxy = Proxy::bind(config).await.expect("a proxy");
    if let Some(observer) = observer {
        proxy.observe(observer);
    }
    let addresses = proxy.local_addresses().expect("bound sockets");
    let handle = proxy.handle();
    tokio::spawn(proxy.run());
    (addresses, handle)
}

async fn ask(socket: &UdpSocket, to: SocketAddr, bytes: &[u8]) -> io::Result<Vec<u8>> {
    socket.send_to(bytes, to).await?;
    let mut buffer = vec![0; 1 << 16];
    let (length, from) = timeout(PATIENCE, socket.recv_from(&mut buffer)).await??;
    assert_eq!(from, to, "answers come from the address that was asked");
    buffer.truncate(length);
    Ok(buffer)
}

async fn client() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").await.expect("a free port")
}

#[tokio::test]
async fn datagrams_cross_unchanged_and_no_earlier_than_the_link_lets_them() {
    let (server, _) = echo().await;
    let (addresses, handle) = start(LinkConfig::default(), &[server], None).await;
    let client = client().await;
    for size in [0, 1, 1472, 5000] {
        let bytes: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
        let start = tokio::time::Instant::now();
        assert_eq!(ask(&client, addresses[0], &bytes).await.expect("an answer"), bytes);
        let least = 2 * (LinkConfig::default().air_time(size) + Duration::from_millis(1));
        assert!(start.elapsed() >= least, "{size} B in {:?}", start.elapsed());
    }
    let stats = handle.stats().await.expect("a running proxy");
    assert_eq!((stats.link.stats.delivered(), stats.link.stats.lost(), stats.unsent), (8, 0, 0));
    assert_eq!((stats.clients, stats.lateness.count()), (1, 8));
    assert!(stats.to_json().contains("\"datagrams\":8"), "{}", stats.to_json());
    handle.stop().await;
    assert_eq!(handle.stats().await, None);
}

#[tokio::test]
async fn every_client_keeps_one_port_of_its_own_towards_the_server() {
    let (server, peers) = echo().await;
    let (addresses, handle) = start(open(), &[server], None).await;
    let clients = [client().await, client().await, client().await];
    for round in 0..5_u8 {
        for (number, client) in clients.iter().enumerate() {
            let bytes = [round, number as u8];
            assert_eq!(ask(client, addresses[0], &bytes).await.expect("an answer"), bytes);
        }
    }
    let seen = peers.lock().expect("no panic in the echo").clone();
    assert_eq!(seen.len(), 15);
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 3, "{seen:?}");
    assert!(seen.chunks(3).all(|round| round == &seen[..3]), "{seen:?}");
    assert_eq!(handle.stats().await.expect("a running proxy").clients, 3);
}

/// The server listens on an address where the port of the client is free.
#[cfg(all(target_os = "linux", not(portable_only)))]
#[tokio::test]
async fn the_port_number_of_the_client_is_kept_where_it_is_free() {
    let (server, peers) = echo().await;
    let (addresses, _handle) = start(open(), &[server], None).await;
    // The proxy speaks to the server from 127.0.0.1; this client has its port on another address.
    let client = UdpSocket::bind("127.0.0.9:0").await.expect("a free port");
    ask(&client, addresses[0], b"hello").await.expect("an answer");
    let ours = client.local_addr().expect("a bound socket").port();
    assert_eq!(peers.lock().expect("no panic in the echo")[0].port(), ours);
}

/// Two ports, one medium: what one sends, the other waits for.
#[tokio::test]
async fn all_forwarded_ports_share_the_medium() {
    let (first, _) = echo().await;
    let (second, _) = echo().await;
    let (addresses, handle) = start(LinkConfig::default(), &[first, second], None).await;
    let (bulk, small) = (client().await, client().await);
    // 30 kB is 245 ms of air; the small datagram queues behind it at the mobile, which both are.
    bulk.send_to(&[0; 30_000], addresses[0]).await.expect("a socket");
    tokio::time::sleep(Duration::from_millis(20)).await;
    let start = tokio::time::Instant::now();
    ask(&small, addresses[1], b"after you").await.expect("an answer");
    assert!(start.elapsed() > Duration::from_millis(150), "{:?}", start.elapsed());
    assert_eq!(handle.stats().await.expect("a running proxy").link.queue_packets.len(), 2);
}

#[derive(Clone, Default)]
struct Records(Arc<Mutex<Vec<DatagramRecord>>>);

impl Observer for Records {
    fn datagram(&mut self, record: &DatagramRecord, _payload: &Bytes) {
        self.0.lock().expect("no panic while recording").push(record.clone());
    }
}

/// The fades that real datagrams meet are those of the seed, counted from the first datagram.
#[tokio::test]
async fn the_fades_of_a_seed_are_the_same_on_real_sockets() {
    let mut link = open();
    let (good, bad) = (Duration::from_millis(30), Duration::from_millis(20));
    link.channel = ChannelConfig::alternating(Shape::Uniform, good, bad);
    let mut channel = Channel::new(&link.channel, 7, 0).expect("a valid channel");
    let (server, _) = echo().await;
    let records = Records::default();
    let (addresses, handle) = start(link, &[server], Some(Box::new(records.clone()))).await;
    let client = client().await;
    for _ in 0..400 {
        client.send_to(b"ping", addresses[0]).await.expect("a socket");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    handle.stop().await;
    let records = records.0.lock().expect("no panic while recording");
    assert_eq!(records[0].offered, Duration::ZERO);
    let (mut lost, mut delivered) = (0, 0);
    for record in records.iter() {
        let expected = match channel.state(record.offered) {
            ChannelState::Good => Fate::Delivered,
            ChannelState::Bad => Fate::Channel,
        };
        assert_eq!(record.fate, expected, "{record:?}");
        lost += u32::from(record.fate == Fate::Channel);
        delivered += u32::from(record.fate == Fate::Delivered);
    }
    assert!(lost > 50 && delivered > 50, "{lost} lost, {delivered} delivered");
}

#[tokio::test]
async fn clients_beyond_the_bound_are_refused_and_idle_ones_forgotten() {
    let (server, _) = echo().await;
    let mut config = ProxyConfig::new(open(), 1);
    config.forwards.push(Forward { listen: "127.0.0.1:0".parse().expect("an address"), to: server });
    config.most_clients = 1;
    config.idle = Duration::from_millis(500);
    let proxy = Proxy::bind(config).await.expect("a proxy");
    let address = proxy.local_addresses().expect("bound sockets")[0];
    let handle = proxy.handle();
    tokio::spawn(proxy.run());
    let (first, second) = (client().await, client().await);
    // Whoever comes back keeps the place.
    for _ in 0..2 {
        ask(&first, address, b"in").await.expect("an answer");
    }
    second.send_to(b"out", address).await.expect("a socket");
    let waited = tokio::time::Instant::now();
    let mut buffer = [0; 16];
    // The second gets in once the first has been silent for half a second and the next sweep has come.
    loop {
        second.send_to(b"in", address).await.expect("a socket");
        match timeout(Duration::from_millis(200), second.recv_from(&mut buffer)).await {
            Ok(answer) => break assert_eq!(answer.expect("a socket").0, 2),
            Err(_) => assert!(waited.elapsed() < PATIENCE, "the first was never forgotten"),
        }
    }
    let stats = handle.stats().await.expect("a running proxy");
    assert!(stats.refused >= 1);
    assert_eq!(stats.clients, 1);
}

#[tokio::test]
async fn addresses_that_never_come_back_keep_nobody_out() {
    let (server, _) = echo().await;
    let mut config = ProxyConfig::new(open(), 1);
    config.forwards.push(Forward { listen: "127.0.0.1:0".parse().expect("an address"), to: server });
    config.most_clients = 8;
    let proxy = Proxy::bind(config).await.expect("a proxy");
    let address = proxy.local_addresses().expect("bound sockets")[0];
    let handle = proxy.handle();
    tokio::spawn(proxy.run());
    let regular = client().await;
    for _ in 0..2 {
        ask(&regular, address, b"regular").await.expect("an answer");
    }
    // As from forged addresses: each sends once.
    let mut strangers = Vec::new();
    for _ in 0..32 {
        let stranger = client().await;
        stranger.send_to(b"once", address).await.expect("a socket");
        strangers.push(stranger);
    }
    let newcomer = client().await;
    assert_eq!(ask(&newcomer, address, b"new").await.expect("an answer"), b"new");
    assert_eq!(ask(&regular, address, b"old").await.expect("an answer"), b"old");
    let stats = handle.stats().await.expect("a running proxy");
    assert_eq!((stats.clients, stats.refused), (8, 0));
}

#[tokio::test]
async fn a_proxy_that_cannot_start_says_why() {
    let nothing = Proxy::bind(ProxyConfig::new(open(), 1)).await.expect_err("no forward");
    assert!(matches!(nothing, ProxyError::NoForward));

    let taken = client().await;
    let address = taken.local_addr().expect("a bound socket");
    let mut config = ProxyConfig::new(open(), 1);
    config.forwards.push(Forward { listen: address, to: address });
    let error = Proxy::bind(config).await.expect_err("the port is taken").to_string();
    assert_eq!(error, format!("cannot listen on {address}"));

    let mut link = open();
    link.mtu_bytes = 1;
    let mut config = ProxyConfig::new(link, 1);
    config.forwards.push(Forward { listen: "127.0.0.1:0".parse().expect("an address"), to: address });
    let error = Proxy::bind(config).await.expect_err("no such MTU").to_string();
    assert_eq!(error, "mtu_bytes is 1, but must be 68 to 65535");
}
