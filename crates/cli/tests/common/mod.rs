//! A server to talk to, and `nfsw` to talk with.

#![allow(dead_code, unused_imports, reason = "every test program uses its own part")]

mod journal;
mod part;

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, ErrorKind},
    net::{SocketAddr, TcpListener, UdpSocket},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use nfs_wireless_server::{Directory, DirectoryConfig, Memory, Service, ServiceConfig, Vfs};

pub(crate) use journal::{journal, journal_of};
pub(crate) use part::part;

/// Waits for something that takes a program a while.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Listens on one free port of the loopback, over TCP and UDP.
pub(crate) fn listen() -> (TcpListener, UdpSocket) {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        match UdpSocket::bind(tcp.local_addr().unwrap()) {
            Ok(udp) => break (tcp, udp),
            Err(error) => assert_eq!(error.kind(), ErrorKind::AddrInUse),
        }
    }
}

/// `nfsw serve` on a free port of the loopback, for a fresh directory.
pub(crate) struct Server {
    pub(crate) root: Root,
    pub(crate) process: Child,
    url: String,
}

/// A directory, removed with this if it was made for it.
pub(crate) struct Root(PathBuf, Option<tempfile::TempDir>);

impl Root {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Server {
    /// Serves a directory that is there.
    pub(crate) fn at(root: &Path) -> Self {
        let (process, url) = Self::launch(root, "127.0.0.1:0", &[]);
        Self { root: Root(root.to_owned(), None), process, url }
    }

    pub(crate) fn start() -> Self {
        Self::with("127.0.0.1:0", &[])
    }

    pub(crate) fn read_only() -> Self {
        Self::with("127.0.0.1:0", &["--read-only"])
    }

    /// A server on all addresses of this host, IPv4 and IPv6.
    pub(crate) fn everywhere() -> Self {
        Self::with("[::]:0", &[])
    }

    /// A server with the rights of somebody who is not root, as [`as_nobody`].
    pub(crate) fn of_nobody() -> Self {
        needs_root("acts for another user");
        let root = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(root.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        let serve = as_nobody(["serve", "--listen", "127.0.0.1:0"]);
        let (process, url) = Self::launch_by(serve, root.path(), "127.0.0.1:0", &[]);
        Self { root: Root(root.path().to_owned(), Some(root)), process, url }
    }

    fn with(listen: &str, options: &[&str]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let (process, url) = Self::launch(root.path(), listen, options);
        Self { root: Root(root.path().to_owned(), Some(root)), process, url }
    }

    /// Kills the server and starts it again at the same address.
    pub(crate) fn restart(&mut self) {
        let root = self.root.path().to_owned();
        self.replace(&root);
    }

    /// Kills the server and starts another one, for another directory, at the same address.
    pub(crate) fn replace(&mut self, root: &Path) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        let address = self.address().to_string();
        (self.process, _) = Self::launch(root, &address, &[]);
    }

    fn launch(root: &Path, listen: &str, options: &[&str]) -> (Child, String) {
        Self::launch_by(command(["serve", "--listen", listen]), root, listen, options)
    }

    fn launch_by(mut serve: Command, root: &Path, listen: &str, options: &[&str]) -> (Child, String) {
        let mut process = serve.args(options).arg(root).stdout(Stdio::piped()).spawn().unwrap();
        let line = first_line(&mut process);
        let (host, _) = listen.rsplit_once(':').unwrap();
        let port = line.split(&format!("{host}:")).nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        let url = format!("nfs://127.0.0.1:{port}");
        (process, url)
    }

    /// URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}?mountport={}", self.url, self.url.rsplit(':').next().unwrap())
    }

