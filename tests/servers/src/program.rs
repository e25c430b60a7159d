//! Servers that are a program with a directory and a port, each started in the same way.

use std::{ffi::OsString, path::PathBuf, sync::OnceLock, time::Duration};

use anyhow::{Result, anyhow};
use tempfile::TempDir;

use crate::{
    Server,
    process::{Process, free_port},
};

/// Makes a program once for all tests of a process; a failure is told each time.
pub(crate) fn once(
    made: &OnceLock<Result<PathBuf, String>>,
    make: impl FnOnce() -> Result<PathBuf>,
) -> Result<PathBuf> {
    made.get_or_init(|| make().map_err(|error| format!("{error:#}"))).clone().map_err(|error| anyhow!(error))
}

/// How a program is told what to serve.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// What to run.
    pub(crate) path: OsString,
    /// Its arguments, given the directory, the NFS port and the MOUNT port.
    pub(crate) arguments: fn(directory: &str, nfs: u16, mount: u16) -> Vec<String>,
    /// What clients mount, given the directory.
    pub(crate) export: fn(directory: &str) -> String,
    /// Whether NFS and MOUNT share a port.
    pub(crate) one_port: bool,
    /// Whether it offers UDP.
    pub(crate) udp: bool,
}

/// A program that serves a temporary directory.
#[derive(Debug)]
pub(crate) struct Running {
    program: Program,
    state: TempDir,
    ports: (u16, u16),
    process: Process,
}

impl Running {
    pub(crate) fn start(program: Program) -> Result<Self> {
        let state = TempDir::with_prefix("nfsw-server-")?;
        std::fs::create_dir(state.path().join("export"))?;
        let nfs = free_port();
        let ports = (nfs, if program.one_port { nfs } else { free_port() });
        let process = launch(&program, &state, ports)?;
        let server = Self { program, state, ports, process };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn directory(&self) -> PathBuf {
        self.state.path().join("export")
    }
}

fn launch(program: &Program, state: &TempDir, (nfs, mount): (u16, u16)) -> Result<Process> {
    let directory = state.path().join("export").to_string_lossy().into_owned();
    let arguments = (program.arguments)(&directory, nfs, mount);
    Process::start(&program.path, &arguments, &state.path().join("log"))
}

impl Server for Running {
    fn ports(&self) -> (u16, u16) {
        self.ports
    }

    fn export(&self) -> String {
        (self.program.export)(&self.directory().to_string_lossy())
    }

    fn has_udp(&self) -> bool {
        self.program.udp
    }

    fn shared(&self) -> Option<PathBuf> {
        Some(self.directory())
    }

    fn crash_and_restart(&mut self) -> Result<()> {
        self.process.kill();
        // Where a write verifier is made of the time, it is often in whole seconds.
        std::thread::sleep(Duration::from_millis(1100));
        self.process = launch(&self.program, &self.state, self.ports)?;
        self.wait_until_ready()
    }
}
