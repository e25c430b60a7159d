//! A share and those who use it, on loopback: as a program that embeds both would.

#![expect(clippy::disallowed_methods, reason = "an embedder reads the clock")]

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use nfs_share::{
    Code, Event, Greeting, Identity, MemberId, Membership, Reached, Share, ShareChannel, Sharer,
};
use nfs_wireless_client::{Client, ClientConfig, Error, Fs};
use nfs_wireless_server::{Access, Directory, DirectoryConfig};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream, UdpSocket},
    time::timeout,
};

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);

fn files(path: &Path) -> Directory {
    let mut config = DirectoryConfig::default();
    config.access = Access::ReadOnly;
    Directory::open(path, config).unwrap()
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index * index / 7) as u8).collect()
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["trip", "documents"] {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("file"), [name.as_bytes(), &content(300_000)].concat())
            .unwrap();
    }
    folder
}

async fn share() -> (Share, tokio::sync::mpsc::UnboundedReceiver<Event>) {
    let sharer = Sharer::new(Identity::draw(), "photos", Instant::now());
    Share::bind("127.0.0.1:0".parse().unwrap(), sharer).await.unwrap()
}

fn code(share: &Share, id: MemberId) -> Code {
    share.members().into_iter().find(|member| member.id == id).unwrap().code.unwrap()
}

/// What an embedder keeps of a session.
type Kept = Arc<Mutex<Option<Membership>>>;

fn channel(addresses: impl IntoIterator<Item = SocketAddr>, greeting: Greeting) -> (ClientConfig, Kept) {
    let kept = Kept::default();
    let keep = Arc::clone(&kept);
    let channel = ShareChannel::new(addresses, greeting, "sophia's laptop", move |joined, _| {
        *keep.lock().unwrap() = Some(joined.membership.clone());
    });
    let channel: Arc<dyn nfs_wireless_client::Channel> = Arc::new(channel);
    (ClientConfig::default().with_channel(channel), kept)
}

async fn connect(address: SocketAddr, code: Code) -> Result<(Fs, Kept), Error> {
    let (config, kept) = channel([address], Greeting::Code(code, Identity::draw()));
    Ok((Fs::new(Client::connect("", b"/", config).await?, "/"), kept))
}

#[tokio::test]
async fn each_member_reads_what_it_was_given_and_nobody_writes() {
    let (folder, (share, mut events)) = (folder(), share().await);
    let until = Instant::now() + HOUR;
    for name in ["trip", "documents"] {
        let id = share.invite(until, files(&folder.path().join(name)));
        let code = code(&share, id);
        let (fs, _) = connect(share.local_addr(), code.clone()).await.unwrap();
        assert!(matches!(events.recv().await, Some(Event::Joined(joined, _)) if joined == id));
        assert_eq!(fs.read("file").await.unwrap(), [name.as_bytes(), &content(300_000)].concat());
        assert!(fs.read("../documents/file").await.is_err());
        let refused = fs.write("new", "x").await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        assert!(share.served(id).read_bytes >= 300_000);
        let again = connect(share.local_addr(), code).await.unwrap_err();
        assert!(again.to_string().contains("was used already"), "{again}");
    }
}

#[tokio::test]
async fn what_is_stopped_or_over_is_gone_within_a_second() {
    let (folder, (share, _events)) = (folder(), share().await);
    let stopped = share.invite(Instant::now() + HOUR, files(folder.path()));
    let short = share.invite(Instant::now() + 2 * SECOND, files(folder.path()));
    let goes_on = share.invite(Instant::now() + HOUR, files(folder.path()));
    let [mut one, mut two, mut three] = [None, None, None];
    for (id, place) in [(stopped, &mut one), (short, &mut two), (goes_on, &mut three)] {
        *place = Some(connect(share.local_addr(), code(&share, id)).await.unwrap());
    }
    let [(one, kept), (two, _), (three, _)] = [one, two, three].map(Option::unwrap);
    let open = one.open("trip/file").await.unwrap();
    share.stop(stopped);
    let asked = Instant::now();
    let error = timeout(SECOND, one.read("trip/file")).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StaleNetworkFileHandle, "{error}");
    assert!(asked.elapsed() < SECOND);
    drop(open);
    // Neither does it come back.
    let membership = kept.lock().unwrap().clone().unwrap();
    let (config, _) = channel([share.local_addr()], Greeting::Known(membership, None));
    let error = timeout(SECOND, Client::connect("", b"/", config)).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("has ended"), "{error}");
    assert!(two.read("trip/file").await.is_ok());
    tokio::time::sleep(2 * SECOND).await;
    let error = timeout(SECOND, two.read("trip/file")).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StaleNetworkFileHandle, "{error}");
    assert!(three.read("trip/file").await.is_ok());
    share.end().await;
    assert!(timeout(SECOND, three.read("trip/file")).await.unwrap().is_err());
}

