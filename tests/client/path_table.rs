//! Files by path on a server of a real directory: what each path leads to, and what becomes of operations while others are at work, are
//! dropped, or run on several threads.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    future::poll_fn,
    io::{self, ErrorKind},
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
    },
    path::Path,
    pin::pin,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    task::Poll,
};

use nfs_wireless_client::{ClientConfig, Error, Fs, OpenOptions, TransportChoice, url::NfsUrl};
use private_servers::{Call, Served};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinSet,
};

async fn connect(server: &Served) -> Fs {
    Fs::connect_url(&server.url("/"), ClientConfig::default()).await.unwrap()
}

/// Contents of files and targets of links below a directory, by path; of directories nothing.
fn tree(at: &Path) -> BTreeMap<String, Vec<u8>> {
    let (mut found, mut open) = (BTreeMap::new(), vec![at.to_owned()]);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            let contents = if kind.is_dir() {
                open.push(path.clone());
                Vec::new()
            } else if kind.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else {
                fs::read(&path).unwrap()
            };
            found.insert(path.strip_prefix(at).unwrap().display().to_string(), contents);
        }
    }
    found
}

/// Paths in the tree that [`plant`] makes.
const PATHS: [&[u8]; 44] = [
    b"file",
    b"file/",
    b"file/.",
    b"file/..",
    b"file/x",
    b"file//",
    b"./file",
    b"dir",
    b"dir/",
    b"dir/.",
    b"dir//./",
    b"dir/..",
    b"dir/file",
    b"dir/../file",
    b"dir/missing",
    b"dir/missing/",
    b"dir/missing/x",
    b"missing",
    b"missing/",
    b"missing/..",
    b"to-file",
    b"to-file/",
    b"to-file/.",
    b"to-dir",
    b"to-dir/",
    b"to-dir/.",
    b"to-dir/file",
    b"to-dir/../file",
    b"dir-slash",
    b"dir-slash/file",
    b"file-slash",
    b"up",
    b"up/file",
    b"chain",
    b"chain/",
    b"last",
    b"too-long",
    b"loop",
    b"loop/x",
    b"mutual",
    b"dangling",
    b"dangling/",
    b"n\xff\xfe\n name",
    b"to-bytes",
];

fn plant(at: &Path) {
    let bytes = OsStr::from_bytes(b"n\xff\xfe\n name");
    fs::create_dir_all(at.join("dir/deep")).unwrap();
    for (name, contents) in [("file", "file"), ("dir/file", "in dir")] {
        fs::write(at.join(name), contents).unwrap();
    }
    fs::write(at.join(bytes), "bytes").unwrap();
    symlink(bytes, at.join("to-bytes")).unwrap();
    for (link, target) in [
        ("to-file", "file"),
        ("to-dir", "dir"),
        ("dir-slash", "dir/"),
        ("file-slash", "file/"),
        ("dir/deep/up", "../.."),
        ("up", "dir/deep/up"),
        ("chain", "to-dir"),
        ("loop", "loop"),
        ("mutual", "lautum"),
        ("lautum", "mutual"),
        ("dangling", "gone"),
    ] {
        symlink(target, at.join(link)).unwrap();
    }
    // 40 links are followed, and no more.
    for number in 0..41 {
        let target = if number == 0 { "file".to_owned() } else { format!("link-{}", number - 1) };
        symlink(target, at.join(format!("link-{number}"))).unwrap();
    }
    symlink("link-38", at.join("last")).unwrap();
    symlink("link-40", at.join("too-long")).unwrap();
}

#[tokio::test]
async fn an_empty_path_names_nothing_that_could_be_removed_or_renamed() {
    let server = Served::start();
    fs::create_dir_all(server.path("/base/inner")).unwrap();
    let base = Fs::connect_url(&server.url("/base"), ClientConfig::default()).await.unwrap();
    let below = Fs::connect_url(&server.url("/base/inner"), ClientConfig::default()).await.unwrap();
    for nas in [&base, &below] {
        for refused in [
            nas.remove_dir_all("").await,
            nas.remove_dir("").await,
            nas.remove_file("").await,
            nas.rename("", "other").await,
        ] {
            refused.unwrap_err();
        }
    }
    assert!(server.path("/base/inner").is_dir());
    below.create_dir_all("a/b/c").await.unwrap();
    assert!(server.path("/base/inner/a/b/c").is_dir());
}

