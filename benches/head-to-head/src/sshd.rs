//! A private sshd for rsync and scp: own port, keys and configuration, gone when it is dropped.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};

/// A running sshd that lets root in with one key.
#[derive(Debug)]
pub(crate) struct Sshd {
    process: Child,
    pub(crate) port: u16,
    /// Options of ssh and scp that find the key and ask nothing.
    pub(crate) options: String,
}

const SSHD: &str = "/usr/sbin/sshd";

impl Sshd {
    /// Whether there is one to run.
    pub(crate) fn installed() -> bool {
        Path::new(SSHD).is_file()
    }

    /// Starts it and waits until it listens.
    pub(crate) fn start(directory: &Path) -> anyhow::Result<Self> {
        let (host, user) = (directory.join("host-key"), directory.join("user-key"));
        for key in [&host, &user] {
            let made =
                Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(key).status()?;
            ensure!(made.success(), "ssh-keygen makes no key");
        }
        fs::copy(user.with_extension("pub"), directory.join("authorized"))?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let configuration = format!(
            "Port {port}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nUseDNS no\nMaxStartups 1000\n\
             PermitRootLogin prohibit-password\nPasswordAuthentication no\nSubsystem sftp internal-sftp\nPidFile none\n",
            host.display(),
            directory.join("authorized").display()
        );
        let file = directory.join("sshd_config");
        fs::write(&file, configuration)?;
        // sshd wants a directory in /run, which others need not see.
        let script =
            "mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd && exec \"$0\" -D -e -f \"$1\" 2>\"$1.log\"";
        let process = Command::new("unshare")
            .args(["--mount", "--propagation", "slave", "sh", "-c", script, SSHD])
            .arg(&file)
            .stdin(Stdio::null())
            .spawn()
            .context("unshare")?;
        let options = format!(
            "-F none -i {} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o BatchMode=yes",
            user.display()
        );
        let server = Self { process, port, options };
        let end = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = || fs::read_to_string(file.with_extension("log")).unwrap_or_default();
            ensure!(Instant::now() < end, "sshd does not listen: {}", log());
            thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
