//! The tables of the matrix, as they are written in TOML.

use std::{collections::BTreeMap, sync::OnceLock};

use serde::Deserialize;

/// One line of the matrix: commands, and what must be true afterwards.
///
/// In commands and paths `@NAME` is a path on the server and `./NAME` a local one, each in a directory of the
/// step's own; `@@` is the server itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    /// What is tried; the line's name in the document.
    pub(crate) name: String,
    /// Which lanes run it: `all` lanes, those with other `sizes`, one lane by name.
    pub(crate) lanes: Vec<String>,
    /// Run with `--transport auto`, too.
    #[serde(default)]
    pub(crate) auto: bool,
    /// Over TCP only, with the reason in the step's comment.
    #[serde(default)]
    pub(crate) tcp_only: bool,
    /// Local files before the step.
    #[serde(default)]
    pub(crate) here: BTreeMap<String, Fixture>,
    /// Files on the server before the step.
    #[serde(default)]
    pub(crate) there: BTreeMap<String, Fixture>,
    /// Commands, one after the other.
    pub(crate) run: Vec<Command>,
    /// Pairs of files or trees that hold the same names and bytes.
    #[serde(default)]
    pub(crate) same: Vec<(String, String)>,
    /// Pairs whose modes and times of modification are the same, too.
    #[serde(default)]
    pub(crate) same_attributes: Vec<(String, String)>,
    /// All names in a directory.
    #[serde(default)]
    pub(crate) names: BTreeMap<String, Vec<String>>,
    /// Permissions in octal.
    #[serde(default)]
    pub(crate) modes: BTreeMap<String, String>,
    /// Targets of symbolic links.
    #[serde(default)]
    pub(crate) links: BTreeMap<String, String>,
    /// Names that are the same file.
    #[serde(default)]
    pub(crate) one_file: Vec<(String, String)>,
    /// Bytes on the wire over TCP, both ways, at most, as a multiple of the bytes of all files before the step.
    #[serde(default)]
    pub(crate) wire: Option<f64>,
    /// Calls over TCP, at most.
    #[serde(default)]
    pub(crate) calls: Option<u64>,
    /// Seconds until a command counts as one that never ends.
    #[serde(default = "default_limit")]
    pub(crate) limit_s: u64,
}

fn default_limit() -> u64 {
    60
}

/// A file or a tree before a step.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Fixture {
    /// So many bytes.
    File(u64),
    /// `directory`, `tree`, `bytes`, `many`, `holes`, or `-> TARGET`.
    Named(String),
}

/// A command of a step.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "WrittenCommand")]
pub(crate) struct Command {
    /// Arguments of `nfsw`.
    pub(crate) words: String,
    /// Its exit status.
    pub(crate) status: i32,
    /// A file for its standard input.
    pub(crate) stdin: Option<String>,
    /// A file with the same bytes as its standard output.
    pub(crate) stdout: Option<String>,
    /// Texts in its standard output.
    pub(crate) prints: Vec<String>,
    /// Lines of its standard output.
    pub(crate) lines: Option<usize>,
    /// Texts in its standard error.
    pub(crate) says: Vec<String>,
    /// File bytes in its summary, at most.
    pub(crate) moved: Option<u64>,
    /// What happens when so many bytes are there.
    pub(crate) meanwhile: Option<Meanwhile>,
}

/// What happens while a command runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Meanwhile {
    /// The file that grows.
    pub(crate) file: String,
    /// Its bytes when it happens.
    pub(crate) bytes: u64,
    /// What happens.
    pub(crate) event: Event,
}

