//! `nfs://[user@]host[:port]/path?option=value&...`, with the option names that libnfs users know.

mod size;

use std::{str::FromStr, time::Duration};

use thiserror::Error;

pub use self::size::{parse_block, parse_max_block, parse_size};

/// A path on a server, as a URL.
///
/// ```
/// use nfs_wireless_client::url::NfsUrl;
///
/// let url: NfsUrl = "nfs://nas:2050/srv/my%20music?uid=1000".parse()?;
/// assert_eq!((&url.host[..], &url.path[..]), ("nas", &b"/srv/my music"[..]));
/// assert_eq!((url.options.nfs_port, url.options.uid), (Some(2050), Some(1000)));
/// # Ok::<(), nfs_wireless_client::url::UrlError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NfsUrl {
    /// Name or address of the server, without brackets.
    pub host: String,
    /// Path on the server, without escapes; empty if there is none.
    pub path: Vec<u8>,
    /// The same as it was written.
    pub raw_path: Vec<u8>,
    /// The rest.
    pub options: UrlOptions,
}

/// What a URL says beyond host and path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UrlOptions {
    /// Port of the NFS service (`:port` or `nfsport`).
    pub nfs_port: Option<u16>,
    /// Port of the MOUNT service (`mountport`).
    pub mount_port: Option<u16>,
    /// User the calls come from (`uid`).
    pub uid: Option<u32>,
    /// Group the calls come from (`gid`).
    pub gid: Option<u32>,
    /// Bytes per READ (`rsize`).
    pub read_block: Option<u32>,
    /// Bytes per WRITE (`wsize`).
    pub write_block: Option<u32>,
    /// Timeout of the first attempt over UDP (`timeo`, in tenths of a second as for mount).
    pub initial_timeout: Option<Duration>,
    /// One line for each part that has no effect.
    pub warnings: Vec<String>,
}

/// Options of libnfs and mount that ask for something this client does not have.
const WITHOUT_EFFECT: [&str; 15] = [
    "retrans",
    "autoreconnect",
    "readdir-buffer",
    "tcp-syncnt",
    "if",
    "debug",
    "dircache",
    "auto-traverse-mounts",
    "sec",
    "xprtsec",
    "readahead",
    "pagecache",
    "nfsvers",
    "proto",
    "nolock",
];

/// Why a URL is none that leads to a file on a server.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UrlError {
    /// It begins with something else.
    #[error("expected a URL that begins with nfs://")]
    NotNfs,
    /// Host or options are no text.
    #[error("{0} not UTF-8")]
    NotUtf8(&'static str),
    /// Nothing stands where the host does.
    #[error("the URL names no host: nfs://HOST/PATH")]
    NoHost,
    /// An IPv6 address that does not end.
    #[error("the IPv6 address lacks its closing bracket")]
    OpenBracket,
    /// An IPv6 address that looks like a host and a port.
    #[error("an IPv6 address in a URL stands in brackets: nfs://[{0}]/...")]
    NoBrackets(String),
    /// Something else than a port follows an address in brackets.
    #[error("expected a colon and a port after the address, not {0:?}")]
    NotAPort(String),
    /// A `%` without its digits.
    #[error("a % in a URL is followed by two hexadecimal digits (%25 is a % itself)")]
    Escape,
    /// `%00` in the path.
    #[error("a path cannot contain a NUL byte (%00)")]
    Nul,
    /// Another version of the protocol.
    #[error("version={0} is not available: nfsw speaks NFSv3")]
    Version(String),
    /// A value that is no number or none in range.
    #[error("{name}={value} in the URL is not a number in range")]
    NotANumber {
        /// Name of the option.
        name: String,
        /// What is given for it.
        value: String,
    },
    /// A size that no block can have.
    #[error("{name}={value} in the URL: {why}")]
    Block {
        /// Name of the option.
        name: String,
        /// What is given for it.
        value: String,
        /// What a block can have.
        why: String,
    },
}

impl NfsUrl {
    /// Reads a URL, whose path may have bytes that are no text.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn parse(url: &[u8]) -> Result<Self, UrlError> {
        let rest = url.strip_prefix(b"nfs://").ok_or(UrlError::NotNfs)?;
        let mut options = UrlOptions::default();
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        let authority = str::from_utf8(authority).map_err(|_| UrlError::NotUtf8("the host name is"))?;
        let authority = match authority.rsplit_once('@') {
            Some((_, host)) => {
                let warning = "the user name in the URL is not used: NFS goes by uid and gid";
                options.warnings.push(warning.to_owned());
                host
            }
            None => authority,
        };
        let (host, port) = split_port(authority)?;
        // In a URL the zone of a link-local address follows %25 (RFC 6874 §2); many write % alone.
        let host = match host.split_once("%25") {
            Some((ip, zone)) if !zone.is_empty() => format!("{ip}%{zone}"),
            _ => host.to_owned(),
        };
        if host.is_empty() {
            return Err(UrlError::NoHost);
        }
        if let Some(port) = port {
            options.nfs_port = Some(number("port", port)?);
        }
        let (raw_path, query) = match tail.iter().position(|&byte| byte == b'?') {
            Some(at) => (&tail[..at], &tail[at + 1..]),
            None => (tail, &[][..]),
        };
        for pair in query.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty()) {
            let pair = decode(pair)?;
            options.apply(str::from_utf8(&pair).map_err(|_| UrlError::NotUtf8("the URL's options are"))?)?;
        }
        let path = decode(raw_path)?;
        if path.contains(&0) {
            return Err(UrlError::Nul);
        }
        Ok(Self { host, path, raw_path: raw_path.to_vec(), options })
    }
}

