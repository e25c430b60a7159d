//! Keeps a copy of a directory on an NFS server: `backup DIRECTORY URL [LISTEN]`.
//!
//! Whenever something in the directory changes, it is synchronised; what only the copy has, stays. A GET of any path tells what was done.
//! The program may be ended at any time, and the next one resumes what it was at.

#![forbid(unsafe_code)]

use std::{
    collections::hash_map::DefaultHasher,
    env,
    error::Error as StdError,
    fs,
    hash::{Hash, Hasher},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{Router, http::header::CONTENT_TYPE, routing::get};
use nfs_files::{
    Context, Result,
    copy::{self, Options},
    event::{Counts, Event},
    progress::Activity,
    servers::Servers,
    url::Target,
};
use serde_json::json;
use tokio::{net::TcpListener, signal, task::spawn_blocking, time::sleep};

/// How often the directory is looked at.
const LOOK_TIME: Duration = Duration::from_millis(500);

/// How long after a failure it is tried again.
const RETRY_TIME: Duration = Duration::from_secs(10);

/// What the program is at, for who asks.
#[derive(Default)]
struct Status {
    is_running: bool,
    /// Syncs that have ended.
    runs: u64,
    /// What the last one has done.
    last: Counts,
    /// Why it ended, or what failed last in it.
    error: Option<String>,
    /// How far the present one is.
    activity: Arc<Activity>,
}

type Shared = Arc<Mutex<Status>>;

fn change(status: &Shared, change: impl FnOnce(&mut Status)) {
    change(&mut status.lock().unwrap_or_else(PoisonError::into_inner));
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::result::Result<(), Box<dyn StdError>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [directory, url, listen @ ..] = &arguments[..] else {
        return Err("usage: backup DIRECTORY URL [LISTEN]".into());
    };
    let options = Options::sync(directory.parse()?, url.parse()?);
    if !matches!(url.parse()?, Target::Remote(_)) {
        return Err("the copy is on a server: nfs://HOST/PATH".into());
    }
    let listener = TcpListener::bind(listen.first().map_or("127.0.0.1:8081", String::as_str)).await?;
    println!("http://{}/", listener.local_addr()?);
    let status = Shared::default();
    let told = Arc::clone(&status);
    let answer = move || async move { ([(CONTENT_TYPE, "application/json")], report(&told)) };
    let router = Router::new().fallback(get(answer));
    // A sync is dropped wherever it is.
    tokio::select! {
        served = async { axum::serve(listener, router).await } => served?,
        () = keep(directory.into(), &options, &status) => {}
        interrupted = signal::ctrl_c() => interrupted?,
    }
    Ok(())
}

/// Synchronises whenever something has changed, for ever.
async fn keep(directory: PathBuf, options: &Options, status: &Shared) {
    let mut copied = None;
    loop {
        let there = directory.clone();
        let seen = spawn_blocking(move || fingerprint(&there)).await;
        let wait = match seen {
            Ok(seen) if copied == Some(seen) => LOOK_TIME,
            // What changes while it is copied is copied the next time.
            Ok(seen) => match sync(options, status).await {
                Ok(counts) if !counts.has_failures() => {
                    copied = Some(seen);
                    LOOK_TIME
                }
                Ok(_) | Err(_) => RETRY_TIME,
            },
            Err(error) => {
                change(status, |it| it.error = Some(format!("{}: {error}", directory.display())));
                RETRY_TIME
            }
        };
        sleep(wait).await;
    }
}

/// Synchronises once.
async fn sync(options: &Options, status: &Shared) -> Result<Counts> {
    let servers = Servers::default();
    change(status, |it| {
        (it.is_running, it.activity, it.error) = (true, Arc::clone(servers.activity()), None);
    });
    let events = |event: &Event<'_>| {
        if let Event::Failed(error) = event {
            change(status, |it| it.error = Some(error.to_string()));
        }
        Ok(())
    };
    let done = copy::run(options, Context { servers: &servers, events: &events }).await;
    change(status, |it| {
        it.is_running = false;
        it.runs += 1;
        match &done {
            Ok(counts) => it.last = counts.clone(),
            Err(error) => it.error = Some(error.to_string()),
        }
    });
    done
}

/// What was done, for programs.
fn report(status: &Shared) -> String {
    let Status { is_running, runs, last, error, activity } =
        &*status.lock().unwrap_or_else(PoisonError::into_inner);
    let skipped = last.skipped.values().sum::<u64>();
    json!({
        "running": is_running,
        "bytes": activity.bytes(),
        "expected_bytes": activity.expected_bytes(),
        "runs": runs,
        "copied": last.copied,
        "resumed": last.resumed,
        "unchanged": skipped,
        "failed": last.failed,
        "error": error,
    })
    .to_string()
}

/// Returns a number that is another one when a file below a directory was changed, added or taken away.
fn fingerprint(directory: &Path) -> u64 {
    let (mut open, mut all) = (vec![directory.to_owned()], Vec::new());
    while let Some(directory) = open.pop() {
        // What cannot be read is told by the copy, which goes on with the rest.
        for entry in fs::read_dir(&directory).into_iter().flatten() {
            let Ok(entry) = entry else { break };
            let path = entry.path();
            // What is gone by now is seen the next time.
            let Ok(found) = fs::symlink_metadata(&path) else { continue };
            if found.is_dir() {
                open.push(path.clone());
            }
            all.push((path, found.ino(), found.size(), found.ctime(), found.ctime_nsec()));
        }
    }
    all.sort();
    let mut hasher = DefaultHasher::new();
    all.hash(&mut hasher);
    hasher.finish()
}
