//! Random trees, random earlier states, and runs that end anywhere: the outcome is that of a model.

use std::collections::BTreeMap;

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};

use super::*;

/// Cases, each of which is three runs or more.
const CASES: u32 = 350;

/// What has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Thing {
    /// Its version and its size. Both say what its bytes are.
    File(u64, usize),
    /// Another name of the file that the tree has under this name at its root.
    Name(&'static str),
    Link(&'static str, u64),
    Directory(Tree),
}

type Tree = BTreeMap<&'static str, Thing>;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Where links lead to; the last one is outside.
const TARGETS: [&str; 3] = ["a", "c/b", "../outside"];

fn file() -> impl Strategy<Value = Thing> {
    let size = prop_oneof![8 => 0..3000_usize, 1 => 130_000..200_000_usize];
    (0..5_u64, size).prop_map(|(version, size)| Thing::File(version, size))
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        5 => file(),
        1 => (prop::sample::select(&TARGETS[..]), 0..5_u64).prop_map(|(target, time)| Thing::Link(target, time)),
        1 => prop::sample::select(&NAMES[..2]).prop_map(Thing::Name),
    ];
    let thing = leaf.prop_recursive(2, 12, 4, |inner| {
        prop::collection::btree_map(prop::sample::select(&NAMES[..]), inner, 0..4).prop_map(Thing::Directory)
    });
    prop::collection::btree_map(prop::sample::select(&NAMES[..]), thing, 0..5)
}

/// A source and what its target is before.
fn pair() -> impl Strategy<Value = (Tree, Tree)> {
    let alike = tree().prop_flat_map(|source| {
        let there = tree();
        (Just(source), there, any::<[bool; 5]>()).prop_map(|(source, mut there, keep)| {
            // Some of it was copied before.
            for (name, _) in NAMES.iter().zip(keep).filter(|(_, keep)| *keep) {
                if let Some(thing) = source.get(name) {
                    there.insert(name, thing.clone());
                }
            }
            (source, there)
        })
    });
    prop_oneof![3 => alike, 1 => (tree(), tree())]
}

fn content(version: u64, size: usize) -> Vec<u8> {
    vec![b'0' + version as u8; size]
}

/// Makes a tree.
fn make(root: &Path, tree: &Tree) {
    fs::create_dir_all(root).unwrap();
    fill(root, root, tree);
}

fn fill(root: &Path, directory: &Path, tree: &Tree) {
    for (name, thing) in tree {
        let path = directory.join(name);
        match thing {
            Thing::File(version, size) => write(&path, content(*version, *size), *version),
            Thing::Link(target, seconds) => {
                symlink(target, &path).unwrap();
                let times = filetime(*seconds);
                rustix::fs::utimensat(rustix::fs::CWD, &path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
                    .unwrap();
            }
            Thing::Directory(inner) => {
                fs::create_dir(&path).unwrap();
                fill(root, &path, inner);
            }
            Thing::Name(_) => {}
        }
    }
    for (name, thing) in tree {
        if let Thing::Name(first) = thing {
            let first = root.join(first);
            if fs::symlink_metadata(&first).is_ok_and(|found| found.is_file()) {
                fs::hard_link(first, directory.join(name)).unwrap();
            }
        }
    }
}

fn filetime(seconds: u64) -> rustix::fs::Timestamps {
    let time = rustix::fs::Timespec { tv_sec: 1_000_000_000 + seconds as i64, tv_nsec: 123_456_789 };
    rustix::fs::Timestamps { last_access: time, last_modification: time }
}

/// What a tree is, as far as a sync goes by it: kinds, bytes, times of files, targets of links.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    File(Vec<u8>, SystemTime),
    Link(PathBuf, SystemTime),
    Directory(BTreeMap<String, Self>),
}

