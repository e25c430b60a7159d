//! `--cell NAME`: the first link of a name lets others hand it their devices, so that they share its medium.
//!
//! They meet at an abstract Unix socket, which belongs to a network and is gone with its process. A message each way at a time:
//! the joining process tells its link and is accepted, hands over two devices and is attached, and asks in the end until
//! what it sent has crossed. Either side is gone when its end of the connection is.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use linkemu::{LinkConfig, tunnel::TunnelHandle};
use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
        listen, recvmsg, sendmsg, socket_with, sockopt,
    },
    process::geteuid,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    task::JoinSet,
};

use super::{LOOK, drained};
use crate::{error::io_text, exit::Failure};

/// The longest message: the fingerprint of a link, or a word.
const MESSAGE_BYTES: usize = 64;
const YES: &[u8] = b"yes";
const NO: &[u8] = b"another link";
const DEVICES: &[u8] = b"devices";
const SENT: &[u8] = b"sent";

/// Our place in a cell.
#[derive(Debug)]
pub(super) enum Role {
    First(Door),
    Member(Member),
}

/// Where others come in.
#[derive(Debug)]
pub(super) struct Door {
    listener: AsyncFd<OwnedFd>,
    link: String,
    members: JoinSet<()>,
}

/// A connection to the first in the cell.
#[derive(Debug)]
pub(super) struct Member(AsyncFd<OwnedFd>);

/// Opens a cell, or joins it if there is one of this name.
pub(super) async fn enter(name: &str, link: &LinkConfig, seed: u64) -> anyhow::Result<Role> {
    let explained = |error: io::Error| anyhow::anyhow!("--cell {name}: {}", io_text(&error));
    let link = fingerprint(link, seed);
    loop {
        match open(name).map_err(explained)? {
            Some(listener) => return Ok(Role::First(Door { listener, link, members: JoinSet::new() })),
            None => match join(name, &link).await {
                Ok(Some(member)) => return Ok(Role::Member(member)),
                Ok(None) => {
                    return Err(Failure::usage(format!(
                        "--cell {name} has another link or seed; all in a cell must say the same"
                    )));
                }
                // It ended just now.
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(explained(error)),
            },
        }
    }
}

impl Door {
    /// Waits until somebody comes or leaves.
    pub(super) async fn serve(&mut self, handle: &TunnelHandle) {
        tokio::select! {
            Some(_) = self.members.join_next() => {}
            connection = accept(&self.listener) => match connection {
                Ok(connection) => drop(self.members.spawn(host(connection, self.link.clone(), handle.clone()))),
                // A stranger, or no descriptor left: not again at once.
                Err(_) => tokio::time::sleep(LOOK).await,
            }
        }
    }

    /// How many others are in.
    pub(super) fn members(&self) -> usize {
        self.members.len()
    }
}

impl Member {
    /// Hands over the devices.
    pub(super) async fn attach(&self, mobile: OwnedFd, host: OwnedFd) -> io::Result<()> {
        send(&self.0, DEVICES, &[mobile.as_fd(), host.as_fd()]).await?;
        expect_yes(&self.0).await
    }

    /// Waits until what was sent has crossed.
    pub(super) async fn drained(&self) -> io::Result<()> {
        send(&self.0, SENT, &[]).await?;
        expect_yes(&self.0).await
    }

    /// Waits until the first in the cell is gone.
    pub(super) async fn abandoned(&self) {
        // Nothing is said unasked, so this is the end or an error.
        let _ = receive(&self.0).await;
    }
}

/// What one member asks for, until it leaves.
async fn host(connection: AsyncFd<OwnedFd>, link: String, handle: TunnelHandle) {
    let mut number = None;
    while let Ok((message, mut devices)) = receive(&connection).await {
        let answer = match (message.as_slice(), devices.pop(), devices.pop()) {
            (b"", ..) => break,
            (DEVICES, Some(host), Some(mobile)) if number.is_none() => {
                match handle.attach(mobile, host).await {
                    Ok(new) => number = Some(new),
                    Err(_) => break,
                }
                YES
            }
            (SENT, None, None) => {
                drained(&handle).await;
                YES
            }
            (told, None, None) if told == link.as_bytes() => YES,
            _ => NO,
        };
        if send(&connection, answer, &[]).await.is_err() {
            break;
        }
    }
    if let Some(number) = number {
        handle.detach(number).await;
    }
}

/// Tells links apart.
fn fingerprint(link: &LinkConfig, seed: u64) -> String {
    let mut hasher = DefaultHasher::new();
    format!("{link:?}").hash(&mut hasher);
    format!("link {:016x} seed {seed}", hasher.finish())
}

/// Returns a new listener; none if there is one.
fn open(name: &str) -> io::Result<Option<AsyncFd<OwnedFd>>> {
    let socket = socket()?;
    match bind(&socket, &address(name)?) {
        Err(Errno::ADDRINUSE) => return Ok(None),
        done => done?,
    }
    listen(&socket, 64)?;
    wait_for(socket).map(Some)
}

/// Returns a connection to the first in the cell; none if its link is another.
async fn join(name: &str, link: &str) -> io::Result<Option<Member>> {
    let socket = socket()?;
    connect(&socket, &address(name)?)?;
    let connection = ours(socket)?;
    send(&connection, link.as_bytes(), &[]).await?;
    match receive(&connection).await?.0.as_slice() {
        YES => Ok(Some(Member(connection))),
        NO => Ok(None),
        _ => Err(Errno::CONNRESET.into()),
    }
}

async fn accept(listener: &AsyncFd<OwnedFd>) -> io::Result<AsyncFd<OwnedFd>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    ours(listener.async_io(Interest::READABLE, |listener| Ok(accept_with(listener, flags)?)).await?)
}

/// A connection to a process of the same user: abstract sockets are open to all.
fn ours(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    if sockopt::socket_peercred(&socket)?.uid != geteuid() {
        return Err(Errno::ACCESS.into());
    }
    wait_for(socket)
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

fn address(name: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(format!("nfsw/cell/{name}").as_bytes())?)
}

fn wait_for(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    #[allow(deprecated, reason = "the safe constructor: an `OwnedFd` keeps its descriptor")]
    AsyncFd::new(socket)
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

async fn expect_yes(connection: &AsyncFd<OwnedFd>) -> io::Result<()> {
    match receive(connection).await?.0.as_slice() {
        YES => Ok(()),
        _ => Err(Errno::CONNRESET.into()),
    }
}

async fn send(connection: &AsyncFd<OwnedFd>, message: &[u8], devices: &[BorrowedFd<'_>]) -> io::Result<()> {
    let sent = connection.async_io(Interest::WRITABLE, |connection| {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !devices.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(devices));
        }
        Ok(sendmsg(connection, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL)?)
    });
    sent.await.map(drop)
}

/// The next message, empty at the end, and the descriptors that came with it.
async fn receive(connection: &AsyncFd<OwnedFd>) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let received = connection.async_io(Interest::READABLE, |connection| {
        let mut message = vec![0; MESSAGE_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [IoSliceMut::new(&mut message)];
        let length = recvmsg(connection, parts, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
        message.truncate(length);
        let rights = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => Some(rights),
            _ => None,
        });
        Ok((message, rights.flatten().collect()))
    });
    received.await
}
