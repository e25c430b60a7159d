//! What is to become of one file or link of the source, decided by what it is and what has its name in the destination.

use std::io;

use super::{
    Overwrite, Run,
    compare::Age,
    destination::{Location, Present, directory::TargetDirectory},
    filter,
    source::{Attributes, Kind, Node},
    sync::Compare,
};
use crate::{
    error::{Error, Result},
    event::{Change, Event, Skip, Warning},
    local::Adjusted,
};

/// How often it is decided again about a name, when it stands for something else whenever a copy is to get it.
pub(super) const MOST_DECISIONS: usize = 8;

/// What the command was asked for, as far as it decides.
#[derive(Clone, Copy, Debug)]
struct Rules {
    overwrite: Overwrite,
    in_place: bool,
    /// Of a sync: by what a file counts as unchanged, and whether newer files are replaced.
    sync: Option<(Compare, bool)>,
}

/// A file or link on one side.
#[derive(Clone, Copy, Debug)]
struct Side<'a> {
    kind: Kind,
    attributes: &'a Attributes,
}

/// What was found out beside the metadata.
#[derive(Clone, Copy, Debug, Default)]
struct Facts {
    /// Whether both sides are one file.
    is_same_file: bool,
    is_newer: Option<bool>,
    age: Option<Age>,
    is_same_content: Option<bool>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Copy(Change),
    /// What is there stays.
    Skip(Skip),
    /// It stays, and is neither newer nor as large as its source.
    SkipOfOtherSize,
    /// It stays as it is newer, and the run fails; it may have the same contents.
    KeepNewer {
        may_be_same: bool,
    },
    /// The contents are those of the source.
    Unchanged {
        is_same_time: bool,
    },
    Refuse(Refusal),
}

/// What metadata do not tell, or only with the steps of the destination's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    IsNewer,
    Age,
    /// Whether bytes, or the targets of links, are the same.
    Content,
}

/// Why something cannot be copied to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Directory,
    SameFile,
    /// A fifo, a socket or a device.
    Special(&'static str),
    LinkInPlace,
}

/// Decides about a source and what has its name.
///
/// # Errors
/// What has to be found out first.
fn decide(rules: Rules, source: Side<'_>, there: Side<'_>, facts: Facts) -> Result<Decision, Question> {
    if there.kind == Kind::Directory {
        return Ok(Decision::Refuse(Refusal::Directory));
    }
    if facts.is_same_file {
        return Ok(Decision::Refuse(Refusal::SameFile));
    }
    if rules.overwrite == Overwrite::Never {
        return Ok(Decision::Skip(Skip::Exists));
    }
    let decision = match rules.sync {
        None => decide_copy(rules.overwrite, source, there, facts)?,
        Some(sync) => decide_sync(rules.overwrite, sync, source, there, facts)?,
    };
    Ok(match (decision, there.kind) {
        // A link takes the place of anything but a directory.
        (Decision::Copy(_), _) if source.kind == Kind::Symlink => decision,
        (Decision::Copy(_), Kind::Special(what)) => Decision::Refuse(Refusal::Special(what)),
        (Decision::Copy(_), Kind::Symlink) if rules.in_place => Decision::Refuse(Refusal::LinkInPlace),
        _ => decision,
    })
}

fn decide_copy(
    overwrite: Overwrite,
    source: Side<'_>,
    there: Side<'_>,
    facts: Facts,
) -> Result<Decision, Question> {
    if overwrite == Overwrite::Always || facts.is_newer.ok_or(Question::IsNewer)? {
        return Ok(Decision::Copy(Change::Replaced));
    }
    let is_odd = (source.kind, there.kind) == (Kind::File, Kind::File)
        && source.attributes.size != there.attributes.size
        && there.attributes.times.modified <= source.attributes.times.modified;
    Ok(if is_odd { Decision::SkipOfOtherSize } else { Decision::Skip(Skip::NotOlder) })
}

