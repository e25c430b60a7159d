//! What can be done with files on NFSv3 servers: trees copied and synchronised so that any interruption is resumed, found by path or
//! pattern through links, exports within exports and servers that restart.

#[doc(hidden)]
pub mod chain;
mod context;
pub mod copy;
#[doc(hidden)]
pub mod descriptors;
pub mod error;
#[doc(hidden)]
pub mod escape;
pub mod event;
#[doc(hidden)]
pub mod journal;
#[doc(hidden)]
pub mod known;
#[doc(hidden)]
pub mod local;
#[doc(hidden)]
pub mod name;
#[doc(hidden)]
pub mod paths;
#[doc(hidden)]
pub mod pattern;
pub mod progress;
pub mod remote;
#[cfg(test)]
mod served;
pub mod servers;
pub mod url;
mod wildcard;

pub use context::{Context, Events};

pub use error::{Error, ErrorKind, Result};
