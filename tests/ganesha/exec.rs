//! nfs-ganesha behind `nfsw link exec`: real network stacks on both sides of an emulated link.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use nfs_wireless_client::{BlockSize, RetryPolicy, Window};
use serde_json::Value;
use testbed::{Operation, Plan, Room, mean, sweep};
use tokio::task::JoinSet;

use crate::{
    nfsw,
    server::{Ganesha, Options},
};

const SEEDS: u64 = 20;
const MEGABYTE: usize = 1 << 20;
/// Lateness of deliveries in milliseconds that 1 % may exceed before the links are not those that were asked for.
const LATE_MS: f64 = 15.0;
/// How far the mean may be from that of virtual time, as a share of it.
const TOLERANCE: f64 = 0.03;
/// The link of every seed.
const LINK: [&str; 4] = ["--preset", "paper-1997", "--bad", "80"];

fn server(alone: bool) -> Ganesha {
    let server = Ganesha::start(Options { everywhere: true, alone, ..Options::default() });
    let contents: Vec<u8> = (0..MEGABYTE).map(|index| (index * 31 % 251) as u8).collect();
    fs::write(server.export().join("source"), contents).unwrap();
    server
}

/// `nfsw link exec` with a script that finds `nfsw` in `$nfsw` and the URL of the export in `$url` and `$ports`.
fn behind(server: &Ganesha, link: &[&str], script: &str) -> Command {
    let (nfs, mount) = server.ports();
    let mut command = Command::new(nfsw::binary());
    command.args(["link", "exec"]).args(link).args(["--", "sh", "-c"]);
    let url = format!(
        "url=nfs://$NFSW_HOST{}; ports='?nfsport={nfs}&mountport={mount}'",
        server.export().display()
    );
    command.arg(format!("{url}\n{script}")).env("nfsw", nfsw::binary()).stdin(Stdio::null());
    command
}

#[test]
fn copies_over_udp_and_tcp_are_intact() {
    let server = server(false);
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy");
    let source = fs::read(server.export().join("source")).unwrap();
    for transport in ["udp", "tcp"] {
        let script = format!(
            "$nfsw cp -q --transport {transport} \"$url/source$ports\" {copy} &&
             $nfsw cp -q --transport {transport} {copy} \"$url/{transport}$ports\"",
            copy = copy.display()
        );
        let output = behind(&server, &["--preset", "wifi-54", "--loss", "3%"], &script).output().unwrap();
        nfsw::expect(&output, 0);
        assert!(fs::read(&copy).unwrap() == source, "read over {transport}");
        assert!(fs::read(server.export().join(transport)).unwrap() == source, "written over {transport}");
        fs::remove_file(&copy).unwrap();
    }
}

/// Seconds from the first READ to the last reply to one, as the log of RPCs has them.
fn response(log: &Path) -> f64 {
    let log = fs::read_to_string(log).unwrap();
    let reads = |kind: &str| {
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(kind)).collect();
        assert!(!lines.is_empty(), "no {kind:?} in the log");
        lines.into_iter().map(|line| line.split_whitespace().map(|word| word.to_owned()).collect::<Vec<_>>())
    };
    // Columns: offered, ended, XID.
    let first = reads("call  READ ").map(|line| line[0].parse::<f64>().unwrap()).fold(f64::MAX, f64::min);
    let last = reads("reply READ,").filter(|line| line.iter().any(|word| word == "delivered,"));
    last.map(|line| line[1].parse::<f64>().unwrap()).fold(0.0, f64::max) - first
}

/// One read of the file per seed, all at once; the responses, and how late the latest link was.
async fn read_all(server: &Ganesha) -> (Vec<f64>, f64) {
    let mut runs = JoinSet::new();
    for seed in 1..=SEEDS {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let (log, stats, copy, seed) = (file("log"), file("stats"), file("copy"), seed.to_string());
        let mut link = LINK.to_vec();
        link.extend(["--seed", &seed, "--rpc-log", &log, "--stats", &stats]);
        let script = format!("$nfsw cp -q --transport udp \"$url/source$ports\" {copy}");
        let mut command = behind(server, &link, &script);
        let source = server.export().join("source");
        runs.spawn_blocking(move || {
            nfsw::expect(&command.output().unwrap(), 0);
            assert!(fs::read(&copy).unwrap() == fs::read(source).unwrap(), "seed {seed}");
            let stats: Value = serde_json::from_str(&fs::read_to_string(stats).unwrap()).unwrap();
            assert_eq!(stats["unsent"], 0, "{stats}");
            let late = stats["lateness"]["p99_ms"].as_f64().unwrap();
            (response(directory.path().join("log").as_path()), late)
        });
    }
    let runs = runs.join_all().await;
    let late = runs.iter().map(|&(_, late)| late).fold(0.0, f64::max);
    (runs.into_iter().map(|(seconds, _)| seconds).collect(), late)
}

fn virtual_mean() -> f64 {
    let mut room = Room::named("modern").expect("a room");
    let mut link = linkemu::Preset::named("paper-1997").expect("a preset").config();
    link.channel.set_bad_mean(Duration::from_millis(80));
    room.link = link;
    // What ganesha takes on a quiet machine.
    room.server.read = Duration::from_micros(100);
    let mut plan = Plan::new(room);
    plan.policy = RetryPolicy::Adaptive;
    plan.operation = Operation::Read;
    (plan.block, plan.window) = (BlockSize::Auto { max: None }, Window::Auto);
    let samples = sweep(&[plan], 1, SEEDS as u32, &|_| true).expect("a plan that can be");
    mean(&samples[0].as_ref().expect("all runs").responses())
}

/// Reads all once; returns how late the latest link was, and how far the mean is from that of virtual time, as a share of it.
async fn compare(server: &Ganesha, wanted: f64) -> (f64, f64) {
    let (seconds, late) = read_all(server).await;
    let apart = mean(&seconds) / wanted - 1.0;
    println!(
        "{} reads: {:.3} s in real time, {wanted:.3} s in virtual time, {:+.2} %; late by {late:.2} ms",
        seconds.len(),
        mean(&seconds),
        100.0 * apart
    );
    (late, apart)
}

/// A busy machine makes reads slower, so that is only printed; none makes them faster than the link.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_are_no_faster_than_in_virtual_time() {
    nfsw::binary();
    let (_, apart) = compare(&server(true), virtual_mean()).await;
    assert!(apart >= -TOLERANCE, "faster than the link by a share of {}", -apart);
}

/// 1 MB at 1 Mbit/s with real network stacks takes as long as in virtual time, unless the machine was late.
#[ignore = "judges by the clock"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_take_as_long_as_in_virtual_time() {
    nfsw::binary();
    let (server, wanted) = (server(true), virtual_mean());
    for attempt in 1.. {
        let (late, apart) = compare(&server, wanted).await;
        if apart.abs() <= TOLERANCE {
            return;
        }
        assert!(late > LATE_MS && attempt < 3, "apart by a share of {apart}, but late by {late} ms only");
    }
}
