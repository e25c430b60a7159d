//! Runs that end in the middle, and what the next run makes of it.

use std::{
    fs,
    os::unix::{
        fs::{FileExt, MetadataExt, PermissionsExt, symlink},
        process::ExitStatusExt,
    },
    path::Path,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::common::{
    Server, assert_same_tree, command, fails, journal, names, nfsw, noise, ok, part, rest_of, stderr,
};
use serde_json::Value;

const SIZE: usize = 4 << 20;

/// What a run is asked for, so that it is slow enough to be interrupted.
const SLOWLY: [&str; 3] = ["cp", "--bwlimit", "16Mbit"];

/// Starts a copy and kills it once `reached`.
fn killed(arguments: &[&str], reached: impl Fn() -> bool) {
    let mut copy = started(arguments);
    wait_for(reached);
    copy.kill().unwrap();
    let status = copy.wait().unwrap();
    assert_eq!(status.signal(), Some(9), "it was done before it could be killed");
}

fn started(arguments: &[&str]) -> Child {
    command(SLOWLY).args(arguments).stderr(Stdio::piped()).spawn().unwrap()
}

fn wait_for(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited in vain");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Bytes of a file that is being written, wherever they are in it.
fn written(target: &Path) -> u64 {
    fs::metadata(part(target)).map_or(0, |metadata| metadata.blocks() * 512)
}

/// The events of a run, by their name.
fn events(output: &str, name: &str) -> Vec<Value> {
    let all = output.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|event| event["event"] == name).collect()
}

/// Bytes that a run of `nfsw cp --json` found copied, and those it copied.
fn resumed(arguments: &[&str]) -> (u64, u64) {
    let output = ok(["cp", "--json"].iter().chain(arguments));
    let had = events(&output, "resumed").iter().map(|event| event["bytes"].as_u64().unwrap()).sum();
    (had, events(&output, "summary")[0]["bytes"].as_u64().unwrap())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_killed_download_resumes_where_it_was() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let content = noise(SIZE);
    fs::write(server.path("file"), &content).unwrap();
    for transport in ["udp", "tcp"] {
        let (url, target) = (server.url("/file"), here.path().join("file"));
        let mut had = 0;
        for kill in 1..3 {
            killed(&["--transport", transport, &url, text(&target)], || {
                written(&target) >= kill * SIZE as u64 / 4
            });
            assert!(!target.exists());
            // A run that ends at once costs nothing.
            killed(&["--transport", transport, &url, text(&target)], || true);
        }
        let (found, copied) = resumed(&["--transport", transport, &url, text(&target)]);
        had += found;
        assert!(had >= SIZE as u64 / 2 - (1 << 20), "{had}");
        assert_eq!(had + copied, SIZE as u64);
        assert!(fs::read(&target).unwrap() == content);
        assert_eq!(names(here.path()), ["file"]);
        fs::remove_file(target).unwrap();
    }
}

#[test]
fn a_download_is_written_by_its_user_alone_and_resumed_whatever_mode_it_gets() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    fs::write(server.path("file"), noise(SIZE)).unwrap();
    let (url, target) = (server.url("/file"), here.path().join("file"));
    let part = here.path().join(".file.nfsw-part");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    for (last, meanwhile) in [(0o600, 0o600), (0o640, 0o600), (0o664, 0o644), (0o666, 0o644), (0o440, 0o600)]
    {
        fs::write(&target, "old").unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(last)).unwrap();
        killed(&[&url, text(&target)], || written(&target) >= SIZE as u64 / 4);
        assert_eq!(mode(&part), meanwhile, "{last:o}");
        let (had, _) = resumed(&[&url, text(&target)]);
        assert!(had > 0 && mode(&target) == last, "{last:o}: {had}");
        fs::remove_file(&target).unwrap();
    }
}

#[test]
fn a_killed_upload_resumes_where_it_was() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let (content, source) = (noise(SIZE), here.path().join("file"));
    fs::write(&source, &content).unwrap();
    for transport in ["udp", "tcp"] {
        let (url, copy) = (server.url("/copy"), server.path("copy"));
        killed(&["--transport", transport, text(&source), &url], || written(&copy) >= SIZE as u64 / 2);
        assert!(!copy.exists());
        let (had, copied) = resumed(&["--transport", transport, text(&source), &url]);
        assert!(had >= SIZE as u64 / 2 - (1 << 20), "{had}");
        assert_eq!(had + copied, SIZE as u64);
        assert!(fs::read(server.path("copy")).unwrap() == content);
        assert_eq!(names(server.root.path()), ["copy"]);
        fs::remove_file(server.path("copy")).unwrap();
    }
}

