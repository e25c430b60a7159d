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

use std::future::pending;

use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::sleep_until,
};

use crate::{ConfigError, Link, LinkConfig, Side, realtime::clock};

/// One end of a link. What is sent once the other end is gone is lost. Nothing more comes when that end sends no more and what was under way
/// has arrived.
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

    /// Returns where datagrams are sent to and come from, for programs that know nothing of links. Each of the two may be dropped before the
    /// other.
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
    tokio::spawn(run(link, Way::new(from_mobile, to_host), Way::new(from_host, to_mobile)));
    Ok((Socket { sender: mobile, receiver: at_mobile }, Socket { sender: host, receiver: at_host }))
}

/// What is sent from one end to the other.
struct Way {
    from: UnboundedReceiver<Vec<u8>>,
    /// Whether no more comes from there.
    is_ended: bool,
    /// `None` once nothing more can come.
    to: Option<UnboundedSender<Vec<u8>>>,
}

impl Way {
    const fn new(from: UnboundedReceiver<Vec<u8>>, to: UnboundedSender<Vec<u8>>) -> Self {
        Self { from, is_ended: false, to: Some(to) }
    }

    /// Takes no more from there.
    fn end(&mut self) {
        self.is_ended = true;
        self.from.close();
    }

    /// Waits for what is sent, or until nobody is there to receive it.
    async fn next(&mut self) -> Option<Vec<u8>> {
        match &self.to {
            Some(to) if !self.is_ended => {
                tokio::select! {
                    biased;
                    payload = self.from.recv() => payload,
                    () = to.closed() => None,
                }
            }
            _ => pending().await,
        }
    }
}

async fn run(mut link: Link, mut up: Way, mut down: Way) {
    loop {
        let now = clock();
        link.handle_timeout(now);
        while let Some((side, delivery)) = link.poll_transmit(now) {
            let way = match side {
                Side::Mobile => &down,
                Side::Host => &up,
            };
            // It may be gone.
            way.to.iter().for_each(|to| _ = to.send(delivery.payload.clone().into()));
        }
        let deadline = link.poll_timeout();
        for way in [&mut up, &mut down] {
            if way.is_ended && deadline.is_none() {
                way.to = None;
            }
        }
        if up.to.is_none() && down.to.is_none() {
            return;
        }
        tokio::select! {
            biased;
            payload = up.next() => match payload {
                Some(payload) => _ = link.handle_input(clock(), Side::Mobile, payload.into()),
                None => up.end(),
            },
            payload = down.next() => match payload {
                Some(payload) => _ = link.handle_input(clock(), Side::Host, payload.into()),
                None => down.end(),
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

    #[tokio::test(start_paused = true)]
    async fn an_end_that_only_receives_goes_on_receiving_and_one_that_only_sends_is_heard() {
        let (mobile, mut host) = pair(Preset::named("satellite-600").unwrap().config(), 1).unwrap();
        let (sender, mut receiver) = mobile.into_parts();
        drop(sender);
        assert_eq!(host.recv().await, None, "nothing can come");
        for number in 0..3 {
            host.send([number]);
            assert_eq!(receiver.recv().await, Some(vec![number]));
        }
        drop(host);
        assert_eq!(receiver.recv().await, None);

        let (mobile, mut host) = pair(Preset::named("satellite-600").unwrap().config(), 1).unwrap();
        let (sender, receiver) = mobile.into_parts();
        drop(receiver);
        for number in 0..3 {
            sender.send(vec![number]).unwrap();
            assert_eq!(host.recv().await, Some(vec![number]));
        }
        drop(sender);
        assert_eq!(host.recv().await, None);
    }
}
