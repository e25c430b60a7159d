use super::*;

fn parse(text: &str) -> Target {
    Target::parse(OsStr::new(text)).unwrap()
}

fn remote(text: &str) -> Remote {
    match parse(text) {
        Target::Remote(remote) => remote,
        other => panic!("{text} is {other:?}"),
    }
}

#[test]
fn host_and_path_are_split_at_the_first_colon() {
    let target = remote("nas:/srv/a:b");
    assert_eq!((&*target.host, &target.path[..]), ("nas", &b"/srv/a:b"[..]));
    assert_eq!(&*remote("[fe80::1%eth0]:/x").host, "fe80::1%eth0");
    assert_eq!(remote("[::1]:/x").to_string(), "[::1]:/x");
}

#[test]
fn a_colon_after_a_slash_or_in_front_is_local() {
    for text in ["./a:b", "dir/a:b", "/a:b", ":b", "file", "[a]b", "[]:/x"] {
        assert_eq!(parse(text), Target::Local(text.into()), "{text}");
    }
    assert_eq!(parse("-"), Target::Standard);
    assert_eq!(parse("./-"), Target::Local("./-".into()));
}

#[test]
fn a_relative_server_path_says_how_to_write_both_meanings() {
    let error = Target::parse(OsStr::new("nas:file")).unwrap_err();
    assert!(error.contains("nas:/file") && error.contains("./nas:file"), "{error}");
}

#[test]
fn a_block_size_in_a_url_is_refused_by_its_own_name() {
    let error = Target::parse(OsStr::new("nfs://nas/x?rsize=3")).unwrap_err();
    assert_eq!(error, "rsize=3 in the URL: must be at least 512");
}

#[test]
fn a_port_behind_a_host_says_how_to_write_it() {
    for (text, url) in [
        ("127.0.0.1:20777/", "nfs://127.0.0.1:20777/"),
        ("nas:2049", "nfs://nas:2049/"),
        ("[::1]:2049/srv/x", "nfs://[::1]:2049/srv/x"),
    ] {
        let error = Target::parse(OsStr::new(text)).unwrap_err();
        assert!(error.ends_with(url), "{error}");
        assert!(Target::parse(OsStr::new(url)).is_ok());
    }
}

#[test]
fn a_dot_at_the_end_means_what_is_inside() {
    for text in ["h:/a/.", "h:/a/./", "nfs://h/a/.?uid=1", "h:/a/b/.//", "h:/."] {
        assert!(remote(text).is_contents, "{text}");
    }
    for text in ["h:/a", "h:/a/", "h:/a/./b", "h:/a.", "h:/a/..", "h:/"] {
        assert!(!remote(text).is_contents, "{text}");
    }
    assert!(!remote("h:/a/.").join(b"b").is_contents);
    assert_eq!(remote("[::1]:/x\ty/.").to_bytes(), b"[::1]:/x\ty");
}

#[test]
fn slashes_carry_no_meaning_beyond_separation() {
    assert_eq!(remote("h://a//b/./").path, b"/a/b");
    assert_eq!(remote("h:/").path, b"/");
    assert_eq!(remote("h:/").name(), None);
    assert_eq!(remote("h:/a/b").name(), Some(&b"b"[..]));
    assert_eq!(remote("h:/a/b").parent().path, b"/a");
    assert_eq!(remote("h:/a").parent().path, b"/");
    assert_eq!(remote("h:/").join(b"x").path, b"/x");
}

