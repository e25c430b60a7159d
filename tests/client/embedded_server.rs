//! The asynchronous client against the embedded server on real sockets: ports, addresses, every procedure.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use nfs_wireless_client::{
    BlockSize, Client, ClientConfig, Error, File, FileType, KnownServer, NfsStatus, Pinger, Protocol,
    RetryPolicy, SetAttributes, SetTime, SpecialFile, Stability, Time, TransportChoice,
};
use nfs_wireless_server::{
    Action, Calls, Directory, DirectoryConfig, Faults, Memory, Rule, Server, Service, ServiceConfig, When,
};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

const TRANSPORTS: [(TransportChoice, Protocol); 3] = [
    (TransportChoice::Udp, Protocol::Udp),
    (TransportChoice::Tcp, Protocol::Tcp),
    (TransportChoice::Auto, Protocol::Tcp),
];

async fn serve(listen: &str) -> Server {
    let service = Service::new(ServiceConfig::default(), Memory::default(), 1, Instant::now()).unwrap();
    Server::bind(listen.parse().unwrap(), service).await.unwrap()
}

/// Finds the server by its port mapper alone.
fn by_port_mapper(address: SocketAddr, transport: TransportChoice) -> ClientConfig {
    let mut config = ClientConfig::default();
    config.transport = transport;
    config.portmap_port = address.port();
    config
}

async fn connect(server: &Server, transport: TransportChoice) -> Client {
    let address = server.local_addr();
    let config = by_port_mapper(address, transport);
    Client::connect(&address.ip().to_string(), b"/", config).await.unwrap()
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..Default::default() }
}

#[tokio::test]
async fn what_is_known_of_a_server_is_asked_first_and_not_believed() {
    let server = serve("127.0.0.1:0").await;
    let address = server.local_addr();
    // Nobody asks the port mapper of this one.
    let known = connect(&server, TransportChoice::Auto).await.known();
    let mut config = ClientConfig::default();
    (config.portmap_port, config.known) = (1, Some(known.clone()));
    let client = Client::connect("127.0.0.1", b"/", config).await.unwrap();
    assert_eq!((client.address(), client.known()), (address, known.clone()));

    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    // It takes what comes, and never answers.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let queue = std::net::TcpListener::bind(silent.local_addr().unwrap()).unwrap();
    let silent = queue.local_addr().unwrap().port();
    for (port, export) in [(closed, &b"/"[..]), (silent, b"/"), (address.port(), b"/else/where")] {
        let wrong = KnownServer::new(port, (Protocol::Udp, port), export.to_vec());
        let mut config = by_port_mapper(address, TransportChoice::Auto);
        config.known = Some(wrong);
        let client = Client::connect("127.0.0.1", b"/", config).await.unwrap();
        assert_eq!((client.address(), client.known().export), (address, b"/".to_vec()), "{port}");
    }
}

#[tokio::test]
async fn names_are_looked_up_all_at_once_in_directories_that_may_be_wrong() {
    let server = serve("127.0.0.1:0").await;
    let client = connect(&server, TransportChoice::Auto).await;
    let inner = client.mkdir(client.root(), b"inner", mode(0o755)).await.unwrap();
    let gone = client.mkdir(client.root(), b"gone", mode(0o755)).await.unwrap();
    client.rmdir(client.root(), b"gone").await.unwrap();
    let file = client.create(inner.handle, b"file", mode(0o644)).await.unwrap();
    let places =
        [(client.root(), &b"inner"[..]), (inner.handle, b"file"), (inner.handle, b"no"), (gone.handle, b"x")];
    let mut found = client.look_up_all(places.map(|(place, name)| (place, name.to_vec())).into()).await;
    let mut status = |(place, name)| found.take(place, name).unwrap().map_err(|error| error.status());
    assert_eq!(status(places[0]).unwrap().handle, inner.handle);
    assert_eq!(status(places[1]).unwrap().handle, file.handle);
    assert_eq!(status(places[2]), Err(Some(NfsStatus::NOENT)));
    assert_eq!(status(places[3]), Err(Some(NfsStatus::STALE)));
    assert!(found.take(inner.handle, b"file").is_none(), "once");
    assert!(found.take(inner.handle, b"other").is_none(), "it was not asked");
}

