//! What is held of a share does not outlive it (Michalakis and Kalofonos 2005 §V): it is deleted when the share has ended, and when it cannot be
//! reached for a time.

use std::{
    cell::RefCell,
    future::pending,
    time::{Duration, SystemTime},
};

use nfs_files::Context;
use nfs_mount::store::{Home, Root};
use tokio::time::{Instant, sleep, timeout};

use crate::{args::MountArgs, report::Reporter, units};

/// How often a share is asked whether it is there, at most and at least, and how long its answer may take.
const PAUSE: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1800)];

/// Deletes what earlier mounts hold of shares that were mounted too long ago.
pub(super) fn sweep(arguments: &MountArgs) {
    if let (Some(home), Some(before)) = (home(arguments), SystemTime::now().checked_sub(arguments.forget)) {
        home.forget_shares(before);
    }
}

/// What is held of what is mounted, if that is a share.
#[derive(Debug)]
pub(super) struct Held<'a> {
    arguments: &'a MountArgs,
    /// Once it is to be deleted.
    root: RefCell<Option<Root>>,
}

impl<'a> Held<'a> {
    pub(super) fn by(arguments: &'a MountArgs) -> Self {
        Self { arguments, root: RefCell::default() }
    }

    /// Deletes it, although it is mounted: nothing of it is shown any more.
    pub(super) fn forget(&self) {
        let target = self.arguments.target();
        if !target.is_in_share() {
            return;
        }
        let found = home(self.arguments).and_then(|home| home.find(&target.to_bytes()).ok()?);
        if let Some(root) = found {
            // What cannot be deleted goes with the next mount.
            let _ = root.drop_below(b"");
            self.root.replace(Some(root));
        }
    }

    /// Deletes what the end of the mount has left of what is to be deleted.
    pub(super) fn finish(self) {
        if let Some(root) = self.root.take() {
            let _ = root.drop_below(b"");
        }
    }

    /// Asks the share now and then whether it is there, and returns when it could not be reached for so long that what is held of it is
    /// deleted.
    pub(super) async fn outlives_share(&self, context: Context<'_>, reporter: &Reporter) {
        let (target, longest) = (self.arguments.target(), self.arguments.forget);
        if !target.is_in_share() || self.arguments.offline {
            return pending().await;
        }
        let pause = (longest / 8).clamp(PAUSE[0], PAUSE[1]);
        let mut reached = Instant::now();
        loop {
            sleep(pause).await;
            if let Ok(Some(_)) = timeout(pause, context.servers.ask()).await {
                reached = Instant::now();
            }
            if reached.elapsed() >= longest {
                let time = units::whole_seconds(longest);
                reporter
                    .note(format!("{target} could not be reached for {time}: what is held of it is deleted"));
                return self.forget();
            }
        }
    }
}

fn home(arguments: &MountArgs) -> Option<Home> {
    Home::new(arguments.cache.as_deref()).ok()
}
