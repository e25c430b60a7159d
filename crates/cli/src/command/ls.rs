//! `nfsw ls`: directories as `ls` shows them.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal},
    rc::Rc,
};

use jiff::{Timestamp, tz::TimeZone};
use nfs_wireless_client::{FileType, Metadata};

use super::stat::{entry_json, kind_letter};
use nfs_files::{Context, pending::Pending};

use crate::{
    advice::{explain, kind},
    args::LsArgs,
    color::Style,
    error::{Error, ErrorKind, ResultExt},
    find::{Below, Children, Found, exports_below, find, find_all, follow},
    report::{Reporter, put_name},
    text::{columns, escape, listing_time, mode_string},
    units,
};

/// Width of the terminal where it does not say.
const DEFAULT_COLUMNS: usize = 80;

pub(super) async fn run(arguments: &LsArgs, context: Context<'_>, reporter: &Reporter) -> anyhow::Result<()> {
    let listing = Listing {
        arguments,
        context,
        reporter,
        terminal: io::stdout().is_terminal(),
        color: arguments.output.color.shows(io::stdout().is_terminal()),
        zone: TimeZone::system(),
        now: Timestamp::now(),
    };
    let (files, mut directories) = listing.find_targets().await?;
    let with_headings = arguments.recursive || directories.len() + files.len() > 1 || reporter.has_failures();
    let mut is_first = files.is_empty();
    if !files.is_empty() {
        listing.show(files, false).await?;
    }
    directories.reverse();
    let mut pending = Pending::<()>::default();
    loop {
        let directory = match pending.next(context).await {
            Ok(Some((_, found))) => found,
            Ok(None) => match directories.pop() {
                Some(found) => found,
                None => break,
            },
            Err(error) => {
                reporter.failed(error)?;
                continue;
            }
        };
        if with_headings && !reporter.json() {
            let gap = if is_first { "" } else { "\n" };
            reporter.print(format!("{gap}{}:\n", directory.remote).as_bytes())?;
        }
        is_first = false;
        if let Err(error) = listing.directory_or_again(directory, &mut pending).await {
            reporter.failed(error)?;
        }
    }
    Ok(())
}

/// One run's way of listing.
struct Listing<'a> {
    arguments: &'a LsArgs,
    context: Context<'a>,
    reporter: &'a Reporter,
    terminal: bool,
    /// Whether names have colours.
    color: bool,
    zone: TimeZone,
    now: Timestamp,
}

/// A file and the name to show for it.
struct Line {
    name: Vec<u8>,
    metadata: Metadata,
    file: Shown,
}

enum Shown {
    Found(Box<Found>),
    Below(Below),
}

impl Line {
    fn of(name: Vec<u8>, found: Found) -> Self {
        Self { name, metadata: found.metadata, file: Shown::Found(Box::new(found)) }
    }

    fn found(&self) -> Found {
        match &self.file {
            Shown::Found(found) => (**found).clone(),
            Shown::Below(below) => below.clone().found(),
        }
    }
}

