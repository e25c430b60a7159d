//! IP packets on a link: they cross as they are.

use crate::common::{World, bare, host, mobile, traced};
use bytes::Bytes;
use linkemu::{ArqKind, CaptureWriter, Fate, IpIdentification, UdpChecksum};

/// Bytes that say where they came from.
fn packet(bytes: usize, mark: u8) -> Bytes {
    Bytes::from(vec![mark; bytes])
}

#[test]
fn a_packet_takes_the_air_time_of_its_bytes_and_the_link_header() {
    let mut world = World::new(bare(), 1, 1);
    world.cell.handle_packet(world.at(0), mobile(0), host(), packet(1500, 1));
    world.cell.handle_packet(world.at(0), mobile(0), host(), packet(40, 2));
    let deliveries = world.run(1_000_000);
    let arrivals: Vec<_> =
        deliveries.iter().map(|delivery| (delivery.at - world.epoch).as_micros()).collect();
    // 8 µs a byte: 1518 bytes, then 58.
    assert_eq!(arrivals, [12_144, 12_608]);
    assert_eq!((&deliveries[0].payload, &deliveries[1].payload), (&packet(1500, 1), &packet(40, 2)));
    // As long as the same datagram offered without its headers.
    let datagram = world.cell.config().air_time(1472);
    assert_eq!(u128::from(12_144_u32), datagram.as_micros());
}

#[test]
fn fragments_are_lost_one_by_one_and_never_joined_or_spliced() {
    // Bad while the second packet is on the air.
    let mut link = traced("0,good\n15,bad\n20,good\n", ArqKind::None);
    // Even where the identifications of datagrams repeat.
    link.reassembly.identification = IpIdentification::Wrapping { values: 1, checksum: UdpChecksum::Off };
    let mut world = World::new(link, 1, 1);
    for mark in 0..3 {
        world.cell.handle_packet(world.at(0), host(), mobile(0), packet(1500, mark));
    }
    let marks: Vec<u8> = world.run(1_000_000).iter().map(|delivery| delivery.payload[0]).collect();
    assert_eq!(marks, [0, 2]);
    assert_eq!((world.cell.stats().fate(Fate::Channel), world.cell.stats().splices_delivered), (1, 0));
}

#[test]
fn a_packet_longer_than_the_mtu_does_not_cross() {
    let mut world = World::new(bare(), 1, 1);
    world.cell.handle_packet(world.at(0), host(), mobile(0), packet(1501, 0));
    assert_eq!(world.run(1_000_000), []);
    assert_eq!(world.cell.stats().fate(Fate::TooLong), 1);
}

#[test]
fn a_capture_has_packets_as_they_are() {
    #[derive(Clone, Default)]
    struct Shared(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);
    impl std::io::Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic while writing").write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let file = Shared::default();
    let mut world = World::new(bare(), 1, 1);
    world.cell.observe(Box::new(CaptureWriter::new(file.clone(), std::time::Duration::ZERO)));
    world.cell.handle_packet(world.at(0), host(), mobile(0), packet(97, 0xab));
    world.run(1_000_000);
    world.cell.close_records();
    let written = file.0.lock().expect("no panic while writing").clone();
    // Lengths, captured and original, then the bytes and their padding: once in, once out.
    let mut wanted = [97_u32.to_le_bytes(), 97_u32.to_le_bytes()].concat();
    wanted.extend([&[0xab; 97][..], &[0; 3]].concat());
    let found = written.windows(wanted.len()).filter(|window| *window == wanted).count();
    assert_eq!(found, 2);
}
