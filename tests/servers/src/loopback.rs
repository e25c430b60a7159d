//! `nfsw serve`, and `nfsw mount --via nfs` in front of it.

use std::path::Path;

use anyhow::Result;
use tempfile::TempDir;

use crate::{
    client,
    process::{Process, free_port},
    ready,
};

/// `nfsw serve` on all addresses of this machine.
#[derive(Debug)]
pub struct Served {
    port: u16,
    _state: TempDir,
    process: Process,
}

impl Served {
    /// Serves a directory.
    ///
    /// # Errors
    /// Where the server does not start.
    pub fn start(directory: &Path) -> Result<Self> {
        let (state, port) = (TempDir::with_prefix("nfsw-served-")?, free_port());
        let serve = ["serve".into(), path(directory), "--listen".into(), format!("0.0.0.0:{port}")];
        let process = Process::start(client::binary().as_ref(), &serve, &state.path().join("log"))?;
        ready::wait((port, port), false)?;
        Ok(Self { port, _state: state, process })
    }

    /// The port of NFS and MOUNT.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills it.
    pub fn end(&mut self) {
        self.process.kill();
    }
}

/// A view of what `nfsw serve` serves, as a server for NFS clients.
#[derive(Debug)]
pub struct Loopback {
    state: TempDir,
    target: String,
    options: Vec<String>,
    port: u16,
    view: Process,
}

impl Loopback {
    /// Shows what a server serves, with options of `nfsw mount`.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn of(server: &Served, options: &[&str]) -> Result<Self> {
        let (state, port) = (TempDir::with_prefix("nfsw-loopback-")?, free_port());
        let target = format!("nfs://127.0.0.1:{}/", server.port());
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let view = show(&state, &target, &options, port)?;
        Ok(Self { state, target, options, port, view })
    }

    /// The port of NFS and MOUNT on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills the view, and shows it again at the same port.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn restart(&mut self) -> Result<()> {
        self.view.kill();
        self.view = show(&self.state, &self.target, &self.options, self.port)?;
        Ok(())
    }
}

fn show(state: &TempDir, target: &str, options: &[String], port: u16) -> Result<Process> {
    let cache = path(&state.path().join("cache"));
    let fixed =
        ["mount", "--via", "nfs", "--cache", &cache, "--listen", &format!("127.0.0.1:{port}"), target];
    let arguments: Vec<String> =
        fixed.iter().map(|&argument| argument.to_owned()).chain(options.iter().cloned()).collect();
    let view = Process::start(client::binary().as_ref(), &arguments, &state.path().join("mount.log"))?;
    ready::wait((port, port), false)?;
    Ok(view)
}

fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
