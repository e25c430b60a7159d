//! The receiver's end: how it becomes a member, and how it comes back.

use std::{
    fmt,
    time::{Duration, Instant},
};

use zeroize::Zeroizing;

use crate::{
    code::Code,
    datagram::{Attempt, Datagram, Refusal},
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
    result: Option<Result<Joined, Refusal>>,
}

enum State {
    /// A hello was sent.
    Hello {
        code: Code,
        share: Share,
        pairing: Option<Pairing>,
        label: Vec<u8>,
    },
    /// A handshake was begun: the other end's key is known, or will be told.
    Handshake {
        noise: Option<Box<Handshake>>,
        sharer: Option<PublicKey>,
    },
    Done,
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
    /// Begins to become a member. The sharer is shown `label`, of which the first [`MAX_LABEL_BYTES`] count.
    pub fn with_code(code: Code, label: &str, now: Instant) -> Self {
        let (pairing, share) = Pairing::begin(&code);
        let number = code.number();
        let mut end = label.len().min(MAX_LABEL_BYTES);
        while !label.is_char_boundary(end) {
            end -= 1;
        }
        let label = label.as_bytes()[..end].to_vec();
        let state = State::Hello { code, share, pairing: Some(pairing), label };
        let mut join = Self::new(Identity::draw(), state, now);
        join.datagram = Datagram::Hello { attempt: join.attempt, number, share }.encode();
        join
    }

    /// Begins to come back to a share. `None`, if what was kept holds no keys.
    pub fn as_member(membership: &Membership, now: Instant) -> Option<Self> {
        let Membership { member, identity, sharer } = membership;
        let state = State::Handshake { noise: None, sharer: Some(*sharer) };
        let mut join = Self::new(identity.clone(), state, now);
        let mut noise = Handshake::among_members(identity, *sharer, &join.attempt);
        let mut handshake = Vec::new();
        noise.write(&[], &mut handshake)?;
        join.datagram =
            Datagram::Return { attempt: join.attempt, member: *member, handshake: &handshake }.encode();
        join.state = State::Handshake { noise: Some(Box::new(noise)), sharer: Some(*sharer) };
        Some(join)
    }

    fn new(identity: Identity, state: State, now: Instant) -> Self {
        let (datagram, pause) = (Vec::new(), FIRST_PAUSE);
        Self { attempt: crate::random(), identity, state, datagram, next: now, pause, result: None }
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
            Some(Datagram::Refusal { attempt, reason })
                if attempt == self.attempt && self.result.is_none() =>
            {
                self.end(Err(reason));
            }
            _ => {}
        }
    }

    /// Returns the datagram to send now, if one is due.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<&[u8]> {
        if now < self.next || matches!(self.state, State::Done) {
            return None;
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

    /// Shows that the code is known here, without saying it.
    fn prove(&mut self, now: Instant, cookie: [u8; 16], theirs: &Share) {
        let State::Hello { code, share, pairing, label } = &mut self.state else { return };
        let Some(key) = pairing.take().and_then(|pairing| pairing.finish(theirs)) else { return };
        let mut noise = Handshake::with_code(&key, &self.attempt);
        let mut handshake = Vec::new();
        let payload = [&self.identity.public().0[..], label].concat();
        if noise.write(&payload, &mut handshake).is_none() {
            return;
        }
        let (attempt, number, share) = (self.attempt, code.number(), *share);
        self.datagram = Datagram::Proof { attempt, number, cookie, share, handshake: &handshake }.encode();
        (self.next, self.pause) = (now, FIRST_PAUSE);
        self.state = State::Handshake { noise: Some(Box::new(noise)), sharer: None };
    }

    /// Ends the handshake.
    fn enter(&mut self, handshake: &[u8]) {
        let State::Handshake { noise, sharer } = &mut self.state else { return };
        let (Some(mut started), expected) = (noise.take(), *sharer) else { return };
        let Some(payload) = started.read(handshake) else {
            // Forged, or damaged: the true one may still come, and is the same.
            *noise = Some(started);
            return;
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
        self.end(Ok(Joined { session, membership, remaining, title }));
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
