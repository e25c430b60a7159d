//! Copies of calls that the network delivers late, to a server without a duplicate request cache: they change nothing that came after
//! the call.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::Bytes;
use nfs_wireless_client::{
    Client, ClientConfig, File, Fs, OpenOptions, Placement, Procedure, SetAttributes, TransportChoice,
    UploadSpec,
};
use nfs_wireless_server::{Memory, Server, Service, ServiceConfig};
use tokio::{io::AsyncWriteExt, net::UdpSocket};

/// A network that keeps every call that sets or changes something.
struct Network {
    server: Server,
    client: Client,
    kept: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// The procedure of a call of NFS (RFC 5531 §9, with neither marks of a record nor a long credential before it).
fn procedure(datagram: &[u8]) -> Option<u32> {
    let word = |index: usize| {
        let bytes = datagram.get(index * 4..index * 4 + 4)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    };
    (word(1) == Some(0) && word(3) == Some(100_003)).then(|| word(5)).flatten()
}

async fn forward(network: UdpSocket, server: SocketAddr, kept: Arc<Mutex<Vec<Vec<u8>>>>) {
    let mut client = None;
    let mut buffer = vec![0; 65_536];
    while let Ok((length, from)) = network.recv_from(&mut buffer).await {
        let datagram = &buffer[..length];
        let to = if from == server { client } else { Some(server) };
        if from != server {
            client = Some(from);
            let changes = [Procedure::Setattr, Procedure::Create].map(|it| Some(it.number()));
            if changes.contains(&procedure(datagram)) {
                kept.lock().unwrap().push(datagram.to_vec());
            }
        }
        if let Some(to) = to {
            let _ = network.send_to(datagram, to).await;
        }
    }
}

impl Network {
    async fn new() -> Self {
        let mut config = ServiceConfig::default();
        config.reply_cache = None;
        let service = Service::new(config, Memory::default(), 1, Instant::now()).unwrap();
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), service).await.unwrap();
        let network = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mut config = ClientConfig::default();
        config.transport = TransportChoice::Udp;
        config.mount_port = Some(server.local_addr().port());
        config.nfs_port = Some(network.local_addr().unwrap().port());
        let kept = Arc::default();
        tokio::spawn(forward(network, server.local_addr(), Arc::clone(&kept)));
        let client = Client::connect("127.0.0.1", b"/", config).await.unwrap();
        Self { server, client, kept }
    }

    fn contents(&self, name: &str) -> Vec<u8> {
        self.server.with_service(|service| service.backend().read_file(name.as_bytes())).unwrap()
    }

    /// Delivers every call that was kept once more.
    async fn deliver_again(&self) {
        let served = || self.server.with_service(|service| service.stats().served.iter().sum::<u64>());
        let late = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let kept = self.kept.lock().unwrap().clone();
        assert!(!kept.is_empty(), "something was called");
        for datagram in kept {
            let before = served();
            late.send_to(&datagram, self.server.local_addr()).await.unwrap();
            let begun = Instant::now();
            while served() == before {
                assert!(begun.elapsed() < Duration::from_secs(20), "the server has run it");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
}

const LONG: &[u8] = b"what was there before, which is longer";

async fn fill(file: &mut File) {
    file.write_all(LONG).await.unwrap();
    file.sync_all().await.unwrap();
}

#[tokio::test]
async fn what_is_stable_is_not_cut_by_a_late_copy_of_what_set_the_size_before() {
    let network = Network::new().await;
    let (client, root) = (&network.client, network.client.root());
    let fs = Fs::new(client.clone(), "/");

    let mut cut = fs.create("cut").await.unwrap();
    fill(&mut cut).await;
    cut.set_len(4).await.unwrap();
    fill(&mut cut).await;

    let mut emptied = fs.create("emptied").await.unwrap();
    fill(&mut emptied).await;
    let mut emptied =
        OpenOptions::new().write(true).truncate(true).create(true).open(&fs, "emptied").await.unwrap();
    fill(&mut emptied).await;

    let empty = SetAttributes { size: Some(0), ..SetAttributes::default() };
    let made = client.create(root, b"made", empty).await.unwrap();
    fill(&mut File::new(client.clone(), made.handle)).await;
    let again = client.create(root, b"made", empty).await.unwrap();
    assert_eq!((again.handle, again.metadata.size), (made.handle, 0));
    fill(&mut File::new(client.clone(), made.handle)).await;

    for name in [&b"in place"[..], b"in place"] {
        let spec = UploadSpec::new(root, name.to_vec(), Placement::InPlace, 4);
        client.upload(spec, Bytes::from_static(b"1234"), None).await.unwrap();
        let there = client.lookup(root, name).await.unwrap().handle;
        fill(&mut File::new(client.clone(), there)).await;
    }

    network.deliver_again().await;
    // What was written before the cut stays as long as it was, for the position does.
    let cut = [&LONG[..4], &vec![0; LONG.len() - 4], LONG].concat();
    for (name, expected) in [("/cut", &cut[..]), ("/emptied", LONG), ("/made", LONG), ("/in place", LONG)] {
        assert_eq!(network.contents(name), expected, "{name}");
    }
}
