//! Properties that hold for every link: nothing appears, vanishes, doubles or overtakes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::common::{self, World, bare, host, mobile};
use bytes::Bytes;
use linkemu::{
    ArqKind, ChannelConfig, ChannelScope, DatagramRecord, Duplex, Endpoint, Fate, IpIdentification,
    LinkConfig, Loss, Observer, Probability, Probe, ReceiveBufferConfig, Scheduler, Shape, Station,
    UdpChecksum,
};
use proptest::prelude::*;

#[derive(Clone, Default)]
struct Fates(Arc<Mutex<Vec<DatagramRecord>>>);

impl Observer for Fates {
    fn datagram(&mut self, record: &DatagramRecord, _payload: &Bytes) {
        self.0.lock().expect("no panic while recording").push(record.clone());
    }
}

fn any_arq() -> impl Strategy<Value = (ArqKind, Option<u32>, Probe)> {
    let kind = prop_oneof![
        Just(ArqKind::None),
        Just(ArqKind::Ideal),
        Just(ArqKind::StopAndWait),
        Just(ArqKind::RtsCts),
        Just(ArqKind::SelectiveRepeat),
    ];
    let limit = prop_oneof![Just(None), (0_u32..8).prop_map(Some)];
    (kind, limit, prop_oneof![Just(Probe::Rts), Just(Probe::Off)])
}

fn any_link() -> impl Strategy<Value = LinkConfig> {
    let scheduler = prop_oneof![
        Just(Scheduler::Fifo),
        Just(Scheduler::RoundRobinFrame),
        Just(Scheduler::RoundRobinDatagram),
        Just(Scheduler::ChannelState),
    ];
    let scope = prop_oneof![
        Just(ChannelScope::Shared),
        Just(ChannelScope::PerDirection),
        Just(ChannelScope::PerMobile)
    ];
    (
        any_arq(),
        scheduler,
        scope,
        (any::<bool>(), 0_u64..40, 0_u64..3),
        (0_u64..200, 0.0..0.2_f64, any::<bool>()),
        (1_u32..60, any::<bool>(), 0_u32..100),
        (prop_oneof![Just(576_u32), Just(1500), Just(68)], any::<bool>()),
    )
        .prop_map(|(arq, scheduler, scope, medium, channel, queue, (mtu, header_compression))| {
            let mut config = bare();
            (config.arq.kind, config.arq.retry_limit, config.arq.probe) = arq;
            config.queue.scheduler = scheduler;
            config.duplex = if medium.0 { Duplex::Full } else { Duplex::Half };
            config.delay = Duration::from_millis(medium.1);
            config.wired.delay = Duration::from_millis(medium.2);
            config.channel = ChannelConfig::alternating(
                Shape::Uniform,
                Duration::from_millis(100),
                Duration::from_millis(channel.0),
            );
            config.channel.scope = scope;
            config.channel.good_loss = Loss::Frame(Probability::new(channel.1).expect("in range"));
            config.queue.packets = Some(queue.0);
            config.receive_buffer = queue.1.then(ReceiveBufferConfig::default);
            config.mtu_bytes = mtu;
            config.header_compression = header_compression;
            if queue.2 > 0 {
                config.reassembly.identification =
                    IpIdentification::Wrapping { values: queue.2, checksum: UdpChecksum::Verified };
            }
            config
        })
}

/// Time, whether upwards, mobile, bytes.
fn any_traffic() -> impl Strategy<Value = Vec<(u64, bool, u16, usize)>> {
    prop::collection::vec((0_u64..300_000, any::<bool>(), 0_u16..3, 0_usize..6000), 1..60).prop_map(
        |mut traffic| {
            traffic.sort_by_key(|&(at, ..)| at);
            traffic
        },
    )
}

fn pair(up: bool, number: u16) -> (Endpoint, Endpoint) {
    if up { (mobile(number), host()) } else { (host(), mobile(number)) }
}

