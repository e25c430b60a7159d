//! nfs-ganesha behind an emulated link in real time, beside the same copies in virtual time.

use std::{
    fmt, fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    ops::RangeInclusive,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use linkemu::{
    ArqKind, Channel, ChannelState, DatagramRecord, Fate, FrameRecord, LinkConfig, Observer, Offered, Preset,
    proxy::{Forward, Proxy, ProxyConfig, ProxyHandle},
};
use nfs_wire::{
    Procedure, Reader,
    rpc::{CallHeader, Program, ReplyHeader, Xid},
};
use nfs_wireless_client::{BlockSize, RetryPolicy, Window};
use testbed::{Operation, Plan, Room, mean, sweep};
use tokio::task::JoinSet;

use crate::{
    nfsw,
    server::{Ganesha, Options},
};

/// Lateness of deliveries, at the 99th percentile, from which a link is not the one of virtual time any more.
const LATE: Duration = Duration::from_millis(5);
/// Copies made at once: half as many in each round, as links were late, down to the least.
const AT_ONCE: usize = 40;
const LEAST_AT_ONCE: usize = 5;
const MEGABYTE: usize = 1 << 20;

/// One way of copying.
#[derive(Clone, Copy, Debug)]
struct Case {
    policy: RetryPolicy,
    name: &'static str,
    arq: ArqKind,
    operation: Operation,
}

const OPERATIONS: [Operation; 2] = [Operation::Read, Operation::Write];

fn papers_cases() -> Vec<Case> {
    let policies = [("exponential", RetryPolicy::exponential()), ("hybrid", RetryPolicy::hybrid())];
    let of = |operation, arq| policies.map(|(name, policy)| Case { policy, name, arq, operation });
    OPERATIONS.iter().flat_map(|&it| [of(it, ArqKind::None), of(it, ArqKind::Ideal)]).flatten().collect()
}

fn adaptive_cases() -> Vec<Case> {
    let (policy, name, arq) = (RetryPolicy::Adaptive, "adaptive", ArqKind::None);
    OPERATIONS.map(|operation| Case { policy, name, arq, operation }).to_vec()
}

impl fmt::Display for Case {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:5} {:11} ARQ {:5}", self.operation.name(), self.name, self.arq.name())
    }
}

impl Case {
    fn link(&self) -> LinkConfig {
        let mut link = Preset::named("paper-1997").expect("a preset").config();
        link.channel.set_bad_mean(Duration::from_millis(80));
        link.arq.kind = self.arq;
        link
    }

    /// Block and window: the papers' for their policies, as they come for ours.
    fn options(&self) -> &'static [&'static str] {
        match self.policy {
            RetryPolicy::Adaptive => &[],
            _ => &["--block-size", "4096", "--window", "4"],
        }
    }

    /// Seconds that each of the seeds from 1 takes in virtual time.
    fn in_virtual_time(&self, seeds: u64) -> Vec<f64> {
        let mut room = Room::named("modern").expect("a room");
        room.link = self.link();
        // What ganesha takes on a quiet machine.
        room.server.read = Duration::from_micros(100);
        room.server.write = Duration::from_micros(100);
        let mut plan = Plan::new(room);
        plan.policy = self.policy;
        plan.operation = self.operation;
        (plan.block, plan.window) = match self.policy {
            RetryPolicy::Adaptive => (BlockSize::Auto { max: None }, Window::Auto),
            _ => (BlockSize::Exact(4096), Window::Calls(4)),
        };
        let samples = sweep(&[plan], 1, seeds as u32, &|_| true).expect("a plan that can be");
        let responses = samples[0].as_ref().expect("all runs").responses();
        assert_eq!(responses.len() as u64, seeds, "no copy fails");
        responses
    }
}

