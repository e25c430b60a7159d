//! Uploads a file and shows its progress: `upload FILE HOST DIRECTORY [NFS_PORT MOUNT_PORT]`.

use std::{
    env,
    error::Error,
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use nfs_wireless_client::{Client, ClientConfig, Placement, UploadSpec};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [source, host, directory, ports @ ..] = &arguments[..] else {
        return Err("usage: upload FILE HOST DIRECTORY [NFS_PORT MOUNT_PORT]".into());
    };
    let mut config = ClientConfig::default();
    if let [nfs, mount] = ports {
        config.nfs_port = Some(nfs.parse()?);
        config.mount_port = Some(mount.parse()?);
    }
    let name = Path::new(source).file_name().ok_or("the source has no name")?.as_encoded_bytes().to_vec();
    let file = fs::File::open(source)?;
    let size = file.metadata()?.len();

    let client = Client::connect(host, directory.as_bytes(), config).await?;
    let directory = client.resolve(directory.as_bytes()).await?.handle;
    let temporary = [b".", &name[..], b".part"].concat();
    let spec = UploadSpec::new(directory, name, Placement::Temporary(temporary), size);
    let sent = Arc::new(AtomicU64::new(0));
    let observer = {
        let sent = Arc::clone(&sent);
        Arc::new(move |bytes: u64| {
            let before = sent.fetch_add(bytes, Ordering::Relaxed);
            let percent = |bytes: u64| (bytes * 100).checked_div(size).unwrap_or(100);
            if percent(before) != percent(before + bytes) {
                eprint!("\r{} %", percent(before + bytes));
            }
        })
    };
    client.upload(spec, file, Some(observer)).await?;
    eprintln!("\rdone: {size} bytes are on the server's stable storage");
    Ok(())
}
