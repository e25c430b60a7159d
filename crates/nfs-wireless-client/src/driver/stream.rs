//! The TCP loop: records in bites that stay in the cache, data by `sendfile`, reconnection.

mod receiver;
mod sender;

use std::{
    convert::Infallible,
    io::{self, ErrorKind},
    net::SocketAddr,
    time::{Duration, Instant},
};

use tokio::{net::TcpStream, sync::mpsc, time::sleep_until};

use self::{
    receiver::{Receiver, broken},
    sender::Sender,
};
use super::{
    Change, Command, clock,
    pump::Pump,
    socket::{connect_tcp, is_ours, source_towards},
};

/// Bytes received at a time: a bite that stays in the second-level cache on its way to the file.
const BITE: usize = 128 << 10;

/// Bites taken in before anything is sent.
const BITES_PER_TURN: usize = 16;

/// A connection with calls outstanding that is silent for so long is closed and reconnected, as Linux does after `timeo`.
pub(super) const SILENCE_LIMIT: Duration = Duration::from_secs(60);

/// How long a connection may stay silent after the link below has changed, beyond four round trips. The kernels at both
/// ends may be waiting out a doubled timeout by then, which a new connection does not.
const DOUBT: Duration = Duration::from_millis(300);

/// Longest such time.
const MAX_DOUBT: Duration = Duration::from_secs(5);

/// Pause before the second attempt to reconnect; every further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Longest pause between two attempts to reconnect.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Connections in a row on which the server said something and answered nothing. A link loses packets; it does not do this.
const MAX_BROKEN: u32 = 5;

/// How a connection ended.
enum End {
    /// The application has gone.
    Closed,
    /// The network or the server ended it.
    Lost(io::Error),
    /// The server's bytes are no replies, or ended in the middle of one.
    Broken(io::Error),
    /// The server is elsewhere now.
    Moved(SocketAddr),
}

pub(super) async fn run(
    mut stream: TcpStream,
    mut peer: SocketAddr,
    reserved: bool,
    mut pump: Pump,
    mut commands: mpsc::UnboundedReceiver<Command>,
) {
    let mut buffer = vec![0; BITE];
    // Connections in a row that brought no reply, and those of them that brought something else.
    let (mut fruitless, mut broken) = (0, 0);
    loop {
        let local = stream.local_addr().ok().map(|address| address.port());
        let answered = answered(&pump);
        let Err(end) = serve(&stream, peer, &mut pump, &mut commands, &mut buffer).await;
        let bore_fruit = self::answered(&pump) > answered;
        if bore_fruit {
            (fruitless, broken) = (0, 0);
        }
        let error = match end {
            End::Closed => return,
            End::Lost(error) => {
                fruitless += 1;
                if is_closed_by_peer(&error) {
                    pump.session.handle_close(clock(), fruitless > 1);
                }
                error
            }
            End::Broken(error) => {
                (fruitless, broken) = (fruitless + 1, broken + 1);
                error
            }
            End::Moved(moved) => {
                peer = moved;
                (fruitless, broken) = (0, 0);
                pump.session.handle_move(clock(), peer);
                ErrorKind::ConnectionReset.into()
            }
        };
        tracing::debug!(%error, "connection lost");
        // Closing with a reset leaves the port free, so that the server's duplicate request cache knows us again.
        let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
        drop(stream);
        pump.lost = true;
        if broken >= MAX_BROKEN {
            broken = 0;
            pump.give_up(clock(), peer, &error);
        } else if !bore_fruit {
            pump.refused(clock(), error);
        }
        pump.session.handle_reconnect(clock());
        stream = match reconnect(&mut peer, reserved, local, fruitless, &mut pump, &mut commands).await {
            Some(stream) => stream,
            None => return,
        };
        pump.lost = false;
    }
}

