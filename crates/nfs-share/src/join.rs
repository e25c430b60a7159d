//! The receiver's end: how it becomes a member, and how it comes back.

use std::{
    collections::VecDeque,
    fmt,
    time::{Duration, Instant},
};

use zeroize::Zeroizing;

use crate::{
    beginning,
    code::Code,
    datagram::{Attempt, Cookie, Datagram, Refusal},
    ids::{MemberId, SessionId},
    noise::{Handshake, Identity, PublicKey},
    pairing::{Pairing, Share},
    session::Session,
    sharer::MAX_LABEL_BYTES,
};

/// Pause before a datagram is sent again for the first time; each further one is half as long again. A fade takes 100 ms.
const FIRST_PAUSE: Duration = Duration::from_millis(120);

/// Longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Shares of the sharer that are answered: each is a guess of the code for who has made it. A sharer that is started again has
/// another one.
const MAX_OFFERS: usize = 3;

/// After so long one more is answered.
const OFFER_TIME: Duration = Duration::from_secs(600);

/// A refusal may be forged, and the true answer comes as soon: it counts when it is repeated this long after the first.
const REFUSED_TIME: Duration = Duration::from_millis(500);

/// The same for a member, who has been let in before.
const MEMBER_REFUSED_TIME: Duration = Duration::from_secs(5);

/// Times that a handshake of a member is sent before another one is begun: the sharer answers a handshake whose session was
/// used no more.
const RETURN_COUNT: u32 = 16;

/// What a member keeps to come back to a share. It is a secret.
#[derive(Clone, Debug)]
pub struct Membership {
    /// Names the member.
    pub member: MemberId,
    /// Its own keys.
    pub identity: Identity,
    /// The key of the share.
    pub sharer: PublicKey,
}

impl Membership {
    /// Bytes of [`Self::to_bytes`].
    pub const BYTES: usize = 8 + 64 + 32;

    /// Writes it, to be kept where nobody else reads.
    pub fn to_bytes(&self) -> Zeroizing<[u8; Self::BYTES]> {
        let mut bytes = Zeroizing::new([0; Self::BYTES]);
        bytes[..8].copy_from_slice(&self.member.0);
        bytes[8..72].copy_from_slice(&self.identity.to_bytes()[..]);
        bytes[72..].copy_from_slice(&self.sharer.0);
        bytes
    }

    /// Reads what [`Self::to_bytes`] has written.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let (member, rest) = bytes.split_first_chunk().expect("8 of 104");
        let (identity, sharer) = rest.split_first_chunk().expect("64 of 96");
        let sharer = PublicKey(sharer.try_into().expect("the last 32"));
        Self { member: MemberId(*member), identity: Identity::from_bytes(identity), sharer }
    }
}

/// A session, and what the sharer has said of itself.
#[derive(Debug)]
pub struct Joined {
    /// The session.
    pub session: Session,
    /// What leads back to the share when the session is lost.
    pub membership: Membership,
    /// How long the session may last.
    pub remaining: Duration,
    /// What the share is called: text of a stranger.
    pub title: String,
}

/// An attempt to get a session, as a machine. Its datagrams go to the sharer until there is a [result](Self::poll_result).
pub struct Join {
    attempt: Attempt,
    identity: Identity,
    state: State,
    /// What is sent until it is answered, and when next.
    datagram: Vec<u8>,
    next: Instant,
    pause: Duration,
    /// When it was refused first, since something else was sent.
    refused: Option<Instant>,
    result: Option<Result<Joined, Refusal>>,
}

enum State {
    /// A hello was sent, then proofs that the code is known.
    Code {
        pairing: Pairing,
        share: Share,
        label: Vec<u8>,
        proofs: VecDeque<Proof>,
        max_offers: usize,
    },
    /// A handshake was begun among those who know each other.
    Member {
        member: MemberId,
        sharer: PublicKey,
        noise: Option<Box<Handshake>>,
        sent: u32,
    },
    Done,
}

/// What was answered to a share of the sharer.
struct Proof {
    theirs: Share,
    cookie: Cookie,
    handshake: Vec<u8>,
    noise: Option<Box<Handshake>>,
    made: Instant,
}

