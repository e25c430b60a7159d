use std::collections::BTreeSet;

use super::*;
use crate::{Join, Joined, Membership, OVERHEAD_BYTES};

const HOUR: Duration = Duration::from_secs(3600);

fn here() -> SocketAddr {
    "192.168.1.7:5000".parse().unwrap()
}

fn epoch() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch of virtual time")]
    Instant::now()
}

fn sharer(now: Instant) -> Sharer {
    Sharer::new(Identity::draw(), "trip", now)
}

fn code(sharer: &Sharer, id: MemberId) -> Code {
    sharer.members().find(|member| member.id == id).unwrap().code.clone().unwrap()
}

/// Moves datagrams between both ends, without loss, for two seconds.
fn run(
    sharer: &mut Sharer,
    join: &mut Join,
    mut now: Instant,
    from: SocketAddr,
) -> Option<Result<Joined, Refusal>> {
    for _ in 0..200 {
        if let Some(datagram) = join.poll_transmit(now).map(<[u8]>::to_vec) {
            assert!(sharer.handle_input(now, from, &datagram, &mut Vec::new()).is_none());
            while let Some(Transmit { address, bytes }) = sharer.poll_transmit() {
                assert_eq!(address, from);
                assert!(bytes.len() <= 3 * datagram.len(), "{} for {}", bytes.len(), datagram.len());
                join.handle_input(now, &bytes);
            }
        }
        sharer.handle_timeout(now);
        while let Some(Transmit { bytes, .. }) = sharer.poll_transmit() {
            join.handle_input(now, &bytes);
        }
        if let Some(result) = join.poll_result() {
            return Some(result);
        }
        now += Duration::from_millis(10);
    }
    None
}

fn join(sharer: &mut Sharer, code: &Code, now: Instant) -> Option<Result<Joined, Refusal>> {
    join_as(&Identity::draw(), sharer, code, now)
}

/// With keys that may have been shown before.
fn join_as(
    identity: &Identity,
    sharer: &mut Sharer,
    code: &Code,
    now: Instant,
) -> Option<Result<Joined, Refusal>> {
    run(sharer, &mut Join::with_code(code.clone(), identity.clone(), "sophia", now), now, here())
}

fn come_back(sharer: &mut Sharer, membership: &Membership, now: Instant) -> Option<Result<Joined, Refusal>> {
    run(sharer, &mut Join::as_member(membership, now).unwrap(), now, here())
}

/// What the sharer takes of a message that this session sends.
fn call(
    sharer: &mut Sharer,
    session: &Session,
    now: Instant,
    from: SocketAddr,
) -> Option<(MemberId, Vec<u8>)> {
    let (mut datagram, mut message) = (Vec::new(), Vec::new());
    session.seal(b"call", &mut datagram);
    let call = sharer.handle_input(now, from, &datagram, &mut message)?;
    Some((call.member, message))
}

#[test]
fn a_code_makes_one_member_who_comes_back_from_anywhere() {
    let now = epoch();
    let mut sharer = sharer(now);
    let id = sharer.invite(now + HOUR);
    let code = code(&sharer, id);
    let Joined { session, membership, remaining, title } = join(&mut sharer, &code, now).unwrap().unwrap();
    assert_eq!((&title[..], membership.member), ("trip", id));
    assert!(remaining <= HOUR && remaining > HOUR - Duration::from_secs(1));
    assert_eq!(membership.sharer, sharer.key());
    assert_eq!(sharer.poll_event(), Some(Event::Joined(id, here())));
    assert_eq!(sharer.members().next().unwrap().label, b"sophia");
    // It is spent.
    assert_eq!(join(&mut sharer, &code, now).unwrap().unwrap_err(), Refusal::WrongCode);
    // A session belongs to no address.
    for from in ["192.168.1.7:5000", "10.0.0.1:1"] {
        assert_eq!(call(&mut sharer, &session, now, from.parse().unwrap()), Some((id, b"call".to_vec())));
    }
    assert_eq!(sharer.heard(id), Some((now, "10.0.0.1:1".parse().unwrap())));
    // A sharer that was started again knows its members, not its sessions.
    let mut again = Sharer::new(sharer.identity.clone(), "trip", now);
    sharer.members().cloned().for_each(|member| again.restore(member));
    assert_eq!(call(&mut again, &session, now, here()), None);
    let mut lost = Vec::new();
    session.seal(b"call", &mut lost);
    again.handle_input(now, here(), &lost, &mut Vec::new());
    assert!(matches!(
        Datagram::decode(&again.poll_transmit().unwrap().bytes),
        Some(Datagram::Lost { head }) if head[..8] == session.id().0
    ));
    again.transmits.clear();
    let kept = Membership::from_bytes(&membership.to_bytes());
    let back = come_back(&mut again, &kept, now).unwrap().unwrap();
    assert_eq!(call(&mut again, &back.session, now, here()), Some((id, b"call".to_vec())));
}

