//! Names that are given only if they are free, and taken away only if they are still the file's, while somebody else is at work.

use std::time::{Duration, Instant};

use nfs_wireless_client::{
    Client, ClientConfig, Error, FileHandle, Fs, NfsStatus, Procedure, RetryPolicy, SetAttributes, Stability,
    TransportChoice,
};
use nfs_wireless_server::{
    Action, Calls, Faults, Memory, Rule, Server, Service, ServiceConfig, When, nfs3_types::nfs3::nfstime3,
};

struct Bench {
    server: Server,
    client: Client,
    /// Somebody else.
    other: Client,
}

impl Bench {
    /// A server on which these files have their names as contents, and faults.
    async fn new(files: &[&str], faults: Faults) -> Self {
        let service = Service::new(ServiceConfig::default(), Memory::default(), 1, Instant::now()).unwrap();
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), service).await.unwrap();
        let connect = async |transport| {
            let mut config = ClientConfig::default();
            config.transport = transport;
            config.portmap_port = server.local_addr().port();
            let (initial, maximum) = (Duration::from_millis(100), RetryPolicy::MAXIMUM);
            config.retry = RetryPolicy::Exponential { initial, maximum };
            Client::connect("127.0.0.1", b"/", config).await.unwrap()
        };
        // What is dropped is sent again over UDP only.
        let (client, other) = (connect(TransportChoice::Udp).await, connect(TransportChoice::Tcp).await);
        for name in files {
            let file = other.create(other.root(), name.as_bytes(), SetAttributes::default()).await.unwrap();
            other.write(file.handle, 0, name.as_bytes(), Stability::Stable).await.unwrap();
        }
        server.with_service(|service| service.set_faults(faults));
        Self { server, client, other }
    }

    async fn file(&self, name: &str) -> FileHandle {
        self.other.lookup(self.other.root(), name.as_bytes()).await.unwrap().handle
    }

    fn at<'a>(&self, name: &'a str) -> (FileHandle, &'a [u8]) {
        (self.client.root(), name.as_bytes())
    }

    fn contents(&self, name: &str) -> Option<String> {
        let path = format!("/{name}");
        let found = self.server.with_service(|service| service.backend().read_file(path.as_bytes()));
        found.ok().map(|bytes| String::from_utf8(bytes).unwrap())
    }

    /// What `old` and `new` have.
    fn both(&self) -> [Option<String>; 2] {
        ["old", "new"].map(|name| self.contents(name))
    }
}

fn fails(procedure: Procedure, status: NfsStatus) -> Faults {
    Faults::from(vec![Rule::always(procedure, Action::Fail(status))])
}

/// Whether each of these answers to LINK says that RENAME may be tried.
const REFUSALS: [(NfsStatus, bool); 13] = [
    (NfsStatus::NOTSUPP, true),
    (NfsStatus::PERM, true),
    (NfsStatus::XDEV, true),
    (NfsStatus::MLINK, true),
    (NfsStatus::INVAL, true),
    (NfsStatus::IO, true),
    (NfsStatus::SERVERFAULT, true),
    (NfsStatus::STALE, false),
    (NfsStatus::NOENT, false),
    (NfsStatus::ACCES, false),
    (NfsStatus::ROFS, false),
    (NfsStatus::NOSPC, false),
    (NfsStatus::DQUOT, false),
];

fn no_links() -> Faults {
    fails(Procedure::Link, NfsStatus::NOTSUPP)
}

#[tokio::test]
async fn a_name_is_given_where_a_link_is_not_made_for_whatever_reason_but_those_of_every_call() {
    for (status, is_given) in REFUSALS {
        let bench = Bench::new(&["old"], fails(Procedure::Link, status)).await;
        let old = bench.file("old").await;
        let given = bench.client.rename_if_free(old, bench.at("old"), bench.at("new")).await;
        assert_eq!(given.as_ref().ok(), is_given.then_some(&true), "{status}");
        let name = Some("old".to_owned());
        assert_eq!(bench.both(), if is_given { [None, name] } else { [name, None] }, "{status}");
    }
}

/// What somebody else does once the file has both names.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Nothing,
    OldReplaced,
    OldRemoved,
    /// As if LINK had done nothing.
    NewRemoved,
    /// As if LINK had made something else.
    NewReplaced,
}

