//! From the options of a run, of the configuration file and of a URL to how a server is asked.

use std::sync::Arc;

use nfs_wireless_client::{
    BlockSize, ClientConfig, Credential, MAX_BLOCK_BYTES, RetryPolicy, Status, TransportChoice, Window,
};

use super::{ConnectionArgs, Host, Policy, Security, Transport};
use crate::{
    error::{Error, Result},
    progress::Activity,
    servers::{Access, Servers},
    shares,
    units::AutoOr,
    url::{Remote, UrlOptions},
};

impl ConnectionArgs {
    /// Returns the servers of a run, asked as these options say, with an upper bound of the rate in bit/s.
    pub(crate) fn servers(&self, rate_limit: Option<u64>, activity: Arc<Activity>) -> Servers {
        let arguments = self.clone();
        let max_entries = self.or_default().max_entries();
        Servers::new(move |remote| arguments.access(remote, rate_limit), activity)
            .with_max_entries(max_entries)
    }

    /// Returns the options for a server: those of the run, then those of the configuration file for this host, then for all.
    pub(crate) fn of(&self, remote: &Remote) -> Self {
        let arguments = self.host(remote).map(|host| self.or(&host.connection));
        arguments.as_ref().unwrap_or(self).or_default()
    }

    fn host(&self, remote: &Remote) -> Option<&Host> {
        self.hosts.as_ref()?.hosts.get(&*remote.host)
    }

    /// Translates the options of the URL, which is the most specific, of the command line and of the configuration file.
    ///
    /// # Errors
    /// A usage error that names the option.
    fn access(&self, remote: &Remote, rate_limit: Option<u64>) -> Result<Access> {
        let (url, host) = (&*remote.options, self.host(remote));
        let arguments = self.of(remote);
        let mut config = ClientConfig::default();
        config.own_thread = true;
        config.transport = match arguments.transport() {
            Transport::Auto => TransportChoice::Auto,
            Transport::Udp => TransportChoice::Udp,
            Transport::Tcp => TransportChoice::Tcp,
        };
        config.nfs_port = url.nfs_port.or_else(|| host?.nfs_port);
        // Ports that belong together are taken together.
        let mount_port = host.filter(|_| url.nfs_port.is_none()).and_then(|host| host.mount_port);
        config.mount_port = url.mount_port.or(mount_port);
        if host.is_some_and(|host| host.security == Security::None) {
            config.credential = Credential::None;
        }
        config.credential.act_as(url.uid.or(arguments.uid), url.gid.or(arguments.gid));
        config.retry = retry(&arguments, url)?;
        let block = |exact: Option<u32>| match exact.or_else(|| arguments.exact_block()) {
            Some(bytes) => BlockSize::Exact(bytes),
            None => BlockSize::Auto { max: arguments.max_block.or_else(|| rate_limit.map(smooth_block)) },
        };
        config.read_block = block(url.read_block);
        config.write_block = block(url.write_block);
        config.window = arguments.window.and_then(AutoOr::number).map_or(Window::Auto, Window::Calls);
        config.connect_timeout = arguments.timeout;
        config.rate_limit = rate_limit;
        config.check().map_err(|error| Error::usage(error.to_string()))?;
        // A server that the configuration names is no code.
        let is_server = host.is_some() && !remote.host.contains('@');
        if !is_server && let Some((address, channel)) = shares::channel(remote)? {
            config.channel = Some(Arc::new(channel));
            return Ok(Access { address, config });
        }
        let address = host.and_then(|host| host.name.as_deref()).unwrap_or(&remote.host).to_owned();
        Ok(Access { address, config })
    }

    /// Returns where `--block-size` is more than the server or the transport takes, a line for each server.
    pub(crate) fn reduced_blocks(&self, servers: &Servers) -> Vec<String> {
        let reduced = servers.clients().into_iter().filter_map(|(remote, client)| {
            let arguments = self.of(&remote);
            let exact = |url: Option<u32>| url.or_else(|| arguments.exact_block());
            let asked = [exact(remote.options.read_block), exact(remote.options.write_block)];
            let Status { read_block, write_block, stats, .. } = client.status();
            let used = [("READ", read_block), ("WRITE", write_block)];
            let less: Vec<String> = asked
                .iter()
                .zip(used)
                .filter(|(asked, (_, used))| asked.is_some_and(|asked| asked > *used))
                .map(|(_, (what, used))| format!("{used} bytes per {what}"))
                .collect();
            let host = remote.server();
            (stats.calls > 0 && !less.is_empty() && servers.activity().bytes() > 0).then(|| {
                format!("{host} takes less than --block-size at once: at most {}", less.join(" and "))
            })
        });
        reduced.collect()
    }
}

