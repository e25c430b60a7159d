//! What a sync does where somebody moves or replaces a directory of the target while it deletes.

use std::{collections::BTreeSet, sync::mpsc};

use super::*;
use crate::served::Call;

/// A directory of the target that is moved away.
#[derive(Clone, Copy, Debug)]
struct Situation {
    moved: &'static str,
    is_replaced: bool,
}

const SITUATIONS: [Situation; 8] = [
    Situation { moved: "extra", is_replaced: false },
    Situation { moved: "extra", is_replaced: true },
    Situation { moved: "extra/deep", is_replaced: false },
    Situation { moved: "extra/deep", is_replaced: true },
    Situation { moved: "sub", is_replaced: false },
    Situation { moved: "sub", is_replaced: true },
    Situation { moved: "", is_replaced: false },
    Situation { moved: "", is_replaced: true },
];

/// What only the target has.
const SURPLUS: [&str; 4] = ["extra/file", "extra/deep/file", "sub/surplus", "sub/inner/surplus"];

fn plant_both([source, target]: [&Path; 2]) {
    for root in [source, target] {
        write(&root.join("kept"), "kept", 1);
        write(&root.join("sub/inner/file"), "file", 1);
    }
    for file in SURPLUS {
        write(&target.join(file), file, 1);
    }
}

/// Moves a directory away, and may put another one in its place.
fn move_away(target: &Path, Situation { moved, is_replaced }: Situation) {
    let [from, to] = [target.join(moved), target.parent().unwrap().join("moved")];
    fs::rename(&from, to).unwrap();
    if is_replaced {
        for file in SURPLUS {
            let name = Path::new(file).file_name().unwrap();
            write(&from.join(name), "another", 1);
        }
    }
}

/// Expects that all that was moved is there, that what has its name now is, and that the run has said so.
fn assert_left_alone(ends: &Ends, situation: Situation, counts: &Value) {
    let Situation { moved, is_replaced } = situation;
    for file in SURPLUS {
        let in_moved =
            if moved.is_empty() { Some(Path::new(file)) } else { Path::new(file).strip_prefix(moved).ok() };
        if let Some(file) = in_moved {
            let there = ends.target.parent().unwrap().join("moved").join(file);
            assert!(there.exists(), "{situation:?}: {there:?}");
        }
    }
    if is_replaced {
        assert_eq!(text(ends.target.join(moved).join("file")), "another", "{situation:?}");
        assert_eq!(text(ends.target.join(moved).join("surplus")), "another", "{situation:?}");
    }
    assert!(counts["failed"].as_u64().unwrap() >= 1, "{situation:?} {counts}");
}

#[tokio::test]
async fn what_was_moved_away_on_a_server_is_not_deleted() {
    for situation in SITUATIONS {
        // Those of the target: all of them are listed before anything is deleted.
        let mut listed = BTreeSet::new();
        let trial = Trial::of(Served::watched(move |root, call| {
            let Call::Listed(directory) = call else { return };
            if listed.insert(directory) && listed.len() == 5 {
                move_away(&root.join("to"), situation);
            }
        }));
        let ends = trial.ends(Way::Up, "");
        plant_both([&ends.source, &ends.target]);
        let ran = trial.sync(&ends, &["--delete"]).await;
        assert_left_alone(&ends, situation, &ran.counts);
        // What did not move is deleted.
        let is_deleted = !ends.target.join("sub/surplus").exists();
        assert!(is_deleted || ["", "sub"].contains(&situation.moved), "{situation:?} {}", ran.counts);
    }
}

#[tokio::test]
async fn of_what_was_moved_away_on_a_server_little_more_is_deleted() {
    const FILES: usize = 2000;
    const BEFORE: usize = 300;
    // 64 for each name that leads to the directory, those that were under way, and those that are while it is looked at.
    const MOST_LOST: usize = 64 * 3 + 16 * 2;
    for moved in ["to", "to/extra", "to/extra/deep"] {
        let mut removed = 0;
        let trial = Trial::of(Served::watched(move |root, call| {
            removed += usize::from(matches!(call, Call::Remove(_)));
            if removed == BEFORE && matches!(call, Call::Remove(_)) {
                fs::rename(root.join(moved), root.join("moved")).unwrap();
            }
        }));
        let ends = trial.ends(Way::Up, "");
        for root in [&ends.source, &ends.target] {
            write(&root.join("kept"), "kept", 1);
        }
        for file in 0..FILES {
            write(&ends.target.join(format!("extra/deep/{file}")), "", 1);
        }
        let ran = trial.sync(&ends, &["--delete"]).await;
        assert!(!ran.is_clean(), "{moved} {}", ran.counts);
        let below = "to/extra/deep".strip_prefix(moved).unwrap();
        let left = names(&trial.server.path(&format!("/moved{below}"))).len();
        assert!(left + BEFORE + MOST_LOST >= FILES, "{moved}: {left} left, {}", ran.counts);
    }
}

#[tokio::test]
async fn what_was_moved_away_here_is_not_deleted() {
    // What is in a directory that only the target has is listed after that.
    for situation in SITUATIONS.into_iter().filter(|it| it.moved != "extra/deep") {
        let (path, target) = mpsc::channel::<PathBuf>();
        let mut listed = BTreeSet::new();
        let trial = Trial::of(Served::watched(move |_, call| {
            let Call::Listed(directory) = call else { return };
            // What only the target has in the directories above the last one is known then.
            if listed.insert(directory) && listed.len() == 3 {
                move_away(&target.recv().unwrap(), situation);
            }
        }));
        let ends = trial.ends(Way::Down, "");
        plant_both([&ends.source, &ends.target]);
        path.send(ends.target.clone()).unwrap();
        let ran = trial.sync(&ends, &["--delete"]).await;
        assert_left_alone(&ends, situation, &ran.counts);
    }
}

#[tokio::test]
async fn a_look_for_each_directory_is_all_that_deleting_takes_more() {
    let trial = Trial::start();
    let ends = trial.ends(Way::Up, "");
    for root in [&ends.source, &ends.target] {
        write(&root.join("kept"), "kept", 1);
    }
    for directory in 0..20 {
        for file in 0..10 {
            write(&ends.target.join(format!("extra/d{directory}/f{file}")), "", 1);
        }
    }
    let looks = |served: [u64; 22]| served[Procedure::Lookup.number() as usize];
    let before = trial.served();
    let ran = trial.sync(&ends, &["--delete", "--dry-run"]).await;
    assert!(ran.is_clean(), "{}", ran.counts);
    let planned = looks(trial.served()) - looks(before);
    let before = trial.served();
    let begun = Instant::now();
    let ran = trial.sync(&ends, &["--delete"]).await;
    assert!(ran.is_clean() && ran.count("deleted") == 221, "{}", ran.counts);
    let looked = looks(trial.served()) - looks(before);
    // to, extra, those in it; again where this takes seconds; and one for so many that are deleted.
    let most = 22 * (1 + begun.elapsed().as_secs()) + 221 / 50;
    assert!(looked <= planned + most, "{looked}, {planned} if nothing is deleted");
}
