//! What an experiment is: who copies what, how, over which link.

use std::time::Duration;

use nfs_proto::{
    config::{BlockSize, MAX_BLOCK_BYTES, RetryPolicy, Window},
    engine::Tuning,
};
use nfs_wire::portmap::Protocol;

use crate::{Error, Room};

/// Which way a file goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// From the server to the mobile.
    Read,
    /// From the mobile to the server, to stable storage.
    Write,
}

impl Operation {
    /// `"read"` or `"write"`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// What calls travel over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// Datagrams.
    #[default]
    Udp,
    /// One TCP connection, with CUBIC at both ends.
    Tcp,
    /// What the client's endpoint chooses: both transports, and several TCP connections for a download unless the window is given
    /// (docs/transports.md).
    Auto,
}

impl Transport {
    /// `"udp"`, `"tcp"` or `"auto"`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Auto => "auto",
        }
    }
}

/// A time during which the server cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Its beginning, counted from the first call.
    pub at: Duration,
    /// How long it lasts.
    pub length: Duration,
    /// Over which transport; `None` is over any.
    pub over: Option<Protocol>,
}

/// One experiment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// Link and hosts.
    pub room: Room,
    /// Which way the file goes.
    pub operation: Operation,
    /// Size of the file, in bytes. Default 1 MB, 1,048,576 bytes (Dube et al. 1997 §4).
    pub size: u64,
    /// What calls travel over. Default UDP.
    pub transport: Transport,
    /// When calls are sent again. Over TCP they are not, but over another connection after one that died.
    pub policy: RetryPolicy,
    /// What the adaptive policy is tuned with.
    pub tuning: Tuning,
    /// Bytes per READ or WRITE. Default 4096 (Dube et al. 1997 §5.1).
    pub block: BlockSize,
    /// READs and WRITEs in flight. Default: the room's.
    pub window: Window,
    /// Mobiles that copy at once, 1 to 10,000. Default 1.
    pub clients: u16,
    /// How much later than its predecessor each mobile starts. Default 0.
    pub spacing: Duration,
    /// When the server cannot be reached.
    pub outages: Vec<Outage>,
    /// How often one more mobile calls NULL, to see the round-trip time beside the copy. Default never.
    pub ping: Option<Duration>,
    /// Whether a TCP flow of somebody else, to or from one more mobile, shares the link from the beginning. Default no.
    pub competitor: bool,
    /// Bytes of the file that were copied before, so that the client has a path estimate of UDP, or a TCP connection. Default none.
    pub warm: Option<u64>,
    /// When a copy is given up, counted from its first call. Default 300 s (Dube et al. 1995 §4.2).
    pub patience: Duration,
}

impl Plan {
    /// The copy of 1 MB in 4096-byte blocks to one mobile.
    pub fn new(room: Room) -> Self {
        Self {
            window: room.window.map_or(Window::Auto, Window::Calls),
            room,
            operation: Operation::Read,
            size: 1 << 20,
            transport: Transport::default(),
            policy: RetryPolicy::default(),
            tuning: Tuning::default(),
            block: BlockSize::Exact(4096),
            clients: 1,
            spacing: Duration::ZERO,
            outages: Vec::new(),
            ping: None,
            competitor: false,
            warm: None,
            patience: Duration::from_secs(300),
        }
    }

    /// Checks what no single field's type can.
    ///
    /// # Errors
    /// [`Error`] names the field and its bounds.
    pub fn check(&self) -> Result<(), Error> {
        let range = |field, value: u64, low: u64, high: u64, bound| match (low..=high).contains(&value) {
            true => Ok(()),
            false => Err(Error::OutOfRange { field, value: value.to_string(), bound }),
        };
        range("clients", self.clients.into(), 1, 10_000, "1 to 10000")?;
        range("size", self.size, 1, 1 << 40, "1 byte to 1 TiB")?;
        if let BlockSize::Exact(bytes) = self.block {
            range("block", bytes.into(), 1, MAX_BLOCK_BYTES.into(), "512 bytes to 1 MiB")?;
        }
        if self.ping.is_some_and(|every| every.is_zero()) {
            let value = "0 s".into();
            return Err(Error::OutOfRange { field: "ping", value, bound: "longer than 0 s" });
        }
        if self.transport != Transport::Udp && self.room.link.header_compression {
            let value = format!("{} with header compression", self.transport.name());
            return Err(Error::OutOfRange {
                field: "transport",
                value,
                bound: "udp: TCP headers have no profile",
            });
        }
        if self.transport == Transport::Auto && self.warm.is_some() {
            let value = "auto with a copy before".into();
            return Err(Error::OutOfRange {
                field: "transport",
                value,
                bound: "udp or tcp with a copy before",
            });
        }
        self.room.link.validate().map_err(Error::from)
    }
}
