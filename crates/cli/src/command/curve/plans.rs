//! From the options of `nfsw curve` to plans.

use std::fs;

use nfs_wireless_client::{BlockSize, RetryPolicy, Window};
use testbed::{Operation, Outage, Plan, Room};
use toml::{Table, Value};

use super::usage;
use crate::{
    args::{CurveArgs, LinkOptions, Policy, Way},
    error::{local, show},
    exit::Failure,
    units::AutoOr,
};

/// Mean bad periods where the room leaves them open, in ms (Dube et al. 1997 §4.2).
const BAD: &str = "0,20,..,160";

/// Most points of one sweep.
const MAX_POINTS: usize = 100_000;

/// One plan for each combination, those that share a place on a curve's axis next to each other.
pub(super) fn plans(arguments: &CurveArgs) -> anyhow::Result<Vec<Plan>> {
    let (name, table) = room(arguments)?;
    let bads = match &arguments.link.bad {
        Some(text) => list("--bad", text)?.into_iter().map(Some).collect(),
        None if arguments.link.loss.is_none() && leaves_bad_open(&table) => {
            list("--bad", BAD)?.into_iter().map(Some).collect()
        }
        None => vec![None],
    };
    let arqs: Vec<Option<String>> = match &arguments.link.arq {
        Some(text) => text.split(',').map(|name| Some(name.trim().to_owned())).collect(),
        None => vec![None],
    };
    let operations: &[Operation] = match arguments.op {
        Way::Read => &[Operation::Read],
        Way::Write => &[Operation::Write],
        Way::Both => &[Operation::Read, Operation::Write],
    };
    let windows: Vec<Option<AutoOr>> = if arguments.window.is_empty() {
        vec![None]
    } else {
        arguments.window.iter().copied().map(Some).collect()
    };
    let points = [
        bads.len(),
        arqs.len(),
        operations.len(),
        windows.len(),
        arguments.block.len(),
        arguments.policy.len(),
    ];
    if points.iter().product::<usize>() > MAX_POINTS {
        return Err(Failure::usage(format!("these lists make more than {MAX_POINTS} rows; shorten them")));
    }
    let mut plans = Vec::new();
    for &operation in operations {
        for &policy in &arguments.policy {
            for arq in &arqs {
                for block in &arguments.block {
                    for window in &windows {
                        for bad in &bads {
                            let link =
                                LinkOptions { bad: bad.clone(), arq: arq.clone(), ..arguments.link.clone() };
                            let mut plan = Plan::new(furnish(&name, &table, &link)?);
                            plan.operation = operation;
                            plan.policy = retry(policy);
                            plan.block = match block {
                                AutoOr::Auto => BlockSize::Auto { max: None },
                                AutoOr::Exactly(bytes) => BlockSize::Exact(*bytes),
                            };
                            match window {
                                Some(AutoOr::Auto) => plan.window = Window::Auto,
                                Some(AutoOr::Exactly(calls)) => plan.window = Window::Calls(*calls),
                                None => {}
                            }
                            plan.clients = arguments.clients;
                            plan.size = arguments.size;
                            plan.warm = arguments.warm;
                            plan.outages =
                                arguments.outage.iter().map(|&(at, length)| Outage { at, length }).collect();
                            plan.check().map_err(usage)?;
                            plans.push(plan);
                        }
                    }
                }
            }
        }
    }
    Ok(plans)
}

const fn retry(policy: Policy) -> RetryPolicy {
    match policy {
        Policy::Adaptive => RetryPolicy::Adaptive,
        Policy::Hybrid => RetryPolicy::hybrid(),
        Policy::Exponential => RetryPolicy::exponential(),
        Policy::Kernel => RetryPolicy::kernel(),
    }
}

/// The room's name and file, with the link of `--config` in place of its own.
fn room(arguments: &CurveArgs) -> anyhow::Result<(String, Table)> {
    let (name, text) = match Room::file(&arguments.room) {
        Some(text) => (arguments.room.clone(), text.to_owned()),
        None if arguments.room.contains(['/', '.']) => {
            let path = std::path::Path::new(&arguments.room);
            let text = fs::read_to_string(path).map_err(|error| local(path, &error))?;
            let stem = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy();
            (stem.into_owned(), text)
        }
        None => {
            let known = Room::names().collect::<Vec<_>>().join(", ");
            let room = &arguments.room;
            return Err(Failure::usage(format!(
                "--room: there is no room {room:?}; there are {known}, and files"
            )));
        }
    };
    let mut table: Table = text.parse().map_err(|error| Failure::usage(format!("room {name:?}: {error}")))?;
    if let Some(path) = &arguments.link.config {
        let text = fs::read_to_string(path).map_err(|error| local(path, &error))?;
        let link: Table = text.parse().map_err(|error| Failure::usage(format!("{}: {error}", show(path))))?;
        table.insert("link".into(), Value::Table(link));
    }
    Ok((name, table))
}

