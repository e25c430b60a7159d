//! What tells the temporary names of this run, on servers, from those of every other run.
//!
//! Runs of a user on this machine have numbers: each holds the lowest that no other has, by a lock in the state directory. The tag is
//! made of the number and of the user's key. So what has a temporary name with it is of an earlier run, which has ended, and what other
//! users and machines write is never touched.

use std::{
    cell::{OnceCell, RefCell},
    fs::File,
    io,
};

use crate::{
    local::{Directory, Key, StateHome},
    name::{Tag, tag_in},
};

/// Runs at once that have numbers; what more of them leave behind is never resumed.
const MOST_RUNS: u8 = 64;

/// The tags that a run may use.
#[derive(Debug)]
pub struct Tags {
    state: StateHome,
    secret: OnceCell<Secret>,
    own: OnceCell<Own>,
    /// What is locked for as long as this lives.
    locked: RefCell<Vec<(u8, File)>>,
}

/// What tags are made of: the user's key and what tells machines apart, for a home may be that of another machine, copied or shared.
#[derive(Debug)]
struct Secret {
    key: Key,
    machine: Vec<u8>,
}

/// What a run was given.
#[derive(Clone, Copy, Debug)]
struct Own {
    tag: Tag,
    /// `None` where nothing can be locked: then no other run will have this tag.
    number: Option<u8>,
}

impl Tags {
    /// Finds this user's and this machine's.
    pub fn new(state: &StateHome) -> Self {
        Self {
            state: state.clone(),
            secret: OnceCell::new(),
            own: OnceCell::new(),
            locked: RefCell::default(),
        }
    }

    /// Returns the tag of this run.
    pub fn own(&self) -> Tag {
        self.own_or_fresh().tag
    }

    /// Returns the number of this run, by which a later one finds what this one leaves; `None` where it has none.
    pub(super) fn number(&self) -> Option<u8> {
        self.own_or_fresh().number
    }

    /// Returns a temporary name with the tag of this run, by which a later one finds it; `None` where none does.
    pub(super) fn temporary(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.number().map(|_| self.own().temporary(name))
    }

    /// Returns the tag of runs that have a number. Another run may have it now: that a file is of a run that has ended must be known by
    /// something else.
    pub(super) fn of_number(&self, number: u8) -> Option<Tag> {
        Some(self.secret().ok()?.tag(number))
    }

    /// Whether a temporary name is that of an earlier run, which had another number that no run has now.
    pub(super) fn is_of_earlier(&self, name: &[u8]) -> bool {
        self.other_number(name).is_some_and(|number| self.holds(number))
    }

    /// Whether a temporary name may be that of a run which has not ended: another one has its number now.
    pub(super) fn is_in_use(&self, name: &[u8]) -> bool {
        self.other_number(name).is_some_and(|number| !self.holds(number))
    }

    /// Returns the number of the run that has made a temporary name, if that is not the one of this run.
    fn other_number(&self, name: &[u8]) -> Option<u8> {
        let (found, own) = (tag_in(name)?, self.number()?);
        let secret = self.secret().ok()?;
        (0..MOST_RUNS).find(|&number| number != own && secret.tag(number) == found)
    }

    /// Whether a temporary name has the tag of this run: before that has made any, an earlier one that had its number has left it.
    pub(super) fn is_own(&self, name: &[u8]) -> bool {
        self.number().is_some() && tag_in(name) == Some(self.own())
    }

    /// Whether no other run has a number, nor gets it before this one has ended.
    fn holds(&self, number: u8) -> bool {
        if self.locked.borrow().iter().any(|(locked, _)| *locked == number) {
            return true;
        }
        let locked = self.state.open().and_then(|directory| lock(&directory, number));
        let is_locked = locked.is_ok();
        self.locked.borrow_mut().extend(locked.map(|file| (number, file)));
        is_locked
    }

    fn secret(&self) -> io::Result<&Secret> {
        if let Some(secret) = self.secret.get() {
            return Ok(secret);
        }
        let machine = std::fs::read("/etc/machine-id").unwrap_or_default();
        let secret = Secret { key: self.state.key()?, machine };
        Ok(self.secret.get_or_init(|| secret))
    }

    fn own_or_fresh(&self) -> Own {
        let fresh = |_| Own { tag: Tag::fresh(), number: None };
        *self.own.get_or_init(|| self.take().unwrap_or_else(fresh))
    }

    fn take(&self) -> io::Result<Own> {
        let (directory, secret) = (self.state.open()?, self.secret()?);
        for number in 0..MOST_RUNS {
            match lock(&directory, number) {
                Ok(file) => {
                    self.locked.borrow_mut().push((number, file));
                    return Ok(Own { tag: secret.tag(number), number: Some(number) });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }
}

fn lock(directory: &Directory, number: u8) -> io::Result<File> {
    directory.lock(format!("run-{number}").as_bytes(), 0o600)
}

impl Secret {
    fn tag(&self, number: u8) -> Tag {
        let hash = blake3::keyed_hash(&self.key.0, &[b"tag of a run", &[number][..], &self.machine].concat());
        let [a, b, c, d, ..] = *hash.as_bytes();
        Tag(u32::from_be_bytes([a, b, c, d]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_at_once_have_different_tags_and_later_ones_the_same_again() {
        let location = tempfile::tempdir().unwrap();
        let run = || Tags::new(&StateHome::at(location.path()));
        let (one, other) = (run(), run());
        let tags = [one.own(), other.own()];
        assert_ne!(tags[0], tags[1]);
        assert_eq!([one.number(), other.number()], [Some(0), Some(1)]);
        let left = tags.map(|tag| tag.temporary(b"file"));
        assert_eq!(one.of_number(1), Some(tags[1]));
        let are_of_earlier = || left.each_ref().map(|left| one.is_of_earlier(left));
        assert_eq!(are_of_earlier(), [false, false], "the other is still there");
        assert_eq!(left.each_ref().map(|left| one.is_own(left)), [true, false]);
        assert_eq!(left.each_ref().map(|left| one.is_in_use(left)), [false, true]);
        drop(other);
        assert_eq!([are_of_earlier(), are_of_earlier()], [[false, true]; 2]);
        assert!(!one.is_in_use(&left[1]), "it has ended");
        assert!(
            !one.is_of_earlier(&Tag::fresh().temporary(b"file")) && !one.is_of_earlier(b".file.nfsw-part")
        );
        assert_eq!(run().number(), Some(2), "what was found again is nobody else's");
        drop(one);
        assert_eq!(run().own(), tags[0]);
    }

    #[test]
    fn another_user_and_a_user_without_a_state_directory_have_other_tags() {
        let locations = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [one, other] = locations.each_ref().map(|it| Tags::new(&StateHome::at(it.path())).own());
        assert_ne!(one, other);
        let nowhere = || Tags::new(&StateHome::at(std::path::Path::new("/dev/null/none")));
        assert_eq!(nowhere().number(), None);
        assert_ne!(nowhere().own(), nowhere().own());
    }
}
