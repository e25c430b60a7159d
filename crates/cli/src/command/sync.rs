//! `nfsw sync`: makes the contents of one directory those of another.

use super::{accept, filters::filter};
use crate::{
    args::{NO_COMPRESSION, SyncArgs},
    copy::{self, Compare, Links, Options, Overwrite, Sync},
    exit::{Exit, Failure},
    local::Sparse,
    log::Log,
    process::Process,
    progress::Progress,
    units,
    url::Target,
};

/// Copies and deletes, and returns how it ended.
pub(super) fn execute(arguments: SyncArgs) -> Exit {
    let process = Process::with_rate_limit(&arguments.connection, &arguments.output, arguments.bwlimit)
        .with_verbosity(arguments.verbose, arguments.quiet);
    let process = if arguments.dry_run { process } else { process.that_changes(arguments.verbose) };
    process.run(async |context, reporter| {
        let mut copy = check(&arguments)?;
        if let Some(path) = &arguments.log_file {
            reporter.log_to(Log::open(path)?);
        }
        if arguments.habits.compress {
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
            && let Some(progress) = Progress::on_terminal(None, arguments.output.color)
        {
            reporter.show_progress(progress);
        }
        copy::run(&copy, context).await?;
        Ok(())
    })
}

/// Reads the targets and options into what they mean.
fn check(arguments: &SyncArgs) -> anyhow::Result<Options> {
    // A directory is one, whatever is in its name.
    let target = |argument| Target::parse(argument).map(Target::literal).map_err(Failure::usage);
    let (source, destination) = (target(&arguments.source)?, target(&arguments.destination)?);
    if [&source, &destination].contains(&&Target::Standard) {
        return Err(Failure::usage("sync takes two directories; - is none"));
    }
    if arguments.delete && arguments.filter.files_from.is_some() {
        let text = "--delete and --files-from exclude each other: what is not listed is not known";
        return Err(Failure::usage(text));
    }
    let compare = match (arguments.checksum, arguments.size_only) {
        (true, _) => Compare::Contents,
        (_, true) => Compare::Size,
        _ => Compare::SizeAndTime,
    };
    Ok(Options {
        links: if arguments.dereference { Links::All } else { Links::Named },
        overwrite: match (arguments.ignore_existing, arguments.update) {
            (true, _) => Overwrite::Never,
            (false, true) => Overwrite::Older,
            (false, false) => Overwrite::Always,
        },
        sparse: if arguments.sparse_always { Sparse::Always } else { arguments.sparse.into() },
        resume: !arguments.no_resume,
        verify: arguments.verify,
        dry_run: arguments.dry_run,
        filter: filter(&arguments.filter)?,
        sync: Some(Sync {
            compare,
            force: arguments.force,
            delete: arguments.delete,
            max_delete: arguments.max_delete,
        }),
        shard: arguments.shard,
        jobs: arguments.jobs.into(),
        rate_limit: arguments.bwlimit,
        ..Options::sync(source, destination)
    })
}

#[cfg(test)]
mod tests;
