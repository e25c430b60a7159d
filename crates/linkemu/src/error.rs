//! What can be wrong with a description of a link.

use std::fmt::Display;

/// A link that cannot be: the message names the field or the line, the value and the bound.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value outside its bounds.
    #[error("{field} is {value}, but must be {bound}")]
    OutOfRange {
        /// The field of the configuration.
        field: &'static str,
        /// The value found.
        value: String,
        /// What would be accepted.
        bound: String,
    },
    /// Text that is not a value of this field.
    #[error("{field}: cannot read {text:?}, expected {expected}")]
    Malformed {
        /// The field of the configuration.
        field: &'static str,
        /// The text found.
        text: String,
        /// What would be accepted.
        expected: &'static str,
    },
    /// A line of a trace that makes no sense.
    #[error("trace line {line}: {problem}")]
    Trace {
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// A file that is not a description of a link.
    #[error("link file: {message}")]
    File {
        /// What the parser says, with the place.
        message: String,
    },
}

impl ConfigError {
    pub(crate) fn out_of_range(field: &'static str, value: impl Display, bound: impl Display) -> Self {
        Self::OutOfRange { field, value: value.to_string(), bound: bound.to_string() }
    }

    pub(crate) fn malformed(field: &'static str, text: &str, expected: &'static str) -> Self {
        Self::Malformed { field, text: text.to_owned(), expected }
    }

    /// Names the field that a value was meant for.
    #[cfg(feature = "config-file")]
    pub(crate) fn of(mut self, name: &'static str) -> Self {
        if let Self::OutOfRange { field, .. } | Self::Malformed { field, .. } = &mut self {
            *field = name;
        }
        self
    }

    pub(crate) fn trace(line: usize, problem: impl Into<String>) -> Self {
        Self::Trace { line, problem: problem.into() }
    }
}
