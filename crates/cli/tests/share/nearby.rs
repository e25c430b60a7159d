//! Shares that are found without their address, by machines at one switch.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::Path,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{
    Shared, at,
    common::{assert_same_tree, first_line, noise, stderr, until},
    network::{Machine, Neighbours},
    photos,
};

/// Somebody at a machine, and what nfsw keeps there.
struct Person<'a> {
    machine: &'a Machine,
    home: tempfile::TempDir,
}

impl<'a> Person<'a> {
    fn at(machine: &'a Machine) -> Self {
        Self { machine, home: tempfile::tempdir().unwrap() }
    }

    fn command(&self, program: &str) -> Command {
        let kept = self.home.path();
        let mut command = self.machine.command(program);
        command.envs(at(kept)).env("XDG_CACHE_HOME", kept.join("cache"));
        command.env("XDG_CONFIG_HOME", kept.join("config")).env_remove("NFSW_OPTS");
        command.env("USER", "anna").env("HOME", kept.join("home"));
        command
    }

    /// Prepares `nfsw`, which ends in any case: a share that does not answer is waited for.
    fn nfsw(&self, arguments: &[&str]) -> Command {
        let mut command = self.command("timeout");
        command.args(["60", env!("CARGO_BIN_EXE_nfsw")]).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.nfsw(arguments).output().unwrap()
    }

