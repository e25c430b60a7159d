//! Runs one step on one server.

use std::{
    fs::{self, File},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::{Child, Command as Program, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use super::{
    fixture, same,
    table::{Command, Event, Step, Transport},
};
use crate::{Caller, Server, View, client, lane::Lane, proxy::Proxy};

/// A server of a lane, and where its steps are run.
pub(crate) struct Place {
    lane: &'static str,
    server: Box<dyn Server>,
    /// The program, where its caller can read it.
    nfsw: PathBuf,
    _copy: Option<TempDir>,
    steps_run: u32,
}

/// What became of a step.
#[derive(Debug)]
pub(crate) struct Seen {
    /// What was not as it must be.
    pub(crate) failure: Option<String>,
    /// How long it took.
    pub(crate) seconds: f64,
}

/// The user `nobody`.
const NOBODY: u32 = 65534;

/// A file beside the directories of the steps, which no step is to touch, and its bytes.
const WITNESS: (&str, u64) = ("witness/file", 7);

/// Beside file data, what a step may have on the wire: calls of a small file, and a mount.
const SMALL_CALLS_BYTES: u64 = 64 << 10;

impl Place {
    pub(crate) fn new(lane: &Lane, server: Box<dyn Server>) -> Result<Self> {
        let (mut nfsw, mut copy) = (client::binary().to_owned(), None);
        if server.caller() == Caller::Nobody {
            let directory = TempDir::new()?;
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
            let readable = directory.path().join("nfsw");
            fs::copy(&nfsw, &readable)?;
            (nfsw, copy) = (readable, Some(directory));
        }
        bear_witness(&*server)?;
        Ok(Self { lane: lane.name, server, nfsw, _copy: copy, steps_run: 0 })
    }

    /// Runs a step over a transport.
    ///
    /// # Errors
    /// Where the server itself, or this machine, fails.
    pub(crate) fn run(&mut self, step: &Step, transport: Transport, limit_s: Option<u64>) -> Result<Seen> {
        let start = Instant::now();
        self.steps_run += 1;
        let directory = format!("step-{}", self.steps_run);
        let place = || format!("{}, {}, {}", self.lane, step.name, transport.name());
        let local = TempDir::with_prefix("nfsw-step-")?;
        for name in ["here", "there", "home"] {
            fs::create_dir(local.path().join(name))?;
        }
        fixture::make(&step.here, &local.path().join("here"))?;
        fixture::make(&step.there, &local.path().join("there"))?;
        if self.server.caller() == Caller::Nobody {
            for path in [local.path().to_owned(), local.path().join("here"), local.path().join("home")] {
                chown(path, Some(NOBODY), Some(NOBODY))?;
            }
        }
        self.server.put(&local.path().join("there"), &directory).with_context(place)?;
        let (nfs, mount) = self.server.ports();
        let counted = transport == Transport::Tcp && (step.wire.is_some() || step.calls.is_some());
        let proxy = if counted { Some(Proxy::start(nfs)?) } else { None };
        let nfs_port = proxy.as_ref().map_or(nfs, Proxy::port);
        let attempt = Attempt {
            step,
            transport,
            local: local.path(),
            directory: &directory,
            ports: (nfs_port, if mount == nfs { nfs_port } else { mount }),
            limit: Duration::from_secs(limit_s.unwrap_or(step.limit_s)),
            nfsw: &self.nfsw,
        };
        let failure = match attempt.run(&mut *self.server) {
            Ok(()) => attempt.wire_failure(proxy.as_ref()),
            Err(error) => Some(format!("{error:#}")),
        };
        let failure = if self.server.size(WITNESS.0) == Some(WITNESS.1) {
            failure
        } else {
            bear_witness(&*self.server).with_context(place)?;
            Some(format!("files of others are gone; {}", failure.unwrap_or_default()))
        };
        if failure.is_some() && self.server.wait_until_ready().is_err() {
            self.server.crash_and_restart().with_context(place)?;
        }
        Ok(Seen { failure, seconds: start.elapsed().as_secs_f64() })
    }
}

/// Makes the file that no step is to touch.
fn bear_witness(server: &dyn Server) -> Result<()> {
    let witness = TempDir::new()?;
    fs::write(witness.path().join("file"), [1; WITNESS.1 as usize])?;
    server.put(witness.path(), "witness")
}

/// One step under way. Its failures are errors.
struct Attempt<'a> {
    step: &'a Step,
    transport: Transport,
    /// `here`, `there` as it was before, and `home`.
    local: &'a Path,
    /// Below the export.
    directory: &'a str,
    ports: (u16, u16),
    limit: Duration,
    nfsw: &'a Path,
}

impl Attempt<'_> {
    fn run(&self, server: &mut dyn Server) -> Result<()> {
        for (number, command) in self.step.run.iter().enumerate() {
            self.command(command, number, server).with_context(|| command.words.clone())?;
        }
        let view = if self.looks() { Some(server.look(self.directory)?) } else { None };
        self.afterwards(view.as_ref())
    }

    /// Whether anything on the server is to be looked at.
    fn looks(&self) -> bool {
        let Step { same, same_attributes, names, modes, links, one_file, .. } = self.step;
        let pairs = same.iter().chain(same_attributes).chain(one_file);
        let paths = names.keys().chain(modes.keys()).chain(links.keys());
        pairs.flat_map(|(one, other)| [one, other]).chain(paths).any(|path| path.starts_with('@'))
    }

    /// Runs one command and checks what it says.
    fn command(&self, command: &Command, number: usize, server: &mut dyn Server) -> Result<()> {
        let output = |name: &str| self.local.join(format!("{name}-{number}"));
        let mut program = match server.caller() {
            Caller::Root => Program::new(self.nfsw),
            Caller::Nobody => {
                let mut program = Program::new("setpriv");
                program.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]).arg(self.nfsw);
                program
            }
        };
        let export = server.export();
        for (index, word) in command.words.split(' ').enumerate() {
            program.arg(self.word(word, &export));
            if index == 0 {
                program.args(["--transport", self.transport.name()]);
            }
        }
        if command.moved.is_some() {
            program.arg("--json");
        }
        let input = command.stdin.as_ref().map(|path| File::open(self.local_path(path))).transpose()?;
        program
            .env("HOME", self.local.join("home"))
            .env("XDG_STATE_HOME", self.local.join("home/state"))
            .env("XDG_CACHE_HOME", self.local.join("home/cache"))
            .current_dir(self.local.join("here"))
            .stdin(input.map_or_else(Stdio::null, Stdio::from))
            .stdout(File::create(output("stdout"))?)
            .stderr(File::create(output("stderr"))?);
        let mut child = program.spawn().context("starting nfsw")?;
        let ended = self.wait(&mut child, command, server);
        let said = String::from_utf8_lossy(&fs::read(output("stderr"))?).trim().to_owned();
        let Some(status) = ended? else {
            bail!("no end after {} s: {}", self.limit.as_secs(), shortened(&said));
        };
        let killed = matches!(&command.meanwhile, Some(meanwhile) if meanwhile.event == Event::Kill);
        if !killed && status.code() != Some(command.status) {
            bail!("{status}, not {}: {}", command.status, shortened(&said));
        }
        self.check_output(command, &output("stdout"), &said, &export)
    }

    fn check_output(&self, command: &Command, stdout: &Path, said: &str, export: &str) -> Result<()> {
        for text in &command.says {
            if !said.contains(text) {
                bail!("does not say {text:?}: {}", shortened(said));
            }
        }
        let printed = fs::read(stdout)?;
        if let Some(path) = &command.stdout
            && printed != fs::read(self.local_path(path))?
        {
            bail!("standard output has {} bytes, and not those of {path}", printed.len());
        }
        let printed = String::from_utf8_lossy(&printed);
        for text in &command.prints {
            let text = text.replace("EXPORT", if export.is_empty() { "/" } else { export });
            if !printed.contains(&text) {
                bail!("does not print {text:?}: {}", shortened(&printed));
            }
        }
        if let Some(lines) = command.lines
            && printed.lines().count() != lines
        {
            bail!("prints {} lines, not {lines}", printed.lines().count());
        }
        if let Some(most) = command.moved {
            let summary: serde_json::Value =
                serde_json::from_str(printed.lines().last().context("no summary")?)?;
            let moved = summary["bytes"].as_u64().context("no bytes in the summary")?;
            if moved > most {
                bail!("{moved} bytes moved, at most {most} were to be: {summary}");
            }
        }
        Ok(())
    }

    /// Waits for a command's end, and lets happen what is to happen meanwhile; nothing when it does not end.
    fn wait(
        &self,
        child: &mut Child,
        command: &Command,
        server: &mut dyn Server,
    ) -> Result<Option<ExitStatus>> {
        let start = Instant::now();
        let mut meanwhile = command.meanwhile.as_ref();
        loop {
            if let Some(status) = child.try_wait()? {
                if let Some(meanwhile) = meanwhile {
                    bail!("{status} before {:?} could happen", meanwhile.event);
                }
                return Ok(Some(status));
            }
            if start.elapsed() > self.limit {
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
            if let Some(event) = meanwhile
                && self.size(&event.file, server) >= event.bytes
            {
                match event.event {
                    Event::Kill => child.kill()?,
                    Event::Crash => server.crash_and_restart()?,
                    Event::Reexport => server.reexport()?,
                }
                meanwhile = None;
            }
            thread::sleep(Duration::from_millis(if meanwhile.is_some() { 30 } else { 5 }));
        }
    }

    /// Bytes of a file that take place.
    fn size(&self, path: &str, server: &dyn Server) -> u64 {
        match path.strip_prefix('@') {
            Some(name) => server.size(&format!("{}/{name}", self.directory)).unwrap_or(0),
            None => fs::metadata(self.local.join("here").join(path)).map_or(0, |file| file.blocks() * 512),
        }
    }

    /// Checks what must be true after all commands.
    fn afterwards(&self, view: Option<&View>) -> Result<()> {
        let path = |name: &str| match (name.strip_prefix('@'), view) {
            (Some(name), Some(view)) => view.path().join(name),
            _ => self
                .local
                .join(name.strip_prefix('^').map_or("here", |_| "there"))
                .join(name.trim_start_matches('^')),
        };
        let Step { same, same_attributes, names, modes, links, one_file, .. } = self.step;
        for (pairs, attributes) in [(same, false), (same_attributes, true)] {
            for (one, other) in pairs {
                if let Some(difference) = same::difference(&path(one), &path(other), attributes)? {
                    bail!("{other} is not as {one}: {difference}");
                }
            }
        }
        for (directory, expected) in names {
            let mut found = Vec::new();
            for entry in fs::read_dir(path(directory)).with_context(|| format!("no directory {directory}"))? {
                found.push(entry?.file_name().to_string_lossy().into_owned());
            }
            found.sort();
            if &found != expected {
                bail!("{directory} holds {found:?}, not {expected:?}");
            }
        }
        for (name, mode) in modes {
            let found = format!("{:o}", fs::symlink_metadata(path(name))?.permissions().mode() & 0o7777);
            if &found != mode {
                bail!("{name} has mode {found}, not {mode}");
            }
        }
        for (name, target) in links {
            let found = fs::read_link(path(name)).with_context(|| format!("no link {name}"))?;
            if found != Path::new(target) {
                bail!("{name} leads to {}, not {target}", found.display());
            }
        }
        for (one, other) in one_file {
            let number = |name: &str| fs::symlink_metadata(path(name)).map(|metadata| metadata.ino());
            if number(one)? != number(other)? {
                bail!("{one} and {other} are two files");
            }
        }
        Ok(())
    }

    /// Says what was too much on the wire.
    fn wire_failure(&self, proxy: Option<&Proxy>) -> Option<String> {
        let (bytes, calls) = proxy?.counts();
        let size = fixture::size(&self.step.here) + fixture::size(&self.step.there);
        let most = self.step.wire.map(|factor| (size as f64 * factor) as u64 + SMALL_CALLS_BYTES);
        if let Some(most) = most.filter(|&most| bytes > most) {
            return Some(format!("{bytes} bytes on the wire, at most {most} were to be"));
        }
        let most = self.step.calls.filter(|&most| calls > most)?;
        Some(format!("{calls} calls, at most {most} were to be"))
    }

    /// Returns a word of a command line as `nfsw` gets it.
    fn word(&self, word: &str, export: &str) -> String {
        let (nfs, mount) = self.ports;
        let options = format!("?nfsport={nfs}&mountport={mount}");
        match word.strip_prefix('@') {
            Some("@") => format!("nfs://127.0.0.1:{nfs}/{options}"),
            Some(name) => format!("nfs://127.0.0.1{export}/{}/{name}{options}", self.directory),
            None => word.to_owned(),
        }
    }

    /// The path of a local file: `./NAME`, or `^NAME` as it was put on the server.
    fn local_path(&self, name: &str) -> PathBuf {
        match name.strip_prefix('^') {
            Some(name) => self.local.join("there").join(name),
            None => self.local.join("here").join(name),
        }
    }
}

/// The start of what was said.
fn shortened(text: &str) -> String {
    let end = text.char_indices().nth(400).map_or(text.len(), |(index, _)| index);
    text[..end].replace('\n', " / ")
}
