//! Names and times as text: safe on a terminal, readable by people.

use std::fmt::Write as _;

use jiff::{Timestamp, tz::TimeZone};

pub(crate) use nfs_files::escape::{escape, needs_escape, shell_quote};

/// Writes JSON on one line that a terminal takes for text, whatever is in it: what JSON leaves as it is and terminals obey is written as
/// an escape of JSON.
pub(crate) fn json_line(value: &serde_json::Value) -> String {
    let line = value.to_string();
    let is_escaped = |character: char| character != '\\' && needs_escape(character);
    if !line.chars().any(is_escaped) {
        return line + "\n";
    }
    let mut out = String::with_capacity(line.len() + 8);
    for character in line.chars() {
        if is_escaped(character) {
            let _ = write!(out, "\\u{:04x}", u32::from(character));
        } else {
            out.push(character);
        }
    }
    out + "\n"
}

/// Behind these words a message has a command for a shell.
const COMMANDS: [&str; 5] =
    ["run again: ", "create it first: ", "mount it with: ", "unmount it: ", "end it: "];

/// Fits a message into so many columns, if that can be done by cutting its longest words, which are names, in their middle: begin and
/// end say most. Its sentence is cut only beyond that of any screen, and a command that it recommends stays as it is.
pub(crate) fn for_people(text: &str, columns: usize) -> String {
    /// Names keep so many columns.
    const LEAST: usize = 40;
    /// Characters of a message, at most.
    const MOST: usize = 490;
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let command = COMMANDS.iter().filter_map(|words| Some(text.find(words)? + words.len())).min();
    let (text, command) = text.split_at(command.unwrap_or(text.len()));
    let words: Vec<(&str, usize)> = text.split(' ').map(|word| (word, word.chars().count())).collect();
    let spaces = words.len() - 1;
    // The largest length that leaves all of them short enough.
    let (mut fits, mut exceeds) = (LEAST, columns + 1);
    while exceeds - fits > 1 {
        let middle = fits.midpoint(exceeds);
        let all: usize = words.iter().map(|(_, count)| (*count).min(middle)).sum();
        if all + spaces <= columns { fits = middle } else { exceeds = middle }
    }
    let words: Vec<String> = words.into_iter().map(|(word, _)| cut(word, fits)).collect();
    cut(&(words.join(" ") + command), MOST)
}

/// Cuts a text to so many characters, in its middle.
pub(crate) fn cut(text: &str, most: usize) -> String {
    const GAP: &str = "...";
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let (first, last) = (most.saturating_sub(GAP.len()).div_ceil(2), most.saturating_sub(GAP.len()) / 2);
    let begin = text.chars().take(first);
    begin.chain(GAP.chars()).chain(text.chars().skip(count - last)).collect()
}

/// A type letter and permission bits as `ls -l` writes them, such as `drwxr-xr-x`.
pub(crate) fn mode_string(kind: char, mode: u32) -> String {
    let mut out = String::from(kind);
    for (shift, special, lower, upper) in
        [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        let bits = mode >> shift;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => lower,
            (false, true) => upper,
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    out
}

/// Writes a time as `ls -l` does: with the hour when it is at most half a year away, else with the year.
pub(crate) fn listing_time(seconds: i64, now: Timestamp, zone: &TimeZone) -> String {
    const HALF_A_YEAR: i64 = 31_556_952 / 2;
    let Ok(time) = Timestamp::from_second(seconds) else {
        return "?".to_owned();
    };
    let age = now.as_second() - seconds;
    let recent = (-60..HALF_A_YEAR).contains(&age);
    let format = if recent { "%b %e %H:%M" } else { "%b %e  %Y" };
    time.to_zoned(zone.clone()).strftime(format).to_string()
}

/// Writes a time to the nanosecond, as `stat` does.
pub(crate) fn full_time(seconds: i64, nanoseconds: u32, zone: &TimeZone) -> String {
    match Timestamp::new(seconds, i32::try_from(nanoseconds).unwrap_or(0)) {
        Ok(time) => time.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S.%9f %z").to_string(),
        Err(_) => "?".to_owned(),
    }
}

/// Writes a time for programs: RFC 3339, with all nine digits of the nanoseconds.
pub(crate) fn exact_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%9fZ").to_string()
}