#[test]
fn what_a_restarted_server_may_have_forgotten_is_sent_again() {
    let (mut server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let (content, source) = (noise(SIZE), here.path().join("file"));
    fs::write(&source, &content).unwrap();
    let (url, copy) = (server.url("/copy"), server.path("copy"));
    killed(&[text(&source), &url], || written(&copy) >= SIZE as u64 / 2);
    server.restart();
    // As a crash would have it.
    fs::OpenOptions::new().write(true).open(part(&copy)).unwrap().write_all_at(&noise(SIZE / 2), 7).unwrap();
    let (_, copied) = resumed(&[text(&source), &url]);
    assert_eq!(copied, SIZE as u64);
    assert!(fs::read(server.path("copy")).unwrap() == content);
}

#[test]
fn a_source_that_changed_is_begun_again_and_said() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let (local, far) = (here.path().join("file"), server.path("file"));
    for (source, target, from, to) in [
        (&far, &local, server.url("/file"), text(&local).to_owned()),
        (&local, &far, text(&local).to_owned(), server.url("/file")),
    ] {
        let mut content = noise(SIZE);
        fs::write(source, &content).unwrap();
        killed(&[&from, &to], || written(target) >= SIZE as u64 / 2);
        content[0] ^= 1;
        fs::write(source, &content).unwrap();
        let output = nfsw(["cp", &from, &to]);
        assert!(output.status.success());
        let said = stderr(&output);
        assert!(said.contains("changed since its copy was begun") && !said.contains("going on"), "{said}");
        assert!(fs::read(&local).unwrap() == content && fs::read(&far).unwrap() == content);
        fs::remove_file(local.clone()).unwrap();
        fs::write(&local, noise(SIZE)).unwrap();
    }
}

#[test]
fn a_source_that_changes_during_the_copy_is_copied_again() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let (local, far) = (here.path().join("file"), server.path("file"));
    let from_far = (&far, &local, server.url("/file"), text(&local).to_owned());
    let from_here = (&local, &far, text(&local).to_owned(), server.url("/file"));
    for (source, target, from, to) in [from_far, from_here] {
        fs::write(source, noise(SIZE)).unwrap();
        let copy = started(&[&from, &to]);
        wait_for(|| written(target) >= SIZE as u64 / 2);
        // Begins as it began, and ends in another way.
        let mut content = noise(SIZE);
        content[SIZE - 1] ^= 1;
        content.truncate(SIZE - 1000);
        fs::write(source, &content).unwrap();
        let output = copy.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(stderr(&output).contains("changed since its copy was begun"));
        assert!(fs::read(target).unwrap() == content);
        fs::remove_file(target).unwrap();
    }
}

#[test]
fn a_source_that_changes_on_its_way_to_another_server_is_copied_again() {
    let (server, other) = (Server::start(), Server::start());
    let (source, target) = (server.path("file"), other.path("copy"));
    fs::write(&source, noise(SIZE)).unwrap();
    let copy = started(&[&server.url("/file"), &other.url("/copy")]);
    wait_for(|| written(&target) >= SIZE as u64 / 2);
    let mut content = noise(SIZE);
    content[SIZE - 1] ^= 1;
    content.truncate(SIZE - 1000);
    fs::write(&source, &content).unwrap();
    let output = copy.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("changed since its copy was begun"));
    assert!(fs::read(target).unwrap() == content);
    assert_eq!(names(other.root.path()), ["copy"]);
}

#[test]
fn a_second_run_to_the_same_target_is_refused() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let source = here.path().join("source");
    fs::write(&source, noise(SIZE)).unwrap();
    fs::write(server.path("file"), noise(SIZE)).unwrap();
    let target = here.path().join("target");
    let mut copy = started(&[&server.url("/file"), text(&target)]);
    wait_for(|| part(&target).exists());
    let error = fails(7, ["cp", &server.url("/file"), text(&target)]);
    assert!(error.contains("another nfsw is writing this file"), "{error}");
    assert!(copy.wait().unwrap().success());

    let mut copy = started(&[text(&source), &server.url("/copy")]);
    wait_for(|| part(&server.path("copy")).exists());
    let error = fails(1, ["cp", text(&source), &server.url("/copy")]);
    assert!(error.contains("another nfsw is copying to this file"), "{error}");
    assert!(copy.wait().unwrap().success());

    let tree = here.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), noise(SIZE)).unwrap();
    let mut copy = started(&["-r", text(&tree), &server.url("/tree")]);
    wait_for(|| part(&server.path("tree/file")).exists());
    let error = fails(1, ["cp", "-r", text(&tree), &server.url("/tree")]);
    assert!(error.contains("another nfsw is copying the same to the same place"), "{error}");
    assert!(copy.wait().unwrap().success());
    assert_same_tree(&tree, &server.path("tree"), false);
}

