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
    let mut advice = Vec::new();
    let [udp, tcp] = [Protocol::Udp, Protocol::Tcp].map(|protocol| findings.nfs_answers(protocol));
    let silent = |name: &str, protocol: Protocol| {
        let service = findings.services.iter().find(|service| service.name == name);
        service
            .is_some_and(|it| it.answers[index(protocol)].null.as_ref().is_err_and(|words| words == "silent"))
    };
    match (udp, tcp) {
        (true, true) => {}
        (false, false) => {
            let versions = &findings.nfs_versions;
            advice.push(if versions.is_empty() || versions.contains(&3) {
                "NFS does not answer, neither over UDP nor over TCP: start the service, and open its ports (2049, 20048 and 111) \
                 in the firewall."
                    .to_owned()
            } else {
                "Only other versions of NFS are registered: turn version 3 on (Linux: vers3=y below [nfsd] in /etc/nfs.conf, then \
                 restart nfs-server; nfs-ganesha: Protocols = 3, 4 in NFS_CORE_PARAM)."
                    .to_owned()
            });
        }
        (false, true) => {
            let why = if silent("NFS", Protocol::Udp) { " A firewall may also stand in the way of port 2049/udp." } else { "" };
            advice.push(format!(
                "NFS does not answer over UDP, which is faster than TCP over links that lose packets. To turn it on beside TCP: \
                 Linux: udp=y below [nfsd] in /etc/nfs.conf, then restart nfs-server; nfs-ganesha: Enable_UDP = true in \
                 NFS_CORE_PARAM, and UDP among the Transports of the export.{why}"
            ));
        }
        (true, false) => advice.push(
            "NFS does not answer over TCP, which some links and firewalls need: turn it on beside UDP, and open port 2049/tcp."
                .to_owned(),
        ),
    }
    let answers = |service: &Service| service.answers.iter().any(|answer| answer.null.is_ok());
    if (udp || tcp)
        && let Some(mapper) = findings.services.iter().find(|service| service.name == "port mapper")
        && !answers(mapper)
    {
        let port = |name: &str| {
            let service = findings.services.iter().find(|service| service.name == name)?;
            service.answers.iter().rev().find(|answer| answer.null.is_ok())?.port
        };
        let ports = match (port("NFS"), port("MOUNT")) {
            (Some(nfs), Some(mount)) => {
                format!(" (here: nfs://{}:{nfs}/PATH?mountport={mount})", findings.host)
            }
            _ => String::new(),
        };
        advice.push(format!(
            "The port mapper does not answer, so everybody has to know the ports{ports}: start rpcbind, or open port 111 in the \
             firewall."
        ));
    }
    if let Some(limits) = findings.limits[1]
        && let smallest = limits.read_max.min(limits.write_max)
        && smallest < SMALL_BLOCK
    {
        advice.push(format!(
            "Blocks over TCP have at most {}: larger ones take fewer calls on fast or long links. Linux: stop nfs-server, write \
             1048576 into /proc/fs/nfsd/max_block_size, start it (by default it is the memory / 4096); nfs-ganesha: MaxRead and \
             MaxWrite of the export; FreeBSD: vfs.nfsd.srvmaxio.",
            units::bytes(smallest.into())
        ));
    }
    if let Some(mounted) = &findings.mount
        && mounted.outcome.is_ok()
        && !mounted.flavors.is_empty()
        && !mounted.flavors.contains(&AUTH_SYS)
    {
        advice.push(
            "The export wants Kerberos, which nfsw does not speak: add sys to its security flavours (Linux: sec=krb5:sys in \
             /etc/exports)."
                .to_owned(),
        );
    }
    advice
}

/// What to do where a service refuses ports that anybody may use.
pub(super) fn insecure(export: &str, who: &str) -> String {
    format!(
        "Only root can use {export}: {who} refuses ports above 1023. Ordinary users, and programs without privileges, need the \
         option 'insecure' on the export (Linux: in /etc/exports, then exportfs -ra; nfs-ganesha: PrivilegedPort = false)."
    )
}
