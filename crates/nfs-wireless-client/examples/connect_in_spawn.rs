//! Reads many files at once, each in a task of its own: `connect_in_spawn HOST PATH...`.

use std::{env, error::Error};

use nfs_wireless_client::{Client, ClientConfig, File};
use tokio::{io::AsyncReadExt, task::JoinSet};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [host, paths @ ..] = &arguments[..] else {
        return Err("usage: connect_in_spawn HOST PATH...".into());
    };
    let mut reading = JoinSet::new();
    for path in paths {
        let (host, path) = (host.clone(), path.clone());
        reading.spawn(async move {
            // One client would do for all of one export: it can be cloned and shared.
            let client = Client::connect(&host, path.as_bytes(), ClientConfig::default()).await?;
            let entry = client.resolve(path.as_bytes()).await?;
            let mut contents = Vec::new();
            File::new(client, entry.handle).read_to_end(&mut contents).await?;
            Ok::<_, Box<dyn Error + Send + Sync>>((path, contents.len()))
        });
    }
    while let Some(read) = reading.join_next().await {
        match read? {
            Ok((path, bytes)) => println!("{path}: {bytes} bytes"),
            Err(error) => eprintln!("{error}"),
        }
    }
    Ok(())
}
