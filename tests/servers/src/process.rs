//! Server processes that end with the test, however it ends.

use std::{
    ffi::OsStr,
    fs::File,
    net::{TcpListener, UdpSocket},
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

/// A process that is killed when this is dropped, and when the program that started it dies.
#[derive(Debug)]
pub(crate) struct Process {
    /// A shell that waits for the end of its standard input, then kills the server.
    keeper: Child,
}

impl Process {
    /// Starts a program; what it prints goes to a file.
    ///
    /// # Errors
    /// Where the program cannot be found.
    pub(crate) fn start(program: &OsStr, arguments: &[String], log: &Path) -> Result<Self> {
        let found = Command::new("sh").args(["-c", "command -v \"$0\" >/dev/null"]).arg(program).status()?;
        ensure!(found.success(), "{} is missing", program.display());
        let output = File::create(log).with_context(|| format!("creating {}", log.display()))?;
        let keeper = Command::new("sh")
            .args(["-c", r#""$@" </dev/null & server=$!; read -r _; kill -9 $server; wait $server"#, "sh"])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("starting a shell")?;
        Ok(Self { keeper })
    }

    /// Kills the server as a power cut would, and waits for its end.
    pub(crate) fn kill(&mut self) {
        drop(self.keeper.stdin.take());
        // The keeper ends whatever became of the server.
        let _ = self.keeper.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Finds a port that is free on both UDP and TCP.
pub(crate) fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        if UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
