//! Prints a remote file: `read_file HOST PATH [NFS_PORT MOUNT_PORT]`.

use std::{env, error::Error};

use nfs_wireless_client::{ClientConfig, Fs};
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

    let mut file = Fs::connect(host, path, config).await?.open(path).await?;
    let mut stdout = io::stdout();
    io::copy(&mut file, &mut stdout).await?;
    stdout.flush().await?;
    Ok(())
}
