//! Changing a share that runs: `--list`, `--stop`, `--allow`, `--extend` ask its process, on a socket that is this user's alone.

use std::{path::Path, time::Duration};

use serde_json::{Value, json};

use crate::{
    args::ShareArgs,
    error::show,
    exit::{Exit, Failure},
    report::Reporter,
    sockets::{Sockets, Told},
    text::escape,
};

/// What a share is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    List,
    Stop(String),
    Allow(String, Duration),
    Extend(Duration),
}

impl Question {
    /// Returns what a command line asks; `None` if it begins a share.
    pub(super) fn of(arguments: &ShareArgs) -> Option<Self> {
        let ShareArgs { list, stop, allow, extend, lifetime, .. } = arguments;
        if *list {
            return Some(Self::List);
        }
        let stop = stop.clone().map(Self::Stop);
        let allow = || allow.clone().map(|whom| Self::Allow(whom, *lifetime));
        stop.or_else(allow).or_else(|| extend.map(Self::Extend))
    }

    fn to_json(&self) -> Value {
        let millis = |time: &Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        match self {
            Self::List => json!({ "ask": "list" }),
            Self::Stop(whom) => json!({ "ask": "stop", "whom": whom }),
            Self::Allow(whom, time) => json!({ "ask": "allow", "whom": whom, "ms": millis(time) }),
            Self::Extend(time) => json!({ "ask": "extend", "ms": millis(time) }),
        }
    }

    /// Reads what [`Self::to_json`] has written.
    pub(super) fn from_json(value: &Value) -> Option<Self> {
        let whom = || Some(value["whom"].as_str()?.to_owned());
        let time = || Some(Duration::from_millis(value["ms"].as_u64()?));
        Some(match value["ask"].as_str()? {
            "list" => Self::List,
            "stop" => Self::Stop(whom()?),
            "allow" => Self::Allow(whom()?, time()?),
            "extend" => Self::Extend(time()?),
            _ => return None,
        })
    }
}

/// Where shares that run can be asked.
pub(super) fn sockets() -> Option<Sockets> {
    Sockets::of("sharing")
}

/// Returns what a share answers: what there is to say, or why not.
pub(super) fn answer(title: &str, said: anyhow::Result<String>) -> Value {
    match said {
        Ok(said) => json!({ "title": title, "said": said }),
        Err(error) => json!({ "title": title, "error": error.to_string() }),
    }
}

/// Asks the share that is meant, or with `--list` all that are.
pub(super) fn ask(question: &Question, wanted: Option<&Path>, reporter: &Reporter) -> anyhow::Result<()> {
    let failed = |error: std::io::Error| {
        let text = format!("the shares of this user cannot be listed: {}", crate::error::io_text(&error));
        Failure::with(Exit::LocalIo, text)
    };
    let Some(sockets) = sockets() else { return nothing(wanted) };
    let (mut running, mut silent) = (Vec::new(), 0);
    for name in sockets.names().map_err(failed)? {
        match sockets.ask(&name, &Question::List.to_json()) {
            Some(Told::State(state)) => running.push((name, state)),
            Some(Told::Silent(path)) => {
                silent += 1;
                reporter.warning(format_args!("the share behind {} does not respond", show(&path)));
            }
            None => {}
        }
    }
    if let Some(wanted) = wanted {
        let id = wanted.canonicalize().ok().map(|path| super::kept::id(&path));
        let is_meant = |(name, state): &(String, Value)| {
            id.as_ref() == Some(name) || state["title"].as_str().map(Path::new) == Some(wanted)
        };
        running.retain(is_meant);
    }
    if *question == Question::List {
        if running.is_empty() && silent == 0 {
            reporter.note("nothing is shared");
        }
        running.iter().try_for_each(|(_, state)| print(state, reporter))?;
        return match silent {
            0 => Ok(()),
            _ => Err(Failure::with(Exit::Unreachable, "not all shares respond")),
        };
    }
    match &running[..] {
        [] if silent > 0 => Err(Failure::with(Exit::Unreachable, "the share does not respond")),
        [] => nothing(wanted),
        [(name, _)] => match sockets.ask(name, &question.to_json()) {
            Some(Told::State(state)) => print(&state, reporter),
            Some(Told::Silent(_)) => Err(Failure::with(Exit::Unreachable, "the share does not respond")),
            None => nothing(wanted),
        },
        several => {
            let title = |(_, state): &(String, Value)| escape(title(state).as_bytes()).into_owned();
            let titles: Vec<_> = several.iter().map(title).collect();
            let text = format!("several shares run: {}; say which, as DIR", titles.join(", "));
            Err(Failure::with(Exit::Usage, text))
        }
    }
}

fn title(state: &Value) -> &str {
    state["title"].as_str().unwrap_or_default()
}

fn print(state: &Value, reporter: &Reporter) -> anyhow::Result<()> {
    match (state["said"].as_str(), state["error"].as_str()) {
        (Some(said), _) => reporter.print(said.as_bytes()),
        (None, error) => {
            Err(Failure::with(Exit::Usage, error.unwrap_or("the share does not understand this").to_owned()))
        }
    }
}

fn nothing(wanted: Option<&Path>) -> anyhow::Result<()> {
    let text = match wanted {
        Some(wanted) => format!("{} is not shared", show(wanted)),
        None => "nothing is shared".to_owned(),
    };
    Err(Failure::with(Exit::SourceMissing, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_read_as_they_were_written() {
        let time = Duration::from_millis(90_500);
        for question in [
            Question::List,
            Question::Stop("sophia".to_owned()),
            Question::Allow("boss=documents".to_owned(), time),
            Question::Extend(time),
        ] {
            assert_eq!(Question::from_json(&question.to_json()), Some(question));
        }
        for other in [json!(null), json!({ "ask": "what" }), json!({ "ask": "stop" }), json!([1])] {
            assert_eq!(Question::from_json(&other), None, "{other}");
        }
    }
}
