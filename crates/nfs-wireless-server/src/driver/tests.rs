use std::time::Duration;

use nfs_wire::{
    Procedure, Reader,
    nfs3_types::{
        nfs3::{READ3args, nfs_fh3},
        xdr_codec::{Opaque, Pack, Void},
    },
    reply::{ReadHead, decode},
    rpc::{Program, ReplyHeader, Xid, encode_call_header},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
    time::timeout,
};

mod slow;

use super::*;
use crate::{
    Action, Calls, Faults, Memory, Rule, ServiceConfig, Vfs, When,
    testing::{SEED, epoch},
};

const PATIENCE: Duration = Duration::from_secs(10);
const FILE_BYTES: usize = 3_000_000;

fn memory() -> Memory {
    let memory = Memory::default();
    let vfs: &dyn Vfs = &memory;
    let contents: Vec<u8> = (0..FILE_BYTES).map(|index| (index / 7) as u8).collect();
    vfs.write_file(nfstime3::default(), b"file", &contents).unwrap();
    memory
}

async fn server(listen: &str) -> Server {
    serve(listen, memory()).await
}

async fn serve(listen: &str, backend: impl Vfs + 'static) -> Server {
    let service = Service::new(ServiceConfig::default(), backend, SEED, epoch()).unwrap();
    Server::bind(listen.parse().unwrap(), service).await.unwrap()
}

fn message(xid: u32, program: Program, procedure: u32, arguments: &impl Pack) -> Vec<u8> {
    let mut message = Vec::new();
    encode_call_header(&mut message, Xid(xid), program, procedure, &[0; 8]);
    nfs_wire::encode(&mut message, arguments);
    message
}

fn null(xid: u32) -> Vec<u8> {
    message(xid, Program::NFS, 0, &Void)
}

fn record(message: &[u8]) -> Vec<u8> {
    let mut record = nfs_wire::record::mark(message.len()).to_vec();
    record.extend_from_slice(message);
    record
}

fn results(reply: &[u8]) -> (u32, &[u8]) {
    let mut reader = Reader::new(reply);
    let header = ReplyHeader::decode(&mut reader).unwrap();
    header.outcome.unwrap();
    (header.xid.0, reader.rest())
}

async fn receive(stream: &mut TcpStream) -> Vec<u8> {
    let mark = timeout(PATIENCE, stream.read_u32()).await.unwrap().unwrap();
    let mut reply = vec![0; (mark & 0x7fff_ffff) as usize];
    timeout(PATIENCE, stream.read_exact(&mut reply)).await.unwrap().unwrap();
    reply
}

async fn ask(socket: &UdpSocket, message: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0; DATAGRAM_BYTES];
    socket.send(message).await.unwrap();
    let length = timeout(PATIENCE, socket.recv(&mut buffer)).await.unwrap().unwrap();
    buffer.truncate(length);
    buffer
}

async fn udp(server: &Server) -> UdpSocket {
    let address = server.local_addr();
    let any = if address.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    let socket = UdpSocket::bind(any).await.unwrap();
    socket.connect(address).await.unwrap();
    socket
}

async fn file_handle(stream: &mut TcpStream) -> nfs_fh3 {
    let mount = message(1, Program::MOUNT, 1, &Opaque::borrowed(b"/"));
    stream.write_all(&record(&mount)).await.unwrap();
    let reply = receive(stream).await;
    let mount = nfs_wire::mount::decode_mount(results(&reply).1).unwrap().unwrap();
    let what = crate::testing::at(&mount.handle.to_fh3(), b"file");
    let arguments = nfs_wire::nfs3_types::nfs3::LOOKUP3args { what };
    let lookup = message(2, Program::NFS, Procedure::Lookup.number(), &arguments);
    stream.write_all(&record(&lookup)).await.unwrap();
    let reply = receive(stream).await;
    let found = decode::<nfs_wire::nfs3_types::nfs3::LOOKUP3resok>(results(&reply).1);
    found.unwrap().unwrap().object
}

#[tokio::test]
async fn both_transports_answer_on_one_port_and_portmap_names_it() {
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let server = server(listen).await;
        let socket = udp(&server).await;
        assert_eq!(results(&ask(&socket, &null(7)).await), (7, &[][..]));
        let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
        stream.write_all(&record(&null(8))).await.unwrap();
        assert_eq!(results(&receive(&mut stream).await), (8, &[][..]));
        let mut question = Vec::new();
        nfs_wire::portmap::Mapping { program: Program::NFS, protocol: Protocol::Udp.number(), port: 0 }
            .encode(&mut question);
        let mut call = message(9, Program::PORTMAP, 3, &Void);
        call.extend_from_slice(&question);
        let reply = ask(&socket, &call).await;
        let port = nfs_wire::portmap::decode_port(results(&reply).1).unwrap();
        assert_eq!(port, Some(server.local_addr().port()));
        server.shutdown().await;
    }
}

