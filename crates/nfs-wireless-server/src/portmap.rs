//! The port mapper of one server: it knows NFS, MOUNT and itself (RFC 1833).

use std::net::{IpAddr, SocketAddr};

use nfs_wire::{
    DecodeError, Reader, encode,
    nfs3_types::{
        portmap::mapping,
        xdr_codec::{List, Opaque},
    },
    portmap::{Binding, Mapping, Protocol, parse_universal_address, procedure, universal_address},
    rpc::{Program, Rejection},
};

const PROGRAMS: [Program; 5] =
    [Program::PORTMAP, Program::RPCBIND3, Program::RPCBIND4, Program::MOUNT, Program::NFS];

const PROTOCOLS: [Protocol; 2] = [Protocol::Udp, Protocol::Tcp];

/// Versions answered: portmap is 2, rpcbind 3 and 4.
pub(crate) const VERSIONS: std::ops::RangeInclusive<u32> = 2..=4;

/// Owner that rpcbind names for its services.
const OWNER: &str = "nfsw";

/// Runs a procedure for a service that is reached at `address`, and appends its results.
///
/// SET and UNSET are not offered: nobody else can register here.
pub(crate) fn serve(
    address: SocketAddr,
    version: u32,
    number: u32,
    arguments: Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<(), Rejection> {
    let garbage = |_: DecodeError| Rejection::GarbageArguments;
    match (number, version) {
        (procedure::NULL, _) => arguments.finish().map_err(garbage)?,
        (procedure::GETPORT, 2) => {
            let question = Mapping::decode(arguments).map_err(garbage)?;
            let protocol = PROTOCOLS.into_iter().find(|protocol| protocol.number() == question.protocol);
            let known = protocol.is_some() && PROGRAMS.contains(&question.program);
            encode(reply, &if known { u32::from(address.port()) } else { 0 });
        }
        (procedure::GETPORT, _) => {
            let question = Binding::decode(arguments).map_err(garbage)?;
            let known = PROGRAMS.contains(&question.program);
            let text =
                if known { universal_address(reachable(address, &question.address)) } else { String::new() };
            encode(reply, &Opaque::borrowed(text.as_bytes()));
        }
        (procedure::DUMP, 2) => {
            arguments.finish().map_err(garbage)?;
            let entry = |(program, protocol): (Program, Protocol)| mapping {
                prog: program.number,
                vers: program.version,
                prot: protocol.number(),
                port: address.port().into(),
            };
            encode(reply, &List(services().map(entry).collect()));
        }
        (procedure::DUMP, _) => {
            arguments.finish().map_err(garbage)?;
            for (program, protocol) in services() {
                encode(reply, &true);
                encode(reply, &program.number);
                encode(reply, &program.version);
                for text in [protocol.netid(address.ip()), &universal_address(address), OWNER] {
                    encode(reply, &Opaque::borrowed(text.as_bytes()));
                }
            }
            encode(reply, &false);
        }
        _ => return Err(Rejection::ProcedureUnavailable),
    }
    Ok(())
}

fn services() -> impl Iterator<Item = (Program, Protocol)> {
    PROGRAMS.into_iter().flat_map(|program| PROTOCOLS.map(|protocol| (program, protocol)))
}

/// Replaces an unspecified address of ours with the one the question was sent to, if it says so.
fn reachable(ours: SocketAddr, asked: &str) -> SocketAddr {
    let asked: Option<IpAddr> =
        parse_universal_address(asked).map(|asked| asked.ip()).filter(|asked| !asked.is_unspecified());
    match asked {
        Some(ip) if ours.ip().is_unspecified() => SocketAddr::new(ip, ours.port()),
        _ => ours,
    }
}
