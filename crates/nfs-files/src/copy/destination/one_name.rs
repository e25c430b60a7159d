//! Names that a destination takes for one: file systems without case, those that normalise Unicode, and servers on top of such.
//!
//! Nothing tells beforehand what a file system takes for one. So names of a directory that may be one are copied one after the other,
//! and whoever comes second looks whether the name leads to what the first one made.

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap},
    rc::Rc,
    sync::Arc,
};

use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::{
    copy::{
        Overwrite, Run,
        destination::{Location, Present, directory::TargetDirectory},
        source::{Kind, Node},
    },
    error::{Error, Result},
    escape::escape,
    name::{fnv1a, folded},
};

/// The names of a destination directory that this run has to do with.
#[derive(Debug, Default)]
pub(in crate::copy) struct Names {
    by_key: RefCell<HashMap<u64, Vec<Vec<u8>>>>,
    /// Names that other shards copy into it.
    of_others: RefCell<HashMap<u64, Vec<Vec<u8>>>>,
    in_use: RefCell<HashMap<u64, Arc<Mutex<()>>>>,
    /// The files on this machine that were made in it, by their numbers.
    made: RefCell<HashMap<u64, Vec<u8>>>,
    /// Where several sources go into one directory: what became of them.
    merged: Option<Merged>,
}

/// Who has to do with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    ThisRun,
    AnotherShard,
}

/// The names that several sources have filled.
#[derive(Debug, Default)]
struct Merged {
    /// For each name, the path of its source.
    sources: RefCell<HashMap<Vec<u8>, Vec<u8>>>,
    /// The names in the directories below.
    below: RefCell<HashMap<Vec<u8>, Rc<Names>>>,
}

/// The turn of a name: while it lasts, nothing is done about others that may be the same to a file system.
pub(in crate::copy) struct Turn<'a> {
    names: &'a Names,
    key: u64,
    held: Option<OwnedMutexGuard<()>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        drop(self.held.take());
        let mut in_use = self.names.in_use.borrow_mut();
        if in_use.get(&self.key).is_some_and(|it| Arc::strong_count(it) == 1) {
            in_use.remove(&self.key);
        }
    }
}

impl Names {
    /// Those of a directory that several sources go into.
    pub(in crate::copy) fn merged() -> Self {
        Self { merged: Some(Merged::default()), ..Self::default() }
    }

    /// Whether several sources go into the directory.
    pub(in crate::copy) const fn are_merged(&self) -> bool {
        self.merged.is_some()
    }

    /// Returns those of a directory below this one.
    pub(in crate::copy) fn below(&self, name: Option<&[u8]>) -> Rc<Self> {
        match (&self.merged, name) {
            (Some(merged), Some(name)) => {
                let mut below = merged.below.borrow_mut();
                Rc::clone(below.entry(name.to_vec()).or_insert_with(|| Rc::new(Self::merged())))
            }
            _ => Rc::default(),
        }
    }

    /// Notes what a name is copied from; returns the path of what has become it before.
    fn claim(&self, name: &[u8], source: &Node) -> Option<Vec<u8>> {
        let mut sources = self.merged.as_ref()?.sources.borrow_mut();
        let source = source.to_bytes();
        let first = sources.entry(name.to_vec()).or_insert_with(|| source.clone());
        (*first != source).then(|| first.clone())
    }

    /// Waits for the turn of a name.
    pub(in crate::copy) async fn turn(&self, name: &[u8]) -> Turn<'_> {
        let key = fnv1a(&folded(name));
        let lock = Arc::clone(self.in_use.borrow_mut().entry(key).or_default());
        let held = Some(lock.lock_owned().await);
        Turn { names: self, key, held }
    }

    /// Adds a name; returns those of before that a file system may take for the same.
    fn add(&self, turn: &Turn<'_>, name: &[u8]) -> Vec<Vec<u8>> {
        let mut by_key = self.by_key.borrow_mut();
        let names = by_key.entry(turn.key).or_default();
        let others: Vec<_> = names.iter().filter(|other| *other != name).cloned().collect();
        if others.len() == names.len() {
            names.push(name.to_vec());
        }
        others
    }

    /// Adds a name that another shard copies.
    pub(in crate::copy) fn add_of_others(&self, name: &[u8]) {
        let mut of_others = self.of_others.borrow_mut();
        let names = of_others.entry(fnv1a(&folded(name))).or_default();
        if names.iter().all(|known| known != name) {
            names.push(name.to_vec());
        }
    }

    /// Returns the names of other shards that a file system may take for the one whose turn it is.
    fn of_others(&self, turn: &Turn<'_>) -> Vec<Vec<u8>> {
        self.of_others.borrow().get(&turn.key).cloned().unwrap_or_default()
    }

    /// Notes a file on this machine that has got its name.
    pub(in crate::copy) fn add_made(&self, number: u64, name: &[u8]) {
        self.made.borrow_mut().insert(number, name.to_vec());
    }

    /// Returns the other name under which a file on this machine was made in this run.
    pub(in crate::copy) fn made_as(&self, number: u64, name: &[u8]) -> Option<Vec<u8>> {
        self.made.borrow().get(&number).filter(|made| *made != name).cloned()
    }
}

