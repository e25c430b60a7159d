//! What the crate's documentation promises, and `object_store`'s own tests do not ask.

use std::{
    collections::BTreeSet,
    future::ready,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use nfs_object_store::NfsObjectStore;
use nfs_wireless_client::{
    NfsStatus, Procedure, Rejection, SetAttributes, Stability, TransportChoice,
    TransportChoice::{Tcp, Udp},
};
use nfs_wireless_server::{
    Action, Calls, Faults, InnerExport, Rule, Server, When, nfs3_types::nfs3::nfstime3,
};
use object_store::{
    Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutPayload, path::Path,
};
use tokio::{task::JoinSet, time::sleep};

use crate::common::{config, embedded, forgetful, open};

const MIB: usize = 1 << 20;

/// `AUTH_TOOWEAK`, which no client waits out (RFC 5531 §9).
const AUTH_TOO_WEAK: u32 = 5;

fn path(path: &str) -> Path {
    Path::from(path)
}

fn rule(procedure: Procedure, chance: f64, action: Action) -> Rule {
    Rule { calls: Calls::Procedure(procedure), when: When::Chance(chance), action }
}

fn fail(procedure: Procedure, status: NfsStatus) -> Faults {
    Faults::from(vec![Rule::always(procedure, Action::Fail(status))])
}

/// The names in the root directory.
async fn names(store: &NfsObjectStore) -> BTreeSet<String> {
    let mut listing = store.client().read_dir(store.client().root());
    let mut names = BTreeSet::new();
    while let Some(entry) = listing.next().await.unwrap() {
        names.insert(String::from_utf8(entry.name).unwrap());
    }
    names
}

async fn listed(store: &NfsObjectStore) -> Vec<String> {
    let mut found: Vec<_> =
        store.list(None).map_ok(|it| it.location.to_string()).try_collect().await.unwrap();
    found.sort_unstable();
    found
}

async fn contents(store: &NfsObjectStore, location: &str) -> Vec<u8> {
    store.get(&path(location)).await.unwrap().bytes().await.unwrap().to_vec()
}

/// Each version has a byte and a length of its own.
fn version(number: u8) -> PutPayload {
    vec![number; 200_000 + 1_000 * usize::from(number)].into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_sees_one_version_whole() {
    for transport in [Udp, Tcp] {
        let (server, writer) = embedded(transport, Faults::default()).await;
        writer.put(&path("object"), version(0)).await.unwrap();
        let mut readers = JoinSet::new();
        for _ in 0..3 {
            let reader = open(&server, transport).await;
            readers.spawn(async move {
                let (mut whole, mut last) = (0, 0);
                while last < 200 {
                    let read = async { reader.get(&path("object")).await?.bytes().await };
                    match read.await {
                        Ok(bytes) => {
                            assert!(bytes[0] >= last, "an older version than before");
                            last = bytes[0];
                            assert!(bytes == Bytes::from(version(last)), "a mixture");
                            whole += 1;
                        }
                        // It was replaced, and the server does not keep it for its readers.
                        Err(Error::Precondition { path, .. }) => assert_eq!(path, "object"),
                        Err(error) => panic!("{error}"),
                    }
                }
                whole
            });
        }
        for number in 1..=200 {
            writer.put(&path("object"), version(number)).await.unwrap();
        }
        for whole in readers.join_all().await {
            assert!(whole > 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_creators_one_succeeds_also_when_replies_are_lost() {
    let faults = Faults::from(vec![rule(Procedure::Link, 0.3, Action::DropReply)]);
    let (server, store) = embedded(Udp, faults).await;
    for round in 0..5 {
        let location = Path::from(format!("round{round}"));
        let mut creators = JoinSet::new();
        for number in 0..12_u8 {
            let (store, location) = (open(&server, Udp).await, location.clone());
            creators.spawn(async move {
                let made = store.put_opts(&location, version(number), PutMode::Create.into()).await;
                (number, made)
            });
        }
        let mut winner = None;
        for (number, made) in creators.join_all().await {
            match made {
                Ok(_) => assert!(winner.replace(number).is_none(), "two succeeded"),
                Err(Error::AlreadyExists { path, .. }) => assert_eq!(path, location.to_string()),
                Err(error) => panic!("{error}"),
            }
        }
        let there = contents(&store, location.as_ref()).await;
        assert_eq!(there[0], winner.unwrap());
    }
    let all: Vec<_> = (0..5).map(|round| format!("round{round}")).collect();
    assert_eq!(names(&store).await, all.into_iter().collect(), "no temporary name is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_copy_or_rename_one_object_at_most_one_succeeds() {
    let faults = Faults::from(vec![rule(Procedure::Link, 0.3, Action::DropCall)]);
    let (server, store) = embedded(Udp, faults).await;
    for round in 0..6 {
        let (from, to) = (Path::from(format!("from{round}")), Path::from(format!("to{round}")));
        store.put(&from, version(round)).await.unwrap();
        let mut runs = JoinSet::new();
        for _ in 0..8 {
            let (store, from, to) = (open(&server, Udp).await, from.clone(), to.clone());
            runs.spawn(async move {
                match round % 2 {
                    0 => store.copy_if_not_exists(&from, &to).await,
                    _ => store.rename_if_not_exists(&from, &to).await,
                }
            });
        }
        let mut done = 0;
        for outcome in runs.join_all().await {
            match outcome {
                Ok(()) => done += 1,
                Err(Error::AlreadyExists { .. }) => {}
                Err(Error::NotFound { .. }) if round % 2 == 1 => {}
                // It is not known who made the link, and that is said.
                Err(error) => assert!(error.to_string().contains("it may have been done"), "{error}"),
            }
        }
        assert!(done <= 1, "{done} succeeded in round {round}");
        assert_eq!(contents(&store, to.as_ref()).await[0], round);
    }
    // A name that is its own.
    store.put(&path("a"), version(1)).await.unwrap();
    server
        .with_service(|it| it.set_faults(Faults::from(vec![rule(Procedure::Link, 0.5, Action::DropReply)])));
    for _ in 0..4 {
        let taken = store.copy_if_not_exists(&path("a"), &path("a")).await.unwrap_err();
        assert!(matches!(taken, Error::AlreadyExists { .. }), "{taken}");
    }
}

/// As if LINK had done nothing.
#[tokio::test]
async fn an_object_without_its_name_is_no_success() {
    let (server, store) = embedded(Tcp, Faults::default()).await;
    server.with_service(|service| service.set_faults(fail(Procedure::Lookup, NfsStatus::NOENT)));
    let error = store.put_opts(&path("a"), "x".into(), PutMode::Create.into()).await.unwrap_err();
    assert!(error.to_string().contains("that is not the file's name"), "{error}");
}

/// A server that says that LINK was done, and has done nothing.
#[tokio::test]
async fn a_copy_without_its_name_is_no_success() {
    let (server, store) = embedded(Tcp, Faults::default()).await;
    store.put(&path("once"), "once".into()).await.unwrap();
    store.put(&path("a"), "twice".into()).await.unwrap();
    store.copy(&path("a"), &path("b")).await.unwrap();
    let before = names(&store).await;
    let pretends = Faults::from(vec![Rule::always(Procedure::Link, Action::Pretend)]);
    server.with_service(|service| service.set_faults(pretends));
    for from in ["once", "a"] {
        let (from, to) = (path(from), path("to"));
        for error in [
            store.copy_if_not_exists(&from, &to).await.unwrap_err(),
            store.copy(&from, &to).await.unwrap_err(),
            store.rename_if_not_exists(&from, &to).await.unwrap_err(),
        ] {
            assert!(error.to_string().contains("that is not the file's name"), "{error}");
        }
    }
    assert_eq!(names(&store).await, before);
}

/// A server may forget handles, and list what it does not find.
#[tokio::test]
async fn a_listing_is_whole_or_an_error() {
    let (server, store) = embedded(Tcp, Faults::default()).await;
    for location in ["a/x", "a/y", "z"] {
        store.put(&path(location), "x".into()).await.unwrap();
    }
    let all = vec!["a/x".to_owned(), "a/y".to_owned(), "z".to_owned()];
    let strikes = |procedure, when, status| Rule {
        calls: Calls::Procedure(procedure),
        when,
        action: Action::Fail(status),
    };
    use Procedure::{Getattr, Lookup, Readdirplus};
    let unknown = || strikes(Getattr, When::Always, NfsStatus::STALE);
    let no_plus = || strikes(Readdirplus, When::Always, NfsStatus::NOTSUPP);
    for (rules, is_listed) in [
        // The root is listed first, and then `a`.
        (vec![strikes(Readdirplus, When::Nth(1), NfsStatus::STALE), unknown()], Some(all.clone())),
        (vec![strikes(Readdirplus, When::Nth(2), NfsStatus::STALE), unknown()], Some(all.clone())),
        (vec![strikes(Readdirplus, When::Always, NfsStatus::STALE), unknown()], None),
        (vec![strikes(Readdirplus, When::After(1), NfsStatus::STALE), unknown()], None),
        (vec![strikes(Readdirplus, When::After(1), NfsStatus::BADHANDLE), unknown()], None),
        (vec![strikes(Readdirplus, When::After(1), NfsStatus::NOENT)], None),
        // It was removed.
        (
            vec![
                strikes(Readdirplus, When::After(1), NfsStatus::STALE),
                strikes(Lookup, When::Always, NfsStatus::NOENT),
                unknown(),
            ],
            Some(vec!["z".to_owned()]),
        ),
        // What is listed is found, or not.
        (vec![no_plus()], Some(all.clone())),
        (vec![no_plus(), strikes(Lookup, When::Nth(1), NfsStatus::NOENT)], None),
        (vec![no_plus(), strikes(Lookup, When::Nth(1), NfsStatus::NOTDIR)], None),
    ] {
        let set = || server.with_service(|service| service.set_faults(Faults::from(rules.clone())));
        set();
        let found = store.list(None).map_ok(|it| it.location.to_string()).try_collect::<Vec<_>>().await;
        let found = found.ok().map(|mut found| {
            found.sort_unstable();
            found
        });
        assert_eq!(found, is_listed, "{rules:?}");
        if rules[0].when == When::Always && is_listed.is_none() {
            set();
            store.list_with_delimiter(None).await.unwrap_err();
        }
    }
}

#[tokio::test]
async fn nothing_leads_out_of_the_root() {
    let (server, outside) = embedded(Tcp, Faults::default()).await;
    outside.put(&path("secret"), "secret".into()).await.unwrap();
    outside.put(&path("inside/object"), "object".into()).await.unwrap();
    let inside = NfsObjectStore::connect("127.0.0.1", b"/inside", config(&server, Tcp)).await.unwrap();
    let client = outside.client();
    let directory = client.lookup(client.root(), b"inside").await.unwrap().handle;
    client.symlink(directory, b"link", b"../secret").await.unwrap();
    client.symlink(directory, b"up", b"..").await.unwrap();

    for location in ["link", "up", "up/secret", "up/inside/object"] {
        let missing = inside.get(&path(location)).await.unwrap_err();
        assert!(matches!(missing, Error::NotFound { .. }), "{location}: {missing}");
        let missing = inside.delete(&path(location)).await.unwrap_err();
        assert!(matches!(missing, Error::NotFound { .. }), "{location}: {missing}");
    }
    assert_eq!(listed(&inside).await, ["object"]);
    assert!(inside.list_with_delimiter(Some(&path("up"))).await.unwrap().objects.is_empty());
    inside.put(&path("up/object"), "x".into()).await.unwrap_err();
    // The path's own escapes are a name.
    inside.put(&path("../secret"), "other".into()).await.unwrap();
    assert_eq!(listed(&inside).await, ["%2E%2E/secret", "object"]);
    // The link is replaced, not what it leads to.
    inside.put(&path("link"), "file".into()).await.unwrap();
    assert_eq!(contents(&inside, "link").await, b"file");
    assert_eq!(contents(&outside, "secret").await, b"secret");

    let file = NfsObjectStore::connect("127.0.0.1", b"/secret", config(&server, Tcp)).await.unwrap_err();
    assert_eq!(file.to_string(), "Generic NFS error: /secret: it is no directory");
}

#[tokio::test]
async fn an_export_within_the_export_is_what_the_users_of_the_server_see() {
    let (server, outside) = embedded(Tcp, Faults::default()).await;
    outside.put(&path("mounted/deep/x"), "x".into()).await.unwrap();
    outside.put(&path("top/plain"), "plain".into()).await.unwrap();
    let client = outside.client();
    let top = client.lookup(client.root(), b"top").await.unwrap().handle;
    client.mkdir(top, b"inner", SetAttributes::default()).await.unwrap();
    for (is_refused, hides_exports) in [(false, false), (false, true), (true, true), (true, false)] {
        let (path_of, stored) = (b"/top/inner".to_vec(), b"mounted".to_vec());
        let mut faults = Faults::default();
        faults.inner_exports =
            vec![InnerExport { path: path_of, stored, is_refused, ..InnerExport::default() }];
        faults.hides_exports = hides_exports;
        server.with_service(|service| service.set_faults(faults));
        let store = NfsObjectStore::connect("127.0.0.1", b"/top", config(&server, Tcp)).await.unwrap();
        let found = store.list(None).map_ok(|it| it.location.to_string()).try_collect::<Vec<_>>().await;
        let put = store.put(&path("inner/new"), "new".into()).await;
        if is_refused {
            assert!(found.unwrap_err().to_string().contains("export of its own"));
            assert!(put.unwrap_err().to_string().contains("export of its own"));
            continue;
        }
        let mut found = found.unwrap();
        found.sort_unstable();
        assert_eq!(found, ["inner/deep/x", "plain"]);
        put.unwrap();
        assert_eq!(contents(&store, "inner/deep/x").await, b"x");
        assert_eq!(contents(&outside, "mounted/new").await, b"new");
        store.delete(&path("inner/new")).await.unwrap();
    }
}

#[tokio::test]
async fn a_name_that_is_no_path_is_an_error_that_names_it() {
    let (_server, store) = embedded(Tcp, Faults::default()).await;
    for (name, shown) in [(&b"a\nb"[..], r"/a\nb"), (b"\xff", r"/\xff")] {
        let client = store.client();
        client.create(client.root(), name, SetAttributes::default()).await.unwrap();
        let walked = store.list(None).try_collect::<Vec<_>>().await.unwrap_err();
        let level = store.list_with_delimiter(None).await.unwrap_err();
        for error in [walked, level] {
            assert!(matches!(error, Error::InvalidPath { .. }), "{error}");
            assert!(error.to_string().contains(shown), "{error}");
        }
        client.remove(client.root(), name).await.unwrap();
    }
}

#[tokio::test]
async fn a_directory_that_changes_while_it_is_listed_is_read_again_and_a_bottomless_one_ends() {
    let (server, store) = embedded(Tcp, Faults::default()).await;
    for number in 0..300 {
        store.put(&Path::from(format!("a/{number}")), "x".into()).await.unwrap();
    }
    let bad_cookie = |count| {
        let calls = Calls::Procedure(Procedure::Readdirplus);
        let action = Action::Fail(NfsStatus::BAD_COOKIE);
        let faults = Faults::from(vec![Rule { calls, when: When::First(count), action }]);
        server.with_service(|service| service.set_faults(faults));
    };
    bad_cookie(2);
    assert_eq!(listed(&store).await.len(), 300);
    bad_cookie(3);
    let error = store.list(None).try_collect::<Vec<_>>().await.unwrap_err();
    assert!(matches!(error, Error::Generic { .. }), "{error}");
    server.with_service(|service| service.set_faults(Faults::no_readdirplus()));
    assert_eq!(open(&server, Tcp).await.list(None).count().await, 300);
    server.with_service(|service| service.set_faults(Faults::default()));

    let client = store.client();
    let mut directory = client.root();
    for _ in 0..513 {
        directory = client.mkdir(directory, b"d", SetAttributes::default()).await.unwrap().handle;
    }
    let error = store.list(Some(&path("d"))).try_collect::<Vec<_>>().await.unwrap_err();
    assert!(error.to_string().ends_with("directories lie more than 512 deep"), "{error}");
}

#[tokio::test]
async fn an_unfinished_write_is_no_object_and_goes_when_it_is_dropped() {
    let slow = Faults::from(vec![rule(Procedure::Write, 1.0, Action::DelayReply(Duration::from_secs(9)))]);
    let (server, store) = embedded(Tcp, Faults::default()).await;
    let mut upload = store.put_multipart(&path("object")).await.unwrap();
    upload.put_part("part".into()).await.unwrap();
    let [name] = &names(&store).await.into_iter().collect::<Vec<_>>()[..] else { panic!("one name") };
    assert!(name.starts_with(".nfs-object-store."), "{name}");
    assert_eq!(listed(&store).await, [""; 0]);
    let hidden = store.get(&path(name)).await.unwrap_err();
    assert!(matches!(hidden, Error::NotFound { .. }), "{hidden}");
    store.put(&path(name), "mine".into()).await.unwrap_err();
    drop(upload);
    nothing_is_left(&store).await;

    server.with_service(|service| service.set_faults(slow));
    let location = path("object");
    let put = store.put(&location, version(1));
    tokio::time::timeout(Duration::from_millis(300), put).await.unwrap_err();
    server.with_service(|service| service.set_faults(Faults::default()));
    nothing_is_left(&store).await;

    let full = fail(Procedure::Write, NfsStatus::NOSPC);
    server.with_service(|service| service.set_faults(full));
    let error = store.put(&path("object"), version(1)).await.unwrap_err();
    assert_eq!(error.to_string(), "Generic NFS error: object: no space left on the server");
    assert_eq!(names(&store).await, BTreeSet::new());
}

async fn nothing_is_left(store: &NfsObjectStore) {
    for _ in 0..100 {
        if names(store).await.is_empty() {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("{:?} is left", names(store).await);
}

#[tokio::test]
async fn a_part_that_was_not_written_is_no_hole_in_the_object() {
    let (_server, store) = embedded(Tcp, Faults::default()).await;
    store.put(&path("object"), "before".into()).await.unwrap();
    let mut upload = store.put_multipart(&path("object")).await.unwrap();
    drop(upload.put_part("first".into()));
    upload.put_part("second".into()).await.unwrap();
    let error = upload.complete().await.unwrap_err();
    assert_eq!(error.to_string(), "Generic NFS error: object: 1 of 2 parts were not written");
    let error = upload.complete().await.unwrap_err();
    assert_eq!(error.to_string(), "Generic NFS error: object: the upload is complete or aborted");
    assert_eq!(contents(&store, "object").await, b"before");
    assert_eq!(names(&store).await.len(), 1);
}

/// RENAME and LINK treat two names of one file in a way of their own (RFC 1813 §3.3.14).
#[tokio::test]
async fn copies_of_copies_are_objects_of_their_own() {
    let (_server, store) = embedded(Tcp, Faults::default()).await;
    store.put(&path("a"), "first".into()).await.unwrap();
    for _ in 0..2 {
        store.copy(&path("a"), &path("b")).await.unwrap();
    }
    store.copy(&path("a"), &path("a")).await.unwrap();
    let taken = store.copy_if_not_exists(&path("a"), &path("b")).await.unwrap_err();
    assert!(matches!(taken, Error::AlreadyExists { .. }), "{taken}");
    assert_eq!(names(&store).await, ["a".into(), "b".into()].into());
    store.put(&path("a"), "second".into()).await.unwrap();
    assert_eq!(contents(&store, "b").await, b"first");

    store.copy(&path("a"), &path("b")).await.unwrap();
    store.rename(&path("a"), &path("b")).await.unwrap();
    assert_eq!(listed(&store).await, ["b"]);
    store.rename(&path("b"), &path("b")).await.unwrap();
    assert_eq!(contents(&store, "b").await, b"second");
    let taken = store.rename_if_not_exists(&path("b"), &path("b")).await.unwrap_err();
    assert!(matches!(taken, Error::AlreadyExists { .. }), "{taken}");
    store.rename_if_not_exists(&path("b"), &path("c/d")).await.unwrap();
    assert_eq!(listed(&store).await, ["c/d"]);
}

#[tokio::test]
async fn where_there_is_no_link_bytes_are_copied_and_nothing_is_created_twice() {
    let (server, store) = embedded(Tcp, Faults::default()).await;
    store.put(&path("a"), version(7)).await.unwrap();
    server.with_service(|service| service.set_faults(fail(Procedure::Link, NfsStatus::NOTSUPP)));
    store.copy(&path("a"), &path("b")).await.unwrap();
    assert_eq!(contents(&store, "b").await, contents(&store, "a").await);
    let create = store.put_opts(&path("c"), "x".into(), PutMode::Create.into()).await.unwrap_err();
    assert!(matches!(create, Error::NotSupported { .. }), "{create}");
    let create = store.copy_if_not_exists(&path("a"), &path("c")).await.unwrap_err();
    assert!(matches!(create, Error::NotSupported { .. }), "{create}");
    // go-nfs has its own word.
    server.with_service(|service| service.set_faults(fail(Procedure::Link, NfsStatus::INVAL)));
    let create = store.put_opts(&path("c"), "x".into(), PutMode::Create.into()).await.unwrap_err();
    assert!(matches!(create, Error::NotSupported { .. }), "{create}");
    assert_eq!(names(&store).await, ["a".into(), "b".into()].into());
}

#[tokio::test]
async fn a_refusal_is_the_error_that_object_store_has_for_it() {
    let (server, store) = embedded(Tcp, Faults::default()).await;
    store.put(&path("a/b"), "x".into()).await.unwrap();
    let refuse = |faults| server.with_service(|service| service.set_faults(faults));

    refuse(fail(Procedure::Lookup, NfsStatus::ACCES));
    let error = store.get(&path("a/b")).await.unwrap_err();
    assert!(matches!(&error, Error::PermissionDenied { path, .. } if path == "a/b"), "{error}");
    refuse(fail(Procedure::Create, NfsStatus::ROFS));
    let error = store.put(&path("a/c"), "x".into()).await.unwrap_err();
    assert!(matches!(&error, Error::PermissionDenied { path, .. } if path == "a/c"), "{error}");
    let reject = Action::Reject(Rejection::Authentication(AUTH_TOO_WEAK));
    refuse(Faults::from(vec![Rule::always(Procedure::Lookup, reject)]));
    let error = store.head(&path("a/b")).await.unwrap_err();
    assert!(matches!(&error, Error::Unauthenticated { path, .. } if path == "a/b"), "{error}");
    // A server for which every name is taken ends nowhere else.
    refuse(fail(Procedure::Create, NfsStatus::EXIST));
    store.put(&path("a/c"), "x".into()).await.unwrap_err();
    refuse(fail(Procedure::Link, NfsStatus::EXIST));
    store.copy(&path("a/b"), &path("a/c")).await.unwrap_err();
    refuse(Faults::default());
    // A file in the place of a directory, and a directory in the place of a file.
    let error = store.head(&path("a/b/c")).await.unwrap_err();
    assert!(matches!(&error, Error::NotFound { path, .. } if path == "a/b/c"), "{error}");
    store.put(&path("a/b/c"), "x".into()).await.unwrap_err();
    store.put(&path("a"), "x".into()).await.unwrap_err();
    let root = store.put(&Path::default(), "x".into()).await.unwrap_err();
    assert_eq!(root.to_string(), "Generic NFS error: : the root of the store is no object");
    let old = GetOptions::new().with_version(Some("1"));
    let error = store.get_opts(&path("a/b"), old).await.unwrap_err();
    assert!(matches!(error, Error::NotImplemented { .. }), "{error}");
    assert_eq!(listed(&store).await, ["a/b"]);
    assert_eq!(names(&store).await, ["a".into()].into());
}

#[tokio::test]
async fn a_file_that_is_written_in_place_while_it_is_read_is_another_object() {
    for transport in [Udp, Tcp] {
        let (_server, store) = embedded(transport, Faults::default()).await;
        store.put(&path("object"), vec![1; 8 * MIB].into()).await.unwrap();
        let mut bytes = store.get(&path("object")).await.unwrap().into_stream();
        assert!(bytes.next().await.unwrap().unwrap().iter().all(|&byte| byte == 1));
        let client = store.client();
        let file = client.lookup(client.root(), b"object").await.unwrap().handle;
        client.write(file, 5_000_000, &[2; 100], Stability::Stable).await.unwrap();
        let Err(error) = bytes.try_for_each(|_| ready(Ok(()))).await else { panic!("a mixture") };
        assert!(matches!(&error, Error::Precondition { path, .. } if path == "object"), "{error}");
    }
}

/// The server counts the bytes that it gives.
#[tokio::test]
async fn a_range_reads_its_own_bytes_only() {
    let (server, store) = embedded(Tcp, Faults::default()).await;
    let data: Vec<u8> = (0..3 * MIB as u32).map(|number| (number / 7) as u8).collect();
    store.put(&path("object"), data.clone().into()).await.unwrap();
    let given = || read_bytes(&server);
    let before = given();
    let ranges = [2_000_000..2_100_000, 10..20, 15..500, 1_000_000..1_000_001];
    let read = store.get_ranges(&path("object"), &ranges).await.unwrap();
    for (range, bytes) in ranges.iter().zip(read) {
        assert!(bytes == data[range.start as usize..range.end as usize]);
    }
    assert_eq!(given() - before, 100_000 + 490 + 1);

    let before = given();
    let options = GetOptions::new().with_range(Some(GetRange::Suffix(700_000)));
    let read = store.get_opts(&path("object"), options).await.unwrap().bytes().await.unwrap();
    assert!(read == data[data.len() - 700_000..]);
    assert_eq!(given() - before, 700_000);

    let before = given();
    store.head(&path("object")).await.unwrap();
    let mut cancelled = store.get(&path("object")).await.unwrap().into_stream();
    cancelled.next().await.unwrap().unwrap();
    drop(cancelled);
    sleep(Duration::from_millis(100)).await;
    assert!(given() - before < MIB as u64, "what nobody takes is not read");
}

fn read_bytes(server: &Server) -> u64 {
    server.with_service(|service| service.stats().read_bytes)
}

/// Every operation can be given to `tokio::spawn`, by a clone of the store.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_is_shared_by_tasks() {
    let (_server, store) = embedded(TransportChoice::Auto, Faults::default()).await;
    let mut tasks = JoinSet::new();
    for number in 0..16_u8 {
        let store = store.clone();
        tasks.spawn(async move {
            let location = Path::from(format!("{number}/object"));
            store.put(&location, version(number)).await.unwrap();
            assert_eq!(store.head(&location).await.unwrap().size, 200_000 + 1_000 * u64::from(number));
        });
    }
    tasks.join_all().await;
    assert_eq!(listed(&store).await.len(), 16);
}

/// Does something while somebody else acts once that is due; until then these calls are lost, and sent again over UDP.
async fn meanwhile<T>(
    server: &Server,
    lost: Vec<Rule>,
    action: impl Future<Output = T>,
    is_due: impl Fn(&Server) -> bool,
    act: impl Future<Output = ()>,
) -> T {
    server.with_service(|service| service.set_faults(Faults::from(lost)));
    let other = async {
        while !is_due(server) {
            sleep(Duration::from_millis(1)).await;
        }
        act.await;
        server.with_service(|service| service.set_faults(Faults::default()));
    };
    tokio::join!(action, other).0
}

#[tokio::test]
async fn a_new_version_under_the_old_name_outlasts_a_rename() {
    let (server, store) = embedded(Udp, Faults::default()).await;
    store.put(&path("old"), "first".into()).await.unwrap();
    let other = open(&server, Tcp).await;
    let lost = |procedure, when| Rule { calls: Calls::Procedure(procedure), when, action: Action::DropCall };
    // The object itself is found.
    let lost = vec![lost(Procedure::Lookup, When::After(1)), lost(Procedure::Remove, When::Always)];
    let (from, to) = (path("old"), path("new"));
    let is_due = |server: &Server| server.with_service(|it| it.backend().read_file(b"/new").is_ok());
    let act = async {
        other.put(&path("old"), "second".into()).await.unwrap();
    };
    meanwhile(&server, lost, store.rename_if_not_exists(&from, &to), is_due, act).await.unwrap();
    assert_eq!(contents(&store, "new").await, b"first");
    assert_eq!(contents(&store, "old").await, b"second");
}

/// It is another name of the same file, and looks as if RENAME had done nothing.
#[tokio::test]
async fn a_copy_that_gets_the_old_name_outlasts_a_rename() {
    let (server, store) = embedded(Tcp, Faults::default()).await;
    store.put(&path("old"), "first".into()).await.unwrap();
    store.copy(&path("old"), &path("third")).await.unwrap();
    let other = open(&server, Tcp).await;
    let slow = vec![Rule::always(Procedure::Rename, Action::DelayReply(Duration::from_secs(1)))];
    let (from, to) = (path("old"), path("new"));
    let is_due = |server: &Server| server.with_service(|it| it.backend().read_file(b"/new").is_ok());
    let act = async { other.copy_if_not_exists(&path("third"), &path("old")).await.unwrap() };
    meanwhile(&server, slow, store.rename(&from, &to), is_due, act).await.unwrap();
    assert_eq!(listed(&store).await, ["new", "old", "third"]);
}

/// What is left when the future of a copy or a rename is dropped while it waits for one of its calls, which the server carries out or not.
#[tokio::test]
async fn a_copy_or_rename_that_is_dropped_leaves_whole_objects_and_no_other_names() {
    use Procedure::{Link, Remove, Rename};
    let [is_before, is_after] = [&["from", "to"][..], &["to"]];
    // The call, whether it is carried out, the names then, and what `to` is.
    let renames = [(Rename, true, is_after, "first"), (Rename, false, is_before, "second")];
    let copies = [
        (Link, true, is_before, "second"),
        (Link, false, is_before, "second"),
        (Rename, true, is_before, "first"),
        (Rename, false, is_before, "second"),
        (Remove, true, is_before, "first"),
        (Remove, false, is_before, "first"),
    ];
    let of = |is_copy: bool| move |(procedure, is_done, names, to)| (is_copy, procedure, is_done, names, to);
    for (is_copy, procedure, is_done, left, contained) in
        renames.into_iter().map(of(false)).chain(copies.into_iter().map(of(true)))
    {
        let (server, store) = embedded(Tcp, Faults::default()).await;
        store.put(&path("from"), "first".into()).await.unwrap();
        store.put(&path("to"), "second".into()).await.unwrap();
        let action = if is_done { Action::DelayReply(Duration::from_secs(9)) } else { Action::DropCall };
        let rule = Rule { calls: Calls::Procedure(procedure), when: When::Nth(1), action };
        server.with_service(|service| service.set_faults(Faults::from(vec![rule])));
        // Whether the call has come, by what the server counts of it.
        let came = || {
            let stats = server.with_service(|it| it.stats());
            if is_done { stats.served[procedure.number() as usize] } else { stats.dropped_calls }
        };
        let before = came();
        let (from, to) = (path("from"), path("to"));
        let action =
            async { if is_copy { store.copy(&from, &to).await } else { store.rename(&from, &to).await } };
        let reached = async {
            while came() == before {
                sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            ended = action => panic!("{procedure}: {ended:?}"),
            () = reached => {}
        }
        let (what, mut waited) = ((is_copy, procedure, is_done), 0);
        let left: BTreeSet<_> = left.iter().map(|&it| it.to_owned()).collect();
        while names(&store).await != left {
            waited += 1;
            assert!(waited < 200, "{what:?}: {:?}", names(&store).await);
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(contents(&store, "to").await, contained.as_bytes(), "{what:?}");
    }
}

#[tokio::test]
async fn a_copy_without_links_is_of_one_version() {
    let (server, store) = embedded(Udp, Faults::default()).await;
    store.put(&path("a"), vec![1; 2 * MIB].into()).await.unwrap();
    let other = open(&server, Tcp).await;
    let file = other.client().lookup(other.client().root(), b"a").await.unwrap().handle;
    let no_link = Rule::always(Procedure::Link, Action::Fail(NfsStatus::NOTSUPP));
    let calls = Calls::Procedure(Procedure::Read);
    let lost = vec![no_link, Rule { calls, when: When::After(1), action: Action::DropCall }];
    let before = read_bytes(&server);
    let act = async {
        other.client().write(file, MIB as u64, &[2; 100], Stability::Stable).await.unwrap();
    };
    let (from, to) = (path("a"), path("b"));
    let is_due = |server: &Server| read_bytes(server) > before;
    let error = meanwhile(&server, lost, store.copy(&from, &to), is_due, act).await.unwrap_err();
    assert!(matches!(&error, Error::Precondition { path, .. } if path == "a"), "{error}");
    assert_eq!(names(&store).await, ["a".into()].into());
}

#[tokio::test]
async fn a_temporary_file_goes_also_where_answers_about_it_are_lost() {
    let (server, store) = embedded(Udp, Faults::default()).await;
    let strike = |rules| server.with_service(|service| service.set_faults(Faults::from(rules)));
    // The object has its name, and its temporary name is not removed while anybody waits.
    strike(vec![Rule::always(Procedure::Remove, Action::DropCall)]);
    store.put_opts(&path("object"), version(1), PutMode::Create.into()).await.unwrap();
    assert_eq!(names(&store).await.len(), 2);
    strike(Vec::new());
    one_is_left(&store).await;

    // The file was made by a first attempt, and the second one is refused, by a server without a duplicate request cache.
    let (server, store) = forgetful().await;
    let strike = |rules| server.with_service(|service| service.set_faults(Faults::from(rules)));
    store.put(&path("object"), version(1)).await.unwrap();
    let create = |when, action| Rule { calls: Calls::Procedure(Procedure::Create), when, action };
    strike(vec![
        create(When::Nth(1), Action::DropReply),
        create(When::After(1), Action::Fail(NfsStatus::NOSPC)),
    ]);
    store.put(&path("full"), version(1)).await.unwrap_err();
    strike(Vec::new());
    one_is_left(&store).await;
}

async fn one_is_left(store: &NfsObjectStore) {
    let begun = Instant::now();
    while names(store).await.iter().map(String::as_str).ne(["object"]) {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", names(store).await);
        sleep(Duration::from_millis(50)).await;
    }
}

/// More than is told at once.
#[tokio::test]
async fn a_large_directory_is_listed_part_by_part_and_whole() {
    const OBJECTS: usize = 20_000;
    let (server, store) = embedded(Tcp, Faults::default()).await;
    let mut expected: Vec<_> = (0..OBJECTS)
        .map(|number| match number % 10 {
            0 => format!("large/{number:0100}/object"),
            _ => format!("large/{number:0200}"),
        })
        .collect();
    server.with_service(|service| {
        for path in &expected {
            service.backend().write_file(nfstime3::default(), path.as_bytes(), &[]).unwrap();
        }
    });
    expected.sort_unstable();
    assert_eq!(listed(&store).await, expected);
    let level = store.list_with_delimiter(Some(&path("large"))).await.unwrap();
    assert_eq!((level.objects.len(), level.common_prefixes.len()), (OBJECTS * 9 / 10, OBJECTS / 10));
}
