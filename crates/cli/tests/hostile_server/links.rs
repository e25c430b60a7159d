//! Symbolic links of the server, and links that lie in wait at the destination.

use super::*;

misbehaviours! {
    a_link_that_leads_out: TREE, Reply(|c, r| if c.is(P::Readlink) { link_to(r, b"/etc") }), Say(0, "");
    a_link_without_a_target: TREE, Reply(|c, r| if c.is(P::Readlink) { link_to(r, b"") }), Say(7, "link");
    a_link_target_of_10_kib: TREE_TCP, Reply(|c, r| if c.is(P::Readlink) { link_to(r, &[b'x'; 10_240]) }), Say(7, "too long");
    a_link_target_with_nul: TREE, Reply(|c, r| if c.is(P::Readlink) { link_to(r, b"a\0b") }), Say(7, "link");
    a_link_target_that_claims_4_gib: TREE, Reply(|c, r| results(c, r, P::Readlink, &[0, 0, u32::MAX, 0])), Say(1, "link");
    a_link_to_itself: CAT_LINK, Reply(|c, r| if c.is(P::Readlink) { link_to(r, b"link") }), Say(4, "too many levels of symbolic links");
    a_link_that_gets_longer: CAT_LINK, Reply(|c, r| if c.is(P::Readlink) { link_to(r, &b"./link/".repeat(500)) }), Say(4, "symbolic links");
    a_link_to_a_name_that_drives_the_terminal: CAT_LINK, Reply(|c, r| if c.is(P::Readlink) { link_to(r, b"\x1b[2Jx") }), Say(4, "/tree/link: no such file or directory");
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
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
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
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    let message = "copy/tree/alpha: is a symbolic link, which --inplace does not write through";
    assert!(outcome.stderr.contains(message), "{}", outcome.stderr);
    assert!(trial.path("here/copy/tree/beta").exists());
}

#[test]
fn a_link_in_the_place_of_an_unfinished_copy_is_not_written_through() {
    let prepare = |copy: &std::path::Path| {
        symlink("../../../canary", copy.join(".alpha.nfsw-part")).unwrap();
        symlink("../../../canary", copy.join(common::journal("alpha"))).unwrap();
    };
    let (trial, outcome) = ambush(TREE, prepare);
    // The copy has another temporary name; the links stay as they are.
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(
        fs::read(trial.path("here/copy/tree/alpha")).unwrap(),
        fs::read(trial.path("served/tree/alpha")).unwrap()
    );
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
    assert_eq!(second.code, Some(1), "{}", second.stderr);
    assert!(!trial.path("gamma").exists() && second.stderr.contains("link"), "{}", second.stderr);
}