impl fmt::Debug for Join {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Join")
            .field("identity", &self.identity)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl Join {
    /// Begins to become a member, who is known by its keys from then on: if an answer is lost, the same keys may show the code again.
    /// The sharer is shown `label`, of which the first [`MAX_LABEL_BYTES`] count.
    pub fn with_code(code: Code, identity: Identity, label: &str, now: Instant) -> Self {
        let (pairing, share) = Pairing::begin(code);
        let number = pairing.number();
        let label = beginning(label, MAX_LABEL_BYTES).as_bytes().to_vec();
        let state = State::Code { pairing, share, label, proofs: VecDeque::new(), max_offers: MAX_OFFERS };
        let mut join = Self::new(identity, state, now);
        join.datagram = Datagram::Hello { attempt: join.attempt, number, share }.encode();
        join
    }

    /// Lets whoever answers guess the code once, and not a few times: where nobody has said that the code is that address's. A sharer that
    /// is started again meanwhile is not answered either.
    #[must_use]
    pub fn with_one_offer(mut self) -> Self {
        if let State::Code { max_offers, .. } = &mut self.state {
            *max_offers = 1;
        }
        self
    }

    /// Begins to come back to a share. `None`, if what was kept holds no keys.
    pub fn as_member(membership: &Membership, now: Instant) -> Option<Self> {
        let Membership { member, identity, sharer } = membership;
        let state = State::Member { member: *member, sharer: *sharer, noise: None, sent: 0 };
        let mut join = Self::new(identity.clone(), state, now);
        join.begin_return().map(|()| join)
    }

    fn new(identity: Identity, state: State, now: Instant) -> Self {
        let (attempt, datagram, pause) = (crate::random(), Vec::new(), FIRST_PAUSE);
        Self { attempt, identity, state, datagram, next: now, pause, refused: None, result: None }
    }

    /// Begins a handshake among members.
    fn begin_return(&mut self) -> Option<()> {
        let State::Member { member, sharer, noise, sent } = &mut self.state else { return None };
        let attempt = crate::random();
        let mut started = Handshake::among_members(&self.identity, *sharer, &attempt);
        let mut handshake = Vec::new();
        started.write(&[], &mut handshake)?;
        self.datagram = Datagram::Return { attempt, member: *member, handshake: &handshake }.encode();
        (*noise, *sent, self.attempt) = (Some(Box::new(started)), 0, attempt);
        Some(())
    }

    /// Takes a datagram of the sharer's; others change nothing.
    pub fn handle_input(&mut self, now: Instant, datagram: &[u8]) {
        match Datagram::decode(datagram) {
            Some(Datagram::Offer { attempt, cookie, share }) if attempt == self.attempt => {
                self.prove(now, cookie, &share);
            }
            Some(Datagram::Welcome { attempt, handshake }) if attempt == self.attempt => {
                self.enter(handshake)
            }
            Some(Datagram::Refusal { attempt, reason }) if attempt == self.attempt => {
                self.note_refusal(now, reason);
            }
            _ => {}
        }
    }

    /// Returns the datagram to send now, if one is due.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<&[u8]> {
        if now < self.next || matches!(self.state, State::Done) {
            return None;
        }
        if let State::Member { sent, .. } = &mut self.state {
            *sent += 1;
            if *sent > RETURN_COUNT {
                self.begin_return()?;
            }
        }
        self.next = now + self.pause;
        self.pause = (self.pause * 3 / 2).min(MAX_PAUSE);
        Some(&self.datagram)
    }

