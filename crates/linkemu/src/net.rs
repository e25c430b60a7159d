//! Two datagram sockets joined by a link, on tokio's clock and without the system's network.
//!
//! In a test with a paused clock (`#[tokio::test(start_paused = true)]`) time passes only while everybody waits: an hour on a bad link
//! takes as long as its computations do, and the same seed gives the same result.
//!
//! ```
//! use linkemu::{Preset, net};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), linkemu::ConfigError> {
//! let (mobile, mut host) = net::pair(Preset::named("satellite-600")?.config(), 1)?;
//! mobile.send(b"hello");
//! assert_eq!(host.recv().await.as_deref(), Some(&b"hello"[..]));
//! # Ok(())
//! # }
//! ```

use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::sleep_until,
};

use crate::{ConfigError, Link, LinkConfig, Side, realtime::clock};

/// One end of a link. What is sent once the other end is gone is lost, and nothing more comes when what was under way has arrived.
#[derive(Debug)]
pub struct Socket {
    sender: UnboundedSender<Vec<u8>>,
    receiver: UnboundedReceiver<Vec<u8>>,
}

impl Socket {
    /// Offers a datagram to the link.
    pub fn send(&self, payload: impl Into<Vec<u8>>) {
        // The link ends with both its ends.
        let _ = self.sender.send(payload.into());
    }

    /// Waits for the next datagram; `None` when no other one can come.
    pub async fn recv(&mut self) -> Option<Vec<u8>> {
        self.receiver.recv().await
    }

    /// Returns where datagrams are sent to and come from, for programs that know nothing of links.
    pub fn into_parts(self) -> (UnboundedSender<Vec<u8>>, UnboundedReceiver<Vec<u8>>) {
        (self.sender, self.receiver)
    }
}

/// Joins two sockets by a link: that of the mobile, and that of the host. The link is a task of the caller's runtime, whose clock has
/// milliseconds.
///
/// # Errors
/// [`ConfigError`] naming the first field out of bounds.
///
/// # Panics
/// Outside a tokio runtime.
pub fn pair(config: LinkConfig, seed: u64) -> Result<(Socket, Socket), ConfigError> {
    let link = Link::new(config, seed, clock())?;
    let (mobile, from_mobile) = unbounded_channel();
    let (host, from_host) = unbounded_channel();
    let (to_mobile, at_mobile) = unbounded_channel();
    let (to_host, at_host) = unbounded_channel();
    tokio::spawn(run(link, from_mobile, from_host, [to_mobile, to_host]));
    Ok((Socket { sender: mobile, receiver: at_mobile }, Socket { sender: host, receiver: at_host }))
}

async fn run(
    mut link: Link,
    mut from_mobile: UnboundedReceiver<Vec<u8>>,
    mut from_host: UnboundedReceiver<Vec<u8>>,
    [to_mobile, to_host]: [UnboundedSender<Vec<u8>>; 2],
) {
    let (mut is_mobile_gone, mut is_host_gone) = (false, false);
    loop {
        let now = clock();
        link.handle_timeout(now);
        while let Some((side, delivery)) = link.poll_transmit(now) {
            let end = match side {
                Side::Mobile => &to_mobile,
                Side::Host => &to_host,
            };
            // It may be gone.
            let _ = end.send(delivery.payload.into());
        }
        let deadline = link.poll_timeout();
        if (is_mobile_gone || is_host_gone) && deadline.is_none() {
            return;
        }
        tokio::select! {
            biased;
            payload = from_mobile.recv(), if !is_mobile_gone => match payload {
                Some(payload) => _ = link.handle_input(clock(), Side::Mobile, payload.into()),
                None => is_mobile_gone = true,
            },
            payload = from_host.recv(), if !is_host_gone => match payload {
                Some(payload) => _ = link.handle_input(clock(), Side::Host, payload.into()),
                None => is_host_gone = true,
            },
            () = sleep_until(deadline.unwrap_or(now).into()), if deadline.is_some() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Preset;

    /// Sends a datagram every 20 ms, and returns which ones arrived and when.
    async fn readings(seed: u64) -> Vec<(u8, Duration)> {
        let (mobile, mut host) = pair(Preset::named("wifi-edge").unwrap().config(), seed).unwrap();
        let begun = tokio::time::Instant::now();
        tokio::spawn(async move {
            for number in 0..250 {
                mobile.send([number; 20]);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let mut arrived = Vec::new();
        while let Ok(Some(payload)) = tokio::time::timeout(Duration::from_secs(10), host.recv()).await {
            arrived.push((payload[0], begun.elapsed()));
        }
        arrived
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_seed_gives_the_same_arrivals() {
        let first = readings(1).await;
        assert!((100..250).contains(&first.len()), "some are lost: {}", first.len());
        assert!(first.iter().all(|(number, at)| *at >= Duration::from_millis(20) * u32::from(*number)));
        assert_eq!(readings(1).await, first);
        assert_ne!(readings(2).await, first);
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_that_is_gone_ends_nothing_but_what_is_sent_there() {
        let (mobile, mut host) = pair(Preset::named("satellite-600").unwrap().config(), 1).unwrap();
        mobile.send([1]);
        drop(mobile);
        assert_eq!(host.recv().await, Some(vec![1]));
        host.send([2]);
        assert_eq!(host.recv().await, None, "nothing can come");
    }
}