#[tokio::test]
async fn an_old_name_is_removed_only_if_both_names_are_the_files() {
    for (meanwhile, is_renamed, left) in [
        (Meanwhile::Nothing, true, [None, Some("old")]),
        (Meanwhile::OldReplaced, true, [Some("theirs"), Some("old")]),
        (Meanwhile::OldRemoved, true, [None, Some("old")]),
        (Meanwhile::NewRemoved, false, [Some("old"), None]),
        (Meanwhile::NewReplaced, false, [Some("old"), Some("theirs")]),
    ] {
        let bench = Bench::new(&["old", "theirs"], Faults::default()).await;
        let ([old, theirs], root) =
            ([bench.file("old").await, bench.file("theirs").await], bench.other.root());
        let lost = Rule::always(Procedure::Lookup, Action::DropCall);
        bench.server.with_service(|service| service.set_faults(Faults::from(vec![lost])));
        let other = async {
            while bench.contents("new").is_none() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let replace = async |name: &[u8]| {
                bench.other.rename(theirs, (root, b"theirs"), (root, name)).await.unwrap();
            };
            match meanwhile {
                Meanwhile::Nothing => {}
                Meanwhile::OldReplaced => replace(b"old").await,
                Meanwhile::OldRemoved => bench.other.remove(root, b"old").await.unwrap(),
                Meanwhile::NewRemoved => bench.other.remove(root, b"new").await.unwrap(),
                Meanwhile::NewReplaced => replace(b"new").await,
            }
            bench.server.with_service(|service| service.set_faults(Faults::default()));
        };
        let (renamed, ()) =
            tokio::join!(bench.client.rename_if_free(old, bench.at("old"), bench.at("new")), other);
        match renamed {
            Ok(is_given) => assert!(is_given && is_renamed, "{meanwhile:?}"),
            Err(Error::NotLinked { name }) => assert!(name == "new" && !is_renamed, "{meanwhile:?}"),
            Err(error) => panic!("{meanwhile:?}: {error}"),
        }
        assert_eq!(bench.both(), left.map(|it| it.map(str::to_owned)), "{meanwhile:?}");
    }
}

/// Two moves of one file to two names: one of them is first, and the other finds no file.
#[tokio::test]
async fn a_file_that_somebody_else_moves_meanwhile_gets_one_name() {
    for replaces in [false, true] {
        let bench = Bench::new(&["old", "theirs"], Faults::default()).await;
        let ([old, theirs], root) =
            ([bench.file("old").await, bench.file("theirs").await], bench.other.root());
        let lost = Rule::always(Procedure::Lookup, Action::DropCall);
        bench.server.with_service(|service| service.set_faults(Faults::from(vec![lost])));
        let other = async {
            while bench.contents("new").is_none() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            bench.other.rename(old, (root, b"old"), (root, b"elsewhere")).await.unwrap();
            if replaces {
                bench.other.rename(theirs, (root, b"theirs"), (root, b"old")).await.unwrap();
            }
            bench.server.with_service(|service| service.set_faults(Faults::default()));
        };
        let (renamed, ()) =
            tokio::join!(bench.client.rename_if_free(old, bench.at("old"), bench.at("new")), other);
        assert_eq!(renamed.unwrap_err().status(), Some(NfsStatus::NOENT));
        assert_eq!(bench.both(), [replaces.then(|| "theirs".to_owned()), None]);
        assert_eq!(bench.contents("elsewhere").as_deref(), Some("old"));
    }
}

/// However many it has by the reply to LINK.
#[tokio::test]
async fn a_link_of_a_file_with_unknown_names_is_looked_up() {
    let bench = Bench::new(&["old"], Faults::default()).await;
    let (old, root) = (bench.file("old").await, bench.client.root());
    bench.client.hard_link(old, root, b"again").await.unwrap();
    let looked = || {
        let lookup = Procedure::Lookup.number() as usize;
        bench.server.with_service(|service| service.stats().served[lookup])
    };
    let before = looked();
    bench.client.hard_link(old, root, b"new").await.unwrap();
    assert_eq!(looked() - before, 1);
}

