//! The sections of manual pages that follow the options, in the order of man-pages(7).

use std::io::{self, Write};

use clap_mangen::roff::{Roff, bold, roman};

const EXIT_STATUS: &[(&str, &str)] = &[
    ("0", "Done. What was written to a server is on its stable storage."),
    ("1", "Some files failed."),
    ("2", "The command line is wrong."),
    ("3", "The server cannot be reached (within --timeout, if given), or refuses the mount."),
    ("4", "A source is missing."),
    (
        "5",
        "Gave up: --deadline has passed, --timeout has passed after the mount, or what answers is not NFS. The same command resumes.",
    ),
    ("6", "A copy differs from its source."),
    ("7", "A local file or disk failed."),
    ("130", "Interrupted by a signal. The same command resumes."),
];

const ENVIRONMENT: &[(&str, &str)] = &[
    (
        "NFSW_LOG",
        "What is logged on standard error, as for tracing-subscriber's EnvFilter: debug, or nfs_proto=trace.",
    ),
    ("NFSW_OPTS", "Long options for the commands that talk to a server, quoted as for a shell."),
    ("NO_COLOR", "If it is set, there are no colours, except with --color always."),
    ("XDG_CONFIG_HOME", "Where the configuration is, instead of ~/.config."),
    ("XDG_STATE_HOME", "Where the state directory is, instead of ~/.local/state."),
    ("XDG_CACHE_HOME", "Where the caches are, instead of ~/.cache."),
];

const NETWORK_ENVIRONMENT: &[(&str, &str)] = &[
    ("NFSW_HOST", "Set for COMMAND: the address of this host, as seen from behind the link."),
    ("NFSW_HOST6", "The same for IPv6."),
];

const FILES: &[(&str, &str)] = &[
    ("~/.config/nfsw/config.toml", "Hosts, and defaults of options."),
    (
        ".NAME.nfsw-part",
        "The partial file of a copy, beside its target; renamed to NAME when it is complete. On a server the name ends with a dash and a \
         number that only your runs on this machine have.",
    ),
    (".NAME.nfsw-journal-USER", "Which ranges of a download's partial file are copied."),
    (".nfsw-incomplete", "In a directory that a copy has made and not completed."),
    (
        "~/.local/state/nfsw",
        "Journals of uploads, and lists of complete files of trees. If they are deleted, interrupted copies restart.",
    ),
    ("~/.cache/nfsw/paths.json", "Estimates of paths to servers, used for half an hour."),
    (
        "~/.cache/nfsw/servers.json",
        "Ports, exports and handles of servers, which the next command tries first.",
    ),
    ("~/.cache/nfsw/mount", "What nfsw mount has read; nfsw cache lists and changes it."),
];

/// Returns the sections of a command's page in roff: exit status, environment, files, and what its help ends with.
pub(super) fn after_options(page: &str, notes: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    // It ends with the status of its command, as its notes say.
    let is_link_exec = page == "nfsw-link-exec";
    if !is_link_exec {
        list("EXIT STATUS", EXIT_STATUS, &mut text)?;
    }
    let network = if is_link_exec { NETWORK_ENVIRONMENT } else { &[] };
    list("ENVIRONMENT", &[ENVIRONMENT, network].concat(), &mut text)?;
    if ["nfsw", "nfsw-cp", "nfsw-sync", "nfsw-mount"].contains(&page) {
        list("FILES", FILES, &mut text)?;
    }
    let (notes, examples) = split(notes);
    lines("NOTES", &notes, &mut text)?;
    lines("EXAMPLES", &examples, &mut text)?;
    Ok(text)
}

/// Splits the end of a help text: notes, and the lines below "Examples:". The exit status has a section of its own.
fn split(help: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut notes, mut examples) = (Vec::new(), Vec::new());
    let mut section = &mut notes;
    let mut dropped = Vec::new();
    for line in help.lines() {
        match line {
            "Example:" | "Examples:" => section = &mut examples,
            "Exit status:" => section = &mut dropped,
            "" => section = &mut notes,
            _ => section.push(line),
        }
        if line.is_empty() {
            section.push(line);
        }
    }
    (notes, examples)
}

fn list(heading: &str, entries: &[(&str, &str)], page: &mut impl Write) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", [heading]);
    for (name, meaning) in entries {
        roff.control("TP", []).text([bold(*name)]).text([roman(*meaning)]);
    }
    roff.to_writer(page)
}

/// Writes paragraphs, and indented lines, which stay as they are.
fn lines(heading: &str, lines: &[&str], page: &mut impl Write) -> io::Result<()> {
    let kept = lines.iter().any(|line| !line.is_empty());
    let mut roff = Roff::new();
    if kept {
        roff.control("SH", [heading]);
    }
    let paragraphs = lines.split(|line| line.is_empty()).filter(|paragraph| !paragraph.is_empty());
    for (index, paragraph) in paragraphs.enumerate() {
        if index > 0 {
            roff.control("PP", []);
        }
        for line in paragraph {
            match line.starts_with(' ') {
                true => roff.control("nf", []).text([roman(*line)]).control("fi", []),
                false => roff.text([roman(*line)]),
            };
        }
    }
    roff.to_writer(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_help_text_becomes_sections() {
        for help in ["Example:\n  nfsw ls nas:/", "Examples:\n  nfsw ls nas:/"] {
            let page = String::from_utf8(after_options("nfsw-ls", help).unwrap()).unwrap();
            assert!(page.contains(".SH EXAMPLES") && !page.contains(".SH NOTES"), "{page}");
        }
        let help = "A note.\n\nExamples:\n  nfsw ls nas:/\n\nAnother.\n  As it is.\n\nExit status:\n  0 done\nAfter 5 again.";
        let page = String::from_utf8(after_options("nfsw-ls", help).unwrap()).unwrap();
        let headings = page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect::<Vec<_>>();
        assert_eq!(headings, ["\"EXIT STATUS\"", "ENVIRONMENT", "NOTES", "EXAMPLES"]);
        let (notes, examples) = page.split_once(".SH EXAMPLES").unwrap();
        assert!(notes.contains("A note.\n.PP\nAnother.\n.nf\n  As it is.\n.fi\n"), "{notes}");
        assert!(examples.contains("nfsw ls nas:/") && !page.contains("After 5 again"), "{page}");
    }

    #[test]
    fn copies_tell_their_files_and_links_their_host() {
        let page = |name| String::from_utf8(after_options(name, "").unwrap()).unwrap();
        assert!(page("nfsw-cp").contains("nfsw\\-journal") && !page("nfsw-ls").contains(".SH FILES"));
        assert!(page("nfsw-link-exec").contains("NFSW_HOST") && !page("nfsw-cp").contains("NFSW_HOST"));
        assert!(!page("nfsw-cp").contains(".SH NOTES"));
        assert!(!page("nfsw-link-exec").contains("EXIT STATUS"), "it is that of its command");
    }
}
