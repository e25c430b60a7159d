//! What goes wrong with files on servers and on this machine.

use std::{
    error,
    fmt::{self, Display, Formatter},
    io,
    os::unix::ffi::OsStrExt,
    path::Path,
};

use rustix::io::Errno;

use nfs_wireless_client::{self as client, NfsStatus as Status};

use crate::escape::escape;

/// What comes of an operation on files.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation on files failed.
///
/// It displays as one line: the file or server that it is about, and what went wrong there. Names are escaped, so that they cannot
/// harm a terminal.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    /// The file or server.
    name: Option<String>,
    source: Source,
    /// Whether it was met while a server was sought.
    is_connecting: bool,
    ends_run: bool,
    partial: Option<Partial>,
}

/// Where it comes from.
#[derive(Debug)]
enum Source {
    /// From here; the words say what went wrong.
    Here(String),
    Client(client::Error),
    Local(io::Error),
    /// From whoever was told what happens.
    Stopped(Box<dyn error::Error + Send + Sync>),
}

/// What a copy that found no more room has left.
#[derive(Debug)]
pub struct Partial {
    /// Its name, escaped.
    pub name: String,
    /// The bytes that it takes.
    pub bytes: u64,
    /// Whether it lies on this machine.
    pub is_local: bool,
}

/// The kinds of errors that programs tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// What was asked for cannot be done with anything.
    Usage,
    /// A source does not exist.
    SourceMissing,
    /// The name of a server leads to no address.
    HostNotFound,
    /// A server cannot be reached.
    Unreachable,
    /// The port mapper of a server does not know its NFS or MOUNT service.
    NotRegistered,
    /// A server does not let us mount.
    MountRefused,
    /// It cannot be told which of the server's exports a path is in.
    AmbiguousExport,
    /// A server has answered with an error (RFC 1813 §2.6).
    NfsStatus,
    /// It is not known whether a call was executed.
    UnknownOutcome,
    /// A server has rejected a call (RFC 5531 §9).
    Rejected,
    /// A server has answered with nonsense.
    BrokenReply,
    /// A server does not answer.
    NoAnswer,
    /// Another server answers at the address.
    AnotherServer,
    /// A source has changed while it was copied.
    SourceChanged,
    /// A file of this machine could not be read or written.
    LocalIo,
    /// A disk has no room.
    NoSpace,
    /// A copy differs from its source.
    Mismatch,
    /// Nobody reads any more what is written to standard output.
    OutputClosed,
    /// Anything else.
    Other,
}

impl Error {
    /// Returns an error that is told by words, which name the file it is about.
    pub fn new(kind: ErrorKind, words: impl Into<String>) -> Self {
        Self::of(kind, None, Source::Here(words.into()))
    }

    /// Returns an error of no kind that programs tell apart.
    pub fn other(words: impl Into<String>) -> Self {
        Self::new(ErrorKind::Other, words)
    }

