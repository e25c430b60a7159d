//! The programs, and how each copies a file.

use std::process::Command;

use testbed::Operation;

use crate::cell::{Beside, Cell, PAPER};

/// One way of copying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// Its name in tables.
    pub(crate) name: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// libnfs' nfs-cp.
    NfsCp,
    Rsync,
    Scp,
    /// A crate, used by this program itself.
    Crate(&'static str),
    /// nfsw with these options, and whether it uses TCP at all.
    Nfsw(&'static str, bool),
}

const fn program(name: &'static str, kind: Kind) -> Program {
    Program { name, kind }
}

/// In the order of the tables.
pub(crate) const PROGRAMS: [Program; 10] = [
    program("nfs-cp", Kind::NfsCp),
    program("rsync", Kind::Rsync),
    program("scp", Kind::Scp),
    program("nfs3_client", Kind::Crate("nfs3_client")),
    program("nfs-rs", Kind::Crate("nfs-rs")),
    // Dube et al. 1997 §4, §5: one call at a time, 4 KB blocks, hybrid back-off.
    program("papers", Kind::Nfsw("--transport udp --policy hybrid --window 1 --block-size 4096", false)),
    program("nfsw", Kind::Nfsw("", true)),
    program("nfsw-tcp", Kind::Nfsw("--transport tcp", true)),
    program("nfsw-udp", Kind::Nfsw("--transport udp", false)),
    program("nfsw-4096", Kind::Nfsw("--transport udp --block-size 4096", false)),
];

impl Program {
    /// Whether it is judged in this cell.
    pub(crate) fn belongs(&self, cell: &Cell) -> bool {
        match self.name {
            // Its blocks and timeouts are made for the papers' link; elsewhere it would be stopped after 300 s.
            "papers" => cell.link == PAPER && cell.beside != Beside::Ping,
            "nfsw-4096" => cell.beside == Beside::Ping,
            "nfs-cp" | "nfsw" => true,
            _ => cell.beside != Beside::Ping,
        }
    }

    /// Whether TCP's congestion control could matter.
    pub(crate) fn uses_tcp(&self) -> bool {
        !matches!(self.kind, Kind::Nfsw(_, false))
    }

    pub(crate) fn needs_ssh(&self) -> bool {
        matches!(self.kind, Kind::Rsync | Kind::Scp)
    }

    /// The shell command that copies `$FILE` of the export to `$LOCAL`, or back.
    pub(crate) fn script(&self, operation: Operation) -> String {
        let (command, remote) = match self.kind {
            Kind::NfsCp => (
                "nfs-cp".to_owned(),
                "nfs://$NFSW_HOST$EXPORT/$FILE?version=3&nfsport=$NFS_PORT&mountport=$MOUNT_PORT",
            ),
            Kind::Rsync => {
                ("rsync -e \"ssh $SSH_OPTIONS -p $SSH_PORT\"".to_owned(), "root@$NFSW_HOST:$EXPORT/$FILE")
            }
            Kind::Scp => ("scp -q $SSH_OPTIONS -P $SSH_PORT".to_owned(), "root@$NFSW_HOST:$EXPORT/$FILE"),
            Kind::Crate(name) => {
                let host = "nfs://$NFSW_HOST$EXPORT/$FILE?nfsport=$NFS_PORT&mountport=$MOUNT_PORT";
                (format!("$HEAD_TO_HEAD copy-with {name}"), host)
            }
            Kind::Nfsw(options, _) => {
                let host = "nfs://$NFSW_HOST$EXPORT/$FILE?nfsport=$NFS_PORT&mountport=$MOUNT_PORT";
                (format!("$NFSW cp -q {options}").trim_end().to_owned(), host)
            }
        };
        match operation {
            Operation::Read => format!("exec {command} \"{remote}\" \"$LOCAL\""),
            Operation::Write => format!("exec {command} \"$LOCAL\" \"{remote}\""),
        }
    }

    /// What it comes from: that of nfsw is one for all its options.
    pub(crate) fn source(&self) -> &'static str {
        if matches!(self.kind, Kind::Nfsw(..)) { "nfsw" } else { self.name }
    }

    /// Its version; none if it is missing.
    pub(crate) fn version(&self) -> Option<String> {
        match self.kind {
            Kind::NfsCp => on_path("nfs-cp").then(|| package("libnfs-utils")),
            Kind::Rsync => on_path("rsync").then(|| package("rsync")),
            Kind::Scp => on_path("scp").then(|| package("openssh-client")),
            Kind::Crate("nfs-rs") if !cfg!(feature = "nfs-rs") => None,
            Kind::Crate(name) => Some(locked(name)),
            Kind::Nfsw(..) => Some(env!("CARGO_PKG_VERSION").to_owned()),
        }
    }

    /// What to do about its absence.
    pub(crate) fn advice(&self) -> &'static str {
        match self.kind {
            Kind::NfsCp => "install libnfs-utils",
            Kind::Rsync => "install rsync and openssh-server",
            Kind::Scp => "install openssh-client and openssh-server",
            Kind::Crate(_) => "build with --features nfs-rs, which needs Rust 1.95",
            Kind::Nfsw(..) => "build it",
        }
    }
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// The version of a Debian package.
pub(crate) fn package(name: &str) -> String {
    let output = Command::new("dpkg-query").args(["-W", "-f", "${Version}", name]).output();
    let version = output.ok().filter(|output| output.status.success());
    version
        .map_or_else(|| "unknown".to_owned(), |output| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The version of a crate that this program was built with.
fn locked(name: &str) -> String {
    let mut lines = include_str!("../../../Cargo.lock").lines();
    lines.find(|line| *line == format!("name = \"{name}\""));
    let version = lines.next().and_then(|line| line.split('"').nth(1));
    version.unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_crates_come_from_the_lock_file() {
        assert!(locked("nfs3_client").starts_with("0.9."), "{}", locked("nfs3_client"));
        assert_eq!(locked("no-such-crate"), "unknown");
    }
}
