//! Response times in virtual time: 1 MB over the papers' 1 Mbit/s link, against the mean bad period.
//!
//! What is measured is what the person at the mobile waits, in the time of the emulated world; how fast this machine is does
//! not matter, and the numbers are the same on every machine. Each of the [`SEEDS`] samples is one seed, so that
//! contenders meet the same fades. The line plots of the report are the response-time curves of Dube et al. 1997 §5.

use std::{cell::Cell, time::Duration};

use criterion::{
    BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main,
    measurement::{Measurement, ValueFormatter},
};
use linkemu::ArqKind;
use nfs_proto::config::{BlockSize, RetryPolicy, Window};
use testbed::{Operation, Plan, Room, run};

/// Samples of each point, and the seeds they have.
const SEEDS: u64 = 20;

/// Mean bad periods in milliseconds.
const BAD: [u64; 5] = [0, 40, 80, 120, 160];

/// Time in the emulated world.
struct VirtualTime;

impl Measurement for VirtualTime {
    type Intermediate = ();
    type Value = Duration;

    fn start(&self) {
        unreachable!("every benchmark counts its own time");
    }

    fn end(&self, (): ()) -> Duration {
        unreachable!("every benchmark counts its own time");
    }

    fn add(&self, first: &Duration, second: &Duration) -> Duration {
        *first + *second
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_secs_f64()
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        &VirtualSeconds
    }
}

struct VirtualSeconds;

impl ValueFormatter for VirtualSeconds {
    fn scale_values(&self, _typical: f64, _values: &mut [f64]) -> &'static str {
        "s"
    }

    fn scale_throughputs(&self, _typical: f64, throughput: &Throughput, values: &mut [f64]) -> &'static str {
        let (Throughput::Bytes(bytes) | Throughput::Elements(bytes)) = throughput else { return "1/s" };
        values.iter_mut().for_each(|seconds| *seconds = *bytes as f64 / *seconds);
        "bytes/s"
    }

    fn scale_for_machines(&self, _values: &mut [f64]) -> &'static str {
        "s"
    }
}

/// One curve: a name, and the plan whose link gets the bad periods.
type Curve = (&'static str, Plan);

fn curve(operation: Operation, policy: RetryPolicy, arq: ArqKind, block: Option<u32>) -> Plan {
    let mut plan = Plan::new(Room::named("modern").expect("a room"));
    plan.operation = operation;
    plan.policy = policy;
    plan.room.link.arq.kind = arq;
    plan.block = block.map_or(BlockSize::Auto { max: None }, BlockSize::Exact);
    plan.window = if policy == RetryPolicy::Adaptive { Window::Auto } else { Window::Calls(4) };
    plan
}

fn draw(criterion: &mut Criterion<VirtualTime>, name: &str, curves: &[Curve]) {
    let mut group = criterion.benchmark_group(name);
    group.sampling_mode(SamplingMode::Flat);
    for (label, plan) in curves {
        for bad in BAD {
            let mut plan = plan.clone();
            plan.room.link.channel.set_bad_mean(Duration::from_millis(bad));
            let seed = Cell::new(0);
            group.bench_with_input(BenchmarkId::new(*label, bad), &plan, |bencher, plan| {
                bencher.iter_custom(|iterations| {
                    // A sample is one seed, however often it is asked to count.
                    seed.set(seed.get() % SEEDS + 1);
                    let run = run(plan, seed.get()).expect("a plan that can be");
                    let response = run.copies[0].response.unwrap_or(plan.patience);
                    response * u32::try_from(iterations).expect("few iterations")
                });
            });
        }
    }
    group.finish();
}

fn response_times(criterion: &mut Criterion<VirtualTime>) {
    testbed::plot::register_font();
    use ArqKind as Arq;
    let (adaptive, hybrid, exponential) =
        (RetryPolicy::Adaptive, RetryPolicy::hybrid(), RetryPolicy::exponential());
    for operation in [Operation::Read, Operation::Write] {
        let curve = |policy, arq, block| curve(operation, policy, arq, block);
        draw(
            criterion,
            &format!("{} by policy", operation.name()),
            &[
                ("exponential", curve(exponential, Arq::None, Some(4096))),
                ("hybrid", curve(hybrid, Arq::None, Some(4096))),
                ("kernel", curve(RetryPolicy::kernel(), Arq::None, Some(4096))),
                ("adaptive", curve(adaptive, Arq::None, None)),
            ],
        );
        draw(
            criterion,
            &format!("{} by ARQ", operation.name()),
            &[
                ("hybrid, none", curve(hybrid, Arq::None, Some(4096))),
                ("hybrid, ideal", curve(hybrid, Arq::Ideal, Some(4096))),
                ("adaptive, stop-and-wait", curve(adaptive, Arq::StopAndWait, None)),
                ("adaptive, selective-repeat", curve(adaptive, Arq::SelectiveRepeat, None)),
            ],
        );
        let sizes = [("1024", 1024), ("2048", 2048), ("4096", 4096), ("8192", 8192)];
        let blocks = sizes.map(|(label, block)| (label, curve(exponential, Arq::None, Some(block))));
        draw(criterion, &format!("{} by block", operation.name()), &blocks);
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .with_measurement(VirtualTime)
        .sample_size(SEEDS as usize)
        // One call warms nothing up; the next as many as there are seeds each see one.
        .warm_up_time(Duration::from_micros(1))
        .measurement_time(Duration::from_secs(5))
        .nresamples(2000);
    targets = response_times
}
criterion_main!(benches);
