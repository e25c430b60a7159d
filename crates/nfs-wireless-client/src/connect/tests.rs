use std::future::pending;

use super::*;

/// What becomes of the attempt at an address.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Silence,
    /// Nobody is there, which is known after so many milliseconds.
    Gone(u64),
    Answer(u64),
    /// An answer that is a no.
    Refusal(u64),
    /// The port mapper answers that there is no such service.
    NoService(u64),
    /// Nobody is there for so many milliseconds, from the beginning on.
    Starting(u64),
}

/// Makes attempts at addresses with these fates; returns what came of them, and after how many milliseconds.
async fn outcome(fates: &[Fate]) -> (Result<usize, Error>, u64) {
    let addresses = (0..fates.len()).map(|at| SocketAddr::from(([192, 0, 2, 1], at as u16))).collect();
    let nowhere = Error::Resolve { host: "nas".into(), source: Arc::new(io::ErrorKind::NotFound.into()) };
    let begun = tokio::time::Instant::now();
    let attempt = |address: SocketAddr| -> Attempt<'_, usize> {
        let at = usize::from(address.port());
        let fate = fates[at];
        Box::pin(async move {
            let after = |time| tokio::time::sleep(Duration::from_millis(time));
            match fate {
                Fate::Silence => pending().await,
                Fate::Gone(time) => {
                    after(time).await;
                    let (source, protocol) = (Arc::new(io::ErrorKind::TimedOut.into()), Protocol::Udp);
                    Err(Error::Unreachable { what: "the NFSv3 service", address, protocol, source })
                }
                Fate::Answer(time) => {
                    after(time).await;
                    Ok(at)
                }
                Fate::Starting(time) if begun.elapsed() < Duration::from_millis(time) => {
                    let (source, protocol) =
                        (Arc::new(io::ErrorKind::ConnectionRefused.into()), Protocol::Tcp);
                    Err(Error::Unreachable { what: "the NFSv3 service", address, protocol, source })
                }
                Fate::Starting(_) => Ok(at),
                Fate::NoService(time) => {
                    after(time).await;
                    Err(Error::NotRegistered { what: "the NFSv3 service", protocol: Protocol::Udp })
                }
                Fate::Refusal(time) => {
                    after(time).await;
                    Err(Error::Mount { path: "/".into(), status: nfs_wire::MountStatus::ACCES })
                }
            }
        })
    };
    let outcome = first_address(addresses, nowhere, attempt).await;
    (outcome, begun.elapsed().as_millis() as u64)
}

#[tokio::test]
async fn a_silent_address_delays_the_next_one_by_a_quarter_of_a_second() {
    use Fate::{Answer, Gone, NoService, Refusal, Silence, Starting};
    // The address that answers, and when at the earliest. A machine that is busy may take seconds more.
    for (fates, expected) in [
        (&[Answer(600)][..], (0, 600)),
        (&[Silence, Answer(20)], (1, 270)),
        (&[Silence, Silence, Answer(20)], (2, 520)),
        // A failure lets the next one begin at once.
        (&[Gone(5), Answer(20)], (1, 25)),
        (&[Silence, Gone(5), Answer(20)], (2, 275)),
        // What comes first counts; who is slow is not given up.
        (&[Answer(400), Answer(10_000)], (0, 400)),
        (&[Answer(600), Silence], (0, 600)),
        (&[Answer(0), Answer(0)], (0, 0)),
        // A server may serve one family of addresses alone, or let in those of one alone.
        (&[NoService(5), Answer(20)], (1, 25)),
        (&[Refusal(5), Gone(5), Answer(20)], (2, 30)),
        (&[Silence, Refusal(20), Answer(0)], (2, 270)),
        // A server that is starting refuses for a while.
        (&[Silence, Starting(2000)], (1, 2000)),
        (&[Starting(2000), Silence, Silence], (0, 2000)),
    ] {
        let (result, time) = outcome(fates).await;
        assert_eq!(result.unwrap(), expected.0, "{fates:?}");
        assert!((expected.1..expected.1 + 5000).contains(&time), "{fates:?}: {time} ms");
    }
    for fates in
        [&[Silence, Refusal(20)][..], &[Refusal(20), Silence], &[NoService(0), Refusal(20), Gone(400)]]
    {
        let (refused, time) = outcome(fates).await;
        assert!(matches!(refused, Err(Error::Mount { .. })) && time < 5000, "{fates:?}: {time} ms");
    }
    let (absent, _) = outcome(&[Gone(5), NoService(0), Gone(5)]).await;
    assert!(matches!(absent, Err(Error::NotRegistered { .. })));
    let (gone, time) = outcome(&[Gone(5), Gone(700)]).await;
    assert!(matches!(gone, Err(Error::Unreachable { .. })) && time >= 705);
    assert!(matches!(outcome(&[]).await.0, Err(Error::Resolve { .. })));
}

#[test]
fn the_families_of_addresses_take_turns() {
    let order = |addresses: &[&str]| {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        alternating(addresses).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        order(&["[2001:db8::1]:0", "[2001:db8::2]:0", "192.0.2.1:0", "192.0.2.2:0", "192.0.2.3:0"]),
        "[2001:db8::1]:0 192.0.2.1:0 [2001:db8::2]:0 192.0.2.2:0 192.0.2.3:0"
    );
    assert_eq!(order(&["192.0.2.1:0", "[2001:db8::1]:0"]), "192.0.2.1:0 [2001:db8::1]:0");
    assert_eq!(order(&[]), "");
}

#[test]
fn a_port_is_changed_without_losing_the_zone() {
    let address: SocketAddr = "[fe80::1%3]:0".parse().unwrap();
    assert_eq!(at_port(address, 2049).to_string(), "[fe80::1%3]:2049");
}

#[tokio::test]
async fn what_mounts_is_small_enough_for_a_stack() {
    let (reactor, config) = (Reactor::start(false).await.unwrap(), ClientConfig::default());
    let finder = Finder { reactor: &reactor, config: &config, host: "localhost" };
    let bytes = size_of_val(&finder.mount(b"/"));
    assert!(bytes < 4096, "{bytes} bytes are copied from frame to frame");
}
