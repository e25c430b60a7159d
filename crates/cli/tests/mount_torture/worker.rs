//! Processes that read: this test program again, which does what a line of its standard input says, and answers with a line.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::fs::{OFlags, fcntl_setfl};

use crate::blocks::{Label, check, contents};

/// Tells this program that it is to be a worker.
const IS_WORKER: &str = "NFSW_TORTURE_WORKER";

/// Begins an answer, which stands among the lines of the test harness.
const ANSWER: &str = "answer ";

/// A process that reads, with one file open at most.
pub(crate) struct Worker {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

/// What came of a request, and how long it took.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) words: Result<Vec<String>, String>,
    pub(crate) took: Duration,
}

impl Worker {
    pub(crate) fn start() -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "worker::a_worker_tells_whose_bytes_it_reads", "--nocapture"])
            .env(IS_WORKER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        Self { process, to, from }
    }

    /// Sends a request: `open PATH`, `read`, `pread OFFSET LENGTH`, `direct OFFSET LENGTH`, `mmap`, `fstat`, `stat PATH`, `ls PATH`.
    pub(crate) fn ask(&mut self, request: &str) {
        writeln!(self.to, "{request}").unwrap();
    }

    /// Waits for the answer to the last request.
    pub(crate) fn answer(&mut self) -> Answer {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.from.read_line(&mut line).unwrap() > 0, "a worker has ended");
            if let Some((_, answer)) = line.trim_end().split_once(ANSWER) {
                let mut words = answer.split(' ').map(str::to_owned);
                let took = Duration::from_micros(words.next().unwrap().parse().unwrap());
                let is_good = words.next().as_deref() == Some("ok");
                let words: Vec<_> = words.collect();
                return Answer { words: if is_good { Ok(words) } else { Err(words.join(" ")) }, took };
            }
        }
    }

    pub(crate) fn run(&mut self, request: &str) -> Answer {
        self.ask(request);
        self.answer()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Number of bytes, and whose they are: `LENGTH FILE:VERSION ...`.
fn told(bytes: &[u8], offset: u64) -> Result<String, String> {
    let labels = check(bytes, offset).map_err(|error| format!("WRONG {error}"))?;
    Ok(labels.iter().fold(bytes.len().to_string(), |told, label| format!("{told} {label}")))
}

fn said(error: std::io::Error) -> String {
    format!("{} {error}", error.raw_os_error().unwrap_or(0))
}

fn attributes(it: &fs::Metadata) -> String {
    format!("{} {} {} {} {} {}", it.ino(), it.mode(), it.nlink(), it.uid(), it.size(), it.mtime())
}

/// Reads to the end or the length, as `read` or `pread` do; an error after the first bytes is an error.
fn pread(file: &File, mut offset: u64, length: usize) -> Result<Vec<u8>, String> {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    while bytes.len() < length {
        let most = buffer.len().min(length - bytes.len());
        match file.read_at(&mut buffer[..most], offset).map_err(said)? {
            0 => break,
            read => {
                bytes.extend_from_slice(&buffer[..read]);
                offset += read as u64;
            }
        }
    }
    Ok(bytes)
}

#[expect(unsafe_code, reason = "there is no safe way to map a file or to align a buffer")]
mod memory {
    use std::{
        fs::File,
        io::{self, Read, Seek, Write},
        os::fd::AsFd,
        ptr, slice,
    };

    use rustix::{
        fs::MemfdFlags,
        mm::{MapFlags, ProtFlags, mmap, munmap},
    };

    /// Copies what a mapping of a file shows. A page that cannot be had would end the process: so the kernel copies it.
    pub(super) fn mapped(file: &File, length: usize) -> io::Result<Vec<u8>> {
        let mut copy = File::from(rustix::fs::memfd_create("copy", MemfdFlags::CLOEXEC)?);
        // SAFETY: a new private mapping, of which nobody else knows, read by the kernel alone and before it is unmapped.
        let copied = unsafe {
            let map = mmap(ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, file.as_fd(), 0)?;
            let copied = copy.write_all(slice::from_raw_parts(map.cast::<u8>(), length));
            munmap(map, length)?;
            copied
        };
        copied?;
        let mut bytes = Vec::new();
        copy.rewind()?;
        copy.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

fn serve(open: &mut Option<File>, request: &str) -> Result<String, String> {
    let (verb, rest) = request.split_once(' ').unwrap_or((request, ""));
    let numbers: Vec<u64> = rest.split(' ').filter_map(|word| word.parse().ok()).collect();
    let file = || open.as_ref().ok_or_else(|| "0 nothing is open".to_owned());
    match verb {
        "open" => {
            *open = None;
            *open = Some(File::open(rest).map_err(said)?);
            Ok(String::new())
        }
        "read" => told(&pread(file()?, 0, usize::MAX)?, 0),
        "pread" => told(&pread(file()?, numbers[0], numbers[1] as usize)?, numbers[0]),
        "direct" => {
            // Past the kernel's pages.
            let file = file()?;
            let flags = |flags| fcntl_setfl(file, flags).map_err(|error| said(error.into()));
            flags(OFlags::DIRECT)?;
            let bytes = pread(file, numbers[0], numbers[1] as usize);
            flags(OFlags::empty())?;
            told(&bytes?, numbers[0])
        }
        "mmap" => {
            let file = file()?;
            let length = file.metadata().map_err(said)?.len() as usize;
            if length == 0 {
                return told(&[], 0);
            }
            told(&memory::mapped(file, length).map_err(said)?, 0)
        }
        "fstat" => Ok(attributes(&file()?.metadata().map_err(said)?)),
        "stat" => Ok(attributes(&fs::symlink_metadata(rest).map_err(said)?)),
        "ls" => {
            let mut names = Vec::new();
            for entry in fs::read_dir(rest).map_err(said)? {
                names.push(entry.map_err(said)?.file_name().to_string_lossy().into_owned());
            }
            Ok(names.join(" "))
        }
        _ => Err(format!("0 unknown request {verb}")),
    }
}

/// The life of a worker; and a test of it.
#[test]
fn a_worker_tells_whose_bytes_it_reads() {
    if std::env::var_os(IS_WORKER).is_some() {
        let mut open = None;
        for request in std::io::stdin().lines().map_while(Result::ok) {
            let begun = Instant::now();
            let outcome = serve(&mut open, &request);
            let (word, text) = match &outcome {
                Ok(text) => ("ok", text),
                Err(text) => ("error", text),
            };
            println!("{ANSWER}{} {word} {text}", begun.elapsed().as_micros());
        }
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("file");
    let label = Label { file: 3, version: 4 };
    fs::write(&path, contents(label, 0..20)).unwrap();
    let mut worker = Worker::start();
    let mut run = |request: &str| worker.run(request).words;
    run(&format!("open {}", path.display())).unwrap();
    for request in ["read", "mmap"] {
        assert_eq!(run(request).unwrap(), ["10240", "3:4"], "{request}");
    }
    assert_eq!(run("pread 1024 512").unwrap(), ["512", "3:4"]);
    assert_eq!(run(&format!("ls {}", place.path().display())).unwrap(), ["file"]);
    fs::write(&path, [contents(label, 0..1), contents(Label { file: 9, ..label }, 1..2)].concat()).unwrap();
    assert_eq!(run("read").unwrap(), ["1024", "3:4", "9:4"]);
    fs::write(&path, contents(label, 1..2)).unwrap();
    assert!(run("read").unwrap_err().starts_with("WRONG"));
    assert!(run(&format!("open {}/no", Path::new("/nowhere").display())).unwrap_err().starts_with("2 "));
}
