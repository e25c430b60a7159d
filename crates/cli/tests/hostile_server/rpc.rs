//! Messages that are no replies, and replies that nobody asked for.

use super::*;

misbehaviours! {
    nobody_answers: FILE, Wire(|c, r, line| if c.program != Program::NFS { line.send(r) }), Say(3, "no answer from");
    replies_send_from_elsewhere: FILE, Wire(|_, r, line| {
        line.send_from_elsewhere(&lie_about(r));
        line.send(r);
        line.send_from_elsewhere(&lie_about(r));
    }), BeRight;
    replies_send_from_elsewhere_alone: FILE, Wire(|c, r, line| if c.is(P::Read) { line.send_from_elsewhere(r) } else { line.send(r) }), Say(5, "over UDP: no progress");
    forged_xids: FILE, Wire(|_, r, line| {
        for xid in 0..100_u32 {
            line.send(&[&xid.wrapping_mul(0x9e37_79b9).to_be_bytes(), &lie_about(r)[4..]].concat());
        }
        line.send(r);
    }), BeRight;
    forged_xids_over_tcp: TREE_TCP, Wire(|_, r, line| {
        line.send(&[&[0; 4], &lie_about(r)[4..]].concat());
        line.send(r);
    }), BeRight;
    every_reply_ten_times: TREE, Wire(|_, r, line| (0..10).for_each(|_| line.send(r))), BeRight;
    every_reply_ten_times_over_tcp: TREE_TCP, Wire(|_, r, line| (0..10).for_each(|_| line.send(r))), BeRight;
    replies_cut_short_now_and_then: TREE, Wire(|c, r, line| line.raw(if c.before % 7 == 3 && !c.is(P::Read) { &r[..r.len().min(20)] } else { r })), BeRight;
    calls_instead_of_replies: FILE, Wire(|c, r, line| {
        if c.is(P::Read) { line.send(&[&r[..4], &[0; 4], &c.arguments[..]].concat()) }
        line.send(r);
    }), BeRight;
    datagrams_of_nothing: FILE, Wire(|_, r, line| { line.raw(&[]); line.raw(&r[..3]); line.raw(r) }), BeRight;
    the_largest_datagrams_there_are: FILE, Wire(|_, r, line| { line.raw(&[&r[..4], &[0xff; 65_000]].concat()); line.raw(r) }), BeRight;
    an_accept_status_nobody_knows: FILE, Reply(|c, r| if c.is(P::Read) { message(r, &[1, 0, 0, 0, 99]) }), Say(5, "over UDP: no progress");
    a_verifier_of_4_gib: FILE, Reply(|c, r| if c.is(P::Read) { message(r, &[1, 0, 0, u32::MAX, 0]) }), Say(5, "over UDP: no progress");
    a_refused_credential: FILE, Reply(|c, r| if c.is(P::Read) { message(r, &[1, 1, 1, 5]) }), Say(1, "refused the credential");
    a_version_that_is_gone: FILE, Reply(|c, r| if c.is(P::Read) { message(r, &[1, 0, 0, 0, 2, 4, 4]) }), Say(1, "versions 4 to 4");
    a_procedure_that_is_gone: FILE, Reply(|c, r| if c.is(P::Read) { message(r, &[1, 0, 0, 0, 3]) }), Say(1, "does not offer this procedure");
    arguments_it_calls_garbage: FILE, Reply(|c, r| if c.is(P::Lookup) { message(r, &[1, 0, 0, 0, 4]) }), Say(1, "could not decode the arguments");
    an_error_of_its_system: FILE, Reply(|c, r| if c.is(P::Read) { message(r, &[1, 0, 0, 0, 5]) }), Say(1, "ran out of a resource");
    try_later_for_ever: FILE, Reply(|c, r| results(c, r, P::Read, &[10_008])), Say(5, "over UDP: no progress");
}