#[test]
fn a_welcome_that_is_lost_costs_no_code() {
    let now = epoch();
    let mut sharer = sharer(now);
    let id = sharer.invite(now + HOUR);
    let (code, identity) = (code(&sharer, id), Identity::draw());
    let greet = |sharer: &mut Sharer, identity: &Identity| join_as(identity, sharer, &code, now).unwrap();
    // The first command ends before it knows that it was let in; then the sharer is killed, and started again.
    assert!(greet(&mut sharer, &identity).is_ok());
    let mut again = Sharer::new(sharer.identity.clone(), "trip", now);
    sharer.members().cloned().for_each(|member| again.restore(member));
    for sharer in [&mut sharer, &mut again] {
        // The code is that receiver's: others do not get in by it, and cannot take it away.
        for _ in 0..3 {
            assert_eq!(greet(sharer, &Identity::draw()).unwrap_err(), Refusal::WrongCode);
        }
        assert!(sharer.poll_event().is_none_or(|event| event == Event::Joined(id, here())));
        assert_eq!(sharer.poll_event(), None);
        assert!(greet(sharer, &identity).is_ok());
    }
}

#[test]
fn wrong_guesses_of_a_code_that_somebody_has_used_are_forgotten() {
    let now = epoch();
    let mut sharer = sharer(now);
    let id = sharer.invite(now + 100 * HOUR);
    let code = code(&sharer, id);
    assert!(join(&mut sharer, &code, now).unwrap().is_ok());
    for minute in 0..100 {
        let later = now + Duration::from_secs(60 * minute);
        assert_eq!(join(&mut sharer, &code, later).unwrap().unwrap_err(), Refusal::WrongCode);
    }
    assert_eq!((sharer.guesses.len(), sharer.vain.len(), sharer.members[&id].wrong_guesses), (0, 1, 0));
}

#[test]
fn who_has_used_a_code_uses_it_again_until_a_session_is_used() {
    let now = epoch();
    let mut sharer = sharer(now);
    let id = sharer.invite(now + HOUR);
    let (code, identity) = (code(&sharer, id), Identity::draw());
    let greet = |sharer: &mut Sharer, now| join_as(&identity, sharer, &code, now).unwrap();
    let first = greet(&mut sharer, now).unwrap();
    let second = greet(&mut sharer, now).unwrap();
    assert_eq!(second.membership.member, id);
    assert_eq!(sharer.poll_event(), Some(Event::Joined(id, here())));
    assert_eq!(sharer.poll_event(), None, "it has joined once");
    for joined in [second, first] {
        assert_eq!(call(&mut sharer, &joined.session, now, here()), Some((id, b"call".to_vec())));
    }
    // Commands that were begun at the same time show it once more.
    assert!(greet(&mut sharer, now).is_ok());
    assert_eq!(greet(&mut sharer, now + SPENT).unwrap_err(), Refusal::WrongCode);
    assert_eq!(sharer.members().next().unwrap().withdrawn, 0);
}

