//! How a run ends: the exit status of the process, and the errors that decide it.

use std::{error, fmt, process::ExitCode};

use nfs_wireless_client as client;

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
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        if let Some(failure) = error.downcast_ref::<Failure>() {
            return failure.exit;
        }
        match error.downcast_ref::<client::Error>() {
            Some(error) => Self::of_client(error),
            None => Self::SomeFailed,
        }
    }
}

impl Exit {
    fn of_client(error: &client::Error) -> Self {
        use client::Error;
        match error {
            Error::Config(_) => Self::Usage,
            // While a server is sought these mean that it cannot be reached, and are turned into that there.
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

/// An error whose exit status is known: one line for a person.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The status it leads to.
    pub(crate) exit: Exit,
    /// Whether every other file would fail for the same reason.
    pub(crate) is_final: bool,
    /// What went wrong, for programs.
    pub(crate) kind: &'static str,
    /// Whether this machine has no more of something at present, so that it may work when other work has ended.
    pub(crate) is_scarce: bool,
    message: String,
}

impl Failure {
    /// Pairs a status with what went wrong and what to do about it.
    pub(crate) fn with(exit: Exit, message: impl Into<String>) -> anyhow::Error {
        Self::of_kind(exit, exit.outcome(), message)
    }

    /// As [`Failure::of_kind`], for what programs tell apart more finely than by the status.
    pub(crate) fn of_kind(exit: Exit, kind: &'static str, message: impl Into<String>) -> anyhow::Error {
        Self { exit, is_final: false, kind, is_scarce: false, message: message.into() }.into()
    }

    /// As [`Failure::with`], for what every other file would fail of, too.
    pub(crate) fn last(exit: Exit, kind: &'static str, message: impl Into<String>) -> anyhow::Error {
        Self { exit, is_final: true, kind, is_scarce: false, message: message.into() }.into()
    }

    /// As [`Failure::with`], for what may work when other work has ended.
    pub(crate) fn scarce(exit: Exit, message: impl Into<String>) -> anyhow::Error {
        Self { exit, is_final: false, kind: exit.outcome(), is_scarce: true, message: message.into() }.into()
    }

    /// Returns an error for a command line that cannot be obeyed.
    pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
        Self::with(Exit::Usage, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl error::Error for Failure {}