#[cfg(all(target_os = "linux", not(portable_only)))]
#[tokio::test]
async fn each_address_of_the_machine_answers_from_itself() {
    for (listen, called) in [("0.0.0.0:0", ["127.0.0.1", "127.0.0.2"]), ("[::]:0", ["127.0.0.2", "::1"])] {
        let server = server(listen).await;
        for address in called {
            let address = SocketAddr::new(address.parse().unwrap(), server.local_addr().port());
            let any = if address.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
            let socket = UdpSocket::bind(any).await.unwrap();
            // It hears that address alone.
            socket.connect(address).await.unwrap();
            assert_eq!(results(&ask(&socket, &null(7)).await).0, 7, "{listen} {address}");
        }
    }
}

#[tokio::test]
async fn records_may_come_in_any_pieces_and_fragments() {
    let server = server("127.0.0.1:0").await;
    let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
    let call = null(1);
    let (head, tail) = call.split_at(13);
    let mut fragmented = (head.len() as u32).to_be_bytes().to_vec();
    fragmented.extend_from_slice(head);
    fragmented.extend_from_slice(&record(tail));
    let mut bytes = fragmented.clone();
    bytes.extend_from_slice(&record(&null(2)));
    bytes.extend_from_slice(&fragmented);
    for piece in bytes.chunks(5) {
        stream.write_all(piece).await.unwrap();
        stream.flush().await.unwrap();
        tokio::task::yield_now().await;
    }
    for xid in [1, 2, 1] {
        assert_eq!(results(&receive(&mut stream).await).0, xid);
    }
}

#[tokio::test]
async fn a_stream_that_breaks_protocol_is_closed_and_others_live_on() {
    let server = server("127.0.0.1:0").await;
    let mut good = TcpStream::connect(server.local_addr()).await.unwrap();
    for garbage in [&[0xff; 4][..], &record(&[1, 2, 3]), &[0; 4 * 5000]] {
        let mut bad = TcpStream::connect(server.local_addr()).await.unwrap();
        // The server may close while we still write.
        let _ = bad.write_all(garbage).await;
        let end = timeout(PATIENCE, bad.read_u8()).await.unwrap();
        assert!(end.is_err(), "closed");
    }
    good.write_all(&record(&null(3))).await.unwrap();
    assert_eq!(results(&receive(&mut good).await).0, 3);
}

#[tokio::test]
async fn a_peer_that_does_not_read_is_not_read_from() {
    not_read_from(server("127.0.0.1:0").await).await;
    // The same where calls are made on other threads.
    let (gated, _, _) = crate::testing::gate::Gated::new(memory());
    not_read_from(serve("127.0.0.1:0", gated).await).await;
}

async fn not_read_from(server: Server) {
    const CALLS: u32 = 400;
    let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
    let file = file_handle(&mut stream).await;
    let (mut reader, mut writer) = stream.into_split();
    let send = tokio::spawn(async move {
        for xid in 0..CALLS {
            let arguments = READ3args { file: file.clone(), offset: u64::from(xid) * 1000, count: 1 << 20 };
            let call = message(xid, Program::NFS, Procedure::Read.number(), &arguments);
            writer.write_all(&record(&call)).await.unwrap();
        }
        writer
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let served = server.with_service(|service| service.stats().served[6]);
    assert!(served < u64::from(CALLS) / 2, "{served} served before one was read");
    for expected in 0..CALLS {
        let mark = timeout(PATIENCE, reader.read_u32()).await.unwrap().unwrap();
        let mut reply = vec![0; (mark & 0x7fff_ffff) as usize];
        reader.read_exact(&mut reply).await.unwrap();
        let (xid, body) = results(&reply);
        assert_eq!(xid, expected);
        let mut body = Reader::new(body);
        let head = ReadHead::decode(&mut body, 1 << 20).unwrap().unwrap();
        assert_eq!(head.count, 1 << 20);
        let first = body.rest()[0];
        assert_eq!(first, (expected as usize * 1000 / 7) as u8);
    }
    drop(send.await.unwrap());
}

#[tokio::test]
async fn the_last_to_be_heard_of_makes_room() {
    let server = server("127.0.0.1:0").await;
    let mut honest = TcpStream::connect(server.local_addr()).await.unwrap();
    let mut others = Vec::new();
    for xid in 0..200 {
        others.push(TcpStream::connect(server.local_addr()).await.unwrap());
        honest.write_all(&record(&null(xid))).await.unwrap();
        assert_eq!(results(&receive(&mut honest).await).0, xid);
    }
    let places = server.shared.lock().streams.len();
    assert_eq!(places, 24, "three quarters of what 40 MiB allow");
    let mut oldest = others.swap_remove(0);
    assert!(timeout(PATIENCE, oldest.read_u8()).await.unwrap().is_err(), "closed");
    let mut latest = others.pop().unwrap();
    latest.write_all(&record(&null(7))).await.unwrap();
    assert_eq!(results(&receive(&mut latest).await).0, 7);
}

#[tokio::test]
async fn who_has_the_most_places_makes_room() {
    let server = server("127.0.0.1:0").await;
    let mut honest = TcpStream::connect(server.local_addr()).await.unwrap();
    let mut others = Vec::new();
    for number in 0..200 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 2], 0))).unwrap();
        let mut other = socket.connect(server.local_addr()).await.unwrap();
        other.write_all(&record(&null(number))).await.unwrap();
        receive(&mut other).await;
        others.push(other);
    }
    honest.write_all(&record(&null(7))).await.unwrap();
    assert_eq!(results(&receive(&mut honest).await).0, 7, "it has a place, though it never made a call");
}

