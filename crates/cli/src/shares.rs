//! Shares that are used here: `CODE@HOST:PORT` in the place of a server's name, or `@HOST:PORT` with the code elsewhere, so that no other user
//! of this machine reads it in the list of processes. Without an address, `CODE` or `@`, the share is looked for.
//!
//! A code makes one member. What leads that member back to the share is kept where only this user reads, for the next command with the
//! same code.

pub(crate) mod kept;
mod seek;

use std::{
    collections::BTreeMap,
    io::{self, BufRead, IsTerminal, Read},
    net::SocketAddr,
    sync::{Mutex, PoisonError},
};

use nfs_share::{Code, ShareChannel};

use crate::{
    error::{Error, Result},
    hang::while_others_take_their_time,
    text::escape,
    units::parse_listen,
    url::Remote,
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

/// Returns the address of a share as messages name it, and the channel to it; `None` for a server.
///
/// # Errors
/// A usage error, if the code or the address is none.
pub(crate) fn channel(remote: &Remote) -> Result<Option<(String, ShareChannel)>> {
    let Some((code, typed_place)) = parts(remote) else { return Ok(None) };
    let shown = if typed_place.is_empty() { "the share".to_owned() } else { typed_place.to_owned() };
    let mut channels = CHANNELS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = channels.get(&*remote.host) {
        return Ok(Some((shown, known.clone())));
    }
    let place = if typed_place.is_empty() { None } else { Some(Location::parse(typed_place)?) };
    let typed = code;
    let code = if code.is_empty() { secret(typed_place)? } else { code.to_owned() };
    let code: Code = code.parse().map_err(|error| Error::usage(format!("{code}: {error}")))?;
    let file = kept::file_name(&code);
    let (greeting, was_at) = kept::greeting(&file, code);
    let keep = move |joined: &_, reached| kept::keep(&file, joined, reached);
    let typed = typed.to_owned();
    let seek = move |greeting| seek::addresses(greeting, typed.clone());
    let known = was_at.map(|reached| reached.address);
    let mut channel = match place {
        None => ShareChannel::sought(seek, known, greeting, &label(), keep),
        Some(place) => {
            ShareChannel::followed(move || place.clone().addresses(), seek, greeting, &label(), keep)
        }
    };
    if was_at.is_some_and(|reached| reached.by_stream) {
        channel = channel.with_stream_at_once();
    }
    channels.insert(remote.host.to_string(), channel.clone());
    Ok(Some((shown, channel)))
}

/// Returns the code and the address of a share, as far as they are said. A code that is not one exactly is the name of a server: it is
/// resolved, which a code is not, as others could read it then.
pub(crate) fn parts(remote: &Remote) -> Option<(&str, &str)> {
    remote
        .share()
        .filter(|(code, place)| !place.is_empty() || code.is_empty() || code.parse::<Code>().is_ok())
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
            eprint!(
                "code for {}: ",
                if place.is_empty() { "the share".into() } else { escape(place.as_bytes()) }
            );
        }
        let _ = while_others_take_their_time(|| input.take(LONGEST_LINE).read_line(&mut line));
        line
    });
    match line.trim() {
        "" => Err(Error::usage(format!(
            "@{place}: there is no code: {VARIABLE} is not set, and standard input has no line"
        ))),
        code => Ok(code.to_owned()),
    }
}

/// Where a share was said to be.
#[derive(Clone, Debug)]
enum Location {
    Address(SocketAddr),
    /// A name that is looked up when it is needed, which may take long.
    Name(String, u16),
}

impl Location {
    /// Reads `HOST:PORT`, or `HOST` with the port that shares have.
    fn parse(place: &str) -> Result<Self> {
        if let Ok(address) = parse_listen(place) {
            return Ok(Self::Address(address));
        }
        let wrong = |_| Error::usage(format!("{place}: expected HOST:PORT"));
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().map_err(wrong)?),
            None => (place, PORT),
        };
        Ok(Self::Name(host.to_owned(), port))
    }

    /// Returns the addresses, of which a name may have several.
    async fn addresses(self) -> io::Result<Vec<SocketAddr>> {
        let (host, port) = match self {
            Self::Address(address) => return Ok(vec![address]),
            Self::Name(host, port) => (host, port),
        };
        let failed = |error: &dyn std::fmt::Display| io::Error::other(format!("{host}: {error}"));
        let found: Vec<_> =
            tokio::net::lookup_host((&*host, port)).await.map_err(|error| failed(&error))?.collect();
        if found.is_empty() { Err(failed(&"the name has no address")) } else { Ok(found) }
    }
}

/// Gets into a share, and returns what it has said of itself.
///
/// # Errors
/// A usage error, if there is no such share; why it lets nobody in.
#[cfg(mount)]
pub(crate) async fn meet(remote: &Remote) -> anyhow::Result<nfs_share::Met> {
    use nfs_wireless_client::{Channel, Error as ClientError};
    let found = channel(remote)?.map(|(_, channel)| channel);
    let channel = found.ok_or_else(|| Error::usage(format!("{} is no share", remote.host)))?;
    channel.open().await.map_err(|error| ClientError::Channel(std::sync::Arc::new(error)))?;
    Ok(channel.met().expect("a channel that is open was joined"))
}

/// Returns what others see of who shares or comes.
pub(crate) fn label() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    match std::env::var("USER") {
        Ok(user) => format!("{user}@{host}"),
        Err(_) => host,
    }
}