/// Whether the room is one of those whose link has no bad periods of its own but waits for a mean.
fn leaves_bad_open(table: &Table) -> bool {
    let preset = table.get("link").and_then(|link| link.get("preset")).and_then(Value::as_str);
    preset == Some("paper-1997")
}

/// The room with the link options in its file.
fn furnish(name: &str, table: &Table, options: &LinkOptions) -> anyhow::Result<Room> {
    let mut table = table.clone();
    let link = table.entry("link").or_insert_with(|| Value::Table(Table::new()));
    let Value::Table(link) = link else {
        return Err(Failure::usage(format!("room {name:?}: link is not a table")));
    };
    options.amend(link)?;
    Room::from_toml(name, &table.to_string()).map_err(usage)
}

/// A list of numbers with an optional unit each; `a,b,..,c` goes on in steps of b − a up to c.
fn list(option: &str, text: &str) -> anyhow::Result<Vec<String>> {
    let items: Vec<&str> = text.split(',').map(str::trim).collect();
    let Some(dots) = items.iter().position(|item| *item == "..") else {
        return Ok(items.into_iter().map(str::to_owned).collect());
    };
    let wrong = || {
        Failure::usage(format!(
            "{option} is {text:?}; a series is START,NEXT,..,END in whole ms, such as 0,20,..,160"
        ))
    };
    let number = |index: Option<usize>| -> anyhow::Result<u64> {
        let item = index.and_then(|index| items.get(index)).ok_or_else(wrong)?;
        item.parse().map_err(|_| wrong())
    };
    let (start, next) = (number(dots.checked_sub(2))?, number(dots.checked_sub(1))?);
    let end = number(Some(dots + 1))?;
    let step = next.checked_sub(start).filter(|step| *step > 0).ok_or_else(wrong)?;
    if end < next || items.len() > dots + 2 || (end - start) / step > MAX_POINTS as u64 {
        return Err(wrong());
    }
    let before = items[..dots - 2].iter().map(|&item| item.to_owned());
    Ok(before.chain((0..=(end - start) / step).map(|index| (start + index * step).to_string())).collect())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use linkemu::Periods;

    use super::*;
    use crate::args::{Cli, Command};

    fn parse(options: &[&str]) -> anyhow::Result<Vec<Plan>> {
        let line = ["nfsw", "curve"].iter().chain(options);
        let Command::Curve(arguments) = Cli::parse_from(line).command else { panic!("curve") };
        plans(&arguments)
    }

    fn bad_ms(plan: &Plan) -> u128 {
        let Periods::Drawn { bad, .. } = &plan.room.link.channel.periods else { return 0 };
        bad.mean.as_millis()
    }

    #[test]
    fn every_combination_is_a_plan() {
        let plans = parse(&[
            "--bad",
            "0,20,..,60",
            "--policy",
            "hybrid,kernel",
            "--op",
            "both",
            "--arq",
            "none,ideal",
        ]);
        let plans = plans.unwrap();
        assert_eq!(plans.len(), 4 * 2 * 2 * 2);
        assert_eq!(plans[..4].iter().map(bad_ms).collect::<Vec<_>>(), [0, 20, 40, 60]);
    }

    #[test]
    fn the_paper_s_rooms_have_the_paper_s_bad_periods_by_default() {
        assert_eq!(parse(&[]).unwrap().len(), 9);
        assert_eq!(parse(&["--room", "wifi-54"]).unwrap().len(), 1);
        assert_eq!(parse(&["--bad", "80"]).unwrap().len(), 1);
    }

    #[test]
    fn link_options_reach_the_room() {
        let plan = &parse(&["--room", "wifi-54", "--bad", "5", "--loss", "3%", "--rate", "6M"]).unwrap()[0];
        assert_eq!(plan.room.link.rate.mean().bits_per_second(), 6_000_000);
        assert_eq!((plan.room.name.as_str(), bad_ms(plan)), ("wifi-54", 5));
    }

    #[test]
    fn what_is_wrong_names_the_option_and_what_there_is() {
        for (options, part) in [
            (&["--room", "attic"][..], "paper-1997"),
            (&["--bad", "0,..,160"], "START,NEXT,..,END"),
            (&["--bad", "20,0,..,160"], "START,NEXT,..,END"),
            (&["--bad", "-5"], "bad"),
            (&["--arq", "magic"], "selective-repeat"),
            (&["--clients", "0"], "--clients"),
            (&["--size", "0"], "--size"),
            (&["--rate", "0"], "rate"),
        ] {
            let line = ["nfsw", "curve"].iter().chain(options);
            let message = match Cli::try_parse_from(line) {
                Err(error) => error.to_string(),
                Ok(_) => parse(options).unwrap_err().to_string(),
            };
            assert!(message.contains(part), "{options:?}: {message}");
        }
    }
}
