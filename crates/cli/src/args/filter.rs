//! Options that say which files of a tree are copied.

use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches};

use crate::pattern::Pattern;

/// Which files of a tree are copied.
#[derive(Clone, Debug, Default)]
pub(crate) struct FilterArgs {
    /// The patterns of `--include` (true) and `--exclude`, in the order in which they were given.
    pub(crate) rules: Vec<(bool, Pattern)>,
    /// `--exclude-from`
    pub(crate) exclude_from: Vec<PathBuf>,
    /// `--files-from`
    pub(crate) files_from: Option<PathBuf>,
    /// `--gitignore`
    pub(crate) gitignore: bool,
    /// `--one-file-system`
    pub(crate) one_file_system: bool,
}

/// The same as clap reads it, option by option.
#[derive(Args, Debug)]
#[command(next_help_heading = "Filters")]
struct Options {
    /// Exclude matching files, and everything below matching directories. As with rsync, the first matching --exclude
    /// or --include decides. A pattern matches the end of a path. One that begins with / matches the whole path below
    /// SRC, one that ends with / only directories. * and ? do not match /, ** does.
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    exclude: Vec<Pattern>,
    /// Include matching files, even if a later --exclude matches them.
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    include: Vec<Pattern>,
    /// Exclude files that match a pattern in FILE, in the syntax of .gitignore.
    #[arg(long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,
    /// Copy only the files and directories that FILE lists, one path below SRC per line; - is standard input. # and ; begin comments.
    #[arg(long, value_name = "FILE")]
    files_from: Option<PathBuf>,
    /// Exclude what the .gitignore files in SRC exclude, each in its own directory.
    #[arg(long)]
    gitignore: bool,
    /// Exclude directories where another file system is mounted.
    #[arg(short = 'x', long)]
    one_file_system: bool,
}

impl FromArgMatches for FilterArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let Options { exclude, include, exclude_from, files_from, gitignore, one_file_system } =
            Options::from_arg_matches(matches)?;
        let places = |name| matches.indices_of(name).into_iter().flatten();
        let excludes = places("exclude").zip(exclude).map(|(place, pattern)| (place, (false, pattern)));
        let includes = places("include").zip(include).map(|(place, pattern)| (place, (true, pattern)));
        let mut rules: Vec<_> = excludes.chain(includes).collect();
        rules.sort_by_key(|(place, _)| *place);
        let rules = rules.into_iter().map(|(_, rule)| rule).collect();
        Ok(Self { rules, exclude_from, files_from, gitignore, one_file_system })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for FilterArgs {
    fn augment_args(command: Command) -> Command {
        Options::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Options::augment_args_for_update(command)
    }
}
