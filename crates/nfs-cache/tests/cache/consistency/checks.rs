//! What every answer of the cache must fulfil.

use std::{collections::BTreeSet, time::Duration};

use nfs_cache::{Answer, Event, Failure, GRAIN_BYTES, NodeId, OpenId, OperationId};
use nfs_wire::Status;

use super::{Doing, Opened, World};
use crate::model::{NAMES, Version};

impl World {
    /// While the server does not respond, what is held is there at once.
    pub(super) fn check_disconnected(&mut self) {
        let now = self.instant();
        if self.cache.is_connected()
            || self.now >= self.outage_until
            || self.server.habits.busy > 0
            || self.is_bad
            || self.is_damaged
        {
            return;
        }
        for node in self.nodes.keys().copied().collect::<Vec<_>>() {
            let Some(state) = self.cache.state(now, node) else { continue };
            if self.opens.values().all(|open| open.node != node) || state.held_bytes < state.size_bytes {
                continue;
            }
            let open = *self.opens.iter().find(|(_, open)| open.node == node).expect("it is open").0;
            // A front that believes in more than this version has would take its end for the file's.
            let read = self.cache.read(now, open, 0, state.size_bytes.try_into().unwrap());
            let answers: Vec<Event> = std::iter::from_fn(|| self.cache.poll_event()).collect();
            // The path has changed, and what is held is to be confirmed: a server that is there has a second for that.
            if answers.is_empty() {
                self.cache.abandon(now, read);
                *self.done.entry("asked").or_default() += 1;
                continue;
            }
            let [Event::Done { operation, result: Ok(Answer::Data(pieces)) }] = &answers[..] else {
                panic!("seed {}: {answers:?}, though all is held", self.seed)
            };
            assert_eq!(*operation, read);
            self.expect_old_data(open);
            self.check_data(open, 0, &pieces.concat());
            *self.done.entry("disconnected").or_default() += 1;
        }
    }

    /// Whether the server could be asked in the time before `since` and ever since.
    fn was_reachable(&self, since: Duration, before: Duration) -> bool {
        // Before the first outage it always could be.
        (self.up_since.is_zero() || since.saturating_sub(self.up_since) >= before)
            && self.now >= self.up_since
            && since >= self.up_since
    }

    pub(super) fn check(&mut self, operation: OperationId, result: Result<Answer, Failure>) {
        let seed = self.seed;
        let Some((begun, doing)) = self.doing.remove(&operation) else { panic!("seed {seed}: ended twice") };
        let (took, silent) = (self.now - begun, self.now - begun.max(self.replied));
        assert!(silent <= self.config.wait, "seed {seed}: {doing:?} took {took:?}");
        // Longer than the cache's patience: it knows by then that the server responds.
        let reachable = self.was_reachable(begun, Duration::from_secs(7));
        let outcome = match &result {
            Ok(_) => "answered",
            Err(Failure::Stale) => "stale",
            Err(Failure::Status(Status::NOENT)) => "absent",
            Err(Failure::Unreachable) if !reachable => "unreachable",
            Err(failure) => panic!("seed {seed} at {:?}: {doing:?} fails: {failure:?}", self.now),
        };
        *self.done.entry(outcome).or_default() += 1;
        match (doing, result) {
            (Doing::Lookup(name), Ok(Answer::Entry { node, metadata })) => {
                self.server.habits.lingers |= self.lingers && metadata.links > 0;
                // A kernel that knows the file by another node forgets that one unless it is open.
                let over: Vec<NodeId> = self
                    .nodes
                    .iter()
                    .filter(|(at, of)| **of == metadata.fileid && **at != node)
                    .map(|(at, _)| *at)
                    .collect();
                for old in over {
                    self.forget(old);
                }
                self.nodes.insert(node, metadata.fileid);
                self.names.insert(node, name);
                // What was newest once is not followed by what is older, unless the cache has forgotten it.
                let stamp = (metadata.ctime.seconds, metadata.ctime.nanoseconds);
                let newest = self.newest.entry(metadata.fileid).or_insert(stamp);
                assert!(stamp >= *newest || self.config.objects < 100, "seed {seed}: {name} grows younger");
                *newest = stamp.max(*newest);
                self.check_name(begun, name, Some(metadata.fileid), reachable, self.config.longest_ttl);
            }
            (Doing::Lookup(name), Err(Failure::Status(_))) => {
                self.check_name(begun, name, None, reachable, self.config.longest_ttl)
            }
            (Doing::List, Ok(Answer::Listing(entries))) => {
                for name in NAMES {
                    let entry = entries.iter().find(|entry| *entry.name == *name.as_bytes());
                    let fileid = entry.map(|entry| entry.fileid);
                    self.check_name(begun, name, fileid, reachable, self.config.longest_ttl);
                }
            }
            (Doing::Open(node, name), Ok(Answer::Opened { open, keep_cache, .. })) => {
                self.check_name(begun, name, Some(self.nodes[&node]), reachable, Duration::ZERO);
                if !keep_cache {
                    self.pages.remove(&node);
                }
                let fresh_since = reachable.then_some(begun);
                let file = self.nodes[&node];
                self.opens.insert(open, Opened { file, node, fresh_since, refuted: BTreeSet::new() });
            }
            (Doing::Read { open, offset, count }, Ok(Answer::Data(pieces))) => {
                let data = pieces.concat();
                self.expect_old_data(open);
                self.check_data(open, offset, &data);
                if let Some(Opened { node, .. }) = self.opens.get(&open) {
                    self.pages.entry(*node).or_default().insert((offset, count), data);
                }
            }
            (Doing::Find(file), Ok(Answer::Entry { node, metadata })) => {
                assert_eq!(metadata.fileid, file, "seed {seed}");
                self.cache.forget(node, 1);
            }
            // Attributes that were requested again are of a version that was there since.
            (Doing::Confirm(node), Ok(Answer::Attributes(metadata))) => {
                let was_there = self.server.files[&self.nodes[&node]].versions.iter().any(|version| {
                    version.data.len() as u64 == metadata.size && (!reachable || version.until >= begun)
                });
                assert!(was_there, "seed {seed} at {:?}: {metadata:?} is old", self.now);
                *self.done.entry("confirmed").or_default() += 1;
            }
            (Doing::Attributes, Ok(Answer::Attributes(_))) | (_, Err(_)) => {}
            (doing, result) => panic!("seed {seed}: {doing:?} gives {result:?}"),
        }
    }

