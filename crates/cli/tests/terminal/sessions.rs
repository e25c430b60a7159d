//! Sessions in a terminal, as they look at the end: help, errors and copies, in several widths, with and without colours.
//!
//! `INSTA_UPDATE=always cargo test -p nfsw --test terminal sessions` writes them again. Times, rates and ports are replaced before they are
//! compared.

use std::{fmt::Write as _, fs, num::NonZero, path::Path, time::SystemTime};

use crate::{
    common::{Server, noise},
    terminal::Terminal,
};

const WIDTHS: [u16; 4] = [40, 80, 120, 200];

/// Lines of the terminal that shows it: nothing scrolls away.
const ROWS: u16 = 300;

/// What a command left on the screen, and its exit status.
fn session(columns: u16, color: bool, here: &Path, line: &[&str], server: Option<&Server>) -> String {
    let (code, written) = run(columns, color, here, line);
    let written = steady(&written, server);
    let mut shown = parser(ROWS, columns);
    shown.process(written.as_bytes());
    format!("{}[exit status {}]\n", text(shown.screen()), code.unwrap())
}

fn parser(rows: u16, columns: u16) -> vt100::Parser {
    let [rows, columns] = [rows, columns].map(|count| NonZero::new(count).unwrap());
    vt100::Parser::new(rows, columns, 0)
}

fn run(columns: u16, color: bool, here: &Path, line: &[&str]) -> (Option<i32>, String) {
    let terminal = Terminal::start(columns, env!("CARGO_BIN_EXE_nfsw"), |command| {
        command.args(line).current_dir(here).env("XDG_STATE_HOME", here).env("XDG_CONFIG_HOME", here);
        for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "NFSW_OPTS"] {
            command.env_remove(name);
        }
        if !color {
            command.env("NO_COLOR", "1");
        }
    });
    terminal.finish()
}

