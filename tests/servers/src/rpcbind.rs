//! Port mappers: the one on a Unix socket that nfs-ganesha insists on having before it starts, and one that clients can ask (RFC 1833).

use std::{
    io::{self, Read, Write},
    net::{IpAddr, TcpListener, UdpSocket},
    os::unix::net::UnixListener,
    path::Path,
    thread,
};

use nfs_wire::{
    Reader,
    portmap::{Mapping, PORT, procedure},
    record::{RecordReader, mark},
    rpc::{CallHeader, Program, Rejection, ReplyHeader},
};

/// The ports of NFS and of MOUNT; 0 for what is not registered.
type Ports = (u16, u16);

/// Lets a server register on `path` for as long as the process lives.
pub(crate) fn serve(path: &Path) -> io::Result<()> {
    let listener = UnixListener::bind(path)?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A connection that breaks is its client's loss.
            thread::spawn(move || answer_all(stream, (0, 0)));
        }
    });
    Ok(())
}

/// Tells clients the ports of a server at an address, for as long as the process lives.
///
/// # Errors
/// Where the port is taken or may not be.
pub(crate) fn tell(address: IpAddr, ports: Ports) -> io::Result<()> {
    let (listener, socket) = (TcpListener::bind((address, PORT))?, UdpSocket::bind((address, PORT))?);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer_all(stream, ports));
        }
    });
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            if let Some(reply) = answer(&buffer[..length], ports) {
                // As any datagram, it may be lost.
                let _ = socket.send_to(&reply, from);
            }
        }
    });
    Ok(())
}

fn answer_all(mut stream: impl Read + Write, ports: Ports) -> io::Result<()> {
    let mut records = RecordReader::new(1 << 16);
    let (mut buffer, mut call) = ([0; 4096], Vec::new());
    loop {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        let mut input = &buffer[..length];
        while let Some(chunk) = records.next(&mut input, usize::MAX).map_err(io::Error::other)? {
            call.extend_from_slice(chunk.bytes);
            if chunk.end {
                if let Some(reply) = answer(&call, ports) {
                    stream.write_all(&mark(reply.len()))?;
                    stream.write_all(&reply)?;
                }
                call.clear();
            }
        }
    }
}

fn answer(call: &[u8], (nfs, mount): Ports) -> Option<Vec<u8>> {
    let mut arguments = Reader::new(call);
    let call = CallHeader::decode(&mut arguments).ok()?;
    let (outcome, results) = match call.procedure {
        procedure::NULL => (Ok(()), None),
        // Registered and withdrawn: yes. Whoever started the server knows its ports.
        procedure::SET | procedure::UNSET => (Ok(()), Some(1_u32)),
        procedure::GETPORT => match Mapping::decode(arguments).map(|asked| asked.program) {
            Ok(Program::NFS) => (Ok(()), Some(nfs.into())),
            Ok(Program::MOUNT) => (Ok(()), Some(mount.into())),
            Ok(_) => (Ok(()), Some(0)),
            Err(_) => (Err(Rejection::GarbageArguments), None),
        },
        // No list.
        procedure::DUMP => (Ok(()), Some(0)),
        _ => (Err(Rejection::ProcedureUnavailable), None),
    };
    let mut reply = Vec::new();
    ReplyHeader { xid: call.xid, outcome }.encode(&mut reply);
    reply.extend(results.into_iter().flat_map(u32::to_be_bytes));
    Some(reply)
}
