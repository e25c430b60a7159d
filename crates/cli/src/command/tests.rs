//! What `rm -r`, `chmod -R` and `mv -n` do to what somebody moves, replaces or makes meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Instant, SystemTime},
};

use clap::Parser;
use nfs_wireless_client::Procedure;
use nfs_wireless_server::{Action, Faults, Rule};

use super::{chmod, ln, mv, rm};
use nfs_files::Context;

use crate::{
    args::{Cli, Command, OutputArgs},
    log::Log,
    report::Reporter,
    served::{Call, Served},
};

/// Runs `nfsw` in this process, over TCP; returns what was counted and what was said.
async fn run(server: &Served, words: &[&str]) -> (serde_json::Value, String) {
    let urls: Vec<String> = words
        .iter()
        .map(|word| word.strip_prefix('@').map_or_else(|| (*word).to_owned(), |it| server.url(it)))
        .collect();
    let arguments = ["nfsw"].into_iter().chain(urls.iter().map(String::as_str)).chain(["--transport", "tcp"]);
    let log = tempfile::NamedTempFile::new().unwrap();
    let reporter = Reporter::new(&OutputArgs::default(), Instant::now()).that_changes(false);
    reporter.log_to(Log::open(log.path()).unwrap());
    let activity = Arc::clone(reporter.activity());
    let ended = match Cli::parse_from(arguments).command {
        Command::Rm(arguments) => {
            let connections = arguments.connection.servers(None, activity);
            rm::run(&arguments, Context { servers: &connections, events: &reporter }, &reporter).await
        }
        Command::Chmod(arguments) => {
            let connections = arguments.connection.servers(None, activity);
            chmod::run(&arguments, Context { servers: &connections, events: &reporter }, &reporter).await
        }
        Command::Mv(arguments) => {
            let connections = arguments.connection.servers(None, activity);
            mv::run(&arguments, Context { servers: &connections, events: &reporter }, &reporter).await
        }
        Command::Ln(arguments) => {
            let connections = arguments.connection.servers(None, activity);
            ln::run(&arguments, Context { servers: &connections, events: &reporter }, &reporter).await
        }
        other => panic!("{other:?}"),
    };
    if let Err(error) = ended {
        reporter.failed(error).unwrap();
    }
    (reporter.counts(), fs::read_to_string(log.path()).unwrap())
}

const FILES: [&str; 5] =
    ["top/a/deep/file", "top/a/file", "top/b/file", "top/c/deep/er/file", "outside/file"];

fn plant(root: &Path) {
    for file in FILES {
        fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
        fs::write(root.join(file), file).unwrap();
    }
}

/// The modes of all that is below a directory.
fn modes(root: &Path) -> BTreeMap<String, u32> {
    let mut modes = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        if metadata.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|it| it.unwrap().path()));
        }
        modes.insert(
            path.strip_prefix(root).unwrap().display().to_string(),
            metadata.permissions().mode() & 0o7777,
        );
    }
    modes
}

/// What happens to directories, once so many were listed.
#[derive(Clone, Copy, Debug)]
struct Situation {
    after: usize,
    moved: &'static str,
    is_replaced: bool,
}

/// The directories are listed in this order: top, c, c/deep, c/deep/er, b, a, a/deep.
const SITUATIONS: [Situation; 8] = [
    Situation { after: 1, moved: "top/a", is_replaced: false },
    Situation { after: 1, moved: "top/a", is_replaced: true },
    Situation { after: 1, moved: "top/c", is_replaced: true },
    Situation { after: 2, moved: "top/c", is_replaced: false },
    Situation { after: 3, moved: "top/c", is_replaced: true },
    Situation { after: 1, moved: "top", is_replaced: false },
    Situation { after: 2, moved: "top", is_replaced: true },
    Situation { after: 5, moved: "top/a", is_replaced: false },
];

