//! The sharer's end: codes, members, and their sessions.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use zeroize::Zeroizing;

use crate::{
    answered::{Answered, GreetingId},
    code::Code,
    datagram::{Attempt, Cookie, Datagram, Refusal},
    ids::{HEAD_BYTES, MemberId, SessionId},
    noise::{Handshake, Identity, PublicKey},
    pairing::{Share, answer},
    session::{Control, Opened, Session, millis},
};

/// Somebody who may read, or may once the code was used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Names it.
    pub id: MemberId,
    /// Until when it may read.
    pub until: Instant,
    /// The code that makes somebody this member. Once there is a [`key`](Self::key), only its owner may use it again, until a session
    /// shows that the answer has arrived.
    pub code: Option<Code>,
    /// By which it is known since a code was used.
    pub key: Option<PublicKey>,
    /// What it calls itself: bytes of a stranger, at most [`MAX_LABEL_BYTES`].
    pub label: Vec<u8>,
    /// Codes that wrong guesses have withdrawn.
    pub withdrawn: u32,
}

/// Longest label of a member and longest title of a share, in bytes.
pub const MAX_LABEL_BYTES: usize = 64;

/// Wrong guesses that withdraw a code.
const MAX_WRONG_GUESSES: u32 = 3;

/// Codes of one member that are replaced when they are withdrawn: 30 guesses of four million.
const MAX_WITHDRAWN: u32 = 10;

/// The largest number of a first code. It is drawn, so that two shares on one network rarely have codes with the same number.
const MAX_FIRST_NUMBER: u16 = 99;

/// How late a wrong guess is answered.
const LATE: Duration = Duration::from_secs(1);

/// How long copies of a wrong guess that does not count are answered as it was.
const VAIN_TIME: Duration = Duration::from_secs(10);

/// Wrong guesses whose answers wait; further ones are not answered.
const MAX_LATE: usize = 64;

/// Handshakes a second for which keys are computed, of each kind: all of them are a tenth of a slow processor. Further ones are dropped, and
/// tried again.
const MAX_HANDSHAKES: u32 = 80;

/// Sessions of one member. Where there are as many, one that is silent ends for another, and nobody gets one while none is:
/// commands that run at once do not end each other's sessions.
const MAX_SESSIONS: usize = 128;

/// How long a session is silent until it may end for another one.
const SILENT: Duration = Duration::from_secs(3);

/// The same for a session that was not used yet, which takes a round trip.
const UNUSED: Duration = Duration::from_secs(2);

/// When what is said about a session is said again, after the first time: a fade takes 100 ms, and nobody answers it.
const AGAIN: [Duration; 5] = [
    Duration::from_millis(60),
    Duration::from_millis(120),
    Duration::from_millis(240),
    Duration::from_millis(480),
    Duration::from_millis(900),
];

/// How long a code that is used up is still good for who has used it: commands that were begun at the same time.
const SPENT: Duration = Duration::from_secs(10);

/// How long a cookie is valid, at least.
const COOKIE_TIME: Duration = Duration::from_secs(30);

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub address: SocketAddr,
    /// The whole datagram.
    pub bytes: Vec<u8>,
}

/// What the sharer should learn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Somebody has used a code.
    Joined(MemberId, SocketAddr),
    /// Wrong guesses have withdrawn a code; the member has another one, unless that has happened too often.
    Withdrawn(MemberId),
    /// The time of a member is over.
    Ended(MemberId),
}

/// A message of a member, and the session in which the reply travels.
#[derive(Debug)]
pub struct Call {
    /// Who sent it.
    pub member: MemberId,
    /// Its session.
    pub session: Arc<Session>,
    /// Where its welcome was received, which the first message of a session proves. Later ones may come from any address, which may be
    /// forged.
    pub validated: Option<IpAddr>,
}

