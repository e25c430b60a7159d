//! The configuration file and `NFSW_OPTS`: options that need not be typed.
//!
//! What the command line says comes first, then `NFSW_OPTS`, then what the file says of a host, then what it says of all.

use std::{
    ffi::OsString,
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, error::ErrorKind};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    args::{Cli, ConnectionArgs, Host, Hosts, Security},
    error::{io_text, show},
    local::{base_directory, read_private},
    text::escape,
};

/// Bytes of the file, at most.
const MAX_BYTES: u64 = 1 << 20;

/// Options of connections that are for a whole run, which may have several servers.
const OF_WHOLE_RUNS: [&str; 2] = ["timeout", "deadline"];

/// Options that nobody should have without seeing them: they destroy, or turn the command into another one.
const NEVER_BY_DEFAULT: [&str; 11] = [
    "delete",
    "force",
    "recursive",
    "archive",
    "dry-run",
    "files-from",
    "help",
    "help-connection",
    "version",
    "inplace",
    "no-target-directory",
];

/// A configuration file that was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    /// What it says of connections.
    pub(crate) hosts: Hosts,
    /// Its other defaults.
    pub(crate) options: Vec<Preset>,
}

/// An option that was not typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Preset {
    /// Its long name.
    pub(crate) name: String,
    /// The words of the command line.
    pub(crate) words: Vec<String>,
    /// Where it was found.
    pub(crate) source: &'static str,
}

/// The options of a connection, alone.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, args_override_self = true)]
struct Alone {
    #[command(flatten)]
    connection: ConnectionArgs,
}

impl Config {
    /// Returns where the file is, or would be; `None` without a home directory.
    pub(crate) fn path() -> Option<PathBuf> {
        Some(base_directory("XDG_CONFIG_HOME", ".config")?.join("config.toml"))
    }

    /// Reads the file of the user; without one there is nothing in it.
    ///
    /// # Errors
    /// A line for the user that names the file, the line and the key.
    pub(crate) fn of_user() -> Result<Self, String> {
        let Some(path) = Self::path() else { return Ok(Self::default()) };
        let bytes = match read_private(&path, MAX_BYTES) {
            // None, as where $HOME is /dev/null; or that of somebody else: this is run with their $HOME.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
                    || error.raw_os_error() == Some(rustix::io::Errno::ACCESS.raw_os_error()) =>
            {
                return Ok(Self::default());
            }
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                return Err(format!("{}: larger than 1 MiB", show(&path)));
            }
            bytes => bytes.map_err(|error| unreadable(&path, &error))?,
        };
        let text = String::from_utf8(bytes)
            .map_err(|_| unreadable(&path, &io::Error::new(io::ErrorKind::InvalidData, "is no text")))?;
        Self::parse(&text).map_err(|Wrong { at, why }| {
            let line = 1 + text.get(..at).unwrap_or_default().matches('\n').count();
            format!("{}:{line}: {why}", show(&path))
        })
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Wrong> {
        let document = DeTable::parse(text).map_err(|error| {
            let why = error.message().to_owned();
            Wrong { at: error.span().map_or(0, |span| span.start), why }
        })?;
        let mut config = Self::default();
        let known = options();
        for (key, value) in document.get_ref() {
            match &**key.get_ref() {
                "defaults" => config.add_defaults(table("defaults", value)?, known)?,
                "host" => {
                    for (name, value) in table("host", value)? {
                        let shown = format!("host.{}", escape(name.get_ref().as_bytes()));
                        let host = host(&shown, table(&shown, value)?, known)?;
                        config.hosts.hosts.insert(name.get_ref().clone().into_owned(), host);
                    }
                }
                other => {
                    let why = format!(
                        "{}: unknown; there are [defaults] and [host.NAME]",
                        escape(other.as_bytes())
                    );
                    return Err(Wrong::at(key.span(), why));
                }
            }
        }
        Ok(config)
    }