    fn path(&self, name: &str) -> String {
        self.home.path().join(name).into_os_string().into_string().unwrap()
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn fails(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
        stderr(&output)
    }

    fn share(&self, directory: &Path, options: &[&str]) -> Shared {
        let mut command = self.command(env!("CARGO_BIN_EXE_nfsw"));
        command.arg("share").arg(directory).args(options).stderr(Stdio::piped());
        Shared::spawn(command, options)
    }

    /// What `nfsw find` lists.
    fn finds(&self, options: &[&str]) -> Vec<Value> {
        let listed = self.ok(&[&["find", "--json"], options].concat());
        let events = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.filter(|event| event["event"] == "share").collect()
    }

    /// Where `nfsw find` says that shares are.
    fn addresses(&self, options: &[&str]) -> Vec<String> {
        let shares = self.finds(options);
        let addresses = shares.iter().flat_map(|share| share["addresses"].as_array().unwrap());
        let mut addresses: Vec<String> = addresses.map(|it| it.as_str().unwrap().to_owned()).collect();
        // Shares of one name are listed by their keys, which are drawn.
        addresses.sort();
        addresses
    }
}

/// The code that was shown last for a person, and the address.
fn code(shared: &Shared, person: &str) -> (String, String) {
    let place = shared.place(person);
    let (code, address) = place.split_once('@').unwrap();
    (code.to_owned(), address.to_owned())
}

/// What a share has said on standard error, at its end.
fn end(mut shared: Shared) -> String {
    assert_eq!(shared.signal(Signal::INT), 130);
    io::read_to_string(shared.process.stderr.take().unwrap()).unwrap()
}

#[test]
fn a_share_is_found_by_its_code_alone_until_it_ends() {
    let (network, photos) = (Neighbours::start(2), photos());
    let [host, guest] = [0, 1].map(|at| Person::at(&network.machines[at]));
    let mut shared = host.share(photos.path(), &["--to", "sophia=trip", "--to", "boss=documents"]);
    let ((sophia, _), (boss, address)) = (code(&shared, " for sophia"), code(&shared, " for boss"));
    assert_eq!(address, "10.9.0.1:7049");
    assert!(shared.said().contains(&format!("  nfsw cp -r {sophia}:/ .\n")), "{}", shared.said());
    // The thread whose panic does not end the process is called so.
    let threads = fs::read_dir(format!("/proc/{}/task", shared.process.id())).unwrap();
    let name = |it: io::Result<fs::DirEntry>| fs::read_to_string(it.unwrap().path().join("comm")).unwrap();
    assert!(threads.map(name).any(|name| name.trim_end() == nfs_share::DISCOVERY_THREAD));
    let begun = Instant::now();
    assert_eq!(guest.ok(&["ls", &format!("{sophia}:/")]), "file\n");
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    // Now the code is spent, and its address known: without a search.
    let begun = Instant::now();
    guest.ok(&["cp", "-r", &format!("{sophia}:/"), &guest.path("got")]);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_same_tree(&photos.path().join("trip"), guest.path("got").as_ref(), false);
    guest.ok(&["sync", &format!("{sophia}:/"), &guest.path("synced")]);
    // What everybody reads: who shares, and neither what nor with whom.
    let listed = guest.ok(&["find"]);
    let number = boss.split_once('-').unwrap().0;
    for told in ["anna@", " key ", " 10.9.0.1:7049 ", " since ", &format!(" code {number} "), "(mdns, known)"]
    {
        assert!(listed.contains(told), "{told}: {listed}");
    }
    let event = guest.finds(&[]).remove(0).to_string();
    let folder = photos.path().file_name().unwrap().to_str().unwrap();
    for secret in [folder, "sophia", "boss", "trip", "documents", boss.split_once('-').unwrap().1] {
        assert!(!listed.contains(secret) && !event.contains(secret), "{secret}: {listed}{event}");
    }
    // A code that is not in the list of processes.
    let mut secretly = guest.nfsw(&["cat", "@:/file"]);
    let read = secretly.env("NFSW_CODE", &boss).output().unwrap();
    assert_eq!(read.stdout, fs::read(photos.path().join("documents/file")).unwrap(), "{}", stderr(&read));
    assert_eq!(guest.finds(&[])[0]["codes"], serde_json::json!([]), "all are used");
    let asked = Instant::now();
    assert_eq!(shared.signal(Signal::INT), 130);
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    let none = guest.run(&["find", "--for", "1s"]);
    assert!(none.status.success() && none.stdout.is_empty(), "{}", String::from_utf8_lossy(&none.stdout));
    assert!(stderr(&none).contains("no share was found on eth0 within 1.0 s"), "{}", stderr(&none));
}

/// The search that runs while a share ends hears of it.
#[test]
fn the_end_of_a_share_is_announced() {
    let (network, photos) = (Neighbours::start(2), photos());
    let [host, guest] = [0, 1].map(|at| Person::at(&network.machines[at]));
    let shared = host.share(photos.path(), &["--name", "holiday"]);
    until("it is found", || guest.addresses(&["--for", "1s"]) == ["10.9.0.1:7049"]);
    let search = guest.nfsw(&["find", "--json", "--for", "4s"]).stdout(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    until("it has been found again", || begun.elapsed() > Duration::from_millis(1500));
    end(shared);
    let found = search.wait_with_output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    assert!(found.contains("\"summary\"") && !found.contains("holiday"), "{found}");
}

#[test]
fn two_shares_with_one_name_are_two_and_with_one_number_nobody_is_asked() {
    let (network, photos) = (Neighbours::start(3), photos());
    let [anna, bob, guest] = [0, 1, 2].map(|at| Person::at(&network.machines[at]));
    let share = |person: &Person| {
        let mut shared = person.share(photos.path(), &["--name", "holiday"]);
        // Codes are drawn: the number of this one is made 7 while it does not run.
        shared.signal(Signal::KILL);
        let place = person.home.path().join("nfsw/shared");
        for entry in fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()) {
            if let Some((before, after)) = fs::read_to_string(&entry).unwrap().split_once("\"code\":\"") {
                let (_, words) = after.split_once('-').unwrap();
                fs::write(entry, format!("{before}\"code\":\"7-{words}")).unwrap();
            }
        }
        person.share(photos.path(), &["--name", "holiday"])
    };
    let of_anna = share(&anna);
    let (code, address) = code(&of_anna, "");
    assert!(code.starts_with("7-"), "{code}");
    let of_bob = share(&bob);
    until("both are found", || guest.addresses(&[]) == ["10.9.0.1:7049", "10.9.0.2:7049"]);
    // As often as would withdraw a code.
    for _ in 0..4 {
        let text = guest.fails(3, &["ls", &format!("{code}:/")]);
        assert!(text.contains("2 shares around here announce a code 7; say which:"), "{text}");
        for number in [1, 2] {
            assert!(text.contains(&format!(" {code}@10.9.0.{number}:7049:/ (holiday, key ")), "{text}");
        }
    }
    assert!(guest.ok(&["ls", &format!("{code}@{address}:/")]).contains("trip"));
    // Whose code it is is known from now on, and the other one's number leads to the other one.
    assert!(guest.ok(&["ls", &format!("{code}:/")]).contains("trip"));
    let (other, _) = self::code(&of_bob, "");
    assert!(guest.ok(&["ls", &format!("{other}:/")]).contains("trip"));
    for shared in [of_anna, of_bob] {
        assert!(!shared.said().contains("wrong guesses"), "{}", shared.said());
    }
}

#[test]
fn a_stranger_with_the_number_gets_one_guess_for_each_command() {
    let (network, photos) = (Neighbours::start(2), photos());
    let [stranger, guest] = [0, 1].map(|at| Person::at(&network.machines[at]));
    let shared = stranger.share(photos.path(), &[]);
    let number = code(&shared, "").0.split_once('-').unwrap().0.to_owned();
    for count in 1..=3 {
        assert!(!shared.said().contains("three wrong guesses"), "{count}");
        assert!(guest.fails(3, &["ls", &format!("{number}-zoo-zone:/")]).contains("the code is wrong"));
    }
    until("the third has withdrawn the code", || shared.said().contains("three wrong guesses"));
    // The code that replaces it is announced, and no other.
    let another: u64 = code(&shared, "").0.split_once('-').unwrap().0.parse().unwrap();
    until("it is announced", || {
        guest.finds(&["--for", "1s"]).first().is_some_and(|it| it["codes"] == serde_json::json!([another]))
    });
    // A mistyped code may be the name of a server.
    let mistyped = guest.fails(3, &["ls", &format!("{number}-zoo-zome:/")]);
    assert!(mistyped.contains("if it is a code, a word is wrong"), "{mistyped}");
    let text = guest.fails(3, &["ls", &format!("{number}-zoo-zone:/")]);
    let expected = format!(
        "announces a code {number} that is not used yet (looked for 3 s on eth0; one share announces other codes"
    );
    assert!(
        text.contains(&expected) && text.contains("type the address that nfsw share has printed"),
        "{text}"
    );
}

/// Gives a machine the address 10.9.0.51 instead of 10.9.0.1.
fn move_away(person: &Person<'_>) {
    person.machine.run(
        "ip addr add 10.9.0.51/24 dev eth0 && ip addr del 10.9.0.1/24 dev eth0; ip addr replace 10.9.0.51/24 dev eth0",
    );
}

#[test]
fn a_share_whose_address_changes_is_found_at_the_new_one() {
    let (network, photos) = (Neighbours::start(2), photos());
    let [host, guest] = [0, 1].map(|at| Person::at(&network.machines[at]));
    let shared = host.share(photos.path(), &["--to", "sophia", "--to", "boss"]);
    let [(sophia, _), (boss, _)] = [" for sophia", " for boss"].map(|person| code(&shared, person));
    assert!(guest.ok(&["ls", &format!("{sophia}:/")]).contains("trip"));
    move_away(&host);
    until("it is announced there", || guest.addresses(&["--for", "1s"]) == ["10.9.0.51:7049"]);
    // Who was there is led there, too, from the address that is kept.
    for code in [sophia, boss] {
        let begun = Instant::now();
        assert!(guest.ok(&["ls", &format!("{code}:/")]).contains("trip"));
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    }
}

/// Whoever has typed the address is led on as well as whoever has typed the code alone.
#[test]
fn copies_under_way_follow_a_share_to_another_address() {
    let (network, photos) = (Neighbours::start(2), photos());
    fs::write(photos.path().join("film"), noise(16 << 20)).unwrap();
    let [host, guest] = [0, 1].map(|at| Person::at(&network.machines[at]));
    let shared = host.share(photos.path(), &["--to", "sophia", "--to", "boss"]);
    let (sophia, boss) = (code(&shared, " for sophia").0, shared.place(" for boss"));
    let copies = [(sophia, "by-code"), (boss, "by-address")].map(|(place, name)| {
        let mut copying =
            guest.nfsw(&["cp", "--bwlimit", "4M", &format!("{place}:/film"), &guest.path(name)]);
        (copying.stderr(Stdio::piped()).spawn().unwrap(), name)
    });
    let begun =
        |name: &str| fs::metadata(guest.path(&format!(".{name}.nfsw-part"))).is_ok_and(|it| it.blocks() > 0);
    until("both copies have begun", || copies.iter().all(|(_, name)| begun(name)));
    move_away(&host);
    assert!(
        copies.iter().all(|(_, name)| !Path::new(&guest.path(name)).exists()),
        "the address changed too late"
    );
    let moved = Instant::now();
    for (copying, name) in copies {
        let output = copying.wait_with_output().unwrap();
        assert!(output.status.success(), "{name}: {}", stderr(&output));
        assert!(fs::read(guest.path(name)).unwrap() == fs::read(photos.path().join("film")).unwrap());
    }
    // It is looked for after 10 s, and once more 10 s later if it was not announced yet; half a copy takes 4 s.
    assert!(moved.elapsed() < Duration::from_secs(30), "{:?}", moved.elapsed());
}

/// Whoever is asked for the address of a name says nothing.
#[test]
fn a_mount_whose_name_is_looked_up_in_vain_ends_when_it_is_told_to() {
    const NAME_SERVER: &str = r#"$socket = IO::Socket::INET->new(Proto => "udp", LocalAddr => "127.0.0.1:53") or die;
        $| = 1; print "ready\n"; sleep 1000"#;
    let machine = Machine::start();
    let person = Person::at(&machine);
    fs::write(person.path("resolv.conf"), "nameserver 127.0.0.1\n".repeat(3)).unwrap();
    machine.run(&format!("mount --bind {} /etc/resolv.conf", person.path("resolv.conf")));
    let mut silent = person.command("perl");
    silent.args(["-MIO::Socket::INET", "-e", NAME_SERVER]).stdout(Stdio::piped());
    let mut silent = silent.spawn().unwrap();
    assert_eq!(first_line(&mut silent), "ready\n");
    let directory = person.path("view");
    fs::create_dir(&directory).unwrap();
    for directory in [Some(&directory), None] {
        let mut mounting = person.command(env!("CARGO_BIN_EXE_nfsw"));
        mounting.args(["mount", "7-velvet-cactus@nas.example.org:/"]).args(directory).stderr(Stdio::null());
        let mut mounting = mounting.spawn().unwrap();
        std::thread::sleep(Duration::from_secs(2));
        assert!(mounting.try_wait().unwrap().is_none(), "the name is looked up");
        kill_process(Pid::from_child(&mounting), Signal::TERM).unwrap();
        let told = Instant::now();
        assert!(!mounting.wait().unwrap().success());
        assert!(told.elapsed() < Duration::from_secs(2), "{:?}", told.elapsed());
    }
    silent.kill().unwrap();
    silent.wait().unwrap();
}

/// Whoever sends records of services that nobody looks for has them kept for as long as they say.
#[test]
fn what_strangers_send_takes_little_memory_and_the_share_is_found_still() {
    const FLOOD: &str = r#"use Socket; socket(S, PF_INET, SOCK_DGRAM, 0) or die; bind(S, sockaddr_in(5353, INADDR_ANY)) or die;
        my $to = sockaddr_in(5353, inet_aton("224.0.0.251"));
        for my $packet (1..16000) {
            my $message = pack("n6", 0, 0x8400, 0, 15, 0, 0);
            for my $record (1..15) {
                $message .= pack("(C/a)4 C n2 N n4 (C/a)2 C", "printer-on-floor-$packet-room-$record", "_ipp", "_tcp", "local", 0,
                    33, 0x8001, 4500, 15, 0, 0, 631, "h", "local", 0);
            }
            send(S, $message, 0, $to) or die;
            select(undef, undef, undef, 0.001);
        }"#;
    let (network, photos) = (Neighbours::start(3), photos());
    let [host, stranger, guest] = [0, 1, 2].map(|at| Person::at(&network.machines[at]));
    let shared = host.share(photos.path(), &[]);
    let memory = || -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", shared.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
    };
    let before = memory();
    stranger.machine.run("ip route add 224.0.0.0/4 dev eth0");
    let sent = stranger.command("perl").args(["-e", FLOOD]).stderr(Stdio::piped()).output().unwrap();
    assert!(sent.status.success(), "{}", stderr(&sent));
    let grown = memory() - before;
    assert!(grown < 64, "from {before} MiB by {grown} MiB");
    until("it is found", || guest.addresses(&["--for", "1s"]) == ["10.9.0.1:7049"]);
}