/// The screen as text, with marks where the looks of the text change.
fn text(screen: &vt100::Screen) -> String {
    let mut out = String::new();
    let (rows, columns) = screen.size();
    let (rows, columns) = (rows.get(), columns.get());
    for row in 0..rows {
        let mut line = String::new();
        let mut looks = String::new();
        for column in 0..columns {
            let Some(cell) = screen.cell(row, column) else { continue };
            let here = if cell.has_contents() { look(cell) } else { String::new() };
            if here != looks {
                let _ = write!(line, "<{here}>");
                looks = here;
            }
            line.push_str(if cell.has_contents() { cell.contents() } else { " " });
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    let mut out = out.trim_end().to_owned();
    out.push('\n');
    out
}

fn look(cell: &vt100::Cell) -> String {
    let mut words = Vec::new();
    match cell.fgcolor() {
        vt100::Color::Idx(1) => words.push("red"),
        vt100::Color::Idx(2) => words.push("green"),
        vt100::Color::Idx(3) => words.push("yellow"),
        vt100::Color::Idx(4) => words.push("blue"),
        vt100::Color::Idx(6) => words.push("cyan"),
        vt100::Color::Default => {}
        _ => words.push("coloured"),
    }
    if cell.bold() {
        words.push("bold");
    }
    if cell.underline() {
        words.push("underlined");
    }
    words.join(" ")
}

/// Replaces what differs from run to run: ports, of which all have five digits, and how long it took.
fn steady(written: &str, server: Option<&Server>) -> String {
    let mut text = written.to_owned();
    if let Some(server) = server {
        text = text.replace(&server.address().port().to_string(), "PPPPP");
    }
    // `3 B in 94 ms, 31 B/s`
    let mut out = String::new();
    let mut rest = &text[..];
    while let Some((before, after)) = rest.split_once("B in ") {
        // Behind the rate there may be retransmissions, if the machine is busy.
        let (_, below) = after.split_once('\r').unwrap_or((after, ""));
        out += &format!("{before}B in TIME, RATE\r");
        rest = below;
    }
    out + rest
}

#[test]
fn help() {
    let here = tempfile::tempdir().unwrap();
    for columns in WIDTHS {
        insta::assert_snapshot!(
            format!("help-{columns}"),
            session(columns, false, here.path(), &["--help"], None)
        );
    }
    insta::assert_snapshot!("help-colour", session(80, true, here.path(), &["sync", "-h"], None));
}

#[test]
fn wrong_usage() {
    let here = tempfile::tempdir().unwrap();
    let lines: [&[&str]; 5] = [
        &["cp", "-e", "ssh", "nas:/a", "b"],
        &["cp", "--no-such", "nas:/a", "b"],
        &["cp", "--block-size", "3", "nas:/a", "b"],
        &["rsync", "a", "nas:/b"],
        &["sync", "here", "there"],
    ];
    for (columns, color) in [(40, false), (80, false), (80, true), (120, false), (200, false)] {
        let sessions: String = lines
            .iter()
            .map(|line| {
                format!("$ nfsw {}\n{}\n", line.join(" "), session(columns, color, here.path(), line, None))
            })
            .collect();
        let colour = if color { "-colour" } else { "" };
        insta::assert_snapshot!(format!("wrong-usage-{columns}{colour}"), sessions);
    }
}

#[test]
fn copies() {
    let server = Server::start();
    let here = tempfile::tempdir().unwrap();
    let long = format!("photos/{}", ["a-directory-with-a-long-name"; 9].join("/"));
    fs::create_dir_all(here.path().join(&long)).unwrap();
    fs::write(here.path().join(&long).join("cat.jpg"), noise(100_000)).unwrap();
    fs::write(here.path().join("photos/dog.jpg"), noise(200_000)).unwrap();
    fs::write(here.path().join("photos/new.txt"), "new").unwrap();
    // What has the name of a file there, and cannot be replaced by it.
    fs::create_dir_all(server.path(&format!("/in-the-way/{}", long.strip_prefix("photos/").unwrap())))
        .unwrap();
    for name in ["dog.jpg", &format!("{}/cat.jpg", long.strip_prefix("photos/").unwrap())] {
        fs::create_dir_all(server.path(&format!("/in-the-way/{name}/kept"))).unwrap();
    }
    for (columns, color) in [(40, false), (80, false), (80, true), (120, false), (200, false), (200, true)] {
        let mut sessions = String::new();
        let mut add = |line: &[&str], replaced: &[&str]| {
            let shown = session(columns, color, here.path(), line, Some(&server));
            let typed = line.join(" ").replace(&server.address().port().to_string(), "PPPPP");
            let _ = write!(sessions, "$ nfsw {typed}\n{shown}\n");
            for name in replaced {
                let _ = fs::remove_dir_all(server.path(name));
            }
        };
        let [copied, synced, in_the_way, missing] =
            ["/copied", "/synced", "/in-the-way", "/missing"].map(|path| server.url(path));
        add(&["cp", "-j1", "-r", "photos", &copied], &[]);
        add(&["cp", "-j1", "-rn", "--verify", "photos/.", &copied], &["/copied"]);
        add(&["cp", "-j1", "--dry-run", "photos/dog.jpg", &copied], &[]);
        fs::create_dir_all(server.path("/synced/old")).unwrap();
        fs::write(server.path("/synced/new.txt"), "older").unwrap();
        let older = fs::File::options().write(true).open(server.path("/synced/new.txt")).unwrap();
        older.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let exclude = ["--exclude", "a-directory*"];
        add(
            &[&["sync", "-j1", "--delete", "--dry-run"], &exclude[..], &["photos", &synced]].concat(),
            &["/synced"],
        );
        add(&["sync", "-j1", "photos", &synced], &[]);
        add(&["sync", "-j1", "-u", "photos", &synced], &["/synced"]);
        add(&["cp", "-j1", "-r", "photos/.", &in_the_way], &[]);
        add(&["cp", &missing, "."], &[]);
        add(&["ls", &server.url("/")], &[]);
        let colour = if color { "-colour" } else { "" };
        insta::assert_snapshot!(format!("copies-{columns}{colour}"), sessions);
        fs::remove_file(server.path("/in-the-way/new.txt")).unwrap();
    }
}

/// While a copy is under way there is one line, which is never wider than the terminal, and nothing of it is left at the end.
#[test]
fn progress() {
    let server = Server::start();
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("a-file.bin"), noise(1 << 20)).unwrap();
    for (columns, color) in [(40, false), (80, true), (120, true), (200, false)] {
        let line = ["cp", "--bwlimit", "1M", "a-file.bin", &server.url("/a-file.bin")];
        let (code, written) = run(columns, color, here.path(), &line);
        assert_eq!(code, Some(0), "{written}");
        let mut shown = parser(40, columns);
        let (mut drawn, mut green) = (0, 0);
        // One line is said before: what the limit was understood as.
        for part in written.split_inclusive(" %") {
            shown.process(part.as_bytes());
            let screen = text(shown.screen());
            let lines: Vec<&str> = screen.lines().filter(|line| line.contains(" %")).collect();
            assert!(lines.len() <= 1, "{columns}: {screen}");
            drawn += usize::from(!lines.is_empty());
            green += usize::from(lines.iter().any(|line| line.contains("<green>[")));
            assert!(shown.screen().cursor_position().0 <= 3, "{columns}: {screen}");
        }
        assert!(drawn >= 3, "{columns}: {written:?}");
        assert_eq!(green > 0, color, "{columns}: {written:?}");
        let last = text(shown.screen());
        assert!(!last.contains(" %") && last.contains("1 file: 1 copied; 1.0 MiB in "), "{columns}: {last}");
        assert_eq!(written.contains("\u{1b}[32m"), color, "{columns}: {written:?}");
    }
}
