//! `nfsw serve` in bad company: it holds little, and serves the others all the same.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use crate::common::{Server, assert_same_tree, nfsw, noise, stderr};
use nfs_wire::{
    Procedure, encode,
    nfs3_types::{
        nfs3::{LOOKUP3args, LOOKUP3resok, READ3args, diropargs3, filename3, nfs_fh3},
        xdr_codec::{Opaque, Pack, Void},
    },
    record::mark,
    reply,
    rpc::{Program, Xid, encode_call_header},
};

/// Most memory that the server may ever have had, in KiB.
const MEMORY_KIB: u64 = 96 << 10;

/// Most threads: eight that make calls, as many that have just made one, and those of the runtime, of which there are less.
const MOST_THREADS: u64 = 24;

/// Most files that it may have open: 64 of its export, and a connection in each place.
const MAX_OPEN: usize = 64 + 33 + 31;

/// Bytes of the largest record that is taken.
const RECORD_BYTES: usize = (1 << 20) + 4096;

/// Files of the export beside the large one.
const FILES: usize = 500;

const REPLY_HEADER_BYTES: usize = 24;

fn message(xid: u32, program: Program, procedure: u32, arguments: &impl Pack) -> Vec<u8> {
    let mut message = Vec::new();
    encode_call_header(&mut message, Xid(xid), program, procedure, &[0; 8]);
    encode(&mut message, arguments);
    message
}

fn record(message: &[u8]) -> Vec<u8> {
    [&mark(message.len()), message].concat()
}

fn read_call(xid: u32, file: &nfs_fh3, count: u32) -> Vec<u8> {
    let arguments = READ3args { file: file.clone(), offset: 0, count };
    message(xid, Program::NFS, Procedure::Read.number(), &arguments)
}

/// Connects from another address than the honest client's.
fn connect(server: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, 2], 0))).unwrap();
    connect(&socket, &server).unwrap();
    let stream = TcpStream::from(socket);
    // The server may stop reading; what does not go is left out.
    stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    stream
}

fn ask(stream: &mut TcpStream, message: &[u8]) -> Vec<u8> {
    stream.write_all(&record(message)).unwrap();
    let mut head = [0; 4];
    stream.read_exact(&mut head).unwrap();
    let mut reply = vec![0; (u32::from_be_bytes(head) & 0x7fff_ffff) as usize];
    stream.read_exact(&mut reply).unwrap();
    reply
}

/// Finds the handles of files in the root.
fn look_up(server: SocketAddr, names: impl Iterator<Item = String>) -> Vec<nfs_fh3> {
    let mut stream = connect(server);
    let mounted = ask(&mut stream, &message(1, Program::MOUNT, 1, &Opaque::borrowed(b"/")));
    let root =
        nfs_wire::mount::decode_mount(&mounted[REPLY_HEADER_BYTES..]).unwrap().unwrap().handle.to_fh3();
    let look_up = |name: String| {
        let what = diropargs3 { dir: root.clone(), name: filename3::from(name.as_bytes()) };
        let call = message(2, Program::NFS, Procedure::Lookup.number(), &LOOKUP3args { what });
        let found = ask(&mut stream, &call);
        reply::decode::<LOOKUP3resok>(&found[REPLY_HEADER_BYTES..]).unwrap().unwrap().object
    };
    names.map(look_up).collect()
}

/// Opens connections one after the other until told to stop, keeps the last hundred, and does to each what `act` does.
fn swarm(server: SocketAddr, stop: &AtomicBool, act: impl Fn(&mut TcpStream) -> std::io::Result<()>) {
    let mut open = std::collections::VecDeque::new();
    while !stop.load(Ordering::Relaxed) {
        let mut stream = connect(server);
        // The server may close at any time.
        let _ = act(&mut stream);
        open.push_back(stream);
        if open.len() > 100 {
            open.pop_front();
        }
    }
}

