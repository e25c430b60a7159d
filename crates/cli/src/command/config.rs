//! `nfsw config`: where the configuration is, and whether it is valid.

use std::time::Instant;

use serde_json::json;

use crate::{
    args::{ConfigArgs, ConfigCommand, OutputArgs},
    config::{self, Config},
    error::show,
    exit::{Exit, Failure},
    report::{Reporter, put_name},
    summary::Summary,
    text::escape,
};

pub(super) fn execute(arguments: &ConfigArgs) -> Exit {
    let output = OutputArgs { json: arguments.json, ..OutputArgs::default() };
    let reporter = Reporter::new(&output, Instant::now());
    reporter.finish(run(arguments.command, &reporter), &Summary::default())
}

fn run(command: ConfigCommand, reporter: &Reporter) -> anyhow::Result<()> {
    let Some(path) = Config::path() else {
        let text = "neither XDG_CONFIG_HOME nor HOME is an absolute path, so there is no configuration file";
        return Err(Failure::with(Exit::LocalIo, text));
    };
    let exists = path.exists();
    let mut event = json!({"event": "config", "exists": exists});
    put_name(&mut event, "path", path.as_os_str().as_encoded_bytes());
    let text = match command {
        ConfigCommand::Path => format!("{}\n", show(&path)),
        ConfigCommand::Check => {
            let Config { hosts, options } = Config::of_user().map_err(Failure::usage)?;
            let environment = config::environment().map_err(Failure::usage)?;
            let names: Vec<&str> = hosts.hosts.keys().map(String::as_str).collect();
            let defaults = hosts.given + options.len();
            event["hosts"] = names.clone().into();
            event["defaults"] = defaults.into();
            event["environment"] = environment.len().into();
            let file = if exists {
                let names: Vec<_> = names.into_iter().map(|name| escape(name.as_bytes())).collect();
                let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                format!("valid; hosts: {names}; defaults: {defaults}")
            } else {
                "there is no such file, and none is needed".to_owned()
            };
            let words = if environment.is_empty() { "is not set" } else { "is valid" };
            format!("{}: {file}\nNFSW_OPTS {words}\n", show(&path))
        }
    };
    if reporter.json() { reporter.event(&event) } else { reporter.print(text.as_bytes()) }
}