#[test]
fn only_who_receives_a_welcome_shows_where() {
    let now = epoch();
    let mut sharer = sharer(now);
    let id = sharer.invite(now + HOUR);
    let code = code(&sharer, id);
    let membership = join(&mut sharer, &code, now).unwrap().unwrap().membership;
    let [own, others]: [SocketAddr; 2] = [here(), "10.0.0.1:1".parse().unwrap()];
    // Where copies of the greeting claim to come from, and from where the first two messages do.
    for (greetings, messages, expected) in [
        (vec![own], [own, others], Some(own)),
        // It is the welcome that shows it, whatever the session is used from.
        (vec![own], [others, own], Some(own)),
        (vec![own, own], [own, others], Some(own)),
        (vec![others, own], [own, others], None),
        (vec![own, others], [others, own], None),
    ] {
        let mut back = Join::as_member(&membership, now).unwrap();
        let greeting = back.poll_transmit(now).unwrap().to_vec();
        let mut joined = None;
        for from in &greetings {
            assert!(sharer.handle_input(now, *from, &greeting, &mut Vec::new()).is_none());
            back.handle_input(now, &sharer.poll_transmit().unwrap().bytes);
            joined = joined.or_else(|| back.poll_result());
        }
        let session = joined.unwrap().unwrap().session;
        let mut validated = |from| {
            let (mut datagram, mut message) = (Vec::new(), Vec::new());
            session.seal(b"call", &mut datagram);
            sharer.handle_input(now, from, &datagram, &mut message).unwrap().validated
        };
        let shown = messages.map(&mut validated);
        assert_eq!(shown, [expected.map(|it| it.ip()), None], "{greetings:?} {messages:?}");
    }
}

#[test]
fn no_two_people_have_codes_with_the_same_number() {
    let now = epoch();
    let from_one = || Sharer { next_number: 1, ..sharer(now) };
    let mut first = from_one();
    let kept: Vec<Member> = [1, 2, 3]
        .map(|_| first.invite(now + HOUR))
        .iter()
        .map(|id| first.members[id].member.clone())
        .collect();
    let mut again = from_one();
    let new = again.invite(now + HOUR);
    kept.iter().skip(1).for_each(|member| again.restore(member.clone()));
    let newer = again.invite(now + HOUR);
    let mut numbers: Vec<u16> = again.members().map(|it| it.code.as_ref().unwrap().number()).collect();
    numbers.sort();
    assert_eq!(numbers, [1, 2, 3, 4]);
    for member in &kept[1..] {
        assert_eq!(code(&again, member.id), *member.code.as_ref().unwrap(), "it was read to somebody");
    }
    again.restore(kept[0].clone());
    assert_eq!([new, newer].map(|id| code(&again, id).number()), [1, 4]);
    assert_eq!(code(&again, kept[0].id).number(), 5, "another one: its number is taken");
}

#[test]
fn two_shares_rarely_have_codes_with_the_same_number() {
    let now = epoch();
    let numbers: BTreeSet<u16> = (0..200)
        .map(|_| {
            let mut sharer = sharer(now);
            let id = sharer.invite(now + HOUR);
            code(&sharer, id).number()
        })
        .collect();
    // Of 200 draws from 99, 86 are different on average, with a standard error of 3.
    assert!(numbers.iter().all(|number| (1..=99).contains(number)) && numbers.len() > 60, "{numbers:?}");
}

#[test]
fn an_answer_that_is_lost_is_given_again() {
    let now = epoch();
    let mut sharer = sharer(now);
    let id = sharer.invite(now + HOUR);
    let mut join = Join::with_code(code(&sharer, id), Identity::draw(), "", now);
    let mut received = 0;
    let (mut time, mut result) = (now, None);
    while result.is_none() {
        if let Some(datagram) = join.poll_transmit(time).map(<[u8]>::to_vec) {
            sharer.handle_input(time, here(), &datagram, &mut Vec::new());
        }
        while let Some(transmit) = sharer.poll_transmit() {
            // Two of three are lost.
            received += 1;
            if received % 3 == 0 {
                join.handle_input(time, &transmit.bytes);
            }
        }
        result = join.poll_result();
        time += Duration::from_millis(10);
        assert!(time < now + Duration::from_secs(10));
    }
    let joined = result.unwrap().unwrap();
    assert!(call(&mut sharer, &joined.session, time, here()).is_some());
    assert_eq!(sharer.members().count(), 1);
}

