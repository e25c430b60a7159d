//! What the server had under each name at each moment, and who changed it.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crate::{
    blocks::{Label, Random, contents},
    server::Server,
};

/// What a name stood for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) label: Label,
    pub(crate) blocks: u64,
    pub(crate) mode: u32,
    pub(crate) owner: u32,
    /// The time that the clock of the server gave this version.
    time: Duration,
}

/// What a name stood for during a time, or that there was no such name.
#[derive(Clone, Copy, Debug)]
struct Moment {
    since: Instant,
    until: Option<Instant>,
    content: Option<Content>,
}

/// All moments, by name.
pub(crate) struct Model {
    names: BTreeMap<String, Vec<Moment>>,
    random: Random,
    files: u64,
}

/// Directories of the server; the last one is another file system where a situation says so.
pub(crate) const DIRECTORIES: [&str; 3] = ["a", "a/b", "c"];

/// Files of each directory whose bytes never change, but whose attributes do.
pub(crate) const STAYING: usize = 4;

/// Files of each directory that change all the time.
const CHANGING: usize = 6;

/// Most blocks of a file: several READs, several of the kernel's read-aheads.
const MOST_BLOCKS: usize = 900;

impl Model {
    /// Fills a server whose directories exist.
    pub(crate) fn new(server: &Server, seed: u64) -> Self {
        let mut model = Self { names: BTreeMap::new(), random: Random(seed), files: 0 };
        for directory in DIRECTORIES {
            for number in 0..STAYING {
                let name = format!("{directory}/stays-{number}");
                model.create(server, &name);
                server.edit(|tree| tree.age(&name));
            }
            for number in 0..CHANGING {
                model.create(server, &format!("{directory}/{number}"));
            }
        }
        model
    }

    /// Names that may be there.
    pub(crate) fn names(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }

    /// What a name stood for at some moment of a time.
    pub(crate) fn during(&self, name: &str, from: Instant, to: Instant) -> Vec<Option<Content>> {
        let moments = self.names.get(name).into_iter().flatten();
        let some = moments.filter(|it| it.since <= to && it.until.is_none_or(|until| until >= from));
        some.map(|it| it.content).collect()
    }

    /// Whether something was so of a file, under whatever name: an open file may have been renamed.
    pub(crate) fn ever_was(&self, is_so: impl Fn(&Content) -> bool) -> bool {
        self.names.values().flatten().any(|moment| moment.content.as_ref().is_some_and(&is_so))
    }

    /// Every size that a version has had, under any name.
    pub(crate) fn all(&self, label: Option<Label>) -> Vec<Content> {
        let all = self.names.values().flatten().filter_map(|moment| moment.content);
        all.filter(|content| Some(content.label) == label).collect()
    }

    /// Every version of this label and what looks the same: nothing tells versions of one size in one tick apart.
    pub(crate) fn look_alike(&self, one: Label, other: Label) -> bool {
        let find = |label| {
            let all = self.names.values().flatten().filter_map(|moment| moment.content);
            all.into_iter().filter(move |content| content.label == label)
        };
        one == other
            || one.file == other.file
                && find(one).any(|one| find(other).any(|it| (it.blocks, it.time) == (one.blocks, one.time)))
    }

    /// Does something to the server, and notes what a name stands for from then on.
    fn note(&mut self, name: &str, act: impl FnOnce(&mut Self) -> Option<Content>) {
        let since = Instant::now();
        let content = act(self);
        let moments = self.names.entry(name.to_owned()).or_default();
        if let Some(last) = moments.last_mut() {
            last.until = Some(Instant::now());
        }
        moments.push(Moment { since, until: None, content });
    }

    fn now(&self, name: &str) -> Option<Content> {
        self.names.get(name)?.last()?.content
    }

    fn create(&mut self, server: &Server, name: &str) {
        self.note(name, |model| {
            model.files += 1;
            let content = model.content(Label { file: model.files, version: 1 }, None);
            server.edit(|tree| tree.create(name, contents(content.label, 0..content.blocks)));
            Some(timed(server, name, content))
        });
    }

    fn content(&mut self, label: Label, blocks: Option<u64>) -> Content {
        let blocks = blocks.unwrap_or_else(|| self.random.below(MOST_BLOCKS) as u64);
        Content { label, blocks, mode: 0o644, owner: 0, time: Duration::ZERO }
    }

    /// Changes something on the server.
    pub(crate) fn mutate(&mut self, server: &Server) {
        let directory = DIRECTORIES[self.random.below(DIRECTORIES.len())];
        let stays = self.random.below(4) == 0;
        let name = match stays {
            true => format!("{directory}/stays-{}", self.random.below(STAYING)),
            false => format!("{directory}/{}", self.random.below(CHANGING)),
        };
        let Some(now) = self.now(&name) else { return self.create(server, &name) };
        let Label { file, version } = now.label;
        let next = Label { file, version: version + 1 };
        match self.random.below(if stays { 3 } else { 10 }) {
            0 => self.note(&name, |model| {
                let mode = 0o600 + model.random.below(64) as u32;
                server.edit(|tree| tree.change(&name, |node| node.mode = mode));
                Some(Content { mode, ..now })
            }),
            1 => self.note(&name, |model| {
                let owner = model.random.below(1000) as u32;
                server.edit(|tree| tree.change(&name, |node| node.owner = owner));
                Some(Content { owner, ..now })
            }),
            2 => server.edit(|tree| {
                let other = format!("{directory}/link");
                tree.link(&name, &other);
                tree.remove(&other);
            }),
            3 => self.note(&name, |_| {
                server.edit(|tree| tree.remove(&name));
                None
            }),
            4 => self.note(&name, |model| {
                let blocks = now.blocks + 1 + model.random.below(50) as u64;
                server.edit(|tree| tree.append(&name, &contents(now.label, now.blocks..blocks)));
                Some(timed(server, &name, Content { blocks, ..now }))
            }),
            5 => {
                let other = format!("{directory}/{}", self.random.below(CHANGING));
                if other != name {
                    self.note(&other, |model| {
                        model.note(&name, |_| {
                            server.edit(|tree| tree.rename(&name, &other));
                            None
                        });
                        Some(now)
                    });
                }
            }
            6 | 7 => self.note(&name, |model| {
                model.files += 1;
                let content = model.content(Label { file: model.files, version: 1 }, Some(now.blocks));
                server.edit(|tree| tree.replace(&name, contents(content.label, 0..content.blocks)));
                Some(timed(server, &name, content))
            }),
            size => self.note(&name, |model| {
                let blocks = (size == 8).then_some(now.blocks);
                let content = model.content(next, blocks);
                server.edit(|tree| tree.rewrite(&name, |bytes| *bytes = contents(next, 0..content.blocks)));
                let content = Content { mode: now.mode, owner: now.owner, ..content };
                Some(timed(server, &name, content))
            }),
        }
    }
}

/// Returns what a name stands for with the time that the server has given it.
fn timed(server: &Server, name: &str, content: Content) -> Content {
    Content { time: server.edit(|tree| tree.nodes[&tree.find(name)].mtime), ..content }
}
