//! Cells of the matrix: which link, which fades, which way.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, ensure};
use linkemu::{ArqKind, BitRate, LinkConfig, Preset};
use nfs_proto::config::{BlockSize, RetryPolicy, Window};
use testbed::{Operation, Plan, Room, figures::link_files};

/// One cell of the matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cell {
    /// The name of a preset of links, or of a recorded channel.
    pub(crate) link: &'static str,
    pub(crate) fades: Fades,
    pub(crate) arq: ArqKind,
    pub(crate) operation: Operation,
    /// Whether somebody pings beside the copy.
    pub(crate) ping: bool,
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
                ping: false,
            }));
        }
        Ok(cells)
    }

    /// The whole matrix, but for recorded channels.
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
                        ping: false,
                    }));
                }
            }
        }
        let beside =
            |fades| Self { link: PAPER, fades, arq: ArqKind::None, operation: Operation::Read, ping: true };
        cells.extend([Fades::None, Fades::Bad(80)].map(beside));
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
        };
        let line = format!("--preset {} {fades} --arq {}", self.link, self.arq);
        line.split(' ').map(str::to_owned).collect()
    }

    /// The same for the testbed, which knows the limit and computes the copy in virtual time.
    ///
    /// # Errors
    /// None for cells of the matrix.
    pub(crate) fn plan(&self, size: u64) -> anyhow::Result<Plan> {
        let mut link = match self.fades {
            Fades::Recorded(recorded) => recorded.link.clone(),
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
            Fades::Recorded(_) => {}
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

    /// Bytes of the file: 1 MB on the papers' link, half a minute at the mean rate of a recorded channel, 16 MB elsewhere.
    pub(crate) fn size(&self) -> u64 {
        match self.fades {
            Fades::Recorded(recorded) => recorded.link.rate.mean().bits_per_second() / 8 * 30,
            _ if self.link == PAPER => 1 << 20,
            _ => 16 << 20,
        }
    }

    /// What a copy asks of the machine: 10 for its processes, and three for each Mbit/s of its link. Two copies over UDP at 54 Mbit/s
    /// beside each other took up to twice as long on two processors.
    pub(crate) fn load(&self) -> u64 {
        let rate = match self.fades {
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
            PAPER | "satellite-600" => 5.0,
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

/// Whether a link can have this kind of ARQ: stop-and-wait sends a frame in each round trip of the link, so that over 50 ms 16 MB would take
/// nine minutes.
fn is_possible(link: &str, arq: ArqKind) -> bool {
    arq != ArqKind::StopAndWait || !matches!(link, "lan-50ms" | "satellite-600")
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.link, self.fades, self.arq, self.operation.name())?;
        if self.ping { f.write_str("/ping") } else { Ok(()) }
    }
}

impl fmt::Display for Fades {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("clean"),
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
