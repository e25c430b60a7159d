//! Tuning parameters.

use std::time::Duration;

/// What a [`Cache`](crate::Cache) may be told. The default suits a person who works in a mounted directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheConfig {
    /// How long an operation waits for what is not held before it fails, from the last answer of the server on, or from the last answer to
    /// one of its calls if the server has answered calls since that were sent so much later. Default: 10 s: long enough for a tunnel,
    /// short enough for a person.
    pub wait: Duration,
    /// How long an operation whose answer is held waits for the server to confirm it, and how long the server must have been
    /// silent then, before the held answer is given as stale. Default: 1 s, above the round trip of a satellite.
    pub patience: Duration,
    /// How often the server is asked while it is silent and an operation waits for it, besides what the session below does. Default:
    /// 200 ms: a call takes 2 ms of a link of 75 kB/s, and a person who waits notices half a second.
    pub probe: Duration,
    /// How long an operation that opens nothing waits for the server to confirm names and attributes that are older than they are used
    /// without asking, and younger than [`longest_ttl`](Self::longest_ttl). Then it takes them, and the question goes on: the next operation
    /// has the answer. Names that are not there are always confirmed. Default: no limit. 5 ms suit a person: a server nearby has answered
    /// by then, and behind a slow link nobody waits for what is most likely the same.
    pub prompt: Duration,
    /// Shortest time that attributes and names are used without asking. Default: 3 s (`acregmin`, nfs(5)).
    pub shortest_ttl: Duration,
    /// Longest time that attributes and names are used without asking. Default: 60 s (`acregmax`, nfs(5)).
    pub longest_ttl: Duration,
    /// How long before that time is over what is used is asked for again, while nobody waits for it: a program that looks at the same
    /// things again and again never waits for a round trip, and a silent server is noticed before anybody needs it. Default: 1.5 s,
    /// half of the shortest time, and longer than `patience`.
    pub refresh: Duration,
    /// Between them: this part of the time since the last change. Default: a tenth, as in FreeBSD's client.
    pub ttl_divisor: u32,
    /// How old a change must be by the server's clock before a fetch proves which version it brought. Default: 2 s, the coarsest
    /// time stamps of file systems in use (FAT; RFC 1813 §3.3.19, `time_delta`).
    pub racy: Duration,
    /// Bytes of file data held. Default: 2 GiB. What is open is never dropped for it.
    pub size_bytes: u64,
    /// Objects remembered: files and directories with their attributes. Default: 200,000, of about 450 bytes each.
    pub objects: usize,
    /// Grains fetched ahead of a reader who reads in order, at most. Default: 32, 2 MiB.
    pub read_ahead: u32,
    /// First pause after the server answered that it needs time (JUKEBOX, RFC 1813 §2.6). Default: 100 ms; doubles to 5 s.
    pub jukebox_pause: Duration,
    /// Whether files are fetched before anybody asks: attributes in directories that were listed, then the heads of files that programs
    /// look into, then small files; and all of a file of which three grains were read in order. Default: no.
    pub prefetch: bool,
    /// Part of the delivery rate that this takes, in percent. Default: 25: whoever else uses the link has the rest.
    pub prefetch_percent: u32,
    /// The same for what is [hoarded](crate::Cache::hoard). Default: 100: somebody waits for that, and others come first anyway.
    pub hoard_percent: u32,
    /// How long no operation of a front must have waited before something is fetched that nobody asked for. Default: 100 ms, so that
    /// it does not come between the operations of a program that waits for one after the other.
    pub prefetch_pause: Duration,
    /// How often hoarded files are looked at again, besides after the link was down. Default: 10 min.
    pub hoard_every: Duration,
    /// Extensions, in lower case, of files whose first bytes are told ([`Event::Head`](crate::Event::Head)) with `prefetch`, once they
    /// are held and were read or their directory was listed. Default: none.
    pub told_heads: Vec<String>,
    /// How long what nobody uses is held, unless it is pinned. Default: 30 days.
    pub idle: Duration,
    /// How often one operation repeats calls whose answers brought nothing before it fails. Default: 8.
    pub fruitless_calls: u32,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            wait: Duration::from_secs(10),
            patience: Duration::from_secs(1),
            probe: Duration::from_millis(200),
            prompt: Duration::MAX,
            shortest_ttl: Duration::from_secs(3),
            longest_ttl: Duration::from_secs(60),
            refresh: Duration::from_millis(1500),
            ttl_divisor: 10,
            racy: Duration::from_secs(2),
            size_bytes: 2 << 30,
            objects: 200_000,
            read_ahead: 32,
            jukebox_pause: Duration::from_millis(100),
            prefetch: false,
            prefetch_percent: 25,
            hoard_percent: 100,
            prefetch_pause: Duration::from_millis(100),
            hoard_every: Duration::from_secs(600),
            told_heads: Vec::new(),
            idle: Duration::from_secs(30 * 24 * 3600),
            fruitless_calls: 8,
        }
    }
}
