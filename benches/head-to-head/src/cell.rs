//! Cells of the matrix: which link, which fades, which way, what runs beside the copy.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, ensure};
use linkemu::{ArqKind, BitRate, Duplex, LinkConfig, Preset, WiredConfig};
use nfs_proto::config::{BlockSize, RetryPolicy, Window};
use testbed::{Operation, Plan, Room, figures::link_files};

/// One cell of the matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cell {
    /// The name of a preset of links, of a recorded channel, or of a good link.
    pub(crate) link: &'static str,
    pub(crate) fades: Fades,
    pub(crate) arq: ArqKind,
    pub(crate) operation: Operation,
    pub(crate) beside: Beside,
}

/// What runs on this machine beside the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    Nothing,
    /// A ping(8) through the link.
    Ping,
    /// One process per processor that computes.
    Busy,
}

/// How often and how long the link is bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fades {
    /// Never.
    None,
    /// The papers' periods with this mean, in ms.
    Bad(u64),
    /// Good for 4 s, bad for 2 s on average.
    Outages,
    /// The bursts of the preset, for so many per cent of the time.
    Loss(u32),
    /// As they were recorded.
    Recorded(&'static Recorded),
    /// None: a good link.
    Good(Good),
    /// A good link that loses one packet of a thousand, each by itself.
    Random(Good),
}

/// A good link: both ends send at this rate, at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Good {
    /// In Mbit/s; none is unlimited.
    rate: Option<u64>,
    round_trip: Duration,
}

impl Good {
    /// Those of the matrix: from a slow line to a loopback, from a switch to another continent.
    fn all() -> impl Iterator<Item = Self> {
        let rates = [Some(10), Some(50), Some(100), Some(300), Some(1000), None];
        let round_trips = [200, 1_000, 5_000, 10_000, 50_000].map(Duration::from_micros);
        rates.into_iter().flat_map(move |rate| round_trips.map(|round_trip| Self { rate, round_trip }))
    }

    fn name(self) -> String {
        format!("{}-{:?}", self.rate_option(), self.round_trip)
    }

    fn rate_option(self) -> String {
        self.rate.map_or_else(|| "unlimited".to_owned(), |rate| format!("{rate}M"))
    }

    /// Its options, as `nfsw link exec` takes them.
    fn options(self) -> String {
        format!("--rate {} --delay {:?} --duplex full", self.rate_option(), self.round_trip / 2)
    }

    fn config(self) -> LinkConfig {
        let rate = self.rate.map_or(BitRate::UNLIMITED, BitRate::megabits);
        let mut link = LinkConfig::default();
        (link.rate, link.delay, link.duplex) = (rate.into(), self.round_trip / 2, Duplex::Full);
        link.wired = WiredConfig::unlimited();
        link
    }

    /// How long the link is good on average if periods that are shorter than a packet destroy one of a thousand: a thousand packets
    /// of 1500 bytes. A link without limit has no packets that last: as at 1 Gbit/s.
    fn between_losses(self) -> Duration {
        Duration::from_micros(12_000_000 / self.rate.unwrap_or(1000))
    }
}

/// A recorded channel.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// Its link file, as the command line takes it.
    file: PathBuf,
    link: LinkConfig,
}

impl PartialEq for Recorded {
    fn eq(&self, other: &Self) -> bool {
        self.file == other.file
    }
}

impl Eq for Recorded {}

/// The link of the papers.
pub(crate) const PAPER: &str = "paper-1997";
/// Links on which 16 MB take seconds.
const FAST: [&str; 4] = ["wifi-54", "wifi-edge", "lan-50ms", "satellite-600"];
const ARQS: [ArqKind; 3] = [ArqKind::None, ArqKind::StopAndWait, ArqKind::SelectiveRepeat];
const OPERATIONS: [Operation; 2] = [Operation::Read, Operation::Write];