#[tokio::test]
async fn names_of_a_known_path_are_looked_up_while_the_client_connects() {
    let server = serve("127.0.0.1:0").await;
    for transport in [TransportChoice::Udp, TransportChoice::Tcp] {
        let client = connect(&server, transport).await;
        let inner = client.create(client.root(), b"inner", mode(0o644)).await.unwrap();
        client.remove(client.root(), b"inner").await.unwrap();
        let gone = inner.handle;
        let inner = client.mkdir(client.root(), b"inner", mode(0o755)).await.unwrap().handle;
        let file = client.create(inner, b"file", mode(0o644)).await.unwrap().handle;
        let places = [(client.root(), &b"inner"[..]), (inner, b"file"), (inner, b"no"), (gone, b"x")];
        let up = (inner, &b".."[..]);
        let mut known = client.known();
        known.names = places.into_iter().chain([up]).map(|(place, name)| (place, name.to_vec())).collect();
        // They are waited for no longer than a connection takes anyway, which a busy machine may exceed.
        for attempt in 1.. {
            assert!(attempt <= 50, "{transport:?}: never answered in time");
            let mut config = by_port_mapper(server.local_addr(), transport);
            config.known = Some(known.clone());
            let again = Client::connect("127.0.0.1", b"/", config).await.unwrap();
            let mut looked_up = again.take_looked_up();
            if !places.iter().all(|(place, name)| looked_up.was_answered(*place, name)) {
                continue;
            }
            let mut handle = |(place, name)| looked_up.take(place, name).map(|found| found.unwrap().handle);
            assert_eq!(places.map(&mut handle), [Some(inner), Some(file), None, None], "{transport:?}");
            assert_eq!(handle(up), None, "a name that leads back is not believed");
            assert!(!again.take_looked_up().was_answered(inner, b"file"), "once");
            break;
        }
        client.remove(inner, b"file").await.unwrap();
        client.rmdir(client.root(), b"inner").await.unwrap();
    }
}

#[tokio::test]
async fn the_port_mapper_leads_to_the_service_on_ipv4_and_ipv6() {
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let server = serve(listen).await;
        let address = server.local_addr();
        for (transport, protocol) in TRANSPORTS {
            let client = connect(&server, transport).await;
            assert_eq!((client.address(), client.protocol()), (address, protocol));
            assert!(client.null().await.unwrap() < Duration::from_secs(5));
            let exports =
                Client::exports(&address.ip().to_string(), by_port_mapper(address, transport)).await;
            assert_eq!(exports.unwrap()[0].directory, b"/");
            let pinger = Pinger::connect(&address.ip().to_string(), by_port_mapper(address, transport)).await;
            assert_eq!(pinger.unwrap().ping().await.unwrap().1, 1);
        }
    }
}

