//! Serves a directory of an NFS server to browsers: `gallery HOST PATH [LISTEN [NFS_PORT MOUNT_PORT]]`.

use std::{env, error::Error, time::Duration};

use nfs_wireless_client::{Client, ClientConfig};
use tokio::net::TcpListener;

/// How long a browser waits for a server that does not respond.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [host, path, rest @ ..] = &arguments[..] else {
        return Err("usage: gallery HOST PATH [LISTEN [NFS_PORT MOUNT_PORT]]".into());
    };
    let mut config = ClientConfig::default();
    config.call_timeout = Some(PATIENCE);
    if let [_, nfs, mount] = rest {
        config.nfs_port = Some(nfs.parse()?);
        config.mount_port = Some(mount.parse()?);
    }
    let client = Client::connect(host, path.as_bytes(), config).await?;
    let root = client.resolve(path.as_bytes()).await?.handle;
    let listener = TcpListener::bind(rest.first().map_or("127.0.0.1:8080", String::as_str)).await?;
    println!("http://{}/", listener.local_addr()?);
    axum::serve(listener, gallery::router(client, root)).await?;
    Ok(())
}