impl Cell {
    /// Copies over the recorded channels of a directory, those of its `*.toml`.
    ///
    /// # Errors
    /// When there are none, or one cannot be read.
    pub(crate) fn recorded(directory: &Path) -> anyhow::Result<Vec<Self>> {
        let shown = || format!("--traces {}", directory.display());
        let files = link_files(directory).with_context(shown)?;
        ensure!(!files.is_empty(), "{}: no *.toml there", shown());
        let mut cells = Vec::new();
        for file in files {
            let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            let read = |name: &str| fs::read_to_string(directory.join(name));
            let link = LinkConfig::from_toml(&text, read).with_context(|| file.display().to_string())?;
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            // A matrix lives as long as the program.
            let (name, recorded) = (&*name.leak(), &*Box::leak(Box::new(Recorded { file, link })));
            cells.extend(OPERATIONS.map(|operation| Self {
                link: name,
                fades: Fades::Recorded(recorded),
                arq: ArqKind::None,
                operation,
                beside: Beside::Nothing,
            }));
        }
        Ok(cells)
    }

    /// Copies over good links: nothing lost, or one packet of a thousand; on an idle machine, and on a busy one.
    pub(crate) fn good() -> Vec<Self> {
        let mut cells = Vec::new();
        for good in Good::all() {
            let name = &*good.name().leak();
            // Nothing is lost by itself in no time.
            let random = good.rate.map(|_| (Fades::Random(good), Beside::Nothing));
            let clean = [Beside::Nothing, Beside::Busy].map(|beside| (Fades::Good(good), beside));
            for (fades, beside) in clean.into_iter().chain(random) {
                cells.extend(OPERATIONS.map(|operation| Self {
                    link: name,
                    fades,
                    arq: ArqKind::None,
                    operation,
                    beside,
                }));
            }
        }
        cells
    }

    /// The whole matrix, but for recorded channels and good links.
    pub(crate) fn all() -> Vec<Self> {
        let slow = [Fades::None, Fades::Bad(40), Fades::Bad(80), Fades::Bad(160), Fades::Outages];
        let fast = [Fades::None, Fades::Loss(1), Fades::Loss(3)];
        let links = std::iter::once((PAPER, &slow[..])).chain(FAST.map(|preset| (preset, &fast[..])));
        let mut cells = Vec::new();
        for (link, fades) in links {
            for arq in ARQS.into_iter().filter(|arq| is_possible(link, *arq)) {
                for &fades in fades {
                    cells.extend(OPERATIONS.map(|operation| Self {
                        link,
                        fades,
                        arq,
                        operation,
                        beside: Beside::Nothing,
                    }));
                }
            }
        }
        cells.extend([Fades::None, Fades::Bad(80)].map(|fades| Self {
            link: PAPER,
            fades,
            arq: ArqKind::None,
            operation: Operation::Read,
            beside: Beside::Ping,
        }));
        cells
    }

    /// The options of `nfsw link exec`, but for the seed.
    pub(crate) fn options(&self) -> Vec<String> {
        let fades = match self.fades {
            Fades::None => "--bad 0".to_owned(),
            Fades::Bad(mean) => format!("--bad {mean}ms"),
            Fades::Outages => "--good 4s --bad 2s".to_owned(),
            Fades::Loss(per_cent) => format!("--loss {per_cent}%"),
            Fades::Recorded(recorded) => {
                return vec!["--config".to_owned(), recorded.file.display().to_string()];
            }
            Fades::Good(good) => return words(&good.options()),
            Fades::Random(good) => {
                let lossy = format!("{} --good {:?} --bad 1us", good.options(), good.between_losses());
                return words(&lossy);
            }
        };
        let line = format!("--preset {} {fades} --arq {}", self.link, self.arq);
        words(&line)
    }

