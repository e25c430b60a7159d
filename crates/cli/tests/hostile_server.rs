//! Servers that lie and servers that are broken: each misbehaviour is a test of its own.
//!
//! `Trial::run` is what all of them ask for: the run ends by itself, without a panic, within 64 MiB of data, with messages that
//! cannot harm a terminal, and nothing is written outside the destination. The tables add what the user is told, or that the
//! copy is right all the same.

mod common;
#[path = "hostile/liar.rs"]
mod liar;
#[path = "hostile/lies.rs"]
mod lies;

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    sync::Mutex,
};

use common::{assert_same_tree, nfsw, stderr};
use liar::{
    HEADER,
    Lie::{self, Reply, Wire},
    Outcome, Trial,
};
use lies::{
    add, attributes, bare, commit, edit, endless, message, named, page, plain_page, read, rename, results,
    write,
};
use nfs_wire::{
    FileHandle, Procedure as P, Reader,
    nfs3_types::nfs3::{
        CREATE3resok, FSINFO3resok, FSSTAT3resok, LOOKUP3resok, Nfs3Option, cookieverf3, filename3, ftype3,
        nfstime3, post_op_attr, post_op_fh3, stable_how, writeverf3,
    },
    record::mark,
    rpc::Program,
};

/// What is copied, or looked at.
const TREE: &[&str] = &["cp", "-r", "--transport", "udp", "--timeout", "1s", "{tree}", "copy"];
const TREE_TCP: &[&str] = &["cp", "-r", "--transport", "tcp", "--timeout", "1s", "{tree}", "copy"];
const TREE_KEPT: &[&str] = &["cp", "-rp", "--transport", "udp", "--timeout", "1s", "{tree}", "copy"];
const FILE: &[&str] = &["cp", "--transport", "udp", "--timeout", "1s", "{tree/alpha}", "copy"];
const FILE_TCP: &[&str] = &["cp", "--transport", "tcp", "--timeout", "1s", "{tree/alpha}", "copy"];
const UPLOAD: &[&str] = &["cp", "--transport", "udp", "--timeout", "1s", "../served/tree/alpha", "{up}"];
const LIST: &[&str] = &["ls", "-l", "--transport", "udp", "--timeout", "1s", "{tree}"];
const LIST_TCP: &[&str] = &["ls", "--transport", "tcp", "--timeout", "1s", "{tree}"];
const TREE_ENDLESS: &[&str] = &["cp", "-r", "--transport", "tcp", "--max-entries", "30000", "{tree}", "copy"];
const LIST_ENDLESS: &[&str] = &["ls", "-l", "--transport", "tcp", "--max-entries", "100000", "{tree}"];
const CAT: &[&str] = &["cat", "--transport", "udp", "--timeout", "1s", "{tree/alpha}"];
const CAT_TCP: &[&str] = &["cat", "--transport", "tcp", "--timeout", "1s", "{tree/alpha}"];
const TO_STANDARD: &[&str] = &["cp", "--transport", "udp", "--timeout", "1s", "{tree/alpha}", "-"];
const RELAY: &[&str] = &["cp", "--transport", "udp", "--timeout", "1s", "{tree/alpha}", "{up}"];
const CAT_LINK: &[&str] = &["cat", "--timeout", "1s", "{tree/link}"];

// These end by themselves: a server that talks nonsense is no outage.
const FILE_PATIENT: &[&str] = &["cp", "--transport", "tcp", "{tree/alpha}", "copy"];
const TREE_PATIENT: &[&str] = &["cp", "-r", "--transport", "tcp", "{tree}", "copy"];
const UPLOAD_PATIENT: &[&str] = &["cp", "--transport", "tcp", "../served/tree/alpha", "{up}"];
const LIST_PATIENT: &[&str] = &["ls", "--transport", "tcp", "{tree}"];
const NO_NFS: &str = "answers over TCP with what is not NFS";

