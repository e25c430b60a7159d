//! The choice of an export against models of servers: whatever they do, the files that are reached are those that were named.

use std::{cell::Cell, collections::BTreeSet};

use nfs_wire::{
    Procedure, Status,
    nfs3_types::nfs3::{fattr3, ftype3, nfstime3, specdata3},
};
use proptest::{collection::btree_set, prelude::*, sample::select};

use super::*;

/// What a model's MOUNT service makes of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mounts {
    /// Exports alone.
    Exports,
    /// Exports, and directories below them in the same file system, as Linux and nfs-ganesha.
    Below,
    /// Everything, as the directory of the first export, as go-nfs.
    Anything,
    /// The same, but not `/`.
    AnythingButRoot,
    /// What exists, as the directory of the first export.
    WhatExists,
}

/// A server with the directories a, a/a, a/b ... down to the third level, and file systems mounted on some.
#[derive(Clone, Debug)]
struct Model {
    mounts: Mounts,
    exports: BTreeSet<Vec<u8>>,
    /// File systems of their own, each of them exported.
    mounted_on: BTreeSet<Vec<u8>>,
    /// LOOKUP goes into them.
    crosses: bool,
    is_list_hidden: bool,
    /// `/` can be mounted, and holds nothing.
    has_pseudo_root: bool,
    /// MNT and LOOKUP give one directory different handles.
    has_two_handles: bool,
    /// What is looked up under this path is the directory so many levels above it, or its export's root.
    circle: Option<(Vec<u8>, usize)>,
    calls: Cell<u32>,
}

const DEPTH: usize = 3;

impl Model {
    /// A server that exports one directory and is honest.
    fn honest(exports: &[&str]) -> Self {
        Self {
            mounts: Mounts::Below,
            exports: exports.iter().map(|path| path.as_bytes().to_vec()).collect(),
            mounted_on: BTreeSet::new(),
            crosses: false,
            is_list_hidden: false,
            has_pseudo_root: false,
            has_two_handles: false,
            circle: None,
            calls: Cell::new(0),
        }
    }

    fn hidden(self) -> Self {
        Self { is_list_hidden: true, ..self }
    }

    fn listed(&self) -> Vec<Export> {
        let all = self.exports.iter().filter(|_| !self.is_list_hidden);
        all.map(|path| Export { directory: path.clone(), groups: vec![] }).collect()
    }

    fn first(&self) -> &[u8] {
        self.exports.first().expect("at least one")
    }

    /// The path of the file system that a path is on.
    fn file_system(&self, path: &[u8]) -> Vec<u8> {
        let on = self.mounted_on.iter().filter(|mounted| holds(mounted, path));
        on.max_by_key(|mounted| mounted.len()).cloned().unwrap_or_else(|| b"/".to_vec())
    }

    fn exists(path: &[u8]) -> bool {
        let names: Vec<_> = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
        names.len() <= DEPTH && names.iter().all(|name| matches!(**name, [b'a' | b'b']))
    }

    /// The directory that an administrator of the server means by a path.
    fn truth(&self, path: &[u8]) -> Option<FileHandle> {
        match self.mounts {
            // Its only directory is the root of all.
            Mounts::Anything | Mounts::WhatExists if self.is_list_hidden => {
                let path = [self.first(), path].join(&b'/');
                Self::exists(&path).then(|| self.handle(&normal(&path)))
            }
            Mounts::AnythingButRoot if self.is_list_hidden => None,
            _ if path == b"/" && self.is_pseudo_root() => Some(pseudo_root()),
            _ => Self::exists(path).then(|| self.handle(path)),
        }
    }

    fn is_pseudo_root(&self) -> bool {
        self.has_pseudo_root && !self.exports.contains(&b"/"[..])
    }

    fn handle(&self, path: &[u8]) -> FileHandle {
        raw_handle(&self.file_system(path), path)
    }

