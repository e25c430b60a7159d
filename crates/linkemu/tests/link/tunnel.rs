//! The link between devices, for which socket pairs stand here: one packet a read and a write, as on a TUN device.

use std::{
    os::{fd::OwnedFd, unix::net::UnixDatagram as StdDatagram},
    time::Duration,
};

use linkemu::{
    BitRate, Fate, LinkConfig,
    tunnel::{Tunnel, TunnelError, TunnelHandle},
};
use tokio::{net::UnixDatagram, time::timeout};

use crate::common::open;

const PATIENCE: Duration = Duration::from_secs(20);

/// The network stack of a mobile, and its counterpart among the hosts.
struct Stacks {
    mobile: UnixDatagram,
    host: UnixDatagram,
}

fn pair() -> (OwnedFd, UnixDatagram) {
    let (ours, theirs) = StdDatagram::pair().expect("a socket pair");
    theirs.set_nonblocking(true).expect("a socket");
    (ours.into(), UnixDatagram::from_std(theirs).expect("a runtime"))
}

fn start(link: LinkConfig) -> TunnelHandle {
    let tunnel = Tunnel::new(link, 1).expect("a valid link");
    let handle = tunnel.handle();
    tokio::spawn(tunnel.run());
    handle
}

async fn attach(handle: &TunnelHandle) -> (u16, Stacks) {
    let ((mobile_end, mobile), (host_end, host)) = (pair(), pair());
    let number = handle.attach(mobile_end, host_end).await.expect("a free place");
    (number, Stacks { mobile, host })
}

/// A packet of this version to an address that begins with `to`.
fn packet(version: u8, to: u8, bytes: usize, mark: u8) -> Vec<u8> {
    let mut packet = vec![mark; bytes];
    packet[0] = version << 4;
    packet[if version == 4 { 16 } else { 24 }] = to;
    packet
}

async fn receive(socket: &UnixDatagram) -> Vec<u8> {
    let mut buffer = vec![0; 1 << 16];
    let length = timeout(PATIENCE, socket.recv(&mut buffer)).await.expect("a packet").expect("a socket");
    buffer.truncate(length);
    buffer
}

#[tokio::test]
async fn packets_of_both_versions_cross_both_ways_as_they_are() {
    let handle = start(open());
    let (_, stacks) = attach(&handle).await;
    for (version, to) in [(4, 10), (6, 0xfd)] {
        for (mark, bytes) in [(1, 40), (2, 1500), (3, 41)] {
            let sent = packet(version, to, bytes, mark);
            stacks.mobile.send(&sent).await.expect("the tunnel reads");
            assert_eq!(receive(&stacks.host).await, sent);
            stacks.host.send(&sent).await.expect("the tunnel reads");
            assert_eq!(receive(&stacks.mobile).await, sent);
        }
    }
    let stats = handle.stats().await.expect("it runs");
    assert_eq!((stats.link.stats.delivered(), stats.unsent, stats.mobiles), (12, 0, 1));
    assert_eq!(stats.lateness.count(), 12);
    let json = stats.to_json();
    assert!(json.contains("\"mobiles\":1,\"unsent\":0,\"lateness\":{\"count\":12"), "{json}");
}

#[tokio::test]
async fn multicast_and_what_is_no_packet_stay_on_their_side_and_do_not_start_the_channel() {
    let handle = start(open());
    let (_, stacks) = attach(&handle).await;
    for noise in
        [packet(6, 0xff, 48, 0), packet(4, 224, 40, 0), packet(4, 255, 40, 0), vec![0x45], vec![0; 60]]
    {
        stacks.mobile.send(&noise).await.expect("the tunnel reads");
    }
    stacks.mobile.send(&packet(4, 223, 40, 9)).await.expect("the tunnel reads");
    assert_eq!(receive(&stacks.host).await[1], 9);
    assert_eq!(handle.stats().await.expect("it runs").link.stats.datagrams, 1);
}

#[tokio::test]
async fn mobiles_share_the_medium_and_are_kept_apart() {
    // One packet is 12.144 ms on the air.
    let mut link = LinkConfig::default();
    link.wired.rate = BitRate::UNLIMITED;
    link.wired.delay = Duration::ZERO;
    let handle = start(link);
    let (first, one) = attach(&handle).await;
    let (second, two) = attach(&handle).await;
    assert_eq!((first, second), (0, 1));
    one.mobile.send(&packet(4, 10, 1500, 1)).await.expect("the tunnel reads");
    two.host.send(&packet(4, 10, 1500, 2)).await.expect("the tunnel reads");
    assert_eq!(receive(&one.host).await[1], 1);
    assert_eq!(receive(&two.mobile).await[1], 2);
    let stats = handle.stats().await.expect("it runs");
    assert_eq!(stats.link.stats.air_data, Duration::from_micros(2 * 12_144));

    // A place that was left is used again, and nothing else is disturbed.
    handle.detach(first).await;
    let (third, three) = attach(&handle).await;
    assert_eq!(third, first);
    three.host.send(&packet(4, 10, 40, 3)).await.expect("the tunnel reads");
    assert_eq!(receive(&three.mobile).await[1], 3);
    two.mobile.send(&packet(4, 10, 40, 4)).await.expect("the tunnel reads");
    assert_eq!(receive(&two.host).await[1], 4);
}

#[tokio::test]
async fn a_stack_that_went_away_is_counted_and_harms_nobody() {
    let handle = start(open());
    let (_, Stacks { mobile, host }) = attach(&handle).await;
    let (_, other) = attach(&handle).await;
    drop(host);
    mobile.send(&packet(4, 10, 40, 1)).await.expect("the tunnel reads");
    other.mobile.send(&packet(4, 10, 40, 2)).await.expect("the tunnel reads");
    assert_eq!(receive(&other.host).await[1], 2);
    while handle.stats().await.expect("it runs").unsent == 0 {
        tokio::task::yield_now().await;
    }
    let stats = handle.stats().await.expect("it runs");
    assert_eq!(stats.link.stats.fate(Fate::Delivered), 2);
    handle.stop().await;
    while handle.stats().await.is_some() {}
    let ((mobile, _mobile), (host, _host)) = (pair(), pair());
    assert!(matches!(handle.attach(mobile, host).await, Err(TunnelError::Ended)));
}
