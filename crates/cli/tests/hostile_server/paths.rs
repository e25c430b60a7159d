//! Names that lead to a directory above.

use super::*;

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