/// What must come of it.
enum Must {
    /// Exit status 0, and the copy (if it was one) is the source.
    BeRight,
    /// This exit status, and these words on standard error; what is at the destination under its name is whole.
    Say(i32, &'static str),
    /// This exit status and these words; everything but `beta` is copied.
    LeaveOut(i32, &'static str),
}

use Must::{BeRight, LeaveOut, Say};

fn check(command: &[&str], lie: Lie, must: Must) {
    let trial = Trial::new(lie);
    let Outcome { code, stderr, .. } = trial.run(command);
    let copy = trial.path("here/copy");
    let source = if command.contains(&"{tree}") { "served/tree" } else { "served/tree/alpha" };
    let (expected, words) = match must {
        BeRight => (0, ""),
        Say(code, words) | LeaveOut(code, words) => (code, words),
    };
    assert_eq!(code, Some(expected), "{stderr}");
    assert!(stderr.contains(words), "{words:?} is not in {stderr:?}");
    assert!(stderr.lines().count() <= 30, "not a flood: {stderr}");
    match must {
        BeRight if command[0] == "cp" && command.last() == Some(&"copy") => {
            assert_same_tree(&trial.path(source), &copy, false);
        }
        BeRight if command[0] == "cp" => {
            assert_same_tree(&trial.path(source), &trial.path("served/up"), false);
        }
        BeRight => {}
        Say(..) => {
            for name in
                ["alpha", "beta"].map(|name| copy.join(name)).into_iter().filter(|name| name.is_file())
            {
                assert_same_tree(&trial.path("served/tree").join(name.file_name().unwrap()), &name, false);
            }
            assert!(!trial.path("served/up").exists());
        }
        LeaveOut(..) => {
            assert!(!copy.join("beta").exists());
            // Not all is copied: the next run goes on there.
            fs::remove_file(copy.join(".nfsw-incomplete")).unwrap();
            fs::remove_file(trial.path("served/tree/beta")).unwrap();
            assert_same_tree(&trial.path(source), &copy, false);
        }
    }
}

/// A table of misbehaviours: name, command, what the server does, what must come of it.
macro_rules! misbehaviours {
    ($($name:ident: $command:expr, $lie:expr, $must:expr;)*) => {
        $(#[test]
        fn $name() {
            check($command, $lie, $must);
        })*
    };
}

// Names.
misbehaviours! {
    a_name_with_a_slash: TREE, Reply(|c, r| rename(c, r, b"a/b")), LeaveOut(1, "unsafe name a/b");
    a_name_that_leads_up: TREE, Reply(|c, r| rename(c, r, b"../canary")), LeaveOut(1, "unsafe name ../canary");
    a_name_that_leads_far_up: TREE, Reply(|c, r| rename(c, r, b"../../../../tmp/x")), LeaveOut(1, "unsafe name");
    an_absolute_name: TREE, Reply(|c, r| rename(c, r, b"/etc/nfsw")), LeaveOut(1, "unsafe name /etc/nfsw");
    a_name_that_ends_with_a_slash: TREE, Reply(|c, r| rename(c, r, b"beta/")), LeaveOut(1, "unsafe name beta/");
    an_empty_name: TREE, Reply(|c, r| rename(c, r, b"")), LeaveOut(1, "unsafe name");
    a_name_with_nul: TREE, Reply(|c, r| rename(c, r, b"a\0b")), LeaveOut(1, "unsafe name a\\u{0}b");
    a_file_called_dot_dot: TREE, Reply(|c, r| add(c, r, b"..")), BeRight;
    a_file_called_dot: TREE, Reply(|c, r| add(c, r, b".")), BeRight;
    a_name_of_10_kib: TREE_TCP, Reply(|c, r| rename(c, r, &[b'x'; 10_240])), LeaveOut(7, "too long");
    a_name_of_256_bytes: TREE, Reply(|c, r| rename(c, r, &[b'x'; 256])), LeaveOut(7, "too long");
    an_unsafe_name_of_10_kib: TREE_TCP, Reply(|c, r| rename(c, r, &[b'/'; 10_240])), LeaveOut(1, "(10240 bytes)");
    an_unsafe_name_that_drives_the_terminal:
        TREE, Reply(|c, r| rename(c, r, b"/\x1b]0;owned\x07\x1b[2J\r\n")), LeaveOut(1, "/\\u{1b}]0;owned\\u{7}\\u{1b}[2J\\r\\n");
    an_unsafe_name_that_reads_backwards:
        TREE, Reply(|c, r| rename(c, r, "/gpj\u{202e}exe".as_bytes())), LeaveOut(1, "/gpj\\u{202e}exe");
    unsafe_names_without_readdirplus: TREE, Reply(|c, r| {
        results(c, r, P::Readdirplus, &[10_004]);
        plain_page(c, r, |page| {
            page.reply.entries.0.iter_mut().filter(|it| it.name.as_ref() == b"beta").for_each(|it| it.name = filename3::from(&b"../beta"[..]));
        });
    }), LeaveOut(1, "unsafe name ../beta");
    a_name_twice: TREE, Reply(|c, r| page(c, r, |page, honest| {
        for entry in honest.iter().filter(|it| it.name.as_ref() == b"alpha") {
            page.reply.entries.0.push(named(entry, b"beta".to_vec(), entry.cookie));
        }
    })), Say(1, "lists beta twice");
    a_name_twice_for_one_file: TREE, Reply(|c, r| add(c, r, b"beta")), BeRight;
    a_name_twice_for_a_file_and_a_directory: TREE, Reply(|c, r| page(c, r, |page, honest| {
        for entry in honest.iter().filter(|it| it.name.as_ref() == b"sub") {
            page.reply.entries.0.push(named(entry, b"alpha".to_vec(), entry.cookie));
        }
    })), Say(1, "lists alpha twice");
    names_that_differ_in_case: TREE, Reply(|c, r| add(c, r, b"BETA")), Say(0, "");
    the_name_of_an_unfinished_copy: TREE, Reply(|c, r| add(c, r, b".alpha.nfsw-part")), Say(1, ".alpha.nfsw-part: left out");
    thousands_of_unsafe_names: TREE_TCP, Reply(|c, r| page(c, r, |page, honest| {
        for entry in honest.iter().filter(|it| it.name.as_ref() == b"beta") {
            page.reply.entries.0.extend((0..2000).map(|it| named(entry, format!("/{it}").into_bytes(), entry.cookie)));
        }
    })), Say(1, "left out 1980 more entries");
}

// Directories.
misbehaviours! {
    cookies_that_never_advance: TREE, Reply(|c, r| page(c, r, |page, _| {
        page.reply.eof = false;
        page.reply.entries.0.iter_mut().for_each(|entry| entry.cookie = 7);
    })), Say(1, "go in circles");
    a_directory_that_is_forgotten: &["ls", "-R", "--transport", "udp", "--timeout", "1s", "{tree}"],
        Reply(|c, r| if c.before == 1 { results(c, r, P::Readdirplus, &[70]) }), Say(1, "tree/sub: stale file handle");
    cookies_in_a_circle: LIST, Reply(|c, r| page(c, r, |page, _| {
        page.reply.eof = false;
        page.reply.entries.0.iter_mut().for_each(|entry| entry.cookie = c.before % 5 + 1);
    })), Say(1, "go in circles");
    empty_pages_for_ever: LIST, Reply(|c, r| page(c, r, |page, _| {
        page.reply.eof = false;
        page.reply.entries.0.clear();
    })), Say(1, "pages are empty");
    an_endless_directory: TREE_ENDLESS, Reply(|c, r| endless(c, r, 2000, 20)), Say(1, "more than 30000 entries, or no end");
    an_endless_directory_of_short_names: LIST_ENDLESS, Reply(|c, r| endless(c, r, 5000, 1)), Say(1, "or no end");
    an_endless_directory_of_long_names: LIST_ENDLESS, Reply(|c, r| endless(c, r, 1000, 255)), Say(1, "or no end");
    an_endless_directory_without_handles: LIST_ENDLESS, Reply(|c, r| {
        endless(c, r, 2000, 20);
        bare(c, r, false);
    }), Say(1, "or no end");
    a_directory_in_itself: TREE, Reply(|c, r| page(c, r, |page, honest| {
        let is_tree = honest.iter().any(|it| it.name.as_ref() == b"alpha");
        for entry in honest.iter().filter(|it| is_tree && it.name.as_ref() == b".") {
            page.reply.entries.0.push(named(entry, b"deeper".to_vec(), entry.cookie));
        }
    })), Say(1, "left out deeper: the server gives it the handle of a directory that it lies in");
    another_cookie_verifier_on_every_page: TREE, Reply(|c, r| page(c, r, |page, _| {
        page.cookieverf = cookieverf3([c.before as u8; 8]);
    })), BeRight;
    cookies_that_are_always_bad: LIST, Reply(|c, r| results(c, r, P::Readdirplus, &[10_003])), Say(1, "changed while it was listed");
    pages_that_are_always_too_small: LIST, Reply(|c, r| results(c, r, P::Readdirplus, &[10_005, 0])), Say(1, "too small");
    entries_without_attributes: TREE, Reply(|c, r| bare(c, r, false)), BeRight;
    entries_without_handles: TREE, Reply(|c, r| bare(c, r, true)), BeRight;
    a_list_without_an_end_mark: LIST, Reply(|c, r| if c.is(P::Readdirplus) { r.truncate(r.len() - 8) }), Say(1, "broken");
    a_name_that_claims_4_gib: LIST, Reply(|c, r| results(c, r, P::Readdirplus, &[0, 0, 1, 2, 1, 0, 3, u32::MAX, 0x6161_6161])), Say(1, "broken");
    a_directory_that_is_a_file: TREE, Reply(|c, r| page(c, r, |page, _| {
        for entry in page.reply.entries.0.iter_mut().filter(|it| it.name.as_ref() == b"sub") {
            if let Nfs3Option::Some(attributes) = &mut entry.name_attributes { attributes.type_ = ftype3::NF3REG }
        }
    })), Say(1, "is a directory");
    a_file_that_is_a_directory: TREE, Reply(|c, r| attributes(c, r, |it| it.type_ = ftype3::NF3DIR)), Say(1, "not a directory");
}

/// A directory of so many entries.
fn many(call: &liar::Call, reply: &mut Vec<u8>, entries: u64) {
    const PAGE: u64 = 2000;
    endless(call, reply, PAGE, 40);
    page(call, reply, |page, _| page.reply.eof = (call.before + 1) * PAGE >= entries);
}

/// It is listed whole, in parts, within the same memory.
fn list(entries: u64, lie: fn(&liar::Call, &mut Vec<u8>)) {
    let Outcome { code, stdout, stderr } = Trial::new(Reply(lie)).run(LIST_PATIENT);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("shown in parts") && stderr.lines().count() == 1, "{stderr}");
    let mut names: Vec<_> = str::from_utf8(&stdout).unwrap().lines().collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len() as u64, entries);
}

