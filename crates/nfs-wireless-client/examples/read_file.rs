//! Prints a remote file: `read_file HOST PATH [NFS_PORT MOUNT_PORT]`.

use std::{env, error::Error};

use nfs_wireless_client::{Client, ClientConfig, File};
use tokio::io::{self, AsyncWriteExt};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [host, path, ports @ ..] = &arguments[..] else {
        return Err("usage: read_file HOST PATH [NFS_PORT MOUNT_PORT]".into());
    };
    let mut config = ClientConfig::default();
    if let [nfs, mount] = ports {
        config.nfs_port = Some(nfs.parse()?);
        config.mount_port = Some(mount.parse()?);
    }

    let client = Client::connect(host, path.as_bytes(), config).await?;
    let entry = client.resolve(path.as_bytes()).await?;
    let mut file = File::new(client, entry.handle);
    let mut stdout = io::stdout();
    io::copy(&mut file, &mut stdout).await?;
    stdout.flush().await?;
    Ok(())
}
