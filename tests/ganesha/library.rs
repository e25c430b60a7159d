//! The client library against a real nfs-ganesha, over UDP and TCP.

use std::{fs, os::unix::fs::FileExt, path::Path, sync::Arc, time::Duration};

use nfs_wireless_client::{
    BlockSize, Client, ClientConfig, Error, File, Placement, SetAttributes, TransportChoice, UploadSpec,
};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use crate::server::{Ganesha, Options};

const TRANSPORTS: [TransportChoice; 2] = [TransportChoice::Udp, TransportChoice::Tcp];

fn contents(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    (0..length.div_ceil(4)).flat_map(|_| next().to_le_bytes()).take(length).collect()
}

async fn connect(server: &Ganesha, config: ClientConfig) -> Client {
    Client::connect("localhost", path(&server.export()), config).await.expect("the server answers")
}

fn path(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

async fn upload(client: &Client, name: &str, data: &Path) -> Result<(), Error> {
    let source = fs::File::open(data).unwrap();
    let spec = UploadSpec {
        mode: 0o640,
        ..UploadSpec::new(
            client.root(),
            name,
            Placement::Temporary(format!(".{name}.part").into_bytes()),
            source.metadata().unwrap().len(),
        )
    };
    client.upload(spec, source, None).await.map(drop)
}

async fn download(client: &Client, name: &str, target: &Path) -> Result<(), Error> {
    let entry = client.lookup(client.root(), name.as_bytes()).await?;
    let sink = fs::File::create(target).unwrap();
    client.download(entry.handle, entry.metadata.size, sink, None).await.map(drop)
}

/// Copies `data` in and out and compares.
async fn round_trip(server: &Ganesha, config: ClientConfig, data: &[u8]) {
    let local = tempfile::tempdir().unwrap();
    let (source, target) = (local.path().join("source"), local.path().join("target"));
    fs::write(&source, data).unwrap();
    let client = connect(server, config).await;
    upload(&client, "file", &source).await.unwrap();
    assert!(fs::read(server.export().join("file")).unwrap() == data, "what arrived differs");
    download(&client, "file", &target).await.unwrap();
    assert!(fs::read(&target).unwrap() == data, "what came back differs");
    client.remove(client.root(), b"file").await.unwrap();
    let left: Vec<_> = fs::read_dir(server.export()).unwrap().collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[tokio::test]
async fn large_files_survive_both_ways() {
    let server = Ganesha::start(Options::default());
    let data = contents(64 << 20, 1);
    for transport in TRANSPORTS {
        round_trip(&server, server.config(transport), &data).await;
    }
}

#[tokio::test]
async fn every_block_size_works() {
    let server = Ganesha::start(Options::default());
    let data = contents((1 << 20) + 77, 2);
    for transport in TRANSPORTS {
        for block in [512, 1024, 4096, 8192, 32_768] {
            let mut config = server.config(transport);
            config.read_block = BlockSize::Exact(block);
            config.write_block = BlockSize::Exact(block);
            round_trip(&server, config, &data).await;
        }
    }
}

#[tokio::test]
async fn a_server_without_reply_cache_is_enough() {
    let server = Ganesha::start(Options { no_reply_cache: true, ..Options::default() });
    for transport in TRANSPORTS {
        round_trip(&server, server.config(transport), &contents(3 << 20, 3)).await;
    }
}

#[tokio::test]
async fn ten_thousand_names_are_listed() {
    let server = Ganesha::start(Options::default());
    for index in 0..10_000 {
        fs::write(server.export().join(format!("a name with the number {index:05}")), b"").unwrap();
    }
    for transport in TRANSPORTS {
        let client = connect(&server, server.config(transport)).await;
        let mut names = Vec::new();
        let mut listing = client.read_dir(client.root());
        while let Some(entry) = listing.next_complete().await.unwrap() {
            assert_eq!(entry.metadata.unwrap().size, 0);
            names.push(entry.name);
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 10_000, "over {transport:?}");
    }
}

#[tokio::test]
async fn offsets_beyond_four_gib_work() {
    let server = Ganesha::start(Options::default());
    let data = contents(1 << 20, 4);
    let offset = (4 << 30) + 12_345;
    let sparse = fs::File::create(server.export().join("sparse")).unwrap();
    sparse.write_all_at(&data, offset).unwrap();
    for transport in TRANSPORTS {
        let client = connect(&server, server.config(transport)).await;
        let entry = client.lookup(client.root(), b"sparse").await.unwrap();
        assert_eq!(entry.metadata.size, offset + data.len() as u64);
        let mut file = File::new(client, entry.handle);
        file.seek(std::io::SeekFrom::Start(offset)).await.unwrap();
        let mut found = Vec::new();
        file.read_to_end(&mut found).await.unwrap();
        assert!(found == data, "over {transport:?}");
    }
}

#[tokio::test]
async fn a_file_as_a_stream_is_stable_after_shutdown() {
    let server = Ganesha::start(Options::default());
    let data = contents((9 << 20) + 5, 5);
    for transport in TRANSPORTS {
        let client = connect(&server, server.config(transport)).await;
        let made = client.create(client.root(), b"stream", SetAttributes::default()).await.unwrap();
        let mut file = File::new(client.clone(), made.handle);
        file.write_all(&data).await.unwrap();
        file.shutdown().await.unwrap();
        assert!(fs::read(server.export().join("stream")).unwrap() == data, "over {transport:?}");
        client.remove(client.root(), b"stream").await.unwrap();
    }
}

#[tokio::test]
async fn a_crash_of_the_server_in_the_middle_costs_no_byte() {
    let mut server = Ganesha::start(Options::default());
    let local = tempfile::tempdir().unwrap();
    let (source, target) = (local.path().join("source"), local.path().join("target"));
    let data = contents(24 << 20, 6);
    fs::write(&source, &data).unwrap();
    for transport in TRANSPORTS {
        let mut config = server.config(transport);
        // Slow enough that the crash comes in the middle: 24 MiB at 96 Mbit/s take two seconds.
        config.rate_limit = Some(96_000_000);
        let client = connect(&server, config).await;
        let (done, task) = (Arc::new(tokio::sync::Notify::new()), client.clone());
        let (path, signal) = (source.clone(), Arc::clone(&done));
        let copying = tokio::spawn(async move {
            let result = upload(&task, "file", &path).await;
            signal.notify_one();
            result
        });
        tokio::time::sleep(Duration::from_millis(700)).await;
        server.crash_and_restart();
        tokio::time::timeout(Duration::from_secs(60), done.notified())
            .await
            .expect("it goes on after the crash");
        copying.await.unwrap().unwrap();
        assert!(fs::read(server.export().join("file")).unwrap() == data, "over {transport:?}");
        download(&client, "file", &target).await.unwrap();
        assert!(fs::read(&target).unwrap() == data, "over {transport:?}");
        client.remove(client.root(), b"file").await.unwrap();
    }
}

#[tokio::test]
async fn an_export_that_is_not_there_is_refused() {
    let server = Ganesha::start(Options::default());
    for transport in TRANSPORTS {
        let error =
            Client::connect("127.0.0.1", b"/not/exported", server.config(transport)).await.unwrap_err();
        assert!(matches!(error, Error::Mount { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_read_only_export_refuses_writes_with_its_status() {
    let server = Ganesha::start(Options { read_only: true, ..Options::default() });
    let local = tempfile::NamedTempFile::new().unwrap();
    let client = connect(&server, server.config(TransportChoice::Auto)).await;
    let error = upload(&client, "file", local.path()).await.unwrap_err();
    assert_eq!(error.status(), Some(nfs_wireless_client::NfsStatus::ROFS), "{error}");
}

/// Not a test: a server for `benches/against_libnfs.sh`, until its standard input ends.
#[test]
#[ignore = "serves until its input ends"]
fn serve_until_input_ends() {
    let server = Ganesha::start(Options::default());
    let (nfs, mount) = server.ports();
    println!("ready {nfs} {mount} {}", server.export().display());
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
}
