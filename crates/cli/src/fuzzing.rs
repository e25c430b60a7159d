//! Bodies of fuzz targets for parsers that only the command has; see `fuzz/`.

use nfs_files::fuzzing::Body;

use crate::{
    complete::shell::{Line, Quote, is_printable, rest_for_bash},
    config::{self, Config},
};

/// The targets of this crate, which need nothing from others.
pub const TARGETS: &[(&str, Body)] = &[("config", config), ("line", line)];

/// A configuration file; what is wrong with it is said in one line. The same text as `NFSW_OPTS`.
fn config(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    if let Err(wrong) = Config::parse(text) {
        assert!(text.get(..wrong.at).is_some(), "it is somewhere in the file");
        assert_printable(&wrong.why);
    }
    match config::presets(text) {
        Ok(presets) => presets.iter().for_each(|preset| assert!(preset.words[0].starts_with("--"))),
        Err(why) => assert_printable(&why),
    }
}

/// A line up to the cursor, and after a zero byte what follows its last word in a name that is offered: what bash makes of the line
/// with what it is told to insert is that name, and nothing else.
fn line(data: &[u8]) {
    let mut parts = data.splitn(2, |&byte| byte == 0);
    let (text, rest) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let line = Line::read(text);
    assert!(line.words.iter().map(Vec::len).sum::<usize>() <= text.len());
    let (word, before) = line.words.split_last().expect("a line has a word");
    let value = [&word[..], rest].concat();
    // Behind a backslash nothing is written.
    if !is_printable(&value) || text.ends_with(b"\\") {
        return;
    }
    let Some(inserted) = rest_for_bash(text, &value) else { return };
    assert!(!inserted.contains(&b'`'), "no command runs");
    let again = Line::read(&[text, &inserted].concat());
    assert_eq!((&again.words[..before.len()], again.words.last()), (before, Some(&value)));
    assert_eq!(again.words.len(), line.words.len(), "it is one word");
    assert!(again.quote == line.quote || again.quote == Quote::None, "it ends where it was");
}

fn assert_printable(text: &str) {
    assert!(!text.is_empty() && !text.chars().any(char::is_control), "a line for the user: {text:?}");
}