    fn add_defaults(&mut self, table: &DeTable<'_>, known: &[Known]) -> Result<(), Wrong> {
        let mut connection = Vec::new();
        for (key, value) in table {
            let name = &**key.get_ref();
            let shown = format!("defaults.{}", escape(name.as_bytes()));
            let wrong = |why: &str| Wrong::at(key.span(), format!("{shown}: {why}"));
            if NEVER_BY_DEFAULT.contains(&name) {
                return Err(wrong("belongs on the command line only"));
            }
            let Some(known) = known.iter().find(|known| known.name == name) else {
                return Err(wrong("there is no option of this name"));
            };
            let words =
                words(known, value).map_err(|why| Wrong::at(value.span(), format!("{shown}: {why}")))?;
            known.check(&words).map_err(|why| Wrong::at(value.span(), format!("{shown}: {why}")))?;
            if known.is_of_connection {
                connection.extend(words);
            } else if !words.is_empty() {
                self.options.push(Preset { name: name.to_owned(), words, source: "the configuration file" });
            }
        }
        self.hosts.given = connection.len();
        self.hosts.defaults = Alone::parse_from(connection).connection;
        Ok(())
    }
}

/// What is wrong with a file, and where: the byte at which that begins.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) at: usize,
    pub(crate) why: String,
}

impl Wrong {
    fn at(span: Range<usize>, why: String) -> Self {
        Self { at: span.start, why }
    }
}

/// An option that some command has.
#[derive(Debug)]
struct Known {
    name: String,
    takes_value: bool,
    option: clap::Arg,
    /// Whether all commands that talk to servers have it.
    is_of_connection: bool,
}

/// Returns the options of all commands that talk to servers. They are looked up once: that takes as long as a call on a local network.
fn options() -> &'static [Known] {
    static OPTIONS: OnceLock<Vec<Known>> = OnceLock::new();
    OPTIONS.get_or_init(find_options)
}

fn find_options() -> Vec<Known> {
    let connection = Alone::command();
    let of_connection: Vec<&str> = connection.get_arguments().filter_map(clap::Arg::get_long).collect();
    let program = Cli::command();
    let mut known: Vec<Known> = Vec::new();
    for command in program.get_subcommands().filter(|command| has_connection(command)) {
        for argument in command.get_arguments() {
            let Some(name) = argument.get_long() else { continue };
            if known.iter().all(|known| known.name != name) {
                known.push(Known {
                    name: name.to_owned(),
                    takes_value: takes_value(argument),
                    // What it needs or excludes is a matter of whole command lines.
                    option: clap::Arg::new(name.to_owned())
                        .long(name.to_owned())
                        .action(argument.get_action().clone())
                        .value_parser(argument.get_value_parser().clone())
                        .value_name("VALUE"),
                    is_of_connection: of_connection.contains(&name),
                });
            }
        }
    }
    known
}

fn has_connection(command: &clap::Command) -> bool {
    command.get_arguments().any(|argument| argument.get_id() == "help_connection")
}

fn takes_value(argument: &clap::Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Set | ArgAction::Append)
}

fn table<'a, 'b>(name: &str, value: &'a Spanned<DeValue<'b>>) -> Result<&'a DeTable<'b>, Wrong> {
    value
        .get_ref()
        .as_table()
        .ok_or_else(|| Wrong::at(value.span(), format!("{name}: expected a table, [{name}]")))
}

/// Returns the keys of a host: its own, and the options of connections.
fn host_keys(known: &[Known]) -> Vec<&str> {
    let options =
        known.iter().filter(|known| known.is_of_connection && !NEVER_BY_DEFAULT.contains(&&*known.name));
    let options = options.map(|known| &*known.name).filter(|name| !OF_WHOLE_RUNS.contains(name));
    ["name", "nfs-port", "mount-port", "security"].into_iter().chain(options).collect()
}

