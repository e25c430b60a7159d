use nfs_wire::{
    Procedure, Status,
    nfs3_types::{
        nfs3::{
            LINK3args, LINK3resok, MKNOD3args, MKNOD3resok, Nfs3Option, READLINK3args, READLINK3resok,
            REMOVE3args, REMOVE3resok, RENAME3args, RENAME3resok, RMDIR3args, RMDIR3resok, SYMLINK3args,
            SYMLINK3resok, createhow3, createverf3, devicedata3, ftype3, mknoddata3, nfs_fh3, nfspath3,
            sattr3, specdata3, stable_how, symlinkdata3,
        },
        xdr_codec::Opaque,
    },
    reply::decode,
};

use crate::testing::{Bench, at, on_both, some_attributes, some_handle};

fn remove(bench: &mut Bench, dir: &nfs_fh3, name: &[u8]) -> Result<(), Status> {
    let object = at(dir, name);
    bench.call::<REMOVE3resok>(Procedure::Remove, &REMOVE3args { object }).map(|_| ())
}

fn rmdir(bench: &mut Bench, dir: &nfs_fh3, name: &[u8]) -> Result<(), Status> {
    let object = at(dir, name);
    bench.call::<RMDIR3resok>(Procedure::Rmdir, &RMDIR3args { object }).map(|_| ())
}

fn rename(bench: &mut Bench, from: (&nfs_fh3, &[u8]), to: (&nfs_fh3, &[u8])) -> Result<(), Status> {
    let arguments = RENAME3args { from: at(from.0, from.1), to: at(to.0, to.1) };
    bench.call::<RENAME3resok>(Procedure::Rename, &arguments).map(|_| ())
}

fn link(bench: &mut Bench, file: &nfs_fh3, dir: &nfs_fh3, name: &[u8]) -> Result<LINK3resok, Status> {
    let arguments = LINK3args { file: file.clone(), link: at(dir, name) };
    bench.call(Procedure::Link, &arguments)
}

fn symlink(bench: &mut Bench, dir: &nfs_fh3, name: &[u8], target: &[u8]) -> Result<nfs_fh3, Status> {
    let arguments = SYMLINK3args {
        where_: at(dir, name),
        symlink: symlinkdata3 { symlink_attributes: sattr3::default(), symlink_data: nfspath3::from(target) },
    };
    bench.call::<SYMLINK3resok>(Procedure::Symlink, &arguments).map(|results| some_handle(results.obj))
}

#[test]
fn lookup_knows_names_of_any_bytes_and_the_way_up() {
    on_both(|bench| {
        let root = bench.root();
        let directory = bench.mkdir(&root, b"dir").unwrap();
        for name in [&b"with space"[..], b"\xff\xfe", &[b'n'; 255]] {
            let file = bench.create(&directory, name);
            assert_eq!(bench.lookup(&directory, name), Ok(file));
        }
        assert_eq!(bench.lookup(&directory, b".."), Ok(root.clone()));
        assert_eq!(bench.lookup(&directory, b"."), Ok(directory.clone()));
        assert_eq!(bench.lookup(&root, b".."), Ok(root.clone()), "the export has no outside");
        assert_eq!(bench.lookup(&root, b"missing"), Err(Status::NOENT));
        let file = bench.create(&root, b"file");
        assert_eq!(bench.lookup(&file, b"x"), Err(Status::NOTDIR));
        assert_eq!(bench.lookup(&file, b"."), Err(Status::NOTDIR));
    });
}

#[test]
fn impossible_names_are_refused_everywhere() {
    on_both(|bench| {
        let root = bench.root();
        let file = bench.create(&root, b"file");
        for (name, status) in [
            (&b""[..], Status::ACCES),
            (b"a/b", Status::ACCES),
            (b"/etc", Status::ACCES),
            (b"../x", Status::ACCES),
            (b"a\0b", Status::ACCES),
            (&[b'n'; 256], Status::NAMETOOLONG),
        ] {
            let how = createhow3::UNCHECKED(sattr3::default());
            assert_eq!(bench.create_how(&root, name, how), Err(status));
            assert_eq!(bench.lookup(&root, name), Err(status));
            assert_eq!(bench.mkdir(&root, name), Err(status));
            assert_eq!(symlink(bench, &root, name, b"x"), Err(status));
            assert_eq!(remove(bench, &root, name), Err(status));
            assert_eq!(rmdir(bench, &root, name), Err(status));
            assert_eq!(rename(bench, (&root, b"file"), (&root, name)), Err(status));
            assert_eq!(rename(bench, (&root, name), (&root, b"new")), Err(status));
            assert_eq!(link(bench, &file, &root, name).unwrap_err(), status);
        }
    });
}

