//! `nfsw mount`, which needs root and /dev/fuse, as CI has.

#![allow(dead_code, reason = "every test program uses its own part")]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

use rustix::{
    fs::getxattr,
    process::{Pid, Signal, kill_process},
};

use crate::common::{Server, with_default_signals};

/// A mount of the root of a server with a cache of its own, gone when this is dropped.
pub(crate) struct Mount {
    pub(crate) process: Child,
    pub(crate) path: PathBuf,
    /// Where the cache is.
    pub(crate) cache: PathBuf,
    /// What it has said before it said that it is mounted.
    pub(crate) said: String,
    _place: tempfile::TempDir,
}

impl Mount {
    pub(crate) fn of(server: &Server, options: &[&str]) -> Self {
        Self::at(&server.url("/"), options)
    }

    /// Mounts what a URL names.
    pub(crate) fn at(url: &str, options: &[&str]) -> Self {
        Self::with(url, options, &[])
    }

    /// The same in an environment with more variables.
    pub(crate) fn with(url: &str, options: &[&str], variables: &[(&str, &Path)]) -> Self {
        let place = tempfile::tempdir().unwrap();
        let (path, cache) = (place.path().join("view"), place.path().join("cache"));
        fs::create_dir(&path).unwrap();
        let (process, said) = launch(url, &path, &cache, options, variables)
            .unwrap_or_else(|said| panic!("not mounted: {said}"));
        Self { process, path, cache, said, _place: place }
    }

    /// Mounts at the same place, with the same cache, after it has ended.
    pub(crate) fn again(&mut self, url: &str, options: &[&str]) {
        assert!(self.try_again(url, options), "not mounted: {}", self.said);
    }

    /// Mounts at the same place before it has ended, and returns the process that serves what was there.
    pub(crate) fn replaced(&mut self, url: &str) -> Child {
        let launched = launch(url, &self.path, &self.cache, &[], &[]);
        let (process, said) = launched.unwrap_or_else(|said| panic!("not mounted: {said}"));
        self.said = said;
        std::mem::replace(&mut self.process, process)
    }

    /// The same in an environment with more variables.
    pub(crate) fn again_with(&mut self, url: &str, options: &[&str], variables: &[(&str, &Path)]) {
        let launched = launch(url, &self.path, &self.cache, options, variables);
        (self.process, self.said) = launched.unwrap_or_else(|said| panic!("not mounted: {said}"));
    }

    /// The same where it may be refused.
    pub(crate) fn try_again(&mut self, url: &str, options: &[&str]) -> bool {
        match launch(url, &self.path, &self.cache, options, &[]) {
            Ok(launched) => {
                (self.process, self.said) = launched;
                true
            }
            Err(said) => {
                self.said = said;
                false
            }
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Asks it to end with a signal, and returns how it ended.
    pub(crate) fn end(&mut self, signal: Signal) -> Option<i32> {
        send(&self.process, signal);
        self.process.wait().unwrap().code()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = rustix::mount::unmount(&self.path, rustix::mount::UnmountFlags::DETACH);
    }
}

/// A mount that a test has made in another way, gone when this is dropped.
pub(crate) struct Other(pub(crate) Child, pub(crate) PathBuf);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = rustix::mount::unmount(&self.1, rustix::mount::UnmountFlags::DETACH);
    }
}

fn launch(
    url: &str,
    path: &Path,
    cache: &Path,
    options: &[&str],
    variables: &[(&str, &Path)],
) -> Result<(Child, String), String> {
    let mut process = with_default_signals(["mount"])
        .arg("--cache")
        .arg(cache)
        .args(options)
        .arg(url)
        .arg(path)
        .envs(variables.iter().copied())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut reader = BufReader::new(process.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("is mounted at") {
        let before = said.len();
        reader.read_line(&mut said).unwrap();
        if said.len() == before {
            process.wait().unwrap();
            return Err(said);
        }
    }
    // Whatever it says later must not fill the pipe.
    thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    Ok((process, said))
}

pub(crate) fn send(process: &Child, signal: Signal) {
    kill_process(Pid::from_child(process), signal).unwrap();
}

/// Makes a server fall silent.
pub(crate) fn silence(server: &Server) {
    send(&server.process, Signal::STOP);
}

/// Makes it respond again.
pub(crate) fn resume(server: &Server) {
    send(&server.process, Signal::CONT);
}

pub(crate) fn state(path: &Path) -> String {
    let mut buffer = [0; 200];
    let length = getxattr(path, "user.nfsw.state", &mut buffer).unwrap();
    String::from_utf8(buffer[..length].to_vec()).unwrap()
}

/// Sets a file's time back, so that what is read of it proves its version at once.
pub(crate) fn age(path: &Path) {
    let status = Command::new("touch").args(["-d", "2001-01-01"]).arg(path).status().unwrap();
    assert!(status.success());
}
