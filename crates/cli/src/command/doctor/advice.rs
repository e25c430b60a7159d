//! From findings to sentences for an administrator.

use nfs_wire::portmap::Protocol;

use super::findings::{Findings, Service, index};
use crate::units;

/// Blocks over TCP below this are small: each costs its share of a round trip.
const SMALL_BLOCK: u32 = 128 << 10;

/// AUTH_SYS (RFC 5531 Appendix A).
const AUTH_SYS: u32 = 1;

/// Returns what to change on the server, beside what the tests have advised themselves.
pub(super) fn advice(findings: &Findings) -> Vec<String> {
    let all = [transports(findings), port_mapper(findings), block_size(findings), security_flavor(findings)];
    all.into_iter().flatten().collect()
}

/// Where NFS does not answer over UDP, over TCP, or at all.
fn transports(findings: &Findings) -> Option<String> {
    let [udp, tcp] = [Protocol::Udp, Protocol::Tcp].map(|protocol| findings.nfs_answers(protocol));
    match (udp, tcp) {
        (true, true) => None,
        (false, false) => {
            let versions = &findings.nfs_versions;
            Some(if versions.is_empty() || versions.contains(&3) {
                "NFS does not answer, neither over UDP nor over TCP: start the service, and open its ports (2049, 20048 and 111) \
                 in the firewall."
                    .to_owned()
            } else {
                "Only other versions of NFS are registered: turn version 3 on (Linux: vers3=y below [nfsd] in /etc/nfs.conf, then \
                 restart nfs-server; nfs-ganesha: Protocols = 3, 4 in NFS_CORE_PARAM)."
                    .to_owned()
            })
        }
        (false, true) => {
            let is_silent = service(findings, "NFS").is_some_and(|it| {
                it.answers[index(Protocol::Udp)].null.as_ref().is_err_and(|words| words == "silent")
            });
            let why = if is_silent { " A firewall may also stand in the way of port 2049/udp." } else { "" };
            Some(format!(
                "NFS does not answer over UDP, which is faster than TCP over links that lose packets. To turn it on beside TCP: \
                 Linux: udp=y below [nfsd] in /etc/nfs.conf, then restart nfs-server; nfs-ganesha: Enable_UDP = true in \
                 NFS_CORE_PARAM, and UDP among the Transports of the export.{why}"
            ))
        }
        (true, false) => Some(
            "NFS does not answer over TCP, which some links and firewalls need: turn it on beside UDP, and open port 2049/tcp."
                .to_owned(),
        ),
    }
}

/// Where NFS answers and the port mapper does not.
fn port_mapper(findings: &Findings) -> Option<String> {
    let has_nfs = [Protocol::Udp, Protocol::Tcp].into_iter().any(|protocol| findings.nfs_answers(protocol));
    let mapper = service(findings, "port mapper")?;
    if !has_nfs || mapper.answers.iter().any(|answer| answer.null.is_ok()) {
        return None;
    }
    let port =
        |name: &str| service(findings, name)?.answers.iter().rev().find(|answer| answer.null.is_ok())?.port;
    let ports = match (port("NFS"), port("MOUNT")) {
        (Some(nfs), Some(mount)) => {
            format!(" (here: nfs://{}:{nfs}/PATH?mountport={mount})", findings.host)
        }
        _ => String::new(),
    };
    Some(format!(
        "The port mapper does not answer, so everybody has to know the ports{ports}: start rpcbind, or open port 111 in the \
         firewall."
    ))
}

/// Where READs and WRITEs over TCP are small.
fn block_size(findings: &Findings) -> Option<String> {
    let limits = findings.limits[1]?;
    let smallest = limits.read_max.min(limits.write_max);
    (smallest < SMALL_BLOCK).then(|| {
        format!(
            "Blocks over TCP have at most {}: larger ones take fewer calls on fast or long links. Linux: stop nfs-server, write \
             1048576 into /proc/fs/nfsd/max_block_size, start it (by default it is the memory / 4096); nfs-ganesha: MaxRead and \
             MaxWrite of the export; FreeBSD: vfs.nfsd.srvmaxio.",
            units::bytes(smallest.into())
        )
    })
}

/// Where the export takes no AUTH_SYS.
fn security_flavor(findings: &Findings) -> Option<String> {
    let mounted = findings.mount.as_ref().filter(|mounted| mounted.outcome.is_ok())?;
    let wants_kerberos = !mounted.flavors.is_empty() && !mounted.flavors.contains(&AUTH_SYS);
    wants_kerberos.then(|| {
        "The export wants Kerberos, which nfsw does not speak: add sys to its security flavours (Linux: sec=krb5:sys in \
         /etc/exports)."
            .to_owned()
    })
}

fn service<'a>(findings: &'a Findings, name: &str) -> Option<&'a Service> {
    findings.services.iter().find(|service| service.name == name)
}

/// What to do where a service refuses ports that anybody may use.
pub(super) fn insecure(export: &str, who: &str) -> String {
    format!(
        "Only root can use {export}: {who} refuses ports above 1023. Ordinary users, and programs without privileges, need the \
         option 'insecure' on the export (Linux: in /etc/exports, then exportfs -ra; nfs-ganesha: PrivilegedPort = false)."
    )
}
