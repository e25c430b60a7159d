//! What a path on the command line names: a local file, standard input or output, or a file on a server.

mod pattern;

use std::{
    ffi::OsStr,
    fmt,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

pub use nfs_wireless_client::url::{
    NfsUrl, UrlOptions, encode as encode_url, parse_block, parse_max_block, parse_size,
};

use crate::{
    error::Error,
    escape::{escape, shell_quote},
};

/// A source or destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A path on this machine.
    Local(PathBuf),
    /// `-`: standard input or output.
    Standard,
    /// A path on a server.
    Remote(Remote),
}

/// A path on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Name or address of the server, without brackets.
    pub host: Arc<str>,
    /// Absolute path on the server, without empty components and without a final slash.
    pub path: Vec<u8>,
    /// The path as a pattern for several files, where it has an unescaped `*`, `?` or `[`; a backslash escapes one.
    pub pattern: Option<Vec<u8>>,
    /// Whether it was written with `/.` at its end: what is in the directory is meant, not the directory.
    pub is_contents: bool,
    /// Whether it was written as the name of a directory, with a slash at its end or as `is_contents`.
    pub names_directory: bool,
    /// Whether the host looks like a code and is a server all the same, as it was written in a URL.
    pub is_server: bool,
    /// What the URL asked for.
    pub options: Arc<UrlOptions>,
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text.as_ref()).map_err(Error::usage)
    }
}

impl Target {
    /// Reads a command line argument.
    ///
    /// # Errors
    /// A line for the user when it looks remote but is not complete.
    pub fn parse(argument: &OsStr) -> Result<Self, String> {
        let bytes = argument.as_bytes();
        match bytes {
            b"" => return Err("expected a path, and not an empty word".to_owned()),
            b"-" => return Ok(Self::Standard),
            _ => {}
        }
        if bytes.starts_with(b"nfs://") {
            let url = NfsUrl::parse(bytes).map_err(|error| error.to_string())?;
            return Remote::of_url(url).map(Self::Remote);
        }
        if let Some((share, path)) = split_share(bytes) {
            return Remote::in_share(share, path).map(Self::Remote);
        }
        match split_host(bytes) {
            Some((host, path)) => Remote::new(host, path).map(Self::Remote),
            None => Ok(Self::Local(PathBuf::from(argument))),
        }
    }

    /// Whether it may stand for several files on a server.
    pub fn is_pattern(&self) -> bool {
        matches!(self, Self::Remote(remote) if remote.pattern.is_some())
    }

    /// Returns the one path that it names, where nobody thinks of a pattern.
    pub fn literal(self) -> Self {
        match self {
            Self::Remote(remote) => Self::Remote(Remote { pattern: None, ..remote }),
            other => other,
        }
    }

    /// Whether it was written as the name of a directory.
    pub fn names_directory(&self) -> bool {
        match self {
            Self::Local(path) => names_directory(path.as_os_str().as_bytes()),
            Self::Standard => false,
            Self::Remote(remote) => remote.names_directory,
        }
    }

    /// Returns it as one word for a shell.
    pub fn shell_word(&self) -> String {
        match self {
            Self::Local(path) => shell_quote(path.as_os_str().as_bytes()),
            Self::Standard => "-".to_owned(),
            Self::Remote(remote) => remote.shell_word(),
        }
    }

    /// Reads a command line argument that must be on a server.
    ///
    /// # Errors
    /// A line for the user when it is local.
    pub fn parse_remote(argument: &OsStr) -> Result<Remote, String> {
        match Self::parse(argument)? {
            Self::Remote(remote) => Ok(remote),
            Self::Local(_) | Self::Standard => {
                Err("expected a path on a server: HOST:/PATH or nfs://HOST/PATH".to_owned())
            }
        }
    }
}

impl Remote {
    /// Whether it is in a share of somebody else's (`CODE@HOST:PORT:/PATH`).
    pub fn is_in_share(&self) -> bool {
        self.share().is_some()
    }