/// Datagrams from very many addresses, whose answers nobody takes: not so many that the network is full of them.
fn datagrams(server: SocketAddr, stop: &AtomicBool, file: &nfs_fh3) {
    let calls = [
        message(1, Program::NFS, 0, &Void),
        message(2, Program::MOUNT, 5, &Void),
        message(3, Program::MOUNT, 1, &Opaque::borrowed(b"/")),
        read_call(4, file, 32 << 10),
        vec![0xff; 60_000],
        noise(1000),
    ];
    for source in 0_u32.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let [_, high, middle, low] = (source % 0x00ff_0000).to_be_bytes();
        let address = Ipv4Addr::new(127, high.max(1), middle, low.max(1));
        let socket = UdpSocket::bind((address, 0)).unwrap();
        for (xid, call) in calls.iter().enumerate() {
            let mut call = call.clone();
            call[..4].copy_from_slice(&(source * 8 + xid as u32).to_be_bytes());
            let _ = socket.send_to(&call, server);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// A line of `/proc/PID/status`, in KiB.
fn memory_kib(process: u32, line: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix(line)).unwrap();
    line.trim_matches(|it: char| !it.is_ascii_digit()).parse().unwrap()
}

fn copy(server: &Server, transport: &str, to: &Path) {
    let target = to.to_str().unwrap();
    let copied =
        nfsw(["cp", "-r", "--timeout", "20s", "--transport", transport, &server.url("/tree"), target]);
    assert_eq!(copied.status.code(), Some(0), "over {transport}: {}", stderr(&copied));
    assert_same_tree(&server.path("tree"), &to.join("tree"), false);
    fs::remove_dir_all(to.join("tree")).unwrap();
}

#[test]
fn a_server_under_attack_stays_small_and_serves_the_others() {
    let server = Server::start();
    fs::create_dir(server.path("tree")).unwrap();
    for number in 0..100 {
        fs::write(server.path(&format!("tree/{number}")), noise(10_000)).unwrap();
    }
    fs::write(server.path("large"), noise(4 << 20)).unwrap();
    for number in 0..FILES {
        fs::write(server.path(&format!("file {number}")), b"contents").unwrap();
    }
    let address = server.address();
    let process = server.process.id();
    let large = look_up(address, std::iter::once("large".to_owned())).remove(0);
    let files = look_up(address, (0..FILES).map(|number| format!("file {number}")));
    let here = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let unfinished = [&mark(RECORD_BYTES)[..], &vec![0; RECORD_BYTES - 1]].concat();
    thread::scope(|scope| {
        // Calls that are all there but for the last byte.
        scope.spawn(|| swarm(address, &stop, |stream| stream.write_all(&unfinished)));
        // The same, after a call that makes the connection look honest, and byte by byte in the end.
        scope.spawn(|| {
            swarm(address, &stop, |stream| {
                stream.write_all(&record(&message(1, Program::NFS, 0, &Void)))?;
                stream.write_all(&unfinished[..RECORD_BYTES - 10])?;
                unfinished[..8].iter().try_for_each(|byte| stream.write_all(&[*byte]))
            });
        });
        // Replies that nobody takes.
        scope.spawn(|| {
            swarm(address, &stop, |stream| {
                (0..100).try_for_each(|xid| stream.write_all(&record(&read_call(xid, &large, 1 << 20))))
            });
        });
        // Lengths that cannot be, fragments of nothing, and nothing at all.
        scope.spawn(|| {
            swarm(address, &stop, |stream| {
                stream.write_all(&[0x7f, 0xff, 0xff, 0xff])?;
                stream.write_all(&vec![0; 1 << 20])
            });
        });
        scope.spawn(|| swarm(address, &stop, |stream| stream.write_all(&vec![0; 64 << 10])));
        scope.spawn(|| swarm(address, &stop, |_| Ok(())));
        scope.spawn(|| datagrams(address, &stop, &large));
        // Every file is read, so that the server would like to keep all of them open.
        scope.spawn(|| {
            swarm(address, &stop, |stream| {
                files.iter().try_for_each(|file| stream.write_all(&record(&read_call(7, file, 8))))
            });
        });
        let result = std::panic::catch_unwind(|| {
            for transport in ["tcp", "udp", "auto"] {
                copy(&server, transport, here.path());
            }
        });
        let open = fs::read_dir(format!("/proc/{process}/fd")).unwrap().count();
        stop.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        assert!(open <= MAX_OPEN, "{open} files are open");
    });
    let most = memory_kib(process, "VmHWM:");
    println!("under attack the server had at most {:.1} MiB in memory", most as f64 / 1024.0);
    assert!(most <= MEMORY_KIB, "{most} KiB");
    copy(&server, "tcp", here.path());
}

#[test]
fn one_client_that_takes_no_replies_gets_few_threads_and_little_memory() {
    const CALLS: u32 = 100_000;
    let server = Server::start();
    fs::write(server.path("large"), noise(4 << 20)).unwrap();
    let (address, process) = (server.address(), server.process.id());
    // Its address is validated by this, which comes from it.
    let large = look_up(address, std::iter::once("large".to_owned())).remove(0);
    let socket = UdpSocket::bind(("127.0.0.2", 0)).unwrap();
    for xid in 0..CALLS {
        // The server may have no room for it.
        let _ = socket.send_to(&read_call(xid, &large, 32 << 10), address);
    }
    let (most, threads) = (memory_kib(process, "VmHWM:"), memory_kib(process, "Threads:"));
    println!("the server had at most {:.1} MiB in memory, and {threads} threads", most as f64 / 1024.0);
    assert!(threads <= MOST_THREADS, "{threads} threads");
    assert!(most <= MEMORY_KIB, "{most} KiB");
}
