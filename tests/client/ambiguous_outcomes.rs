//! Calls that are sent again because the reply was lost, against a server with and one without a duplicate request cache: the rows of the
//! table in docs/guarantees.md, one test each.
//!
//! Each test does a thing whose first reply is lost, and then tries it where somebody else was faster: a refusal by the first
//! attempt must not be taken for a success of ours.

use std::time::{Duration, Instant};

use nfs_wireless_client::{
    Client, ClientConfig, Entry, Error, File, FileHandle, NfsStatus, Placement, Procedure, RetryPolicy,
    SetAttributes, SetTime, SpecialFile, Time, TransportChoice, UploadSpec,
};
use nfs_wireless_server::{Action, Calls, Faults, Memory, Rule, Server, Service, ServiceConfig, When};
use tokio::io::AsyncWriteExt;

/// When a call is sent again: sooner than by default, for there are many here.
const TIMEOUT: Duration = Duration::from_millis(300);

/// A server that loses the first reply of whatever is asked for, and two clients of it.
struct Bench {
    server: Server,
    client: Client,
    /// Somebody else, who was there before or comes in between.
    other: Client,
    has_cache: bool,
    /// What else the server does.
    rules: Vec<Rule>,
}

impl Bench {
    async fn new(has_cache: bool, faults: Faults) -> Self {
        let mut config = ServiceConfig::default();
        if !has_cache {
            config.reply_cache = None;
        }
        let service = Service::new(config, Memory::default(), 1, Instant::now()).unwrap();
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), service).await.unwrap();
        let port = server.local_addr().port();
        let connect = async |transport| {
            let mut config = ClientConfig::default();
            config.transport = transport;
            config.portmap_port = port;
            config.retry = RetryPolicy::Exponential { initial: TIMEOUT, maximum: RetryPolicy::MAXIMUM };
            Client::connect("127.0.0.1", b"/", config).await.unwrap()
        };
        // Over TCP nothing is sent twice.
        let (client, other) = (connect(TransportChoice::Udp).await, connect(TransportChoice::Tcp).await);
        let bench = Self { client, other, has_cache, rules: faults.rules, server };
        bench.lose_replies_of(&[]);
        bench
    }

    fn lose_replies_of(&self, procedures: &[Procedure]) {
        // Where EXCLUSIVE is refused, GUARDED comes second.
        let when = When::Nth(1 + self.rules.len() as u64);
        let lose = procedures.iter().map(|&procedure| Rule {
            calls: Calls::Procedure(procedure),
            when,
            action: Action::DropReply,
        });
        let rules: Vec<_> = self.rules.iter().cloned().chain(lose).collect();
        self.server.with_service(|service| service.set_faults(Faults::from(rules)));
    }

    /// Does something whose first reply is lost. The server carries it out once if it has a duplicate request cache, otherwise twice.
    async fn lossy<T>(&self, procedure: Procedure, action: impl Future<Output = T>) -> T {
        let served =
            || self.server.with_service(|service| service.stats().served[procedure.number() as usize]);
        let before = served();
        self.lose_replies_of(&[procedure]);
        let done = action.await;
        self.lose_replies_of(&[]);
        let times = served() - before - self.rules.len() as u64;
        assert!(
            if self.has_cache { times == 1 } else { times > 1 },
            "{procedure} was carried out {times} times"
        );
        done
    }

    fn root(&self) -> FileHandle {
        self.client.root()
    }

    async fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut listing = self.other.read_dir(self.root());
        while let Some(entry) = listing.next_complete().await.unwrap() {
            names.push(String::from_utf8(entry.name).unwrap());
        }
        names.sort();
        names
    }

    /// Changes the time of last access of a new file as soon as it is there, before anybody can look.
    async fn meddle(&self, name: &[u8]) {
        let entry = loop {
            if let Ok(entry) = self.other.lookup(self.root(), name).await {
                break entry;
            }
        };
        let touched = SetAttributes { atime: Some(SetTime::To(Time::default())), ..SetAttributes::default() };
        self.other.set_attributes(entry.handle, touched).await.unwrap();
    }
}

/// Runs a row against both servers.
async fn both(faults: Faults, row: impl AsyncFn(Bench)) {
    for has_cache in [true, false] {
        row(Bench::new(has_cache, faults.clone()).await).await;
    }
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..Default::default() }
}

fn status<T: std::fmt::Debug>(result: Result<T, Error>) -> NfsStatus {
    match result.unwrap_err() {
        Error::Status { status, .. } => status,
        other => panic!("{other}"),
    }
}

fn in_doubt<T: std::fmt::Debug>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Ambiguous { .. }))
}