/// Where streams leave what is between, as the sharer sees it.
const BETWEEN: &str = "127.0.0.9:0";

/// Where nobody answers datagrams, and streams lead to a share: what is between lets no UDP through.
async fn over_tcp_alone(to: SocketAddr) -> (SocketAddr, UdpSocket, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let silent = UdpSocket::bind(address).await.unwrap();
    let streams = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&streams);
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let socket = TcpSocket::new_v4().unwrap();
                socket.bind(BETWEEN.parse().unwrap()).unwrap();
                let mut far = socket.connect(to).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    (address, silent, streams)
}

#[tokio::test]
async fn a_share_is_read_where_no_udp_gets_through_until_it_ends() {
    let (folder, (share, mut events)) = (folder(), share().await);
    assert!(share.takes_streams());
    let (address, _silent, streams) = over_tcp_alone(share.local_addr()).await;
    // Another address of the same name: streams are accepted there, and nothing is said.
    let mute = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let id = share.invite(Instant::now() + HOUR, files(folder.path()));
    let addresses = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&addresses);
    let greeting = Greeting::Code(code(&share, id), Identity::draw());
    let channel =
        ShareChannel::new([mute.local_addr().unwrap(), address], greeting, "", move |joined, reached| {
            kept.lock().unwrap().push((joined.membership.clone(), reached));
        });
    let near = channel.clone();
    let config =
        ClientConfig::default().with_channel(Arc::new(channel) as Arc<dyn nfs_wireless_client::Channel>);
    let begun = Instant::now();
    // Two clients of one channel, as a pool has them.
    let fs = Fs::new(Client::connect("", b"/", config.clone()).await.unwrap(), "/");
    let other = Fs::new(Client::connect("", b"/", config).await.unwrap(), "/");
    assert!(begun.elapsed() < 4 * SECOND, "{:?}", begun.elapsed());
    let (one, two) = tokio::join!(fs.read("trip/file"), other.read("documents/file"));
    assert_eq!(one.unwrap(), [b"trip", &content(300_000)[..]].concat());
    assert_eq!(two.unwrap(), [b"documents", &content(300_000)[..]].concat());
    let kept = addresses.lock().unwrap().clone();
    let [(membership, reached)] = &kept[..] else { panic!("two clients of a channel are one member") };
    let wanted = Reached { address, by_stream: true };
    assert_eq!(*reached, wanted, "the share is there, and not where its streams begin");
    // Who knows that does not wait for datagrams that nobody answers.
    let greeting = Greeting::Known(membership.clone(), None);
    let again = ShareChannel::new([address], greeting, "", |_, _| {}).with_stream_at_once();
    let begun = Instant::now();
    nfs_wireless_client::Channel::open(&again).await.unwrap();
    assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
    drop(again);
    // What stands for a stream at the sharer's is not where somebody is.
    let Some(Event::Joined(_, from)) = events.recv().await else { panic!("nobody has joined") };
    for seen in [from, share.heard(id).unwrap().1] {
        assert_eq!(SocketAddr::new(seen.ip(), 0), BETWEEN.parse().unwrap());
    }
    // Whoever else of this machine sends something to where the streams begin gets none.
    let (before, stranger) = (streams.load(Ordering::Relaxed), UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let begins = nfs_wireless_client::Channel::open(&near).await.unwrap();
    for first in [0, 1] {
        stranger.send_to(&[first; 100], begins).await.unwrap();
    }
    assert!(fs.read("trip/file").await.is_ok());
    tokio::time::sleep(SECOND / 10).await;
    assert_eq!(streams.load(Ordering::Relaxed), before);
    let open = fs.open("trip/file").await.unwrap();
    share.stop(id);
    let error = timeout(SECOND, fs.read("trip/file")).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StaleNetworkFileHandle, "{error}");
    drop(open);
}

#[tokio::test]
async fn streams_that_bring_nothing_of_use_keep_nobody_from_a_share() {
    let (folder, (share, _events)) = (folder(), share().await);
    let id = share.invite(Instant::now() + HOUR, files(folder.path()));
    let mut streams = Vec::new();
    // They are accepted while others are made.
    for number in 0..80 {
        let mut stream = TcpStream::connect(share.local_addr()).await.unwrap();
        // A length without a datagram, an empty datagram, noise.
        let bytes = [vec![255, 255, 1], vec![0, 0], content(4096)];
        let _ = stream.write_all(&bytes[number % 3]).await;
        streams.push(stream);
    }
    let (fs, _) = connect(share.local_addr(), code(&share, id)).await.unwrap();
    assert!(fs.read("trip/file").await.is_ok());
    // Of one address, so many are taken; the others are closed at once.
    let mut closed = 0;
    for stream in &mut streams {
        let ended = timeout(SECOND / 20, stream.read(&mut [0; 64])).await;
        closed += usize::from(matches!(ended, Ok(Ok(0) | Err(_))));
    }
    assert_eq!(closed, 16, "of one address, 64 are taken");
}

