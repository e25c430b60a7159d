//! The people of a share: who may read what until when, as it was typed and as it is changed while the share runs.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    path::{Component, Path},
    time::{Duration, Instant, SystemTime},
};

use jiff::{Timestamp, tz::TimeZone};
use nfs_share::{Event, Member, MemberId, Share};
use nfs_web::Used;
use nfs_wireless_server::{Access, Directory, DirectoryConfig};
use rustix::fs::{Mode, OFlags};

use super::{live::Reader, web::Web};
use crate::{
    error::{local, show},
    exit::{Exit, Failure},
    text::escape,
    units,
};

/// A person that is shared with; the only one may have no name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Person {
    pub(super) name: String,
    /// What the person may read, below the directory.
    pub(super) below: String,
}

/// How somebody came to be on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// By `--to`: who is not named there when the share is started again is not let in.
    Typed,
    /// By `--allow`, while the share ran.
    Allowed,
}

/// A person, and what is kept of it.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) person: Person,
    pub(super) origin: Origin,
    /// `None`: the person may not read any more.
    pub(super) member: Option<Member>,
}

/// A share and its people.
#[derive(Debug)]
pub(super) struct People<'a> {
    pub(super) share: Share,
    web: Option<Web>,
    directory: &'a Path,
    /// Where the share can be reached.
    addresses: Vec<SocketAddr>,
    /// It is announced: those on the same network need no address.
    pub(super) is_found: bool,
    listed: Vec<Listed>,
}

/// A person, and the member that it is or was.
#[derive(Debug)]
struct Listed {
    person: Person,
    origin: Origin,
    id: Option<MemberId>,
}

impl Person {
    /// Reads `NAME` or `NAME=SUBDIR`.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let (name, below) = text.split_once('=').unwrap_or((text, ""));
        let is_below = Path::new(below).components().all(|part| matches!(part, Component::Normal(_)));
        if name.is_empty() || !is_below {
            let text = format!("{text}: expected NAME or NAME=SUBDIR, with a path below DIR");
            return Err(Failure::with(Exit::Usage, text));
        }
        Ok(Self { name: name.to_owned(), below: below.to_owned() })
    }

    /// Reads all `--to`; without one there is one person without a name.
    pub(super) fn all(to: &[String]) -> anyhow::Result<Vec<Self>> {
        if to.is_empty() {
            return Ok(vec![Self { name: String::new(), below: String::new() }]);
        }
        let mut persons: Vec<Self> = Vec::new();
        for text in to {
            let person = Self::parse(text)?;
            if persons.iter().any(|it| it.name == person.name) {
                return Err(Failure::with(Exit::Usage, format!("--to {} is there twice", person.name)));
            }
            persons.push(person);
        }
        Ok(persons)
    }

    /// Opens what the person may read.
    pub(super) fn files(&self, directory: &Path) -> anyhow::Result<Directory> {
        let path = directory.join(&self.below);
        // A link in the directory may lead out of it.
        let real = path.canonicalize().map_err(|error| local(&path, &error))?;
        if !real.starts_with(directory) {
            let text = format!("{} leads out of {}", show(&path), show(directory));
            return Err(Failure::with(Exit::Usage, text));
        }
        let mut config = DirectoryConfig::default();
        config.access = Access::ReadOnly;
        let below = real.strip_prefix(directory).expect("it starts with that");
        let opened = open_below(directory, below).and_then(|opened| Directory::of(opened, config));
        Ok(opened.map_err(|error| local(&real, &error))?)
    }

    fn shown(&self) -> String {
        if self.name.is_empty() {
            "the receiver".to_owned()
        } else {
            escape(self.name.as_bytes()).into_owned()
        }
    }
}

