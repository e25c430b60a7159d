mod rules;

use super::*;

/// Headers of WRITEs over IPv4 with the credential of a user.
const HEADERS: u32 = 220;

const MS: Duration = Duration::from_millis(1);

/// A path that carries datagrams of so many bytes in one piece, and what a client that moves data learns of it.
struct Path {
    mtu: u32,
    /// Whether servers see that their replies are too long, and fragment them.
    tells: bool,
    now: Instant,
    path_mtu: PathMtu,
    probes: Vec<u32>,
}

impl Path {
    #[expect(clippy::disallowed_methods, reason = "a beginning of time")]
    fn new(route: u32, mtu: u32, tells: bool) -> Self {
        let mut path_mtu = PathMtu::new(MtuTuning::default(), ProbeTuning::default(), HEADERS, u32::MAX);
        path_mtu.handle_route_mtu(route, true);
        path_mtu.set_rate(1e7);
        Self { mtu, tells, now: Instant::now(), path_mtu, probes: Vec::new() }
    }

    /// Writes a block in a round trip of 10 ms, and sends the probe that is to be sent.
    fn write(&mut self) {
        let (block, sent) = (self.path_mtu.block(), self.now);
        self.path_mtu.handle_sent(sent, Direction::Up, block, 100 * MS);
        let bytes = block + HEADERS;
        let arrives = bytes <= self.mtu || !self.path_mtu.keeps_whole(bytes);
        let probe = self.path_mtu.poll_probe(sent, 100 * MS);
        self.probes.extend(probe);
        self.now += 10 * MS;
        if arrives {
            self.path_mtu.handle_reply(self.now, sent, 150, Some((Direction::Up, block)));
        } else {
            self.path_mtu.handle_loss(self.now, Direction::Up, block, sent);
        }
        if let Some(bytes) = probe.filter(|&bytes| bytes <= self.mtu) {
            self.path_mtu.handle_probe_reply(bytes);
        }
    }

    /// Reads a block in a round trip of 10 ms: what is to be probed, if something is.
    fn read(&mut self) {
        let probe = self.path_mtu.read_to_probe(self.now);
        let (block, sent) = (probe.unwrap_or_else(|| self.path_mtu.block()), self.now);
        self.probes.extend(probe.map(|block| block + HEADERS));
        self.path_mtu.handle_sent(sent, Direction::Down, block, 100 * MS);
        self.now += 10 * MS;
        let reply = block + 156;
        if reply > self.mtu {
            if !self.tells {
                if !self.path_mtu.is_probe(block) {
                    self.path_mtu.handle_loss(self.now, Direction::Down, block, sent);
                }
                // Small calls are answered.
                self.path_mtu.handle_reply(self.now, sent, 150, None);
                return;
            }
            self.path_mtu.handle_fragments(Some((self.mtu - 20) / 8 * 8 + 20));
        }
        self.path_mtu.handle_reply(self.now, sent, reply, Some((Direction::Down, block)));
    }

    fn writes(mut self, count: u32) -> Self {
        (0..count).for_each(|_| self.write());
        self
    }

    fn reads(mut self, count: u32) -> Self {
        (0..count).for_each(|_| self.read());
        self
    }
}

#[test]
fn ethernet_is_assumed_and_nothing_is_probed_where_the_route_is_ethernet() {
    let path = Path::new(1500, 1500, true).writes(1000).reads(1000);
    assert_eq!((path.path_mtu.block(), path.probes.len()), (1280, 0));
}

#[test]
fn the_mtu_of_the_route_bounds_datagrams_from_the_first_on() {
    for (mtu, block) in [(1280, 1024), (1420, 1152), (1492, 1216), (576, 1024)] {
        let path = Path::new(mtu, mtu, true);
        assert_eq!(path.path_mtu.block(), block, "{mtu}");
        assert!(path.path_mtu.keeps_whole(mtu) && !path.path_mtu.keeps_whole(mtu + 1));
    }
}

#[test]
fn larger_datagrams_are_looked_for_while_data_moves() {
    for mtu in [9000, 65_535] {
        let path = Path::new(mtu, mtu, true).writes(300);
        assert_eq!((path.path_mtu.up.size, path.path_mtu.down.size), (mtu, 1500), "each way for itself");
        assert_eq!(path.probes, [mtu]);
        let path = Path::new(mtu, mtu, true).reads(300);
        assert_eq!((path.path_mtu.up.size, path.path_mtu.down.size), (1500, mtu));
        assert_eq!(path.path_mtu.block(), (mtu - HEADERS) / 64 * 64);
    }
}

#[test]
fn no_probe_is_larger_than_the_largest_block_needs() {
    let mut path = Path::new(65_535, 65_535, true);
    path.path_mtu.bound_blocks(1280);
    assert_eq!(path.writes(1000).probes, [0; 0]);
    let mut path = Path::new(65_535, 65_535, true);
    path.path_mtu.bound_blocks(32 << 10);
    let path = path.reads(300).writes(300);
    let most = (32 << 10) + HEADERS;
    assert_eq!((path.path_mtu.block(), path.probes), (32 << 10, vec![most, most]));
}

