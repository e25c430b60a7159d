//! Two ends and a path between them: what RFCs say about streams, losses and timers.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bytes::Bytes;
use linkemu::virtual_epoch;
use proptest::prelude::*;

use super::{Connection, MSS, Phase, Segment, TcpStats, connection::SYN_RETRIES};

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// What the path does to a segment: its number in this direction counts from 0, with the time since the beginning.
type Fate<'a> = &'a dyn Fn(Side, u64, Duration, &Segment) -> Passage;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passage {
    Arrives,
    Lost,
    /// So much later than the others.
    Late(Duration),
}

/// A client and a server, 50 ms apart, each with a bottleneck that takes `serial` for every segment of data.
struct Pair<'a> {
    /// The server has no connection before a SYN.
    ends: [Option<Connection>; 2],
    fate: Fate<'a>,
    serial: Duration,
    busy: [Instant; 2],
    count: [u64; 2],
    under_way: BTreeMap<(Instant, u64), (usize, Bytes)>,
    epoch: Instant,
    now: Instant,
    number: u64,
    received: [Vec<u8>; 2],
    reads: bool,
}

const ONE_WAY: Duration = Duration::from_millis(50);

impl<'a> Pair<'a> {
    fn new(fate: Fate<'a>) -> Self {
        let epoch = virtual_epoch();
        Self {
            // Its sequence numbers wrap soon.
            ends: [Some(Connection::connect(u32::MAX - 20_000, epoch)), None],
            fate,
            serial: Duration::from_micros(500),
            busy: [epoch; 2],
            count: [0; 2],
            under_way: BTreeMap::new(),
            epoch,
            now: epoch,
            number: 0,
            received: [Vec::new(), Vec::new()],
            reads: true,
        }
    }

    fn elapsed(&self) -> Duration {
        self.now - self.epoch
    }

    /// Runs until `done` or for `most`; whether it was done.
    fn run(&mut self, most: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        loop {
            self.drain();
            if done(self) {
                return true;
            }
            let arrival = self.under_way.keys().next().map(|(at, _)| *at);
            let timer = self.ends.iter().flatten().filter_map(Connection::poll_timeout).min();
            let Some(next) = arrival.into_iter().chain(timer).min() else { return false };
            if next > self.epoch + most {
                return false;
            }
            self.now = self.now.max(next);
            while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (to, payload) = entry.remove();
                let segment = Segment::decode(&payload).unwrap();
                match &mut self.ends[to] {
                    Some(end) => end.handle_input(self.now, &segment),
                    end => *end = Some(Connection::accept(99, &segment, self.now)),
                }
            }
            self.ends.iter_mut().flatten().for_each(|end| end.handle_timeout(self.now));
            self.drain();
            for end in self.ends.iter().flatten() {
                assert!(end.poll_timeout().is_none_or(|at| at > self.now), "no progress: {end:?}");
            }
        }
    }

    fn drain(&mut self) {
        let elapsed = self.elapsed();
        for (side, end) in self.ends.iter_mut().enumerate() {
            let Some(end) = end else { continue };
            while self.reads
                && let Some(data) = end.read()
            {
                self.received[side].extend_from_slice(&data);
            }
            while let Some(segment) = end.poll_transmit(self.now) {
                let name = [Side::Client, Side::Server][side];
                let passage = (self.fate)(name, self.count[side], elapsed, &segment);
                self.count[side] += 1;
                let serial = if segment.data.is_empty() { Duration::ZERO } else { self.serial };
                self.busy[side] = self.busy[side].max(self.now) + serial;
                let at = match passage {
                    Passage::Arrives => self.busy[side] + ONE_WAY,
                    Passage::Late(more) => self.busy[side] + ONE_WAY + more,
                    Passage::Lost => continue,
                };
                self.number += 1;
                self.under_way.insert((at, self.number), (1 - side, segment.encode()));
            }
        }
    }

    fn phase(&self, side: usize) -> Option<Phase> {
        self.ends[side].as_ref().map(Connection::phase)
    }

    fn stats(&self, side: usize) -> TcpStats {
        self.ends[side].as_ref().map_or_else(TcpStats::default, Connection::stats)
    }

    fn write(&mut self, side: usize, bytes: usize) {
        if let Some(end) = &mut self.ends[side] {
            end.write(contents(bytes));
        }
    }

    fn connect(&mut self) {
        let established = |it: &Self| (0..2).all(|side| it.phase(side) == Some(Phase::Established));
        assert!(self.run(Duration::from_secs(200), established), "{:?}", self.ends[0]);
    }

    /// Sends from the server, and returns how long it took.
    fn download(&mut self, bytes: usize, most: Duration) -> Option<Duration> {
        let from = self.now;
        let before = self.received[0].len();
        self.write(1, bytes);
        let done = self.run(most, |it| it.received[0].len() == before + bytes);
        done.then(|| self.now - from)
    }
}