/// What is common to whatever makes something that bears a mark.
async fn marked(
    procedure: Procedure,
    faults: Faults,
    make: impl AsyncFn(&Client, &[u8]) -> Result<Entry, Error>,
) {
    both(faults.clone(), async |bench| {
        // Nothing has shown yet whether this server keeps marks.
        make(&bench.other, b"theirs").await.unwrap();
        assert!(in_doubt(bench.lossy(procedure, make(&bench.client, b"theirs")).await));
        let entry = bench.lossy(procedure, make(&bench.client, b"ours")).await.unwrap();
        assert_eq!(entry.handle, bench.other.lookup(bench.root(), b"ours").await.unwrap().handle);
        // Now it has.
        assert_eq!(status(bench.lossy(procedure, make(&bench.client, b"theirs")).await), NfsStatus::EXIST);
        bench.other.symlink(bench.root(), b"link", b"nowhere").await.unwrap();
        assert_eq!(status(bench.lossy(procedure, make(&bench.client, b"link")).await), NfsStatus::EXIST);
        assert_eq!(bench.names().await, ["link", "ours", "theirs"]);
    })
    .await;
    // Somebody takes the mark away: what stays unknown is said.
    let bench = Bench::new(false, faults).await;
    let (made, ()) = bench
        .lossy(procedure, async { tokio::join!(make(&bench.client, b"ours"), bench.meddle(b"ours")) })
        .await;
    assert!(in_doubt(made));
}

#[tokio::test]
async fn create_unchecked_opens_what_it_made() {
    both(Faults::default(), async |bench| {
        let make = bench.client.create(bench.root(), b"file", mode(0o600));
        let entry = bench.lossy(Procedure::Create, make).await.unwrap();
        assert_eq!(entry.metadata.mode, 0o600);
        assert_eq!(bench.names().await, ["file"]);
    })
    .await;
}

#[tokio::test]
async fn create_exclusive_is_known_by_its_verifier() {
    both(Faults::default(), async |bench| {
        let make = bench.client.create_new(bench.root(), b"file", mode(0o600));
        let entry = bench.lossy(Procedure::Create, make).await.unwrap();
        let (atime, mtime) = (entry.metadata.atime.seconds, entry.metadata.mtime.seconds);
        assert!(
            entry.metadata.ctime.seconds.abs_diff(atime.min(mtime)) < 60,
            "the verifier does not stay in the times"
        );
        bench.other.create_new(bench.root(), b"theirs", mode(0o600)).await.unwrap();
        let make = bench.client.create_new(bench.root(), b"theirs", mode(0o600));
        assert_eq!(status(bench.lossy(Procedure::Create, make).await), NfsStatus::EXIST);
    })
    .await;
}

#[tokio::test]
async fn create_guarded_is_known_by_its_mark() {
    // EXCLUSIVE comes first and is refused; it is the reply to GUARDED that is lost.
    marked(Procedure::Create, Faults::no_exclusive_create(), async |client, name| {
        client.create_new(client.root(), name, mode(0o600)).await
    })
    .await;
}

#[tokio::test]
async fn mkdir_is_known_by_its_mark() {
    marked(Procedure::Mkdir, Faults::default(), async |client, name| {
        client.mkdir(client.root(), name, mode(0o700)).await
    })
    .await;
}

#[tokio::test]
async fn mknod_is_known_by_its_mark() {
    marked(Procedure::Mknod, Faults::default(), async |client, name| {
        client.make_node(client.root(), name, SpecialFile::Fifo, mode(0o600)).await
    })
    .await;
}

#[tokio::test]
async fn a_look_before_the_call_takes_the_place_of_a_mark_that_is_refused() {
    for has_cache in [true, false] {
        let bench = Bench::new(has_cache, Faults::mode_only()).await;
        let make = bench.client.mkdir(bench.root(), b"ours", mode(0o700));
        let entry = bench.lossy(Procedure::Mkdir, make).await.unwrap();
        assert_eq!(entry.handle, bench.other.lookup(bench.root(), b"ours").await.unwrap().handle);
        bench.other.mkdir(bench.root(), b"theirs", mode(0o700)).await.unwrap();
        let taken = bench.client.mkdir(bench.root(), b"theirs", mode(0o700)).await;
        assert_eq!(status(taken), NfsStatus::EXIST);

        let bench = Bench::new(has_cache, Faults::mode_only()).await;
        let make = bench.client.create_guarded(bench.root(), b"file", mode(0o600));
        let made = bench.lossy(Procedure::Create, make).await;
        assert_eq!(in_doubt(made), !has_cache, "whose file it is matters");
        assert_eq!(bench.names().await, ["file"]);
    }
}