    /// A path as messages name it.
    pub(crate) fn name(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// Address of the service.
    pub(crate) fn address(&self) -> SocketAddr {
        self.url.trim_start_matches("nfs://").parse().unwrap()
    }

    /// Local path of a server path.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A server in this process, with its files in memory.
pub(crate) fn embedded() -> nfs_wireless_server::Server {
    serve_here(Memory::default())
}

fn serve_here(backend: impl Vfs + 'static) -> nfs_wireless_server::Server {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let service = Service::new(ServiceConfig::default(), backend, 1, Instant::now()).unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let server = runtime.block_on(nfs_wireless_server::Server::bind(listen, service)).unwrap();
    thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    server
}

/// A server in this process for a fresh directory, which says what it has moved.
pub(crate) struct Served {
    root: tempfile::TempDir,
    server: nfs_wireless_server::Server,
}

impl Served {
    pub(crate) fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        let directory = Directory::open(root.path(), DirectoryConfig::default()).unwrap();
        Self { server: serve_here(directory), root }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Local path of a server path.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    /// Bytes of file data that it has read and written.
    pub(crate) fn moved_bytes(&self) -> u64 {
        let stats = self.server.with_service(|service| service.stats());
        stats.read_bytes + stats.written_bytes
    }
}

/// What a program says first on its standard output, which is awaited.
pub(crate) fn first_line(process: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line
}

/// `nfsw link proxy` in front of a server.
pub(crate) struct Link {
    process: Child,
    address: String,
}

impl Link {
    /// Starts it on a free port of the loopback.
    pub(crate) fn to(server: SocketAddr, options: &[&str]) -> Self {
        let mut process = command(["link", "proxy", "--quiet", "--listen", "127.0.0.1:0", "--to"])
            .arg(server.to_string())
            .args(options)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(process.stderr.take().unwrap());
        said.read_line(&mut line).unwrap();
        // Whatever it says later must not fill the pipe.
        thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        let address = line.split(' ').next().unwrap().to_owned();
        Self { process, address }
    }

    /// URL of a path on the server.
    pub(crate) fn url(&self, path: &str) -> String {
        let port = self.address.rsplit(':').next().unwrap();
        format!("nfs://{}{path}?mountport={port}", self.address)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `nfsw` as it was built with the tests, or what `NFSW_BINARY` names: a release build, for numbers.
pub(crate) fn program() -> std::ffi::OsString {
    std::env::var_os("NFSW_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_nfsw").into())
}

/// Whose rights are those of no user.
pub(crate) const NOBODY: u32 = 65534;

/// Says what is wrong if whoever runs the tests is not root.
pub(crate) fn needs_root(what: &str) {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    assert!(is_root, "this test {what}, which needs root: run it as root, as CI does");
}

/// Prepares `nfsw` with arguments, as somebody who is not root, for whom modes mean something. Only root can do that.
pub(crate) fn as_nobody<I: IntoIterator<Item = impl AsRef<OsStr>>>(arguments: I) -> Command {
    as_user(NOBODY, arguments)
}

/// As [`as_nobody`], as the user and the group of a number.
pub(crate) fn as_user<I: IntoIterator<Item = impl AsRef<OsStr>>>(user: u32, arguments: I) -> Command {
    needs_root("acts for another user");
    let (mut command, user) = (Command::new("setpriv"), user.to_string());
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]).arg(program()).args(arguments);
    command.stdin(Stdio::null()).env("XDG_STATE_HOME", "/nowhere").env("XDG_CACHE_HOME", "/nowhere");
    command.env("XDG_CONFIG_HOME", "/nowhere").env_remove("NFSW_OPTS");
    command
}

/// Prepares `nfsw` with arguments.
pub(crate) fn command<I: IntoIterator<Item = impl AsRef<OsStr>>>(arguments: I) -> Command {
    let mut command = isolated(program());
    command.args(arguments);
    command
}

/// The same, with signals as in a terminal: under `nohup`, the tests ignore SIGHUP, and what they start does.
pub(crate) fn with_default_signals<I: IntoIterator<Item = impl AsRef<OsStr>>>(arguments: I) -> Command {
    let mut command = isolated("env");
    command.arg("--default-signal").arg(program()).args(arguments);
    command
}

/// A program without input, in an environment where nfsw finds nothing of the user who runs the tests.
fn isolated(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command
        .stdin(Stdio::null())
        .env("XDG_STATE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"))
        .env("XDG_CACHE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"))
        .env("XDG_CONFIG_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/no-config"))
        .env_remove("NFSW_OPTS");
    command
}

/// `nfsw link exec OPTIONS -- sh -c SCRIPT`, where `nfsw` is the one under test.
pub(crate) fn behind(options: &[&str], script: &str) -> Command {
    needs_root("makes networks");
    let mut command = command(["link", "exec"]);
    command.args(options).args(["--", "bash", "-c", script]).env("nfsw", program());
    command
}

/// Runs `nfsw`.
pub(crate) fn nfsw<I: IntoIterator<Item = impl AsRef<OsStr>>>(arguments: I) -> Output {
    command(arguments).output().unwrap()
}

/// Runs `nfsw` and expects success; returns its standard output.
pub(crate) fn ok<I: IntoIterator<Item = impl AsRef<OsStr>>>(arguments: I) -> String {
    let output = nfsw(arguments);
    assert!(output.status.success(), "{}: {}", output.status, stderr(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs `nfsw` and expects a status and one line on standard error, which is returned.
pub(crate) fn fails<I: IntoIterator<Item = impl AsRef<OsStr>>>(code: i32, arguments: I) -> String {
    let output = nfsw(arguments);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert_eq!(text.lines().count(), 1, "one line, not: {text}");
    text
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Reads what a process has left on standard error.
pub(crate) fn rest_of(stderr: ChildStderr) -> String {
    std::io::read_to_string(stderr).unwrap()
}

/// Expects two trees to be the same: names, kinds, bytes, link targets; modes and times too if kept.
pub(crate) fn assert_same_tree(left: &Path, right: &Path, with_attributes: bool) {
    let (a, b) = (fs::symlink_metadata(left).unwrap(), fs::symlink_metadata(right).unwrap());
    let (at, kept) = (right.display(), with_attributes && !a.is_symlink());
    assert_eq!(a.file_type(), b.file_type(), "{at}");
    if kept {
        let attributes = |m: &fs::Metadata| (m.mode(), m.mtime(), m.mtime_nsec());
        assert_eq!(attributes(&a), attributes(&b), "{at}");
    }
    if a.is_symlink() {
        assert_eq!(fs::read_link(left).unwrap(), fs::read_link(right).unwrap(), "{at}");
    } else if a.is_file() {
        assert!(fs::read(left).unwrap() == fs::read(right).unwrap(), "{at}: bytes differ");
    } else if a.is_dir() {
        let names = names(left);
        assert_eq!(names, self::names(right), "{at}");
        for name in names {
            assert_same_tree(&left.join(&name), &right.join(&name), with_attributes);
        }
    }
}

/// Receives a datagram, whatever interrupts the wait: a socket with a time limit does not go on by itself (signal(7)).
pub(crate) fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> (usize, SocketAddr) {
    loop {
        match socket.recv_from(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            received => return received.unwrap(),
        }
    }
}

/// Returns the names in a directory, in order.
pub(crate) fn names(directory: &Path) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

/// Writes a file that any source is newer than. Without that, a sync may keep it, when it is written a moment after its source.
pub(crate) fn write_old(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
}

/// Returns bytes without a pattern.
pub(crate) fn noise(size: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}
