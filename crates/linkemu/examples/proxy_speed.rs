//! How exact and how fast the proxy is on this machine.
//!
//! ```text
//! cargo run --release -p linkemu --example proxy_speed
//! ```
//!
//! First the lateness of deliveries at 1 Mbit/s, in both directions, for 10 s; then the rate through a link without limits,
//! in datagrams of 1472 and 8192 B, for 3 s each. Sender, proxy and sink share the machine.
#![expect(clippy::disallowed_methods, reason = "wall time is what is measured")]

use std::{
    io,
    net::{SocketAddr, UdpSocket as StdSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use linkemu::{
    BitRate, LinkConfig,
    proxy::{Forward, Proxy, ProxyConfig, ProxyError, ProxyHandle},
};
use tokio::net::UdpSocket;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(lateness())?;
    for bytes in [1472, 8192, 32_768] {
        runtime.block_on(rate(bytes))?;
    }
    Ok(())
}

async fn start(link: LinkConfig, to: SocketAddr) -> Result<(SocketAddr, ProxyHandle), ProxyError> {
    let mut config = ProxyConfig::new(link, 1);
    config.forwards.push(Forward { listen: SocketAddr::from(([127, 0, 0, 1], 0)), to });
    let proxy = Proxy::bind(config).await?;
    let address = proxy.local_addresses().map_err(ProxyError::Timer)?.first().copied().unwrap_or(to);
    let handle = proxy.handle();
    tokio::spawn(proxy.run());
    Ok((address, handle))
}

/// Datagrams of 1000 B up and down, a little less than 1 Mbit/s together.
async fn lateness() -> Result<(), Box<dyn std::error::Error>> {
    let server = UdpSocket::bind("127.0.0.1:0").await?;
    let (address, handle) = start(LinkConfig::default(), server.local_addr()?).await?;
    tokio::spawn(async move {
        let mut buffer = vec![0; 1 << 16];
        while let Ok((length, peer)) = server.recv_from(&mut buffer).await {
            let _ = server.send_to(&buffer[..length], peer).await;
        }
    });
    let client = UdpSocket::bind("127.0.0.1:0").await?;
    let mut pace = tokio::time::interval(Duration::from_millis(18));
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        pace.tick().await;
        client.send_to(&[0; 1000], address).await?;
    }
    let stats = handle.stats().await.ok_or("the proxy has ended")?;
    handle.stop().await;
    println!(
        "1 Mbit/s: {} deliveries, lateness p50 {:?}, p99 {:?}, most {:?}",
        stats.lateness.count(),
        stats.lateness.quantile(0.5),
        stats.lateness.quantile(0.99),
        stats.lateness.most()
    );
    Ok(())
}

/// A sender and a sink on threads of their own; the sender slows down when its datagrams are dropped.
async fn rate(bytes: usize) -> Result<(), Box<dyn std::error::Error>> {
    let mut link = LinkConfig::default();
    link.rate = BitRate::UNLIMITED.into();
    link.wired.rate = BitRate::UNLIMITED;
    link.wired.delay = Duration::ZERO;
    let sink = StdSocket::bind("127.0.0.1:0")?;
    sink.set_read_timeout(Some(Duration::from_millis(200)))?;
    let (address, handle) = start(link, sink.local_addr()?).await?;
    let (sent, received) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let done = Arc::new(AtomicBool::new(false));
    let receiver = {
        let (received, done) = (received.clone(), done.clone());
        thread::spawn(move || -> io::Result<()> {
            let mut buffer = vec![0; 1 << 16];
            while !done.load(Ordering::Relaxed) {
                if sink.recv(&mut buffer).is_ok() {
                    received.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok(())
        })
    };
    let sender = {
        let (sent, received, done) = (sent.clone(), received.clone(), done.clone());
        thread::spawn(move || -> io::Result<()> {
            let socket = StdSocket::bind("127.0.0.1:0")?;
            let payload = vec![0; bytes];
            let mut given_up = 0;
            let mut stalled = Instant::now();
            while !done.load(Ordering::Relaxed) {
                let under_way = sent.load(Ordering::Relaxed) - received.load(Ordering::Relaxed) - given_up;
                if under_way < 64 {
                    socket.send_to(&payload, address)?;
                    sent.fetch_add(1, Ordering::Relaxed);
                    stalled = Instant::now();
                } else if stalled.elapsed() > Duration::from_millis(50) {
                    given_up += under_way;
                } else {
                    thread::yield_now();
                }
            }
            Ok(())
        })
    };
    let start = Instant::now();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let datagrams = received.load(Ordering::Relaxed);
    let seconds = start.elapsed().as_secs_f64();
    done.store(true, Ordering::Relaxed);
    let stats = handle.stats().await.ok_or("the proxy has ended")?;
    handle.stop().await;
    for thread in [receiver, sender] {
        thread.join().map_err(|_| "a thread panicked")??;
    }
    println!(
        "without limits: datagrams of {bytes} B at {:.0} Mbit/s, {} sent, {} lost on the way, lateness p99 {:?}",
        datagrams as f64 * bytes as f64 * 8.0 / seconds / 1e6,
        sent.load(Ordering::Relaxed),
        stats.link.stats.lost() + stats.unsent,
        stats.lateness.quantile(0.99)
    );
    Ok(())
}
