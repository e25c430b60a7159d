//! Who may read, and how they are recognised.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
    time::Instant,
};

use nfs_wireless_server::Vfs;

use crate::secret::{Key, Secret};

/// Tells until when a member may read; `None` once that is over.
type Term = Box<dyn Fn() -> Option<Instant> + Send + Sync>;

/// Somebody who may read.
pub(crate) struct Member {
    pub(crate) key: Key,
    pub(crate) files: Arc<dyn Vfs>,
    term: Term,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Members(RwLock<Vec<Arc<Member>>>);

impl Members {
    pub(crate) fn admit(&self, secret: &Secret, files: Arc<dyn Vfs>, term: Term) {
        let member = Arc::new(Member { key: Key::new(secret), files, term });
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // Those whose time is over make room.
        all.retain(|member| member.may_read());
        all.push(member);
    }

    /// Finds who may read and is recognised; the others are asked, too, so that time does not tell which one it is.
    pub(crate) fn find(&self, is_recognised: impl Fn(&Key) -> bool) -> Option<Arc<Member>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = all
            .iter()
            .fold(None, |found, member| if is_recognised(&member.key) { Some(member) } else { found });
        found.filter(|member| member.may_read()).cloned()
    }
}

impl Member {
    /// Whether the member's time is not over.
    pub(crate) fn may_read(&self) -> bool {
        (self.term)().is_some_and(|until| until > Instant::now())
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Member").field("files", &self.files).finish_non_exhaustive()
    }
}
