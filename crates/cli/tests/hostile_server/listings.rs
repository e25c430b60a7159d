//! Directories that lie about what is in them.

use super::*;

misbehaviours! {
    cookies_that_never_advance: TREE, Reply(|c, r| page(c, r, |page, _| {
        page.reply.eof = false;
        page.reply.entries.0.iter_mut().for_each(|entry| entry.cookie = 7);
    })), Say(1, "go in circles");
    a_directory_that_is_forgotten: &["ls", "-R", "--transport", "udp", "--timeout", "1s", "{tree}"],
        Reply(|c, r| if c.before == 1 { results(c, r, P::Readdirplus, &[70]) }), BeRight;
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
    })), Say(1, "skipped deeper: the server gives it the handle of a directory that it lies in");
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

/// Each of them has a path of 3,500 bytes, which is not kept until its turn.
#[test]
fn many_directories_in_a_deep_one_are_listed() {
    const DEPTH: usize = 14;
    const DIRECTORIES: usize = 9000;
    let trial = Trial::new(HONEST);
    let mut deep = trial.path("served/tree");
    for _ in 0..DEPTH {
        deep.push("d".repeat(250));
        fs::create_dir(&deep).unwrap();
    }
    for number in 0..DIRECTORIES {
        fs::create_dir(deep.join(number.to_string())).unwrap();
    }
    let Outcome { code, stdout, stderr } = trial.run(&["ls", "-R", "--transport", "tcp", "{tree}"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.iter().filter(|&&byte| byte == b':').count() >= DIRECTORIES);
}