#[test]
fn url_options_carry_the_names_of_libnfs() {
    let target = remote(
        "nfs://me@nas:2050/a%20b%2525?uid=7&gid=8&mountport=2051&rsize=8192&wsize=4096&timeo=7&version=3",
    );
    assert_eq!((&*target.host, &target.path[..]), ("nas", &b"/a b%25"[..]));
    let options = &target.options;
    assert_eq!((options.nfs_port, options.mount_port), (Some(2050), Some(2051)));
    assert_eq!((options.uid, options.gid), (Some(7), Some(8)));
    assert_eq!((options.read_block, options.write_block), (Some(8192), Some(4096)));
    assert_eq!(options.initial_timeout, Some(std::time::Duration::from_millis(700)));
    assert_eq!(options.warnings.len(), 1, "{:?}", options.warnings);
    assert_eq!(&*remote("nfs://[::1]:2049/x").host, "::1");
    assert_eq!(remote("nfs://nas").path, b"/");
    assert_eq!(remote("nfs://nas?nfsport=1").options.nfs_port, Some(1));
}

#[test]
fn a_link_local_address_keeps_its_zone() {
    for text in ["nfs://[fe80::1%25eth0]/x", "nfs://[fe80::1%eth0]:2049/x", "[fe80::1%eth0]:/x"] {
        assert_eq!(&*remote(text).host, "fe80::1%eth0", "{text}");
        assert_eq!(remote(&remote(text).to_string()), remote(text), "{text}");
    }
    // As a zone that is a number, which is in no URL of another program.
    assert_eq!(&*remote("nfs://[fe80::1%25]/x").host, "fe80::1%25");
    assert_eq!(&*Remote::parse_host(OsStr::new("fe80::1%eth0")).unwrap().host, "fe80::1%eth0");
}

#[test]
fn a_port_stays_in_the_name() {
    let target = remote("nfs://nas:2050/a%25b/c?mountport=2051&uid=7&rsize=8192");
    assert_eq!(target.join(b"d?").to_string(), "nfs://nas:2050/a%25b/c/d%3F");
    assert_eq!(target.shell_word(), "'nfs://nas:2050/a%25b/c?mountport=2051&uid=7'");
    assert_eq!(target.server(), "nas:2050");
    assert_eq!(remote("nfs://[::1]:2050/x").to_string(), "nfs://[::1]:2050/x");
    let again = remote(target.shell_word().trim_matches('\''));
    assert_eq!((&again.path, again.options.mount_port), (&target.path, Some(2051)));
    assert_eq!(remote("nfs://nas/x?mountport=2051").to_string(), "nas:/x");
    assert_eq!(remote("nas:/it's").shell_word(), "'nas:/it'\\''s'");
}

#[test]
fn all_that_a_server_exports_has_a_name_where_it_can_be_listed() {
    for text in ["nas:", "nas:/", "nfs://nas"] {
        let listed = Remote::parse_listed(OsStr::new(text)).unwrap();
        assert_eq!((&*listed.host, &listed.path[..]), ("nas", &b"/"[..]));
    }
    assert!(Target::parse(OsStr::new("nas:")).is_err(), "nothing is copied to a place that is not named");
}