#[test]
fn three_wrong_guesses_withdraw_a_code_and_are_answered_late() {
    let now = epoch();
    let mut sharer = sharer(now);
    let (id, other) = (sharer.invite(now + HOUR), sharer.invite(now + HOUR));
    let (first, others) = (code(&sharer, id), code(&sharer, other));
    let mut time = now;
    for guess in 1..=MAX_WRONG_GUESSES * MAX_WITHDRAWN {
        let number = sharer.members().find(|it| it.id == id).unwrap().code.as_ref().unwrap().number();
        let wrong: Code = format!("{number}-zoo-zone").parse().unwrap();
        let mut guesser = Join::with_code(wrong, Identity::draw(), "", time);
        let hello = guesser.poll_transmit(time).unwrap().to_vec();
        sharer.handle_input(time, here(), &hello, &mut Vec::new());
        guesser.handle_input(time, &sharer.poll_transmit().unwrap().bytes);
        let proof = guesser.poll_transmit(time).unwrap().to_vec();
        sharer.handle_input(time, here(), &proof, &mut Vec::new());
        assert_eq!(sharer.poll_transmit(), None, "not before a second is over");
        time += LATE;
        assert_eq!(sharer.poll_timeout(), Some(time));
        sharer.handle_timeout(time);
        let refusal = sharer.poll_transmit().unwrap().bytes;
        guesser.handle_input(time, &refusal);
        assert!(guesser.poll_result().is_none(), "anybody may have sent it");
        guesser.handle_input(time + LATE / 2, &refusal);
        assert_eq!(guesser.poll_result().unwrap().unwrap_err(), Refusal::WrongCode);
        let withdrawn = (guess % MAX_WRONG_GUESSES == 0).then_some(Event::Withdrawn(id));
        assert_eq!(sharer.poll_event(), withdrawn, "guess {guess}");
    }
    // Who guesses for ever gets no further code; others keep theirs.
    assert_eq!(sharer.members().find(|it| it.id == id).unwrap().code, None);
    assert_eq!(join(&mut sharer, &first, time).unwrap().unwrap_err(), Refusal::WrongCode);
    assert!(join(&mut sharer, &others, time).unwrap().is_ok());
}

#[test]
fn a_guess_from_an_address_that_hears_nothing_is_none() {
    let now = epoch();
    let mut sharer = sharer(now);
    let id = sharer.invite(now + HOUR);
    let first = code(&sharer, id);
    for forged in 0..1000_u16 {
        let attempt = crate::random();
        let proof = Datagram::Proof {
            attempt,
            number: first.number(),
            cookie: crate::random(),
            share: [9; 33],
            handshake: &[0; 80],
        };
        let from = SocketAddr::from(([10, 1, (forged >> 8) as u8, forged as u8], 9));
        let proof = proof.encode();
        sharer.handle_input(now, from, &proof, &mut Vec::new());
        // It gets another cookie, which is no longer than what came.
        assert!(sharer.poll_transmit().is_none_or(|offer| offer.bytes.len() <= proof.len()));
    }
    assert_eq!((sharer.poll_event(), sharer.late.len()), (None, 0));
    assert!(join(&mut sharer, &first, now + LATE).unwrap().is_ok());
}

#[test]
fn at_the_end_sessions_close_and_nobody_comes_back() {
    let now = epoch();
    let mut sharer = sharer(now);
    let (first, second) = (sharer.invite(now + HOUR), sharer.invite(now + 2 * HOUR));
    let [one, two] = [first, second].map(|id| {
        let code = code(&sharer, id);
        join(&mut sharer, &code, now).unwrap().unwrap()
    });
    for joined in [&one, &two] {
        call(&mut sharer, &joined.session, now, here()).unwrap();
    }
    while sharer.poll_event().is_some() {}
    assert!(sharer.extend(first, now + HOUR / 2, now));
    let told = sharer.poll_transmit().unwrap();
    let opened = one.session.open(&told.bytes, &mut Vec::new());
    assert_eq!(opened, Some(Opened::Control(Control::Remaining(HOUR / 2))));
    // It is said again, for the first may be lost.
    for pause in AGAIN {
        assert_eq!(sharer.poll_timeout(), Some(now + pause));
        sharer.handle_timeout(now + pause);
        let told = sharer.poll_transmit().unwrap();
        let opened = one.session.open(&told.bytes, &mut Vec::new());
        assert_eq!(opened, Some(Opened::Control(Control::Remaining(HOUR / 2 - pause))));
    }
    let over = now + HOUR / 2;
    assert_eq!(sharer.poll_timeout(), Some(over));
    sharer.handle_timeout(over);
    assert_eq!(sharer.poll_event(), Some(Event::Ended(first)));
    let goodbye = sharer.poll_transmit().unwrap();
    assert_eq!(one.session.open(&goodbye.bytes, &mut Vec::new()), Some(Opened::Control(Control::Goodbye)));
    assert_eq!(call(&mut sharer, &one.session, over, here()), None);
    sharer.transmits.clear();
    for pause in AGAIN {
        assert_eq!(sharer.poll_timeout(), Some(over + pause));
        sharer.handle_timeout(over + pause);
        let goodbye = sharer.poll_transmit().unwrap();
        let opened = one.session.open(&goodbye.bytes, &mut Vec::new());
        assert_eq!(opened, Some(Opened::Control(Control::Goodbye)));
    }
    let over = over + HOUR / 4;
    assert_eq!(come_back(&mut sharer, &one.membership, over).unwrap().unwrap_err(), Refusal::Ended);
    assert!(call(&mut sharer, &two.session, over, here()).is_some());
    assert!(
        !sharer.extend(first, over + HOUR, over) && sharer.end(second, over) && !sharer.end(second, over)
    );
    assert_eq!(sharer.members().count(), 0);
}

