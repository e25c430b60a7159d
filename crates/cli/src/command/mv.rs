//! `nfsw mv`: new names within an export.

use crate::{
    args::MvArgs,
    connections::Connections,
    error::ResultExt,
    exit::{Exit, Failure},
    outcome::Skip,
    remote::{Found, find, find_all, find_if_exists, follow},
    report::{Reporter, event},
    target::{Remote, is_within},
};

pub(super) async fn run(
    arguments: &MvArgs,
    connections: &Connections,
    reporter: &Reporter,
) -> anyhow::Result<()> {
    let mut sources = Vec::new();
    for source in &arguments.sources {
        if source.is_contents || source.name() == Some(b"..") {
            let text = format!("{source}: cannot be moved by the name . or ..; name the directory itself");
            reporter.failed(Failure::with(Exit::SomeFailed, text))?;
            continue;
        }
        match find_all(connections, reporter, source).await {
            Ok(found) => sources.extend(found),
            Err(error) => reporter.failed(error)?,
        }
    }
    let place = Place::find(connections, reporter, &arguments.destination).await?;
    if sources.len() > 1 && place.name.is_some() {
        let text = format!("{}: not a directory, and there are several files to move", arguments.destination);
        return Err(Failure::usage(text));
    }
    for source in sources {
        if let Err(error) = rename(arguments, connections, reporter, &source, &place).await {
            reporter.failed(error)?;
        }
    }
    Ok(())
}

/// Where the files go.
struct Place {
    directory: Found,
    /// The new name; `None` to keep the old one.
    name: Option<Vec<u8>>,
}

impl Place {
    async fn find(
        connections: &Connections,
        reporter: &Reporter,
        destination: &Remote,
    ) -> anyhow::Result<Self> {
        if let Some(found) = find_if_exists(connections, reporter, destination).await? {
            // A link that leads nowhere is a name like any other.
            let followed = follow(connections, reporter, found.clone()).await.unwrap_or(found);
            if followed.is_directory() {
                return Ok(Self { directory: followed, name: None });
            }
        }
        let name = destination.name().map(<[u8]>::to_vec);
        let directory =
            follow(connections, reporter, find(connections, reporter, &destination.parent()).await?).await?;
        Ok(Self { directory, name })
    }
}

async fn rename(
    arguments: &MvArgs,
    connections: &Connections,
    reporter: &Reporter,
    source: &Found,
    place: &Place,
) -> anyhow::Result<()> {
    let (parent, old) = source.directory()?;
    let new = place.name.as_deref().unwrap_or(old);
    let client = &source.client;
    let target = place.directory.remote.join(new);
    if !source.is_beside(&place.directory) {
        let text = format!(
            "{} and {target} are not in the same export: use nfsw cp -rp and nfsw rm -r",
            source.remote
        );
        return Err(Failure::usage(text));
    }
    if source.is_directory()
        && source.remote.path != target.path
        && is_within(&target.path, &source.remote.path)
    {
        return Err(Failure::with(
            Exit::SomeFailed,
            format!("{}: cannot move a directory into itself", source.remote),
        ));
    }
    if arguments.no_clobber && exists(connections, reporter, &target).await? {
        let event = event("skipped", &[("source", &source.remote.path), ("target", &target.path)]);
        let line = format!("{target}: skipped: it {}", Skip::Exists.words());
        return reporter.skipped(line, &event, Skip::Exists);
    }
    let moved = client.rename(source.handle, (parent, old), (place.directory.handle, new)).await;
    moved.at(format_args!("{} to {target}", source.remote))?;
    reporter.activity().step();
    let event = event("moved", &[("source", &source.remote.path), ("target", &target.path)]);
    reporter.done(format_args!("{} -> {target}", source.remote), &event)
}

async fn exists(connections: &Connections, reporter: &Reporter, target: &Remote) -> anyhow::Result<bool> {
    Ok(find_if_exists(connections, reporter, target).await?.is_some())
}
