//! Calls that wait for a disk, and everybody else meanwhile. The gate says what happens before what; nothing is timed.

use std::sync::Arc;

use nfs_wire::{
    Status,
    nfs3_types::nfs3::{COMMIT3args, COMMIT3resok, FSSTAT3args, GETATTR3args, GETATTR3resok, REMOVE3args},
    rpc::Rejection,
};
use tokio::sync::mpsc::UnboundedReceiver;

use super::*;
use crate::testing::{
    at,
    gate::{Gate, Gated},
};

struct Slow {
    server: Server,
    gate: Arc<Gate>,
    arrivals: UnboundedReceiver<Procedure>,
    root: nfs_fh3,
    file: nfs_fh3,
}

impl Slow {
    async fn start() -> Self {
        let (backend, gate, arrivals) = Gated::new(memory());
        let server = serve("127.0.0.1:0", backend).await;
        let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
        let file = file_handle(&mut stream).await;
        let mount = message(1, Program::MOUNT, 1, &Opaque::borrowed(b"/"));
        stream.write_all(&record(&mount)).await.unwrap();
        let reply = receive(&mut stream).await;
        let root = nfs_wire::mount::decode_mount(results(&reply).1).unwrap().unwrap().handle.to_fh3();
        Self { server, gate, arrivals, root, file }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.server.local_addr()).await.unwrap()
    }

    /// Waits until a call is at the gate.
    async fn arrived(&mut self) -> Procedure {
        timeout(PATIENCE, self.arrivals.recv()).await.unwrap().unwrap()
    }

    fn commit(&self, xid: u32) -> Vec<u8> {
        let arguments = COMMIT3args { file: self.file.clone(), offset: 0, count: 0 };
        message(xid, Program::NFS, Procedure::Commit.number(), &arguments)
    }

    fn getattr(&self, xid: u32) -> Vec<u8> {
        let arguments = GETATTR3args { object: self.file.clone() };
        message(xid, Program::NFS, Procedure::Getattr.number(), &arguments)
    }

    fn remove(&self, xid: u32) -> Vec<u8> {
        let arguments = REMOVE3args { object: at(&self.root, b"file") };
        message(xid, Program::NFS, Procedure::Remove.number(), &arguments)
    }

    fn calls(&self) -> u64 {
        self.server.with_service(|service| service.stats().calls)
    }
}

fn size(reply: &[u8]) -> u64 {
    decode::<GETATTR3resok>(results(reply).1).unwrap().unwrap().obj_attributes.size
}

#[tokio::test]
async fn a_slow_commit_holds_up_nobody_else() {
    let mut slow = Slow::start().await;
    let mut committing = slow.connect().await;
    committing.write_all(&record(&slow.commit(1))).await.unwrap();
    assert_eq!(slow.arrived().await, Procedure::Commit);
    // The gate is closed: whoever is answered now was not held up.
    let mut other = slow.connect().await;
    for (xid, call) in [(2, null(2)), (3, slow.getattr(3))] {
        other.write_all(&record(&call)).await.unwrap();
        assert_eq!(results(&receive(&mut other).await).0, xid);
    }
    let datagrams = udp(&slow.server).await;
    assert_eq!(results(&ask(&datagrams, &null(4)).await).0, 4);
    assert_eq!(size(&ask(&datagrams, &slow.getattr(5)).await), FILE_BYTES as u64);
    let read = READ3args { file: slow.file.clone(), offset: 7000, count: 1000 };
    let read = message(6, Program::NFS, Procedure::Read.number(), &read);
    let reply = ask(&datagrams, &read).await;
    assert_eq!(ReadHead::decode(&mut Reader::new(results(&reply).1), 1000).unwrap().unwrap().count, 1000);
    // The same connection, too.
    committing.write_all(&record(&slow.getattr(7))).await.unwrap();
    assert_eq!(results(&receive(&mut committing).await).0, 7);
    slow.gate.open();
    let reply = receive(&mut committing).await;
    let (xid, body) = results(&reply);
    assert_eq!(xid, 1);
    decode::<COMMIT3resok>(body).unwrap().unwrap();
}

#[tokio::test]
async fn a_call_that_is_being_made_is_not_made_again() {
    let mut slow = Slow::start().await;
    let datagrams = udp(&slow.server).await;
    let remove = slow.remove(9);
    datagrams.send(&remove).await.unwrap();
    assert_eq!(slow.arrived().await, Procedure::Remove);
    for _ in 0..3 {
        datagrams.send(&remove).await.unwrap();
    }
    // Datagrams are taken in their order: the answer to this one says that the others were.
    assert_eq!(results(&ask(&datagrams, &null(10)).await).0, 10);
    assert_eq!(slow.server.with_service(|service| service.stats().in_progress), 3);
    slow.gate.open();
    let mut first = vec![0; 1000];
    let length = timeout(PATIENCE, datagrams.recv(&mut first)).await.unwrap().unwrap();
    first.truncate(length);
    assert_eq!(results(&first).1[..4], [0; 4], "it is removed");
    assert_eq!(ask(&datagrams, &remove).await, first, "answered again as it was");
    assert!(slow.arrivals.try_recv().is_err(), "made once");
    let twice = ask(&datagrams, &slow.remove(11)).await;
    assert_eq!(results(&twice).1[..4], Status::NOENT.code().to_be_bytes());
}

