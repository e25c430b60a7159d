//! What somebody else shares is shown before any of it is written, and whoever copies it says whether it is wanted.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, BufRead, IsTerminal},
    time::Duration,
};

use nfs_files::{Context, Events};

use crate::{
    copy::{self, Accepted, Options},
    error::{Error, Result},
    event::{Event, What},
    exit::{Exit, Failure},
    text::escape,
    units,
    url::Target,
};

/// Names that are shown.
const MAX_SHOWN: usize = 20;

/// Bytes of all names that are accepted together, at most.
const MOST_BYTES: usize = 256 << 20;

/// How often it is noted that the run waits for its user.
const TICK: Duration = Duration::from_millis(50);

/// Shows what a copy from a share brings, and asks on a terminal whether it is wanted.
///
/// Returns what was shown: nothing else is to come, whatever the sharer changes meanwhile.
///
/// # Errors
/// Whatever keeps the dry run from its end; and one where it is not wanted.
pub(super) async fn accept(copy: Options, context: Context<'_>) -> anyhow::Result<Accepted> {
    let preview = Preview::default();
    copy::run(&Options { dry_run: true, ..copy }, Context { events: &preview, ..context }).await?;
    let activity = context.servers.activity();
    activity.plan_again();
    let shown = preview.0.into_inner();
    if shown.files == 0 && shown.deleted == 0 {
        return Ok(shown.accepted());
    }
    eprint!("{}", shown.text());
    let mut answer = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).map(|_| line)
    });
    let answer = loop {
        match tokio::time::timeout(TICK, &mut answer).await {
            Ok(answer) => break answer?.unwrap_or_default(),
            // It is not the server that is waited for.
            Err(_) => activity.step(),
        }
    };
    // The end of the input is no answer.
    match answer.as_str() {
        "\n" | "y\n" | "Y\n" | "yes\n" => Ok(shown.accepted()),
        _ => Err(Failure::with(Exit::Interrupted, "nothing was copied".to_owned())),
    }
}

/// Whether there is somebody to ask about a copy, and a reason to.
pub(super) fn asks(copy: &Options) -> bool {
    let is_of_share = |source: &Target| matches!(source, Target::Remote(remote) if remote.is_in_share());
    !copy.dry_run
        && copy.sources.iter().any(is_of_share)
        && copy.destination != Target::Standard
        && io::stdin().is_terminal()
        && io::stderr().is_terminal()
}

/// What a dry run would do.
#[derive(Debug, Default)]
struct Preview(RefCell<Shown>);

#[derive(Debug, Default)]
struct Shown {
    /// The first of them, line by line.
    lines: String,
    /// Files and links.
    files: usize,
    hidden: usize,
    bytes: u64,
    deleted: u64,
    /// All of them, with their bytes.
    all: BTreeMap<Vec<u8>, u64>,
    held_bytes: usize,
}

impl Events for Preview {
    fn tell(&self, event: &Event<'_>) -> Result<()> {
        let mut shown = self.0.borrow_mut();
        match event {
            Event::Copied { what, source, bytes, change, .. } if *what != What::Directory => {
                let path = change.map_or(&source.bytes[..], |(path, _)| path);
                shown.add(path, *what, *bytes);
                if shown.held_bytes > MOST_BYTES {
                    let text = "these are too many files to be accepted together; copy a directory of them";
                    return Err(Error::usage(text).that_ends_run());
                }
            }
            Event::Deleted { .. } => shown.deleted += 1,
            // The run itself says what fails.
            _ => {}
        }
        Ok(())
    }
}

impl Shown {
    fn add(&mut self, path: &[u8], what: What, bytes: u64) {
        self.all.insert(path.to_vec(), bytes);
        self.held_bytes += size_of::<(Vec<u8>, u64)>() + path.len();
        self.files += 1;
        let is_hidden = path.split(|&byte| byte == b'/').any(|name| name.starts_with(b".") && name != b".");
        self.hidden += usize::from(is_hidden);
        let size = if what == What::Link { "link".to_owned() } else { units::bytes(bytes) };
        if what == What::File {
            self.bytes += bytes;
        }
        if self.files <= MAX_SHOWN {
            let hidden = if is_hidden { " (hidden)" } else { "" };
            let _ = writeln!(self.lines, "{size:>10}  {}{hidden}", escape(path));
        }
    }

    fn accepted(self) -> Accepted {
        Accepted { files: self.all, deleted: self.deleted }
    }

    fn text(&self) -> String {
        let Self { lines, files, hidden, bytes, deleted, .. } = self;
        let mut text = lines.clone();
        if let more @ 1.. = files.saturating_sub(MAX_SHOWN) {
            let _ = writeln!(text, "            and {more} more");
        }
        let plural = if *files == 1 { "" } else { "s" };
        let _ = write!(text, "{files} file{plural}, {}", units::bytes(*bytes));
        if *hidden > 0 {
            let _ = write!(text, ", {hidden} hidden");
        }
        if *deleted > 0 {
            let _ = write!(text, "; {deleted} here would be deleted");
        }
        text + ". Copy? [Y/n] "
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_is_shown_with_its_size_and_hidden_files_as_such() {
        let mut shown = Shown::default();
        shown.add(b"trip/beach.jpg", What::File, 2 << 20);
        shown.add(b"trip/.config/\x1b[2Jrun", What::File, 12);
        shown.add(b"trip/link", What::Link, 7);
        let expected = "   2.0 MiB  trip/beach.jpg\n      12 B  trip/.config/\\u{1b}[2Jrun (hidden)\n      link  trip/link\n\
                        3 files, 2.0 MiB, 1 hidden. Copy? [Y/n] ";
        assert_eq!(shown.text(), expected);
        (0..30).for_each(|_| shown.add(b"x", What::File, 1));
        shown.deleted = 2;
        assert_eq!(shown.text().lines().count(), MAX_SHOWN + 2);
        assert!(
            shown
                .text()
                .ends_with("and 13 more\n33 files, 2.0 MiB, 1 hidden; 2 here would be deleted. Copy? [Y/n] ")
        );
    }
}