/// Opens a directory below another one, through no link: one that somebody has put there since leads nowhere.
fn open_below(directory: &Path, below: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut opened = rustix::fs::open(directory, flags, Mode::empty())?;
    for name in below.components() {
        opened = rustix::fs::openat(&opened, name.as_os_str(), flags | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Ok(opened)
}

impl<'a> People<'a> {
    /// Lets people in: each gets a code, or what an earlier run has given the person of this name. Who was typed then and is not typed
    /// now is not let in any more, and who was stopped stays so.
    pub(super) fn admit(
        share: Share,
        web: Option<Web>,
        (directory, addresses): (&'a Path, Vec<SocketAddr>),
        typed: &[Person],
        before: Vec<Known>,
        until: Instant,
    ) -> anyhow::Result<Self> {
        let mut people = Self { share, web, directory, addresses, is_found: false, listed: Vec::new() };
        let (mut ids, mut allowed) = (BTreeMap::new(), Vec::new());
        // First, so that their codes are not given to others.
        for Known { person, origin, member } in before {
            let now = typed.iter().find(|it| it.name == person.name);
            let person = match (now, origin) {
                (Some(typed), _) => typed.clone(),
                (None, Origin::Allowed) => person,
                (None, Origin::Typed) => continue,
            };
            let id = member.as_ref().map(|member| member.id);
            if let Some(mut member) = member {
                if now.is_some() {
                    member.until = member.until.min(until);
                }
                people.share.restore(member, person.files(directory)?);
            }
            ids.insert(person.name.clone(), id);
            if now.is_none() {
                allowed.push(Listed { person, origin, id });
            }
        }
        for person in typed {
            let id = match ids.get(&person.name) {
                Some(&id) => id,
                None => Some(people.share.invite(until, person.files(directory)?)),
            };
            people.listed.push(Listed { person: person.clone(), origin: Origin::Typed, id });
        }
        people.listed.extend(allowed);
        people.listed.iter().try_for_each(|listed| people.show_to_browser(listed))?;
        Ok(people)
    }

    /// Returns what is shared.
    pub(super) const fn directory(&self) -> &Path {
        self.directory
    }

    /// With `--web`: shows the same files to the same person's browser.
    fn show_to_browser(&self, listed: &Listed) -> anyhow::Result<()> {
        if let (Some(web), Some(id)) = (&self.web, listed.id) {
            web.admit(id, listed.person.files(self.directory)?, self.share.term(id));
        }
        Ok(())
    }

    /// Takes the time that the machine has slept off the time of all.
    pub(super) fn shorten(&self, by: Duration) {
        // Two clocks are never read at once.
        if by < Duration::from_millis(100) {
            return;
        }
        for member in self.share.members() {
            self.share.extend(member.id, member.until.checked_sub(by).unwrap_or_else(Instant::now));
        }
    }

    /// Says goodbye to all.
    pub(super) async fn end(self) {
        if let Some(web) = self.web {
            web.end().await;
        }
        self.share.end().await;
    }

    /// Returns what is to be kept.
    pub(super) fn known(&self) -> Vec<Known> {
        let known =
            |it: &Listed| Known { person: it.person.clone(), origin: it.origin, member: self.member(it) };
        self.listed.iter().map(known).collect()
    }

    fn member(&self, listed: &Listed) -> Option<Member> {
        self.share.member(listed.id?)
    }

    /// Returns the numbers of the codes that nobody has used yet; they are no secret.
    pub(super) fn codes(&self) -> Vec<u16> {
        let mut codes: Vec<u16> = self
            .share
            .members()
            .iter()
            .filter(|it| it.key.is_none())
            .filter_map(|it| Some(it.code.as_ref()?.number()))
            .collect();
        codes.sort_unstable();
        codes
    }

    /// Returns until when the last of them may read.
    pub(super) fn until(&self) -> Option<Instant> {
        self.share.members().iter().map(|member| member.until).max()
    }

    /// Returns when one of them was heard last.
    pub(super) fn heard(&self) -> Option<Instant> {
        self.share.members().iter().filter_map(|member| self.used(member.id)).max()
    }

    /// Returns when a member was heard last, or its browser took something.
    fn used(&self, id: MemberId) -> Option<Instant> {
        let heard = self.share.heard(id).map(|(at, _)| at);
        heard.max(self.by_browser(id).at)
    }

    /// Returns what a member's browser has had.
    fn by_browser(&self, id: MemberId) -> Used {
        self.web.as_ref().map_or_else(Used::default, |web| web.used(id))
    }

    /// Returns how many bytes a member has read, a browser's among them.
    fn read_bytes(&self, id: MemberId) -> u64 {
        self.share.served(id).read_bytes + self.by_browser(id).bytes
    }

    /// Lets somebody read until then, who may be on the list already; returns what to say.
    pub(super) fn allow(&mut self, text: &str, until: Instant) -> anyhow::Result<String> {
        let mut person = Person::parse(text)?;
        let at = self.listed.iter().position(|it| it.person.name == person.name);
        // A name alone is the person that was meant before, who may read no more than then.
        if let Some(at) = at.filter(|_| !text.contains('=')) {
            person.below.clone_from(&self.listed[at].person.below);
        }
        let files = person.files(self.directory)?;
        let member = at.and_then(|at| self.member(&self.listed[at]));
        // Others have guessed too often: there is no code that this person could use.
        if let Some(member) = member.as_ref().filter(|it| it.code.is_none() && it.key.is_none()) {
            self.share.stop(member.id);
        } else if let (Some(at), Some(member)) = (at, member) {
            let listed = &mut self.listed[at];
            let is_other = person.below != listed.person.below;
            if is_other {
                self.share.serve(member.id, files);
            }
            listed.person = person;
            self.share.extend(member.id, until);
            if is_other {
                self.show_to_browser(&self.listed[at])?;
            }
            return Ok(format!("{} may read until {}\n", self.listed[at].person.shown(), clock_time(until)));
        }
        let id = Some(self.share.invite(until, files));
        let listed = Listed { person, origin: Origin::Allowed, id };
        self.show_to_browser(&listed)?;
        let said = self.invitation(&listed);
        match at {
            // Who was typed stays so.
            Some(at) => self.listed[at] = Listed { origin: self.listed[at].origin, ..listed },
            None => self.listed.push(listed),
        }
        Ok(said)
    }

    /// Ends what somebody may, by name or by number in the list; returns what to say.
    pub(super) fn stop(&self, which: &str) -> anyhow::Result<String> {
        let by_name = self.listed.iter().find(|it| it.person.name == which);
        let by_number = || self.listed.get(which.parse::<usize>().ok()?.checked_sub(1)?);
        let Some(listed) = by_name.or_else(by_number) else {
            let text = format!("{}: nobody has this name or number", escape(which.as_bytes()));
            return Err(Failure::with(Exit::Usage, text));
        };
        let has_ended = listed.id.is_some_and(|id| self.share.stop(id));
        let whom = listed.person.shown();
        Ok(if has_ended {
            format!("{whom} may not read any more\n")
        } else {
            format!("{whom} was stopped already\n")
        })
    }

    /// Lets all who may read do so for longer; returns what to say.
    pub(super) fn extend(&self, by: Duration) -> String {
        for member in self.share.members() {
            self.share.extend(member.id, member.until.checked_add(by).unwrap_or(member.until));
        }
        self.until().map_or_else(String::new, |until| format!("shared until {}\n", clock_time(until)))
    }

    /// Says which codes people have, and what to type.
    pub(super) fn invitations(&self) -> String {
        self.listed.iter().map(|listed| self.invitation(listed)).collect()
    }

    fn invitation(&self, listed: &Listed) -> String {
        let person = &listed.person;
        let whom = if person.name.is_empty() { String::new() } else { format!(" for {}", person.shown()) };
        let Some(member) = self.member(listed) else {
            return format!("\n{} was stopped; --allow lets in again\n", person.shown());
        };
        let mut said = match (member.code, member.key) {
            (Some(code), None) => {
                let mut said = format!("\ncode{whom}: {code}\n");
                for address in &self.addresses {
                    let _ =
                        writeln!(said, "  nfsw ls -l {code}@{address}:/\n  nfsw cp -r {code}@{address}:/ .");
                }
                if self.is_found {
                    let _ = writeln!(said, "  or, on this network:\n  nfsw cp -r {code}:/ .");
                }
                said
            }
            (_, Some(_)) => format!("\n{} has the code already\n", person.shown()),
            (None, None) => format!("\nno code{whom}: others have guessed too often\n"),
        };
        if let Some(web) = &self.web {
            said.push_str(&web.invitation(member.id));
        }
        said
    }

    /// Says what has happened to somebody.
    pub(super) fn tell(&self, event: &Event) -> Option<String> {
        let (Event::Joined(id, _) | Event::Withdrawn(id) | Event::Ended(id)) = event else { return None };
        let listed = self.listed.iter().find(|it| it.id == Some(*id))?;
        let whom = listed.person.shown();
        Some(match event {
            Event::Joined(id, from) => {
                let label = self.share.member(*id).map(|member| member.label).unwrap_or_default();
                format!("{whom} has used the code: {} at {}\n", escape(&label), from.ip().to_canonical())
            }
            Event::Withdrawn(_) => {
                let again = self.invitation(listed);
                format!("three wrong guesses: the code of {whom} is not valid any more\n{again}")
            }
            _ => format!("{whom} may not read any more\n"),
        })
    }

    /// Returns who was heard so far, and what each has read.
    pub(super) fn readers(&self) -> Vec<Reader> {
        let reader = |listed: &Listed| {
            let id = listed.id?;
            let mut served = self.share.served(id);
            served.read_bytes += self.by_browser(id).bytes;
            Some(Reader { name: listed.person.shown(), heard: self.used(id)?, served })
        };
        self.listed.iter().filter_map(reader).collect()
    }

    /// Says how much each has read.
    pub(super) fn totals(&self) -> String {
        let mut said = String::new();
        for listed in &self.listed {
            let read = listed.id.map_or(0, |id| self.read_bytes(id));
            if read > 0 {
                let _ = writeln!(said, "{} read {read} bytes", listed.person.shown());
            }
        }
        said
    }

    /// Returns the list, a line for each person.
    pub(super) fn lines(&self) -> String {
        let rows: Vec<[String; 4]> = self.listed.iter().map(|listed| self.row(listed)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths = [0, 1, 2].map(width);
        let mut said = String::new();
        for (number, [name, below, until, state]) in (1..).zip(&rows) {
            let line = format!(
                "{number:3}  {name:0$}  {below:1$}  {until:2$}  {state}",
                widths[0], widths[1], widths[2]
            );
            let _ = writeln!(said, "{}", line.trim_end());
        }
        said
    }

    fn row(&self, listed: &Listed) -> [String; 4] {
        let name = listed.person.shown();
        let below = escape(listed.person.below.as_bytes()).into_owned();
        let Some(member) = self.member(listed) else {
            return [name, below, String::new(), "may not read any more".to_owned()];
        };
        let state = match (&member.code, member.key) {
            (Some(code), None) => match self.read_bytes(member.id) {
                0 => format!("code {code}, not used yet"),
                read => format!("code {code}, not used yet; {} sent to a browser", units::bytes(read)),
            },
            (None, None) => "no code: others have guessed too often".to_owned(),
            (_, Some(_)) => {
                let read = self.read_bytes(member.id);
                let heard = self.share.heard(member.id).map(|(at, from)| {
                    let ago = units::whole_seconds(at.elapsed());
                    format!(" at {}, heard {ago} ago", from.ip().to_canonical())
                });
                format!("{}{}, {} read", escape(&member.label), heard.unwrap_or_default(), units::bytes(read))
            }
        };
        [name, below, format!("until {}", clock_time(member.until)), state]
    }
}

/// Returns the time of day at which an instant is.
pub(super) fn clock_time(until: Instant) -> String {
    let time =
        SystemTime::now() + until.saturating_duration_since(Instant::now()) + Duration::from_millis(500);
    match Timestamp::try_from(time) {
        Ok(time) => time.to_zoned(TimeZone::system()).strftime("%H:%M:%S").to_string(),
        Err(_) => "the end of time".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn what_becomes_a_link_after_it_was_looked_at_is_not_opened() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("shared/a/b")).unwrap();
        let shared = place.path().join("shared");
        for below in ["", "a", "a/b"] {
            assert!(open_below(&shared, Path::new(below)).is_ok(), "{below}");
        }
        fs::rename(shared.join("a"), place.path().join("a")).unwrap();
        symlink(place.path().join("a"), shared.join("a")).unwrap();
        for below in ["a", "a/b"] {
            assert!(open_below(&shared, Path::new(below)).is_err(), "{below}");
        }
    }
}
