//! A name for what a build can offer, so that the sources need not repeat the condition.
//!
//! `linux`: the system calls of Linux. With `RUSTFLAGS='--cfg portable_only'` a build on Linux does without them, as a build for
//! another system.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(linux)");
    let has = |name: &str| env::var_os(name).is_some();
    let is_linux = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux");
    if is_linux && !has("CARGO_CFG_PORTABLE_ONLY") {
        println!("cargo::rustc-cfg=linux");
    }
}
