//! The dependency rules of ARCHITECTURE.md, read from the manifests themselves.

use std::{collections::BTreeMap, fs, path::Path};

const MEMBERS: [&str; 6] =
    ["nfs-wire", "nfs-wireless-client", "nfs-wireless-server", "linkemu", "testbed", "nfsw"];

#[test]
fn crates_depend_in_one_direction_only() {
    let allowed = BTreeMap::from([
        ("nfs-wire", vec![]),
        ("nfs-wireless-client", vec!["nfs-wire"]),
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
            let internal = MEMBERS.contains(&dependency.as_str());
            assert!(
                !internal || allowed.contains(&dependency.as_str()),
                "{name} must not depend on {dependency}"
            );
        }
        seen += 1;
    }
    assert_eq!(seen, MEMBERS.len(), "every crate has a rule");
}
