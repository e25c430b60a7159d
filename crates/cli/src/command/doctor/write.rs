//! What shows only when something is made: with `--write-test`, in names of our own, which are removed again.

use std::time::{SystemTime, UNIX_EPOCH};

use nfs_wire::{
    FileHandle, Procedure, Status, encode,
    nfs3_types::nfs3::{
        COMMIT3resok, CREATE3resok, GETATTR3resok, Nfs3Option, WRITE3resok, stable_how, writeverf3,
    },
    portmap::Protocol,
    reply,
    rpc::{Program, Rejection},
};

use super::{
    ask::Resolved,
    findings::{PROTOCOLS, index, name},
    probe::{Doctor, encoded, entry},
    rpc::Trouble,
};
use crate::units;

/// WRITEs over UDP that are tried, in bytes.
const WRITES: [u32; 6] = [1024, 4096, 8192, 16_384, 32_768, 49_152];

/// Attributes of what is made: mode 0644 or 0755 and nothing else, which every server takes (`sattr3`).
const FILE: [u32; 7] = [1, 0o644, 0, 0, 0, 0, 0];
const DIRECTORY: [u32; 7] = [1, 0o755, 0, 0, 0, 0, 0];

/// A clock that differs by more is worth a word, in seconds.
const CLOCK: i64 = 2;

impl Doctor {
    /// Makes, changes and removes a few names in a directory.
    pub(super) async fn write_test(&mut self, directory: &Resolved) {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let base = format!(".nfsw-doctor-{:x}-{:x}", std::process::id(), at.as_micros());
        let names = |what: &str| format!("{base}-{what}").into_bytes();
        let directory = directory.handle;
        for protocol in PROTOCOLS {
            self.repeated_call(protocol, &directory, &names(name(protocol))).await;
        }
        if let Some(file) = self.make_file(&directory, &names("file")).await {
            self.write_file(file).await;
            self.links(&directory, file, &names("link"), &names("symlink"), &names("fifo")).await;
        }
        self.root_makes(&directory, &names("root")).await;
        for what in ["file", "link", "symlink", "fifo", "root"] {
            self.clean(&directory, &names(what), Procedure::Remove).await;
        }
        for protocol in PROTOCOLS {
            self.clean(&directory, &names(name(protocol)), Procedure::Rmdir).await;
        }
    }

    /// Makes a directory, and sends the same call again: a server that keeps its replies gives the same answer.
    async fn repeated_call(&mut self, protocol: Protocol, directory: &FileHandle, scratch: &[u8]) {
        let what = match protocol {
            Protocol::Udp => "a repeated call over UDP",
            Protocol::Tcp => "a repeated call over TCP",
        };
        let Some(caller) = &mut self.nfs[index(protocol)] else { return };
        let mut arguments = entry(directory, scratch);
        words(&mut arguments, &DIRECTORY);
        let first = caller.call(Program::NFS, Procedure::Mkdir.number(), &arguments).await;
        let first = match first.map(|results| status(&results)) {
            Ok(None) => caller.repeat().await,
            Ok(Some(status)) => {
                return self.findings.tried(what, format!("cannot be tried, MKDIR: {status}"));
            }
            Err(trouble) => {
                return self.findings.tried(what, format!("cannot be tried, MKDIR: {}", trouble.words()));
            }
        };
        let came = match first.map(|results| status(&results)) {
            Ok(None) => "is answered from the duplicate request cache",
            Ok(Some(_)) => {
                self.findings.odd(format!(
                    "a call that is sent again over {} is run again: there is no duplicate request cache",
                    name(protocol)
                ));
                self.findings.advice.push(format!(
                    "Calls over {} that a bad link makes clients repeat are run twice. nfsw looks what became of them; other \
                     clients may fail. If the server has a duplicate request cache, turn it on (nfs-ganesha: DRC_Disabled = \
                     false).",
                    name(protocol)
                ));
                "is run again: no duplicate request cache"
            }
            Err(Trouble::Silent) => {
                self.findings
                    .odd(format!("a call that is sent again over {} is not answered", name(protocol)));
                "is not answered"
            }
            Err(_) => "ends badly",
        };
        self.findings.tried(what, came);
    }

