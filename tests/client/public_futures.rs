//! Every future of the client's interface can be given to `tokio::spawn`: this file would not
//! compile otherwise.

use std::{future::Future, path::Path};

use nfs_wireless_client::{
    Client, ClientConfig, Error, File, FileHandle, Fs, FsReadDir, OpenOptions, Pinger, Procedure, ReadDir,
    SetAttributes, SpecialFile, Stability, Time, UploadSpec, nfs3_types::nfs3::GETATTR3resok,
};

/// Takes what `tokio::spawn` takes.
fn spawn<T: Send + 'static>(future: impl Future<Output = Result<T, Error>> + Send + 'static) {
    drop(future);
}

/// Never called: its body only has to compile.
#[expect(dead_code, reason = "it is there for the compiler")]
fn connecting(host: String, path: Vec<u8>, config: ClientConfig, pinger: Pinger) {
    {
        let (host, config) = (host.clone(), config.clone());
        spawn(async move { Client::connect(&host, &path, config).await });
    }
    {
        let (host, config) = (host.clone(), config.clone());
        spawn(async move { Client::exports(&host, config).await });
    }
    {
        let (host, config) = (host.clone(), config.clone());
        spawn(async move { Client::connect_url(&host, config).await });
    }
    {
        let (host, config) = (host.clone(), config.clone());
        spawn(async move { Fs::connect(&host, b"/", config).await });
    }
    {
        let (host, config) = (host.clone(), config.clone());
        spawn(async move { Fs::connect_url(&host, config).await });
    }
    spawn(async move { Pinger::connect(&host, config).await });
    spawn(async move { pinger.ping().await });
}

/// Never called.
#[expect(dead_code, reason = "it is there for the compiler")]
fn calls(client: Client, mut listing: ReadDir, mut complete: ReadDir, file: FileHandle, name: Vec<u8>) {
    /// Spawns what a method returns, of a client and a name of its own.
    macro_rules! spawn_all {
        ($(|$client:ident, $name:ident| $call:expr;)*) => {$({
            let ($client, $name) = (client.clone(), name.clone());
            spawn(async move {
                let _ = &$name;
                $call.await
            });
        })*};
    }
    let attributes = SetAttributes::default();
    spawn_all! {
        |client, name| client.export_of(&name);
        |client, name| client.unmount();
        |client, name| client.null();
        |client, name| client.call_raw(Procedure::Null, Vec::new());
        |client, name| client.lookup(file, &name);
        |client, name| client.resolve(&name);
        |client, name| client.create(file, &name, attributes);
        |client, name| client.create_new(file, &name, attributes);
        |client, name| client.create_guarded(file, &name, attributes);
        |client, name| client.mkdir(file, &name, attributes);
        |client, name| client.symlink(file, &name, &name);
        |client, name| client.make_node(file, &name, SpecialFile::Fifo, attributes);
        |client, name| client.hard_link(file, file, &name);
        |client, name| client.hard_link_of((file, 1), file, &name);
        |client, name| client.hard_link_first((file, 1), file, &name);
        |client, name| async { Ok(client.is_of_name(file, &Error::Closed).await) };
        |client, name| client.rename_if_free(file, (file, &name), (file, &name));
        |client, name| client.rename_directory_if_free(file, (file, &name), (file, &name));
        |client, name| client.leave_old_name(file, (file, &name), (file, &name));
        |client, name| client.remove(file, &name);
        |client, name| client.rmdir(file, &name);
        |client, name| client.rename(file, (file, &name), (file, &name));
        |client, name| client.metadata(file);
        |client, name| client.set_attributes(file, attributes);
        |client, name| client.set_attributes_if(file, attributes, Time::default());
        |client, name| client.access(file, 0);
        |client, name| client.read_link(file);
        |client, name| client.read(file, 0, 0);
        |client, name| client.write(file, 0, &name, Stability::Stable);
        |client, name| client.commit(file, 0, 0);
        |client, name| client.fs_stat(file);
        |client, name| client.fs_info(file);
        |client, name| client.path_conf(file);
    }
    let other = client.clone();
    spawn(async move {
        let arguments = nfs_wireless_client::nfs3_types::nfs3::GETATTR3args { object: file.to_fh3() };
        other.call::<GETATTR3resok>(Procedure::Getattr, &arguments).await.map(drop)
    });
    spawn(async move { listing.next().await });
    spawn(async move { complete.next_complete().await });
}

