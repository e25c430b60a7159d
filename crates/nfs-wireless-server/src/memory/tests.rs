use nfs_wire::nfs3_types::nfs3::Nfs3Option;

use super::*;

const NOW: nfstime3 = nfstime3 { seconds: 5, nseconds: 0 };

fn vfs(memory: &mut Memory) -> &mut dyn Vfs {
    memory
}

fn small(capacity_bytes: u64, max_files: u64) -> Memory {
    Memory::new(MemoryConfig { capacity_bytes, max_files })
}

#[test]
fn a_tree_is_filled_and_read_by_path() {
    let mut memory = Memory::default();
    let vfs = vfs(&mut memory);
    vfs.write_file(NOW, b"/a/b/file", b"contents").unwrap();
    vfs.make(NOW, b"a/link", NewObject::Symlink(b"b/file")).unwrap();
    assert_eq!(vfs.read_file(b"a/b/file").unwrap(), b"contents");
    let link = vfs.resolve(b"a/link").unwrap();
    assert_eq!(vfs.read_link(link).unwrap(), b"b/file");
    assert_eq!(vfs.read_file(b"a/link/x"), Err(Status::NOTDIR));
    assert_eq!(vfs.resolve(b"a/../a"), Err(Status::ACCES));
}

#[test]
fn a_full_file_system_says_so_and_has_room_again_after_a_removal() {
    let mut memory = small(100_000, 10);
    let vfs = vfs(&mut memory);
    vfs.write_file(NOW, b"one", &[1; 60_000]).unwrap();
    assert_eq!(vfs.write_file(NOW, b"two", &[2; 60_000]), Err(Status::NOSPC));
    assert_eq!(vfs.space().unwrap().free_bytes, 40_000);
    vfs.remove(NOW, NodeId(1), Name::new(b"one").unwrap()).unwrap();
    vfs.write_file(NOW, b"two", &[2; 60_000]).unwrap();
}

#[test]
fn what_a_crash_may_bring_back_counts_as_used() {
    let mut memory = small(100_000, 10);
    let vfs = vfs(&mut memory);
    let file = vfs.write_file(NOW, b"file", &[1; 60_000]).unwrap();
    let unstable = stable_how::UNSTABLE;
    assert_eq!(vfs.write(NOW, file, 0, b"x", unstable), Err(Status::NOSPC));
    vfs.set_attributes(NOW, file, &sattr3 { size: Nfs3Option::Some(10_000), ..sattr3::default() }).unwrap();
    vfs.write(NOW, file, 0, b"x", unstable).unwrap();
    assert_eq!(vfs.space().unwrap().free_bytes, 80_000);
    vfs.commit(file, 0, 0).unwrap();
    assert_eq!(vfs.space().unwrap().free_bytes, 90_000);
}

#[test]
fn the_number_of_files_is_bounded() {
    let mut memory = small(1 << 20, 3);
    let vfs = vfs(&mut memory);
    vfs.write_file(NOW, b"one", b"").unwrap();
    vfs.write_file(NOW, b"two", b"").unwrap();
    assert_eq!(vfs.write_file(NOW, b"three", b""), Err(Status::NOSPC));
    assert_eq!(vfs.space().unwrap().free_files, 0);
}

#[test]
fn a_crash_keeps_names_and_attributes() {
    let mut memory = Memory::default();
    let vfs = vfs(&mut memory);
    let file = vfs.make(NOW, b"dir/file", NewObject::File).unwrap();
    vfs.write(NOW, file, 0, b"volatile", stable_how::UNSTABLE).unwrap();
    vfs.crash();
    assert_eq!(vfs.read_file(b"dir/file").unwrap(), b"");
    assert_eq!(vfs.attributes(file).unwrap().mtime, NOW);
}

#[test]
fn a_commit_of_a_range_leaves_the_rest_volatile() {
    const FAR: u64 = 1 << 20;
    let mut memory = Memory::default();
    let vfs = vfs(&mut memory);
    let file = vfs.make(NOW, b"file", NewObject::File).unwrap();
    vfs.write(NOW, file, 0, b"near", stable_how::UNSTABLE).unwrap();
    vfs.write(NOW, file, FAR, b"far", stable_how::UNSTABLE).unwrap();
    vfs.commit(file, 0, 4).unwrap();
    vfs.crash();
    assert_eq!(vfs.read_file(b"file").unwrap(), b"near");
}