/// What can happen to a command.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Event {
    /// The command is killed.
    Kill,
    /// The server loses its power and comes back.
    Crash,
    /// The server forgets its exports for a second.
    Reexport,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenCommand {
    Words(String),
    Whole(WholeCommand),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WholeCommand {
    words: String,
    #[serde(default)]
    status: i32,
    stdin: Option<String>,
    stdout: Option<String>,
    #[serde(default)]
    prints: Vec<String>,
    lines: Option<usize>,
    #[serde(default)]
    says: Vec<String>,
    moved: Option<u64>,
    meanwhile: Option<Meanwhile>,
}

impl From<WrittenCommand> for Command {
    fn from(written: WrittenCommand) -> Self {
        let whole = match written {
            WrittenCommand::Whole(whole) => whole,
            WrittenCommand::Words(words) => WholeCommand {
                words,
                status: 0,
                stdin: None,
                stdout: None,
                prints: Vec::new(),
                lines: None,
                says: Vec::new(),
                moved: None,
                meanwhile: None,
            },
        };
        let WholeCommand { words, status, stdin, stdout, prints, lines, says, moved, meanwhile } = whole;
        Self { words, status, stdin, stdout, prints, lines, says, moved, meanwhile }
    }
}

/// How a command reaches the server.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Transport {
    /// Over UDP only.
    Udp,
    /// Over TCP only.
    Tcp,
    /// Over what the client finds best.
    Auto,
}

impl Transport {
    /// The value of `--transport`.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Auto => "auto",
        }
    }
}

/// A group of cells where a step does not pass.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expectation {
    /// Lanes; a name that ends in `*` stands for all that begin so.
    lanes: Vec<String>,
    /// Steps, in the same way.
    steps: Vec<String>,
    /// Transports; all without it.
    transports: Option<Vec<Transport>>,
    /// Why the server cannot do it: the words of the RFC or of the server.
    cannot: Option<String>,
    /// What this project does wrong.
    red: Option<String>,
    /// Text that the failure shows.
    pub(crate) shows: String,
    /// Seconds instead of the step's limit: no need to wait a minute for what does not end.
    pub(crate) limit_s: Option<u64>,
    /// It depends on chance.
    #[serde(default)]
    pub(crate) or_passes: bool,
}

impl Expectation {
    /// Whether the cell is a fault of this project.
    pub(crate) fn is_red(&self) -> bool {
        self.red.is_some()
    }

    /// Why the step does not pass.
    pub(crate) fn reason(&self) -> &str {
        self.red.as_ref().or(self.cannot.as_ref()).map_or("", String::as_str)
    }

    fn covers(&self, lane: &str, step: &str, transport: Transport) -> bool {
        let among = |names: &[String], name: &str| {
            names.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => pattern == name,
            })
        };
        among(&self.lanes, lane)
            && among(&self.steps, step)
            && self.transports.as_ref().is_none_or(|transports| transports.contains(&transport))
    }
}

/// Returns what is expected of a cell unless that it passes: the first that covers it.
pub(crate) fn expected<'a>(
    expectations: &'a [Expectation],
    lane: &str,
    step: &str,
    transport: Transport,
) -> Option<&'a Expectation> {
    expectations.iter().find(|expectation| expectation.covers(lane, step, transport))
}

/// Returns all steps.
pub(crate) fn steps() -> &'static [Step] {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        step: Vec<Step>,
    }
    static STEPS: OnceLock<Vec<Step>> = OnceLock::new();
    STEPS.get_or_init(|| {
        toml::from_str::<File>(include_str!("../../matrix/steps.toml")).expect("steps.toml is valid").step
    })
}

/// Returns all expectations.
pub(crate) fn expectations() -> Vec<Expectation> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[serde(default)]
        expect: Vec<Expectation>,
    }
    let file: File =
        toml::from_str(include_str!("../../matrix/expectations.toml")).expect("expectations.toml is valid");
    for expectation in &file.expect {
        assert!(
            expectation.red.is_some() != expectation.cannot.is_some(),
            "an expectation is either red or cannot: {expectation:?}"
        );
    }
    file.expect
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane;

    #[test]
    fn every_expectation_covers_a_cell() {
        for expectation in expectations() {
            let covers = |lane: &lane::Lane| {
                let run = steps().iter().filter(|step| lane.runs(step));
                run.flat_map(|step| lane.transports(step).map(|transport| (&step.name, transport)))
                    .any(|(step, transport)| expectation.covers(lane.name, step, transport))
            };
            assert!(lane::ALL.iter().any(covers), "no cell is meant by {expectation:?}");
        }
    }

    #[test]
    fn every_step_has_a_name_of_its_own_and_a_lane() {
        for (index, step) in steps().iter().enumerate() {
            assert!(steps()[..index].iter().all(|other| other.name != step.name), "{} is twice", step.name);
            assert!(lane::ALL.iter().any(|lane| lane.runs(step)), "{} is never run", step.name);
        }
    }
}
