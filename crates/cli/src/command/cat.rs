//! `nfsw cat`: files to standard output.

use nfs_wireless_client::FileType;

use nfs_files::Context;

use crate::{
    args::{CatArgs, OutputArgs},
    copy::stream,
    exit::{Exit, Failure},
    find::{find_all, follow},
    process::Process,
    url::Remote,
};

pub(super) fn execute(arguments: CatArgs) -> Exit {
    // Standard output carries the files, so there is no JSON.
    let output = OutputArgs { stats: arguments.stats, ..OutputArgs::default() };
    Process::new(&arguments.connection, &output).run(async |context, reporter| {
        for target in &arguments.targets {
            if let Err(error) = one(context, target).await {
                reporter.failed(error)?;
            }
        }
        Ok(())
    })
}

async fn one(context: Context<'_>, target: &Remote) -> anyhow::Result<()> {
    for found in find_all(context, target).await? {
        let found = follow(context, found).await?;
        let remote = &found.remote;
        match found.metadata.file_type {
            FileType::Regular => stream::to_stdout(found, context).await?,
            FileType::Directory => {
                return Err(Failure::with(Exit::SomeFailed, format!("{remote}: is a directory")));
            }
            _ => return Err(Failure::with(Exit::SomeFailed, format!("{remote}: is not a regular file"))),
        }
    }
    Ok(())
}
