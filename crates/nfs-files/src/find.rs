//! Finding files on servers: by path, by pattern, through links, and in directories.

mod above;
mod glob;
mod walk;

use std::{collections::BTreeSet, fmt, rc::Rc, time::Duration};

use futures_util::{StreamExt, stream};
use nfs_wireless_client::{
    self as client, Client, FileHandle, FileType, Metadata, NfsStatus, Procedure, ReadDir,
};

pub use above::Above;

use crate::{
    context::Context,
    error::{Error, ErrorKind, Result, ResultExt, has_status},
    escape::escape,
    event::{Event, Warning},
    name::is_plain,
    servers::{Access, Servers},
    url::{Remote, is_within},
};

/// A file that exists on a server.
#[derive(Clone, Debug)]
pub struct Found {
    /// Where it is.
    pub remote: Remote,
    /// The connection to it.
    pub client: Client,
    /// The directories that hold it; none for an export's root and for `..`.
    pub above: Above,
    /// The file.
    pub handle: FileHandle,
    /// Its attributes.
    pub metadata: Metadata,
}

/// A directory entry.
#[derive(Clone, Debug)]
pub struct Child {
    /// Its name: one component, safe to use in a path.
    pub name: Vec<u8>,
    /// The file.
    pub handle: FileHandle,
    /// Its attributes.
    pub metadata: Metadata,
}

/// A directory entry to be found later. Until then it takes no path of its own: that of its directory may be long, and there may be
/// many entries.
#[derive(Clone, Debug)]
pub struct Below {
    directory: Rc<Found>,
    child: Child,
}

impl Below {
    /// An entry of a directory.
    pub fn new(directory: &Rc<Found>, child: Child) -> Self {
        Self { directory: Rc::clone(directory), child }
    }

    /// Returns the entry.
    pub const fn entry(&self) -> &Child {
        &self.child
    }

    /// Returns the file.
    pub fn found(self) -> Found {
        self.directory.child(self.child)
    }
}

/// Lookups in flight for entries that came without attributes.
const LOOKUPS: usize = 16;

/// Directories within directories, at most: a server can make them without end, and each takes an open file.
pub(crate) const MAX_DEPTH: usize = 512;

/// Bytes that the entries take that match a pattern in one directory, at most, so that all of the program stays below 64 MiB.
const MAX_HELD_BYTES: usize = 24 << 20;

/// Bytes that one part of a directory takes: 20,000 entries with the longest names, 44,000 with short ones.
const PART_BYTES: usize = 8 << 20;

/// Bytes that an entry takes beside its name.
const ENTRY_BYTES: usize = size_of::<Child>();

/// How often a directory that changes is read from its beginning.
const MAX_RESTARTS: u32 = 3;

/// Unsafe names of one directory that are reported one by one.
const MAX_UNSAFE_NAMES: usize = 20;

/// Names of one directory that are not found and looked for in another listing, at most.
const MAX_MISSING: usize = 10_000;

impl Child {
    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.metadata.file_type == FileType::Directory
    }
}

impl Found {
    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.metadata.file_type == FileType::Directory
    }

    /// Whether it is a symbolic link.
    pub fn is_link(&self) -> bool {
        self.metadata.file_type == FileType::Symlink
    }

    /// Whether a file that is copied there takes its place.
    pub fn is_replaced(&self) -> bool {
        matches!(self.metadata.file_type, FileType::Regular | FileType::Symlink)
    }

    /// Whether another file is in the same export of the same server.
    pub fn is_beside(&self, other: &Self) -> bool {
        self.client.address() == other.client.address() && self.client.export() == other.client.export()
    }

    /// Returns an entry of this directory.
    pub fn child(&self, Child { name, handle, metadata }: Child) -> Self {
        let above = self.above.inside(self.handle);
        Self { remote: self.remote.join(&name), client: self.client.clone(), above, handle, metadata }
    }

    /// Returns the directory that holds it, for a command that changes its name there.
    ///
    /// # Errors
    /// The export's root has no name that could change.
    pub fn directory(&self) -> Result<(FileHandle, &[u8])> {
        match (self.above.directory(), self.remote.name()) {
            (Some(parent), Some(name)) => Ok((parent, name)),
            _ => Err(Error::usage(format!("{}: this is the root of an export, which stays", self.remote))),
        }
    }
}