    /// Returns an error about what was asked for.
    pub fn usage(words: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, words)
    }

    /// Returns the error of a run that whoever was told what happens does not want any more.
    pub fn stopped(why: impl Into<Box<dyn error::Error + Send + Sync>>) -> Self {
        Self::of(ErrorKind::Other, None, Source::Stopped(why.into()))
    }

    /// Says that nothing else will succeed either.
    pub fn that_ends_run(mut self) -> Self {
        self.0.ends_run = true;
        self
    }

    fn of(kind: ErrorKind, name: Option<String>, source: Source) -> Self {
        Self(Box::new(Inner { kind, name, source, is_connecting: false, ends_run: false, partial: None }))
    }

    fn with_partial(mut self, partial: Partial) -> Self {
        self.0.kind = ErrorKind::NoSpace;
        self.0.partial = Some(partial);
        self.that_ends_run()
    }

    /// Returns what programs tell it by.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the error of a server or of the way to it, if that is what it comes from.
    pub fn client(&self) -> Option<&client::Error> {
        let Source::Client(error) = &self.0.source else { return None };
        Some(error)
    }

    /// As [`Error::client`], where the server had been found before.
    pub fn later(&self) -> Option<&client::Error> {
        self.client().filter(|_| !self.0.is_connecting)
    }

    /// Returns the error of this machine's file system, if that is what it comes from.
    pub fn local(&self) -> Option<&io::Error> {
        let Source::Local(error) = &self.0.source else { return None };
        Some(error)
    }

    /// Returns the status that the server answered with, if that is what it comes from (RFC 1813 §2.6).
    pub fn status(&self) -> Option<Status> {
        self.later().and_then(client::Error::status)
    }

    /// Returns what a copy has left that found no more room.
    pub fn partial(&self) -> Option<&Partial> {
        self.0.partial.as_ref()
    }

    /// Returns why a run was stopped, if whoever was told what happens has done so.
    pub fn stop(&self) -> Option<&(dyn error::Error + Send + Sync + 'static)> {
        let Source::Stopped(why) = &self.0.source else { return None };
        Some(&**why)
    }

    /// Whether it was met while a server was sought.
    pub fn is_connecting(&self) -> bool {
        self.0.is_connecting
    }

    /// Whether no server could be reached, or it does not let us mount.
    pub fn is_unreachable(&self) -> bool {
        let is_of_server = !matches!(self.kind(), ErrorKind::Usage | ErrorKind::LocalIo);
        self.kind() == ErrorKind::Unreachable && self.client().is_none()
            || self.is_connecting() && is_of_server
    }

    /// Whether a server fell silent for longer than allowed, or broke off.
    pub fn is_silence(&self) -> bool {
        use client::Error;
        matches!(
            self.later(),
            Some(
                Error::Silent { .. }
                    | Error::Stalled(_)
                    | Error::Broken { .. }
                    | Error::Closed
                    | Error::Unreachable { .. }
            )
        )
    }

    /// Whether every other file would fail for the same reason.
    pub fn ends_run(&self) -> bool {
        self.0.ends_run
            || self.stop().is_some()
            || self.kind() == ErrorKind::OutputClosed
            || self.is_unreachable()
            || self.is_silence()
            || matches!(self.status(), Some(Status::NOSPC | Status::DQUOT | Status::ROFS))
            || self.local().is_some_and(|error| is_full(error) || is_read_only(error))
    }

    /// Whether the server does not know a handle any more.
    pub fn is_stale(&self) -> bool {
        self.later().is_some_and(client::Error::is_stale)
    }

    /// Whether what was looked at is not there any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_stale() || self.local().is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Whether whoever runs this may not do it.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self.status(), Some(Status::ACCES | Status::PERM))
            || self.local().is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Whether this machine has no more of something at present, so that it may work when other work has ended.
    pub fn is_scarce(&self) -> bool {
        match self.later() {
            Some(client::Error::Local(source) | client::Error::Unreachable { source, .. }) => {
                is_scarcity(source)
            }
            Some(_) => false,
            None => self.local().is_some_and(is_scarcity),
        }
    }
}

impl Display for Error {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.0.name {
            write!(out, "{name}: ")?;
        }
        match &self.0.source {
            Source::Here(words) => out.write_str(words),
            Source::Client(error) => error.fmt(out),
            Source::Local(error) => out.write_str(&io_text(error)),
            Source::Stopped(why) => why.fmt(out),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match &self.0.source {
            Source::Here(_) | Source::Local(_) => None,
            Source::Client(error) => error.source(),
            Source::Stopped(why) => why.source(),
        }
    }
}

/// Names the file that an operation on a server was about.
pub trait ResultExt<T> {
    /// Puts the name of the file before the error.
    fn at(self, name: impl Display) -> Result<T>;

    /// As [`ResultExt::at`], for a source that the user named: of its own kind when it does not exist.
    fn at_source(self, name: impl Display) -> Result<T>;
}

impl<T> ResultExt<T> for Result<T, client::Error> {
    fn at(self, name: impl Display) -> Result<T> {
        self.map_err(|error| about(error, name))
    }

    fn at_source(self, name: impl Display) -> Result<T> {
        match self {
            Err(error) if is_missing(&error) || has_status(&error, Status::NOTDIR) => {
                Err(Error::of(ErrorKind::SourceMissing, Some(name.to_string()), Source::Client(error)))
            }
            other => other.at(name),
        }
    }
}

/// Takes the client's error out of the `io::Error` that a [`client::File`] returns.
pub fn remote_error(error: io::Error, name: impl Display) -> Error {
    match error.downcast::<client::Error>() {
        Ok(error) => of_client(error, name),
        Err(error) => Error::other(format!("{name}: {error}")),
    }
}

/// Names the file that an error is about.
pub fn about(error: client::Error, name: impl Display) -> Error {
    match error {
        // Nothing else will work either.
        client::Error::AnotherServer { .. } => {
            Error::new(kind_of(&error), format!("{error}; run it again")).that_ends_run()
        }
        error => of_client(error, name),
    }
}

/// Returns an error that was met while a server was sought.
pub fn unreachable(error: client::Error, name: impl Display) -> Error {
    let mut error = of_client(error, name);
    error.0.is_connecting = true;
    error
}

fn of_client(error: client::Error, name: impl Display) -> Error {
    Error::of(kind_of(&error), Some(name.to_string()), Source::Client(error))
}

