//! What a mount costs, through the kernel: the table in docs/mount.md. Each number is taken some times and the best is shown, for the machine may be
//! busy; a ratio is of two measurements that took turns. Numbers for people come from a release build:
//!
//! ```sh
//! cargo build --release -p nfsw
//! NFSW_BINARY=$PWD/target/release/nfsw cargo test -p nfsw --test mount_numbers -- --ignored --nocapture --test-threads 1
//! ```
//!
//! Makes mounts and networks, so it needs root, /dev/fuse and /dev/net/tun, as CI has.

#![cfg(mount)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/mounted.rs"]
mod mounted;

mod inside;
mod link;
mod local;
mod people;
mod rclone;

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::Path,
    time::{Duration, Instant},
};

use rustix::fs::{Advice, fadvise};

/// How much worse than the goal a number may be before a test fails: this machine may be busy, and the program a debug build.
const GENEROUS: f64 = 10.0;

/// Numbers beside what they should reach.
#[derive(Debug)]
struct Table(&'static str);

impl Table {
    fn begin(title: &'static str) -> Self {
        println!("\n| {title} | reach | measured | |\n|---|---|---|---|");
        Self(title)
    }

    /// A number that should be at most `reach`.
    fn at_most(&self, what: &str, unit: &str, reach: f64, measured: f64) {
        let word = if measured <= reach { "reached" } else { "MISSED" };
        println!("| {what} | ≤ {reach} {unit} | {measured:.3} {unit} | {word} |");
        assert!(measured <= reach * GENEROUS, "{}: {what}: {measured} {unit}", self.0);
    }

    /// A number that should be at least `reach`.
    fn at_least(&self, what: &str, unit: &str, reach: f64, measured: f64) {
        let word = if measured >= reach { "reached" } else { "MISSED" };
        println!("| {what} | ≥ {reach} {unit} | {measured:.3} {unit} | {word} |");
        assert!(measured >= reach / GENEROUS, "{}: {what}: {measured} {unit}", self.0);
    }
}

/// Reads a file in order as `cat` does; returns bytes per second.
fn read_rate(path: &Path) -> f64 {
    let begun = Instant::now();
    let file = File::open(path).unwrap();
    let mut buffer = vec![0; 128 << 10];
    let mut offset = 0;
    loop {
        match file.read_at(&mut buffer, offset).unwrap() {
            0 => break offset as f64 / begun.elapsed().as_secs_f64(),
            length => offset += length as u64,
        }
    }
}

/// Makes the kernel forget what it holds of a file.
fn forget_pages(path: &Path) {
    let file = File::open(path).unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
}

fn least(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}

fn most(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(0.0, f64::max)
}

/// Returns the value that a share of all values do not exceed.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1).expect("there are values");
    sorted[(last as f64 * share).ceil() as usize]
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
