use clap::{CommandFactory, Parser};

use super::*;
use crate::args::Cli;

fn line(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

/// What is said of a command line that is wrong.
fn said(words: &[&str]) -> Option<String> {
    let line = line(words);
    sentence(&Cli::try_parse_from(&line).expect_err(&words.join(" ")), &line)
}

#[test]
fn a_sync_of_several_sources_is_answered() {
    let said = said(&["nfsw", "sync", "a", "b", "nas:/c"]).unwrap();
    assert!(said.contains("nas:/c is one more") && said.contains("nfsw cp -a SRC... DST"), "{said}");
}

#[test]
fn every_entry_is_about_something_that_is_not_available_and_is_found() {
    for (commands, options, instead) in OPTIONS {
        for command in *commands {
            for option in *options {
                let flag = match *option {
                    // There is an option of this name, without a value.
                    "--preserve" | "--update" => format!("{option}=x"),
                    option => option.to_owned(),
                };
                let found = said(&["nfsw", command, &flag, "nas:/a", "b"]);
                assert_eq!(found, Some(format!("{command} {option}: {instead}")), "{command} {flag}");
            }
        }
    }
    for (names, instead) in COMMANDS {
        for name in *names {
            let found = said(&["nfsw", name, "nas:/a"]).unwrap();
            assert!(found.ends_with(instead), "{found}");
        }
    }
}

/// An option that is recommended exists, in the command that is named or in one that the entry is about.
#[test]
fn what_is_recommended_exists() {
    let mut program = Cli::command();
    program.build();
    let has = |command: &str, option: &str| {
        let command = program.find_subcommand(command).unwrap_or_else(|| panic!("nfsw {command}"));
        command.get_arguments().any(|argument| match option.strip_prefix("--") {
            Some(long) => argument.get_long_and_visible_aliases().unwrap_or_default().contains(&long),
            None => option[1..].chars().all(|letter| {
                let letters = command.get_arguments().filter_map(clap::Arg::get_short_and_visible_aliases);
                letters.flatten().any(|it| it == letter)
            }),
        })
    };
    let entries = OPTIONS.iter().map(|(commands, options, instead)| (*commands, *options, *instead));
    let mounts = MOUNT_OPTIONS.iter().map(|(_, instead)| (&["mount"][..], &[][..], *instead));
    let commands = COMMANDS.iter().map(|(_, instead)| (&[][..], &[][..], *instead));
    let mut seen = 0;
    for (about, typed, instead) in entries.chain(mounts).chain(commands) {
        let mut command: Option<&str> = None;
        // What stands in brackets is said of other programs.
        let told = instead.split('(').map(|part| part.split_once(')').map_or(part, |(_, rest)| rest));
        let words: Vec<&str> = told.flat_map(|part| part.split([' ', ':', ',', ';', ')'])).collect();
        for (at, word) in words.iter().map(|word| word.trim_end_matches('.')).enumerate() {
            if at > 0 && words[at - 1] == "nfsw" && program.find_subcommand(word).is_some() {
                command = Some(word);
            }
            let is_option = word.len() > 1 && word.starts_with('-') && word != "--";
            if is_option && !typed.contains(&word) {
                let among = command.map_or(about, |_| &[]).iter().copied().chain(command);
                let found = among.clone().any(|command| has(command, word))
                    || about.iter().any(|command| has(command, word));
                assert!(found, "{word} in: {instead}");
                seen += 1;
            }
        }
    }
    assert!(seen > 40, "{seen}");
}

#[test]
fn options_of_mount_are_translated() {
    let mount = |words: &[&str]| said(&[&["nfsw", "mount"], words, &["nas:/srv", "there"]].concat()).unwrap();
    let told = mount(&["-o", "ro,vers=3,proto=udp,mountport=2048,x-odd"]);
    let wanted = "mount -o: nfsw mount takes its options by their own names: ro is not needed; vers=3 is not needed; \
        proto=udp is --transport udp; mountport=2048 is part of the name: nfs://HOST/PATH?mountport=2048; x-odd has no counterpart";
    assert_eq!(told, wanted);
    assert!(mount(&["-orw,vers=4.2"]).ends_with(
        "rw is not available: nfsw mounts read-only; vers=4.2 is not available: nfsw speaks NFSv3"
    ));
}

#[test]
fn options_of_rsync_and_scp_are_accepted() {
    for words in [
        "nfsw cp -avzP a nas:/b",
        "nfsw cp -avh --progress --partial a nas:/b",
        "nfsw cp -rpCq nas:/a b",
        "nfsw cp -f nas:/a b",
        "nfsw sync -avzhP --delete --stats a nas:/b",
        "nfsw sync -rlptgoDHSWv a nas:/b",
        "nfsw sync -aui --info=progress2 --delete-after --bwlimit=500 --numeric-ids a nas:/b",
        "nfsw sync -a --no-D --no-compress --info=name,stats2 a nas:/b",
        "nfsw sync -a --ignore-existing --itemize-changes a nas:/b",
    ] {
        Cli::try_parse_from(words.split(' ')).unwrap_or_else(|error| panic!("{words}: {error}"));
    }
}

#[test]
fn the_letter_h_alone_asks_for_help() {
    for (words, is_help) in [
        (&["nfsw", "cp", "-h"][..], true),
        (&["nfsw", "sync", "-h"], true),
        (&["nfsw", "sync", "-ah"], false),
        (&["nfsw", "sync", "-h", "a"], false),
    ] {
        let line = line(words);
        let error = Cli::try_parse_from(&line).unwrap_err();
        assert_eq!(asks_for_help(&error, &line), is_help, "{words:?}");
    }
}
