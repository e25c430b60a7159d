//! From the arguments of `nfsw cp` to the first things to copy, by the rules of `cp -R`.

use std::{
    collections::HashSet,
    fmt::Display,
    fs::{self, File},
    io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    rc::Rc,
};

use nfs_wireless_client::{Client, FileHandle, is_reservation};
use tokio::task::JoinHandle;

use super::{
    Links, Options, Work,
    destination::{
        Location,
        directory::TargetDirectory,
        early_create::{Ahead, Making},
        marker::{self, Mark},
    },
    resume::state,
    source::{Kind, Node, Origin},
    tags::Tags,
};
use crate::{
    context::Context,
    error::{Error, ErrorKind, Result, ResultExt, io_text, local, show},
    find::{Found, find, find_all, find_if_exists, follow, real_if_exists},
    local::{Directory, Key, descriptor, is_closed_input},
    name::is_plain,
    url::{Remote, Target, is_within, local_name},
};

/// Names of a destination directory that are looked up one by one, at most: one listing costs less than more LOOKUPs.
const MOST_LOOKED_UP: usize = 32;

/// What is to be done.
pub(super) enum Plan {
    /// Copy into files and directories.
    Files {
        /// What stands for sources and target in the state of later runs.
        key: Vec<u8>,
        works: Vec<Work>,
        /// What was made ahead for nothing is being removed.
        clean_up: Option<JoinHandle<()>>,
    },
    /// Write one file to something that is not a file.
    Stream(Box<Node>, Output),
}

/// Something that takes bytes in order.
#[derive(Debug)]
pub(super) enum Output {
    /// Standard output.
    Standard,
    /// A fifo or device, and the numbers that it was seen with.
    Special(PathBuf, (u64, u64)),
    /// A descriptor that this process was started with, and the path that names it.
    Descriptor(PathBuf, File),
}

/// Where the sources go.
enum Destination {
    Output(Output),
    /// Into a directory, under their own names, while what was made ahead for nothing is removed.
    Inside(Location, Option<JoinHandle<()>>),
    /// To this name in a directory.
    Named(Location, Vec<u8>),
}

/// Whether the source becomes an existing directory, and does not go into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whole<'a> {
    Always,
    /// If it is what an interrupted run has made of the source with this mark, which has a seal on servers, or of any source if there is
    /// none.
    IfMarked(Option<(&'a [u8], Option<Key>)>),
    Never,
}

impl Whole<'_> {
    /// Whether the source becomes a directory; `mark` is what is in the mark of an unfinished copy, if it has one.
    ///
    /// # Errors
    /// It is the unfinished copy of another source, or others could have put the mark there.
    fn holds(self, directory: impl Display, mark: Option<Mark>) -> Result<bool> {
        match (self, mark) {
            (Self::Always, _) => Ok(true),
            (Self::IfMarked(_), None) | (Self::Never, _) => Ok(false),
            (Self::IfMarked(Some((source, _))), Some(mark)) => {
                marker::check_own(&directory, &mark)?;
                let hint = "; with -T, what is named here completes it";
                marker::check(directory, &mark.of, source, hint).map(|()| true)
            }
            (Self::IfMarked(None), Some(_)) => Ok(true),
        }
    }
}

/// A source, and the name under which it arrives in a directory; `None` if its contents arrive instead.
struct Source {
    node: Node,
    name: Option<Vec<u8>>,
}

