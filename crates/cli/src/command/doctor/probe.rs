//! Which services and transports there are, and what they let us mount.

use std::{net::SocketAddr, time::Duration};

use nfs_wire::{
    FileHandle, Reader, encode,
    mount::{self, Export},
    portmap::{self, Mapping, PORT, Protocol},
    rpc::Program,
};

use super::{
    advice::insecure,
    findings::{Answer, Findings, Mounted, PROTOCOLS, Service, index},
    rpc::{Caller, Trouble},
};
use crate::text::escape;

/// Where NFS is when nobody says so.
const NFS_PORT: u16 = 2049;
/// Where Linux has MOUNT when nobody says so.
const MOUNT_PORT: u16 = 20048;

/// What is said of ports that need no privileges.
pub(super) const UNPRIVILEGED: &str = "unprivileged ports";

/// How much later the next address of a name is asked (RFC 8305 §5).
const NEXT_ADDRESS: Duration = Duration::from_millis(250);

/// The server under examination.
pub(super) struct Doctor {
    pub(super) findings: Findings,
    pub(super) address: SocketAddr,
    pub(super) wait: Duration,
    pub(super) credential: Vec<u8>,
    pub(super) root_credential: Vec<u8>,
    /// Ways to NFS, where it answers.
    pub(super) nfs: [Option<Caller>; 2],
    mount: Option<Caller>,
}

/// Returns the first of several addresses at which the port mapper or NFS answers.
pub(super) async fn answering(
    addresses: &[SocketAddr],
    nfs_port: Option<u16>,
    wait: Duration,
    credential: &[u8],
) -> Option<SocketAddr> {
    let [_, _, ..] = addresses else { return None };
    let services = [(Program::PORTMAP, PORT), (Program::NFS, nfs_port.unwrap_or(NFS_PORT))];
    let ask = async |pause, mut address: SocketAddr, (program, port), protocol| {
        tokio::time::sleep(pause).await;
        let found = address;
        address.set_port(port);
        let mut caller = Caller::reach(address, protocol, wait, false, credential).await?;
        caller.call(program, 0, &[]).await.map(|_| found)
    };
    let mut asked = Vec::new();
    for (number, &address) in (0..).zip(addresses) {
        for service in services {
            for protocol in PROTOCOLS {
                asked.push(Box::pin(ask(NEXT_ADDRESS * number, address, service, protocol)));
            }
        }
    }
    futures_util::future::select_ok(asked).await.ok().map(|(found, _)| found)
}

impl Doctor {
    pub(super) fn new(
        findings: Findings,
        address: SocketAddr,
        wait: Duration,
        credential: Vec<u8>,
        root_credential: Vec<u8>,
    ) -> Self {
        Self { findings, address, wait, credential, root_credential, nfs: [None, None], mount: None }
    }

    /// Asks for the services and which transports and ports they have.
    pub(super) async fn services(&mut self, nfs_port: Option<u16>, mount_port: Option<u16>) {
        let mut mappers = [None, None];
        let mut answers = Vec::new();
        for (mapper, protocol) in mappers.iter_mut().zip(PROTOCOLS) {
            let (caller, answer) = self.null(Program::PORTMAP, Some(PORT), protocol).await;
            (*mapper, _) = (caller, answers.push(answer));
        }
        self.add("port mapper", Program::PORTMAP, answers);
        // Without a port mapper, MOUNT may share a port that was given for NFS, as for every other command.
        let usual_mount = nfs_port.unwrap_or(MOUNT_PORT);
        for (program, shown, given, usual) in
            [(Program::MOUNT, "MOUNT", mount_port, usual_mount), (Program::NFS, "NFS", nfs_port, NFS_PORT)]
        {
            let mut answers = Vec::new();
            for protocol in PROTOCOLS {
                let port = match given {
                    Some(port) => Some(port),
                    None => registered(&mut mappers, program, protocol, usual).await,
                };
                let (caller, answer) = self.null(program, port, protocol).await;
                answers.push(answer);
                match program {
                    Program::NFS => self.nfs[index(protocol)] = caller,
                    // A list of exports may be too long for a datagram.
                    _ => self.mount = caller.or_else(|| self.mount.take()),
                }
            }
            self.add(shown, program, answers);
        }
        for mapper in mappers.iter_mut().flatten() {
            let Ok(list) = mapper.call(Program::PORTMAP, portmap::procedure::DUMP, &[]).await else {
                continue;
            };
            self.findings.nfs_versions.extend(versions(&list));
        }
        self.findings.nfs_versions.sort_unstable();
        self.findings.nfs_versions.dedup();
    }

