//! READs through the client's session without a socket: encode, send, receive, decode.

use std::{net::SocketAddr, time::Instant};

use nfs_proto::{
    config::RetryPolicy,
    engine::{Carrier, EngineConfig, Tuning, WindowLimits},
    session::{Incoming, Session, SessionConfig, Transfer},
    transfer::{Download, Limits},
};
use nfs_wire::{FileHandle, rpc};

/// A session that downloads an endless file from a server that is one prepared reply.
pub(crate) struct ReadLoop {
    session: Session,
    server: SocketAddr,
    reply: Vec<u8>,
    now: Instant,
}

impl ReadLoop {
    /// Every READ asks for `block` bytes and gets them.
    pub(crate) fn new(carrier: Carrier, block: u32) -> Self {
        let server = "192.0.2.1:2049".parse().expect("an address");
        let now = Instant::now();
        let window = WindowLimits { calls: 16, read_bytes: u64::MAX, write_bytes: u64::MAX };
        let mut credential = Vec::new();
        nfs_wire::auth::Credential::None.encode(&mut credential);
        let config = SessionConfig {
            engine: EngineConfig {
                tuning: Tuning::default(),
                carrier,
                retry: RetryPolicy::hybrid(),
                window,
                blocks: None,
                prior: None,
                credential,
            },
            limits: Limits { read_block: block, write_block: block, ..Limits::default() },
            measure_writes: false,
            stall_timeout: None,
            rate_limit: None,
        };
        let mut session = Session::new(config, server, 1, now);
        let file = FileHandle::try_from(&[7; 32][..]).expect("a handle");
        session.start(now, Transfer::Download(Download::new(&file, u64::MAX >> 1)));
        let mut reply = Vec::new();
        rpc::ReplyHeader { xid: rpc::Xid(0), outcome: Ok(()) }.encode(&mut reply);
        // NFS3_OK, no attributes, count, not the end, length (RFC 1813 §3.3.6).
        for word in [0, 0, block, 0, block] {
            reply.extend_from_slice(&word.to_be_bytes());
        }
        reply.resize(reply.len() + block as usize, 0);
        Self { session, server, reply, now }
    }

    /// Sends one READ and takes its reply in; returns the number of data bytes.
    pub(crate) fn read(&mut self) -> u32 {
        let transmit = self.session.poll_transmit(self.now).expect("the window is open");
        self.reply[..4].copy_from_slice(&transmit.head[..4]);
        let incoming =
            self.session.handle_head(self.now, self.server, &self.reply, true).expect("a valid reply");
        let Incoming::Data { length, .. } = incoming else { panic!("data expected, not {incoming:?}") };
        self.session.handle_payload_done(self.now);
        while self.session.poll_event().is_some() {}
        length
    }
}