    /// Returns it as others may read it: the code of a share is left out.
    pub fn without_code(&self) -> Self {
        match self.share() {
            Some((_, place)) => Self { host: format!("@{place}").into(), ..self.clone() },
            None => self.clone(),
        }
    }

    /// Reads a command line argument that names a server and perhaps a path on it.
    ///
    /// # Errors
    /// A line for the user when it is neither.
    pub fn parse_host(argument: &OsStr) -> Result<Self, String> {
        if let Ok(Target::Remote(remote)) = Target::parse(argument) {
            return Ok(remote);
        }
        let bytes = argument.as_bytes();
        match split_host(bytes) {
            _ if is_share(bytes) => return Self::in_share(bytes, b"/"),
            Some((host, b"")) => return Self::new(host, b"/"),
            // `HOST:PORT`; an IPv6 address ends otherwise.
            Some((host, port)) if port.iter().all(u8::is_ascii_digit) => return Self::new(host, port),
            _ => {}
        }
        if bytes.is_empty() || bytes.contains(&b'/') {
            return Err("expected the name or address of a server".to_owned());
        }
        let bare = bytes.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
        Self::new(bare.unwrap_or(bytes), b"/")
    }

    /// Reads a command line argument that names a path on a server, or with `HOST:` alone all that it exports.
    ///
    /// # Errors
    /// A line for the user when it is neither.
    pub fn parse_listed(argument: &OsStr) -> Result<Self, String> {
        match split_host(argument.as_bytes()) {
            Some((host, b"")) => Self::new(host, b"/"),
            _ => Target::parse_remote(argument),
        }
    }

    fn new(host: &[u8], path: &[u8]) -> Result<Self, String> {
        let host = str::from_utf8(host).map_err(|_| "the host name is not UTF-8".to_owned())?;
        let mut options = UrlOptions::default();
        let host = match host.rsplit_once('@') {
            Some((_, host)) => {
                options.warnings.push("the user name before @ is not used: NFS goes by --uid".to_owned());
                host
            }
            None => host,
        };
        if !path.starts_with(b"/") {
            let shown = escape(path);
            let digits = path.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(path.len());
            if digits > 0 && path.get(digits).is_none_or(|&byte| byte == b'/') {
                let slash = if digits == path.len() { "/" } else { "" };
                let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
                return Err(format!("a port goes into a URL: nfs://{host}:{shown}{slash}"));
            }
            return Err(format!(
                "a path on a server starts with a slash: {host}:/{shown} (a local file: ./{host}:{shown})"
            ));
        }
        Ok(Self::on(host, path, options))
    }

    /// A path in a share, whose host is `CODE@HOST:PORT`, `@HOST:PORT` or `@`.
    fn in_share(share: &[u8], path: &[u8]) -> Result<Self, String> {
        let share = str::from_utf8(share).map_err(|_| "the host name is not UTF-8".to_owned())?;
        Ok(Self::on(share, path, UrlOptions::default()))
    }

    fn on(host: &str, path: &[u8], options: UrlOptions) -> Self {
        Self {
            host: host.into(),
            path: normalise(&unescape(path)),
            pattern: is_pattern(path).then(|| normalise(path)),
            is_contents: ends_with_dot(path),
            names_directory: names_directory(path),
            is_server: false,
            options: options.into(),
        }
    }

    fn of_url(url: NfsUrl) -> Result<Self, String> {
        let NfsUrl { host, path, raw_path, options, .. } = url;
        let is_server = is_code(host.as_bytes());
        let pattern = is_pattern(&raw_path).then(|| pattern::decode(&raw_path)).transpose();
        Ok(Self {
            host: host.into(),
            path: normalise(&path),
            pattern: pattern.map_err(|error| error.to_string())?.map(|pattern| normalise(&pattern)),
            is_contents: ends_with_dot(&path),
            names_directory: names_directory(&path),
            is_server,
            options: options.into(),
        })
    }

    /// Returns the last component of the path, or `None` for the root.
    pub fn name(&self) -> Option<&[u8]> {
        self.path.rsplit(|&byte| byte == b'/').next().filter(|name| !name.is_empty())
    }