/// Whether the other end has closed the connection, and not a link or a clock.
fn is_closed_by_peer(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// How many calls the server has answered, if only by asking to wait.
const fn answered(pump: &Pump) -> u64 {
    let stats = pump.session.stats();
    stats.replies + stats.postponed
}

/// Serves one connection until it ends.
async fn serve(
    stream: &TcpStream,
    peer: SocketAddr,
    pump: &mut Pump,
    commands: &mut mpsc::UnboundedReceiver<Command>,
    buffer: &mut [u8],
) -> Result<Infallible, End> {
    let mut connection = Established::new(stream, peer);
    loop {
        let now = clock();
        while let Ok(command) = commands.try_recv() {
            pump.apply(now, command);
        }
        if let Some(change) = pump.take_change() {
            connection.apply_change(now, change, pump)?;
        }
        connection.receive(pump, buffer)?;
        pump.session.handle_timeout(now);
        let blocked = connection.sender.send(stream, pump).map_err(End::Lost)?;
        pump.drain_events();
        pump.publish();

        let limit = connection.silence_limit(now, pump)?;
        let deadline = pump.session.poll_timeout().into_iter().chain(limit).min();
        tokio::select! {
            command = commands.recv() => pump.apply(clock(), command.ok_or(End::Closed)?),
            result = stream.readable() => result.map_err(End::Lost)?,
            result = stream.writable(), if blocked => result.map_err(End::Lost)?,
            () = sleep_until(deadline.unwrap_or(now).into()), if deadline.is_some() => {}
        }
    }
}

/// One connection, from the handshake to its end.
struct Established<'a> {
    stream: &'a TcpStream,
    peer: SocketAddr,
    receiver: Receiver,
    sender: Sender,
    last_received: Instant,
    doubt: Option<Doubt>,
}

impl<'a> Established<'a> {
    fn new(stream: &'a TcpStream, peer: SocketAddr) -> Self {
        let (receiver, sender) = (Receiver::new(peer), Sender::default());
        Self { stream, peer, receiver, sender, last_received: clock(), doubt: None }
    }

    /// The way to the server has changed: perhaps the connection has no end there any more.
    fn apply_change(&mut self, now: Instant, change: Change, pump: &Pump) -> Result<(), End> {
        match change {
            Change::Link => match is_cut(self.stream, self.peer) {
                Ok(true) => return Err(End::Lost(ErrorKind::AddrNotAvailable.into())),
                Ok(false) => self.doubt = Some(Doubt::new(now, pump)),
                // No way at all: a new connection would get no further.
                Err(_) => {}
            },
            Change::Server(moved) => return Err(End::Moved(moved)),
            Change::End => return Err(End::Closed),
        }
        Ok(())
    }

