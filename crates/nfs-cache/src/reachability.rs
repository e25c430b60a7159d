//! Whether the server responds, and whether it is the server that it was.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::config::CacheConfig;

/// Every operation waits so long for the server, however long that has been silent: it may just be back. Kernels repeat reads that have
/// failed.
const LAST_CHANCE: Duration = Duration::from_millis(100);

/// For how long a server counts as slow. Nothing is asked meanwhile by operations that take what is not too old.
const SLOW: Duration = Duration::from_millis(250);

/// How long no call is sent after one could not be.
const NOT_ASKED_PAUSE: Duration = Duration::from_secs(1);

/// For how long the root's identity answers for files that are on another file system than before.
const IDENTIFIED: Duration = Duration::from_secs(2);

/// How long a server may say that it does not know the root before it counts as another one.
const ROOTLESS: Duration = Duration::from_secs(10);

/// How long after the last operation of a front the server is asked whether it responds again, though no operation waits.
const USED: Duration = Duration::from_secs(2);

/// Whether the server responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Up,
    /// It has not answered for a while.
    Down,
    /// The path has changed: nothing is believed before the root's identity is seen.
    Unidentified {
        /// That is taking long.
        silent: bool,
    },
    /// Another server is there.
    Another,
    /// It will never answer again, and nothing that it has shown is to be seen any more.
    Ended,
}

/// What calls and replies, and the time between them, show of the server.
#[derive(Debug)]
pub(crate) struct Reachability {
    config: Arc<CacheConfig>,
    link: Link,
    last_heard: Instant,
    /// Since when the server is asked and does not respond.
    silent_since: Option<Instant>,
    /// Since when it says that it does not know the root.
    rootless_since: Option<Instant>,
    /// When the root was seen after something had looked like another server's.
    identified_at: Option<Instant>,
    /// When the front began an operation last.
    used_at: Instant,
    /// When the latest call was sent that the server answered.
    answered_until: Instant,
    /// Until then names and attributes are used without asking that are not too old: the server was seen to be slow.
    slow_until: Instant,
    /// When calls may be sent again after one could not be.
    not_before: Instant,
}

impl Reachability {
    /// Begins with a server that has just responded.
    pub(crate) const fn new(config: Arc<CacheConfig>, now: Instant) -> Self {
        Self {
            config,
            link: Link::Up,
            last_heard: now,
            silent_since: None,
            rootless_since: None,
            identified_at: None,
            used_at: now,
            answered_until: now,
            slow_until: now,
            not_before: now,
        }
    }

    /// Sets the state; returns whether it is another one. Nothing follows the end.
    pub(crate) fn set_link(&mut self, link: Link) -> bool {
        self.link != Link::Ended && std::mem::replace(&mut self.link, link) != link
    }

    /// A front has begun an operation.
    pub(crate) const fn handle_operation(&mut self, now: Instant) {
        self.used_at = now;
    }

    /// A call was sent: the server is silent from now on, if it was not before.
    pub(crate) fn handle_sent(&mut self, now: Instant) {
        self.silent_since.get_or_insert(now);
    }

    /// The server has answered a call that was sent at `sent`.
    pub(crate) fn handle_reply(&mut self, now: Instant, sent: Option<Instant>) {
        (self.last_heard, self.not_before) = (now, now);
        self.answered_until = sent.map_or(self.answered_until, |sent| sent.max(self.answered_until));
    }

    /// A silence begins at this time, or none where no call is in flight.
    pub(crate) const fn begin_silence(&mut self, at: Option<Instant>) {
        self.silent_since = at;
    }

    /// A call could not be sent.
    pub(crate) fn handle_not_sent(&mut self, now: Instant) {
        self.not_before = now + NOT_ASKED_PAUSE;
    }

    /// The path has changed: calls may be sent at once.
    pub(crate) const fn handle_path_change(&mut self, now: Instant) {
        self.not_before = now;
    }

    /// The server was slow to confirm what an operation was given.
    pub(crate) fn handle_slow(&mut self, now: Instant) {
        self.slow_until = now + SLOW;
    }

    /// The server does not know the root. Returns whether it has said so for so long that it is another one.
    pub(crate) fn handle_no_root(&mut self, now: Instant) -> bool {
        let since = *self.rootless_since.get_or_insert(now);
        now.saturating_duration_since(since) >= ROOTLESS
    }

    /// The server knows the root.
    pub(crate) const fn handle_root(&mut self) {
        self.rootless_since = None;
    }

    /// The root was seen to be the one that it was.
    pub(crate) const fn handle_identity(&mut self, now: Instant) {
        self.rootless_since = None;
        self.identified_at = Some(now);
    }

    /// Returns the state.
    pub(crate) const fn link(&self) -> Link {
        self.link
    }

    /// Whether the server responds.
    pub(crate) const fn is_up(&self) -> bool {
        matches!(self.link, Link::Up)
    }

    /// Whether an answer of the server may come in time.
    pub(crate) const fn may_answer(&self) -> bool {
        matches!(self.link, Link::Up | Link::Unidentified { silent: false })
    }

    /// Whether calls other than for the root may be sent: the server is identified.
    pub(crate) const fn may_send(&self) -> bool {
        matches!(self.link, Link::Up | Link::Down)
    }

    /// Whether the front has had a look at the server just now.
    pub(crate) fn is_used(&self, now: Instant) -> bool {
        now < self.used_at + USED
    }

    /// Whether the server was seen to be slow.
    pub(crate) fn is_slow(&self, now: Instant) -> bool {
        now < self.slow_until
    }

    /// Whether the root was identified just now.
    pub(crate) fn is_identified(&self, now: Instant) -> bool {
        self.identified_at.is_some_and(|at| now < at + IDENTIFIED)
    }

