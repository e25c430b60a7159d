//! `nfsw mount --via nfs`: the view as our own client, libnfs and, where the kernel has one, the kernel's client see it.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::{fs::symlink, process::CommandExt as _},
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant, SystemTime},
};

use crate::common::{self, Server, assert_same_tree, command, nfsw, noise, ok, stderr};
use nfs_wireless_client::{
    Client, ClientConfig, Error, FileHandle, NfsStatus, SpecialFile, Stability, TransportChoice,
};
use nfs_wireless_server::{
    nfs3_types::nfs3::{Nfs3Option, nfstime3, sattr3, stable_how},
    vfs::Name,
};
use rustix::process::{Pid, Signal, kill_process};

/// `nfsw mount --via nfs`, which only serves.
struct View {
    process: Child,
    port: u16,
    said: Arc<Mutex<String>>,
}

impl View {
    fn of(server: &Server, options: &[&str]) -> Self {
        Self::at(0, server, options)
    }

    fn at(port: u16, server: &Server, options: &[&str]) -> Self {
        Self::start(port, &server.url("/"), options)
    }

    fn start(port: u16, target: &str, options: &[&str]) -> Self {
        let mut process = command(["mount", "--via", "nfs", "--listen", &format!("127.0.0.1:{port}")])
            .args(options)
            .arg(target)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(process.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let port = line.rsplit(':').next().and_then(|rest| rest.trim().trim_end_matches('/').parse().ok());
        let port = port.unwrap_or_else(|| panic!("no port in: {line}"));
        let text: Arc<Mutex<String>> = Arc::default();
        let heard = Arc::clone(&text);
        thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
                heard.lock().unwrap().push_str(&line);
            }
        });
        Self { process, port, said: text }
    }

    /// Repeats a look until it shows what it should. That what is held was served instead is only right while the server is said not to
    /// respond, as it may be on a busy machine.
    fn shows(&self, mut look: impl FnMut() -> Result<(), String>) {
        while let Err(error) = look() {
            let begun = Instant::now();
            loop {
                let mut said = self.said.lock().unwrap();
                let (silent, again) = (said.rfind("does not respond"), said.rfind("responds again"));
                if silent.is_some() && silent < again {
                    said.clear();
                    break;
                }
                drop(said);
                let patience = if silent.is_some() { 60 } else { 10 };
                assert!(begun.elapsed() < Duration::from_secs(patience), "{error}");
                thread::sleep(Duration::from_millis(20));
            }
        }
    }

    fn url(&self, path: &str) -> String {
        format!("nfs://127.0.0.1:{0}{path}?mountport={0}", self.port)
    }

    /// As libnfs wants it.
    fn libnfs(&self, path: &str) -> String {
        format!("nfs://127.0.0.1{path}?version=3&nfsport={0}&mountport={0}", self.port)
    }

    async fn client(&self) -> Client {
        let mut config = ClientConfig::default();
        (config.nfs_port, config.mount_port) = (Some(self.port), Some(self.port));
        config.transport = TransportChoice::Tcp;
        Client::connect("127.0.0.1", b"/", config).await.unwrap()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn send(process: &Child, signal: Signal) {
    kill_process(Pid::from_child(process), signal).unwrap();
}

/// Runs a program of libnfs-utils.
fn libnfs(program: &str, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program} of libnfs-utils, which ci.sh installs: {error}"))
}

fn status<T: std::fmt::Debug>(result: Result<T, Error>) -> NfsStatus {
    match result {
        Err(Error::Status { status, .. }) => status,
        other => panic!("a status was expected, not {other:?}"),
    }
}

/// Sets a file's time back, so that what is read of it proves its version at once.
fn age(path: &Path) {
    let status = Command::new("touch").args(["-d", "2001-01-01"]).arg(path).status().unwrap();
    assert!(status.success());
}