/// When a copy began and ended, and what the channel took.
#[derive(Debug, Default)]
struct Seen {
    first_call: Option<Duration>,
    last_reply: Option<Duration>,
    /// When each frame was on the air, and whether the channel took it.
    frames: Vec<(Duration, Duration, bool)>,
    /// XIDs of READs, WRITEs and COMMITs.
    data: Vec<Xid>,
}

/// Takes the time from the first READ or WRITE to the last reply to one, or to COMMIT.
struct Stopwatch(Arc<Mutex<Seen>>);

impl Observer for Stopwatch {
    fn offered(&mut self, offered: &Offered<'_>) {
        let Ok(call) = CallHeader::decode(&mut Reader::new(offered.payload)) else { return };
        let data = [Procedure::Read, Procedure::Write, Procedure::Commit].map(Procedure::number);
        if call.program == Program::NFS && data.contains(&call.procedure) {
            let mut seen = self.0.lock().unwrap();
            seen.first_call.get_or_insert(offered.at);
            seen.data.push(call.xid);
        }
    }

    fn frame(&mut self, record: &FrameRecord) {
        if let (Fate::Channel | Fate::Delivered, Some(first)) = (record.fate, record.first_air) {
            let lost = record.fate == Fate::Channel;
            // 1 Mbit/s.
            let air = Duration::from_micros(8 * u64::from(record.bytes));
            self.0.lock().unwrap().frames.push((first, first + air, lost));
        }
    }

    fn datagram(&mut self, record: &DatagramRecord, payload: &Bytes) {
        let Ok(reply) = ReplyHeader::decode(&mut Reader::new(payload)) else { return };
        let mut seen = self.0.lock().unwrap();
        if record.fate == Fate::Delivered && seen.data.contains(&reply.xid) {
            seen.last_reply = seen.last_reply.max(Some(record.ended));
        }
    }
}

struct Run {
    case: usize,
    seed: u64,
    seconds: f64,
    lateness: Duration,
    frames: Vec<(Duration, Duration, bool)>,
}

async fn proxy(link: LinkConfig, seed: u64, to: SocketAddr) -> (SocketAddr, ProxyHandle, Arc<Mutex<Seen>>) {
    let mut config = ProxyConfig::new(link, seed);
    config.forwards.push(Forward { listen: "127.0.0.1:0".parse().unwrap(), to });
    let mut proxy = Proxy::bind(config).await.unwrap();
    let seen = Arc::new(Mutex::new(Seen::default()));
    proxy.observe(Box::new(Stopwatch(seen.clone())));
    let (address, handle) = (proxy.local_addresses().unwrap()[0], proxy.handle());
    tokio::spawn(proxy.run());
    (address, handle, seen)
}

/// Copies the file once through a link of its own.
async fn copy(server: Arc<Ganesha>, number: usize, case: Case, seed: u64) -> Run {
    let (nfs, mount) = server.ports();
    let to = SocketAddr::from(([127, 0, 0, 1], nfs));
    let (address, handle, seen) = proxy(case.link(), seed, to).await;
    let name = format!("{number}-{seed}");
    let url = |file: &str| {
        let (export, port) = (server.export(), address.port());
        format!("nfs://127.0.0.1{}/{file}?nfsport={port}&mountport={mount}", export.display())
    };
    let local = tempfile::NamedTempFile::new().unwrap();
    let path = local.path().to_str().unwrap().to_owned();
    let (source, target) = match case.operation {
        Operation::Read => (url("source"), path),
        Operation::Write => {
            fs::copy(server.export().join("source"), &path).unwrap();
            (path, url(&name))
        }
    };
    let mut command = Command::new(nfsw::binary());
    command.args(["cp", "-q", "--policy", case.name]).args(case.options()).args([&source, &target]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let status = tokio::task::spawn_blocking(move || command.status()).await.unwrap().unwrap();
    assert!(status.success(), "{case:?}, seed {seed}");
    let arrived = match case.operation {
        Operation::Read => fs::read(&local).unwrap(),
        Operation::Write => fs::read(server.export().join(&name)).unwrap(),
    };
    assert!(arrived == fs::read(server.export().join("source")).unwrap(), "{case:?}, seed {seed}");
    let stats = handle.stats().await.unwrap();
    handle.stop().await;
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    let seconds = (seen.last_reply.unwrap() - seen.first_call.unwrap()).as_secs_f64();
    Run { case: number, seed, seconds, lateness: stats.lateness.quantile(0.99), frames: seen.frames }
}

/// Our policy, both ways. A busy machine makes copies slower, here by half at most; none makes them faster than the link.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_over_a_bad_link_are_no_faster_than_in_virtual_time() {
    compare(&adaptive_cases(), 10, -0.1..=0.5, 2).await;
}