#[test]
fn dot_and_dot_dot_can_be_neither_made_nor_removed() {
    on_both(|bench| {
        let root = bench.root();
        let file = bench.create(&root, b"file");
        for name in [&b"."[..], b".."] {
            let how = createhow3::UNCHECKED(sattr3::default());
            assert_eq!(bench.create_how(&root, name, how), Err(Status::EXIST));
            assert_eq!(bench.mkdir(&root, name), Err(Status::EXIST));
            assert_eq!(link(bench, &file, &root, name).unwrap_err(), Status::EXIST);
            assert_eq!(remove(bench, &root, name), Err(Status::INVAL));
            assert_eq!(rename(bench, (&root, name), (&root, b"new")), Err(Status::INVAL));
            assert_eq!(rename(bench, (&root, b"file"), (&root, name)), Err(Status::INVAL));
        }
        // RFC 1813 §3.3.13
        assert_eq!(rmdir(bench, &root, b"."), Err(Status::INVAL));
        assert_eq!(rmdir(bench, &root, b".."), Err(Status::EXIST));
    });
}

#[test]
fn create_unchecked_takes_an_existing_file_and_guarded_does_not() {
    on_both(|bench| {
        let root = bench.root();
        let file = bench.create(&root, b"file");
        bench.write(&file, 0, b"data", stable_how::FILE_SYNC).unwrap();
        let guarded = createhow3::GUARDED(sattr3::default());
        assert_eq!(bench.create_how(&root, b"file", guarded), Err(Status::EXIST));
        let unchecked = createhow3::UNCHECKED(sattr3 { mode: Nfs3Option::Some(0o777), ..sattr3::default() });
        assert_eq!(bench.create_how(&root, b"file", unchecked), Ok(file.clone()));
        let attributes = bench.getattr(&file).unwrap();
        assert_eq!((attributes.size, attributes.mode), (4, 0o644));
        let truncating = createhow3::UNCHECKED(sattr3 { size: Nfs3Option::Some(0), ..sattr3::default() });
        assert_eq!(bench.create_how(&root, b"file", truncating), Ok(file.clone()));
        assert_eq!(bench.getattr(&file).unwrap().size, 0);
        bench.mkdir(&root, b"dir").unwrap();
        let unchecked = createhow3::UNCHECKED(sattr3::default());
        assert_eq!(bench.create_how(&root, b"dir", unchecked), Err(Status::EXIST));
    });
}

#[test]
fn create_exclusive_is_idempotent_for_the_same_verifier() {
    on_both(|bench| {
        let root = bench.root();
        let exclusive = |byte| createhow3::EXCLUSIVE(createverf3([byte; 8]));
        let file = bench.create_how(&root, b"file", exclusive(1)).unwrap();
        assert_eq!(bench.create_how(&root, b"file", exclusive(1)), Ok(file));
        assert_eq!(bench.create_how(&root, b"file", exclusive(2)), Err(Status::EXIST));
        bench.create(&root, b"other");
        assert_eq!(bench.create_how(&root, b"other", exclusive(1)), Err(Status::EXIST));
    });
}

#[test]
fn create_sets_the_attributes_asked_for() {
    on_both(|bench| {
        let root = bench.root();
        let how = createhow3::GUARDED(sattr3 {
            mode: Nfs3Option::Some(0o606),
            size: Nfs3Option::Some(10),
            ..sattr3::default()
        });
        let file = bench.create_how(&root, b"file", how).unwrap();
        let attributes = bench.getattr(&file).unwrap();
        assert_eq!((attributes.mode, attributes.size), (0o606, 10));
        let directory = bench.mkdir(&root, b"dir").unwrap();
        let attributes = bench.getattr(&directory).unwrap();
        assert_eq!((attributes.mode, attributes.nlink), (0o755, 2));
        assert_eq!(bench.getattr(&root).unwrap().nlink, 3);
    });
}

