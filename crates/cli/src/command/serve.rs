//! `nfsw serve`: a local directory over NFSv3.

use std::{
    hash::{BuildHasher, RandomState},
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use nfs_wireless_server::{Access, Directory, DirectoryConfig, Server, Service, ServiceConfig};
use serde_json::json;

use crate::{
    args::{OutputArgs, ServeArgs},
    error::{local, show},
    exit::{Exit, Failure},
    report::{Reporter, put_name},
    signals::{end_of, end_within},
    summary::Summary,
    verdict,
};

/// How long calls that are being made may take at the end: they may wait for a file system that does not respond.
pub(super) const LAST_CALLS: Duration = Duration::from_millis(300);

/// How long the end may take in all.
pub(super) const END: Duration = Duration::from_secs(1);

pub(super) fn execute(arguments: &ServeArgs) -> Exit {
    let output = OutputArgs { json: arguments.json, ..OutputArgs::default() };
    let reporter = Reporter::new(&output, Instant::now());
    let exit = match run(arguments, &reporter) {
        Ok(exit) => reporter.end(exit, &Summary::default()),
        Err(error) => reporter.finish(Err(error), &Summary::default()),
    };
    verdict::say(exit);
    exit
}

fn run(arguments: &ServeArgs, reporter: &Reporter) -> anyhow::Result<Exit> {
    crate::descriptors::raise_limit();
    /// Threads for calls that may wait for a disk: the server makes eight at once, and each thread may still be ending the one before.
    const CALL_THREADS: usize = 16;
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(CALL_THREADS).build()?;
    let ended = runtime.block_on(async {
        let mut config = DirectoryConfig::default();
        config.access = if arguments.read_only { Access::ReadOnly } else { Access::ReadWrite };
        let server = serve(&arguments.directory, config, arguments.listen, "--listen").await?;
        let address = server.local_addr();
        if !address.ip().is_loopback() {
            reporter.warning(format_args!(
                "warning: whoever reaches {address} may read{} everything in {}",
                if arguments.read_only { "" } else { " and change" },
                show(&arguments.directory)
            ));
        }
        announce(arguments, address, reporter);
        let exit = end_of(arguments.lifetime).await;
        end_within(END, exit);
        server.shutdown().await;
        Ok(exit)
    });
    runtime.shutdown_timeout(LAST_CALLS);
    ended
}

/// Starts a server for a directory; it runs until it is dropped. The `option` takes another address.
pub(super) async fn serve(
    path: &Path,
    config: DirectoryConfig,
    listen: SocketAddr,
    option: &str,
) -> anyhow::Result<Server> {
    let directory = Directory::open(path, config).map_err(|error| local(path, &error))?;
    // Handles outlive a run; write verifiers, which say what may be lost, do not. Nobody can guess what shows that an
    // address receives its replies.
    let seed = RandomState::new().hash_one(SystemTime::now());
    let service = Service::new(ServiceConfig::default(), directory, seed, Instant::now())?;
    Server::bind(listen, service).await.map_err(|error| {
        let text =
            format!("cannot listen on {listen}: {} ({option} takes another)", crate::error::io_text(&error));
        Failure::with(Exit::LocalIo, text)
    })
}

/// Says where the server is. Nobody needs to read it for the server to serve.
fn announce(arguments: &ServeArgs, address: SocketAddr, reporter: &Reporter) {
    let (directory, url) = (show(&arguments.directory), url(address));
    let access = if arguments.read_only { ", read-only" } else { "" };
    let _ = if reporter.json() {
        let mut event = json!({
            "event": "serving", "address": address.to_string(), "url": url, "read_only": arguments.read_only,
        });
        put_name(&mut event, "path", arguments.directory.as_os_str().as_encoded_bytes());
        reporter.event(&event)
    } else {
        let text = format!(
            "serving {directory} at {address} over UDP and TCP{access}; Ctrl-C stops it\ntry: nfsw ls -l {url}/\n"
        );
        reporter.print(text.as_bytes())
    };
}

/// Returns the URL under which a server at an address is reached, without the final slash.
pub(super) fn url(address: SocketAddr) -> String {
    let host = match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => "127.0.0.1".to_owned(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => "[::1]".to_owned(),
        SocketAddr::V4(v4) => v4.ip().to_string(),
        SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("[{}%25{}]", v6.ip(), v6.scope_id()),
        SocketAddr::V6(v6) => format!("[{}]", v6.ip()),
    };
    format!("nfs://{host}:{}", address.port())
}
