//! Every kind of server in every setting that the matrix is run on.

use anyhow::Result;

use crate::{
    Server, embedded,
    ganesha::{self, Ganesha},
    go_nfs::{self, Exports},
    knfsd::{self, Knfsd},
    matrix::{Step, Transport},
    nfs3_server, nfsserve, unfs3,
};

/// A kind of server in one setting.
#[derive(Clone, Copy)]
pub struct Lane {
    /// Its name in tests and tables.
    pub name: &'static str,
    /// What it is, for people.
    pub is: &'static str,
    /// Groups of steps that it runs.
    groups: &'static [&'static str],
    /// Whether it offers NFS over UDP.
    pub(crate) udp: bool,
    /// Starts it.
    pub(crate) start: fn() -> Result<Box<dyn Server>>,
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Lane").field(&self.name).finish()
    }
}

impl Lane {
    /// Finds a lane.
    ///
    /// # Panics
    /// Where there is none of that name.
    #[must_use]
    pub fn named(name: &str) -> &'static Self {
        ALL.iter().find(|lane| lane.name == name).expect("a lane of that name")
    }

    /// Whether it runs a step.
    pub(crate) fn runs(&self, step: &Step) -> bool {
        step.lanes.iter().any(|group| group == self.name || self.groups.contains(&group.as_str()))
    }

    /// The transports that it runs a step over.
    pub(crate) fn transports(&self, step: &Step) -> impl Iterator<Item = Transport> + use<> {
        let udp = (self.udp && !step.tcp_only).then_some(Transport::Udp);
        let usual = self.groups.iter().any(|&group| group == "all" || group == "sizes");
        let auto = (step.auto && usual).then_some(Transport::Auto);
        [udp, Some(Transport::Tcp), auto].into_iter().flatten()
    }
}

fn knfsd(options: knfsd::Options) -> Result<Box<dyn Server>> {
    Ok(Box::new(Knfsd::start(options)?))
}

fn ganesha(options: ganesha::Options) -> Box<dyn Server> {
    Box::new(Ganesha::start(options))
}

/// All lanes, in the order of the document.
pub const ALL: &[Lane] = &[
    Lane {
        name: "knfsd",
        is: "Linux 6.1, blocks of 1 MiB as with 8 GiB of memory, UDP on, 8 threads",
        groups: &["all", "crash"],
        udp: true,
        start: || knfsd(knfsd::Options::default()),
    },
    Lane {
        name: "knfsd-256k",
        is: "Linux 6.1, `max_block_size` 256 KiB, as with 2 GiB of memory",
        groups: &["data", "sizes"],
        udp: true,
        start: || knfsd(knfsd::Options { max_block: 256 << 10, ..knfsd::Options::default() }),
    },
    Lane {
        name: "knfsd-32k",
        is: "Linux 6.1, `max_block_size` 32 KiB",
        groups: &["data", "sizes"],
        udp: true,
        start: || knfsd(knfsd::Options { max_block: 32 << 10, ..knfsd::Options::default() }),
    },
    Lane {
        name: "knfsd-tcp",
        is: "Linux 6.1, NFS over UDP off, as nfs-utils sets it up today",
        groups: &["data"],
        udp: false,
        start: || knfsd(knfsd::Options { udp: false, ..knfsd::Options::default() }),
    },
    Lane {
        name: "knfsd-one-thread",
        is: "Linux 6.1, one thread",
        groups: &["data"],
        udp: true,
        start: || knfsd(knfsd::Options { threads: 1, ..knfsd::Options::default() }),
    },
    Lane {
        name: "knfsd-secure",
        is: "Linux 6.1, `secure` export, used by an ordinary user",
        groups: &["refusal"],
        udp: true,
        start: || knfsd(knfsd::Options { secure: true, ..knfsd::Options::default() }),
    },
    Lane {
        name: "knfsd-root-squash",
        is: "Linux 6.1, `root_squash` export, used by the superuser",
        groups: &["data", "squash"],
        udp: true,
        start: || knfsd(knfsd::Options { root_squash: true, ..knfsd::Options::default() }),
    },
    Lane {
        name: "knfsd-read-only",
        is: "Linux 6.1, `ro` export",
        groups: &["refusal"],
        udp: true,
        start: || knfsd(knfsd::Options { read_only: true, ..knfsd::Options::default() }),
    },
    Lane {
        name: "ganesha",
        is: "nfs-ganesha 4.3 on ext4",
        groups: &["all", "crash"],
        udp: true,
        start: || Ok(ganesha(ganesha::Options::default())),
    },
    Lane {
        name: "ganesha-64k",
        is: "nfs-ganesha 4.3, MaxRead and MaxWrite 64 KiB",
        groups: &["all", "sizes"],
        udp: true,
        start: || Ok(ganesha(ganesha::Options { max_block: Some(64 << 10), ..ganesha::Options::default() })),
    },
    Lane {
        name: "ganesha-no-cache",
        is: "nfs-ganesha 4.3 without duplicate request cache",
        groups: &["all"],
        udp: true,
        start: || Ok(ganesha(ganesha::Options { no_reply_cache: true, ..ganesha::Options::default() })),
    },
    Lane {
        name: "ganesha-tcp",
        is: "nfs-ganesha 4.3, UDP off",
        groups: &["all"],
        udp: false,
        start: || Ok(ganesha(ganesha::Options { tcp_only: true, ..ganesha::Options::default() })),
    },
    Lane {
        name: "embedded",
        is: "`nfsw serve`",
        groups: &["all", "crash"],
        udp: true,
        start: embedded::start,
    },
    Lane {
        name: "go-nfs",
        is: "go-nfs 0.0.4 (Go), as it comes",
        groups: &["all"],
        udp: false,
        start: || go_nfs::start(Exports::AsItIs),
    },
    Lane {
        name: "go-nfs-exports",
        is: "go-nfs 0.0.4, EXPORT lists `/`",
        groups: &["all"],
        udp: false,
        start: || go_nfs::start(Exports::Root),
    },
    Lane {
        name: "go-nfs-no-exports",
        is: "go-nfs 0.0.4, EXPORT is PROC_UNAVAIL, MNT of any path gives the root",
        groups: &["all"],
        udp: false,
        start: || go_nfs::start(Exports::Unavailable),
    },
    Lane {
        name: "nfs3-server",
        is: "nfs3_server (Rust), as in cargo-nfs3-server 0.2.3",
        groups: &["all"],
        udp: false,
        start: nfs3_server::start,
    },
    Lane {
        name: "nfsserve",
        is: "nfsserve 0.11.0 (Rust), in a small test program of this repository",
        groups: &["all"],
        udp: false,
        start: nfsserve::start,
    },
    Lane {
        name: "unfs3",
        is: "unfs3 0.11.0 (git 1c0d6f4), by hand, 2026-11-23",
        groups: &["all"],
        udp: true,
        start: unfs3::start,
    },
];
