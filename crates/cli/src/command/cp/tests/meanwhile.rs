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
                if matches!(call, Call::Made(name) if name == b".file.nfsw-part")
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