#[test]
fn symlinks_keep_their_target_and_are_not_followed() {
    on_both(|bench| {
        let root = bench.root();
        let directory = bench.mkdir(&root, b"dir").unwrap();
        bench.create(&directory, b"file");
        let link = symlink(bench, &root, b"link", b"dir\xff").unwrap();
        let arguments = READLINK3args { symlink: link.clone() };
        let results = bench.raw(Procedure::Readlink.number(), &arguments).unwrap();
        let results = decode::<READLINK3resok<'_>>(&results).unwrap().unwrap();
        assert_eq!(results.data.as_ref(), b"dir\xff");
        let attributes = some_attributes(results.symlink_attributes);
        assert_eq!((attributes.type_, attributes.size), (ftype3::NF3LNK, 4));
        let direct = symlink(bench, &root, b"direct", b"dir").unwrap();
        assert_eq!(bench.lookup(&direct, b"file"), Err(Status::NOTDIR));
        assert_eq!(bench.read(&direct, 0, 1).unwrap_err(), Status::INVAL);
        let arguments = READLINK3args { symlink: directory };
        let results = bench.raw(Procedure::Readlink.number(), &arguments).unwrap();
        assert_eq!(decode::<READLINK3resok<'_>>(&results).unwrap().unwrap_err(), Status::INVAL);
        let long = [b't'; 4096];
        assert_eq!(symlink(bench, &root, b"long", &long), Err(Status::NAMETOOLONG));
    });
}

#[test]
fn mknod_makes_pipes_and_sockets() {
    on_both(|bench| {
        let root = bench.root();
        for (name, what, type_) in [
            (&b"fifo"[..], mknoddata3::NF3FIFO(sattr3::default()), ftype3::NF3FIFO),
            (b"socket", mknoddata3::NF3SOCK(sattr3::default()), ftype3::NF3SOCK),
        ] {
            let where_ = at(&root, name);
            let made: MKNOD3resok = bench.call(Procedure::Mknod, &MKNOD3args { where_, what }).unwrap();
            assert_eq!(some_attributes(made.obj_attributes).type_, type_);
            let handle = some_handle(made.obj);
            assert_eq!(bench.read(&handle, 0, 1).unwrap_err(), Status::INVAL);
        }
    });
}

#[test]
fn mknod_keeps_devices_in_memory_and_refuses_impossible_types() {
    let mut bench = Bench::memory();
    let root = bench.root();
    let what = mknoddata3::NF3CHR(devicedata3 {
        dev_attributes: sattr3::default(),
        spec: specdata3 { specdata1: 1, specdata2: 3 },
    });
    let where_ = at(&root, b"null");
    let made: MKNOD3resok = bench.call(Procedure::Mknod, &MKNOD3args { where_, what }).unwrap();
    let attributes = some_attributes(made.obj_attributes);
    assert_eq!((attributes.rdev.specdata1, attributes.rdev.specdata2), (1, 3));
    // A regular file is not for MKNOD to make (RFC 1813 §3.3.11).
    let mut call = bench.message(Procedure::Mknod.number(), &root);
    nfs_wire::encode(&mut call, &Opaque::borrowed(b"file"));
    nfs_wire::encode(&mut call, &ftype3::NF3REG);
    let replies = bench.exchange(&call);
    let results = bench.results(&replies[0]).unwrap();
    assert_eq!(decode::<MKNOD3resok>(&results).unwrap().unwrap_err(), Status::BADTYPE);
}

#[test]
fn remove_and_rmdir_take_their_kind_only() {
    on_both(|bench| {
        let root = bench.root();
        let file = bench.create(&root, b"file");
        let directory = bench.mkdir(&root, b"dir").unwrap();
        bench.create(&directory, b"child");
        assert_eq!(remove(bench, &root, b"dir"), Err(Status::ISDIR));
        assert_eq!(rmdir(bench, &root, b"file"), Err(Status::NOTDIR));
        assert_eq!(rmdir(bench, &root, b"dir"), Err(Status::NOTEMPTY));
        assert_eq!(remove(bench, &directory, b"child"), Ok(()));
        assert_eq!(rmdir(bench, &root, b"dir"), Ok(()));
        assert_eq!(remove(bench, &root, b"file"), Ok(()));
        assert_eq!(remove(bench, &root, b"file"), Err(Status::NOENT));
        for handle in [&file, &directory] {
            assert_eq!(bench.getattr(handle).unwrap_err(), Status::STALE);
        }
        assert_eq!(bench.getattr(&root).unwrap().nlink, 2);
    });
}

#[test]
fn rename_replaces_what_is_compatible() {
    on_both(|bench| {
        let root = bench.root();
        let one = bench.mkdir(&root, b"one").unwrap();
        let two = bench.mkdir(&root, b"two").unwrap();
        let file = bench.create(&one, b"file");
        let old = bench.create(&two, b"file");
        assert_eq!(rename(bench, (&one, b"file"), (&two, b"file")), Ok(()));
        assert_eq!(bench.lookup(&two, b"file"), Ok(file.clone()));
        assert_eq!(bench.getattr(&old).unwrap_err(), Status::STALE);
        assert_eq!(bench.getattr(&file).unwrap().nlink, 1);
        assert_eq!(rename(bench, (&one, b"file"), (&two, b"x")), Err(Status::NOENT));
        assert_eq!(rename(bench, (&root, b"one"), (&root, b"two")), Err(Status::NOTEMPTY));
        assert_eq!(rename(bench, (&root, b"one"), (&two, b"file")), Err(Status::NOTDIR));
        assert_eq!(rename(bench, (&two, b"file"), (&root, b"one")), Err(Status::ISDIR));
        assert_eq!(rename(bench, (&root, b"two"), (&root, b"one")), Ok(()));
        assert_eq!(bench.lookup(&two, b".."), Ok(root.clone()));
        assert_eq!(bench.lookup(&two, b"file"), Ok(file));
    });
}

#[test]
fn rename_keeps_handles_of_everything_below_valid() {
    on_both(|bench| {
        let root = bench.root();
        let one = bench.mkdir(&root, b"one").unwrap();
        let inner = bench.mkdir(&one, b"inner").unwrap();
        let file = bench.create(&inner, b"file");
        bench.write(&file, 0, b"data", stable_how::FILE_SYNC).unwrap();
        let two = bench.mkdir(&root, b"two").unwrap();
        assert_eq!(rename(bench, (&root, b"one"), (&two, b"moved")), Ok(()));
        assert_eq!(bench.read(&file, 0, 9).unwrap().0, b"data");
        assert_eq!(bench.lookup(&one, b".."), Ok(two.clone()));
        assert_eq!(
            rename(bench, (&root, b"two"), (&inner, b"loop")),
            Err(Status::INVAL),
            "a directory into itself"
        );
    });
}

#[test]
fn link_gives_a_file_another_name() {
    on_both(|bench| {
        let root = bench.root();
        let directory = bench.mkdir(&root, b"dir").unwrap();
        let file = bench.create(&root, b"file");
        let linked = link(bench, &file, &directory, b"other").unwrap();
        assert_eq!(some_attributes(linked.file_attributes).nlink, 2);
        assert_eq!(bench.lookup(&directory, b"other"), Ok(file.clone()));
        assert_eq!(
            rename(bench, (&root, b"file"), (&directory, b"other")),
            Ok(()),
            "two names of one file: nothing happens"
        );
        assert_eq!(bench.lookup(&root, b"file"), Ok(file.clone()));
        assert_eq!(remove(bench, &root, b"file"), Ok(()));
        assert_eq!(bench.getattr(&file).unwrap().nlink, 1);
        assert_eq!(link(bench, &file, &directory, b"other").unwrap_err(), Status::EXIST);
        assert_eq!(link(bench, &directory, &root, b"dir2").unwrap_err(), Status::ISDIR);
    });
}