#[tokio::test]
async fn every_path_leads_where_it_leads_on_this_machine() {
    let server = Served::start();
    plant(&server.path("/"));
    let nas = connect(&server).await;
    let kind = |error: Error| io::Error::from(error).kind();
    let sorted = |mut names: Vec<Vec<u8>>| {
        names.sort();
        names
    };
    for path in PATHS {
        let here = server.path("/").join(OsStr::from_bytes(path));
        let shown = path.escape_ascii();
        let size =
            |it: io::Result<fs::Metadata>| it.map(|it| (it.is_dir(), it.len())).map_err(|it| it.kind());
        let remote = |it: Result<nfs_wireless_client::Metadata, Error>| {
            it.map(|it| (it.is_dir(), it.size)).map_err(kind)
        };
        assert_eq!(remote(nas.metadata(path).await), size(fs::metadata(&here)), "metadata {shown}");
        let itself = remote(nas.symlink_metadata(path).await);
        assert_eq!(itself, size(fs::symlink_metadata(&here)), "symlink_metadata {shown}");
        let exists = nas.try_exists(path).await.map_err(kind);
        assert_eq!(exists, here.try_exists().map_err(|it| it.kind()), "try_exists {shown}");
        let link = nas.read_link(path).await.map_err(kind);
        let local = fs::read_link(&here).map(|it| it.into_os_string().into_encoded_bytes());
        assert_eq!(link, local.map_err(|it| it.kind()), "read_link {shown}");
        let contents = nas.read(path).await.map_err(kind);
        assert_eq!(contents, fs::read(&here).map_err(|it| it.kind()), "read {shown}");
        let names = async {
            let (mut listing, mut names) = (nas.read_dir(path).await?, Vec::new());
            while let Some(entry) = listing.next_entry().await? {
                assert!(entry.path().starts_with(path) && entry.path().ends_with(entry.file_name()));
                names.push(entry.file_name().to_vec());
            }
            Ok(sorted(names))
        };
        let local = fs::read_dir(&here)
            .map(|listing| sorted(listing.map(|it| it.unwrap().file_name().into_encoded_bytes()).collect()));
        assert_eq!(names.await.map_err(kind), local.map_err(|it| it.kind()), "read_dir {shown}");
    }
    for path in [&b"a\0b"[..], b"\0"] {
        assert_eq!(nas.metadata(path).await.map_err(kind).unwrap_err(), ErrorKind::InvalidInput);
    }
    assert_eq!(nas.metadata(vec![b'n'; 300]).await.map_err(kind).unwrap_err(), ErrorKind::InvalidFilename);
}

#[tokio::test]
async fn an_export_that_was_left_is_entered_again_by_its_path() {
    let server = Served::start();
    fs::create_dir_all(server.path("/srv/music/new")).unwrap();
    fs::write(server.path("/srv/music/song"), "la").unwrap();
    symlink("../../../srv/music/song", server.path("/srv/music/new/link")).unwrap();
    symlink("/srv//music/./song", server.path("/srv/music/new/absolute")).unwrap();
    let music = Fs::new(connect(&server).await.client().clone(), "/srv/music");
    for path in
        ["new/link", "new/absolute", "../../srv/music/song", "/../srv/music/song", "/srv//music/song/../song"]
    {
        let found = music.read(path).await.map_err(|error| error.kind());
        let expected =
            if path.ends_with("song/../song") { Err(ErrorKind::NotADirectory) } else { Ok(b"la".to_vec()) };
        assert_eq!(found, expected, "{path}");
    }
}

/// How a directory is exchanged: the name `dir` leads to another one, in which `file` says so.
fn exchange(root: &Path) {
    fs::rename(root.join("dir"), root.join("old")).unwrap();
    fs::create_dir(root.join("dir")).unwrap();
    fs::write(root.join("dir/file"), "new").unwrap();
    fs::remove_dir_all(root.join("old")).unwrap();
}

#[tokio::test]
async fn a_directory_that_is_replaced_while_a_path_leads_through_it_is_looked_up_again() {
    let looks = AtomicU32::new(0);
    let server = Served::watched(move |root, call| {
        if call == Call::LookedUp(b"dir") && looks.fetch_add(1, Relaxed) == 0 {
            exchange(root);
        }
    });
    fs::create_dir(server.path("/dir")).unwrap();
    fs::write(server.path("/dir/file"), "old").unwrap();
    let nas = connect(&server).await;
    assert_eq!(nas.read("dir/file").await.unwrap(), b"new");
}

#[tokio::test]
async fn an_open_file_whose_name_is_taken_away_is_a_stale_handle() {
    let server = Served::start();
    fs::create_dir(server.path("/dir")).unwrap();
    fs::write(server.path("/dir/file"), "old").unwrap();
    let nas = connect(&server).await;
    let mut file = OpenOptions::new().read(true).write(true).open(&nas, "dir/file").await.unwrap();
    exchange(&server.path("/"));
    let error = file.metadata().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StaleNetworkFileHandle, "{error}");
    let error = file.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StaleNetworkFileHandle, "{error}");
    assert_eq!(nas.read("dir/file").await.unwrap(), b"new");
}

