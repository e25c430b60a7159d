//! Records and captures.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::common::{World, host, mobile, traced};
use linkemu::{ArqKind, CaptureWriter, RecordWriter};

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic while writing").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().expect("no panic while writing").clone()
    }
}

fn faded() -> World {
    let mut world = World::new(traced("0,good\n10,bad\n20,good\n", ArqKind::None), 1, 1);
    // Channel time 0 is the first datagram, 3 ms after the link was made.
    world.cell.handle_timeout(world.at(3000));
    world
}

#[test]
fn records_have_one_row_per_frame_and_datagram_in_channel_time() {
    let out = Shared::default();
    let mut world = faded();
    world.cell.observe(Box::new(RecordWriter::new(out.clone())));
    world.send(3000, host(), mobile(0), 1000);
    world.send(3000, host(), mobile(0), 1000);
    world.run(100_000);
    world.send(100_000, mobile(0), host(), 2000);
    world.cell.close_records();
    let text = String::from_utf8(out.bytes()).expect("text");
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(
        rows,
        [
            r#"{"event":"frame","datagram":0,"index":0,"bytes":1046,"queued_s":0.000000000,"first_air_s":0.000000000,"attempts":1,"ended_s":0.008368000,"fate":"delivered"}"#,
            r#"{"event":"datagram","datagram":0,"from":"host0:2049","to":"mobile0:700","payload_bytes":1000,"frames":1,"offered_s":0.000000000,"first_air_s":0.000000000,"transmissions":1,"ended_s":0.008368000,"fate":"delivered","state_offered":"good","state_ended":"good"}"#,
            r#"{"event":"frame","datagram":1,"index":0,"bytes":1046,"queued_s":0.000000000,"first_air_s":0.008368000,"attempts":1,"ended_s":0.016736000,"fate":"channel"}"#,
            r#"{"event":"datagram","datagram":1,"from":"host0:2049","to":"mobile0:700","payload_bytes":1000,"frames":1,"offered_s":0.000000000,"first_air_s":0.008368000,"transmissions":1,"ended_s":0.016736000,"fate":"channel","state_offered":"good","state_ended":"bad"}"#,
            r#"{"event":"datagram","datagram":2,"from":"mobile0:700","to":"host0:2049","payload_bytes":2000,"frames":2,"offered_s":0.097000000,"first_air_s":null,"transmissions":0,"ended_s":0.097000000,"fate":"under_way","state_offered":"good","state_ended":"good"}"#,
        ]
    );
}

/// Type and body of each block.
fn blocks(mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let word =
        |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let mut blocks = Vec::new();
    while !bytes.is_empty() {
        let length = word(bytes, 4) as usize;
        assert_eq!(length % 4, 0);
        assert_eq!(word(bytes, length - 4) as usize, length, "the length stands at both ends");
        blocks.push((word(bytes, 0), bytes[8..length - 4].to_vec()));
        bytes = &bytes[length..];
    }
    blocks
}

#[test]
fn captures_show_what_went_in_came_out_and_was_dropped() {
    let out = Shared::default();
    let mut world = faded();
    world.cell.observe(Box::new(CaptureWriter::new(out.clone(), Duration::from_secs(1_000_000_000))));
    world.send(3000, host(), mobile(0), 1000);
    world.send(3000, host(), mobile(0), 1000);
    world.run(100_000);
    world.cell.close_records();
    let blocks = blocks(&out.bytes());
    let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [0x0a0d_0d0a, 1, 1, 1, 6, 6, 6, 6]);
    let packets: Vec<(u32, u64, String)> = blocks[4..]
        .iter()
        .map(|(_, body)| {
            let word = |at: usize| u32::from_le_bytes(body[at..at + 4].try_into().expect("four bytes"));
            let time = u64::from(word(4)) << 32 | u64::from(word(8));
            (word(0), time, String::from_utf8_lossy(&body[20 + 1028..]).into_owned())
        })
        .collect();
    assert_eq!((packets[0].0, packets[1].0), (0, 0));
    assert_eq!((packets[2].0, packets[2].1), (1, 1_000_000_000_008_368_000));
    assert_eq!((packets[3].0, packets[3].1), (2, 1_000_000_000_016_736_000));
    assert!(packets[3].2.contains("datagram 1: channel, 1 frames"), "{:?}", packets[3]);
}

#[test]
fn a_full_disk_stops_the_capture_and_not_the_link() {
    let full = OpenOptions::new().write(true).open("/dev/full").expect("/dev/full can be opened for writing");
    let mut world = faded();
    world.cell.observe(Box::new(CaptureWriter::new(full, Duration::ZERO)));
    for number in 0..100 {
        world.send(3000 + number * 20_000, host(), mobile(0), 1000);
    }
    assert!(world.run(100_000_000).len() > 90);
    let problems = world.cell.observer_problems();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("the capture stopped: "), "{problems:?}");
}

#[test]
fn capture_files_are_complete_after_the_link_is_closed() {
    let path = std::env::temp_dir().join(format!("linkemu-{}.pcapng", std::process::id()));
    let mut world = faded();
    let file = fs::File::create(&path).expect("a temporary file");
    world.cell.observe(Box::new(CaptureWriter::new(file, Duration::ZERO)));
    world.send(3000, host(), mobile(0), 1000);
    world.run(100_000);
    world.cell.close_records();
    let count = blocks(&fs::read(&path).expect("the capture")).len();
    fs::remove_file(&path).expect("the capture can be removed");
    assert_eq!(count, 6);
}
