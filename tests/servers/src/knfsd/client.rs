//! The Linux kernel's NFS client.

use std::sync::MutexGuard;

use anyhow::Result;

use super::{Machine, booted};

/// Address of the machine that the guest runs on, as the guest sees it: what is sent there comes out of the loopback.
const HOST: &str = "10.0.2.2";

/// Where the guest mounts.
const POINT: &str = "/run/mounted";

/// The kernel's client in the virtual machine of this program, with one server of this machine mounted.
#[derive(Debug)]
pub struct Client {
    machine: MutexGuard<'static, Option<Machine>>,
}

impl Client {
    /// Mounts what a server of this machine exports as `/`, over TCP, with NFS and MOUNT on one port.
    ///
    /// # Errors
    /// Where the machine cannot be had, or the mount fails.
    pub fn mount(port: u16, options: &str) -> Result<Self> {
        let client = Self { machine: booted()? };
        let ports = format!("port={port},mountport={port},proto=tcp,mountproto=tcp");
        client.shell(&format!(
            "mkdir -p {POINT}
             mount -t nfs -o nfsvers=3,{ports},nolock,{options} {HOST}:/ {POINT}"
        ))?;
        Ok(client)
    }

    /// Runs a script in the directory that is mounted, and returns what it printed.
    ///
    /// # Errors
    /// If it ends with another status than 0.
    pub fn shell(&self, script: &str) -> Result<String> {
        let machine = self.machine.as_ref().expect("booted when this was made");
        machine.shell(&format!("if [ -d {POINT} ]; then cd {POINT}; fi\n{script}"))
    }

    /// Unmounts it, as the kernel does only where nothing uses it any more.
    ///
    /// # Errors
    /// If something does.
    pub fn unmount(self) -> Result<()> {
        self.shell(&format!("cd /; umount {POINT}")).map(drop)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The next one gets a machine without a mount, whatever became of this one.
        let _ = self.shell(&format!("cd /; umount -l {POINT}"));
    }
}