/// Looks at sources and destination.
///
/// # Errors
/// What makes the whole run impossible; sources that are missing are reported, and the others are planned.
pub(super) async fn plan(copy: &Options, tags: &Tags, context: Context<'_>) -> Result<Plan> {
    check(copy)?;
    let mut sources = Vec::new();
    let mut keys = Vec::new();
    for target in &copy.sources {
        match find_sources(copy, context, target).await {
            Ok(found) => {
                keys.push(resume_key(target, &found));
                sources.extend(found);
            }
            Err(error) => context.events.fail(error)?,
        }
    }
    if sources.is_empty() {
        return Ok(Plan::Files { key: Vec::new(), works: Vec::new(), clean_up: None });
    }
    if copy.sync.is_some() {
        sources = sync_source(sources)?;
    }
    // One directory becomes what an interrupted run has made and marked.
    let is_tree = copy.sources.len() == 1
        && matches!(&sources[..], [Source { node, .. }] if node.kind == Kind::Directory);
    // The contents of a directory may become those of any other.
    let source = sources.first().filter(|_| copy.sync.is_none()).map(|source| marker::of(&source.node));
    let whole = match (copy.is_whole_target, is_tree) {
        (true, _) => Whole::Always,
        // Without a key, which is said later, no mark on a server is known to be this user's.
        (false, true) => Whole::IfMarked(source.as_deref().map(|source| (source, copy.state.key().ok()))),
        (false, false) => Whole::Never,
    };
    let must_be_directory = copy.destination.names_directory() && !is_tree;
    let ahead = match &sources[..] {
        _ if must_be_directory => None,
        // What an interrupted run has copied may be left out.
        [source] if copy.sources.len() == 1 && copy.shard.is_none() && !copy.keeps_list() => {
            Ahead::of(copy, tags, &source.node)
        }
        _ => None,
    };
    // What is copied as a link, or cannot become a file, does not go through a link.
    let through_links = sources.iter().all(|source| source.node.kind == Kind::File);
    let destination = match &copy.destination {
        Target::Standard => Destination::Output(Output::Standard),
        Target::Local(path) => find_local_destination(path, whole, through_links)?,
        Target::Remote(remote) => {
            find_remote_destination(context, remote, whole, through_links, ahead).await?
        }
    };
    let are_several = |sources: &[Source]| sources.len().max(copy.sources.len()) > 1;
    // Whether it exists must be the same for each of the shards.
    let must_exist =
        must_be_directory || copy.shard.is_some() && copy.sync.is_none() && !copy.is_whole_target;
    match destination {
        Destination::Inside(location, clean_up) => {
            let are_many =
                sources.len() > MOST_LOOKED_UP || sources.iter().any(|source| source.name.is_none());
            let mut location =
                if copy.sync.is_some() || are_many { location.listed(context).await? } else { location };
            if !copy.dry_run {
                location.remove_left(&copy.state, tags, true).await;
            }
            let names = sources.iter().map(|source| source.name.as_deref().unwrap_or_default());
            let names = state::key(names.filter(|_| !copy.sources.iter().any(Target::is_pattern)));
            let key = state::key([&location.resume_key(None)[..], &keys.concat(), &names]);
            Ok(Plan::Files { key, works: inside(context, sources, location)?, clean_up })
        }
        // Also when all but one are missing: what was asked for cannot be meant.
        Destination::Named(location, name)
            if (are_several(&sources) || must_exist) && location.present(context, &name).await?.is_none() =>
        {
            let command = if matches!(copy.destination, Target::Local(_)) { "mkdir" } else { "nfsw mkdir" };
            let there = &copy.destination;
            let word = there.shell_word();
            let text = format!("{there} does not exist; create it first: {command} {word}");
            Err(Error::usage(text))
        }
        Destination::Output(_) | Destination::Named(..) if are_several(&sources) => {
            let text =
                format!("{}: is not a directory, and there are several files to copy", copy.destination);
            Err(Error::usage(text))
        }
        Destination::Named(..) if must_be_directory => {
            Err(Error::usage(format!("{}: is not a directory", copy.destination)))
        }
        Destination::Output(_) if copy.shard.is_some() => {
            let text = format!("--shard divides the files of a tree; {} is no directory", copy.destination);
            Err(Error::usage(text))
        }
        Destination::Output(output) => {
            let Source { node, .. } = sources.remove(0);
            match node.kind {
                Kind::File => Ok(Plan::Stream(Box::new(node), output)),
                Kind::Directory => Err(Error::other(format!("{node}: is a directory"))),
                _ => Err(Error::other(format!("{node}: is not a regular file"))),
            }
        }
        Destination::Named(location, name) => {
            let node = sources.remove(0).node;
            let key = state::key([&location.resume_key(Some(&name))[..], &keys.concat()]);
            let target_directory = match copy.shard {
                None => TargetDirectory::above_target(location),
                // No shard knows when the others are complete.
                Some(_) => TargetDirectory::top(location),
            };
            let (target_directory, name) = (Rc::new(target_directory), Some(name));
            let works = vec![Work { node, target_directory, name, is_named: true, rest: None }];
            Ok(Plan::Files { key, works, clean_up: None })
        }
    }
}

