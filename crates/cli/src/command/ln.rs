//! `nfsw ln`: hard and symbolic links.

use std::os::unix::ffi::OsStrExt;

use nfs_files::Context;

use crate::{
    args::LnArgs,
    error::{ResultExt, exists},
    exit::Failure,
    find::{Found, find, find_if_exists, follow},
    report::{Reporter, event},
    url::{Remote, Target},
};

pub(super) async fn run(arguments: &LnArgs, context: Context<'_>, reporter: &Reporter) -> anyhow::Result<()> {
    let target = arguments.target.as_bytes();
    let (directory, link) = if arguments.symbolic {
        let base = target.rsplit(|&byte| byte == b'/').find(|name| !name.is_empty());
        let (directory, name) = place(context, &arguments.link, base).await?;
        let link = directory.remote.join(&name);
        directory.client.symlink(directory.handle, &name, target).await.at(&link)?;
        (directory, link)
    } else {
        let source = Target::parse_remote(&arguments.target).map_err(Failure::usage)?;
        let source = find(context, &source).await?;
        let (directory, name) = place(context, &arguments.link, source.remote.name()).await?;
        let link = directory.remote.join(&name);
        if !source.is_beside(&directory) {
            return Err(Failure::usage(format!("{} and {link} are not in the same export", source.remote)));
        }
        let file = (source.handle, source.metadata.links);
        directory.client.hard_link_of(file, directory.handle, &name).await.at(&link)?;
        (directory, link)
    };
    drop(directory);
    reporter.activity().step();
    let event = event("link", &[("path", &link.path)]);
    reporter.done(format_args!("created {link}"), &event)
}

/// Finds the directory for the link and its name there.
async fn place(context: Context<'_>, link: &Remote, base: Option<&[u8]>) -> anyhow::Result<(Found, Vec<u8>)> {
    if let Some(found) = find_if_exists(context, link).await? {
        let found = follow(context, found.clone()).await.unwrap_or(found);
        if !found.is_directory() {
            return Err(exists(link).into());
        }
        let base =
            base.ok_or_else(|| Failure::usage(format!("{link}: is a directory; name the link in it")))?;
        return Ok((found, base.to_vec()));
    }
    let name = link.name().ok_or_else(|| Failure::usage(format!("{link}: is not a name for a link")))?;
    Ok((follow(context, find(context, &link.parent()).await?).await?, name.to_vec()))
}