    /// Returns the directory that holds the path; the root holds itself.
    pub fn parent(&self) -> Self {
        let end = self.path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        self.at(self.path[..end.max(1)].to_vec())
    }

    /// Whether another path is on the same server, which is to be reached in the same way.
    pub fn is_on_server_of(&self, other: &Self) -> bool {
        self.host == other.host && self.is_server == other.is_server && self.options == other.options
    }

    /// Returns another path on the same server.
    pub fn with_path(&self, path: &[u8]) -> Self {
        self.at(normalise(path))
    }

    /// Returns the path of something inside this directory.
    pub fn join(&self, name: &[u8]) -> Self {
        self.at(join(&self.path, name))
    }

    fn at(&self, path: Vec<u8>) -> Self {
        Self {
            host: Arc::clone(&self.host),
            path,
            pattern: None,
            is_contents: false,
            names_directory: false,
            is_server: self.is_server,
            options: Arc::clone(&self.options),
        }
    }

    /// Returns the code and the address of a share, each empty where it is not said: `CODE@HOST:PORT`, `@HOST:PORT`, `@`, or `CODE` alone, which
    /// may be the name of a server as well.
    pub fn share(&self) -> Option<(&str, &str)> {
        match self.host.split_once('@') {
            Some(share) => Some(share),
            None => (!self.is_server && is_code(self.host.as_bytes())).then_some((&*self.host, "")),
        }
    }

    /// Returns the host as messages name it, with the port if one was given.
    pub fn server(&self) -> String {
        let host = self.bracketed_host();
        match self.options.nfs_port {
            Some(port) => format!("{host}:{port}"),
            None => host,
        }
    }

    /// Returns it as a user would write it: `HOST:/PATH`, or `nfs://HOST:PORT/PATH` where a port was given.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self.options.nfs_port {
            None if self.is_server => [format!("nfs://{}", self.host).into_bytes(), self.url_path()].concat(),
            Some(_) => [format!("nfs://{}", self.server()).into_bytes(), self.url_path()].concat(),
            None => {
                let path = self.pattern.as_ref().unwrap_or(&self.path);
                [format!("{}:", self.server()).as_bytes(), path].concat()
            }
        }
    }

    /// Returns it as one word for a shell, with everything that is needed to reach it again.
    pub fn shell_word(&self) -> String {
        let UrlOptions { nfs_port, mount_port, uid, gid, .. } = *self.options;
        let mount_port = mount_port.map(u32::from);
        let options: Vec<String> = [("mountport", mount_port), ("uid", uid), ("gid", gid)]
            .into_iter()
            .filter_map(|(name, value)| Some(format!("{name}={}", value?)))
            .collect();
        if options.is_empty() {
            return shell_quote(&self.to_bytes());
        }
        let host = match nfs_port {
            Some(_) => self.server(),
            None => self.bracketed_host(),
        };
        let query = format!("?{}", options.join("&"));
        shell_quote(&[format!("nfs://{host}").as_bytes(), &self.url_path(), query.as_bytes()].concat())
    }

    fn url_path(&self) -> Vec<u8> {
        match &self.pattern {
            Some(pattern) => pattern::encode(pattern),
            None => encode_url(&self.path),
        }
    }

    fn bracketed_host(&self) -> String {
        let is_address = self.host.contains(':') && !is_share(self.host.as_bytes());
        if is_address { format!("[{}]", self.host) } else { self.host.to_string() }
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&escape(&self.to_bytes()))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => formatter.write_str(&escape(path.as_os_str().as_bytes())),
            Self::Standard => formatter.write_str("-"),
            Self::Remote(remote) => remote.fmt(formatter),
        }
    }
}

/// Whether any component of a path on a server is a pattern.
pub fn is_pattern(path: &[u8]) -> bool {
    path.iter().any(|byte| b"*?[".contains(byte))
}

/// What a backslash escapes in a pattern.
const SPECIAL: &[u8] = b"*?[]\\";

