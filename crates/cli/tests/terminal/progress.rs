//! What a user of a terminal sees of a copy.

use std::fs;

use crate::{
    common::{Server, noise},
    terminal::Terminal,
};

/// Returns what was drawn, line by line: without escape sequences, split where the terminal begins a line anew.
fn lines(screen: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut characters = screen.chars();
    while let Some(character) = characters.next() {
        if character != '\u{1b}' {
            plain.push(character);
            continue;
        }
        // A control sequence (ECMA-48 §5.4): up to a letter.
        let _ = characters.find(char::is_ascii_alphabetic);
    }
    plain.split(['\r', '\n']).map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty()).collect()
}

#[test]
fn the_progress_of_a_copy_fits_every_width() {
    let server = Server::start();
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("a-file-with-a-name.bin");
    fs::write(&file, noise(2 << 20)).unwrap();
    for columns in [20, 40, 80, 200] {
        let terminal = Terminal::start(columns, env!("CARGO_BIN_EXE_nfsw"), |command| {
            command.args([
                "cp",
                "--verify",
                "--bwlimit",
                "1M",
                file.to_str().unwrap(),
                &server.url("/a-file-with-a-name.bin"),
            ]);
            command.env("XDG_STATE_HOME", here.path()).env("XDG_CONFIG_HOME", here.path());
        });
        let (code, screen) = terminal.finish();
        assert_eq!(code, Some(0), "{screen}");
        let lines = lines(&screen);
        let drawn: Vec<_> = lines.iter().filter(|line| line.contains(" %")).collect();
        assert!(drawn.len() >= 5, "{columns}: {lines:?}");
        assert!(drawn.iter().all(|line| line.chars().count() < columns.into()), "{columns}: {drawn:?}");
        let is_wide = columns >= 80;
        assert_eq!(drawn.iter().any(|line| line.starts_with('[')), is_wide, "{columns}: {drawn:?}");
        assert_eq!(
            lines.iter().any(|line| line.contains("a-file-with")),
            columns >= 200,
            "{columns}: {lines:?}"
        );
        let last = lines.last().unwrap();
        assert!(last.starts_with("1 file: 1 copied, 1 verified; 2.0 MiB in "), "{last}");
        assert_eq!(lines.iter().filter(|line| line.contains("1 copied")).count(), 1, "{lines:?}");
    }
}
