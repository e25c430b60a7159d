//! `nfsw stat`: everything the server says about a file.

use std::fmt::Write as _;

use jiff::{Timestamp, tz::TimeZone};
use nfs_wireless_client::{FileType, Time};
use serde_json::{Value, json};

use nfs_files::Context;

use crate::{
    args::StatArgs,
    error::ResultExt,
    find::{Found, find_all_or_report, follow},
    report::{Reporter, put_name},
    text::{escape, exact_time, full_time, mode_string},
};

pub(super) async fn run(
    arguments: &StatArgs,
    context: Context<'_>,
    reporter: &Reporter,
) -> anyhow::Result<()> {
    let zone = TimeZone::system();
    for target in &arguments.targets {
        for found in find_all_or_report(context, target).await? {
            match one(found, arguments.dereference, context, &zone).await {
                Ok((text, event)) if reporter.json() => {
                    drop(text);
                    reporter.event(&event)?;
                }
                Ok((text, _)) => reporter.print(text.as_bytes())?,
                Err(error) => reporter.failed(error)?,
            }
        }
    }
    Ok(())
}

async fn one(
    found: Found,
    dereference: bool,
    context: Context<'_>,
    zone: &TimeZone,
) -> anyhow::Result<(String, Value)> {
    let found = if dereference { follow(context, found).await? } else { found };
    let link = match found.metadata.file_type {
        FileType::Symlink => Some(found.client.read_link(found.handle).await.at(&found.remote)?),
        _ => None,
    };
    let mut event = entry_json(&found, link.as_deref());
    event["event"] = "stat".into();
    Ok((describe(&found, link.as_deref(), zone), event))
}

/// Words a file's attributes for people.
fn describe(found: &Found, link: Option<&[u8]>, zone: &TimeZone) -> String {
    let metadata = &found.metadata;
    let mut out = format!("  File: {}", found.remote);
    if let Some(link) = link {
        let _ = write!(out, " -> {}", escape(link));
    }
    let time = |time: Time| full_time(time.seconds.into(), time.nanoseconds, zone);
    let kind = kind_name(metadata.file_type);
    let mode = mode_string(kind_letter(metadata.file_type), metadata.mode);
    let _ = write!(
        out,
        "\n  Size: {:<15} Used: {:<15} {kind}\n    Id: {:x}/{:<12} Links: {}\n  Mode: {:04o}/{mode}  Uid: {}  Gid: {}\n",
        metadata.size,
        metadata.used,
        metadata.fsid,
        metadata.fileid,
        metadata.links,
        metadata.mode,
        metadata.uid,
        metadata.gid,
    );
    if let FileType::BlockDevice | FileType::CharacterDevice = metadata.file_type {
        let _ = writeln!(out, "Device: {},{}", metadata.device.0, metadata.device.1);
    }
    let (accessed, modified, changed) = (time(metadata.atime), time(metadata.mtime), time(metadata.ctime));
    let _ = write!(out, "Access: {accessed}\nModify: {modified}\nChange: {changed}\n");
    out
}

/// Describes a file as JSON, for `stat` and `ls`.
pub(super) fn entry_json(found: &Found, link: Option<&[u8]>) -> Value {
    let metadata = &found.metadata;
    let time = |time: Time| {
        let time = Timestamp::new(time.seconds.into(), i32::try_from(time.nanoseconds).unwrap_or(0));
        exact_time(time.unwrap_or_default())
    };
    let mut entry = json!({
        "host": &*found.remote.host,
        "type": kind_name(metadata.file_type),
        "mode": format!("{:04o}", metadata.mode),
        "links": metadata.links,
        "uid": metadata.uid,
        "gid": metadata.gid,
        "size": metadata.size,
        "used": metadata.used,
        "fsid": metadata.fsid,
        "fileid": metadata.fileid,
        "atime": time(metadata.atime),
        "mtime": time(metadata.mtime),
        "ctime": time(metadata.ctime),
    });
    put_name(&mut entry, "path", &found.remote.path);
    if let Some(link) = link {
        put_name(&mut entry, "target", link);
    }
    entry
}

/// Returns the letter of `ls -l` for a kind of file.
pub(super) fn kind_letter(kind: FileType) -> char {
    match kind {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::BlockDevice => 'b',
        FileType::CharacterDevice => 'c',
        FileType::Socket => 's',
        FileType::Fifo => 'p',
    }
}

fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::BlockDevice => "block device",
        FileType::CharacterDevice => "character device",
        FileType::Socket => "socket",
        FileType::Fifo => "fifo",
    }
}
