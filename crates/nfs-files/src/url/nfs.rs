//! `nfs://[user@]host[:port]/path?option=value&...`, with the option names that libnfs users know.

use std::time::Duration;

use super::{Remote, SPECIAL, ends_with_dot, is_pattern, names_directory, normalise};

/// What a URL says beyond host and path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Timeout of the first attempt (`timeo`, in tenths of a second as for mount).
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

/// Reads what follows `nfs://`.
pub(super) fn parse(rest: &[u8]) -> Result<Remote, String> {
    let mut options = UrlOptions::default();
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let authority = str::from_utf8(authority).map_err(|_| "the host name is not UTF-8".to_owned())?;
    let authority = match authority.rsplit_once('@') {
        Some((_, host)) => {
            options.warnings.push("the user name in the URL is not used: NFS goes by uid and gid".to_owned());
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
        return Err("the URL names no host: nfs://HOST/PATH".to_owned());
    }
    if let Some(port) = port {
        options.nfs_port = Some(number("port", port)?);
    }
    let (path, query) = match tail.iter().position(|&byte| byte == b'?') {
        Some(at) => (&tail[..at], &tail[at + 1..]),
        None => (tail, &[][..]),
    };
    for pair in query.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty()) {
        let pair = decode(pair)?;
        options.apply(str::from_utf8(&pair).map_err(|_| "the URL's options are not UTF-8".to_owned())?)?;
    }
    let pattern = is_pattern(path).then(|| decode_pattern(path)).transpose()?;
    let path = decode(path)?;
    if path.contains(&0) {
        return Err("a path cannot contain a NUL byte (%00)".to_owned());
    }
    Ok(Remote {
        host: host.into(),
        path: normalise(&path),
        pattern: pattern.map(|pattern| normalise(&pattern)),
        is_contents: ends_with_dot(&path),
        names_directory: names_directory(&path),
        options: options.into(),
    })
}

impl UrlOptions {
    fn apply(&mut self, pair: &str) -> Result<(), String> {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "version" if value == "3" => {}
            "version" => return Err(format!("version={value} is not available: nfsw speaks NFSv3")),
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

fn split_port(authority: &str) -> Result<(&str, Option<&str>), String> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("the IPv6 address lacks its closing bracket")?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(format!("expected a colon and a port after the address, not {rest:?}")),
        };
    }
    match authority.split_once(':') {
        Some((_, port)) if port.contains(':') => {
            Err(format!("an IPv6 address in a URL stands in brackets: nfs://[{authority}]/..."))
        }
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((authority, None)),
    }
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{name}={value} in the URL is not a number in range"))
}

fn block(name: &str, value: &str) -> Result<u32, String> {
    super::size::parse_block(value).map_err(|why| format!("{name}={value} in the URL: {why}"))
}

/// Writes a path as it stands in a URL. Only what means something else there is replaced, so that people can read it.
pub fn encode(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for &byte in path {
        encode_byte(byte, b"%?*[", &mut out);
    }
    out
}

/// Writes a pattern as it stands in a URL, where `%` escapes what a backslash escapes in the pattern.
pub(super) fn encode_pattern(pattern: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(pattern.len());
    let mut bytes = pattern.iter();
    while let Some(&byte) = bytes.next() {
        match (byte, bytes.as_slice().first()) {
            (b'\\', Some(&escaped)) if SPECIAL.contains(&escaped) => {
                encode_byte(escaped, SPECIAL, &mut out);
                bytes.next();
            }
            _ => encode_byte(byte, b"%?", &mut out),
        }
    }
    out
}

fn encode_byte(byte: u8, replaced: &[u8], out: &mut Vec<u8>) {
    if replaced.contains(&byte) {
        out.extend_from_slice(format!("%{byte:02X}").as_bytes());
    } else {
        out.push(byte);
    }
}

/// Reads a path with unescaped `*` or `[`. What is escaped by `%` is no part of a pattern.
fn decode_pattern(path: &[u8]) -> Result<Vec<u8>, String> {
    let components = path.split(|&byte| byte == b'/').map(|component| {
        let decoded = decode(component)?;
        // Only in a component that is a pattern, or looks like one, does a backslash escape anything.
        if !is_pattern(&decoded) {
            return Ok(decoded);
        }
        let mut out = Vec::with_capacity(component.len());
        let mut rest = component;
        while let [byte, tail @ ..] = rest {
            match (byte, tail) {
                (b'%', [high, low, tail @ ..]) => {
                    let decoded = decode(&[b'%', *high, *low])?;
                    if SPECIAL.contains(&decoded[0]) {
                        out.push(b'\\');
                    }
                    out.extend_from_slice(&decoded);
                    rest = tail;
                }
                _ => {
                    out.push(*byte);
                    rest = tail;
                }
            }
        }
        Ok(out)
    });
    Ok(components.collect::<Result<Vec<_>, String>>()?.join(&b'/'))
}

fn decode(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(&byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|&digit| char::from(digit).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err("a % in a URL is followed by two hexadecimal digits (%25 is a % itself)".to_owned());
        };
        bytes.push((high * 16 + low) as u8);
    }
    Ok(bytes)
}
