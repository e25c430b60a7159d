use super::*;
use crate::args::{Policy, Transport};

#[test]
fn hosts_and_defaults_are_read() {
    let config = Config::parse(
        r#"
        [defaults]
        timeout = "1m"
        bwlimit = "2M"
        exclude = ["*.o", "*.a"]
        verify = true
        sparse = "never"

        [host.nas]
        name = "192.0.2.7"
        nfs-port = 2050
        mount-port = 2051
        transport = "tcp"
        uid = 1000
        security = "none"

        [host."nas.example"]
        policy = "kernel"
        block-size = 8192
        "#,
    )
    .unwrap();
    let nas = &config.hosts.hosts["nas"];
    assert_eq!(
        (nas.name.as_deref(), nas.nfs_port, nas.mount_port),
        (Some("192.0.2.7"), Some(2050), Some(2051))
    );
    assert_eq!((nas.connection.transport, nas.connection.uid), (Some(Transport::Tcp), Some(1000)));
    assert_eq!((nas.security, nas.connection.gid), (Security::None, None));
    let other = &config.hosts.hosts["nas.example"].connection;
    assert_eq!((other.policy, other.exact_block()), (Some(Policy::Kernel), Some(8192)));
    assert_eq!(config.hosts.defaults.timeout.unwrap().as_secs(), 60);
    let words: Vec<String> = config.options.into_iter().flat_map(|option| option.words).collect();
    assert_eq!(words, ["--bwlimit=2M", "--exclude=*.o", "--exclude=*.a", "--sparse=never", "--verify"]);
}

#[test]
fn the_example_of_the_documentation_is_right() {
    let page = include_str!("../../../../docs/config.md");
    let (_, example) = page.split_once("```toml\n").unwrap();
    let config = Config::parse(example.split("```").next().unwrap()).unwrap();
    assert_eq!(config.hosts.hosts.keys().collect::<Vec<_>>(), ["nas", "nas.example.org"]);
    for key in NEVER_BY_DEFAULT.iter().filter(|key| !key.starts_with("help") && **key != "version") {
        assert!(page.contains(&format!("`--{key}`")), "{key}");
    }
    let keys =
        options().iter().filter(|known| known.is_of_connection && !NEVER_BY_DEFAULT.contains(&&*known.name));
    for Known { name, .. } in keys {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    for (text, line, words) in [
        ("[host.nas]\ntransport = \"tpc\"", 2, "host.nas.transport: invalid value 'tpc'"),
        ("\n\n[host.nas]\nuid = -1", 4, "host.nas.uid: "),
        ("[host.nas]\nnfs-port = 65536", 2, "host.nas.nfs-port: expected a port"),
        ("[host.nas]\nsecurity = \"krb5\"", 2, "host.nas.security: expected \"sys\" or \"none\""),
        (
            "[host.nas]\nbwlimit = \"1M\"",
            2,
            "host.nas.bwlimit: there is no such key for hosts; the keys are name, nfs-port,",
        ),
        ("[host.nas]\ntimeout = \"1m\"", 2, "host.nas.timeout: is for whole runs"),
        ("[host]\nnas = 3", 2, "host.nas: expected a table"),
        ("[hosts.nas]", 1, "hosts: unknown; there are [defaults] and [host.NAME]"),
        ("[defaults]\nno-such = 1", 2, "defaults.no-such: there is no option of this name"),
        ("[defaults]\ndelete = true", 2, "defaults.delete: belongs on the command line only"),
        ("[defaults]\nverify = \"yes\"", 2, "defaults.verify: expected true or false"),
        ("[defaults]\ntimeout = 1.5", 2, "defaults.timeout: expected a string or a number"),
        ("[defaults]\ntimeout = \"soon\"", 2, "defaults.timeout: "),
        ("[defaults]\ntimeout = \"a\\rb\"", 2, "defaults.timeout: invalid value 'a\\rb'"),
        ("[defaults\n", 1, ""),
    ] {
        let Wrong { at, why } = Config::parse(text).unwrap_err();
        assert_eq!(1 + text[..at].matches('\n').count(), line, "{text}: {why}");
        assert!(why.starts_with(words) && !why.is_empty(), "{why}");
    }
}