/// Never called.
#[expect(dead_code, reason = "it is there for the compiler")]
fn paths(fs: Fs, path: String, mut listing: FsReadDir, files: [File; 4]) {
    macro_rules! spawn_all {
        ($(|$fs:ident, $path:ident| $call:expr;)*) => {$({
            let ($fs, $path) = (fs.clone(), path.clone());
            spawn(async move { $call.await });
        })*};
    }
    spawn_all! {
        |fs, path| fs.open(path);
        |fs, path| fs.create(path);
        |fs, path| fs.read(path);
        |fs, path| fs.read_to_string(path);
        |fs, path| fs.write(&path, &path);
        |fs, path| fs.metadata(path);
        |fs, path| fs.symlink_metadata(path);
        |fs, path| fs.try_exists(path);
        |fs, path| fs.read_dir(path);
        |fs, path| fs.read_link(path);
        |fs, path| fs.create_dir(path);
        |fs, path| fs.create_dir_all(path);
        |fs, path| fs.remove_file(path);
        |fs, path| fs.remove_dir(path);
        |fs, path| fs.remove_dir_all(path);
        |fs, path| fs.rename(&path, &path);
        |fs, path| fs.hard_link(&path, &path);
        |fs, path| fs.symlink(&path, &path);
        |fs, path| fs.set_permissions(path, 0o644);
        |fs, path| fs.set_attributes(path, SetAttributes::default());
    }
    spawn(async move { OpenOptions::new().read(true).open(&fs, path).await });
    spawn(async move { listing.next_entry().await });
    let [one, mut two, mut three, mut four] = files;
    spawn(async move { one.metadata().await });
    spawn(async move { two.set_len(0).await });
    spawn(async move { three.sync_all().await });
    spawn(async move { four.sync_data().await });
}

/// Never called.
#[expect(dead_code, reason = "it is there for the compiler")]
fn transfers(client: Client, file: FileHandle, local: [std::fs::File; 3], spec: UploadSpec) {
    let [first, second, third] = local;
    let other = client.clone();
    spawn(async move { Ok(other.look_up_all(vec![(file, Vec::new())]).await) });
    let other = client.clone();
    spawn(async move { other.download(file, 0, first, None).await });
    let other = client.clone();
    spawn(async move { other.download_ranges(file, Default::default(), second, None).await });
    spawn(async move { client.upload(spec, third, None).await });
}

#[test]
fn no_public_future_is_missing_here() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/nfs-wireless-client/src");
    let here = include_str!("public_futures.rs");
    let mut found = 0;
    // What is public in other files is reached through nothing public.
    for file in [
        "client.rs",
        "client/files.rs",
        "client/names.rs",
        "client/pinger.rs",
        "file.rs",
        "fs.rs",
        "fs/listing.rs",
        "fs/options.rs",
        "read_dir.rs",
    ] {
        let text = std::fs::read_to_string(source.join(file)).unwrap();
        for line in text.lines().filter_map(|line| line.trim_start().strip_prefix("pub async fn ")) {
            let name = line.split(['(', '<']).next().unwrap();
            let calls = [".", "::"].map(|before| [format!("{before}{name}("), format!("{before}{name}::<")]);
            assert!(calls.iter().flatten().any(|call| here.contains(call)), "{name} of {file} is missing");
            found += 1;
        }
    }
    assert!(found >= 60, "{found}");
}
