//! Looks a name up again and again while nobody answers where it led.

use std::{
    future::pending,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use tokio::{task::JoinSet, time::sleep_until};

use crate::driver::clock;

/// Silence after which a name is looked up. A server that is near has answered by then.
const FIRST: Duration = Duration::from_millis(500);

/// Shortest time between two lookups: with the look at the new address it has to fit in the 2 s in which that is to be used.
const PAUSE: Duration = Duration::from_secs(1);

/// Longest time between two lookups.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// The time between two lookups is this part of the silence, once that is longer than [`PAUSE`].
const PART: u32 = 64;

/// Lookups under way at a time. A resolver that cannot reach its server asks again after 5 s (resolv.conf(5)): those that began later have asked meanwhile.
const AT_ONCE: usize = 4;

/// The lookups of one silence.
#[derive(Debug)]
pub(crate) struct Lookups {
    /// `None` for an address, which leads nowhere else.
    name: Option<String>,
    pace: Pace,
    underway: JoinSet<Vec<SocketAddr>>,
}

/// When a name is looked up.
#[derive(Debug)]
struct Pace {
    since: Instant,
    next: Instant,
}

impl Lookups {
    /// Begins with the silence.
    pub(crate) fn new(host: &str, since: Instant) -> Self {
        let name = host.parse::<IpAddr>().is_err().then(|| host.to_owned());
        Self { name, pace: Pace::new(since), underway: JoinSet::new() }
    }

    /// Returns when the silence began.
    pub(crate) const fn since(&self) -> Instant {
        self.pace.since
    }

    /// A link has changed: what was known of the name may be over.
    pub(crate) const fn hurry(&mut self, now: Instant) {
        self.pace.next = now;
    }

    /// Waits for the next lookup that succeeds, and returns where the name leads. Nothing is lost when this is dropped.
    pub(crate) async fn next(&mut self) -> Vec<SocketAddr> {
        let Some(name) = self.name.clone() else { return pending().await };
        loop {
            let is_free = self.underway.len() < AT_ONCE;
            tokio::select! {
                Some(ended) = self.underway.join_next() => match ended {
                    Ok(addresses) if !addresses.is_empty() => return addresses,
                    Ok(_) | Err(_) => {}
                },
                () = sleep_until(self.pace.next.into()), if is_free => {
                    self.pace.begin(clock());
                    let name = name.clone();
                    self.underway.spawn(async move {
                        let found = tokio::net::lookup_host((name, 0)).await;
                        found.map(Iterator::collect).unwrap_or_default()
                    });
                }
            }
        }
    }
}

impl Pace {
    fn new(since: Instant) -> Self {
        Self { since, next: since + FIRST }
    }

    fn begin(&mut self, now: Instant) {
        let silence = now.saturating_duration_since(self.since);
        self.next = now + (silence / PART).clamp(PAUSE, MAX_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many lookups begin within a silence, and the longest time between two in its last minute.
    fn lookups(silence: Duration) -> (u32, Duration) {
        let start = clock();
        let (mut pace, mut count, mut longest) = (Pace::new(start), 0, Duration::ZERO);
        while pace.next < start + silence {
            let now = pace.next;
            pace.begin(now);
            count += 1;
            if now + Duration::from_secs(60) > start + silence {
                longest = longest.max(pace.next - now);
            }
        }
        (count, longest)
    }

    #[test]
    fn a_name_is_looked_up_once_a_second_and_more_rarely_in_a_long_silence() {
        let seconds = |seconds| lookups(Duration::from_secs(seconds));
        assert_eq!(lookups(FIRST).0, 0);
        assert_eq!(seconds(60), (60, PAUSE));
        let (count, longest) = seconds(120);
        assert!(count < 110 && longest < Duration::from_secs(2), "{count}, {longest:?}");
        let (count, longest) = seconds(3600);
        assert!(count < 520 && longest == MAX_PAUSE, "{count}, {longest:?}");
    }

    #[tokio::test]
    async fn an_address_is_not_looked_up() {
        let mut lookups = Lookups::new("127.0.0.1", clock() - Duration::from_secs(100));
        let next = tokio::time::timeout(Duration::from_millis(50), lookups.next()).await;
        assert!(next.is_err() && lookups.underway.is_empty());
        let mut lookups = Lookups::new("localhost", clock() - Duration::from_secs(100));
        assert!(lookups.next().await.iter().all(|address| address.ip().is_loopback()));
    }
}
