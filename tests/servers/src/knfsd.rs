//! The Linux kernel's server, and its client, in a virtual machine.

mod client;
mod image;
mod machine;

use std::{
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::{Caller, Server, View};
pub use client::KernelClient;
use machine::Machine;

/// How the server is set up.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The largest READ and WRITE; 1 MiB is what a machine with 8 GiB of memory comes to by itself.
    pub max_block: u32,
    /// NFS over UDP, which has been off by default since nfs-utils 2.2.1.
    pub udp: bool,
    /// Threads that serve.
    pub threads: u32,
    /// Calls from ports above 1023 are refused, as `exportfs` does by default.
    pub secure: bool,
    /// The superuser is nobody, as `exportfs` does by default.
    pub root_squash: bool,
    /// Nothing can be changed.
    pub read_only: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_block: 1 << 20,
            udp: true,
            threads: 8,
            secure: false,
            root_squash: false,
            read_only: false,
        }
    }
}

/// The virtual machine of this program, which has one turn after the other.
type Turn = MutexGuard<'static, Option<Machine>>;

/// A server in the virtual machine.
#[derive(Debug)]
pub struct Knfsd {
    machine: Turn,
    options: Options,
}

impl Knfsd {
    /// Starts the server, and the virtual machine where this is the first one.
    ///
    /// # Errors
    /// Where the machine cannot be had: the message says what is missing.
    pub fn start(options: Options) -> Result<Self> {
        let server = Self { machine: booted()?, options };
        server.machine().shell("exportfs -ua; rpc.nfsd 0; rm -rf /export/*")?;
        server.configure()?;
        Ok(server)
    }

    fn configure(&self) -> Result<()> {
        let Options { max_block, udp, threads, secure, root_squash, read_only } = self.options;
        let pick = |condition, yes, no| if condition { yes } else { no };
        self.machine().shell(&format!(
            "echo {max_block} >/proc/fs/nfsd/max_block_size
             echo '/export *({access},{ports},{root},sync,no_subtree_check,fsid=1)' >/etc/exports
             exportfs -ra
             rpc.nfsd -t {udp} -N 4 -p 2049 -G 10 -L 10 {threads}",
            udp = pick(udp, "-u", "-U"),
            access = pick(read_only, "ro", "rw"),
            ports = pick(secure, "secure", "insecure"),
            root = pick(root_squash, "root_squash", "no_root_squash"),
        ))?;
        self.wait_until_ready()
    }

    /// Runs a script in the exported directory, as somebody who works on the server, and returns what it printed.
    ///
    /// # Errors
    /// Where it ends with another status than 0.
    pub fn run(&self, script: &str) -> Result<String> {
        self.machine().shell(&format!("cd /export\n{script}"))
    }

    fn machine(&self) -> &Machine {
        self.machine.as_ref().expect("booted when this was made")
    }
}

/// Takes the virtual machine of this program, which is booted where this is the first turn.
fn booted() -> Result<Turn> {
    static MACHINE: Mutex<Option<Machine>> = Mutex::new(None);
    let mut machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    if machine.is_none() {
        *machine = Some(Machine::boot()?);
    }
    Ok(machine)
}

impl Server for Knfsd {
    fn ports(&self) -> (u16, u16) {
        let ports = self.machine().ports();
        (ports.nfs, ports.mount)
    }

    fn export(&self) -> String {
        "/export".to_owned()
    }

    fn has_udp(&self) -> bool {
        self.options.udp
    }

    fn caller(&self) -> Caller {
        if self.options.secure { Caller::Nobody } else { Caller::Root }
    }

    fn put(&self, from: &Path, below: &str) -> Result<()> {
        self.machine().shell(&format!("mkdir -p '/export/{below}'"))?;
        self.machine().put(from, below)?;
        // What was there before a step also outlives a loss of power in it.
        self.machine().shell(&format!("chmod 1777 '/export/{below}' && sync -f '/export/{below}'")).map(drop)
    }

    fn look(&self, below: &str) -> Result<View> {
        let copy = TempDir::with_prefix("nfsw-look-")?;
        self.machine()
            .fetch(&format!("/export/{below}"), copy.path())
            .with_context(|| format!("looking at {below}"))?;
        Ok(View::copied(copy))
    }

    fn size(&self, below: &str) -> Option<u64> {
        let said = self.machine().shell(&format!("stat -c %s '/export/{below}'*")).ok()?;
        said.lines().next()?.parse().ok()
    }

    fn reexport(&self) -> Result<()> {
        self.machine().shell("exportfs -ua; sleep 1; exportfs -ra").map(drop)
    }

    fn crash_and_restart(&mut self) -> Result<()> {
        self.machine.as_mut().context("no machine")?.crash_and_boot()?;
        self.configure()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_crash_loses_what_was_not_written_to_the_disk() {
        let mut server = Knfsd::start(Options::default()).unwrap();
        let local = tempfile::tempdir().unwrap();
        fs::write(local.path().join("file"), "text").unwrap();
        server.put(local.path(), "synced").unwrap();
        server.machine().shell("mkdir /export/volatile && echo text >/export/volatile/file").unwrap();
        assert_eq!(fs::read(server.look("volatile").unwrap().path().join("file")).unwrap(), b"text\n");
        server.crash_and_restart().unwrap();
        assert_eq!(server.size("synced/file"), Some(4));
        assert_eq!(server.size("volatile/file"), None);
    }
}