fn decide_sync(
    overwrite: Overwrite,
    (compare, force): (Compare, bool),
    source: Side<'_>,
    there: Side<'_>,
    facts: Facts,
) -> Result<Decision, Question> {
    let age = facts.age.ok_or(Question::Age)?;
    let sizes = [source, there].map(|side| side.attributes.size);
    let is_same_content = facts.is_same_content.ok_or(Question::Content);
    let change = match (source.kind, there.kind) {
        (Kind::File, Kind::File) if sizes[0] != sizes[1] => Some(Change::Size(sizes[1])),
        (Kind::File, Kind::File) => match compare {
            Compare::SizeAndTime => (age != Age::Same).then_some(Change::Time),
            Compare::Size => None,
            Compare::Contents => (!is_same_content?).then_some(Change::Contents),
        },
        // Links have the times of what made them: the length of a target tells little, and the target is short.
        (Kind::Symlink, Kind::Symlink) => {
            let is_same = (sizes[0] == sizes[1] || sizes.contains(&0)) && is_same_content?;
            (!is_same).then_some(Change::Target)
        }
        _ => Some(Change::Kind),
    };
    Ok(match change {
        None => Decision::Unchanged { is_same_time: age == Age::Same || compare == Compare::Size },
        Some(_) if age == Age::Newer && overwrite == Overwrite::Older => Decision::Skip(Skip::NotOlder),
        Some(change) if age == Age::Newer && !force => {
            Decision::KeepNewer { may_be_same: change == Change::Time }
        }
        Some(change) => Decision::Copy(change),
    })
}

