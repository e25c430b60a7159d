use nfs_proto::{
    attr::Metadata,
    config::SessionOptions,
    session::{SessionConfig, Transfer},
    transfer::Download,
};
use nfs_wire::{
    FileHandle, Procedure,
    portmap::Protocol,
    rpc::{Program, ReplyHeader, Xid},
};

use super::*;

const SIZE: u64 = 64 << 20;

struct Nowhere;

impl super::super::Arrivals for Nowhere {
    fn arrived(&mut self, _now: Instant, _offset: u64, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn told(&mut self, _attributes: Option<Metadata>) {}
}

fn server() -> SocketAddr {
    "192.0.2.1:2049".parse().unwrap()
}

/// Takes what there is to send, and answers the READs in it.
fn answer_reads(pump: &mut Pump, now: Instant) -> usize {
    let mut calls = Vec::new();
    while let Some(transmit) = pump.session.poll_transmit(now) {
        calls.push(transmit.head.to_vec());
    }
    calls.retain(|call| call[20..24] == Procedure::Read.number().to_be_bytes());
    for call in &calls {
        let word = |at: usize| u32::from_be_bytes(call[at..at + 4].try_into().unwrap());
        let (mut reply, count) = (Vec::new(), word(call.len() - 4));
        ReplyHeader { xid: Xid(word(0)), outcome: Ok(()) }.encode(&mut reply);
        for word in [0, 0, count, 0, count] {
            reply.extend_from_slice(&word.to_be_bytes());
        }
        reply.resize(reply.len() + count as usize, 0);
        pump.receive(now, server(), &reply, true).unwrap();
        pump.session.handle_payload_done(now);
    }
    calls.len()
}

#[test]
fn whoever_holds_a_transfer_waits_for_its_calls_alone() {
    let now = super::super::clock();
    let config = SessionConfig::new(&SessionOptions::default(), server(), Protocol::Tcp, 0);
    let (commands, _) = mpsc::unbounded_channel();
    let shared = Shared { snapshot: Arc::default(), commands: commands.downgrade() };
    let mut pump = Pump::new(Session::new(config, server(), 1, now), shared);
    let (answer, mut answered) = oneshot::channel();
    let procedure = (Program::NFS, Procedure::Getattr.number());
    let call = Command::Call { token: 1, procedure, timeout: None, arguments: Vec::new(), answer };
    pump.apply(now, call);
    let file = FileHandle::try_from(&[1; 8][..]).unwrap();
    let (done, mut result) = oneshot::channel();
    let transfer = Transfer::Download(Download::new(&file, SIZE));
    let task = Task { transfer, storage: Storage::Sink(Box::new(Nowhere)), accepted: None, rate: None };
    pump.apply(now, Command::Start { token: 2, task, done });

    assert!(pump.session.poll_transmit(now).is_some(), "the call leaves");
    assert!(answer_reads(&mut pump, now) > 0);
    assert!(answer_reads(&mut pump, now) > 0, "there is more");
    let (drained, mut is_drained) = oneshot::channel();
    while pump.session.poll_transmit(now).is_some() {}
    pump.apply(now, Command::Hold { token: 2, drained });
    pump.drain_events();
    assert!(is_drained.try_recv().is_err(), "READs are outstanding");
    // A connection that is gone shows them again.
    pump.session.handle_reconnect(now);
    assert!(answer_reads(&mut pump, now) > 0);
    pump.drain_events();
    assert!(is_drained.try_recv().is_ok(), "nobody waits for the call of somebody else");
    assert_eq!(answer_reads(&mut pump, now), 0, "it makes no further calls");
    assert!(answered.try_recv().is_err() && result.try_recv().is_err());
}
