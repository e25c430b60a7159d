use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::PathBuf,
};

use tempfile::TempDir;

use super::*;

const NOW: nfstime3 = nfstime3 { seconds: 0, nseconds: 0 };

/// An export with a neighbour that must stay out of reach.
struct Host {
    _top: TempDir,
    export: PathBuf,
    outside: PathBuf,
    directory: Directory,
}

fn host(config: DirectoryConfig) -> Host {
    let top = tempfile::tempdir().unwrap();
    let (export, outside) = (top.path().join("export"), top.path().join("outside"));
    fs::create_dir(&export).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    Host { directory: Directory::open(&export, config).unwrap(), _top: top, export, outside }
}

fn quick() -> DirectoryConfig {
    DirectoryConfig { metadata: Metadata::Cached, ..DirectoryConfig::default() }
}

fn vfs(host: &mut Host) -> &mut dyn Vfs {
    &mut host.directory
}

fn name(bytes: &[u8]) -> Name<'_> {
    Name::new(bytes).unwrap()
}

#[test]
fn a_link_that_points_outside_is_not_followed() {
    let mut host = host(quick());
    symlink(&host.outside, host.export.join("dir")).unwrap();
    symlink(host.outside.join("secret"), host.export.join("file")).unwrap();
    let vfs = vfs(&mut host);
    for path in [&b"dir/secret"[..], b"dir/new/file"] {
        assert_eq!(vfs.read_file(path), Err(Status::NOTDIR));
        assert_eq!(vfs.write_file(NOW, path, b"x"), Err(Status::NOTDIR));
    }
    assert_eq!(vfs.read_file(b"file"), Err(Status::INVAL));
    assert_eq!(vfs.write_file(NOW, b"file", b"x"), Err(Status::INVAL));
    let link = vfs.resolve(b"file").unwrap();
    let truncation = sattr3 { size: Nfs3Option::Some(0), mode: Nfs3Option::Some(0o777), ..sattr3::default() };
    assert_eq!(vfs.set_attributes(NOW, link, &truncation), Err(Status::INVAL));
    let mode = sattr3 {
        mode: Nfs3Option::Some(0o777),
        mtime: set_mtime::SET_TO_CLIENT_TIME(NOW),
        ..sattr3::default()
    };
    vfs.set_attributes(NOW, link, &mode).unwrap();
    let secret = fs::metadata(host.outside.join("secret")).unwrap();
    assert_eq!((secret.len(), secret.mode() & 0o777), (6, 0o644));
    assert_ne!(secret.mtime(), 0, "the link's time was set, not the file's");
}

#[test]
fn the_way_up_ends_at_the_export() {
    let mut host = host(quick());
    let vfs = vfs(&mut host);
    assert_eq!(vfs.parent(ROOT), Ok(ROOT));
    let inner = vfs.make(NOW, b"a/b", NewObject::Directory).unwrap();
    let mut node = inner;
    for _ in 0..5 {
        node = vfs.parent(node).unwrap();
    }
    assert_eq!(node, ROOT);
}

#[test]
fn a_directory_replaced_by_a_link_leads_nowhere() {
    let mut host = host(quick());
    let inner = vfs(&mut host).make(NOW, b"dir/inner", NewObject::Directory).unwrap();
    fs::create_dir(host.outside.join("inner")).unwrap();
    fs::rename(host.export.join("dir"), host.outside.join("dir")).unwrap();
    symlink(&host.outside, host.export.join("dir")).unwrap();
    let vfs = vfs(&mut host);
    assert_eq!(
        vfs.create(NOW, inner, name(b"file"), NewObject::File, &sattr3::default(), Owner::default()),
        Err(Status::STALE)
    );
    assert_eq!(vfs.lookup(inner, name(b"x")), Err(Status::STALE));
}

