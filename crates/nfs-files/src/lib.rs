//! What can be done with files on NFSv3 servers: trees copied and synchronised so that any interruption is resumed, found by path or
//! pattern through links, exports within exports and servers that restart.
//!
//! ```no_run
//! # use std::{ffi::OsStr, sync::Arc};
//! # use nfs_files::{copy::{self, Options}, event::Event, servers::{Access, Servers}, url::{Remote, Target}, Context, Events, Result};
//! # use nfs_wireless_client::ClientConfig;
//! struct Print;
//!
//! impl Events for Print {
//!     fn tell(&self, event: &Event<'_>) -> Result<()> {
//!         println!("{event:?}");
//!         Ok(())
//!     }
//! }
//!
//! # async fn sync() -> Result<()> {
//! let access = |remote: &Remote| Ok(Access { address: remote.host.to_string(), config: ClientConfig::default() });
//! let servers = Servers::new(access, Arc::default());
//! let target = |text: &str| Target::parse(OsStr::new(text)).expect("a path or URL");
//! let options = Options::sync(target("nas:/srv/photos"), target("photos"));
//! let counts = copy::run(&options, Context { servers: &servers, events: &Print }).await?;
//! println!("{} files copied", counts.copied);
//! # Ok(())
//! # }
//! ```
//!
//! The same options run again resume what any end has interrupted. A run that is dropped ends at once.

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
#[doc(hidden)]
pub mod pending;
pub mod progress;
pub mod remote;
#[cfg(test)]
mod served;
pub mod servers;
pub mod url;
mod wildcard;

pub use context::{Context, Events};

pub use error::{Error, ErrorKind, Result};