/// Returns what programs tell an error of a server by.
pub fn kind_of(error: &client::Error) -> ErrorKind {
    use client::Error;
    match error {
        Error::Config(_) => ErrorKind::Usage,
        Error::Resolve { .. } => ErrorKind::HostNotFound,
        Error::Unreachable { source, .. } if source.kind() == io::ErrorKind::InvalidData => {
            ErrorKind::BrokenReply
        }
        Error::Unreachable { .. } => ErrorKind::Unreachable,
        Error::NotRegistered { .. } => ErrorKind::NotRegistered,
        Error::Mount { .. } => ErrorKind::MountRefused,
        Error::NotEntered { source, .. } => kind_of(source),
        Error::SameDirectory { .. } | Error::TwoDirectories { .. } | Error::MountsAnything { .. } => {
            ErrorKind::AmbiguousExport
        }
        _ if has_no_room(error) => ErrorKind::NoSpace,
        Error::Status { .. } => ErrorKind::NfsStatus,
        Error::Ambiguous { .. } => ErrorKind::UnknownOutcome,
        Error::Rejected { .. } => ErrorKind::Rejected,
        Error::Protocol { .. } | Error::Broken { .. } | Error::Circle { .. } => ErrorKind::BrokenReply,
        Error::Silent { .. } | Error::ConnectTimeout { .. } | Error::Stalled(_) => ErrorKind::NoAnswer,
        Error::AnotherServer { .. } => ErrorKind::AnotherServer,
        Error::SourceChanged => ErrorKind::SourceChanged,
        Error::Local(_) => ErrorKind::LocalIo,
        _ => ErrorKind::Other,
    }
}

/// Returns an error about a server's disk that has no room for the rest of a file, of which a partial file is there.
pub fn full_server(name: impl Display, error: client::Error, partial: Partial) -> Error {
    of_client(error, name).with_partial(partial)
}

/// Returns an error about a disk of this machine that has no room for the rest of a file, of which a partial file is there.
pub fn full_disk(path: &Path, error: &io::Error, partial: Partial) -> Error {
    local(path, error).with_partial(partial)
}

/// Whether a server says that it has no room.
pub fn has_no_room(error: &client::Error) -> bool {
    matches!(error.status(), Some(Status::NOSPC | Status::DQUOT))
}

/// Whether an error says that there is no room on a disk of this machine.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn is_read_only(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ReadOnlyFilesystem
}

/// Whether the server says that there is no such file.
pub fn is_missing(error: &client::Error) -> bool {
    has_status(error, Status::NOENT)
}

/// Whether the server refused with this status: not where an earlier attempt may have been carried out.
pub fn has_status(error: &client::Error, wanted: Status) -> bool {
    error.status() == Some(wanted) && !matches!(error, client::Error::Ambiguous { .. })
}

/// Whether a name is taken that was to be that of something new, be it by an earlier attempt of ours.
pub fn is_taken(error: &client::Error) -> bool {
    error.status() == Some(Status::EXIST)
}

/// Returns an error about a name on a server that is taken, as of a call that the server refuses for that.
pub fn exists(name: impl Display) -> Error {
    Error::new(ErrorKind::NfsStatus, format!("{name}: file exists"))
}

/// Returns an error about a local file.
pub fn local(path: &Path, error: &io::Error) -> Error {
    // The system's errors cannot be cloned.
    let error = match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::new(error.kind(), error.to_string()),
    };
    let kind = if is_full(&error) { ErrorKind::NoSpace } else { ErrorKind::LocalIo };
    Error::of(kind, Some(show(path)), Source::Local(error))
}

/// Returns an error of standard output.
pub fn output_error(error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::BrokenPipe => ErrorKind::OutputClosed,
        _ => ErrorKind::LocalIo,
    };
    Error::of(kind, Some("standard output".to_owned()), Source::Local(error))
}

/// Whether this machine, or this process, has no more of something at present: descriptors or buffers.
fn is_scarcity(error: &io::Error) -> bool {
    let scarce = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS];
    error.raw_os_error().is_some_and(|number| scarce.iter().any(|it| it.raw_os_error() == number))
}

/// Writes a local path so that it cannot harm the terminal.
pub fn show(path: &Path) -> String {
    escape(path.as_os_str().as_bytes()).into_owned()
}

/// Returns the system's words for an error, without its number.
pub fn io_text(error: &io::Error) -> String {
    let words = error.to_string();
    let mut letters = without_number(&words).chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// Cuts off the number that the standard library puts behind the system's words.
pub fn without_number(words: &str) -> &str {
    words.split(" (os error").next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_read_like_the_rest() {
        assert_eq!(io_text(&io::Error::from_raw_os_error(2)), "no such file or directory");
        assert_eq!(io_text(&io::Error::other("odd")), "odd");
    }
}
