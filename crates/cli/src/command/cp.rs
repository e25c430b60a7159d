//! `nfsw cp`: copies files and trees.

use super::{accept, filters::filter};
use crate::{
    args::{CpArgs, NO_COMPRESSION},
    copy::{self, Links, Options, Overwrite},
    exit::{Exit, Failure},
    log::Log,
    process::Process,
    progress::{Aside, Progress},
    summary::Summary,
    units,
    url::Target,
};

/// Copies, and returns how it ended and the numbers of the run. `aside` is shown beside the progress.
pub(super) fn execute(arguments: CpArgs, aside: Option<Aside>) -> (Exit, Summary) {
    let process = Process::with_rate_limit(&arguments.connection, &arguments.output, arguments.bwlimit)
        .with_verbosity(arguments.verbose, arguments.quiet);
    let process = if arguments.dry_run { process } else { process.that_changes(arguments.verbose) };
    let exit = process.run(async |context, reporter| {
        let mut copy = check(&arguments)?;
        if copy.destination == Target::Standard && reporter.json() {
            return Err(Failure::usage("--json and a file on standard output exclude each other"));
        }
        if let Some(path) = &arguments.log_file {
            reporter.log_to(Log::open(path)?);
        }
        if arguments.habits.compress || arguments.compress_as_scp {
            reporter.warning(NO_COMPRESSION);
        }
        if let Some(limit) = arguments.bwlimit {
            reporter.understood(format_args!("at most {}", units::bandwidth(limit)));
        }
        if !arguments.yes && accept::asks(&copy) {
            copy.accepted = Some(accept::accept(check(&arguments)?, context).await?);
        }
        if !arguments.quiet
            && !copy.dry_run
            && let Some(progress) = Progress::on_terminal(aside, arguments.output.color)
        {
            reporter.show_progress(progress);
        }
        copy::run(&copy, context).await?;
        Ok(())
    });
    (exit, process.summary())
}

/// Reads the targets and options into what they mean.
fn check(arguments: &CpArgs) -> anyhow::Result<Options> {
    if is_port(arguments) {
        let text = "-P copies links as links, as for cp; the port is part of the name of a server: nfs://HOST:PORT/PATH";
        return Err(Failure::usage(text));
    }
    let target = |argument| Target::parse(argument).map_err(Failure::usage);
    let recursive = arguments.recursive || arguments.archive;
    let sources: Vec<_> = arguments.sources.iter().map(|source| target(source)).collect::<Result<_, _>>()?;
    let overwrite = match (arguments.no_clobber, arguments.update) {
        (true, _) => Overwrite::Never,
        (false, true) => Overwrite::Older,
        (false, false) => Overwrite::Always,
    };
    Ok(Options {
        recursive,
        links: match (arguments.no_dereference, arguments.dereference, arguments.follow, recursive) {
            (true, ..) => Links::Never,
            (_, true, ..) => Links::All,
            (_, _, true, _) | (_, _, _, false) => Links::Named,
            _ => Links::Never,
        },
        is_whole_target: arguments.no_target_directory,
        preserve: arguments.preserve || arguments.archive,
        overwrite,
        inplace: arguments.inplace,
        sparse: arguments.sparse.into(),
        resume: !arguments.no_resume,
        verify: arguments.verify,
        dry_run: arguments.dry_run,
        filter: filter(&arguments.filter)?,
        shard: arguments.shard,
        jobs: arguments.jobs.into(),
        rate_limit: arguments.bwlimit,
        ..Options::new(sources, target(&arguments.destination)?)
    })
}

/// Whether `-P 22` is typed as for scp: a number that is no file, in front of what is to be copied.
fn is_port(arguments: &CpArgs) -> bool {
    let first = arguments.sources.first().filter(|_| arguments.no_dereference && arguments.sources.len() > 1);
    let number = first.and_then(|first| first.to_str()).filter(|first| first.parse::<u16>().is_ok());
    number.is_some_and(|name| std::fs::symlink_metadata(name).is_err())
}

#[cfg(test)]
mod tests;
