//! `nfsw mount --via nfs`: a server on this machine, and the system's NFS client in front of it.

use std::{
    cell::Cell,
    ffi::OsString,
    fs,
    hash::{BuildHasher, RandomState},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    pin::{Pin, pin},
    process::{Command, Output, Stdio},
    time::{Duration, Instant, SystemTime},
};

use nfs_files::Context;
use nfs_mount::{
    Event, Mount, Patterns,
    nfs::{Export, Readers},
    point::{directory, served_port, unmount},
};
use nfs_wireless_server::Server;
use serde_json::json;
use tokio::{task::spawn_blocking, time::timeout};

use super::{
    asked_to_end, background, begin, forget::Held, status::Identity, tell_state, teller,
    unmounted as unmounted_event, unused, words,
};
use crate::{
    advice::explain,
    args::MountArgs,
    command::serve::url,
    error::{io_text, local, show},
    exit::{Exit, Failure},
    links,
    report::{Reporter, put_name},
    units,
};

/// How long the system's NFS client waits for an answer beyond `--wait`, before it asks again.
const MARGIN: Duration = Duration::from_secs(5);

/// How often it is looked whether somebody else has unmounted it.
const LOOK: Duration = Duration::from_millis(500);

/// How long mount(8) may take to end when it is not wanted any more.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Where it is shown.
#[derive(Debug)]
enum Attachment {
    /// Nowhere yet: whoever wants to mounts it.
    None,
    /// In this directory, once it is mounted there.
    Directory(PathBuf),
    /// In this directory, where it was mounted by a run before this one, which has left a mount without a server.
    Mounted(PathBuf),
}

impl Attachment {
    /// Returns the directory, if there is one.
    fn point(&self) -> Option<&Path> {
        match self {
            Self::None => None,
            Self::Directory(point) | Self::Mounted(point) => Some(point),
        }
    }
}

/// Checks where it is to be shown, and returns what tells this mount from others: its directory or, where it is only served, its address.
pub(super) fn name(arguments: &MountArgs) -> anyhow::Result<PathBuf> {
    let (place, listen) = prepare(arguments)?;
    Ok(place.point().map_or_else(|| url(listen).into(), Path::to_owned))
}

pub(super) fn run(arguments: &MountArgs, context: Context<'_>, reporter: &Reporter) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(serve(arguments, context, reporter));
    runtime.shutdown_background();
    result
}

async fn serve(arguments: &MountArgs, context: Context<'_>, reporter: &Reporter) -> anyhow::Result<()> {
    let mut end = pin!(asked_to_end());
    let hoard = Patterns::parse(&arguments.hoard).map_err(Failure::usage)?;
    let (place, listen) = prepare(arguments)?;
    let mount = tokio::select! {
        mount = begin(arguments, context, reporter) => mount?,
        () = &mut end => return Err(Failure::with(Exit::Interrupted, "interrupted; nothing is mounted")),
    };
    if !arguments.hoard.is_empty() {
        mount.hoard(hoard);
    }
    let readers = if listen.ip().to_canonical().is_loopback() { Readers::Owner } else { Readers::Everybody };
    let export = Export::new(&mount, readers);
    let service = export.service(RandomState::new().hash_one(SystemTime::now()));
    let (server, works) =
        Server::bind_deferred(listen, service).await.map_err(|error| unbound(&place, listen, &error))?;
    let address = server.local_addr();
    // Who asks for the mounts of this user is told of one that is only served, too, under its address.
    let shown_at = place.point().map_or_else(|| url(address).into(), Path::to_owned);
    let (identity, teller) = (Identity::new(arguments.target(), &shown_at), teller(&shown_at, reporter));
    let has_mounted = Cell::new(false);
    let tell_state_again = || match has_mounted.get() {
        true => reporter.event(&identity.state(&mount.snapshot(), Instant::now())),
        false => Ok(()),
    };
    let held = Held::by(arguments);
    let shown = Shown {
        arguments,
        context,
        reporter,
        mount: &mount,
        held: &held,
        place,
        address,
        shown_at: &shown_at,
    };
    shown.announce(readers)?;
    let life = shown.live(end, || {
        has_mounted.set(true);
        tell_state_again()
    });
    let tell = |event| {
        if let Event::Ended(_) = event {
            held.forget();
        }
        reporter.note(words(arguments.target(), event));
        let _ = tell_state_again();
    };
    let changed = || {
        context.servers.link_event();
        mount.path_changed();
    };
    // While the system's client mounts and unmounts, it is answered by the others.
    let result = tokio::select! {
        biased;
        result = life => result,
        never = mount.drive(context, &tell) => match never {},
        never = export.serve(&server, works) => match never {},
        never = tell_state(teller.as_ref(), &mount, &identity) => match never {},
        never = links::watch(changed) => match never {},
    };
    server.shutdown().await;
    drop((export, mount));
    held.finish();
    result
}

/// A mount that is served, and where it is to be shown.
struct Shown<'a> {
    arguments: &'a MountArgs,
    context: Context<'a>,
    reporter: &'a Reporter,
    mount: &'a Mount,
    held: &'a Held<'a>,
    place: Attachment,
    address: SocketAddr,
    /// The directory, or the address where there is none.
    shown_at: &'a Path,
}

