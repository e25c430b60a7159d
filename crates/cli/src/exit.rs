//! How a run ends: the exit status of the process, and the errors that decide it.

use std::{error, fmt, process::ExitCode};

use nfs_wireless_client as client;

use crate::error::{Error, ErrorKind};

/// The exit status of `nfsw`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Everything asked for is done, and on the server's stable storage.
    Done = 0,
    /// Some files failed.
    SomeFailed = 1,
    /// The command line cannot be obeyed.
    Usage = 2,
    /// The server cannot be reached or does not let us mount.
    Unreachable = 3,
    /// A source does not exist.
    SourceMissing = 4,
    /// The server fell silent for longer than allowed, or answers with nonsense; what was half done is kept.
    GaveUp = 5,
    /// A copy differs from its source.
    Mismatch = 6,
    /// A local file could not be read or written.
    LocalIo = 7,
    /// Ended by Ctrl-C or SIGTERM.
    Interrupted = 130,
}

impl Exit {
    /// Returns the number that the shell sees.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    /// Returns the word for the `outcome` of the JSON summary.
    pub(crate) fn outcome(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::SomeFailed => "some_failed",
            Self::Usage => "usage",
            Self::Unreachable => "unreachable",
            Self::SourceMissing => "source_missing",
            Self::GaveUp => "gave_up",
            Self::Mismatch => "verify_mismatch",
            Self::LocalIo => "local_io",
            Self::Interrupted => "interrupted",
        }
    }

    /// Returns the status that an error stands for.
    pub(crate) fn of(error: &(dyn error::Error + 'static)) -> Self {
        if let Some(failure) = failure(error) {
            return failure.exit;
        }
        match (error.downcast_ref::<Error>(), error.downcast_ref::<client::Error>()) {
            (Some(error), _) => Self::of_files(error),
            (None, Some(error)) => Self::of_client(error),
            (None, None) => Self::SomeFailed,
        }
    }

    fn of_files(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::Usage => Self::Usage,
            ErrorKind::SourceMissing => Self::SourceMissing,
            ErrorKind::Mismatch => Self::Mismatch,
            ErrorKind::OutputClosed => Self::Done,
            _ if error.is_unreachable() => Self::Unreachable,
            ErrorKind::LocalIo => Self::LocalIo,
            _ if error.local().is_some() => Self::LocalIo,
            _ => error.client().map_or(Self::SomeFailed, Self::of_client),
        }
    }

    fn of_client(error: &client::Error) -> Self {
        use client::Error;
        match error {
            Error::Config(_) => Self::Usage,
            // While a server is sought these mean that it cannot be reached.
            Error::Silent { .. }
            | Error::Stalled(_)
            | Error::Broken { .. }
            | Error::Closed
            | Error::Unreachable { .. } => Self::GaveUp,
            Error::Local(_) | Error::SourceChanged => Self::LocalIo,
            _ => Self::SomeFailed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// An error of the command itself, whose exit status is known: one line for a person.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The status it leads to.
    pub(crate) exit: Exit,
    message: String,
}

impl Failure {
    /// Pairs a status with what went wrong and what to do about it.
    pub(crate) fn with(exit: Exit, message: impl Into<String>) -> anyhow::Error {
        Self { exit, message: message.into() }.into()
    }

    /// Returns an error for a command line that cannot be obeyed.
    pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
        Self::with(Exit::Usage, message)
    }
}

/// Returns the failure of the command that an error is, or for which it stopped a copy.
pub(crate) fn failure<'a>(error: &'a (dyn error::Error + 'static)) -> Option<&'a Failure> {
    let stop = || error.downcast_ref::<Error>()?.stop()?.downcast_ref();
    error.downcast_ref().or_else(stop)
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl error::Error for Failure {}
