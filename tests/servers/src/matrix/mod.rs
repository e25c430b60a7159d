//! One matrix of steps for all servers: `matrix/steps.toml` says what is done and what must be true afterwards,
//! `matrix/expectations.toml` where a server or this project cannot, and why.

mod document;
mod fixture;
mod run;
mod same;
mod table;

use anyhow::{Result, ensure};

use crate::lane::Lane;

pub use document::{agrees_with_document, write_document};
pub use same::difference;
pub(crate) use table::{Step, Transport};

/// Runs all steps of a lane and compares what is seen with what is expected.
///
/// # Errors
/// Where the server cannot be started, or a cell is not as the expectations say: each such cell with its symptom.
pub fn check(lane: &Lane) -> Result<()> {
    let (steps, expectations) = (table::steps(), table::expectations());
    let server = (lane.start)()?;
    ensure!(server.has_udp() == lane.udp, "{} does not offer what its lane says", lane.name);
    let mut place = run::Place::new(lane, server)?;
    let (mut count, mut wrong) = (0, Vec::new());
    for step in steps.iter().filter(|step| lane.runs(step)) {
        for transport in lane.transports(step) {
            let expected = table::expected(&expectations, lane.name, &step.name, transport);
            let seen = place.run(step, transport, expected.and_then(|expected| expected.limit_s))?;
            count += 1;
            let cell = format!("{}, {}, {}", lane.name, step.name, transport.name());
            if std::env::var_os("NFSW_SERVERS_VERBOSE").is_some() {
                println!("{cell}: {:.1} s, {}", seen.seconds, seen.failure.as_deref().unwrap_or("passes"));
            }
            match (&seen.failure, expected) {
                (None, None) => {}
                (None, Some(expected)) if expected.or_passes => {}
                (None, Some(expected)) => {
                    wrong.push(format!("{cell}: passes, and the table says: {}", expected.reason()));
                }
                (Some(failure), Some(expected)) if failure.contains(&expected.shows) => {}
                (Some(failure), Some(expected)) => {
                    wrong
                        .push(format!("{cell}: {failure}\n    and not, as in the table: {}", expected.shows));
                }
                (Some(failure), None) => wrong.push(format!("{cell}: {failure}")),
            }
        }
    }
    ensure!(
        wrong.is_empty(),
        "{} of {count} cells are not as in tests/servers/matrix:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    println!("{}: {count} cells are as the table says", lane.name);
    Ok(())
}