fn contents(bytes: usize) -> Bytes {
    (0..bytes).map(|at| (at % 251) as u8 ^ (at >> 11) as u8).collect::<Vec<_>>().into()
}

const SECONDS_100: Duration = Duration::from_secs(100);

fn good(_: Side, _: u64, _: Duration, _: &Segment) -> Passage {
    Passage::Arrives
}

/// Data segment `number` of the server's.
fn is_data(side: Side, segment: &Segment) -> bool {
    side == Side::Server && !segment.data.is_empty()
}

/// RFC 9293 §3.5, figure 6.
#[test]
fn a_handshake_takes_a_round_trip_and_three_segments() {
    let mut pair = Pair::new(&good);
    assert!(pair.run(SECONDS_100, |it| it.phase(0) == Some(Phase::Established)));
    assert_eq!(pair.elapsed(), ms(100));
    pair.connect();
    assert_eq!((pair.elapsed(), pair.count), (ms(150), [2, 1]));
    assert_eq!(pair.ends[0].as_ref().and_then(Connection::smoothed_rtt), Some(ms(100)));
}

#[test]
fn a_lost_syn_is_sent_again_after_a_second_and_a_lost_answer_too() {
    let fate = |side, number, _, _: &Segment| match (side, number) {
        (Side::Client, 0) | (Side::Server, 0) => Passage::Lost,
        _ => Passage::Arrives,
    };
    let mut pair = Pair::new(&fate);
    pair.connect();
    // The second SYN makes the first answer; a second later that is sent again.
    assert_eq!(pair.elapsed(), ms(1000 + 50 + 1000 + 50 + 50));
}

#[test]
fn a_stranger_is_given_up() {
    let fate = |_, _, _, _: &Segment| Passage::Lost;
    let mut pair = Pair::new(&fate);
    assert!(pair.run(SECONDS_100 * 2, |it| it.phase(0) == Some(Phase::Closed)));
    assert_eq!((pair.elapsed().as_secs(), pair.count), (127, [7, 0]), "1 + 2 + 4 + ... + 64 s");
}

/// RFC 5681 §3.1 and RFC 6928: 10, 20, 40 segments in the first round trips.
#[test]
fn a_stream_begins_with_ten_segments_and_doubles() {
    let mut pair = Pair::new(&good);
    pair.connect();
    let segments = 10 + 20 + 40;
    let took = pair.download(segments * MSS as usize, SECONDS_100).unwrap();
    // Three one-way times after two round trips, and the last 40 segments one after the other.
    assert!((ms(250)..ms(300)).contains(&took), "{took:?}");
    assert_eq!(pair.received[0], contents(segments * MSS as usize));
}

