//! The dependency rules of ARCHITECTURE.md, read from the manifests themselves.

use std::{collections::BTreeMap, fs, path::Path};

const MEMBERS: [&str; 7] = [
    "nfs-wire",
    "nfs-wireless-client",
    "nfs-object-store",
    "nfs-wireless-server",
    "linkemu",
    "testbed",
    "nfsw",
];

#[test]
fn crates_depend_in_one_direction_only() {
    let allowed = BTreeMap::from([
        ("nfs-wire", vec![]),
        ("nfs-wireless-client", vec!["nfs-wire"]),
        ("nfs-object-store", vec!["nfs-wireless-client"]),
        ("nfs-wireless-server", vec!["nfs-wire"]),
        ("linkemu", vec![]),
        ("testbed", vec!["nfs-wire", "nfs-wireless-client", "nfs-wireless-server", "linkemu"]),
        ("nfsw", vec!["nfs-wire", "nfs-wireless-client", "nfs-wireless-server", "linkemu", "testbed"]),
    ]);
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let mut seen = 0;
    for entry in fs::read_dir(crates).expect("crates/ exists") {
        let manifest = entry.expect("readable").path().join("Cargo.toml");
        let manifest: toml::Table =
            fs::read_to_string(&manifest).expect("a manifest in every crate").parse().expect("valid TOML");
        let name = manifest["package"]["name"].as_str().expect("a package name");
        let allowed = allowed.get(name).unwrap_or_else(|| panic!("{name} has no dependency rule"));
        for dependency in manifest["dependencies"].as_table().expect("a dependency table").keys() {
            // Test support is for nobody but tests.
            let internal = MEMBERS.contains(&dependency.as_str()) || dependency == "private-servers";
            assert!(
                !internal || allowed.contains(&dependency.as_str()),
                "{name} must not depend on {dependency}"
            );
        }
        seen += 1;
    }
    assert_eq!(seen, MEMBERS.len(), "every crate has a rule");
}

/// Copies are made by the client's own machines: only what is no client of the files may write or read RPC by itself.
#[test]
fn the_testbed_has_no_client_logic_of_its_own() {
    const OTHERS: [&str; 5] = [
        // Another station's NULL calls beside the copy, and the files that the server begins with.
        "ping.rs",
        "server.rs",
        // Who sent what, and how long its header was, read from the link's records.
        "trace.rs",
        "headers.rs",
        // Says which calls the kernels of 2005 made for a listing; the client's session makes them.
        "listing.rs",
    ];
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/testbed/src");
    let mut seen = 0;
    for entry in fs::read_dir(&sources).expect("sources") {
        let path = entry.expect("readable").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() || OTHERS.contains(&name.as_str()) {
            continue;
        }
        let text = fs::read_to_string(&path).expect("UTF-8");
        for word in ["encode_call_header", "ReplyHeader", "Procedure", "READ3", "WRITE3", "COMMIT3"] {
            assert!(!text.contains(word), "{name} speaks RPC by itself: {word}");
        }
        seen += 1;
    }
    assert!(seen >= 10, "the sources are not where they were: {seen} files");
    let mobile = fs::read_to_string(sources.join("mobile.rs")).expect("the mobile");
    for part in ["session::{", "Session", "Download::new", "Upload::new"] {
        assert!(mobile.contains(part), "a mobile copies with the client's {part}");
    }
}