impl Listing<'_> {
    /// Finds what the arguments name: files to show, and directories to list. The exports of a server are shown at once.
    async fn find_targets(&self) -> anyhow::Result<(Vec<Line>, Vec<Found>)> {
        let arguments = self.arguments;
        let (mut files, mut directories) = (Vec::new(), Vec::new());
        for target in &arguments.targets {
            match self.named(target).await {
                Ok(found) => {
                    let (lists, shows): (Vec<_>, Vec<_>) =
                        found.into_iter().partition(|found| found.is_directory() && !arguments.directory);
                    files.extend(shows.into_iter().map(|found| Line::of(found.remote.to_bytes(), found)));
                    directories.extend(lists);
                }
                Err(error) => match self.exports(target, &error).await? {
                    Some(exports) => {
                        let lists = exports.iter().filter(|_| arguments.recursive && !arguments.directory);
                        directories.extend(lists.map(Line::found));
                        self.show(exports, false).await?;
                    }
                    None => self.reporter.failed(error)?,
                },
            }
        }
        Ok((files, directories))
    }

    /// Finds what one argument names; without `-l` and `-d` a link to a directory stands for the directory.
    async fn named(&self, target: &crate::url::Remote) -> anyhow::Result<Vec<Found>> {
        let mut found = find_all(self.context, target).await?;
        if !self.arguments.long && !self.arguments.directory {
            for found in found.iter_mut().filter(|found| found.metadata.file_type == FileType::Symlink) {
                if let Ok(followed) = follow(self.context, found.clone()).await
                    && followed.is_directory()
                {
                    *found = Found { remote: found.remote.clone(), ..followed };
                }
            }
        }
        Ok(found)
    }

    /// Finds the exports of a server that lie below a directory which is in none: `None` if that is not why it cannot be listed.
    async fn exports(
        &self,
        target: &crate::url::Remote,
        error: &anyhow::Error,
    ) -> anyhow::Result<Option<Vec<Line>>> {
        if kind(error.as_ref()) != Some(ErrorKind::MountRefused) || target.pattern.is_some() {
            return Ok(None);
        }
        let below = exports_below(self.context.servers, target).await?;
        if below.is_empty() {
            return Ok(None);
        }
        let mut lines = Vec::new();
        for name in below {
            match find(self.context, &target.with_path(&name)).await {
                Ok(found) => lines.push(Line::of(name, found)),
                // Whoever may not mount one may still want to see the others.
                Err(error) => self.reporter.warning(explain(&error)),
            }
        }
        Ok(Some(lines))
    }

    /// Looks for a directory by its path, whose handle the server has forgotten: some know the last thousand only. `None` if it is not
    /// there, or another one is, which is said of the old one then.
    async fn find_again(&self, directory: &Found) -> Option<Found> {
        let look = async || follow(self.context, find(self.context, &directory.remote).await?).await;
        let mut found = look().await;
        if found.as_ref().is_err_and(Error::is_stale) {
            self.context.servers.forget(&directory.client);
            found = look().await;
        }
        let file = |it: &Found| (it.metadata.fsid, it.metadata.fileid);
        found.ok().filter(|found| file(found) == file(directory) && found.handle != directory.handle)
    }

    /// Lists one directory, and if its handle is stale what its path leads to now.
    async fn directory_or_again(&self, directory: Found, pending: &mut Pending<()>) -> anyhow::Result<()> {
        let directory = Rc::new(directory);
        let mut listed = self.directory(&directory, pending).await;
        if let Err(error) = &listed
            && error.downcast_ref().is_some_and(Error::is_stale)
            && let Some(again) = self.find_again(&directory).await
        {
            pending.forget(&directory);
            listed = self.directory(&Rc::new(again), pending).await;
        }
        if listed.is_err() {
            pending.forget(&directory);
        }
        listed
    }

    /// Lists one directory, and adds those in it to the pending ones, if they are to be listed.
    async fn directory(&self, directory: &Rc<Found>, pending: &mut Pending<()>) -> anyhow::Result<()> {
        let hidden = self.arguments.all || self.arguments.almost_all;
        let mut lines = Vec::new();
        if self.arguments.all {
            for name in [&b"."[..], b".."] {
                // The parent of an export's root is not ours to see: the root stands for it, as in the server's listing.
                let entry = directory.client.lookup(directory.handle, name).await;
                let (handle, metadata) = entry
                    .map_or((directory.handle, directory.metadata), |entry| (entry.handle, entry.metadata));
                lines.push(Line::of(name.to_vec(), Found { handle, metadata, ..Found::clone(directory) }));
            }
        }
        let mut listed = Children::of(directory)?;
        let mut is_part = false;
        loop {
            let part = listed.next(self.context).await?;
            lines.reserve_exact(part.len());
            for child in part {
                if hidden || !child.name.starts_with(b".") {
                    let (name, metadata) = (child.name.clone(), child.metadata);
                    lines.push(Line { name, metadata, file: Shown::Below(Below::new(directory, child)) });
                }
            }
            if self.arguments.recursive {
                let entries = lines.iter().filter_map(|line| match &line.file {
                    Shown::Below(below) => Some(below.entry()),
                    Shown::Found(_) => None,
                });
                pending.add(&(), directory, entries.filter(|it| it.is_directory()).cloned())?;
            }
            if !is_part && !listed.is_done() {
                is_part = true;
                let text = format!("{}: shown in parts, each in order: it is too large", directory.remote);
                self.reporter.warning(text);
            }
            self.show(std::mem::take(&mut lines), !is_part).await?;
            if listed.is_done() {
                return Ok(());
            }
        }
    }

    async fn show(&self, mut lines: Vec<Line>, with_total: bool) -> anyhow::Result<()> {
        self.sort(&mut lines);
        let mut links = Vec::with_capacity(lines.len());
        for line in &lines {
            let wanted =
                (self.arguments.long || self.reporter.json()) && line.metadata.file_type == FileType::Symlink;
            links.push(if wanted {
                let found = line.found();
                Some(found.client.read_link(found.handle).await.at(&found.remote)?)
            } else {
                None
            });
        }
        if self.reporter.json() {
            for (line, link) in lines.iter().zip(&links) {
                let mut event = entry_json(&line.found(), link.as_deref());
                event["event"] = "entry".into();
                put_name(&mut event, "name", &line.name);
                self.reporter.event(&event)?;
            }
            return Ok(());
        }
        let mut out = Vec::new();
        if self.arguments.long {
            if with_total {
                let used = lines.iter().map(|line| line.metadata.used).fold(0, u64::saturating_add);
                let total = if self.arguments.human_readable {
                    units::short_bytes(used)
                } else {
                    (used / 1024).to_string()
                };
                out.extend_from_slice(format!("total {total}\n").as_bytes());
            }
            self.long(&lines, &links, &mut out);
        } else if self.terminal && !self.arguments.one_per_line {
            let words: Vec<String> =
                lines.iter().map(|line| self.inode(line) + &escape(&line.name)).collect();
            let paint =
                |at: usize, word: &str| style(&lines[at].metadata).paint(word, self.color).into_owned();
            out.extend_from_slice(columns(&words, terminal_width(), paint).as_bytes());
        } else {
            for line in &lines {
                out.extend_from_slice(self.inode(line).as_bytes());
                self.push_name(&line.name, style(&line.metadata), &mut out);
                out.push(b'\n');
            }
        }
        self.reporter.print(&out)
    }

    fn long(&self, lines: &[Line], links: &[Option<Vec<u8>>], out: &mut Vec<u8>) {
        let rows: Vec<[String; 6]> = lines.iter().map(|line| self.row(&line.metadata)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths = [1, 2, 3, 4].map(width);
        for ((line, row), link) in lines.iter().zip(&rows).zip(links) {
            let [mode, count, uid, gid, size, time] = row;
            let mut text = self.inode(line);
            let [w1, w2, w3, w4] = widths;
            let _ = write!(text, "{mode} {count:>w1$} {uid:<w2$} {gid:<w3$} {size:>w4$} {time} ");
            out.extend_from_slice(text.as_bytes());
            self.push_name(&line.name, style(&line.metadata), out);
            if let Some(link) = link {
                out.extend_from_slice(b" -> ");
                self.push_name(link, Style::Plain, out);
            }
            out.push(b'\n');
        }
    }

    fn row(&self, metadata: &Metadata) -> [String; 6] {
        let size = match metadata.file_type {
            FileType::BlockDevice | FileType::CharacterDevice => {
                format!("{}, {}", metadata.device.0, metadata.device.1)
            }
            _ if self.arguments.human_readable => units::short_bytes(metadata.size),
            _ => metadata.size.to_string(),
        };
        [
            mode_string(kind_letter(metadata.file_type), metadata.mode),
            metadata.links.to_string(),
            metadata.uid.to_string(),
            metadata.gid.to_string(),
            size,
            listing_time(metadata.mtime.seconds.into(), self.now, &self.zone),
        ]
    }

    fn inode(&self, line: &Line) -> String {
        if self.arguments.inode { format!("{:>10} ", line.metadata.fileid) } else { String::new() }
    }

    /// On a terminal names are made safe; a program gets the bytes.
    fn push_name(&self, name: &[u8], style: Style, out: &mut Vec<u8>) {
        if self.terminal || self.color {
            out.extend_from_slice(style.paint(&escape(name), self.color).as_bytes());
        } else {
            out.extend_from_slice(name);
        }
    }

    fn sort(&self, lines: &mut [Line]) {
        let metadata = |line: &Line| line.metadata;
        if self.arguments.by_time {
            lines.sort_by(|a, b| metadata(b).mtime.cmp(&metadata(a).mtime).then_with(|| a.name.cmp(&b.name)));
        } else if self.arguments.by_size {
            lines.sort_by(|a, b| metadata(b).size.cmp(&metadata(a).size).then_with(|| a.name.cmp(&b.name)));
        }
        if self.arguments.reverse {
            lines.reverse();
        }
    }
}

/// As ls has it.
fn style(metadata: &Metadata) -> Style {
    match metadata.file_type {
        FileType::Directory => Style::Directory,
        FileType::Symlink => Style::Symlink,
        FileType::Regular if metadata.mode & 0o111 != 0 => Style::Executable,
        FileType::Regular => Style::Plain,
        _ => Style::Special,
    }
}

fn terminal_width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|&width| width > 0).unwrap_or(DEFAULT_COLUMNS)
}