#[ignore = "takes minutes, and judges by the clock"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_of_all_policies_take_as_long_as_in_virtual_time() {
    const ROUNDS: u32 = 8;
    let papers = compare(&papers_cases(), 20, -0.05..=0.05, ROUNDS).await;
    let ours = compare(&adaptive_cases(), 20, -0.03..=0.03, ROUNDS).await;
    assert_eq!(
        papers + ours,
        0,
        "links that were late {ROUNDS} times: this machine is busy with something else"
    );
}

/// Makes all copies, and compares the mean time of those whose link was on time with that of the same seeds in virtual time;
/// `apart_by` is what they may differ by, as a share of it. Returns how many links were late in all rounds.
async fn compare(cases: &[Case], seeds: u64, apart_by: RangeInclusive<f64>, rounds: u32) -> usize {
    nfsw::binary();
    let server = Arc::new(Ganesha::start(Options { alone: true, ..Options::default() }));
    let contents: Vec<u8> = (0..MEGABYTE).map(|index| (index * 31 % 251) as u8).collect();
    fs::write(server.export().join("source"), contents).unwrap();
    let mut left: Vec<(usize, u64)> =
        (0..cases.len()).flat_map(|case| (1..=seeds).map(move |seed| (case, seed))).collect();
    let mut on_time: Vec<Run> = Vec::new();
    for round in 0..rounds {
        let at_once = LEAST_AT_ONCE.max(AT_ONCE >> round);
        for group in std::mem::take(&mut left).chunks(at_once) {
            let copies = group.iter().map(|&(case, seed)| copy(server.clone(), case, cases[case], seed));
            for run in copies.collect::<JoinSet<_>>().join_all().await {
                check_fades(&run, &cases[run.case]);
                if run.lateness > LATE {
                    println!(
                        "late by {:?} with {at_once} at once: {}, seed {}",
                        run.lateness, cases[run.case], run.seed
                    );
                    left.push((run.case, run.seed));
                } else {
                    on_time.push(run);
                }
            }
        }
    }
    for (number, case) in cases.iter().enumerate() {
        let (real, seeds_on_time): (Vec<f64>, Vec<u64>) =
            on_time.iter().filter(|run| run.case == number).map(|run| (run.seconds, run.seed)).unzip();
        if real.is_empty() {
            println!("{case}: not compared, for every link was late");
            continue;
        }
        let simulated = case.in_virtual_time(seeds);
        let simulated: Vec<f64> = seeds_on_time.iter().map(|&seed| simulated[seed as usize - 1]).collect();
        let (count, real, simulated) = (real.len(), mean(&real), mean(&simulated));
        let apart = real / simulated - 1.0;
        println!(
            "{case}: {real:6.2} s in real time, {simulated:6.2} s in virtual time, {:+.1} %, {count} seeds",
            100.0 * apart
        );
        assert!(apart_by.contains(&apart), "{case}: apart by a share of {apart}");
    }
    left.len()
}

