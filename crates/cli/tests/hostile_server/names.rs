//! Names that servers give to entries.

use super::*;

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
    the_name_of_an_unfinished_copy: TREE, Reply(|c, r| add(c, r, b".alpha.nfsw-part")), Say(0, ".alpha.nfsw-part: skipped: it is left of an interrupted copy");
    thousands_of_unsafe_names: TREE_TCP, Reply(|c, r| page(c, r, |page, honest| {
        for entry in honest.iter().filter(|it| it.name.as_ref() == b"beta") {
            page.reply.entries.0.extend((0..2000).map(|it| named(entry, format!("/{it}").into_bytes(), entry.cookie)));
        }
    })), Say(1, "skipped 1980 more entries");
}