#[test]
fn who_repeats_recorded_datagrams_closes_no_session() {
    let now = epoch();
    let mut sharer = sharer(now);
    let id = sharer.invite(now + HOUR);
    let code = code(&sharer, id);
    let joined = join(&mut sharer, &code, now).unwrap().unwrap();
    let (mut datagram, mut message) = (Vec::new(), Vec::new());
    joined.session.seal(b"call", &mut datagram);
    assert!(sharer.handle_input(now, here(), &datagram, &mut message).is_some());
    assert!(sharer.handle_input(now, here(), &datagram, &mut message).is_none(), "a second time");
    // Handshakes of other commands, which a listener has recorded, and repeats faster than keys can be computed.
    let recorded: Vec<Vec<u8>> = (0..4)
        .map(|_| {
            let mut back = Join::as_member(&joined.membership, now).unwrap();
            let recorded = back.poll_transmit(now).unwrap().to_vec();
            sharer.handle_input(now, here(), &recorded, &mut message);
            back.handle_input(now, &sharer.poll_transmit().unwrap().bytes);
            let session = back.poll_result().unwrap().unwrap().session;
            call(&mut sharer, &session, now, here()).unwrap();
            recorded
        })
        .collect();
    let (sessions, mut time) = (sharer.sessions.len(), now);
    for round in 0..2000 {
        time += Duration::from_millis(1);
        sharer.handle_input(time, here(), &recorded[round % 4], &mut message);
        assert_eq!(sharer.poll_transmit(), None, "nobody waits for it");
    }
    assert_eq!(
        (sharer.sessions.len(), sharer.handshakes.values().all(|(_, count)| *count < 10)),
        (sessions, true)
    );
    assert!(call(&mut sharer, &joined.session, time, here()).is_some());
    let back = come_back(&mut sharer, &joined.membership, time).unwrap().unwrap();
    assert!(call(&mut sharer, &back.session, time, here()).is_some());
}

#[test]
fn commands_that_run_at_once_end_no_session_of_each_other() {
    let now = epoch();
    let mut sharer = sharer(now);
    let id = sharer.invite(now + HOUR);
    let code = code(&sharer, id);
    let joined = join(&mut sharer, &code, now).unwrap().unwrap();
    let mut time = now;
    let mut sessions = vec![joined.session];
    while sessions.len() < MAX_SESSIONS {
        time += Duration::from_millis(10);
        sessions.push(come_back(&mut sharer, &joined.membership, time).unwrap().unwrap().session);
        for session in &sessions {
            assert!(call(&mut sharer, session, time, here()).is_some());
        }
    }
    // One more waits until one of them is silent.
    assert!(come_back(&mut sharer, &joined.membership, time).is_none());
    let later = time + SILENT;
    for session in &sessions[1..] {
        assert!(call(&mut sharer, session, later, here()).is_some());
    }
    let back = come_back(&mut sharer, &joined.membership, later).unwrap().unwrap();
    assert!(call(&mut sharer, &back.session, later, here()).is_some());
    assert_eq!((sharer.sessions.len(), call(&mut sharer, &sessions[0], later, here())), (MAX_SESSIONS, None));
    assert!(sessions[1..].iter().all(|session| call(&mut sharer, session, later, here()).is_some()));
}

