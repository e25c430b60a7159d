//! The papers' link, in real time and in virtual time.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use linkemu::{
    Channel, LinkConfig, Preset,
    proxy::{Forward, Proxy, ProxyConfig, ProxyHandle, ProxyStats},
};
use nfs_wireless_client::{BlockSize, RetryPolicy, Window};
use testbed::{Operation, Plan, Room, mean, sweep};

use crate::{progress::Aside, units};

/// Mean bad period.
const BAD: Duration = Duration::from_millis(80);

/// Which fades the real copies meet.
const SEED: u64 = 7;

/// Seeds of the comparison.
const RUNS: u32 = 20;

/// Widest bar of the chart, in characters.
const BAR: usize = 40;

/// The strip of the link's last seconds: characters, and how long each is.
const STRIP: u32 = 30;
const COLUMN: Duration = Duration::from_millis(100);

fn link() -> LinkConfig {
    let mut link = Preset::named("paper-1997").expect("a preset of this name").config();
    link.channel.set_bad_mean(BAD);
    link
}

/// A UDP port that leads to a server over the link.
pub(super) struct BadLink {
    pub(super) address: SocketAddr,
    /// The link's last seconds, for the progress bar.
    pub(super) strip: Aside,
    handle: ProxyHandle,
    thread: Option<JoinHandle<Option<ProxyStats>>>,
}

impl BadLink {
    /// Starts it on a thread of its own; the same fades every time.
    pub(super) fn start(server: SocketAddr) -> anyhow::Result<Self> {
        let mut config = ProxyConfig::new(link(), SEED);
        config.forwards.push(Forward { listen: (Ipv4Addr::LOCALHOST, 0).into(), to: server });
        let channel = Channel::new(&config.link.channel, SEED, 0)?;
        let strip = Aside::default();
        let shown = Arc::clone(&strip);
        let (ready, started) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            runtime.block_on(async {
                let proxy = match Proxy::bind(config).await {
                    Ok(proxy) => proxy,
                    Err(error) => {
                        let _ = ready.send(Err(error));
                        return None;
                    }
                };
                let _ = ready.send(Ok((proxy.local_addresses(), proxy.handle())));
                let handle = proxy.handle();
                let running = tokio::spawn(proxy.run());
                watch(&handle, channel, &shown).await;
                running.await.ok()
            })
        });
        let (addresses, handle) = started.recv()??;
        Ok(Self { address: addresses?[0], strip, handle, thread: Some(thread) })
    }

    /// Ends it and says what it did.
    pub(super) fn stop(mut self) -> Option<String> {
        let stats = self.end()?;
        let (time, link) = (stats.link.channel_time, &stats.link.stats);
        let mut channel = Channel::new(&self::link().channel, SEED, 0).ok()?;
        Some(format!(
            "{} fades in {}, which took {} of {} datagrams",
            channel.bad_periods(Duration::ZERO, time),
            units::duration(time),
            link.lost(),
            link.datagrams,
        ))
    }

    fn end(&mut self) -> Option<ProxyStats> {
        let thread = self.thread.take()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        runtime.block_on(self.handle.stop());
        // A panic was printed there.
        thread.join().ok()?
    }
}

impl Drop for BadLink {
    fn drop(&mut self) {
        self.end();
    }
}

/// Draws the last seconds of the channel until the proxy ends.
async fn watch(handle: &ProxyHandle, mut channel: Channel, strip: &Mutex<String>) {
    while let Some(stats) = handle.stats().await {
        let now = stats.link.channel_time;
        let column = |back: u32, channel: &mut Channel| {
            let Some(from) = now.checked_sub(COLUMN * back) else { return ' ' };
            let good = channel.good_time(from, from + COLUMN);
            match good {
                _ if good == COLUMN => '#',
                Duration::ZERO => '.',
                _ => '+',
            }
        };
        let text: String = (1..=STRIP).rev().map(|back| column(back, &mut channel)).collect();
        *strip.lock().unwrap_or_else(PoisonError::into_inner) = format!("link [{text}]  ");
        tokio::time::sleep(COLUMN / 2).await;
    }
}

/// Copies 1 MiB over the same link in virtual time, and draws the means as bars.
pub(super) fn chart() -> anyhow::Result<String> {
    let contenders = [
        ("adaptive, as above", RetryPolicy::Adaptive, BlockSize::Auto { max: None }, Window::Auto),
        ("kernel (Linux), 4 calls", RetryPolicy::kernel(), BlockSize::Exact(4096), Window::Calls(4)),
        ("hybrid, 4 calls", RetryPolicy::hybrid(), BlockSize::Exact(4096), Window::Calls(4)),
        ("exponential, 4 calls", RetryPolicy::exponential(), BlockSize::Exact(4096), Window::Calls(4)),
        ("exponential, 1 call", RetryPolicy::exponential(), BlockSize::Exact(4096), Window::Calls(1)),
    ];
    let plan = |policy, block, window| {
        let mut room = Room::named("modern")?;
        room.link = link();
        let mut plan = Plan::new(room);
        (plan.operation, plan.policy, plan.block, plan.window) = (Operation::Read, policy, block, window);
        Ok::<_, testbed::Error>(plan)
    };
    let plans = contenders.map(|(_, policy, block, window)| plan(policy, block, window));
    let plans = plans.into_iter().collect::<Result<Vec<_>, _>>()?;
    let samples = sweep(&plans, 1, RUNS, &|_| true)?;
    let samples: Vec<_> = samples.into_iter().flatten().collect();
    let limits: Vec<f64> = samples[0].runs.iter().map(|run| run.limit.physical.as_secs_f64()).collect();
    let mut bars = vec![("what the link allows", mean(&limits))];
    for ((name, ..), samples) in contenders.iter().zip(&samples) {
        bars.push((name, mean(&samples.responses())));
    }
    let longest = bars.iter().map(|(_, seconds)| *seconds).fold(0.0, f64::max);
    let line = |(name, seconds): &(&str, f64)| {
        let bar = "█".repeat((seconds / longest * BAR as f64).round() as usize);
        format!("  {name:24} {seconds:5.1} s {bar}\n")
    };
    Ok(bars.iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart_has_a_bar_for_everyone_and_the_limit_is_the_shortest() {
        let chart = chart().unwrap();
        let bars: Vec<usize> = chart.lines().map(|line| line.matches('█').count()).collect();
        assert_eq!(bars.len(), 6, "{chart}");
        assert!(bars[0] > 0 && bars.iter().all(|bar| *bar >= bars[0]), "{chart}");
        assert_eq!(bars.iter().max(), Some(&BAR), "{chart}");
    }
}