#[tokio::test]
async fn symlink_is_known_by_its_target() {
    both(Faults::default(), async |bench| {
        let root = bench.root();
        bench.lossy(Procedure::Symlink, bench.client.symlink(root, b"ours", b"there")).await.unwrap();
        bench.other.symlink(root, b"theirs", b"elsewhere").await.unwrap();
        let again = bench.client.symlink(root, b"theirs", b"there");
        assert_eq!(status(bench.lossy(Procedure::Symlink, again).await), NfsStatus::EXIST);
        bench.other.mkdir(root, b"directory", mode(0o700)).await.unwrap();
        let again = bench.client.symlink(root, b"directory", b"there");
        assert_eq!(status(bench.lossy(Procedure::Symlink, again).await), NfsStatus::EXIST);
    })
    .await;
}

#[tokio::test]
async fn link_is_known_by_its_file() {
    both(Faults::default(), async |bench| {
        let root = bench.root();
        let file = bench.other.create(root, b"file", mode(0o600)).await.unwrap().handle;
        bench.other.create(root, b"theirs", mode(0o600)).await.unwrap();
        bench.lossy(Procedure::Link, bench.client.hard_link(file, root, b"ours")).await.unwrap();
        assert_eq!(bench.other.metadata(file).await.unwrap().links, 2);
        let again = bench.client.hard_link(file, root, b"theirs");
        assert_eq!(status(bench.lossy(Procedure::Link, again).await), NfsStatus::EXIST);
    })
    .await;
}

#[tokio::test]
async fn a_link_that_others_may_have_made_is_unknown_where_one_is_to_be_the_first() {
    both(Faults::default(), async |bench| {
        let root = bench.root();
        let file = bench.other.create(root, b"file", mode(0o600)).await.unwrap().handle;
        bench.other.create(root, b"theirs", mode(0o600)).await.unwrap();
        let made =
            bench.lossy(Procedure::Link, bench.client.hard_link_first((file, 1), root, b"first")).await;
        assert!(if bench.has_cache { made.is_ok() } else { in_doubt(made) });
        let again = bench.client.hard_link_first((file, 1), root, b"theirs");
        assert_eq!(status(bench.lossy(Procedure::Link, again).await), NfsStatus::EXIST);
        // Sent once, a refusal is a refusal.
        assert_eq!(status(bench.client.hard_link_first((file, 1), root, b"first").await), NfsStatus::EXIST);
    })
    .await;
}

#[tokio::test]
async fn a_link_that_is_gone_when_it_is_looked_for_is_unknown() {
    both(Faults::default(), async |bench| {
        let root = bench.root();
        let file = bench.other.create(root, b"file", mode(0o600)).await.unwrap().handle;
        bench.other.create(root, b"theirs", mode(0o600)).await.unwrap();
        // As if it had been removed after the second answer, which says that it exists.
        let gone = |procedure| {
            let rule = |procedure, when, action| Rule { calls: Calls::Procedure(procedure), when, action };
            let rules = vec![
                rule(procedure, When::Nth(1), Action::DropReply),
                rule(Procedure::Lookup, When::Always, Action::Fail(NfsStatus::NOENT)),
            ];
            bench.server.with_service(|service| service.set_faults(Faults::from(rules)));
        };
        gone(Procedure::Symlink);
        assert!(in_doubt(bench.client.symlink(root, b"theirs", b"there").await));
        gone(Procedure::Link);
        assert!(in_doubt(bench.client.hard_link(file, root, b"theirs").await));
    })
    .await;
}

#[tokio::test]
async fn remove_and_rmdir_are_done_when_the_name_is_gone() {
    both(Faults::default(), async |bench| {
        let root = bench.root();
        bench.other.create(root, b"file", mode(0o600)).await.unwrap();
        bench.other.mkdir(root, b"directory", mode(0o700)).await.unwrap();
        bench.other.create(root, b"kept", mode(0o600)).await.unwrap();
        bench.lossy(Procedure::Remove, bench.client.remove(root, b"file")).await.unwrap();
        bench.lossy(Procedure::Rmdir, bench.client.rmdir(root, b"directory")).await.unwrap();
        assert_eq!(bench.names().await, ["kept"]);
        let wrong = bench.client.rmdir(root, b"kept");
        assert_eq!(status(bench.lossy(Procedure::Rmdir, wrong).await), NfsStatus::NOTDIR);
        // Sent once, a refusal is a refusal.
        assert_eq!(status(bench.other.remove(root, b"file").await), NfsStatus::NOENT);
    })
    .await;
}