fn look(path: &Path) -> Seen {
    let found = fs::symlink_metadata(path).unwrap();
    let modified = found.modified().unwrap();
    if found.is_dir() {
        Seen::Directory(names(path).into_iter().map(|name| (name.clone(), look(&path.join(name)))).collect())
    } else if found.is_symlink() {
        Seen::Link(fs::read_link(path).unwrap(), modified)
    } else {
        Seen::File(fs::read(path).unwrap(), modified)
    }
}

/// The model: what a target is after a sync, and how many names could not be what they were to be.
fn after(source: &Seen, target: Option<&Seen>, delete: bool, force: bool) -> (Seen, u64) {
    let target = match (source, target) {
        (_, None) => return (source.clone(), 0),
        (_, Some(target)) => target,
    };
    match (source, target) {
        (Seen::Directory(here), Seen::Directory(there)) => {
            let (mut entries, mut failed) = (there.clone(), 0);
            if delete {
                entries.retain(|name, _| here.contains_key(name));
            }
            for (name, source) in here {
                let (seen, failures) = after(source, there.get(name), delete, force);
                entries.insert(name.clone(), seen);
                failed += failures;
            }
            (Seen::Directory(entries), failed)
        }
        (Seen::Directory(_), _) | (_, Seen::Directory(_)) => {
            if delete {
                (source.clone(), 0)
            } else {
                (target.clone(), 1)
            }
        }
        (Seen::Link(here, _), Seen::Link(there, _)) if here == there => (target.clone(), 0),
        (Seen::File(_, here) | Seen::Link(_, here), Seen::File(_, there) | Seen::Link(_, there)) => {
            if there > here && !force { (target.clone(), 1) } else { (source.clone(), 0) }
        }
    }
}

/// Forgets the times of links, which a copy need not keep.
fn without_link_times(seen: Seen) -> Seen {
    match seen {
        Seen::Link(target, _) => Seen::Link(target, UNIX_EPOCH),
        Seen::Directory(entries) => Seen::Directory(
            entries.into_iter().map(|(name, seen)| (name, without_link_times(seen))).collect(),
        ),
        file => file,
    }
}

#[derive(Clone, Debug)]
struct Case {
    source: Tree,
    target: Option<Tree>,
    way: Way,
    delete: bool,
    force: bool,
    /// After how many calls earlier runs ended, and whether the last one was carried out.
    ends: Vec<(u64, bool)>,
}

fn case() -> impl Strategy<Value = Case> {
    let ends = prop::collection::vec((0..60_u64, any::<bool>()), 1..3);
    (pair(), any::<bool>(), prop::sample::select(&WAYS[..]), prop::bool::weighted(0.7), any::<bool>(), ends)
        .prop_map(|((source, target), exists, way, delete, force, ends)| Case {
            source,
            target: (exists || way == Way::Across).then_some(target),
            way,
            delete,
            force,
            ends,
        })
}