impl Run<'_> {
    /// Waits for the turn of a name, and refuses it if the destination takes it for another one that this run has to do with.
    pub(in crate::copy) async fn turn<'a>(
        &self,
        target_directory: &'a TargetDirectory,
        name: &[u8],
    ) -> Result<Turn<'a>> {
        let turn = target_directory.given().turn(name).await;
        let mut others = target_directory.given().add(&turn, name);
        let mut of_shards = target_directory.given().of_others(&turn);
        // Of two names in one listing, neither stands for the other.
        if target_directory.location.has_listed(name) {
            others.retain(|other| !target_directory.location.has_listed(other));
            of_shards.clear();
        }
        let others = others.into_iter().map(|other| (other, By::ThisRun));
        let mut others =
            others.chain(of_shards.into_iter().map(|other| (other, By::AnotherShard))).peekable();
        // Hundreds of names may be alike: where nothing has this one, one look is enough.
        if others.peek().is_some()
            && let Some(this) = target_directory.location.look_up(self.context, name).await?
        {
            for (other, by) in others {
                self.refuse_if_same(&target_directory.location, (name, this), &other, by).await?;
            }
        }
        Ok(turn)
    }

    /// Refuses a source for a name that another one has become: of two files one would be left.
    pub(in crate::copy) fn claim(
        &self,
        target_directory: &TargetDirectory,
        name: &[u8],
        node: &Node,
    ) -> Result<()> {
        if self.copy.overwrite != Overwrite::Always {
            return Ok(());
        }
        match target_directory.given().claim(name, node) {
            None => Ok(()),
            Some(first) => {
                let (first, location) = (escape(&first), target_directory.location.show(name));
                let text = format!("{node}: not copied, {location} is the copy of {first} in this run");
                Err(Error::other(text))
            }
        }
    }

    /// Refuses a name if what has it is what has the other one, too.
    pub(in crate::copy) async fn refuse_if_one(
        &self,
        location: &Location,
        name: &[u8],
        other: &[u8],
    ) -> Result<()> {
        match location.look_up(self.context, name).await? {
            Some(this) => self.refuse_if_same(location, (name, this), other, By::ThisRun).await,
            None => Ok(()),
        }
    }

    /// As [`Run::refuse_if_one`], where it was looked up what has the name.
    async fn refuse_if_same(
        &self,
        location: &Location,
        (name, this): (&[u8], Present),
        other: &[u8],
        by: By,
    ) -> Result<()> {
        let that = location.look_up(self.context, other).await?;
        if !that.is_some_and(|that| is_same(&this, &that)) {
            return Ok(());
        }
        // They may be two names of one file, or the file system may number its files as it likes.
        let entries = location.entries(self.context).await?;
        let is_listed = |name: &[u8]| entries.iter().any(|(entry, _)| entry == name);
        // What another shard has made is there under the other name.
        if is_listed(name) && (by == By::AnotherShard || is_listed(other)) {
            return Ok(());
        }
        let whose = match by {
            By::ThisRun => "this run has copied",
            By::AnotherShard => "another shard copies",
        };
        let text = format!(
            "{}: not copied, the destination takes this name for that of {}, which {whose}",
            location.show(name),
            location.show(other)
        );
        Err(Error::other(text))
    }
}

impl Location {
    /// Whether a listing of a server's directory has had this name.
    fn has_listed(&self, name: &[u8]) -> bool {
        let Self::Remote(location) = self else { return false };
        location.is_listed() && matches!(location.known.get(name), Some(Some(_)))
    }

    /// Of names that are in the directory, takes away those that stand for what one of `wanted` leads to: the file system takes them for
    /// one, or the file would not be there.
    pub(in crate::copy) async fn without_wanted(
        &self,
        context: crate::context::Context<'_>,
        wanted: &BTreeSet<Vec<u8>>,
        found: Vec<(Vec<u8>, Present)>,
    ) -> Result<Vec<(Vec<u8>, Present)>> {
        if found.is_empty() {
            return Ok(found);
        }
        let mut by_key: HashMap<u64, Vec<&Vec<u8>>> = HashMap::new();
        wanted.iter().for_each(|name| by_key.entry(fnv1a(&folded(name))).or_default().push(name));
        let mut others = Vec::with_capacity(found.len());
        for (name, present) in found {
            let mut is_wanted = false;
            for alike in by_key.get(&fnv1a(&folded(&name))).into_iter().flatten() {
                let there = self.look_up(context, alike).await?;
                if there.is_some_and(|it| is_same(&it, &present)) {
                    // Of a file that has several names, this may be another one; a directory has one.
                    is_wanted |= present.kind == Kind::Directory
                        || present.attributes.links <= 1
                        || !Box::pin(self.entries(context)).await?.iter().any(|(listed, _)| listed == *alike);
                }
            }
            if !is_wanted {
                others.push((name, present));
            }
        }
        Ok(others)
    }
}

/// Whether two looks were at the same file.
pub(in crate::copy) fn is_same(a: &Present, b: &Present) -> bool {
    a.kind == b.kind && (a.attributes.file == b.attributes.file || a.handle.is_some() && a.handle == b.handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_that_may_be_one_take_turns_and_others_do_not() {
        let names = Names::default();
        let first = names.turn(b"a").await;
        assert!(names.add(&first, b"a").is_empty());
        drop(names.turn(b"b").await);
        {
            let mut second = std::pin::pin!(names.turn(b"A"));
            assert!(futures_util::FutureExt::now_or_never(second.as_mut()).is_none());
            drop(first);
            let second = second.await;
            assert_eq!(names.add(&second, b"A"), [b"a".to_vec()]);
            assert_eq!(names.add(&second, b"A"), [b"a".to_vec()]);
        }
        assert!(names.in_use.borrow().is_empty(), "turns that are over take no memory");
    }
}