/// Lays words out in columns, read downwards, as `ls` does on a terminal; `paint` gets the place of each word and the word.
pub(crate) fn columns(words: &[String], width: usize, paint: impl Fn(usize, &str) -> String) -> String {
    const GAP: usize = 2;
    let widths: Vec<usize> = words.iter().map(|word| word.chars().count() + GAP).collect();
    let shape = |rows: usize| -> Vec<usize> {
        widths.chunks(rows).map(|column| column.iter().copied().max().unwrap_or(0)).collect()
    };
    let rows = (1..=words.len()).find(|&rows| shape(rows).iter().sum::<usize>() <= width + GAP);
    let rows = rows.unwrap_or(words.len());
    let shape = if words.is_empty() { Vec::new() } else { shape(rows) };
    let mut out = String::new();
    for row in 0..rows {
        let mut gap = 0;
        for (column, width) in shape.iter().enumerate() {
            let at = column * rows + row;
            let Some(word) = words.get(at) else { break };
            let _ = write!(out, "{:gap$}{}", "", paint(at, word));
            gap = width - word.chars().count();
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_no_character_that_a_terminal_obeys_and_reads_back_as_it_was() {
        for name in
            ["\u{9b}31m", "\u{7f}", "\u{85}", "\u{202e}gpj", "\u{1b}[31m", "plain \\ \"größe\"", "a\nb"]
        {
            let value = serde_json::json!({"name": name, name: 1});
            let line = json_line(&value);
            let (last, text) = line.as_bytes().split_last().unwrap();
            assert_eq!(*last, b'\n');
            let text = str::from_utf8(text).unwrap();
            assert!(!text.chars().any(|it| it != '\\' && needs_escape(it)), "{text:?}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(text).unwrap(), value);
        }
    }

    #[test]
    fn hostile_names_cannot_drive_the_terminal() {
        assert_eq!(escape("größe.txt".as_bytes()), "größe.txt");
        assert_eq!(escape(b"a\x1b[31m\n"), "a\\u{1b}[31m\\n");
        assert_eq!(escape(b"\xff\\"), "\\xff\\\\");
        assert_eq!(escape("gpj\u{202e}.exe".as_bytes()), "gpj\\u{202e}.exe");
        assert_eq!(escape("\u{9b}31m".as_bytes()), "\\u{9b}31m");
    }

    #[test]
    fn long_messages_are_cut_in_the_middle_of_their_longest_words() {
        assert_eq!(for_people("nas:/a: no such file", 100), "nas:/a: no such file");
        let path = format!("nas:/{}/end", "x".repeat(4000));
        let text = format!("{path}: cannot be copied to other");
        let short = for_people(&text, 100);
        assert_eq!(short.chars().count(), 100, "{short}");
        assert!(
            short.starts_with("nas:/xxx") && short.ends_with("x/end: cannot be copied to other"),
            "{short}"
        );
        assert!(short.contains("x...x"), "{short}");
        let two = for_people(&format!("{path} -> {path}: odd"), 100);
        assert!(two.matches("/end").count() == 2 && two.chars().count() <= 100, "{two}");
        // A sentence is not cut for the sake of columns, nor are names cut to nothing for it.
        let advice = "so many words ".repeat(20);
        let long = for_people(&format!("{path}: {advice}"), 100);
        assert!(long.ends_with(&advice) && long.split(' ').next().unwrap().chars().count() == 40, "{long}");
        let words = "so many words ".repeat(10_000);
        assert_eq!(for_people(&words, 100).chars().count(), 490);
        assert!(for_people(&"ö".repeat(100_000), 100).contains("ö...ö"));
    }

    #[test]
    fn commands_in_messages_stay_as_they_are() {
        let path = format!("nas:/{}/end", "x".repeat(120));
        let command = format!("run again: nfsw cp {path} there");
        let text = format!("{path}: interrupted; {command}");
        let short = for_people(&text, 100);
        assert!(short.ends_with(&command) && short.len() < text.len(), "{short}");
        let told = format!("logs/ does not exist; create it first: nfsw mkdir {path}");
        assert_eq!(for_people(&told, 100), told);
    }

    #[test]
    fn quoted_words_survive_a_shell() {
        assert_eq!(shell_quote(b"nas:/a/b-c.d"), "nas:/a/b-c.d");
        assert_eq!(shell_quote(b""), "''");
        assert_eq!(shell_quote(b"it's"), "'it'\\''s'");
        assert_eq!(shell_quote(b"a?b"), "'a?b'");
        assert_eq!(shell_quote(b"a\n\xff'"), "$'a\\x0a\\xff\\''");
    }

    #[test]
    fn modes_read_like_ls() {
        assert_eq!(mode_string('-', 0o644), "-rw-r--r--");
        assert_eq!(mode_string('d', 0o1777), "drwxrwxrwt");
        assert_eq!(mode_string('-', 0o6755), "-rwsr-sr-x");
        assert_eq!(mode_string('-', 0o4644), "-rwSr--r--");
    }

    #[test]
    fn old_times_show_the_year() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        assert_eq!(listing_time(1_700_000_000 - 3600, now, &TimeZone::UTC), "Nov 14 21:13");
        assert_eq!(listing_time(0, now, &TimeZone::UTC), "Jan  1  1970");
        assert_eq!(listing_time(1_800_000_000, now, &TimeZone::UTC), "Jan 15  2027");
        assert_eq!(listing_time(i64::MAX, now, &TimeZone::UTC), "?");
        assert_eq!(full_time(1, 5, &TimeZone::UTC), "1970-01-01 00:00:01.000000005 +0000");
    }

    #[test]
    fn columns_fill_the_width_downwards() {
        let columns = |words: &[String], width| columns(words, width, |_, word| word.to_owned());
        let words: Vec<String> = ["a", "bb", "c", "dddd"].map(str::to_owned).to_vec();
        assert_eq!(columns(&words, 80), "a  bb  c  dddd\n");
        assert_eq!(columns(&words, 9), "a   c\nbb  dddd\n");
        assert_eq!(columns(&words, 3), "a\nbb\nc\ndddd\n");
        assert_eq!(columns(&[], 80), "");
        let painted =
            super::columns(&words, 9, |at, word| if at == 0 { format!("<{word}>") } else { word.to_owned() });
        assert_eq!(painted, "<a>   c\nbb  dddd\n", "colours take no columns");
    }
}