/// Codes, members and sessions of one share, as a machine.
///
/// - Commands: [`invite`](Self::invite), [`restore`](Self::restore), [`extend`](Self::extend), [`end`](Self::end).
/// - Input: [`handle_input`](Self::handle_input), [`handle_timeout`](Self::handle_timeout).
/// - Output: [`poll_transmit`](Self::poll_transmit), [`poll_event`](Self::poll_event), [`poll_timeout`](Self::poll_timeout).
#[derive(Debug)]
pub struct Sharer {
    identity: Identity,
    title: String,
    secret: Zeroizing<[u8; 32]>,
    epoch: Instant,
    members: BTreeMap<MemberId, Held>,
    sessions: BTreeMap<SessionId, Live>,
    late: VecDeque<(Instant, Transmit)>,
    /// What is said again to a member, and when.
    again: Vec<(Instant, MemberId, Transmit)>,
    /// Wrong guesses that were counted, and when each is answered: at most 30 for each member.
    guesses: BTreeMap<GreetingId, Instant>,
    /// The same of guesses that do not count, as somebody has used the code: for a while.
    vain: BTreeMap<GreetingId, Instant>,
    transmits: VecDeque<Transmit>,
    events: VecDeque<Event>,
    /// Handshakes in the second since.
    handshakes: BTreeMap<Greeter, (Instant, u32)>,
    /// Those of them with a code that one address has begun.
    of_addresses: BTreeMap<(Greeter, IpAddr), u32>,
    next_number: u16,
}

/// Who begins a handshake. Many of one kind leave those of the others their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Greeter {
    /// Who may have another address than it says.
    Anybody,
    /// Who receives at its address, and proves to have a code.
    Validated,
    /// Who names a member.
    Member,
}

/// A member, and what was said to it.
#[derive(Debug)]
struct Held {
    member: Member,
    has_ended: bool,
    wrong_guesses: u32,
    /// When its code is spent.
    spent: Option<Instant>,
    /// The proof that made it a member, and the answer, which may be lost.
    welcome: Option<(GreetingId, Vec<u8>)>,
    /// How it came back.
    returns: Answered,
}

/// A session that exists.
#[derive(Debug)]
struct Live {
    member: MemberId,
    session: Arc<Session>,
    /// Where it was heard from, and when; `None` until it is used.
    heard: Option<(Instant, SocketAddr)>,
    opened: Instant,
    /// Where its welcome was sent; `None` once copies of it went elsewhere.
    welcomed: Option<IpAddr>,
    /// What it was opened for.
    greeting: GreetingId,
}

impl Live {
    /// Since when nothing is heard in it.
    fn silent_since(&self) -> Instant {
        self.heard.map_or(self.opened, |(at, _)| at)
    }

    fn may_end(&self, now: Instant) -> bool {
        let silent = if self.heard.is_some() { SILENT } else { UNUSED };
        now.saturating_duration_since(self.silent_since()) >= silent
    }
}

impl Sharer {
    /// Creates a share without members. Its title is shown to those who come.
    pub fn new(identity: Identity, title: &str, now: Instant) -> Self {
        Self {
            identity,
            title: title.chars().take(MAX_LABEL_BYTES / 4).collect(),
            secret: Zeroizing::new(crate::random()),
            epoch: now,
            members: BTreeMap::new(),
            sessions: BTreeMap::new(),
            late: VecDeque::new(),
            again: Vec::new(),
            guesses: BTreeMap::new(),
            vain: BTreeMap::new(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            handshakes: BTreeMap::new(),
            of_addresses: BTreeMap::new(),
            next_number: 1 + u16::from_be_bytes(crate::random()) % MAX_FIRST_NUMBER,
        }
    }

    /// Makes a code that makes whoever uses it a member, until then.
    pub fn invite(&mut self, until: Instant) -> MemberId {
        let id = MemberId(crate::random());
        let code = Some(self.draw_code());
        self.restore(Member { id, until, code, key: None, label: Vec::new(), withdrawn: 0 });
        id
    }

    /// Takes back a member that an earlier run has had.
    pub fn restore(&mut self, mut member: Member) {
        // Where somebody was given its number since, the code would be that person's.
        let is_taken = member.code.as_ref().is_some_and(|code| self.code(code.number()).is_some());
        if is_taken {
            member.code = Some(self.draw_code());
        }
        let held = Held {
            member,
            has_ended: false,
            wrong_guesses: 0,
            spent: None,
            welcome: None,
            returns: Answered::default(),
        };
        self.members.insert(held.member.id, held);
    }

    /// Lets a member read until another time. False, if there is none, or its time is over.
    pub fn extend(&mut self, id: MemberId, until: Instant, now: Instant) -> bool {
        let Some(held) = self.members.get_mut(&id).filter(|held| !held.has_ended) else { return false };
        held.member.until = until;
        let control = Control::Remaining(until.saturating_duration_since(now));
        self.say(id, control, now);
        true
    }

    /// Ends all that a member may. False, if there is none, or its time was over.
    pub fn end(&mut self, id: MemberId, now: Instant) -> bool {
        let Some(held) = self.members.get_mut(&id).filter(|held| !held.has_ended) else { return false };
        held.has_ended = true;
        held.member.code = None;
        held.welcome = None;
        self.say(id, Control::Goodbye, now);
        self.sessions.retain(|_, live| live.member != id);
        self.events.push_back(Event::Ended(id));
        true
    }

    /// Returns who may read now, or once the code was used.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values().filter(|held| !held.has_ended).map(|held| &held.member)
    }