/// Finds one file; a symbolic link at the end of the path is found itself.
///
/// # Errors
/// Status 4 when it does not exist.
pub async fn find(context: Context<'_>, remote: &Remote) -> Result<Found> {
    for warning in &remote.options.warnings {
        context.events.tell(&Event::Warning(Warning::Option(warning)))?;
    }
    walk::walk(context, remote, false).await
}

/// Pauses after which a server is asked again that was reached before: it may just be starting, or have no place for us.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

/// Finds one file as [`find`] does, whose server was reached before.
///
/// # Errors
/// As [`find`].
pub async fn find_again(context: Context<'_>, remote: &Remote) -> Result<Found> {
    for pause in PAUSES {
        match find(context, remote).await {
            Err(error) if error.is_unreachable() => tokio::time::sleep(pause).await,
            found => return found,
        }
    }
    find(context, remote).await
}

/// Finds one file as [`find`] does, or `None` when it does not exist.
///
/// # Errors
/// As [`find`], for other reasons.
pub async fn find_if_exists(context: Context<'_>, remote: &Remote) -> Result<Option<Found>> {
    match find(context, remote).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::SourceMissing => Ok(None),
        Err(error) => Err(error),
    }
}

/// Finds every file that a path with `*`, `?` or `[...]` matches, in order; without them, the one file.
///
/// # Errors
/// Status 4 when nothing matches.
pub async fn find_all(context: Context<'_>, remote: &Remote) -> Result<Vec<Found>> {
    let Some(pattern) = &remote.pattern else {
        return Ok(vec![find(context, remote).await?]);
    };
    let matches = glob::expand(context, remote, pattern).await?;
    if !matches.is_empty() {
        return Ok(matches);
    }
    match find_if_exists(context, remote).await? {
        Some(literal) => Ok(vec![literal]),
        None => Err(Error::new(ErrorKind::SourceMissing, format!("{remote}: nothing on the server matches"))),
    }
}

/// Refuses a directory that is so deep that nothing here would list it.
///
/// # Errors
/// That it is.
pub fn check_depth(shown: &Remote) -> Result<()> {
    if shown.path.iter().filter(|&&byte| byte == b'/').count() > MAX_DEPTH {
        return Err(too_deep(shown));
    }
    Ok(())
}

/// Returns the error for a directory that is deeper than [`MAX_DEPTH`].
pub(crate) fn too_deep(shown: impl fmt::Display) -> Error {
    Error::other(format!("{shown}: directories within directories, more than {MAX_DEPTH} deep"))
}

/// As [`find_all`], for commands that do something to names and not to what they lead to: a name with a slash at its end is that of
/// a directory.
///
/// # Errors
/// As [`find_all`]; status 1 if such a name is that of something else.
pub async fn find_entries(context: Context<'_>, remote: &Remote) -> Result<Vec<Found>> {
    let mut found = find_all(context, remote).await?;
    if remote.names_directory {
        found.retain(Found::is_directory);
    }
    match remote.pattern {
        _ if !found.is_empty() => Ok(found),
        Some(_) => {
            Err(Error::new(ErrorKind::SourceMissing, format!("{remote}: no directory on the server matches")))
        }
        None => Err(Error::other(format!("{remote}: is not a directory"))),
    }
}

/// As [`find_all`]; where that fails, this is reported and nothing found.
///
/// # Errors
/// Those of the report.
pub async fn find_all_or_report(context: Context<'_>, remote: &Remote) -> Result<Vec<Found>> {
    match find_all(context, remote).await {
        Ok(found) => Ok(found),
        Err(error) => context.events.fail(error).map(|()| Vec::new()),
    }
}

/// Follows a symbolic link to what it stands for, on the same server. The result keeps the link's path.
///
/// # Errors
/// Status 4 when the link leads nowhere.
pub async fn follow(context: Context<'_>, found: Found) -> Result<Found> {
    match found.metadata.file_type {
        FileType::Symlink => walk::walk(context, &found.remote, true).await,
        _ => Ok(found),
    }
}