#[tokio::test]
async fn calls_that_wait_are_bounded_and_streams_are_read_no_further() {
    const CALLS: u32 = 5000;
    let mut slow = Slow::start().await;
    let threads = ServiceConfig::default().timing.threads.get();
    let before = slow.calls();
    let (mut reader, mut writer) = slow.connect().await.into_split();
    let calls: Vec<u8> = (0..CALLS).flat_map(|xid| record(&slow.commit(xid))).collect();
    let send = tokio::spawn(async move {
        writer.write_all(&calls).await.unwrap();
        writer
    });
    for _ in 0..threads {
        assert_eq!(slow.arrived().await, Procedure::Commit);
    }
    // All threads are taken; what has to do with no file is answered all the same, on every transport.
    let mut other = slow.connect().await;
    other.write_all(&record(&null(2))).await.unwrap();
    assert_eq!(results(&receive(&mut other).await).0, 2);
    let datagrams = udp(&slow.server).await;
    // More datagrams than may wait: a call of the back end each, and one that needs none after every hundred.
    for xid in 0..3000_u32 {
        datagrams.send(&slow.commit(1_000_000 + xid)).await.unwrap();
        if xid % 100 == 99 {
            assert_eq!(results(&ask(&datagrams, &null(xid)).await).0, xid);
        }
    }
    let (taken, overflowed) =
        slow.server.with_service(|service| (service.stats().calls - before, service.stats().overflowed));
    let of_stream = taken - 1 - 3000 - 30;
    assert!((threads as u64..100).contains(&of_stream), "{of_stream} calls of one connection are taken");
    assert_eq!(overflowed, 3000 - (1024 - (of_stream - threads as u64)), "1024 calls wait");
    assert!(slow.arrivals.try_recv().is_err(), "no more are made than there are threads");
    slow.gate.open();
    let mut answered = vec![false; CALLS as usize];
    for _ in 0..CALLS {
        let mark = timeout(PATIENCE, reader.read_u32()).await.unwrap().unwrap();
        let mut reply = vec![0; (mark & 0x7fff_ffff) as usize];
        reader.read_exact(&mut reply).await.unwrap();
        let slot = &mut answered[results(&reply).0 as usize];
        assert!(!std::mem::replace(slot, true), "each once");
    }
    drop(send.await.unwrap());
    // A thread that has answered may not be free yet when the next call comes; there is not one for each call.
    assert!(slow.gate.threads() <= 8 * threads, "{} threads make calls", slow.gate.threads());
}

#[tokio::test]
async fn a_back_end_that_panics_has_lost_one_call() {
    let slow = Slow::start().await;
    let mut stream = slow.connect().await;
    let arguments = FSSTAT3args { fsroot: slow.root.clone() };
    for xid in 0..20 {
        let call = message(xid, Program::NFS, Procedure::Fsstat.number(), &arguments);
        stream.write_all(&record(&call)).await.unwrap();
        let reply = receive(&mut stream).await;
        let header = ReplyHeader::decode(&mut Reader::new(&reply)).unwrap();
        assert_eq!((header.xid, header.outcome), (Xid(xid), Err(Rejection::SystemError)));
    }
    stream.write_all(&record(&slow.getattr(21))).await.unwrap();
    assert_eq!(size(&receive(&mut stream).await), FILE_BYTES as u64);
}

#[tokio::test]
async fn a_crash_forgets_the_calls_that_are_being_made() {
    let mut slow = Slow::start().await;
    let datagrams = udp(&slow.server).await;
    datagrams.send(&slow.remove(1)).await.unwrap();
    slow.arrived().await;
    slow.server.with_service(Service::crash);
    slow.gate.open();
    // It was made, and nobody hears of it, but for who asks again.
    let mut replies = Vec::new();
    while replies.len() < 2 {
        let reply = ask(&datagrams, &slow.remove(2 + replies.len() as u32)).await;
        replies.push(results(&reply).0);
    }
    assert_eq!(replies, [2, 3]);
}

#[tokio::test]
async fn calls_that_are_left_to_the_caller_are_answered_in_any_order_and_hold_up_no_other() {
    let mut config = ServiceConfig::default();
    config.timing.threads = 64.try_into().unwrap();
    let service = Service::new(config, memory(), SEED, epoch()).unwrap();
    let (server, mut works) = Server::bind_deferred("127.0.0.1:0".parse().unwrap(), service).await.unwrap();
    let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
    // More than one connection may have waiting, if room for the replies were set aside.
    let waiting = 40;
    let getattr = Procedure::Getattr.number();
    let read = Procedure::Read.number();
    let file = nfs_fh3 { data: Opaque::owned(vec![7; 30]) };
    for xid in 0..waiting {
        let arguments = READ3args { file: file.clone(), offset: 0, count: 1 << 20 };
        stream.write_all(&record(&message(xid, Program::NFS, read, &arguments))).await.unwrap();
    }
    stream.write_all(&record(&message(waiting, Program::NFS, getattr, &file))).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..=waiting {
        held.push(timeout(PATIENCE, works.recv()).await.unwrap().unwrap());
    }
    stream.write_all(&record(&null(waiting + 1))).await.unwrap();
    assert_eq!(results(&receive(&mut stream).await).0, waiting + 1, "NULL needs no back end");
    let last = held.pop().unwrap();
    assert_eq!(last.procedure(), Some(Procedure::Getattr));
    assert_eq!(last.uid(), None);
    let answer = memory();
    server.done(last.run_on(&answer));
    assert_eq!(results(&receive(&mut stream).await).0, waiting);
    for work in held {
        assert_eq!(work.procedure(), Some(Procedure::Read));
        server.done(work.run_on(&answer));
    }
    let mut seen: Vec<u32> = Vec::new();
    for _ in 0..waiting {
        seen.push(results(&receive(&mut stream).await).0);
    }
    assert_eq!(seen, (0..waiting).collect::<Vec<_>>());
}
