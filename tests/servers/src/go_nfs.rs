//! The Go library go-nfs, which rclone's `serve nfs` uses, too, in a small program of ours.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    Server,
    program::{Program, Running, once},
};

/// What it says to EXPORT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exports {
    /// What the library says: PROG_MISMATCH, without the versions that it should name.
    AsItIs,
    /// A list of one path, `/`.
    Root,
    /// PROC_UNAVAIL.
    Unavailable,
}

/// Starts it.
pub(crate) fn start(exports: Exports) -> Result<Box<dyn Server>> {
    let arguments: fn(&str, u16, u16) -> Vec<String> = match exports {
        Exports::AsItIs => |directory, port, _| vec![format!("127.0.0.1:{port}"), directory.into()],
        Exports::Root => {
            |directory, port, _| vec!["-exports=root".into(), format!("127.0.0.1:{port}"), directory.into()]
        }
        Exports::Unavailable => |directory, port, _| {
            vec!["-exports=unavailable".into(), format!("127.0.0.1:{port}"), directory.into()]
        },
    };
    let path = built()?.into();
    let program = Program { path, arguments, export: |_| String::new(), one_port: true, udp: false };
    Ok(Box::new(Running::start(program)?))
}

/// Builds the program, once.
fn built() -> Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    once(&BUILT, build)
}

fn build() -> Result<PathBuf> {
    let program = crate::build_directory().join("private-servers/go-nfs");
    let usual = Path::new("/usr/local/go/bin/go");
    let go = if usual.exists() { usual } else { Path::new("go") };
    let output = Command::new(go)
        .args(["build", "-trimpath", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("go-nfs"))
        .output()
        .context("Go is missing: install it (go.mod says which version), or put it into PATH")?;
    ensure!(output.status.success(), "go build: {}", String::from_utf8_lossy(&output.stderr));
    Ok(program)
}
