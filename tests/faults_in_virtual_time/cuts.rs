//! A link that is cut in every phase of a copy, for a second and for a day.

use std::time::Duration;

use nfs_proto::{attr::SetAttributes, config::RetryPolicy};
use nfs_wire::{Procedure, mount, rpc::Program};
use nfs_wireless_server::{Faults, ServiceConfig};

use crate::{
    trouble::Cut,
    world::{World, contents, temporary},
};

const DAY: u64 = 24 * 3600;

const MARGIN: Duration = Duration::from_secs(1);

/// How long cuts last, in seconds.
const LENGTHS: [u64; 5] = [1, 10, 60, 300, DAY];

/// The calls of a copy to the server and of the way back, and which one of them meets the cut.
const PHASES: [(Procedure, u32); 10] = [
    (Procedure::Lookup, 1),
    (Procedure::Create, 1),
    (Procedure::Write, 1),
    (Procedure::Write, 12),
    (Procedure::Commit, 1),
    (Procedure::Setattr, 1),
    (Procedure::Rename, 1),
    (Procedure::Read, 1),
    (Procedure::Read, 12),
    (Procedure::Read, 25),
];

/// Copies in and out, and returns how long that took and how often something was sent again.
fn copy(policy: RetryPolicy, cut: Option<Cut>) -> (Duration, u64) {
    let data = contents(100_001);
    let mut world = World::with_policy(ServiceConfig::default(), Faults::default(), 4096, policy);
    let start = world.now;
    let is_cut = cut.is_some();
    // After half a day the client has forgotten the XID of its call, and looks what became of it.
    let is_looked_for = cut.as_ref().is_some_and(|cut| cut.length > Duration::from_secs(DAY / 2));
    world.trouble.cut = cut;
    world.attributes = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    world.upload(&data, temporary()).unwrap();
    assert!(world.file() == data, "what arrived at the server differs");
    world.download(data.len()).unwrap();
    assert!(world.sink == data, "what came back differs");
    let end = world.now;
    assert_eq!(world.list().unwrap(), [b"file"], "nothing else is left");
    assert_eq!(is_cut, world.trouble.cut.is_some_and(|cut| cut.until.is_some()), "the link was cut");
    let served = &world.service.stats().served;
    for procedure in [Procedure::Create, Procedure::Setattr, Procedure::Rename] {
        let times = served[procedure.number() as usize];
        assert!(times == 1 || times == 2 && is_looked_for, "{procedure} was carried out {times} times");
    }
    let stats = world.session.stats();
    (end - start, stats.resends.total() + stats.probes)
}

/// Cuts every phase for so long; returns the most that was lost beyond the cut, and sent again.
fn cut_everywhere(policy: RetryPolicy, length: Duration) -> (Duration, u64) {
    let (clean, _) = copy(policy, None);
    let nfs = PHASES.map(|(procedure, nth)| (Program::NFS, procedure.number(), nth));
    let mut worst = (Duration::ZERO, 0);
    for (program, procedure, nth) in nfs.into_iter().chain([(Program::MOUNT, mount::procedure::MNT, 1)]) {
        for loses_call in [true, false] {
            let cut = Cut { program, procedure, nth, loses_call, length, until: None };
            let (time, again) = copy(policy, Some(cut));
            let lost = time - clean - length;
            worst = (worst.0.max(lost), worst.1.max(again));
        }
    }
    println!("{policy:?}, cut for {length:?}: {:?} lost beyond it, {} sent again, at most", worst.0, worst.1);
    worst
}

#[test]
fn a_cut_in_any_phase_is_outlived_and_costs_a_minute_more_at_most() {
    for seconds in LENGTHS {
        let length = Duration::from_secs(seconds);
        // Where nothing was ever answered there is nothing to go by but a timer, which doubles.
        for policy in [RetryPolicy::Adaptive, RetryPolicy::hybrid()] {
            let (lost, again) = cut_everywhere(policy, length);
            assert!(lost <= length.clamp(Duration::from_secs(2), RetryPolicy::MAXIMUM) + MARGIN, "{lost:?}");
            assert!(again <= 200 + 2 * seconds, "{again}");
        }
    }
}
