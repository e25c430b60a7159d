//! The Rust library nfsserve, in a small program of ours.

use anyhow::{Context as _, Result};

use crate::{
    Server,
    program::{Program, Running},
};

/// Starts it.
pub(crate) fn start() -> Result<Box<dyn Server>> {
    // Cargo builds it with the tests of this package, and puts it beside the directory that they are in.
    let tests = std::env::current_exe()?;
    let profile = tests.parent().and_then(std::path::Path::parent).context("a build directory")?;
    let program = Program {
        path: profile.join("private-nfsserve").into(),
        arguments: |directory, port, _| vec![format!("127.0.0.1:{port}"), directory.into()],
        export: |_| String::new(),
        one_port: true,
        udp: false,
    };
    Ok(Box::new(Running::start(program)?))
}