impl Run<'_> {
    /// Decides what a file or link is copied for; `None` if it is not copied, which was said.
    pub(super) async fn wants(
        &self,
        node: &Node,
        target_directory: &TargetDirectory,
        name: &[u8],
        present: Option<&Present>,
    ) -> Result<Option<Change>> {
        let mut now = present.copied();
        for _ in 0..MOST_DECISIONS {
            let Some(there) = &now else { return self.accepted(node, target_directory, name, Change::New) };
            match self.wants_over(node, target_directory, name, there).await? {
                Some(Some(change)) => return self.accepted(node, target_directory, name, change),
                Some(None) => return Ok(None),
                None => {}
            }
            now = target_directory.location.look_up(self.context, name).await?;
        }
        let text = format!("{}: is changed or replaced all the time", target_directory.location.show(name));
        Err(Error::other(text))
    }

    /// Returns what is to be done, if the user has seen that it would be; what was not shown is reported.
    fn accepted(
        &self,
        node: &Node,
        target_directory: &TargetDirectory,
        name: &[u8],
        change: Change,
    ) -> Result<Option<Change>> {
        let path = filter::below(target_directory.relative(), name);
        if self.copy.accepted.as_ref().is_none_or(|accepted| accepted.has(&path, node)) {
            return Ok(Some(change));
        }
        let text =
            format!("{node}: is not as it was shown before: not copied; run it again to be shown all of it");
        self.context.events.fail(Error::other(text)).map(|()| None)
    }

    /// As [`Run::wants`], of what was found `present`; `None` if something else is there now.
    async fn wants_over(
        &self,
        node: &Node,
        target_directory: &TargetDirectory,
        name: &[u8],
        present: &Present,
    ) -> Result<Option<Option<Change>>> {
        let rules = Rules {
            overwrite: self.copy.overwrite,
            in_place: self.copy.inplace,
            sync: self.sync.as_ref().map(|sync| (sync.options.compare, sync.options.force)),
        };
        let source = Side { kind: node.kind, attributes: &node.attributes };
        let there = Side { kind: present.kind, attributes: &present.attributes };
        let is_same_file = target_directory.location.is_same(present, node, self.copy.inplace);
        let mut facts = Facts { is_same_file, ..Facts::default() };
        loop {
            match decide(rules, source, there, facts) {
                Ok(Decision::Copy(change)) => return Ok(Some(Some(change))),
                Ok(Decision::Unchanged { is_same_time })
                    if self.is_of_others(node, target_directory, present, is_same_time) =>
                {
                    return Ok(Some(Some(Change::Replaced)));
                }
                Ok(decision) => {
                    let is_left = self.leave(decision, node, target_directory, name, present).await?;
                    return Ok(is_left.then_some(None));
                }
                Err(question) => {
                    self.find_out(question, node, target_directory, name, present, &mut facts).await?
                }
            }
        }
    }

    async fn find_out(
        &self,
        question: Question,
        node: &Node,
        target_directory: &TargetDirectory,
        name: &[u8],
        there: &Present,
        facts: &mut Facts,
    ) -> Result<()> {
        let [here, its] = [&node.attributes, &there.attributes];
        match question {
            Question::IsNewer => {
                facts.is_newer = Some(self.is_newer(node, &target_directory.location, its).await?);
            }
            Question::Age => {
                let are_alike = (node.kind, there.kind, here.size) == (Kind::File, Kind::File, its.size);
                facts.age = Some(match are_alike {
                    true => self.age_held(node, target_directory, its).await?,
                    false => self.age(node, &target_directory.location, its).await?,
                });
            }
            Question::Content if node.kind == Kind::Symlink => {
                let target = node.read_link().await?;
                let other = target_directory.location.read_link(self.context, name).await?;
                facts.is_same_content = Some(target == other);
            }
            Question::Content => {
                // What may not be read is replaced, as by rsync(1).
                let is_readable = match &target_directory.location {
                    Location::Local { directory, .. } => {
                        let opened = directory.read(name).map_err(|error| error.kind());
                        !matches!(opened, Err(io::ErrorKind::PermissionDenied))
                    }
                    Location::Remote(_) | Location::Planned(_) => true,
                };
                facts.is_same_content = Some(
                    is_readable && {
                        let ranges = self
                            .differences(node, None, None, (None, &target_directory.location, name))
                            .await?;
                        ranges.is_none_or(|ranges| ranges.is_empty())
                    },
                );
            }
        }
        Ok(())
    }

    /// Does what is to be done where nothing is copied, and says why; false if something else is there now.
    async fn leave(
        &self,
        decision: Decision,
        node: &Node,
        target_directory: &TargetDirectory,
        name: &[u8],
        present: &Present,
    ) -> Result<bool> {
        let target = target_directory.location.name(name);
        let shown = &target.shown;
        let refusal = match decision {
            Decision::Copy(_) => return Ok(true),
            Decision::Skip(reason) => return self.skip(node, &target, reason).map(|()| true),
            Decision::SkipOfOtherSize => {
                self.warn(Warning::OtherSize { source: &node.name(), target: &target });
                return self.skip(node, &target, Skip::NotOlder).map(|()| true);
            }
            Decision::KeepNewer { may_be_same } => {
                self.context.servers.activity().file_done();
                let (source, target) = (&node.name(), &target);
                let kept = Event::KeptNewer { source, target, may_be_same };
                return self.context.events.tell(&kept).map(|()| true);
            }
            Decision::Unchanged { is_same_time } => {
                return match self.adjust(node, target_directory, name, present, is_same_time).await? {
                    Adjusted::Yes => Ok(true),
                    Adjusted::NotKept | Adjusted::OwnerKept => self.unchanged(node, &target).map(|()| true),
                    Adjusted::Another => Ok(false),
                };
            }
            Decision::Refuse(refusal) => refusal,
        };
        let text = match refusal {
            Refusal::Directory => format!("{shown}: is a directory, which a file cannot replace"),
            Refusal::SameFile => format!("{node} and {shown} are the same file"),
            Refusal::Special(what) => format!("{shown}: is a {what}, which is not overwritten"),
            Refusal::LinkInPlace => {
                format!("{shown}: is a symbolic link, which --inplace does not write through")
            }
        };
        Err(Error::other(text))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::local::Times;

    const COPY: Rules = Rules { overwrite: Overwrite::Always, in_place: false, sync: None };
    const FIFO: Kind = Kind::Special("fifo");

    /// Something of a size that was changed at a time, in seconds.
    fn attributes(size: u64, modified: u64) -> Attributes {
        let modified = UNIX_EPOCH + Duration::from_secs(modified);
        Attributes {
            mode: 0o644,
            uid: 0,
            gid: 0,
            size,
            links: 1,
            stored: size,
            times: Times { accessed: modified, modified },
            changed: modified,
            file: (1, 1),
            is_lasting: true,
        }
    }

    fn sync(compare: Compare) -> Rules {
        Rules { sync: Some((compare, false)), ..COPY }
    }

    fn aged(age: Age) -> Facts {
        Facts { age: Some(age), ..Facts::default() }
    }

    #[test]
    fn what_metadata_and_options_decide() {
        use Decision::{Copy, KeepNewer, Refuse, Skip as Leave, SkipOfOtherSize, Unchanged};
        use Kind::{Directory, File, Symlink};

        let nothing = Facts::default();
        let newer = |is_newer| Facts { is_newer: Some(is_newer), ..nothing };
        let content = |age, is_same| Facts { is_same_content: Some(is_same), ..aged(age) };
        let same_file = Facts { is_same_file: true, ..nothing };
        let [never, older] =
            [Overwrite::Never, Overwrite::Older].map(|overwrite| Rules { overwrite, ..COPY });
        let in_place = Rules { in_place: true, ..COPY };
        let [dated, sized, read] = [Compare::SizeAndTime, Compare::Size, Compare::Contents].map(sync);
        let forced = Rules { sync: Some((Compare::SizeAndTime, true)), ..COPY };
        let updating = Rules { overwrite: Overwrite::Older, ..dated };
        let table = [
            ("a directory", COPY, (File, 1), (Directory, 1), nothing, Ok(Refuse(Refusal::Directory))),
            (
                "a directory, by a link",
                COPY,
                (Symlink, 1),
                (Directory, 1),
                nothing,
                Ok(Refuse(Refusal::Directory)),
            ),
            ("itself", COPY, (File, 1), (File, 1), same_file, Ok(Refuse(Refusal::SameFile))),
            ("itself, -n", never, (File, 1), (File, 1), same_file, Ok(Refuse(Refusal::SameFile))),
            ("a fifo", COPY, (File, 1), (FIFO, 0), nothing, Ok(Refuse(Refusal::Special("fifo")))),
            ("a fifo, -n", never, (File, 1), (FIFO, 0), nothing, Ok(Leave(Skip::Exists))),
            ("a fifo, by a link", COPY, (Symlink, 1), (FIFO, 0), nothing, Ok(Copy(Change::Replaced))),
            ("a link", COPY, (File, 1), (Symlink, 1), nothing, Ok(Copy(Change::Replaced))),
            (
                "a link, --inplace",
                in_place,
                (File, 1),
                (Symlink, 1),
                nothing,
                Ok(Refuse(Refusal::LinkInPlace)),
            ),
            ("a link, by a link", in_place, (Symlink, 1), (Symlink, 1), nothing, Ok(Copy(Change::Replaced))),
            ("a file", COPY, (File, 1), (File, 1), nothing, Ok(Copy(Change::Replaced))),
            ("-n", never, (File, 1), (File, 2), nothing, Ok(Leave(Skip::Exists))),
            ("-u", older, (File, 1), (File, 1), nothing, Err(Question::IsNewer)),
            ("-u, newer", older, (File, 1), (File, 1), newer(true), Ok(Copy(Change::Replaced))),
            ("-u, not newer", older, (File, 1), (File, 1), newer(false), Ok(Leave(Skip::NotOlder))),
            ("-u, another size", older, (File, 1), (File, 2), newer(false), Ok(SkipOfOtherSize)),
            ("-u, a link", older, (File, 1), (Symlink, 2), newer(false), Ok(Leave(Skip::NotOlder))),
            ("sync", dated, (File, 1), (File, 1), nothing, Err(Question::Age)),
            ("same", dated, (File, 1), (File, 1), aged(Age::Same), Ok(Unchanged { is_same_time: true })),
            ("older", dated, (File, 1), (File, 1), aged(Age::Older), Ok(Copy(Change::Time))),
            ("newer", dated, (File, 1), (File, 1), aged(Age::Newer), Ok(KeepNewer { may_be_same: true })),
            ("newer, --force", forced, (File, 1), (File, 1), aged(Age::Newer), Ok(Copy(Change::Time))),
            ("newer, -u", updating, (File, 1), (File, 1), aged(Age::Newer), Ok(Leave(Skip::NotOlder))),
            ("larger", dated, (File, 1), (File, 2), aged(Age::Same), Ok(Copy(Change::Size(2)))),
            (
                "larger and newer",
                dated,
                (File, 1),
                (File, 2),
                aged(Age::Newer),
                Ok(KeepNewer { may_be_same: false }),
            ),
            (
                "--size-only",
                sized,
                (File, 1),
                (File, 1),
                aged(Age::Newer),
                Ok(Unchanged { is_same_time: true }),
            ),
            ("--checksum", read, (File, 1), (File, 1), aged(Age::Newer), Err(Question::Content)),
            (
                "--checksum, same",
                read,
                (File, 1),
                (File, 1),
                content(Age::Newer, true),
                Ok(Unchanged { is_same_time: false }),
            ),
            (
                "--checksum, other",
                read,
                (File, 1),
                (File, 1),
                content(Age::Same, false),
                Ok(Copy(Change::Contents)),
            ),
            ("--checksum, larger", read, (File, 1), (File, 2), aged(Age::Same), Ok(Copy(Change::Size(2)))),
            ("links", dated, (Symlink, 1), (Symlink, 1), aged(Age::Older), Err(Question::Content)),
            ("links of no size", dated, (Symlink, 1), (Symlink, 0), aged(Age::Older), Err(Question::Content)),
            (
                "links, same",
                dated,
                (Symlink, 1),
                (Symlink, 1),
                content(Age::Older, true),
                Ok(Unchanged { is_same_time: false }),
            ),
            (
                "links, other",
                dated,
                (Symlink, 1),
                (Symlink, 1),
                content(Age::Older, false),
                Ok(Copy(Change::Target)),
            ),
            ("a longer link", dated, (Symlink, 1), (Symlink, 2), aged(Age::Older), Ok(Copy(Change::Target))),
            ("another kind", dated, (File, 1), (Symlink, 1), aged(Age::Older), Ok(Copy(Change::Kind))),
            (
                "another kind, newer",
                dated,
                (File, 1),
                (Symlink, 1),
                aged(Age::Newer),
                Ok(KeepNewer { may_be_same: false }),
            ),
            (
                "a fifo, sync",
                dated,
                (File, 1),
                (FIFO, 0),
                aged(Age::Older),
                Ok(Refuse(Refusal::Special("fifo"))),
            ),
        ];
        for (what, rules, here, there, facts, expected) in table {
            let [here, there] = [here, there].map(|(kind, size)| (kind, attributes(size, 1000)));
            let [here, there] = [&here, &there].map(|(kind, attributes)| Side { kind: *kind, attributes });
            assert_eq!(decide(rules, here, there, facts), expected, "{what}");
        }
    }

    #[test]
    fn what_is_kept_by_its_time_though_it_has_another_size_is_told_unless_it_is_newer() {
        let rules = Rules { overwrite: Overwrite::Older, ..COPY };
        let facts = Facts { is_newer: Some(false), ..Facts::default() };
        let here = attributes(1, 1000);
        for (modified, expected) in
            [(1000, Decision::SkipOfOtherSize), (1001, Decision::Skip(Skip::NotOlder))]
        {
            let there = attributes(2, modified);
            let [here, there] = [&here, &there].map(|attributes| Side { kind: Kind::File, attributes });
            assert_eq!(decide(rules, here, there, facts), Ok(expected));
        }
    }
}
