//! `nfsw mount` and `nfsw umount`.

mod begin;

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use fuser::{BackgroundSession, Config, MountOption, Session};
use nfs_cache::Cache;

use crate::{
    args::{MountArgs, OutputArgs, UmountArgs},
    connections::Connections,
    error::{explain, show},
    exit::{Exit, Failure},
    held::Holder,
    links,
    mount::{Front, MountPoint, Notice, SOURCE, View, carry, unmount},
    report::Reporter,
    signals::interrupted,
    target::Remote,
};

/// Event loops: one that answers while another reads the next request.
const LOOPS: usize = 2;

pub(super) fn execute(arguments: MountArgs) -> Exit {
    let reporter = Reporter::new(&OutputArgs { json: false, stats: false }, Instant::now())
        .with_verbosity(false, arguments.quiet);
    let activity = Arc::clone(reporter.activity());
    let connections = Connections::new(arguments.connection.clone(), None, activity);
    let result = run(&arguments, &connections, &reporter);
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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let end = interrupted();
        tokio::pin!(end);
        let point = MountPoint::prepare(&arguments.directory)?;
        if point.was_dead {
            reporter.note(format!("{}: removed a dead mount", show(&point.path)));
        }
        let begun = tokio::select! {
            begun = begin::begin(arguments, connections, reporter) => begun?,
            () = &mut end => return Err(Failure::with(Exit::Interrupted, "interrupted; nothing is mounted")),
        };
        let (target, seeker) = (&arguments.target, begun.seeker());
        let (view, session) = mount(target, begun.cache, &point.path)?;
        reporter.note(format!("{target} is mounted at {}; Ctrl-C unmounts it", show(&point.path)));
        let over = ended(&session);
        let tell = || view.take_notices().into_iter().for_each(|notice| tell(reporter, target, notice));
        let changed = || {
            connections.link_event();
            view.path_changed();
        };
        tokio::select! {
            biased;
            () = &mut end => {}
            () = over => {}
            never = carry(&view, &begun.server, tell) => match never {},
            never = seeker.seek(arguments, connections, reporter, &view) => match never {},
            never = begin::follow_pins(&view, begun.place) => match never {},
            never = links::watch(changed) => match never {},
        }
        // Taken out of the file tree; programs that still use it get errors.
        drop(session);
        view.keep_all();
        reporter.note(format!("{} is unmounted", show(&point.path)));
        Ok(())
    });
    runtime.shutdown_background();
    result
}

/// Puts it into the file tree.
fn mount(
    target: &Remote,
    cache: Cache<Holder>,
    point: &Path,
) -> anyhow::Result<(Arc<View>, BackgroundSession)> {
    let view = Arc::new(View::new(cache));
    let mut options = Config::default();
    options.mount_options = vec![
        MountOption::RO,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoAtime,
        // A comma would end the option.
        MountOption::FSName(format!("{SOURCE}{target}").replace(',', "_")),
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

fn tell(reporter: &Reporter, server: &Remote, notice: Notice) {
    reporter.note(match notice {
        Notice::Disconnected => format!("{server}: the server does not respond; what is held is served"),
        Notice::Connected => format!("{server}: the server responds again"),
        Notice::AnotherServer => another(server),
    });
}

fn another(server: &Remote) -> String {
    format!("{server}: another server is at this address; what is held is served, and it is not asked")
}