#[tokio::test]
async fn a_connection_that_comes_back_from_its_port_keeps_its_place() {
    let server = server("127.0.0.1:0").await;
    let address = "127.0.0.1:700".parse().unwrap();
    let old = stream::Connection::open(Arc::clone(&server.shared), address);
    let new = stream::Connection::open(Arc::clone(&server.shared), address);
    drop(old);
    assert!(server.shared.lock().streams.contains_key(&address));
    drop(new);
    assert!(server.shared.lock().streams.is_empty());
}

#[tokio::test]
async fn faults_can_be_flipped_and_replies_delayed_while_it_runs() {
    let server = server("127.0.0.1:0").await;
    let delay = Duration::from_millis(50);
    let rule = |action| Faults::from(vec![Rule { calls: Calls::Any, when: When::Always, action }]);
    server.with_service(|service| service.set_faults(rule(Action::DelayReply(delay))));
    let socket = udp(&server).await;
    let start = tokio::time::Instant::now();
    ask(&socket, &null(1)).await;
    assert!(start.elapsed() >= delay);
    server.with_service(|service| service.set_faults(rule(Action::DropCall)));
    socket.send(&null(2)).await.unwrap();
    let silence = timeout(Duration::from_millis(50), socket.recv(&mut [0; 100])).await;
    assert!(silence.is_err());
    assert_eq!(server.with_service(|service| service.stats().dropped_calls), 1);
}

#[tokio::test]
async fn a_burst_of_datagrams_is_answered_whole() {
    const CALLS: u32 = 200;
    let server = server("127.0.0.1:0").await;
    let socket = udp(&server).await;
    for xid in 0..CALLS {
        socket.send(&null(xid)).await.unwrap();
    }
    let mut buffer = [0; 100];
    for xid in 0..CALLS {
        let length = timeout(PATIENCE, socket.recv(&mut buffer)).await.unwrap().unwrap();
        assert_eq!(results(&buffer[..length]).0, xid);
    }
}

#[tokio::test]
async fn a_stopped_server_closes_its_connections_and_frees_its_port() {
    let running = server("127.0.0.1:0").await;
    let address = running.local_addr();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&record(&null(1))).await.unwrap();
    receive(&mut stream).await;
    running.shutdown().await;
    assert!(timeout(PATIENCE, stream.read_u8()).await.unwrap().is_err());
    let again = server(&address.to_string()).await;
    assert_eq!(again.local_addr(), address);
    drop(again);
}

#[tokio::test]
async fn a_port_in_use_is_an_error() {
    let server = server("127.0.0.1:0").await;
    let service = Service::new(ServiceConfig::default(), Memory::default(), SEED, epoch()).unwrap();
    let error = Server::bind(server.local_addr(), service).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}

#[test]
fn datagrams_that_wait_are_bounded_in_number_and_bytes() {
    let peer = Peer { protocol: Protocol::Udp, address: "127.0.0.1:1".parse().unwrap() };
    for (size, most) in [(100, MAX_DATAGRAMS), (64 << 10, MAX_DATAGRAM_BYTES / (64 << 10))] {
        let mut datagrams = Datagrams::default();
        let push = |datagrams: &mut Datagrams| datagrams.push(Transmit { peer, bytes: vec![0; size] });
        let taken = (0..2 * MAX_DATAGRAMS).filter(|_| push(&mut datagrams)).count();
        assert_eq!(taken, most);
        assert!(datagrams.pop().is_some() && push(&mut datagrams) && !push(&mut datagrams));
        while datagrams.pop().is_some() {}
        assert_eq!(datagrams.bytes, 0);
    }
}