#[tokio::test]
async fn rename_is_known_by_its_file() {
    both(Faults::default(), async |bench| {
        let root = bench.root();
        let file = bench.other.create(root, b"old", mode(0o600)).await.unwrap().handle;
        bench.other.create(root, b"replaced", mode(0o600)).await.unwrap();
        let there = bench.client.rename(file, (root, b"old"), (root, b"replaced"));
        bench.lossy(Procedure::Rename, there).await.unwrap();
        assert_eq!(bench.names().await, ["replaced"]);
        assert_eq!(bench.other.lookup(root, b"replaced").await.unwrap().handle, file);
        // Neither the name nor the file behind the new one is ours to speak of.
        let other = bench.other.create(root, b"other", mode(0o600)).await.unwrap().handle;
        let never = bench.client.rename(other, (root, b"missing"), (root, b"replaced"));
        assert_eq!(status(bench.lossy(Procedure::Rename, never).await), NfsStatus::NOENT);
        let never = bench.client.rename(other, (root, b"missing"), (root, b"nothing"));
        assert_eq!(status(bench.lossy(Procedure::Rename, never).await), NfsStatus::NOENT);
        // A file that is gone cannot be recognised.
        bench.other.remove(root, b"other").await.unwrap();
        let gone = bench.client.rename(other, (root, b"missing"), (root, b"replaced"));
        assert!(in_doubt(bench.lossy(Procedure::Rename, gone).await));
    })
    .await;
}

#[tokio::test]
async fn setattr_may_be_repeated_and_its_guard_is_settled_by_the_attributes() {
    both(Faults::default(), async |bench| {
        let file = bench.other.create(bench.root(), b"file", mode(0o600)).await.unwrap().handle;
        bench.lossy(Procedure::Setattr, bench.client.set_attributes(file, mode(0o640))).await.unwrap();
        let size = SetAttributes { size: Some(5), ..SetAttributes::default() };
        bench.lossy(Procedure::Setattr, bench.client.set_attributes(file, size)).await.unwrap();
        assert_eq!(bench.other.metadata(file).await.unwrap().size, 5);
        let ctime = bench.other.metadata(file).await.unwrap().ctime;
        let guarded = bench.client.set_attributes_if(file, mode(0o400), ctime);
        bench.lossy(Procedure::Setattr, guarded).await.unwrap();
        assert_eq!(bench.other.metadata(file).await.unwrap().mode, 0o400);
        // Somebody else has changed it since.
        let late = bench.client.set_attributes_if(file, mode(0o777), ctime);
        assert_eq!(status(bench.lossy(Procedure::Setattr, late).await), NfsStatus::NOT_SYNC);
        assert_eq!(bench.other.metadata(file).await.unwrap().mode, 0o400);
        // The server's time says nothing about who set it.
        let ctime = bench.other.metadata(file).await.unwrap().ctime;
        let now = SetAttributes { mtime: Some(SetTime::ServerTime), ..SetAttributes::default() };
        let touched = bench.lossy(Procedure::Setattr, bench.client.set_attributes_if(file, now, ctime)).await;
        assert!(if bench.has_cache { touched.is_ok() } else { in_doubt(touched) });
    })
    .await;
}

#[tokio::test]
async fn write_and_commit_may_be_repeated() {
    both(Faults::default(), async |bench| {
        let made = bench.client.create(bench.root(), b"file", mode(0o600)).await.unwrap();
        let mut file = File::new(bench.client.clone(), made.handle);
        let data = vec![7; 20_000];
        bench.lose_replies_of(&[Procedure::Write, Procedure::Commit]);
        file.write_all(&data).await.unwrap();
        file.shutdown().await.unwrap();
        assert!(bench.client.status().stats.resends.total() >= 2);
        let stored = bench.server.with_service(|service| {
            service.crash();
            service.backend().read_file(b"/file").unwrap()
        });
        assert!(stored == data);
    })
    .await;
}

#[tokio::test]
async fn an_upload_settles_every_one_of_its_calls() {
    both(Faults::default(), async |bench| {
        for (number, temporary) in [true, false].into_iter().enumerate() {
            let name = format!("file {number}");
            let source = tempfile::tempfile().unwrap();
            std::io::Write::write_all(&mut &source, &vec![7; 300_000]).unwrap();
            let placement = match temporary {
                true => Placement::Temporary(b".part".to_vec()),
                false => Placement::InPlace,
            };
            let spec = UploadSpec {
                mode: 0o600,
                attributes: mode(0o640),
                ..UploadSpec::new(bench.root(), name.clone().into_bytes(), placement, 300_000)
            };
            use Procedure::{Commit, Create, Rename, Setattr, Write};
            bench.lose_replies_of(&[Create, Write, Commit, Setattr, Rename]);
            bench.client.upload(spec, source, None).await.unwrap();
            bench.lose_replies_of(&[]);
            let stored = bench
                .server
                .with_service(|service| service.backend().read_file(format!("/{name}").as_bytes()));
            assert!(stored.unwrap() == vec![7; 300_000]);
        }
        assert_eq!(bench.names().await, ["file 0", "file 1"]);
    })
    .await;
}
