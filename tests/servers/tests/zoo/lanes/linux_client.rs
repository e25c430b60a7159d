//! What `nfsw mount --via nfs` shows to the NFS client of the Linux kernel.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use private_servers::{
    difference,
    knfsd::KernelClient,
    loopback::{Loopback, Served},
    nfsw,
};

/// As docs/mount.md tells people to mount.
const OPTIONS: &str = "soft,timeo=150,acdirmin=1,acdirmax=1";

/// Files around the sizes of blocks and pages, names that are not plain, and a directory of several pages.
fn fill(directory: &Path) {
    for size in [0, 1, 4095, 4096, 65_535, 65_536, 65_537, 300_000, 3_000_001_usize] {
        let bytes: Vec<u8> = (0..size).map(|at| (at * 31 + at / 251 + size) as u8).collect();
        fs::write(directory.join(format!("{size} bytes")), bytes).unwrap();
    }
    fs::write(directory.join("Überschrift 'a'"), "text").unwrap();
    symlink("300000 bytes", directory.join("link")).unwrap();
    let deep = directory.join("a/b/c");
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("deep"), "deep").unwrap();
    fs::set_permissions(deep.join("deep"), fs::Permissions::from_mode(0o640)).unwrap();
    let many = directory.join("many");
    fs::create_dir(&many).unwrap();
    for number in 0..300 {
        fs::write(many.join(format!("file{number:03}")), format!("{number}\n")).unwrap();
    }
}

fn assert_same(directory: &Path, client: &KernelClient) {
    let copy = client.copy("all").unwrap();
    if let Some(difference) = difference(directory, copy.path(), true).unwrap() {
        panic!("{difference}");
    }
}

#[test]
fn the_kernels_client_reads_every_byte_through_restarts_and_without_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let all = directory.path().join("all");
    fs::create_dir(&all).unwrap();
    fill(&all);
    fs::write(directory.path().join("never read"), "text").unwrap();
    let mut server = Served::start(directory.path()).unwrap();
    let mut view = Loopback::of(&server, &["--wait", "2s"]).unwrap();
    let client = KernelClient::start().unwrap();
    client.mount(view.port(), OPTIONS).unwrap();

    let listed = client.run("ls -lR | grep -c ^-").unwrap();
    assert_eq!(listed.trim(), "312");
    assert_same(&all, &client);

    // A file that is opened again has the bytes that the server has then.
    fs::write(all.join("1 bytes"), "changed").unwrap();
    assert_eq!(client.run("cat 'all/1 bytes'").unwrap(), "changed");

    // A new file is seen, though the client keeps the names that it has listed while the directory seems unchanged.
    fs::write(all.join("new"), "new").unwrap();
    let until_seen =
        "for second in $(seq 60); do ls all | grep -qx new && break; sleep 1; done; ls all | grep -cx new";
    assert_eq!(client.run(until_seen).unwrap().trim(), "1");

    // Handles outlast the program: what is open is read on.
    let read_on = "exec 3<'all/3000001 bytes'; dd bs=4096 count=1 <&3 2>/dev/null | wc -c; touch /tmp/half
        while [ -e /tmp/half ]; do sleep 0.1; done
        echo 3 >/proc/sys/vm/drop_caches; cat <&3 | wc -c";
    let rest = thread::scope(|scope| {
        let reader = scope.spawn(|| client.run(&format!("mkdir -p /tmp; {read_on}")));
        client.run("while ! [ -e /tmp/half ]; do sleep 0.1; done").unwrap();
        view.restart().unwrap();
        client.run("rm /tmp/half").unwrap();
        reader.join().unwrap().unwrap()
    });
    assert_eq!(rest.split_whitespace().collect::<Vec<_>>(), ["4096", "2995905"]);

    // Without the server everything that was read is still there, and what was not is an error, not a wait without end.
    assert_same(&all, &client);
    // What was read within 2 s of a change may be of the version before, and is not kept: it is read once more.
    client.run("sleep 3; echo 3 >/proc/sys/vm/drop_caches").unwrap();
    assert_same(&all, &client);
    server.end();
    client.run("echo 3 >/proc/sys/vm/drop_caches").unwrap();
    assert_same(&all, &client);
    let error = format!("{:#}", client.run("cat 'never read'").unwrap_err());
    assert!(error.contains("Input/output error"), "{error}");
    client.unmount().unwrap();
}

