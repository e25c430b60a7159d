//! Every `nfsw ...` in a shell example of the documents is a command line that is understood.

use std::{fs, path::PathBuf};

use clap::Parser;

use super::Cli;

/// The command lines of `nfsw` in a line of shell: after pipes and `&&`, behind `sudo`, and behind the `--` of another one.
fn command_lines(line: &str) -> Vec<Vec<String>> {
    let words = shlex::split(line).unwrap_or_else(|| panic!("not a line of shell: {line}"));
    let mut found = Vec::new();
    for part in words.split(|word| ["|", "&&", "||", ";", "&"].contains(&word.as_str())) {
        let mut part =
            part.iter().take_while(|word| !word.starts_with(['>', '<'])).cloned().collect::<Vec<_>>();
        if part.first().is_some_and(|word| word == "sudo") {
            part.remove(0);
        }
        if part.first().is_some_and(|word| word == "nfsw") {
            if let Some(behind) = part.iter().position(|word| word == "--")
                && part.get(behind + 1).is_some_and(|word| word == "nfsw")
            {
                found.push(part[behind + 1..].to_vec());
            }
            found.push(part);
        }
    }
    found
}

/// The lines of all `sh` blocks of a page, those that end in a backslash joined with the next.
fn shell_lines(page: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut inside = false;
    let joined = page.replace("\\\n", " ");
    for line in joined.lines().map(str::trim_start) {
        match line {
            "```sh" => inside = true,
            line if line.starts_with("```") => inside = false,
            line if inside => lines.push(line.to_owned()),
            _ => {}
        }
    }
    lines
}

#[test]
fn command_lines_are_found_behind_pipes_and_dashes() {
    let found = command_lines("sudo nfsw link exec -- nfsw ls 'a b' | nfsw cat x > y  # nfsw never");
    let words = |line: &str| shlex::split(line).unwrap();
    assert_eq!(
        found,
        [words("nfsw ls 'a b'"), words("nfsw link exec -- nfsw ls 'a b'"), words("nfsw cat x")]
    );
}

#[test]
fn every_command_line_of_the_documents_is_understood() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut seen = 0;
    for page in
        pages.chain(["README.md", "CONTRIBUTING.md", "crates/cli/README.md"].map(|page| root.join(page)))
    {
        if page.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        for line in shell_lines(&fs::read_to_string(&page).unwrap()) {
            for arguments in command_lines(&line) {
                // `--help` and what it lists are no errors of the command line, but clap returns them as such.
                if let Err(error) = Cli::try_parse_from(&arguments)
                    && error.use_stderr()
                {
                    panic!("{}: {line}\n{error}", page.display());
                }
                seen += 1;
            }
        }
    }
    assert!(seen >= 30, "only {seen} command lines were found");
}
