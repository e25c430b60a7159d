//! The papers' numbers, from the data files in `published/`.
//!
//! A file holds what tables and sentences state. Curves that exist only as pictures have no points here: their items say
//! so, and name the tables of the same experiments.

use serde::Deserialize;
use thiserror::Error;

/// All that the papers publish about the experiments that are repeated here.
#[derive(Clone, Debug)]
pub struct Library {
    papers: Vec<Paper>,
}

impl Library {
    /// Reads the data files that come with the crate.
    ///
    /// # Errors
    /// A file that is not valid, or an item that refers to one that does not exist.
    pub fn new() -> Result<Self, PublishedError> {
        let papers = FILES.iter().map(|&(file, text)| parse(file, text)).collect::<Result<_, _>>()?;
        let library = Self { papers };
        for item in library.items() {
            for name in &item.same_as {
                if library.item(name).is_none() {
                    return Err(PublishedError::Reference { item: item.name.clone(), missing: name.clone() });
                }
            }
        }
        Ok(library)
    }

    /// The item with this name, such as `1995-table-1`.
    pub fn item(&self, name: &str) -> Option<&Item> {
        self.items().find(|item| item.name == name)
    }

    /// The paper that an item is from.
    pub fn paper_of(&self, name: &str) -> Option<&Paper> {
        self.papers.iter().find(|paper| paper.items.iter().any(|item| item.name == name))
    }

    /// An item's own points, then those of the same experiments elsewhere.
    pub fn points<'a>(&'a self, item: &'a Item) -> impl Iterator<Item = &'a Point> {
        let elsewhere =
            item.same_as.iter().filter_map(|name| self.item(name)).flat_map(|other| &other.points);
        item.points.iter().chain(elsewhere)
    }

    /// All items of all papers.
    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.papers.iter().flat_map(|paper| &paper.items)
    }
}

/// One publication.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Authors, title, place and date.
    pub citation: String,
    /// How places in it are named.
    pub pages: String,
    /// Its tables and figures.
    #[serde(rename = "item")]
    pub items: Vec<Item>,
}

/// One table or figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// The name by which it is asked for.
    pub name: String,
    /// Table or figure, and section.
    pub place: String,
    /// What it shows.
    pub title: String,
    /// Where its numbers are from.
    pub obtained: Obtained,
    /// Items that show the same experiments.
    #[serde(default)]
    pub same_as: Vec<String>,
    /// What the paper says of it.
    #[serde(default)]
    pub says: Vec<String>,
    /// Response times.
    #[serde(default)]
    pub points: Vec<Point>,
    /// Other numbers.
    #[serde(default)]
    pub facts: Vec<Fact>,
}

/// Where the numbers of an item are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Obtained {
    /// A printed table.
    Table,
    /// Sentences and captions.
    Text,
}

/// A published response time of a 1 MB file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Reading or writing.
    pub op: Op,
    /// What the client and the link did about errors.
    pub changes: Changes,
    /// Mean bad period, in milliseconds.
    pub bad_ms: f64,
    /// Bytes in a READ or WRITE.
    pub block: u32,
    /// Clients at the same time.
    pub clients: u32,
    /// Shortest time, in seconds.
    pub min_s: Option<f64>,
    /// Mean time, in seconds.
    pub mean_s: f64,
    /// Longest time, in seconds.
    pub max_s: Option<f64>,
}

/// The direction of a copy, seen from the mobile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// From the server.
    Read,
    /// To the server.
    Write,
}

/// The changes that the papers made (Dube et al. 1997 §5.2, §5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Changes {
    /// None: exponential back-off.
    None,
    /// Linear, then exponential back-off.
    Hybrid,
    /// Frames held during bad periods.
    Retransmit,
    /// Hybrid back-off and held frames.
    Both,
}

/// A published number that is no response time.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    /// What was counted or measured.
    pub what: String,
    /// How much.
    pub value: f64,
    /// In which unit.
    pub unit: String,
}

/// Why the data files cannot be used.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum PublishedError {
    /// Not TOML of the expected form.
    #[error("{file}: {source}")]
    Syntax {
        /// Which file.
        file: &'static str,
        /// What is wrong with it.
        source: toml::de::Error,
    },
    /// A number that cannot be.
    #[error("{item}: {problem}")]
    Number {
        /// Which item.
        item: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A reference to nothing.
    #[error("{item} refers to {missing}, which does not exist")]
    Reference {
        /// Which item.
        item: String,
        /// The name it gives.
        missing: String,
    },
}