#[test]
fn without_multicast_the_address_leads_to_a_share_and_it_is_said() {
    let (network, photos) = (Neighbours::start(2), photos());
    let [host, guest] = [0, 1].map(|at| Person::at(&network.machines[at]));
    host.machine.run("ip link set eth0 multicast off");
    let shared = host.share(photos.path(), &["--to", "sophia", "--to", "boss"]);
    let [(sophia, address), (boss, _)] = [" for sophia", " for boss"].map(|person| code(&shared, person));
    assert!(!shared.said().contains(&format!("{sophia}:/")), "{}", shared.said());
    let text = guest.fails(3, &["ls", &format!("{sophia}:/")]);
    assert!(
        text.contains(&format!("type the address that nfsw share has printed: {sophia}@HOST:PORT:/")),
        "{text}"
    );
    assert!(guest.finds(&["--for", "500ms"]).is_empty());
    let begun = Instant::now();
    assert!(guest.ok(&["ls", &format!("{sophia}@{address}:/")]).contains("trip"));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    // It is known now, by its address.
    assert!(guest.ok(&["ls", &format!("{sophia}:/")]).contains("trip"));
    assert_eq!(guest.finds(&[])[0]["found"], serde_json::json!(["known"]));
    guest.machine.run("ip link set eth0 multicast off");
    let text = guest.fails(3, &["ls", &format!("{boss}:/")]);
    assert!(text.contains("no share can be looked for: no network interface here has multicast"), "{text}");
    let said = end(shared);
    assert!(said.contains("others find this share by its address only: no network interface"), "{said}");
}

