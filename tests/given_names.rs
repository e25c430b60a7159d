//! Names that are given only if they are free, and taken away only if they are still the file's, while somebody else is at work.

use std::time::{Duration, Instant};

use nfs_wireless_client::{
    Client, ClientConfig, Error, FileHandle, NfsStatus, Procedure, RetryPolicy, SetAttributes, Stability,
    TransportChoice,
};
use nfs_wireless_server::{Action, Faults, Memory, Rule, Server, Service, ServiceConfig};

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

fn no_links() -> Faults {
    fails(Procedure::Link, NfsStatus::NOTSUPP)
}

/// What somebody else does to the old name after the file got its new one.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Nothing,
    Replaced,
    Removed,
}

#[tokio::test]
async fn an_old_name_is_removed_only_if_it_is_still_the_files() {
    for (meanwhile, left) in
        [(Meanwhile::Nothing, None), (Meanwhile::Replaced, Some("theirs")), (Meanwhile::Removed, None)]
    {
        let bench = Bench::new(&["old", "theirs"], Faults::default()).await;
        let ([old, theirs], root) =
            ([bench.file("old").await, bench.file("theirs").await], bench.other.root());
        let lost = Rule::always(Procedure::Lookup, Action::DropCall);
        bench.server.with_service(|service| service.set_faults(Faults::from(vec![lost])));
        let other = async {
            while bench.contents("new").is_none() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            match meanwhile {
                Meanwhile::Nothing => {}
                Meanwhile::Replaced => {
                    bench.other.rename(theirs, (root, b"theirs"), (root, b"old")).await.unwrap();
                }
                Meanwhile::Removed => bench.other.remove(root, b"old").await.unwrap(),
            }
            bench.server.with_service(|service| service.set_faults(Faults::default()));
        };
        let (renamed, ()) =
            tokio::join!(bench.client.rename_new(old, bench.at("old"), bench.at("new")), other);
        renamed.unwrap();
        assert_eq!(bench.both(), [left.map(str::to_owned), Some("old".into())], "{meanwhile:?}");
    }
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