    /// Returns what the server counts as once it has been silent for long enough.
    pub(crate) const fn silent(&self) -> Link {
        match self.link {
            Link::Up => Link::Down,
            Link::Unidentified { .. } => Link::Unidentified { silent: true },
            Link::Down | Link::Another | Link::Ended => self.link,
        }
    }

    /// Returns when calls may be sent.
    pub(crate) const fn not_before(&self) -> Instant {
        self.not_before
    }

    /// Returns when the server will have been silent for long enough about what was asked at `asked`; `None` while it is asked for nothing, as
    /// the next call waits for its time. A call that could not be sent gets no answer either.
    pub(crate) fn silent_at(&self, asked: Instant) -> Option<Instant> {
        let unsent = (self.not_before > self.last_heard).then_some(asked);
        let since = self.silent_since.or(unsent)?;
        Some(asked.max(self.last_heard).max(since) + self.config.patience)
    }

    /// Returns when an operation that began at `begun`, and has had no answer since `since`, has waited for long enough, as far as is
    /// known: the server has been silent for that long, even if a part of the silence was before the operation began; or it has
    /// answered calls that were sent so much later than one of this operation. Otherwise it may wait behind others in a queue.
    pub(crate) fn given_up_at(&self, begun: Instant, since: Instant) -> Instant {
        let last_chance = begun + LAST_CHANCE;
        let end = (since + self.config.wait).max(last_chance);
        if since + self.config.wait <= self.answered_until {
            return end;
        }
        let end = end.max(self.last_heard + self.config.wait);
        let silent = self.silent_since.map_or(end, |since| since + self.config.wait);
        silent.max(last_chance).min(end)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "an arbitrary epoch of virtual time")]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn server() -> (Reachability, Instant) {
        let start = Instant::now();
        (Reachability::new(Arc::new(CacheConfig::default()), start), start)
    }

    #[test]
    fn only_a_server_that_may_answer_is_waited_for() {
        let (mut server, _) = server();
        for (link, may_answer, may_send, silent) in [
            (Link::Up, true, true, Link::Down),
            (Link::Down, false, true, Link::Down),
            (Link::Unidentified { silent: false }, true, false, Link::Unidentified { silent: true }),
            (Link::Unidentified { silent: true }, false, false, Link::Unidentified { silent: true }),
            (Link::Another, false, false, Link::Another),
            (Link::Ended, false, false, Link::Ended),
        ] {
            server.set_link(link);
            assert!(!server.set_link(link), "it is the same");
            let shown = (server.may_answer(), server.may_send(), server.silent());
            assert_eq!(shown, (may_answer, may_send, silent), "{link:?}");
        }
        assert!(!server.set_link(Link::Up) && server.link() == Link::Ended);
    }

    #[test]
    fn silence_counts_from_the_question_or_the_last_reply() {
        let (mut server, start) = server();
        let at = |seconds: u32| start + seconds * SECOND;
        server.handle_sent(at(5));
        assert_eq!(server.silent_at(at(5)), Some(at(6)));
        server.handle_reply(at(7), None);
        server.begin_silence(Some(at(7)));
        assert_eq!(server.silent_at(at(5)), Some(at(8)));
        // Nothing is asked: it is we who wait.
        server.handle_reply(at(8), None);
        server.begin_silence(None);
        assert_eq!(server.silent_at(at(5)), None);
        server.handle_sent(at(20));
        assert_eq!(server.silent_at(at(5)), Some(at(21)));
        // What could not be sent gets no answer.
        server.handle_reply(at(21), None);
        server.begin_silence(None);
        server.handle_not_sent(at(22));
        assert_eq!(server.silent_at(at(22)), Some(at(23)));
    }

    #[test]
    fn an_operation_gives_up_ten_seconds_after_the_silence_began() {
        let (mut server, start) = server();
        let at = |seconds: u32| start + seconds * SECOND;
        // It was silent before the operation began, for less and for more than that.
        server.handle_sent(start);
        server.handle_sent(at(3));
        assert_eq!(server.given_up_at(at(4), at(4)), at(10));
        assert_eq!(server.given_up_at(at(30), at(30)), at(30) + LAST_CHANCE);
        // It answers others: the call may wait behind them, until later ones are answered.
        server.handle_reply(at(12), Some(at(1)));
        server.begin_silence(None);
        assert_eq!(server.given_up_at(at(4), at(4)), at(22));
        server.handle_reply(at(15), Some(at(14)));
        assert_eq!(server.given_up_at(at(4), at(4)), at(14));
    }

    #[test]
    fn a_server_without_the_root_is_another_one_after_ten_seconds() {
        let (mut server, start) = server();
        assert!(!server.handle_no_root(start));
        assert!(!server.handle_no_root(start + 9 * SECOND));
        assert!(server.handle_no_root(start + 10 * SECOND));
        server.handle_root();
        assert!(!server.handle_no_root(start + 11 * SECOND));
    }

    #[test]
    fn what_was_seen_of_the_server_holds_for_a_while() {
        let (mut server, start) = server();
        let ms = Duration::from_millis;
        server.handle_slow(start);
        assert!(server.is_slow(start + ms(249)) && !server.is_slow(start + ms(250)));
        assert!(!server.is_identified(start));
        server.handle_identity(start);
        assert!(server.is_identified(start + ms(1999)) && !server.is_identified(start + 2 * SECOND));
        server.handle_operation(start + SECOND);
        assert!(server.is_used(start + ms(2999)) && !server.is_used(start + 3 * SECOND));
        server.handle_not_sent(start);
        assert_eq!(server.not_before(), start + SECOND);
        server.handle_path_change(start);
        assert_eq!(server.not_before(), start);
    }
}
