//! The MOUNT program, version 3 (RFC 1813 Appendix I).

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

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
    faults::{InnerExport, Mountable},
    handle::Handles,
    vfs::{Name, NodeId, Vfs},
};

/// Who has mounted what, as far as DUMP tells; it decides nothing.
#[derive(Debug, Default)]
pub(crate) struct Mounts(BTreeSet<(IpAddr, Vec<u8>)>);

/// Most mounts remembered; further ones work, but are not listed.
const MAX_MOUNTS: usize = 1024;

impl Mounts {
    fn enter(&mut self, client: IpAddr, path: &[u8]) {
        if self.0.len() < MAX_MOUNTS {
            self.0.insert((client, path.to_vec()));
        }
    }
}

/// What MNT offers: AUTH_SYS, then AUTH_NONE (RFC 5531 §8.2).
const AUTH_FLAVORS: [u32; 2] = [1, 0];

/// What a MOUNT call is served with.
pub(crate) struct MountCall<'a> {
    pub(crate) mounts: &'a Mutex<Mounts>,
    pub(crate) backend: &'a dyn Vfs,
    pub(crate) reply: &'a mut Vec<u8>,
    pub(crate) export: &'a [u8],
    pub(crate) mountable: Mountable,
    pub(crate) hides_exports: bool,
    pub(crate) inner_exports: &'a [InnerExport],
    pub(crate) handles: Handles,
    pub(crate) client: IpAddr,
}

impl<'a> MountCall<'a> {
    /// Runs a procedure and appends its results.
    pub(crate) fn serve(&mut self, procedure: u32, arguments: Reader<'_>) -> Result<(), Rejection> {
        let garbage = |_: DecodeError| Rejection::GarbageArguments;
        match procedure {
            procedure::MNT => self.mount(decode_path(arguments).map_err(garbage)?),
            procedure::UMNT => {
                let path = decode_path(arguments).map_err(garbage)?.to_vec();
                self.mounts().0.remove(&(self.client, path));
            }
            procedure::NULL | procedure::DUMP | procedure::UMNTALL | procedure::EXPORT => {
                arguments.finish().map_err(garbage)?;
                match procedure {
                    procedure::DUMP => self.dump(),
                    procedure::UMNTALL => self.mounts().0.retain(|(client, _)| *client != self.client),
                    procedure::EXPORT => self.export(),
                    _ => {}
                }
            }
            _ => return Err(Rejection::ProcedureUnavailable),
        }
        Ok(())
    }