impl Shown<'_> {
    /// Says where it is served.
    fn announce(&self, readers: Readers) -> anyhow::Result<()> {
        let (address, target) = (self.address, self.arguments.target());
        if readers == Readers::Everybody {
            self.reporter.note(format!("warning: whoever reaches {address} may read everything in {target}"));
        }
        self.reporter.note(format!("{target} is served at {}/", url(address)));
        let mut serving = json!({
            "event": "serving", "address": address.to_string(), "url": url(address), "read_only": true,
        });
        put_name(&mut serving, "path", &target.to_bytes());
        self.reporter.event(&serving)
    }

    /// Mounts it, waits for its end and unmounts it; `tell` is called once it is mounted.
    async fn live(
        &self,
        mut end: Pin<&mut impl Future<Output = ()>>,
        tell: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        if let Some(is_mounted) = self.mount(end.as_mut()).await? {
            self.wait(end, is_mounted, tell).await?;
        }
        // By whom it was mounted does not matter: nobody answers there any more.
        if let Some(point) = self.mounted_at() {
            take_down(&point, self.reporter).await;
        }
        Ok(())
    }

    /// Puts it into its directory. Returns whether it is there, and `None` if the end has come before.
    async fn mount(&self, end: Pin<&mut impl Future<Output = ()>>) -> anyhow::Result<Option<bool>> {
        let (arguments, reporter) = (self.arguments, self.reporter);
        let point = match &self.place {
            Attachment::None => {
                reporter.note(format!("mount it with: {}", shown(&line(arguments, None, self.address))));
                return Ok(Some(false));
            }
            Attachment::Mounted(point) => return check(point).await.map(|()| Some(true)),
            Attachment::Directory(point) => point,
        };
        let line = line(arguments, Some(point), self.address);
        let mut mounting = pin!(mount_by_system(&line, point));
        let mounted = tokio::select! {
            biased;
            // It must not be mounted after the end.
            () = end => return timeout(LAST_WORDS, mounting).await.map_or(Ok(None), |_| Ok(None)),
            mounted = &mut mounting => mounted,
        };
        match mounted {
            Err(reason) if arguments.in_background => {
                let text = format!("{reason}; without DIR it is served all the same");
                Err(Failure::with(Exit::LocalIo, text))
            }
            Err(reason) => {
                reporter.note(reason);
                reporter.note(format!("it is served until Ctrl-C; mount it with: {}", shown(&line)));
                Ok(Some(false))
            }
            Ok(()) => Ok(Some(true)),
        }
    }

    /// Waits until the user ends it, somebody else unmounts it, or nobody has used it for long.
    async fn wait(
        &self,
        end: Pin<&mut impl Future<Output = ()>>,
        is_mounted: bool,
        tell: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let (arguments, reporter) = (self.arguments, self.reporter);
        let point = self.place.point().filter(|_| is_mounted);
        if let Some(point) = point {
            let how = if arguments.in_background { "nfsw umount" } else { "Ctrl-C" };
            reporter.note(format!("{} is mounted at {}; {how} unmounts it", arguments.target(), show(point)));
            tell()?;
        }
        if arguments.in_background
            && let Err(error) = background::settle()
        {
            if let Some(point) = point {
                take_down(point, reporter).await;
            }
            return Err(error);
        }
        tokio::select! {
            () = end => {}
            () = unmounted(self.shown_at, self.address.port()), if is_mounted => {}
            () = self.held.outlives_share(self.context, reporter) => {}
            longest = unused(self.mount, || self.mounted_at(), || true, arguments.idle) => {
                let time = units::whole_seconds(longest);
                reporter.note(format!("{} has not been used for {time}", show(self.shown_at)));
            }
        }
        Ok(())
    }

    /// Returns the directory, while this is mounted there; by whom does not matter.
    fn mounted_at(&self) -> Option<PathBuf> {
        let point = self.place.point().filter(|point| served_port(point) == Some(self.address.port()));
        point.map(Path::to_owned)
    }
}

/// Checks where it is to be shown, and chooses where it is served.
fn prepare(arguments: &MountArgs) -> anyhow::Result<(Attachment, SocketAddr)> {
    let any = || SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let Some(path) = &arguments.directory else {
        return Ok((Attachment::None, arguments.listen.unwrap_or_else(any)));
    };
    // A directory whose server is gone must not be touched: that would take as long as the kernel waits.
    let Some(port) = served_port(path) else {
        return Ok((Attachment::Directory(directory(path)?), arguments.listen.unwrap_or_else(any)));
    };
    let listen = arguments.listen.unwrap_or_else(|| (Ipv4Addr::LOCALHOST, port).into());
    if listen.port() != port {
        let text = format!("{0} is mounted already, from port {port} (nfsw umount {0})", show(path));
        return Err(Failure::with(Exit::LocalIo, text));
    }
    let place = Attachment::Mounted(std::path::absolute(path).map_err(|error| local(path, &error))?);
    // Whether there is a server is known before anything else is asked.
    match TcpListener::bind(listen) {
        Ok(_) => Ok((place, listen)),
        Err(error) => Err(unbound(&place, listen, &error)),
    }
}

