//! What was found out about a server.

use std::{net::IpAddr, time::Duration};

use nfs_wire::{mount::Export, portmap::Protocol};

/// Both transports, in the order of the columns.
pub(super) const PROTOCOLS: [Protocol; 2] = [Protocol::Udp, Protocol::Tcp];

/// Everything that was found out.
#[derive(Debug)]
pub(super) struct Findings {
    pub(super) host: String,
    pub(super) address: IpAddr,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// The port mapper, MOUNT and NFS.
    pub(super) services: Vec<Service>,
    /// Other versions of NFS that the port mapper lists.
    pub(super) nfs_versions: Vec<u32>,
    pub(super) exports: Option<Result<Vec<Export>, String>>,
    /// The export that was mounted, or why not.
    pub(super) mount: Option<Mounted>,
    /// FSINFO over UDP and TCP.
    pub(super) limits: [Option<Limits>; 2],
    pub(super) names: Option<Names>,
    /// What was tried, and what came of it.
    pub(super) tried: Vec<(&'static str, String)>,
    /// What a client must know of and put up with.
    pub(super) quirks: Vec<String>,
    /// What to change on the server.
    pub(super) advice: Vec<String>,
}

/// One program on one server.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) name: &'static str,
    pub(super) version: u32,
    /// Over UDP and TCP: the port, and the answer to NULL.
    pub(super) answers: [Answer; 2],
}

/// What a transport says.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) port: Option<u16>,
    /// How long NULL took, or why there was no answer.
    pub(super) null: Result<Duration, String>,
}

/// What MNT said.
#[derive(Debug)]
pub(super) struct Mounted {
    pub(super) path: Vec<u8>,
    pub(super) outcome: Result<(), String>,
    /// Bytes of the root's handle.
    pub(super) handle_bytes: usize,
    pub(super) flavors: Vec<u32>,
}

/// What FSINFO says (RFC 1813 §3.3.19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) read_max: u32,
    pub(super) read_preferred: u32,
    pub(super) write_max: u32,
    pub(super) write_preferred: u32,
    pub(super) listing_preferred: u32,
    pub(super) largest_file: u64,
    pub(super) time_step: Duration,
    pub(super) properties: u32,
}

/// What PATHCONF says (RFC 1813 §3.3.20).
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    pub(super) longest: u32,
    pub(super) links: u32,
    pub(super) truncates: bool,
    pub(super) ignores_case: bool,
    pub(super) keeps_case: bool,
}

impl Findings {
    /// Whether NFS answers over a transport.
    pub(super) fn nfs_answers(&self, protocol: Protocol) -> bool {
        let nfs = self.services.iter().find(|service| service.name == "NFS");
        nfs.is_some_and(|nfs| nfs.answers[index(protocol)].null.is_ok())
    }

    /// Notes what a test showed.
    pub(super) fn tried(&mut self, what: &'static str, came: impl Into<String>) {
        self.tried.push((what, came.into()));
    }

    /// Notes what is odd, once.
    pub(super) fn odd(&mut self, what: impl Into<String>) {
        let what = what.into();
        if !self.quirks.contains(&what) {
            self.quirks.push(what);
        }
    }
}

/// Returns the column of a transport.
pub(super) const fn index(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Udp => 0,
        Protocol::Tcp => 1,
    }
}

/// Returns the name of a transport.
pub(super) const fn name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Udp => "UDP",
        Protocol::Tcp => "TCP",
    }
}
