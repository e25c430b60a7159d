//! Which other crates' types are in the public interfaces of the libraries: their next major version would be one of ours, too.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use serde_json::Value;

/// What each library may show, besides the standard library and itself.
const ALLOWED: [(&str, &[&str]); 10] = [
    ("nfs-wire", &["nfs3_types"]),
    ("nfs-proto", &["bytes", "nfs3_types", "nfs_wire"]),
    ("nfs-cache", &["bytes", "nfs_proto", "nfs_wire"]),
    ("nfs-wireless-client", &["bytes", "nfs3_types", "nfs_proto", "nfs_wire", "tokio"]),
    ("nfs-share", &["nfs_wireless_client", "nfs_wireless_server", "tokio", "zeroize"]),
    ("nfs-web", &["nfs_wireless_server"]),
    ("nfs-object-store", &["bytes", "futures_core", "nfs_wire", "nfs_wireless_client", "object_store"]),
    ("nfs-wireless-server", &["nfs3_types", "nfs_wire", "tokio"]),
    ("linkemu", &["bytes", "tokio"]),
    ("testbed", &["linkemu", "nfs_proto", "nfs_wire", "nfs_wireless_server", "serde_core", "toml"]),
];

/// Crates of the compiler.
const STANDARD: [&str; 3] = ["alloc", "core", "std"];

/// Needs the nightly compiler, for rustdoc's JSON; `./ci.sh public` runs it.
#[test]
#[ignore = "compiles the libraries with the nightly compiler"]
fn public_interfaces_show_only_the_crates_that_are_allowed() {
    let mut wrong = Vec::new();
    for (library, allowed) in ALLOWED {
        let shown = crates_shown(&interface(library));
        println!("{library}: {}", shown.iter().map(String::as_str).collect::<Vec<_>>().join(" "));
        let allowed: BTreeSet<String> = allowed.iter().map(|&name| name.to_owned()).collect();
        for name in shown.difference(&allowed) {
            wrong.push(format!("{library} shows {name} in its public interface"));
        }
        for name in allowed.difference(&shown) {
            wrong.push(format!("{library} does not show {name} any more: take it off the list"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_type_of_another_crate_is_found_wherever_it_is_named() {
    let interface: Value = serde_json::from_str(
        r#"{
            "index": {
                "1": {"crate_id": 0, "inner": {"function": {"sig": {"inputs": [["a", {"resolved_path": {
                    "path": "Vec", "id": 2, "args": {"angle_bracketed": {"args": [{"type": {"resolved_path": {
                    "path": "Bytes", "id": 3, "args": null}}}]}}}}]]}}}},
                "4": {"crate_id": 0, "inner": {"use": {"source": "tokio::net", "id": 5}}},
                "6": {"crate_id": 0, "inner": {"impl": {"trait": {"path": "Deserialize", "id": 7, "args": null}, "blanket_impl": {}}}},
                "8": {"crate_id": 9, "inner": {"impl": {"trait": {"path": "Sink", "id": 7, "args": null}}}}
            },
            "paths": {
                "2": {"crate_id": 1}, "3": {"crate_id": 2}, "5": {"crate_id": 3}, "7": {"crate_id": 4}
            },
            "external_crates": {
                "1": {"name": "alloc"}, "2": {"name": "bytes"}, "3": {"name": "tokio"}, "4": {"name": "serde"}
            }
        }"#,
    )
    .unwrap();
    assert_eq!(crates_shown(&interface), BTreeSet::from(["bytes".to_owned(), "tokio".to_owned()]));
}

/// Returns what rustdoc says of a library, with all its features.
fn interface(library: &str) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = root.join("target/public");
    let status = Command::new("cargo")
        .args(["+nightly", "rustdoc", "--quiet", "--all-features", "--lib", "-p", library, "--target-dir"])
        .arg(&target)
        .args(["--", "-Z", "unstable-options", "--output-format", "json", "--cap-lints", "allow"])
        .current_dir(root)
        // Those of the cargo that runs this test.
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN")
        .status()
        .expect("cargo can be run");
    assert!(status.success(), "rustup toolchain install nightly");
    let file = target.join("doc").join(library.replace('-', "_")).with_extension("json");
    serde_json::from_str(&fs::read_to_string(file).expect("rustdoc has written it")).expect("JSON")
}

/// Returns the crates, but for those of the compiler, whose items the public items of an interface name.
fn crates_shown(interface: &Value) -> BTreeSet<String> {
    let names: BTreeMap<&str, &str> = interface["external_crates"]
        .as_object()
        .expect("external crates")
        .iter()
        .filter_map(|(id, found)| Some((id.as_str(), found["name"].as_str()?)))
        .collect();
    let mut ids = BTreeSet::new();
    for item in interface["index"].as_object().expect("an index").values() {
        // What every type has by itself says nothing of this library.
        let is_given = |kind: &str| {
            let field = &item["inner"]["impl"][kind];
            !field.is_null() && *field != Value::Bool(false)
        };
        if item["crate_id"] == 0 && !is_given("blanket_impl") && !is_given("is_synthetic") {
            collect_ids(&item["inner"], &mut ids);
        }
    }
    let shown = ids.iter().filter_map(|id| {
        let home = interface["paths"][id.to_string()]["crate_id"].as_u64().filter(|&home| home != 0)?;
        names.get(home.to_string().as_str()).copied()
    });
    shown.filter(|name| !STANDARD.contains(name)).map(str::to_owned).collect()
}

/// Collects the numbers of all items that a description names by path.
fn collect_ids(value: &Value, ids: &mut BTreeSet<u64>) {
    match value {
        Value::Object(fields) => {
            let is_path = fields.contains_key("path") || fields.contains_key("source");
            ids.extend(fields.get("id").and_then(Value::as_u64).filter(|_| is_path));
            fields.values().for_each(|field| collect_ids(field, ids));
        }
        Value::Array(values) => values.iter().for_each(|value| collect_ids(value, ids)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