/// RFC 6675, RFC 8985: a single loss costs a round trip, no timeout, and is repaired by one retransmission.
#[test]
fn a_single_loss_is_repaired_within_a_round_trip() {
    let fate = |side, number, _, segment: &Segment| match is_data(side, segment) && number == 20 {
        true => Passage::Lost,
        false => Passage::Arrives,
    };
    let mut pair = Pair::new(&fate);
    pair.connect();
    let size = 70 * MSS as usize;
    let took = pair.download(size, SECONDS_100).unwrap();
    let stats = pair.stats(1);
    assert_eq!((stats.retransmissions, stats.timeouts), (1, 0), "{stats:?}");
    assert!(took < ms(450), "{took:?}");
    assert_eq!(pair.received[0], contents(size));
}

/// RFC 6937: a burst of losses is repaired at the rate of deliveries, without a timeout.
#[test]
fn a_burst_of_losses_is_repaired_without_a_timeout() {
    let fate = |side, number, _, segment: &Segment| match is_data(side, segment) && (40..55).contains(&number)
    {
        true => Passage::Lost,
        false => Passage::Arrives,
    };
    let mut pair = Pair::new(&fate);
    pair.connect();
    pair.download(300 * MSS as usize, SECONDS_100).unwrap();
    let stats = pair.stats(1);
    assert_eq!((stats.retransmissions, stats.timeouts, stats.undone), (15, 0, 0), "{stats:?}");
}

/// RFC 8985 §7: the last segment is probed for after two RTTs, long before a timeout.
#[test]
fn a_lost_tail_is_probed_for() {
    let fate = |side, number, _, segment: &Segment| match is_data(side, segment) && number == 5 {
        true => Passage::Lost,
        false => Passage::Arrives,
    };
    let mut pair = Pair::new(&fate);
    pair.connect();
    let took = pair.download(5 * MSS as usize, SECONDS_100).unwrap();
    let stats = pair.stats(1);
    assert_eq!((stats.probes, stats.retransmissions, stats.timeouts), (1, 1, 0), "{stats:?}");
    assert!(took < ms(600), "{took:?}");
}

/// RFC 6298 §5: an outage is probed into ever more seldom.
#[test]
fn timeouts_double_in_an_outage() {
    let outage = ms(400)..ms(5_000);
    let times = std::sync::Mutex::new(Vec::new());
    let fate = |side, _, at: Duration, segment: &Segment| {
        if is_data(side, segment) && outage.contains(&at) {
            times.lock().unwrap().push(at);
        }
        if outage.contains(&at) { Passage::Lost } else { Passage::Arrives }
    };
    let mut pair = Pair::new(&fate);
    pair.connect();
    pair.download(1000 * MSS as usize, SECONDS_100).unwrap();
    let stats = pair.stats(1);
    assert!((3..=5).contains(&stats.timeouts), "{stats:?}");
    let times = times.into_inner().unwrap();
    let gaps: Vec<f64> =
        times.windows(2).map(|at| (at[1] - at[0]).as_secs_f64()).filter(|gap| *gap > 0.4).collect();
    assert!(gaps.windows(2).all(|gap| (1.9..2.1).contains(&(gap[1] / gap[0]))), "{gaps:?}");
}

/// `tcp_syn_retries`: who is never answered gives up after the seventh SYN.
#[test]
fn a_handshake_that_is_never_answered_ends() {
    let fate = |side, _, _, _: &Segment| if side == Side::Client { Passage::Lost } else { Passage::Arrives };
    let mut pair = Pair::new(&fate);
    let mut closed_by = |limit| pair.run(Duration::from_secs(limit), |it| it.phase(0) == Some(Phase::Closed));
    assert!(!closed_by(126) && closed_by(128));
}

/// RFC 5682: a path that falls silent and then delivers everything has lost nothing, and costs no window.
#[test]
fn a_spurious_timeout_is_undone() {
    let fate = |_, _, at: Duration, _: &Segment| match at {
        at if (ms(600)..ms(2000)).contains(&at) => Passage::Late(ms(2000) - at),
        _ => Passage::Arrives,
    };
    let mut pair = Pair::new(&fate);
    pair.connect();
    pair.download(2000 * MSS as usize, SECONDS_100).unwrap();
    let stats = pair.stats(1);
    assert!(stats.timeouts > 0 && stats.undone > 0, "{stats:?}");
    assert!(stats.retransmissions < 20, "{stats:?}");
}