    /// Returns the public key by which members know this share.
    pub const fn key(&self) -> PublicKey {
        self.identity.public()
    }

    /// Returns from where a member was heard last, and when.
    pub fn heard(&self, id: MemberId) -> Option<(Instant, SocketAddr)> {
        self.sessions.values().filter(|live| live.member == id).filter_map(|live| live.heard).max()
    }

    /// Takes a datagram. A message of a member is left in `message`, to be answered in its session to this address.
    pub fn handle_input(
        &mut self,
        now: Instant,
        address: SocketAddr,
        datagram: &[u8],
        message: &mut Vec<u8>,
    ) -> Option<Call> {
        self.handle_timeout(now);
        let id = SessionId::of(datagram)?;
        if id == SessionId::NONE {
            let reply = self.greet(now, address, Datagram::decode(datagram)?)?;
            self.transmits.push_back(Transmit { address, bytes: reply });
            return None;
        }
        let Some(live) = self.sessions.get_mut(&id) else {
            let head = *datagram.first_chunk::<HEAD_BYTES>()?;
            self.transmits.push_back(Transmit { address, bytes: Datagram::Lost { head }.encode() });
            return None;
        };
        let opened = live.session.open(datagram, message)?;
        let was_used = live.heard.replace((now, address)).is_some();
        let is_message = opened == Opened::Message;
        let validated = live.welcomed.take_if(|_| is_message);
        let call = Call { member: live.member, session: Arc::clone(&live.session), validated };
        if !was_used && let Some(held) = self.members.get_mut(&call.member) {
            // It has arrived who the member is: soon the code is spent.
            held.spent.get_or_insert(now + SPENT);
            held.returns.settle(live.greeting);
        }
        is_message.then_some(call)
    }

    /// Ends what is over, and answers wrong guesses.
    pub fn handle_timeout(&mut self, now: Instant) {
        let is_over = |held: &&Held| !held.has_ended && held.member.until <= now;
        let over: Vec<_> = self.members.values().filter(is_over).map(|held| held.member.id).collect();
        over.into_iter().for_each(|id| _ = self.end(id, now));
        for held in self.members.values_mut() {
            if held.spent.take_if(|spent| *spent <= now).is_some() {
                held.member.code = None;
            }
        }
        while self.late.front().is_some_and(|(due, _)| *due <= now) {
            self.transmits.extend(self.late.pop_front().map(|(_, transmit)| transmit));
        }
        let due = self.again.extract_if(.., |(due, ..)| *due <= now);
        self.transmits.extend(due.map(|(.., transmit)| transmit));
    }