#[tokio::test]
async fn every_procedure_does_what_it_says() {
    let server = serve("127.0.0.1:0").await;
    for (transport, _) in TRANSPORTS {
        let client = connect(&server, transport).await;
        let root = client.root();
        let directory = client.mkdir(root, b"directory", mode(0o750)).await.unwrap();
        assert_eq!((directory.metadata.file_type, directory.metadata.mode), (FileType::Directory, 0o750));
        let inside = directory.handle;

        let file = client.create_new(inside, b"file", mode(0o640)).await.unwrap();
        let error = client.create_new(inside, b"file", mode(0o640)).await.unwrap_err();
        assert_eq!(error.status(), Some(NfsStatus::EXIST));
        let written = client.write(file.handle, 3, b"data", Stability::Unstable).await.unwrap();
        assert_eq!((written.count, written.stability), (4, Stability::Unstable));
        assert_eq!(client.commit(file.handle, 0, 0).await.unwrap(), written.verifier);
        let (data, eof) = client.read(file.handle, 0, 100).await.unwrap();
        assert_eq!((&data[..], eof), (&b"\0\0\0data"[..], true));

        let time = Time { seconds: 1_000_000_000, nanoseconds: 7 };
        let attributes = SetAttributes { size: Some(5), mtime: Some(SetTime::To(time)), ..mode(0o600) };
        client.set_attributes(file.handle, attributes).await.unwrap();
        let metadata = client.metadata(file.handle).await.unwrap();
        assert_eq!((metadata.size, metadata.mtime, metadata.mode), (5, time, 0o600));
        assert_eq!(client.access(file.handle, 0x3f).await.unwrap() & 1, 1);

        client.hard_link(file.handle, inside, b"second name").await.unwrap();
        assert_eq!(client.metadata(file.handle).await.unwrap().links, 2);
        let link = client.symlink(inside, b"link", b"no/where").await.unwrap();
        assert_eq!(client.read_link(link.handle).await.unwrap(), b"no/where");
        let fifo = client.make_node(inside, b"fifo", SpecialFile::Fifo, mode(0o600)).await.unwrap();
        assert_eq!(fifo.metadata.file_type, FileType::Fifo);

        client.rename(file.handle, (inside, b"second name"), (root, b"moved")).await.unwrap();
        let moved = client.resolve(b"/moved").await.unwrap();
        assert_eq!(moved.metadata.fileid, metadata.fileid);
        assert_eq!(client.resolve(b"/directory/link").await.unwrap().metadata.file_type, FileType::Symlink);

        let mut names = Vec::new();
        let mut listing = client.read_dir(inside);
        while let Some(entry) = listing.next_complete().await.unwrap() {
            names.push(entry.name);
        }
        names.sort();
        assert_eq!(names, [&b"fifo"[..], b"file", b"link"]);

        assert!(client.fs_stat(root).await.unwrap().tbytes > 0);
        assert!(client.fs_info(root).await.unwrap().rtmax > 0);
        assert_eq!(client.path_conf(root).await.unwrap().name_max, 255);

        let error = client.rmdir(root, b"directory").await.unwrap_err();
        assert_eq!(error.status(), Some(NfsStatus::NOTEMPTY));
        for name in [&b"fifo"[..], b"file", b"link"] {
            client.remove(inside, name).await.unwrap();
        }
        client.rmdir(root, b"directory").await.unwrap();
        client.remove(root, b"moved").await.unwrap();
        assert_eq!(client.lookup(root, b"moved").await.unwrap_err().status(), Some(NfsStatus::NOENT));
        client.unmount().await.unwrap();
        let stats = client.status().stats;
        assert_eq!((stats.resends.total(), stats.calls, stats.malformed), (0, stats.replies, 0));
    }
}

#[tokio::test]
async fn a_file_reads_writes_and_seeks_across_blocks() {
    let server = serve("127.0.0.1:0").await;
    let data: Vec<_> = (0..3_000_000_u32).map(|index| (index % 251) as u8).collect();
    for (transport, _) in TRANSPORTS {
        let client = connect(&server, transport).await;
        let made = client.create(client.root(), b"file", mode(0o600)).await.unwrap();
        let mut file = File::new(client.clone(), made.handle);
        file.write_all(&data).await.unwrap();
        file.seek(std::io::SeekFrom::Start(1_000_000)).await.unwrap();
        file.write_all(b"overwritten").await.unwrap();
        file.flush().await.unwrap();
        file.seek(std::io::SeekFrom::Start(999_999)).await.unwrap();
        let mut found = [0; 13];
        file.read_exact(&mut found).await.unwrap();
        assert_eq!(found[0], data[999_999]);
        assert_eq!(&found[1..12], b"overwritten");
        file.seek(std::io::SeekFrom::Start(2_999_990)).await.unwrap();
        let mut end = Vec::new();
        file.read_to_end(&mut end).await.unwrap();
        assert_eq!(end, &data[2_999_990..]);
    }
}

