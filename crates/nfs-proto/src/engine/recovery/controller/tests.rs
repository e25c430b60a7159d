//! The rules of `docs/algorithm.md` §6, on a path of 1 MB/s and 50 ms unless a test says otherwise: 50,000 bytes fill it.

mod congestion;
mod probe_rtt;
mod rounds;
mod startup;
mod target;

use super::{
    super::{
        PathEstimate, Tuning,
        for_tests::{MS, acked, epoch},
    },
    *,
};

const BLOCK: u32 = 1000;
const MIN_RTT: Duration = Duration::from_millis(50);
const MEGABYTE: f64 = 1e6;

/// The numbers that these examples are computed with.
fn tuning() -> WindowTuning {
    WindowTuning {
        initial_blocks: 4,
        min_blocks: 2,
        large_block: 8192,
        rounded_from: 1.5,
        allowance: 10 * MS,
        shared_rounds: 20,
        wired_rtt: MS,
        wired_reads: 64.0,
        probe_rtt_gain: 0.85,
        narrow_blocks: 8,
        startup_growth: 1.25,
        heavy_rounds: 3,
        loss_round: 10,
        queue_growth: 1.25,
        queue_limit: 0.8,
        least_queue_limit: 0.25,
        queue_limit_growth: 1.0 + 1.0 / 2048.0,
    }
}

/// A controller, what it knows of the path, and the time.
struct Flow {
    controller: Controller,
    path: PathEstimator,
    now: Instant,
    block: u32,
}

/// What an earlier connection found: a rate of 1 MB/s and a `min_rtt` of 50 ms.
const fn known() -> PathEstimate {
    PathEstimate {
        rate: MEGABYTE,
        is_app_limited: false,
        min_rtt: MIN_RTT,
        fades_per_second: 0.0,
        mean_fade: Duration::ZERO,
        retransmits: false,
        block: BLOCK,
        in_flight: 0,
        fast: None,
    }
}

impl Flow {
    /// Nothing was sent yet.
    fn at_startup() -> Self {
        let now = epoch();
        let path = PathEstimator::new(&Tuning::default(), now);
        Self { controller: Controller::new(tuning()), path, now, block: BLOCK }
    }

    /// Startup is over, `min_rtt` is known, and so many bytes may be in flight.
    fn steady(window: u64) -> Self {
        let mut flow = Self::at_startup();
        flow.path.is_startup = false;
        flow.path.min_rtt.set(flow.now, MIN_RTT);
        flow.path.delivery.resume(MEGABYTE);
        flow.path.delivery.end_round();
        flow.controller.window = window;
        flow
    }

    /// An earlier connection found what is [`known`].
    fn resumed() -> Self {
        let mut flow = Self::at_startup();
        flow.path.resume(flow.now, &known());
        flow.controller.resume(&flow.path, BLOCK);
        flow
    }

    fn with_block(mut self, block: u32) -> Self {
        self.block = block;
        self
    }

    fn window(&self) -> u64 {
        self.controller.window(&self.path, self.block)
    }

    /// A call that was sent so long ago, when `before` bytes had been delivered, is acknowledged.
    fn ack(&mut self, rtt: Duration, bytes: u32, before: u64) {
        let acked = acked(self.now - rtt, bytes, before);
        self.controller.on_ack(self.now, &mut self.path, &acked, self.block);
    }

    /// A round in which so much was delivered, though there was more to send: the rate is `bytes` / `rtt`.
    fn round(&mut self, rtt: Duration, bytes: u32) -> u64 {
        self.controller.on_window_limited();
        self.app_limited_round(rtt, bytes)
    }

    /// A round in which so much was delivered because there was no more to send.
    fn app_limited_round(&mut self, rtt: Duration, bytes: u32) -> u64 {
        let before = self.path.delivery.bytes();
        self.now += rtt;
        self.ack(rtt, bytes, before);
        self.window()
    }

    /// A round of a window that was used to the last byte.
    fn used_round(&mut self, rtt: Duration, bytes: u32) -> u64 {
        self.controller.on_sent(self.controller.window);
        self.round(rtt, bytes)
    }

    /// A congestion event while everything that was delivered is known.
    fn congestion_event(&mut self) {
        let delivered = self.path.delivery.bytes();
        self.controller.on_congestion_event(&mut self.path, delivered, self.block);
    }
}

/// What is not queued, and what is: 1 MB/s over a path of 50 ms.
const CLEAR: (Duration, u32) = (MIN_RTT, 50_000);
const QUEUED: (Duration, u32) = (Duration::from_millis(60), 60_000);