#[test]
fn a_directory_of_120_000_entries_is_listed() {
    list(120_000, |call, reply| many(call, reply, 120_000));
}

#[test]
#[ignore = "takes a minute"]
fn a_directory_of_a_million_entries_is_listed() {
    list(1_000_000, |call, reply| many(call, reply, 1_000_000));
}

// Links.
misbehaviours! {
    a_link_that_leads_out: TREE, Reply(|c, r| if c.is(P::Readlink) { link_to(r, b"/etc") }), Say(0, "");
    a_link_without_a_target: TREE, Reply(|c, r| if c.is(P::Readlink) { link_to(r, b"") }), Say(7, "link");
    a_link_target_of_10_kib: TREE_TCP, Reply(|c, r| if c.is(P::Readlink) { link_to(r, &[b'x'; 10_240]) }), Say(7, "too long");
    a_link_target_with_nul: TREE, Reply(|c, r| if c.is(P::Readlink) { link_to(r, b"a\0b") }), Say(7, "link");
    a_link_target_that_claims_4_gib: TREE, Reply(|c, r| results(c, r, P::Readlink, &[0, 0, u32::MAX, 0])), Say(1, "link");
    a_link_to_itself: CAT_LINK, Reply(|c, r| if c.is(P::Readlink) { link_to(r, b"link") }), Say(4, "too many levels of symbolic links");
    a_link_that_gets_longer: CAT_LINK, Reply(|c, r| if c.is(P::Readlink) { link_to(r, &b"./link/".repeat(500)) }), Say(4, "symbolic links");
    a_link_to_a_name_that_drives_the_terminal: CAT_LINK, Reply(|c, r| if c.is(P::Readlink) { link_to(r, b"\x1b[2Jx") }), Say(4, "");
}

#[test]
fn messages_have_an_end_whatever_they_are_about() {
    // The server makes up a name of 100 KB.
    let Outcome { code, stderr, .. } =
        Trial::new(Reply(|c, r| rename(c, r, &[&[b'x'; 100_000][..], b"end"].concat()))).run(TREE_TCP);
    assert_eq!(code, Some(7), "{stderr}");
    assert!(stderr.contains("xxx...xxx") && stderr.contains("xend: "), "{stderr}");
    // The user names something long.
    let path = format!("{{tree/{}/end}}", "y".repeat(4000));
    let Outcome { code, stderr, .. } = Trial::new(HONEST).run(&["stat", "--timeout", "1s", &path]);
    assert_ne!(code, Some(0));
    assert!(stderr.contains("yyy...yyy") && stderr.contains("y/end: "), "{stderr}");
    let command = ["cp", "--transport", "tcp", "--deadline", "1ms", &path, "copy"];
    let Outcome { code, stderr, .. } = Trial::new(HONEST).run(&command);
    assert!(matches!(code, Some(3 | 5)) && !stderr.contains("run again: "), "{stderr}");
}

// READ.
misbehaviours! {
    reads_shorter_than_asked: FILE, Reply(|c, r| read(c, r, |it| {
        it.data.truncate(500);
        it.eof = false;
        it.set(it.data.clone());
    })), BeRight;
    reads_longer_than_asked: FILE, Reply(|c, r| read(c, r, |it| it.set([&it.data[..], &[0; 64]].concat()))), Say(1, "broken");
    reads_longer_than_asked_over_tcp: FILE_TCP, Reply(|c, r| read(c, r, |it| it.set(vec![0; 1_100_000]))), Say(1, "broken");
    a_read_of_another_offset: &["cp", "--verify", "--transport", "udp", "--timeout", "1s", "{tree/alpha}", "copy"],
        Reply(|c, r| read(c, r, |it| if it.offset > 0 && c.before < 20 { it.data.rotate_left(100) })), Say(6, "differ");
    a_count_above_the_data: FILE, Reply(|c, r| read(c, r, |it| it.count += 4)), Say(1, "broken");
    a_count_below_the_data: FILE, Reply(|c, r| read(c, r, |it| it.count -= 4)), Say(1, "broken");
    data_that_claims_4_gib: FILE, Reply(|c, r| read(c, r, |it| (it.count, it.length) = (u32::MAX, u32::MAX))), Say(1, "broken");
    data_that_is_not_all_there: FILE, Reply(|c, r| read(c, r, |it| it.data.truncate(it.data.len() / 2))), Say(1, "broken");
    data_that_is_not_all_there_over_tcp: FILE_TCP, Reply(|c, r| read(c, r, |it| it.data.truncate(it.data.len() / 2))), Say(5, "");
    bytes_after_the_data: FILE, Reply(|c, r| if c.is(P::Read) { r.extend_from_slice(&[9; 64]) }), BeRight;
    reads_without_data_or_end: FILE, Reply(|c, r| read(c, r, |it| { it.eof = false; it.set(Vec::new()) })), Say(1, "neither data nor end of file");
    an_end_that_comes_early: FILE, Reply(|c, r| read(c, r, |it| { it.eof = true; it.set(vec![1; 10]) })), Say(1, "shrank");
    an_end_that_never_comes: FILE, Reply(|c, r| read(c, r, |it| it.eof = false)), BeRight;
    reads_without_attributes: FILE, Reply(|c, r| read(c, r, |it| it.attributes = None)), BeRight;
    reads_that_fail_with_a_status_nobody_knows: FILE, Reply(|c, r| results(c, r, P::Read, &[77_777])), Say(1, "77777");
}

