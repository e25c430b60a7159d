//! unfs3, a small server in user space that Debian 12 has no package of: its program is named by hand.

use std::{ffi::OsString, fs};

use anyhow::{Context as _, Result};

use crate::{
    Server,
    program::{Program, Running},
};

/// Names the program `unfsd`.
pub const PROGRAM: &str = "NFSW_UNFS3";

/// Starts it.
pub(crate) fn start() -> Result<Box<dyn Server>> {
    let path: OsString = std::env::var_os(PROGRAM)
        .with_context(|| format!("{PROGRAM} names no unfsd: ./ci.sh servers --with unfs3=PATH"))?;
    let program = Program {
        path,
        arguments: |directory, nfs, mount| {
            let exports = format!("{directory}.exports");
            fs::write(&exports, format!("{directory} 127.0.0.1(rw,no_root_squash,insecure)\n"))
                .expect("a writable directory");
            ["-d", "-u", "-p", "-l", "127.0.0.1", "-e", &exports]
                .map(str::to_owned)
                .into_iter()
                .chain(["-n".into(), nfs.to_string(), "-m".into(), mount.to_string()])
                .collect()
        },
        export: str::to_owned,
        one_port: false,
        udp: true,
    };
    Ok(Box::new(Running::start(program)?))
}