#[test]
fn one_wrong_guess_counts_once_however_often_it_is_sent() {
    let now = epoch();
    let mut sharer = sharer(now);
    let id = sharer.invite(now + HOUR);
    let right = code(&sharer, id);
    let wrong: Code = format!("{}-zoo-zone", right.number()).parse().unwrap();
    assert_eq!(join(&mut sharer, &wrong, now).unwrap().unwrap_err(), Refusal::WrongCode);
    assert_eq!((sharer.poll_event(), sharer.members[&id].wrong_guesses), (None, 1));
    assert!(join(&mut sharer, &right, now + LATE * 3).unwrap().is_ok());
}

/// What is lost, from the first proof on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outage {
    Proofs,
    Welcomes,
}

#[test]
fn an_outage_while_joining_ends_with_a_session() {
    for (outage, seconds, restarts, moves) in [
        (Outage::Proofs, 20, false, false),
        (Outage::Proofs, 90, false, false),
        (Outage::Proofs, 4000, false, true),
        (Outage::Proofs, 5, true, false),
        (Outage::Proofs, 90, true, true),
        (Outage::Welcomes, 90, false, false),
        (Outage::Welcomes, 4000, false, true),
    ] {
        let case = format!("{outage:?} for {seconds} s, restarted: {restarts}, moved: {moves}");
        let now = epoch();
        let mut sharer = sharer(now);
        let id = sharer.invite(now + 2 * HOUR);
        let mut join = Join::with_code(code(&sharer, id), Identity::draw(), "sophia", now);
        let (mut time, mut from, mut began) = (now, here(), None);
        let joined = loop {
            if let Some(result) = join.poll_result() {
                break result.unwrap();
            }
            let end = began.map(|began| began + Duration::from_secs(seconds));
            let is_down = end.is_some_and(|end| time < end);
            if let Some(datagram) = join.poll_transmit(time).map(<[u8]>::to_vec) {
                let is_proof = matches!(Datagram::decode(&datagram), Some(Datagram::Proof { .. }));
                if is_proof && began.is_none() {
                    began = Some(time);
                    if restarts {
                        let mut again = Sharer::new(sharer.identity.clone(), "trip", time);
                        sharer.members().cloned().for_each(|member| again.restore(member));
                        sharer = again;
                    }
                    if moves {
                        from = "10.0.0.1:1".parse().unwrap();
                    }
                }
                let is_lost = is_down || began == Some(time);
                if !is_lost || outage == Outage::Welcomes {
                    sharer.handle_input(time, from, &datagram, &mut Vec::new());
                }
                while let Some(Transmit { bytes, .. }) = sharer.poll_transmit() {
                    assert!(bytes.len() <= 2 * datagram.len(), "{case}");
                    if !is_lost {
                        join.handle_input(time, &bytes);
                    }
                }
            }
            time += Duration::from_millis(10);
            assert!(end.is_none_or(|end| time < end + Duration::from_secs(4)), "{case}");
        };
        assert!(call(&mut sharer, &joined.session, time, from).is_some(), "{case}");
        assert_eq!(sharer.members[&id].wrong_guesses, 0, "{case}");
    }
}

/// Takes a hello and says which offer the sharer has for it.
fn offer(sharer: &mut Sharer, join: &mut Join, now: Instant) -> (Attempt, Cookie, Share) {
    let hello = join.poll_transmit(now).unwrap().to_vec();
    sharer.handle_input(now, here(), &hello, &mut Vec::new());
    let bytes = sharer.poll_transmit().unwrap().bytes;
    let Some(Datagram::Offer { attempt, cookie, share }) = Datagram::decode(&bytes) else { panic!() };
    (attempt, cookie, share)
}

