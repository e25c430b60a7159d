//! Attributes of files and file systems.

use super::*;

misbehaviours! {
    a_size_that_grows_while_it_is_read: FILE, Reply(|c, r| attributes(c, r, |it| it.size = 100_000 + c.before)), BeRight;
    a_size_that_is_too_large: FILE, Reply(|c, r| attributes(c, r, |it| it.size = 1 << 40)), Say(1, "shrank");
    a_size_of_16_eib: FILE, Reply(|c, r| attributes(c, r, |it| it.size = u64::MAX)), Say(1, "shrank from 18446744073709551615 to");
    times_that_change_all_the_time: FILE, Reply(|c, r| attributes(c, r, |it| it.mtime.seconds = c.before as u32)), Say(1, "changes faster than it can be copied");
    listings_that_are_older_than_the_files: TREE, Reply(|c, r| page(c, r, |page, _| {
        for entry in &mut page.reply.entries.0 {
            if let post_op_attr::Some(it) = &mut entry.name_attributes && it.type_ == ftype3::NF3REG {
                (it.size, it.mtime.seconds) = (it.size / 2, 1);
            }
        }
    })), BeRight;
    another_file_every_time: FILE, Reply(|c, r| attributes(c, r, |it| it.fileid = c.before)), BeRight;
    nanoseconds_above_a_second: TREE_KEPT, Reply(|c, r| attributes(c, r, |it| it.mtime = nfstime3 { seconds: 1, nseconds: u32::MAX })), BeRight;
    times_at_the_end_of_time: TREE_KEPT, Reply(|c, r| attributes(c, r, |it| it.mtime = nfstime3 { seconds: u32::MAX, nseconds: 999_999_999 })), BeRight;
    an_owner_that_nobody_can_be: TREE_KEPT, Reply(|c, r| attributes(c, r, |it| (it.uid, it.gid) = (u32::MAX, u32::MAX))), BeRight;
    modes_with_every_bit: TREE, Reply(|c, r| attributes(c, r, |it| it.mode = u32::MAX)), BeRight;
    a_file_type_nobody_knows: &["stat", "--timeout", "1s", "{}"], Reply(|c, r| results(c, r, P::Getattr, &[0, 99])), Say(1, "broken");
    sizes_that_add_up_to_more_than_there_is: LIST, Reply(|c, r| attributes(c, r, |it| (it.size, it.used) = (u64::MAX, u64::MAX))), BeRight;
    a_file_system_larger_than_numbers: &["df", "-h", "--timeout", "1s", "{tree}"], Reply(|c, r| if c.is(P::Fsstat) {
        edit::<FSSTAT3resok>(r, |it| (it.tbytes, it.fbytes, it.abytes) = (1, u64::MAX, u64::MAX));
    }), BeRight;
    transfers_of_no_bytes: FILE, Reply(|c, r| if c.is(P::Fsinfo) {
        edit::<FSINFO3resok>(r, |it| (it.rtmax, it.rtpref, it.wtmax, it.wtpref, it.dtpref, it.maxfilesize) = (0, 0, 0, 0, 0, 0));
    }), BeRight;
    transfers_of_4_gib: TREE_TCP, Reply(|c, r| if c.is(P::Fsinfo) {
        edit::<FSINFO3resok>(r, |it| (it.rtmax, it.rtpref, it.wtmax, it.wtpref, it.dtpref) = (u32::MAX, u32::MAX, u32::MAX, u32::MAX, u32::MAX));
    }), BeRight;
    files_without_attributes: FILE, Reply(|c, r| if c.is(P::Lookup) {
        edit::<LOOKUP3resok>(r, |it| it.obj_attributes = post_op_attr::None);
    }), BeRight;
}

/// Cuts the times of files to whole steps of so many seconds.
fn cut_times(call: &liar::Call, reply: &mut Vec<u8>, step: u32) {
    attributes(call, reply, |it| {
        for time in [&mut it.atime, &mut it.mtime, &mut it.ctime] {
            *time = nfstime3 { seconds: time.seconds / step * step, nseconds: 0 };
        }
    });
    if call.is(P::Fsinfo) {
        // The way it is with knfsd: it tells of FAT's steps, but not of whole seconds.
        let time_delta = nfstime3 { seconds: step / 2 * 2, nseconds: 1 };
        edit::<FSINFO3resok>(reply, |it| it.time_delta = time_delta);
    }
}

#[test]
fn an_update_knows_its_own_copies_again_on_servers_with_coarse_times() {
    for lie in [Reply(|c, r| cut_times(c, r, 1)), Reply(|c, r| cut_times(c, r, 2))] {
        let trial = Trial::new(lie);
        let source = trial.path("here/file");
        fs::write(&source, "content").unwrap();
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(1_500_000_003_900);
        fs::File::options().write(true).open(&source).unwrap().set_modified(at).unwrap();
        let update = ["cp", "-up", "--json", "file", "{up}"];
        let first = trial.run(&update);
        let counts = |outcome: &Outcome| event(&outcome.stdout, "summary").unwrap()["counts"].clone();
        assert_eq!(counts(&first)["done"], 1, "{}", first.stderr);
        let second = trial.run(&update);
        assert_eq!(counts(&second)["skipped"]["not_older"], 1, "{}", second.stderr);
        // One that is newer by a step is copied.
        fs::File::options()
            .write(true)
            .open(&source)
            .unwrap()
            .set_modified(at + std::time::Duration::from_secs(2))
            .unwrap();
        let third = trial.run(&update);
        assert_eq!(counts(&third)["done"], 1, "{}", third.stderr);
    }
}

/// Numbers of files identify nothing on servers that give all of them one.
#[test]
fn names_of_one_file_are_not_taken_for_each_other_by_a_number_that_all_files_have() {
    for options in [&["sync"][..], &["sync", "--delete"], &["sync", "-c"], &["sync", "--verify"]] {
        let trial = Trial::new(Reply(|c, r| attributes(c, r, |it| it.fileid = 0)));
        let (here, there) = (trial.path("here/names"), trial.path("served/up"));
        for place in [&here, &there] {
            fs::create_dir(place).unwrap();
        }
        fs::write(here.join("a"), "new content").unwrap();
        fs::hard_link(here.join("a"), here.join("b")).unwrap();
        for name in ["a", "b"] {
            common::write_old(&there.join(name), "old");
        }
        let run = trial.run(&[options, &["names", "{up}"]].concat());
        assert_eq!(run.code, Some(0), "{options:?}: {}", run.stderr);
        for name in ["a", "b"] {
            assert_eq!(fs::read_to_string(there.join(name)).unwrap(), "new content", "{options:?} {name}");
        }
    }
}
