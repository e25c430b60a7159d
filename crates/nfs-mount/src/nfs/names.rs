//! Names: MNT, LOOKUP and READLINK.

use nfs_cache::{Answer, Failure};
use nfs_wire::nfs3_types::nfs3::nfs_fh3;
use nfs_wireless_client::{FileType, NfsStatus};
use nfs_wireless_server::vfs::Name;

use super::{
    Answers, Export, Held,
    answered::{Body, Known},
    status,
};

/// How often a name is looked up again because the file has changed meanwhile.
const LOOKUPS: usize = 3;

impl Export {
    /// Finds the directory that MNT names, from what is served on.
    pub(super) async fn mount(&self, path: &[u8]) -> Answers {
        let mut place = match self.held(self.root).await {
            Ok(root) => root,
            Err(status) => return (Err(status), Body::Nothing),
        };
        let root = self.known(&place);
        for component in path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b".")) {
            if let Err(status) = Name::new(component) {
                return (Ok(Some(root)), Body::Failed(status));
            }
            place = match self.find(&place, component).await {
                Ok(place) => place,
                Err(status) => return (Ok(Some(root)), Body::Failed(status)),
            };
        }
        let place = self.known(&place);
        (Ok(Some(root)), Body::Found(place))
    }

    pub(super) async fn lookup(&self, directory: &nfs_fh3, name: &[u8]) -> Answers {
        let directory = match self.object(directory).await {
            Ok(directory) => directory,
            Err(status) => return (Err(status), Body::Nothing),
        };
        let body = if name == b".." {
            match self.parent(&directory).await {
                // Nothing lies above what is mounted.
                Some(_) | None if directory.server == self.root => Body::Nothing,
                Some(parent) => Body::Found(parent),
                None => Body::Failed(NfsStatus::STALE),
            }
        } else if Name::new(name).is_err() {
            // The server crate knows what to say of such names.
            Body::Nothing
        } else {
            match self.find(&directory, name).await {
                Ok(found) => Body::Found(self.known(&found)),
                Err(status) => Body::Failed(status),
            }
        };
        (Ok(Some(self.known(&directory))), body)
    }

    async fn find(&self, directory: &Held<'_>, name: &[u8]) -> Result<Held<'_>, NfsStatus> {
        let parent = directory.node;
        let mut failed = NfsStatus::STALE;
        for _ in 0..LOOKUPS {
            let (found_by, found) = self.ask(|cache, now| cache.lookup(now, parent, name)).await;
            let (node, metadata) = match found {
                Ok(Answer::Entry { node, metadata }) => (node, metadata),
                Ok(_) => return Err(NfsStatus::SERVERFAULT),
                Err(Failure::WrongKind) => return Err(NfsStatus::NOTDIR),
                Err(failure) => return Err(status(&failure)),
            };
            let server = self.view.lock().cache.handle(node);
            let Some(server) = server else { continue };
            let held = Held { view: &self.view, node, server, metadata, found_by };
            // A client that has looked a name up need not ask for the file's attributes to open it.
            match self.confirmed(held).await {
                Ok(held) => {
                    if metadata.file_type == FileType::Directory {
                        self.state.borrow_mut().learn_parent(held.server, directory.server);
                    }
                    return Ok(held);
                }
                Err(status) => failed = status,
            }
            if failed != NfsStatus::STALE {
                break;
            }
        }
        Err(failed)
    }

    /// The directory above, as far as it is known.
    pub(super) async fn parent(&self, directory: &Held<'_>) -> Option<Known> {
        let server = self.state.borrow().parent(&directory.server)?;
        self.held(server).await.ok().map(|held| self.known(&held))
    }

    pub(super) async fn read_link(&self, handle: &nfs_fh3) -> Answers {
        let held = match self.object(handle).await {
            Ok(held) => held,
            Err(status) => return (Err(status), Body::Nothing),
        };
        let node = held.node;
        let body = match self.ask(|cache, now| cache.read_link(now, node)).await.1 {
            Ok(Answer::Target(target)) => Body::Target(target),
            Ok(_) => Body::Failed(NfsStatus::SERVERFAULT),
            Err(failure) => Body::Failed(status(&failure)),
        };
        (Ok(Some(self.known(&held))), body)
    }
}