#[test]
fn a_server_is_named_with_and_without_a_colon() {
    for (text, host) in [
        ("nas", "nas"),
        ("nas:", "nas"),
        ("nas:/", "nas"),
        ("me@nas:", "nas"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("[::1]:", "::1"),
        ("2001:db8::", "2001:db8::"),
    ] {
        let server = Remote::parse_host(OsStr::new(text)).unwrap();
        assert_eq!((&*server.host, &server.path[..]), (host, &b"/"[..]), "{text}");
    }
    let wrong = Remote::parse_host(OsStr::new("nas:2049")).unwrap_err();
    assert!(wrong.contains("nfs://nas:2049/"), "{wrong}");
}

#[test]
fn unknown_url_options_warn_and_impossible_ones_fail() {
    assert_eq!(remote("nfs://h/?retrans=3&autoreconnect=-1&zzz").options.warnings.len(), 3);
    for wrong in [
        "nfs:///x",
        "nfs://h:x/",
        "nfs://h/?uid=-1",
        "nfs://h/?version=4",
        "nfs://h/%zz",
        "nfs://h/%00",
        "nfs://::1/x",
    ] {
        assert!(Target::parse(OsStr::new(wrong)).is_err(), "{wrong}");
    }
}

#[test]
fn bytes_that_are_not_utf8_survive() {
    let target = Target::parse(OsStr::from_bytes(b"h:/\xff")).unwrap();
    let Target::Remote(target) = target else { panic!("{target:?}") };
    assert_eq!(target.path, b"/\xff");
    assert_eq!(remote("nfs://h/%FF").path, b"/\xff");
}

#[test]
fn a_directory_named_by_dots_has_no_name_of_its_own() {
    for text in [".", "./", "..", "/", "a/.", "a/.."] {
        assert_eq!(local_name(Path::new(text)), None, "{text}");
    }
    assert_eq!(local_name(Path::new("a/b/")), Some(OsStr::new("b")));
}

#[test]
fn a_share_is_a_server_that_a_code_and_an_address_name() {
    for (text, host, path) in [
        ("7-velvet-cactus@192.168.1.5:7049:/trip/a:b", "7-velvet-cactus@192.168.1.5:7049", "/trip/a:b"),
        ("12-Zoo-zone@[fe80::1%eth0]:7049:/", "12-Zoo-zone@[fe80::1%eth0]:7049", "/"),
        ("@192.168.1.5:7049:/trip", "@192.168.1.5:7049", "/trip"),
        ("@laptop:/", "@laptop", "/"),
        ("@:/trip", "@", "/trip"),
        ("7-velvet-cactus:/trip", "7-velvet-cactus", "/trip"),
    ] {
        let remote = remote(text);
        assert_eq!((&*remote.host, &remote.path[..]), (host, path.as_bytes()));
        assert_eq!(remote.share(), host.split_once('@').or(Some((host, ""))));
        assert_eq!(remote.to_string(), text);
        assert_eq!(&*Remote::parse_host(OsStr::new(host)).unwrap().host, host);
        assert_eq!(self::remote(remote.shell_word().trim_matches('\'')), remote);
    }
    // A user, and no code.
    assert_eq!(&*remote("me@nas:/x").host, "nas");
    assert_eq!(&*remote("7-me@nas:/x").host, "nas");
    // Servers, whatever they are called.
    for text in [
        "nas:/x",
        "10-0-0-1:/x",
        "7-velvet-cactus.lan:/x",
        "nfs://7-velvet-cactus/x",
        "nfs://7-velvet-cactus:2049/x",
    ] {
        let remote = remote(text);
        assert_eq!((remote.share(), remote.join(b"y").share()), (None, None), "{text}");
        assert_eq!(remote.to_string(), text);
        assert_eq!(self::remote(&remote.shell_word()), remote);
    }
}

#[test]
fn a_backslash_escapes_a_pattern_wherever_one_path_is_meant() {
    for (text, path, pattern) in [
        ("h:/a/b", "/a/b", None),
        ("h:/a\\b", "/a\\b", None),
        ("h:/a*b", "/a*b", Some("/a*b")),
        ("h:/d\\x/a\\*b/", "/d\\x/a*b", Some("/d\\x/a\\*b")),
        ("h:/\\[1\\] \\\\", "/[1] \\", Some("/\\[1\\] \\\\")),
        ("nfs://h/a%2Ab", "/a*b", None),
        ("nfs://h/%5B1]*", "/[1]*", Some("/\\[1]*")),
    ] {
        let remote = remote(text);
        let wanted = (path.as_bytes(), pattern.map(str::as_bytes));
        assert_eq!((&remote.path[..], remote.pattern.as_deref()), wanted, "{text}");
        let written = text.replace("nfs://h", "h:").replace("%2A", "*").replace("%5B", "\\[");
        assert_eq!(remote.to_bytes(), written.trim_end_matches('/').as_bytes());
    }
    for name in ["a*b", "[1] \\", "a\\b", "]", "?"] {
        let escaped = String::from_utf8(escape_pattern(name.as_bytes())).unwrap();
        assert_eq!(remote(&format!("h:/{escaped}")).path, format!("/{name}").as_bytes(), "{escaped}");
    }
}