#[test]
fn a_copy_in_place_leaves_nothing_of_an_interrupted_one() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let content = noise(SIZE);
    fs::write(server.path("file"), &content).unwrap();
    let (url, target) = (server.url("/file"), here.path().join("file"));
    let half = || written(&target) >= SIZE as u64 / 2;
    killed(&[&url, text(&target)], half);
    ok(["cp", "--inplace", &url, text(&target)]);
    assert!(fs::read(&target).unwrap() == content);
    assert_eq!(names(here.path()), ["file"]);
    // A partial file that is another's stays, and so does one of a copy in place that fails: the next run resumes it.
    killed(&[&url, text(&target)], half);
    fs::rename(part(&target), here.path().join("moved")).unwrap();
    fs::write(part(&target), "another").unwrap();
    ok(["cp", "--inplace", &url, text(&target)]);
    assert_eq!(names(here.path()), [".file.nfsw-part", "file", "moved"]);
    fs::remove_file(here.path().join("moved")).unwrap();
    killed(&[&url, text(&target)], half);
    fails(4, ["cp", "--inplace", &server.url("/missing"), text(&target)]);
    let (had, copied) = resumed(&[&url, text(&target)]);
    assert!(had > 0 && had + copied == SIZE as u64, "{had} {copied}");
    assert_eq!(names(here.path()), ["file"]);
}

#[test]
fn a_copy_in_place_beside_one_that_is_under_way_is_refused() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    fs::write(server.path("file"), noise(SIZE)).unwrap();
    let (url, target) = (server.url("/file"), here.path().join("file"));
    for was_there in [false, true] {
        if was_there {
            fs::write(&target, "old").unwrap();
        }
        let mut copy = started(&[&url, text(&target)]);
        wait_for(|| written(&target) >= SIZE as u64 / 2);
        let error = fails(7, ["cp", "--inplace", &url, text(&target)]);
        assert!(error.contains("another nfsw is writing this file"), "{error}");
        assert_eq!(fs::read(&target).ok(), was_there.then(|| b"old".to_vec()));
        // The first one can still be resumed.
        copy.kill().unwrap();
        copy.wait().unwrap();
        let (had, copied) = resumed(&[&url, text(&target)]);
        assert!(had > 0 && had + copied == SIZE as u64, "{had} {copied}");
        fs::remove_file(&target).unwrap();
    }
}

#[test]
fn without_resume_everything_is_copied_again() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let content = noise(SIZE);
    fs::write(server.path("file"), &content).unwrap();
    let (url, target) = (server.url("/file"), here.path().join("file"));
    let half = || written(&target) >= SIZE as u64 / 2;
    killed(&[&url, text(&target)], half);
    // What this run leaves is not taken for what the first one has left.
    killed(&["--no-resume", &url, text(&target)], || written(&target) >= SIZE as u64 / 8 && !half());
    assert_eq!(resumed(&[&url, text(&target)]), (0, SIZE as u64));
    assert!(fs::read(&target).unwrap() == content);

    let (there, copy) = (server.url("/copy"), server.path("copy"));
    killed(&[text(&target), &there], || written(&copy) >= SIZE as u64 / 2);
    assert_eq!(resumed(&["--no-resume", text(&target), &there]), (0, SIZE as u64));
    assert!(fs::read(&copy).unwrap() == content);
    assert_eq!(names(here.path()), ["file"]);
}

#[test]
fn whatever_is_in_a_journal_the_copy_is_right() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let content = noise(SIZE / 4);
    fs::write(server.path("file"), &content).unwrap();
    let (url, target) = (server.url("/file"), here.path().join("file"));
    let (part, journal) = (part(&target), here.path().join(journal("file")));
    killed(&[&url, text(&target)], || written(&target) >= SIZE as u64 / 16);
    let (whole, kept) = (fs::read(&journal).unwrap(), fs::read(&part).unwrap());
    for damage in 0..4 {
        fs::write(&part, &kept).unwrap();
        match damage {
            0 => fs::write(&journal, noise(100_000)).unwrap(),
            1 => fs::write(&journal, &whole[..whole.len() / 2]).unwrap(),
            // Of another file: the journal is bound to the part that it was written for.
            2 => {
                fs::write(&journal, &whole).unwrap();
                fs::rename(&part, here.path().join("moved")).unwrap();
                fs::write(&part, noise(kept.len())).unwrap();
            }
            _ => fs::write(&part, &kept[..kept.len() / 3]).unwrap(),
        }
        ok(["cp", &url, text(&target)]);
        assert!(fs::read(&target).unwrap() == content, "damage {damage}");
        fs::remove_file(&target).unwrap();
    }
}

