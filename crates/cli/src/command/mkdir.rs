//! `nfsw mkdir`: directories on servers.

use nfs_wireless_client::{Client, FileHandle, FileType, SetAttributes};

use nfs_files::Context;

use crate::{
    args::MkdirArgs,
    error::{ResultExt, about, exists, is_missing, is_taken},
    exit::{Exit, Failure},
    find::{find, follow},
    local,
    report::{Reporter, event},
    url::{Remote, is_within, join},
};

pub(super) async fn run(
    arguments: &MkdirArgs,
    context: Context<'_>,
    reporter: &Reporter,
) -> anyhow::Result<()> {
    for target in &arguments.targets {
        let created = if arguments.parents {
            with_parents(arguments, context, reporter, target).await
        } else {
            alone(arguments, context, reporter, target).await
        };
        match created {
            Ok(()) => reporter
                .done(format_args!("created {target}"), &event("directory", &[("path", &target.path)]))?,
            Err(error) => reporter.failed(error)?,
        }
    }
    Ok(())
}

async fn alone(
    arguments: &MkdirArgs,
    context: Context<'_>,
    reporter: &Reporter,
    target: &Remote,
) -> anyhow::Result<()> {
    let Some(name) = target.name() else {
        return Err(exists(target).into());
    };
    let client = context.servers.client(target).await?;
    let parent = client.resolve(&target.parent().path).await;
    let parent = match parent {
        Err(error) if is_missing(&error) => {
            let text = format!("{target}: {} does not exist (-p creates it too)", target.parent());
            return Err(Failure::with(Exit::SomeFailed, text));
        }
        other => other.at(target)?,
    };
    create(arguments, reporter, &client, parent.handle, name, true).await.at(target)?;
    Ok(())
}

/// Creates what is missing, from the export downwards.
async fn with_parents(
    arguments: &MkdirArgs,
    context: Context<'_>,
    reporter: &Reporter,
    target: &Remote,
) -> anyhow::Result<()> {
    let client = context.servers.client(target).await?;
    let export = client.export().to_vec();
    let mut path = if is_within(&target.path, &export) { export } else { b"/".to_vec() };
    let below = target.path[path.len().min(target.path.len())..].to_vec();
    let names: Vec<&[u8]> = below.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
    let mut directory = client.resolve(&path).await.at(target)?;
    for (index, name) in names.iter().enumerate() {
        path = join(&path, name);
        let shown = target.with_path(&path);
        let found = match client.lookup(directory.handle, name).await {
            Err(error) if is_missing(&error) => {
                let last = index + 1 == names.len();
                match create(arguments, reporter, &client, directory.handle, name, last).await {
                    // Somebody else was faster.
                    Err(error) if is_taken(&error) => {
                        client.lookup(directory.handle, name).await.at(&shown)?.handle
                    }
                    other => other.at(&shown)?,
                }
            }
            Ok(entry) if entry.metadata.file_type == FileType::Directory => entry.handle,
            Ok(_) => {
                let found = follow(context, find(context, &shown).await?).await?;
                if !found.is_directory() {
                    let text = format!("{shown}: is there already, and is no directory");
                    return Err(Failure::with(Exit::SomeFailed, text));
                }
                found.handle
            }
            Err(error) => return Err(about(error, &shown).into()),
        };
        directory.handle = found;
    }
    Ok(())
}

/// Creates one directory. Parents of the one asked for can at least be entered and filled by their owner.
async fn create(
    arguments: &MkdirArgs,
    reporter: &Reporter,
    client: &Client,
    parent: FileHandle,
    name: &[u8],
    is_last: bool,
) -> Result<FileHandle, nfs_wireless_client::Error> {
    let default = 0o777 & !local::umask();
    let mode = if is_last { arguments.mode.unwrap_or(default) } else { default | 0o300 };
    let created =
        client.mkdir(parent, name, SetAttributes { mode: Some(mode), ..SetAttributes::default() }).await?;
    reporter.activity().step();
    Ok(created.handle)
}
