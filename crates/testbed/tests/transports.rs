//! Copies over a transport of the plan's choice, in virtual time.

use std::time::Duration;

use nfs_proto::config::{BlockSize, Window};
use nfs_wire::portmap::Protocol;
use testbed::{Operation, Outage, Plan, Room, Row, Run, Transport, mean, run, sweep};

fn plan(room: &str, operation: Operation, transport: Transport) -> Plan {
    let mut plan = Plan::new(Room::named(room).unwrap());
    (plan.operation, plan.transport) = (operation, transport);
    (plan.block, plan.window) = (BlockSize::Auto { max: None }, Window::Auto);
    plan
}

fn seconds(run: &Run) -> f64 {
    run.copies[0].response.expect("the copy ends").as_secs_f64()
}

/// A frame of 1518 bytes has 1448 of the file; a READ or a WRITE of 1 MiB is one call.
#[test]
fn a_quiet_link_is_filled_over_tcp_both_ways() {
    for operation in [Operation::Read, Operation::Write] {
        let run = run(&plan("modern", operation, Transport::Tcp), 1).unwrap();
        let (took, air) = (seconds(&run), 1048576.0 * 1518.0 / 1448.0 * 8.0 / 1e6);
        assert!(took > air && took < 1.04 * air, "{operation:?}: {took} s, {air} s");
        assert_eq!((run.tcp.timeouts, run.copies[0].reconnections), (0, 0), "{run:?}");
        let rows =
            Row::new(&plan("modern", operation, Transport::Tcp), &testbed::Samples { runs: vec![run] }, 1);
        assert_eq!(rows.transport, "tcp");
    }
}

/// Fades of 40 ms on the link of 1997 cost TCP little more than themselves, as its queue outlasts them: 9.67 s were measured
/// with Linux' cubic behind an independent emulator, 5 seeds.
#[test]
fn short_fades_cost_tcp_what_they_cost_a_kernel() {
    let mut plan = plan("modern", Operation::Read, Transport::Tcp);
    plan.room.link.queue.packets = Some(50);
    plan.room.link.channel.set_bad_mean(Duration::from_millis(40));
    let samples = sweep(&[plan], 1, 20, &|_| true).unwrap().remove(0).unwrap();
    let took = mean(&samples.responses());
    assert!((took / 9.67 - 1.0).abs() < 0.03, "{took} s");
}

/// A connection on which nothing comes for a minute is made anew, and every call again on it.
#[test]
fn a_copy_goes_on_over_another_connection_when_one_has_died() {
    for operation in [Operation::Read, Operation::Write] {
        let mut plan = plan("modern", operation, Transport::Tcp);
        let (at, length) = (Duration::from_secs(3), Duration::from_secs(100));
        plan.outages = vec![Outage { at, length, over: Some(Protocol::Tcp) }];
        let run = run(&plan, 1).unwrap();
        assert!((1..=5).contains(&run.copies[0].reconnections), "{run:?}");
        assert!(seconds(&run) < 103.0 + 20.0, "{run:?}");
    }
}

#[test]
fn an_outage_of_one_transport_leaves_the_other_alone() {
    for (transport, over) in [(Transport::Udp, Protocol::Tcp), (Transport::Tcp, Protocol::Udp)] {
        let mut plan = plan("modern", Operation::Read, transport);
        let quiet = seconds(&run(&plan, 1).unwrap());
        let length = Duration::from_secs(1000);
        plan.outages = vec![Outage { at: Duration::ZERO, length, over: Some(over) }];
        assert_eq!(seconds(&run(&plan, 1).unwrap()), quiet, "{transport:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run_over_tcp() {
    let mut plan = plan("lan-50ms", Operation::Read, Transport::Tcp);
    plan.room.link.channel.set_bad_mean(Duration::from_millis(5));
    (plan.size, plan.clients) = (4 << 20, 2);
    let both = [(); 2].map(|()| run(&plan, 7).unwrap());
    assert_eq!(both[0].copies[1].response, both[1].copies[1].response);
    assert_eq!(both[0].tcp, both[1].tcp);
    assert_ne!(run(&plan, 8).unwrap().copies[1].response, both[0].copies[1].response);
}

#[test]
fn tcp_with_compressed_headers_is_refused() {
    let mut plan = plan("modern", Operation::Read, Transport::Tcp);
    plan.room.link.header_compression = true;
    assert!(run(&plan, 1).unwrap_err().to_string().contains("transport is tcp with header compression"));
}