#[test]
fn a_tree_resumes_without_the_files_that_are_complete() {
    const FILES: usize = 120;
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let tree = here.path().join("tree");
    for number in 0..FILES {
        let directory = tree.join(format!("dir {}", number % 7));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("file {number}")), &noise(24_000)[..24_000 - number]).unwrap();
    }
    let total = (0..FILES).map(|number| 24_000 - number as u64).sum::<u64>();
    let (there, back) = (server.url("/tree"), here.path().join("back"));
    let count = |root: &Path| {
        let inside = |at: usize| fs::read_dir(root.join(format!("dir {at}"))).map_or(0, Iterator::count);
        (0..7).map(inside).sum::<usize>()
    };
    for (from, to, target) in
        [(text(&tree), &there[..], server.path("tree")), (&there[..], text(&back), back.clone())]
    {
        for preserve in ["-r", "-rp"] {
            // The more are in flight, the fewer are complete.
            killed(&["-j16", preserve, from, to], || count(&target) > FILES / 2);
            // One that is complete changes on either side: it is copied again.
            let complete =
                names(&target.join("dir 0")).into_iter().find(|name| text(name.as_ref()).starts_with('f'));
            fs::write(target.join("dir 0").join(complete.unwrap()), b"by somebody else").unwrap();
            let (_, copied) = resumed(&[preserve, from, to]);
            assert!(copied < total / 2 + (400 << 10), "{preserve}: {copied} of {total}");
            assert_same_tree(&tree, &target, preserve == "-rp");
            assert_eq!(
                resumed(&[preserve, from, to]),
                (0, total),
                "a run that was not interrupted is obeyed"
            );
            fs::remove_dir_all(&target).unwrap();
        }
        ok(["cp", "-rp", text(&tree), &there]);
    }
}

#[test]
fn a_tree_resumes_in_whatever_words() {
    const FILES: usize = 60;
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let tree = here.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for number in 0..FILES {
        fs::write(tree.join(format!("file {number:02}")), noise(40_000 + number)).unwrap();
    }
    ok(["cp", "-rp", text(&tree), &server.url("/tree")]);
    let back = here.path().join("back");
    let slashed = |url: &str| url.replace("/again?", "/again/?");
    let (far, again) = (server.url("/tree"), server.url("/again"));
    fs::create_dir(server.path("d")).unwrap();
    symlink("tree", server.path("lnk")).unwrap();
    let [around, through] = ["/d/../tree", "/lnk/"].map(|path| server.url(path));
    for (first, target, second, is_here) in [
        ([&far[..], "back"], &back, [&far[..], "back/"], true),
        ([&far, "back"], &back, [&far, "./back"], true),
        ([&far, "back/"], &back, [&far, text(&back)], true),
        ([&far, "back"], &back, [&around, "back"], true),
        ([&through, "back"], &back, [&far, "back"], true),
        ([text(&tree), &again], &server.path("again"), ["./tree/", &slashed(&again)], true),
        ([text(&tree), &again], &server.path("again"), ["../tree", &again], false),
    ] {
        for (preserve, forgets) in [(&[][..], false), (&["-p"], false), (&[], true)] {
            let complete = || fs::read_dir(target).map_or(0, Iterator::count);
            let state = tempfile::tempdir().unwrap();
            let run = |options: &[&str], ends: [&str; 2]| {
                let mut command = command(["cp", "-r"]);
                command.args(options).args(ends).current_dir(here.path()).stderr(Stdio::piped());
                command.env("XDG_STATE_HOME", state.path());
                command
            };
            let mut copy = run(&["--bwlimit", "16Mbit"], first).spawn().unwrap();
            wait_for(|| complete() > FILES / 2);
            copy.kill().unwrap();
            assert_eq!(copy.wait().unwrap().signal(), Some(9));
            let mut second = run(&[preserve, &["--json"]].concat(), second);
            if !is_here {
                fs::create_dir_all(here.path().join("elsewhere")).unwrap();
                second.current_dir(here.path().join("elsewhere"));
            }
            if forgets {
                // All but what tells that the partial files are of this user.
                let state = state.path().join("nfsw");
                let lists = names(&state).into_iter().filter(|name| name != "key");
                lists.for_each(|name| fs::remove_file(state.join(name)).unwrap());
            }
            let output = second.output().unwrap();
            assert!(output.status.success(), "{}", stderr(&output));
            // Not into itself, and what is complete is not copied again, unless it lacks its times.
            assert_same_tree(&tree, target, !preserve.is_empty());
            let counts = &events(str::from_utf8(&output.stdout).unwrap(), "summary")[0]["counts"];
            let left_out = counts["skipped"]["complete"].as_u64().unwrap();
            let is_expected = preserve.is_empty() && !forgets;
            assert!(if is_expected { left_out >= FILES as u64 / 8 } else { left_out == 0 }, "{counts}");
            fs::remove_dir_all(target).unwrap();
        }
    }
}

