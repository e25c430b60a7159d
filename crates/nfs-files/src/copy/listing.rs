//! What is in a source directory, and which of it is copied.

use std::{collections::HashSet, rc::Rc};

use super::{
    Links, Run, Work,
    destination::directory::TargetDirectory,
    filter::{self, GITIGNORE, MAX_GITIGNORE_BYTES},
    source::{Kind, Node, Rest, Shown},
};
use crate::{
    error::{Error, Result},
    event::{Skip, Warning, says_incomplete},
    name::{MARKER, is_ours, untagged, used_by, user_of},
    url::components,
};

/// A source directory, or a part of it, that was listed.
struct Listed<'a> {
    directory: &'a Node,
    target_directory: &'a Rc<TargetDirectory>,
    /// Names that copies of files in it need.
    reserved: HashSet<Vec<u8>>,
    /// Whether there are others parts, which may have the file that a name belongs to.
    is_part: bool,
    /// Whether what the source does not have is deleted.
    deletes: bool,
}

impl Run<'_> {
    /// Lists what is to be copied into a directory. What does not fit into memory comes last, as one piece of work.
    pub(super) async fn children(
        &self,
        directory: Node,
        target_directory: &Rc<TargetDirectory>,
        mut rest: Option<Rest>,
    ) -> Result<Vec<Work>> {
        let was_begun = rest.is_some();
        let mut shown = Shown::default();
        let filter = &self.copy.filter;
        let children = directory.children(self.context, &mut rest, &mut shown).await?;
        if let Some(now) = shown.now.filter(|_| !was_begun) {
            target_directory
                .follow_source(self.context, self.copy.preserve, &directory.attributes, now)
                .await;
        }
        filter.note_source();
        let deletes = self.sync.as_ref().filter(|sync| sync.options.delete && !target_directory.is_again());
        if let Some(sync) = deletes {
            sync.has_vanished.set(sync.has_vanished.get() || shown.has_vanished);
            children.iter().for_each(|(name, _)| target_directory.add_name(name));
            if !was_begun {
                sync.listed.borrow_mut().push(directory.clone());
            }
        }
        if !was_begun {
            self.read_ignores(&directory, target_directory, &children, rest.is_some()).await?;
        }
        // The file that a name belongs to may be in another part.
        let is_part = was_begun || rest.is_some();
        let mut reserved = HashSet::new();
        if !is_part && children.iter().any(|(name, _)| is_ours(name)) {
            reserved.extend(children.iter().flat_map(|(name, _)| used_by(name)));
        }
        let listed =
            Listed { directory: &directory, target_directory, reserved, is_part, deletes: deletes.is_some() };
        let mut works = Vec::with_capacity(children.len());
        for (name, node) in children {
            let Some(node) = self.taken(node, &name, &listed).await? else { continue };
            if deletes.is_some() && !matches!(node.kind, Kind::Special(_)) {
                target_directory.add_taken(&name);
            }
            let target_directory = Rc::clone(target_directory);
            works.push(Work { node, target_directory, name: Some(name), is_named: false, rest: None });
        }
        if rest.is_some() {
            let target_directory = Rc::clone(target_directory);
            works.push(Work { node: directory, target_directory, name: None, is_named: false, rest });
        } else if let Some(sync) = deletes {
            self.find_surplus(sync, target_directory).await?;
        }
        Ok(works)
    }

    /// Decides whether something in a source directory is copied; returns what, which is what a link stands for where that is followed.
    async fn taken(&self, mut node: Node, name: &[u8], listed: &Listed<'_>) -> Result<Option<Node>> {
        let Listed { directory, target_directory, .. } = *listed;
        if name == MARKER {
            if listed.deletes {
                self.context.events.fail(Error::other(says_incomplete(&node.name())))?;
            } else {
                self.warn(Warning::Marker(&node.name()));
            }
            return Ok(None);
        }
        let filter = &self.copy.filter;
        let path = filter::below(target_directory.relative(), name);
        // What is listed may be behind a link, as it may be in any path; outside SRC only where all links are followed.
        if node.kind == Kind::Symlink
            && filter.lists_below(&path)
            && filter.takes(&path, true, target_directory.ignores().as_deref())
        {
            node = match self.followed_to_listed(node, target_directory, &path).await {
                Ok(node) => node,
                Err(error) => {
                    self.context.events.fail(error)?;
                    filter.leave(&path);
                    return Ok(None);
                }
            };
        }
        if !filter.takes(&path, node.kind == Kind::Directory, target_directory.ignores().as_deref()) {
            return Ok(None);
        }
        let is_followed = node.kind == Kind::Symlink && self.copy.links == Links::All;
        if !is_followed && !self.is_of_shard(&node, &path) {
            target_directory.given().add_of_others(name);
            return Ok(None);
        }
        if self.is_reserved(&node, name, listed).await? {
            return Ok(None);
        }
        if is_followed {
            node = match self.followed(node, target_directory).await {
                Ok(node) => node,
                Err(error) => return self.context.events.fail(error).map(|()| None),
            };
        }
        if filter.is_of_one_file_system()
            && node.kind == Kind::Directory
            && !node.is_on_file_system_of(directory)
        {
            filter.leave(&path);
            return Ok(None);
        }
        if !self.is_of_shard(&node, &path) {
            target_directory.given().add_of_others(name);
            return Ok(None);
        }
        Ok(Some(node))
    }

    /// Whether a name is needed for the copy of a file beside it, which is said.
    async fn is_reserved(&self, node: &Node, name: &[u8], listed: &Listed<'_>) -> Result<bool> {
        let is_reserved = match listed.is_part && is_ours(name) {
            false => listed.reserved.contains(untagged(name)),
            // The file beside it may be in another part.
            true => match user_of(name) {
                Some(user) => listed.directory.child(user).await?.is_some(),
                None => true,
            },
        };
        if !is_reserved {
            return Ok(false);
        }
        if node.kind != Kind::File {
            let text = format!("{node}: skipped: the copy of a file beside it needs this name");
            self.context.events.fail(Error::other(text))?;
        } else {
            self.warn(Warning::Left(&node.name()));
            self.skip(node, &listed.target_directory.location.name(name), Skip::Partial)?;
        }
        Ok(true)
    }

    /// Reads which files are left out in a directory.
    async fn read_ignores(
        &self,
        directory: &Node,
        target_directory: &TargetDirectory,
        children: &[(Vec<u8>, Node)],
        is_part: bool,
    ) -> Result<()> {
        let filter = &self.copy.filter;
        if target_directory.relative().is_empty() {
            target_directory.set_ignores(filter.ignores());
        }
        if !filter.reads_gitignore() {
            return Ok(());
        }
        // In a directory that is listed in parts it may be in a later one.
        let looked_up;
        let listed = children.iter().find(|(name, _)| name == GITIGNORE).map(|(_, node)| node);
        let file = match listed {
            Some(file) => Some(file),
            None if !is_part => None,
            None => {
                looked_up = directory.child(GITIGNORE).await?;
                looked_up.as_ref()
            }
        };
        let Some(file) = file.filter(|file| file.kind == Kind::File) else { return Ok(()) };
        let text = file.read_start(MAX_GITIGNORE_BYTES + 1).await?;
        let ignores = filter
            .read_gitignore(target_directory.relative().to_vec(), &text, target_directory.ignores())
            .map_err(|error| Error::other(format!("{file}: {error}")))?;
        target_directory.set_ignores(Some(Rc::new(ignores)));
        Ok(())
    }

    /// Sets aside what cannot be copied before something is deleted, and further names of a file; hands back all else.
    pub(super) async fn set_aside(&self, work: Work) -> Result<Option<Work>> {
        if work.is_named && work.node.kind != Kind::Directory {
            // It holds nothing that a list of files could name.
            self.copy.filter.note_source();
        }
        let Some(sync) = &self.sync else { return Ok(Some(work)) };
        if let Some(present) = self.blocker(&work).await? {
            if work.node.kind == Kind::File {
                // Nothing is deleted for a file that cannot be read.
                work.node.read_start(1).await?;
            }
            sync.add_surplus(&work, present);
            sync.blocked.borrow_mut().push(work);
            return Ok(None);
        }
        let Work { node, target_directory, name: Some(name), is_named, rest } = work else {
            return Ok(Some(work));
        };
        let node = sync.hard_links.defer(node, &target_directory, &name);
        Ok(node.map(|node| Work { node, target_directory, name: Some(name), is_named, rest }))
    }

    /// Returns what a link stands for that has this path below SRC, and leads to what is listed.
    async fn followed_to_listed(
        &self,
        node: Node,
        target_directory: &TargetDirectory,
        path: &[u8],
    ) -> Result<Node> {
        if self.copy.links == Links::All {
            return self.followed(node, target_directory).await;
        }
        let (shown, levels) = (node.to_string(), components(path).len());
        match node.followed_within(levels, self.context).await? {
            Some(node) => without_circle(node, target_directory),
            None => {
                let text = format!("{shown}: not followed, it leads out of SRC (-L follows it)");
                Err(Error::other(text))
            }
        }
    }

    /// Returns what a link in a directory stands for.
    async fn followed(&self, node: Node, target_directory: &TargetDirectory) -> Result<Node> {
        without_circle(node.followed(self.context).await?, target_directory)
    }
}

/// Refuses a directory that a link leads to if the link is in it.
fn without_circle(node: Node, target_directory: &TargetDirectory) -> Result<Node> {
    if node.kind == Kind::Directory && target_directory.is_copied_from(node.attributes.file) {
        let text = format!("{node}: skipped: it leads to a directory above itself");
        return Err(Error::other(text));
    }
    Ok(node)
}
