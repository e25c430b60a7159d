//! The program at work: it copies, follows changes, tells what it does, and resumes after it was killed.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use private_servers::Served;
use serde_json::Value;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

struct Backup {
    child: Child,
    address: String,
}

impl Backup {
    fn start(directory: &Path, url: &str, state: &Path) -> Self {
        Self::by(&mut Command::new(env!("CARGO_BIN_EXE_backup")), directory, url, state)
    }

    fn by(program: &mut Command, directory: &Path, url: &str, state: &Path) -> Self {
        let mut child = program
            .arg(directory)
            .args([url, "127.0.0.1:0"])
            .env("XDG_STATE_HOME", state)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap().trim_end_matches('/').to_owned();
        Self { child, address }
    }

    fn status(&self) -> Value {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("200 OK") && head.contains("application/json"), "{head}");
        serde_json::from_str(body).unwrap()
    }

    fn until(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let status = self.status();
            if is_so(&status) {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "{what}: {status}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_same(here: &Path, there: &Path, names: &[String]) -> bool {
    names.iter().all(|name| fs::read(here.join(name)).ok() == fs::read(there.join(name)).ok())
}

#[test]
fn a_directory_is_kept_copied_and_what_was_killed_is_resumed() {
    let (server, here, state) = (Served::start(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = here.path().join("photos");
    fs::create_dir_all(source.join("new")).unwrap();
    fs::create_dir(server.path("/backup")).unwrap();
    let mut names: Vec<_> = (0..30).map(|number| format!("new/photo-{number}")).collect();
    for name in &names {
        fs::write(source.join(name), name.repeat(20_000)).unwrap();
    }
    let url = server.url("/backup/photos");
    let there = server.path("/backup/photos");

    let backup = Backup::start(&source, &url, state.path());
    backup.until("something is copied", |status| status["bytes"].as_u64() > Some(0));
    drop(backup);
    let backup = Backup::start(&source, &url, state.path());
    let status = backup.until("all is copied", |status| status["runs"] == 1);
    assert_eq!((&status["failed"], &status["error"]), (&Value::from(0), &Value::Null), "{status}");
    assert!(is_same(&source, &there, &names));

    names.push("added".to_owned());
    fs::write(source.join("added"), "added").unwrap();
    fs::write(source.join("new/photo-7"), "changed").unwrap();
    backup.until("changes are copied", |status| {
        status["runs"].as_u64() > Some(1) && is_same(&source, &there, &names)
    });
    assert_eq!(backup.status()["failed"], 0);
}

#[test]
fn a_directory_that_cannot_be_read_is_told_and_the_rest_is_copied() {
    const NOBODY: u32 = 65534;
    let (server, here, state) = (Served::start(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    chown(state.path(), Some(NOBODY), Some(NOBODY)).expect("only root can act for another user, as CI does");
    mode(here.path(), 0o755);
    for name in ["a", "closed", "z"] {
        fs::create_dir(here.path().join(name)).unwrap();
        fs::write(here.path().join(name).join("file"), name).unwrap();
    }
    mode(&here.path().join("closed"), 0o700);
    let mut program = Command::new("setpriv");
    program.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", env!("CARGO_BIN_EXE_backup")]);
    let backup = Backup::by(&mut program, here.path(), &server.url("/backup"), state.path());
    let status = backup.until("it has run", |status| status["runs"].as_u64() > Some(0));
    assert_eq!(status["failed"], 1, "{status}");
    assert!(status["error"].as_str().unwrap().contains("closed"), "{status}");
    assert!(is_same(here.path(), &server.path("/backup"), &["a/file", "z/file"].map(str::to_owned)));
}
