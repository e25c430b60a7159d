//! The time of a large copy beside libnfs' `nfs-cp`, in interleaved pairs.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::{Server, client, lane::Lane};

/// Bytes of the file.
const BYTES: usize = 256 << 20;

/// The other client: one call of at most 1 MiB outstanding, COMMIT at the end.
const OTHER: &str = "nfs-cp";

/// Wall times of one way.
#[derive(Clone, Debug)]
pub struct Times {
    /// `up` or `down`.
    pub way: &'static str,
    /// Median seconds of `nfsw cp` without options.
    pub nfsw: f64,
    /// Median seconds of `nfs-cp`.
    pub other: f64,
    /// Median of the ratios of the pairs.
    pub ratio: f64,
}

/// Copies a file both ways with both programs, in so many pairs each way; both end on stable storage.
///
/// # Errors
/// Where the server cannot be started, or a copy fails or differs.
pub fn beside_nfs_cp(lane: &Lane, pairs: usize) -> Result<Vec<Times>> {
    let server = (lane.start)()?;
    let local = TempDir::new()?;
    let (source, back) = (local.path().join("source"), local.path().join("back"));
    write_source(&source)?;
    fs::create_dir(local.path().join("empty"))?;
    server.put(&local.path().join("empty"), "speed")?;
    let url = |name: &str| {
        let ((nfs, mount), export) = (server.ports(), server.export());
        format!("nfs://127.0.0.1{export}/speed/{name}?version=3&nfsport={nfs}&mountport={mount}")
    };
    let nfsw = client::binary();
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let mut ways = Vec::new();
    for (way, from, to) in [("up", path(&source), url("copy")), ("down", url("copy"), path(&back))] {
        let mut seconds = Vec::new();
        for pair in 0..pairs {
            let time = |ours: bool| -> Result<f64> {
                remove(&*server, nfsw, way, &back, &url("copy"))?;
                let (program, options): (&Path, &[&str]) =
                    if ours { (nfsw, &["cp", "-q"]) } else { (OTHER.as_ref(), &[]) };
                let start = Instant::now();
                run(Command::new(program).args(options).args([&from, &to]))?;
                Ok(start.elapsed().as_secs_f64())
            };
            // Neither is always the one that finds the caches warm.
            let both = if pair % 2 == 0 {
                let ours = time(true)?;
                (ours, time(false)?)
            } else {
                let other = time(false)?;
                (time(true)?, other)
            };
            seconds.push(both);
        }
        ways.push(Times {
            way,
            nfsw: median(seconds.iter().map(|both| both.0)),
            other: median(seconds.iter().map(|both| both.1)),
            ratio: median(seconds.iter().map(|both| both.0 / both.1)),
        });
    }
    ensure!(fs::read(&source)? == fs::read(&back)?, "the copy came back with other bytes");
    Ok(ways)
}

/// Removes what the last copy has made.
fn remove(server: &dyn Server, nfsw: &Path, way: &str, back: &Path, url: &str) -> Result<()> {
    if way == "down" {
        if back.exists() {
            fs::remove_file(back)?;
        }
    } else if server.size("speed/copy").is_some() {
        run(Command::new(nfsw).args(["rm", url]))?;
    }
    Ok(())
}

fn write_source(path: &Path) -> Result<()> {
    let block: Vec<u8> =
        (0..1_u32 << 20).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut file = File::create(path)?;
    for number in 0..BYTES / block.len() {
        file.write_all(&number.to_be_bytes())?;
        file.write_all(&block[size_of_val(&number)..])?;
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("running {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}