/// What was delivered, and the fate of everything, one hour after the last datagram.
fn run(
    config: LinkConfig,
    seed: u64,
    traffic: &[(u64, bool, u16, usize)],
) -> (Vec<linkemu::Delivery>, Vec<DatagramRecord>, World) {
    let mut world = World::new(config, 3, seed);
    let fates = Fates::default();
    world.cell.observe(Box::new(fates.clone()));
    let mut deliveries = Vec::new();
    for &(at, up, number, bytes) in traffic {
        deliveries.extend(world.run(at));
        let (from, to) = pair(up, number);
        world.send(at, from, to, bytes);
    }
    deliveries.extend(world.run(3_600_000_000));
    let records = fates.0.lock().expect("no panic while recording").clone();
    (deliveries, records, world)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Also the progress property: `World::run` panics when time stands still.
    #[test]
    fn every_datagram_has_one_fate_and_arrives_at_most_once(
        config in any_link(), seed: u64, traffic in any_traffic(),
    ) {
        let kind = config.arq.kind;
        let limit = config.arq.retry_limit;
        let buffered = config.receive_buffer.is_some();
        let distinct = config.reassembly.identification == IpIdentification::Distinct;
        let (deliveries, records, world) = run(config, seed, &traffic);
        let stats = world.cell.stats();
        prop_assert_eq!(stats.under_way(), 0, "an hour later nothing is under way");
        prop_assert_eq!(records.len(), traffic.len());
        prop_assert_eq!(stats.delivered() + stats.lost(), traffic.len() as u64);

        let mut arrived = BTreeMap::new();
        for delivery in &deliveries {
            *arrived.entry(delivery.datagram).or_insert(0) += 1;
        }
        for record in &records {
            let times = arrived.get(&record.datagram).copied().unwrap_or(0);
            let expected = u32::from(record.fate == Fate::Delivered);
            // A splice whose checksum agrees by chance (the payloads are all zeros) is delivered as another datagram.
            if distinct {
                prop_assert_eq!(times, expected, "{:?}", record);
            }
            prop_assert!(record.offered <= record.ended);
        }
        let retries = !matches!(kind, ArqKind::None | ArqKind::Ideal);
        if !retries {
            prop_assert_eq!(stats.fate(Fate::RetryLimit), 0);
        }
        if kind == ArqKind::Ideal || (retries && limit.is_none()) {
            prop_assert_eq!(stats.fate(Fate::Channel) + stats.fate(Fate::RetryLimit), 0, "ARQ loses nothing");
        }
        if !buffered {
            prop_assert_eq!(stats.fate(Fate::ReceiveBufferFull), 0);
        }

        if !distinct {
            return Ok(());
        }
        // Frames between two machines keep their order, so whole datagrams do.
        let mut last: BTreeMap<(Endpoint, Endpoint), u64> = BTreeMap::new();
        for delivery in &deliveries {
            if let Some(before) = last.insert((delivery.from, delivery.to), delivery.datagram) {
                prop_assert!(before < delivery.datagram, "overtaken");
            }
        }
    }

    #[test]
    fn a_load_below_the_rate_of_a_link_without_errors_loses_nothing(
        kind in any_arq(), full: bool, delay_ms in 0_u64..2000, seed: u64, sizes in prop::collection::vec(0_usize..9000, 1..40),
    ) {
        let mut config = LinkConfig::default();
        (config.arq.kind, config.arq.retry_limit, config.arq.probe) = kind;
        config.duplex = if full { Duplex::Full } else { Duplex::Half };
        // The ARQ waits for answers on a full-duplex link, so only none and ideal reach the rate of a long one.
        let patient = matches!(kind.0, ArqKind::StopAndWait | ArqKind::RtsCts) && full;
        config.delay = Duration::from_millis(if patient { 0 } else { delay_ms });
        let mut world = World::new(config, 1, seed);
        let (mut at, mut delivered) = (0, 0);
        for &bytes in &sizes {
            delivered += world.run(at).len();
            world.send(at, host(), mobile(0), bytes);
            // Half the rate, so that acknowledgements fit as well.
            at += 2 * world.cell.config().air_time(bytes).as_micros() as u64 + 5000;
        }
        delivered += world.run(at + 100_000_000).len();
        prop_assert_eq!(delivered, sizes.len());
        prop_assert_eq!(world.cell.stats().lost(), 0);
    }

    #[test]
    fn the_same_seed_gives_the_same_records(config in any_link(), seed: u64, traffic in any_traffic()) {
        let (first_deliveries, first, first_world) = run(config.clone(), seed, &traffic);
        let (second_deliveries, second, second_world) = run(config, seed, &traffic);
        prop_assert_eq!(first, second);
        prop_assert_eq!(first_world.cell.stats(), second_world.cell.stats());
        prop_assert_eq!(first_deliveries.len(), second_deliveries.len());
    }
}

#[test]
fn what_has_no_way_is_counted_and_not_carried() {
    let mut world = World::new(bare(), 1, 1);
    world.send(0, mobile(0), mobile(0), 10);
    world.send(0, host(), Endpoint::host(1, 1), 10);
    world.send(0, host(), mobile(9), 10);
    world.send(0, host(), mobile(0), 65_508);
    world.send(0, host(), mobile(0), 65_507);
    assert_eq!(world.run(10_000_000).len(), 1);
    let stats = world.cell.stats();
    assert_eq!((stats.fate(Fate::NoRoute), stats.fate(Fate::TooLong), stats.delivered()), (3, 1, 1));
    assert_eq!(Station::Mobile(9).to_string(), "mobile9");
}

/// Late fragments of lost datagrams complete others when the identification wraps (RFC 4963).
#[test]
fn a_wrapped_identification_splices_datagrams() {
    let run = |checksum| {
        let mut config = bare();
        config.rate = common::megabits(100);
        config.channel.good_loss = Loss::Frame(Probability::new(0.05).expect("in range"));
        config.reassembly.identification = IpIdentification::Wrapping { values: 16, checksum };
        let mut world = World::new(config, 1, 4);
        let (mut corrupt, mut deliveries) = (0, 0);
        for number in 0..2000_u32 {
            let at = world.at(u64::from(number) * 1000);
            let payload = Bytes::from([number.to_be_bytes(); 1000].concat());
            world.cell.handle_input(at, host(), mobile(0), payload);
            for delivery in world.run(u64::from(number) * 1000 + 999) {
                deliveries += 1;
                let first = &delivery.payload[..4];
                corrupt += u32::from(delivery.payload.chunks(4).any(|word| word != first));
            }
        }
        (corrupt, deliveries, world.cell.stats())
    };
    let (corrupt, deliveries, stats) = run(UdpChecksum::Off);
    assert!(corrupt > 20, "{corrupt}");
    assert_eq!(u64::from(corrupt), stats.splices_delivered);
    assert_eq!(deliveries, stats.delivered() + stats.splices_delivered);
    let (corrupt, deliveries, stats) = run(UdpChecksum::Verified);
    assert_eq!((corrupt, stats.splices_delivered), (0, 0));
    assert!(stats.splices_caught > 20);
    assert_eq!(deliveries, stats.delivered());
}
