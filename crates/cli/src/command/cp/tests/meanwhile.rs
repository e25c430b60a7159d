//! What others do to the target while a copy runs.

use std::sync::mpsc;

use super::*;
use crate::served::Call;

/// A directory of the target that is moved away once one below it was made, or a file of one below it is read.
#[derive(Clone, Copy, Debug)]
struct Move {
    moved: &'static str,
    is_replaced: bool,
}

const MOVES: [Move; 6] = [
    Move { moved: "to", is_replaced: false },
    Move { moved: "to", is_replaced: true },
    Move { moved: "to/a", is_replaced: false },
    Move { moved: "to/a", is_replaced: true },
    Move { moved: "to/a/deep", is_replaced: false },
    Move { moved: "to/a/deep", is_replaced: true },
];

impl Move {
    fn carry_out(self, root: &Path) {
        fs::rename(root.join(self.moved), root.join("moved")).unwrap();
        if self.is_replaced {
            fs::create_dir(root.join(self.moved)).unwrap();
        }
    }
}

fn plant_deep(source: &Path) {
    fs::create_dir_all(source.join("a/deep")).unwrap();
    for name in ["a/deep/file", "a/deep/other", "top"] {
        fs::write(source.join(name), name).unwrap();
    }
}

#[tokio::test]
async fn a_directory_on_a_server_that_is_moved_meanwhile_is_told() {
    for (options, is_there) in [(&["-r", "-T"][..], true), (&["-rp", "-T"], false)] {
        for moves in MOVES {
            let mut is_moved = false;
            let trial = Trial::of(Served::watched(move |root, call| {
                if matches!(call, Call::Made(name) if name.starts_with(b".file.nfsw-part"))
                    && !std::mem::replace(&mut is_moved, true)
                {
                    moves.carry_out(root);
                }
            }));
            let ([from, to], [source, target]) = trial.ends(true, "from", "to");
            plant_deep(&source);
            if is_there {
                fs::create_dir(&target).unwrap();
            }
            let (result, counts) = trial.copy(&[options, &[&from, &to]].concat()).await;
            let is_told = result.is_err() || counts["failed"].as_u64().unwrap() > 0;
            assert!(is_told, "{options:?} {moves:?} {counts}");
        }
    }
}

#[tokio::test]
async fn a_directory_here_that_is_moved_meanwhile_is_told() {
    for moves in MOVES {
        let (path, root) = mpsc::channel::<PathBuf>();
        let mut root = None.or(Some(root));
        let trial = Trial::of(Served::watched(move |_, call| {
            if call == Call::Read
                && let Some(there) = root.take_if(|_| true)
            {
                moves.carry_out(&there.recv().unwrap());
            }
        }));
        let ([from, to], [source, target]) = trial.ends(false, "from", "to");
        fs::create_dir_all(source.join("a/deep")).unwrap();
        fs::write(source.join("a/deep/file"), "file").unwrap();
        path.send(target.parent().unwrap().to_owned()).unwrap();
        let (result, counts) = trial.copy(&["-r", &from, &to]).await;
        let is_told = result.is_err() || counts["failed"].as_u64().unwrap() > 0;
        assert!(is_told, "{moves:?} {counts}");
    }
}

#[tokio::test]
async fn nothing_is_told_where_nothing_moves() {
    let trial = Trial::start();
    for is_upload in [true, false] {
        let ([from, to], [source, target]) = trial.ends(is_upload, "from", "to");
        let _ = fs::remove_dir_all(&source);
        plant_deep(&source);
        let link = target.with_file_name("link");
        symlink("to", &link).unwrap();
        let whole: &[&str] = &["-r", "-T", &from, &to];
        let contents = [from.replace("/from", "/from/."), to.replace("/to", "/link")];
        for arguments in [whole, whole, &["-r", &contents[0], &contents[1]]] {
            let (result, counts) = trial.copy(arguments).await;
            result.unwrap();
            assert_eq!(counts["failed"], 0, "{counts}");
        }
    }
}

/// How a file gets a name that something else got meanwhile.
#[derive(Clone, Copy, Debug)]
struct Taken {
    options: &'static [&'static str],
    source: &'static str,
    is_upload: bool,
    has_links: bool,
    /// Something older had the name before.
    was_there: bool,
}