#[test]
fn a_forged_offer_keeps_nobody_from_the_true_one_and_guesses_are_counted() {
    let now = epoch();
    let mut sharer = sharer(now);
    let id = sharer.invite(now + HOUR);
    let mut join = Join::with_code(code(&sharer, id), Identity::draw(), "", now);
    let (attempt, cookie, true_share) = offer(&mut sharer, &mut join, now);
    let forged = |share: Share| Datagram::Offer { attempt, cookie: crate::random(), share }.encode();
    join.handle_input(now, &forged([0xff; 33]));
    assert!(join.poll_transmit(now).is_none(), "that is no share");
    assert_eq!(proofs_shown(&mut join, now), 3);
    // The true one is among those that are answered later on.
    let time = now + HOUR / 4;
    join.handle_input(time, &Datagram::Offer { attempt, cookie, share: true_share }.encode());
    let joined = run(&mut sharer, &mut join, time, here()).unwrap().unwrap();
    assert!(call(&mut sharer, &joined.session, time, here()).is_some());
}

/// Returns how many proofs somebody gets who poses as the sharer: with each of them he learns whether a code is the right one.
fn proofs_shown(join: &mut Join, now: Instant) -> usize {
    let mut other = sharer(now);
    for second in 0..50 {
        let time = now + Duration::from_secs(second);
        let number = other.invite(time + HOUR);
        let guess = Code::draw(other.members[&number].member.code.as_ref().unwrap().number());
        let (_, _, share) = offer(&mut other, &mut Join::with_code(guess, Identity::draw(), "", time), time);
        let forged = Datagram::Offer { attempt: join.attempt(), cookie: crate::random(), share };
        join.handle_input(time, &forged.encode());
    }
    join.proof_count()
}

#[test]
fn who_may_guess_once_gets_one_proof() {
    let now = epoch();
    let mut sharer = sharer(now);
    let id = sharer.invite(now + HOUR);
    let mut strange = Join::with_code(code(&sharer, id), Identity::draw(), "", now).with_one_offer();
    assert_eq!(proofs_shown(&mut strange, now), 1);
    // Nothing else is different.
    let mut join = Join::with_code(code(&sharer, id), Identity::draw(), "", now).with_one_offer();
    let joined = run(&mut sharer, &mut join, now, here()).unwrap().unwrap();
    assert!(call(&mut sharer, &joined.session, now, here()).is_some());
}

#[test]
fn a_forged_refusal_ends_nothing() {
    let now = epoch();
    let mut sharer = sharer(now);
    let id = sharer.invite(now + HOUR);
    let mut join = Join::with_code(code(&sharer, id), Identity::draw(), "", now);
    let refuse = |join: &mut Join, now: Instant| {
        for reason in [Refusal::WrongCode, Refusal::Unknown, Refusal::Ended] {
            join.handle_input(now, &Datagram::Refusal { attempt: join.attempt(), reason }.encode());
        }
    };
    refuse(&mut join, now);
    let joined = run(&mut sharer, &mut join, now, here()).unwrap().unwrap();
    let mut back = Join::as_member(&joined.membership, now).unwrap();
    refuse(&mut back, now);
    refuse(&mut back, now + Duration::from_secs(4));
    let ended = Datagram::Refusal { attempt: back.attempt(), reason: Refusal::Ended };
    back.handle_input(now + HOUR, &ended.encode());
    assert!(run(&mut sharer, &mut back, now, here()).unwrap().is_ok());
    // Whom the sharer does not know for long is not a member of it.
    let mut other = Sharer::new(Identity::draw(), "", now);
    let mut back = Join::as_member(&joined.membership, now).unwrap();
    let results = (0..5).map(|second| {
        let now = now + Duration::from_secs(2 * second);
        run(&mut other, &mut back, now, here()).map(|result| result.unwrap_err())
    });
    assert_eq!(results.flatten().next(), Some(Refusal::Unknown));
}

#[test]
fn forged_answers_keep_nobody_from_the_true_one() {
    let now = epoch();
    let mut sharer = sharer(now);
    let id = sharer.invite(now + HOUR);
    let mut join = Join::with_code(code(&sharer, id), Identity::draw(), "", now);
    let hello = join.poll_transmit(now).unwrap().to_vec();
    sharer.handle_input(now, here(), &hello, &mut Vec::new());
    join.handle_input(now, &sharer.poll_transmit().unwrap().bytes);
    let proof = join.poll_transmit(now).unwrap().to_vec();
    sharer.handle_input(now, here(), &proof, &mut Vec::new());
    let welcome = sharer.poll_transmit().unwrap().bytes;
    let mut forged = welcome.clone();
    for changed in 26..welcome.len() {
        forged[changed] ^= 1;
        join.handle_input(now, &forged);
        forged[changed] ^= 1;
    }
    assert!(join.poll_result().is_none());
    join.handle_input(now, &welcome);
    assert!(call(&mut sharer, &join.poll_result().unwrap().unwrap().session, now, here()).is_some());
}