/// Largest block that keeps a limited rate smooth: a tenth of a second of it.
fn smooth_block(rate: u64) -> u32 {
    /// Less would only cost calls.
    const SMALLEST: u64 = 4096;
    let bytes = (rate / 8 / 10).clamp(SMALLEST, MAX_BLOCK_BYTES.into());
    bytes as u32
}

fn retry(arguments: &ConnectionArgs, url: &UrlOptions) -> Result<RetryPolicy> {
    let ConnectionArgs { timeo, linear_steps, linear_step, max_timeo, .. } = *arguments;
    let timers = timeo.is_some() || linear_steps.is_some() || linear_step.is_some() || max_timeo.is_some();
    let policy = match arguments.policy {
        Some(policy) => policy,
        None if timers || url.initial_timeout.is_some() => Policy::Hybrid,
        None => Policy::Adaptive,
    };
    let initial = url.initial_timeout.or(timeo).unwrap_or(RetryPolicy::INITIAL);
    let maximum = max_timeo.unwrap_or_else(|| RetryPolicy::MAXIMUM.max(initial));
    match policy {
        Policy::Adaptive if timers => Err(Error::usage(
            "--timeo, --linear-steps, --linear-step and --max-timeo set timers that --policy adaptive does not have; leave them out, or use --policy hybrid",
        )),
        Policy::Adaptive => Ok(RetryPolicy::Adaptive),
        Policy::Kernel => Ok(RetryPolicy::Kernel { maximum }),
        Policy::Exponential => Ok(RetryPolicy::Exponential { initial, maximum }),
        Policy::Hybrid => Ok(RetryPolicy::Hybrid {
            initial,
            linear_steps: linear_steps.unwrap_or(RetryPolicy::LINEAR_STEPS),
            linear_step: linear_step.unwrap_or(RetryPolicy::LINEAR_STEP),
            maximum,
        }),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{
        args::{Cli, Command, Hosts},
        error::ErrorKind,
    };

    fn config(options: &[&str]) -> Result<ClientConfig> {
        let line = ["nfsw", "stat"].iter().chain(options);
        let Command::Stat(arguments) = Cli::parse_from(line).command else { panic!("stat") };
        arguments.connection.access(&arguments.targets[0], None).map(|access| access.config)
    }

    #[test]
    fn the_url_outweighs_the_options() {
        let url = "nfs://h:99/x?rsize=1024&timeo=20&uid=5";
        let config =
            config(&["--block-size", "8K", "--timeo", "1s", "--uid", "6", "--gid", "7", url]).unwrap();
        assert_eq!(config.nfs_port, Some(99));
        assert_eq!(config.read_block, BlockSize::Exact(1024));
        assert_eq!(config.write_block, BlockSize::Exact(8192));
        let RetryPolicy::Hybrid { initial, .. } = config.retry else { panic!("{:?}", config.retry) };
        assert_eq!(initial.as_secs(), 2, "a timer was asked for, so the policy is one with timers");
        let Credential::Sys(user) = config.credential else { panic!("no credential") };
        assert_eq!((user.uid, user.gid, user.gids), (5, 7, vec![]));
    }

    #[test]
    fn a_code_is_a_share_unless_a_server_is_called_so() {
        let is_share = |target: &str| config(&[target]).unwrap().channel.is_some();
        assert!(is_share("7-velvet-cactus:/x") && is_share("7-velvet-cactus@127.0.0.1:7049:/x"));
        for server in ["2-file-server:/x", "nfs://7-velvet-cactus/x", "nas:/x"] {
            assert!(!is_share(server), "{server}");
        }
        let mut arguments = ConnectionArgs::default();
        let hosts = [("7-velvet-cactus".to_owned(), Host::default())];
        arguments.hosts = Some(Arc::new(Hosts { hosts: hosts.into(), ..Hosts::default() }));
        let remote = Remote::parse_host("7-velvet-cactus".as_ref()).unwrap();
        assert_eq!(arguments.access(&remote, None).unwrap().address, "7-velvet-cactus");
    }

    #[test]
    fn the_policy_is_adaptive_unless_timers_are_asked_for() {
        assert_eq!(config(&["h:/x"]).unwrap().retry, RetryPolicy::Adaptive);
        assert_eq!(config(&["--policy", "kernel", "h:/x"]).unwrap().retry, RetryPolicy::kernel());
        let error = config(&["--policy", "adaptive", "--timeo", "1s", "h:/x"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
    }

    #[test]
    fn impossible_options_are_usage_errors() {
        let error = config(&["--max-timeo", "1ms", "h:/x"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
    }
}