fn parse(file: &'static str, text: &str) -> Result<Paper, PublishedError> {
    let paper: Paper = toml::from_str(text).map_err(|source| PublishedError::Syntax { file, source })?;
    for item in &paper.items {
        let number = |problem| Err(PublishedError::Number { item: item.name.clone(), problem });
        for point in &item.points {
            let (min, max) = (point.min_s.unwrap_or(point.mean_s), point.max_s.unwrap_or(point.mean_s));
            if !(min > 0.0 && min <= point.mean_s && point.mean_s <= max && max.is_finite()) {
                return number("a mean lies outside its minimum and maximum, or is not positive");
            }
            if !(0.0..=1000.0).contains(&point.bad_ms) || point.block == 0 || point.clients == 0 {
                return number("bad periods are 0 to 1000 ms, blocks and clients at least 1");
            }
        }
        if item.facts.iter().any(|fact| !fact.value.is_finite() || fact.value < 0.0 || fact.unit.is_empty()) {
            return number("a fact needs a unit and a number of at least 0");
        }
        if item.points.is_empty() && item.facts.is_empty() && item.says.is_empty() {
            return number("no points, no facts and no statement");
        }
    }
    Ok(paper)
}

const FILES: [(&str, &str); 4] = [
    ("1993-rx-hex.toml", include_str!("../published/1993-rx-hex.toml")),
    ("1995-dube.toml", include_str!("../published/1995-dube.toml")),
    ("1997-dube.toml", include_str!("../published/1997-dube.toml")),
    ("2005-michalakis.toml", include_str!("../published/2005-michalakis.toml")),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_figure_and_table_is_there_once() {
        let library = Library::new().expect("the files are valid");
        let names: Vec<&str> = library.items().map(|item| item.name.as_str()).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        let expected = (2..=13)
            .chain([17])
            .map(|figure| format!("rxhex-{figure}"))
            .chain((1..=9).map(|table| format!("1995-table-{table}")))
            .chain((3..=9).map(|figure| format!("1997-{figure}")))
            .chain(["2005-2", "2005-3", "2005-4-left", "2005-4-right"].map(str::to_owned));
        assert_eq!(names, expected.collect::<Vec<_>>());
    }

    /// Tables 5 and 6 repeat the means of tables 1 to 4: a slip in copying either would show.
    #[test]
    fn summary_tables_of_1995_repeat_the_detailed_ones() {
        let library = Library::new().expect("the files are valid");
        let points = |tables: &[&str]| -> Vec<(Op, Changes, u64, u64)> {
            let mut keys: Vec<_> = tables
                .iter()
                .flat_map(|table| &library.item(table).expect("a table").points)
                .map(|point| {
                    (point.op, point.changes, point.bad_ms as u64, (point.mean_s * 10.0).round() as u64)
                })
                .collect();
            keys.sort_unstable();
            keys
        };
        let detailed = points(&["1995-table-1", "1995-table-2", "1995-table-3", "1995-table-4"]);
        assert_eq!(detailed.len(), 16);
        assert_eq!(detailed, points(&["1995-table-5", "1995-table-6"]));
    }

    #[test]
    fn figures_of_1997_borrow_the_points_of_1995() {
        let library = Library::new().expect("the files are valid");
        let item = library.item("1997-5").expect("an item");
        let zero: Vec<f64> = library
            .points(item)
            .filter(|point| point.op == Op::Read && point.bad_ms == 0.0)
            .map(|point| point.mean_s)
            .collect();
        assert_eq!(zero, [30.7]);
    }

    #[test]
    fn impossible_numbers_and_unknown_fields_are_refused() {
        let item = "citation = 'c'\npages = 'p'\n[[item]]\nname = 'n'\nplace = 'p'\ntitle = 't'\nobtained = 'table'\n";
        let point = |rest: &str| {
            let point = format!(
                "{{ op = 'read', changes = 'none', bad_ms = 40, block = 4096, clients = 1, {rest} }}"
            );
            parse("x", &format!("{item}points = [{point}]\n"))
        };
        assert!(point("mean_s = 3.0").is_ok());
        assert!(matches!(point("mean_s = -3.0"), Err(PublishedError::Number { .. })));
        assert!(matches!(point("mean_s = 3.0, max_s = 2.0"), Err(PublishedError::Number { .. })));
        assert!(matches!(point("mean_s = 3.0, median_s = 2.0"), Err(PublishedError::Syntax { .. })));
        assert!(matches!(parse("x", item), Err(PublishedError::Number { .. })));
    }
}
