//! The dependency rules of ARCHITECTURE.md, read from the manifests themselves.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

const MEMBERS: [&str; 13] = [
    "nfs-wire",
    "nfs-proto",
    "nfs-cache",
    "nfs-wireless-client",
    "nfs-files",
    "nfs-mount",
    "nfs-object-store",
    "nfs-share",
    "nfs-web",
    "nfs-wireless-server",
    "linkemu",
    "testbed",
    "nfsw",
];

#[test]
fn crates_depend_in_one_direction_only() {
    let allowed = BTreeMap::from([
        ("nfs-wire", vec![]),
        ("nfs-proto", vec!["nfs-wire"]),
        ("nfs-cache", vec!["nfs-wire", "nfs-proto"]),
        ("nfs-wireless-client", vec!["nfs-wire", "nfs-proto"]),
        ("nfs-files", vec!["nfs-wireless-client"]),
        (
            "nfs-mount",
            vec!["nfs-wire", "nfs-cache", "nfs-files", "nfs-wireless-client", "nfs-wireless-server"],
        ),
        ("nfs-object-store", vec!["nfs-wireless-client"]),
        ("nfs-share", vec!["nfs-wireless-client", "nfs-wireless-server"]),
        ("nfs-web", vec!["nfs-wireless-server"]),
        ("nfs-wireless-server", vec!["nfs-wire"]),
        ("linkemu", vec![]),
        ("testbed", vec!["nfs-wire", "nfs-proto", "nfs-cache", "nfs-wireless-server", "linkemu"]),
        (
            "nfsw",
            vec![
                "nfs-wire",
                "nfs-files",
                "nfs-mount",
                "nfs-share",
                "nfs-web",
                "nfs-wireless-client",
                "nfs-wireless-server",
                "linkemu",
                "testbed",
            ],
        ),
    ]);
    // Servers and links for the tests of a crate alone.
    let only_in_tests = BTreeMap::from([
        ("nfs-files", &["nfs-object-store", "nfs-wireless-server", "private-servers"][..]),
        ("nfs-object-store", &["linkemu", "nfs-wireless-server", "private-servers"]),
        ("nfs-mount", &["private-servers"]),
        ("nfsw", &["private-servers"]),
    ]);
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let mut seen = 0;
    for entry in fs::read_dir(crates).expect("crates/ exists") {
        let manifest = entry.expect("readable").path().join("Cargo.toml");
        let manifest: toml::Table =
            fs::read_to_string(&manifest).expect("a manifest in every crate").parse().expect("valid TOML");
        let name = manifest["package"]["name"].as_str().expect("a package name");
        let allowed = allowed.get(name).unwrap_or_else(|| panic!("{name} has no dependency rule"));
        for (kind, dependency) in dependencies(&manifest) {
            // Test support is for nobody but tests.
            let internal = MEMBERS.contains(&&*dependency) || dependency == "private-servers";
            let for_tests = only_in_tests.get(name).is_some_and(|all| all.contains(&&*dependency));
            let is_allowed = allowed.contains(&&*dependency) || kind == "dev-dependencies" && for_tests;
            assert!(!internal || is_allowed, "{name} must not have {dependency} among its {kind}");
        }
        seen += 1;
    }
    assert_eq!(seen, MEMBERS.len(), "every crate has a rule");
}

/// Returns the kind and the package of every dependency, those of single platforms included.
fn dependencies(manifest: &toml::Table) -> Vec<(&'static str, String)> {
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let places = targets.into_iter().flat_map(|targets| targets.values().filter_map(toml::Value::as_table));
    let mut found = Vec::new();
    for place in std::iter::once(manifest).chain(places) {
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let table = place.get(kind).and_then(toml::Value::as_table);
            for (name, value) in table.into_iter().flatten() {
                let package = value.get("package").and_then(toml::Value::as_str).unwrap_or(name);
                found.push((kind, package.to_owned()));
            }
        }
    }
    found
}

