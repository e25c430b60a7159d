//! What NFS itself says: limits, abilities, users, large READs.

use std::time::Duration;

use nfs_wire::{
    FileHandle, Procedure, Reader, Status, encode,
    nfs3_types::nfs3::{
        ACCESS3resok, FSINFO3resok, FSSTAT3resok, GETATTR3resok, LOOKUP3resok, Nfs3Option, PATHCONF3resok,
        READDIRPLUS3resok, fattr3, ftype3,
    },
    portmap::Protocol,
    reply::{self, ReadHead, Results},
    rpc::Program,
};

use super::{
    advice::insecure,
    findings::{Limits, Names, PROTOCOLS, index, name},
    probe::{Doctor, UNPRIVILEGED, encoded, entry},
    rpc::{Caller, Trouble},
};
use crate::{text::escape, units};

/// READs over UDP that are tried, in bytes: what Linux, FreeBSD and others take, and the largest that fits a datagram.
const READS: [u32; 7] = [1024, 4096, 8192, 16_384, 32_768, 49_152, 65_000];

/// Bytes of the largest datagram (RFC 768, over IPv4).
const MAX_DATAGRAM: u32 = 65_507;

/// ACCESS's bits for changing a directory (RFC 1813 §3.3.4).
const ACCESS_CHANGE: u32 = 0x4 | 0x8 | 0x10;
const ACCESS_ALL: u32 = 0x3f;

/// A file or directory that was reached.
#[derive(Clone, Debug)]
pub(super) struct Resolved {
    pub(super) handle: FileHandle,
    pub(super) attributes: Option<fattr3>,
}

impl Doctor {
    /// Makes a call of NFS over the better of the transports that answer.
    pub(super) async fn nfs<T>(&mut self, procedure: Procedure, arguments: &[u8]) -> Result<T, String>
    where
        T: for<'a> Results<'a>,
    {
        let protocol = if self.nfs[1].is_some() { Protocol::Tcp } else { Protocol::Udp };
        self.nfs_over(protocol, procedure, arguments).await
    }

    async fn nfs_over<T>(
        &mut self,
        protocol: Protocol,
        procedure: Procedure,
        arguments: &[u8],
    ) -> Result<T, String>
    where
        T: for<'a> Results<'a>,
    {
        let Some(caller) = &mut self.nfs[index(protocol)] else {
            return Err(format!("NFS does not answer over {}", name(protocol)));
        };
        let called = caller.call(Program::NFS, procedure.number(), arguments).await;
        let results = called.map_err(|trouble| trouble.words())?;
        self.understand(procedure, &results)
    }

    /// Decodes results, and overlooks what follows them.
    pub(super) fn understand<T>(&mut self, procedure: Procedure, results: &[u8]) -> Result<T, String>
    where
        T: for<'a> Results<'a>,
    {
        let mut reader = Reader::new(results);
        let decoded = match reader.u32("status").map(Status::from_code) {
            Ok(None) => T::decode(&mut reader),
            Ok(Some(status)) => return Err(status.to_string()),
            Err(error) => Err(error),
        };
        match decoded {
            Ok(results) => {
                if let count @ 1.. = reader.rest().len() {
                    self.findings.odd(format!("{procedure}: {count} bytes follow the results"));
                }
                Ok(results)
            }
            Err(error) => {
                self.findings.odd(format!("{procedure}: cannot be understood: {error}"));
                Err(format!("cannot be understood: {error}"))
            }
        }
    }

    /// Asks for the limits and abilities of the file system, and whether the user is accepted.
    pub(super) async fn file_system(&mut self, root: FileHandle) {
        let handle = encoded(&root);
        for protocol in PROTOCOLS {
            if !self.findings.nfs_answers(protocol) {
                continue;
            }
            match self.nfs_over::<FSINFO3resok>(protocol, Procedure::Fsinfo, &handle).await {
                Ok(info) => {
                    let most = info.rtmax.max(info.wtmax);
                    if protocol == Protocol::Udp && most > MAX_DATAGRAM {
                        self.findings.odd(format!(
                            "over UDP, READs and WRITEs of up to {} are announced; a datagram holds less than 64 KiB",
                            units::bytes(most.into())
                        ));
                    }
                    self.findings.limits[index(protocol)] = Some(limits(&info));
                }
                Err(words) => self.findings.odd(format!("FSINFO over {}: {words}", name(protocol))),
            }
        }
        let user = format!("uid {} by AUTH_SYS", self.findings.uid);
        match self.nfs::<GETATTR3resok>(Procedure::Getattr, &handle).await {
            Ok(_) => self.findings.tried("the user", format!("{user} is accepted")),
            Err(words) => {
                self.findings.tried("the user", format!("{user}: {words}"));
                self.try_privileged_port(&handle, &words).await;
            }
        }
        match self.nfs::<PATHCONF3resok>(Procedure::Pathconf, &handle).await {
            Ok(conf) => {
                self.findings.names = Some(Names {
                    longest: conf.name_max,
                    links: conf.linkmax,
                    truncates: !conf.no_trunc,
                    ignores_case: conf.case_insensitive,
                    keeps_case: conf.case_preserving,
                });
            }
            Err(words) => self.findings.odd(format!("PATHCONF: {words}")),
        }
        if let Err(words) = self.nfs::<FSSTAT3resok>(Procedure::Fsstat, &handle).await {
            self.findings.odd(format!("FSSTAT: {words}"));
        }
        self.root_user(root).await;
        self.listing(root).await;
    }