    async fn make_file(&mut self, directory: &FileHandle, scratch: &[u8]) -> Option<FileHandle> {
        // GUARDED, with a time of last access, as an upload makes its files; then with a mode alone.
        let mut arguments = entry(directory, scratch);
        words(&mut arguments, &[1, 1, 0o644, 0, 0, 0, 2, 1_000_000_000, 1_000, 0]);
        let made = self.nfs::<CREATE3resok>(Procedure::Create, &arguments).await;
        let made = match made {
            Ok(made) => Ok(made),
            Err(refused) => {
                let mut arguments = entry(directory, scratch);
                words(&mut arguments, &[0]);
                words(&mut arguments, &FILE);
                let made = self.nfs::<CREATE3resok>(Procedure::Create, &arguments).await;
                if made.is_ok() {
                    self.findings.odd(format!("CREATE takes a mode and no times ({refused})"));
                }
                made
            }
        };
        let made = match made {
            Ok(made) => made,
            Err(words) => {
                self.findings.tried("making a file", words);
                self.findings
                    .tried("WRITE, links, fifos", "not tested: name a directory that this user may write");
                return None;
            }
        };
        let Nfs3Option::Some(handle) = &made.obj else {
            self.findings.odd("CREATE gives no handle");
            return None;
        };
        let handle = FileHandle::try_from(handle).ok()?;
        let found =
            self.nfs::<GETATTR3resok>(Procedure::Getattr, &encoded(&handle)).await.ok()?.obj_attributes;
        let owner = match found.uid == self.findings.uid {
            true => format!("belongs to uid {}, as it should", found.uid),
            false => format!("belongs to uid {}, not {} (squashed)", found.uid, self.findings.uid),
        };
        self.findings.tried("a new file", owner);
        Some(handle)
    }

    /// Writes: stable or not, how large over UDP, and what the server's clock says.
    async fn write_file(&mut self, file: FileHandle) {
        let before = SystemTime::now();
        let arguments = write(&file, 0, 1024);
        let written = match self.nfs::<WRITE3resok>(Procedure::Write, &arguments).await {
            Ok(written) => written,
            Err(words) => return self.findings.tried("WRITE", words),
        };
        let kind = match written.committed {
            stable_how::UNSTABLE => "kept in memory until COMMIT",
            stable_how::DATA_SYNC | stable_how::FILE_SYNC => "written to the disk at once",
        };
        let commit = self.commit(&file, written.verf).await;
        self.findings.tried("WRITE", format!("{kind}; {commit}"));
        self.compare_clocks(&file, before).await;
        self.large_writes(&file).await;
    }

    /// Says how COMMIT is answered after a WRITE with this write verifier.
    async fn commit(&mut self, file: &FileHandle, verifier: writeverf3) -> String {
        let mut arguments = encoded(file);
        words(&mut arguments, &[0, 0, 0]);
        match self.nfs::<COMMIT3resok>(Procedure::Commit, &arguments).await {
            Ok(done) if done.verf.0 == verifier.0 => "COMMIT is answered".to_owned(),
            Ok(_) => {
                self.findings.odd("COMMIT answers with another write verifier than the WRITE before");
                "COMMIT is answered with another verifier".to_owned()
            }
            Err(words) => {
                self.findings.odd(format!("COMMIT: {words}"));
                format!("COMMIT: {words}")
            }
        }
    }

    /// Compares the server's clock with ours by a file that was written just after `before`.
    async fn compare_clocks(&mut self, file: &FileHandle, before: SystemTime) {
        let Ok(found) = self.nfs::<GETATTR3resok>(Procedure::Getattr, &encoded(file)).await else { return };
        let here = before.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let ahead = i64::from(found.obj_attributes.mtime.seconds) - i64::try_from(here).unwrap_or(i64::MAX);
        let clock = match ahead {
            _ if ahead.abs() <= CLOCK => "the same as here".to_owned(),
            1.. => format!("{ahead} s ahead of this machine's"),
            _ => format!("{} s behind this machine's", -ahead),
        };
        if ahead.abs() > CLOCK {
            self.findings.advice.push(format!(
                "The server's clock is {clock}: set one of them, for cp -u and make compare times (NTP, chrony)."
            ));
        }
        self.findings.tried("the server's clock", clock);
    }

    /// Says how large WRITEs over UDP may be, and READs of what they have written.
    async fn large_writes(&mut self, file: &FileHandle) {
        let Some(caller) = &mut self.nfs[0] else { return };
        let (mut largest, mut end) = (0, None);
        for asked in WRITES {
            let arguments = write(file, 0, asked);
            let called = caller.call(Program::NFS, Procedure::Write.number(), &arguments).await;
            let came = match called {
                Ok(results) => match reply::decode::<WRITE3resok>(&results) {
                    Ok(Ok(done)) if done.count >= asked => {
                        largest = asked;
                        continue;
                    }
                    Ok(Ok(done)) => format!("cut to {}", units::bytes(done.count.into())),
                    Ok(Err(status)) => status.to_string(),
                    Err(error) => error.to_string(),
                },
                Err(trouble) => trouble.words(),
            };
            end = Some(format!("; {}: {came}", units::bytes(asked.into())));
            break;
        }
        // Twice as long, for larger READs.
        let arguments = write(file, largest.into(), largest);
        let size = u64::from(largest)
            * if self.nfs::<WRITE3resok>(Procedure::Write, &arguments).await.is_ok() { 2 } else { 1 };
        let up_to = units::bytes(largest.into());
        let end = end.unwrap_or_default();
        self.findings.tried("large WRITEs over UDP", format!("answered up to {up_to}{end}"));
        self.large_reads(file, size).await;
    }