#[test]
fn a_probe_costs_a_part_of_the_data() {
    let path = Path::new(9000, 9000, true).writes(28);
    assert_eq!(path.probes, [0; 0], "28 blocks of 1280 B are not four times 9000 B");
    let path = Path::new(9000, 9000, true).writes(30);
    assert_eq!(path.probes, [9000]);
}

#[test]
fn a_size_that_is_lost_three_times_is_too_large() {
    let path = Path::new(9000, 1500, true).writes(2000);
    assert_eq!(path.probes, [9000, 9000, 9000, 4352, 4352, 4352]);
    assert_eq!(path.path_mtu.up.size, 1500);
}

#[test]
fn a_slow_path_is_not_kept_busy_with_large_probes() {
    let mut path = Path::new(9000, 9000, true);
    path.path_mtu.set_rate(125_000.0);
    let mut path = path.writes(1000);
    assert_eq!((path.path_mtu.up.size, path.probes.len()), (1500, 0));
    path.path_mtu.set_rate(1_250_000.0);
    assert_eq!(path.writes(10).path_mtu.up.size, 9000);
}

#[test]
fn nothing_is_probed_into_a_silence() {
    let mut path = Path::new(9000, 9000, true).writes(29);
    path.now += 20 * MS + MS;
    path.path_mtu.handle_sent(path.now, Direction::Up, 1280, MS);
    assert_eq!(path.path_mtu.poll_probe(path.now, MS), None);
}

#[test]
fn a_probe_that_was_overtaken_is_given_time() {
    let mut path = Path::new(9000, 9000, true);
    while path.probes.is_empty() {
        path.mtu = if path.path_mtu.read_to_probe(path.now).is_some() { 1500 } else { 9000 };
        path.tells = false;
        path.read();
    }
    let (asked, block) = (path.now - 10 * MS, path.path_mtu.block_of(9000));
    assert!(path.path_mtu.is_probe(block));
    let later = asked + 90 * MS;
    assert_eq!(path.path_mtu.handle_reply(later, asked + MS, 150, None), None);
    path.path_mtu.handle_reply(later, asked, block + 156, Some((Direction::Down, block)));
    assert_eq!(path.path_mtu.down.size, 9000);
}

#[test]
fn without_an_answer_to_anything_a_probe_is_not_lost() {
    let mut path = Path::new(9000, 9000, true).writes(29);
    let sent = path.now;
    assert_eq!(path.path_mtu.poll_probe(sent, 100 * MS), Some(9000));
    // A fade: what had been sent before it is answered late.
    path.path_mtu.handle_reply(sent + 1000 * MS, sent - MS, 150, None);
    assert_eq!(path.path_mtu.up.lost_probes, 0);
    path.path_mtu.handle_reply(sent + 1000 * MS, sent + 900 * MS, 150, None);
    assert_eq!(path.path_mtu.up.lost_probes, 1);
}

#[test]
fn an_icmp_message_tells_the_size() {
    let mut path = Path::new(1500, 1420, true);
    assert!(path.path_mtu.handle_route_mtu(1420, true), "a smaller size is in use");
    let path = path.writes(100);
    assert_eq!((path.path_mtu.block(), path.probes.len()), (1152, 0));
}

#[test]
fn a_black_hole_is_found_and_the_size_that_passes_it() {
    for (mtu, block) in [(1280, 1024), (1420, 1152), (1450, 1216), (1492, 1216)] {
        let path = Path::new(1500, mtu, false).writes(8);
        assert_eq!(path.path_mtu.up.size, BASE, "within a few round trips");
        assert_eq!(path.writes(200).path_mtu.block(), block, "{mtu}");
        // Replies have shorter headers than the calls that blocks are chosen for.
        let block = if mtu == 1280 { 1088 } else { 1280.min(mtu - 156) / 64 * 64 };
        let found = Path::new(1500, mtu, false).reads(400).path_mtu.block();
        assert!(found <= block && found + 64 >= block, "{mtu}: {found}");
    }
}

#[test]
fn where_not_even_the_base_passes_datagrams_may_be_fragmented() {
    let path = Path::new(1500, 1000, false).writes(40);
    assert!(!path.path_mtu.keeps_whole(1000));
}

#[test]
fn losses_between_arrivals_are_no_black_hole() {
    let mut path = Path::new(1500, 1500, true).writes(1);
    for _ in 0..100 {
        for _ in 0..10 {
            let sent = path.now;
            path.now += MS;
            assert!(!path.path_mtu.handle_loss(path.now, Direction::Up, 1280, sent - 20 * MS), "one fade");
        }
        path.now += 20 * MS;
        path.write();
    }
}

#[test]
fn fragments_of_replies_tell_the_size() {
    for (mtu, block, probes) in [(1280, 1024, 0), (1420, 1152, 0), (1500, 1280, 1)] {
        let path = Path::new(9000, mtu, true).reads(200);
        assert_eq!((path.path_mtu.block(), path.probes.len()), (block, probes), "{mtu}");
    }
}

#[test]
fn what_failed_is_tried_again_after_ten_minutes() {
    let mut path = Path::new(9000, 1500, true).writes(2000);
    path.mtu = 9000;
    path.now += RAISE;
    let path = path.writes(100);
    assert_eq!(path.path_mtu.up.size, 9000);
}
