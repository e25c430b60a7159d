//! Where a share is mounted if no directory is named: at the same path for all who mount it, so that people can tell each other where
//! something is.

use std::{
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

use nfs_share::Met;
use nfs_wireless_client::Error;

use crate::{
    args::MountArgs,
    error::local,
    exit::{Exit, Failure},
    shares,
};

/// How long the share may take to say what it is called.
const REACH: Duration = Duration::from_secs(5);

/// Bytes of the share's key that are in the name.
const KEY_BYTES: usize = 2;

/// A directory that was made for a mount. It is removed when this is dropped, if nothing is in it or mounted on it.
#[derive(Debug)]
pub(super) struct Uniform(PathBuf);

impl Uniform {
    /// Makes the directory for a mount whose command line names none; `None` if it names one, or needs none.
    pub(super) fn make(arguments: &MountArgs) -> anyhow::Result<Option<Self>> {
        if arguments.directory.is_some() || arguments.listen.is_some() {
            return Ok(None);
        }
        let target = arguments.target();
        if shares::parts(target).is_none() || target.path != b"/" || arguments.offline {
            return Err(Failure::usage(
                "DIR is missing: only a whole share that can be reached has a place of its own, ~/nfsw/NAME",
            ));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let meeting = async { tokio::time::timeout(REACH, shares::meet(target)).await };
        let Ok(met) = runtime.block_on(meeting) else {
            return Err(Error::ConnectTimeout { host: target.server(), elapsed: REACH }.into());
        };
        let home = std::env::home_dir().filter(|home| home.is_absolute());
        let home = home.ok_or_else(|| Failure::with(Exit::LocalIo, "HOME is not set; name a DIR"))?;
        let path = home.join("nfsw").join(name(&met?));
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(|error| local(&path, &error))?;
        Ok(Some(Self(path)))
    }

    /// Returns where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Uniform {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
        if let Some(parent) = self.0.parent() {
            let _ = fs::remove_dir(parent);
        }
    }
}

/// Returns the name of the directory: what the share calls itself, as one word, and the beginning of its key, which nobody else has.
fn name(met: &Met) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let title: String = met.title.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    let title = match title.trim_start_matches('.') {
        "" => "share",
        title => title,
    };
    let key = hex::encode(&met.sharer.0[..KEY_BYTES]);
    format!("{title}-{key}")
}

#[cfg(test)]
mod tests {
    use nfs_share::PublicKey;

    use super::*;

    #[test]
    fn what_strangers_call_a_share_is_one_word() {
        let mut key = PublicKey([7; 32]);
        key.0[0] = 0xa0;
        for (title, expected) in [
            ("photos", "photos-a007"),
            ("the trip's photos", "the_trip_s_photos-a007"),
            ("../../etc", "_.._etc-a007"),
            (".ssh", "ssh-a007"),
            ("..", "share-a007"),
            ("", "share-a007"),
            ("Фото 2026", "Фото_2026-a007"),
            ("a\u{202e}b\0c\nd\u{1b}[2J", "a_b_c_d__2J-a007"),
        ] {
            assert_eq!(name(&Met { title: title.to_owned(), sharer: key }), expected, "{title:?}");
        }
    }
}
