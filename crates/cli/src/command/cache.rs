//! `nfsw cache`: what `nfsw mount` keeps on the disk.

use std::{
    io,
    time::{Duration, Instant, SystemTime},
};

use jiff::Timestamp;
use nfs_mount::store::{Home, Root, is_below};
use serde_json::{Value, json};

use crate::{
    args::{CacheCommand, CacheDropArgs, CacheLsArgs, CachePinArgs, CachePlace, OutputArgs},
    error::{io_text, local, show},
    exit::{Exit, Failure},
    report::{Reporter, event},
    summary::Summary,
    text::{escape, exact_time},
    units,
    url::{Remote, join},
};

pub(super) fn execute(command: &CacheCommand) -> Exit {
    let place = match command {
        CacheCommand::Ls(arguments) => &arguments.place,
        CacheCommand::Pin(arguments) => &arguments.place,
        CacheCommand::Drop(arguments) => &arguments.place,
        CacheCommand::Verify(arguments) => &arguments.place,
    };
    let changes = matches!(command, CacheCommand::Pin(_) | CacheCommand::Drop(_));
    let reporter = Reporter::new(&OutputArgs { json: place.json, ..OutputArgs::default() }, Instant::now());
    let reporter = if changes { reporter.that_changes(false) } else { reporter };
    let result = home(place).and_then(|home| match command {
        CacheCommand::Ls(arguments) => list(arguments, &home, &reporter),
        CacheCommand::Pin(arguments) => pin(arguments, &home, &reporter),
        CacheCommand::Drop(arguments) => drop_some(arguments, &home, &reporter),
        CacheCommand::Verify(_) => verify(&home, &reporter),
    });
    reporter.finish(result, &Summary::default())
}

fn home(place: &CachePlace) -> anyhow::Result<Home> {
    let home = Home::new(place.cache.as_deref());
    let home = home.map_err(|error| Failure::with(Exit::LocalIo, io_text(&error)))?;
    home.check().map_err(|error| local(home.path(), &error))?;
    match std::fs::read_dir(home.path()) {
        // What cannot be read is not empty.
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(local(home.path(), &error).into()),
        _ => Ok(home),
    }
}

/// Returns what is held of the directory that a target lies in, and the rest of its path.
fn at(home: &Home, target: &Remote) -> anyhow::Result<(Root, Vec<u8>)> {
    let rest = |root: &Root| {
        let of =
            |named: &Remote| (named.server() == target.server()).then(|| below(&named.path, &target.path))?;
        root.remotes().iter().filter_map(of).min_by_key(Vec::len)
    };
    let found = home.roots().into_iter().filter_map(|root| rest(&root).map(|rest| (root, rest)));
    found.min_by_key(|(_, rest)| rest.len()).ok_or_else(|| {
        let text = format!("{target}: nothing of it is in the cache (nfsw cache ls lists what is)");
        Failure::with(Exit::SourceMissing, text)
    })
}

/// Returns the rest of a path at or below a directory.
fn below(directory: &[u8], path: &[u8]) -> Option<Vec<u8>> {
    let rest = path.strip_prefix(directory)?;
    let is_whole = rest.is_empty() || directory.ends_with(b"/") || rest.starts_with(b"/");
    is_whole.then(|| rest.strip_prefix(b"/").unwrap_or(rest).to_vec())
}

/// How long a view that was just unmounted may take to let go of its cache.
const LETS_GO: Duration = Duration::from_secs(2);

/// Keeps mounts and other runs out.
fn locked(root: &mut Root) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        match root.lock() {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                return Err(local(root.path(), &error).into());
            }
            Err(_) if begun.elapsed() < LETS_GO => std::thread::sleep(LETS_GO / 20),
            Err(_) => {
                let text = format!("{} is mounted; unmount it first (nfsw umount)", name(root));
                return Err(Failure::with(Exit::LocalIo, text));
            }
        }
    }
}

/// How the user has named it last.
fn name(root: &Root) -> String {
    root.targets.first().map_or_else(String::new, |target| escape(target).into_owned())
}

/// How a path below it is named.
fn named(root: &Root, path: &[u8]) -> Vec<u8> {
    let first = root.targets.first().map(Vec::as_slice).unwrap_or_default();
    if path.is_empty() { first.to_vec() } else { join(first, path) }
}

fn list(arguments: &CacheLsArgs, home: &Home, reporter: &Reporter) -> anyhow::Result<()> {
    if let Some(target) = &arguments.target {
        let (root, path) = at(home, target)?;
        return list_files(&root, &path, reporter);
    }
    let mut rows = vec![["Size", "Files", "Used", "Mounted", "Target"].map(str::to_owned)];
    for root in home.roots() {
        let (mut bytes, mut files) = (0, 0);
        for (entry, _) in root.entries() {
            (bytes, files) = (bytes + entry.bytes(), files + 1);
        }
        let (pins, is_mounted) = (root.pins(), root.is_in_use());
        let mut event = event(
            "cached",
            &[("target", &named(&root, b"")), ("place", root.path().as_os_str().as_encoded_bytes())],
        );
        for (key, value) in [
            ("bytes", json!(bytes)),
            ("files", json!(files)),
            ("used", time(root.used)),
            ("mounted", json!(is_mounted)),
            ("pins", pins.iter().map(|pin| json!(String::from_utf8_lossy(pin))).collect()),
        ] {
            event[key] = value;
        }
        reporter.event(&event)?;
        let word = if is_mounted { "yes" } else { "no" };
        rows.push([units::bytes(bytes), files.to_string(), ago(root.used), word.to_owned(), name(&root)]);
        for pin in pins {
            let pinned = format!("  pinned: {}", escape(&named(&root, &pin)));
            rows.push([String::new(), String::new(), String::new(), String::new(), pinned]);
        }
    }
    if reporter.json() {
        return Ok(());
    }
    if rows.len() == 1 {
        return reporter.print(format!("Nothing is in the cache ({}).\n", show(home.path())).as_bytes());
    }
    reporter.print(table(&rows).as_bytes())
}