/// What `nfsw link proxy` writes is what other programs and people can read.
#[test]
fn the_capture_opens_in_tshark_and_the_log_names_the_calls() {
    let tshark = Command::new("tshark").arg("--version").output();
    assert!(tshark.is_ok_and(|it| it.status.success()), "this test needs the package tshark");
    let server = Ganesha::start(Options::default());
    fs::write(server.export().join("source"), vec![7; 200_000]).unwrap();
    let (nfs, mount) = server.ports();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (pcap, records, log) = (file("link.pcapng"), file("records.ndjson"), file("rpc.log"));
    let mut proxy = Command::new(nfsw::binary())
        .args(["link", "proxy", "--preset", "paper-1997", "--bad", "80", "--good", "300", "--json"])
        .args(["--listen", "127.0.0.1:0", "--to", &format!("127.0.0.1:{nfs}")])
        .args(["--pcap", &pcap, "--records", &records, "--rpc-log", &log])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(proxy.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let port: SocketAddr = line.split(' ').next().unwrap().parse().expect("it says where it listens");
    let port = port.port();
    let export = server.export();
    let url = format!("nfs://127.0.0.1{}/source?nfsport={port}&mountport={mount}", export.display());
    nfsw::expect(&nfsw::run(["cp", "-q", &url, &file("copy")]), 0);
    let pid = rustix::process::Pid::from_child(&proxy);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = proxy.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let counters: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let lost = counters["link"]["fates"]["channel"].as_u64().unwrap();
    assert!(lost > 0, "{counters}");

    let tshark = |filter: &str, fields: &[&str]| {
        let mut command = Command::new("tshark");
        // Ports of a test are none that tshark knows NFS by.
        command.args(["-r", &pcap, "-d", &format!("udp.port=={nfs},rpc"), "-Y", filter, "-T", "fields"]);
        fields.iter().for_each(|field| {
            command.args(["-e", field]);
        });
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let reads = tshark("rpc.program == 100003 && nfs.procedure_v3 == 6 && rpc.msgtyp == 0", &["rpc.xid"]);
    assert!(reads.lines().count() > 10, "tshark sees the READs: {reads}");
    let drops = tshark("frame.comment contains \"channel\"", &["frame.comment"]);
    assert!(drops.lines().count() as u64 >= lost, "{lost} lost, but comments are: {drops}");

    let log = fs::read_to_string(&log).unwrap();
    for part in ["call  READ attempt 1", "reply READ", "lost: channel", "channel bad"] {
        assert!(log.contains(part), "{part} is not in the log:\n{}", &log[..log.len().min(2000)]);
    }
    let records = fs::read_to_string(&records).unwrap();
    for row in records.lines() {
        let row: serde_json::Value = serde_json::from_str(row).expect("every row is JSON");
        assert!(row["event"] == "datagram" || row["event"] == "frame", "{row}");
    }
}

/// What the proxy lost was on the air in a bad period of the same seed in virtual time, and what it delivered was not, to 1 ms.
fn check_fades(run: &Run, case: &Case) {
    const MS: Duration = Duration::from_millis(1);
    let seed = run.seed;
    let mut channel = Channel::new(&case.link().channel, seed, 0).unwrap();
    for &(from, to, lost) in &run.frames {
        if lost {
            let (from, to) = (from.saturating_sub(MS), to + MS);
            let faded = channel.state(from) == ChannelState::Bad
                || channel.next_edge(from).is_some_and(|at| at <= to);
            assert!(faded, "seed {seed}: lost between {from:?} and {to:?}, but that was good");
        } else if case.arq == ArqKind::None && to > from + 2 * MS {
            let (from, to) = (from + MS, to - MS);
            let clear = channel.state(from) == ChannelState::Good
                && channel.next_edge(from).is_none_or(|at| at >= to);
            assert!(clear, "seed {seed}: delivered between {from:?} and {to:?}, but that was bad");
        }
    }
    let lost = run.frames.iter().filter(|frame| frame.2).count();
    // Ideal ARQ holds what fades and loses nothing.
    assert_eq!(lost > 0, case.arq == ArqKind::None, "seed {seed}: {lost} frames met a fade");
}
