//! What people do behind a bad link.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{
    Table,
    inside::{Inside, Part},
    link::{BLUETOOTH, pictures, run, run_with},
    milliseconds, most, quantile,
};
use crate::{
    common::{Server, noise},
    mounted::age,
};

/// Files of the album, bytes of each, and what is played of it.
const TRACKS: usize = 10;
const TRACK_BYTES: usize = 8 << 20;
const PLAYED: Duration = Duration::from_secs(25);
/// 320 kbit/s in pieces of a quarter of a second.
const PIECE_BYTES: usize = 10_000;
const PIECE: Duration = Duration::from_millis(250);
/// What a player has in store.
const BUFFER: Duration = Duration::from_secs(2);

#[test]
#[ignore = "takes five minutes"]
fn a_cached_album_is_played_through_every_tunnel() {
    let server = Server::everywhere();
    fs::create_dir(server.path("/album")).unwrap();
    for number in 0..TRACKS {
        let path = server.path(&format!("/album/{number}.mp3"));
        fs::write(&path, noise(TRACK_BYTES)).unwrap();
        age(&path);
    }
    let table = Table::begin("an album of 10 files of 8 MiB, played at 320 kbit/s, link preset train");
    let found = run(&server, &["--preset", "train"], Part::Album);
    println!(
        "| seconds played, tunnels of more than a second | | {:.0}, {} | |",
        found["played"][0], found["tunnels"][0]
    );
    assert!(found["tunnels"][0] >= 2.0, "too few tunnels to say something");
    table.at_most("errors", "", 0.0, found["errors"][0]);
    table.at_most("underruns of a player that has 2 s in store", "", 0.0, found["underruns"][0]);
    table.at_most(
        "longest wait for a piece, or for a file to open",
        "ms",
        1500.0,
        most(found["wait"].iter().copied()),
    );
}

