use clap::CommandFactory;

use super::*;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_option_and_command_is_documented() {
    let cli = Cli::command();
    for command in cli.get_subcommands() {
        assert!(command.get_about().is_some(), "{}", command.get_name());
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
        }
    }
}

#[test]
fn servers_may_be_named_in_every_form() {
    for host in ["nas", "nas:/", "nas:/srv", "nfs://nas/", "nfs://nas"] {
        let Cli { command: Command::Exports(arguments) } = Cli::parse_from(["nfsw", "exports", host]) else {
            panic!("exports");
        };
        assert_eq!(&*arguments.host.host, "nas");
    }
    for host in ["::1", "[::1]", "[::1]:/"] {
        let Cli { command: Command::Ping(arguments) } = Cli::parse_from(["nfsw", "ping", host]) else {
            panic!("ping");
        };
        assert_eq!(&*arguments.host.host, "::1");
    }
}