/// Returns the one directory whose contents a sync copies.
fn sync_source(sources: Vec<Source>) -> Result<Vec<Source>> {
    let [Source { node, .. }] = <[Source; 1]>::try_from(sources)
        .map_err(|all| Error::usage(format!("SRC matches {} files; sync takes one directory", all.len())))?;
    if node.kind != Kind::Directory {
        let text = format!("{node}: is not a directory (nfsw cp copies single files)");
        return Err(Error::other(text));
    }
    Ok(vec![Source { node, name: None }])
}

/// Refuses what cannot mean anything.
fn check(copy: &Options) -> Result<()> {
    let is_remote = |target: &Target| matches!(target, Target::Remote(_));
    let to_remote = is_remote(&copy.destination);
    if let Some(source) = copy.sources.iter().find(|source| !is_remote(source) && !to_remote) {
        let both = format!("{source} and {} are both on this machine", copy.destination);
        let text = match copy.sync {
            Some(_) => format!("{both}; nfsw syncs with NFS servers only: use rsync -a"),
            None => format!("{both}: use cp"),
        };
        return Err(Error::usage(text));
    }
    if copy.shard.is_some() {
        if copy.sync.is_some_and(|sync| sync.delete) {
            let text = "--shard deletes nothing: a last run with --delete and without --shard does that";
            return Err(Error::usage(text));
        }
        if copy.sources.iter().chain([&copy.destination]).any(|target| *target == Target::Standard) {
            return Err(Error::usage("--shard divides the files of a tree; - is none"));
        }
    }
    let from_standard = copy.sources.contains(&Target::Standard);
    if from_standard && copy.sources.len() > 1 {
        return Err(Error::usage("standard input (-) cannot be copied together with other files"));
    }
    if copy.is_whole_target && copy.sources.len() > 1 {
        return Err(Error::usage("-T takes one SRC, which becomes DST"));
    }
    Ok(())
}

/// Returns what stands for a source in the state of later runs. Of a pattern that is the pattern:
/// it may match more by then.
fn resume_key(target: &Target, found: &[Source]) -> Vec<u8> {
    if let (Target::Remote(Remote { pattern: Some(pattern), .. }), Some(Source { node, .. })) =
        (target, found.first())
        && let Origin::Remote(file) = &node.origin
    {
        return state::key([file.client.root().as_bytes(), pattern]);
    }
    let keys: Vec<_> = found.iter().map(|source| source.node.resume_key()).collect();
    state::key(keys.iter().map(Vec::as_slice))
}