/// Says why there is no server.
fn unbound(place: &Attachment, listen: SocketAddr, error: &io::Error) -> anyhow::Error {
    let text = match place {
        Attachment::Mounted(point) if error.kind() == io::ErrorKind::AddrInUse => {
            format!("{0} is mounted already (nfsw umount {0})", show(point))
        }
        _ => format!("cannot listen on {listen}: {} (--listen takes another)", io_text(error)),
    };
    Failure::with(Exit::LocalIo, text)
}

/// Checks that what a run before this one has left mounted is what is served now.
async fn check(point: &Path) -> anyhow::Result<()> {
    let path = point.to_owned();
    let looked = spawn_blocking(move || fs::metadata(path).map(drop)).await.map_err(io::Error::other);
    looked.and_then(|looked| looked).map_err(|error| {
        let (shown, reason) = (show(point), io_text(&error));
        let text = format!("{shown} is the mount of something else: {reason} (nfsw umount {shown})");
        Failure::with(Exit::LocalIo, text)
    })
}

/// Has the system's NFS client mount it, or says why it does not.
async fn mount_by_system(line: &[OsString], point: &Path) -> Result<(), String> {
    let reason = match run_command(line).await {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "),
        Err(error) => io_text(&error),
    };
    let reason = reason.trim_end_matches('.');
    let hint = if !rustix::process::geteuid().is_root() {
        "only the superuser may mount"
    } else if !has_client() {
        "this kernel has no NFS client at present: modprobe nfs"
    } else {
        "mount(8) needs the package nfs-common, or nfs-utils"
    };
    Err(format!("not mounted at {}: {reason} ({hint})", show(point)))
}

/// Returns the command that mounts it.
fn line(arguments: &MountArgs, point: Option<&Path>, address: SocketAddr) -> Vec<OsString> {
    let port = address.port();
    let (host, protocol) = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => (Ipv4Addr::LOCALHOST.into(), "tcp"),
        IpAddr::V6(ip) if ip.is_unspecified() => (Ipv6Addr::LOCALHOST.into(), "tcp6"),
        IpAddr::V4(ip) => (ip.into(), "tcp"),
        IpAddr::V6(ip) => (IpAddr::from(ip), "tcp6"),
    };
    let zone = match address {
        SocketAddr::V6(address) if address.scope_id() != 0 => format!("%{}", address.scope_id()),
        _ => String::new(),
    };
    let host = format!("{host}{zone}");
    // The client must not give up before an answer that takes as long as it may, and a server that is gone must not hang it.
    let tenths = (arguments.wait + MARGIN).as_millis().div_ceil(100);
    // Directories are asked for often, which costs nothing: they are answered by the cache. The address is for mount programs that do
    // not look hosts up.
    let options = format!(
        "port={port},mountport={port},nfsvers=3,proto={protocol},mountproto={protocol},nolock,ro,nosuid,nodev,noatime,\
         soft,timeo={tenths},retrans=1,acdirmin=1,acdirmax=1,addr={host}"
    );
    let host = if address.is_ipv4() { host } else { format!("[{host}]") };
    let mut line: Vec<OsString> =
        ["mount", "-t", "nfs", "-o", &options, &format!("{host}:/")].map(Into::into).into();
    line.push(point.map_or_else(|| "DIR".into(), Into::into));
    line
}

/// Returns the command as its user types it.
fn shown(line: &[OsString]) -> String {
    let words = line.iter().map(|word| show(Path::new(word))).collect::<Vec<_>>().join(" ");
    if rustix::process::geteuid().is_root() { words } else { format!("sudo {words}") }
}

async fn run_command(line: &[OsString]) -> io::Result<Output> {
    let line = line.to_vec();
    let run = move || {
        let (program, arguments) = line.split_first().expect("never empty");
        Command::new(program).args(arguments).stdin(Stdio::null()).output()
    };
    spawn_blocking(run).await.map_err(io::Error::other)?
}

/// Whether the kernel has an NFS client, now that mount(8) had its chance to load it.
fn has_client() -> bool {
    fs::read_to_string("/proc/filesystems")
        .is_ok_and(|text| text.lines().any(|line| line.trim_end().ends_with("\tnfs")))
}

/// Returns when what this port serves is not mounted any more.
async fn unmounted(point: &Path, port: u16) {
    while served_port(point) == Some(port) {
        tokio::time::sleep(LOOK).await;
    }
}

/// Takes it out of the file tree; programs that still use it get errors.
async fn take_down(point: &Path, reporter: &Reporter) {
    let path = point.to_owned();
    let done = spawn_blocking(move || unmount(&path)).await;
    if let Ok(Ok(in_use)) = done {
        let _ = reporter.event(&unmounted_event(point, in_use));
    }
    reporter.note(match done {
        Ok(Ok(_)) => format!("{} is unmounted", show(point)),
        Ok(Err(error)) => explain(&error),
        Err(error) => format!("cannot unmount {}: {error}", show(point)),
    });
}
