//! The command `nfsw` of this build.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// The binary beside this test, built if need be.
///
/// # Panics
/// Where it does not build.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let mut profile = std::env::current_exe().expect("the test's own path");
        profile.pop();
        profile.pop();
        let mut build = Command::new(env!("CARGO"));
        // Beside a test it has the features that a test of the workspace has built it with: nothing is built twice.
        build.args(["build", "--quiet", "--workspace", "--bin", "nfsw", "--test", "architecture"]);
        if profile.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().expect("cargo runs").success(), "nfsw does not build");
        profile.join("nfsw")
    })
}
