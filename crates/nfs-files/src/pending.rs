//! Directories that a walk has found and not yet visited.

use std::{collections::VecDeque, rc::Rc};

use crate::{
    chain,
    context::Context,
    error::{Error, Result, ResultExt, is_missing},
    find::{Child, Found},
};

/// Bytes that an entry takes beside its name.
const ENTRY_BYTES: usize = size_of::<Child>();

/// Bytes that entries take which are kept as they were listed, at most.
const MOST_KNOWN_BYTES: usize = 8 << 20;

/// Bytes that names take of those beyond, at most: of 300,000 directories with names of 60 bytes.
const MOST_NAME_BYTES: usize = 24 << 20;

/// Bytes of the numbers of file system and file, and of the length of a name.
const NUMBER_BYTES: usize = 8;

/// Directories to be visited: those in the one that was visited last come first, in the order of its listing. Beyond a bound only names
/// and numbers are kept, and a directory is looked up when it is its turn.
#[derive(Debug)]
pub struct Pending<C> {
    levels: Vec<Level<C>>,
    known_bytes: usize,
    name_bytes: usize,
    most_known_bytes: usize,
    most_name_bytes: usize,
}

/// The directories in one.
#[derive(Debug)]
struct Level<C> {
    /// What the walk knows of the directory.
    above: C,
    directory: Rc<Found>,
    known: VecDeque<Child>,
    /// Those after them: file system, file, length of the name, and name.
    names: Vec<u8>,
    /// Where the next of these begins.
    next: usize,
}

impl<C> Default for Pending<C> {
    fn default() -> Self {
        Self {
            levels: Vec::new(),
            known_bytes: 0,
            name_bytes: 0,
            most_known_bytes: MOST_KNOWN_BYTES,
            most_name_bytes: MOST_NAME_BYTES,
        }
    }
}

impl<C: Clone> Pending<C> {
    /// Adds what was found in a directory, of which `above` is known.
    ///
    /// # Errors
    /// That there are too many.
    pub fn add(
        &mut self,
        above: &C,
        directory: &Rc<Found>,
        children: impl IntoIterator<Item = Child>,
    ) -> Result<()> {
        if !self.levels.last().is_some_and(|last| Rc::ptr_eq(&last.directory, directory)) {
            let (above, directory) = (above.clone(), Rc::clone(directory));
            let (known, names, next) = Default::default();
            self.levels.push(Level { above, directory, known, names, next });
        }
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        for child in children {
            let bytes = ENTRY_BYTES + child.name.len();
            if level.names.is_empty() && self.known_bytes + bytes <= self.most_known_bytes {
                self.known_bytes += bytes;
                level.known.push_back(child);
                continue;
            }
            self.name_bytes += 3 * NUMBER_BYTES + child.name.len();
            if self.name_bytes > self.most_name_bytes {
                let text = format!(
                    "{}: there are too many directories to be visited; visit those in it one by one",
                    level.directory.remote
                );
                return Err(Error::other(text));
            }
            for number in [child.metadata.fsid, child.metadata.fileid, child.name.len() as u64] {
                level.names.extend_from_slice(&number.to_le_bytes());
            }
            level.names.extend_from_slice(&child.name);
        }
        Ok(())
    }

    /// Forgets what was added of a directory that was visited last: it is listed again.
    pub fn forget(&mut self, directory: &Rc<Found>) {
        if self.levels.last().is_some_and(|last| Rc::ptr_eq(&last.directory, directory))
            && let Some(level) = self.levels.pop()
        {
            self.known_bytes -= level.known.iter().map(|child| ENTRY_BYTES + child.name.len()).sum::<usize>();
            self.name_bytes -= level.names.len();
        }
    }

    /// Returns the next one, with what is known of the directory that it lies in.
    ///
    /// # Errors
    /// Why it cannot be visited; there may be more.
    pub async fn next(&mut self, context: Context<'_>) -> Result<Option<(C, Found)>> {
        while let Some(level) = self.levels.last_mut() {
            if let Some(child) = level.known.pop_front() {
                self.known_bytes -= ENTRY_BYTES + child.name.len();
                return Ok(Some((level.above.clone(), level.directory.child(child))));
            }
            let Some((numbers, name)) = level.next_name() else {
                self.name_bytes -= level.names.len();
                self.levels.pop();
                continue;
            };
            let (above, directory) = (level.above.clone(), Rc::clone(&level.directory));
            let shown = directory.remote.join(&name);
            context.servers.activity().step();
            let entry = match directory.client.lookup(directory.handle, &name).await {
                // It was removed meanwhile.
                Err(error) if is_missing(&error) => continue,
                entry => entry.at(&shown)?,
            };
            let found = directory.child(Child { name, handle: entry.handle, metadata: entry.metadata });
            if !found.is_directory() || (found.metadata.fsid, found.metadata.fileid) != numbers {
                return Err(chain::moved(shown));
            }
            return Ok(Some((above, found)));
        }
        Ok(None)
    }
}

