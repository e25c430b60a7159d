//! The MOUNT program, version 3 (RFC 1813 Appendix I).

use std::{collections::BTreeSet, net::IpAddr};

use nfs_wire::{
    DecodeError, MountStatus, Reader, Status, encode,
    mount::{decode_path, procedure},
    nfs3_types::{
        self,
        mount::{dirpath, export_node, fhandle3, mountbody, mountlist, mountres3_ok},
        nfs3::ftype3,
        xdr_codec::{List, Opaque},
    },
    rpc::Rejection,
};

use crate::{
    handle::Handles,
    vfs::{Name, NodeId, Vfs},
};

/// Who has mounted what, as far as DUMP tells; it decides nothing.
#[derive(Debug, Default)]
pub(crate) struct Mounts(BTreeSet<(IpAddr, Vec<u8>)>);

/// Most mounts remembered; further ones work, but are not listed.
const MAX_MOUNTS: usize = 1024;

/// What MNT offers: AUTH_SYS, then AUTH_NONE (RFC 5531 §8.2).
const AUTH_FLAVORS: [u32; 2] = [1, 0];

/// What a MOUNT call is served with.
pub(crate) struct MountCall<'a> {
    pub(crate) mounts: &'a mut Mounts,
    pub(crate) backend: &'a mut dyn Vfs,
    pub(crate) reply: &'a mut Vec<u8>,
    pub(crate) export: &'a [u8],
    pub(crate) handles: Handles,
    pub(crate) client: IpAddr,
}

impl MountCall<'_> {
    /// Runs a procedure and appends its results.
    pub(crate) fn serve(&mut self, procedure: u32, arguments: Reader<'_>) -> Result<(), Rejection> {
        let garbage = |_: DecodeError| Rejection::GarbageArguments;
        match procedure {
            procedure::MNT => self.mount(decode_path(arguments).map_err(garbage)?),
            procedure::UMNT => {
                let path = decode_path(arguments).map_err(garbage)?.to_vec();
                self.mounts.0.remove(&(self.client, path));
            }
            procedure::NULL | procedure::DUMP | procedure::UMNTALL | procedure::EXPORT => {
                arguments.finish().map_err(garbage)?;
                match procedure {
                    procedure::DUMP => self.dump(),
                    procedure::UMNTALL => self.mounts.0.retain(|(client, _)| *client != self.client),
                    procedure::EXPORT => self.export(),
                    _ => {}
                }
            }
            _ => return Err(Rejection::ProcedureUnavailable),
        }
        Ok(())
    }

    /// MNT (RFC 1813 §5.2.1) of the export or a directory below it.
    fn mount(&mut self, path: &[u8]) {
        match self.find(path) {
            Ok(node) => {
                if self.mounts.0.len() < MAX_MOUNTS {
                    self.mounts.0.insert((self.client, path.to_vec()));
                }
                let handle = self.handles.handle(node);
                encode(self.reply, &0_u32);
                encode(
                    self.reply,
                    &mountres3_ok {
                        fhandle: fhandle3(Opaque::borrowed(handle.as_bytes())),
                        auth_flavors: AUTH_FLAVORS.to_vec(),
                    },
                );
            }
            Err(status) => encode(self.reply, &status.code()),
        }
    }

    fn find(&mut self, path: &[u8]) -> Result<NodeId, MountStatus> {
        let below = match self.export {
            b"/" => path.strip_prefix(b"/"),
            export => path.strip_prefix(export).filter(|rest| matches!(rest, [] | [b'/', ..])),
        };
        let mut node = self.backend.root();
        for component in below.ok_or(MountStatus::NOENT)?.split(|&byte| byte == b'/') {
            if !matches!(component, b"" | b".") {
                node = Name::new(component)
                    .and_then(|name| self.backend.lookup(node, name))
                    .map_err(mount_status)?;
            }
        }
        match self.backend.attributes(node).map_err(mount_status)?.type_ {
            ftype3::NF3DIR => Ok(node),
            _ => Err(MountStatus::NOTDIR),
        }
    }

    /// DUMP (RFC 1813 §5.2.2).
    fn dump(&mut self) {
        let bodies = self.mounts.0.iter().map(|(client, path)| mountbody {
            ml_hostname: nfs3_types::mount::name(Opaque::owned(client.to_string().into_bytes())),
            ml_directory: dirpath(Opaque::borrowed(path)),
        });
        let list: mountlist<'_, '_> = List(bodies.collect());
        encode(self.reply, &list);
    }

    /// EXPORT (RFC 1813 §5.2.5): one directory, for everyone.
    fn export(&mut self) {
        let node = export_node { ex_dir: dirpath(Opaque::borrowed(self.export)), ex_groups: List::default() };
        encode(self.reply, &List(vec![node]));
    }
}

/// Says a file system's status in MOUNT's words, which are fewer but have the same numbers.
fn mount_status(status: Status) -> MountStatus {
    match status {
        Status::NOENT | Status::STALE => MountStatus::NOENT,
        Status::NOTDIR => MountStatus::NOTDIR,
        Status::ACCES => MountStatus::ACCES,
        Status::PERM => MountStatus::PERM,
        Status::NAMETOOLONG => MountStatus::NAMETOOLONG,
        Status::IO => MountStatus::IO,
        _ => MountStatus::SERVERFAULT,
    }
}