fn host(shown: &str, table: &DeTable<'_>, known: &[Known]) -> Result<Host, Wrong> {
    let mut host = Host::default();
    let mut connection = Vec::new();
    for (key, value) in table {
        let name = &**key.get_ref();
        let shown = format!("{shown}.{}", escape(name.as_bytes()));
        let wrong = |why: &str| Wrong::at(value.span(), format!("{shown}: {why}"));
        let port = || {
            let number = value.get_ref().as_integer().and_then(|number| number.as_str().parse::<u16>().ok());
            number.filter(|&port| port > 0).ok_or_else(|| wrong("expected a port, 1 to 65535"))
        };
        match name {
            "name" => {
                let name =
                    value.get_ref().as_str().filter(|name| !name.is_empty() && !name.contains(['/', '\0']));
                host.name =
                    Some(name.ok_or_else(|| wrong("expected the name or address of a server"))?.to_owned());
            }
            "nfs-port" => host.nfs_port = Some(port()?),
            "mount-port" => host.mount_port = Some(port()?),
            "security" => {
                host.security = match value.get_ref().as_str() {
                    Some("sys") => Security::Sys,
                    Some("none") => Security::None,
                    _ => return Err(wrong("expected \"sys\" or \"none\"; Kerberos is not available")),
                }
            }
            name if OF_WHOLE_RUNS.contains(&name) => {
                return Err(wrong(
                    "is for whole runs, which may have several servers: write it in [defaults]",
                ));
            }
            name => match known.iter().find(|known| known.name == name && known.is_of_connection) {
                Some(known) if !NEVER_BY_DEFAULT.contains(&name) => {
                    let words = words(known, value).map_err(|why| wrong(&why))?;
                    known.check(&words).map_err(|why| wrong(&why))?;
                    connection.extend(words);
                }
                _ => {
                    let keys = host_keys(known).join(", ");
                    let why = format!("{shown}: there is no such key for hosts; the keys are {keys}");
                    return Err(Wrong::at(key.span(), why));
                }
            },
        }
    }
    host.connection = Alone::parse_from(connection).connection;
    Ok(host)
}

/// Returns the words of the command line that say the same.
fn words(known: &Known, value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, String> {
    let name = &known.name;
    let word = |value: &DeValue<'_>| {
        let text = match value {
            DeValue::String(text) => Some(text.clone().into_owned()),
            DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
            _ => None,
        };
        text.map(|text| format!("--{name}={text}"))
    };
    match value.get_ref() {
        DeValue::Boolean(true) if !known.takes_value => Ok(vec![format!("--{name}")]),
        DeValue::Boolean(false) if !known.takes_value => Ok(Vec::new()),
        _ if !known.takes_value => Err("expected true or false".to_owned()),
        DeValue::Array(values) => {
            let words = values.iter().map(|value| word(value.get_ref()));
            words.collect::<Option<_>>().ok_or_else(|| "expected strings".to_owned())
        }
        value => word(value).map(|word| vec![word]).ok_or_else(|| "expected a string or a number".to_owned()),
    }
}

impl Known {
    /// Checks the value of the option alone, whatever else it needs beside it.
    fn check(&self, words: &[String]) -> Result<(), String> {
        let option = self.option.clone();
        let command = clap::Command::new("nfsw").no_binary_name(true).args_override_self(true).arg(option);
        match command.try_get_matches_from(words) {
            Err(error) if matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue) => {
                Err(first_line(&error))
            }
            _ => Ok(()),
        }
    }
}

/// Returns what is wrong with a command line, without what surrounds it: fit for a terminal, whatever was on the line.
pub(crate) fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let mut lines = text.lines();
    let line = lines.next().unwrap_or_default();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    // What it is about may follow, one on each line.
    let listed: Vec<&str> =
        lines.map_while(|line| line.strip_prefix("  ")).map(str::trim).filter(|it| !it.is_empty()).collect();
    let line = match line.ends_with(':') {
        true if !listed.is_empty() => format!("{line} {}", listed.join(", ")),
        _ => line.to_owned(),
    };
    escape(line.as_bytes()).into_owned()
}

fn unreadable(path: &Path, error: &io::Error) -> String {
    format!("{}: {}", show(path), io_text(error))
}

/// Reads `NFSW_OPTS`: long options, quoted as for a shell.
///
/// # Errors
/// A line for the user that names the word.
pub(crate) fn environment() -> Result<Vec<Preset>, String> {
    let Some(text) = std::env::var_os("NFSW_OPTS") else { return Ok(Vec::new()) };
    let text = text.into_string().map_err(|_| "NFSW_OPTS is not UTF-8".to_owned())?;
    presets(&text)
}