impl<C> Level<C> {
    /// Takes the next name, with the numbers of file system and file.
    fn next_name(&mut self) -> Option<((u64, u64), Vec<u8>)> {
        let mut number = || {
            let (number, _) = self.names.get(self.next..)?.split_first_chunk()?;
            self.next += NUMBER_BYTES;
            Some(u64::from_le_bytes(*number))
        };
        let (numbers, length) = ((number()?, number()?), number()?);
        let name = self.names.get(self.next..self.next + usize::try_from(length).ok()?)?.to_vec();
        self.next += name.len();
        Some((numbers, name))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{
        find::{Children, find},
        served::{Served, Silent, remote, servers},
    };

    /// The paths that a walk visits below a directory, and what was said of those that it could not visit.
    async fn visited(server: &Served, pending: &mut Pending<()>, meanwhile: impl Fn(usize)) -> Vec<String> {
        let servers = servers();
        let context = Context { servers: &servers, events: &Silent };
        let mut seen = Vec::new();
        let mut next = Some(find(context, &remote(server, "/top")).await.unwrap());
        while let Some(found) = next.take() {
            seen.push(String::from_utf8(found.remote.path.clone()).unwrap());
            let directory = Rc::new(found);
            let mut listed = Children::of(&directory).unwrap();
            let mut children = listed.next(context).await.unwrap();
            children.sort_by(|a, b| a.name.cmp(&b.name));
            pending.add(&(), &directory, children).unwrap();
            meanwhile(seen.len());
            next = loop {
                match pending.next(context).await {
                    Ok(found) => break found.map(|(_, found)| found),
                    Err(error) => seen.push(error.to_string()),
                }
            };
        }
        seen
    }

    const TREE: [&str; 6] = ["/top/a", "/top/a/x", "/top/a/y", "/top/b", "/top/c", "/top/c/z"];

    fn plant() -> Served {
        let server = Served::start();
        TREE.iter().for_each(|path| fs::create_dir_all(server.path(path)).unwrap());
        server
    }

    #[tokio::test]
    async fn a_tree_is_visited_in_one_order_however_little_is_kept_of_it() {
        let server = plant();
        for entries in [100, 2, 1, 0] {
            let mut pending = Pending { most_known_bytes: entries * (ENTRY_BYTES + 1), ..Pending::default() };
            let seen = Box::pin(visited(&server, &mut pending, |_| {})).await;
            assert_eq!(seen, [&["/top"], &TREE[..]].concat(), "{entries}");
            assert_eq!((pending.known_bytes, pending.name_bytes, pending.levels.len()), (0, 0, 0));
        }
    }

    #[tokio::test]
    async fn what_was_removed_is_left_out_and_what_was_replaced_is_said() {
        let server = plant();
        let mut pending = Pending { most_known_bytes: 0, ..Pending::default() };
        let change = |visits| {
            if visits == 1 {
                fs::remove_dir(server.path("/top/b")).unwrap();
                fs::rename(server.path("/top/c"), server.path("/top/d")).unwrap();
                fs::create_dir(server.path("/top/c")).unwrap();
            }
        };
        let seen = Box::pin(visited(&server, &mut pending, change)).await;
        assert_eq!(seen[..4], ["/top", "/top/a", "/top/a/x", "/top/a/y"]);
        assert!(seen.len() == 5 && seen[4].contains("/top/c") && seen[4].contains("left alone"), "{seen:?}");
    }

    #[tokio::test]
    async fn what_is_kept_of_many_directories_is_bounded() {
        let server = plant();
        let servers = servers();
        let context = Context { servers: &servers, events: &Silent };
        let directory = Rc::new(find(context, &remote(&server, "/top")).await.unwrap());
        let (handle, metadata) = (directory.handle, directory.metadata);
        let child = |number: usize| Child { name: format!("{number:060}").into_bytes(), handle, metadata };
        let mut pending = Pending::<()>::default();
        pending.add(&(), &directory, (0..200_000).map(child)).unwrap();
        let kept = |pending: &Pending<()>| {
            let level = &pending.levels[0];
            level.known.capacity() * (ENTRY_BYTES + 60) + level.names.capacity()
        };
        assert!(kept(&pending) <= 64 << 20, "{}", kept(&pending));
        let error = pending.add(&(), &directory, (0..1_000_000).map(child)).unwrap_err();
        assert!(error.to_string().contains("too many directories"), "{error}");
        pending.forget(&directory);
        assert_eq!((pending.known_bytes, pending.levels.len()), (0, 0));
    }
}
