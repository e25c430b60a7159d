//! READ, and what is read as one stream.

use super::*;

misbehaviours! {
    reads_shorter_than_asked: FILE, Reply(|c, r| read(c, r, |it| {
        it.data.truncate(500);
        it.eof = false;
        it.set(it.data.clone());
    })), BeRight;
    reads_longer_than_asked: FILE, Reply(|c, r| read(c, r, |it| it.set([&it.data[..], &[0; 64]].concat()))), Say(1, "broken");
    reads_longer_than_asked_over_tcp: FILE_TCP, Reply(|c, r| read(c, r, |it| it.set(vec![0; 1_100_000]))), Say(1, "broken");
    a_read_of_another_offset: &["cp", "--verify", "--transport", "udp", "--timeout", "1s", "{tree/alpha}", "copy"],
        Reply(|c, r| read(c, r, |it| if it.offset > 0 && c.before < 20 { it.data.rotate_left(100) })), Say(6, "differ");
    a_count_above_the_data: FILE, Reply(|c, r| read(c, r, |it| it.count += 4)), Say(1, "broken");
    a_count_below_the_data: FILE, Reply(|c, r| read(c, r, |it| it.count -= 4)), Say(1, "broken");
    data_that_claims_4_gib: FILE, Reply(|c, r| read(c, r, |it| (it.count, it.length) = (u32::MAX, u32::MAX))), Say(1, "broken");
    data_that_is_not_all_there: FILE, Reply(|c, r| read(c, r, |it| it.data.truncate(it.data.len() / 2))), Say(1, "broken");
    data_that_is_not_all_there_over_tcp: FILE_TCP, Reply(|c, r| read(c, r, |it| it.data.truncate(it.data.len() / 2))), Say(5, "a record ends inside its data");
    bytes_after_the_data: FILE, Reply(|c, r| if c.is(P::Read) { r.extend_from_slice(&[9; 64]) }), BeRight;
    reads_without_data_or_end: FILE, Reply(|c, r| read(c, r, |it| { it.eof = false; it.set(Vec::new()) })), Say(1, "neither data nor end of file");
    an_end_that_comes_early: FILE, Reply(|c, r| read(c, r, |it| { it.eof = true; it.set(vec![1; 10]) })), Say(1, "shrank");
    an_end_that_never_comes: FILE, Reply(|c, r| read(c, r, |it| it.eof = false)), BeRight;
    reads_without_attributes: FILE, Reply(|c, r| read(c, r, |it| it.attributes = None)), BeRight;
    reads_that_fail_with_a_status_nobody_knows: FILE, Reply(|c, r| results(c, r, P::Read, &[77_777])), Say(1, "77777");
}

misbehaviours! {
    an_early_end_of_cat: CAT, Reply(|c, r| read(c, r, end_in_the_middle)), Say(1, SHRANK);
    an_early_end_of_cat_over_tcp: CAT_TCP, Reply(|c, r| read(c, r, end_in_the_middle)), Say(1, SHRANK);
    an_early_end_of_a_copy_to_standard_output: TO_STANDARD, Reply(|c, r| read(c, r, end_in_the_middle)), Say(1, SHRANK);
    an_early_end_of_a_relay: RELAY, Reply(|c, r| read(c, r, end_in_the_middle)), Say(1, SHRANK);
    an_end_without_data_of_cat: CAT, Reply(|c, r| read(c, r, |it| if it.offset > 0 { it.eof = true; it.set(Vec::new()) })), Say(1, "shrank from 100000 to");
    an_end_without_data_of_a_relay: RELAY, Reply(|c, r| read(c, r, |it| if it.offset > 0 { it.eof = true; it.set(Vec::new()) })), Say(1, "shrank from 100000 to");
    a_size_that_is_too_large_for_cat: CAT, Reply(|c, r| attributes(c, r, |it| it.size = 1 << 40)), Say(1, "shrank from 1099511627776 to 100000 bytes");
    a_size_that_is_too_large_for_a_relay: RELAY, Reply(|c, r| attributes(c, r, |it| it.size = 1 << 40)), Say(1, "shrank from 1099511627776 to 100000 bytes");
}

const SHRANK: &str = "the file shrank from 100000 to 50000 bytes while it was copied; copy it again";

/// Ends the file at 50,000 bytes, in the READ that gets there.
fn end_in_the_middle(read: &mut lies::Read) {
    let left = 50_000_usize.saturating_sub(read.offset as usize);
    if read.data.len() >= left {
        read.eof = true;
        read.set(read.data[..left].to_vec());
    }
}

#[test]
fn what_cat_has_shown_before_an_early_end_is_right() {
    let trial = Trial::new(Reply(|c, r| read(c, r, end_in_the_middle)));
    let outcome = trial.run(CAT);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(fs::read(trial.path("served/tree/alpha")).unwrap().starts_with(&outcome.stdout));
}

#[test]
fn a_size_of_nothing_hides_nothing_from_cat() {
    let trial = Trial::new(Reply(|c, r| attributes(c, r, |it| it.size = 0)));
    let outcome = trial.run(CAT);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(fs::read(trial.path("served/tree/alpha")).unwrap() == outcome.stdout);
}