fn served(situation: Situation) -> Served {
    // A call that is sent again counts once.
    let mut listed = BTreeSet::new();
    Served::watched(move |root, call| {
        let Situation { after, moved, is_replaced } = situation;
        let Call::Listed(directory) = call else { return };
        if !listed.insert(directory) || listed.len() != after {
            return;
        }
        fs::rename(root.join(moved), root.join("outside/moved")).unwrap();
        if is_replaced {
            fs::create_dir(root.join(moved)).unwrap();
            for name in ["file", "another"] {
                fs::write(root.join(moved).join(name), "another").unwrap();
            }
        }
    })
}

#[tokio::test]
async fn what_was_moved_away_meanwhile_is_left_alone() {
    for command in [&["rm", "-r", "@/top"][..], &["rm", "-rf", "@/top"], &["chmod", "-R", "700", "@/top"]] {
        for situation in SITUATIONS {
            let server = served(situation);
            plant(&server.path("/"));
            let before = modes(&server.path("/"));
            let (counts, said) = run(&server, command).await;
            let after = modes(&server.path("/outside"));
            let is_listed = |path: &str| match situation.after {
                1 => path == "top",
                2 => ["top", "top/c"].contains(&path),
                3 => ["top", "top/c", "top/c/deep"].contains(&path),
                _ => path == "top" || path.starts_with("top/c") || path.starts_with("top/b"),
            };
            for (path, mode) in before.iter().filter(|(path, _)| path.starts_with(situation.moved)) {
                let now = after.get(&format!("moved{}", &path[situation.moved.len()..]));
                // What had been listed before may have been changed before.
                let parent = Path::new(path).parent().unwrap().to_str().unwrap();
                let may_be_changed =
                    is_listed(parent) && parent.starts_with(situation.moved) || path == situation.moved;
                assert!(
                    now == Some(mode) || may_be_changed && (command[0] == "chmod" || now.is_none()),
                    "{command:?} {situation:?} {path}: {now:?}\n{said}"
                );
            }
            assert_eq!(after["file"], before["outside/file"]);
            if situation.is_replaced {
                let untouched = ["file", "another"].map(|name| server.path(situation.moved).join(name));
                assert!(untouched.iter().all(|path| path.exists()), "{command:?} {situation:?}\n{said}");
            }
            // Also a directory in it, if it moved while that was looked up.
            let told: Vec<_> = said
                .lines()
                .filter_map(|line| line.split_once(": was moved or replaced meanwhile; left alone"))
                .collect();
            let is_told = told.iter().all(|(name, _)| name.contains(&format!("/{}", situation.moved)));
            assert!((1..=2).contains(&told.len()) && is_told, "{command:?} {situation:?}\n{said}");
            assert!(counts["failed"].as_u64().unwrap() >= 1, "{counts}");
        }
    }
}

/// Files of one directory: more than are removed or changed within the time for which a look lasts.
const MANY: usize = 2000;

/// Removals and changes that may be done of a directory that was moved: 64 for each of the two names that lead to it, those that were under
/// way, and those that are while it is looked at.
const MOST_LOST: usize = 64 * 2 + 16 * 2;

fn plant_many(server: &Served) {
    for directory in ["top/a", "outside"] {
        fs::create_dir_all(server.path(directory)).unwrap();
    }
    for number in 0..MANY {
        let path = server.path(&format!("top/a/{number}"));
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    }
}

#[tokio::test]
async fn of_what_was_moved_away_little_more_is_removed_or_changed() {
    const BEFORE: usize = 300;
    for command in [&["rm", "-r", "@/top"][..], &["chmod", "-R", "700", "@/top"]] {
        for moved in ["top", "top/a"] {
            let mut done = 0;
            let server = Served::watched(move |root, call| {
                if matches!(call, Call::Remove(_) | Call::SetAttributes) {
                    done += 1;
                    if done == BEFORE {
                        fs::rename(root.join(moved), root.join("outside/moved")).unwrap();
                    }
                }
            });
            plant_many(&server);
            let (counts, said) = run(&server, command).await;
            assert!(said.contains("was moved or replaced meanwhile"), "{command:?} {moved}: {said}");
            let below = if moved == "top" { "outside/moved/a" } else { "outside/moved" };
            let modes = modes(&server.path(below));
            let left = modes.values().filter(|&&mode| mode == 0o644).count();
            assert!(left + BEFORE + MOST_LOST >= MANY, "{command:?} {moved}: {left} left, {counts}");
        }
    }
}

