//! Slow disks and slow callbacks: they delay nobody else, and are not taken for losses.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::Duration,
};

use crate::embedded::serve;
use nfs_wireless_client::{
    Client, ClientConfig, Error, Observer, Placement, RetryPolicy, SetAttributes, Sink, Source,
    TransportChoice, UploadSpec, Window,
};
use nfs_wireless_server::Server;
use tokio::{sync::oneshot, time::timeout};

const BYTES: u64 = 3_000_000;

/// What nobody has to wait for ends long before this.
const SOON: Duration = Duration::from_secs(60);

async fn connect(server: &Server, change: impl FnOnce(&mut ClientConfig)) -> Client {
    let mut config = ClientConfig::default();
    config.portmap_port = server.local_addr().port();
    change(&mut config);
    Client::connect("127.0.0.1", b"/", config).await.unwrap()
}

/// Something that waits until the test lets it go, the first time it is called.
struct Gate {
    reached: Option<oneshot::Sender<()>>,
    open: Receiver<()>,
}

impl Gate {
    fn new() -> (Self, oneshot::Receiver<()>, Sender<()>) {
        let ((reached, is_reached), (go, open)) = (oneshot::channel(), mpsc::channel());
        (Self { reached: Some(reached), open }, is_reached, go)
    }

    fn pass(&mut self) {
        if let Some(reached) = self.reached.take() {
            let _ = reached.send(());
            let _ = self.open.recv();
        }
    }
}

/// A disk that hangs for a while, or has no room.
#[derive(Default)]
struct Disk {
    gate: Option<Gate>,
    is_full: bool,
    stored: Arc<AtomicU64>,
}

