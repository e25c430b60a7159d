//! `nfsw doctor` against the embedded server.

use std::fs;

use crate::common::{Server, fails, names, noise, ok};
use serde_json::Value;

fn events(printed: &str, name: &str) -> Vec<Value> {
    let all = printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|event| event["event"] == name).collect()
}

/// What came of a test.
fn came<'a>(events: &'a [Value], what: &str) -> &'a str {
    let test = events.iter().find(|event| event["what"] == what);
    test.unwrap_or_else(|| panic!("{what} is not among {events:?}"))["came"].as_str().unwrap()
}

#[test]
fn a_page_says_what_the_server_can_do_and_changes_nothing() {
    let server = Server::start();
    fs::write(server.path("file"), noise(100_000)).unwrap();
    let page = ok(["doctor", "--wait", "500ms", &server.url("/file")]);
    assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
    for words in [
        "NFS v3 ",
        "mounting / ",
        "LIMITS (FSINFO)",
        "large READs over UDP     answered up to",
        "MOUNT accepts them",
        "WHAT TO CHANGE ON THE SERVER",
        "not tested (--write-test, with a directory)",
    ] {
        assert!(page.contains(words), "{words} is not in {page}");
    }
    assert_eq!(names(server.root.path()), ["file"]);
}

#[test]
fn a_write_test_tells_more_and_leaves_nothing() {
    let server = Server::start();
    fs::create_dir(server.path("dir")).unwrap();
    let printed = ok(["doctor", "--json", "--write-test", &server.url("/dir")]);
    let tests = events(&printed, "test");
    for transport in ["UDP", "TCP"] {
        let repeated = came(&tests, &format!("a repeated call over {transport}"));
        assert_eq!(repeated, "is answered from the duplicate request cache");
    }
    assert!(came(&tests, "LINK, SYMLINK, MKNOD").starts_with("hard links made, symbolic links made"));
    assert!(came(&tests, "a new file").contains("as it should"));
    assert_eq!(came(&tests, "the server's clock"), "the same as here");
    assert_eq!(came(&tests, "WRITE"), "kept in memory until COMMIT; COMMIT is answered");
    assert!(came(&tests, "large WRITEs over UDP").starts_with("answered up to"));
    assert_eq!(names(&server.path("dir")).len(), 0);
    let limits = events(&printed, "limits");
    assert_eq!(limits.iter().map(|it| &it["transport"]).collect::<Vec<_>>(), ["udp", "tcp"]);
    assert!(limits.iter().all(|it| it["rtmax"].as_u64().unwrap() >= 8192));
    let nfs = events(&printed, "service").into_iter().find(|it| it["name"] == "NFS").unwrap();
    assert_eq!((&nfs["udp"]["answers"], &nfs["tcp"]["answers"]), (&true.into(), &true.into()));
    assert_eq!(events(&printed, "summary")[0]["exit_code"], 0);
}

#[test]
fn a_read_only_server_is_told_by_what_it_refuses() {
    let server = Server::read_only();
    fs::create_dir(server.path("dir")).unwrap();
    let printed = ok(["doctor", "--json", "--write-test", &server.url("/dir")]);
    let tests = events(&printed, "test");
    assert!(came(&tests, "a repeated call over TCP").contains("cannot be tried, MKDIR: "), "{printed}");
    assert_eq!(
        events(&printed, "advice")
            .iter()
            .filter(|it| it["text"].as_str().unwrap().contains("Remove"))
            .count(),
        0
    );
}

#[test]
fn one_port_is_enough_without_a_port_mapper() {
    let server = Server::start();
    // A port mapper of this host would know nothing of the server.
    if std::net::TcpStream::connect("127.0.0.1:111").is_err() {
        let page = ok(["doctor", &server.name("/")]);
        assert_eq!(page.matches(&format!("port {}", server.address().port())).count(), 4, "{page}");
    }
}

#[test]
fn where_nothing_answers_the_page_says_so_and_the_status_is_3() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = fails(3, ["doctor", "--wait", "200ms", &format!("nfs://127.0.0.1:{free}/?mountport={free}")]);
    assert!(error.contains("NFS version 3 does not answer"), "{error}");
    let error = fails(3, ["doctor", "no-such-host.invalid"]);
    assert!(error.contains("cannot find the host"), "{error}");
}