    /// Whether what was refused from an unprivileged port is granted to another one.
    async fn try_privileged_port(&mut self, handle: &[u8], words: &str) {
        let nfs = self.findings.services.iter().find(|service| service.name == "NFS");
        let at = nfs.and_then(|nfs| {
            PROTOCOLS.into_iter().rev().find_map(|protocol| {
                let answer = &nfs.answers[index(protocol)];
                Some((protocol, answer.port.filter(|_| answer.null.is_ok())?))
            })
        });
        let Some((protocol, port)) = at else { return };
        let mut address = self.address;
        address.set_port(port);
        let caller = Caller::reach(address, protocol, self.wait, true, &self.credential).await;
        let came = match caller {
            Err(Trouble::Io(_)) => {
                format!("NFS refuses ({words}); those below 1024 take root, and were not tried")
            }
            Err(trouble) => trouble.words(),
            Ok(mut caller) => {
                let called = caller.call(Program::NFS, Procedure::Getattr.number(), handle).await;
                match called
                    .map(|results| reply::decode::<GETATTR3resok>(&results).is_ok_and(|it| it.is_ok()))
                {
                    Ok(true) => {
                        let path = self.findings.mount.as_ref().map(|it| escape(&it.path).into_owned());
                        self.findings.advice.push(insecure(&path.unwrap_or_default(), "NFS"));
                        "NFS refuses them, and accepts those below 1024".to_owned()
                    }
                    Ok(false) | Err(_) => format!("NFS refuses ({words}), as from those below 1024"),
                }
            }
        };
        self.findings.tried.retain(|(what, _)| *what != UNPRIVILEGED);
        self.findings.tried(UNPRIVILEGED, came);
    }

    /// Whether root is root there, as far as ACCESS tells.
    async fn root_user(&mut self, root: FileHandle) {
        const WHAT: &str = "root (uid 0)";
        let handle = encoded(&root);
        let Ok(found) = self.nfs::<GETATTR3resok>(Procedure::Getattr, &handle).await else { return };
        let mut arguments = handle;
        arguments.extend_from_slice(&ACCESS_ALL.to_be_bytes());
        self.act_as_root(true);
        let granted = self.nfs::<ACCESS3resok>(Procedure::Access, &arguments).await;
        self.act_as_root(false);
        let everybody_may = found.obj_attributes.mode & 0o002 != 0;
        let came = match granted {
            Err(words) => format!("ACCESS: {words}"),
            Ok(_) if everybody_may => {
                "not to be told: everybody may change this directory (--write-test)".to_owned()
            }
            Ok(granted) if granted.access & ACCESS_CHANGE != 0 => "stays root (no_root_squash)".to_owned(),
            Ok(_) => "may not write: mapped to nobody (root_squash), or the export is read-only".to_owned(),
        };
        self.findings.tried(WHAT, came);
    }

    /// Makes calls as the superuser, or as the user again.
    pub(super) fn act_as_root(&mut self, is_root: bool) {
        let credential = if is_root { &self.root_credential } else { &self.credential };
        self.nfs.iter_mut().flatten().for_each(|caller| caller.set_credential(credential));
    }

