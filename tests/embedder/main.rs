//! A program outside this workspace that embeds the library: it is built as its author would, copies a tree over a bad link, is killed, and resumes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use linkemu::{
    Preset,
    proxy::{Forward, Proxy, ProxyConfig},
};
use private_servers::{Served, difference};

const LARGE: usize = 1 << 20;

/// Where the package is that `main` has made. Its build is kept for the next run.
fn build() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"));
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join("embedder");
    fs::create_dir_all(package.join("src")).unwrap();
    let manifest = format!(
        "[package]\nname = \"embedder\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n\
         nfs-files = {{ path = \"{}\" }}\ntokio = {{ version = \"1\", features = [\"macros\", \"rt\"] }}\n\n[workspace]\n",
        workspace.join("crates/nfs-files").display()
    );
    fs::write(package.join("Cargo.toml"), manifest).unwrap();
    // The versions that the workspace is tested with.
    fs::copy(workspace.join("Cargo.lock"), package.join("Cargo.lock")).unwrap();
    fs::write(package.join("src/main.rs"), include_str!("program.rs")).unwrap();
    let build =
        Command::new(env!("CARGO")).args(["build", "--quiet"]).current_dir(&package).status().unwrap();
    assert!(build.success());
    package.join("target/debug/embedder")
}

/// The server's port behind a link that fades.
fn behind_a_bad_link(served: &Served) -> u16 {
    let mut link = Preset::named("paper-1997").unwrap().config();
    link.channel.set_bad_mean(Duration::from_millis(80));
    let mut config = ProxyConfig::new(link, 1);
    config.forwards.push(Forward { listen: "127.0.0.1:0".parse().unwrap(), to: served.address() });
    let (bound, address) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let proxy = Proxy::bind(config).await.unwrap();
            bound.send(proxy.local_addresses().unwrap()[0]).unwrap();
            proxy.run().await
        });
    });
    address.recv().unwrap().port()
}

#[test]
#[ignore = "compiles the libraries once more"]
fn somebody_elses_program_resumes_a_tree_over_a_bad_link_after_it_was_killed() {
    let program = build();
    let (served, here) = (Served::start(), tempfile::tempdir().unwrap());
    let tree = here.path().join("tree");
    fs::create_dir_all(tree.join("below")).unwrap();
    fs::write(tree.join("large"), (0..LARGE).map(|at| (at / 7 + at) as u8).collect::<Vec<_>>()).unwrap();
    for number in 0..10 {
        fs::write(tree.join(format!("below/{number}")), format!("contents of {number}")).unwrap();
    }
    let port = behind_a_bad_link(&served);
    let embedder = || {
        let mut command = Command::new(&program);
        command.arg(&tree).arg(format!("nfs://127.0.0.1:{port}/copy?mountport={port}"));
        command.env("XDG_STATE_HOME", here.path().join("state")).stdout(Stdio::piped());
        command
    };
    let written = || served.service(|service| service.stats().written_bytes);

    let mut first = embedder().spawn().unwrap();
    let begun = Instant::now();
    while written() < LARGE as u64 / 2 {
        assert!(first.try_wait().unwrap().is_none(), "it has ended before half was written");
        assert!(begun.elapsed() < Duration::from_secs(120), "{} bytes written", written());
        thread::sleep(Duration::from_millis(10));
    }
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(!served.path("/copy/large").exists(), "half a file has its final name");

    let before = written();
    let second = embedder().output().unwrap();
    let said = String::from_utf8(second.stdout).unwrap();
    assert!(second.status.success(), "{said}");
    assert_eq!(difference(&tree, &served.path("/copy"), false).unwrap(), None);
    assert!(said.contains("resumed ") && said.ends_with(" copied, 0 failed\n"), "{said}");
    let moved = written() - before;
    assert!(moved <= LARGE as u64 * 3 / 4, "{moved} bytes after half was there: {said}");
}
