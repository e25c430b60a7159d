//! What `nfsw mount --via nfs` serves, as the Linux kernel's NFS client sees it.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use private_servers::{knfsd::Client, nfsw};
use rustix::process::{Pid, Signal, kill_process};

/// A process that is killed at the end.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts `nfsw`, whose first line on standard output or error ends in a port.
fn start(arguments: &[&str]) -> (Running, u16) {
    let mut process =
        Command::new(nfsw()).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (out, err) = (process.stdout.take().unwrap(), process.stderr.take().unwrap());
    let process = Running(process);
    let is_server = arguments[0] == "serve";
    let mut said: Box<dyn BufRead + Send> =
        if is_server { Box::new(BufReader::new(out)) } else { Box::new(BufReader::new(err)) };
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let port = line
        .split("127.0.0.1:")
        .nth(1)
        .map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap());
    let port = port.unwrap_or_else(|| panic!("no port in: {line}"));
    // Whatever it says later must not fill the pipe.
    thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    (process, port)
}

fn view(port: u16, server: u16) -> (Running, u16) {
    let (listen, target) =
        (format!("127.0.0.1:{port}"), format!("nfs://127.0.0.1:{server}/?mountport={server}"));
    start(&["mount", "--via", "nfs", "--wait", "3s", "--listen", &listen, &target])
}

/// Prints the sums of all files below a directory, in the guest as here.
const SUMS: &str = "find . -type f -exec md5sum {} + | sort";

#[test]
fn the_kernels_client_reads_a_view_through_changes_disconnections_and_a_restart() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path();
    fs::create_dir_all(root.join("deep/deeper")).unwrap();
    let large: Vec<u8> =
        (0..3_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (name, content) in [
        ("nothing", &[][..]),
        ("deep/small", b"text"),
        ("deep/deeper/large", &large),
        ("other", &large[..9000]),
    ] {
        fs::write(root.join(name), content).unwrap();
    }
    std::os::unix::fs::symlink("deep/small", root.join("link")).unwrap();
    for number in 0..300 {
        fs::write(root.join(format!("deep/number {number}.txt")), number.to_string()).unwrap();
    }
    let (server, server_port) = start(&["serve", "--listen", "127.0.0.1:0", root.to_str().unwrap()]);
    let (front, port) = view(0, server_port);
    // Writing is left to the server to refuse.
    let guest = Client::mount(port, "rw,soft,timeo=80,retrans=1,acdirmin=1,acdirmax=1").unwrap();
    let here = Command::new("sh").args(["-c", SUMS]).env("LC_ALL", "C").current_dir(root).output().unwrap();
    assert_eq!(guest.shell(SUMS).unwrap(), String::from_utf8(here.stdout).unwrap());
    assert_eq!(guest.shell("ls deep | wc -l; cat link").unwrap(), "302\ntext");

    // Every open has what was closed before on the server; while a busy machine makes that look silent, a little later.
    for number in 0..8 {
        let text = format!("{number} ").repeat(1 + number % 3);
        fs::write(root.join("other"), &text).unwrap();
        let mut tries = 0;
        while guest.shell("cat other").unwrap() != text {
            tries += 1;
            assert!(tries < 30, "the version before {text}");
            thread::sleep(Duration::from_secs(1));
        }
    }
    for script in ["echo x >>other", "rm other", "mkdir new", "mv other new", "touch new"] {
        let error = guest.shell(script).unwrap_err().to_string();
        assert!(error.contains("Read-only file system"), "{script}: {error}");
    }

    // The front is killed and started again: a shell that works in a directory does not notice.
    guest
        .shell(
            "rm -f /run/go /run/out
             ( cd deep/deeper; while [ ! -e /run/go ]; do sleep 0.1; done; ls; md5sum large ) >/run/out 2>&1 </dev/null &",
        )
        .unwrap();
    drop(front);
    let (front, _) = view(port, server_port);
    let there = guest
        .shell(
            "echo 3 >/proc/sys/vm/drop_caches; touch /run/go
             for try in $(seq 100); do grep -q '  large' /run/out && break; sleep 1; done
             cat /run/out; md5sum deep/deeper/large",
        )
        .unwrap();
    let mut lines = there.lines();
    assert_eq!(lines.next(), Some("large"), "{there}");
    let sums: Vec<&str> = lines.filter_map(|line| line.split(' ').next()).collect();
    assert!(sums.len() == 2 && sums[0] == sums[1] && sums[0].len() == 32, "{there}");

    // The server falls silent: what was read is there, the rest ends in an error.
    guest.shell("cat link; ls -l . deep >/dev/null").unwrap();
    let signal = |signal| kill_process(Pid::from_child(&server.0), signal).unwrap();
    signal(Signal::STOP);
    let said = guest.shell(
        "echo 3 >/proc/sys/vm/drop_caches; cat link; ls deep | wc -l; md5sum deep/deeper/large | wc -l",
    );
    assert_eq!(said.unwrap(), "text302\n1\n");
    let error = guest.shell("cat 'deep/number 7.txt'").unwrap_err().to_string();
    assert!(error.contains("I/O error") || error.contains("Input/output error"), "{error}");
    signal(Signal::CONT);
    thread::sleep(Duration::from_millis(200));
    guest
        .shell("for try in 1 2 3 4 5 6 7 8 9 10; do cat 'deep/number 7.txt' && exit; sleep 1; done; exit 1")
        .unwrap();
    guest.unmount().unwrap();
    drop((front, server));
}