#[test]
fn a_tree_looks_as_on_the_server_to_our_client_and_to_libnfs() {
    let server = Server::start();
    let tree = server.path("/tree");
    fs::create_dir_all(tree.join("deep/deeper")).unwrap();
    for (name, size) in
        [("nothing", 0), ("deep/small", 5), ("deep/deeper/large", 5 << 20), ("odd \u{fc}", 70_000)]
    {
        fs::write(tree.join(name), noise(size)).unwrap();
    }
    symlink("deep/small", tree.join("link")).unwrap();
    for number in 0..1500 {
        fs::write(tree.join(format!("deep/a file with a name that takes room, number {number}")), "x")
            .unwrap();
    }
    let view = View::of(&server, &[]);
    let place = tempfile::tempdir().unwrap();
    for round in ["first", "second"] {
        ok(["cp", "-rpq", &view.url("/tree"), place.path().join(round).to_str().unwrap()]);
        assert_same_tree(&tree, &place.path().join(round), true);
    }
    let listed = libnfs("nfs-ls", &[&view.libnfs("/tree/deep")]);
    assert!(listed.status.success(), "{}", stderr(&listed));
    assert_eq!(String::from_utf8_lossy(&listed.stdout).lines().count(), 1502, "every name once");
    let copied = place.path().join("copied");
    let output = libnfs("nfs-cp", &[&view.libnfs("/tree/deep/deeper/large"), copied.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(fs::read(copied).unwrap() == noise(5 << 20));
    let output = libnfs("nfs-cat", &[&view.libnfs("/tree/deep/small")]);
    assert_eq!(output.stdout, noise(5), "{}", stderr(&output));
}

#[test]
fn everything_that_changes_something_is_refused() {
    let server = Server::start();
    fs::write(server.path("/file"), "text").unwrap();
    fs::create_dir(server.path("/directory")).unwrap();
    let view = View::of(&server, &[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = view.client().await;
        let root = client.root();
        let file = client.lookup(root, b"file").await.unwrap().handle;
        let none = nfs_wireless_client::SetAttributes::default();
        assert_eq!(status(client.set_attributes(file, none).await), NfsStatus::ROFS);
        assert_eq!(status(client.mkdir(root, b"new", none).await), NfsStatus::ROFS);
        assert_eq!(status(client.symlink(root, b"new", b"target").await), NfsStatus::ROFS);
        assert_eq!(status(client.create_guarded(root, b"new", none).await), NfsStatus::ROFS);
        assert_eq!(status(client.remove(root, b"file").await), NfsStatus::ROFS);
        assert_eq!(status(client.rmdir(root, b"directory").await), NfsStatus::ROFS);
        assert_eq!(status(client.rename(file, (root, b"file"), (root, b"other")).await), NfsStatus::ROFS);
        assert_eq!(status(client.hard_link(file, root, b"other").await), NfsStatus::ROFS);
        assert_eq!(status(client.write(file, 0, b"other", Stability::Stable).await), NfsStatus::ROFS);
        assert_eq!(status(client.make_node(root, b"new", SpecialFile::Fifo, none).await), NfsStatus::ROFS);
        assert_eq!(status(client.commit(file, 0, 0).await), NfsStatus::ROFS);
    });
    assert_eq!(fs::read(server.path("/file")).unwrap(), b"text");
    assert!(server.path("/directory").exists());
}

#[test]
fn what_was_read_is_there_while_the_server_is_not_and_the_rest_fails_when_the_wait_is_over() {
    let server = Server::start();
    fs::create_dir(server.path("/album")).unwrap();
    let held = noise(200_000);
    fs::write(server.path("/album/held"), &held).unwrap();
    fs::write(server.path("/album/other"), noise(200_000)).unwrap();
    let view = View::of(&server, &["--wait", "3s"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = view.client().await;
        let album = client.lookup(client.root(), b"album").await.unwrap().handle;
        let file = client.lookup(album, b"held").await.unwrap().handle;
        let other = client.lookup(album, b"other").await.unwrap().handle;
        let (data, _) = client.read(file, 0, 200_000).await.unwrap();
        assert!(data == held[..data.len()]);
        let listed = libnfs("nfs-ls", &[&view.libnfs("/album")]);
        assert!(listed.status.success(), "{}", stderr(&listed));
        send(&server.process, Signal::STOP);
        // What is not held is waited for; what is held is told meanwhile, on the same connection.
        let begun = Instant::now();
        let mut late = std::pin::pin!(client.read(other, 0, 1000));
        let mut rounds = 0;
        let failed = loop {
            let quick = async {
                client.metadata(file).await.unwrap();
                let (data, _) = client.read(file, 0, 200_000).await.unwrap();
                assert!(data == held[..data.len()]);
                assert_eq!(client.lookup(album, b"held").await.unwrap().handle, file);
            };
            tokio::select! {
                biased;
                result = &mut late => break status(result),
                () = quick => rounds += 1,
            }
        };
        assert_eq!(failed, NfsStatus::IO);
        assert!(begun.elapsed() >= Duration::from_millis(2900), "{:?}", begun.elapsed());
        assert!(rounds >= 3, "answers wait for others: {rounds}");
        let listed = libnfs("nfs-ls", &[&view.libnfs("/album")]);
        assert!(listed.status.success(), "{}", stderr(&listed));
        send(&server.process, Signal::CONT);
        let begun = Instant::now();
        while let Err(error) = client.read(other, 0, 1000).await {
            assert!(begun.elapsed() < Duration::from_secs(30), "{error}");
        }
    });
}

#[test]
fn handles_outlive_the_program_and_mean_one_version() {
    let server = Server::start();
    fs::create_dir(server.path("/directory")).unwrap();
    fs::write(server.path("/directory/file"), "before").unwrap();
    age(&server.path("/directory/file"));
    let view = View::of(&server, &[]);
    let port = view.port;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let find = |view: &View| {
        runtime.block_on(async {
            let client = view.client().await;
            let directory = client.lookup(client.root(), b"directory").await.unwrap().handle;
            let file = client.lookup(directory, b"file").await.unwrap().handle;
            (client.root(), directory, file)
        })
    };
    let handles = find(&view);
    drop(view);
    let view = View::at(port, &server, &[]);
    runtime.block_on(async {
        let client = view.client().await;
        // Nothing was looked up: the handle says enough.
        assert_eq!(client.read(handles.2, 0, 100).await.unwrap().0, b"before"[..]);
    });
    assert_eq!(find(&view), handles);
    for text in ["after", "something else"] {
        let old = find(&view).2;
        fs::write(server.path("/directory/file"), text).unwrap();
        let client = runtime.block_on(view.client());
        // Asking for attributes is how NFS clients open a file: the answer is what the server says now.
        view.shows(|| match runtime.block_on(client.metadata(old)) {
            Err(error) if error.status() == Some(NfsStatus::STALE) => Ok(()),
            other => Err(format!("{other:?}")),
        });
        runtime.block_on(async {
            assert_eq!(status(client.read(old, 0, 100).await), NfsStatus::STALE);
            let new = client.lookup(handles.1, b"file").await.unwrap();
            assert_ne!(new.handle, old);
            assert_eq!(new.metadata.size, text.len() as u64);
            assert_eq!(client.read(new.handle, 0, 100).await.unwrap().0, text.as_bytes());
            let number = client.metadata(new.handle).await.unwrap().fileid;
            assert_eq!(Some(number), fs::metadata(server.path("/directory/file")).ok().map(|it| inode(&it)));
            let strange = FileHandle::try_from(&[7; 20][..]).unwrap();
            assert_eq!(status(client.metadata(strange).await), NfsStatus::BADHANDLE);
        });
    }
    // Another server at the same place: none of the handles is good for anything.
    let other = Server::start();
    fs::write(other.path("/file"), "other").unwrap();
    drop(view);
    let view = View::at(port, &other, &[]);
    runtime.block_on(async {
        let client = view.client().await;
        assert_eq!(status(client.metadata(handles.0).await), NfsStatus::STALE);
    });
}

fn inode(metadata: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[test]
fn every_open_has_what_was_closed_before_on_the_server() {
    let server = Server::start();
    fs::create_dir(server.path("/tree")).unwrap();
    let view = View::of(&server, &[]);
    for number in 0..20 {
        let text = format!("{number}").repeat(1 + number % 7);
        fs::write(server.path("/tree/file"), &text).unwrap();
        view.shows(|| {
            let output = libnfs("nfs-cat", &[&view.libnfs("/tree/file")]);
            match String::from_utf8_lossy(&output.stdout) {
                read if read == text => Ok(()),
                read => Err(format!("{read} instead of {text}: {}", stderr(&output))),
            }
        });
    }
}

/// Where the kernel has no NFS client, it is said how to mount elsewhere.
#[test]
fn it_is_mounted_where_the_kernel_can_and_served_where_it_cannot() {
    let server = Server::start();
    fs::write(server.path("/file"), "text").unwrap();
    let place = tempfile::tempdir().unwrap();
    let mut process = command(["mount", "--via", "nfs"])
        .arg(server.url("/"))
        .arg(place.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(process.stderr.take().unwrap());
    let mut text = String::new();
    while !text.contains("is mounted at") && !text.contains("mount it with: ") {
        let before = text.len();
        said.read_line(&mut text).unwrap();
        assert!(text.len() > before, "{text}");
    }
    if text.contains("is mounted at") {
        assert_eq!(fs::read(place.path().join("file")).unwrap(), b"text");
    } else {
        let line = text.lines().last().unwrap();
        assert!(line.contains("mount -t nfs -o port=") && line.contains(" 127.0.0.1:/ "), "{line}");
        let port = line.split("port=").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
        assert_eq!(ok(["cat", &format!("nfs://127.0.0.1:{port}/file?mountport={port}")]), "text");
    }
    send(&process, Signal::INT);
    assert_eq!(process.wait().unwrap().code(), Some(0));
    assert_eq!(common::names(place.path()), Vec::<&str>::new(), "what is below the mount");
}

#[test]
fn command_lines_that_make_no_sense_are_refused() {
    let server = Server::start();
    let url = server.url("/");
    for (arguments, hint) in [
        (&["mount", "--listen", "127.0.0.1:0", &url][..], "--listen goes with --via nfs"),
        (&["mount", "--via", "nfs", &url], "DIR is missing"),
    ] {
        let output = nfsw(arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(hint), "{}", stderr(&output));
    }
    let output = nfsw(["mount", "--via", "nfs", &url, "/not-there"]);
    assert_eq!(output.status.code(), Some(7));
    assert!(stderr(&output).contains("mkdir /not-there"), "{}", stderr(&output));
}

/// A file on the server as the model knows it.
#[derive(Default)]
struct Model {
    versions: Vec<Vec<u8>>,
}

/// A file that was opened through the view, and the version that it had then.
struct Opened {
    name: usize,
    version: usize,
    handle: FileHandle,
}

/// Whatever happens on the server, and although the view is killed now and then: bytes that are read by one handle are those of the
/// version that the file had when it was looked up.
#[test]
fn bytes_read_by_one_handle_are_of_one_version() {
    const NAMES: [&[u8]; 3] = [b"first", b"second", b"third"];
    const STEPS: u32 = 400;
    for seed in 1..=3 {
        let mut draws = Draws(seed);
        let server = common::embedded();
        let url = format!("nfs://{0}/?mountport={1}", server.local_addr(), server.local_addr().port());
        let mut files: [Model; 3] = Default::default();
        for name in 0..NAMES.len() {
            change(&server, NAMES[name], &mut files[name], &mut draws);
        }
        let mut view = View::start(0, &url, &[]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(view.client());
        let mut opened: Vec<Opened> = Vec::new();
        let (mut whole, mut stale) = (0, 0);
        for step in 0..STEPS {
            let place = format!("seed {seed}, step {step}");
            let name = draws.below(NAMES.len());
            match draws.below(100) {
                0..20 => change(&server, NAMES[name], &mut files[name], &mut draws),
                20..40 => {
                    let version = files[name].versions.len() - 1;
                    let size = files[name].versions[version].len() as u64;
                    view.shows(|| {
                        let entry = runtime.block_on(client.lookup(client.root(), NAMES[name])).unwrap();
                        if entry.metadata.size != size {
                            return Err(format!("{place}: {} bytes instead of {size}", entry.metadata.size));
                        }
                        opened.push(Opened { name, version, handle: entry.handle });
                        Ok(())
                    });
                }
                40 if step % 4 == 0 => {
                    let port = view.port;
                    drop(view);
                    view = View::start(port, &url, &[]);
                }
                _ if opened.is_empty() => {}
                _ => {
                    let chosen = draws.below(opened.len());
                    let Opened { name, version, handle } = opened[chosen];
                    let versions = &files[name].versions[version..];
                    let offset = draws.below(versions[0].len() + 2);
                    let count = 1 + draws.below(100_000);
                    match runtime.block_on(client.read(handle, offset as u64, count as u32)) {
                        Ok((data, is_end)) => {
                            // An append is no other version.
                            let mut grown = versions.iter().take_while(|it| it.starts_with(&versions[0]));
                            let is_of = |content: &Vec<u8>| {
                                let rest = content.get(offset..).unwrap_or_default();
                                data == rest[..count.min(rest.len())] && is_end == (data.len() == rest.len())
                            };
                            assert!(grown.any(is_of), "{place}: {} bytes of another version", data.len());
                            whole += 1;
                        }
                        Err(error) => {
                            assert_eq!(error.status(), Some(NfsStatus::STALE), "{place}: {error}");
                            assert_ne!(version, files[name].versions.len() - 1, "{place}: it is the newest");
                            opened.swap_remove(chosen);
                            stale += 1;
                        }
                    }
                }
            }
        }
        assert!(whole > 50 && stale > 10, "seed {seed}: {whole} reads, {stale} stale handles");
    }
}

/// Appends to a file, cuts it or replaces it.
fn change(server: &nfs_wireless_server::Server, name: &[u8], model: &mut Model, draws: &mut Draws) {
    let now = nfstime3::try_from(SystemTime::now()).unwrap();
    let some = |draws: &mut Draws, most| -> Vec<u8> {
        let length = draws.below(most);
        (0..length).map(|_| draws.below(256) as u8).collect()
    };
    let mut content = model.versions.last().cloned().unwrap_or_default();
    server.with_service(|service| {
        let files = service.backend();
        let kind = if model.versions.is_empty() { 2 } else { draws.below(3) };
        match kind {
            0 => {
                let (node, more) = (files.resolve(name).unwrap(), some(draws, 50_000));
                files.write(now, node, content.len() as u64, &more, stable_how::FILE_SYNC).unwrap();
                content.extend(more);
            }
            1 => {
                content.truncate(draws.below(content.len() + 1));
                let changes = sattr3 { size: Nfs3Option::Some(content.len() as u64), ..sattr3::default() };
                files.set_attributes(now, files.resolve(name).unwrap(), &changes).unwrap();
            }
            _ => {
                content = some(draws, 150_000);
                files.write_file(now, b"new", &content).unwrap();
                let root = files.root();
                files
                    .rename(now, (root, Name::new(b"new").unwrap()), (root, Name::new(name).unwrap()))
                    .unwrap();
            }
        }
    });
    model.versions.push(content);
}

/// Numbers that look random (xorshift, Marsaglia 2003).
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}

/// A program of another user is told nothing, whoever it says to be.
#[test]
fn other_users_of_the_machine_may_read_nothing() {
    let server = Server::start();
    fs::create_dir(server.path("/tree")).unwrap();
    fs::write(server.path("/tree/file"), "secret").unwrap();
    let view = View::of(&server, &[]);
    let url = view.libnfs("/tree/file");
    let mine = libnfs("nfs-cat", &[&url]);
    assert_eq!(mine.stdout, b"secret", "{}", stderr(&mine));
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let claims_to_be_root = format!("{url}&uid=0");
    for url in [&url, &claims_to_be_root] {
        let output = Command::new("nfs-cat").arg(url).uid(65_534).output().unwrap();
        assert!(output.stdout.is_empty() && stderr(&output).contains("ACCES"), "{}", stderr(&output));
    }
}

#[test]
fn space_that_nobody_tells_is_not_no_space() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for was_known in [false, true] {
        let view = View::of(&server, &["--wait", "3s"]);
        runtime.block_on(async {
            let client = view.client().await;
            let mut before = 0;
            if was_known {
                before = client.fs_stat(client.root()).await.unwrap().tbytes;
                assert!(before > 0);
            }
            send(&server.process, Signal::STOP);
            let silent = client.fs_stat(client.root()).await;
            send(&server.process, Signal::CONT);
            match was_known {
                true => assert_eq!(silent.unwrap().tbytes, before),
                false => assert_eq!(status(silent), NfsStatus::IO),
            }
        });
    }
}