async fn find_sources(copy: &Options, context: Context<'_>, target: &Target) -> Result<Vec<Source>> {
    match target {
        Target::Standard if is_closed_input() => {
            Err(Error::usage("standard input is closed or cannot be read, so there is nothing to copy"))
        }
        Target::Standard => Ok(vec![Source { node: Node::standard(), name: None }]),
        Target::Local(path) => match Node::local(path.clone(), copy.links != Links::Never) {
            Ok(node) => {
                let name = local_name(path).map(|name| name.as_bytes().to_vec());
                Ok(vec![Source { node, name }])
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Error::new(ErrorKind::SourceMissing, format!("{}: {}", show(path), io_text(&error))))
            }
            Err(error) => Err(local(path, &error)),
        },
        Target::Remote(remote) => {
            let mut sources = Vec::new();
            for found in find_all(context, remote).await? {
                let name = found.remote.name().filter(|name| is_plain(name) && !remote.is_contents);
                let name = name.map(<[u8]>::to_vec);
                // As the system does it for a local path.
                let is_followed = copy.links != Links::Never || remote.names_directory;
                let shown = found.remote.clone();
                let found = match is_followed {
                    false => Ok(found),
                    true => follow(context, found).await,
                };
                // As a shell does it, of all that a pattern matches a slash behind it takes the directories.
                let leaves_out = remote.names_directory && remote.pattern.is_some();
                let found = match found {
                    Err(error) if leaves_out && error.kind() == ErrorKind::SourceMissing => continue,
                    found => found?,
                };
                if remote.names_directory && !found.is_directory() {
                    if leaves_out {
                        continue;
                    }
                    return Err(Error::other(format!("{shown}: is not a directory")));
                }
                sources.push(Source { node: Node::remote(found), name });
            }
            if sources.is_empty() {
                let text = format!("{remote}: matches no directory");
                return Err(Error::new(ErrorKind::SourceMissing, text));
            }
            Ok(sources)
        }
    }
}

fn inside(context: Context<'_>, sources: Vec<Source>, location: Location) -> Result<Vec<Work>> {
    let is_merged = sources.len() > 1 && sources.iter().any(|source| source.name.is_none());
    let target_directory =
        Rc::new(if is_merged { TargetDirectory::merged(location) } else { TargetDirectory::top(location) });
    let mut names = HashSet::new();
    let mut works = Vec::new();
    for Source { node, name } in sources {
        if name.is_none() && node.kind != Kind::Directory {
            return Err(Error::usage(format!("{node}: name the file to write, not only its directory")));
        }
        if let Some(name) = &name
            && !names.insert(name.clone())
        {
            let text = format!("{node}: not copied, an earlier source has the same name");
            context.events.fail(Error::other(text))?;
            continue;
        }
        works.push(Work {
            node,
            target_directory: Rc::clone(&target_directory),
            name,
            is_named: true,
            rest: None,
        });
    }
    Ok(works)
}

