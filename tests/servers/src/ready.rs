//! Waiting for a server that has just been started.

use std::{
    io::{Read as _, Write as _},
    net::{TcpStream, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

/// How long a server may take, on a machine that does other things, too.
const PATIENCE: Duration = Duration::from_secs(60);

const XID: u32 = 0x6e66_7377;
const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

/// Waits until NULL is answered by MOUNT and by NFS, over TCP and, if it is offered, UDP.
pub(crate) fn wait((nfs, mount): (u16, u16), udp: bool) -> Result<()> {
    let start = Instant::now();
    loop {
        let waits_for = if answers_over_tcp(mount, MOUNT).is_none() {
            "MOUNT over TCP"
        } else if answers_over_tcp(nfs, NFS).is_none() {
            "NFS over TCP"
        } else if udp && answers_over_udp(nfs, NFS).is_none() {
            "NFS over UDP"
        } else {
            return Ok(());
        };
        if start.elapsed() > PATIENCE {
            bail!("no answer to NULL from {waits_for} after {PATIENCE:?}");
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// A NULL call of version 3 without credentials (RFC 5531 §9).
fn null_call(program: u32) -> Vec<u8> {
    [XID, 0, 2, program, 3, 0, 0, 0, 0, 0].into_iter().flat_map(u32::to_be_bytes).collect()
}

fn answers_over_tcp(port: u16, program: u32) -> Option<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    let call = null_call(program);
    stream.write_all(&(call.len() as u32 | 1 << 31).to_be_bytes()).ok()?;
    stream.write_all(&call).ok()?;
    let mut reply = [0; 8];
    stream.read_exact(&mut reply).ok()?;
    (reply[4..] == XID.to_be_bytes()).then_some(())
}

fn answers_over_udp(port: u16, program: u32) -> Option<()> {
    let socket = UdpSocket::bind("127.0.0.1:0").ok()?;
    socket.connect(("127.0.0.1", port)).ok()?;
    socket.set_read_timeout(Some(Duration::from_millis(500))).ok()?;
    socket.send(&null_call(program)).ok()?;
    let mut reply = [0; 64];
    let length = socket.recv(&mut reply).ok()?;
    (length >= 4 && reply[..4] == XID.to_be_bytes()).then_some(())
}
