//! More calls than a connection has places for wait, and fail nobody.

use std::time::{Duration, Instant};

use crate::embedded::serve;
use nfs_wireless_client::{
    Client, ClientConfig, Error, Placement, Procedure, Sink, TransportChoice, UploadSpec,
};
use nfs_wireless_server::{Action, Calls, Faults, Rule, Server, When};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

/// Calls of an application that are outstanding at once.
const PLACES: usize = 1024;

const SOON: Duration = Duration::from_secs(60);

async fn connect(server: &Server, transport: TransportChoice, call_timeout: Option<Duration>) -> Client {
    let mut config = ClientConfig::default();
    config.transport = transport;
    config.portmap_port = server.local_addr().port();
    config.call_timeout = call_timeout;
    Client::connect("127.0.0.1", b"/", config).await.unwrap()
}

/// Loses every GETATTR from now on.
fn lose_getattr(server: &Server) {
    let calls = Calls::Procedure(Procedure::Getattr);
    let rule = Rule { calls, when: When::Always, action: Action::DropCall };
    server.with_service(|service| service.set_faults(Faults::from(vec![rule])));
}

struct Nowhere;

impl Sink for Nowhere {
    fn write_at(&mut self, _offset: u64, _bytes: &[u8]) -> std::io::Result<()> {
        Ok(())
    }
}

/// Uploads a small file, and downloads it.
async fn copy(client: Client, number: usize) -> Result<(), Error> {
    let (bytes, name) = (5000, format!("file {number}").into_bytes());
    let source = tempfile::tempfile().unwrap();
    source.set_len(bytes).unwrap();
    let spec =
        UploadSpec::new(client.root(), name.clone(), Placement::Temporary([b".", &name[..]].concat()), bytes);
    client.upload(spec, source, None).await?;
    let file = client.lookup(client.root(), &name).await?;
    client.download(file.handle, bytes, Nowhere, None).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_calls_at_once_all_succeed_also_beside_transfers() {
    let server = serve().await;
    for transport in [TransportChoice::Udp, TransportChoice::Tcp] {
        let client = connect(&server, transport, None).await;
        let mut tasks = JoinSet::new();
        for number in 0..10_000 {
            let (client, other) = (client.clone(), client.clone());
            tasks.spawn(async move { client.metadata(client.root()).await.map(drop) });
            if number % 50 == 0 {
                tasks.spawn(copy(other, number));
            }
        }
        let mut most = 0;
        while let Some(done) = tasks.join_next().await {
            done.unwrap().unwrap_or_else(|error| panic!("{transport:?}: {error:?}"));
            most = most.max(client.status().outstanding);
        }
        assert!(most <= 2 * PLACES, "{transport:?}: {most} outstanding");
    }
}

/// Makes calls that nobody answers, and waits until all places are taken.
async fn take_every_place(server: &Server, client: &Client, calls: usize) -> JoinSet<()> {
    lose_getattr(server);
    let mut tasks = JoinSet::new();
    for _ in 0..calls {
        let client = client.clone();
        tasks.spawn(async move {
            let _ = client.metadata(client.root()).await;
        });
    }
    let full = async {
        while client.status().outstanding < PLACES {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, full).await.expect("all places are taken");
    tasks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_given_up_frees_its_place_whether_it_had_one_or_waited() {
    for transport in [TransportChoice::Udp, TransportChoice::Tcp] {
        let server = serve().await;
        let client = connect(&server, transport, None).await;
        let mut tasks = take_every_place(&server, &client, PLACES).await;
        let mut waiting = take_every_place(&server, &client, 500).await;
        let (first, second) = (client.clone(), client.clone());
        let given_up = tokio::spawn(async move { first.null().await });
        let last = tokio::spawn(async move { second.null().await });
        sleep(Duration::from_millis(100)).await;
        assert!(!last.is_finished() && client.status().outstanding <= PLACES + 2, "they wait");
        waiting.shutdown().await;
        given_up.abort();
        tasks.abort_all();
        tasks.join_next().await;
        timeout(SOON, last).await.expect("there is room").unwrap().unwrap();
    }
}

#[tokio::test]
async fn what_a_call_waits_for_a_place_is_part_of_its_time() {
    let server = serve().await;
    let limit = Duration::from_secs(2);
    let client = connect(&server, TransportChoice::Tcp, Some(limit)).await;
    let _tasks = take_every_place(&server, &client, PLACES + 100).await;
    let started = Instant::now();
    let error = client.metadata(client.root()).await.unwrap_err();
    let Error::Silent { elapsed, .. } = error else { panic!("{error:?}") };
    let took = started.elapsed();
    assert!(elapsed <= limit && took >= limit && took < SOON, "{elapsed:?}, {took:?}");
}
