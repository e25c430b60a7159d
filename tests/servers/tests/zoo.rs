//! The matrix of steps on every kind of server: one test a lane.

use private_servers::{lane::Lane, matrix};

/// Runs a lane, on a thread with a name of its own in what a failure prints.
fn check(name: &str) {
    if let Err(error) = matrix::check(Lane::named(name)) {
        panic!("{error:#}");
    }
}

macro_rules! lanes {
    ($($(#[$attribute:meta])* $test:ident: $name:literal;)*) => {
        $(#[test] $(#[$attribute])* fn $test() { check($name); })*
    };
}

lanes! {
    linux: "knfsd";
    linux_256_kib: "knfsd-256k";
    linux_32_kib: "knfsd-32k";
    linux_tcp: "knfsd-tcp";
    linux_one_thread: "knfsd-one-thread";
    linux_secure: "knfsd-secure";
    linux_root_squash: "knfsd-root-squash";
    linux_read_only: "knfsd-read-only";
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
    #[ignore = "needs an unfsd: ./ci.sh servers --with unfs3=PATH"]
    unfs3: "unfs3";
}

#[test]
fn the_document_has_this_matrix() {
    let written = std::env::var_os("NFSW_SERVERS_WRITE").is_some();
    let result = if written { matrix::write_document() } else { matrix::agrees_with_document() };
    if let Err(error) = result {
        panic!("{error:#}");
    }
}