#[tokio::test]
async fn a_sharer_that_is_started_again_is_read_from_on() {
    let folder = folder();
    let identity = Identity::draw();
    let listen = "127.0.0.1:0".parse().unwrap();
    let sharer = Sharer::new(identity.clone(), "photos", Instant::now());
    let (share, _events) = Share::bind(listen, sharer).await.unwrap();
    let id = share.invite(Instant::now() + HOUR, files(folder.path()));
    let address = share.local_addr();
    let (fs, _) = connect(address, code(&share, id)).await.unwrap();
    let before = fs.read("trip/file").await.unwrap();
    let members = share.members();
    drop(share);
    // It was killed: nothing was said. What is asked for now waits.
    let waiting = tokio::spawn(async move { fs.read("trip/file").await });
    tokio::time::sleep(SECOND / 2).await;
    let sharer = Sharer::new(identity, "photos", Instant::now());
    // Its tasks may take a moment to end.
    while std::net::UdpSocket::bind(address).is_err() {
        tokio::time::sleep(SECOND / 50).await;
    }
    let (share, _events) = Share::bind(address, sharer).await.unwrap();
    for member in members {
        share.restore(member, files(folder.path()));
    }
    assert_eq!(timeout(10 * SECOND, waiting).await.unwrap().unwrap().unwrap(), before);
}

/// A share was killed after it had let somebody in, and before it could keep that.
#[tokio::test]
async fn who_is_not_known_any_more_shows_the_code_again() {
    let (folder, identity) = (folder(), Identity::draw());
    let start = async || {
        let sharer = Sharer::new(identity.clone(), "photos", Instant::now());
        Share::bind("127.0.0.1:0".parse().unwrap(), sharer).await.unwrap()
    };
    let (share, _events) = start().await;
    let id = share.invite(Instant::now() + HOUR, files(folder.path()));
    let (members, code) = (share.members(), code(&share, id));
    let (_, kept) = connect(share.local_addr(), code.clone()).await.unwrap();
    drop(share);
    let (share, mut events) = start().await;
    for member in members {
        share.restore(member, files(folder.path()));
    }
    let membership = kept.lock().unwrap().clone().unwrap();
    let (config, _) = channel([share.local_addr()], Greeting::Known(membership, Some(code)));
    let client = timeout(30 * SECOND, Client::connect("", b"/", config)).await.unwrap().unwrap();
    assert!(Fs::new(client, "/").read("trip/file").await.is_ok());
    assert!(matches!(events.recv().await, Some(Event::Joined(joined, _)) if joined == id));
}

/// Another share has the same code, by chance or not, and is where the one was that is known.
#[tokio::test]
async fn a_code_that_is_shown_again_leads_to_the_same_share_alone() {
    let folder = folder();
    let start = async || {
        let sharer = Sharer::new(Identity::draw(), "photos", Instant::now());
        Share::bind("127.0.0.1:0".parse().unwrap(), sharer).await.unwrap()
    };
    let (share, _events) = start().await;
    let id = share.invite(Instant::now() + HOUR, files(folder.path()));
    let (members, code) = (share.members(), code(&share, id));
    let (_, kept) = connect(share.local_addr(), code.clone()).await.unwrap();
    let (other, _events) = start().await;
    for member in members {
        other.restore(member, files(folder.path()));
    }
    let membership = kept.lock().unwrap().clone().unwrap();
    let (config, kept) = channel([other.local_addr()], Greeting::Known(membership, Some(code)));
    let error = timeout(30 * SECOND, Client::connect("", b"/", config)).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("does not know this machine"), "{error}");
    assert!(kept.lock().unwrap().is_none(), "nothing of the other one is kept");
}