    fn add(&mut self, name: &'static str, program: Program, answers: Vec<Answer>) {
        let answers = answers.try_into().expect("an answer for each transport");
        self.findings.services.push(Service { name, version: program.version, answers });
    }

    async fn null(
        &self,
        program: Program,
        port: Option<u16>,
        protocol: Protocol,
    ) -> (Option<Caller>, Answer) {
        let Some(port) = port else {
            return (None, Answer { port, null: Err("not registered".to_owned()) });
        };
        let mut address = self.address;
        address.set_port(port);
        let caller = Caller::reach(address, protocol, self.wait, false, &self.credential).await;
        let answered = match caller {
            Ok(mut caller) => caller.call(program, 0, &[]).await.map(|_| caller),
            Err(trouble) => Err(trouble),
        };
        match answered {
            Ok(caller) => {
                let null = Ok(caller.round_trip);
                (Some(caller), Answer { port: Some(port), null })
            }
            Err(trouble) => (None, Answer { port: Some(port), null: Err(trouble.words()) }),
        }
    }

    /// Asks what is exported, and mounts what holds `path`, or the first there is. Returns the root, and what of the path is below.
    pub(super) async fn mount(&mut self, path: &[u8]) -> Option<(FileHandle, Vec<u8>)> {
        let caller = self.mount.as_mut()?;
        let listed = match caller.call(Program::MOUNT, mount::procedure::EXPORT, &[]).await {
            Ok(list) => {
                mount::decode_exports(&list).map_err(|error| format!("cannot be understood: {error}"))
            }
            Err(trouble) => Err(trouble.words()),
        };
        if let Err(words) = &listed {
            self.findings.odd(format!("EXPORT: {words}, so nobody can see what is exported"));
        }
        let exports: &[Export] = listed.as_deref().unwrap_or_default();
        let holds = |export: &&Export| crate::url::is_within(path, &export.directory);
        let likely = exports.iter().filter(holds).max_by_key(|export| export.directory.len());
        let export = match likely {
            Some(export) => export.directory.clone(),
            // No path was given.
            None if path == b"/" && !exports.is_empty() => exports[0].directory.clone(),
            None => path.to_vec(),
        };
        self.findings.exports = Some(listed);
        let (outcome, root) = match self.mnt(&export, false).await {
            Ok(mounted) => (Ok(()), Some(mounted)),
            Err(words) => (Err(words), None),
        };
        let handle_bytes = root.as_ref().map_or(0, |it| it.handle.as_bytes().len());
        let flavors = root.as_ref().map(|it| it.auth_flavors.clone()).unwrap_or_default();
        let mounted = Mounted { path: export.clone(), outcome, handle_bytes, flavors };
        let refused = mounted.outcome.clone().err();
        self.findings.mount = Some(mounted);
        match refused {
            None => {
                self.findings.tried(UNPRIVILEGED, "MOUNT accepts them (above 1023, anybody may use them)")
            }
            Some(words) => self.mount_from_privileged(&export, &words).await,
        }
        let root = root?.handle;
        // Does it look at all at what it is asked to mount?
        let made_up = b"/nfsw-doctor/there-is-no-such-directory";
        if let Ok(other) = self.mnt(made_up, false).await {
            let same = if other.handle == root { " and gives the same root for it" } else { "" };
            self.findings.odd(format!("MNT accepts any path{same}: a typing error in a path is not noticed"));
            self.forget(made_up).await;
        }
        self.forget(&export).await;
        let below =
            if crate::url::is_within(path, &export) { &path[export.len().min(path.len())..] } else { &[] };
        Some((root, below.to_vec()))
    }

