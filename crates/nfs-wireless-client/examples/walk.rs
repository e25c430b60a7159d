//! Lists a remote tree: `walk HOST DIRECTORY [NFS_PORT MOUNT_PORT]`.

use std::{env, error::Error};

use nfs_wireless_client::{Client, ClientConfig, FileType};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [host, directory, ports @ ..] = &arguments[..] else {
        return Err("usage: walk HOST DIRECTORY [NFS_PORT MOUNT_PORT]".into());
    };
    let mut config = ClientConfig::default();
    if let [nfs, mount] = ports {
        config.nfs_port = Some(nfs.parse()?);
        config.mount_port = Some(mount.parse()?);
    }

    let client = Client::connect(host, directory.as_bytes(), config).await?;
    let start = client.resolve(directory.as_bytes()).await?.handle;
    let mut directories = vec![(start, directory.clone())];
    while let Some((handle, path)) = directories.pop() {
        let mut entries = client.read_dir(handle);
        while let Some(entry) = entries.next_complete().await? {
            let (Some(metadata), Some(handle)) = (entry.metadata, entry.handle) else { continue };
            // Names are any bytes: escape what a terminal might take as a command.
            let name = entry.name.escape_ascii();
            println!("{:>12} {path}/{name}", metadata.size);
            if metadata.file_type == FileType::Directory {
                directories.push((handle, format!("{path}/{name}")));
            }
        }
    }
    Ok(())
}
