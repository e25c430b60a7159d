//! What the tests share: a service with a client that has no network, on either back end.

#[cfg(feature = "tokio")]
pub(crate) mod gate;

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use nfs_wire::{
    FileHandle, Procedure, Reader, Status,
    auth::{AuthSys, Credential},
    encode,
    nfs3_types::{
        nfs3::{
            CREATE3args, CREATE3resok, GETATTR3args, GETATTR3resok, LOOKUP3args, LOOKUP3resok, MKDIR3args,
            Nfs3Option, READ3args, READ3resok, WRITE3args, WRITE3resok, createhow3, diropargs3, fattr3,
            filename3, nfs_fh3, post_op_attr, post_op_fh3, sattr3, stable_how,
        },
        xdr_codec::{Opaque, Pack},
    },
    portmap::Protocol,
    reply::{Results, decode},
    rpc::{Program, Rejection, ReplyHeader, Xid, encode_call_header},
};

use crate::{Directory, DirectoryConfig, Memory, Metadata, Peer, Service, ServiceConfig, Transmit, Vfs};

/// A service and a client in one: calls are answered before they return.
pub(crate) struct Bench {
    pub(crate) service: Service,
    pub(crate) now: Instant,
    pub(crate) peer: Peer,
    pub(crate) xid: u32,
    pub(crate) program: Program,
    /// The host directory that is exported, if one is.
    pub(crate) host: Option<tempfile::TempDir>,
}

pub(crate) const SEED: u64 = 42;

#[expect(clippy::disallowed_methods, reason = "an arbitrary beginning of virtual time")]
pub(crate) fn epoch() -> Instant {
    Instant::now()
}

pub(crate) fn peer(protocol: Protocol) -> Peer {
    let address: SocketAddr = "192.0.2.1:700".parse().unwrap();
    Peer { address, protocol }
}

/// Runs a test on both back ends.
pub(crate) fn on_both(test: impl Fn(&mut Bench)) {
    test(&mut Bench::memory());
    test(&mut Bench::directory());
}

impl Bench {
    pub(crate) fn memory() -> Self {
        Self::with(ServiceConfig::default(), Memory::default())
    }

    pub(crate) fn directory() -> Self {
        let host = tempfile::tempdir().unwrap();
        let config = DirectoryConfig { metadata: Metadata::Cached, ..DirectoryConfig::default() };
        let mut bench = Self::with(ServiceConfig::default(), Directory::open(host.path(), config).unwrap());
        bench.host = Some(host);
        bench
    }

    pub(crate) fn with(config: ServiceConfig, backend: impl Vfs + 'static) -> Self {
        let now = epoch();
        Self {
            service: Service::new(config, backend, SEED, now).unwrap(),
            now,
            peer: peer(Protocol::Tcp),
            xid: 1,
            program: Program::NFS,
            host: None,
        }
    }

    /// Encodes a call with the next XID.
    pub(crate) fn message(&mut self, procedure: u32, arguments: &impl Pack) -> Vec<u8> {
        self.xid += 1;
        let mut credential = Vec::new();
        Credential::Sys(AuthSys { machine_name: b"bench".to_vec(), uid: 1000, gid: 100, gids: vec![] })
            .encode(&mut credential);
        let mut message = Vec::new();
        encode_call_header(&mut message, Xid(self.xid), self.program, procedure, &credential);
        encode(&mut message, arguments);
        message
    }

    /// Hands a message in and takes all replies out that come without time passing.
    pub(crate) fn exchange(&mut self, message: &[u8]) -> Vec<Transmit> {
        self.service.handle_input(self.now, self.peer, message).unwrap();
        self.replies()
    }

    pub(crate) fn replies(&mut self) -> Vec<Transmit> {
        std::iter::from_fn(|| self.service.poll_transmit(self.now)).collect()
    }

    pub(crate) fn pass(&mut self, time: Duration) -> Vec<Transmit> {
        self.now += time;
        self.service.handle_timeout(self.now);
        self.replies()
    }

    /// Makes a call of any program; returns its results or why it was not run.
    pub(crate) fn raw(&mut self, procedure: u32, arguments: &impl Pack) -> Result<Vec<u8>, Rejection> {
        let message = self.message(procedure, arguments);
        let replies = self.exchange(&message);
        assert_eq!(replies.len(), 1, "one call, one reply");
        assert_eq!(replies[0].peer, self.peer);
        self.results(&replies[0])
    }

