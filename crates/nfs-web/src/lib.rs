//! Files of a back end for browsers: pages, ranges and archives over HTTP, for members who have a secret, until a time.
//!
//! A [`Front`] listens on a TCP port. Each member that it admits has a [`Secret`] and a [`Vfs`] of their own, which is read and
//! never written. The secret travels in the fragment of the address (`http://192.168.1.5:7080/#SECRET`), so that it is in no request
//! line, log or `Referer`: the page's script sends it once, and gets a cookie.
//!
//! | module | what it does |
//! |---|---|
//! | `front` | the listener, its connections and their limits; who is over is cut off |
//! | `members` | who may read, and the cookies by which they are known |
//! | `secret` | secrets, and what is derived from them |
//! | `answer` | from a request to a response: hosts, paths, cookies |
//! | `tree` | files by path, with the calls of the back end on threads that may wait |
//! | `folder`, `page` | what is in a folder, and the pages |
//! | `file` | conditions, ranges and bodies (RFC 9110 §13, §14) |
//! | `archive` | a folder as a zip file, made while it is sent |
//! | `names` | what a name is in addresses and headers, and what browsers may do with the file |
//!
//! # Example
//! ```no_run
//! use std::time::{Duration, Instant};
//!
//! use nfs_web::{Front, Secret};
//! use nfs_wireless_server::{Access, Directory, DirectoryConfig};
//!
//! # async fn example() -> std::io::Result<()> {
//! let front = Front::bind("0.0.0.0:7080".parse().unwrap(), "photos").await?;
//! let (secret, until) = (Secret::draw(), Instant::now() + Duration::from_secs(1800));
//! let mut config = DirectoryConfig::default();
//! config.access = Access::ReadOnly;
//! front.admit(&secret, Directory::open("photos", config)?, move || Some(until));
//! println!("http://192.168.1.5:{}/#{secret}", front.local_addr().port());
//! # Ok(())
//! # }
//! ```
//!
//! # What protects what
//! HTTP is not encrypted: whoever sees the packets reads the files and can take the cookie over until the member's time is over. Nobody
//! else can read anything: secrets have 128 bits, other sites' pages neither send the cookie nor read an answer, and names in
//! `Host` are refused, so that a name which is made to point here later leads nowhere.

#![forbid(unsafe_code)]

mod answer;
mod archive;
mod body;
mod file;
mod folder;
mod front;
mod members;
mod names;
mod page;
mod secret;
mod site;
mod tree;

pub use front::Front;
pub use members::Used;
pub use nfs_wireless_server::Vfs;
pub use secret::Secret;

/// Fills an array from the system's random numbers.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes
}
