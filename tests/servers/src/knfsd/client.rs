//! The Linux kernel's client.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use super::{Turn, booted};
use crate::View;

/// This machine, as the guest sees it.
const HOST: &str = "10.0.2.2";

/// Where the guest mounts.
const MOUNT_POINT: &str = "/mnt";

/// The kernel of the virtual machine as a client of servers of this machine.
#[derive(Debug)]
pub struct KernelClient {
    machine: Turn,
}

impl KernelClient {
    /// Takes the virtual machine, and boots it where this is the first turn.
    ///
    /// # Errors
    /// Where the machine cannot be had: the message says what is missing.
    pub fn start() -> Result<Self> {
        Ok(Self { machine: booted()? })
    }

    /// Mounts what a server shows on a port of this machine, with further options of nfs(5).
    ///
    /// # Errors
    /// Where the kernel cannot mount it.
    pub fn mount(&self, port: u16, options: &str) -> Result<()> {
        self.mount_at(HOST, port, options)
    }

    /// The same, of any machine that this one reaches.
    ///
    /// # Errors
    /// Where the kernel cannot mount it.
    pub fn mount_at(&self, host: &str, port: u16, options: &str) -> Result<()> {
        // The kernel asks the MOUNT service itself.
        let fixed =
            format!("addr={host},vers=3,proto=tcp,mountproto=tcp,port={port},mountport={port},nolock");
        self.shell(&format!("mount -t nfs -o ro,{fixed},{options} {host}:/ {MOUNT_POINT}")).map(drop)
    }

    /// Unmounts it.
    ///
    /// # Errors
    /// Where something is open there.
    pub fn unmount(&self) -> Result<()> {
        self.shell(&format!("umount {MOUNT_POINT}")).map(drop)
    }

    /// Runs a script in the mounted directory, and returns what it printed.
    ///
    /// # Errors
    /// Where it ends with another status than 0.
    pub fn run(&self, script: &str) -> Result<String> {
        self.shell(&format!("cd {MOUNT_POINT}\n{script}"))
    }

    /// Runs a script in the mounted directory, and returns how long that took by the clock of the guest, and whether it succeeded.
    ///
    /// # Errors
    /// Where the guest cannot be reached.
    pub fn time(&self, script: &str) -> Result<(Duration, bool)> {
        let uptime = "cut -d' ' -f1 /proc/uptime";
        let said = self.shell(&format!(
            "cd {MOUNT_POINT}
             {uptime}
             if ( {script} ) >/dev/null 2>&1; then echo done; fi
             {uptime}"
        ))?;
        let times: Vec<f64> = said.lines().filter_map(|line| line.trim().parse().ok()).collect();
        let (begun, ended) = (times.first().context("no time")?, times.last().context("no time")?);
        Ok((Duration::from_secs_f64(ended - begun), said.contains("done")))
    }

    /// Reads everything below a directory of what is mounted.
    ///
    /// # Errors
    /// Where something cannot be read.
    pub fn copy(&self, below: &str) -> Result<View> {
        let copy = TempDir::with_prefix("nfsw-look-")?;
        let machine = self.machine.as_ref().context("it was booted")?;
        machine.fetch(&format!("{MOUNT_POINT}/{below}"), copy.path())?;
        Ok(View::copied(copy))
    }

    fn shell(&self, script: &str) -> Result<String> {
        self.machine.as_ref().context("it was booted")?.shell(script)
    }
}

impl Drop for KernelClient {
    fn drop(&mut self) {
        // Whoever has the next turn finds nothing mounted.
        let _ = self.shell(&format!("! mountpoint -q {MOUNT_POINT} || umount -f -l {MOUNT_POINT}"));
    }
}
