//! A port mapper on a Unix socket: what nfs-ganesha insists on having before it starts (RFC 1833).

use std::{
    io::{self, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    thread,
};

use nfs_wire::{
    Reader,
    portmap::procedure,
    record::{RecordReader, mark},
    rpc::{CallHeader, Rejection, ReplyHeader},
};

/// Answers on `path` for as long as the process lives.
pub(crate) fn serve(path: &Path) -> io::Result<()> {
    let listener = UnixListener::bind(path)?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A connection that breaks is its client's loss.
            thread::spawn(move || answer_all(stream));
        }
    });
    Ok(())
}

fn answer_all(mut stream: UnixStream) -> io::Result<()> {
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
                if let Some(reply) = answer(&call) {
                    stream.write_all(&mark(reply.len()))?;
                    stream.write_all(&reply)?;
                }
                call.clear();
            }
        }
    }
}

fn answer(call: &[u8]) -> Option<Vec<u8>> {
    let call = CallHeader::decode(&mut Reader::new(call)).ok()?;
    let (outcome, results) = match call.procedure {
        procedure::NULL => (Ok(()), None),
        // Registered and withdrawn: yes. The tests know the ports.
        procedure::SET | procedure::UNSET => (Ok(()), Some(1_u32)),
        // No address, no list.
        procedure::GETPORT | procedure::DUMP => (Ok(()), Some(0)),
        _ => (Err(Rejection::ProcedureUnavailable), None),
    };
    let mut reply = Vec::new();
    ReplyHeader { xid: call.xid, outcome }.encode(&mut reply);
    reply.extend(results.into_iter().flat_map(u32::to_be_bytes));
    Some(reply)
}
