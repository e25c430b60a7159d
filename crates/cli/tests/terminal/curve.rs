//! `nfsw curve` as a person uses it.

use std::{
    fs,
    io::Read,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::common::{nfsw, ok, stderr};

#[test]
fn every_combination_is_a_row_and_the_plots_are_beside_them() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    let arguments =
        ["curve", "--bad", "0,40,..,80", "--policy", "hybrid,adaptive", "--size", "64K", "--runs", "2"];
    let text = ok([&arguments[..], &["--json", "--out", out]].concat());
    let rows: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 12, "two ways, two policies, three bad periods");
    assert!(rows.iter().all(|row| row["mean_s"].as_f64().unwrap() >= row["min_s"].as_f64().unwrap()));
    for file in ["index.html", "curve.svg", "curve.png", "curve.csv", "curve.json"] {
        assert!(fs::metadata(directory.path().join(file)).unwrap().len() > 500, "{file}");
    }
    assert_eq!(ok([&arguments[..], &["--json"]].concat()), text, "the same seeds, the same numbers");
}

#[test]
fn parts_of_a_sweep_are_merged_into_the_bytes_of_one_run() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    let sweep =
        ["curve", "--bad", "0,80", "--transport", "udp,auto", "--size", "64K", "--runs", "5", "--seed", "3"];
    let run = |more: &[&str]| ok([&sweep[..], more].concat());
    let files: Vec<_> = (1..=3).map(|number| at(&format!("{number}.jsonl"))).collect();
    for (number, file) in files.iter().enumerate() {
        fs::write(file, run(&["--shard", &format!("{}/3", number + 1)])).unwrap();
    }
    let merge: Vec<_> = ["--merge"].into_iter().chain(files.iter().map(String::as_str)).collect();
    assert_eq!(run(&merge), run(&[]));
    let [one, merged] = ["one", "merged"].map(at);
    assert_eq!(run(&[&merge[..], &["--json", "--out", &merged]].concat()), run(&["--json", "--out", &one]));
    for file in ["index.html", "curve.csv", "curve.json", "curve.svg", "curve.png"] {
        let [one, merged] = [&one, &merged].map(|it| fs::read(Path::new(it).join(file)).unwrap());
        assert!(one == merged, "{file}");
    }

    fs::write(at("cut"), &fs::read(&files[0]).unwrap()[..500]).unwrap();
    for (arguments, part) in [
        (&["--merge", &files[0], &files[2]][..], "in none of the files, which are the parts 1/3, 3/3"),
        (&["--size", "32K", "--merge", &files[0]], "is part of another sweep; repeat the options"),
        (&["--merge", &at("cut")], "ends early"),
        (&["--merge", &at("one/index.html")], "line 1: is not what --shard prints"),
        (&["--shard", "4/3"], "K from 1 to N"),
        (&["--shard", "1/3", "--json"], "--json"),
    ] {
        let options =
            if arguments[0] == "--size" { &["curve", "--bad", "0,80", "--runs", "5"][..] } else { &sweep };
        let output = nfsw([options, arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(part), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn transports_are_rows_of_their_own() {
    let text =
        ok(["curve", "--transport", "udp,tcp", "--op", "read", "--size", "64K", "--runs", "1", "--json"]);
    let rows: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&rows[0]["transport"], &rows[1]["transport"]), (&"udp".into(), &"tcp".into()), "{text}");
    assert_ne!(rows[0]["mean_s"], rows[1]["mean_s"], "{text}");
}

#[test]
fn published_figures_are_printed_with_ours_beside_them() {
    let text = ok(["curve", "--figure", "1995-table-7", "--runs", "2"]);
    assert!(
        text.contains("Table 7, section 4.4") && text.contains("30.7") && text.contains("14.2"),
        "{text}"
    );
}

#[test]
fn recorded_channels_are_read_from_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    // 1.5 Mbit/s for 8 s, then nothing for 2 s.
    let opportunities: String = (1..=1000).map(|number| format!("{}\n", 8 * number)).collect();
    fs::write(directory.path().join("train.trace"), opportunities + "10000\n").unwrap();
    fs::write(directory.path().join("train.toml"), "rate_trace = \"train.trace\"\ndelay = \"20ms\"\n")
        .unwrap();
    let traces = ["--traces", directory.path().to_str().unwrap()];
    let figure =
        |more: &[&str]| ok([&["curve", "--figure", "recorded", "--runs", "1"], more, &traces].concat());
    let text = figure(&[]);
    assert!(text.contains("train") && text.contains("median over the limit"), "{text}");
    let rows: Vec<serde_json::Value> =
        figure(&["--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let lasted = |row: &serde_json::Value| row["mean_s"].as_f64().unwrap();
    assert!(rows.len() >= 2 && rows.iter().all(|row| (28.0..40.0).contains(&lasted(row))), "{rows:?}");
}

#[test]
fn a_recording_lies_beside_the_file_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("link.toml"), "rate_trace = \"a.trace\"\n").unwrap();
    let times: Vec<String> = (1..=100).map(|number| (number * 10).to_string()).collect();
    fs::write(directory.path().join("a.trace"), times.join("\n")).unwrap();
    let link = directory.path().join("link.toml");
    let link = link.to_str().unwrap();
    for room in ["modern", "lan-50ms"] {
        let text = ok(["curve", "--room", room, "--config", link, "--size", "64K", "--runs", "1", "--json"]);
        assert!(text.contains("\"op\":\"read\""), "{room}: {text}");
    }
}

#[test]
fn what_cannot_be_is_said_with_the_choice_and_the_bound() {
    for (arguments, part) in [
        (&["curve", "--figure", "1997-2"][..], "rxhex-13"),
        (&["curve", "--figure", "cellular,recorded"], "--traces"),
        (&["curve", "--figure", "ablation"], "--traces"),
        (&["curve", "--figure", "recorded", "--traces", "missing"], "missing"),
        (&["curve", "--figure", "1997-5", "--bad", "40"], "--bad"),
        (&["curve", "--room", "attic"], "paper-1997"),
        (&["curve", "--policy", "hope"], "exponential"),
        (&["curve", "--size", "0"], "1 byte"),
        (&["curve", "--clients", "0"], "1 to 10000"),
        (&["curve", "--bad", "-40"], "-4"),
        (&["curve", "--rate", "0"], "rate"),
        (&["curve", "--runs", "0"], "--runs"),
        (&["curve", "--bad", "0", "--runs", "1", "--size", "8K", "--out", "/proc/none"], "/proc/none"),
    ] {
        let output = nfsw(arguments);
        let (code, error) = (output.status.code().unwrap(), stderr(&output));
        assert!(code == 2 || code == 7, "{arguments:?}: {code}");
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
}

#[test]
fn interruption_ends_with_its_status_and_says_what_is_complete() {
    let mut process = Command::new(env!("CARGO_BIN_EXE_nfsw"))
        .args(["curve", "--bad", "0,80", "--op", "read", "--runs", "100000"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Until it listens to SIGINT, which is bit 1 of the caught signals.
    let status = format!("/proc/{}/status", process.id());
    let catches = |text: &str| {
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    while catches(&fs::read_to_string(&status).unwrap()).is_none_or(|mask| mask & 2 == 0) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&process);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut error = String::new();
    process.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(130));
    assert!(error.contains("interrupted") && error.contains("of 2"), "{error}");
}
