//! The configuration file and `NFSW_OPTS`, as a user has them.

use std::{fs, process::Output};

use crate::common::{Server, command, stderr};

/// A home with a configuration file.
struct Home(tempfile::TempDir);

impl Home {
    fn with(config: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("nfsw")).unwrap();
        fs::write(home.path().join("nfsw/config.toml"), config).unwrap();
        Self(home)
    }

    fn run(&self, options: &str, arguments: &[&str]) -> Output {
        let mut command = command(arguments);
        command.env("XDG_CONFIG_HOME", self.0.path()).env("NFSW_OPTS", options).output().unwrap()
    }
}

/// Returns the words of what was used for READs, from the summary.
fn transport(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    let events = String::from_utf8(output.stdout.clone()).unwrap();
    let summary: serde_json::Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    summary["transport"].as_str().unwrap().to_owned()
}

fn host(server: &Server, more: &str) -> String {
    let port = server.address().port();
    format!("[host.nas]\nname = \"127.0.0.1\"\nnfs-port = {port}\nmount-port = {port}\n{more}\n")
}

#[test]
fn a_host_of_the_file_needs_no_url() {
    let server = Server::start();
    fs::write(server.path("/file"), "x").unwrap();
    let home = Home::with(&host(&server, ""));
    let listed = home.run("", &["ls", "nas:"]);
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "file\n", "{}", stderr(&listed));
    for command in [&["exports", "nas"][..], &["ping", "-c1", "nas"], &["doctor", "nas:/"], &["df", "nas:/"]]
    {
        let output = home.run("", command);
        assert!(output.status.success(), "{command:?}: {}", stderr(&output));
    }
    assert!(stderr(&home.run("", &["ls", "nas:/none"])).contains("nas:/none: no such file"));
    let other = home.run("", &["ls", "--timeout", "1s", "nas2.invalid:/"]);
    assert_eq!(other.status.code(), Some(3), "only this name stands for the server");
}

#[test]
fn the_command_line_outweighs_the_environment_which_outweighs_the_file() {
    let server = Server::start();
    let [udp, tcp, neither] = ["transport = \"udp\"", "transport = \"tcp\"", ""];
    let list = ["ls", "--json", "nas:/"];
    let run = |defaults: &str, host_options: &str, options: &str, typed: &[&str]| {
        let home = Home::with(&format!("[defaults]\n{defaults}\n{}", host(&server, host_options)));
        transport(&home.run(options, &[&list[..], typed].concat()))
    };
    assert_eq!(run(udp, neither, "", &[]), "udp");
    assert_eq!(run(tcp, neither, "", &[]), "tcp");
    assert_eq!(run(udp, tcp, "", &[]), "tcp");
    assert_eq!(run(tcp, udp, "--transport=tcp", &[]), "tcp");
    assert_eq!(run(tcp, tcp, "--transport udp", &[]), "udp");
    assert_eq!(run(udp, udp, "--transport udp", &["--transport", "tcp"]), "tcp");
    assert_eq!(run(tcp, tcp, "--transport tcp", &["--transport=udp"]), "udp");
}