    /// Without the server, what was held before the open is better than nothing, though it may be of a version before with the same times.
    /// Others who have the file open share what a kernel keeps of it.
    fn expect_old_data(&mut self, open: OpenId) {
        let Some(node) = self.opens.get(&open).map(|opened| opened.node) else { return };
        if self.server.habits.tick > 1 && !self.cache.is_connected() {
            let same = self.opens.values_mut().filter(|opened| opened.node == node);
            same.for_each(|opened| opened.fresh_since = None);
        }
    }

    /// A name leads there, or led there at most so long ago. File number 0 is one that is not known.
    fn check_name(&self, begun: Duration, name: &str, found: Option<u64>, reachable: bool, age: Duration) {
        let oldest = if reachable && self.was_reachable(begun, self.config.longest_ttl) {
            begun.saturating_sub(age)
        } else {
            Duration::ZERO
        };
        let mut ends = self.server.names.iter().skip(1).map(|(from, _)| *from).chain([Duration::MAX]);
        let was_so = self.server.names.iter().any(|(_, names)| {
            let is_found =
                if found == Some(0) { names.contains_key(name) } else { names.get(name).copied() == found };
            ends.next().is_some_and(|end| end >= oldest) && is_found
        });
        assert!(was_so, "seed {} at {:?}: {name} leads to {found:?}", self.seed, self.now);
    }

    /// Every byte belongs to one version that existed, all bytes of an open file to versions with the same times and size, and these
    /// are not older than the open. What was read before something was appended is of the longer version as well.
    pub(super) fn check_data(&mut self, open: OpenId, offset: u64, data: &[u8]) {
        let Some(opened) = self.opens.get_mut(&open) else { return };
        let versions = &self.server.files[&opened.file].versions;
        let is_of = |stamp: &(u64, usize)| {
            let end = offset as usize + data.len();
            let mut from = offset as usize;
            if from >= stamp.1 {
                return data.is_empty();
            }
            while from < end {
                let to = end.min((from as u64 / GRAIN_BYTES * GRAIN_BYTES + GRAIN_BYTES) as usize);
                let piece = &data[from - offset as usize..to - offset as usize];
                let may_be: Vec<&Version> = versions
                    .iter()
                    .filter(|version| (version.stamp, version.data.len()) == *stamp)
                    .filter(|version| opened.fresh_since.is_none_or(|since| version.until > since))
                    .collect();
                // Versions with the same times cannot be told apart, not even within one grain.
                let fits = may_be.iter().any(|version| version.data.get(from..to) == Some(piece))
                    || piece
                        .iter()
                        .zip(from..)
                        .all(|(byte, at)| may_be.iter().any(|it| it.data.get(at) == Some(byte)));
                if !fits {
                    return false;
                }
                from = to;
            }
            true
        };
        let stamps: BTreeSet<_> =
            versions.iter().map(|version| (version.stamp, version.data.len())).collect();
        let refuted: Vec<_> = stamps.iter().copied().filter(|stamp| !is_of(stamp)).collect();
        opened.refuted.extend(refuted);
        let (seed, now, file) = (self.seed, self.now, opened.file);
        assert!(
            !stamps.is_subset(&opened.refuted),
            "seed {seed} at {now:?}: file {file} at {offset}: bytes of no version, or of several"
        );
    }
}
