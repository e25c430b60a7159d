//! Exports within an export of the Linux kernel's server.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use private_servers::{
    Server as _,
    knfsd::{Knfsd, Options},
    nfsw,
};

/// Mounts three file systems in what is exported, exports two of them, and one to somebody else.
const BEGIN: &str = "
    mkdir -p top/n1 top/sub/n2 top/refused
    echo plain >top/plain
    options=rw,sync,no_root_squash,insecure,no_subtree_check
    number=10
    for inner in n1 sub/n2 refused; do
        number=$((number + 1)); who='*'; [ $inner != refused ] || who=192.0.2.1
        mount -t tmpfs -o size=8m inner top/$inner
        mkdir top/$inner/deep; echo $inner >top/$inner/x; echo deep >top/$inner/deep/y
        exportfs -i -o $options,fsid=$number $who:/export/top/$inner
    done";

const END: &str = "
    for inner in n1 sub/n2; do exportfs -u \"*:/export/top/$inner\"; done
    exportfs -u 192.0.2.1:/export/top/refused
    exportfs -f
    for inner in n1 sub/n2 refused; do umount -l top/$inner; done";

/// Lists what lies below the mount points.
const COVERED: &str = "
    mkdir -p /covered; mount --bind /export /covered
    cd /covered/top; find n1 sub/n2 refused | sort
    cd /; umount /covered";

/// What the users of the server see, and callers of it may.
const SEEN: [&str; 5] = ["plain", "n1/x", "n1/deep/y", "sub/n2/x", "sub/n2/deep/y"];

struct Nested {
    server: Knfsd,
    local: tempfile::TempDir,
}

impl Nested {
    fn start() -> Self {
        let server = Knfsd::start(Options::default()).unwrap();
        server.run(BEGIN).unwrap();
        Self { server, local: tempfile::tempdir().unwrap() }
    }

    /// Runs a line of words, where `{PATH}` stands for that path on the server and `@` for a local directory. Returns what was said.
    fn run(&self, line: &str, succeeds: bool) -> String {
        let (nfs, mount) = self.server.ports();
        let words = line.split(' ').map(|word| match word.strip_prefix('{') {
            Some(path) => {
                let path = path.trim_end_matches('}');
                format!("nfs://127.0.0.1:{nfs}/export{path}?mountport={mount}")
            }
            None => word.replace('@', self.local.path().to_str().unwrap()),
        });
        let place = |name| self.local.path().join(name);
        let output = Command::new(nfsw())
            .args(words)
            .envs([("XDG_STATE_HOME", place("state")), ("XDG_CACHE_HOME", place("cache"))])
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert_eq!(output.status.success(), succeeds, "{line}: {text}");
        text
    }

    fn make(&self, path: &str) {
        let path = self.local.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "local").unwrap();
    }

    fn check_covered(&self) {
        assert_eq!(self.server.run(COVERED).unwrap(), "n1\nrefused\nsub/n2\n");
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        let _ = self.server.run(END);
    }
}

/// The files below a directory.
fn files(directory: &Path) -> BTreeSet<String> {
    fn add(all: &mut BTreeSet<String>, root: &Path, directory: &Path) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => add(all, root, &path),
                false => drop(all.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned())),
            }
        }
    }
    let mut all = BTreeSet::new();
    add(&mut all, directory, directory);
    all.remove(".nfsw-incomplete");
    all
}

#[test]
fn what_walks_goes_on_in_them_or_says_that_it_does_not() {
    let nested = Nested::start();
    let seen = BTreeSet::from(SEEN.map(str::to_owned));
    for command in ["cp -r {/top} @/copied", "sync {/top} @/synced"] {
        let said = nested.run(command, false);
        assert_eq!(said.matches("/refused: is an export of its own").count(), 1, "{command}: {said}");
        let copy = nested.local.path().join(command.rsplit('/').next().unwrap());
        assert_eq!(files(&copy), seen, "{command}: {said}");
    }

    // What is only here goes where the server was seen, and stays where it was not.
    for path in ["more", "n1/more", "refused/x"] {
        nested.make(&format!("synced/{path}"));
    }
    nested.run("sync --delete {/top} @/synced", false);
    let left = files(&nested.local.path().join("synced"));
    assert!(left.is_superset(&seen) && left.contains("refused/x"), "{left:?}");

    for path in ["up/n1/new", "up/n1/further/new", "up/refused/new", "up/new"] {
        nested.make(path);
    }
    nested.run("cp -rT @/up {/top}", false);
    nested.check_covered();
    let there = "for path in n1/new n1/further/new new; do cat top/$path; done; ls -R top/refused";
    let there = nested.server.run(there).unwrap();
    assert_eq!(there.matches("local").count(), 3, "{there}");
    assert!(!there.contains("new"), "{there}");

    let said = nested.run("ls -R {/top}", false);
    assert!(said.contains("/top/n1/deep:\ny\n") && said.contains("/top/sub/n2/deep:\ny\n"), "{said}");
    nested.run("mkdir -p {/top/n1/made/too}", true);
    nested.run("mkdir -p {/top/refused/made}", false);
    nested.run("cp @/up/new {/top/refused/single}", false);
    nested.run("chmod -R 700 {/top/n1}", true);
    nested.run("cp -r -x {/top/sub} @/one", true);
    assert_eq!(files(&nested.local.path().join("one")), BTreeSet::new());
    nested.run("rm -r {/top}", false);
    nested.check_covered();
    let left = nested.server.run("find top/refused -type f | sort").unwrap();
    assert_eq!(left, "top/refused/deep/y\ntop/refused/x\n");
}
