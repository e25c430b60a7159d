mod listing;
mod names;

use nfs_wire::nfs3_types::nfs3::{
    ACCESS3args, ACCESS3resok, COMMIT3args, COMMIT3resok, FSINFO3args, FSINFO3resok, FSSTAT3args,
    FSSTAT3resok, PATHCONF3args, PATHCONF3resok, SETATTR3args, SETATTR3resok, ftype3, sattr3, set_atime,
    set_mtime, stable_how,
};
use nfs_wire::{nfs3_types::xdr_codec::Void, portmap::Protocol};

use super::*;
use crate::{
    testing::{Bench, made_up_handle, on_both, peer, some_attributes, write_arguments},
    vfs::Name,
};

fn setattr(
    bench: &mut Bench,
    object: &nfs_fh3,
    new_attributes: sattr3,
    guard: Nfs3Option<nfstime3>,
) -> Result<SETATTR3resok, Status> {
    let arguments = SETATTR3args { object: object.clone(), new_attributes, guard };
    bench.call(Procedure::Setattr, &arguments)
}

#[test]
fn null_does_nothing() {
    let mut bench = Bench::memory();
    assert_eq!(bench.raw(0, &Void), Ok(vec![]));
}

#[test]
fn getattr_tells_bad_handles_from_stale_ones() {
    on_both(|bench| {
        let root = bench.root();
        assert_eq!(bench.getattr(&root).unwrap().type_, ftype3::NF3DIR);
        assert_eq!(bench.getattr(&made_up_handle()).unwrap_err(), Status::BADHANDLE);
        let file = bench.create(&root, b"gone");
        let name = Name::new(b"gone").unwrap();
        let backend = bench.service.backend();
        backend.remove(nfstime3::default(), backend.root(), name).unwrap();
        assert_eq!(bench.getattr(&file).unwrap_err(), Status::STALE);
    });
}

#[test]
fn setattr_sets_mode_times_and_size_and_shows_before_and_after() {
    on_both(|bench| {
        let root = bench.root();
        let file = bench.create(&root, b"file");
        let time = |seconds| nfstime3 { seconds, nseconds: 123_456_789 };
        let changes = sattr3 {
            mode: Nfs3Option::Some(0o640),
            size: Nfs3Option::Some(5 << 30),
            atime: set_atime::SET_TO_CLIENT_TIME(time(1000)),
            mtime: set_mtime::SET_TO_CLIENT_TIME(time(2000)),
            ..sattr3::default()
        };
        let results = setattr(bench, &file, changes, Nfs3Option::None).unwrap();
        let before = results.obj_wcc.before.unwrap();
        let after = some_attributes(results.obj_wcc.after);
        assert_eq!((before.size, after.size), (0, 5 << 30));
        assert_eq!((after.mode, after.atime, after.mtime), (0o640, time(1000), time(2000)));
        assert!(after.used < 1 << 20, "a hole takes no room");
    });
}

#[test]
fn setattr_heeds_its_guard() {
    on_both(|bench| {
        let root = bench.root();
        let file = bench.create(&root, b"file");
        let ctime = bench.getattr(&file).unwrap().ctime;
        let wrong = Nfs3Option::Some(nfstime3 { seconds: ctime.seconds ^ 1, ..ctime });
        let error = setattr(bench, &file, sattr3::default(), wrong).unwrap_err();
        assert_eq!(error, Status::NOT_SYNC);
        setattr(bench, &file, sattr3::default(), Nfs3Option::Some(ctime)).unwrap();
    });
}

#[test]
fn setattr_of_the_size_of_a_directory_is_refused() {
    on_both(|bench| {
        let root = bench.root();
        let changes = sattr3 { size: Nfs3Option::Some(1), ..sattr3::default() };
        let error = setattr(bench, &root, changes, Nfs3Option::None).unwrap_err();
        assert_eq!(error, Status::ISDIR);
    });
}

#[test]
fn access_allows_what_the_kind_of_file_allows() {
    on_both(|bench| {
        let root = bench.root();
        let file = bench.create(&root, b"file");
        for (object, allowed) in [(root, 0x1f), (file, 0x2d)] {
            let arguments = ACCESS3args { object, access: 0x3f };
            let results: ACCESS3resok = bench.call(Procedure::Access, &arguments).unwrap();
            assert_eq!(results.access, allowed);
        }
    });
}

#[test]
fn fsinfo_fsstat_and_pathconf_state_the_limits() {
    on_both(|bench| {
        let fsroot = bench.root();
        let arguments = FSINFO3args { fsroot: fsroot.clone() };
        let tcp: FSINFO3resok = bench.call(Procedure::Fsinfo, &arguments).unwrap();
        assert_eq!((tcp.rtmax, tcp.wtmax), (1 << 20, 1 << 20));
        bench.peer = peer(Protocol::Udp);
        let udp: FSINFO3resok = bench.call(Procedure::Fsinfo, &arguments).unwrap();
        assert_eq!((udp.rtmax, udp.wtmax), (32 << 10, 32 << 10));
        let arguments = FSSTAT3args { fsroot: fsroot.clone() };
        let space: FSSTAT3resok = bench.call(Procedure::Fsstat, &arguments).unwrap();
        assert!(space.tbytes >= space.fbytes && space.fbytes >= space.abytes);
        let arguments = PATHCONF3args { object: fsroot };
        let conf: PATHCONF3resok = bench.call(Procedure::Pathconf, &arguments).unwrap();
        assert_eq!((conf.name_max, conf.no_trunc), (255, true));
    });
}

