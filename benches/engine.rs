//! Time of one READ through encode, engine and decode, without a socket. Unit: one READ of 4096 bytes, whose data
//! is not copied.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use nfs_proto::engine::Carrier;

#[path = "../tests/support/read_loop.rs"]
mod read_loop;

use read_loop::ReadLoop;

fn read(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("read");
    group.throughput(Throughput::Elements(1));
    for (name, carrier) in [("datagrams", Carrier::Datagrams), ("connection", Carrier::Connection)] {
        let mut reads = ReadLoop::new(carrier, 4096);
        group.bench_function(name, |bencher| bencher.iter(|| reads.read()));
    }
    group.finish();
}

criterion_group!(benches, read);
criterion_main!(benches);
