//! The largest datagrams that cross the path in one piece, in each direction (RFC 8899).
//!
//! The driver says what the MTU of the route is. Upwards, larger sizes are probed with padded NULL calls that must not be fragmented, and any
//! reply acknowledges one. Downwards, a READ is the probe: its reply arrives whole, or the size of its fragments is the path's MTU. Both happen
//! only while data moves, and neither needs a timer. All sizes are those of IP packets, in bytes.

use std::time::{Duration, Instant};

use super::{
    Direction,
    black_hole::BlackHole,
    tuning::{MtuTuning, ProbeTuning},
};

/// Every path of IPv6 carries this, and nearly every path of IPv4 (`BASE_PLPMTU`, RFC 8899 §5.1.2; RFC 8200 §5).
const BASE: u32 = 1280;

/// What is assumed before anything is known: Ethernet's MTU, if the route has no smaller one.
const ASSUMED: u32 = 1500;

/// Largest IPv4 packet (RFC 791 §3.1).
const LARGEST: u32 = 65_535;

/// Sizes probed between the largest that is known to pass and the smallest that does not: usual MTUs of tunnels (WireGuard, PPPoE, 6in4, GRE),
/// Ethernet, jumbo frames and loopback.
const USUAL: [u32; 14] =
    [1280, 1380, 1400, 1420, 1440, 1454, 1476, 1480, 1492, 1500, 4352, 9000, 16_384, 65_535];

/// Probes of one size that are lost before it is taken for too large (`MAX_PROBES`, RFC 8899 §5.1.2).
const MAX_PROBES: u32 = 3;

/// How long a size that did not pass is believed not to (`PMTU_RAISE_TIMER`, RFC 8899 §5.1.1).
const RAISE: Duration = Duration::from_secs(600);

/// Headers of a datagram with a block at least: IPv4 and UDP, and the reply to a READ without attributes (RFC 1813 §3.3.6).
const LEAST_HEADERS: u32 = 28 + 24 + 20;

/// Blocks end at multiples of this.
const ALIGNMENT: u32 = 64;

/// Finds the path's MTU in both directions.
#[derive(Debug)]
pub(super) struct PathMtu {
    tuning: MtuTuning,
    probes: ProbeTuning,
    up: Search,
    down: Search,
    /// Headers of a datagram with a block: IP, UDP, RPC and those of a WRITE, which has more than the reply to a READ.
    headers: u32,
    /// The largest block at all.
    most: u32,
    /// Whether the driver sees the size of fragments (`IP_RECVFRAGSIZE`).
    sees_fragments: bool,
    /// The largest fragment of the datagram that is being taken in.
    fragment: Option<u32>,
    /// The largest probe that may be sent on a path of this rate.
    affordable: u32,
    /// When the last reply came.
    heard: Option<Instant>,
    /// When data was sent, or asked for, last.
    used: [Option<Instant>; 2],
}

/// A padded call, or a READ, whose reply is awaited.
#[derive(Clone, Copy, Debug)]
struct Probe {
    bytes: u32,
    /// Bytes that the READ asks for; 0 for a padded call.
    block: u32,
    sent: Instant,
    /// When it is lost, if something sent after it was answered by then.
    lost_at: Instant,
}

/// The search in one direction.
#[derive(Clone, Copy, Debug)]
struct Search {
    /// The largest size in use (`PLPMTU`); 0 where not even [`BASE`] passes.
    size: u32,
    /// The largest size that arrived.
    confirmed: u32,
    /// What the route allows.
    route: u32,
    /// The size that is looked for first: the route's, or one that was in use until nothing of it arrived any more.
    goal: u32,
    /// The smallest size that does not pass, and since when that is known.
    fails: Option<(u32, Instant)>,
    /// Probes of the present candidate that were lost.
    lost_probes: u32,
    /// Bytes acknowledged since the last probe.
    earned: u64,
    probe: Option<Probe>,
    hole: BlackHole,
    /// The smallest datagram of those losses, in bytes.
    least_lost: u32,
}