/// Whoever makes the file between the look at its name and the call that was to make it.
#[tokio::test]
async fn what_is_written_by_path_is_all_that_the_file_has() {
    for theirs in ["longer", "link", "directory"] {
        let bench = Bench::new(&["longer", "target"], Faults::default()).await;
        let root = bench.other.root();
        bench.other.symlink(root, b"link", b"target").await.unwrap();
        bench.other.mkdir(root, b"directory", SetAttributes::default()).await.unwrap();
        let file = bench.file(theirs).await;
        let lost = Rule::always(Procedure::Create, Action::DropCall);
        bench.server.with_service(|service| service.set_faults(Faults::from(vec![lost])));
        let other = async {
            while bench.server.with_service(|service| service.stats().dropped_calls) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            bench.other.rename(file, (root, theirs.as_bytes()), (root, b"new")).await.unwrap();
            bench.server.with_service(|service| service.set_faults(Faults::default()));
        };
        let fs = Fs::new(bench.client.clone(), "/");
        let (written, ()) = tokio::join!(fs.write("new", "ours"), other);
        match theirs {
            "directory" => assert_eq!(written.unwrap_err().kind(), std::io::ErrorKind::IsADirectory),
            "link" => {
                written.unwrap();
                assert_eq!(bench.contents("target").as_deref(), Some("ours"));
            }
            _ => {
                written.unwrap();
                assert_eq!(bench.contents("new").as_deref(), Some("ours"));
            }
        }
    }
}

/// More names than are kept at the same time.
#[tokio::test]
async fn a_large_directory_is_removed_part_by_part() {
    const FILES: usize = 6000;
    const DIRECTORIES: usize = 5000;
    let bench = Bench::new(&["other"], Faults::default()).await;
    bench.server.with_service(|service| {
        let (memory, now) = (service.backend(), nfstime3::default());
        for number in 0..FILES {
            memory.write_file(now, format!("/top/files/{number:0200}").as_bytes(), &[]).unwrap();
        }
        for number in 0..DIRECTORIES {
            memory.write_file(now, format!("/top/directories/{number:0200}/file").as_bytes(), &[]).unwrap();
        }
    });
    Fs::new(bench.other.clone(), "/").remove_dir_all("top").await.unwrap();
    assert!(bench.other.lookup(bench.other.root(), b"top").await.is_err());
    assert_eq!(bench.contents("other").as_deref(), Some("other"));
}

#[tokio::test]
async fn a_name_that_something_has_is_not_given() {
    for (faults, has_links) in [(Faults::default(), true), (no_links(), false)] {
        let bench = Bench::new(&["old", "new"], faults).await;
        let (old, from, to) = (bench.file("old").await, bench.at("old"), bench.at("new"));
        let error = bench.client.rename_new(old, from, to).await.unwrap_err();
        assert_eq!(error.is_no_link(), !has_links, "{error}");
        assert!(!has_links || error.status() == Some(NfsStatus::EXIST), "{error}");
        assert!(!bench.client.rename_if_free(old, from, to).await.unwrap());
        assert!(!bench.client.rename_if(old, from, to, |_| false).await.unwrap());
        assert_eq!(bench.both(), ["old", "new"].map(|name| Some(name.to_owned())));
    }
}

#[tokio::test]
async fn a_free_name_is_given_and_what_may_be_replaced_is() {
    let given = [None, Some("old".to_owned())];
    for faults in [Faults::default(), no_links()] {
        let bench = Bench::new(&["old"], faults.clone()).await;
        let (old, from, to) = (bench.file("old").await, bench.at("old"), bench.at("new"));
        assert!(bench.client.rename_if_free(old, from, to).await.unwrap());
        assert_eq!(bench.both(), given);

        let bench = Bench::new(&["old"], faults.clone()).await;
        let old = bench.file("old").await;
        let nothing = |_: &_| panic!("nothing is there");
        assert!(bench.client.rename_if(old, from, to, nothing).await.unwrap());
        assert_eq!(bench.both(), given);

        let bench = Bench::new(&["old", "new"], faults).await;
        let [old, new] = [bench.file("old").await, bench.file("new").await];
        assert!(bench.client.rename_if(old, from, to, |there| there.handle == new).await.unwrap());
        assert_eq!(bench.both(), given);
    }
}

