//! Mount points: how a mount ends, and what is in the way of one.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount},
    process::Signal,
};

use crate::{
    common::{command, nfsw, noise, stderr},
    faults::Faults,
    mounted::{Mount, send},
    server::Server,
};

fn bench() -> (Server, Mount) {
    let server = Server::new(Faults::default());
    server.edit(|tree| tree.create_old("file", noise(1000)));
    let mount = Mount::at(&server.url("/"), &[]);
    assert!(fs::read(mount.path("file")).unwrap() == noise(1000));
    (server, mount)
}

/// Issue 40.9. "SIGHUP leaves a dead mount."
#[test]
fn sighup_ends_the_mount() {
    let (_server, mut mount) = bench();
    mount.end(Signal::HUP);
    assert_eq!(fs::read_dir(&mount.path).expect("no dead mount is left").count(), 0);
}

/// Issue 40.9. "`umount` of a symbolic link."
#[test]
fn a_mount_is_ended_by_a_symbolic_link_to_its_directory() {
    let (_server, mut mount) = bench();
    let place = tempfile::tempdir().unwrap();
    let link = place.path().join("link");
    symlink(&mount.path, &link).unwrap();
    let output = nfsw([Path::new("umount"), &link]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(mount.process.wait().unwrap().code(), Some(0));
    assert!(link.is_symlink());
}

/// Issue 40.9. "`mount` hangs on a mount point whose process is stopped."
#[test]
fn a_mount_point_whose_process_is_stopped_is_refused_in_time() {
    let (server, mount) = bench();
    send(&mount.process, Signal::STOP);
    let begun = Instant::now();
    let mut second =
        command(["mount".as_ref(), server.url("/").as_ref(), mount.path.as_os_str()]).spawn().unwrap();
    let mut ended = None;
    while ended.is_none() && begun.elapsed() < Duration::from_secs(15) {
        ended = second.try_wait().unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    send(&mount.process, Signal::CONT);
    let _ = second.kill();
    let _ = second.wait();
    assert!(ended.is_some_and(|status| !status.success()), "{ended:?} after {:?}", begun.elapsed());
}

/// Issue 40.9. "A read-only cache directory cannot be used with `--offline`."
#[test]
fn what_is_cached_on_a_read_only_file_system_is_shown_offline() {
    let (server, mut mount) = bench();
    assert_eq!(mount.end(Signal::TERM), Some(0));
    mount_bind(&mount.cache, &mount.cache).unwrap();
    mount_remount(&mount.cache, MountFlags::BIND | MountFlags::RDONLY, "").unwrap();
    let is_mounted = mount.try_again(&server.url("/"), &["--offline"]);
    let read = fs::read(mount.path("file"));
    if is_mounted {
        mount.end(Signal::TERM);
    }
    unmount(&mount.cache, UnmountFlags::DETACH).unwrap();
    assert!(is_mounted, "{}", mount.said);
    assert!(read.unwrap() == noise(1000));
}