    async fn links(
        &mut self,
        directory: &FileHandle,
        file: FileHandle,
        link: &[u8],
        symlink: &[u8],
        fifo: &[u8],
    ) {
        let linking = [encoded(&file), entry(directory, link)].concat();
        let mut pointing = entry(directory, symlink);
        words(&mut pointing, &DIRECTORY);
        nfs_wire::mount::encode_path(&mut pointing, b"target");
        /// `NF3FIFO`.
        const FIFO: u32 = 7;
        let mut piping = entry(directory, fifo);
        words(&mut piping, &[FIFO]);
        words(&mut piping, &FILE);
        let mut came = Vec::new();
        for (what, procedure, arguments) in [
            ("hard links", Procedure::Link, linking),
            ("symbolic links", Procedure::Symlink, pointing),
            ("fifos", Procedure::Mknod, piping),
        ] {
            let Some(caller) = self.nfs.iter_mut().rev().flatten().next() else { return };
            let word = match caller.call(Program::NFS, procedure.number(), &arguments).await {
                Ok(results) => {
                    status(&results).map_or_else(|| "made".to_owned(), |status| status.to_string())
                }
                Err(Trouble::Rejected(Rejection::ProcedureUnavailable)) => "not offered".to_owned(),
                Err(trouble) => trouble.words(),
            };
            if word != "made" {
                self.findings.odd(format!("{what}: {word}"));
            }
            came.push(format!("{what} {word}"));
        }
        self.findings.tried("LINK, SYMLINK, MKNOD", came.join(", "));
    }

    /// Whom a file belongs to that the superuser makes.
    async fn root_makes(&mut self, directory: &FileHandle, scratch: &[u8]) {
        let mut arguments = entry(directory, scratch);
        words(&mut arguments, &[0]);
        words(&mut arguments, &FILE);
        self.act_as_root(true);
        let made = self.nfs::<CREATE3resok>(Procedure::Create, &arguments).await;
        self.act_as_root(false);
        let came = match made.map(|made| made.obj_attributes) {
            Ok(Nfs3Option::Some(found)) if found.uid == 0 => "stays root (no_root_squash)".to_owned(),
            Ok(Nfs3Option::Some(found)) => format!("becomes uid {} (root_squash)", found.uid),
            Ok(Nfs3Option::None) => "makes a file, of which no owner is told".to_owned(),
            Err(words) => format!("cannot make a file: {words}"),
        };
        self.findings.tried.retain(|(what, _)| *what != "root (uid 0)");
        self.findings.tried("root (uid 0)", came);
    }

    /// Removes a name; where that fails the user is told what is left.
    async fn clean(&mut self, directory: &FileHandle, scratch: &[u8], procedure: Procedure) {
        let arguments = entry(directory, scratch);
        let mut left = None;
        for as_root in [false, true] {
            self.act_as_root(as_root);
            let Some(caller) = self.nfs.iter_mut().rev().flatten().next() else { break };
            let called = caller.call(Program::NFS, procedure.number(), &arguments).await;
            left = match called.map(|results| status(&results)) {
                Ok(None | Some(Status::NOENT)) => None,
                Ok(Some(status)) => Some(status.to_string()),
                Err(trouble) => Some(trouble.words()),
            };
            // Where nothing can be removed, nothing was made either.
            let found = caller.call(Program::NFS, Procedure::Lookup.number(), &arguments).await;
            if left.is_none() || matches!(found.map(|results| status(&results)), Ok(Some(Status::NOENT))) {
                left = None;
                break;
            }
        }
        self.act_as_root(false);
        if let Some(words) = left {
            let scratch = String::from_utf8_lossy(scratch).into_owned();
            self.findings
                .advice
                .push(format!("Remove {scratch}, which the write test made and could not remove ({words})."));
        }
    }
}

/// Returns the arguments of an UNSTABLE WRITE of so many bytes.
fn write(file: &FileHandle, offset: u64, count: u32) -> Vec<u8> {
    let mut arguments = encoded(file);
    encode(&mut arguments, &offset);
    encode(&mut arguments, &count);
    encode(&mut arguments, &stable_how::UNSTABLE);
    encode(&mut arguments, &count);
    arguments.resize(arguments.len() + count as usize, b'.');
    arguments
}

fn words(arguments: &mut Vec<u8>, words: &[u32]) {
    arguments.extend(words.iter().flat_map(|word| word.to_be_bytes()));
}

/// Reads the status of results; `None` for success.
fn status(results: &[u8]) -> Option<Status> {
    let code = nfs_wire::Reader::new(results).u32("status").unwrap_or(u32::MAX);
    Status::from_code(code)
}
