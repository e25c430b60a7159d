//! The same through `rclone mount` over SFTP: NFS is not among its back ends. Takes the Debian packages rclone and fuse3.

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{
    Table,
    inside::{Inside, Part, use_what_is_held},
    link::{BLUETOOTH, PATTERN, pictures, run, run_with},
    quantile,
};
use crate::common::Server;

/// A program that is killed at the end.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "takes three minutes, and rclone"]
fn beside_rclone_mount() {
    let server = Server::everywhere();
    pictures(&server.path("/album"), 300, 50_000);
    let port = TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
    let _other = Running(
        Command::new("rclone")
            .args(["serve", "sftp", "--read-only", "--user", "user", "--pass", "word", "--addr"])
            .arg(format!("0.0.0.0:{port}"))
            .arg(server.path("/"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the Debian packages rclone and fuse3 are installed"),
    );
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    until("rclone serves", || TcpStream::connect(address).is_ok());
    let fades = ["--good", "14.5s", "--bad", "5500"];
    let link = [&BLUETOOTH[..], &fades, &PATTERN].concat();
    // Each has the link alone, and the same fades.
    let (ours, theirs) = thread::scope(|scope| {
        let ours = scope.spawn(|| run(&server, &link, Part::Warm));
        let theirs = scope.spawn(|| run_with(&server, &link, Part::Rclone, &port.to_string()));
        (ours.join().unwrap(), theirs.join().unwrap())
    });
    Table::begin("75 kB/s, disconnections of 5.5 s, warm: nfsw | rclone");
    let errors =
        |found: &super::link::Found| found.get("errors").map_or(0.0, |them| them.iter().sum::<f64>());
    println!("| errors | | {} | {} |", errors(&ours), errors(&theirs));
    for (name, share) in
        [("listing", 0.99), ("listing in fade", 0.99), ("first byte", 0.99), ("first byte in fade", 0.99)]
    {
        let of = |found: &super::link::Found| match found.get(name) {
            Some(values) => {
                format!("{:.1}, {:.1}, {}", quantile(values, 0.5), quantile(values, share), values.len())
            }
            None => "none".to_owned(),
        };
        println!("| {name}: median ms, p99, how many | | {} | {} |", of(&ours), of(&theirs));
    }
    assert_eq!(errors(&ours), 0.0);
}

/// Waits for something that takes a program a while.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "not within half a minute: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Mounts by rclone, keeping whole files, and uses what is held.
pub(super) fn warm(inside: &mut Inside) {
    let place = tempfile::tempdir().unwrap();
    let view = place.path().join("view");
    fs::create_dir(&view).unwrap();
    let secret = Command::new("rclone").args(["obscure", "word"]).output().unwrap().stdout;
    let secret = String::from_utf8(secret).unwrap();
    let target = format!(
        ":sftp,host={},port={},user=user,pass={}:",
        inside.host(),
        inside.options()[0],
        secret.trim()
    );
    let mounted = Running(
        Command::new("rclone")
            .args(["mount", "--read-only", "--vfs-cache-mode", "full", "--cache-dir"])
            .args([place.path().join("cache").as_path(), Path::new(&target), &view])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    until("rclone has mounted", || view.join("album").exists());
    use_what_is_held(inside, &view);
    let _ = rustix::mount::unmount(&view, rustix::mount::UnmountFlags::DETACH);
    drop(mounted);
}