    /// Returns when the next datagram is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        (!matches!(self.state, State::Done)).then_some(self.next)
    }

    /// Returns what came of it, once.
    pub fn poll_result(&mut self) -> Option<Result<Joined, Refusal>> {
        self.result.take()
    }

    #[cfg(test)]
    pub(crate) const fn attempt(&self) -> Attempt {
        self.attempt
    }

    #[cfg(test)]
    pub(crate) fn proof_count(&self) -> usize {
        if let State::Code { proofs, .. } = &self.state { proofs.len() } else { 0 }
    }

    /// Shows that the code is known here, without saying it. A share that comes again brings another cookie.
    fn prove(&mut self, now: Instant, cookie: Cookie, theirs: &Share) {
        let State::Code { pairing, share, label, proofs, max_offers } = &mut self.state else { return };
        if proofs.back().is_some_and(|proof| (proof.theirs, proof.cookie) == (*theirs, cookie)) {
            return;
        }
        let known = proofs.iter().position(|proof| proof.theirs == *theirs);
        match known.and_then(|at| proofs.remove(at)) {
            Some(proof) => proofs.push_back(Proof { cookie, ..proof }),
            None => {
                let is_full = proofs.len() == *max_offers;
                if is_full && proofs.iter().any(|proof| now < proof.made + OFFER_TIME) {
                    return;
                }
                let Some(key) = pairing.finish(theirs) else { return };
                let mut noise = Handshake::with_code(&key, &self.attempt);
                let mut handshake = Vec::new();
                let payload = [&self.identity.public().0[..], label].concat();
                if noise.write(&payload, &mut handshake).is_none() {
                    return;
                }
                if is_full {
                    proofs.pop_front();
                }
                let (theirs, noise) = (*theirs, Some(Box::new(noise)));
                proofs.push_back(Proof { theirs, cookie, handshake, noise, made: now });
            }
        }
        let Some(Proof { handshake, .. }) = proofs.back() else { return };
        let (attempt, number, share) = (self.attempt, pairing.number(), *share);
        self.datagram = Datagram::Proof { attempt, number, cookie, share, handshake }.encode();
        (self.next, self.pause, self.refused) = (now, FIRST_PAUSE, None);
    }

    /// Ends the handshake.
    fn enter(&mut self, handshake: &[u8]) {
        let (noises, expected) = match &mut self.state {
            State::Code { proofs, .. } => (proofs.iter_mut().map(|proof| &mut proof.noise).collect(), None),
            State::Member { noise, sharer, .. } => (vec![noise], Some(*sharer)),
            State::Done => return,
        };
        for noise in noises {
            let Some(mut started) = noise.take() else { continue };
            let Some(payload) = started.read(handshake) else {
                // Forged, damaged, or of another proof: the true one may still come, and is the same.
                *noise = Some(started);
                continue;
            };
            let Some((session, member, key, remaining, title)) = parse(&payload) else { return };
            if expected.is_some_and(|expected| expected != key) {
                return;
            }
            if session == SessionId::NONE {
                return self.end(Err(Refusal::Ended));
            }
            let Some(keys) = started.finish() else { return };
            let session = Session::new(session, keys);
            let membership = Membership { member, identity: self.identity.clone(), sharer: key };
            return self.end(Ok(Joined { session, membership, remaining, title }));
        }
    }

    /// Anybody who sees datagrams can send a refusal, unless a handshake carries it: it is asked again, until it is refused again.
    fn note_refusal(&mut self, now: Instant, reason: Refusal) {
        let time = match self.state {
            State::Code { .. } => REFUSED_TIME,
            State::Member { .. } => MEMBER_REFUSED_TIME,
            State::Done => return,
        };
        if reason == Refusal::Ended {
            // That is said in a handshake.
            return;
        }
        let first = *self.refused.get_or_insert(now);
        if now.saturating_duration_since(first) >= time {
            self.end(Err(reason));
        }
    }

    fn end(&mut self, result: Result<Joined, Refusal>) {
        self.state = State::Done;
        self.result = Some(result);
    }
}

/// Reads what a welcome says.
fn parse(payload: &[u8]) -> Option<(SessionId, MemberId, PublicKey, Duration, String)> {
    let (&session, rest) = payload.split_first_chunk()?;
    let (&member, rest) = rest.split_first_chunk()?;
    let (&key, rest) = rest.split_first_chunk()?;
    let (&remaining, title) = rest.split_first_chunk()?;
    let remaining = Duration::from_millis(u64::from_be_bytes(remaining));
    let title = String::from_utf8_lossy(title.get(..MAX_LABEL_BYTES).unwrap_or(title)).into_owned();
    Some((SessionId(session), MemberId(member), PublicKey(key), remaining, title))
}