    /// Mounts from a port below 1024, which may be another matter; `refused` says what came from one above.
    async fn mount_from_privileged(&mut self, export: &[u8], refused: &str) {
        let came = match self.mnt(export, true).await {
            Ok(_) => {
                self.findings.advice.push(insecure(&escape(export), "MOUNT"));
                "MOUNT refuses them, and accepts those below 1024".to_owned()
            }
            Err(other) if other == refused => {
                format!("MOUNT refuses ({refused}), as from those below 1024")
            }
            Err(other) => format!("MOUNT refuses ({refused}); below 1024: {other}"),
        };
        self.findings.tried(UNPRIVILEGED, came);
    }

    async fn mnt(&mut self, path: &[u8], is_privileged: bool) -> Result<mount::Mount, String> {
        let mut arguments = Vec::new();
        mount::encode_path(&mut arguments, path);
        let results = if is_privileged {
            let service = self.findings.services.iter().find(|service| service.name == "MOUNT");
            let at = service.and_then(|it| {
                PROTOCOLS.into_iter().find_map(|protocol| {
                    let answer = &it.answers[index(protocol)];
                    Some((protocol, answer.port.filter(|_| answer.null.is_ok())?))
                })
            });
            let Some((protocol, port)) = at else { return Err("there is no MOUNT service".to_owned()) };
            let mut address = self.address;
            address.set_port(port);
            let caller = Caller::reach(address, protocol, self.wait, true, &self.credential).await;
            match caller {
                Ok(mut caller) => caller.call(Program::MOUNT, mount::procedure::MNT, &arguments).await,
                Err(Trouble::Io(_)) => return Err("not tried, they take root".to_owned()),
                Err(trouble) => Err(trouble),
            }
        } else {
            let Some(caller) = &mut self.mount else { return Err("there is no MOUNT service".to_owned()) };
            caller.call(Program::MOUNT, mount::procedure::MNT, &arguments).await
        };
        match mount::decode_mount(&results.map_err(|trouble| trouble.words())?) {
            Ok(Ok(mounted)) => Ok(mounted),
            Ok(Err(status)) => Err(status.to_string()),
            Err(error) => Err(format!("cannot be understood: {error}")),
        }
    }

    /// Takes a mount off the server's list of who has mounted what.
    async fn forget(&mut self, path: &[u8]) {
        let mut arguments = Vec::new();
        mount::encode_path(&mut arguments, path);
        if let Some(caller) = &mut self.mount {
            let _ = caller.call(Program::MOUNT, mount::procedure::UMNT, &arguments).await;
        }
    }
}

/// Asks the port mapper for a port; where it does not answer at all, it is the usual one.
async fn registered(
    mappers: &mut [Option<Caller>; 2],
    program: Program,
    protocol: Protocol,
    usual: u16,
) -> Option<u16> {
    let mut arguments = Vec::new();
    Mapping { program, protocol: protocol.number(), port: 0 }.encode(&mut arguments);
    for mapper in mappers.iter_mut().flatten() {
        if let Ok(results) = mapper.call(Program::PORTMAP, portmap::procedure::GETPORT, &arguments).await {
            return portmap::decode_port(&results).ok().flatten();
        }
    }
    Some(usual)
}

/// Reads the versions of NFS out of the port mapper's list (RFC 1833 §3.2).
fn versions(list: &[u8]) -> Vec<u32> {
    let mut reader = Reader::new(list);
    let mut versions = Vec::new();
    while let Ok(true) = reader.bool("mapping follows") {
        let mut word = || reader.u32("mapping");
        let (Ok(program), Ok(version), Ok(_), Ok(_)) = (word(), word(), word(), word()) else { break };
        if program == Program::NFS.number && !versions.contains(&version) && versions.len() < 16 {
            versions.push(version);
        }
    }
    versions
}

/// Returns a handle as an argument.
pub(super) fn encoded(handle: &FileHandle) -> Vec<u8> {
    let mut arguments = Vec::new();
    encode(&mut arguments, handle);
    arguments
}

/// Returns a name in a directory as an argument (`diropargs3`).
pub(super) fn entry(directory: &FileHandle, name: &[u8]) -> Vec<u8> {
    let mut arguments = encoded(directory);
    mount::encode_path(&mut arguments, name);
    arguments
}
