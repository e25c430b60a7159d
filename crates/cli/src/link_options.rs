//! From the options of a link to the link: preset or file first, then what was said explicitly.

use std::{fs, path::Path};

use linkemu::{ConfigError, LinkConfig};
use toml::{Table, Value};

use crate::{
    args::LinkOptions,
    error::{local, show},
    exit::Failure,
};

/// Reads a link's file; traces lie beside it.
pub(crate) fn link_of_file(path: &Path) -> anyhow::Result<LinkConfig> {
    let text = fs::read_to_string(path).map_err(|error| local(path, &error))?;
    let directory = path.parent().unwrap_or_else(|| Path::new(""));
    LinkConfig::from_toml(&text, |name| fs::read_to_string(directory.join(name)))
        .map_err(|error| Failure::usage(format!("{}: {error}", show(path))))
}

impl LinkOptions {
    /// Returns the link.
    pub(crate) fn link(&self) -> anyhow::Result<LinkConfig> {
        let mut table = self.base()?;
        if let Some(path) = &self.config {
            // What is wrong in the file is told in its own words.
            self.parse(&table).map_err(|error| Failure::usage(format!("{}: {error}", show(path))))?;
        }
        self.amend(&mut table)?;
        self.parse(&table).map_err(|error| Failure::usage(explained(&error.to_string())))
    }

    /// Reads the table; traces lie beside the file that names them.
    fn parse(&self, table: &Table) -> Result<LinkConfig, ConfigError> {
        let directory = self.config.as_deref().and_then(Path::parent).unwrap_or_else(|| Path::new(""));
        LinkConfig::from_toml(&table.to_string(), |name| fs::read_to_string(directory.join(name)))
    }

    /// Returns what a file or a preset says: a whole link, or nothing.
    pub(crate) fn base(&self) -> anyhow::Result<Table> {
        let mut table = Table::new();
        if let Some(path) = &self.config {
            let text = fs::read_to_string(path).map_err(|error| local(path, &error))?;
            let wrong = |error| Failure::usage(format!("{}: {error}", show(path)));
            table = text.parse().map_err(wrong)?;
        }
        if let Some(preset) = &self.preset {
            table.insert("preset".into(), Value::String(preset.clone()));
        }
        Ok(table)
    }

    /// Puts what was said explicitly into the table of a link's file.
    pub(crate) fn amend(&self, table: &mut Table) -> anyhow::Result<()> {
        let text = |text: &Option<String>| text.clone().map(Value::String);
        let number = |number: Option<u32>| number.map(|number| Value::Integer(number.into()));
        let selective = self.arq.as_deref() == Some("selective-repeat");
        let rts = match self.arq_rts.as_deref() {
            None => None,
            Some("on") => Some(Value::String("rts".into())),
            Some("off") => Some(Value::String("off".into())),
            Some(other) => return Err(Failure::usage(format!("--arq-rts is {other:?}, must be on or off"))),
        };
        for (section, key, value) in [
            ("", "rate", text(&self.rate)),
            ("", "delay", text(&self.delay)),
            ("", "mtu_bytes", number(self.mtu)),
            ("", "header_compression", self.header_compression.then_some(Value::Boolean(true))),
            ("", "duplex", text(&self.duplex)),
            ("", "start", text(&self.start)),
            ("channel", "good", text(&self.good)),
            ("channel", "bad", text(&self.bad)),
            ("channel", "loss", text(&self.loss)),
            ("channel", "distribution", text(&self.distribution)),
            ("channel", "granularity", text(&self.granularity)),
            ("channel", "phase", text(&self.phase)),
            ("arq", "kind", text(&self.arq)),
            ("arq", if selective { "block_ack" } else { "ack" }, text(&self.arq_ack)),
            ("arq", "retry", text(&self.arq_retry)),
            ("arq", "probe", rts),
            ("arq", "retry_limit", number(self.retry_limit)),
            ("queue", "scheduler", text(&self.scheduler)),
            ("queue", "packets", number(self.queue)),
        ] {
            let Some(value) = value else { continue };
            if section.is_empty() {
                table.insert(key.into(), value);
                continue;
            }
            let section = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(section) = section {
                section.insert(key.into(), value);
            }
        }
        Ok(())
    }
}

