//! `nfsw share --plain`, and those who have any NFS client and no code.

use std::{fs, process::Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    Receiver, Shared, at,
    common::{noise, stderr, until},
    photos,
};

/// Returns where the files are served without a code: a URL without a path.
fn place(shared: &Shared) -> String {
    const OPTION: &str = ",port=";
    until("it says how to mount", || shared.said().contains(OPTION));
    let said = shared.said();
    let (_, after) = said.split_once(OPTION).unwrap();
    let (port, rest) = after.split_once(",mountport=").unwrap();
    assert!(rest.starts_with(&format!("{port} 127.0.0.1:/ /mnt\n")), "{said}");
    assert!(said.contains("not encrypted: whoever reaches this address can read all of it"), "{said}");
    format!("nfs://127.0.0.1:{port}")
}

/// How much clients without a code have read, as it was said.
fn read_bytes(said: &str) -> u64 {
    let (_, after) = said.split_once("without a code, NFS clients read ").expect("it is said");
    after.split_once(" bytes").unwrap().0.parse().unwrap()
}

#[test]
fn any_client_reads_everything_without_a_code_until_the_end() {
    let (photos, state, receiver) = (photos(), tempfile::tempdir().unwrap(), Receiver::new());
    fs::write(photos.path().join("film"), noise(20_000_000)).unwrap();
    let mut shared =
        Shared::start(photos.path(), state.path(), &["--to", "sophia=trip", "--plain=127.0.0.1:0"]);
    let place = place(&shared);
    receiver.ok(&["cp", &format!("{place}/trip/file"), "copy"]);
    assert_eq!(fs::read(receiver.0.path().join("copy")).unwrap(), noise(200_000));
    for change in [["rm", "-rf"], ["mkdir", "-p"]] {
        let output = receiver.run(&[&change[..], &[&format!("{place}/trip/new")]].concat());
        let there = fs::read_dir(photos.path().join("trip")).unwrap().count();
        assert!(change[0] == "rm" || stderr(&output).contains("read-only"), "{}", stderr(&output));
        assert_eq!(there, 1, "nothing is changed");
    }
    let list = receiver.command(&["share", "--list"]).envs(at(state.path())).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(read_bytes(&list) >= 200_000, "{list}");
    let slowly = ["cp", "--bwlimit", "16Mbit", &format!("{place}/film"), "slow"];
    let reading = receiver.command(&slowly).stderr(Stdio::piped()).spawn().unwrap();
    until("it reads", || receiver.0.path().join(".slow.nfsw-part").exists());
    kill_process(Pid::from_child(&shared.process), Signal::INT).unwrap();
    let output = reading.wait_with_output().unwrap();
    assert!(!output.status.success() && !receiver.0.path().join("slow").exists(), "{}", stderr(&output));
    let output = receiver.run(&["ls", &format!("{place}/")]);
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(shared.process.wait().unwrap().code(), Some(130));
    assert!(read_bytes(&shared.said()) >= 200_000, "{}", shared.said());
}

#[test]
fn a_share_is_not_idle_while_a_client_without_a_code_reads() {
    let (photos, state, receiver) = (photos(), tempfile::tempdir().unwrap(), Receiver::new());
    let mut shared = Shared::start(photos.path(), state.path(), &["--idle", "2s", "--plain=127.0.0.1:0"]);
    let file = format!("{}/trip/file", place(&shared));
    for _ in 0..8 {
        receiver.ok(&["cp", &file, "copy"]);
        fs::remove_file(receiver.0.path().join("copy")).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    assert!(shared.process.try_wait().unwrap().is_none(), "{}", shared.said());
    until("nobody reads any more", || shared.process.try_wait().unwrap().is_some());
    assert!(shared.said().contains("nobody has read anything for 2 s"), "{}", shared.said());
}