impl FromStr for NfsUrl {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<Self, UrlError> {
        Self::parse(url.as_bytes())
    }
}

impl UrlOptions {
    fn apply(&mut self, pair: &str) -> Result<(), UrlError> {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "version" if value == "3" => {}
            "version" => return Err(UrlError::Version(value.to_owned())),
            "nfsport" | "port" => self.nfs_port = Some(number(name, value)?),
            "mountport" => self.mount_port = Some(number(name, value)?),
            "uid" => self.uid = Some(number(name, value)?),
            "gid" => self.gid = Some(number(name, value)?),
            "rsize" => self.read_block = Some(block(name, value)?),
            "wsize" => self.write_block = Some(block(name, value)?),
            "timeo" => {
                self.initial_timeout =
                    Some(Duration::from_millis(100 * u64::from(number::<u32>(name, value)?)))
            }
            _ if WITHOUT_EFFECT.contains(&name) => {
                self.warnings.push(format!("the URL option {name} has no effect"));
            }
            _ => self.warnings.push(format!("unknown URL option {name:?} ignored")),
        }
        Ok(())
    }
}

fn split_port(authority: &str) -> Result<(&str, Option<&str>), UrlError> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or(UrlError::OpenBracket)?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(UrlError::NotAPort(rest.to_owned())),
        };
    }
    match authority.split_once(':') {
        Some((_, port)) if port.contains(':') => Err(UrlError::NoBrackets(authority.to_owned())),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((authority, None)),
    }
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T, UrlError> {
    let (name, value) = (name.to_owned(), value.to_owned());
    value.parse().map_err(|_| UrlError::NotANumber { name, value })
}

fn block(name: &str, value: &str) -> Result<u32, UrlError> {
    let (name, value) = (name.to_owned(), value.to_owned());
    parse_block(&value).map_err(|why| UrlError::Block { name, value, why })
}

/// Writes a path as it stands in a URL. Only what means something else there is replaced, so that people can read it.
pub fn encode(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for &byte in path {
        encode_byte(byte, b"%?*[", &mut out);
    }
    out
}

/// Writes a byte, escaped if it is one of `replaced`.
pub fn encode_byte(byte: u8, replaced: &[u8], out: &mut Vec<u8>) {
    if replaced.contains(&byte) {
        out.extend_from_slice(format!("%{byte:02X}").as_bytes());
    } else {
        out.push(byte);
    }
}

/// Reads what was escaped by `%`.
///
/// # Errors
/// [`UrlError::Escape`].
pub fn decode(text: &[u8]) -> Result<Vec<u8>, UrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(&byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|&digit| char::from(digit).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(UrlError::Escape);
        };
        bytes.push((high * 16 + low) as u8);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use nfs_proto::config::{BlockSize, RetryPolicy};
    use nfs_wire::auth::Credential;

    use super::*;
    use crate::config::ClientConfig;

    #[test]
    fn what_a_url_asks_for_is_configured_and_the_rest_stays() {
        let url: NfsUrl = "nfs://nas:2050/x?mountport=9&uid=7&rsize=8K&timeo=20".parse().unwrap();
        let mut config = ClientConfig::default();
        url.options.configure(&mut config);
        assert_eq!((config.nfs_port, config.mount_port), (Some(2050), Some(9)));
        let Credential::Sys(user) = &config.credential else { panic!("no credential") };
        assert_eq!((user.uid, user.gids.len()), (7, 0));
        assert_eq!((config.read_block, config.write_block), (BlockSize::Exact(8192), BlockSize::default()));
        assert!(matches!(config.retry, RetryPolicy::Hybrid { initial, .. } if initial.as_secs() == 2));
        let before = format!("{config:?}");
        UrlOptions::default().configure(&mut config);
        assert_eq!(format!("{config:?}"), before);
    }

    #[test]
    fn what_is_no_url_says_why() {
        let number =
            |name: &str, value: &str| UrlError::NotANumber { name: name.to_owned(), value: value.to_owned() };
        for (url, error) in [
            ("nas:/x", UrlError::NotNfs),
            ("nfs:///x", UrlError::NoHost),
            ("nfs://[::1/x", UrlError::OpenBracket),
            ("nfs://::1/x", UrlError::NoBrackets("::1".to_owned())),
            ("nfs://[::1]2049/x", UrlError::NotAPort("2049".to_owned())),
            ("nfs://h:x/", number("port", "x")),
            ("nfs://h:65536/", number("port", "65536")),
            ("nfs://h/?uid=-1", number("uid", "-1")),
            ("nfs://h/?version=4", UrlError::Version("4".to_owned())),
            ("nfs://h/%zz", UrlError::Escape),
            ("nfs://h/%0", UrlError::Escape),
            ("nfs://h/%00", UrlError::Nul),
        ] {
            assert_eq!(url.parse::<NfsUrl>().unwrap_err(), error, "{url}");
        }
        assert!(matches!(NfsUrl::parse(b"nfs://\xff/x"), Err(UrlError::NotUtf8(_))));
        assert!(matches!("nfs://h/x?rsize=3".parse::<NfsUrl>(), Err(UrlError::Block { .. })));
    }
}
