//! WRITEs whose bytes come later.

use super::*;

#[test]
fn a_write_leaves_with_the_bytes_that_it_waited_for_and_keeps_them() {
    let mut bench = Bench::new(|_| {});
    let id = bench.session.start_loading(bench.now, writes(1501));
    assert_eq!((bench.send(), bench.session.outstanding()), (0, 0), "its bytes are not there");
    assert_eq!(bench.events(), [Event::Load(id, Payload { offset: 0, length: 1000 })]);
    bench.session.handle_loaded(bench.now, id, &[7; 1000]);
    bench.session.handle_loaded(bench.now, id, &[8; 1000]);
    assert_eq!(bench.send(), 1, "nobody asked for the others");
    bench.tick();
    assert_eq!(bench.send(), 1, "it is sent again without being loaded again");
    assert!(bench.sent.iter().all(|call| call.0.ends_with(&[7; 1000])));
    assert_eq!(bench.events(), [Event::Load(id, Payload { offset: 1000, length: 501 })]);

    // It leaves before the second block has come.
    let upload = bench.session.detach(bench.now, id).unwrap();
    assert_eq!(bench.session.stats().withdrawn.hand_over, 1, "the one that was sent");
    bench.session.handle_loaded(bench.now, id, &[7; 501]);
    assert_eq!((bench.send(), bench.session.outstanding()), (0, 0));
    let mut other = Bench::new(|_| {});
    let id = other.session.start_loading(other.now, upload);
    for (offset, length) in [(0, 1000), (1000, 501)] {
        assert_eq!(other.send(), 0);
        assert_eq!(other.events(), [Event::Load(id, Payload { offset, length })]);
        other.session.handle_loaded(other.now, id, &vec![9; length as usize]);
        assert_eq!(other.send(), 1);
    }
    assert!(other.sent[1].0.ends_with(&[&[9; 501][..], &[0; 3]].concat()), "padded to words");
    other.session.stop(other.now, id);
    assert_eq!(other.session.outstanding(), 0);
}

#[test]
fn the_reply_to_a_write_that_waited_for_its_bytes_counts_as_any() {
    let mut bench = Bench::new(|_| {});
    let id = bench.session.start_loading(bench.now, writes(1000));
    assert_eq!(bench.send(), 0);
    assert_eq!(bench.events(), [Event::Load(id, Payload { offset: 0, length: 1000 })]);
    bench.session.handle_loaded(bench.now, id, &[7; 1000]);
    let transmit = bench.session.poll_transmit(bench.now).unwrap();
    assert_eq!(transmit.payload, None, "the bytes are part of the message");
    let call = Call(transmit.head.to_vec());
    assert_eq!((call.range(), call.word(68)), ((0, 1000), 1000));
    bench.written(&call, 1000, 1);
    assert_eq!(bench.events(), [Event::Progress(id, 1000), Event::Finished(id)]);
}

#[test]
fn where_the_driver_has_the_bytes_nobody_is_asked_for_them() {
    let mut bench = Bench::new(|_| {});
    let id = bench.write(1000);
    bench.session.handle_loaded(bench.now, id, &[7; 1000]);
    let transmit = bench.session.poll_transmit(bench.now).unwrap();
    assert_eq!(transmit.payload, Some(Payload { offset: 0, length: 1000 }));
    let none = bench.session.poll_transmit(bench.now).is_none();
    assert!(none && bench.events().is_empty());
}

#[test]
fn only_writes_wait_for_bytes() {
    let mut bench = Bench::new(|_| {});
    let download = Transfer::Download(Download::new(&handle(1), 1000));
    bench.session.start_loading(bench.now, download);
    assert_eq!(bench.ranges(), [(0, 1000)]);
    assert_eq!(bench.events(), []);
}
