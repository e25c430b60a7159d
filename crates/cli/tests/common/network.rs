//! Machines with a cable or a switch between them: network namespaces that end with this, and leave nothing behind.

#![allow(dead_code, reason = "every test program uses its own part")]

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::common::{first_line, stderr};

/// A machine: a network and `/etc/hosts` of its own.
pub(crate) struct Machine {
    process: Child,
}

/// The machines at both ends of a cable.
pub(crate) struct Network {
    pub(crate) client: Machine,
    pub(crate) server: Machine,
    directory: tempfile::TempDir,
}

impl Machine {
    pub(crate) fn start() -> Self {
        let root = rustix::process::geteuid().is_root();
        assert!(root, "these tests make networks, which needs root: run them as root, as CI does");
        let mut process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "--net", "--mount", "--propagation", "private"])
            .args(["sh", "-c", "ip link set lo up && echo ready && exec sleep 1000"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let line = first_line(&mut process);
        assert_eq!(line, "ready\n", "a network cannot be made: are NET_ADMIN and SYS_ADMIN missing?");
        Self { process }
    }

    /// Names its namespaces.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Prepares a program to run on this machine.
    pub(crate) fn command(&self, program: &str) -> Command {
        let id = self.process.id();
        let mut command = Command::new("nsenter");
        command.args([format!("--net=/proc/{id}/ns/net"), format!("--mount=/proc/{id}/ns/mnt")]);
        command.args(["--", program]).stdin(Stdio::null());
        command
    }

    /// Its file tree with its mounts, as a path of this host.
    pub(crate) fn root(&self) -> std::path::PathBuf {
        format!("/proc/{}/root", self.process.id()).into()
    }

    /// Runs a script on this machine.
    pub(crate) fn run(&self, script: &str) {
        let output = self.command("sh").args(["-ec", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {}", stderr(&output));
    }
}

/// Machines at one switch, without a router: the n-th has the address 10.9.0.n on `eth0`.
pub(crate) struct Neighbours {
    pub(crate) machines: Vec<Machine>,
    _switch: Machine,
}

impl Neighbours {
    pub(crate) fn start(count: usize) -> Self {
        let switch = Machine::start();
        switch.run("ip link add switch type bridge mcast_snooping 0 && ip link set switch up");
        let machine = |number: usize| {
            let machine = Machine::start();
            switch.run(&format!(
                "ip link add port{number} type veth peer name eth0 netns {}
                 ip link set port{number} master switch up",
                machine.id()
            ));
            machine.run(&format!("ip addr add 10.9.0.{number}/24 dev eth0 && ip link set eth0 up"));
            machine
        };
        Self { machines: (1..=count).map(machine).collect(), _switch: switch }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Network {
    /// The client has the address 10.9.0.1 on `near`, the server, which is called `mobile`, 10.9.0.2 on `far`.
    pub(crate) fn start() -> Self {
        let (client, server) = (Machine::start(), Machine::start());
        let directory = tempfile::tempdir().unwrap();
        let network = Self { client, server, directory };
        network.name_server("10.9.0.2");
        let hosts = network.hosts();
        network.client.run(&format!(
            "ip link add near type veth peer name far netns {}
             ip addr add 10.9.0.1/24 dev near && ip link set near up
             mount --bind {} /etc/hosts",
            network.server.process.id(),
            hosts.display()
        ));
        network.server.run("ip addr add 10.9.0.2/24 dev far && ip link set far up");
        network
    }

    /// Says where the name `mobile` leads.
    pub(crate) fn name_server(&self, address: &str) {
        fs::write(self.hosts(), format!("127.0.0.1 localhost\n{address} mobile\n")).unwrap();
    }

    fn hosts(&self) -> std::path::PathBuf {
        self.directory.path().join("hosts")
    }

    /// Serves a directory on the server's port 2049.
    pub(crate) fn serve(&self, root: &Path) -> Child {
        let mut process = self
            .server
            .command(env!("CARGO_BIN_EXE_nfsw"))
            .args(["serve", "--listen", "0.0.0.0:2049"])
            .arg(root)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let line = first_line(&mut process);
        assert!(line.starts_with("serving"), "{line}");
        process
    }
}
