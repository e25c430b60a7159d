//! One test a lane. `ci.sh` tells them by the name of this module.

use std::{
    collections::BTreeMap,
    sync::{Condvar, Mutex, PoisonError},
};

use private_servers::{lane::Lane, matrix};

mod inner_exports;
mod linux_client;

macro_rules! lanes {
    ($name:ident: $($test:ident: $lane:literal;)*) => {
        /// Lanes of these tests.
        const $name: &[&str] = &[$($lane),*];
        $(#[test] fn $test() { super::check($lane); })*
    };
}

/// The Linux kernel's server in one virtual machine, which has one lane at a time.
mod linux {
    lanes! { LANES:
        default: "knfsd";
        blocks_of_256_kib: "knfsd-256k";
        blocks_of_32_kib: "knfsd-32k";
        tcp_only: "knfsd-tcp";
        one_thread: "knfsd-one-thread";
        secure: "knfsd-secure";
        root_squash: "knfsd-root-squash";
        read_only: "knfsd-read-only";
    }

    pub(super) fn has(lane: &str) -> bool {
        LANES.contains(&lane)
    }
}

/// Servers that are processes of this machine.
mod processes {
    lanes! { LANES:
        ganesha: "ganesha";
        ganesha_64_kib: "ganesha-64k";
        ganesha_no_cache: "ganesha-no-cache";
        ganesha_tcp: "ganesha-tcp";
        embedded: "embedded";
        go_nfs: "go-nfs";
        go_nfs_exports: "go-nfs-exports";
        go_nfs_no_exports: "go-nfs-no-exports";
        nfs3_server: "nfs3-server";
        nfsserve: "nfsserve";
    }

    pub(super) fn all() -> &'static [&'static str] {
        LANES
    }
}

#[test]
#[ignore = "needs an unfsd: ./ci.sh servers --with unfs3=PATH"]
fn unfs3() {
    check("unfs3");
}

#[test]
fn the_document_has_this_matrix() {
    let written = std::env::var_os("NFSW_SERVERS_WRITE").is_some();
    let result = if written { matrix::write_document() } else { matrix::agrees_with_document() };
    if let Err(error) = result {
        panic!("{error:#}");
    }
}

/// What became of the lanes of this run: nothing yet of one that is under way.
static OUTCOMES: Mutex<BTreeMap<&str, Option<Result<(), String>>>> = Mutex::new(BTreeMap::new());

/// A lane has ended.
static ENDED: Condvar = Condvar::new();

/// Runs a lane. While it waits for the virtual machine, its thread runs lanes of processes, whose tests then
/// find them done: a test of two threads would otherwise leave one without work for most of the time.
fn check(lane: &'static str) {
    let mut outcomes = OUTCOMES.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let next = match outcomes.get(lane) {
            Some(Some(outcome)) => {
                let outcome = outcome.clone();
                drop(outcomes);
                return outcome.unwrap_or_else(|error| panic!("{error}"));
            }
            Some(None) => None,
            None => {
                let busy = outcomes.iter().any(|(other, outcome)| linux::has(other) && outcome.is_none());
                if linux::has(lane) && busy {
                    processes::all().iter().find(|other| all_are_wanted() && !outcomes.contains_key(*other))
                } else {
                    Some(&lane)
                }
            }
        };
        let Some(&next) = next else {
            outcomes = ENDED.wait(outcomes).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        outcomes.insert(next, None);
        drop(outcomes);
        let outcome = std::panic::catch_unwind(|| matrix::check(Lane::named(next)));
        let outcome = match outcome {
            Ok(result) => result.map_err(|error| format!("{error:#}")),
            Err(_) => Err(format!("{next}: a panic, shown above")),
        };
        outcomes = OUTCOMES.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes.insert(next, Some(outcome));
        ENDED.notify_all();
    }
}

/// Whether this run has all tests: no name of one was given.
fn all_are_wanted() -> bool {
    std::env::args().skip(1).all(|argument| argument.starts_with('-'))
}
