//! What can be done with files on NFSv3 servers: trees copied and synchronised so that any interruption is resumed, found by path or
//! pattern through links, exports within exports and servers that restart.
//!
//! ```no_run
//! use nfs_files::{
//!     Context,
//!     copy::{self, Options},
//!     event::Event,
//!     servers::Servers,
//! };
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> nfs_files::Result<()> {
//!     let events = |event: &Event<'_>| {
//!         match event {
//!             Event::Copied { target, bytes, .. } => println!("{}: {bytes} bytes", target.shown),
//!             Event::Resumed { target, bytes, size, .. } => println!("{}: {bytes} of {size} are there", target.shown),
//!             Event::Failed(error) => eprintln!("{error}"),
//!             _ => {}
//!         }
//!         Ok(())
//!     };
//!     let mut options = Options::new(["photos".parse()?], "nfs://nas/srv/backup".parse()?);
//!     options.recursive = true;
//!     let counts = copy::run(&options, Context { servers: &Servers::default(), events: &events }).await?;
//!     println!("{} copied, {} failed", counts.copied, counts.failed);
//!     Ok(())
//! }
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
pub mod find;
#[doc(hidden)]
pub mod fuzzing;
#[doc(hidden)]
pub mod journal;
#[doc(hidden)]
pub mod local;
#[doc(hidden)]
pub mod name;
#[doc(hidden)]
pub mod pattern;
#[doc(hidden)]
pub mod pending;
pub mod progress;
#[cfg(test)]
mod served;
pub mod servers;
pub mod url;
mod wildcard;

/// The examples of the documents, which compile.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;

    #[doc = include_str!("../../../docs/embedding.md")]
    struct Embedding;
}

pub use context::{Context, Events};

pub use error::{Error, ErrorKind, Result};
