//! `nfsw cat`: files to standard output.

use nfs_wireless_client::FileType;

use crate::{
    args::{CatArgs, OutputArgs},
    connections::Connections,
    copy::stream,
    exit::{Exit, Failure},
    process::Process,
    remote::{find_all, follow},
    report::Reporter,
    url::Remote,
};

pub(super) fn execute(arguments: CatArgs) -> Exit {
    // Standard output carries the files, so there is no JSON.
    let output = OutputArgs { stats: arguments.stats, ..OutputArgs::default() };
    Process::new(&arguments.connection, &output).run(async |connections, reporter| {
        for target in &arguments.targets {
            if let Err(error) = one(connections, reporter, target).await {
                reporter.failed(error)?;
            }
        }
        Ok(())
    })
}

async fn one(connections: &Connections, reporter: &Reporter, target: &Remote) -> anyhow::Result<()> {
    for found in find_all(connections, reporter, target).await? {
        let found = follow(connections, reporter, found).await?;
        let remote = &found.remote;
        match found.metadata.file_type {
            FileType::Regular => stream::to_stdout(found, connections, reporter).await?,
            FileType::Directory => {
                return Err(Failure::with(Exit::SomeFailed, format!("{remote}: is a directory")));
            }
            _ => return Err(Failure::with(Exit::SomeFailed, format!("{remote}: is not a regular file"))),
        }
    }
    Ok(())
}
