//! Who may read, and how they are recognised.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use nfs_wireless_server::Vfs;
use tokio::sync::Semaphore;

use crate::secret::{Key, Secret};

/// Tells until when a member may read; `None` once that is over.
type Term = Box<dyn Fn() -> Option<Instant> + Send + Sync>;

/// Archives that one member may have made at once, and long pages.
const MAX_ARCHIVES: usize = 2;
const MAX_PAGES: usize = 4;

/// Somebody who may read.
pub(crate) struct Member {
    pub(crate) key: Key,
    pub(crate) files: Arc<dyn Vfs>,
    /// Archives that it may have made at once: others want some, too.
    pub(crate) archives: Arc<Semaphore>,
    pub(crate) pages: Arc<Semaphore>,
    term: Term,
    used: Mutex<Used>,
    /// It was admitted to other files since.
    is_replaced: AtomicBool,
}

/// What a member has had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// When something was sent last.
    pub at: Option<Instant>,
    /// Bytes of pages, files and archives that were sent.
    pub bytes: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Members(RwLock<Vec<Arc<Member>>>);

impl Members {
    pub(crate) fn admit(&self, secret: &Secret, files: Arc<dyn Vfs>, term: Term) {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        let member = Arc::new(Member {
            key: Key::new(secret),
            files,
            archives: semaphore(MAX_ARCHIVES),
            pages: semaphore(MAX_PAGES),
            term,
            used: Mutex::default(),
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

    /// Returns what the member with a secret has had, whatever files it was admitted to.
    pub(crate) fn used(&self, secret: &Secret) -> Used {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let own = all.iter().filter(|member| member.key.is_of(secret)).map(|member| *lock(&member.used));
        own.fold(Used::default(), |sum, used| Used { at: sum.at.max(used.at), bytes: sum.bytes + used.bytes })
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
    /// So many bytes were sent to it.
    pub(crate) fn note(&self, bytes: usize) {
        let mut used = lock(&self.used);
        *used = Used { at: Some(Instant::now()), bytes: used.bytes + bytes as u64 };
    }

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

/// Locks something, also if somebody has panicked with it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