#[tokio::test]
async fn an_empty_directory_that_got_the_name_meanwhile_is_not_removed() {
    // Fewer files than are removed between two looks.
    const FILES: usize = 20;
    for (moved, at) in [("top", 5), ("top/a", 5), ("top/a", FILES), ("top", FILES)] {
        let mut done = 0;
        let server = Served::watched(move |root, call| {
            if matches!(call, Call::Remove(_)) {
                done += 1;
                if done == at {
                    fs::rename(root.join(moved), root.join("outside/moved")).unwrap();
                    fs::create_dir(root.join(moved)).unwrap();
                }
            }
        });
        for directory in ["top/a", "outside"] {
            fs::create_dir_all(server.path(directory)).unwrap();
        }
        for number in 0..FILES {
            fs::write(server.path(&format!("top/a/{number}")), "").unwrap();
        }
        let (counts, said) = run(&server, &["rm", "-r", "@/top"]).await;
        assert!(server.path(moved).exists(), "{moved} {at}: {said}");
        // Also a directory in it.
        let told = said.matches("was moved or replaced meanwhile; left alone").count();
        assert!((1..=2).contains(&told), "{moved} {at}: {said}");
        assert!(counts["failed"].as_u64().unwrap() >= 1, "{moved} {at}: {counts}");
    }
}

