//! The Rust library nfs3_server, in the program that its authors publish with it.

use std::{
    fs::File,
    path::PathBuf,
    process::{Command, Stdio},
    sync::OnceLock,
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    Server,
    program::{Program, Running, once},
};

const PACKAGE: &str = "cargo-nfs3-server";
const VERSION: &str = "0.2.3";

/// Starts it.
pub(crate) fn start() -> Result<Box<dyn Server>> {
    let program = Program {
        path: installed()?.into(),
        arguments: |directory, port, _| {
            let port = port.to_string();
            ["--path", directory, "-i", "127.0.0.1", "-p", &port, "--log-level", "warn"]
                .map(str::to_owned)
                .into()
        },
        export: |_| String::new(),
        one_port: true,
        udp: false,
    };
    Ok(Box::new(Running::start(program)?))
}

/// Installs the program below the build directory, once.
fn installed() -> Result<PathBuf> {
    static INSTALLED: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    once(&INSTALLED, install)
}

fn install() -> Result<PathBuf> {
    let place = crate::build_directory().join("private-servers").join(format!("{PACKAGE}-{VERSION}"));
    let program = place.join("bin").join(PACKAGE);
    std::fs::create_dir_all(&place)?;
    let lock = File::create(place.join("lock"))?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)?;
    if !program.exists() {
        let output = Command::new(env!("CARGO"))
            .args(["install", "--quiet", "--locked", "--debug", PACKAGE, "--version", VERSION, "--root"])
            .arg(&place)
            .arg("--target-dir")
            .arg(place.join("build"))
            .stdin(Stdio::null())
            .output()
            .context("running cargo")?;
        ensure!(output.status.success(), "cargo install: {}", String::from_utf8_lossy(&output.stderr));
        std::fs::remove_dir_all(place.join("build"))?;
    }
    Ok(program)
}