#[test]
fn where_another_program_has_the_port_the_address_leads_to_a_share() {
    let (network, photos) = (Neighbours::start(2), photos());
    let [host, guest] = [0, 1].map(|at| Person::at(&network.machines[at]));
    let mut other = host.command(env!("CARGO_BIN_EXE_nfsw"));
    other.args(["serve", "--for", "60s", "--listen", "0.0.0.0:5353", &host.path("")]).stdout(Stdio::piped());
    let mut other = other.spawn().unwrap();
    assert!(first_line(&mut other).starts_with("serving"));
    let shared = host.share(photos.path(), &[]);
    let (code, address) = code(&shared, "");
    assert!(!shared.said().contains(&format!("{code}:/")), "{}", shared.said());
    assert!(guest.ok(&["ls", &format!("{code}@{address}:/")]).contains("trip"));
    let said = end(shared);
    assert!(said.contains("its address only: multicast DNS cannot be used: nothing could be sent"), "{said}");
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn interfaces_that_lead_to_nobody_are_left_alone_unless_they_are_named() {
    let (network, photos) = (Neighbours::start(2), photos());
    let [host, guest] = [0, 1].map(|at| Person::at(&network.machines[at]));
    host.machine.run(&format!(
        "ip link add docker0 type veth peer name eth1 netns {} && ip addr add 10.10.0.1/24 dev docker0 && ip link set docker0 up",
        guest.machine.id()
    ));
    guest.machine.run("ip addr add 10.10.0.2/24 dev eth1 && ip link set eth1 up");
    for (options, on_eth0, on_eth1) in [
        (&[][..], &["10.9.0.1:7049"][..], &[][..]),
        (&["--interface", "docker0"], &[], &["10.10.0.1:7049"]),
        (&["--interface", "docker0", "--interface", "eth0"], &["10.9.0.1:7049"], &["10.10.0.1:7049"]),
        (&["--listen", "10.9.0.1:7049"], &["10.9.0.1:7049"], &[]),
        (&["--no-announce"], &[], &[]),
    ] {
        let shared = host.share(photos.path(), options);
        for (interface, expected) in [("eth0", on_eth0), ("eth1", on_eth1)] {
            let found = guest.addresses(&["--for", "1500ms", "--interface", interface]);
            assert_eq!(found, expected, "{options:?} on {interface}");
        }
        end(shared);
    }
    for command in [&["share", "."][..], &["find"]] {
        let text = host.fails(2, &[command, &["--interface", "wlan9"]].concat());
        assert!(
            text.contains("there is no network interface wlan9 (there are: docker0, eth0, lo)"),
            "{text}"
        );
    }
}

#[test]
fn a_share_is_mounted_by_its_code_alone() {
    let (network, photos) = (Neighbours::start(2), photos());
    let [host, guest] = [0, 1].map(|at| Person::at(&network.machines[at]));
    let shared = host.share(photos.path(), &[]);
    let (code, _) = code(&shared, "");
    guest.ok(&["mount", "--background", "--idle", "60s", &format!("{code}:/")]);
    // Where all who mount it have it.
    let (home, original) = (guest.path("home"), photos.path().display());
    guest.machine.run(&format!("cmp {home}/nfsw/*/trip/file {original}/trip/file"));
    guest.machine.run(&format!("{} umount {home}/nfsw/*", env!("CARGO_BIN_EXE_nfsw")));
}