async fn run(trial: &Trial, number: usize, case: &Case) -> usize {
    let below = format!("{number}/");
    let ends = trial.ends(case.way, &below);
    fs::create_dir_all(ends.source.parent().unwrap()).unwrap();
    fs::create_dir_all(ends.target.parent().unwrap()).unwrap();
    make(&ends.source, &case.source);
    if let Some(target) = &case.target {
        make(&ends.target, target);
    }
    let outside = ends.target.parent().unwrap().join("outside");
    write(&outside.join("file"), "outside", 1);
    let source = look(&ends.source);
    let before = case.target.is_some().then(|| look(&ends.target));
    // Where anything fails, nothing is deleted.
    let (careful, failed) = after(&source, before.as_ref(), false, case.force);
    let (thorough, failed_all_the_same) = after(&source, before.as_ref(), true, case.force);
    let has_extras = careful != thorough;
    let is_empty = matches!(&source, Seen::Directory(entries) if entries.is_empty());
    let is_refused = case.delete && has_extras && !case.force && is_empty;
    let deletes = case.delete && failed_all_the_same == 0 && !is_refused;
    let expected = if deletes { thorough } else { careful };
    let fails = is_refused || if case.delete { failed_all_the_same > 0 } else { failed > 0 };

    let mut options = Vec::new();
    options.extend(case.delete.then_some("--delete"));
    options.extend(case.force.then_some("--force"));
    let mut runs = 2;
    for (calls, is_carried_out) in &case.ends {
        let action = if *is_carried_out { Action::DropReply } else { Action::DropCall };
        trial.stop(&ends, &options, *calls, action).await;
        runs += 1;
        assert_eq!(look(&ends.source), source, "the source stays as it is");
        assert_eq!(names(&outside), ["file"], "nothing outside is touched");
        if !deletes && let Some(Seen::Directory(before)) = &before {
            let now = names(&ends.target);
            assert!(before.keys().all(|name| now.contains(name)), "nothing is deleted: {now:?}");
        }
    }
    let ran = trial.sync(&ends, &options).await;
    assert_eq!(!ran.is_clean(), fails, "{:?} {:?}", ran.result, ran.counts);
    assert_eq!(without_link_times(look(&ends.target)), without_link_times(expected));
    assert_eq!(look(&ends.source), source, "the source stays as it is");
    assert_eq!(names(&outside), ["file"], "nothing outside is touched");
    // Once more, and nothing is left to do.
    let changed = changes(&trial.served());
    let ran = trial.sync(&ends, &options).await;
    assert_eq!(!ran.is_clean(), fails, "{:?} {:?}", ran.result, ran.counts);
    assert_eq!(
        (ran.count("done"), ran.count("deleted")),
        (0, 0),
        "a second run does nothing: {:?}",
        ran.counts
    );
    assert_eq!(changes(&trial.served()), changed, "a second run changes nothing on the server");
    if !fails {
        same_names(&ends.source, &ends.target);
    }
    runs
}

/// Expects names of one file in the source to be names of one file in the target.
fn same_names(source: &Path, target: &Path) {
    let mut all = BTreeMap::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        for name in names(&source.join(&directory)) {
            let path = directory.join(name);
            let (here, there) = (source.join(&path), target.join(&path));
            let found = fs::symlink_metadata(here).unwrap();
            if found.is_dir() {
                directories.push(path);
            } else if found.is_file() {
                let there = fs::symlink_metadata(there).unwrap().ino();
                assert_eq!(*all.entry(found.ino()).or_insert(there), there, "{path:?}");
            }
        }
    }
}

#[test]
fn the_outcome_is_that_of_the_model_wherever_earlier_runs_ended() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let trial = Trial::start();
    let (mut number, mut runs) = (0, 0);
    let numbers = std::cell::RefCell::new((&mut number, &mut runs));
    let mut runner = TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&case(), |case| {
        let number = {
            let mut numbers = numbers.borrow_mut();
            *numbers.0 += 1;
            *numbers.0
        };
        let ran = runtime.block_on(run(&trial, number, &case));
        *numbers.borrow_mut().1 += ran;
        let _ = fs::remove_dir_all(trial.server.path(&format!("/{number}")));
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert!(runs >= 1000, "{runs}");
}

#[test]
fn a_further_name_waits_until_what_is_in_the_place_of_the_first_is_deleted() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let trial = Trial::start();
    let inner = Tree::from([("d", Thing::Name("a"))]);
    let source = Tree::from([("a", Thing::File(4, 2872)), ("b", Thing::Directory(inner))]);
    let target = Tree::from([("a", Thing::Directory(Tree::new()))]);
    for (number, way) in WAYS.into_iter().enumerate() {
        for force in [false, true] {
            let (source, target) = (source.clone(), Some(target.clone()));
            let case = Case { source, target, way, delete: true, force, ends: Vec::new() };
            runtime.block_on(run(&trial, 2 * number + usize::from(force), &case));
        }
    }
}