    /// Looks a name up as NFS does.
    fn child(&self, directory: FileHandle, name: &[u8]) -> Option<FileHandle> {
        let (file_system, path) = parts(directory);
        let child = below(&path, name);
        // What is hidden under a file system is empty, and so is a pseudo root.
        if !Self::exists(&child) || self.file_system(&path) != file_system {
            return None;
        }
        match &self.circle {
            Some((at, levels)) if *at == child => {
                let above = prefixes(at).into_iter().rev().skip(*levels);
                let export = self.exports.iter().filter(|export| holds(export, &path)).max()?;
                let mut above = above.filter(|above| holds(export, above));
                return Some(self.handle(&above.next().unwrap_or_else(|| export.clone())));
            }
            _ => {}
        }
        Some(if self.crosses { self.handle(&child) } else { raw_handle(&file_system, &child) })
    }

    /// Finds a path as a client does: the export, and then name by name. `None` where a name is not there.
    fn reach(&self, path: &[u8]) -> Result<Option<FileHandle>, Error> {
        let root = finish(async {
            let candidates = Candidates::mount(self, path, &self.listed(), b"nowhere").await?;
            candidates.settle(self).await
        })?;
        assert!(holds(&root.export, path), "{root:?} does not hold {path:?}");
        let rest = &path[root.export.len().min(path.len())..];
        let mut chain = vec![plain(root.handle)];
        for name in rest.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            let Some(child) = self.child(chain[chain.len() - 1], name) else { return Ok(None) };
            // These are refused where names are looked up.
            if chain.contains(&child) {
                return Err(Error::Circle { name: String::new(), above: String::new() });
            }
            chain.push(child);
        }
        Ok(chain.pop())
    }
}

impl Mounting for Model {
    async fn mount(&self, path: &[u8]) -> Result<FileHandle, Error> {
        self.calls.set(self.calls.get() + 1);
        let same_file_system = |export: &Vec<u8>| self.file_system(export) == self.file_system(path);
        let is_below = |export: &Vec<u8>| holds(export, path) && (self.crosses || same_file_system(export));
        let found = match self.mounts {
            Mounts::Exports => self.exports.contains(path).then(|| self.handle(path)),
            Mounts::Below => {
                let found = Self::exists(path) && self.exports.iter().any(is_below);
                found.then(|| self.handle(path))
            }
            Mounts::Anything => Some(self.handle(self.first())),
            Mounts::AnythingButRoot => (path != b"/").then(|| self.handle(self.first())),
            Mounts::WhatExists => Self::exists(path).then(|| self.handle(self.first())),
        };
        let found = found.or_else(|| (path == b"/" && self.is_pseudo_root()).then(pseudo_root));
        let found = found.map(|handle| if self.has_two_handles { second(handle) } else { handle });
        found.ok_or_else(|| Error::Mount { path: shown(path), status: MountStatus::NOENT })
    }
}

impl Looking for Model {
    async fn look_up(&self, directory: FileHandle, name: &[u8]) -> Result<(FileHandle, Metadata), Error> {
        self.calls.set(self.calls.get() + 1);
        match self.child(plain(directory), name) {
            Some(handle) => Ok((handle, metadata(handle))),
            None => Err(Error::refused(Procedure::Lookup, Status::NOENT)),
        }
    }

    async fn attributes(&self, file: FileHandle) -> Result<Metadata, Error> {
        Ok(metadata(plain(file)))
    }
}

fn raw_handle(file_system: &[u8], path: &[u8]) -> FileHandle {
    FileHandle::try_from(&[file_system, path].join(&b'|')[..]).expect("short paths")
}

fn pseudo_root() -> FileHandle {
    raw_handle(b"pseudo", b"/")
}

fn second(handle: FileHandle) -> FileHandle {
    FileHandle::try_from(&[b"2", handle.as_bytes()].concat()[..]).expect("short paths")
}

fn plain(handle: FileHandle) -> FileHandle {
    let bytes = handle.as_bytes();
    FileHandle::try_from(bytes.strip_prefix(b"2").unwrap_or(bytes)).expect("not empty")
}

fn parts(handle: FileHandle) -> (Vec<u8>, Vec<u8>) {
    let bytes = handle.as_bytes();
    let bar = bytes.iter().position(|&byte| byte == b'|').expect("every handle has one");
    (bytes[..bar].to_vec(), bytes[bar + 1..].to_vec())
}

