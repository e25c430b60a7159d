//! One of several runs that divide a tree without talking to each other.
//!
//! Every run walks the whole source and makes every directory that is missing, but copies only the files and links of its own shard. The
//! hash that decides about a path is part of the format (docs/formats.md): all versions divide alike.

use std::{fmt, num::NonZeroU32, str::FromStr};

use super::{
    Run, Work,
    destination::directory::{Last, TargetDirectory},
    source::{Kind, Node},
};
use crate::error::Result;

/// A part of the files of a tree, `K/N`: the K-th of N parts that have nothing in common and are all of it together.
///
/// ```
/// use nfs_files::copy::Shard;
///
/// let shards: Vec<Shard> = (1..=3).map(|number| format!("{number}/3").parse().unwrap()).collect();
/// let of_path = shards.iter().filter(|shard| shard.has_path(b"photos/cat.jpg"));
/// assert_eq!(of_path.count(), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 0.
    index: u32,
    count: NonZeroU32,
}

impl Shard {
    /// Returns the part `number`, from 1, of `count` parts; `None` if there is no such part.
    pub fn new(number: u32, count: u32) -> Option<Self> {
        let (index, count) = (number.checked_sub(1)?, NonZeroU32::new(count)?);
        (index < count.get()).then_some(Self { index, count })
    }

    /// Whether a path below the source belongs to this part: the first eight bytes of its BLAKE3 hash are a number, the least significant
    /// byte first, that leaves the remainder K - 1 when it is divided by N.
    pub fn has_path(self, path: &[u8]) -> bool {
        self.has(path)
    }

    /// Whether a file that has several names belongs to this part, with all of them: as [`Shard::has_path`], of the eight bytes of its
    /// number in the source's file system (fileid, inode number), the least significant byte first.
    pub fn has_file(self, number: u64) -> bool {
        self.has(&number.to_le_bytes())
    }

    /// Whether the thing with this number in a list belongs to this part: every N-th one from the K-th on.
    pub fn has_index(self, index: u64) -> bool {
        index % u64::from(self.count.get()) == u64::from(self.index)
    }

    fn has(self, bytes: &[u8]) -> bool {
        let [a, b, c, d, e, f, g, h, ..] = *blake3::hash(bytes).as_bytes();
        self.has_index(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.index + 1, self.count)
    }
}

impl FromStr for Shard {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        const WRONG: &str = "a shard is K/N, with K from 1 to N: 1/4 is the first of four";
        let (number, count) = text.split_once('/').ok_or(WRONG)?;
        let read = |text: &str| text.parse().map_err(|_| WRONG);
        Self::new(read(number)?, read(count)?).ok_or(WRONG)
    }
}

/// How often something is tried again in a directory that another shard has closed to its owner meanwhile.
const MOST_OPENINGS: usize = 16;

impl Run<'_> {
    /// Whether something with a path below the source is copied by this run; all take part in directories.
    pub(super) fn is_of_shard(&self, node: &Node, path: &[u8]) -> bool {
        let Some(shard) = self.copy.shard else { return true };
        match node.kind {
            Kind::Directory => true,
            // A sync keeps hard links, so one run has all names of a file.
            Kind::File if self.sync.is_some() && node.attributes.links > 1 => {
                shard.has_file(node.attributes.file.1)
            }
            Kind::File | Kind::Symlink | Kind::Special(_) => shard.has_path(path),
        }
    }

    /// Whether it is for this run to say what each of the shards would say of a directory.
    pub(super) fn says_directory(&self, path: &[u8]) -> bool {
        self.copy.shard.is_none_or(|shard| shard.has_path(path))
    }

    /// Leaves the work of other shards to them.
    pub(super) fn keep_own(&self, works: &mut Vec<Work>) {
        works.retain(|work| self.is_of_shard(&work.node, work.name.as_deref().unwrap_or_default()));
    }

    /// Returns what a directory of the destination gets at the end.
    pub(super) fn last(&self, is_named: bool) -> Last {
        match (self.copy.shard, self.copy.preserve && !self.copy.dry_run) {
            // Of the shards only one has found out that it did not exist; a sync sets nothing of one that does.
            (Some(_), _) if is_named && self.sync.is_some() => Last::Nothing,
            (_, true) => Last::Source,
            // Others may still write into it.
            (Some(_), false) => Last::Nothing,
            (None, false) => Last::Mode,
        }
    }

    /// Does something in a directory, and does it again where another shard has given that its own mode meanwhile, which does not let its
    /// owner change what is in it.
    pub(super) async fn in_open<T>(
        &self,
        target_directory: &TargetDirectory,
        act: impl AsyncFn() -> Result<T>,
    ) -> Result<T> {
        let mut openings = 0;
        loop {
            // It is large.
            match Box::pin(act()).await {
                Err(error)
                    if self.copy.shard.is_some()
                        && openings < MOST_OPENINGS
                        && error.is_denied()
                        && target_directory.widen_again(self.context).await =>
                {
                    openings += 1;
                }
                done => return done,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_version_divides_alike() {
        let of = |path: &[u8], count| (1..=count).find(|it| Shard::new(*it, count).unwrap().has_path(path));
        let found = [&b"photos/cat.jpg"[..], b"a", b"", b"\xff/x"].map(|path| of(path, 1000));
        // The hash of nothing begins with af1349b9f5f9a1a6 (BLAKE3 specification, test vectors).
        assert_eq!(u64::from_le_bytes([0xaf, 0x13, 0x49, 0xb9, 0xf5, 0xf9, 0xa1, 0xa6]) % 1000, 863);
        assert_eq!(found, [Some(476), Some(144), Some(864), Some(346)]);
        let file = (1..=1000).find(|it| Shard::new(*it, 1000).unwrap().has_file(12));
        assert_eq!(file, Some(316));
    }

    #[test]
    fn a_shard_is_read_and_written_as_k_of_n() {
        for text in ["1/1", "1/4", "4/4", "7/1000000", "4294967295/4294967295"] {
            assert_eq!(text.parse::<Shard>().unwrap().to_string(), text);
        }
        for text in ["", "1", "/", "0/4", "5/4", "1/0", "0/0", "-1/4", "1/4/4", "1/4294967296", "a/b", "1 /4"]
        {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }

    #[test]
    fn parts_have_about_the_same_size() {
        let (count, paths) = (4, 100_000);
        let mut sizes = [0_u32; 4];
        for path in 0..paths {
            let path = format!("d{}/f{path}", path % 100);
            let has = |number: &u32| Shard::new(*number, count).unwrap().has_path(path.as_bytes());
            sizes[(1..=count).find(has).unwrap() as usize - 1] += 1;
        }
        // Six standard deviations of a binomial distribution: 6 * sqrt(n p (1 - p)).
        assert!(sizes.iter().all(|size| size.abs_diff(paths / 4) < 822), "{sizes:?}");
    }

    proptest! {
        #[test]
        fn every_path_file_and_index_is_in_exactly_one_part(
            path in prop::collection::vec(any::<u8>(), 0..300), number: u64, count in 1_u32..300
        ) {
            let parts = || (1..=count).map(|number| Shard::new(number, count).unwrap());
            prop_assert_eq!(parts().filter(|shard| shard.has_path(&path)).count(), 1);
            prop_assert_eq!(parts().filter(|shard| shard.has_file(number)).count(), 1);
            prop_assert_eq!(parts().filter(|shard| shard.has_index(number)).count(), 1);
            let all = Shard::new(1, 1).unwrap();
            prop_assert!(all.has_path(&path) && all.has_file(number) && all.has_index(number));
        }
    }
}
