//! `nfsw doctor`: what a server can do, in a page that can be sent to its administrator.

mod advice;
mod ask;
mod findings;
mod page;
mod probe;
mod rpc;
mod write;

use jiff::Timestamp;
use nfs_wireless_client::{AuthSys, ClientConfig, Credential};

use self::{
    ask::Resolved,
    findings::{Findings, PROTOCOLS},
    probe::Doctor,
};
use nfs_files::Context;

use crate::{
    args::DoctorArgs,
    exit::{Exit, Failure},
    report::Reporter,
    servers::{Access, Servers},
};

pub(super) async fn run(
    arguments: &DoctorArgs,
    context: Context<'_>,
    reporter: &Reporter,
) -> anyhow::Result<()> {
    let findings = examine(arguments, context.servers, reporter).await?;
    if reporter.json() {
        for event in page::events(&findings) {
            reporter.event(&event)?;
        }
    } else {
        reporter.print(page::page(&findings, Timestamp::now()).as_bytes())?;
    }
    let target = &arguments.target;
    if !PROTOCOLS.iter().any(|&protocol| findings.nfs_answers(protocol)) {
        let text = format!("{}: NFS version 3 does not answer", target.server());
        return Err(Failure::with(Exit::Unreachable, text));
    }
    match findings.mount {
        Some(mounted) => match mounted.outcome {
            Ok(()) => Ok(()),
            Err(words) => {
                let path = crate::text::escape(&mounted.path);
                Err(Failure::with(Exit::Unreachable, format!("{}: MNT of {path}: {words}", target.server())))
            }
        },
        None => Err(Failure::with(Exit::Unreachable, format!("{}: MOUNT does not answer", target.server()))),
    }
}

async fn examine(arguments: &DoctorArgs, servers: &Servers, reporter: &Reporter) -> anyhow::Result<Findings> {
    let target = &arguments.target;
    let Access { address: host, config } = servers.access(target)?;
    let resolved = tokio::net::lookup_host((&*host, 0)).await;
    let addresses: Vec<_> = resolved.map(Iterator::collect).unwrap_or_default();
    let Some(&first) = addresses.first() else {
        let text = format!(
            "cannot find the host {} (check the name, or give the address)",
            crate::text::escape(host.as_bytes())
        );
        return Err(Failure::with(Exit::Unreachable, text));
    };
    let ClientConfig { credential, nfs_port, mount_port, .. } = config;
    let (uid, gid) = match &credential {
        Credential::Sys(user) => (user.uid, user.gid),
        Credential::None => (u32::MAX, u32::MAX),
    };
    // From here on every wait has an end of its own.
    reporter.activity().set_mounted();
    let (wait, credential) = (arguments.wait, encoded(&credential));
    let address = probe::answering(&addresses, nfs_port, wait, &credential).await.unwrap_or(first);
    let findings = Findings {
        host: host.clone(),
        address: address.ip(),
        uid,
        gid,
        services: Vec::new(),
        nfs_versions: Vec::new(),
        exports: None,
        mount: None,
        limits: [None, None],
        names: None,
        tried: Vec::new(),
        quirks: Vec::new(),
        advice: Vec::new(),
    };
    let root = Credential::Sys(AuthSys { machine_name: b"nfsw".to_vec(), uid: 0, gid: 0, gids: Vec::new() });
    let mut doctor = Doctor::new(findings, address, wait, credential, encoded(&root));
    if address != first {
        let (first, address) = (first.ip(), address.ip());
        doctor.findings.odd(format!("{host} is {first} first, where nothing answers; {address} does"));
    }
    doctor.services(nfs_port, mount_port).await;
    if let Some((root, below)) = doctor.mount(&target.path).await {
        doctor.file_system(root).await;
        match doctor.walk(root, &below).await {
            Ok(place) => named(&mut doctor, arguments, &place).await,
            Err(words) => doctor.findings.tried("the path", words),
        }
    }
    let Doctor { mut findings, .. } = doctor;
    let general = advice::advice(&findings);
    findings.advice.splice(0..0, general);
    Ok(findings)
}

/// Does what takes a file or a directory.
async fn named(doctor: &mut Doctor, arguments: &DoctorArgs, place: &Resolved) {
    let size = Doctor::size_of(place);
    let directory = size.is_none().then_some(place);
    match (size, directory) {
        (Some(size), _) => doctor.large_reads(&place.handle, size).await,
        (None, _) if !arguments.write_test => {
            doctor.findings.tried("large READs over UDP", "not tested (name a file of 64 KiB or more)");
        }
        (None, _) => {}
    }
    match directory {
        Some(directory) if arguments.write_test => doctor.write_test(directory).await,
        Some(_) => doctor
            .findings
            .tried("repeated calls, WRITEs", "not tested (--write-test makes and removes files)"),
        None if arguments.write_test => {
            doctor.findings.tried("repeated calls, WRITEs", "not tested (name a directory for --write-test)");
        }
        None => {
            doctor.findings.tried("repeated calls, WRITEs", "not tested (--write-test, with a directory)")
        }
    }
}

fn encoded(credential: &Credential) -> Vec<u8> {
    let mut bytes = Vec::new();
    credential.encode(&mut bytes);
    bytes
}