    /// Returns the next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// Returns what has happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns when [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let ends = self.members().map(|member| member.until);
        let again = self.again.iter().map(|(due, ..)| *due);
        ends.chain(self.late.front().map(|(due, _)| *due)).chain(again).min()
    }

    fn draw_code(&mut self) -> Code {
        // An earlier run may have given somebody this number.
        while self.code(self.next_number).is_some() {
            self.next_number = self.next_number.wrapping_add(1);
        }
        let code = Code::draw(self.next_number);
        self.next_number = self.next_number.wrapping_add(1);
        code
    }

    /// Says something to wherever a member was heard from, several times, in place of what was said before.
    fn say(&mut self, id: MemberId, control: Control, now: Instant) {
        self.again.retain(|(_, member, _)| *member != id);
        for live in self.sessions.values().filter(|live| live.member == id) {
            let Some((_, address)) = live.heard else { continue };
            let sealed = |control| {
                let mut bytes = Vec::new();
                live.session.seal_control(control, &mut bytes);
                Transmit { address, bytes }
            };
            self.transmits.push_back(sealed(control));
            self.again.extend(AGAIN.map(|pause| (now + pause, id, sealed(control.after(pause)))));
        }
    }

    /// Answers who has no session yet.
    fn greet(&mut self, now: Instant, address: SocketAddr, datagram: Datagram<'_>) -> Option<Vec<u8>> {
        match datagram {
            Datagram::Hello { attempt, number, share } => self.offer(now, address, attempt, number, &share),
            Datagram::Proof { attempt, number, cookie, share, handshake } => {
                let greeting = GreetingId::of(&attempt, number, &share, handshake);
                let refusal = Datagram::Refusal { attempt, reason: Refusal::WrongCode }.encode();
                if let Some(again) = self.answer_again(now, greeting, &refusal) {
                    self.note_copy(greeting, address);
                    return again;
                }
                let periods = [self.period(now), self.period(now).wrapping_sub(1)];
                if !periods.iter().any(|&period| self.cookie(&attempt, address, period) == cookie) {
                    // The cookie is too old, or was for another address or an earlier run.
                    return self.offer(now, address, attempt, number, &share);
                }
                self.check_proof(now, address, (attempt, number, &share), handshake)
            }
            Datagram::Return { attempt, member, handshake } => {
                self.take_back(now, address, attempt, (member, handshake))
            }
            Datagram::Offer { .. }
            | Datagram::Welcome { .. }
            | Datagram::Refusal { .. }
            | Datagram::Lost { .. } => None,
        }
    }

    /// Answers who has a code: the other half of the agreement, whether the words are right or not. Nothing is kept.
    fn offer(
        &mut self,
        now: Instant,
        address: SocketAddr,
        attempt: Attempt,
        number: u16,
        share: &Share,
    ) -> Option<Vec<u8>> {
        let cookie = self.cookie(&attempt, address, self.period(now));
        // Who has used the code may not have heard the answer.
        let Some(code) = self.code(number) else {
            let reason = Refusal::WrongCode;
            return Some(Datagram::Refusal { attempt, reason }.encode());
        };
        let code = code.clone();
        self.may_compute(now, Greeter::Anybody, address).then(|| {
            let (share, _) = answer(&code, &self.secret, share);
            Datagram::Offer { attempt, cookie, share }.encode()
        })
    }

    /// Answers a copy of a proof, whatever cookie it brings: as the proof was answered, or not yet. `None`, if it is none.
    fn answer_again(&self, now: Instant, greeting: GreetingId, refusal: &[u8]) -> Option<Option<Vec<u8>>> {
        if let Some(&due) = self.guesses.get(&greeting).or_else(|| self.vain.get(&greeting)) {
            return Some((due <= now).then(|| refusal.to_vec()));
        }
        let mut welcomes = self.members.values().filter_map(|held| held.welcome.as_ref());
        welcomes.find(|(welcomed, _)| *welcomed == greeting).map(|(_, welcome)| Some(welcome.clone()))
    }

    /// Makes a member of who proves to have the code. A wrong guess is answered late, and the third withdraws the code.
    fn check_proof(
        &mut self,
        now: Instant,
        address: SocketAddr,
        (attempt, number, share): (Attempt, u16, &Share),
        handshake: &[u8],
    ) -> Option<Vec<u8>> {
        let greeting = GreetingId::of(&attempt, number, share, handshake);
        let refusal = Datagram::Refusal { attempt, reason: Refusal::WrongCode }.encode();
        let id = self
            .members()
            .find(|it| it.code.as_ref().is_some_and(|code| code.number() == number))
            .map(|it| it.id);
        let Some(id) = id else { return Some(refusal) };
        if !self.may_compute(now, Greeter::Validated, address) {
            return None;
        }
        let Member { code, key: user, .. } = self.members.get(&id)?.member.clone();
        let (_, key) = answer(&code?, &self.secret, share);
        let proven = key.and_then(|key| {
            let mut noise = Handshake::answer_code(&key, &attempt);
            let payload = noise.read(handshake)?;
            let (&key, label) = payload.split_first_chunk()?;
            let is_user = user.is_none_or(|user| user == PublicKey(key));
            (is_user && label.len() <= MAX_LABEL_BYTES).then(|| (noise, PublicKey(key), label.to_vec()))
        });
        let Some((noise, key, label)) = proven else {
            let due = now + LATE;
            if user.is_none() {
                self.guesses.insert(greeting, due);
            } else {
                self.vain.retain(|_, due| now < *due + VAIN_TIME);
                self.vain.insert(greeting, due);
            }
            self.note_wrong_guess(now, id, Transmit { address, bytes: refusal });
            return None;
        };
        if !self.has_room(now, id) {
            return None;
        }
        self.make_room(now, id);
        let session = SessionId::draw();
        let welcome = self.welcome((now, address), (attempt, greeting), noise, id, session)?;
        let held = self.members.get_mut(&id)?;
        held.member.key = Some(key);
        held.member.label = label;
        held.welcome = Some((greeting, welcome.clone()));
        if user.is_none() {
            self.events.push_back(Event::Joined(id, address));
        }
        Some(welcome)
    }

    /// Opens a session for who is a member already.
    fn take_back(
        &mut self,
        now: Instant,
        address: SocketAddr,
        attempt: Attempt,
        (id, handshake): (MemberId, &[u8]),
    ) -> Option<Vec<u8>> {
        let Some(key) = self.members.get(&id).and_then(|held| held.member.key) else {
            return Some(Datagram::Refusal { attempt, reason: Refusal::Unknown }.encode());
        };
        let greeting = GreetingId::of(&attempt, 0, &id.0, handshake);
        if let Some(again) = self.members.get(&id).and_then(|held| held.returns.of(greeting)) {
            self.note_copy(greeting, address);
            return again;
        }
        let has_ended = self.members.get(&id).is_none_or(|held| held.has_ended);
        if !has_ended && !self.has_room(now, id) || !self.may_compute(now, Greeter::Member, address) {
            return None;
        }
        let mut noise = Handshake::answer_member(&self.identity, key, &attempt);
        noise.read(handshake)?;
        let session = if has_ended {
            SessionId::NONE
        } else {
            self.make_room(now, id);
            SessionId::draw()
        };
        let welcome = self.welcome((now, address), (attempt, greeting), noise, id, session)?;
        self.members.get_mut(&id)?.returns.enter(greeting, welcome.clone());
        Some(welcome)
    }

    /// Ends a handshake: says which session it is, and keeps its keys. [`SessionId::NONE`] says that there is none any more.
    fn welcome(
        &mut self,
        (now, address): (Instant, SocketAddr),
        (attempt, greeting): (Attempt, GreetingId),
        mut noise: Handshake,
        id: MemberId,
        session: SessionId,
    ) -> Option<Vec<u8>> {
        let remaining = self.members.get(&id)?.member.until.saturating_duration_since(now);
        let payload = [
            &session.0[..],
            &id.0,
            &self.identity.public().0,
            &millis(remaining).to_be_bytes(),
            self.title.as_bytes(),
        ];
        let mut handshake = Vec::new();
        noise.write(&payload.concat(), &mut handshake)?;
        if session != SessionId::NONE {
            let session = Arc::new(Session::new(session, noise.finish()?));
            let welcomed = Some(address.ip());
            let live = Live { member: id, session, heard: None, opened: now, welcomed, greeting };
            self.sessions.insert(live.session.id(), live);
        }
        Some(Datagram::Welcome { attempt, handshake: &handshake }.encode())
    }

    /// Notes that a copy of a greeting is answered.
    fn note_copy(&mut self, greeting: GreetingId, address: SocketAddr) {
        let mut live = self.sessions.values_mut().filter(|live| live.greeting == greeting);
        if let Some(live) = live.find(|live| live.welcomed != Some(address.ip())) {
            live.welcomed = None;
        }
    }

    /// Whether a member may have another session.
    fn has_room(&self, now: Instant, member: MemberId) -> bool {
        self.of_member(member).count() < MAX_SESSIONS
            || self.of_member(member).any(|(_, live)| live.may_end(now))
    }

    /// Ends the session of a member that is silent for longest, if there are as many as there may be.
    fn make_room(&mut self, now: Instant, member: MemberId) {
        if self.of_member(member).count() < MAX_SESSIONS {
            return;
        }
        let may_end = self.of_member(member).filter(|(_, live)| live.may_end(now));
        let silent = may_end.min_by_key(|(_, live)| live.silent_since());
        let Some((id, greeting)) = silent.map(|(id, live)| (*id, live.greeting)) else { return };
        self.sessions.remove(&id);
        if let Some(held) = self.members.get_mut(&member) {
            held.returns.settle(greeting);
        }
    }

    fn of_member(&self, member: MemberId) -> impl Iterator<Item = (&SessionId, &Live)> {
        self.sessions.iter().filter(move |(_, live)| live.member == member)
    }

    fn note_wrong_guess(&mut self, now: Instant, id: MemberId, refusal: Transmit) {
        if self.late.len() < MAX_LATE {
            self.late.push_back((now + LATE, refusal));
        }
        // A code that somebody has used helps nobody else.
        let Some(held) = self.members.get_mut(&id).filter(|held| held.member.key.is_none()) else { return };
        held.wrong_guesses += 1;
        if held.wrong_guesses < MAX_WRONG_GUESSES {
            return;
        }
        held.wrong_guesses = 0;
        held.member.withdrawn += 1;
        held.member.code = None;
        if held.member.withdrawn < MAX_WITHDRAWN {
            let code = self.draw_code();
            self.members.entry(id).and_modify(|held| held.member.code = Some(code));
        }
        self.events.push_back(Event::Withdrawn(id));
    }

    /// Returns the code with this number.
    fn code(&self, number: u16) -> Option<&Code> {
        self.members().filter_map(|member| member.code.as_ref()).find(|code| code.number() == number)
    }

    /// Whether keys may be computed for one more handshake. Of those with a code, one address leaves others the half.
    fn may_compute(&mut self, now: Instant, greeter: Greeter, address: SocketAddr) -> bool {
        let (since, count) = self.handshakes.entry(greeter).or_insert((now, 0));
        if now.saturating_duration_since(*since) >= Duration::from_secs(1) {
            (*since, *count) = (now, 0);
            self.of_addresses.retain(|(of, _), _| *of != greeter);
        }
        if *count == MAX_HANDSHAKES {
            return false;
        }
        if greeter != Greeter::Member {
            let of_address = self.of_addresses.entry((greeter, address.ip())).or_default();
            if *of_address == MAX_HANDSHAKES / 2 {
                return false;
            }
            *of_address += 1;
        }
        *count += 1;
        true
    }

    fn period(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.epoch).as_secs() / COOKIE_TIME.as_secs()
    }

    /// Returns what only who receives at this address can send back.
    fn cookie(&self, attempt: &Attempt, address: SocketAddr, period: u64) -> Cookie {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(b"nfsw share: cookie").update(attempt).update(&period.to_be_bytes());
        hasher.update(address.to_string().as_bytes());
        *hasher.finalize().as_bytes().first_chunk().expect("it has 32 bytes")
    }
}

#[cfg(test)]
mod tests;
