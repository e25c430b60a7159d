//! A server that may open no more files. One test: the limit is the process's.

#![cfg(target_os = "linux")]

use std::fs;

use nfs_wire::Status;
use nfs_wireless_server::{Directory, DirectoryConfig, Vfs, nfs3_types::nfs3::nfstime3};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const NOW: nfstime3 = nfstime3 { seconds: 1, nseconds: 0 };

#[test]
fn a_file_of_an_earlier_server_is_not_gone_because_there_are_no_descriptors() {
    let export = tempfile::tempdir().unwrap();
    let first: &dyn Vfs = &Directory::open(export.path(), DirectoryConfig::default()).unwrap();
    let file = first.write_file(NOW, b"a/b/file", b"contents").unwrap();
    let second = Directory::open(export.path(), DirectoryConfig::default()).unwrap();
    let before = getrlimit(Resource::Nofile);
    let open = fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    // Looking into a directory takes more and more of them.
    let outcomes = [0, 1, 2, 3, 4].map(|more| {
        setrlimit(Resource::Nofile, Rlimit { current: Some(open - 1 + more), ..before }).unwrap();
        let outcome = second.attributes(file).map(|it| it.size);
        setrlimit(Resource::Nofile, before).unwrap();
        outcome
    });
    assert_eq!(outcomes[0], Err(Status::JUKEBOX));
    assert!(outcomes.iter().all(|it| matches!(it, Ok(8) | Err(Status::JUKEBOX))), "{outcomes:?}");
    assert_eq!(second.attributes(file).unwrap().size, 8);
}
