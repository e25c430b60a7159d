//! Files for people nearby: pairing by a short code, encrypted datagrams, and who may read what until when.
//!
//! A *sharer* hands out codes; a *receiver* who has one of them becomes a *member* and gets a *session*, in which the
//! datagrams of NFS travel encrypted (M-DFS, Michalakis and Kalofonos 2005 §III). Both ends are machines without sockets or
//! clock: [`Sharer`] and [`Join`] take datagrams and the time, and say what to send.
//!
//! | module | what it does |
//! |---|---|
//! | `code` | codes that people read to each other |
//! | `pairing` | from a code to a key that both ends have (SPAKE2, RFC 9382) |
//! | `noise` | from that key, or from keys that are known, to a session (the Noise protocol framework) |
//! | `session` | encrypted datagrams, each of which is taken once |
//! | `compression` | messages that take fewer bytes |
//! | `datagram` | what is on the wire before there is a session |
//! | `answered` | which greetings were answered |
//! | `sharer` | codes, members and their sessions |
//! | `join` | how a receiver becomes a member, and comes back |
//! | `share`, `channel` | either end on a socket (features `sharer`, `receiver`) |
//! | `stream`, `listener`, `tunnel` | the same datagrams over TCP, and either end of that |
//! | `discovery` | shares that are found without their address (feature `discovery`) |
//!
//! # Example
//! A directory that whoever has the code may read for half an hour; and who reads it:
//!
//! ```no_run
//! # #[cfg(all(feature = "receiver", feature = "sharer"))]
//! # mod example {
//! use std::{sync::Arc, time::{Duration, Instant}};
//!
//! use nfs_share::{Code, Greeting, Identity, Share, ShareChannel, Sharer};
//! use nfs_wireless_client::{Channel, ClientConfig, Client, Fs};
//! use nfs_wireless_server::{Access, Directory, DirectoryConfig};
//!
//! async fn share() -> std::io::Result<()> {
//!     let sharer = Sharer::new(Identity::draw(), "photos", Instant::now());
//!     let (share, mut events) = Share::bind("0.0.0.0:7049".parse().unwrap(), sharer).await?;
//!     let mut config = DirectoryConfig::default();
//!     config.access = Access::ReadOnly;
//!     share.invite(Instant::now() + Duration::from_secs(1800), Directory::open("photos", config)?);
//!     for code in share.members().into_iter().filter_map(|member| member.code) {
//!         println!("{code}");
//!     }
//!     while let Some(event) = events.recv().await {
//!         println!("{event:?}");
//!     }
//!     Ok(())
//! }
//!
//! async fn read(code: Code) -> Result<Vec<u8>, nfs_wireless_client::Error> {
//!     let sharer = "192.168.1.5:7049".parse().unwrap();
//!     // What is kept of a session leads back to the share when this program is started again.
//!     let channel = ShareChannel::new([sharer], Greeting::Code(code, Identity::draw()), "sophia", |joined, _| drop(joined.membership.to_bytes()));
//!     let channel: Arc<dyn Channel> = Arc::new(channel);
//!     let client = Client::connect("", b"/", ClientConfig::default().with_channel(channel)).await?;
//!     Fs::new(client, "/").read("beach.jpg").await
//! }
//! # }
//! ```
//!
//! # What protects what
//! An attacker who has no code gets one guess for each proof that he sends, and three guesses withdraw the code; recorded
//! datagrams tell nothing to who learns the code later. Session keys are agreed upon with ephemeral keys at both ends. The
//! parts (`spake2`, `snow`) have not been audited.

#![forbid(unsafe_code)]

use std::sync::{Mutex, MutexGuard, PoisonError};

mod answered;
#[cfg(feature = "receiver")]
mod channel;
mod code;
#[cfg(any(feature = "receiver", feature = "sharer"))]
mod compression;
mod datagram;
#[cfg(feature = "discovery")]
mod discovery;
mod ids;
mod join;
#[cfg(feature = "sharer")]
mod listener;
mod noise;
mod pairing;
mod session;
#[cfg(feature = "sharer")]
mod share;
mod sharer;
#[cfg(any(feature = "receiver", feature = "sharer"))]
mod stream;
#[cfg(feature = "receiver")]
mod tunnel;

#[cfg(feature = "receiver")]
pub use channel::{Greeting, Met, Reached, ShareChannel};
pub use code::{Code, CodeError};
pub use datagram::Refusal;
#[cfg(feature = "discovery")]
pub use discovery::{
    Announcement, DISCOVERY_THREAD, Discovery, DiscoveryError, Found, Interfaces, KeyPrefix, NotFound, Notice,
};
pub use ids::{MemberId, SessionId};
pub use join::{Join, Joined, Membership};
pub use noise::{Identity, PublicKey};
pub use session::{Control, OVERHEAD_BYTES, Opened, Session};
#[cfg(feature = "sharer")]
pub use share::{Served, Share};
pub use sharer::{Call, Event, MAX_LABEL_BYTES, Member, Sharer, Transmit};

/// Returns the beginning of a text, of at most so many bytes.
fn beginning(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Locks something, also if somebody has panicked with it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fills an array from the system's random numbers.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes
}
