//! Large copies beside `nfs-cp`. Nothing is gated: seconds are this machine's.

use private_servers::{lane::Lane, speed};

fn compare(name: &str) {
    let pairs =
        std::env::var("NFSW_SPEED_PAIRS").map_or(15, |count| count.parse().expect("a number of pairs"));
    match speed::beside_nfs_cp(Lane::named(name), pairs) {
        Ok(ways) => {
            for way in ways {
                println!(
                    "| {name} | {} | {:.2} | {:.2} | {:.2} | {pairs} |",
                    way.way, way.nfsw, way.other, way.ratio
                );
            }
        }
        Err(error) => panic!("{error:#}"),
    }
}

macro_rules! lanes {
    ($($test:ident: $name:literal;)*) => {
        $(#[test] #[ignore = "takes minutes, and is of use on an idle machine only"] fn $test() { compare($name); })*
    };
}

lanes! {
    beside_nfs_cp_linux: "knfsd";
    beside_nfs_cp_linux_256_kib: "knfsd-256k";
    beside_nfs_cp_linux_32_kib: "knfsd-32k";
    beside_nfs_cp_ganesha: "ganesha";
    beside_nfs_cp_ganesha_64_kib: "ganesha-64k";
    beside_nfs_cp_embedded: "embedded";
    beside_nfs_cp_go_nfs: "go-nfs-exports";
    beside_nfs_cp_nfs3_server: "nfs3-server";
    beside_nfs_cp_nfsserve: "nfsserve";
}
