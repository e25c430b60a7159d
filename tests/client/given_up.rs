//! Futures that are dropped before they are ready: what is left of them. docs/guarantees.md lists it.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use nfs_wireless_client::{
    Client, ClientConfig, File, NfsStatus, Observer, Placement, Procedure, SetAttributes, Sink, Source,
    TransportChoice, UploadSpec,
};
use nfs_wireless_server::{Action, Calls, Faults, Memory, Rule, Server, Service, ServiceConfig, When};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    runtime::{Builder, Runtime},
    time::{sleep, timeout},
};

const BYTES: u64 = 8 << 20;

const SOON: Duration = Duration::from_secs(60);

/// A server on a runtime of its own: the tasks of the test's are the clients'.
struct Elsewhere {
    runtime: Option<Runtime>,
    server: Server,
}

impl Elsewhere {
    async fn serve() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let service = Service::new(ServiceConfig::default(), Memory::default(), 1, Instant::now()).unwrap();
        let binding = runtime.spawn(Server::bind("127.0.0.1:0".parse().unwrap(), service));
        let server = binding.await.unwrap().unwrap();
        Self { runtime: Some(runtime), server }
    }

    fn config(&self, transport: TransportChoice, own_thread: bool) -> ClientConfig {
        let mut config = ClientConfig::default();
        config.portmap_port = self.server.local_addr().port();
        (config.transport, config.own_thread) = (transport, own_thread);
        config
    }

    /// A client over each transport, on this runtime and on a thread of its own.
    async fn clients(&self) -> Vec<(String, Client)> {
        let mut clients = Vec::new();
        for transport in [TransportChoice::Udp, TransportChoice::Tcp] {
            for own_thread in [false, true] {
                let config = self.config(transport, own_thread);
                let client = Client::connect("127.0.0.1", b"/", config).await.unwrap();
                clients.push((format!("{transport:?}, own thread: {own_thread}"), client));
            }
        }
        clients
    }

    fn strike(&self, calls: Calls, action: Action) {
        let rules = vec![Rule { calls, when: When::Always, action }];
        self.server.with_service(|service| service.set_faults(Faults::from(rules)));
    }

    fn heal(&self) {
        self.server.with_service(|service| service.set_faults(Faults::default()));
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < SOON, "{what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Nothing is outstanding, and the client works.
async fn is_as_before(what: &str, client: &Client) {
    until(&format!("{what}: calls are forgotten"), || client.status().outstanding == 0).await;
    timeout(SOON, client.null()).await.expect(what).unwrap();
}

/// Counts its writes; its clones tell when it is gone.
#[derive(Clone, Default)]
struct Count(Arc<AtomicU64>);

impl Count {
    fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn is_dropped(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    fn observer(&self) -> Observer {
        let count = self.clone();
        Arc::new(move |bytes| {
            count.0.fetch_add(bytes, Ordering::SeqCst);
        })
    }
}

impl Sink for Count {
    fn write_at(&mut self, _offset: u64, bytes: &[u8]) -> io::Result<()> {
        std::thread::sleep(Duration::from_millis(1));
        self.0.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        Ok(())
    }
}

impl Source for Count {
    fn read_at(&mut self, _offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        buffer.fill(1);
        Ok(())
    }
}

async fn file(client: &Client, name: &[u8]) -> nfs_wireless_client::FileHandle {
    let attributes = SetAttributes { size: Some(BYTES), mode: Some(0o600), ..Default::default() };
    client.create(client.root(), name, attributes).await.unwrap().handle
}

fn spec(client: &Client, placement: Placement) -> UploadSpec {
    UploadSpec::new(client.root(), b"target".to_vec(), placement, BYTES)
}

#[tokio::test]
async fn a_download_leaves_its_sink_and_what_is_in_it() {
    let server = Elsewhere::serve().await;
    for (what, client) in server.clients().await {
        let handle = file(&client, b"file").await;
        let sink = Count::default();
        {
            let download = client.download(handle, BYTES, sink.clone(), None);
            tokio::select! {
                _ = download => panic!("{what}: it takes longer"),
                () = until("it begins", || sink.get() > 0) => {}
            }
        }
        // A write that runs at that moment ends; none begins.
        until(&format!("{what}: the sink is dropped"), || sink.is_dropped()).await;
        assert!(sink.get() < BYTES, "{what}");
        is_as_before(&what, &client).await;
    }
}

#[tokio::test]
async fn an_upload_leaves_its_temporary_file_and_the_target_as_it_was() {
    let server = Elsewhere::serve().await;
    for (what, client) in server.clients().await {
        let (root, before) = (client.root(), file(&client, b"target").await);
        let (source, accepted) = (Count::default(), Count::default());
        server.strike(Calls::Procedure(Procedure::Commit), Action::DropCall);
        let temporary = || spec(&client, Placement::Temporary(b".part".to_vec()));
        {
            let upload = client.upload(temporary(), source.clone(), Some(accepted.observer()));
            tokio::select! {
                _ = upload => panic!("{what}: COMMIT is lost"),
                () = until("it begins", || accepted.get() > 0) => {}
            }
        }
        until(&format!("{what}: the source is dropped"), || source.is_dropped()).await;
        is_as_before(&what, &client).await;
        assert_eq!(client.lookup(root, b"target").await.unwrap().handle, before, "{what}");
        assert!(client.lookup(root, b".part").await.is_ok(), "{what}: the temporary file stays");
        // Another upload is in nobody's way.
        server.heal();
        timeout(SOON, client.upload(temporary(), Count::default(), None)).await.expect(&what).unwrap();
        assert_ne!(client.lookup(root, b"target").await.unwrap().handle, before, "{what}");
        let gone = client.lookup(root, b".part").await.unwrap_err();
        assert_eq!(gone.status(), Some(NfsStatus::NOENT), "{what}");
        client.remove(root, b"target").await.unwrap();
    }
}

#[tokio::test]
async fn a_call_that_changes_something_may_yet_be_run() {
    let server = Elsewhere::serve().await;
    for (what, client) in server.clients().await {
        let root = client.root();
        file(&client, b"file").await;
        server.strike(Calls::Procedure(Procedure::Remove), Action::DropReply);
        let lost_replies = || server.server.with_service(|service| service.stats().dropped_replies);
        let before = lost_replies();
        {
            let remove = client.remove(root, b"file");
            tokio::select! {
                _ = remove => panic!("{what}: its reply is lost"),
                () = until("it is run", || lost_replies() > before) => {}
            }
        }
        server.heal();
        is_as_before(&what, &client).await;
        let looked = client.lookup(root, b"file").await;
        assert_eq!(looked.unwrap_err().status(), Some(NfsStatus::NOENT), "{what}: it was run, once");
    }
}

#[tokio::test]
async fn a_file_goes_on_after_a_write_or_a_flush_and_leaves_nothing_when_it_is_dropped() {
    let server = Elsewhere::serve().await;
    for (what, client) in server.clients().await {
        let handle = file(&client, b"file").await;
        let mut open = File::new(client.clone(), handle);
        server.strike(Calls::Procedure(Procedure::Write), Action::DelayReply(Duration::from_secs(1)));
        open.write_all(b"some bytes").await.unwrap();
        assert!(timeout(SOON / 600, open.flush()).await.is_err(), "{what}: WRITE takes a second");
        open.write_all(&[7; 100_000]).await.unwrap();
        // What was taken in goes on when somebody waits again.
        let mut lost = File::new(client.clone(), file(&client, b"other").await);
        lost.write_all(b"not flushed").await.unwrap();
        assert!(timeout(SOON / 600, lost.flush()).await.is_err(), "{what}");
        drop(lost);
        server.heal();
        timeout(SOON, open.flush()).await.expect(&what).unwrap();
        let mut found = [0; 11];
        File::new(client.clone(), handle).read_exact(&mut found).await.unwrap();
        assert_eq!(&found, b"some bytes\x07", "{what}");
        is_as_before(&what, &client).await;
    }
}