/// Three disconnections.
const LOOP: Duration = Duration::from_secs(60);

/// Names the port of the server to the part of the test that runs behind the link.
const BEHIND: &str = "NFSW_TEST_BEHIND_LINK";

/// What a client is asked for again and again: `ls -l` of 300 names, and a file of 50 kB that was read before.
const WORK: [(&str, &str); 2] = [("ls -l of 300", "ls -l many"), ("50 kB read before", "cat photo")];

#[test]
#[ignore = "takes five minutes: ./ci.sh long"]
fn beside_nfsw_mount_the_kernels_client_waits_out_every_disconnection() {
    if let Ok(port) = std::env::var(BEHIND) {
        return behind_the_link(port.parse().unwrap());
    }
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path());
    fs::write(directory.path().join("photo"), vec![7; 50_000]).unwrap();
    let server = Served::start(directory.path()).unwrap();
    // 75 kB/s with a round trip of 27 ms, and disconnections of 5.5 s (Michalakis and Kalofonos 2005 §IV).
    let link =
        "link exec -q --preset bluetooth-1.1 --distribution deterministic --good 15s --bad 5500 --phase good";
    let status = Command::new(nfsw())
        .args(link.split(' '))
        .arg("--")
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--nocapture", "beside_nfsw_mount"])
        .env(BEHIND, server.port().to_string())
        .status()
        .unwrap();
    assert!(status.success());
}

fn behind_the_link(port: u16) {
    let host = std::env::var("NFSW_HOST").unwrap();
    let client = KernelClient::start().unwrap();
    let place = tempfile::tempdir().unwrap();
    let (mounted, cache) = (place.path().join("mounted"), place.path().join("cache"));
    fs::create_dir(&mounted).unwrap();
    let mut mount = Command::new(nfsw())
        .args(["mount", "--cache"])
        .args([&cache, Path::new(&format!("nfs://{host}:{port}/")), &mounted])
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !mounted.join("photo").exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "not mounted");
        thread::sleep(Duration::from_millis(100));
    }
    let run = |work: &str| {
        let begun = Instant::now();
        let script = format!("cd '{}' && {work}", mounted.display());
        let done = Command::new("sh").args(["-c", &script]).output().unwrap().status.success();
        (begun.elapsed(), done)
    };
    println!("| what | client | median | 90 % | longest | errors |\n|---|---|---|---|---|---|");
    for (what, work) in WORK {
        for options in ["hard", "soft"] {
            client.mount_at(&host, port, options).unwrap();
            let (kernel, ours) = thread::scope(|scope| {
                let ours = scope.spawn(|| again_and_again(|| run(work)));
                let kernel = again_and_again(|| client.time(work).unwrap());
                (kernel, ours.join().unwrap())
            });
            let _ = client.unmount();
            let (kernel, ours) =
                (row(what, &format!("Linux 6.1, {options}"), &kernel), row(what, "nfsw mount", &ours));
            // It waits once for a second, when the link has just gone, and no disconnection is shorter.
            assert!(ours < kernel, "{what}: {ours:?} and {kernel:?}");
        }
    }
    let _ = Command::new(nfsw()).arg("umount").arg(&mounted).status();
    let _ = mount.wait();
}

/// How long work took, time after time, and whether it succeeded.
fn again_and_again(mut run: impl FnMut() -> (Duration, bool)) -> Vec<(Duration, bool)> {
    let (mut took, begun) = (Vec::new(), Instant::now());
    while begun.elapsed() < LOOP {
        took.push(run());
        thread::sleep(Duration::from_millis(200));
    }
    took
}

/// Prints a row of the table, and returns the longest time.
fn row(what: &str, client: &str, took: &[(Duration, bool)]) -> Duration {
    let mut times: Vec<Duration> = took.iter().map(|(time, _)| *time).collect();
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    let errors = took.iter().filter(|(_, done)| !done).count();
    println!(
        "| {what} | {client} | {:.2?} | {:.2?} | {:.2?} | {errors} of {} |",
        at(50),
        at(90),
        at(100),
        times.len()
    );
    at(100)
}
