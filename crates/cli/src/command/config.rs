//! `nfsw config`: where the configuration is, and whether it is right.

use std::io::{self, Write};

use crate::{
    args::ConfigCommand,
    config::{self, Config},
    error::show,
    exit::Exit,
    text::escape,
};

pub(super) fn execute(command: ConfigCommand) -> Exit {
    let Some(path) = Config::path() else {
        eprintln!(
            "nfsw: neither XDG_CONFIG_HOME nor HOME is an absolute path, so there is no configuration file"
        );
        return Exit::LocalIo;
    };
    let text = match command {
        ConfigCommand::Path => format!("{}\n", show(&path)),
        ConfigCommand::Check => {
            let found = Config::of_user().and_then(|found| Ok((found, config::environment()?)));
            let (Config { hosts, options }, environment) = match found {
                Ok(found) => found,
                Err(error) => {
                    eprintln!("nfsw: {error}");
                    return Exit::Usage;
                }
            };
            if path.exists() {
                let names: Vec<_> = hosts.hosts.keys().map(|name| escape(name.as_bytes())).collect();
                let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                let defaults = hosts.given + options.len();
                let words = if environment.is_empty() { "is not set" } else { "is right" };
                format!("{}: right; hosts: {names}; defaults: {defaults}\nNFSW_OPTS {words}\n", show(&path))
            } else {
                format!("{}: there is no such file, and none is needed\n", show(&path))
            }
        }
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Exit::LocalIo,
        _ => Exit::Done,
    }
}