const TAKEN: [Taken; 15] = {
    const NEW: Taken =
        Taken { options: &["-n"], source: "file", is_upload: true, has_links: true, was_there: false };
    [
        NEW,
        Taken { has_links: false, ..NEW },
        Taken { options: &["-u"], ..NEW },
        Taken { options: &["-u"], was_there: true, ..NEW },
        Taken { options: &["-n"], source: "link", ..NEW },
        Taken { options: &["-u"], source: "link", has_links: false, ..NEW },
        Taken { options: &["-n", "--inplace"], ..NEW },
        Taken { source: "large", ..NEW },
        Taken { source: "large", has_links: false, ..NEW },
        Taken { is_upload: false, ..NEW },
        Taken { is_upload: false, options: &["-u"], ..NEW },
        Taken { is_upload: false, options: &["-u"], was_there: true, ..NEW },
        Taken { is_upload: false, source: "large", ..NEW },
        Taken { is_upload: false, options: &["-n", "--no-resume"], source: "large", ..NEW },
        Taken { is_upload: false, options: &["-u"], source: "large", was_there: true, ..NEW },
    ]
};

#[tokio::test]
async fn what_gets_the_name_meanwhile_stays_where_nothing_or_only_older_is_replaced() {
    for taken in TAKEN {
        let (path, target) = mpsc::channel::<PathBuf>();
        let mut made = None;
        let trial = Trial::of(Served::watched(move |_, call| {
            let is_now = match call {
                Call::Made(_) | Call::LookUp(_) if taken.source == "link" || taken.options.len() > 1 => {
                    matches!(call, Call::LookUp(name) if name == b"to")
                }
                Call::Made(name) => taken.is_upload && name.starts_with(b".to.nfsw-part"),
                Call::Read => !taken.is_upload,
                _ => false,
            };
            if is_now
                && made.is_none()
                && let Ok(target) = target.try_recv()
            {
                fs::write(&target, "another").unwrap();
                made = Some(target);
            }
        }));
        let ([from, to], [source, target]) = trial.ends(taken.is_upload, taken.source, "to");
        match taken.source {
            "link" => symlink("elsewhere", &source).unwrap(),
            "large" => fs::write(&source, vec![7; 300_000]).unwrap(),
            _ => fs::write(&source, "content").unwrap(),
        }
        if taken.was_there {
            fs::write(&target, "old").unwrap();
            let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
            fs::File::options().write(true).open(&target).unwrap().set_modified(old).unwrap();
        }
        if !taken.has_links {
            let no_links = (Calls::Procedure(Procedure::Link), When::Always, Action::Fail(Status::NOTSUPP));
            trial.faults(&[no_links]);
        }
        path.send(target.clone()).unwrap();
        let recursive: &[&str] = if taken.source == "link" { &["-r"] } else { &[] };
        let (result, counts) = trial.copy(&[taken.options, recursive, &["-T", &from, &to]].concat()).await;
        let there = fs::read(&target).ok();
        assert_eq!(there.as_deref(), Some(&b"another"[..]), "{taken:?} {result:?} {counts}");
        result.unwrap();
        assert_eq!((&counts["failed"], &counts["done"]), (&0.into(), &0.into()), "{taken:?} {counts}");
        let skipped: u64 =
            counts["skipped"].as_object().unwrap().values().map(|it| it.as_u64().unwrap()).sum();
        assert_eq!(skipped, 1, "{taken:?} {counts}");
        let beside = names(target.parent().unwrap());
        assert!(beside.iter().all(|name| !name.contains("nfsw")), "{taken:?} {beside:?}");
    }
}

#[tokio::test]
async fn a_name_that_nothing_has_is_given_where_nothing_is_replaced() {
    for taken in TAKEN.into_iter().filter(|it| !it.was_there) {
        let trial = Trial::start();
        let ([from, to], [source, target]) = trial.ends(taken.is_upload, taken.source, "to");
        match taken.source {
            "link" => symlink("elsewhere", &source).unwrap(),
            "large" => fs::write(&source, vec![7; 300_000]).unwrap(),
            _ => fs::write(&source, "content").unwrap(),
        }
        if !taken.has_links {
            let no_links = (Calls::Procedure(Procedure::Link), When::Always, Action::Fail(Status::NOTSUPP));
            trial.faults(&[no_links]);
        }
        let recursive: &[&str] = if taken.source == "link" { &["-r"] } else { &[] };
        let (result, counts) = trial.copy(&[taken.options, recursive, &["-T", &from, &to]].concat()).await;
        result.unwrap();
        assert_eq!(counts["done"], 1, "{taken:?} {counts}");
        let kind = |path: &Path| fs::symlink_metadata(path).unwrap().file_type();
        assert_eq!(kind(&source), kind(&target), "{taken:?}");
        assert_eq!(fs::read(&source).ok(), fs::read(&target).ok(), "{taken:?}");
        let beside = names(target.parent().unwrap());
        assert!(beside.iter().all(|name| !name.contains("nfsw")), "{taken:?} {beside:?}");
    }
}