    pub(crate) fn results(&self, reply: &Transmit) -> Result<Vec<u8>, Rejection> {
        let mut reader = Reader::new(&reply.bytes);
        let header = ReplyHeader::decode(&mut reader).unwrap();
        assert_eq!(header.xid, Xid(self.xid));
        header.outcome.map(|()| reader.rest().to_vec())
    }

    /// Makes an NFS call whose results borrow nothing.
    pub(crate) fn call<T>(&mut self, procedure: Procedure, arguments: &impl Pack) -> Result<T, Status>
    where
        T: for<'a> Results<'a>,
    {
        let results = self.raw(procedure.number(), arguments).unwrap();
        decode(&results).unwrap()
    }

    pub(crate) fn root(&mut self) -> nfs_fh3 {
        let mount = Program::MOUNT;
        let program = std::mem::replace(&mut self.program, mount);
        let results = self.raw(1, &Opaque::borrowed(b"/")).unwrap();
        self.program = program;
        let mount = nfs_wire::mount::decode_mount(&results).unwrap().unwrap();
        mount.handle.to_fh3()
    }

    pub(crate) fn getattr(&mut self, object: &nfs_fh3) -> Result<fattr3, Status> {
        let arguments = GETATTR3args { object: object.clone() };
        self.call::<GETATTR3resok>(Procedure::Getattr, &arguments).map(|results| results.obj_attributes)
    }

    pub(crate) fn lookup(&mut self, dir: &nfs_fh3, name: &[u8]) -> Result<nfs_fh3, Status> {
        let what = at(dir, name);
        self.call::<LOOKUP3resok>(Procedure::Lookup, &LOOKUP3args { what }).map(|results| results.object)
    }

    pub(crate) fn create_how(
        &mut self,
        dir: &nfs_fh3,
        name: &[u8],
        how: createhow3,
    ) -> Result<nfs_fh3, Status> {
        let where_ = at(dir, name);
        self.call::<CREATE3resok>(Procedure::Create, &CREATE3args { where_, how })
            .map(|results| some_handle(results.obj))
    }

    pub(crate) fn create(&mut self, dir: &nfs_fh3, name: &[u8]) -> nfs_fh3 {
        self.create_how(dir, name, createhow3::GUARDED(sattr3::default())).unwrap()
    }

    pub(crate) fn mkdir(&mut self, dir: &nfs_fh3, name: &[u8]) -> Result<nfs_fh3, Status> {
        let arguments = MKDIR3args { where_: at(dir, name), attributes: sattr3::default() };
        self.call::<CREATE3Results>(Procedure::Mkdir, &arguments).map(|results| some_handle(results.obj))
    }

    pub(crate) fn write(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        data: &[u8],
        stable: stable_how,
    ) -> Result<WRITE3resok, Status> {
        self.call(Procedure::Write, &write_arguments(file, offset, data, stable))
    }

    pub(crate) fn read(
        &mut self,
        file: &nfs_fh3,
        offset: u64,
        count: u32,
    ) -> Result<(Vec<u8>, bool), Status> {
        let arguments = READ3args { file: file.clone(), offset, count };
        let results = self.raw(Procedure::Read.number(), &arguments).unwrap();
        let results = decode::<READ3resok<'_>>(&results).unwrap()?;
        Ok((results.data.to_vec(), results.eof))
    }
}

/// MKDIR's results are laid out as CREATE's.
type CREATE3Results = nfs_wire::nfs3_types::nfs3::MKDIR3resok;

pub(crate) fn write_arguments<'a>(
    file: &nfs_fh3,
    offset: u64,
    data: &'a [u8],
    stable: stable_how,
) -> WRITE3args<'a> {
    WRITE3args { file: file.clone(), offset, count: data.len() as u32, stable, data: Opaque::borrowed(data) }
}

pub(crate) fn at<'a>(dir: &nfs_fh3, name: &'a [u8]) -> diropargs3<'a> {
    diropargs3 { dir: dir.clone(), name: filename3::from(name) }
}

pub(crate) fn some_handle(handle: post_op_fh3) -> nfs_fh3 {
    match handle {
        Nfs3Option::Some(handle) => handle,
        Nfs3Option::None => panic!("the service always returns handles"),
    }
}

pub(crate) fn some_attributes(attributes: post_op_attr) -> fattr3 {
    match attributes {
        Nfs3Option::Some(attributes) => attributes,
        Nfs3Option::None => panic!("attributes expected"),
    }
}

pub(crate) fn made_up_handle() -> nfs_fh3 {
    FileHandle::try_from(&[7; 16][..]).unwrap().to_fh3()
}
