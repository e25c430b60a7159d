//! What a program gets that embeds the library: trees that are resumed and synchronised, with events, counts and errors as types.

use std::{cell::RefCell, ffi::OsStr, fs, path::Path};

use nfs_files::{
    Context, Error, ErrorKind, Events, Result,
    copy::{self, Options},
    event::{Counts, Event, What},
    local::StateHome,
    servers::Servers,
    url::Target,
};
use private_servers::Served;

/// Keeps what happens; stops the run after so many copies, if it is to.
#[derive(Default)]
struct Heard {
    lines: RefCell<Vec<String>>,
    copies_left: Option<RefCell<u32>>,
}

impl Events for Heard {
    fn tell(&self, event: &Event<'_>) -> Result<()> {
        match event {
            Event::Copied { what, target, bytes, .. } => {
                // What a directory takes is its file system's affair.
                assert!(*what == What::File || *bytes == 0, "{what:?} {}: {bytes} bytes", target.shown);
                self.lines.borrow_mut().push(target.shown.clone());
                if let Some(left) = &self.copies_left {
                    let mut left = left.borrow_mut();
                    *left = left.checked_sub(1).ok_or_else(|| Error::stopped("that was enough"))?;
                }
            }
            Event::Failed(error) => self.lines.borrow_mut().push(format!("{:?}: {error}", error.kind())),
            _ => {}
        }
        Ok(())
    }
}

fn target(text: impl AsRef<OsStr>) -> Target {
    Target::parse(text.as_ref()).unwrap()
}

async fn run(options: &Options, heard: &Heard) -> Result<Counts> {
    let servers = Servers::default();
    copy::run(options, Context { servers: &servers, events: heard }).await
}

fn plant(directory: &Path, files: u32) {
    for number in 0..files {
        let below = directory.join(format!("d{}", number % 4));
        fs::create_dir_all(&below).unwrap();
        fs::write(below.join(format!("file-{number}")), format!("contents {number}")).unwrap();
    }
}

/// All files below a directory, with what is in them.
fn files(directory: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for number in 0..4 {
        let Ok(entries) = fs::read_dir(directory.join(format!("d{number}"))) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(directory).unwrap().display().to_string();
            found.push((name, fs::read_to_string(path).unwrap()));
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn a_tree_whose_copy_was_stopped_is_resumed_and_counted() {
    const FILES: u32 = 40;
    let (server, here, state) = (Served::start(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = here.path().join("tree");
    plant(&source, FILES);
    let mut options = Options::new([target(&source)], target(server.url("/copy")));
    (options.recursive, options.state) = (true, StateHome::at(state.path()));
    let stopped = Heard { copies_left: Some(RefCell::new(10)), ..Heard::default() };
    let error = run(&options, &stopped).await.unwrap_err();
    assert!(error.stop().is_some(), "{error}");
    let counts = run(&options, &Heard::default()).await.unwrap();
    assert_eq!(files(&source), files(&server.path("/copy")));
    let before = counts.skipped.values().sum::<u64>();
    assert!(before >= 10, "what was copied is not copied again: {counts:?}");
    assert_eq!((counts.copied + before, counts.failed), (FILES.into(), 0), "{counts:?}");
}

#[tokio::test]
async fn a_copy_that_is_dropped_at_any_time_is_resumed() {
    let (server, here, state) = (Served::start(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = here.path().join("tree");
    plant(&source, 30);
    let mut options = Options::new([target(&source)], target(server.url("/copy")));
    (options.recursive, options.state) = (true, StateHome::at(state.path()));
    for turns in [3, 30, 100, 300] {
        let heard = Heard::default();
        let mut copying = Box::pin(run(&options, &heard));
        for _ in 0..turns {
            tokio::select! {
                biased;
                _ = &mut copying => break,
                () = tokio::task::yield_now() => {}
            }
        }
    }
    run(&options, &Heard::default()).await.unwrap();
    assert_eq!(files(&source), files(&server.path("/copy")));
}

#[tokio::test]
async fn a_sync_makes_one_directory_of_another_and_says_what_it_did() {
    let (server, here, state) = (Served::start(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let copy = here.path().join("copy");
    // What is newer would stay.
    plant(&copy, 12);
    plant(&server.path("/tree"), 8);
    let mut options = Options::sync(target(server.url("/tree")), target(&copy));
    options.state = StateHome::at(state.path());
    options.sync.as_mut().unwrap().delete = true;
    let counts = run(&options, &Heard::default()).await.unwrap();
    assert_eq!(files(&copy), files(&server.path("/tree")));
    assert_eq!((counts.deleted, counts.failed), (4, 0), "{counts:?}");
    let again = run(&options, &Heard::default()).await.unwrap();
    assert_eq!((again.copied, again.deleted), (0, 0), "{again:?}");
}

#[tokio::test]
async fn what_fails_is_told_by_its_kind() {
    let (server, here, state) = (Served::start(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let there = here.path().join("there");
    fs::write(&there, "there").unwrap();
    let sources = [target(here.path().join("missing")), target(&there)];
    fs::create_dir(server.path("/to")).unwrap();
    let mut options = Options::new(sources, target(server.url("/to")));
    options.state = StateHome::at(state.path());
    let heard = Heard::default();
    let counts = run(&options, &heard).await.unwrap();
    assert_eq!((counts.copied, counts.failed), (1, 1), "{counts:?}");
    assert!(heard.lines.borrow()[0].starts_with("SourceMissing: "), "{:?}", heard.lines);
    let nobody = Options { destination: target("nfs://127.0.0.1:1/x?mountport=1"), ..options };
    let error = run(&nobody, &Heard::default()).await.unwrap_err();
    assert!(error.is_unreachable() && error.kind() != ErrorKind::Other, "{error:?}");
}
