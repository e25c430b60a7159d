//! `nfsw cp`: copies files and trees.

use super::filters::filter;
use crate::{
    args::CpArgs,
    copy::{self, Copy, Links, Overwrite},
    exit::{Exit, Failure},
    local::StateHome,
    process::Process,
    progress::{Aside, Progress},
    summary::Summary,
    target::Target,
    units,
};

/// Copies, and returns how it ended and the numbers of the run. `aside` is shown beside the progress.
pub(super) fn execute(arguments: CpArgs, aside: Option<Aside>) -> (Exit, Summary) {
    let process = Process::with_rate_limit(&arguments.connection, &arguments.output, arguments.bwlimit)
        .with_verbosity(arguments.verbose, arguments.quiet);
    let process = if arguments.dry_run { process } else { process.that_changes(arguments.verbose) };
    let exit = process.run(async |connections, reporter| {
        let copy = check(&arguments)?;
        if let Some(limit) = arguments.bwlimit {
            reporter.understood(format_args!("at most {}", units::bandwidth(limit)));
        }
        if !arguments.quiet
            && !copy.dry_run
            && let Some(progress) = Progress::on_terminal(aside)
        {
            reporter.show_progress(progress);
        }
        copy::run(&copy, connections, reporter).await
    });
    (exit, process.summary())
}

/// Reads the targets and options into what they mean.
fn check(arguments: &CpArgs) -> anyhow::Result<Copy> {
    let target = |argument| Target::parse(argument).map_err(Failure::usage);
    let sources = arguments.sources.iter().map(|source| target(source)).collect::<Result<_, _>>()?;
    let overwrite = match (arguments.no_clobber, arguments.update) {
        (true, _) => Overwrite::Never,
        (false, true) => Overwrite::Older,
        (false, false) => Overwrite::Always,
    };
    Ok(Copy {
        sources,
        destination: target(&arguments.destination)?,
        recursive: arguments.recursive,
        links: match (arguments.no_dereference, arguments.dereference, arguments.follow, arguments.recursive)
        {
            (true, ..) => Links::Never,
            (_, true, ..) => Links::All,
            (_, _, true, _) | (_, _, _, false) => Links::Named,
            _ => Links::Never,
        },
        is_whole_target: arguments.no_target_directory,
        preserve: arguments.preserve,
        overwrite,
        inplace: arguments.inplace,
        sparse: arguments.sparse,
        resume: !arguments.no_resume,
        verify: arguments.verify,
        dry_run: arguments.dry_run,
        filter: filter(&arguments.filter)?,
        sync: None,
        jobs: arguments.jobs.into(),
        rate_limit: arguments.bwlimit,
        state: StateHome::of_user(),
    })
}

#[cfg(test)]
mod tests;