#[tokio::test]
async fn removing_a_tree_follows_no_link_and_stays_on_its_file_system() {
    let server = Served::watched(|_, _| {});
    for path in ["precious/deep", "tree/a/b", "tree/mounted/deep"] {
        fs::create_dir_all(server.path(path)).unwrap();
        fs::write(server.path(&format!("{path}/file")), path).unwrap();
    }
    for (target, link) in
        [("../../precious", "tree/a/link"), ("/precious", "tree/absolute"), ("precious", "tree-link")]
    {
        symlink(target, server.path(link)).unwrap();
    }
    // The server says that this one is on another file system.
    fs::set_permissions(server.path("tree/mounted"), PermissionsExt::from_mode(0o1755)).unwrap();
    let nas = connect(&server).await;
    let precious = tree(&server.path("precious"));
    let error = nas.remove_dir_all("tree").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CrossesDevices, "{error}");
    assert!(matches!(&error, Error::OtherFileSystem { path } if path == "mounted"), "{error}");
    assert!(server.path("tree/mounted/deep/file").exists());
    fs::set_permissions(server.path("tree/mounted"), PermissionsExt::from_mode(0o755)).unwrap();
    for (path, kind) in [("tree-link/", ErrorKind::NotADirectory), ("tree/absolute/", ErrorKind::NotFound)] {
        // The other half of the tree may be gone by now.
        let error = nas.remove_dir_all(path).await.unwrap_err().kind();
        assert!(error == kind || error == ErrorKind::NotADirectory, "{path}: {error:?}");
    }
    nas.remove_dir_all("tree").await.unwrap();
    nas.remove_dir_all("tree-link").await.unwrap();
    assert_eq!(tree(&server.path("precious")), precious);
    let left: Vec<_> = tree(&server.path("/")).into_keys().filter(|path| path.contains("tree")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn what_takes_the_place_of_a_directory_that_is_to_be_removed_is_not_followed_nor_emptied() {
    /// What happens to `tree/sub` once `tree` was listed.
    type Exchange = fn(&Path);
    let exchanges: [(&str, Exchange); 3] = [
        ("a link", |root| symlink("../precious", root.join("tree/sub")).unwrap()),
        ("a file", |root| fs::write(root.join("tree/sub"), "file").unwrap()),
        ("nothing", |_| {}),
    ];
    for (what, exchange) in exchanges {
        let listed = AtomicU32::new(0);
        let server = Served::watched(move |root, call| {
            if matches!(call, Call::Listed(_)) && listed.fetch_add(1, Relaxed) == 0 {
                fs::rename(root.join("tree/sub"), root.join("moved")).unwrap();
                exchange(root);
            }
        });
        for path in ["precious", "tree/sub"] {
            fs::create_dir_all(server.path(path)).unwrap();
            fs::write(server.path(&format!("{path}/file")), path).unwrap();
        }
        let nas = connect(&server).await;
        nas.remove_dir_all("tree").await.unwrap();
        let left: Vec<_> = tree(&server.path("/")).into_keys().collect();
        assert_eq!(left, ["moved", "moved/file", "precious", "precious/file"], "{what}");
    }
}

/// Polls something, lets others run for some turns, and drops it; whether it was done by then.
async fn give_up(turns: u32, future: impl Future<Output = Result<(), Error>>) -> bool {
    let mut future = pin!(future);
    for _ in 0..turns {
        let polled = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(done) = polled {
            done.unwrap();
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

/// Every operation is dropped after any number of turns, and done then: the result is the same as if it had not been begun before.
#[tokio::test]
async fn an_operation_that_is_dropped_can_be_made_again() {
    static CONTENTS: [u8; 100_000] = [7; 100_000];
    let server = Served::start();
    let nas = connect(&server).await;
    let mut dropped = 0;
    for turns in (0..40).chain([60, 100, 200, 400, 1000]) {
        let base = format!("run-{turns}");
        nas.create_dir(&base).await.unwrap();
        let nas = Fs::new(nas.client().clone(), format!("/{base}"));
        nas.create_dir_all("gone/a/b").await.unwrap();
        nas.write("gone/a/file", "x").await.unwrap();
        nas.write("old", "old").await.unwrap();
        let mut give_up = async |future: std::pin::Pin<Box<dyn Future<Output = Result<(), Error>>>>| {
            dropped += u32::from(!give_up(turns, future).await);
        };
        let for_all = |nas: &Fs| (nas.clone(), nas.clone(), nas.clone(), nas.clone());
        let (one, two, three, four) = for_all(&nas);
        give_up(Box::pin(async move { one.create_dir_all("made/a/b").await })).await;
        give_up(Box::pin(async move { two.write("file", CONTENTS).await })).await;
        give_up(Box::pin(async move { three.remove_dir_all("gone").await })).await;
        give_up(Box::pin(async move { four.rename("old", "new").await })).await;
        nas.create_dir_all("made/a/b").await.unwrap();
        nas.write("file", CONTENTS).await.unwrap();
        for result in [nas.remove_dir_all("gone").await, nas.rename("old", "new").await] {
            // It may have been done by the server after it was dropped.
            let error = result.err().map(|error| error.kind());
            assert!(matches!(error, None | Some(ErrorKind::NotFound)), "{turns}: {error:?}");
        }
        let found = tree(&server.path(&base));
        let names: Vec<_> = found.keys().map(String::as_str).collect();
        assert_eq!(names, ["file", "made", "made/a", "made/a/b", "new"], "{turns}");
        assert!(found["file"] == CONTENTS && found["new"] == b"old", "{turns}");
    }
    assert!(dropped > 20, "{dropped}");
}

/// Several clients at once, over both transports: each makes a tree of its own from many tasks, and all read what the others have made.
async fn many_at_once() {
    const CLIENTS: u32 = 4;
    const TASKS: u32 = 8;
    let server = Served::start();
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let transport = [TransportChoice::Udp, TransportChoice::Tcp][number as usize % 2];
        let config = ClientConfig::default().with_transport(transport).with_own_thread(number == 3);
        clients.push(Fs::connect_url(&server.url("/"), config).await.unwrap());
    }
    let mut tasks = JoinSet::new();
    for (number, nas) in clients.iter().enumerate() {
        for task in 0..TASKS {
            let nas = nas.clone();
            tasks.spawn(async move {
                let directory = format!("client-{number}/task-{task}");
                nas.create_dir_all(&directory).await?;
                for file in 0..5 {
                    let path = format!("{directory}/file-{file}");
                    nas.write(&path, path.repeat(1000)).await?;
                    nas.rename(&path, format!("{path}.done")).await?;
                }
                Ok::<_, Error>(())
            });
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap().unwrap();
    }
    for (number, nas) in clients.into_iter().enumerate() {
        tasks.spawn(async move {
            let other = (number + 1) % CLIENTS as usize;
            for task in 0..TASKS {
                let mut entries = nas.read_dir(format!("client-{other}/task-{task}")).await?;
                let mut count = 0;
                while let Some(entry) = entries.next_entry().await? {
                    let path = str::from_utf8(entry.path()).unwrap().strip_suffix(".done").unwrap();
                    assert!(nas.read_to_string(entry.path()).await? == path.repeat(1000), "{path}");
                    count += 1;
                }
                assert_eq!(count, 5);
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "current_thread")]
async fn many_clients_share_a_runtime_of_one_thread() {
    many_at_once().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn many_clients_share_a_runtime_of_many_threads() {
    many_at_once().await;
}

#[tokio::test]
async fn what_a_file_was_not_opened_for_is_refused_here() {
    let server = Served::start();
    let nas = connect(&server).await;
    nas.write("file", "0123456789").await.unwrap();
    let mut file = nas.open("file").await.unwrap();
    assert_eq!(file.set_len(3).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(file.write(b"x").await.unwrap_err().kind(), ErrorKind::PermissionDenied);
    file.sync_all().await.unwrap();
    let mut file = nas.create("other").await.unwrap();
    assert_eq!(file.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::PermissionDenied);
    file.write_all(b"other").await.unwrap();
    file.sync_data().await.unwrap();
    assert_eq!(fs::read(server.path("other")).unwrap(), b"other");
    assert_eq!(fs::read(server.path("file")).unwrap(), b"0123456789");
}

#[tokio::test]
async fn a_url_leads_to_the_server_and_the_directory_that_it_names() {
    let server = Served::start();
    fs::create_dir_all(server.path("my music/new")).unwrap();
    fs::write(server.path("my music/song"), "la").unwrap();
    let url = server.url("/my%20music/");
    assert_eq!(url.parse::<NfsUrl>().unwrap().path, b"/my music/");
    let music = Fs::connect_url(&url, ClientConfig::default()).await.unwrap();
    assert_eq!(music.read_to_string("song").await.unwrap(), "la");
    let error = Fs::connect_url("http://nas/x", ClientConfig::default()).await.unwrap_err();
    assert_eq!((error.kind(), matches!(error, Error::Url(_))), (ErrorKind::InvalidInput, true));
}
