//! nfs-ganesha, a server in user space: own ports, own mount namespace, own port mapper.
//!
//! It needs root and the packages nfs-ganesha and nfs-ganesha-vfs, and panics with what is missing.

use std::{
    fs::{self, File},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use nfs_wireless_client::{Client, ClientConfig, TransportChoice};
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use crate::{Server, process::free_port};

/// What differs from a plain read-write export.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Nothing can be changed.
    pub read_only: bool,
    /// Repeated calls are run again.
    pub no_reply_cache: bool,
    /// It listens on all addresses of this host.
    pub everywhere: bool,
    /// It listens on this address of the loopback, where a port mapper tells its ports: clients need to know nothing else.
    pub at: Option<Ipv4Addr>,
    /// NFS is offered over TCP only, as most distributions set it up.
    pub tcp_only: bool,
    /// The largest READ and WRITE in bytes; without it, 64 MiB.
    pub max_block: Option<u32>,
    /// No other server of these tests runs meanwhile: what is timed needs the machine for itself.
    pub alone: bool,
}

/// A running server. It ends when this is dropped.
#[derive(Debug)]
pub struct Ganesha {
    state: TempDir,
    host: Ipv4Addr,
    nfs_port: u16,
    mount_port: u16,
    process: Child,
    tcp_only: bool,
    _turn: File,
}

impl Ganesha {
    /// Starts a server and waits until it answers over UDP and TCP.
    ///
    /// # Panics
    /// When it cannot be had: the message says what is missing.
    pub fn start(options: Options) -> Self {
        Self::start_in(&std::env::temp_dir(), options)
    }