    fn mounts(&self) -> MutexGuard<'a, Mounts> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// MNT (RFC 1813 §5.2.1) of the export or a directory below it.
    fn mount(&mut self, path: &[u8]) {
        match self.find(path) {
            Ok(node) => {
                self.mounts().enter(self.client, path);
                let handle = self.handles.handle_of(self.backend, node);
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
        if self.handles.are_revoked {
            return Err(MountStatus::ACCES);
        }
        match self.mountable {
            Mountable::Anything => return Ok(self.backend.root()),
            Mountable::AnythingButRoot if path != b"/" => return Ok(self.backend.root()),
            Mountable::AnythingButRoot => return Err(MountStatus::ACCES),
            Mountable::Export if path != self.export => return Err(MountStatus::ACCES),
            Mountable::Export | Mountable::Directories => {}
        }
        let below = |export: &[u8]| match export {
            b"/" => path.strip_prefix(b"/"),
            export => path.strip_prefix(export).filter(|rest| matches!(rest, [] | [b'/', ..])),
        };
        let inner = self.inner_exports.iter().filter(|inner| below(&inner.path).is_some());
        let (mut node, below) = match inner.max_by_key(|inner| inner.path.len()) {
            Some(inner) if inner.is_refused => return Err(MountStatus::ACCES),
            Some(inner) => (self.backend.resolve(&inner.stored).map_err(mount_status)?, below(&inner.path)),
            None => (self.backend.root(), below(self.export)),
        };
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
        let mounts = self.mounts();
        let bodies = mounts.0.iter().map(|(client, path)| mountbody {
            ml_hostname: nfs3_types::mount::name(Opaque::owned(client.to_string().into_bytes())),
            ml_directory: dirpath(Opaque::borrowed(path)),
        });
        let list: mountlist<'_, '_> = List(bodies.collect());
        encode(self.reply, &list);
    }

    /// EXPORT (RFC 1813 §5.2.5): directories for everyone.
    fn export(&mut self) {
        let inner = self.inner_exports.iter().filter(|inner| !inner.is_unlisted).map(|inner| &inner.path[..]);
        let node = |path| export_node { ex_dir: dirpath(Opaque::borrowed(path)), ex_groups: List::default() };
        let all = [self.export].into_iter().chain(inner).map(node);
        let nodes = if self.hides_exports { vec![] } else { all.collect() };
        encode(self.reply, &List(nodes));
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

#[cfg(test)]
mod tests {
    use nfs_wire::{
        mount::{Export, decode_exports, decode_mount},
        nfs3_types::{nfs3::nfstime3, xdr_codec::Void},
        rpc::Program,
    };

    use super::*;
    use crate::{Faults, Memory, ServiceConfig, testing::Bench, vfs::NewObject};

    fn bench(export: &[u8]) -> Bench {
        let config = ServiceConfig { export: export.to_vec(), ..ServiceConfig::default() };
        let mut bench = Bench::with(config, Memory::default());
        bench.program = Program::MOUNT;
        let backend = bench.service.backend();
        let now = nfstime3::default();
        backend.write_file(now, b"dir/file", b"").unwrap();
        backend.make(now, b"link", NewObject::Symlink(b"/etc")).unwrap();
        bench
    }

    fn mount(bench: &mut Bench, path: &[u8]) -> Result<nfs_wire::mount::Mount, MountStatus> {
        let results = bench.raw(procedure::MNT, &Opaque::borrowed(path)).unwrap();
        decode_mount(&results).unwrap()
    }

    #[test]
    fn what_is_revoked_is_stale_and_mounted_no_more() {
        let mut bench = bench(b"/");
        let root = mount(&mut bench, b"/").unwrap().handle.to_fh3();
        bench.program = Program::NFS;
        bench.getattr(&root).unwrap();
        bench.service.revoke();
        assert_eq!(bench.getattr(&root).unwrap_err(), Status::STALE);
        bench.program = Program::MOUNT;
        assert_eq!(mount(&mut bench, b"/").unwrap_err(), MountStatus::ACCES);
    }

    #[test]
    fn the_export_and_directories_below_it_can_be_mounted() {
        for (export, prefix) in [(&b"/"[..], &b""[..]), (b"/srv/data", b"/srv/data")] {
            let mut bench = bench(export);
            let path = |rest: &[u8]| [prefix, rest].concat();
            let root = mount(&mut bench, export).unwrap();
            assert_eq!(root.auth_flavors, AUTH_FLAVORS);
            assert_eq!(mount(&mut bench, &path(b"/")).unwrap().handle, root.handle);
            let below = mount(&mut bench, &path(b"/dir/")).unwrap();
            assert_ne!(below.handle, root.handle);
            for (rest, status) in [
                (&b"/missing"[..], MountStatus::NOENT),
                (b"/dir/file", MountStatus::NOTDIR),
                (b"/link", MountStatus::NOTDIR),
                (b"/dir/..", MountStatus::ACCES),
            ] {
                assert_eq!(mount(&mut bench, &path(rest)), Err(status));
            }
        }
        let mut bench = bench(b"/srv/data");
        for path in [&b"/"[..], b"/srv", b"/srv/database", b""] {
            assert_eq!(mount(&mut bench, path), Err(MountStatus::NOENT));
        }
    }

    #[test]
    fn export_names_the_export() {
        let mut bench = bench(b"/srv/data");
        let results = bench.raw(procedure::EXPORT, &Void).unwrap();
        let expected = Export { directory: b"/srv/data".to_vec(), groups: vec![] };
        assert_eq!(decode_exports(&results).unwrap(), [expected]);
    }

    #[test]
    fn an_inner_export_is_another_directory_when_it_is_mounted() {
        let mut bench = bench(b"/srv");
        let now = nfstime3::default();
        let backend = bench.service.backend();
        backend.make(now, b"top/inner", NewObject::Directory).unwrap();
        backend.write_file(now, b"elsewhere/below/file", b"").unwrap();
        let elsewhere = mount(&mut bench, b"/srv/elsewhere").unwrap().handle;
        let below = mount(&mut bench, b"/srv/elsewhere/below").unwrap().handle;
        let covered = mount(&mut bench, b"/srv/top/inner").unwrap().handle;
        let inner = InnerExport {
            path: b"/srv/top/inner".to_vec(),
            stored: b"elsewhere".to_vec(),
            ..InnerExport::default()
        };
        let unlisted = InnerExport { path: b"/alias".to_vec(), is_unlisted: true, ..inner.clone() };
        let refused = InnerExport { is_refused: true, ..inner.clone() };
        bench.service.set_faults(Faults { inner_exports: vec![inner, unlisted], ..Faults::default() });
        assert_eq!(mount(&mut bench, b"/srv/top/inner").unwrap().handle, elsewhere);
        assert_eq!(mount(&mut bench, b"/srv/top/inner/below").unwrap().handle, below);
        assert_eq!(mount(&mut bench, b"/alias/below").unwrap().handle, below);
        assert_ne!(covered, elsewhere);
        let listed = decode_exports(&bench.raw(procedure::EXPORT, &Void).unwrap()).unwrap();
        assert_eq!(
            listed.iter().map(|it| &it.directory[..]).collect::<Vec<_>>(),
            [&b"/srv"[..], b"/srv/top/inner"]
        );
        bench.service.set_faults(Faults { inner_exports: vec![refused], ..Faults::default() });
        assert_eq!(mount(&mut bench, b"/srv/top/inner"), Err(MountStatus::ACCES));
    }

    #[test]
    fn dump_lists_mounts_until_they_are_given_up() {
        let mut bench = bench(b"/");
        let empty = bench.raw(procedure::DUMP, &Void).unwrap();
        assert_eq!(empty, [0; 4]);
        mount(&mut bench, b"/dir").unwrap();
        mount(&mut bench, b"/").unwrap();
        mount(&mut bench, b"/missing").unwrap_err();
        let two = bench.raw(procedure::DUMP, &Void).unwrap();
        assert!(two.windows(9).any(|window| window == b"192.0.2.1"));
        bench.raw(procedure::UMNT, &Opaque::borrowed(b"/dir")).unwrap();
        let one = bench.raw(procedure::DUMP, &Void).unwrap();
        assert!(one.len() < two.len() && one.len() > 4);
        bench.raw(procedure::UMNTALL, &Void).unwrap();
        assert_eq!(bench.raw(procedure::DUMP, &Void).unwrap(), empty);
    }

    #[test]
    fn the_list_of_mounts_is_bounded() {
        let mut bench = bench(b"/");
        for count in 0..MAX_MOUNTS + 10 {
            let path = format!("/dir{}", "/.".repeat(count % 500 + 1));
            bench.peer.address.set_ip(IpAddr::from([10, 0, 0, (count / 500) as u8]));
            mount(&mut bench, path.as_bytes()).unwrap();
        }
        let list = bench.raw(procedure::DUMP, &Void).unwrap();
        let hosts = list.windows(7).filter(|window| window == b"10.0.0.").count();
        assert_eq!(hosts, MAX_MOUNTS);
    }
}
