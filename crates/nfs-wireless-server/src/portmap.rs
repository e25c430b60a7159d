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
///
/// A universal address has no zone: the client knows the one of the address that it has asked.
fn reachable(ours: SocketAddr, asked: &str) -> SocketAddr {
    let asked: Option<IpAddr> =
        parse_universal_address(asked).map(|asked| asked.ip()).filter(|asked| !asked.is_unspecified());
    match asked {
        Some(ip) if ours.ip().is_unspecified() => SocketAddr::new(ip, ours.port()),
        _ => ours,
    }
}

#[cfg(test)]
mod tests {
    use nfs_wire::{
        nfs3_types::xdr_codec::{Unpack, Void},
        portmap::{decode_address, decode_port},
    };

    use super::*;
    use crate::{Memory, ServiceConfig, testing::Bench};

    fn bench(address: &str, program: Program) -> Bench {
        let mut bench = Bench::with(ServiceConfig::default(), Memory::default());
        bench.service.set_address(address.parse().unwrap());
        bench.program = program;
        bench
    }

    fn port(program: Program, protocol: u32) -> Option<u16> {
        let mut bench = bench("127.0.0.1:12345", Program::PORTMAP);
        let question = mapping { prog: program.number, vers: program.version, prot: protocol, port: 0 };
        decode_port(&bench.raw(procedure::GETPORT, &question).unwrap()).unwrap()
    }

    #[test]
    fn getport_knows_the_services_of_this_server_only() {
        for program in [Program::NFS, Program::MOUNT, Program::PORTMAP] {
            for protocol in PROTOCOLS {
                assert_eq!(port(program, protocol.number()), Some(12345));
            }
            assert_eq!(port(program, 1), None);
        }
        let newer = Program { version: 4, ..Program::NFS };
        assert_eq!(port(newer, Protocol::Tcp.number()), None);
        let locks = Program { number: 100_021, version: 4 };
        assert_eq!(port(locks, Protocol::Udp.number()), None);
    }

    fn address(ours: &str, program: Program, asked: &str, version: Program) -> Option<SocketAddr> {
        let mut bench = bench(ours, version);
        let mut call = bench.message(procedure::GETPORT, &Void);
        Binding { program, netid: "udp".into(), address: asked.into() }.encode(&mut call);
        let replies = bench.exchange(&call);
        decode_address(&bench.results(&replies[0]).unwrap()).unwrap()
    }

    #[test]
    fn getaddr_answers_with_an_address_the_client_can_reach() {
        for version in [Program::RPCBIND3, Program::RPCBIND4] {
            for (ours, asked, expected) in [
                ("127.0.0.1:2049", "", "127.0.0.1:2049"),
                ("127.0.0.1:2049", "10.0.0.1.0.111", "127.0.0.1:2049"),
                ("0.0.0.0:2049", "10.0.0.1.0.111", "10.0.0.1:2049"),
                ("[::]:300", "fe80::1.0.111", "[fe80::1]:300"),
                ("0.0.0.0:2049", "nonsense", "0.0.0.0:2049"),
            ] {
                let answer = address(ours, Program::MOUNT, asked, version);
                assert_eq!(answer, Some(expected.parse().unwrap()));
            }
            let unknown = Program { number: 1, version: 1 };
            assert_eq!(address("127.0.0.1:2049", unknown, "", version), None);
        }
    }

    #[test]
    fn dump_lists_every_service_on_both_transports() {
        let mut bench = bench("127.0.0.1:700", Program::PORTMAP);
        let results = bench.raw(procedure::DUMP, &Void).unwrap();
        let (list, length) = List::<mapping>::unpack(&mut &results[..]).unwrap();
        assert_eq!((list.0.len(), length), (10, results.len()));
        assert!(list.0.iter().all(|entry| entry.port == 700));
        bench.program = Program::RPCBIND3;
        let results = bench.raw(procedure::DUMP, &Void).unwrap();
        let text = b"127.0.0.1.2.188";
        assert_eq!(results.windows(text.len()).filter(|window| window == text).count(), 10);
    }
}