#[tokio::test]
async fn looks_are_few_beside_what_is_removed_or_changed() {
    for command in [&["chmod", "-R", "700", "@/top"][..], &["rm", "-r", "@/top"]] {
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&looks);
        let server = Served::watched(move |_, call| {
            if matches!(call, Call::LookUp(_)) {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        plant_many(&server);
        let begun = Instant::now();
        let (counts, said) = run(&server, command).await;
        assert_eq!(counts["failed"], 0, "{said}");
        let looks = looks.load(Ordering::Relaxed);
        // The target, a look for each of two directories, and one for each of two names in each second.
        let others = 10 + 2 * begun.elapsed().as_secs() as usize;
        assert!(looks <= others + MANY * 2 / 100, "{command:?}: {looks} looks");
        assert!(looks >= MANY / 64, "{command:?}: {looks} looks");
    }
}

#[tokio::test]
async fn a_link_that_was_not_made_is_no_success() {
    for (file, action) in
        [("/once", Action::Pretend), ("/twice", Action::Pretend), ("/once", Action::WriteStable)]
    {
        let server = Served::start();
        fs::write(server.path("/once"), "").unwrap();
        fs::write(server.path("/twice"), "").unwrap();
        fs::hard_link(server.path("/twice"), server.path("/again")).unwrap();
        let rule = Rule::always(Procedure::Link, action);
        server.service(|service| service.set_faults(Faults::from(vec![rule])));
        let (counts, said) = run(&server, &["ln", &format!("@{file}"), "@/new"]).await;
        let is_made = action != Action::Pretend;
        assert_eq!(server.path("/new").exists(), is_made);
        assert_eq!(counts["failed"], usize::from(!is_made), "{counts}");
        assert_eq!(said.contains("that is not the file's name"), !is_made, "{said}");
    }
}

#[tokio::test]
async fn what_gets_the_name_meanwhile_is_not_replaced_by_a_move() {
    for (is_quick, left) in [(true, "other"), (false, "moved")] {
        let server = Served::watched(move |root, call| {
            if is_quick && call == Call::Link(b"new") {
                fs::write(root.join("new"), "other").unwrap();
            }
        });
        fs::write(server.path("/old"), "moved").unwrap();
        let (counts, said) = run(&server, &["mv", "-n", "@/old", "@/new"]).await;
        assert_eq!(fs::read_to_string(server.path("/new")).unwrap(), left, "{said}");
        assert_eq!(server.path("/old").exists(), is_quick, "{said}");
        assert_eq!(counts["failed"], 0, "{counts}");
    }
}

#[tokio::test]
async fn a_directory_that_gets_the_name_meanwhile_is_not_replaced_by_a_move() {
    // Before which LOOKUP, or never.
    for at in [1, 2, 3, usize::MAX] {
        let mut looked = 0;
        let server = Served::watched(move |root, call| {
            if call == Call::LookUp(b"new") {
                looked += 1;
                if looked == at {
                    fs::create_dir(root.join("new")).unwrap();
                    fs::set_permissions(root.join("new"), fs::Permissions::from_mode(0o711)).unwrap();
                }
            }
        });
        fs::create_dir(server.path("/old")).unwrap();
        fs::write(server.path("/old/file"), "moved").unwrap();
        fs::set_permissions(server.path("/old"), fs::Permissions::from_mode(0o755)).unwrap();
        let (counts, said) = run(&server, &["mv", "-n", "@/old", "@/new"]).await;
        let is_others = fs::metadata(server.path("/new")).unwrap().permissions().mode() & 0o777 == 0o711;
        assert_ne!(is_others, server.path("/new/file").exists(), "{at}: {said}");
        assert_eq!(is_others, server.path("/old/file").exists(), "{at}: {said}");
        assert!(is_others || at > 2, "{at}: {said}");
        assert_eq!(counts["failed"], 0, "{at}: {said}");
    }
}

#[tokio::test]
async fn what_gets_the_old_name_during_a_move_stays() {
    let server = Served::watched(|root, call| {
        if call == Call::Linked(b"new") {
            fs::write(root.join("version"), "another").unwrap();
            fs::rename(root.join("version"), root.join("old")).unwrap();
        }
    });
    fs::write(server.path("/old"), "moved").unwrap();
    let (counts, said) = run(&server, &["mv", "-n", "@/old", "@/new"]).await;
    assert_eq!(fs::read_to_string(server.path("/new")).unwrap(), "moved", "{said}");
    assert_eq!(fs::read_to_string(server.path("/old")).unwrap(), "another", "{said}");
    assert_eq!(counts["failed"], 0, "{said}");
}

#[tokio::test]
async fn nothing_is_left_alone_where_nothing_moves() {
    for command in [&["chmod", "-R", "u=rwX,go=", "@/top"][..], &["rm", "-r", "@/top"]] {
        let server = Served::start();
        plant(&server.path("/"));
        std::os::unix::fs::symlink("top", server.path("/link")).unwrap();
        let (counts, said) = run(&server, command).await;
        assert_eq!(counts["failed"], 0, "{command:?}: {said}");
        if command[0] == "rm" {
            assert!(!server.path("/top").exists());
        } else {
            assert_eq!(modes(&server.path("/"))["top/c/deep/er/file"], 0o600);
            let (counts, said) = run(&server, &["chmod", "-R", "711", "@/link"]).await;
            assert_eq!(counts["failed"], 0, "{said}");
            assert_eq!(modes(&server.path("/"))["top/c/deep/er/file"], 0o711);
        }
    }
}

#[tokio::test]
async fn a_mode_that_somebody_else_changes_meanwhile_is_not_lost() {
    let is_changed = AtomicUsize::new(0);
    let server = Served::watched(move |root, call| {
        if matches!(call, Call::Listed(_)) && is_changed.fetch_add(1, Ordering::Relaxed) == 0 {
            fs::set_permissions(root.join("top/file"), fs::Permissions::from_mode(0o640)).unwrap();
        }
    });
    fs::create_dir(server.path("/top")).unwrap();
    fs::write(server.path("/top/file"), "").unwrap();
    fs::set_permissions(server.path("/top/file"), fs::Permissions::from_mode(0o600)).unwrap();
    let (counts, said) = run(&server, &["chmod", "-R", "u+x", "@/top"]).await;
    assert_eq!(counts["failed"], 0, "{said}");
    assert_eq!(modes(&server.path("/"))["top/file"], 0o740);
}

#[tokio::test]
async fn a_file_that_changes_all_the_time_gets_a_mode_or_an_error() {
    // Whatever is asked for, somebody else is faster.
    let server = Served::watched(|root, call| {
        if matches!(call, Call::Listed(_) | Call::SetAttributes) {
            fs::File::open(root.join("top/file")).unwrap().set_modified(SystemTime::now()).unwrap();
        }
    });
    fs::create_dir(server.path("/top")).unwrap();
    fs::write(server.path("/top/file"), "").unwrap();
    fs::set_permissions(server.path("/top/file"), fs::Permissions::from_mode(0o600)).unwrap();
    let (counts, said) = run(&server, &["chmod", "-R", "u+x", "@/top"]).await;
    let is_set = modes(&server.path("/"))["top/file"] == 0o700;
    assert_eq!(counts["failed"] == 0, is_set, "{said}");
    // The mode does not depend on the one before.
    let (counts, said) = run(&server, &["chmod", "-R", "711", "@/top"]).await;
    assert_eq!(counts["failed"], 0, "{said}");
    assert_eq!(modes(&server.path("/"))["top/file"], 0o711);
}

/// Ends a run of `nfsw` as a signal does, once the server was asked to give a name.
async fn killed_at_rename(server: &Served, words: &[&str]) {
    let asked = || server.service(|service| service.stats().dropped_calls + service.stats().dropped_replies);
    let before = asked();
    let run = run(server, words);
    let is_asked = async {
        while asked() == before {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        _ = run => panic!("RENAME gets no answer"),
        () = is_asked => {}
    }
    server.service(|service| service.set_faults(Faults::default()));
}

#[tokio::test]
async fn a_move_that_ended_early_is_completed_by_the_same_command_and_never_nested() {
    for action in [Action::DropCall, Action::DropReply] {
        for again in [&["mv", "-n", "@/old", "@/new"][..], &["mv", "@/old", "@/new"]] {
            let server = Served::start();
            fs::create_dir(server.path("/old")).unwrap();
            fs::write(server.path("/old/file"), "moved").unwrap();
            let is_done = action == Action::DropReply;
            let rule = Rule::always(Procedure::Rename, action);
            server.service(|service| service.set_faults(Faults::from(vec![rule])));
            killed_at_rename(&server, &["mv", "-n", "@/old", "@/new"]).await;
            assert!(server.path("/new").is_dir());
            let (counts, said) = run(&server, again).await;
            // What is done cannot be done again, and nothing is.
            assert_eq!(counts["failed"], usize::from(is_done), "{again:?} {action:?}: {said}");
            assert_eq!(fs::read_to_string(server.path("/new/file")).unwrap(), "moved", "{said}");
            assert_eq!(fs::read_dir(server.path("/new")).unwrap().count(), 1, "{said}");
            assert_eq!(fs::read_dir(server.path("/")).unwrap().count(), 1, "{said}");
        }
    }
}

#[tokio::test]
async fn what_is_no_reservation_is_a_directory_to_move_into() {
    for mode in [0o755, 0o1777] {
        let server = Served::start();
        fs::create_dir(server.path("/old")).unwrap();
        fs::create_dir(server.path("/new")).unwrap();
        fs::set_permissions(server.path("/new"), fs::Permissions::from_mode(mode)).unwrap();
        let (counts, said) = run(&server, &["mv", "-n", "@/old", "@/new"]).await;
        assert_eq!(counts["failed"], 0, "{said}");
        assert!(server.path("/new/old").is_dir(), "{said}");
    }
}

/// As a run leaves it that ends between LINK and REMOVE.
#[tokio::test]
async fn a_file_that_has_both_names_is_told_and_not_skipped() {
    let server = Served::start();
    fs::write(server.path("/old"), "moved").unwrap();
    fs::hard_link(server.path("/old"), server.path("/new")).unwrap();
    let (counts, said) = run(&server, &["mv", "-n", "@/old", "@/new"]).await;
    assert_eq!(counts["failed"], 1, "{counts}");
    assert!(said.contains("are the same file"), "{said}");
    assert!(server.path("/old").exists() && server.path("/new").exists());
}