#[tokio::test]
async fn a_stream_survives_a_server_that_forgets() {
    let data: Vec<_> = (0..2_000_000_u32).map(|index| (index % 241) as u8).collect();
    for (transport, _) in TRANSPORTS {
        let server = serve("127.0.0.1:0").await;
        let crash = |nth| Rule {
            calls: Calls::Procedure(nfs_wireless_client::Procedure::Write),
            when: When::Nth(nth),
            action: Action::Crash,
        };
        server.with_service(|service| service.set_faults(Faults::from(vec![crash(1), crash(2)])));
        let client = connect(&server, transport).await;
        let made = client.create(client.root(), b"file", mode(0o600)).await.unwrap();
        let mut file = File::new(client, made.handle);
        file.write_all(&data).await.unwrap();
        file.shutdown().await.unwrap();
        let stored = server.with_service(|service| {
            service.crash();
            service.backend().read_file(b"/file").unwrap()
        });
        assert!(stored == data, "over {transport:?}");
    }
}

#[tokio::test]
async fn a_stream_ends_whatever_the_verifier_does_and_asks_little() {
    use nfs_wireless_client::Procedure;
    let data: Vec<_> = (0..2_000_000_u32).map(|index| (index % 239) as u8).collect();
    for procedure in [Procedure::Write, Procedure::Commit] {
        let server = serve("127.0.0.1:0").await;
        let faults = Faults::from(vec![Rule::always(procedure, Action::ChangeVerifier)]);
        server.with_service(|service| service.set_faults(faults));
        let client = connect(&server, TransportChoice::Tcp).await;
        let made = client.create(client.root(), b"file", mode(0o600)).await.unwrap();
        let mut file = File::new(client, made.handle);
        file.write_all(&data).await.unwrap();
        file.shutdown().await.unwrap();
        let (stored, calls) = server.with_service(|service| {
            service.crash();
            (service.backend().read_file(b"/file").unwrap(), service.stats().calls)
        });
        assert!(stored == data, "{procedure} changes the verifier");
        assert!(calls < 300, "{procedure}: {calls} calls");
    }
}

#[tokio::test]
async fn a_stream_to_a_server_that_writes_nothing_ends() {
    let server = serve("127.0.0.1:0").await;
    let faults = Faults::from(vec![Rule::always(nfs_wireless_client::Procedure::Write, Action::Shorten(0))]);
    server.with_service(|service| service.set_faults(faults));
    let client = connect(&server, TransportChoice::Tcp).await;
    let made = client.create(client.root(), b"file", mode(0o600)).await.unwrap();
    let mut file = File::new(client, made.handle);
    let written = async {
        file.write_all(&[1; 10_000]).await?;
        file.shutdown().await
    };
    let error = written.await.unwrap_err().to_string();
    assert!(error.contains("WRITE accepts no bytes"), "{error}");
    assert!(server.with_service(|service| service.stats().calls) < 50);
}

#[tokio::test]
async fn nobody_there_is_said_at_once_and_silence_within_the_time_allowed() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (transport, _) in TRANSPORTS {
        let start = Instant::now();
        let error = Client::connect("127.0.0.1", b"/", by_port_mapper(closed, transport)).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error}");
        assert!(start.elapsed() < Duration::from_secs(10));
    }
    // Datagrams and connections are taken in and never answered.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let _datagrams = std::net::UdpSocket::bind(address).unwrap();
    for (transport, _) in TRANSPORTS {
        let mut config = by_port_mapper(address, transport);
        config.connect_timeout = Some(Duration::from_millis(800));
        let error = Client::connect("127.0.0.1", b"/", config).await.unwrap_err();
        assert!(matches!(error, Error::ConnectTimeout { .. }) && error.is_silence(), "{error}");
    }
}