/// Finds the file that a path leads to, through all links. The result has the path that leads there without any.
///
/// # Errors
/// As [`follow`].
pub async fn real(context: Context<'_>, remote: &Remote) -> Result<Found> {
    walk::real(context, remote).await
}

/// As [`real`] for a symbolic link; `None` if it leads nowhere.
///
/// # Errors
/// As [`follow`], for other reasons.
pub async fn real_if_exists(context: Context<'_>, link: &Found) -> Result<Option<Found>> {
    match real(context, &link.remote).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::SourceMissing => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the exports of a server that lie below a path; none if it does not say.
///
/// # Errors
/// A usage error in the options.
pub async fn exports_below(servers: &Servers, directory: &Remote) -> Result<Vec<Vec<u8>>> {
    let Access { address, config } = servers.access(directory)?;
    let exports = Client::exports(&address, config).await.unwrap_or_default();
    let paths = exports.into_iter().map(|export| export.directory);
    Ok(paths.filter(|path| *path != directory.path && is_within(path, &directory.path)).collect())
}

/// A directory on a server that is read part by part, so that it may be larger than memory. Entries whose names could lead
/// elsewhere are reported and left out, and so are those whose name is there already in the same part.
#[derive(Debug)]
pub struct Children {
    entries: ReadDir,
    client: Client,
    directory: FileHandle,
    /// What is above the entries.
    above: Above,
    shown: Remote,
    seen: u64,
    unsafe_names: usize,
    is_done: bool,
    has_vanished: bool,
    /// Names that were not found, to be looked for in another listing.
    missing: BTreeSet<Vec<u8>>,
    /// Entries that were listed and cannot be looked up.
    unfound: usize,
    /// Whether these are reported.
    tells_unfound: bool,
    /// Entries that earlier parts had.
    returned: usize,
    /// How often it was read from its beginning again.
    restarts: u32,
}

impl Children {
    /// Begins with the first entry.
    ///
    /// # Errors
    /// The directory lies so deep that there may be no end to it.
    pub fn of(directory: &Found) -> Result<Self> {
        let Found { client, handle, remote, above, .. } = directory;
        Self::below(above, client, *handle, remote)
    }

    /// As [`Children::of`] for a directory of which it is not known what is above it, but for the export's root.
    ///
    /// # Errors
    /// As [`Children::of`].
    pub fn open(client: &Client, directory: FileHandle, shown: &Remote) -> Result<Self> {
        Self::below(&Above::default(), client, directory, shown)
    }

    fn below(above: &Above, client: &Client, directory: FileHandle, shown: &Remote) -> Result<Self> {
        check_depth(shown)?;
        Ok(Self {
            entries: client.read_dir(directory),
            client: client.clone(),
            directory,
            above: above.inside(directory),
            shown: shown.clone(),
            seen: 0,
            unsafe_names: 0,
            is_done: false,
            has_vanished: false,
            missing: BTreeSet::new(),
            unfound: 0,
            tells_unfound: true,
            returned: 0,
            restarts: 0,
        })
    }

    /// As it is, where it does not matter what the server lists and does not find.
    pub const fn of_target(mut self) -> Self {
        self.tells_unfound = false;
        self
    }

    /// Whether every entry has been read.
    pub const fn is_done(&self) -> bool {
        self.is_done
    }

    /// Returns the directory's own attributes, where the server has sent them with the last entries.
    pub const fn attributes(&self) -> Option<&Metadata> {
        self.entries.attributes()
    }

    /// Whether an entry was removed between the listing and a look at it.
    pub const fn has_vanished(&self) -> bool {
        self.has_vanished
    }

    /// Reads the next part, in the order of the names.
    ///
    /// # Errors
    /// What the server answers; and a directory that has no end.
    pub async fn next(&mut self, context: Context<'_>) -> Result<Vec<Child>> {
        // It is large, and callers are many levels deep.
        Box::pin(self.next_matching(context, PART_BYTES, |_| true)).await
    }

    /// Reads entries that `wanted` says yes to, until they take `most_bytes`.
    async fn next_matching(
        &mut self,
        context: Context<'_>,
        most_bytes: usize,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<Child>> {
        let (mut complete, bare) = self.read_entries(context, most_bytes, wanted).await?;
        let mut unfound = self.look_up(context, bare, &mut complete).await?;
        if self.is_done && self.tells_unfound && !self.missing.is_empty() {
            unfound.extend(self.listed_again(context).await?);
        }
        self.tell_unfound(context, unfound)?;
        self.leave_out_those_above(context, &mut complete)?;
        self.leave_out_repeated(context, &mut complete)?;
        self.returned += complete.len();
        Ok(complete)
    }

    /// Reads entries: those that are complete, and the names of those of which the server has told nothing else.
    async fn read_entries(
        &mut self,
        context: Context<'_>,
        most_bytes: usize,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<(Vec<Child>, Vec<Vec<u8>>)> {
        let (mut complete, mut bare, mut held_bytes) = (Vec::new(), Vec::new(), 0);
        while held_bytes < most_bytes {
            let next = match self.entries.next().await {
                Err(error) if self.may_restart(&error) => {
                    self.restarts += 1;
                    self.entries = self.client.read_dir(self.directory);
                    complete.clear();
                    bare.clear();
                    (held_bytes, self.seen, self.unsafe_names) = (0, 0, 0);
                    continue;
                }
                next => next.at(&self.shown)?,
            };
            let Some(entry) = next else {
                self.is_done = true;
                break;
            };
            context.servers.activity().step();
            self.seen += 1;
            if !is_plain(&entry.name) {
                self.tell_unsafe(context, &entry.name)?;
            } else if wanted(&entry.name) {
                held_bytes += ENTRY_BYTES + entry.name.len();
                match (entry.handle, entry.metadata) {
                    (Some(handle), Some(metadata)) => {
                        complete.push(Child { name: entry.name, handle, metadata });
                    }
                    _ => bare.push(entry.name),
                }
            }
            let most = context.servers.max_entries();
            if self.seen > most {
                let text = format!("has more than {most} entries, or no end (--max-entries takes more)");
                return Err(self.failed(text));
            }
        }
        if self.is_done && self.unsafe_names > MAX_UNSAFE_NAMES {
            let more = self.unsafe_names - MAX_UNSAFE_NAMES;
            context.events.fail(self.failed(format!("skipped {more} more entries with unsafe names")))?;
        }
        Ok((complete, bare))
    }

    /// Whether the directory is read from its beginning again, as it has changed: unless something of it was returned before.
    fn may_restart(&self, error: &client::Error) -> bool {
        has_status(error, NfsStatus::BAD_COOKIE) && self.returned == 0 && self.restarts < MAX_RESTARTS
    }

    /// Looks up entries of which only the name is known; returns those that the server lists and does not find.
    async fn look_up(
        &mut self,
        context: Context<'_>,
        bare: Vec<Vec<u8>>,
        complete: &mut Vec<Child>,
    ) -> Result<Vec<(Vec<u8>, client::Error)>> {
        let Self { client, directory, shown, missing, has_vanished, .. } = self;
        let mut lookups = stream::iter(bare)
            .map(|name| async {
                let entry = client.lookup(*directory, &name).await;
                (name, entry)
            })
            .buffer_unordered(LOOKUPS);
        let mut unfound = Vec::new();
        while let Some((name, entry)) = lookups.next().await {
            context.servers.activity().step();
            match entry {
                Ok(entry) => complete.push(Child { name, handle: entry.handle, metadata: entry.metadata }),
                // Removed since it was listed.
                Err(error) if crate::error::is_missing(&error) => {
                    *has_vanished = true;
                    if missing.len() < MAX_MISSING {
                        missing.insert(name);
                    } else {
                        unfound.push((name, error));
                    }
                }
                Err(error) if client.is_of_name(*directory, &error).await => unfound.push((name, error)),
                Err(error) => return Err(error).at(shown.join(&name)),
            }
        }
        Ok(unfound)
    }

    /// Lists the directory once more; returns which of the names that were not found it still has.
    async fn listed_again(&mut self, context: Context<'_>) -> Result<Vec<(Vec<u8>, client::Error)>> {
        let mut again = self.client.read_dir(self.directory);
        let (mut entries, mut unfound) = (0, Vec::new());
        while entries < context.servers.max_entries()
            && !self.missing.is_empty()
            && let Some(entry) = again.next().await.at(&self.shown)?
        {
            entries += 1;
            if let Some(name) = self.missing.take(&entry.name) {
                let (procedure, status) = (Procedure::Lookup, NfsStatus::NOENT);
                unfound.push((name, client::Error::Status { procedure, status }));
            }
        }
        Ok(unfound)
    }

    /// Reports a name that could lead elsewhere, unless there were many.
    fn tell_unsafe(&mut self, context: Context<'_>, name: &[u8]) -> Result<()> {
        self.unsafe_names += 1;
        if self.unsafe_names > MAX_UNSAFE_NAMES {
            return Ok(());
        }
        context.events.fail(self.failed(format!("skipped an entry with the unsafe name {}", abridged(name))))
    }

    /// Reports entries that the server lists and does not find, unless there are many.
    fn tell_unfound(&mut self, context: Context<'_>, unfound: Vec<(Vec<u8>, client::Error)>) -> Result<()> {
        if !self.tells_unfound {
            return Ok(());
        }
        for (name, error) in unfound {
            self.unfound += 1;
            if self.unfound <= MAX_UNSAFE_NAMES {
                let name = abridged(&name);
                let text = format!("skipped {name}: the server lists it, and does not find it: {error}");
                context.events.fail(self.failed(text))?;
            }
        }
        if self.is_done && self.unfound > MAX_UNSAFE_NAMES {
            let more = self.unfound - MAX_UNSAFE_NAMES;
            let text = format!("skipped {more} more entries that the server does not find");
            context.events.fail(self.failed(text))?;
        }
        Ok(())
    }

    /// Leaves out what has the handle of a directory above it: that would have no end.
    fn leave_out_those_above(&self, context: Context<'_>, children: &mut Vec<Child>) -> Result<()> {
        let is_above =
            |child: &mut Child| self.above.contains(child.handle) || child.handle == self.client.root();
        for Child { name, .. } in children.extract_if(.., is_above) {
            let name = abridged(&name);
            let text =
                format!("skipped {name}: the server gives it the handle of a directory that it lies in");
            context.events.fail(self.failed(text))?;
        }
        Ok(())
    }

    /// Sorts entries by name, and leaves out those that are there twice.
    fn leave_out_repeated(&self, context: Context<'_>, children: &mut Vec<Child>) -> Result<()> {
        children.sort_by(|a, b| a.name.cmp(&b.name));
        let mut twice = None;
        children.dedup_by(|later, first| {
            // A page that is read again after a change may repeat an entry: that is one file, not two.
            let is_same = later.name == first.name;
            if is_same && later.handle != first.handle {
                twice.get_or_insert_with(|| first.name.clone());
            }
            is_same
        });
        let Some(name) = twice else { return Ok(()) };
        let name = abridged(&name);
        let text = format!("the server lists {name} twice, as different files; one is skipped");
        context.events.fail(self.failed(text))
    }

    fn failed(&self, text: String) -> Error {
        Error::other(format!("{}: {text}", self.shown))
    }
}

/// Reads the entries of a directory that `wanted` says yes to.
///
/// # Errors
/// As [`Children::next`]; and more entries than can be held.
async fn matching_children(
    context: Context<'_>,
    directory: &Found,
    most_bytes: usize,
    wanted: impl Fn(&[u8]) -> bool,
) -> Result<Vec<Child>> {
    let shown = &directory.remote;
    let mut children = Children::of(directory)?;
    let found = children.next_matching(context, most_bytes, wanted).await?;
    if !children.is_done {
        let count = found.len();
        let text = format!(
            "{shown}: too many entries match, {count} of them here; ask for fewer, as in '{shown}/a*'"
        );
        return Err(Error::other(text));
    }
    Ok(found)
}

/// Escapes a name for a message, and shortens one that no file system would take.
fn abridged(name: &[u8]) -> String {
    const LONGEST: usize = 255;
    match name.get(..LONGEST) {
        Some(start) if name.len() > LONGEST => format!("{}... ({} bytes)", escape(start), name.len()),
        _ => escape(name).into_owned(),
    }
}

#[cfg(test)]
mod tests;
