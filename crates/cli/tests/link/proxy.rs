//! `nfsw link` as a person uses it.

use std::{
    io::{BufRead, BufReader},
    net::{SocketAddr, UdpSocket},
    process::{Command, Stdio},
    time::Duration,
};

use crate::common::{self, nfsw, ok, stderr};

#[test]
fn a_seed_is_always_drawn_the_same() {
    let arguments = ["link", "show", "--preset", "paper-1997", "--bad", "80", "--seed", "7", "--for", "20s"];
    let first = ok(arguments);
    assert!(first.starts_with("seed 7") && first.contains("bad 7.41% of the time"), "{first}");
    assert_eq!(ok(arguments), first);
    let json = ok([&arguments[..], &["--json"]].concat());
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["seed"], 7);
    assert!(report["periods"].as_array().unwrap().len() > 10);
}

#[test]
fn presets_say_where_they_come_from() {
    let text = ok(["link", "presets"]);
    assert_eq!(text.matches("source: ").count(), linkemu::Preset::ALL.len());
    for preset in linkemu::Preset::ALL {
        assert!(text.contains(preset.name));
    }
}

#[test]
fn what_cannot_be_is_said_with_the_option_and_the_choice() {
    for (arguments, part) in [
        (&["link", "show", "--preset", "wifi"][..], "wifi-54"),
        (&["link", "show", "--arq", "magic"], "--arq"),
        (&["link", "show", "--config", "/nonexistent.toml"], "/nonexistent.toml"),
        (&["link", "proxy", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1", "--rate", "0"], "--rate"),
        (&["link", "proxy", "--listen", "127.0.0.1:0", "--to", "localhost"], "HOST:PORT"),
        (
            &["link", "proxy", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1", "--to", "127.0.0.1:2"],
            "as many of each",
        ),
    ] {
        let output = nfsw(arguments);
        let (code, error) = (output.status.code().unwrap(), stderr(&output));
        assert!(code == 2 || code == 7 || code == 4, "{arguments:?}: {code}");
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
}

#[test]
fn a_proxy_carries_datagrams_both_ways_and_counts_them() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap().to_string();
    let mut proxy = Command::new(env!("CARGO_BIN_EXE_nfsw"))
        .args([
            "link",
            "proxy",
            "--rate",
            "1G",
            "--listen",
            "127.0.0.1:0",
            "--to",
            &to,
            "--json",
            "--for",
            "5s",
        ])
        .args(["--pcap", "/dev/full"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(proxy.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let listens: SocketAddr = line.split(' ').next().unwrap().parse().unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(listens).unwrap();
    for socket in [&client, &server] {
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    }
    let mut buffer = [0; 4096];
    // More than a capture buffers, so that a full disk is noticed.
    for number in 0..200_u8 {
        client.send(&[number; 2000]).unwrap();
        let (length, from) = common::receive(&server, &mut buffer);
        assert_eq!(buffer[..length], [number; 2000]);
        server.send_to(&buffer[..length], from).unwrap();
        assert_eq!(common::receive(&client, &mut buffer).0, 2000);
    }
    let mut rest = String::new();
    while said.read_line(&mut rest).unwrap() > 0 {}
    assert!(rest.contains("the link goes on"), "a full disk is said: {rest}");
    let output = proxy.wait_with_output().unwrap();
    assert!(output.status.success());
    let counters: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(counters["link"]["fates"]["delivered"], 400, "{counters}");
    assert_eq!(counters["clients"], 1);
}

#[test]
#[cfg(target_os = "linux")]
fn a_proxy_leads_to_a_link_local_address() {
    common::needs_root("makes networks");
    let served = tempfile::tempdir().unwrap();
    std::fs::write(served.path().join("file"), "").unwrap();
    let script =
        "ip link set lo up; ip link add v0 type veth peer name v1; ip link set v0 up; ip link set v1 up
        ip addr add fe80::1/64 dev v0 nodad
        trap 'kill $(jobs -p)' EXIT
        $nfsw serve --listen '[fe80::1%v0]:20490' . > /dev/null &
        $nfsw link proxy --quiet --listen 127.0.0.1:12049 --to '[fe80::1%v0]:20490' > /dev/null &
        for i in {1..100}; do
            $nfsw ls --transport udp --timeout 60s 'nfs://127.0.0.1:12049/?mountport=12049' && exit
            sleep 0.2
        done";
    let mut command = Command::new("unshare");
    command.args(["--net", "bash", "-ec", script]).env("nfsw", common::program()).current_dir(&served);
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "file\n", "{}", stderr(&output));
}