/// Allow, stop, expiry and reconnect at random: at no instant does anybody get a message through whom the list does not name.
#[test]
fn nobody_is_heard_whom_the_list_does_not_name() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let start = epoch();
        let (mut now, mut sharer) = (start, sharer(start));
        // Who may read until when, by our own books, and who holds what.
        let mut allowed: BTreeMap<MemberId, Instant> = BTreeMap::new();
        let mut held: Vec<Joined> = Vec::new();
        for _ in 0..120 {
            now += Duration::from_secs(random.u64(0..120));
            let ids: Vec<_> = allowed.keys().copied().collect();
            match random.u8(0..8) {
                0 | 1 => {
                    let until = now + Duration::from_secs(random.u64(1..1200));
                    let id = sharer.invite(until);
                    let code = code(&sharer, id);
                    held.push(join(&mut sharer, &code, now).unwrap().unwrap());
                    allowed.insert(id, until);
                }
                2 if !ids.is_empty() => {
                    let id = ids[random.usize(..ids.len())];
                    let is_on = allowed[&id] > now;
                    sharer.handle_timeout(now);
                    assert_eq!(sharer.end(id, now), is_on, "seed {seed}");
                    allowed.insert(id, start);
                }
                3 if !ids.is_empty() => {
                    let id = ids[random.usize(..ids.len())];
                    let until = now + Duration::from_secs(random.u64(1..600));
                    sharer.handle_timeout(now);
                    if sharer.extend(id, until, now) {
                        assert!(allowed[&id] > now, "seed {seed}");
                        allowed.insert(id, until);
                    }
                }
                4 if !held.is_empty() => {
                    let at = random.usize(..held.len());
                    sharer.transmits.clear();
                    let back = come_back(&mut sharer, &held[at].membership, now).unwrap();
                    let is_on = allowed[&held[at].membership.member] > now;
                    assert_eq!(back.is_ok(), is_on, "seed {seed}");
                    held.extend(back.ok());
                }
                _ if !held.is_empty() => {
                    let joined = &held[random.usize(..held.len())];
                    let heard = call(&mut sharer, &joined.session, now, here());
                    let member = joined.membership.member;
                    assert!(heard.is_none() || allowed[&member] > now, "seed {seed}");
                    assert!(heard.is_none_or(|(id, _)| id == member), "seed {seed}");
                }
                _ => {}
            }
            sharer.transmits.clear();
        }
        let named: BTreeSet<_> = sharer.members().map(|member| member.id).collect();
        sharer.handle_timeout(now);
        assert!(named.iter().all(|id| allowed[id] > start), "seed {seed}");
    }
}

#[test]
fn a_datagram_of_the_largest_size_fits() {
    let (one, two) = crate::session::tests::pair();
    let (mut datagram, mut message) = (Vec::new(), Vec::new());
    one.seal(&vec![7; 65_507 - OVERHEAD_BYTES], &mut datagram);
    assert_eq!(datagram.len(), 65_507);
    assert_eq!(two.open(&datagram, &mut message), Some(Opened::Message));
}

#[test]
fn who_says_hello_without_end_keeps_nobody_else_out() {
    let now = epoch();
    let mut sharer = sharer(now);
    let id = sharer.invite(now + HOUR);
    let code = code(&sharer, id);
    let mut answers = |from: SocketAddr| {
        let mut join = Join::with_code(code.clone(), Identity::draw(), "", now);
        let hello = join.poll_transmit(now).unwrap().to_vec();
        sharer.handle_input(now, from, &hello, &mut Vec::new());
        sharer.poll_transmit().is_some()
    };
    let answered = (0..1000).filter(|port| answers(SocketAddr::new(here().ip(), 1000 + port))).count();
    assert_eq!(answered, MAX_HANDSHAKES as usize / 2);
    assert!(answers("192.168.1.8:5000".parse().unwrap()));
}
