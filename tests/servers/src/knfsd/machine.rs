//! A virtual machine that boots the guest, and shells in it.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{FlockOperation, flock};

use super::image::{self, Image};
use crate::process::{Process, free_port};

/// How long a boot may take where every instruction of the guest is emulated.
const PATIENCE: Duration = Duration::from_secs(180);

/// The emulator; without hardware support, for machines that are virtual themselves rarely have it.
const QEMU: &str = "qemu-system-x86_64";

/// Memory of the guest in MiB. It holds all files of a test, before they are written to the disk.
const MEMORY_MIB: u32 = 2048;

/// Bytes of the disk; blocks that are never written take no place.
const DISK_BYTES: u64 = 2 << 30;

/// A guest that runs, with its disk.
#[derive(Debug)]
pub(crate) struct Machine {
    /// Where its disk is. Another run takes the same place: nothing is left that grows.
    state: PathBuf,
    _turn: File,
    image: Image,
    ports: Ports,
    process: Process,
}

/// Ports of this machine that lead to ports of the guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) nfs: u16,
    pub(crate) mount: u16,
    shell: u16,
    unpack: u16,
}

impl Machine {
    /// Boots a guest with an empty disk.
    pub(crate) fn boot() -> Result<Self> {
        let state = image::cache()?.join("machine");
        fs::create_dir_all(&state)?;
        // One machine at a time: each takes a processor and its memory.
        let turn = File::create(state.join("lock"))?;
        flock(&turn, FlockOperation::LockExclusive)?;
        let image = Image::get()?;
        let disk = state.join("disk");
        File::create(&disk)?.set_len(DISK_BYTES)?;
        let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&disk).stdin(Stdio::null()).output();
        let made = made.context("mkfs.ext4 is missing: install e2fsprogs")?;
        ensure!(made.status.success(), "mkfs.ext4: {}", String::from_utf8_lossy(&made.stderr));
        let ports = Ports { nfs: free_port(), mount: free_port(), shell: free_port(), unpack: free_port() };
        let process = start(&state, &image, ports)?;
        let machine = Self { state, _turn: turn, image, ports, process };
        machine.wait_until_ready()?;
        Ok(machine)
    }

    /// Cuts the power: what the guest had only in memory is lost. Then boots it again.
    pub(crate) fn crash_and_boot(&mut self) -> Result<()> {
        self.process.kill();
        self.process = start(&self.state, &self.image, self.ports)?;
        self.wait_until_ready()
    }

    /// The ports of this machine that lead to the guest.
    pub(crate) fn ports(&self) -> Ports {
        self.ports
    }

    /// Runs a script in the guest and returns what it printed.
    ///
    /// # Errors
    /// Where it cannot be reached, or the script ends with another status than 0.
    pub(crate) fn shell(&self, script: &str) -> Result<String> {
        let script = format!("( set -e\n{script}\n) 2>&1; echo \"status $?\"");
        let said = String::from_utf8_lossy(&self.shell_bytes(&script)?).into_owned();
        let (said, status) = said.rsplit_once("status ").context("the guest's shell broke off")?;
        ensure!(status.trim() == "0", "in the guest, status {}: {said}\n{script}", status.trim());
        Ok(said.to_owned())
    }

    /// Runs a script and returns its standard output as it is.
    pub(crate) fn shell_bytes(&self, script: &str) -> Result<Vec<u8>> {
        self.said_by(script).with_context(|| {
            let console = self.console();
            let last: Vec<_> = console.lines().rev().take(20).collect();
            format!("the guest's shell, for {script:?}; its console, last line first: {last:#?}")
        })
    }

    fn said_by(&self, script: &str) -> Result<Vec<u8>> {
        let mut stream = self.shell_that_answers()?;
        stream.write_all(format!("{script}\nexit\n").as_bytes())?;
        let mut said = Vec::new();
        stream.read_to_end(&mut said)?;
        Ok(said)
    }

    /// Connects to a shell. The emulator accepts before the guest does: a guest that is late or has no place resets the connection
    /// then, and no script has begun.
    fn shell_that_answers(&self) -> Result<TcpStream> {
        let start = Instant::now();
        loop {
            let mut stream = self.connect(self.ports.shell)?;
            let mut answer = [0; 6];
            let asked = stream.write_all(b"echo ready\n").and_then(|()| stream.read_exact(&mut answer));
            match asked {
                Ok(()) if answer == *b"ready\n" => return Ok(stream),
                Ok(()) => bail!("no shell: {:?}", String::from_utf8_lossy(&answer)),
                Err(error) if start.elapsed() > PATIENCE => return Err(error).context("no shell answers"),
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Copies what is in a directory of this machine into one below the export, which must exist.
    pub(crate) fn put(&self, from: &Path, below: &str) -> Result<()> {
        let mut stream = self.connect(self.ports.unpack)?;
        let mut tar = Command::new("tar")
            .args(["c", "--numeric-owner", "--transform", &format!("s,^[.],{below},S"), "-C"])
            .arg(from)
            .arg(".")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("tar is missing")?;
        std::io::copy(&mut tar.stdout.take().context("piped above")?, &mut stream)?;
        ensure!(tar.wait()?.success(), "tar could not read {}", from.display());
        stream.shutdown(Shutdown::Write)?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        ensure!(said.is_empty(), "tar in the guest: {said}");
        Ok(())
    }

    /// Copies a directory of the guest to this machine.
    pub(crate) fn fetch(&self, directory: &str, to: &Path) -> Result<()> {
        let archive = self.shell_bytes(&format!("tar c -C '{directory}' ."))?;
        let mut tar = Command::new("tar")
            .args(["x", "--numeric-owner", "-p", "-C"])
            .arg(to)
            .stdin(Stdio::piped())
            .spawn()
            .context("tar is missing")?;
        tar.stdin.take().context("piped above")?.write_all(&archive)?;
        if !tar.wait()?.success() {
            let said = self.shell(&format!("tar c -C '{directory}' . 2>&1 >/dev/null"));
            bail!("what the guest sent is no archive; asked again, it says: {said:?}");
        }
        Ok(())
    }

    fn connect(&self, port: u16) -> Result<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("the virtual machine has ended")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    fn wait_until_ready(&self) -> Result<()> {
        let start = Instant::now();
        while !self.console().contains("guest is ready") {
            if start.elapsed() > PATIENCE {
                bail!("the guest is not up after {PATIENCE:?}; its console:\n{}", self.console());
            }
            thread::sleep(Duration::from_millis(50));
        }
        // Listening begins a moment after the announcement.
        while self.shell("true").is_err() {
            ensure!(start.elapsed() < PATIENCE, "no shell in the guest; its console:\n{}", self.console());
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// What the guest and the emulator have printed.
    fn console(&self) -> String {
        let read = |name: &str| fs::read(self.state.join(name)).unwrap_or_default();
        let text = [read("console"), read("emulator.log")].concat();
        String::from_utf8_lossy(&text).into_owned()
    }
}

fn start(state: &Path, image: &Image, ports: Ports) -> Result<Process> {
    let path = |path: PathBuf| path.to_string_lossy().into_owned();
    let mut network = "user,id=net".to_owned();
    for (here, guest, protocols) in [
        (ports.nfs, 2049, &["tcp", "udp"][..]),
        (ports.mount, 20048, &["tcp", "udp"]),
        (ports.shell, 2323, &["tcp"]),
        (ports.unpack, 2324, &["tcp"]),
    ] {
        for protocol in protocols {
            network += &format!(",hostfwd={protocol}:127.0.0.1:{here}-:{guest}");
        }
    }
    // Left from an earlier boot, it would say that the guest is ready.
    let console = path(state.join("console"));
    fs::write(&console, "")?;
    let arguments = [
        "-accel tcg,thread=multi -cpu max -smp 1 -no-reboot -nodefaults -display none".to_owned(),
        format!(
            "-m {MEMORY_MIB} -kernel {} -initrd {}",
            path(image.kernel.clone()),
            path(image.root.clone())
        ),
        format!("-drive file={},if=virtio,format=raw,cache=unsafe", path(state.join("disk"))),
        format!("-netdev {network} -device virtio-net-pci,netdev=net,romfile="),
        format!("-serial file:{console}"),
    ];
    let mut arguments: Vec<_> =
        arguments.iter().flat_map(|some| some.split(' ').map(str::to_owned)).collect();
    arguments.extend(["-append", "console=ttyS0 quiet panic=-1 rdinit=/init"].map(str::to_owned));
    Process::start(QEMU.as_ref(), &arguments, &state.join("emulator.log")).context("install qemu-system-x86")
}