/// The attributes in the reply tell what was done, and a LOOKUP where they do not.
#[tokio::test]
async fn a_link_is_believed_if_the_file_has_one_more_name() {
    let pretends = Faults::from(vec![Rule::always(Procedure::Link, Action::Pretend)]);
    for (faults, links, looks, is_linked) in [
        (Faults::default(), 1, 0, true),
        // More names than it has: one was removed since they were counted.
        (Faults::default(), 2, 1, true),
        (pretends.clone(), 1, 1, false),
        (pretends, 2, 1, false),
    ] {
        let bench = Bench::new(&["old"], faults.clone()).await;
        let (old, (root, new)) = (bench.file("old").await, bench.at("new"));
        let looked = || {
            let lookup = Procedure::Lookup.number() as usize;
            bench.server.with_service(|service| service.stats().served[lookup])
        };
        let before = looked();
        let linked = bench.client.hard_link_of((old, links), root, new).await;
        assert_eq!(looked() - before, looks, "{faults:?} {links}");
        assert_eq!(bench.contents("new").is_some(), is_linked);
        if is_linked {
            linked.unwrap();
            continue;
        }
        let first = bench.client.hard_link_first((old, links), root, new).await;
        let plain = bench.client.hard_link(old, root, new).await;
        for error in [linked, first, plain].map(Result::unwrap_err) {
            assert!(matches!(&error, Error::NotLinked { name } if name == "new"), "{error}");
        }
    }
}

/// RENAME does nothing there (RFC 1813 §3.3.14).
#[tokio::test]
async fn of_two_names_of_a_file_one_is_left() {
    let bench = Bench::new(&["old"], Faults::default()).await;
    let (old, from, to) = (bench.file("old").await, bench.at("old"), bench.at("new"));
    bench.other.hard_link(old, to.0, to.1).await.unwrap();
    assert!(bench.client.rename_if(old, from, to, |_| true).await.unwrap());
    assert_eq!(bench.both(), [None, Some("old".to_owned())]);
    assert!(bench.client.rename_if(old, to, to, |_| true).await.unwrap());
    assert_eq!(bench.contents("new").as_deref(), Some("old"));
}

/// The status of REMOVE does not say that there are no links.
#[tokio::test]
async fn a_name_that_cannot_be_removed_is_an_error() {
    for status in [NfsStatus::PERM, NfsStatus::ACCES, NfsStatus::NOTSUPP] {
        let bench = Bench::new(&["old"], fails(Procedure::Remove, status)).await;
        let old = bench.file("old").await;
        let error = bench.client.rename_if_free(old, bench.at("old"), bench.at("new")).await.unwrap_err();
        let is_of_remove = matches!(&error, Error::Status { procedure: Procedure::Remove, .. });
        assert!(is_of_remove && !error.is_no_link(), "{error}");
        assert_eq!(bench.both(), [(); 2].map(|()| Some("old".to_owned())));
    }
}

#[tokio::test]
async fn a_name_is_removed_if_it_stands_for_the_file() {
    let bench = Bench::new(&["old", "new"], Faults::default()).await;
    let (old, root) = (bench.file("old").await, bench.client.root());
    for (name, is_removed) in [(&b"new"[..], false), (b"missing", false), (b"old", true), (b"new", false)] {
        assert_eq!(bench.client.remove_if(old, root, name).await.unwrap(), is_removed, "{name:?}");
    }
    assert_eq!(bench.both(), [None, Some("new".to_owned())]);
}