/// Holds an album, then plays it, while something else finds out when there are tunnels.
pub(super) fn album(inside: &mut Inside) {
    let mount = inside.mount(&[]);
    let track = |number: usize| mount.path(&format!("album/{number}.mp3"));
    let expected = noise(TRACK_BYTES);
    for number in 0..TRACKS {
        let begun = Instant::now();
        while !fs::read(track(number)).is_ok_and(|read| read == expected) {
            assert!(begun.elapsed() < Duration::from_secs(120), "{number} cannot be fetched");
        }
    }
    let mut pinging = Command::new("ping")
        .args(["-i", "0.25", "-s", "8", inside.host()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let (mut errors, mut underruns) = (0, 0);
    let mut piece = vec![0; PIECE_BYTES];
    // When what is in store will have been played.
    let mut played_until = Instant::now() + BUFFER;
    for number in 0..TRACKS {
        let asked = Instant::now();
        let Ok(file) = File::open(track(number)) else {
            errors += 1;
            continue;
        };
        inside.note("wait", milliseconds(asked.elapsed()));
        for position in 0..(PLAYED.as_millis() / PIECE.as_millis()) as usize {
            let asked = Instant::now();
            let offset = position * PIECE_BYTES;
            match file.read_exact_at(&mut piece, offset as u64) {
                Ok(()) => assert!(piece == expected[offset..offset + PIECE_BYTES]),
                Err(_) => errors += 1,
            }
            let now = Instant::now();
            inside.note("wait", milliseconds(now - asked));
            if now > played_until {
                underruns += 1;
                played_until = now;
            }
            played_until += PIECE;
            thread::sleep(played_until.saturating_duration_since(now + BUFFER));
        }
    }
    inside.note("played", begun.elapsed().as_secs_f64());
    inside.note("errors", f64::from(errors));
    inside.note("underruns", f64::from(underruns));
    rustix::process::kill_process(rustix::process::Pid::from_child(&pinging), rustix::process::Signal::INT)
        .unwrap();
    let said = std::io::read_to_string(pinging.stdout.take().unwrap()).unwrap();
    pinging.wait().unwrap();
    let sequence = |line: &str| line.split("icmp_seq=").nth(1)?.split(' ').next()?.parse::<u32>().ok();
    let answered: Vec<u32> = said.lines().filter_map(sequence).collect();
    let tunnels = answered.windows(2).filter(|pair| pair[1] > pair[0] + 4).count();
    inside.note("tunnels", tunnels as f64);
}

/// Photos of which a person opens every second one, and how many of them.
const PHOTO_BYTES: usize = 2_000_000;
const PHOTOS: usize = 50;

#[test]
#[ignore = "takes ten minutes"]
fn photos_are_opened_with_and_without_prefetch() {
    let server = Server::everywhere();
    pictures(&server.path("/photos"), PHOTOS, PHOTO_BYTES);
    fs::create_dir(server.path("/others")).unwrap();
    for number in 0..400 {
        pictures(&server.path(&format!("/others/{number}")), 5, 5000);
    }
    println!(
        "\n| every second of 50 photos of 2 MB, 3 s between them | first byte, mean s | whole file, mean s | p90 | others: ls -l and 5 kB, mean ms | p90 |"
    );
    println!("|---|---|---|---|---|---|");
    let links: [(&str, &[&str], usize); 3] = [
        ("train", &["--preset", "train"], PHOTOS / 2),
        ("wifi-edge", &["--preset", "wifi-edge"], PHOTOS / 2),
        ("75 kB/s", &BLUETOOTH, 8),
    ];
    // They share a processor, which is idle most of the time.
    let runs = links.iter().flat_map(|link| [(link, ""), (link, "--prefetch")]);
    let rows = thread::scope(|scope| {
        let one = |((name, options, count), prefetch): (&(&'static str, &[&str], usize), &'static str)| {
            let found = run_with(&server, options, Part::Browse, &format!("{count} {prefetch}"));
            (*name, prefetch, found)
        };
        let running: Vec<_> = runs.map(|of| scope.spawn(move || one(of))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    for (name, prefetch, found) in rows {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        println!(
            "| {name} {prefetch} | {:.2} | {:.2} | {:.2} | {:.0} | {:.0} |",
            mean(&found["first"]),
            mean(&found["whole"]),
            quantile(&found["whole"], 0.9),
            mean(&found["others"]),
            quantile(&found["others"], 0.9),
        );
    }
}

/// Lists a directory of photos and opens every second one, while somebody else looks around.
pub(super) fn browse(inside: &mut Inside) {
    let options = inside.options();
    let (count, options) = options.split_first().unwrap();
    let count: usize = count.parse().unwrap();
    let mount = inside.mount(options);
    let (photos, over) = (mount.path("photos"), AtomicBool::new(false));
    let listed = Command::new("ls").arg("-l").arg(&photos).stdout(Stdio::null()).status().unwrap();
    assert!(listed.success());
    let (mut firsts, mut wholes) = (Vec::new(), Vec::new());
    let others = thread::scope(|scope| {
        let others = scope.spawn(|| look_around(&mount.path("others"), &over));
        for number in 0..count {
            // A person looks at a picture before opening the next.
            thread::sleep(Duration::from_secs(3));
            let begun = Instant::now();
            let file = File::open(photos.join(format!("IMG_{:04}.jpg", number * 2))).unwrap();
            let mut buffer = vec![0; 128 << 10];
            let (mut offset, mut tries) = (0, 0);
            loop {
                match file.read_at(&mut buffer, offset) {
                    Ok(0) => break,
                    Ok(length) => {
                        if offset == 0 {
                            firsts.push(begun.elapsed().as_secs_f64());
                        }
                        offset += length as u64;
                    }
                    // The tunnel is longer than programs wait.
                    Err(error) => {
                        tries += 1;
                        assert!(tries < 20, "{error}");
                    }
                }
            }
            assert_eq!(offset, PHOTO_BYTES as u64);
            wholes.push(begun.elapsed().as_secs_f64());
        }
        over.store(true, Ordering::Relaxed);
        others.join().unwrap()
    });
    for (name, values) in [("first", firsts), ("whole", wholes), ("others", others)] {
        values.into_iter().for_each(|value| inside.note(name, value));
    }
}

/// Lists directories that nobody has listed, and reads a file of each; returns how long each took.
fn look_around(others: &Path, over: &AtomicBool) -> Vec<f64> {
    let mut took = Vec::new();
    for number in 0..400 {
        thread::sleep(Duration::from_millis(1300));
        if over.load(Ordering::Relaxed) {
            break;
        }
        let begun = Instant::now();
        let directory = others.join(number.to_string());
        let listed = Command::new("ls").arg("-l").arg(&directory).stdout(Stdio::null()).status().unwrap();
        if listed.success() && fs::read(directory.join("IMG_0003.jpg")).is_ok() {
            took.push(milliseconds(begun.elapsed()));
        }
    }
    took
}