#[test]
fn options_are_for_the_commands_that_have_them() {
    let server = Server::start();
    let home = Home::with("[defaults]\nverify = true\nquiet = true\n");
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("file");
    fs::write(&file, "x").unwrap();
    let copy = ["cp", "--json", file.to_str().unwrap(), &server.url("/")];
    let verified = |output: &Output| String::from_utf8_lossy(&output.stdout).contains("\"verified\":1");
    assert!(verified(&home.run("", &copy)));
    // ls has neither, and -v excludes what the file says.
    assert!(home.run("", &["ls", &server.url("/")]).status.success());
    let output = home.run("", &["cp", "-v", file.to_str().unwrap(), &server.url("/")]);
    assert!(output.status.success() && !output.stdout.is_empty(), "{}", stderr(&output));
    let output = home.run("--verbose", &["cp", file.to_str().unwrap(), &server.url("/")]);
    assert!(output.status.success() && !output.stdout.is_empty(), "the environment outweighs the file");
    // Only with --delete, which is not given.
    for (config, options) in [("[defaults]\nmax-delete = 3\n", ""), ("", "--max-delete 3")] {
        let output =
            Home::with(config).run(options, &["sync", here.path().to_str().unwrap(), &server.url("/tree")]);
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let home = Home::with("[defaults]\nbwlimit = \"8bit\"\ntimeout = \"1ms\"\n");
    let output =
        home.run("", &["cp", "-v", "--bwlimit=0", "--timeout=0", file.to_str().unwrap(), &server.url("/")]);
    assert!(output.status.success() && !stderr(&output).contains("at most"), "{}", stderr(&output));
}

#[test]
fn where_there_can_be_no_file_there_is_none() {
    let server = Server::start();
    for variable in ["HOME", "XDG_CONFIG_HOME"] {
        let mut command = command(["ls", &server.url("/")]);
        let output = command.env_remove("XDG_CONFIG_HOME").env(variable, "/dev/null").output().unwrap();
        assert!(output.status.success(), "{variable}: {}", stderr(&output));
    }
}

#[test]
fn what_is_wrong_is_named_and_nothing_is_done() {
    let server = Server::start();
    let home = Home::with("[defaults]\nverify = true\n\n[host.nas]\ntransport = \"tpc\"\n");
    for arguments in [&["config", "check"][..], &["mkdir", &server.url("/made")]] {
        let output = home.run("", arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("/nfsw/config.toml:5: host.nas.transport: invalid value 'tpc'"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert!(!server.path("/made").exists());
    assert!(
        home.run("", &["--version"]).status.success() && home.run("", &["ls", "--help"]).status.success()
    );
    let home = Home::with("");
    for (options, words) in [
        ("--no-such", "NFSW_OPTS: --no-such: there is no such option"),
        ("-v", "NFSW_OPTS: -v: expected long options"),
        ("--timeout", "NFSW_OPTS: --timeout: its value is missing"),
        ("--verify=true", "NFSW_OPTS: --verify=true: --verify takes no value"),
        ("--timeout soon", "NFSW_OPTS: invalid value 'soon'"),
        ("--bwlimit -1", "NFSW_OPTS: invalid value '-1'"),
        ("--uid -1", "NFSW_OPTS: invalid value '-1'"),
        ("--timeout --verify", "NFSW_OPTS: invalid value '--verify'"),
        ("--exclude [", "NFSW_OPTS: invalid value '['"),
        ("--exclude ''", "NFSW_OPTS: invalid value ''"),
        ("--delete", "NFSW_OPTS: --delete belongs on the command line only"),
        ("'", "NFSW_OPTS: a quote is not closed"),
    ] {
        for line in [&["ls", &server.url("/")][..], &["config", "check"]] {
            let output = home.run(options, line);
            assert_eq!(output.status.code(), Some(2));
            assert!(stderr(&output).contains(words), "{}", stderr(&output));
        }
    }
}

#[test]
fn the_file_is_named_and_checked() {
    let home = Home::with("[defaults]\ntimeout = \"1m\"\nbwlimit = \"2M\"\n[host.nas]\n[host.backup]\n");
    let output = home.run("", &["config", "path"]);
    let path = home.0.path().join("nfsw/config.toml");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{}\n", path.display()));
    let output = home.run("--timeout 1m", &["config", "check"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.ends_with(": valid; hosts: backup, nas; defaults: 2\nNFSW_OPTS is valid\n"), "{said}");
    fs::remove_file(path).unwrap();
    let output = home.run("--bwlimit 3M --exclude -x", &["config", "check"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.ends_with("there is no such file, and none is needed\nNFSW_OPTS is valid\n"), "{said}");
}