fn list_files(root: &Root, path: &[u8], reporter: &Reporter) -> anyhow::Result<()> {
    let pins = root.pins();
    let mut files: Vec<_> = root.entries().filter(|(entry, _)| entry.is_below(path)).collect();
    files.sort_by(|(a, _), (b, _)| a.path.cmp(&b.path));
    let mut rows = vec![["Size", "Used", "Pinned", "File"].map(str::to_owned)];
    for (entry, used) in files {
        let is_pinned = entry.is_pinned(&pins);
        let file = named(root, entry.path.as_deref().unwrap_or_default());
        let mut event = event("cached_file", &[("target", &file)]);
        event["bytes"] = entry.bytes().into();
        (event["used"], event["pinned"]) = (time(used), is_pinned.into());
        reporter.event(&event)?;
        let word = if is_pinned { "yes" } else { "no" };
        rows.push([units::bytes(entry.bytes()), ago(used), word.to_owned(), escape(&file).into_owned()]);
    }
    if reporter.json() { Ok(()) } else { reporter.print(table(&rows).as_bytes()) }
}

fn pin(arguments: &CachePinArgs, home: &Home, reporter: &Reporter) -> anyhow::Result<()> {
    for target in &arguments.targets {
        let (root, path) = at(home, target)?;
        let mut pins = root.pins();
        let was_pinned = pins.contains(&path);
        if arguments.remove {
            pins.retain(|pin| !is_below(pin, &path));
        } else if !was_pinned {
            pins.push(path.clone());
        }
        root.set_pins(&pins).map_err(|error| local(root.path(), &error))?;
        if arguments.remove {
            root.unmark(&path);
        }
        let mut event = event("pinned", &[("target", &named(&root, &path))]);
        event["pinned"] = (!arguments.remove).into();
        let word = if arguments.remove { "not pinned any more" } else { "pinned" };
        reporter.done(format!("{target}: {word}"), &event)?;
    }
    Ok(())
}

fn drop_some(arguments: &CacheDropArgs, home: &Home, reporter: &Reporter) -> anyhow::Result<()> {
    let mut dropped: Vec<(Root, Vec<u8>)> = Vec::new();
    for target in &arguments.targets {
        dropped.push(at(home, target)?);
    }
    if arguments.all {
        dropped.extend(home.roots().into_iter().map(|root| (root, Vec::new())));
    }
    for (mut root, path) in dropped {
        locked(&mut root)?;
        let target = named(&root, &path);
        let (files, bytes) = root.drop_below(&path).map_err(|error| local(root.path(), &error))?;
        let mut event = event("dropped", &[("target", &target)]);
        (event["files"], event["bytes"]) = (files.into(), bytes.into());
        reporter
            .done(format!("{}: dropped {} of {files} files", escape(&target), units::bytes(bytes)), &event)?;
    }
    Ok(())
}

fn verify(home: &Home, reporter: &Reporter) -> anyhow::Result<()> {
    let (mut all, mut bad) = ((0, 0), 0);
    for mut root in home.roots() {
        if let Err(error) = locked(&mut root) {
            reporter.failed(error)?;
            continue;
        }
        let mut files = 0;
        let mut bytes = 0;
        for (entry, grains) in root.verify() {
            (files, bytes) = (files + 1, bytes + entry.bytes());
            if grains == 0 {
                continue;
            }
            bad += 1;
            let file = named(&root, entry.path.as_deref().unwrap_or_default());
            let mut event = event("damaged", &[("target", &file)]);
            event["pieces"] = grains.into();
            reporter.event(&event)?;
            if !reporter.json() {
                reporter.print(format!("{}: {grains} damaged pieces\n", escape(&file)).as_bytes())?;
            }
        }
        let mut event = event("verified_cache", &[("target", &named(&root, b""))]);
        (event["files"], event["bytes"]) = (files.into(), bytes.into());
        reporter.event(&event)?;
        all = (all.0 + files, all.1 + bytes);
    }
    if bad > 0 {
        let text = format!(
            "{bad} files in the cache are damaged; what is missing of them is fetched when it is needed"
        );
        return Err(Failure::with(Exit::Mismatch, text));
    }
    if !reporter.json() {
        reporter.print(
            format!("{} of {} files: all as they were fetched\n", units::bytes(all.1), all.0).as_bytes(),
        )?;
    }
    Ok(())
}

/// A time for programs.
fn time(at: SystemTime) -> Value {
    exact_time(Timestamp::try_from(at).unwrap_or_default()).into()
}

/// A time for people.
fn ago(at: SystemTime) -> String {
    const DAY: u64 = 24 * 3600;
    let age = at.elapsed().unwrap_or(Duration::ZERO);
    match age.as_secs() {
        0..60 => "now".to_owned(),
        60..DAY => format!("{} ago", units::duration(age)),
        seconds => format!("{} d ago", seconds / DAY),
    }
}

/// Lays out rows, the last column to the left.
fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..COLUMNS).map(width).collect();
    let line = |row: &[String; COLUMNS]| {
        let (last, others) =
            row.split_last().map_or(("", &row[..]), |(last, others)| (last.as_str(), others));
        let cells: String =
            others.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}  ")).collect();
        format!("{cells}{last}\n")
    };
    rows.iter().map(line).collect()
}
