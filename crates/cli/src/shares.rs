//! Shares that are used here: `CODE@HOST:PORT` in the place of a server's name, or `@HOST:PORT` with the code elsewhere, so that no other user
//! of this machine reads it in the list of processes.
//!
//! A code makes one member. What leads that member back to the share is kept where only this user reads, for the next command with the
//! same code.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, IsTerminal, Read},
    net::{SocketAddr, ToSocketAddrs},
    sync::{Mutex, PoisonError},
};

use nfs_share::{Code, Greeting, Membership, ShareChannel};

use crate::{
    error::{Error, Result},
    local::{Own, read_private},
    text::escape,
    units::parse_listen,
};

/// The variable with the code of `@HOST:PORT`.
pub(crate) const VARIABLE: &str = "NFSW_CODE";

/// Bytes of a line with a code, at most.
const LONGEST_LINE: u64 = 256;

/// The port of shares, unless it is said.
pub(crate) const PORT: u16 = 7049;

/// Channels of this process, by the name of the share: all connections to a share are of one member.
static CHANNELS: Mutex<BTreeMap<String, ShareChannel>> = Mutex::new(BTreeMap::new());

/// Codes that were read from standard input, by address: each is asked for once.
static CODES: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// Returns the address of a share as messages name it, and the channel to it; `None` for the name of a server.
///
/// # Errors
/// A usage error, if the code or the address is none.
pub(crate) fn channel(host: &str) -> Result<Option<(String, ShareChannel)>> {
    let Some((code, place)) = host.split_once('@') else { return Ok(None) };
    let mut channels = CHANNELS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = channels.get(host) {
        return Ok(Some((place.to_owned(), known.clone())));
    }
    let addresses = addresses(place)?;
    let code = if code.is_empty() { secret(place)? } else { code.to_owned() };
    let code: Code = code.parse().map_err(|error| Error::usage(format!("{code}: {error}")))?;
    let file = file_name(&code);
    let greeting = kept(&file).map_or(Greeting::Code(code), Greeting::Known);
    let channel =
        ShareChannel::new(addresses, greeting, &label(), move |joined, _| keep(&file, &joined.membership));
    channels.insert(host.to_owned(), channel.clone());
    Ok(Some((place.to_owned(), channel)))
}

/// Returns the code that was not typed with the address: from the environment, or else the next line of standard input.
///
/// # Errors
/// A usage error, if there is none.
pub(crate) fn secret(place: &str) -> Result<String> {
    if let Some(code) = std::env::var(VARIABLE).ok().filter(|code| !code.is_empty()) {
        return Ok(code.trim().to_owned());
    }
    let mut codes = CODES.lock().unwrap_or_else(PoisonError::into_inner);
    let line = codes.entry(place.to_owned()).or_insert_with(|| {
        let (mut line, input) = (String::new(), io::stdin().lock());
        if input.is_terminal() {
            eprint!("code for {}: ", escape(place.as_bytes()));
        }
        let _ = input.take(LONGEST_LINE).read_line(&mut line);
        line
    });
    match line.trim() {
        "" => Err(Error::usage(format!(
            "@{place}: there is no code: {VARIABLE} is not set, and standard input has no line"
        ))),
        code => Ok(code.to_owned()),
    }
}

/// Reads `HOST:PORT`, or `HOST` with the port that shares have. A name may have several addresses.
fn addresses(place: &str) -> Result<Vec<SocketAddr>> {
    let wrong = |why: &dyn std::fmt::Display| Error::usage(format!("{place}: {why}"));
    if let Ok(address) = parse_listen(place) {
        return Ok(vec![address]);
    }
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| wrong(&"expected HOST:PORT"))?),
        None => (place, PORT),
    };
    let found: Vec<_> = (host, port).to_socket_addrs().map_err(|error| wrong(&error))?.collect();
    if found.is_empty() { Err(wrong(&"the name has no address")) } else { Ok(found) }
}

/// Gets into a share, and returns what it has said of itself.
///
/// # Errors
/// A usage error, if there is no such share; why it lets nobody in.
#[cfg(mount)]
pub(crate) async fn meet(host: &str) -> anyhow::Result<nfs_share::Met> {
    use nfs_wireless_client::{Channel, Error as ClientError};
    let found = channel(host)?.map(|(_, channel)| channel);
    let channel = found.ok_or_else(|| Error::usage(format!("{host} is no share")))?;
    channel.open().await.map_err(|error| ClientError::Channel(std::sync::Arc::new(error)))?;
    Ok(channel.met().expect("a channel that is open was joined"))
}

/// Returns what a sharer sees of who comes.
fn label() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    match std::env::var("USER") {
        Ok(user) => format!("{user}@{host}"),
        Err(_) => host,
    }
}

/// Where memberships are kept: the system forgets them when this user is logged out.
fn place() -> Option<Own> {
    Own::directory("XDG_RUNTIME_DIR", ".local/state", "shares")
}

/// Codes are short: their hash hides them from who looks over a shoulder, and from nobody else.
fn file_name(code: &Code) -> String {
    blake3::hash(code.to_string().as_bytes()).to_hex()[..32].to_owned()
}

fn kept(file: &str) -> Option<Membership> {
    let bytes = read_private(&place()?.path().join(file), Membership::BYTES as u64).ok()?;
    Some(Membership::from_bytes(bytes[..].try_into().ok()?))
}

fn keep(file: &str, membership: &Membership) {
    let kept = place()
        .and_then(|place| place.open().ok()?.replace(file.as_bytes(), &membership.to_bytes()[..]).ok());
    if kept.is_none() {
        eprintln!("nfsw: warning: this code is used up: what leads back to the share cannot be kept here");
    }
}
