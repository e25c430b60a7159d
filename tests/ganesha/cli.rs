//! The command against a real nfs-ganesha: the contract of its help and README, as a person sees it.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Output,
    time::{Duration, Instant},
};

use crate::{
    nfsw::{expect, run, run_with_input},
    server::{Ganesha, Options},
    tree,
};

/// The URL of a path below the export.
fn url(server: &Ganesha, path: &str) -> String {
    let (nfs, mount) = server.ports();
    format!("nfs://127.0.0.1{}/{path}?nfsport={nfs}&mountport={mount}", server.export().display())
}

fn text(path: &Path) -> String {
    path.to_str().expect("a temporary path").to_owned()
}

/// The error is one line that names the program.
fn one_line(output: &Output) -> String {
    let stderr = String::from_utf8(output.stderr.clone()).expect("errors are text");
    assert!(
        stderr.starts_with("nfsw: ") && stderr.trim_end().lines().count() == 1,
        "not one line: {stderr:?}"
    );
    stderr
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn large_files_are_copied_both_ways() {
    let server = Ganesha::start(Options::default());
    let local = tempfile::tempdir().unwrap();
    let data: Vec<_> =
        (0..64_u32 << 20).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (source, target) = (local.path().join("source"), local.path().join("target"));
    fs::write(&source, &data).unwrap();
    for transport in ["udp", "tcp"] {
        expect(&run(["cp", "--transport", transport, &text(&source), &url(&server, "copy")]), 0);
        assert!(fs::read(server.export().join("copy")).unwrap() == data, "over {transport}");
        expect(&run(["cp", "--transport", transport, &url(&server, "copy"), &text(&target)]), 0);
        assert!(fs::read(&target).unwrap() == data, "over {transport}");
        fs::remove_file(&target).unwrap();
    }
    assert_eq!(names(&server.export()), ["copy"]);
    assert_eq!(names(local.path()), ["source"]);
}

#[test]
fn a_tree_is_copied_both_ways() {
    let server = Ganesha::start(Options::default());
    let local = tempfile::tempdir().unwrap();
    let source = local.path().join("tree");
    tree::make(&source);
    // Over TCP as it is; over UDP without the four GiB of zeros.
    for transport in ["tcp", "udp"] {
        if transport == "udp" {
            fs::remove_file(source.join("sparse")).unwrap();
        }
        let name = format!("tree-{transport}");
        let output = run(["cp", "-r", "-p", "--transport", transport, &text(&source), &url(&server, &name)]);
        expect(&output, 0);
        assert!(one_line(&output).contains("fifo"), "the fifo is skipped with a warning");
        tree::assert_equal(&source, &server.export().join(&name));
        let back = local.path().join(&name);
        expect(&run(["cp", "-r", "-p", "--transport", transport, &url(&server, &name), &text(&back)]), 0);
        tree::assert_equal(&source, &back);
        expect(&run(["rm", "-r", &url(&server, &name)]), 0);
    }
    assert_eq!(names(&server.export()), [""; 0]);
}

#[test]
fn standard_input_and_output_are_files_too() {
    let server = Ganesha::start(Options::default());
    let data: Vec<_> = (0..9_u32 << 20).map(|index| (index % 253) as u8).collect();
    for transport in ["udp", "tcp"] {
        let target = url(&server, "stream");
        expect(&run_with_input(["cp", "--transport", transport, "-", &target], &data), 0);
        assert!(fs::read(server.export().join("stream")).unwrap() == data, "over {transport}");
        for output in [
            run(["cp", "--transport", transport, &target, "-"]),
            run(["cat", "--transport", transport, &target]),
        ] {
            expect(&output, 0);
            assert!(output.stdout == data, "over {transport}");
        }
    }
}

#[test]
fn a_missing_source_is_status_4() {
    let server = Ganesha::start(Options::default());
    let local = tempfile::tempdir().unwrap();
    let output = run(["cp", &url(&server, "missing"), &text(&local.path().join("target"))]);
    expect(&output, 4);
    assert!(one_line(&output).contains("missing"));
    let output = run(["cp", &text(&local.path().join("missing")), &url(&server, "target")]);
    expect(&output, 4);
    one_line(&output);
    assert!(names(local.path()).is_empty() && names(&server.export()).is_empty());
}

#[test]
fn what_cannot_be_reached_is_status_3_at_once() {
    let server = Ganesha::start(Options::default());
    let local = tempfile::tempdir().unwrap();
    let target = text(&local.path().join("target"));
    let (nfs, mount) = server.ports();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let start = Instant::now();
    for source in [
        format!("nfs://127.0.0.1/not/exported/file?nfsport={nfs}&mountport={mount}"),
        format!("nfs://127.0.0.1/any/file?nfsport={closed}&mountport={closed}"),
        "no-such-host.invalid:/any/file".to_owned(),
    ] {
        let output = run(["cp", &source, &target]);
        expect(&output, 3);
        one_line(&output);
    }
    assert!(start.elapsed() < Duration::from_secs(30));
    assert!(names(local.path()).is_empty());
}

#[test]
fn a_silent_host_is_given_up_within_the_timeout() {
    // It takes connections and datagrams, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let _datagrams = std::net::UdpSocket::bind(("127.0.0.1", port)).unwrap();
    let local = tempfile::tempdir().unwrap();
    let source = format!("nfs://127.0.0.1/any/file?nfsport={port}&mountport={port}");
    let start = Instant::now();
    let output = run(["cp", "--timeout", "1500ms", &source, &text(&local.path().join("target"))]);
    expect(&output, 3);
    one_line(&output);
    let elapsed = start.elapsed();
    assert!((1.4..20.0).contains(&elapsed.as_secs_f64()), "{elapsed:?}");
}

#[test]
fn a_local_target_that_cannot_be_written_is_status_7() {
    let server = Ganesha::start(Options::default());
    fs::write(server.export().join("file"), vec![1; 1 << 20]).unwrap();
    let output = run(["cp", &url(&server, "file"), "/proc/nfsw-cannot-write-here"]);
    expect(&output, 7);
    one_line(&output);
    // /dev/full takes nothing.
    let output = run(["cp", &url(&server, "file"), "/dev/full"]);
    expect(&output, 7);
    one_line(&output);
}

#[test]
fn a_read_only_export_is_status_1_and_stays_as_it_is() {
    let server = Ganesha::start(Options { read_only: true, ..Options::default() });
    let local = tempfile::tempdir().unwrap();
    let source = local.path().join("source");
    fs::write(&source, b"data").unwrap();
    let output = run(["cp", &text(&source), &url(&server, "target")]);
    expect(&output, 1);
    assert!(one_line(&output).contains("read-only"));
    assert!(names(&server.export()).is_empty());
}

#[test]
fn a_server_without_reply_cache_gets_a_tree() {
    let server = Ganesha::start(Options { no_reply_cache: true, ..Options::default() });
    let local = tempfile::tempdir().unwrap();
    let source = local.path().join("tree");
    fs::create_dir(&source).unwrap();
    for index in 0..200 {
        fs::write(source.join(format!("file {index}")), format!("contents {index}")).unwrap();
    }
    fs::set_permissions(source.join("file 7"), fs::Permissions::from_mode(0o400)).unwrap();
    expect(&run(["cp", "-r", "-p", "--transport", "udp", &text(&source), &url(&server, "tree")]), 0);
    tree::assert_equal(&source, &server.export().join("tree"));
}
