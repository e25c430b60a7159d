//! `nfsw mount` and `nfsw umount`.

mod background;
mod forget;
mod line;
mod socket;
mod status;
mod uniform;
mod via_nfs;

use std::{
    convert::Infallible,
    future::pending,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use nfs_files::Context;
use nfs_mount::{
    Event, Mount, NoDisk, Options, Patterns, Snapshot, fuse,
    point::{MountPoint, unmount, unmount_unused},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    task::spawn_blocking,
    time::sleep,
};

use self::{
    background::{Ready, Started},
    forget::Held,
    socket::Teller,
    status::Identity,
    uniform::Uniform,
};
use crate::{
    advice::explain,
    args::{MountArgs, OutputArgs, UmountArgs, Via},
    color::Color,
    error::{io_text, show},
    exit::{Exit, Failure},
    links,
    progress::{Line, Progress},
    report::{Reporter, event},
    signals::{ignores_hangup, interrupted},
    summary::Summary,
    text::{cut, escape},
    units,
    url::Remote,
};

/// Characters of a name that no program can use, at most.
const UNUSABLE: usize = 60;

pub(super) fn execute(mut arguments: MountArgs) -> ExitCode {
    if let Some(directory) = &arguments.status {
        return status::execute(directory.as_deref(), arguments.json).into();
    }
    // A mount does not end because nobody reads what it prints.
    let reporter = Reporter::new(&output(arguments.json), Instant::now())
        .with_verbosity(false, arguments.quiet)
        .that_changes(false);
    // It lasts until what is mounted there is unmounted.
    let uniform = match Uniform::make(&arguments) {
        Ok(uniform) => uniform,
        Err(error) => return reporter.finish(Err(error), &Summary::default()).into(),
    };
    if let Some(uniform) = &uniform {
        arguments.directory = Some(uniform.path().to_owned());
    }
    forget::sweep(&arguments);
    let activity = Arc::clone(reporter.activity());
    let connections = arguments.connection.servers(None, activity);
    let context = Context { servers: &connections, events: &reporter };
    if arguments.background && !arguments.in_background {
        match in_background(&arguments, &reporter) {
            Ok(Some(code)) => return code,
            Ok(None) => return reporter.finish(Ok(()), &Summary::of(&connections)).into(),
            Err(error) => return reporter.finish(Err(error), &Summary::of(&connections)).into(),
        }
    }
    if arguments.in_background {
        background::leave_terminal();
    }
    let result = match arguments.via {
        Via::Fuse if arguments.listen.is_some() => Err(Failure::usage("--listen goes with --via nfs")),
        Via::Fuse => run(&arguments, context, &reporter),
        Via::Nfs => via_nfs::run(&arguments, context, &reporter),
    };
    reporter.close(false, "");
    connections.remember();
    reporter.finish(result, &Summary::of(&connections)).into()
}

fn output(json: bool) -> OutputArgs {
    OutputArgs { json, ..OutputArgs::default() }
}

/// Mounts in a process of its own, and returns when that works; or, with its exit status, when it has said why it does not.
fn in_background(arguments: &MountArgs, reporter: &Reporter) -> anyhow::Result<Option<ExitCode>> {
    let point = match arguments.via {
        Via::Fuse => MountPoint::prepare(arguments.directory())?.path,
        Via::Nfs => via_nfs::name(arguments)?,
    };
    let Ready { said, pid, log } = match background::start(&point, arguments.target())? {
        Started::Failed(code) => return Ok(Some(code)),
        Started::Ready(ready) => ready,
    };
    if arguments.quiet {
        return Ok(None);
    }
    let (target, path, log) = (arguments.target(), show(&point), show(&log));
    match (arguments.via, &arguments.directory) {
        (Via::Fuse, _) => reporter
            .note(format!("{target} is mounted at {path}; unmount it: nfsw umount {path}; its log: {log}")),
        // It knows its address.
        (Via::Nfs, directory) => {
            eprint!("{said}");
            let end = match directory {
                Some(_) => format!("unmount it: nfsw umount {path}"),
                None => format!("end it: kill {pid}"),
            };
            reporter.note(format!("process {pid} runs in the background; {end}; its log: {log}"));
        }
    }
    Ok(None)
}

pub(super) fn execute_umount(arguments: &UmountArgs) -> Exit {
    let reporter = Reporter::new(&output(arguments.json), Instant::now()).that_changes(false);
    let directory = &arguments.directory;
    let result = unmount(directory).map_err(anyhow::Error::from).and_then(|in_use| {
        if in_use {
            let shown = show(directory);
            reporter.note(format!(
                "{shown} is in use; it is out of the file tree, and ends with the last program that uses it"
            ));
        }
        reporter.event(&unmounted(directory, in_use))
    });
    reporter.finish(result, &Summary::default())
}

/// The event that something is not mounted any more.
fn unmounted(directory: &Path, in_use: bool) -> serde_json::Value {
    let mut event = event("unmounted", &[("directory", directory.as_os_str().as_bytes())]);
    event["in_use"] = in_use.into();
    event
}

fn run(arguments: &MountArgs, context: Context<'_>, reporter: &Reporter) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(show_until_end(arguments, context, reporter));
    runtime.shutdown_background();
    result
}

async fn show_until_end(
    arguments: &MountArgs,
    context: Context<'_>,
    reporter: &Reporter,
) -> anyhow::Result<()> {
    let end = asked_to_end();
    tokio::pin!(end);
    let hoard = Patterns::parse(&arguments.hoard).map_err(Failure::usage)?;
    let point = MountPoint::prepare(arguments.directory())?;
    if point.was_dead {
        reporter.note(format!("{}: removed a dead mount", show(&point.path)));
    }
    let target = arguments.target();
    let mount = tokio::select! {
        mount = begin(arguments, context, reporter) => mount?,
        () = &mut end => return Err(Failure::with(Exit::Interrupted, "interrupted; nothing is mounted")),
    };
    let mounted = fuse::mount(&mount, &point)?;
    let how = if arguments.in_background { "nfsw umount" } else { "Ctrl-C" };
    reporter.note(format!("{target} is mounted at {}; {how} unmounts it", show(&point.path)));
    let (identity, teller) = (Identity::new(target, &point.path), teller(&point.path, reporter));
    let state = || identity.state(&mount.snapshot(), Instant::now());
    reporter.event(&state())?;
    if arguments.in_background {
        background::settle()?;
    } else if let Some(progress) = Progress::on_terminal(None, Color::Auto).filter(|_| !arguments.quiet) {
        reporter.show_progress(progress);
    }
    if !arguments.hoard.is_empty() {
        mount.hoard(hoard);
    }
    let held = Held::by(arguments);
    let tell = |event| {
        if let Event::Ended(_) = event {
            held.forget();
        }
        reporter.note(words(target, event));
        let _ = reporter.event(&state());
    };
    let changed = || {
        context.servers.link_event();
        mount.path_changed();
    };
    tokio::select! {
        biased;
        () = &mut end => {}
        () = mounted.ended() => {}
        never = mount.drive(context, &tell) => match never {},
        never = links::watch(changed) => match never {},
        never = tell_state(teller.as_ref(), &mount, &identity) => match never {},
        never = show_state(reporter, &mount) => match never {},
        () = held.outlives_share(context, reporter) => {}
        longest = unused(&mount, || Some(point.path.clone()), || mounted.is_there(), arguments.idle) => {
            let time = units::whole_seconds(longest);
            reporter.note(format!("{} has not been used for {time}", show(&point.path)));
        }
    }
    drop(mounted);
    drop(mount);
    held.finish();
    reporter.note(format!("{} is unmounted", show(&point.path)));
    reporter.event(&unmounted(&point.path, false))?;
    Ok(())
}

/// Finds what is to be mounted.
async fn begin(arguments: &MountArgs, context: Context<'_>, reporter: &Reporter) -> anyhow::Result<Mount> {
    let target = arguments.target();
    let mut options = Options::new(target.clone());
    options.cache.clone_from(&arguments.cache);
    (options.cache_bytes, options.wait) = (arguments.cache_size, arguments.wait);
    (options.offline, options.prefetch) = (arguments.offline, arguments.prefetch);
    // An NFS client mounts it where we do not know.
    options.thumbnails = arguments.via == Via::Fuse;
    Ok(Mount::begin(options, context, &|event| reporter.note(words(target, event))).await?)
}

/// Returns when the user or the system asks the mount to end, or its terminal is closed; signals count from this call on.
fn asked_to_end() -> impl Future<Output = ()> {
    let interrupted = interrupted();
    // Whoever ignores it wants the mount to outlive the terminal.
    let hangup = (!ignores_hangup()).then(|| signal(SignalKind::hangup()));
    async move {
        let closed = async {
            match hangup {
                Some(Ok(mut hangup)) => _ = hangup.recv().await,
                Some(Err(_)) | None => pending().await,
            }
        };
        tokio::select! {
            () = interrupted => {}
            () = closed => {}
        }
    }
}

/// Listens for those who want to know the state; without a place for that there are none.
fn teller(point: &Path, reporter: &Reporter) -> Option<Teller> {
    match Teller::listen(point) {
        Ok(teller) => Some(teller),
        Err(error) => {
            let text = "nfsw mount --status will not show this mount";
            tracing::debug!(%error, text);
            if error.raw_os_error().is_none() && error.kind() == io::ErrorKind::PermissionDenied {
                reporter.warning(format!("{text}: {}", io_text(&error)));
            }
            None
        }
    }
}

async fn tell_state(teller: Option<&Teller>, mount: &Mount, identity: &Identity) -> Infallible {
    match teller {
        Some(teller) => teller.tell(|| identity.state(&mount.snapshot(), Instant::now())).await,
        None => pending().await,
    }
}

/// Shows the state on a terminal.
async fn show_state(reporter: &Reporter, mount: &Mount) -> Infallible {
    const REDRAW: Duration = Duration::from_millis(500);
    while reporter.show(|(width, _)| Line::plain(line::line(&mount.snapshot(), Instant::now(), width), width))
    {
        sleep(REDRAW).await;
    }
    pending().await
}

/// Returns when no program has used the mount for so long, and unmounts it, if it is mounted on this machine then. What is not there any
/// more but is still in use ends with the last program.
async fn unused(
    mount: &Mount,
    point: impl Fn() -> Option<PathBuf>,
    is_there: impl Fn() -> bool,
    longest: Option<Duration>,
) -> Duration {
    let Some(longest) = longest else { return pending().await };
    let look = (longest / 10).clamp(Duration::from_millis(50), Duration::from_secs(10));
    loop {
        sleep(look).await;
        let Snapshot { is_unused, used_at, .. } = mount.snapshot();
        if !is_unused || used_at.elapsed() < longest || !is_there() {
            continue;
        }
        let Some(path) = point() else { return longest };
        // The kernel may want answers meanwhile. It refuses while somebody is in there, with a working directory for example.
        if let Ok(true) = spawn_blocking(move || unmount_unused(&path)).await {
            return longest;
        }
        mount.record_use();
    }
}

/// Words what happens to a mount.
fn words(server: &Remote, event: Event) -> String {
    match event {
        Event::Disconnected => format!("{server}: the server does not respond; what is held is served"),
        Event::Connected => format!("{server}: the server responds again"),
        Event::AnotherServer => {
            format!(
                "{server}: another server is at this address; what is held is served, and it is not asked"
            )
        }
        Event::Ended(why) => format!("{server}: {}; nothing of it is shown any more", io_text(&why)),
        Event::Unlisted(path, failure) => {
            let path = cut(&escape(&path), UNUSABLE);
            format!("{server}: the directory \"{path}\" cannot be listed: {failure}")
        }
        Event::UnusableName(name) => {
            let name = cut(&escape(&name), UNUSABLE);
            format!("{server}: no program can use \"{name}\" as the name of a file; such names are left out")
        }
        Event::BegunOffline(error) => format!("{}; what is held is shown", explain(&error)),
        Event::CacheInMemory(reason) => {
            let reason = match reason {
                NoDisk::InUse => "another nfsw has the cache of this directory".to_owned(),
                NoDisk::NoHome(error) => io_text(&error),
                NoDisk::Unusable(path, error) => format!("{}: {}", show(&path), io_text(&error)),
            };
            format!("{reason}; what is read of {server} is held in memory, until it is unmounted")
        }
        Event::CacheReadOnly(path, error) => {
            let (path, error) = (show(&path), io_text(&error));
            format!("{path}: {error}; what it has is shown, and nothing is added to it")
        }
        Event::NoCache(error) => io_text(&error),
        other => format!("{server}: {other:?}"),
    }
}