/// Finds where the sources go on this machine; `whole` says whether the source becomes a directory
/// that is there, `through_links` whether what a link leads to is replaced, and not the link.
fn find_local_destination(path: &Path, whole: Whole<'_>, through_links: bool) -> Result<Destination> {
    let is_link = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
    // It is the link that would become the source.
    let is_itself = is_link && !through_links;
    // It is written where it stands, and nothing gets its name.
    if let Some(file) = descriptor(path).map_err(|error| local(path, &error))? {
        return Ok(Destination::Output(Output::Descriptor(path.to_owned(), file)));
    }
    let found = fs::metadata(path);
    let is_whole = match (&found, whole) {
        (Ok(metadata), Whole::IfMarked(source)) if metadata.is_dir() => {
            let directory = Directory::open(path).map_err(|error| local(path, &error))?;
            whole.holds(show(path), marker::local(&directory, source.and_then(|(_, key)| key)))?
        }
        _ => whole == Whole::Always,
    };
    let path = match found {
        Ok(metadata) if metadata.is_dir() && !is_whole => {
            let directory = Directory::open(path).map_err(|error| local(path, &error))?;
            return Ok(Destination::Inside(Location::local(directory), None));
        }
        // By its own name, which `.` has not.
        Ok(metadata) if metadata.is_dir() && !(is_itself && whole == Whole::Always) => {
            real_path(path, &metadata).map_err(|error| local(path, &error))?
        }
        _ if is_itself => path.to_owned(),
        Ok(metadata) if !metadata.is_file() => {
            let seen = (metadata.dev(), metadata.ino());
            return Ok(Destination::Output(Output::Special(path.to_owned(), seen)));
        }
        // Through links to the file itself, so that the links stay.
        Ok(metadata) => real_path(path, &metadata).map_err(|error| local(path, &error))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound && is_link => {
            return Err(leads_nowhere(show(path)));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(local(path, &error)),
    };
    let Some(name) = path.file_name() else {
        return Err(Error::new(ErrorKind::LocalIo, format!("{}: there is no such directory", show(&path))));
    };
    let parent = path.parent().unwrap_or_else(|| Path::new(""));
    match Directory::open(parent) {
        Ok(directory) => Ok(Destination::Named(Location::local(directory), name.as_bytes().to_vec())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text = format!("{}: the directory {} does not exist", show(&path), show(parent));
            Err(Error::new(ErrorKind::LocalIo, text))
        }
        Err(error) => Err(local(parent, &error)),
    }
}

/// Returns the path without links of what has been looked at. Links are read for that, also those that the kernel does not follow in
/// directories of others (`fs.protected_symlinks`), so that what they lead to must be what it has found.
fn real_path(path: &Path, found: &fs::Metadata) -> io::Result<PathBuf> {
    let real = fs::canonicalize(path)?;
    let there = fs::symlink_metadata(&real)?;
    let is_found = (there.dev(), there.ino()) == (found.dev(), found.ino());
    if is_found { Ok(real) } else { Err(io::Error::other("was replaced while it was looked at")) }
}

/// As [`find_local_destination`], on a server. The temporary file may be made ahead meanwhile.
async fn find_remote_destination(
    context: Context<'_>,
    remote: &Remote,
    whole: Whole<'_>,
    through_links: bool,
    ahead: Option<Ahead<'_>>,
) -> Result<Destination> {
    let mut making = None;
    let found = look_around(context, remote, whole, through_links, |client, directory, name| {
        if let Some(ahead) = ahead.filter(|ahead| making.is_none() && ahead.pays(client, directory, name)) {
            making = Some(ahead.make(client, directory, name));
        }
    });
    match found.await {
        Ok(Around::Directory(found)) => {
            Ok(Destination::Inside(Location::remote(found), making.map(Making::discard)))
        }
        Ok(Around::Name { directory, name, there }) => {
            let mut ahead = None;
            match making {
                Some(making)
                    if making.is_of(directory.handle, &name)
                        && there.as_deref().is_none_or(Found::is_replaced) =>
                {
                    ahead = making.finish().await;
                }
                Some(making) => drop(making.discard().await),
                None => {}
            }
            let location = Location::remote_around(directory, &name, there.as_deref(), ahead);
            Ok(Destination::Named(location, name))
        }
        Err(error) => {
            if let Some(making) = making {
                drop(making.discard().await);
            }
            Err(error)
        }
    }
}

/// Whether the source becomes a directory on a server that is there.
async fn is_whole(whole: Whole<'_>, found: &Found) -> Result<bool> {
    match whole {
        Whole::IfMarked(source) => {
            let key = source.and_then(|(_, key)| key);
            let mark = marker::remote(&found.client, found.handle, key).await.at(&found.remote)?;
            whole.holds(&found.remote, mark)
        }
        Whole::Always | Whole::Never => Ok(whole == Whole::Always),
    }
}

/// Where a path on a server leads.
enum Around {
    /// To a directory.
    Directory(Found),
    /// To a name in a directory, and what has it.
    Name { directory: Found, name: Vec<u8>, there: Option<Box<Found>> },
}

/// Looks what has a path, and for the directory above it; says which that is, probably, as soon as it may be used.
async fn look_around(
    context: Context<'_>,
    remote: &Remote,
    whole: Whole<'_>,
    through_links: bool,
    mut is_above: impl FnMut(&Client, FileHandle, &[u8]),
) -> Result<Around> {
    let parent = remote.parent();
    let name = remote.name().filter(|name| is_plain(name));
    let look = find_if_exists(context, remote);
    let look_above = find_if_exists(context, &parent);
    tokio::pin!(look, look_above);
    let mut above = None;
    // Side by side, where that does not take another mount.
    let client = context.servers.client(remote).await?;
    let is_beside = is_within(&parent.path, client.export());
    if let Some(name) = name
        && parent.path == client.export()
    {
        is_above(&client, client.root(), name);
    }
    let there = loop {
        tokio::select! {
            biased;
            there = &mut look => break there?,
            found = &mut look_above, if is_beside && above.is_none() => {
                if let (Ok(Some(found)), Some(name)) = (&found, name) {
                    is_above(&client, found.handle, name);
                }
                above = Some(found);
            }
        }
    };
    // A run that ended early has reserved the name.
    let there = there.filter(|there| whole == Whole::Never || !is_reservation(&there.metadata));
    if let Some(link) = there.as_ref().filter(|there| there.is_link()) {
        // With -T it is the link that would become SRC.
        let real =
            if through_links || whole != Whole::Always { real_if_exists(context, link).await? } else { None };
        match real {
            Some(found) if found.is_directory() && whole != Whole::Always => {
                if is_whole(whole, &found).await? {
                    return around(context, found).await;
                }
                return Ok(Around::Directory(Found { remote: remote.clone(), ..found }));
            }
            Some(found) if through_links => return around(context, found).await,
            None if through_links => return Err(leads_nowhere(remote)),
            Some(_) | None => {}
        }
    } else if let Some(found) = there.as_ref().filter(|there| there.is_directory())
        && whole != Whole::Always
        && !is_whole(whole, found).await?
    {
        return Ok(Around::Directory(found.clone()));
    }
    let Some(name) = name else {
        return Err(Error::other(format!("{remote}: there is no such directory")));
    };
    let above = match above {
        Some(above) => above?,
        None => look_above.await?,
    };
    let Some(found) = above else {
        let text = format!(
            "{remote}: {parent} does not exist; create it first: nfsw mkdir -p {}",
            parent.shell_word()
        );
        return Err(Error::other(text));
    };
    let directory = follow(context, found).await?;
    if !directory.is_directory() {
        return Err(Error::other(format!("{parent}: is not a directory")));
    }
    Ok(Around::Name { directory, name: name.to_vec(), there: there.map(Box::new) })
}

/// Returns the name of what was found without links on the way, and the directory that holds it.
async fn around(context: Context<'_>, found: Found) -> Result<Around> {
    let Some(name) = found.remote.name().map(<[u8]>::to_vec) else {
        return Err(Error::other(format!("{}: is the root of an export", found.remote)));
    };
    let directory = find(context, &found.remote.parent()).await?;
    Ok(Around::Name { directory, name, there: Some(Box::new(found)) })
}

/// Returns the error for a link at the target that leads to nothing: what would be written there,
/// and where, nobody has said.
fn leads_nowhere(link: impl Display) -> Error {
    let text = format!("{link}: is a symbolic link that leads nowhere, and is not written through");
    Error::other(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_that_takes_the_place_of_what_was_looked_at_is_not_followed() {
        let here = tempfile::tempdir().unwrap();
        let [name, other] = ["name", "other"].map(|name| here.path().join(name));
        fs::write(&name, "").unwrap();
        fs::write(&other, "").unwrap();
        let found = fs::metadata(&name).unwrap();
        assert_eq!(real_path(&name, &found).unwrap().file_name(), name.file_name());
        fs::remove_file(&name).unwrap();
        symlink(&other, &name).unwrap();
        assert!(real_path(&name, &found).is_err());
        let followed = real_path(&name, &fs::metadata(&name).unwrap());
        assert_eq!(followed.unwrap().file_name(), other.file_name());
    }
}
