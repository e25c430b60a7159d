//! Options of rsync and scp that change nothing here, for those whose fingers type them.

use clap::{ArgAction, Args};

/// Options of `nfsw cp` and `nfsw sync` that are accepted.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct HabitArgs {
    /// Accepted, and changes nothing: NFS cannot compress.
    #[arg(short = 'z', long, hide = true)]
    pub(crate) compress: bool,
    /// Is always so.
    #[arg(long, hide = true, alias = "no-z")]
    no_compress: bool,
    /// Sizes are always shown for people; -h alone prints help.
    #[arg(short = 'h', long, hide = true)]
    human_readable: bool,
    /// Progress is always shown on a terminal.
    #[arg(long, hide = true)]
    progress: bool,
    /// As --progress; -v names files.
    #[arg(long, hide = true, value_name = "FLAGS")]
    info: Vec<String>,
    /// Partial files are always kept, and resumed.
    #[arg(long, hide = true)]
    partial: bool,
    /// Files that changed are always copied whole.
    #[arg(short = 'W', long, hide = true)]
    whole_file: bool,
    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// What is said of `--compress`.
pub(crate) const NO_COMPRESSION: &str = "nothing is compressed: NFS has no compression";
