//! `nfsw cat`: files to standard output.

use nfs_wireless_client::FileType;

use crate::{
    args::{CatArgs, OutputArgs},
    context::Context,
    copy::stream,
    exit::{Exit, Failure},
    remote::{find_all, follow},
    target::Remote,
};

pub(super) fn execute(arguments: CatArgs) -> Exit {
    // Standard output carries the files, so there is no JSON.
    let output = OutputArgs { json: false, stats: arguments.stats };
    Context::new(&arguments.connection, &output).run(async |context| {
        for target in &arguments.targets {
            if let Err(error) = one(context, target).await {
                context.reporter.failed(error)?;
            }
        }
        Ok(())
    })
}

async fn one(context: &Context, target: &Remote) -> anyhow::Result<()> {
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