#[test]
fn what_is_written_is_read_beyond_four_gigabytes_too() {
    on_both(|bench| {
        let root = bench.root();
        let file = bench.create(&root, b"sparse");
        let offset = (5 << 30) - 3;
        let written = bench.write(&file, offset, b"abcdef", stable_how::UNSTABLE).unwrap();
        assert_eq!((written.count, written.committed), (6, stable_how::UNSTABLE));
        assert_eq!(written.file_wcc.before.unwrap().size, 0);
        assert_eq!(some_attributes(written.file_wcc.after).size, offset + 6);
        assert_eq!(bench.read(&file, offset, 3).unwrap(), (b"abc".to_vec(), false));
        assert_eq!(bench.read(&file, offset, 6).unwrap(), (b"abcdef".to_vec(), true));
        assert_eq!(bench.read(&file, offset - 2, 99).unwrap(), (b"\0\0abcdef".to_vec(), true));
        assert_eq!(bench.read(&file, offset + 6, 9).unwrap(), (vec![], true));
        assert_eq!(bench.read(&file, u64::MAX, u32::MAX).unwrap(), (vec![], true));
        assert_eq!(bench.read(&file, 0, 0).unwrap(), (vec![], false));
    });
}

#[test]
fn a_transfer_above_the_limit_is_cut() {
    on_both(|bench| {
        let root = bench.root();
        let file = bench.create(&root, b"file");
        let data = vec![7; 60_000];
        bench.peer = peer(Protocol::Udp);
        let written = bench.write(&file, 0, &data, stable_how::FILE_SYNC).unwrap();
        assert_eq!((written.count, written.committed), (32_768, stable_how::FILE_SYNC));
        let (data, eof) = bench.read(&file, 0, 60_000).unwrap();
        assert_eq!((data.len(), eof), (32_768, true));
        assert_eq!(bench.service.stats().written_bytes, 32_768);
    });
}

#[test]
fn a_read_reserves_no_more_than_the_file_has() {
    on_both(|bench| {
        let root = bench.root();
        let file = bench.create(&root, b"file");
        bench.write(&file, 0, b"small", stable_how::UNSTABLE).unwrap();
        let arguments = nfs_wire::nfs3_types::nfs3::READ3args { file, offset: 0, count: u32::MAX };
        let message = bench.message(Procedure::Read.number(), &arguments);
        let replies = bench.exchange(&message);
        assert!(replies[0].bytes.capacity() < 1024);
    });
}

#[test]
fn data_procedures_refuse_what_is_no_file_and_what_is_too_far() {
    on_both(|bench| {
        let root = bench.root();
        assert_eq!(bench.read(&root, 0, 1).unwrap_err(), Status::ISDIR);
        let error = bench.write(&root, 0, b"x", stable_how::UNSTABLE).unwrap_err();
        assert_eq!(error, Status::ISDIR);
        let file = bench.create(&root, b"file");
        for offset in [i64::MAX as u64, u64::MAX] {
            let error = bench.write(&file, offset, b"x", stable_how::UNSTABLE).unwrap_err();
            assert_eq!(error, Status::FBIG);
        }
    });
}

#[test]
fn commit_returns_the_verifier_of_the_writes() {
    on_both(|bench| {
        let root = bench.root();
        let file = bench.create(&root, b"file");
        let written = bench.write(&file, 0, b"data", stable_how::UNSTABLE).unwrap();
        let arguments = COMMIT3args { file, offset: 0, count: 0 };
        let committed: COMMIT3resok = bench.call(Procedure::Commit, &arguments).unwrap();
        assert_eq!(committed.verf, written.verf);
    });
}

#[test]
fn a_write_whose_count_contradicts_its_data_is_garbage() {
    let mut bench = Bench::memory();
    let root = bench.root();
    let file = bench.create(&root, b"file");
    let mut arguments = write_arguments(&file, 0, b"data", stable_how::UNSTABLE);
    arguments.count = 3;
    let rejection = bench.raw(Procedure::Write.number(), &arguments).unwrap_err();
    assert_eq!(rejection, nfs_wire::rpc::Rejection::GarbageArguments);
}

#[test]
fn owners_are_recorded_in_memory() {
    let mut bench = Bench::memory();
    let root = bench.root();
    let file = bench.create(&root, b"file");
    let attributes = bench.getattr(&file).unwrap();
    assert_eq!((attributes.uid, attributes.gid), (1000, 100));
}
