//! All copies that were made, and where they are kept.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    io::Write as _,
    path::PathBuf,
};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::{
    cell::Cell,
    program::PROGRAMS,
    summary::Row,
    trial::{Outcome, Task, Trial},
};

/// What was measured on: the first line of a file of results.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Setting {
    pub(crate) versions: BTreeMap<String, String>,
    pub(crate) processors: usize,
}

/// Cell, program, congestion control and seed.
type Key = (String, String, String, u64);

/// All copies of a run, or of several.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) settings: Vec<Setting>,
    trials: BTreeMap<Key, Trial>,
    latest: String,
}

impl Results {
    pub(crate) fn new(setting: Setting) -> Self {
        Self { settings: vec![setting], ..Self::default() }
    }

    /// Reads files of results.
    pub(crate) fn read(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let mut results = Self::default();
        for path in paths {
            let name = path.display();
            let text = fs::read_to_string(path).with_context(|| name.to_string())?;
            let mut lines = text.lines();
            let setting = lines.next().and_then(|line| serde_json::from_str(line).ok());
            let setting = setting.with_context(|| format!("{name}: not a trials.jsonl"))?;
            if !results.settings.contains(&setting) {
                results.settings.push(setting);
            }
            for (number, line) in lines.enumerate() {
                let trial =
                    serde_json::from_str(line).with_context(|| format!("{name}, line {}", number + 2))?;
                results.add(trial);
            }
        }
        Ok(results)
    }

    pub(crate) fn add(&mut self, trial: Trial) {
        let contender = format!("{} {}", trial.program, trial.congestion);
        let ratio = trial.seconds / trial.limit_s;
        let Trial { cell, seed, seconds, outcome, .. } = &trial;
        self.latest = format!(
            "{cell}, seed {seed}, {}: {seconds:.2} s, {ratio:.2} x limit, {outcome:?}",
            contender.trim_end()
        );
        if trial.repeated > 0 {
            let _ = write!(self.latest, "; made {} times, as link or machine were late", trial.repeated + 1);
        }
        let key = (cell.clone(), trial.program.clone(), trial.congestion.clone(), *seed);
        self.trials.insert(key, trial);
    }

    /// Whether a copy was made.
    pub(crate) fn has(&self, task: &Task<'_>) -> bool {
        let (program, congestion) = (task.program.name.to_owned(), task.congestion.to_owned());
        self.trials.contains_key(&(task.cell.to_string(), program, congestion, task.seed))
    }

    /// Writes a trials.jsonl of one setting.
    pub(crate) fn write(&self, file: &mut fs::File) -> anyhow::Result<()> {
        writeln!(file, "{}", serde_json::to_string(&self.settings[0])?)?;
        for trial in self.trials() {
            writeln!(file, "{}", serde_json::to_string(trial)?)?;
        }
        Ok(())
    }

    /// What was added last, in words.
    pub(crate) fn latest(&self) -> &str {
        &self.latest
    }

    pub(crate) fn len(&self) -> usize {
        self.trials.len()
    }

    pub(crate) fn trials(&self) -> impl Iterator<Item = &Trial> {
        self.trials.values()
    }

    /// Seconds of two contenders, program and congestion control, over the seeds for which both have a copy that is right.
    pub(crate) fn pair(&self, cell: &str, ours: (&str, &str), theirs: (&str, &str)) -> Option<(f64, f64)> {
        let find = |(program, congestion): (&str, &str), seed| {
            let key = (cell.to_owned(), program.to_owned(), congestion.to_owned(), seed);
            self.trials.get(&key).filter(|trial| trial.outcome == Outcome::Intact).map(|trial| trial.seconds)
        };
        let seeds: BTreeSet<u64> =
            self.trials().filter(|trial| trial.cell == cell).map(|trial| trial.seed).collect();
        let both = seeds.into_iter().filter_map(|seed| Some((find(ours, seed)?, find(theirs, seed)?)));
        both.reduce(|sums, both| (sums.0 + both.0, sums.1 + both.1))
    }

    /// Returns the first cell that is not one of all.
    pub(crate) fn unknown(&self, all: &[Cell]) -> Option<&str> {
        let known: BTreeSet<String> = all.iter().map(Cell::to_string).collect();
        self.trials().map(|trial| trial.cell.as_str()).find(|cell| !known.contains(*cell))
    }

    /// Sums, in the order of the matrix.
    pub(crate) fn rows(&self, all: &[Cell]) -> Vec<Row> {
        let cells: Vec<String> = all.iter().map(Cell::to_string).collect();
        let place = |trial: &Trial| {
            let cell = cells.iter().position(|cell| *cell == trial.cell);
            let program = PROGRAMS.iter().position(|program| program.name == trial.program);
            // cubic before bbr.
            (cell, program, std::cmp::Reverse(trial.congestion.clone()))
        };
        let mut groups: BTreeMap<_, Vec<&Trial>> = BTreeMap::new();
        for trial in self.trials() {
            groups.entry(place(trial)).or_default().push(trial);
        }
        groups.values().filter_map(|trials| Row::of(trials)).collect()
    }
}
