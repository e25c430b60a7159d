//! `nfsw mount` and `nfsw umount`.

mod via_nfs;

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use fuser::{BackgroundSession, Config, MountOption, Session};
use nfs_cache::{Cache, CacheConfig, MemoryStore};
use tokio::time::timeout;

use crate::{
    args::{MountArgs, OutputArgs, UmountArgs, Via},
    connections::Connections,
    error::{explain, show},
    exit::{Exit, Failure},
    links,
    mount::{Front, MountPoint, Notice, SOURCE, View, carry, unmount},
    remote::{Found, find, follow},
    report::Reporter,
    signals::interrupted,
};

/// How long the server may take to show what is to be mounted.
const REACH: Duration = Duration::from_secs(5);

/// Event loops: one that answers while another reads the next request.
const LOOPS: usize = 2;

pub(super) fn execute(arguments: MountArgs) -> Exit {
    let reporter = Reporter::new(&OutputArgs { json: false, stats: false }, Instant::now())
        .with_verbosity(false, arguments.quiet);
    let activity = Arc::clone(reporter.activity());
    let connections = Connections::new(arguments.connection.clone(), None, activity);
    let result = match arguments.via {
        Via::Fuse => run(&arguments, &connections, &reporter),
        Via::Nfs => via_nfs::run(&arguments, &connections, &reporter),
    };
    connections.remember();
    reporter.finish(result, &connections.summary())
}

pub(super) fn execute_umount(arguments: &UmountArgs) -> Exit {
    match unmount(&arguments.directory) {
        Ok(in_use) => {
            if in_use {
                let directory = show(&arguments.directory);
                eprintln!(
                    "nfsw: {directory} is in use; it is out of the file tree, and ends with the last program that uses it"
                );
            }
            Exit::Done
        }
        Err(error) => {
            eprintln!("nfsw: {}", explain(&error));
            Exit::of(&error)
        }
    }
}

fn run(arguments: &MountArgs, connections: &Connections, reporter: &Reporter) -> anyhow::Result<()> {
    let directory = match (&arguments.directory, arguments.listen) {
        (Some(directory), None) => directory,
        (_, Some(_)) => return Err(Failure::usage("--listen goes with --via nfs")),
        (None, None) => return Err(Failure::usage("DIR is missing")),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let end = interrupted();
        tokio::pin!(end);
        let point = MountPoint::prepare(directory)?;
        if point.was_dead {
            reporter.note(format!("{}: removed a dead mount", show(&point.path)));
        }
        let found = tokio::select! {
            found = reach(arguments, connections, reporter) => found?,
            () = &mut end => return Err(Failure::with(Exit::Interrupted, "interrupted; nothing is mounted")),
        };
        let (view, session) = mount(arguments, &found, &point.path)?;
        reporter.note(format!("{} is mounted at {}; Ctrl-C unmounts it", found.remote, show(&point.path)));
        let over = ended(&session);
        let tell = || view.take_notices().into_iter().for_each(|notice| tell(reporter, &found, notice));
        let changed = || {
            connections.link_event();
            view.path_changed();
        };
        tokio::select! {
            biased;
            () = &mut end => {}
            () = over => {}
            never = carry(&view, &found.client, tell) => match never {},
            never = links::watch(changed) => match never {},
        }
        // Taken out of the file tree; programs that still use it get errors.
        drop(session);
        reporter.note(format!("{} is unmounted", show(&point.path)));
        Ok(())
    });
    runtime.shutdown_background();
    result
}

/// Finds the directory that is to be mounted.
async fn reach(
    arguments: &MountArgs,
    connections: &Connections,
    reporter: &Reporter,
) -> anyhow::Result<Found> {
    let target = &arguments.target;
    let found = async { follow(connections, reporter, find(connections, reporter, target).await?).await };
    let Ok(found) = timeout(REACH, found).await else {
        let text =
            format!("{target}: no answer from the server for {} s (nfsw doctor tells more)", REACH.as_secs());
        return Err(Failure::with(Exit::Unreachable, text));
    };
    let found = found?;
    if !found.is_directory() {
        return Err(Failure::usage(format!("{target} is not a directory")));
    }
    Ok(found)
}

/// Begins to show a directory.
fn view(arguments: &MountArgs, found: &Found) -> Arc<View> {
    let mut config = CacheConfig::default();
    config.wait = arguments.wait;
    config.size_bytes = arguments.cache_size;
    let cache = Cache::new(config, Instant::now(), found.handle, found.metadata, MemoryStore::default());
    Arc::new(View::new(cache))
}

/// Puts it into the file tree.
fn mount(
    arguments: &MountArgs,
    found: &Found,
    point: &Path,
) -> anyhow::Result<(Arc<View>, BackgroundSession)> {
    let view = view(arguments, found);
    let mut options = Config::default();
    options.mount_options = vec![
        MountOption::RO,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoAtime,
        // A comma would end the option.
        MountOption::FSName(format!("{SOURCE}{}", found.remote).replace(',', "_")),
    ];
    (options.n_threads, options.clone_fd) = (Some(LOOPS), true);
    let session = Session::new(Front(Arc::clone(&view)), point, &options).and_then(Session::spawn);
    let session = session.map_err(|error| {
        let text = format!("cannot mount at {}: {}", show(point), crate::error::io_text(&error));
        let hint = match error.kind() {
            std::io::ErrorKind::NotFound => " (ordinary users need fusermount3, of package fuse3)",
            std::io::ErrorKind::PermissionDenied => " (are you allowed to use /dev/fuse?)",
            _ => "",
        };
        Failure::with(Exit::LocalIo, text + hint)
    })?;
    Ok((view, session))
}

/// Returns when somebody else has unmounted it.
async fn ended(session: &BackgroundSession) {
    const LOOK: Duration = Duration::from_millis(100);
    while !session.guard.is_finished() {
        tokio::time::sleep(LOOK).await;
    }
}

fn tell(reporter: &Reporter, found: &Found, notice: Notice) {
    let server = &found.remote;
    reporter.note(match notice {
        Notice::Disconnected => format!("{server}: the server does not respond; what is held is served"),
        Notice::Connected => format!("{server}: the server responds again"),
        Notice::AnotherServer => {
            format!(
                "{server}: another server is at this address; what is held is served, and it is not asked"
            )
        }
    });
}