fn metadata(handle: FileHandle) -> Metadata {
    let (file_system, path) = parts(handle);
    let number = |bytes: &[u8]| bytes.iter().fold(7, |sum: u64, &byte| sum * 257 + u64::from(byte));
    Metadata::from(&fattr3 {
        type_: ftype3::NF3DIR,
        mode: 0o755,
        nlink: 2,
        uid: 0,
        gid: 0,
        size: 4096,
        used: 4096,
        rdev: specdata3::default(),
        fsid: number(&file_system),
        fileid: number(&path),
        atime: nfstime3::default(),
        mtime: nfstime3::default(),
        ctime: nfstime3::default(),
    })
}

/// Runs what never waits.
fn finish<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a model answers at once"),
    }
}

fn paths() -> Vec<Vec<u8>> {
    let mut all = vec![b"/".to_vec()];
    let mut last = all.clone();
    for _ in 0..DEPTH {
        last = last.iter().flat_map(|above| [b"a", b"b"].map(|name| below(above, name))).collect();
        all.extend_from_slice(&last);
    }
    all
}

fn models() -> impl Strategy<Value = Model> {
    let mounts = select(vec![
        Mounts::Exports,
        Mounts::Below,
        Mounts::Anything,
        Mounts::AnythingButRoot,
        Mounts::WhatExists,
    ]);
    let some = |count| btree_set(select(paths()), count);
    let circle = proptest::option::weighted(0.2, (select(paths()), 1..3_usize));
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (mounts, some(1..4), some(0..3), circle, flags).prop_map(
        |(mounts, mut exports, mounted_on, circle, flags)| {
            let one_tree = !matches!(mounts, Mounts::Exports | Mounts::Below);
            let mounted_on: BTreeSet<_> = if one_tree { BTreeSet::new() } else { mounted_on };
            if one_tree {
                exports = exports.into_iter().take(1).collect();
            }
            exports.extend(mounted_on.iter().filter(|&path| path != b"/").cloned());
            let (crosses, is_list_hidden, has_pseudo_root, has_two_handles) = flags;
            // A server that answers everything needs no list, and go-nfs, whose directory is `/`, gives none.
            let is_list_hidden = is_list_hidden || mounts == Mounts::Anything;
            let has_pseudo_root = has_pseudo_root && !one_tree;
            let calls = Cell::new(0);
            Model {
                mounts,
                exports,
                mounted_on,
                crosses,
                is_list_hidden,
                has_pseudo_root,
                has_two_handles,
                circle,
                calls,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn what_is_reached_is_what_was_named_or_nothing(model in models(), path in select(paths())) {
        if let Ok(Some(found)) = model.reach(&path) {
            prop_assert_eq!(Some(found), model.truth(&path), "{:?} with {:?}", model, shown(&path));
        }
        prop_assert!(model.calls.get() <= 4 * DEPTH as u32 + 4);
    }

    #[test]
    fn an_honest_server_is_not_refused(
        below in any::<bool>(), exports in btree_set(select(paths()), 1..4), hidden in any::<bool>(),
        two_handles in any::<bool>(), path in select(paths()),
    ) {
        let mounts = if below { Mounts::Below } else { Mounts::Exports };
        let model = Model { mounts, exports, is_list_hidden: hidden, has_two_handles: two_handles, ..Model::honest(&[]) };
        let is_exported = model.exports.iter().any(|export| holds(export, &path));
        match model.reach(&path) {
            Ok(found) => prop_assert_eq!(found, Some(model.handle(&path))),
            Err(error) => prop_assert!(!is_exported, "{}", error),
        }
    }
}

fn message(model: &Model, path: &str) -> String {
    model.reach(path.as_bytes()).unwrap_err().to_string()
}

#[test]
fn a_server_that_mounts_any_path_as_its_root_is_believed_for_the_root_alone() {
    let model = Model { mounts: Mounts::Anything, ..Model::honest(&["/"]) }.hidden();
    assert_eq!(model.reach(b"/a/b").unwrap(), Some(model.handle(b"/a/b")));
    assert_eq!(model.reach(b"/c").unwrap(), None);
    assert_eq!(model.reach(b"/c/a").unwrap(), None, "and not what is below its root");
    let model = Model { mounts: Mounts::AnythingButRoot, ..model };
    let said = message(&model, "/a");
    assert!(said.contains("mounts any path, /a/nowhere as well as /a;"), "{said}");
    let model = Model { mounts: Mounts::WhatExists, ..model };
    let said = message(&model, "/a/b");
    assert!(said.contains("the same directory for / and /a;"), "{said}");
}

#[test]
fn what_the_list_names_is_mounted_whatever_else_could_be() {
    let model = Model { mounts: Mounts::Anything, ..Model::honest(&["/a"]) };
    let candidates = finish(Candidates::mount(&model, b"/a/b/a", &model.listed(), b"nowhere")).unwrap();
    assert_eq!(candidates.all, [(b"/a".to_vec(), Some(model.handle(b"/a")))]);
    assert_eq!(model.calls.get(), 1, "and nothing more is asked");
}

#[test]
fn two_exports_one_inside_the_other_are_two_directories() {
    let model = Model::honest(&["/", "/a", "/a/b"]);
    assert_eq!(model.reach(b"/a/b/a").unwrap(), Some(model.handle(b"/a/b/a")));
    let model = Model { mounts: Mounts::WhatExists, ..model };
    assert!(message(&model, "/a/b/a").contains("the same directory for /a and /a/b;"));
}

#[test]
fn an_export_that_is_hidden_below_another_one_is_refused() {
    let mounted_on = BTreeSet::from([b"/a/b".to_vec()]);
    let model = Model { mounted_on, ..Model::honest(&["/", "/a/b"]) }.hidden();
    assert_eq!(model.reach(b"/a").unwrap(), Some(model.handle(b"/a")));
    let said = message(&model, "/a/b");
    assert!(
        said.starts_with(
            "/a/b is one directory when it is mounted and another one when it is looked up in /;"
        )
    );
    // Below it, where names lead nowhere, there is no doubt.
    assert_eq!(model.reach(b"/a/b/a").ok(), None);
    let seen = Model { is_list_hidden: false, ..model };
    assert_eq!(seen.reach(b"/a/b/a").unwrap(), Some(seen.handle(b"/a/b/a")));
}

#[test]
fn a_pseudo_root_leads_to_what_is_mounted_below_it() {
    let model = Model { has_pseudo_root: true, ..Model::honest(&["/a/b"]) }.hidden();
    assert_eq!(model.reach(b"/a/b/a").unwrap(), Some(model.handle(b"/a/b/a")));
    assert_eq!(model.reach(b"/a").unwrap(), None);
}

#[test]
fn a_path_that_cannot_be_mounted_is_refused_for_the_most_telling_reason() {
    let mount = |path: &str, status| Error::Mount { path: path.to_owned(), status };
    let refusals = vec![
        mount("/", MountStatus::NOENT),
        mount("/a", MountStatus::ACCES),
        mount("/a/b", MountStatus::NOTDIR),
    ];
    assert!(matches!(most_telling(refusals), Error::Mount { status: MountStatus::ACCES, .. }));
    let refusals = vec![mount("/", MountStatus::NOENT), mount("/a", MountStatus::NOTDIR)];
    assert!(matches!(most_telling(refusals), Error::Mount { path, .. } if path == "/a"));
}

#[test]
fn a_name_that_leads_up_is_refused() {
    for (levels, above) in [(1, "/a"), (2, "/")] {
        let circle = Some((b"/a/b".to_vec(), levels));
        let model = Model { circle, ..Model::honest(&["/"]) }.hidden();
        let said = message(&model, "/a/b/a");
        assert!(said.starts_with(&format!("the server gives /a/b the handle of {above},")), "{said}");
    }
}

#[test]
fn an_export_holds_itself_and_what_is_below_but_not_its_namesakes() {
    assert!(holds(b"/srv", b"/srv") && holds(b"/srv/", b"/srv/a") && holds(b"/", b"/any"));
    assert!(!holds(b"/srv", b"/srv2") && !holds(b"/srv/a", b"/srv"));
}

#[test]
fn candidates_are_what_is_above_a_path_down_from_the_root() {
    let paths = |path: &[u8]| prefixes(path).iter().map(|path| shown(path)).collect::<Vec<_>>();
    assert_eq!(paths(b"/a/b"), ["/", "/a", "/a/b"]);
    assert_eq!(paths(b"//a/./b/"), ["/", "/a", "/a/b"]);
    assert_eq!(paths(b"/a/../b"), ["/", "/a"]);
    assert_eq!(paths(b"/"), ["/"]);
}