impl PathMtu {
    /// `headers`: bytes of a datagram with a block beyond the block itself; `most`: the largest block.
    pub(super) fn new(tuning: MtuTuning, probes: ProbeTuning, headers: u32, most: u32) -> Self {
        let (up, down) = (Search::new(ASSUMED), Search::new(ASSUMED));
        let (sees_fragments, fragment, affordable) = (false, None, ASSUMED);
        Self {
            tuning,
            probes,
            up,
            down,
            headers,
            most,
            sees_fragments,
            fragment,
            affordable,
            heard: None,
            used: [None; 2],
        }
    }

    /// The path carries so many bytes per second.
    pub(super) fn set_rate(&mut self, rate: f64) {
        self.affordable = ((rate * self.tuning.affordable) as u32).max(ASSUMED);
    }

    /// No block is larger.
    pub(super) const fn bound_blocks(&mut self, most: u32) {
        self.most = most;
    }

    /// The MTU of the route is `mtu`: at first, after an ICMP message (RFC 8899 §4.6.2), or on another link. Whether a smaller size is in
    /// use now.
    pub(super) fn handle_route_mtu(&mut self, mtu: u32, sees_fragments: bool) -> bool {
        self.sees_fragments = sees_fragments;
        let mtu = mtu.min(LARGEST);
        let before = (self.up.size, self.down.size);
        self.up.set_route(mtu);
        // The way back has the same links, most likely; what has arrived by it is known better.
        if self.down.confirmed <= mtu {
            self.down.set_route(mtu);
        }
        self.up.size < before.0 || self.down.size < before.1
    }

    /// The link below has changed: what was learned may belong to another path.
    pub(super) fn handle_link_event(&mut self) {
        (self.up, self.down) = (Search::new(self.up.route), Search::new(self.up.route));
    }

    /// Returns the largest block of a call or reply that is taken to arrive in one piece.
    pub(super) fn block(&self) -> u32 {
        self.block_of(self.size())
    }

    /// Returns the path's MTU in the directions that data has taken within the last second.
    pub(super) fn size(&self) -> u32 {
        let [up, down] = [Direction::Up, Direction::Down].map(|direction| self.size_of(direction));
        match self.used {
            [Some(sent), Some(asked)] if sent > asked + self.tuning.together => up,
            [Some(sent), Some(asked)] if asked > sent + self.tuning.together => down,
            [Some(_), None] => up,
            [None, Some(_)] => down,
            [None, None] | [Some(_), Some(_)] => up.min(down),
        }
    }

    /// Whether the datagram that carries a block of so many bytes is of several fragments.
    pub(super) fn is_fragmented(&self, direction: Direction, block: u32) -> bool {
        block > self.block_of(self.size_of(direction))
    }

    /// Whether a datagram of so many bytes must not be fragmented.
    pub(super) const fn keeps_whole(&self, bytes: u32) -> bool {
        bytes <= self.up.size
    }

    /// The datagram that is taken in next was put together of fragments, the largest of which has so many bytes; or of none.
    pub(super) const fn handle_fragments(&mut self, fragment: Option<u32>) {
        self.fragment = fragment;
    }

    /// Data of so many bytes was sent or asked for; `timeout` is that of its answer.
    pub(super) fn handle_sent(&mut self, now: Instant, direction: Direction, block: u32, timeout: Duration) {
        self.used[direction as usize] = Some(now);
        if direction == Direction::Down
            && let Some(bytes) = self.candidate(now, Direction::Down)
            && block == self.block_of(bytes)
        {
            self.handle_probe_sent(now, direction, (bytes, block), timeout);
        }
    }

    /// Returns the size of a padded call that is to be sent now, if one is. `timeout` is that of its answer.
    pub(super) fn poll_probe(&mut self, now: Instant, timeout: Duration) -> Option<u32> {
        self.used[Direction::Up as usize].filter(|&sent| now <= sent + self.tuning.together)?;
        let bytes = self.candidate(now, Direction::Up)?;
        self.handle_probe_sent(now, Direction::Up, (bytes, 0), timeout);
        Some(bytes)
    }

    /// Returns the bytes that the next READ is to ask for, if it is to be a probe.
    pub(super) fn read_to_probe(&self, now: Instant) -> Option<u32> {
        self.used[Direction::Down as usize].filter(|&asked| now <= asked + self.tuning.together)?;
        self.candidate(now, Direction::Down).map(|bytes| self.block_of(bytes))
    }

