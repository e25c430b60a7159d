//! `nfsw mount --via nfs`: a server on this machine, and the system's NFS client in front of it.

use std::{
    ffi::OsString,
    fs,
    hash::{BuildHasher, RandomState},
    io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, SystemTime},
};

use nfs_wireless_server::Server;

use super::{reach, tell, view};
use crate::{
    args::MountArgs,
    command::serve::url,
    connections::Connections,
    error::{io_text, local, show},
    exit::{Exit, Failure},
    links,
    mount::{Export, carry, is_mounted},
    report::Reporter,
    signals::interrupted,
};

/// How long the system's NFS client waits for an answer beyond `--wait`, before it asks again.
const MARGIN: Duration = Duration::from_secs(5);

/// How often it is looked whether somebody else has unmounted it.
const LOOK: Duration = Duration::from_millis(500);

pub(super) fn run(
    arguments: &MountArgs,
    connections: &Connections,
    reporter: &Reporter,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(serve(arguments, connections, reporter));
    runtime.shutdown_background();
    result
}

async fn serve(arguments: &MountArgs, connections: &Connections, reporter: &Reporter) -> anyhow::Result<()> {
    let end = interrupted();
    tokio::pin!(end);
    let point = arguments.directory.as_deref().map(directory).transpose()?;
    let found = tokio::select! {
        found = reach(arguments, connections, reporter) => found?,
        () = &mut end => return Err(Failure::with(Exit::Interrupted, "interrupted; nothing is mounted")),
    };
    let view = view(arguments, &found);
    let export = Export::new(view.clone(), found.client.clone(), found.handle, &found.metadata);
    let listen = arguments.listen.unwrap_or_else(|| (Ipv4Addr::LOCALHOST, 0).into());
    let service = export.service(RandomState::new().hash_one(SystemTime::now()));
    let (server, works) = Server::bind_deferred(listen, service).await.map_err(|error| {
        let text = format!("cannot listen on {listen}: {} (--listen takes another)", io_text(&error));
        Failure::with(Exit::LocalIo, text)
    })?;
    let address = server.local_addr();
    if !address.ip().is_loopback() {
        reporter.note(format!("warning: whoever reaches {address} may read everything in {}", found.remote));
    }
    reporter.note(format!("{} is served at {}/", found.remote, url(address)));
    let life = async {
        let mounted = async {
            match &point {
                Some(point) => mount(arguments, point, address, reporter).await,
                None => {
                    reporter.note(format!("mount it with: {}", shown(&line(arguments, None, address))));
                    false
                }
            }
        };
        let is_ours = tokio::select! {
            biased;
            () = &mut end => return,
            is_ours = mounted => is_ours,
        };
        let Some(point) = point.as_deref().filter(|_| is_ours) else { return end.await };
        reporter.note(format!("{} is mounted at {}; Ctrl-C unmounts it", found.remote, show(point)));
        tokio::select! {
            () = &mut end => unmount(point, reporter).await,
            () = unmounted(point) => {}
        }
    };
    let tell = || view.take_notices().into_iter().for_each(|notice| tell(reporter, &found, notice));
    let changed = || {
        connections.link_event();
        view.path_changed();
    };
    // While the system's client mounts and unmounts, it is answered by the others.
    tokio::select! {
        biased;
        () = life => {}
        never = carry(&view, &found.client, tell) => match never {},
        never = export.serve(&server, works) => match never {},
        never = links::watch(changed) => match never {},
    }
    server.shutdown().await;
    Ok(())
}

/// Checks that a directory can be mounted on.
fn directory(path: &Path) -> anyhow::Result<PathBuf> {
    let metadata = fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let shown = show(path);
            Failure::with(Exit::LocalIo, format!("{shown} does not exist; create it first: mkdir {shown}"))
        }
        _ => local(path, &error),
    })?;
    if !metadata.is_dir() {
        return Err(Failure::with(Exit::LocalIo, format!("{} is not a directory", show(path))));
    }
    fs::canonicalize(path).map_err(|error| local(path, &error))
}

/// Has the system's NFS client mount it; whether it did. If not, it is said why, and the view is served all the same.
async fn mount(arguments: &MountArgs, point: &Path, address: SocketAddr, reporter: &Reporter) -> bool {
    let line = line(arguments, Some(point), address);
    let reason = match run_command(&line).await {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "),
        Err(error) => io_text(&error),
    };
    let kernel = if has_client() {
        ""
    } else {
        "; this kernel has no NFS client at present (modprobe nfs), and mount(8) needs the package nfs-common"
    };
    reporter.note(format!(
        "cannot mount at {}: {reason}{kernel}. It is served all the same; mount it with: {}",
        show(point),
        shown(&line)
    ));
    false
}

/// Returns the command that mounts it.
fn line(arguments: &MountArgs, point: Option<&Path>, address: SocketAddr) -> Vec<OsString> {
    let port = address.port();
    // The client must not give up before an answer that takes as long as it may, and a server that is gone must not hang it.
    let wait = (arguments.wait + MARGIN).as_millis().div_ceil(100);
    let ports = format!("port={port},mountport={port},soft,timeo={wait},retrans=2,nosuid,nodev,noatime");
    let options = if cfg!(target_os = "linux") {
        // The address is for kernels that mount without the help of nfs-common.
        format!("{ports},nfsvers=3,proto=tcp,mountproto=tcp,nolock,ro,addr={}", address.ip())
    } else {
        format!("{ports},vers=3,tcp,nolocks,rdonly")
    };
    let host = match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    };
    let mut line: Vec<OsString> =
        ["mount", "-t", "nfs", "-o", &options, &format!("{host}:/")].map(Into::into).into();
    line.push(point.map_or_else(|| "DIR".into(), Into::into));
    line
}

fn shown(line: &[OsString]) -> String {
    line.iter().map(|word| show(Path::new(word))).collect::<Vec<_>>().join(" ")
}

async fn run_command(line: &[OsString]) -> io::Result<Output> {
    let line = line.to_vec();
    let run = move || {
        let (program, arguments) = line.split_first().expect("never empty");
        Command::new(program).args(arguments).stdin(Stdio::null()).output()
    };
    tokio::task::spawn_blocking(run).await.map_err(io::Error::other)?
}

/// Whether the kernel has an NFS client, now that mount(8) had its chance to load it.
fn has_client() -> bool {
    fs::read_to_string("/proc/filesystems")
        .is_ok_and(|text| text.lines().any(|line| line.trim_end().ends_with("\tnfs")))
}

/// Returns when it is not mounted any more.
async fn unmounted(point: &Path) {
    while is_mounted(point) {
        tokio::time::sleep(LOOK).await;
    }
}

async fn unmount(point: &Path, reporter: &Reporter) {
    // What is in use goes out of the file tree at once, and ends with the last program that uses it.
    let option = if cfg!(target_os = "linux") { "-l" } else { "-f" };
    let done = match run_command(&["umount".into(), option.into(), point.into()]).await {
        Ok(output) => output.status.success(),
        Err(_) => false,
    };
    reporter.note(match done {
        true => format!("{} is unmounted", show(point)),
        false => format!("cannot unmount {0}: umount -f {0}", show(point)),
    });
}
