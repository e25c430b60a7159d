//! Who may read, and how they are recognised.

use std::{
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use nfs_wireless_server::Vfs;
use tokio::sync::Semaphore;

use crate::secret::{Key, Secret};

/// Tells until when a member may read; `None` once that is over.
type Term = Box<dyn Fn() -> Option<Instant> + Send + Sync>;

/// Archives that one member may have made at once.
const MAX_ARCHIVES: usize = 2;

/// Somebody who may read.
pub(crate) struct Member {
    pub(crate) key: Key,
    pub(crate) files: Arc<dyn Vfs>,
    /// Archives that it may have made at once: others want some, too.
    pub(crate) archives: Arc<Semaphore>,
    term: Term,
    /// It was admitted to other files since.
    is_replaced: AtomicBool,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Members(RwLock<Vec<Arc<Member>>>);

impl Members {
    pub(crate) fn admit(&self, secret: &Secret, files: Arc<dyn Vfs>, term: Term) {
        let archives = Arc::new(Semaphore::new(MAX_ARCHIVES));
        let member = Arc::new(Member {
            key: Key::new(secret),
            files,
            archives,
            term,
            is_replaced: AtomicBool::new(false),
        });
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for before in all.iter().filter(|before| before.key.is_of(secret)) {
            before.is_replaced.store(true, Ordering::Relaxed);
        }
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
        !self.is_replaced.load(Ordering::Relaxed) && (self.term)().is_some_and(|until| until > Instant::now())
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Member").field("files", &self.files).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nfs_wireless_server::{Memory, MemoryConfig};

    use super::*;

    #[test]
    fn who_is_admitted_again_reads_the_new_files_alone() {
        let (members, [one, other]) = (Members::default(), [Secret::draw(), Secret::draw()]);
        let until = Instant::now() + Duration::from_secs(3600);
        let admit = |secret| {
            members.admit(
                secret,
                Arc::new(Memory::new(MemoryConfig::default())),
                Box::new(move || Some(until)),
            )
        };
        let find = |secret: &Secret| members.find(|key| key.is_of(secret)).unwrap();
        admit(&one);
        admit(&other);
        let [before, beside] = [&one, &other].map(find);
        admit(&one);
        assert!(!before.may_read() && beside.may_read() && find(&one).may_read());
        assert!(!Arc::ptr_eq(&before, &find(&one)));
    }
}