#[test]
fn dependencies_of_every_kind_are_seen() {
    let manifest = "[dependencies]\na = '1'\n[dev-dependencies]\nb = { package = 'c', version = '1' }\n\
        [build-dependencies]\nd.workspace = true\n[target.'cfg(unix)'.dependencies]\ne = '1'";
    let expected = [
        ("dependencies", "a"),
        ("dev-dependencies", "c"),
        ("build-dependencies", "d"),
        ("dependencies", "e"),
    ];
    let expected = expected.map(|(kind, name)| (kind, name.to_owned()));
    assert_eq!(dependencies(&manifest.parse().expect("TOML")), expected);
}

/// All sources in a folder and in those below it.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The protocol is decided by machines: whoever drives them has the sockets, the clock, the threads and the files.
#[test]
fn the_protocol_has_neither_sockets_nor_clocks_nor_threads_nor_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/nfs-proto");
    let manifest: toml::Table =
        fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest").parse().expect("valid TOML");
    for (kind, dependency) in dependencies(&manifest) {
        let may_be = ["bytes", "nfs-wire", "thiserror", "tracing"].contains(&&*dependency);
        assert!(
            may_be || kind == "dev-dependencies",
            "nfs-proto must not have {dependency} among its {kind}"
        );
    }
    let mut seen = 0;
    for path in sources(&folder.join("src")) {
        let name = path.strip_prefix(&folder).expect("below").to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).expect("UTF-8");
        // Tests choose an arbitrary epoch for virtual time.
        let code = text.split("\nmod tests {").next().expect("the part before it");
        for word in
            ["UdpSocket", "TcpStream", "TcpListener", "std::fs", "std::thread", "async ", ".await", "::now()"]
        {
            let is_epoch = word == "::now()" && name.contains("tests");
            assert!(!code.contains(word) || is_epoch, "{name} has {word}");
        }
        seen += 1;
    }
    assert!(seen >= 40, "the sources are not where they were: {seen} files");
}

/// Copies are made by the client's own machines: only what is no client of the files may write or read RPC by itself.
#[test]
fn the_testbed_has_no_client_logic_of_its_own() {
    const OTHERS: [&str; 6] = [
        // Carries out the endpoint's steps: its NULL calls, and a GETATTR that fails over.
        "agent.rs",
        // Another station's NULL calls beside the copy, and the files that the server begins with.
        "ping.rs",
        "server.rs",
        // Who sent what, and how long its header was, read from the link's records.
        "trace.rs",
        "headers.rs",
        // Says which calls the kernels of 2005 made for a listing; the client's session makes them.
        "listing.rs",
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/testbed/src");
    let mut seen = 0;
    for path in sources(&folder) {
        let name = path.strip_prefix(&folder).expect("below").to_string_lossy().into_owned();
        if OTHERS.contains(&name.as_str()) {
            continue;
        }
        let text = fs::read_to_string(&path).expect("UTF-8");
        for word in ["encode_call_header", "ReplyHeader", "Procedure", "READ3", "WRITE3", "COMMIT3"] {
            assert!(!text.contains(word), "{name} speaks RPC by itself: {word}");
        }
        seen += 1;
    }
    assert!(seen >= 20, "the sources are not where they were: {seen} files");
    let text = |name: &str| fs::read_to_string(folder.join(name)).expect("a source");
    for (name, parts) in [
        ("path.rs", &["session::{", "Session"][..]),
        ("mobile.rs", &["Download::new", "Upload::new"]),
        ("agent/copy.rs", &["DownloadPlan", "UploadPlan"]),
    ] {
        for part in parts {
            assert!(text(name).contains(part), "{name} copies with the client's {part}");
        }
    }
}

/// What may be tuned is in two files, with its range and source. A further number there has to pay on channels that it was not made for
/// (docs/experiments.md).
#[test]
fn numbers_that_decide_are_few() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/nfs-proto/src");
    let mut numbers = 0;
    for file in ["engine/recovery/tuning.rs", "endpoint/tuning.rs"] {
        let text = fs::read_to_string(root.join(file)).expect("readable");
        let fields = text.lines().map(str::trim).filter(|line| line.starts_with("pub "));
        let is_number = |line: &&str| {
            ["Duration", "u32", "u64", "f64", "usize"].iter().any(|it| line.ends_with(&format!(": {it},")))
        };
        numbers += fields.filter(is_number).count();
    }
    assert!((40..=70).contains(&numbers), "{numbers} numbers");
}