    /// A padded call of so many bytes was answered.
    pub(super) fn handle_probe_reply(&mut self, bytes: u32) {
        self.up.confirm(bytes);
    }

    /// A datagram of `reply` bytes answers what was sent at `sent`. Of a READ or WRITE, it is told what it moved. Returns the bytes that a READ
    /// asked for that turns out to be a lost probe.
    pub(super) fn handle_reply(
        &mut self,
        now: Instant,
        sent: Instant,
        reply: u32,
        moved: Option<(Direction, u32)>,
    ) -> Option<u32> {
        self.heard = Some(now);
        match self.fragment.take() {
            Some(fragment) => self.down.settle(now, fragment.clamp(BASE, LARGEST)),
            None => {
                let probe = self.down.probe.filter(|probe| moved == Some((Direction::Down, probe.block)));
                match probe.filter(|probe| reply > probe.block) {
                    Some(probe) => self.down.confirm(probe.bytes),
                    None if self.sees_fragments || reply <= self.down.size => self.down.confirm(reply),
                    // It may have been of fragments.
                    None => {}
                }
            }
        }
        if let Some((direction, block)) = moved {
            if direction == Direction::Up && !self.is_fragmented(Direction::Up, block) {
                self.up.confirm((block + self.headers).min(self.up.size));
            }
            self.search_mut(direction).earned += u64::from(block);
        }
        self.up.look_back(now, sent);
        self.down.look_back(now, sent)
    }

    /// Whether a READ of so many bytes is a probe, the loss of which says nothing but that it may be too large.
    pub(super) fn is_probe(&self, block: u32) -> bool {
        self.down.probe.is_some_and(|probe| probe.block == block)
    }

    /// A block was lost that was sent at `sent`, or asked for, while something sent later was answered. Whether it is clear now that its size
    /// does not pass, so that a smaller one is in use.
    pub(super) fn handle_loss(
        &mut self,
        now: Instant,
        direction: Direction,
        block: u32,
        sent: Instant,
    ) -> bool {
        let bytes = block + LEAST_HEADERS;
        let (fits_base, fragmented) = (block <= self.block_of(BASE), self.is_fragmented(direction, block));
        let rounds = self.tuning.black_hole_rounds;
        let search = self.search_mut(direction);
        let size = match direction {
            _ if search.size > BASE => BASE,
            // Not even that passes: fragments may.
            Direction::Up if search.size > 0 => 0,
            // Servers decide for themselves what they fragment.
            Direction::Up | Direction::Down => return false,
        };
        // What is smaller than the next size says nothing of this one; fragments have rules of their own.
        if fragmented || fits_base && size == BASE || !search.is_black_hole(now, bytes, sent, rounds) {
            return false;
        }
        tracing::debug!(?direction, bytes, size, "black hole: smaller datagrams from now on");
        *search = Search { size, goal: search.size, ..Search::new(search.route) };
        true
    }

    /// Returns the size to probe now, if there is one.
    fn candidate(&self, now: Instant, direction: Direction) -> Option<u32> {
        let search = self.search(direction);
        let candidate = search.candidate(now, |size| self.block_of(size) > self.block_of(search.size))?;
        let candidate = candidate.min(self.most.saturating_add(self.headers));
        if direction == Direction::Down && !self.sees_fragments && candidate > ASSUMED {
            return None;
        }
        // Otherwise the link may be silent.
        let heard = self.heard.is_some_and(|heard| now <= heard + self.probes.min_pto);
        (heard
            && candidate <= self.affordable
            && search.probe.is_none()
            && search.earned >= self.tuning.bytes_for_probes * u64::from(candidate))
        .then_some(candidate)
    }