#[test]
fn what_an_interrupted_run_has_copied_is_verified_too() {
    const FILES: usize = 40;
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let tree = here.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for number in 0..FILES {
        fs::write(tree.join(format!("file {number:02}")), noise(60_000 + number)).unwrap();
    }
    let back = here.path().join("back");
    for (is_upload, from, to, target) in [
        (true, text(&tree), &server.url("/tree")[..], server.path("tree")),
        (false, &server.url("/tree"), text(&back), back.clone()),
    ] {
        let complete = || names(&target).into_iter().filter(|name| !text(name.as_ref()).starts_with('.'));
        killed(&["-r", from, to], || target.exists() && complete().count() > FILES / 2);
        // A byte of a complete copy goes wrong, and nothing shows it but, on this machine, the time of its last change.
        let wrong = target.join(complete().next().unwrap());
        let modified = fs::metadata(&wrong).unwrap().modified().unwrap();
        let file = fs::OpenOptions::new().write(true).open(&wrong).unwrap();
        file.write_all_at(b"?", 30_000).unwrap();
        file.set_modified(modified).unwrap();
        drop(file);
        let output = nfsw(["cp", "-r", "--verify", "--json", from, to]);
        let failed = usize::from(is_upload);
        assert_eq!(output.status.code(), Some(if is_upload { 6 } else { 0 }), "{}", stderr(&output));
        assert_eq!(stderr(&output).contains("differs from"), is_upload, "{}", stderr(&output));
        let counts = &events(str::from_utf8(&output.stdout).unwrap(), "summary")[0]["counts"];
        let skipped = counts["skipped"]["complete"].as_u64().unwrap();
        assert!(skipped >= FILES as u64 / 4, "what was recorded is not copied again: {counts}");
        assert_eq!(counts["done"].as_u64().unwrap() + skipped, (FILES - failed) as u64, "{counts}");
        assert_eq!(counts["verified"], FILES - failed, "{counts}");
        if !is_upload {
            assert_same_tree(&tree, &target, false);
            continue;
        }
        // It is not taken for complete any more.
        let output = nfsw(["cp", "-r", "--verify", from, to]);
        assert!(output.status.success(), "{}", stderr(&output));
        let said = format!(
            "nfsw: {FILES} files: 1 copied, {} copied by an earlier run, {FILES} verified; ",
            FILES - 1
        );
        assert!(stderr(&output).starts_with(&said), "{}", stderr(&output));
        assert_same_tree(&tree, &target, false);
    }
}

#[test]
fn trouble_with_the_state_directory_only_costs_the_resume() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    let source = here.path().join("file");
    fs::write(&source, noise(SIZE)).unwrap();
    let output = command(["cp", text(&source), &server.url("/copy")])
        .env("XDG_STATE_HOME", "/proc/nowhere")
        .output()
        .unwrap();
    assert!(output.status.success());
    assert!(stderr(&output).contains("nothing can be kept"), "{}", stderr(&output));
    assert!(fs::read(server.path("copy")).unwrap() == noise(SIZE));
}

#[test]
fn the_command_to_go_on_is_printed_and_works() {
    let (server, here) = (Server::start(), tempfile::tempdir().unwrap());
    // A busy machine may need a second to begin, and the whole takes four.
    let data = noise(2 * SIZE);
    fs::write(server.path("file"), &data).unwrap();
    let target = here.path().join("a name");
    let mut copy = started(&["--deadline", "2500ms", &server.url("/file"), text(&target)]);
    assert_eq!(copy.wait().unwrap().code(), Some(5));
    let said = rest_of(copy.stderr.take().unwrap());
    let again = said.split("run again: nfsw ").nth(1).unwrap().trim().to_owned();
    let script = format!("{} {}", env!("CARGO_BIN_EXE_nfsw"), again.replace("2500ms", "1m"));
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script]).env("XDG_STATE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"));
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("resuming after"), "{}", stderr(&output));
    assert!(fs::read(&target).unwrap() == data);
}
