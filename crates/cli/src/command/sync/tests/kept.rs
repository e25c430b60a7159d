//! What others put into the target while a sync copies.

use std::sync::mpsc;

use super::*;

/// What gets a name of the target, in seconds as [`time`] has them, while its copy is under way.
const KEPT: [(&[&str], u64, bool); 4] = [
    // Options, time, whether it stays.
    (&[], 9, true),
    (&[], 1, false),
    (&["--checksum"], 9, true),
    (&["--force"], 9, false),
];

/// A target in which `name` gets another file, of so many seconds, before it is replaced.
fn replaced_meanwhile(seconds: u64) -> (Served, mpsc::Sender<PathBuf>) {
    let (path, target) = mpsc::channel::<PathBuf>();
    let server = Served::watched(move |_, call| {
        let is_now = match call {
            Call::Made(name) => name.starts_with(b".f.nfsw-"),
            Call::Read | Call::ReadLink => true,
            _ => false,
        };
        if is_now && let Ok(target) = target.try_recv() {
            let beside = target.with_file_name("beside");
            write(&beside, "another", seconds);
            fs::rename(beside, &target).unwrap();
        }
    });
    (server, path)
}

#[tokio::test]
async fn what_becomes_newer_while_it_is_copied_is_kept_and_said() {
    for way in WAYS {
        for (options, seconds, stays) in KEPT {
            for (size, was_there) in [(7, false), (7, true), (300_000, false), (300_000, true)] {
                let (server, path) = replaced_meanwhile(seconds);
                let trial = Trial::of(server);
                let ends = trial.ends(way, "");
                write(&ends.source.join("f"), vec![b'n'; size], 5);
                fs::create_dir_all(&ends.target).unwrap();
                let target = ends.target.join("f");
                if was_there {
                    write(&target, "old", 0);
                }
                path.send(target.clone()).unwrap();
                let ran = trial.sync(&ends, options).await;
                let when = format!(
                    "{way:?} {options:?} {seconds} {size} {was_there} {:?} {}",
                    ran.result, ran.counts
                );
                assert!(ran.result.is_ok() && ran.counts["failed"] == 0, "{when}");
                assert_eq!(ran.kept(), u64::from(stays), "{when}");
                assert_eq!(ran.count("done"), u64::from(!stays), "{when}");
                assert_eq!(fs::read(&target).unwrap() == b"another", stays, "{when}");
                assert_eq!(names(&ends.target), ["f"], "{when}");
            }
        }
    }
}

#[tokio::test]
async fn a_link_that_becomes_something_newer_is_kept_and_said() {
    for way in WAYS {
        for was_there in [false, true] {
            let (server, path) = replaced_meanwhile(1_000_000_000);
            let trial = Trial::of(server);
            let ends = trial.ends(way, "");
            fs::create_dir_all(&ends.source).unwrap();
            symlink("elsewhere", ends.source.join("f")).unwrap();
            fs::create_dir_all(&ends.target).unwrap();
            let target = ends.target.join("f");
            if was_there {
                write(&target, "old", 0);
            }
            path.send(target.clone()).unwrap();
            let ran = trial.sync(&ends, &[]).await;
            let when = format!("{way:?} {was_there} {:?} {}", ran.result, ran.counts);
            let is_taken = fs::read(&target).is_ok_and(|there| there == b"another");
            // From this machine to a server nothing is asked for while a new link is made.
            assert!(is_taken || way == Way::Up && !was_there, "{when}");
            assert_eq!(ran.kept(), u64::from(is_taken), "{when}");
        }
    }
}