/// A directory has one name: the new one is taken by an empty directory of ours.
#[tokio::test]
async fn a_directory_gets_a_free_name_and_nothing_is_left_where_it_does_not() {
    let nth = |status| {
        let (calls, when) = (Calls::Procedure(Procedure::Rename), When::Nth(1));
        Faults::from(vec![Rule { calls, when, action: Action::Fail(status) }])
    };
    for (faults, taken, is_given, names) in [
        (Faults::default(), false, Some(true), ["new"].as_slice()),
        (Faults::default(), true, Some(false), &["new", "old"]),
        // A server that replaces no directory.
        (nth(NfsStatus::EXIST), false, Some(true), &["new"]),
        (nth(NfsStatus::NOTEMPTY), false, Some(true), &["new"]),
        (fails(Procedure::Rename, NfsStatus::EXIST), false, None, &["old"]),
        (fails(Procedure::Rename, NfsStatus::ACCES), false, None, &["old"]),
        (fails(Procedure::Mkdir, NfsStatus::ACCES), false, None, &["old"]),
    ] {
        let bench = Bench::new(&[], Faults::default()).await;
        let (root, attributes) = (bench.other.root(), SetAttributes::default);
        let old = bench.other.mkdir(root, b"old", attributes()).await.unwrap().handle;
        bench.other.create(old, b"file", attributes()).await.unwrap();
        if taken {
            bench.other.mkdir(root, b"new", attributes()).await.unwrap();
        }
        bench.server.with_service(|service| service.set_faults(faults.clone()));
        let given = bench.client.rename_directory_if_free(old, bench.at("old"), bench.at("new")).await;
        assert_eq!(given.as_ref().ok().copied(), is_given, "{faults:?}");
        let mut found = Vec::new();
        let mut listing = bench.other.read_dir(root);
        while let Some(entry) = listing.next().await.unwrap() {
            found.push(String::from_utf8(entry.name).unwrap());
        }
        found.sort();
        assert_eq!(found, names, "{faults:?}");
    }
}

/// As a run leaves it that ends between its two calls.
#[tokio::test]
async fn a_name_that_was_reserved_is_given_to_the_next_directory_and_to_no_other_file() {
    for (mode, is_empty, is_given) in [
        (0o1000, true, Some(true)),
        (0o1000, false, None),
        (0o755, true, Some(false)),
        (0, true, Some(false)),
    ] {
        let bench = Bench::new(&["file"], Faults::default()).await;
        let root = bench.other.root();
        let old = bench.other.mkdir(root, b"old", SetAttributes::default()).await.unwrap().handle;
        bench.other.create(old, b"inside", SetAttributes::default()).await.unwrap();
        let mode = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        let new = bench.other.mkdir(root, b"new", mode).await.unwrap().handle;
        if !is_empty {
            bench.other.create(new, b"theirs", SetAttributes::default()).await.unwrap();
        }
        let file = bench.file("file").await;
        assert!(!bench.client.rename_if_free(file, bench.at("file"), bench.at("new")).await.unwrap());
        let given = bench.client.rename_directory_if_free(old, bench.at("old"), bench.at("new")).await;
        assert_eq!(given.as_ref().ok().copied(), is_given, "{mode:?}");
        let now = if is_given == Some(true) { old } else { new };
        assert_eq!(bench.file("new").await, now, "{mode:?}");
    }
}

#[tokio::test]
async fn a_listing_leaves_out_what_is_gone_and_hands_out_what_is_not_found() {
    let names_alone = Rule::always(Procedure::Readdirplus, Action::Fail(NfsStatus::NOTSUPP));
    for (status, is_removed) in [
        (NfsStatus::NOENT, false),
        (NfsStatus::NOTDIR, false),
        (NfsStatus::IO, false),
        (NfsStatus::NOENT, true),
    ] {
        let bench = Bench::new(&["a", "b", "c"], Faults::default()).await;
        let (calls, when) = (Calls::Procedure(Procedure::Lookup), When::Nth(1));
        let rules = vec![names_alone.clone(), Rule { calls, when, action: Action::Fail(status) }];
        let mut listing = bench.client.read_dir(bench.client.root());
        bench.server.with_service(|service| service.set_faults(Faults::from(rules)));
        let (mut complete, mut unfound) = (0, 0);
        while let Some(entry) = listing.next_complete().await.unwrap() {
            match entry.handle {
                Some(_) => complete += 1,
                None => unfound += 1,
            }
            if is_removed {
                // The one that was not found, of those that are left.
                for name in ["a", "b", "c"] {
                    if entry.name != name.as_bytes() {
                        let _ = bench.other.remove(bench.other.root(), name.as_bytes()).await;
                    }
                }
            }
        }
        let expected = if is_removed { (1, 0) } else { (2, 1) };
        assert_eq!((complete, unfound), expected, "{status}");
    }
}