    /// Takes in what has arrived, up to a few bites of it.
    fn receive(&mut self, pump: &mut Pump, buffer: &mut [u8]) -> Result<(), End> {
        for _ in 0..BITES_PER_TURN {
            match self.stream.try_read(buffer) {
                // What stands before a server that is down may accept, and close without a word; half a word is another thing.
                Ok(0) if self.receiver.is_inside_record() => {
                    return Err(End::Broken(broken("the connection ends inside a record")));
                }
                Ok(0) => return Err(End::Lost(ErrorKind::UnexpectedEof.into())),
                Ok(length) => {
                    self.last_received = clock();
                    self.receiver.take_in(pump, &buffer[..length]).map_err(End::Broken)?;
                    // A short read has emptied the socket.
                    if length < buffer.len() {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(End::Lost(error)),
            }
        }
        Ok(())
    }

    /// Returns until when the server may be silent; `None` while no call is outstanding.
    fn silence_limit(&mut self, now: Instant, pump: &Pump) -> Result<Option<Instant>, End> {
        if pump.session.outstanding() == 0 {
            (self.last_received, self.doubt) = (now, None);
            return Ok(None);
        }
        self.doubt = self.doubt.filter(|doubt| self.last_received <= doubt.since);
        let silent = self.last_received + SILENCE_LIMIT;
        let limit = self.doubt.map_or(silent, |doubt| doubt.until.min(silent));
        if limit <= now { Err(End::Lost(ErrorKind::TimedOut.into())) } else { Ok(Some(limit)) }
    }
}

/// A connection that may be dead.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    /// Anything received after this shows that it is not.
    since: Instant,
    until: Instant,
}

impl Doubt {
    fn new(since: Instant, pump: &Pump) -> Self {
        let round_trips = 4 * pump.session.stats().rtt.quantile(0.5).unwrap_or_default();
        Self { since, until: since + (DOUBT + round_trips).min(MAX_DOUBT) }
    }
}

/// Whether a connection's own address is not this machine's any more, so that nothing can ever arrive.
///
/// # Errors
/// When there is no way to `peer`.
fn is_cut(stream: &TcpStream, peer: SocketAddr) -> io::Result<bool> {
    let source = source_towards(peer)?;
    let local = stream.local_addr()?;
    Ok(local.ip() != source && !is_ours(local))
}

/// Connects again, for as long as it takes; `None` when the application has gone. The first attempt waits if connections
/// before were fruitless, the longer the more there were.
async fn reconnect(
    peer: &mut SocketAddr,
    reserved: bool,
    local: Option<u16>,
    fruitless: u32,
    pump: &mut Pump,
    commands: &mut mpsc::UnboundedReceiver<Command>,
) -> Option<TcpStream> {
    let mut pause = FIRST_PAUSE;
    if let Some(doublings) = fruitless.checked_sub(2) {
        let until = clock() + (FIRST_PAUSE * (1 << doublings.min(6))).min(MAX_PAUSE);
        if let Waited::Changed(Change::Server(moved)) =
            attend(std::future::pending::<()>(), pump, commands, Some(until)).await?
        {
            *peer = moved;
            pump.session.handle_move(clock(), moved);
        }
    }
    loop {
        let started = clock();
        let attempt = connect_tcp(*peer, reserved, local);
        let changed = match attend(attempt, pump, commands, None).await? {
            Waited::Done(Ok(stream)) => return Some(stream),
            Waited::Done(Err(error)) => {
                tracing::debug!(%error, "reconnecting failed");
                pump.refused(clock(), error);
                if !pump.is_persistent() && pump.session.outstanding() == 0 {
                    // Nobody waits and nobody wants us to: the next command starts over.
                    let command = commands.recv().await?;
                    pump.apply(clock(), command);
                }
                None
            }
            Waited::Until => None,
            Waited::Changed(change) => Some(change),
        };
        let changed = match changed {
            Some(change) => Some(change),
            None => {
                let pausing = std::future::pending::<()>();
                match attend(pausing, pump, commands, Some(started + pause)).await? {
                    Waited::Changed(change) => Some(change),
                    Waited::Done(()) | Waited::Until => None,
                }
            }
        };
        pause = if changed.is_some() { FIRST_PAUSE } else { (pause * 2).min(MAX_PAUSE) };
        if let Some(Change::Server(moved)) = changed {
            *peer = moved;
            pump.session.handle_move(clock(), moved);
        }
    }
}

/// What ended a wait.
enum Waited<T> {
    Done(T),
    Until,
    /// The way to the server has changed.
    Changed(Change),
}

/// Waits for `task` or `until` while commands and deadlines are looked after; `None` when the application has gone.
async fn attend<T>(
    task: impl Future<Output = T>,
    pump: &mut Pump,
    commands: &mut mpsc::UnboundedReceiver<Command>,
    until: Option<Instant>,
) -> Option<Waited<T>> {
    tokio::pin!(task);
    loop {
        let now = clock();
        match pump.take_change() {
            Some(Change::End) => return None,
            Some(change) => return Some(Waited::Changed(change)),
            None => {}
        }
        if until.is_some_and(|until| until <= now) {
            return Some(Waited::Until);
        }
        pump.session.handle_timeout(now);
        pump.drain_events();
        pump.publish();
        let deadline = pump.session.poll_timeout().into_iter().chain(until).min();
        tokio::select! {
            done = &mut task => return Some(Waited::Done(done)),
            command = commands.recv() => pump.apply(clock(), command?),
            () = sleep_until(deadline.unwrap_or(now).into()), if deadline.is_some() => {}
        }
    }
}
