//! Paths of other MTUs than Ethernet's: two routers in network namespaces with a smaller link between them. Needs root, as CI has.

use std::process::Command;

use serde_json::Value;

/// Client, two routers and server, in a row. Prints how many fragments all of them had made a second after the copy began, and at its end, and
/// then the summary of the copy.
const SCRIPT: &str = r#"
set -e
mount -t tmpfs none /run
mkdir /run/netns
for place in a b server; do ip netns add $place; ip -n $place link set lo up; done
ip link add c0 mtu $ROUTE type veth peer name a0 netns a
ip -n a link add a1 mtu $MTU type veth peer name b0 netns b
ip -n b link add b1 mtu $ROUTE type veth peer name s0 netns server
ip -n a link set a0 mtu $ROUTE up; ip -n a link set a1 up
ip -n b link set b0 mtu $MTU up; ip -n b link set b1 up
ip -n server link set s0 mtu $ROUTE up; ip link set c0 up; ip link set lo up
ip addr add 10.77.1.1/24 dev c0; ip -n a addr add 10.77.1.2/24 dev a0
ip -n a addr add 10.77.2.1/24 dev a1; ip -n b addr add 10.77.2.2/24 dev b0
ip -n b addr add 10.77.3.1/24 dev b1; ip -n server addr add 10.77.3.2/24 dev s0
ip route add default via 10.77.1.2; ip -n server route add default via 10.77.3.1
ip -n a route add 10.77.3.0/24 via 10.77.2.2; ip -n b route add 10.77.1.0/24 via 10.77.2.1
for router in a b; do
  ip netns exec $router sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
  # What a router itself says goes nowhere, and what it forwards goes on.
  [ "$ICMP" = yes ] || ip -n $router rule add pref 1 iif lo blackhole
done
fragments() {
  for place in a b server; do ip netns exec $place cat /proc/net/snmp; done | cat - /proc/net/snmp |
    awk '/^Ip: [0-9]/ { made += $20 } END { print made + 0 }'
}
head -c 20971520 /dev/urandom > "$DIR/source"
ip netns exec server "$NFSW" serve "$DIR" --listen 10.77.3.2:2049 > /dev/null 2>&1 &
server=$!
trap 'kill $server' EXIT
until "$NFSW" ls "nfs://10.77.3.2/?nfsport=2049&mountport=2049" > /dev/null 2>&1; do sleep 0.1; done
remote() { echo "nfs://10.77.3.2/$1?nfsport=2049&mountport=2049"; }
if [ "$WRITES" = yes ]; then from="$DIR/source" to=$(remote copy); else from=$(remote source) to="$DIR/copy"; fi
"$NFSW" cp -q --json --transport udp --max-block $MOST --bwlimit 64M "$from" "$to" > "$DIR/summary" &
copy=$!
sleep 1
fragments
wait $copy
fragments
cmp "$DIR/source" "$DIR/copy"
tail -n 1 "$DIR/summary"
"#;

/// Fragments, of some 19,000 datagrams, that the choice of blocks may make: when the machine pauses the path looks slow for a moment, and blocks of two
/// fragments are fine there.
const CHOSEN: u32 = 20;

/// A path whose outer links have MTU `route` and whose inner one `mtu`.
#[derive(Clone, Copy, Debug)]
struct Path {
    route: u32,
    mtu: u32,
    /// Whether routers say that datagrams are too long.
    icmp: bool,
    writes: bool,
}

/// Whether one of three copies is as it should be: a machine that pauses makes the path look slow.
fn check(path: Path) {
    let failures: Vec<String> = (0..3).map_while(|_| copy(path).err()).collect();
    assert!(failures.len() < 3, "{path:?}: {failures:#?}");
}

/// Copies 20 MiB at 64 Mbit/s. Blocks of several frames would be too many a second for their identifications.
fn copy(path: Path) -> Result<(), String> {
    let directory = tempfile::tempdir().unwrap();
    let yes = |is: bool| if is { "yes" } else { "no" };
    let most = if path.mtu > 1500 { 8192 } else { 1344 };
    let output = Command::new("unshare")
        .args(["--net", "--mount", "bash", "-c", SCRIPT])
        .env("NFSW", env!("CARGO_BIN_EXE_nfsw"))
        .env("XDG_STATE_HOME", directory.path().join("state"))
        .env("XDG_CACHE_HOME", directory.path().join("cache"))
        .env("DIR", directory.path())
        .envs([("ROUTE", path.route), ("MTU", path.mtu), ("MOST", most)].map(|(k, v)| (k, v.to_string())))
        .envs([("ICMP", yes(path.icmp)), ("WRITES", yes(path.writes))])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    // Whatever the machine does, the copy succeeds.
    assert!(output.status.success(), "{path:?}: {printed}{}", String::from_utf8_lossy(&output.stderr));
    let [after_a_second, at_the_end, summary] = printed.lines().collect::<Vec<_>>()[..] else {
        panic!("{path:?}: {printed}")
    };
    let [before, all] = [after_a_second, at_the_end].map(|number| number.parse::<u32>().unwrap());
    let made = all - before;
    let summary: Value = serde_json::from_str(summary).unwrap();
    let (block, seconds) = (summary["block_size"].as_u64().unwrap(), summary["seconds"].as_f64().unwrap());
    // Headers of calls and replies of this server are 128 B at least, and blocks are multiples of 64 B.
    let fits = u64::from(path.mtu.min(most + 128)) - 128;
    let fits_path = block <= fits && block + 192 >= fits;
    // It takes 2.6 s. Nothing stalls for a second.
    if made <= CHOSEN && fits_path && seconds < 4.6 {
        Ok(())
    } else {
        Err(format!("{made} fragments after the first second: {summary}"))
    }
}

#[test]
fn where_the_route_has_the_mtu_nothing_has_to_be_found() {
    for mtu in [1280, 1420, 1492, 9000] {
        for writes in [false, true] {
            check(Path { route: mtu, mtu, icmp: true, writes });
        }
    }
}

#[test]
fn a_smaller_mtu_on_the_way_is_told_by_icmp() {
    for (route, mtu) in [(1500, 1280), (1500, 1420), (9000, 1492)] {
        for writes in [false, true] {
            check(Path { route, mtu, icmp: true, writes });
        }
    }
}

#[test]
fn a_smaller_mtu_on_the_way_is_found_where_datagrams_vanish() {
    for (route, mtu) in [(1500, 1280), (1500, 1420), (9000, 1492)] {
        for writes in [false, true] {
            check(Path { route, mtu, icmp: false, writes });
        }
    }
}