// Attributes.
misbehaviours! {
    a_size_that_grows_while_it_is_read: FILE, Reply(|c, r| attributes(c, r, |it| it.size = 100_000 + c.before)), Say(1, "shrank");
    a_size_that_is_too_large: FILE, Reply(|c, r| attributes(c, r, |it| it.size = 1 << 40)), Say(1, "shrank");
    a_size_of_16_eib: FILE, Reply(|c, r| attributes(c, r, |it| it.size = u64::MAX)), Say(1, "");
    times_that_change_all_the_time: FILE, Reply(|c, r| attributes(c, r, |it| it.mtime.seconds = c.before as u32)), BeRight;
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

// What is read as one stream is as complete as a copy.
misbehaviours! {
    an_early_end_of_cat: CAT, Reply(|c, r| read(c, r, end_in_the_middle)), Say(1, SHRANK);
    an_early_end_of_cat_over_tcp: CAT_TCP, Reply(|c, r| read(c, r, end_in_the_middle)), Say(1, SHRANK);
    an_early_end_of_a_copy_to_standard_output: TO_STANDARD, Reply(|c, r| read(c, r, end_in_the_middle)), Say(1, SHRANK);
    an_early_end_of_a_relay: RELAY, Reply(|c, r| read(c, r, end_in_the_middle)), Say(1, SHRANK);
    an_end_without_data_of_cat: CAT, Reply(|c, r| read(c, r, |it| if it.offset > 0 { it.eof = true; it.set(Vec::new()) })), Say(1, "shrank from 100000 to");
    an_end_without_data_of_a_relay: RELAY, Reply(|c, r| read(c, r, |it| if it.offset > 0 { it.eof = true; it.set(Vec::new()) })), Say(1, "shrank from 100000 to");
    a_size_that_is_too_large_for_cat: CAT, Reply(|c, r| attributes(c, r, |it| it.size = 1 << 40)), Say(1, "shrank from 1099511627776 to 100000 bytes");
    a_size_that_is_too_large_for_a_relay: RELAY, Reply(|c, r| attributes(c, r, |it| it.size = 1 << 40)), Say(1, "shrank from 1099511627776 to 100000 bytes");
}

const SHRANK: &str = "the file shrank from 100000 to 50000 bytes while it was copied; copy it again";

/// Ends the file at 50,000 bytes, in the READ that gets there.
fn end_in_the_middle(read: &mut lies::Read) {
    let left = 50_000_usize.saturating_sub(read.offset as usize);
    if read.data.len() >= left {
        read.eof = true;
        read.set(read.data[..left].to_vec());
    }
}

#[test]
fn what_cat_has_shown_before_an_early_end_is_right() {
    let trial = Trial::new(Reply(|c, r| read(c, r, end_in_the_middle)));
    let outcome = trial.run(CAT);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(fs::read(trial.path("served/tree/alpha")).unwrap().starts_with(&outcome.stdout));
}

#[test]
fn a_size_of_nothing_hides_nothing_from_cat() {
    let trial = Trial::new(Reply(|c, r| attributes(c, r, |it| it.size = 0)));
    let outcome = trial.run(CAT);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(fs::read(trial.path("served/tree/alpha")).unwrap() == outcome.stdout);
}

/// Interrupts an upload of 2 MiB after a second or so, and runs it again; returns what the second run said.
fn interrupted_upload(lie: Lie) -> (Trial, Vec<u8>, String) {
    const RUN: &[&str] = &["cp", "--transport", "tcp"];
    let trial = Trial::new(lie);
    fs::write(trial.path("here/large"), common::noise(2 << 20)).unwrap();
    let first = [RUN, &["--bwlimit", "8M", "--deadline", "900ms", "large", "{up}"]].concat();
    let Outcome { code, stderr, .. } = trial.run(&first);
    assert_eq!(code, Some(5), "{stderr}");
    assert!(trial.path("served/.up.nfsw-part").exists());
    let Outcome { code, stdout, .. } =
        trial.run(&[RUN, &["--json", "--deadline", "1ms", "large", "{up}"]].concat());
    assert_ne!(code, Some(0));
    assert_eq!(event(&stdout, "resumed"), None, "the server was not asked yet");
    let Outcome { code, stdout, stderr } = trial.run(&[RUN, &["--json", "large", "{up}"]].concat());
    assert_eq!(code, Some(0), "{stderr}");
    assert_same_tree(&trial.path("here/large"), &trial.path("served/up"), false);
    (trial, stdout, stderr)
}

/// Finds the first event of a name in what a run printed.
fn event(stdout: &[u8], name: &str) -> Option<serde_json::Value> {
    let text = str::from_utf8(stdout).unwrap();
    let mut events = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    events.find(|event| event["event"] == name)
}

#[test]
fn an_upload_is_resumed_with_what_the_server_confirms() {
    let (_, stdout, stderr) = interrupted_upload(HONEST);
    let had = event(&stdout, "resumed").unwrap()["bytes"].as_u64().unwrap();
    let summary = event(&stdout, "summary").unwrap();
    assert!(had > 0 && had + summary["bytes"].as_u64().unwrap() == 2 << 20, "{had}: {summary}");
    assert_eq!(summary["counts"]["resumed"], 1);
    assert!(!stderr.contains("from the beginning"), "{stderr}");
}

/// As a server does whose file ids change when it is started again.
#[test]
fn an_upload_that_the_server_does_not_know_again_is_not_called_resumed() {
    let (_, stdout, stderr) = interrupted_upload(Reply(|c, r| {
        if c.is(P::Lookup) {
            edit::<LOOKUP3resok>(r, |it| {
                if let Nfs3Option::Some(attributes) = &mut it.obj_attributes {
                    attributes.fileid ^= 1 << 40
                }
            });
        }
    }));
    let summary = event(&stdout, "summary").unwrap();
    assert_eq!((event(&stdout, "resumed"), &summary["bytes"]), (None, &(2 << 20).into()), "{summary}");
    assert_eq!(summary["counts"]["resumed"], 0);
    assert!(stderr.contains("the server does not have what an earlier run sent"), "{stderr}");
}

/// A server that announces less than it takes: what it announces counts, and is said where the user asked for more.
#[test]
fn a_block_size_is_exact_up_to_the_servers_limits() {
    let trial = Trial::new(Reply(|call, reply| {
        if call.is(P::Fsinfo) {
            edit::<FSINFO3resok>(reply, |it| (it.rtmax, it.wtmax) = (20_000, 10_000));
        }
        if call.is(P::Write) {
            let mut arguments = Reader::new(&call.arguments);
            FileHandle::decode(&mut arguments).unwrap();
            arguments.u64("offset").unwrap();
            let count = arguments.u32("count").unwrap();
            assert!(count <= 10_000, "a WRITE of {count} bytes");
        }
    }));
    fs::write(trial.path("here/large"), common::noise(1 << 20)).unwrap();
    for transport in ["udp", "tcp"] {
        let run = |size| trial.run(&["cp", "--transport", transport, "--block-size", size, "large", "{up}"]);
        let outcome = run("64K");
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let said =
            "takes less than --block-size at once: at most 20000 bytes per READ and 10000 bytes per WRITE";
        assert!(outcome.stderr.contains(said), "{transport}: {}", outcome.stderr);
        let outcome = run("8K");
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{transport}");
        assert_same_tree(&trial.path("here/large"), &trial.path("served/up"), false);
    }
}

/// The procedure whose replies get lost, in `a_tree_goes_on_after_an_end_at_any_step_of_its_marker`.
static LOST: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(u32::MAX);

#[test]
fn a_tree_goes_on_after_an_end_at_any_step_of_its_marker() {
    use std::sync::atomic::Ordering::Relaxed;
    const RUN: &[&str] = &["cp", "-r", "--transport", "tcp"];
    const NOBODY: u32 = u32::MAX;
    for procedure in [P::Mkdir, P::Create, P::Rename, P::Write, P::Remove] {
        let trial = Trial::new(Wire(|call, reply, line| {
            if call.program != Program::NFS || call.procedure != LOST.load(Relaxed) {
                line.send(reply);
            }
        }));
        LOST.store(procedure.number(), Relaxed);
        let first = trial.run(&[RUN, &["--timeout", "700ms", "../served/tree", "{up}"]].concat());
        assert_eq!(first.code, Some(5), "{procedure}: {}", first.stderr);
        LOST.store(NOBODY, Relaxed);
        let marker = trial.path("served/up/.nfsw-incomplete");
        let is_named = trial.path("served/up").exists();
        assert_eq!(is_named, marker.exists() || procedure == P::Remove, "{procedure}");
        if procedure != P::Remove {
            // What is known of the first run is gone, and the target is written in another way.
            fs::remove_dir_all(trial.path("here/.state")).unwrap();
            let again = trial.run(&[RUN, &["../served/tree/", "{up/}"]].concat());
            assert_eq!(again.code, Some(0), "{procedure}: {}", again.stderr);
        }
        assert_same_tree(&trial.path("served/tree"), &trial.path("served/up"), false);
        assert_eq!(common::names(&trial.path("served")), ["tree", "up"], "{procedure}");
        // It is complete, and a directory like any other.
        let nested = trial.run(&[RUN, &["../served/tree", "{up}"]].concat());
        assert_eq!(nested.code, Some(0), "{procedure}: {}", nested.stderr);
        assert_same_tree(&trial.path("served/tree"), &trial.path("served/up/tree"), false);
    }
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

// Handles and uploads.
misbehaviours! {
    a_handle_of_65_bytes: FILE, Reply(|c, r| results(c, r, P::Lookup, &[0, 65])), Say(1, "broken");
    a_handle_of_4_gib: FILE, Reply(|c, r| results(c, r, P::Lookup, &[0, u32::MAX])), Say(1, "broken");
    a_handle_of_no_bytes: FILE, Reply(|c, r| results(c, r, P::Lookup, &[0, 0, 0, 0])), Say(1, "");
    more_written_than_sent: UPLOAD, Reply(|c, r| write(c, r, |it| it.count = u32::MAX)), Say(1, "WRITE");
    nothing_written_for_ever: UPLOAD, Reply(|c, r| write(c, r, |it| it.count = 0)), Say(1, "WRITE");
    writes_stable_in_a_way_nobody_knows: UPLOAD, Reply(|c, r| results(c, r, P::Write, &[0, 0, 0, 4096, 9, 0, 0])), Say(1, "WRITE");
    another_write_verifier_every_time: UPLOAD, Reply(|c, r| write(c, r, |it| {
        (it.verf, it.committed) = (writeverf3(c.before.to_be_bytes()), stable_how::UNSTABLE);
    })), Say(1, "no progress");
    a_commit_that_never_covers_the_writes: UPLOAD, Reply(|c, r| {
        write(c, r, |it| it.committed = stable_how::UNSTABLE);
        commit(c, r, |it| it.verf = writeverf3((1000 + c.before).to_be_bytes()));
    }), Say(1, "no progress");
    a_new_file_without_a_handle: UPLOAD, Reply(|c, r| if c.is(P::Create) {
        edit::<CREATE3resok>(r, |it| (it.obj, it.obj_attributes) = (post_op_fh3::None, post_op_attr::None));
    }), BeRight;
}

// RPC.
misbehaviours! {
    nobody_answers: FILE, Wire(|c, r, line| if c.program != Program::NFS { line.send(r) }), Say(3, "");
    replies_send_from_elsewhere: FILE, Wire(|_, r, line| {
        line.send_from_elsewhere(&lie_about(r));
        line.send(r);
        line.send_from_elsewhere(&lie_about(r));
    }), BeRight;
    replies_send_from_elsewhere_alone: FILE, Wire(|c, r, line| if c.is(P::Read) { line.send_from_elsewhere(r) } else { line.send(r) }), Say(5, "");
    forged_xids: FILE, Wire(|_, r, line| {
        for xid in 0..100_u32 {
            line.send(&[&xid.wrapping_mul(0x9e37_79b9).to_be_bytes(), &lie_about(r)[4..]].concat());
        }
        line.send(r);
    }), BeRight;
    forged_xids_over_tcp: TREE_TCP, Wire(|_, r, line| {
        line.send(&[&[0; 4], &lie_about(r)[4..]].concat());
        line.send(r);
    }), BeRight;
    every_reply_ten_times: TREE, Wire(|_, r, line| (0..10).for_each(|_| line.send(r))), BeRight;
    every_reply_ten_times_over_tcp: TREE_TCP, Wire(|_, r, line| (0..10).for_each(|_| line.send(r))), BeRight;
    replies_cut_short_now_and_then: TREE, Wire(|c, r, line| line.raw(if c.before % 7 == 3 && !c.is(P::Read) { &r[..r.len().min(20)] } else { r })), BeRight;
    calls_instead_of_replies: FILE, Wire(|c, r, line| {
        if c.is(P::Read) { line.send(&[&r[..4], &[0; 4], &c.arguments[..]].concat()) }
        line.send(r);
    }), BeRight;
    datagrams_of_nothing: FILE, Wire(|_, r, line| { line.raw(&[]); line.raw(&r[..3]); line.raw(r) }), BeRight;
    the_largest_datagrams_there_are: FILE, Wire(|_, r, line| { line.raw(&[&r[..4], &[0xff; 65_000]].concat()); line.raw(r) }), BeRight;
    an_accept_status_nobody_knows: FILE, Reply(|c, r| if c.is(P::Read) { message(r, &[1, 0, 0, 0, 99]) }), Say(5, "");
    a_verifier_of_4_gib: FILE, Reply(|c, r| if c.is(P::Read) { message(r, &[1, 0, 0, u32::MAX, 0]) }), Say(5, "");
    a_refused_credential: FILE, Reply(|c, r| if c.is(P::Read) { message(r, &[1, 1, 1, 5]) }), Say(1, "refused the credential");
    a_version_that_is_gone: FILE, Reply(|c, r| if c.is(P::Read) { message(r, &[1, 0, 0, 0, 2, 4, 4]) }), Say(1, "versions 4 to 4");
    a_procedure_that_is_gone: FILE, Reply(|c, r| if c.is(P::Read) { message(r, &[1, 0, 0, 0, 3]) }), Say(1, "does not offer this procedure");
    arguments_it_calls_garbage: FILE, Reply(|c, r| if c.is(P::Lookup) { message(r, &[1, 0, 0, 0, 4]) }), Say(1, "could not decode the arguments");
    an_error_of_its_system: FILE, Reply(|c, r| if c.is(P::Read) { message(r, &[1, 0, 0, 0, 5]) }), Say(1, "ran out of a resource");
    try_later_for_ever: FILE, Reply(|c, r| results(c, r, P::Read, &[10_008])), Say(5, "");
}

// TCP.
misbehaviours! {
    nonsense_for_every_read: FILE_PATIENT, Wire(|c, r, line| if c.is(P::Read) { line.raw(&[0xff; 64]) } else { line.send(r) }), Say(5, NO_NFS);
    nonsense_for_every_write: UPLOAD_PATIENT, Wire(|c, r, line| if c.is(P::Write) { line.raw(b"HTTP/1.1 400 Bad Request\r\n\r\n") } else { line.send(r) }), Say(5, NO_NFS);
    nonsense_for_every_listing: LIST_PATIENT, Wire(|c, r, line| if c.is(P::Readdirplus) { line.send(&[7; 64]) } else { line.send(r) }), Say(5, NO_NFS);
    nonsense_for_everything_after_mount: TREE_PATIENT, Wire(|c, r, line| {
        if c.program == Program::NFS && c.procedure > 1 { line.raw(&[0xff; 4]) } else { line.send(r) }
    }), Say(5, NO_NFS);
    nonsense_from_the_start: LIST_PATIENT, Wire(|_, _, line| line.raw(&[0xff; 64])), Say(3, "");
    every_record_cut_short: FILE_PATIENT, Wire(|c, r, line| if c.is(P::Read) {
        line.raw(&[&mark(r.len()), &r[..r.len() / 2]].concat());
        line.close();
    } else { line.send(r) }), Say(5, "ends inside a record");
    records_cut_short_now_and_then: TREE_PATIENT, Wire(|c, r, line| if c.before % 3 == 1 {
        line.raw(&[&mark(r.len()), &r[..r.len() / 2]].concat());
        line.close();
    } else { line.send(r) }), BeRight;
    connections_that_end_after_every_reply: TREE_PATIENT, Wire(|c, r, line| {
        line.send(r);
        if c.program == Program::NFS { line.close() }
    }), BeRight;
    connections_that_end_without_a_word: FILE_TCP, Wire(|c, r, line| if c.is(P::Read) { line.close() } else { line.send(r) }), Say(5, "no progress");
    a_record_of_2_gib: FILE_TCP, Wire(|c, r, line| if c.is(P::Read) { line.raw(&[0xff; 64]) } else { line.send(r) }), Say(5, "");
    empty_fragments_for_ever: FILE_TCP, Wire(|c, r, line| if c.is(P::Read) { line.raw(&[0; 64 << 10]) } else { line.send(r) }), Say(5, "");
    a_record_that_never_ends: FILE_TCP, Wire(|c, r, line| {
        if c.is(P::Read) { line.raw(&[&[0, 1, 0, 0][..], &r[..24]].concat()) } else { line.send(r) }
    }), Say(5, "");
    fragments_for_ever: FILE_TCP, Wire(|c, r, line| {
        if c.is(P::Read) { (0..100).for_each(|_| line.raw(&[&[0, 1, 0, 0][..], &[7; 65_536]].concat())) } else { line.send(r) }
    }), Say(5, "");
    fragments_of_one_byte: TREE_TCP, Wire(|_, r, line| {
        let (last, most) = r.split_last().unwrap();
        let start = most.len().saturating_sub(2000);
        let mut bytes = [&(start as u32).to_be_bytes()[..], &most[..start]].concat();
        most[start..].iter().for_each(|&byte| bytes.extend_from_slice(&[0, 0, 0, 1, byte]));
        bytes.extend_from_slice(&[0x80, 0, 0, 1, *last]);
        line.raw(&bytes);
    }), BeRight;
    a_byte_at_a_time: TREE_TCP, Wire(|_, r, line| {
        let bytes = [&mark(r.len())[..], r].concat();
        let (slow, rest) = bytes.split_at(150.min(bytes.len()));
        slow.iter().for_each(|&byte| {
            line.raw(&[byte]);
            std::thread::sleep(std::time::Duration::from_micros(100));
        });
        line.raw(rest);
    }), BeRight;
    a_connection_for_every_call: TREE_TCP, Wire(|c, r, line| { line.send(r); if c.before % 3 == 1 { line.close() } }), BeRight;
    a_connection_that_ends_inside_data: FILE_TCP, Wire(|c, r, line| {
        if c.is(P::Read) && c.before < 3 {
            line.raw(&[&mark(r.len())[..], &r[..r.len() / 2]].concat());
            line.close();
        } else {
            line.send(r);
        }
    }), BeRight;
    noise_between_records: FILE_TCP, Wire(|c, r, line| { if c.is(P::Read) { line.raw(b"GET / HTTP/1.1\r\n\r\n") } line.send(r) }), Say(5, "");
    records_that_are_no_replies: FILE_TCP, Wire(|c, r, line| { if c.is(P::Read) && c.before == 0 { line.send(b"hello") } line.send(r) }), BeRight;
}

// MOUNT and the port mapper.
misbehaviours! {
    a_list_of_exports_refused_without_versions: FILE_TCP, Reply(|c, r| if is_mount(c, 5) { message(r, &[1, 0, 0, 0, 2]) }), BeRight;
    a_list_of_exports_refused_without_versions_over_udp: FILE, Reply(|c, r| if is_mount(c, 5) { message(r, &[1, 0, 0, 0, 2]) }), BeRight;
    a_list_of_exports_that_nobody_offers: FILE_TCP, Reply(|c, r| if is_mount(c, 5) { message(r, &[1, 0, 0, 0, 1]) }), BeRight;
    a_list_of_exports_that_is_asked_for: &["exports", "--timeout", "1s", "{tree}"],
        Reply(|c, r| if is_mount(c, 5) { message(r, &[1, 0, 0, 0, 2]) }), Say(3, "the server rejects EXPORT");
    a_list_of_exports_that_is_not_xdr: FILE_TCP, Reply(|c, r| mount(c, 5, r, &[9, 9, 9])), BeRight;
    a_root_without_flavours: FILE, Reply(|c, r| if is_mount(c, 1) { r.truncate(r.len() - 12) }), BeRight;
    words_after_the_root: FILE, Reply(|c, r| if is_mount(c, 1) { r.extend_from_slice(&[7; 8]) }), BeRight;
    words_after_all_results: TREE_TCP, Reply(|_, r| r.extend_from_slice(&[7; 4])), BeRight;
    words_after_all_results_of_an_upload: UPLOAD_PATIENT, Reply(|_, r| r.extend_from_slice(&[7; 4])), BeRight;
    words_after_what_df_shows: &["df", "--timeout", "1s", "{tree}"], Reply(|_, r| r.extend_from_slice(&[7; 4])), Say(0, "");
    a_root_handle_of_65_bytes: FILE, Reply(|c, r| mount(c, 1, r, &[0, 65])), Say(3, "MNT");
    a_root_with_4_billion_flavours: FILE, Reply(|c, r| mount(c, 1, r, &[0, 4, 0, u32::MAX])), Say(3, "MNT");
    a_mount_status_nobody_knows: FILE, Reply(|c, r| mount(c, 1, r, &[4711])), Say(3, "4711");
    a_root_that_is_no_handle_of_its_own: FILE, Reply(|c, r| mount(c, 1, r, &[0, 8, 1, 2, 0])), Say(1, "does not know this file handle");
    an_export_list_that_is_cut: &["exports", "--timeout", "1s", "{tree}"], Reply(|c, r| mount(c, 5, r, &[1, 4, 0x2f61_6263, 1])), Say(3, "EXPORT");
    an_export_of_4_gib: &["exports", "--timeout", "1s", "{tree}"], Reply(|c, r| mount(c, 5, r, &[1, u32::MAX])), Say(3, "EXPORT");
    an_export_list_that_is_cut_before_a_copy: FILE, Reply(|c, r| mount(c, 5, r, &[1, u32::MAX])), BeRight;
    a_mount_service_that_refuses: FILE, Reply(|c, r| if c.program == Program::MOUNT { message(r, &[1, 0, 0, 0, 1]) }), Say(3, "MOUNT");
}

/// What `doctor` prints about a server that does a thing wrong; it ends by itself, with this status.
fn doctor(status: i32, lie: Lie) -> String {
    let Outcome { code, stdout, stderr } =
        Trial::new(lie).run(&["doctor", "--write-test", "--wait", "200ms", "{tree}"]);
    assert_eq!(code, Some(status), "{stderr}");
    let page = String::from_utf8(stdout).unwrap();
    assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
    assert!(!page.chars().any(|it| it.is_control() && it != '\n'), "{page:?}");
    page
}

#[test]
fn doctor_tells_what_is_odd() {
    type Row = (i32, Lie, &'static str);
    let rows: [Row; 13] = [
        (0, HONEST, "is answered from the reply cache"),
        (
            3,
            Wire(|c, r, line| {
                if c.program != Program::NFS {
                    line.send(r)
                }
            }),
            "NFS does not answer, neither over UDP nor",
        ),
        (
            0,
            Wire(|c, r, line| {
                if c.program != Program::NFS || !matches!(line, liar::Line::Datagrams(..)) {
                    line.send(r)
                }
            }),
            "udp=y",
        ),
        (0, Reply(|c, r| mount(c, 5, r, &[1, u32::MAX])), "EXPORT: cannot be understood"),
        (
            0,
            Reply(|c, r| {
                if c.program == Program::MOUNT && c.procedure == 5 {
                    message(r, &[1, 0, 0, 0, 2])
                }
            }),
            "EXPORT: not offered",
        ),
        (3, Reply(|c, r| mount(c, 1, r, &[13])), "refused: permission denied"),
        (3, Reply(|c, r| mount(c, 1, r, &[0, 4, 0, u32::MAX])), "cannot be understood"),
        (
            0,
            Reply(|c, r| {
                if c.is(P::Fsstat) {
                    r.extend([0; 4])
                }
            }),
            "FSSTAT: 4 bytes follow the results",
        ),
        (0, Reply(|c, r| results(c, r, P::Readdirplus, &[10_004])), "READDIRPLUS: "),
        (
            0,
            Reply(|c, r| {
                if c.is(P::Commit) {
                    message(r, &[1, 0, 0, 0, 3])
                }
            }),
            "COMMIT: not offered",
        ),
        (
            0,
            Reply(|c, r| {
                if c.is(P::Create) && c.before == 0 {
                    results(c, r, P::Create, &[22])
                }
            }),
            "CREATE takes a mode and no times",
        ),
        (
            0,
            Reply(|c, r| {
                if c.is(P::Mkdir) && c.before % 2 == 1 {
                    results(c, r, P::Mkdir, &[17])
                }
            }),
            "is run again: no reply cache",
        ),
        (
            0,
            Reply(|c, r| {
                if c.is(P::Fsinfo) {
                    edit::<FSINFO3resok>(r, |it| (it.rtmax, it.wtmax) = (32 << 10, 32 << 10));
                }
            }),
            "Blocks over TCP have at most 32 KiB",
        ),
    ];
    for (status, lie, words) in rows {
        // Words may be broken into lines.
        let page = doctor(status, lie).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.contains(words), "{words:?} is not in {page}");
    }
}

#[test]
fn doctor_survives_nonsense() {
    for lie in [
        Wire(|_, _, line| line.raw(&[0xff; 64])),
        Wire(|_, _, line| line.raw(&[0; 64 << 10])),
        Wire(|_, r, line| line.raw(&[&mark(r.len()), &r[..r.len() / 2]].concat())),
        Wire(|_, r, line| {
            (0..200).for_each(|_| line.raw(&[&[0, 1, 0, 0][..], &r[..4], &[7; 65_532]].concat()))
        }),
        Wire(|_, _, line| line.close()),
        Reply(|_, r| r.truncate(28)),
        Reply(|_, r| r.extend([0xff; 40_000])),
    ] {
        let outcome = Trial::new(lie).run(&["doctor", "--write-test", "--wait", "100ms", "{tree}"]);
        assert!(matches!(outcome.code, Some(0 | 3)), "{:?}: {}", outcome.code, outcome.stderr);
    }
}

fn mount(call: &liar::Call, procedure: u32, reply: &mut Vec<u8>, words: &[u32]) {
    if is_mount(call, procedure) {
        reply.truncate(HEADER);
        reply.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    }
}

fn is_mount(call: &liar::Call, procedure: u32) -> bool {
    call.program == Program::MOUNT && call.procedure == procedure
}

/// Answers READLINK with this target.
fn link_to(reply: &mut Vec<u8>, target: &[u8]) {
    reply.truncate(HEADER);
    reply.extend_from_slice(&[0; 8]);
    reply.extend_from_slice(&(target.len() as u32).to_be_bytes());
    reply.extend_from_slice(target);
    reply.resize(reply.len().next_multiple_of(4), 0);
}

/// A reply whose last bytes are others.
fn lie_about(reply: &[u8]) -> Vec<u8> {
    let mut lie = reply.to_vec();
    lie.iter_mut().skip(HEADER + 100).for_each(|byte| *byte ^= 0xff);
    lie
}

/// Runs a copy of the tree into `here/copy`, in which something lies in wait.
fn ambush(command: &[&str], prepare: impl FnOnce(&std::path::Path)) -> (Trial, Outcome) {
    let trial = Trial::new(HONEST);
    fs::create_dir_all(trial.path("here/copy/tree")).unwrap();
    prepare(&trial.path("here/copy/tree"));
    let outcome = trial.run(command);
    (trial, outcome)
}

#[test]
fn a_link_in_the_place_of_a_directory_is_not_entered() {
    let (trial, outcome) = ambush(TREE, |copy| symlink("../../..", copy.join("sub")).unwrap());
    assert_ne!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(!trial.path("gamma").exists() && outcome.stderr.contains("copy/tree/sub"), "{}", outcome.stderr);
}

#[test]
fn a_link_in_the_place_of_a_file_is_replaced() {
    let (trial, outcome) = ambush(TREE, |copy| symlink("../../../canary", copy.join("alpha")).unwrap());
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_same_tree(&trial.path("served/tree"), &trial.path("here/copy/tree"), false);
}

#[test]
fn a_link_in_the_place_of_a_file_is_not_written_through() {
    let mut command = TREE.to_vec();
    command.insert(1, "--inplace");
    let (trial, outcome) = ambush(&command, |copy| symlink("../../../canary", copy.join("alpha")).unwrap());
    assert_ne!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("copy/tree/alpha"), "{}", outcome.stderr);
    assert!(trial.path("here/copy/tree/beta").exists());
}

#[test]
fn a_link_in_the_place_of_an_unfinished_copy_is_not_written_through() {
    let prepare = |copy: &std::path::Path| {
        symlink("../../../canary", copy.join(".alpha.nfsw-part")).unwrap();
        symlink("../../../canary", copy.join(".alpha.nfsw-journal")).unwrap();
    };
    let (trial, outcome) = ambush(TREE, prepare);
    assert_ne!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(!trial.path("here/copy/tree/alpha").exists());
}

/// The server first says that a name is a link out of here, and then that it is a directory with files.
#[test]
fn a_link_that_becomes_a_directory_is_not_entered() {
    let lie = Reply(|call, reply| {
        page(call, reply, |page, honest| {
            let sub = honest.iter().find(|it| it.name.as_ref() == b"sub");
            for entry in
                page.reply.entries.0.iter_mut().filter(|it| sub.is_some() && it.name.as_ref() == b"link")
            {
                if call.before >= 2 {
                    *entry = named(sub.unwrap(), b"link".to_vec(), entry.cookie);
                }
            }
        })
    });
    let trial = Trial::new(lie);
    let command: Vec<&str> = TREE.iter().copied().chain(["--no-resume"]).collect();
    let first = trial.run(&command);
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    fs::remove_file(trial.path("here/copy/link")).unwrap();
    fs::create_dir(trial.path("here/copy/tree")).unwrap();
    symlink("../../..", trial.path("here/copy/tree/link")).unwrap();
    let second = trial.run(&command);
    assert_ne!(second.code, Some(0), "{}", second.stderr);
    assert!(!trial.path("gamma").exists() && second.stderr.contains("link"), "{}", second.stderr);
}

#[test]
fn nothing_is_removed_by_an_unsafe_name() {
    let trial = Trial::new(Reply(|call, reply| rename(call, reply, b"../tree/alpha")));
    let outcome = trial.run(&["rm", "-r", "--timeout", "1s", "{tree/sub}", "{tree}"]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(trial.path("served/tree/beta").exists() && outcome.stderr.contains("unsafe name"));
}

/// Removes or changes `target` in the tree of a server that lies, which must be said, and must leave alone what lies beside.
fn spares_what_lies_above(target: &str, lie: Lie) {
    for command in [&["rm", "-r"][..], &["chmod", "-R", "700"]] {
        let trial = Trial::new(lie);
        fs::write(trial.path("served/beside"), "").unwrap();
        let outcome = trial.run(&[command, &["--timeout", "1s", target]].concat());
        assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("lies in"), "{}", outcome.stderr);
        for spared in ["beside", "tree/alpha"] {
            let path = trial.path("served").join(spared);
            let mode = fs::symlink_metadata(&path).map(|found| found.permissions().mode() & 0o777);
            assert!(mode.is_ok_and(|mode| mode != 0o700), "{command:?} has found {spared}");
        }
    }
}

#[test]
fn a_name_that_leads_to_its_own_directory_is_refused() {
    spares_what_lies_above(
        "{tree/sub}",
        Reply(|call, reply| {
            let mut arguments = Reader::new(&call.arguments);
            let directory = call.is(P::Lookup).then(|| FileHandle::decode(&mut arguments).unwrap());
            if call.is(P::Lookup) && arguments.opaque("name", 255) == Ok(b"sub") {
                edit::<LOOKUP3resok>(reply, |found| found.object = directory.unwrap().to_fh3());
            }
        }),
    );
}

#[test]
fn a_name_that_leads_far_up_is_refused() {
    static TREE_HANDLE: Mutex<Option<FileHandle>> = Mutex::new(None);
    spares_what_lies_above(
        "{tree/sub/gamma}",
        Reply(|call, reply| {
            if !call.is(P::Lookup) {
                return;
            }
            let mut arguments = Reader::new(&call.arguments);
            FileHandle::decode(&mut arguments).unwrap();
            let name = arguments.opaque("name", 255).unwrap();
            edit::<LOOKUP3resok>(reply, |found| match name {
                b"tree" => *TREE_HANDLE.lock().unwrap() = Some(FileHandle::try_from(&found.object).unwrap()),
                b"gamma" => found.object = TREE_HANDLE.lock().unwrap().unwrap().to_fh3(),
                _ => {}
            });
        }),
    );
}

#[test]
fn an_entry_that_leads_up_is_left_out() {
    // Two levels below `tree`, whose handle is that of `..` in `sub`.
    spares_what_lies_above(
        "{tree/sub}",
        Reply(|call, reply| {
            page(call, reply, |page, honest| {
                let up = honest.iter().find(|it| it.name.as_ref() == b"..");
                for entry in honest.iter().filter(|it| it.name.as_ref() == b"gamma") {
                    let up = named(up.unwrap(), b"aaa".to_vec(), entry.cookie);
                    page.reply.entries.0.insert(0, up);
                }
            });
        }),
    );
}

#[test]
fn a_terminal_gets_names_escaped() {
    let trial = Trial::new(Reply(|call, reply| rename(call, reply, b"\x1b[31mred\x07")));
    for options in ["-1", "-l"] {
        let line = format!("{} ls {options} '{}'", env!("CARGO_BIN_EXE_nfsw"), trial.url("tree"));
        let output =
            std::process::Command::new("script").args(["-qec", &line, "/dev/null"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("\\u{1b}[31mred\\u{7}"), "{text:?}");
        assert!(!text.contains('\x1b') && !text.contains('\x07'), "{text:?}");
    }
}

const HONEST: Lie = Reply(|_, _| {});

#[test]
fn an_honest_server_is_believed() {
    for command in [TREE, TREE_TCP, FILE, FILE_TCP, UPLOAD, LIST, LIST_TCP] {
        check(command, HONEST, BeRight);
    }
}

#[test]
fn our_own_server_listens_on_the_loopback_or_warns() {
    let here = tempfile::tempdir().unwrap();
    let directory = here.path().to_str().unwrap();
    let serve = |options: &[&str]| {
        let output = nfsw([&["serve", "--for", "10ms", directory][..], options].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
    };
    for address in ["127.0.0.1:0", "[::1]:0"] {
        assert_eq!(serve(&["--listen", address]), "");
    }
    let warning = serve(&["--listen", "0.0.0.0:0"]);
    assert!(warning.contains("may read and change everything in"), "{warning}");
    let warning = serve(&["--listen", "0.0.0.0:0", "--read-only"]);
    assert!(warning.contains("may read everything in"), "{warning}");
    let help = nfsw(["serve", "--help"]);
    assert!(String::from_utf8(help.stdout).unwrap().contains("127.0.0.1:20490]"));
}