/// Writes a name so that it is no pattern.
pub fn escape_pattern(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for &byte in name {
        if is_pattern(name) && SPECIAL.contains(&byte) {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out
}

/// Returns the one path that may be meant by a path in which a backslash escapes parts of patterns.
fn unescape(path: &[u8]) -> Vec<u8> {
    let components = path.split(|&byte| byte == b'/').map(|component| {
        let mut out = Vec::with_capacity(component.len());
        let mut rest = component;
        while let [byte, tail @ ..] = rest {
            let is_escape = *byte == b'\\'
                && tail.first().is_some_and(|next| SPECIAL.contains(next))
                && is_pattern(component);
            out.push(if is_escape { tail[0] } else { *byte });
            rest = if is_escape { &tail[1..] } else { tail };
        }
        out
    });
    components.collect::<Vec<_>>().join(&b'/')
}

/// Returns the path of something inside a server directory.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = directory.to_vec();
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// Returns the name under which a local path arrives in a directory, or `None` for `.`, `..` and `/`, whose
/// contents arrive instead.
pub fn local_name(path: &Path) -> Option<&OsStr> {
    let dots = path.as_os_str().as_bytes();
    let dots = dots.strip_suffix(b"/").unwrap_or(dots);
    if dots == b"." || dots.ends_with(b"/.") {
        return None;
    }
    path.file_name()
}

/// Splits `host:path`. As with scp, a colon after a slash belongs to a local name, and so does a leading one.
fn split_host(argument: &[u8]) -> Option<(&[u8], &[u8])> {
    if let Some(rest) = argument.strip_prefix(b"[") {
        let end = rest.iter().position(|&byte| byte == b']')?;
        let path = rest[end + 1..].strip_prefix(b":")?;
        return (end > 0).then_some((&rest[..end], path));
    }
    let colon = argument.iter().position(|&byte| byte == b':' || byte == b'/')?;
    (colon > 0 && argument[colon] == b':').then(|| (&argument[..colon], &argument[colon + 1..]))
}

/// Splits `CODE@HOST:PORT:/PATH`, or the same without the code or without both.
fn split_share(argument: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = argument.windows(2).position(|pair| pair == b":/")?;
    is_share(&argument[..end]).then(|| (&argument[..end], &argument[end + 1..]))
}

/// Whether the name of a server is `CODE@HOST:PORT`, or `@HOST:PORT` or `@`, whose code is not said here.
fn is_share(host: &[u8]) -> bool {
    let at = host.iter().position(|&byte| byte == b'@');
    at.is_some_and(|at| at == 0 || is_code(&host[..at]))
}

/// Whether it looks like a code, which is a number and two words.
fn is_code(text: &[u8]) -> bool {
    let mut parts = text.split(|&byte| byte == b'-');
    let is_number = parts.next().is_some_and(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit));
    let is_word = |part: Option<&[u8]>| {
        part.is_some_and(|part| part.len() > 2 && part.iter().all(u8::is_ascii_alphabetic))
    };
    is_number && is_word(parts.next()) && is_word(parts.next()) && parts.next().is_none()
}

/// Whether a path is written as that of a directory.
fn names_directory(path: &[u8]) -> bool {
    path.ends_with(b"/") || ends_with_dot(path)
}

/// Whether the last component is `.`, whatever slashes follow.
fn ends_with_dot(path: &[u8]) -> bool {
    path.rsplit(|&byte| byte == b'/').find(|component| !component.is_empty()) == Some(b".")
}

/// Removes empty components, `.` and a final slash. `..` stays: it is up to the server.
fn normalise(path: &[u8]) -> Vec<u8> {
    let mut clean = Vec::with_capacity(path.len());
    for component in path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
        clean.push(b'/');
        clean.extend_from_slice(component);
    }
    if clean.is_empty() {
        clean.push(b'/');
    }
    clean
}

/// Whether a path is a directory or below it.
pub fn is_within(path: &[u8], directory: &[u8]) -> bool {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Returns the names of a path, without those that stand for the same directory.
pub fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.map(<[u8]>::to_vec).collect()
}

#[cfg(test)]
mod tests;