impl Sink for Disk {
    fn write_at(&mut self, _offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.gate.iter_mut().for_each(Gate::pass);
        self.stored.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if self.is_full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Source for Disk {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.gate.iter_mut().for_each(Gate::pass);
        for (at, byte) in (offset..).zip(buffer) {
            *byte = (at % 251) as u8;
        }
        if self.is_full { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

async fn upload(
    client: &Client,
    name: &str,
    source: impl Source + 'static,
    observer: Option<Observer>,
) -> Result<(), Error> {
    let spec = UploadSpec::new(client.root(), name, Placement::InPlace, BYTES);
    client.upload(spec, source, observer).await.map(drop)
}

async fn download(client: &Client, name: &str, sink: Disk, observer: Option<Observer>) -> Result<(), Error> {
    let file = client.lookup(client.root(), name.as_bytes()).await?;
    client.download(file.handle, BYTES, sink, observer).await.map(drop)
}

fn hanging() -> (Disk, oneshot::Receiver<()>, Sender<()>) {
    let (gate, reached, go) = Gate::new();
    (Disk { gate: Some(gate), ..Disk::default() }, reached, go)
}

fn hanging_observer() -> (Observer, oneshot::Receiver<()>, Sender<()>) {
    let (gate, reached, go) = Gate::new();
    let gate = std::sync::Mutex::new(gate);
    (Arc::new(move |_| gate.lock().unwrap().pass()), reached, go)
}

#[tokio::test]
async fn what_hangs_delays_nobody_else_and_is_no_loss() {
    let server = serve().await;
    for transport in [TransportChoice::Udp, TransportChoice::Tcp] {
        let client = connect(&server, |config| config.transport = transport).await;
        upload(&client, "file", Disk::default(), None).await.unwrap();
        for what in ["sink", "download's observer", "source", "upload's observer"] {
            let (disk, disk_reached, disk_go) = hanging();
            let (observer, observer_reached, observer_go) = hanging_observer();
            let stored = Arc::clone(&disk.stored);
            let by_disk = matches!(what, "sink" | "source");
            let (disk, observer) = if by_disk {
                (disk, None)
            } else {
                (Disk { stored: disk.stored, ..Disk::default() }, Some(observer))
            };
            let (reached, go) =
                if by_disk { (disk_reached, disk_go) } else { (observer_reached, observer_go) };
            let other = client.clone();
            let slow = tokio::spawn(async move {
                match what {
                    "sink" | "download's observer" => download(&other, "file", disk, observer).await,
                    _ => upload(&other, "slow", disk, observer).await,
                }
            });
            timeout(SOON, reached).await.expect("it begins").unwrap();
            let meanwhile = async {
                for _ in 0..100 {
                    client.null().await.unwrap();
                }
                download(&client, "file", Disk::default(), None).await.unwrap();
                upload(&client, "other", Disk::default(), None).await.unwrap();
                // As long as a fade that would be noticed.
                tokio::time::sleep(Duration::from_millis(500)).await;
                client.null().await.unwrap();
            };
            timeout(SOON, meanwhile).await.unwrap_or_else(|_| panic!("{transport:?}: delayed by a {what}"));
            assert!(!slow.is_finished(), "{transport:?}: it hangs still");
            go.send(()).unwrap();
            timeout(SOON, slow).await.expect("it goes on").unwrap().unwrap();
            if what == "sink" || what == "download's observer" {
                assert_eq!(stored.load(Ordering::Relaxed), BYTES);
            }
        }
        let status = client.status();
        let fade = status.path_estimate.map_or(Duration::ZERO, |path| path.mean_fade);
        assert!(fade < Duration::from_millis(250), "{transport:?}: {fade:?} of a disk taken for a fade");
        assert_eq!(status.stats.resends.probe, 0, "{transport:?}: {:?}", status.stats);
    }
}

#[tokio::test]
async fn a_disk_that_fails_ends_its_own_transfer() {
    let server = serve().await;
    for (transport, own_thread) in [
        (TransportChoice::Udp, false),
        (TransportChoice::Tcp, false),
        (TransportChoice::Udp, true),
        (TransportChoice::Tcp, true),
    ] {
        let client = connect(&server, |config| {
            (config.transport, config.own_thread) = (transport, own_thread);
        })
        .await;
        upload(&client, "file", Disk::default(), None).await.unwrap();
        let full = || Disk { is_full: true, ..Disk::default() };
        let (other, also) = tokio::join!(
            download(&client, "file", Disk::default(), None),
            download(&client, "file", full(), None)
        );
        other.unwrap();
        let Err(Error::Local(error)) = also else { panic!("{also:?}") };
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let (other, also) =
            tokio::join!(upload(&client, "1", Disk::default(), None), upload(&client, "2", full(), None));
        other.unwrap();
        assert!(matches!(also, Err(Error::SourceChanged)), "{also:?}");
    }
}

#[tokio::test]
async fn a_callback_that_panics_ends_its_own_transfer() {
    let server = serve().await;
    for transport in [TransportChoice::Udp, TransportChoice::Tcp] {
        let client = connect(&server, |config| config.transport = transport).await;
        upload(&client, "file", Disk::default(), None).await.unwrap();
        let panics = || -> Option<Observer> { Some(Arc::new(|_| panic!("as a callback may"))) };
        let down = timeout(SOON, download(&client, "file", Disk::default(), panics())).await;
        assert!(matches!(down.expect("it ends"), Err(Error::Local(_))), "{transport:?}");
        // Its last block may have left by then.
        let up = timeout(SOON, upload(&client, "other", Disk::default(), panics())).await.expect("it ends");
        assert!(matches!(up, Ok(()) | Err(Error::Local(_))), "{transport:?}: {up:?}");
        client.null().await.unwrap();
    }
}

/// More has arrived than the disk has taken: memory stays bounded, and everything is told.
#[tokio::test]
async fn a_slow_disk_is_asked_for_no_more_than_it_takes() {
    let server = serve().await;
    let client = connect(&server, |config| config.transport = TransportChoice::Tcp).await;
    let size = 64 << 20;
    let file =
        client.create(client.root(), b"large", SetAttributes { size: Some(size), ..Default::default() });
    let file = file.await.unwrap().handle;
    let (disk, reached, go) = hanging();
    let told = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&told);
    let observer: Observer = Arc::new(move |bytes| {
        count.fetch_add(bytes, Ordering::Relaxed);
    });
    let other = client.clone();
    let slow = tokio::spawn(async move { other.download(file, size, disk, Some(observer)).await });
    reached.await.unwrap();
    let mut before = u64::MAX;
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let replies = client.status().stats.replies;
        if replies == before {
            break;
        }
        before = replies;
    }
    let blocks = client.status().stats.replies;
    assert!(blocks < 16, "{blocks} blocks of 1 MiB at most have come");
    go.send(()).unwrap();
    timeout(SOON, slow).await.expect("it goes on").unwrap().unwrap();
    assert_eq!(told.load(Ordering::Relaxed), size);
}

/// Takes 5 ms a write, on the client's own thread.
struct Slow;

impl Sink for Slow {
    fn write_at(&mut self, _offset: u64, _bytes: &[u8]) -> io::Result<()> {
        thread::sleep(Duration::from_millis(5));
        Ok(())
    }
}

#[tokio::test]
async fn replies_that_wait_for_a_slow_disk_in_the_socket_are_not_lost() {
    let server = serve().await;
    let client = connect(&server, |config| {
        (config.transport, config.own_thread) = (TransportChoice::Udp, true);
        (config.window, config.retry) = (
            Window::Calls(128),
            RetryPolicy::Exponential { initial: Duration::from_millis(250), maximum: SOON },
        );
    })
    .await;
    let size = 128 * 1344;
    let file =
        client.create(client.root(), b"file", SetAttributes { size: Some(size), ..Default::default() });
    client.download(file.await.unwrap().handle, size, Slow, None).await.unwrap();
    let stats = client.status().stats;
    assert_eq!(stats.resends.total(), 0, "{stats:?}");
    // The server sends little to an address that has shown nothing yet. That is no limit of its READs.
    assert!(stats.calls < 400, "{stats:?}");
}

/// What arrives last is counted on one thread and stored on another, while a third one finds that nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_a_download_has_brought_is_in_its_sink() {
    const SHORT: u64 = 200_000;
    let server = serve().await;
    for transport in [TransportChoice::Udp, TransportChoice::Tcp] {
        let mut readers = tokio::task::JoinSet::new();
        for reader in 0..3 {
            let client = connect(&server, |config| config.transport = transport).await;
            upload(&client, &format!("file {reader}"), Disk::default(), None).await.unwrap();
            readers.spawn(async move {
                let file = client.lookup(client.root(), format!("file {reader}").as_bytes()).await.unwrap();
                for _ in 0..200 {
                    let sink = Disk::default();
                    let stored = Arc::clone(&sink.stored);
                    client.download(file.handle, SHORT, sink, None).await.unwrap();
                    assert!(stored.load(Ordering::Relaxed) >= SHORT, "{transport:?}: bytes are missing");
                }
            });
        }
        readers.join_all().await;
    }
}
