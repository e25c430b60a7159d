//! `nfsw mount --via nfs` and other users of the machine, who know how to share ports. Takes root, to be two users.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::OwnedFd,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::common::{Server, command};
use rustix::{
    net::{AddressFamily, SocketType, bind, connect, ipproto, socket, sockopt},
    process::Uid,
    thread::set_thread_res_uid,
};

/// A user who does not serve the view.
const NOBODY: u32 = 65_534;

/// What MNT says to readers and to others (RFC 1813 §5.2.1).
const OK: u32 = 0;
const ACCES: u32 = 13;

/// `nfsw mount --via nfs`, which only serves.
struct View {
    process: Child,
    address: SocketAddr,
}

impl View {
    fn of(server: &Server) -> Self {
        let mut process = command(["mount", "--via", "nfs", "--listen", "127.0.0.1:0"])
            .arg(server.url("/"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut reader, mut said) = (BufReader::new(process.stderr.take().unwrap()), String::new());
        reader.read_line(&mut said).unwrap();
        let port = said.rsplit(':').next().and_then(|rest| rest.trim().trim_end_matches('/').parse().ok());
        let port: u16 = port.unwrap_or_else(|| panic!("no port in: {said}"));
        thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
        Self { process, address: ([127, 0, 0, 1], port).into() }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What root does with a port before somebody else uses it as well: it returns what stays open.
type Before = fn(port: u16, view: SocketAddr) -> Vec<OwnedFd>;

/// A way in.
struct Way {
    name: &'static str,
    kind: SocketType,
    before: Before,
    /// Where the other user's socket is bound.
    bound: &'static str,
}

const WAYS: [Way; 6] = [
    Way {
        name: "TCP, a port of its own",
        kind: SocketType::STREAM,
        before: |_, _| vec![],
        bound: "127.0.0.1",
    },
    Way {
        name: "TCP, root is connected elsewhere from that port",
        kind: SocketType::STREAM,
        before: |port, _| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let ours = bound(SocketType::STREAM, "127.0.0.1", port);
            connect(&ours, &listener.local_addr().unwrap()).unwrap();
            vec![ours, listener.into()]
        },
        bound: "127.0.0.1",
    },
    Way {
        name: "TCP, the same, bound to any address",
        kind: SocketType::STREAM,
        before: |port, _| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let ours = bound(SocketType::STREAM, "0.0.0.0", port);
            connect(&ours, &listener.local_addr().unwrap()).unwrap();
            vec![ours, listener.into()]
        },
        bound: "0.0.0.0",
    },
    Way {
        name: "TCP, root has just been there from that port",
        kind: SocketType::STREAM,
        before: |port, view| {
            let ours = bound(SocketType::STREAM, "127.0.0.1", port);
            sockopt::set_socket_linger(&ours, Some(Duration::ZERO)).unwrap();
            connect(&ours, &view).unwrap();
            let mut ours = TcpStream::from(ours);
            assert_eq!(ask_over_tcp(&mut ours), OK);
            vec![]
        },
        bound: "127.0.0.1",
    },
    Way {
        name: "UDP, a port of its own",
        kind: SocketType::DGRAM,
        before: |_, _| vec![],
        bound: "127.0.0.1",
    },
    Way {
        name: "UDP, root has just been there from that port",
        kind: SocketType::DGRAM,
        before: |port, view| {
            let ours = UdpSocket::from(bound(SocketType::DGRAM, "127.0.0.1", port));
            // Whose a datagram is cannot be known: nobody gets in by one.
            assert_eq!(ask_over_udp(&[&ours], view), ACCES);
            vec![]
        },
        bound: "127.0.0.1",
    },
];

/// A socket that shares its port with others.
fn bound(kind: SocketType, ip: &str, port: u16) -> OwnedFd {
    let protocol = if kind == SocketType::STREAM { ipproto::TCP } else { ipproto::UDP };
    let socket = socket(AddressFamily::INET, kind, Some(protocol)).unwrap();
    sockopt::set_socket_reuseaddr(&socket, true).unwrap();
    bind(&socket, &SocketAddr::new(ip.parse().unwrap(), port)).unwrap();
    socket
}

/// A port that is free for both transports.
fn free_port() -> u16 {
    loop {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

/// A call of MNT for the root, without credentials: what counts is whose the socket is.
fn call() -> Vec<u8> {
    let words = [7, 0, 2, 100_005, 3, 1, 0, 0, 0, 0, 1, u32::from_be_bytes(*b"/\0\0\0")];
    words.iter().flat_map(|word: &u32| word.to_be_bytes()).collect()
}

/// Returns the status in a reply.
fn status(reply: &[u8]) -> u32 {
    u32::from_be_bytes(reply[24..28].try_into().unwrap())
}

fn ask_over_tcp(stream: &mut TcpStream) -> u32 {
    let call = call();
    let mark = 0x8000_0000 | call.len() as u32;
    stream.write_all(&[&mark.to_be_bytes()[..], &call].concat()).unwrap();
    let mut reply = [0; 32];
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.read_exact(&mut reply).unwrap();
    status(&reply[4..])
}

/// Asks from the first of these sockets, of which any may get the answer.
fn ask_over_udp(sockets: &[&UdpSocket], view: SocketAddr) -> u32 {
    sockets[0].send_to(&call(), view).unwrap();
    let begun = Instant::now();
    loop {
        for socket in sockets {
            let mut reply = [0; 200];
            socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
            if let Ok(length) = socket.recv(&mut reply) {
                return status(&reply[..length]);
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "no answer");
    }
}

/// Runs something as another user, in a thread of its own.
fn as_user<T: Send>(uid: u32, run: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let run = move || {
            set_thread_res_uid(None, Uid::from_raw(uid), None).unwrap();
            run()
        };
        scope.spawn(run).join().unwrap()
    })
}

#[test]
fn no_socket_of_another_user_passes_for_one_of_the_owner() {
    assert!(rustix::process::geteuid().is_root(), "this test is two users: run it as root, as CI does");
    let server = Server::start();
    fs::write(server.path("/file"), "text").unwrap();
    let view = View::of(&server);
    for Way { name, kind, before, bound: ip } in WAYS {
        let of_owner = if kind == SocketType::STREAM { OK } else { ACCES };
        for (uid, expected) in [(0, of_owner), (NOBODY, ACCES)] {
            let port = free_port();
            let kept = before(port, view.address);
            let answer = as_user(uid, || {
                let socket = bound(kind, ip, port);
                if kind == SocketType::STREAM {
                    connect(&socket, &view.address).unwrap();
                    return ask_over_tcp(&mut TcpStream::from(socket));
                }
                let mut sockets = vec![UdpSocket::from(socket)];
                sockets.extend(kept.into_iter().map(UdpSocket::from));
                ask_over_udp(&sockets.iter().collect::<Vec<_>>(), view.address)
            });
            assert_eq!(answer, expected, "{name}: user {uid}");
        }
    }
}