#[test]
fn a_directory_moved_out_of_the_export_is_gone() {
    let mut host = host(quick());
    let directory = vfs(&mut host).make(NOW, b"dir", NewObject::Directory).unwrap();
    vfs(&mut host).write_file(NOW, b"dir/file", b"x").unwrap();
    fs::rename(host.export.join("dir"), host.outside.join("dir")).unwrap();
    let vfs = vfs(&mut host);
    assert_eq!(vfs.attributes(directory).unwrap_err(), Status::STALE);
    assert_eq!(vfs.remove(NOW, directory, name(b"file")), Err(Status::STALE));
    assert!(host.outside.join("dir/file").exists());
}

#[test]
fn nothing_leads_out_while_a_directory_and_a_link_change_places() {
    let mut host = host(quick());
    let (dir, aside) = (host.export.join("dir"), host.export.join("aside"));
    vfs(&mut host).write_file(NOW, b"dir/secret", b"public").unwrap();
    let inside = vfs(&mut host).resolve(b"dir").unwrap();
    let file = vfs(&mut host).resolve(b"dir/secret").unwrap();
    symlink(&host.outside, &aside).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let reached = std::thread::scope(|scope| {
        scope.spawn(|| {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                renameat_with(CWD, &dir, CWD, &aside, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let vfs = vfs(&mut host);
        let mut reached = 0;
        for round in 0..3000 {
            if let Ok(bytes) = vfs.read_file(b"dir/secret") {
                assert_eq!(bytes, b"public");
                reached += 1;
            }
            let mut buffer = Vec::new();
            if vfs.read(NOW, file, 0, 99, &mut buffer).is_ok() {
                assert_eq!(buffer, b"public");
            }
            let _ = vfs.write(NOW, file, 0, b"public", stable_how::UNSTABLE);
            let (made, moved) = (format!("made {round}"), format!("moved {round}"));
            let (made, moved) = (name(made.as_bytes()), name(moved.as_bytes()));
            let attributes = sattr3::default();
            let _ = vfs.create(NOW, inside, made, NewObject::File, &attributes, Owner::default());
            let _ = vfs.rename(NOW, (inside, made), (inside, moved));
            let _ = vfs.remove(NOW, inside, moved);
            let mode = sattr3 { mode: Nfs3Option::Some(0o600), ..attributes };
            let _ = vfs.set_attributes(NOW, file, &mode);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        reached
    });
    assert!(reached > 0, "the directory is there half of the time");
    let outside: Vec<_> = fs::read_dir(&host.outside).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(outside, ["secret"]);
    let secret = host.outside.join("secret");
    assert_eq!(fs::read(&secret).unwrap(), b"secret");
    assert_eq!(fs::metadata(&secret).unwrap().mode() & 0o777, 0o644);
}

#[test]
#[cfg_attr(portable_only, ignore = "needs times of birth, which fstat of Linux does not tell")]
fn a_handle_of_a_file_outside_is_stale() {
    let mut host = host(quick());
    fs::write(host.export.join("file"), "inside").unwrap();
    // What the handle would be if the export were one directory up.
    let top = host.export.parent().unwrap();
    let mut above = Directory::open(top, quick()).unwrap();
    let vfs_above: &mut dyn Vfs = &mut above;
    let forged = [&b"outside/secret"[..], b"outside"].map(|path| vfs_above.resolve(path).unwrap());
    let honest = vfs_above.resolve(b"export/file").unwrap();
    let vfs = vfs(&mut host);
    for node in forged {
        assert_eq!(vfs.attributes(node).unwrap_err(), Status::STALE);
        assert_eq!(vfs.read(NOW, node, 0, 9, &mut Vec::new()).unwrap_err(), Status::STALE);
        assert_eq!(vfs.lookup(node, name(b"secret")), Err(Status::STALE));
        assert_eq!(vfs.write(NOW, node, 0, b"x", stable_how::UNSTABLE).unwrap_err(), Status::STALE);
    }
    assert_eq!(vfs.attributes(honest).unwrap().size, 6, "the numbers are made alike");
}

#[test]
fn handles_survive_renames_on_the_host_within_a_directory() {
    let mut host = host(quick());
    let file = vfs(&mut host).write_file(NOW, b"dir/file", b"contents").unwrap();
    host.directory.lock().open_files.close(file);
    fs::rename(host.export.join("dir/file"), host.export.join("dir/renamed")).unwrap();
    fs::rename(host.export.join("dir"), host.export.join("other")).unwrap();
    let mut buffer = Vec::new();
    vfs(&mut host).read(NOW, file, 0, 99, &mut buffer).unwrap();
    assert_eq!(buffer, b"contents");
}

#[test]
fn a_file_replaced_on_the_host_is_another_file() {
    let mut host = host(quick());
    let file = vfs(&mut host).write_file(NOW, b"file", b"old").unwrap();
    fs::write(host.export.join("new"), "new").unwrap();
    fs::rename(host.export.join("new"), host.export.join("file")).unwrap();
    let vfs = vfs(&mut host);
    assert_eq!(vfs.attributes(file).unwrap_err(), Status::STALE);
    assert_eq!(vfs.read_file(b"file").unwrap(), b"new");
}

#[test]
fn a_handle_survives_the_removal_of_one_of_its_names() {
    let mut host = host(quick());
    let file = vfs(&mut host).write_file(NOW, b"one", b"contents").unwrap();
    let directory = vfs(&mut host).make(NOW, b"dir", NewObject::Directory).unwrap();
    let vfs = vfs(&mut host);
    vfs.link(NOW, file, directory, name(b"two")).unwrap();
    vfs.remove(NOW, ROOT, name(b"one")).unwrap();
    assert_eq!(vfs.attributes(file).unwrap().nlink, 1);
    vfs.remove(NOW, directory, name(b"two")).unwrap();
    assert_eq!(vfs.attributes(file).unwrap_err(), Status::STALE);
}

#[test]
fn a_file_is_where_it_was_moved_to() {
    let mut host = host(quick());
    let file = vfs(&mut host).write_file(NOW, b"one", b"contents").unwrap();
    let directory = vfs(&mut host).make(NOW, b"dir", NewObject::Directory).unwrap();
    let vfs = vfs(&mut host);
    assert_eq!(vfs.path(file).unwrap(), b"one");
    vfs.rename(NOW, (ROOT, name(b"one")), (directory, name(b"two"))).unwrap();
    assert_eq!(vfs.path(file).unwrap(), b"dir/two");
    assert_eq!(vfs.path(ROOT).unwrap(), b"");
    vfs.remove(NOW, directory, name(b"two")).unwrap();
    assert_eq!(vfs.path(file), None);
}

#[test]
fn who_asks_for_a_path_waits_for_no_call() {
    let mut host = host(quick());
    let file = vfs(&mut host).write_file(NOW, b"file", b"").unwrap();
    let held = host.directory.lock();
    assert_eq!(host.directory.path(file), None);
    drop(held);
    assert_eq!(host.directory.path(file).unwrap(), b"file");
}

#[test]
fn a_named_pipe_does_not_hold_the_server_up() {
    let mut host = host(quick());
    let vfs = vfs(&mut host);
    let pipe = vfs.make(NOW, b"pipe", NewObject::Fifo).unwrap();
    assert_eq!(vfs.read(NOW, pipe, 0, 1, &mut Vec::new()), Err(Status::INVAL));
    let device = vfs.make(NOW, b"null", NewObject::CharacterDevice(1, 3));
    assert_eq!(device, Err(Status::NOTSUPP));
}

#[test]
fn directories_keep_and_pass_on_the_set_group_id_bit() {
    let mut host = host(quick());
    let shared = vfs(&mut host).make(NOW, b"shared", NewObject::Directory).unwrap();
    let mode = |bits| sattr3 { mode: Nfs3Option::Some(bits), ..sattr3::default() };
    vfs(&mut host).set_attributes(NOW, shared, &mode(0o2775)).unwrap();
    let make = |host: &mut Host, called: &str, bits| {
        let (object, owner) = (NewObject::Directory, Owner::default());
        vfs(host).create(NOW, shared, name(called.as_bytes()), object, &mode(bits), owner).unwrap();
    };
    make(&mut host, "heir", 0o755);
    make(&mut host, "sticky", 0o3777);
    for (path, bits) in [("shared", 0o2775), ("shared/heir", 0o2755), ("shared/sticky", 0o3777)] {
        assert_eq!(fs::metadata(host.export.join(path)).unwrap().mode() & 0o7777, bits, "{path}");
    }
}

#[test]
fn special_mode_bits_of_files_and_other_owners_are_not_granted() {
    let mut host = host(quick());
    let file = vfs(&mut host).write_file(NOW, b"file", b"").unwrap();
    let mode = sattr3 { mode: Nfs3Option::Some(0o6755), ..sattr3::default() };
    vfs(&mut host).set_attributes(NOW, file, &mode).unwrap();
    let present = fs::metadata(host.export.join("file")).unwrap();
    assert_eq!(present.permissions().mode() & 0o7777, 0o755);
    let owner = sattr3 { uid: Nfs3Option::Some(present.uid() + 1), ..sattr3::default() };
    assert_eq!(vfs(&mut host).set_attributes(NOW, file, &owner), Err(Status::PERM));
    let same = sattr3 { uid: Nfs3Option::Some(present.uid()), ..sattr3::default() };
    vfs(&mut host).set_attributes(NOW, file, &same).unwrap();
}

#[test]
fn a_read_only_export_says_so() {
    let host = host(DirectoryConfig { access: Access::ReadOnly, ..quick() });
    fs::write(host.export.join("file"), "data").unwrap();
    let mut bench = crate::testing::Bench::with(crate::ServiceConfig::default(), host.directory);
    let root = bench.root();
    let file = bench.lookup(&root, b"file").unwrap();
    assert_eq!(bench.read(&file, 0, 9).unwrap().0, b"data");
    let error = bench.write(&file, 0, b"x", stable_how::UNSTABLE).unwrap_err();
    assert_eq!(error, Status::ROFS);
    assert_eq!(bench.mkdir(&root, b"dir"), Err(Status::ROFS));
}

#[test]
fn old_handles_go_stale_when_there_are_too_many() {
    let mut host = host(DirectoryConfig { max_nodes: 4, max_open_files: 1, ..quick() });
    let vfs = vfs(&mut host);
    let first = vfs.write_file(NOW, b"dir/first", b"").unwrap();
    let directory = vfs.resolve(b"dir").unwrap();
    for path in [&b"dir/second"[..], b"dir/third", b"dir/fourth"] {
        vfs.write_file(NOW, path, b"contents").unwrap();
    }
    assert_eq!(vfs.attributes(first).unwrap_err(), Status::STALE);
    vfs.attributes(directory).unwrap();
    assert_eq!(vfs.read_file(b"dir/fourth").unwrap(), b"contents");
    vfs.resolve(b"dir/first").unwrap();
}

#[test]
fn a_listing_is_the_same_before_and_after_a_restart() {
    let list = |directory: &mut Directory, after| {
        let mut lines = Vec::new();
        let _ = directory
            .list(ROOT, after, Detail::Names, &mut |entry| {
                lines.push((entry.name.to_vec(), entry.cookie));
                ControlFlow::Continue(())
            })
            .unwrap();
        lines
    };
    let mut host = host(quick());
    for index in 0..20 {
        fs::write(host.export.join(format!("file {index}")), "").unwrap();
    }
    let before = list(&mut host.directory, 0);
    let mut again = Directory::open(&host.export, quick()).unwrap();
    assert_eq!(list(&mut again, before[9].1), before[10..]);
}

#[test]
fn everything_works_with_metadata_flushed_too() {
    let mut host = host(DirectoryConfig::default());
    let vfs = vfs(&mut host);
    let directory = vfs.make(NOW, b"dir", NewObject::Directory).unwrap();
    let file = vfs.write_file(NOW, b"dir/file", b"data").unwrap();
    let mode = sattr3 { mode: Nfs3Option::Some(0o600), ..sattr3::default() };
    vfs.set_attributes(NOW, file, &mode).unwrap();
    vfs.set_attributes(NOW, directory, &mode).unwrap();
    vfs.rename(NOW, (directory, name(b"file")), (ROOT, name(b"moved"))).unwrap();
    assert_eq!(vfs.read_file(b"moved").unwrap(), b"data");
    vfs.remove(NOW, ROOT, name(b"moved")).unwrap();
    vfs.remove_directory(NOW, ROOT, name(b"dir")).unwrap();
    assert_eq!(fs::read_dir(&host.export).unwrap().count(), 0);
}

#[test]
fn a_missing_directory_cannot_be_exported() {
    let error = Directory::open("/nonexistent/export", quick()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
#[cfg_attr(portable_only, ignore = "needs times of birth, which fstat of Linux does not tell")]
fn handles_survive_the_server() {
    let mut host = host(quick());
    let deep = vfs(&mut host).write_file(NOW, b"a/b/c/file", b"contents").unwrap();
    let removed = vfs(&mut host).write_file(NOW, b"a/removed", b"x").unwrap();
    let directory = vfs(&mut host).resolve(b"a/b").unwrap();
    let instance = host.directory.instance().expect("the host tells when files were made");
    fs::rename(host.export.join("a/b/c"), host.export.join("elsewhere")).unwrap();
    fs::remove_file(host.export.join("a/removed")).unwrap();
    host.directory = Directory::open(&host.export, quick()).unwrap();
    assert_eq!(host.directory.instance(), Some(instance));
    let vfs = vfs(&mut host);
    let mut buffer = Vec::new();
    vfs.read(NOW, deep, 0, 99, &mut buffer).unwrap();
    assert_eq!(buffer, b"contents");
    assert_eq!(vfs.resolve(b"elsewhere/file"), Ok(deep));
    assert_eq!(vfs.attributes(removed).unwrap_err(), Status::STALE);
    assert_eq!(vfs.attributes(NodeId(7)).unwrap_err(), Status::STALE);
    vfs.create(NOW, directory, name(b"new"), NewObject::File, &sattr3::default(), Owner::default()).unwrap();
    assert!(host.export.join("a/b/new").exists());
}

#[test]
#[cfg_attr(portable_only, ignore = "needs times of birth, which fstat of Linux does not tell")]
fn looking_for_a_file_in_a_large_export_lets_others_be_served() {
    let mut host = host(quick());
    for number in 0..9000 {
        fs::write(host.export.join(number.to_string()), "").unwrap();
    }
    let file = vfs(&mut host).write_file(NOW, b"dir/file", b"x").unwrap();
    host.directory = Directory::open(&host.export, quick()).unwrap();
    let vfs = vfs(&mut host);
    assert_eq!(vfs.attributes(file).unwrap_err(), Status::JUKEBOX);
    assert_eq!(vfs.attributes(file).unwrap().size, 1);
}

#[test]
fn a_file_in_the_place_of_a_removed_one_is_another_file() {
    let mut host = host(quick());
    let vfs = vfs(&mut host);
    for _ in 0..200 {
        let old = vfs.write_file(NOW, b"file", b"old").unwrap();
        vfs.remove(NOW, ROOT, name(b"file")).unwrap();
        assert_ne!(vfs.write_file(NOW, b"file", b"new").unwrap(), old);
    }
}

#[test]
#[cfg_attr(portable_only, ignore = "needs times of birth, which fstat of Linux does not tell")]
fn an_export_of_another_directory_is_another_instance() {
    let (one, other) = (host(quick()), host(quick()));
    assert_ne!(one.directory.instance(), other.directory.instance());
}

#[test]
fn several_threads_work_at_the_same_time() {
    let mut host = host(DirectoryConfig { max_open_files: 2, ..quick() });
    let vfs: &dyn Vfs = vfs(&mut host);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            scope.spawn(move || {
                let path = |number: u8, name: &str| format!("dir{thread}/{name}{number}").into_bytes();
                for number in 0..20 {
                    let contents = vec![thread * 20 + number; 10_000];
                    let file = vfs.write_file(NOW, &path(number, "file"), &contents).unwrap();
                    let directory = vfs.resolve(format!("dir{thread}").as_bytes()).unwrap();
                    let (old, new) = (path(number, "file"), path(number, "new"));
                    let last = |path: &[u8]| path.split(|&byte| byte == b'/').next_back().unwrap().to_vec();
                    let (old, new) = (last(&old), last(&new));
                    vfs.rename(NOW, (directory, name(&old)), (directory, name(&new))).unwrap();
                    assert_eq!(vfs.attributes(file).unwrap().size, 10_000);
                    vfs.commit(file, 0, 0).unwrap();
                    assert!(vfs.read_file(&path(number, "new")).unwrap() == contents);
                    if number % 2 == 0 {
                        vfs.remove(NOW, directory, name(&new)).unwrap();
                    }
                }
            });
        }
    });
    for thread in 0..4 {
        assert_eq!(fs::read_dir(host.export.join(format!("dir{thread}"))).unwrap().count(), 10);
    }
}

/// How this process has a file open: the access modes of its descriptors (proc_pid_fdinfo(5)), in their order.
#[cfg(target_os = "linux")]
fn modes_of(path: &Path) -> Vec<u32> {
    let mut modes = Vec::new();
    for entry in fs::read_dir("/proc/self/fd").unwrap() {
        let entry = entry.unwrap();
        // Others are closed meanwhile.
        if fs::read_link(entry.path()).is_ok_and(|it| it == path) {
            let info = Path::new("/proc/self/fdinfo").join(entry.file_name());
            let info = fs::read_to_string(info).unwrap();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
            modes.push(u32::from_str_radix(flags.trim(), 8).unwrap() & 0o3);
        }
    }
    modes
}

#[test]
#[cfg(target_os = "linux")]
fn a_file_is_not_open_for_writing_unless_it_is_written() {
    const READ: u32 = 0;
    const READ_AND_WRITE: u32 = 2;
    let mut host = host(quick());
    let path = host.export.join("program");
    fs::write(&path, "runs").unwrap();
    let vfs = vfs(&mut host);
    assert_eq!(vfs.read_file(b"program").unwrap(), b"runs");
    assert_eq!(modes_of(&path), [READ]);
    for _ in 0..2 {
        let node = vfs.write_file(NOW, b"program", b"runs better").unwrap();
        assert_eq!(modes_of(&path), [READ_AND_WRITE]);
        // Reading it does not keep it open for writing.
        let rest = |vfs: &mut dyn Vfs| {
            vfs.rest();
            vfs.read(NOW, node, 0, 99, &mut Vec::new()).unwrap();
            modes_of(&path)
        };
        assert_eq!((rest(vfs), rest(vfs)), (vec![READ_AND_WRITE], vec![READ]));
        fs::remove_file(&path).unwrap();
        vfs.rest();
        assert!(modes_of(&path).is_empty());
    }
}

#[test]
#[cfg(target_os = "linux")]
fn what_is_written_now_and_then_stays_open_for_writing() {
    let mut host = host(quick());
    let path = host.export.join("file");
    let vfs = vfs(&mut host);
    let node = vfs.write_file(NOW, b"file", b"").unwrap();
    for offset in 0..10 {
        vfs.write(NOW, node, offset, b"x", stable_how::UNSTABLE).unwrap();
        vfs.rest();
        assert_eq!(modes_of(&path).len(), 1);
    }
    vfs.rest();
    assert!(modes_of(&path).is_empty());
    vfs.commit(node, 0, 0).unwrap();
    assert_eq!(vfs.read_file(b"file").unwrap(), b"xxxxxxxxxx");
}

/// Something that is mounted, until the test ends.
#[cfg(target_os = "linux")]
struct Mounted(PathBuf);

#[cfg(target_os = "linux")]
impl Mounted {
    fn bind(from: &Path, to: PathBuf) -> Self {
        Self::at(to, &["--bind".as_ref(), from])
    }

    /// A file system in memory.
    fn memory(to: PathBuf) -> Self {
        Self::at(to, &["-t", "tmpfs", "none"].map(Path::new))
    }

    fn at(to: PathBuf, what: &[&Path]) -> Self {
        let mounted = std::process::Command::new("mount").args(what).arg(&to).status();
        assert!(mounted.unwrap().success(), "this test mounts a file system, so it needs root");
        Self(to)
    }
}

#[cfg(target_os = "linux")]
impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
#[cfg(target_os = "linux")]
fn what_is_bound_to_a_directory_is_another_file_system() {
    let mut host = host(quick());
    fs::create_dir_all(host.export.join("inside/deep")).unwrap();
    fs::write(host.export.join("inside/file"), "x").unwrap();
    // From outside, from inside, and the export itself.
    let sources = ["outside", "export/inside", "export"].map(|name| host.export.parent().unwrap().join(name));
    let mut views = Vec::new();
    for (number, source) in sources.iter().enumerate() {
        let place = host.export.join(format!("bound{number}"));
        fs::create_dir(&place).unwrap();
        views.push(Mounted::bind(source, place));
    }
    let paths = [
        "inside",
        "inside/file",
        "bound0",
        "bound0/secret",
        "bound1",
        "bound1/file",
        "bound2",
        "bound2/inside",
    ];
    let seen = |vfs: &mut dyn Vfs| {
        paths.map(|path| {
            let node = vfs.resolve(path.as_bytes()).unwrap();
            (node, vfs.attributes(node).unwrap().fsid)
        })
    };
    let first = seen(vfs(&mut host));
    let [inside, in_file, bound, secret, again, file, whole, below] =
        first.map(|(_, file_system)| file_system);
    let device = fs::metadata(&host.export).unwrap().dev();
    let root = vfs(&mut host).attributes(ROOT).unwrap().fsid;
    assert_eq!(root, u64::from(rustix::fs::major(device)) << 32 | u64::from(rustix::fs::minor(device)));
    assert_eq!([inside, in_file], [root; 2]);
    assert_eq!((bound, again, whole), (secret, file, below));
    let mut all = [root, bound, again, whole];
    all.sort_unstable();
    assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "{all:?}");
    // One file on two mounts has two handles, and each stays on its own.
    let nodes: std::collections::BTreeSet<_> = first.iter().map(|(node, _)| *node).collect();
    assert_eq!(nodes.len(), paths.len());
    assert!(!nodes.contains(&ROOT));
    for (node, file_system) in first {
        assert_eq!(vfs(&mut host).attributes(node).unwrap().fsid, file_system);
    }
    let mut listed = Vec::new();
    let _ = vfs(&mut host).list(ROOT, 0, Detail::Attributes, &mut |entry| {
        let (node, attributes) = entry.node.unwrap();
        listed.push((entry.name.to_vec(), node, attributes.fsid));
        ControlFlow::Continue(())
    });
    for (name, node, file_system) in listed {
        let at = paths.iter().position(|path| path.as_bytes() == name).unwrap();
        assert_eq!((node, file_system), first[at], "{}", paths[at]);
    }
    // A server that was started again.
    host.directory = Directory::open(&host.export, quick()).unwrap();
    for (node, file_system) in first {
        assert_eq!(vfs(&mut host).attributes(node).unwrap().fsid, file_system);
    }
    assert_eq!(seen(vfs(&mut host)), first);
}

#[test]
#[cfg(target_os = "linux")]
fn handles_on_another_device_within_the_export_survive_the_server() {
    let mut host = host(quick());
    let place = host.export.join("mounted");
    fs::create_dir(&place).unwrap();
    let _mounted = Mounted::memory(place.clone());
    fs::create_dir(place.join("deep")).unwrap();
    for path in ["mounted/file", "mounted/deep/file", "beside"] {
        fs::write(host.export.join(path), path).unwrap();
    }
    let paths = ["mounted", "mounted/file", "mounted/deep", "mounted/deep/file", "beside"];
    for path in paths {
        host.directory = Directory::open(&host.export, quick()).unwrap();
        let (node, before) = {
            let node = vfs(&mut host).resolve(path.as_bytes()).unwrap();
            (node, vfs(&mut host).attributes(node).unwrap())
        };
        host.directory = Directory::open(&host.export, quick()).unwrap();
        let after = vfs(&mut host).attributes(node).unwrap();
        assert_eq!((after.fsid, after.fileid), (before.fsid, before.fileid), "{path}");
    }
}