    /// A probe was sent: the size of its datagram, and the bytes that it asks for. `timeout` is that of its answer.
    fn handle_probe_sent(
        &mut self,
        now: Instant,
        direction: Direction,
        (bytes, block): (u32, u32),
        timeout: Duration,
    ) {
        // Servers answer out of order, and large datagrams last.
        let lost_at = now + (2 * timeout).max(self.probes.first_probe());
        let probe = Probe { bytes, block, sent: now, lost_at };
        let search = self.search_mut(direction);
        if search.fails.take_if(|(_, since)| now.saturating_duration_since(*since) >= RAISE).is_some() {
            search.goal = search.route;
        }
        (search.earned, search.probe) = (0, Some(probe));
    }

    fn size_of(&self, direction: Direction) -> u32 {
        self.search(direction).size.max(BASE)
    }

    /// Returns the largest block that fits a datagram of so many bytes: a multiple of 64 keeps offsets aligned to cache lines.
    fn block_of(&self, bytes: u32) -> u32 {
        (bytes.saturating_sub(self.headers) / ALIGNMENT * ALIGNMENT).min(self.most)
    }

    const fn search(&self, direction: Direction) -> &Search {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    const fn search_mut(&mut self, direction: Direction) -> &mut Search {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }
}

impl Search {
    fn new(route: u32) -> Self {
        let size = if route < ASSUMED { route } else { ASSUMED };
        Self {
            size,
            confirmed: 0,
            route,
            goal: route,
            fails: None,
            lost_probes: 0,
            earned: 0,
            probe: None,
            hole: BlackHole::NONE,
            least_lost: u32::MAX,
        }
    }

    fn set_route(&mut self, mtu: u32) {
        if mtu < self.size {
            *self = Self::new(mtu);
        } else if mtu != self.route {
            let size = self.size.max(mtu.min(ASSUMED));
            *self = Self { size, route: mtu, goal: mtu, fails: None, lost_probes: 0, ..*self };
        }
    }

    /// Returns the size to try next, of those with which a larger block is gained than with the present one: the largest first, as it is
    /// right most often, then half of the usual ones that are left.
    fn candidate(&self, now: Instant, gains: impl Fn(u32) -> bool) -> Option<u32> {
        let Some((fails, since)) = self.fails else {
            return Some(self.goal).filter(|&goal| gains(goal));
        };
        if now.saturating_duration_since(since) >= RAISE {
            return Some(self.route).filter(|&route| gains(route));
        }
        let left = USUAL.into_iter().filter(|&usual| usual < fails && gains(usual));
        left.clone().nth(left.count() / 2)
    }

    /// A datagram of so many bytes arrived in one piece.
    fn confirm(&mut self, bytes: u32) {
        self.probe.take_if(|probe| bytes >= probe.bytes);
        self.confirmed = self.confirmed.max(bytes);
        if bytes >= self.least_lost {
            (self.hole, self.least_lost) = (BlackHole::NONE, u32::MAX);
        }
        if bytes > self.size {
            (self.size, self.lost_probes) = (bytes, 0);
            self.fails.take_if(|(fails, _)| *fails <= bytes);
        }
    }

    /// Fragments of this size arrived: what is longer comes in fragments.
    fn settle(&mut self, now: Instant, bytes: u32) {
        let fails = Some((bytes + 1, now));
        *self = Self { size: bytes, confirmed: bytes, fails, ..Self::new(self.route) };
    }

    /// What was sent at `sent` is answered: a probe that was sent before it and is due is lost.
    ///
    /// Returns the bytes that it asked for.
    fn look_back(&mut self, now: Instant, sent: Instant) -> Option<u32> {
        let probe = self.probe.take_if(|probe| sent > probe.sent && now >= probe.lost_at)?;
        self.handle_probe_lost(now, probe.bytes);
        Some(probe.block)
    }

    fn handle_probe_lost(&mut self, now: Instant, bytes: u32) {
        self.lost_probes += 1;
        if self.lost_probes >= MAX_PROBES {
            (self.fails, self.lost_probes) = (Some((bytes, now)), 0);
        }
    }

    fn is_black_hole(&mut self, now: Instant, bytes: u32, sent: Instant, rounds: u32) -> bool {
        self.least_lost = self.least_lost.min(bytes);
        // What never arrived is given up sooner.
        let rounds = rounds - u32::from(self.confirmed < bytes);
        self.hole.on_loss(now, sent, rounds)
    }
}

#[cfg(test)]
mod tests;