#[tokio::test]
async fn of_several_addresses_the_one_that_answers_is_used() {
    let (folder, (share, _events)) = (folder(), share().await);
    // One is silent, and nobody listens at the other one.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let places = [silent.local_addr().unwrap(), "[::1]:9".parse().unwrap(), share.local_addr()];
    let id = share.invite(Instant::now() + HOUR, files(folder.path()));
    let (config, kept) = channel(places, Greeting::Code(code(&share, id), Identity::draw()));
    let met = timeout(10 * SECOND, Client::connect("", b"/", config)).await.unwrap().unwrap();
    assert_eq!(met.address(), share.local_addr());
    let membership = kept.lock().unwrap().clone().unwrap();
    let (config, _) = channel(places, Greeting::Known(membership, None));
    let fs = Fs::new(timeout(10 * SECOND, Client::connect("", b"/", config)).await.unwrap().unwrap(), "/");
    assert!(fs.read("trip/file").await.unwrap().len() > 300_000);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn each_address_of_a_machine_answers() {
    let folder = folder();
    let sharer = Sharer::new(Identity::draw(), "photos", Instant::now());
    let (share, _events) = Share::bind("0.0.0.0:0".parse().unwrap(), sharer).await.unwrap();
    for address in ["127.0.0.1", "127.0.0.2"] {
        let id = share.invite(Instant::now() + HOUR, files(folder.path()));
        let address = SocketAddr::new(address.parse().unwrap(), share.local_addr().port());
        let (fs, _) =
            timeout(30 * SECOND, connect(address, code(&share, id))).await.expect("an answer").unwrap();
        assert!(fs.read("trip/file").await.unwrap().len() > 300_000, "{address}");
    }
}

/// Somebody goes to another network: its packets come from another address from then on.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn who_comes_from_another_address_reads_on() {
    let (folder, (share, _events)) = (folder(), share().await);
    let id = share.invite(Instant::now() + HOUR, files(folder.path()));
    let (to, seen) = (share.local_addr(), Arc::default());
    let (addresses, address) = tokio::sync::watch::channel("127.0.0.1");
    let between = relay_from(address, to, seen).await;
    let (fs, _) = connect(between, code(&share, id)).await.unwrap();
    let before = fs.read("trip/file").await.unwrap();
    addresses.send("127.0.0.2").unwrap();
    assert_eq!(timeout(10 * SECOND, fs.read("trip/file")).await.unwrap().unwrap(), before);
    assert_eq!(share.heard(id).unwrap().1.ip(), "127.0.0.2".parse::<std::net::IpAddr>().unwrap());
}

/// Everything that travels is seen by somebody in between, who changes nothing.
#[tokio::test]
async fn who_listens_learns_no_name_and_no_byte() {
    let (folder, (share, _events)) = (folder(), share().await);
    let secret = b"a name and a content that nobody else may see";
    fs::write(folder.path().join("secret-name-of-a-file"), secret).unwrap();
    let id = share.invite(Instant::now() + HOUR, files(folder.path()));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let between = relay(share.local_addr(), Arc::clone(&seen)).await;
    let code = code(&share, id);
    let (fs, _) = connect(between, code.clone()).await.unwrap();
    assert_eq!(fs.read("secret-name-of-a-file").await.unwrap(), secret);
    let seen = seen.lock().unwrap().concat();
    assert!(seen.len() > 2000);
    for word in [&b"secret-name"[..], &secret[..], b"sophia", b"photos", &code.to_string().as_bytes()[2..]] {
        assert!(!seen.windows(word.len()).any(|part| part == word), "{}", word.escape_ascii());
    }
}

/// Carries datagrams between one client and a share, and keeps them.
async fn relay(to: SocketAddr, seen: Arc<Mutex<Vec<Vec<u8>>>>) -> SocketAddr {
    relay_from(tokio::sync::watch::channel("127.0.0.1").1, to, seen).await
}

/// As [`relay`], from an address of this machine that may change.
async fn relay_from(
    own: tokio::sync::watch::Receiver<&'static str>,
    to: SocketAddr,
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
) -> SocketAddr {
    let front = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let address = front.local_addr().unwrap();
    tokio::spawn(async move {
        let mut backs: Vec<(SocketAddr, Arc<UdpSocket>)> = Vec::new();
        let mut buffer = vec![0; 65_536];
        loop {
            let Ok((length, from)) = front.recv_from(&mut buffer).await else { continue };
            seen.lock().unwrap().push(buffer[..length].to_vec());
            let own = *own.borrow();
            let is_known = |back: &UdpSocket| back.local_addr().unwrap().ip().to_string() == own;
            let known = backs.iter().find(|(known, back)| *known == from && is_known(back));
            let back = match known.map(|(_, back)| Arc::clone(back)) {
                Some(back) => back,
                None => {
                    let back = Arc::new(UdpSocket::bind((own, 0)).await.unwrap());
                    back.connect(to).await.unwrap();
                    backs.push((from, Arc::clone(&back)));
                    tokio::spawn(answers(Arc::clone(&back), Arc::clone(&front), from, Arc::clone(&seen)));
                    back
                }
            };
            let _ = back.send(&buffer[..length]).await;
        }
    });
    address
}

async fn answers(
    back: Arc<UdpSocket>,
    front: Arc<UdpSocket>,
    to: SocketAddr,
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
) {
    let mut buffer = vec![0; 65_536];
    while let Ok(length) = back.recv(&mut buffer).await {
        seen.lock().unwrap().push(buffer[..length].to_vec());
        let _ = front.send_to(&buffer[..length], to).await;
    }
}