#[test]
fn a_reader_that_pauses_stops_the_sender_and_loses_nothing() {
    let mut pair = Pair::new(&good);
    pair.connect();
    pair.reads = false;
    let size = 8 << 20;
    pair.write(1, size);
    assert!(!pair.run(Duration::from_secs(200), |it| it.phase(0) == Some(Phase::Closed)));
    let sent = pair.stats(1).segments * MSS;
    assert!(((6 << 20) - MSS..(6 << 20) + 200 * MSS).contains(&sent), "{sent}");
    pair.reads = true;
    assert!(pair.run(Duration::from_secs(400), |it| it.received[0].len() == size));
    assert_eq!(pair.received[0], contents(size));
}

#[test]
fn a_reset_ends_both_and_silence_ends_one() {
    let mut pair = Pair::new(&good);
    pair.connect();
    pair.ends[0].as_mut().unwrap().abort();
    assert!(pair.run(SECONDS_100, |it| it.phase(1) == Some(Phase::Closed)));

    let cut = |_, _, at: Duration, _: &Segment| if at < ms(500) { Passage::Arrives } else { Passage::Lost };
    let mut pair = Pair::new(&cut);
    pair.connect();
    assert_eq!(pair.download(2000 * MSS as usize, Duration::from_secs(1000)), None);
    assert_eq!(pair.phase(1), Some(Phase::Closed), "after a minute");
}

/// What a queue of one bandwidth-delay product holds is enough for the whole rate.
#[test]
fn a_long_stream_fills_the_path() {
    // A queue of 200 segments: 100 ms of the rate.
    let mut pair = Pair::new(&good);
    pair.connect();
    let size = 20_000 * MSS as usize;
    let took = pair.download(size, SECONDS_100).unwrap();
    // 0.5 ms a segment.
    assert!((10.0..10.6).contains(&took.as_secs_f64()), "{took:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the path does for two seconds, both streams arrive whole; timers that have fired leave no timer that is due.
    #[test]
    fn streams_arrive_intact_whatever_is_lost(
        client in prop::collection::vec(0_u8..8, 0..200),
        server in prop::collection::vec(0_u8..8, 0..200),
        threshold in 1_u8..8,
        sizes in (1_usize..300_000, 1_usize..300_000),
    ) {
        let fate = |side, number: u64, _, _: &Segment| {
            let pattern = if side == Side::Client { &client } else { &server };
            match pattern.get(number as usize) {
                Some(draw) if *draw >= threshold => Passage::Lost,
                Some(0) => Passage::Late(ms(130)),
                _ => Passage::Arrives,
            }
        };
        let mut pair = Pair::new(&fate);
        pair.write(0, sizes.0);
        if pair.run(Duration::from_secs(300), |it| it.ends[1].is_some()) {
            pair.write(1, sizes.1);
        }
        let done = |it: &Pair<'_>| it.received[1].len() == sizes.0 && it.received[0].len() == sizes.1;
        let closed = |it: &Pair<'_>| (0..2).any(|side| it.phase(side) == Some(Phase::Closed));
        prop_assert!(pair.run(Duration::from_secs(1000), |it| done(it) || closed(it)), "{:?}", pair.ends);
        // Only a silence of a minute may end it: that takes the loss of every SYN, or of as many timeouts.
        let lost = client.iter().chain(&server).filter(|draw| **draw >= threshold).count();
        prop_assert!(done(&pair) || lost > SYN_RETRIES as usize, "{:?}", pair.ends);
        if done(&pair) {
            prop_assert!(pair.received[1] == contents(sizes.0) && pair.received[0] == contents(sizes.1));
        }
    }
}