    /// As [`Self::start`], with the export and everything else beneath a directory.
    ///
    /// # Panics
    /// When it cannot be had: the message says what is missing.
    pub fn start_in(directory: &Path, options: Options) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "this test runs a real NFS server, which needs root: run the tests as root, as CI does"
        );
        let turn = take_turn(options.alone);
        let state = TempDir::with_prefix_in("nfsw-ganesha-", directory).expect("a temporary directory");
        let export = state.path().join("export");
        fs::create_dir(&export).expect("an export directory");
        crate::rpcbind::serve(&state.path().join("rpcbind.sock")).expect("a Unix socket");
        let (nfs_port, mount_port) = (free_port(), free_port());
        let address = match options.at {
            Some(address) => address,
            None if options.everywhere => Ipv4Addr::UNSPECIFIED,
            None => Ipv4Addr::LOCALHOST,
        };
        let access = if options.read_only { "RO" } else { "RW" };
        let sizes = options.max_block.map_or_else(String::new, |bytes| {
            format!("MaxRead = {bytes}; MaxWrite = {bytes}; PrefRead = {bytes}; PrefWrite = {bytes};")
        });
        let configuration = format!(
            "NFS_CORE_PARAM {{ Protocols = 3; Enable_UDP = {udp}; Enable_NLM = false; Enable_RQUOTA = false;
               NFS_Port = {nfs_port}; MNT_Port = {mount_port}; Bind_addr = {address}; DRC_Disabled = {no_cache}; }}
             NFS_KRB5 {{ Active_krb5 = false; }}
             EXPORT {{ Export_Id = 1; Path = \"{path}\"; Pseudo = /export; Access_Type = {access};
               Squash = No_Root_Squash; Protocols = 3; Transports = UDP, TCP; SecType = sys;
               PrivilegedPort = false; {sizes} Attr_Expiration_Time = 0; FSAL {{ Name = VFS; }} }}
             LOG {{ Default_Log_Level = EVENT; }}",
            no_cache = options.no_reply_cache,
            udp = !options.tcp_only,
            path = export.display(),
        );
        fs::write(state.path().join("ganesha.conf"), configuration).expect("a configuration file");
        let process = launch(state.path());
        if let Some(address) = options.at {
            crate::rpcbind::tell(address.into(), (nfs_port, mount_port))
                .expect("the port of the port mapper");
        }
        let host = options.at.unwrap_or(Ipv4Addr::LOCALHOST);
        let server =
            Self { state, host, nfs_port, mount_port, process, tcp_only: options.tcp_only, _turn: turn };
        // On a thread of its own, for the test may be running inside a runtime.
        thread::scope(|scope| scope.spawn(|| server.wait_until_ready()).join()).expect("the server is ready");
        server
    }

    /// The exported directory, which is also the path to mount.
    pub fn export(&self) -> PathBuf {
        self.state.path().join("export")
    }

    /// A client configuration that finds the server.
    pub fn config(&self, transport: TransportChoice) -> ClientConfig {
        let mut config = ClientConfig::default();
        config.transport = transport;
        config.nfs_port = Some(self.nfs_port);
        config.mount_port = Some(self.mount_port);
        config
    }

    /// Kills the server as a power cut would, waits until its write verifier is sure to differ, and starts it again.
    pub fn crash_and_restart(&mut self) {
        self.kill();
        // The verifier is the start time in whole seconds.
        thread::sleep(Duration::from_millis(1100));
        self.process = launch(self.state.path());
    }

    /// The ports of NFS and MOUNT.
    pub fn ports(&self) -> (u16, u16) {
        (self.nfs_port, self.mount_port)
    }

    /// Bytes that the server has read from files and written to them since it was started, by the kernel's count
    /// (proc_pid_io(5)). Sockets do not count; the log does, and is short.
    pub fn moved_bytes(&self) -> u64 {
        let counts = fs::read_to_string(format!("/proc/{}/io", self.process.id()))
            .expect("the counts of a process of ours");
        let count = |name: &str| {
            let value = counts.lines().find_map(|line| line.strip_prefix(name)).expect("a count");
            value.trim().parse::<u64>().expect("a number")
        };
        count("rchar:") + count("wchar:")
    }

    fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Waits until the server answers over TCP and, unless that is off, UDP.
    pub fn wait_until_ready(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let end = Instant::now() + Duration::from_secs(30);
        for transport in [TransportChoice::Udp, TransportChoice::Tcp] {
            if self.tcp_only && transport == TransportChoice::Udp {
                continue;
            }
            let mut config = self.config(transport);
            config.connect_timeout = Some(Duration::from_secs(1));
            let path = self.export();
            let path = path.as_os_str().as_encoded_bytes();
            while let Err(error) =
                runtime.block_on(Client::connect(&self.host.to_string(), path, config.clone()))
            {
                let log = || fs::read_to_string(self.state.path().join("ganesha.log")).unwrap_or_default();
                assert!(
                    Instant::now() < end,
                    "nfs-ganesha does not answer over {transport:?}: {error}\n{}",
                    log()
                );
                thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

impl Server for Ganesha {
    fn ports(&self) -> (u16, u16) {
        Self::ports(self)
    }

    fn export(&self) -> String {
        Self::export(self).to_string_lossy().into_owned()
    }

    fn has_udp(&self) -> bool {
        !self.tcp_only
    }

    fn shared(&self) -> Option<PathBuf> {
        Some(Self::export(self))
    }

    fn crash_and_restart(&mut self) -> Result<()> {
        Self::crash_and_restart(self);
        Self::wait_until_ready(self);
        Ok(())
    }
}

impl Drop for Ganesha {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts the server in a mount namespace where `/run` holds the socket of our port mapper.
fn launch(state: &Path) -> Child {
    assert!(
        Path::new("/usr/bin/ganesha.nfsd").exists(),
        "this test needs a real NFS server: install the packages nfs-ganesha and nfs-ganesha-vfs (ci.sh does)"
    );
    let script = "mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /var/lib/nfs &&
        ln -s \"$0/rpcbind.sock\" /run/rpcbind.sock &&
        exec ganesha.nfsd -F -f \"$0/ganesha.conf\" -L \"$0/ganesha.log\" -p /run/ganesha.pid -N NIV_EVENT";
    Command::new("unshare")
        .args(["--mount", "--propagation", "slave", "sh", "-c", script])
        .arg(state)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("unshare runs")
}

/// Waits until nobody is running who wants to be alone, and, to be `alone`, until nobody is running at all.
fn take_turn(alone: bool) -> File {
    let path = crate::build_directory().join("ganesha.lock");
    let file = File::create(path).expect("a lock file beside the build");
    let kind = if alone { FlockOperation::LockExclusive } else { FlockOperation::LockShared };
    flock(&file, kind).expect("a lock");
    file
}
