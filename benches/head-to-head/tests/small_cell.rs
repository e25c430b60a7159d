//! One small cell of the matrix, as CI runs it: copies must be intact, times are only printed.

use std::{fs, process::Command};

use serde_json::Value;

#[test]
fn copies_of_nfs_cp_and_nfsw_are_intact() {
    let directory = tempfile::tempdir().unwrap();
    let kernel = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    // cubic takes long where bursts are lost.
    let control = if kernel.contains("bbr") { "bbr" } else { "cubic" };
    let output = Command::new(env!("CARGO_BIN_EXE_head-to-head"))
        .args(["--cells", "lan-50ms/3%/none", "--runs", "1", "--size", "4194304"])
        .args(["--programs", &format!("nfs-cp/{control},nfsw/{control}"), "--out"])
        .arg(directory.path())
        .output()
        .unwrap();
    let (printed, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{printed}");
    assert!(output.status.success(), "{}\n{said}", output.status);
    let summary = fs::read_to_string(directory.path().join("summary.json")).unwrap();
    let rows: Vec<Value> = serde_json::from_str(&summary).unwrap();
    let count = |program: &str| rows.iter().filter(|row| row["program"] == program).count();
    assert_eq!((rows.len(), count("nfs-cp"), count("nfsw")), (4, 2, 2), "read and write each: {summary}");
    for row in &rows {
        let lost = ["failed", "stopped", "broken"].map(|kind| row[kind].as_u64().unwrap());
        assert_eq!((row["runs"].as_u64(), lost), (Some(1), [0; 3]), "{row}\n{said}");
    }
}

#[test]
fn what_cannot_run_is_said() {
    for (arguments, part) in [
        (["--cells", "lan-50ms/4%"], "--cells lan-50ms/4%: there is no such cell"),
        (["--programs", "nfs-cp/vegas"], "--programs nfs-cp/vegas: there is no such program"),
        (["--from", "/nonexistent/trials.jsonl"], "/nonexistent/trials.jsonl"),
        (["--runs", "0"], "--runs"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_head-to-head")).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(part), "{said}");
    }
}