    async fn listing(&mut self, root: FileHandle) {
        let mut arguments = encoded(&root);
        arguments.extend_from_slice(&[0; 16]);
        for count in [1024_u32, 8192] {
            arguments.extend_from_slice(&count.to_be_bytes());
        }
        let Some(caller) = self.nfs.iter_mut().rev().flatten().next() else { return };
        let listed = caller.call(Program::NFS, Procedure::Readdirplus.number(), &arguments).await;
        let came = match listed {
            Err(trouble) => trouble.words(),
            Ok(results) => match reply::decode::<READDIRPLUS3resok<'_>>(&results) {
                Ok(Ok(page)) => {
                    let entries = &page.reply.entries.0;
                    let bare =
                        entries.iter().filter(|it| matches!(it.name_attributes, Nfs3Option::None)).count();
                    if bare > 0 && bare == entries.len() { "offered, without attributes" } else { "offered" }
                        .to_owned()
                }
                Ok(Err(status)) => status.to_string(),
                Err(error) => format!("cannot be understood: {error}"),
            },
        };
        if came != "offered" {
            self.findings
                .odd(format!("READDIRPLUS: {came}, so listing a directory takes a call for each file"));
        }
        self.findings.tried("READDIRPLUS", came);
    }

    /// Goes down from the root by names; links are not followed.
    pub(super) async fn walk(&mut self, root: FileHandle, below: &[u8]) -> Result<Resolved, String> {
        let handle = encoded(&root);
        let found = self.nfs::<GETATTR3resok>(Procedure::Getattr, &handle).await?;
        let mut place = Resolved { handle: root, attributes: Some(found.obj_attributes) };
        for part in below.split(|&byte| byte == b'/').filter(|part| !part.is_empty()) {
            let arguments = entry(&place.handle, part);
            let found = self.nfs::<LOOKUP3resok>(Procedure::Lookup, &arguments).await;
            let found = found.map_err(|words| format!("{}: {words}", escape(part)))?;
            let handle = FileHandle::try_from(&found.object).map_err(|error| error.to_string())?;
            let attributes = match found.obj_attributes {
                Nfs3Option::Some(attributes) => Some(attributes),
                Nfs3Option::None => {
                    self.findings
                        .odd("LOOKUP comes without attributes, which takes another call for each name");
                    let found = self.nfs::<GETATTR3resok>(Procedure::Getattr, &encoded(&handle)).await?;
                    Some(found.obj_attributes)
                }
            };
            place = Resolved { handle, attributes };
        }
        Ok(place)
    }

    /// Tries READs of growing size over UDP, where the file is large enough to show something.
    pub(super) async fn large_reads(&mut self, file: &FileHandle, size: u64) {
        const WHAT: &str = "large READs over UDP";
        let Some(caller) = &mut self.nfs[0] else { return };
        let (mut largest, mut end) = (0, None);
        for asked in READS.into_iter().filter(|&asked| u64::from(asked) <= size) {
            let mut arguments = encoded(file);
            encode(&mut arguments, &0_u64);
            encode(&mut arguments, &asked);
            let words = match caller.call(Program::NFS, Procedure::Read.number(), &arguments).await {
                Ok(results) => match ReadHead::decode(&mut Reader::new(&results), asked) {
                    Ok(Ok(head)) if head.count >= asked => {
                        largest = asked;
                        continue;
                    }
                    Ok(Ok(head)) => {
                        largest = largest.max(head.count);
                        format!("cut to {}", units::bytes(head.count.into()))
                    }
                    Ok(Err(status)) => status.to_string(),
                    Err(error) => error.to_string(),
                },
                Err(trouble) => trouble.words(),
            };
            end = Some(format!("{}: {words}", units::bytes(asked.into())));
            break;
        }
        let up_to = format!("answered up to {}", units::bytes(largest.into()));
        let came = match end {
            Some(end) => format!("{up_to}; {end}"),
            None if size < READS[READS.len() - 1].into() => {
                format!("{up_to}; the file is too small for more")
            }
            None => up_to,
        };
        self.findings.tried(WHAT, came);
        let announced = self.findings.limits[0].map_or(0, |limits| limits.read_max);
        if largest < announced && largest < 65_000 && size >= announced.min(65_000).into() {
            self.findings.odd(format!(
                "over UDP, READs of up to {} are announced and only {} are answered",
                units::bytes(announced.into()),
                units::bytes(largest.into())
            ));
        }
    }

    /// Whether a place is a regular file, and how large.
    pub(super) fn size_of(place: &Resolved) -> Option<u64> {
        let attributes = place.attributes.as_ref()?;
        (attributes.type_ == ftype3::NF3REG).then_some(attributes.size)
    }
}

fn limits(info: &FSINFO3resok) -> Limits {
    Limits {
        read_max: info.rtmax,
        read_preferred: info.rtpref,
        write_max: info.wtmax,
        write_preferred: info.wtpref,
        listing_preferred: info.dtpref,
        largest_file: info.maxfilesize,
        time_step: Duration::from_secs(info.time_delta.seconds.into())
            + Duration::from_nanos(info.time_delta.nseconds.into()),
        properties: info.properties,
    }
}