#[tokio::test]
async fn a_call_is_given_up_after_its_timeout() {
    let server = serve("127.0.0.1:0").await;
    let mut config = by_port_mapper(server.local_addr(), TransportChoice::Udp);
    config.call_timeout = Some(Duration::from_millis(900));
    config.retry = RetryPolicy::hybrid();
    let client = Client::connect("127.0.0.1", b"/", config).await.unwrap();
    let drop = Rule { calls: Calls::Any, when: When::Always, action: Action::DropCall };
    server.with_service(|service| service.set_faults(Faults::from(vec![drop])));
    let error = client.metadata(client.root()).await.unwrap_err();
    assert!(matches!(error, Error::Silent { attempts: 2, .. }), "one resend at 700 ms: {error}");
}

/// A server for a directory, on any port of this address.
async fn serve_directory(address: &str, path: &std::path::Path) -> Server {
    let directory = Directory::open(path, DirectoryConfig::default()).unwrap();
    let service = Service::new(ServiceConfig::default(), directory, 1, Instant::now()).unwrap();
    Server::bind(format!("{address}:0").parse().unwrap(), service).await.unwrap()
}

/// Each has an address of its own: a port that one of them leaves is not another test's server meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_on_another_port_is_found_by_its_port_mapper() {
    tokio::join!(
        come_back("127.0.0.21", TransportChoice::Udp),
        come_back("127.0.0.22", TransportChoice::Tcp)
    );
}

async fn come_back(address: &str, transport: TransportChoice) {
    let export = tempfile::tempdir().unwrap();
    let contents: Vec<u8> = (0..100_000_u32).flat_map(u32::to_be_bytes).collect();
    std::fs::write(export.path().join("file"), &contents).unwrap();
    let mapper = serve(&format!("{address}:0")).await;
    let first = serve_directory(address, export.path()).await;
    mapper.with_service(|service| service.set_address(first.local_addr()));
    let mut config = by_port_mapper(mapper.local_addr(), transport);
    // A second's work, in many calls.
    config.rate_limit = Some(8 * contents.len() as u64);
    config.read_block = BlockSize::Exact(4096);
    let client = Client::connect(address, b"/", config).await.unwrap();
    let file = client.resolve(b"/file").await.unwrap();
    let place = tempfile::NamedTempFile::new().unwrap();
    let sink = place.reopen().unwrap();
    let copying = {
        let client = client.clone();
        tokio::spawn(async move { client.download(file.handle, file.metadata.size, sink, None).await })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    first.shutdown().await;
    let second = serve_directory(address, export.path()).await;
    mapper.with_service(|service| service.set_address(second.local_addr()));
    copying.await.unwrap().unwrap();
    assert_eq!(client.address(), second.local_addr());
    assert!(std::fs::read(place.path()).unwrap() == contents);
    client.mkdir(client.root(), b"directory", mode(0o750)).await.unwrap();
    assert!(export.path().join("directory").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_that_the_port_mapper_names_is_told_apart() {
    tokio::join!(
        be_replaced("127.0.0.23", TransportChoice::Udp),
        be_replaced("127.0.0.24", TransportChoice::Tcp)
    );
}

async fn be_replaced(address: &str, transport: TransportChoice) {
    let (export, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mapper = serve(&format!("{address}:0")).await;
    let first = serve_directory(address, export.path()).await;
    mapper.with_service(|service| service.set_address(first.local_addr()));
    let config = by_port_mapper(mapper.local_addr(), transport);
    let client = Client::connect(address, b"/", config).await.unwrap();
    first.shutdown().await;
    let second = serve_directory(address, other.path()).await;
    mapper.with_service(|service| service.set_address(second.local_addr()));
    let error = client.mkdir(client.root(), b"directory", mode(0o750)).await.unwrap_err();
    assert!(
        matches!(error, Error::AnotherServer { address, .. } if address == second.local_addr()),
        "{error}"
    );
    assert!(!other.path().join("directory").exists());
    let again = client.metadata(client.root()).await.unwrap_err();
    assert!(matches!(again, Error::AnotherServer { .. }), "{again}");
}