/// Names the option where linkemu names the field.
fn explained(message: &str) -> String {
    let options = [
        ("channel.good", "--good"),
        ("channel.bad", "--bad"),
        ("channel.distribution", "--distribution"),
        ("channel.granularity", "--granularity"),
        ("channel.phase", "--phase"),
        ("channel.loss", "--loss"),
        ("arq.kind", "--arq"),
        ("arq.ack", "--arq-ack"),
        ("arq.block_ack", "--arq-ack"),
        ("arq.retry_limit", "--retry-limit"),
        ("arq.retry", "--arq-retry"),
        ("queue.scheduler", "--scheduler"),
        ("queue.packets", "--queue"),
        ("mtu_bytes", "--mtu"),
        ("rate", "--rate"),
        ("delay", "--delay"),
        ("duplex", "--duplex"),
        ("start", "--start"),
        ("preset", "--preset"),
    ];
    let option = options.iter().find(|(field, _)| message.starts_with(field));
    match option {
        Some((field, option)) => format!("{option}{}", &message[field.len()..]),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;
    use linkemu::{ArqKind, Periods};

    use super::*;
    use crate::args::{Cli, Command, LinkCommand};

    fn link(options: &[&str]) -> anyhow::Result<LinkConfig> {
        let line = ["nfsw", "link", "show"].iter().chain(options);
        let Command::Link(arguments) = Cli::parse_from(line).command else { panic!("link") };
        let LinkCommand::Show(arguments) = arguments.command else { panic!("show") };
        arguments.link.link()
    }

    #[test]
    fn an_option_overrides_the_preset() {
        let link =
            link(&["--preset", "paper-1997", "--bad", "80", "--rate", "2M", "--arq", "ideal"]).unwrap();
        let Periods::Drawn { good, bad } = link.channel.periods else { panic!("drawn periods") };
        assert_eq!((good.mean, bad.mean), (Duration::from_secs(1), Duration::from_millis(80)));
        assert_eq!(link.arq.kind, ArqKind::Ideal);
        assert_eq!(link.rate.mean().bits_per_second(), 2_000_000);
    }

    #[test]
    fn headers_are_compressed_where_it_is_said() {
        assert!(!link(&["--preset", "paper-1997"]).unwrap().header_compression);
        assert!(link(&["--preset", "paper-1997", "--header-compression"]).unwrap().header_compression);
    }

    #[test]
    fn a_loss_sets_the_good_periods() {
        let link = link(&["--preset", "wifi-54", "--bad", "5", "--loss", "20%"]).unwrap();
        let Periods::Drawn { good, .. } = link.channel.periods else { panic!("drawn periods") };
        assert_eq!(good.mean, Duration::from_millis(20));
    }

    #[test]
    fn a_file_names_traces_beside_it_and_is_named_when_it_is_wrong() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("link.toml");
        let path = file.to_str().unwrap();
        fs::write(directory.path().join("fades.csv"), "0,good\n90,bad\n100,end\n").unwrap();
        fs::write(&file, "[channel]\ntrace = 'fades.csv'\n").unwrap();
        assert!(matches!(link(&["--config", path]).unwrap().channel.periods, Periods::Trace(_)));
        fs::write(&file, "mtu_bytes = 10\n").unwrap();
        let error = link(&["--config", path, "--rate", "1M"]).unwrap_err().to_string();
        assert!(
            error.starts_with(path) && error.contains("mtu_bytes") && !error.contains("--mtu"),
            "{error}"
        );
    }

    #[test]
    fn what_is_wrong_is_named_as_an_option() {
        for (options, part) in [
            (["--preset", "wifi"], "paper-1997"),
            (["--rate", "0"], "--rate"),
            (["--arq", "magic"], "--arq: cannot read \"magic\""),
            (["--arq-rts", "maybe"], "--arq-rts"),
            (["--mtu", "10"], "--mtu"),
            (["--bad", "soon"], "--bad"),
            (["--queue", "0"], "--queue"),
            (["--loss", "150%"], "--loss"),
        ] {
            let error = link(&options).unwrap_err();
            assert_eq!(crate::exit::Exit::of(error.as_ref()), crate::exit::Exit::Usage);
            let text = error.to_string();
            assert!(text.contains(part), "{options:?}: {text}");
        }
    }
}