    /// The same for the testbed, which knows the limit and computes the copy in virtual time.
    ///
    /// # Errors
    /// None for cells of the matrix.
    pub(crate) fn plan(&self, size: u64) -> anyhow::Result<Plan> {
        let mut link = match self.fades {
            Fades::Recorded(recorded) => recorded.link.clone(),
            Fades::Good(good) | Fades::Random(good) => good.config(),
            _ => Preset::named(self.link)?.config(),
        };
        match self.fades {
            Fades::None => link.channel.set_bad_mean(Duration::ZERO),
            Fades::Bad(mean) => link.channel.set_bad_mean(Duration::from_millis(mean)),
            Fades::Outages => {
                link.channel.set_good_mean(Duration::from_secs(4));
                link.channel.set_bad_mean(Duration::from_secs(2));
            }
            Fades::Loss(per_cent) => link.channel.set_loss(format!("{per_cent}%").parse()?)?,
            Fades::Recorded(_) | Fades::Good(_) => {}
            Fades::Random(good) => {
                link.channel.set_good_mean(good.between_losses());
                link.channel.set_bad_mean(Duration::from_micros(1));
            }
        }
        link.arq.kind = self.arq;
        let mut room = Room::named("modern")?;
        room.link = link;
        // What ganesha takes on a quiet machine.
        room.server.read = Duration::from_micros(100);
        room.server.write = Duration::from_micros(100);
        let mut plan = Plan::new(room);
        (plan.operation, plan.size, plan.policy) = (self.operation, size, RetryPolicy::Adaptive);
        (plan.block, plan.window) = (BlockSize::Auto { max: None }, Window::Auto);
        Ok(plan)
    }

    /// The plan whose limit is shown: with the papers' blocks on the papers' link.
    ///
    /// # Errors
    /// None for cells of the matrix.
    pub(crate) fn limiting(&self, size: u64) -> anyhow::Result<Plan> {
        let mut plan = self.plan(size)?;
        if self.link == PAPER {
            plan.block = BlockSize::Exact(4096);
        }
        Ok(plan)
    }

    /// Bytes of the file: 1 MB on the papers' link, half a minute at the mean rate of a recorded channel, four seconds and at most
    /// 128 MB on a good link, 16 MB elsewhere.
    pub(crate) fn size(&self) -> u64 {
        match self.fades {
            Fades::Recorded(recorded) => recorded.link.rate.mean().bits_per_second() / 8 * 30,
            Fades::Good(good) | Fades::Random(good) => (good.rate.unwrap_or(1000) << 19).min(128 << 20),
            _ if self.link == PAPER => 1 << 20,
            _ => 16 << 20,
        }
    }

    /// What a copy asks of the machine: 10 for its processes, and three for each Mbit/s of its link. Two copies over UDP at 54 Mbit/s
    /// beside each other took up to twice as long on two processors.
    ///
    /// On a good link, the whole machine.
    pub(crate) fn load(&self) -> u64 {
        let rate = match self.fades {
            Fades::Good(_) | Fades::Random(_) => return u64::MAX,
            Fades::Recorded(recorded) => recorded.link.rate.mean(),
            _ => Preset::named(self.link).map_or(BitRate::UNLIMITED, |preset| preset.config().rate.mean()),
        };
        10 + rate.bits_per_second() / 1_000_000 * 3
    }

    /// Seconds of a copy, the mean over all programs of a whole matrix.
    pub(crate) fn usual_seconds(&self) -> f64 {
        match self.link {
            _ if matches!(self.fades, Fades::Recorded(_)) => 35.0,
            PAPER | "wifi-edge" => 15.0,
            "satellite-600" => 40.0,
            "lan-50ms" => 10.0,
            _ => 5.0,
        }
    }

    /// How late deliveries may be at the 99th percentile, in ms, before the link is not the one that was asked for.
    pub(crate) fn late_ms(&self) -> f64 {
        match self.link {
            // That is what is measured.
            _ if self.beside == Beside::Busy => f64::INFINITY,
            PAPER | "satellite-600" => 5.0,
            _ if matches!(self.fades, Fades::Good(_) | Fades::Random(_)) => 5.0,
            // Copies at these rates need the processors, so that a busy machine delays them before the link is late.
            "wifi-54" | "lan-50ms" if self.arq == ArqKind::None => 0.5,
            _ => 2.0,
        }
    }