/// Reads the text of `NFSW_OPTS`.
pub(crate) fn presets(text: &str) -> Result<Vec<Preset>, String> {
    let words = shlex::split(text).ok_or("NFSW_OPTS: a quote is not closed")?;
    let known = options();
    let mut found = Vec::new();
    let mut rest = words.into_iter();
    while let Some(word) = rest.next() {
        let shown = escape(word.as_bytes()).into_owned();
        let Some(name) = word.strip_prefix("--").filter(|name| !name.is_empty()) else {
            return Err(format!("NFSW_OPTS: {shown}: expected long options, such as --timeout 1m"));
        };
        let (name, has_value) = name.split_once('=').map_or((name, false), |(name, _)| (name, true));
        if NEVER_BY_DEFAULT.contains(&name) {
            return Err(format!("NFSW_OPTS: --{name} belongs on the command line only"));
        }
        let Some(known) = known.iter().find(|known| known.name == name) else {
            return Err(format!("NFSW_OPTS: {shown}: there is no such option"));
        };
        if has_value && !known.takes_value {
            return Err(format!("NFSW_OPTS: {shown}: --{name} takes no value"));
        }
        let name = name.to_owned();
        // As one word, the value may begin with a hyphen, as in the configuration file.
        let word = if known.takes_value && !has_value {
            let value = rest.next().ok_or_else(|| format!("NFSW_OPTS: {shown}: its value is missing"))?;
            format!("{word}={value}")
        } else {
            word
        };
        let words = vec![word];
        known.check(&words).map_err(|why| format!("NFSW_OPTS: {why}"))?;
        found.push(Preset { name, words, source: "NFSW_OPTS" });
    }
    Ok(found)
}

/// Reads a command line.
///
/// # Errors
/// It is not understood, or asks for help.
pub(crate) fn read(program: &mut clap::Command, line: &[OsString]) -> Result<Cli, clap::Error> {
    let mut matches = program.try_get_matches_from_mut(line)?;
    let mut cli = Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(program))?;
    cli.command.drop_zero_limits();
    Ok(cli)
}

/// Adds to a command line, which is right as it is, what the configuration says. `program` has read it.
///
/// # Errors
/// A line for the user that says what is wrong with the configuration.
pub(crate) fn apply(program: &mut clap::Command, line: Vec<OsString>, mut plain: Cli) -> Result<Cli, String> {
    let Some(command) = line.get(1).and_then(|name| program.find_subcommand(name)) else {
        return Ok(plain);
    };
    if !has_connection(command) {
        return Ok(plain);
    }
    let Config { hosts, options } = Config::of_user()?;
    let options = fitting(command, options.into_iter().chain(environment()?));
    /// Words before the options: the program and the command.
    const AFTER_COMMAND: usize = 2;
    let with = |line: &[OsString], words: &mut dyn Iterator<Item = &String>| {
        let mut longer = line.to_vec();
        longer.splice(AFTER_COMMAND..AFTER_COMMAND, words.map(OsString::from));
        longer
    };
    let all = with(&line, &mut options.iter().flat_map(|option| &option.words));
    if let Ok(cli) = read(program, &all) {
        plain = cli;
    } else {
        let mut line = line;
        // What counts most comes last on the line, and is there before what it may exclude.
        for Preset { name, words, source } in options.iter().rev() {
            let longer = with(&line, &mut words.iter());
            match read(program, &longer) {
                Ok(cli) => (line, plain) = (longer, cli),
                // What counts more says something else, or this only adds to an option that is not given.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::ArgumentConflict | ErrorKind::MissingRequiredArgument
                    ) => {}
                Err(error) => return Err(format!("{source}: --{name}: {}", first_line(&error))),
            }
        }
    }
    if let Some(connection) = plain.command.connection_mut() {
        connection.hosts = Some(Arc::new(hosts));
    }
    Ok(plain)
}

/// Returns the options that a command has.
fn fitting(command: &clap::Command, options: impl Iterator<Item = Preset>) -> Vec<Preset> {
    let has = |name: &str| command.get_arguments().any(|argument| argument.get_long() == Some(name));
    options.filter(|option| has(&option.name)).collect()
}

#[cfg(test)]
mod tests;
