//! What runs behind a link, in a process of its own.

use std::{
    env,
    fmt::Write as _,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rustix::process::Signal;

use super::{forget_pages, milliseconds, people, rclone, read_rate};
use crate::{
    common::{nfsw, stderr},
    mounted::{Mount, send},
};

/// What can be measured behind a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    ColdListing,
    ColdListingInFade,
    Warm,
    Kills,
    Reads,
    Album,
    Browse,
    Rclone,
}

impl Part {
    const ALL: [Self; 8] = [
        Self::ColdListing,
        Self::ColdListingInFade,
        Self::Warm,
        Self::Kills,
        Self::Reads,
        Self::Album,
        Self::Browse,
        Self::Rclone,
    ];

    pub(super) fn name(self) -> String {
        format!("{self:?}")
    }
}

/// Numbers for whoever started this, and when the link began.
pub(super) struct Inside {
    url: String,
    host: String,

    /// Further words of whoever started this.
    options: Vec<String>,
    begun: f64,
    results: String,
}

impl Inside {
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Words that are for us, or options of the mount.
    pub(super) fn options(&self) -> Vec<&str> {
        self.options.iter().map(String::as_str).collect()
    }

    pub(super) fn note(&mut self, name: &str, number: f64) {
        writeln!(self.results, "{name} {number}").unwrap();
    }

    /// Seconds since the link began, to within the start of a process.
    pub(super) fn now(&self) -> f64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() - self.begun
    }

    fn sleep_until(&self, at: f64) {
        thread::sleep(Duration::from_secs_f64((at - self.now()).max(0.0)));
    }

    pub(super) fn mount(&self, options: &[&str]) -> Mount {
        Mount::at(&self.url, options)
    }
}

#[test]
#[ignore = "a part of the other tests: it does nothing by itself"]
fn a_part_behind_a_link() {
    let Ok(name) = env::var("NFSW_PART") else { return };
    let (host, port) = (env::var("NFSW_HOST").unwrap(), env::var("NFSW_PART_PORT").unwrap());
    let begun = env::var("NFSW_PART_BEGUN").unwrap().parse().unwrap();
    let url = format!("nfs://{host}:{port}/?mountport={port}");
    let options = env::var("NFSW_PART_OPTIONS").unwrap();
    let options = options.split_whitespace().map(str::to_owned).collect();
    let mut inside = Inside { url, host, options, begun, results: String::new() };
    let part = Part::ALL.into_iter().find(|part| part.name() == name).unwrap();
    match part {
        Part::ColdListing => cold_listing(&mut inside),
        Part::ColdListingInFade => cold_listing_in_fade(&mut inside),
        Part::Warm => warm(&mut inside),
        Part::Kills => kills(&mut inside),
        Part::Reads => reads(&mut inside),
        Part::Album => people::album(&mut inside),
        Part::Browse => people::browse(&mut inside),
        Part::Rclone => rclone::warm(&mut inside),
    }
    fs::write(env::var_os("NFSW_PART_RESULTS").unwrap(), inside.results).unwrap();
}

/// Lists a directory of 300 entries; returns how long that took, or that it failed.
pub(super) fn list(directory: &Path) -> Result<Duration, String> {
    let begun = Instant::now();
    let output = Command::new("ls").arg("-l").arg(directory).stdin(Stdio::null()).output().unwrap();
    let lines = output.stdout.iter().filter(|&&byte| byte == b'\n').count();
    match output.status.success() && lines == 301 {
        true => Ok(begun.elapsed()),
        false => Err(format!("{lines} lines, {}", stderr(&output))),
    }
}

fn cold_listing(inside: &mut Inside) {
    for _ in 0..5 {
        let mount = inside.mount(&[]);
        let took = list(&mount.path("album")).unwrap();
        inside.note("cold", took.as_secs_f64());
    }
}

fn cold_listing_in_fade(inside: &mut Inside) {
    let mount = inside.mount(&[]);
    assert!(inside.now() < 7.5, "mounting took {} s", inside.now());
    // What has gone before the link was there counts as before the fade.
    inside.sleep_until(7.85);
    let took = list(&mount.path("album")).unwrap();
    assert!(took > Duration::from_secs(4), "no fade within {took:?}");
    inside.note("cold", took.as_secs_f64());
}

fn warm(inside: &mut Inside) {
    let mount = inside.mount(&[]);
    use_what_is_held(inside, &mount.path);
}

/// Lists a directory and reads a file of it, again and again, through four disconnections.
pub(super) fn use_what_is_held(inside: &mut Inside, view: &Path) {
    const CYCLE: f64 = 20.0;
    const GOOD: f64 = 14.5;
    let (album, file) = (view.join("album"), view.join("album/IMG_0007.jpg"));
    list(&album).unwrap();
    let data = fs::read(&file).unwrap();
    while inside.now() < 4.0 * CYCLE {
        let in_fade = |at: f64| (GOOD + 0.2..CYCLE - 0.1).contains(&(at % CYCLE));
        let before = inside.now();
        let listed = list(&album);
        let suffix = if in_fade(before) && in_fade(inside.now()) { " in fade" } else { "" };
        match listed {
            Ok(took) => inside.note(&format!("listing{suffix}"), milliseconds(took)),
            Err(error) => {
                println!("ls at {before}: {error}");
                inside.note("errors", 1.0);
            }
        }
        let before = inside.now();
        // What the kernel holds needs none of us.
        forget_pages(&file);
        let begun = Instant::now();
        let mut byte = [0];
        let read = File::open(&file).and_then(|file| file.read_exact_at(&mut byte, 0));
        let took = begun.elapsed();
        let suffix = if in_fade(before) && in_fade(inside.now()) { " in fade" } else { "" };
        match read.and_then(|()| fs::read(&file)) {
            Ok(read) => {
                assert!(read == data);
                inside.note(&format!("first byte{suffix}"), milliseconds(took));
            }
            Err(error) => {
                println!("read at {before}: {error}");
                inside.note("errors", 1.0);
            }
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn kills(inside: &mut Inside) {
    let mount = inside.mount(&["--wait", "60s"]);
    fs::read_dir(&mount.path).unwrap().for_each(drop);
    fs::read_dir(mount.path("album")).unwrap().for_each(drop);
    inside.sleep_until(5.0);
    for number in 0..10 {
        // The other directory was not listed: nobody knows which names it has.
        for (name, path) in
            [("read", format!("album/IMG_{number:04}.jpg")), ("lookup", format!("other/{number}"))]
        {
            let mut waiting = Command::new("cat")
                .arg(mount.path(&path))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            thread::sleep(Duration::from_millis(1500 + 7 * number));
            assert!(waiting.try_wait().unwrap().is_none(), "{path}: nobody waits");
            let begun = Instant::now();
            send(&waiting, Signal::KILL);
            waiting.wait().unwrap();
            inside.note(name, milliseconds(begun.elapsed()));
        }
    }
}

fn reads(inside: &mut Inside) {
    let mount = inside.mount(&[]);
    for number in 0..3 {
        let name = format!("file{number}");
        let copy = mount.cache.with_file_name("copy");
        let url = inside.url.replacen("/?", &format!("/{name}?"), 1);
        let begun = Instant::now();
        let output = nfsw(["cp".as_ref(), url.as_ref(), copy.as_os_str()]);
        assert!(output.status.success(), "{}", stderr(&output));
        let length = fs::metadata(&copy).unwrap().len();
        inside.note("cp", length as f64 / begun.elapsed().as_secs_f64());
        fs::remove_file(copy).unwrap();
        inside.note("mount", read_rate(&mount.path(&name)));
    }
}