    /// Whether a pattern, parts of the name between `/` with `*` for any, matches its beginning.
    pub(crate) fn matches(&self, pattern: &str) -> bool {
        let name = self.to_string();
        let mut parts = name.split('/');
        pattern.split('/').all(|wanted| parts.next().is_some_and(|part| wanted == "*" || wanted == part))
    }
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// Whether a link can have this kind of ARQ: stop-and-wait sends a frame in each round trip of the link, so that over 50 ms 16 MB would take
/// nine minutes.
fn is_possible(link: &str, arq: ArqKind) -> bool {
    arq != ArqKind::StopAndWait || !matches!(link, "lan-50ms" | "satellite-600")
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.link, self.fades, self.arq, self.operation.name())?;
        match self.beside {
            Beside::Nothing => Ok(()),
            Beside::Ping => f.write_str("/ping"),
            Beside::Busy => f.write_str("/busy"),
        }
    }
}

impl fmt::Display for Fades {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None | Self::Good(_) => f.write_str("clean"),
            Self::Random(_) => f.write_str("0.1%"),
            Self::Bad(mean) => write!(f, "{mean}ms"),
            Self::Outages => f.write_str("outages"),
            Self::Loss(per_cent) => write!(f, "{per_cent}%"),
            Self::Recorded(_) => f.write_str("recorded"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_can_be_and_has_a_name_of_its_own() {
        let cells = Cell::all();
        let names: std::collections::BTreeSet<String> = cells.iter().map(Cell::to_string).collect();
        assert_eq!((cells.len(), names.len()), (30 + 60 + 2, cells.len()));
        for cell in cells {
            let limit = testbed::Limit::of_seed(&cell.limiting(cell.size()).unwrap(), 1).unwrap();
            assert!(limit.is_some_and(|limit| limit.physical > Duration::from_secs(1)), "{cell}");
        }
    }

    #[test]
    fn good_links_have_names_options_and_a_limit() {
        let cells = Cell::good();
        let names: std::collections::BTreeSet<String> = cells.iter().map(Cell::to_string).collect();
        assert_eq!((cells.len(), names.len()), (2 * (6 + 6 + 5) * 5, cells.len()));
        let cell = |name: &str| *cells.iter().find(|cell| cell.to_string() == name).unwrap();
        let busy = cell("300M-10ms/clean/none/write/busy");
        assert_eq!(busy.options().join(" "), "--rate 300M --delay 5ms --duplex full");
        let lossy = cell("100M-200µs/0.1%/none/read");
        let options = lossy.options().join(" ");
        assert_eq!(options, "--rate 100M --delay 100µs --duplex full --good 120ms --bad 1us");
        for (cell, limit_s) in [(busy, 3.7), (lossy, 4.4)] {
            let limit = testbed::Limit::of_seed(&cell.limiting(cell.size()).unwrap(), 1).unwrap().unwrap();
            assert!((limit.physical.as_secs_f64() - limit_s).abs() < 0.2, "{cell}: {limit:?}");
        }
    }

    #[test]
    fn recorded_channels_are_cells_of_a_size_of_their_own() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Cell::recorded(directory.path()).unwrap_err().to_string().contains("no *.toml"));
        // One packet of 1504 bytes a millisecond: 12 Mbit/s.
        fs::write(directory.path().join("train.trace"), "1\n2\n3\n4\n").unwrap();
        fs::write(directory.path().join("train.toml"), "rate_trace = \"train.trace\"\ndelay = \"20ms\"\n")
            .unwrap();
        let cells = Cell::recorded(directory.path()).unwrap();
        let names: Vec<String> = cells.iter().map(Cell::to_string).collect();
        assert_eq!(names, ["train/recorded/none/read", "train/recorded/none/write"]);
        assert_eq!(cells[0].size(), 1504 * 30_000);
        assert!(cells[0].options()[1].ends_with("train.toml"));
        let limit = testbed::Limit::of_seed(&cells[0].limiting(1 << 20).unwrap(), 1).unwrap().unwrap();
        assert!((700..800).contains(&limit.physical.as_millis()), "{limit:?}");
    }

    #[test]
    fn patterns_match_from_the_beginning() {
        let count = |pattern| Cell::all().iter().filter(|cell| cell.matches(pattern)).count();
        assert_eq!(count("paper-1997/80ms/none/read"), 2);
        assert_eq!(count("paper-1997/*/none/read/ping"), 2);
        assert_eq!(count("lan-50ms/3%"), 4);
        assert_eq!(count("*/*/*/write"), 45);
        assert_eq!(count("lan"), 0);
    }
}
