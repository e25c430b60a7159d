//! What a stream asks for, call by call.

use super::super::*;

const BLOCK: u32 = 100;
const PAGE: u64 = pages::PAGE_BYTES;
const OLD: writeverf3 = writeverf3([1; 8]);
const NEW: writeverf3 = writeverf3([2; 8]);

struct Bench {
    stream: Stream<TransferError>,
    now: Instant,
}

#[expect(clippy::disallowed_methods, reason = "the arbitrary epoch of virtual time")]
impl Bench {
    fn new(change: impl FnOnce(&mut StreamTuning)) -> Self {
        let mut tuning = StreamTuning::default();
        change(&mut tuning);
        Self { stream: Stream::new(tuning), now: Instant::now() }
    }

    fn next(&mut self) -> Option<StreamCall> {
        let limits = Limits { read_block: BLOCK, write_block: BLOCK, ..Limits::default() };
        self.stream.next_call(self.now, limits)
    }

    /// Writes, and says how many bytes were taken in.
    fn write(&mut self, offset: u64, length: usize) -> usize {
        self.stream.write(offset, &vec![7; length]).unwrap()
    }

    fn read(&mut self, offset: u64) -> Result<Available, TransferError> {
        self.stream.read(offset, &mut [0; 10])
    }

    /// All calls that are wanted now, as offset and length; COMMITs are left out, and delays are none.
    fn calls(&mut self) -> Vec<(u32, u64, usize)> {
        let mut calls = Vec::new();
        while let Some(StreamCall { part, delay, action }) = self.next() {
            assert_eq!(delay, Duration::ZERO);
            match action {
                StreamAction::Read { offset, count } => calls.push((part, offset, count as usize)),
                StreamAction::Write { offset, data, .. } => calls.push((part, offset, data.len())),
                StreamAction::Commit => panic!("no COMMIT is wanted yet"),
            }
        }
        calls
    }

    fn commit(&mut self) -> u32 {
        let call = self.next().unwrap();
        assert_eq!(call.action, StreamAction::Commit);
        call.part
    }

    /// The next call, which is a WRITE: its part, and how stable it is to be.
    fn next_write(&mut self) -> (u32, stable_how) {
        match self.next().unwrap() {
            StreamCall { part, delay, action: StreamAction::Write { stable, .. } } => {
                assert_eq!(delay, Duration::ZERO);
                (part, stable)
            }
            call => panic!("{call:?}"),
        }
    }

    fn written(&mut self, part: u32, count: usize, verifier: writeverf3) {
        self.acknowledge(part, count, stable_how::UNSTABLE, verifier, 1, Duration::ZERO);
    }

    fn acknowledge(
        &mut self,
        part: u32,
        count: usize,
        committed: stable_how,
        verifier: writeverf3,
        attempts: u32,
        elapsed: Duration,
    ) {
        let result = WriteResult { count: count as u32, committed, verifier };
        self.stream.handle_write(self.now, part, Effort { attempts, elapsed }, result);
    }

    /// Writes one block and brings it to stable storage; a copy of the WRITE may be late.
    fn flush_block(&mut self, offset: u64, attempts: u32, elapsed: Duration) {
        self.write(offset, BLOCK as usize);
        self.stream.flush();
        let (part, _) = self.next_write();
        self.acknowledge(part, BLOCK as usize, stable_how::FILE_SYNC, OLD, attempts, elapsed);
        assert!(self.stream.is_stable());
    }

    fn reason(&self) -> &'static str {
        match self.stream.check() {
            Err(TransferError::NoProgress { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn small_writes_are_gathered_into_blocks() {
    let mut bench = Bench::new(|_| {});
    for number in 0..25 {
        bench.write(number * 10, 10);
    }
    let first = bench.calls();
    assert_eq!(first, [(0, 0, 100), (1, 100, 100)], "the rest may still become a block");
    bench.write(1000, 10);
    assert_eq!(bench.calls(), [(2, 200, 50)], "writing goes on somewhere else");
    bench.stream.flush();
    assert_eq!(bench.calls(), [(3, 1000, 10)]);
}

#[test]
fn what_is_overwritten_while_it_is_in_flight_waits() {
    let mut bench = Bench::new(|_| {});
    bench.write(0, 100);
    assert_eq!(bench.calls(), [(0, 0, 100)]);
    bench.write(50, 100);
    bench.stream.flush();
    assert_eq!(bench.calls(), [(1, 100, 50)]);
    bench.written(0, 100, OLD);
    assert_eq!(bench.calls(), [(2, 50, 50)]);
    bench.written(1, 50, OLD);
    bench.written(2, 50, OLD);
    let commit = bench.commit();
    assert!(!bench.stream.is_stable() && bench.next().is_none());
    bench.stream.handle_commit(commit, OLD);
    assert!(bench.stream.is_stable());
}

#[test]
fn a_short_write_goes_on_where_it_ended() {
    let mut bench = Bench::new(|_| {});
    bench.write(0, 100);
    let (part, _) = bench.next_write();
    bench.written(part, 30, OLD);
    assert_eq!(bench.next(), None, "the rest may still become a block");
    bench.stream.flush();
    assert_eq!(bench.calls(), [(1, 30, 70)]);
}

#[test]
fn one_block_that_is_flushed_takes_one_round_trip() {
    let mut bench = Bench::new(|_| {});
    bench.flush_block(0, 1, Duration::ZERO);
    assert_eq!(bench.next(), None);
    // Two take a COMMIT.
    bench.write(0, 150);
    bench.stream.flush();
    let (first, second) = (bench.next_write(), bench.next_write());
    assert_eq!((first.1, second.1), (stable_how::UNSTABLE, stable_how::UNSTABLE));
    bench.written(first.0, 100, OLD);
    bench.written(second.0, 50, OLD);
    let commit = bench.commit();
    // So does one that comes while others are not yet stable.
    bench.write(500, 50);
    bench.stream.flush();
    let (third, stable) = bench.next_write();
    assert_eq!(stable, stable_how::UNSTABLE);
    bench.stream.handle_commit(commit, OLD);
    assert!(!bench.stream.is_stable());
    bench.written(third, 50, OLD);
    bench.write(600, 50);
    bench.stream.flush();
    assert_eq!(bench.next_write().1, stable_how::UNSTABLE);
}

#[test]
fn a_commit_is_sent_alongside_the_writes() {
    let mut bench = Bench::new(|tuning| tuning.commit_bytes = 250);
    bench.write(0, 1000);
    let calls = bench.calls();
    assert_eq!(calls.len(), 10);
    bench.written(0, 100, OLD);
    bench.written(1, 100, OLD);
    assert_eq!(bench.next(), None);
    bench.written(2, 100, OLD);
    let commit = bench.commit();
    (3..9).for_each(|part| bench.written(part, 100, OLD));
    assert_eq!(bench.next(), None, "one COMMIT at a time");
    bench.stream.handle_commit(commit, OLD);
    bench.commit();
}

#[test]
fn a_writer_waits_until_a_commit_makes_room() {
    for (dirty, fragments) in [(2 * PAGE as usize, 9), (100 * PAGE as usize, 2)] {
        let mut bench = Bench::new(|tuning| {
            (tuning.dirty_bytes, tuning.fragments) = (dirty, fragments);
        });
        // A byte costs a page.
        assert_eq!((bench.write(0, 1), bench.write(PAGE, 1), bench.write(9 * PAGE, 1)), (1, 1, 0));
        assert_eq!(bench.calls(), [(0, 0, 1), (1, PAGE, 1)], "so that there is room soon");
        bench.written(0, 1, OLD);
        assert_eq!(bench.next(), None);
        bench.written(1, 1, OLD);
        let commit = bench.commit();
        assert_eq!(bench.write(0, 1), 0);
        bench.stream.handle_commit(commit, OLD);
        assert_eq!(bench.write(0, 1), 1);
    }
    let mut bench = Bench::new(|tuning| tuning.dirty_bytes = 2 * PAGE as usize);
    assert_eq!(bench.write(0, 5 * PAGE as usize), 2 * PAGE as usize);
    assert_eq!(bench.calls().len(), 16, "WRITEs in flight");
    let mut bench = Bench::new(|tuning| tuning.dirty_bytes = 3 * PAGE as usize);
    let pages = |pages| pages * PAGE as usize;
    assert_eq!((bench.write(0, pages(1)), bench.write(PAGE, pages(5))), (pages(1), pages(2)));
}

#[test]
fn nothing_is_written_over_what_a_late_copy_may_overwrite() {
    let ms = Duration::from_millis;
    for (elapsed, lateness) in [(ms(300), ms(300)), (ms(3), ms(100)), (ms(9000), ms(1000))] {
        let mut bench = Bench::new(|_| {});
        bench.flush_block(1000, 2, elapsed);
        bench.now += ms(20);
        bench.flush_block(3000, 1, ms(500));
        let delay = |bench: &mut Bench, offset| {
            bench.write(offset, 10);
            bench.stream.flush();
            bench.next().unwrap().delay
        };
        assert_eq!(delay(&mut bench, 3000), Duration::ZERO, "sent once");
        assert_eq!(delay(&mut bench, 990), Duration::ZERO);
        assert_eq!(delay(&mut bench, 1090), lateness - ms(20));
        bench.now += lateness - ms(21);
        assert_eq!(delay(&mut bench, 1050), ms(1));
        bench.now += ms(1);
        assert_eq!(delay(&mut bench, 1020), Duration::ZERO);
    }
}

#[test]
fn late_copies_cost_no_memory() {
    let mut bench = Bench::new(|tuning| tuning.fragments = 3);
    for number in 0..3 {
        bench.flush_block(number * 1000, 2, Duration::ZERO);
    }
    bench.flush_block(1500, 1, Duration::ZERO);
    bench.flush_block(9000, 2, Duration::ZERO);
    assert_eq!(bench.stream.late.count(), 1, "all between them is taken for late");
    for (offset, is_late) in [(1500, true), (8000, true), (9100, false), (0, true)] {
        bench.write(offset, 10);
        bench.stream.flush();
        let StreamCall { part, delay, .. } = bench.next().unwrap();
        assert_eq!(!delay.is_zero(), is_late, "at {offset}");
        bench.acknowledge(part, 10, stable_how::FILE_SYNC, OLD, 1, Duration::ZERO);
    }
}

#[test]
fn exactly_what_was_not_committed_is_written_again_with_the_newest_bytes() {
    let mut bench = Bench::new(|_| {});
    bench.flush_block(0, 1, Duration::ZERO);
    bench.write(200, 200);
    bench.stream.flush();
    assert_eq!(bench.calls(), [(1, 200, 100), (2, 300, 100)]);
    bench.written(1, 100, OLD);
    bench.stream.write(240, &[8; 20]).unwrap();
    bench.stream.flush();
    assert_eq!(bench.calls(), [(3, 240, 20)]);
    bench.written(3, 20, OLD);
    bench.written(2, 100, NEW);
    let StreamAction::Write { offset, data, .. } = bench.next().unwrap().action else { panic!() };
    assert_eq!((offset, data), (200, [[7; 40].as_slice(), &[8; 20], &[7; 40]].concat()));
    bench.written(4, 100, NEW);
    let commit = bench.commit();
    bench.stream.handle_commit(commit, NEW);
    assert!(bench.stream.is_stable());
}

#[test]
fn without_commit_everything_is_written_stable() {
    let mut bench = Bench::new(|tuning| tuning.commit_bytes = 100);
    bench.write(0, 200);
    assert_eq!(bench.calls().len(), 2);
    bench.written(0, 100, OLD);
    let commit = bench.commit();
    bench.stream.handle_no_commit(commit);
    bench.written(1, 100, OLD);
    for part in [3, 4] {
        assert_eq!(bench.next_write(), (part, stable_how::FILE_SYNC));
    }
    bench.acknowledge(3, 100, stable_how::FILE_SYNC, OLD, 1, Duration::ZERO);
    assert!(!bench.stream.is_stable());
    let mut broken = Bench { stream: bench.stream, now: bench.now };
    broken.acknowledge(4, 100, stable_how::UNSTABLE, OLD, 1, Duration::ZERO);
    assert_eq!(broken.reason(), "there is no COMMIT, and WRITE makes nothing stable");
}

#[test]
fn writes_are_stable_once_the_verifier_has_changed_twice() {
    let mut bench = Bench::new(|_| {});
    bench.write(0, 300);
    for verifier in 1..=3 {
        let (part, stable) = bench.next_write();
        assert_eq!(stable, stable_how::UNSTABLE, "verifier {verifier}");
        bench.written(part, 100, writeverf3([verifier; 8]));
    }
    assert_eq!(bench.next_write().1, stable_how::FILE_SYNC);
}

#[test]
fn a_server_that_gets_nowhere_is_given_up() {
    let mut bench = Bench::new(|_| {});
    bench.write(0, 100);
    let (part, _) = bench.next_write();
    bench.written(part, 101, OLD);
    assert_eq!(bench.reason(), "WRITE claims more bytes than it was given");

    let mut bench = Bench::new(|_| {});
    bench.write(0, 900);
    for accepted in [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0] {
        bench.stream.flush();
        let (part, _) = bench.next_write();
        bench.written(part, accepted, OLD);
        assert_eq!(bench.stream.check(), Ok(()));
    }
    let (part, _) = bench.next_write();
    bench.written(part, 0, OLD);
    assert_eq!(bench.reason(), "WRITE accepts no bytes");

    let mut bench = Bench::new(|_| {});
    bench.write(0, 100);
    for life in 0..10_000_u64 {
        bench.stream.flush();
        let Some(call) = bench.next() else { break };
        let verifier = writeverf3(life.to_be_bytes());
        match call.action {
            StreamAction::Commit => bench.stream.handle_commit(call.part, verifier),
            _ => bench.written(call.part, 100, verifier),
        }
    }
    assert!(bench.reason().starts_with("its write verifier changes all the time"));
}

#[test]
fn a_server_that_reads_nothing_is_given_up() {
    let mut bench = Bench::new(|tuning| tuning.reads = 1);
    for end in [true, false] {
        for _ in 0..8 {
            assert_eq!(bench.read(0), Ok(Available::Wait));
            let part = bench.next().unwrap().part;
            bench.stream.handle_read(part, Bytes::new(), false);
        }
        // Data makes up for it.
        assert_eq!(bench.read(0), Ok(Available::Wait));
        let part = bench.next().unwrap().part;
        bench.stream.handle_read(part, Bytes::from_static(&[7; 10]), end);
        bench.stream.seek();
    }
    for _ in 0..9 {
        assert_eq!(bench.read(0), Ok(Available::Wait));
        let part = bench.next().unwrap().part;
        bench.stream.handle_read(part, Bytes::new(), false);
    }
    assert!(bench.read(0).is_err());
    assert_eq!(bench.reason(), "READ returns neither data nor the end of the file");

    for (length, fits) in [(100, true), (101, false)] {
        let mut bench = Bench::new(|_| {});
        assert_eq!(bench.read(0), Ok(Available::Wait));
        let part = bench.next().unwrap().part;
        bench.stream.handle_read(part, vec![7; length].into(), false);
        assert_eq!(bench.read(0).is_ok(), fits);
    }
}

#[test]
fn a_reader_gets_much_ahead_at_first_and_little_after_a_seek() {
    let mut bench = Bench::new(|tuning| {
        (tuning.read_ahead_bytes, tuning.read_ahead_after_seek_bytes) = (1000, 250);
    });
    assert_eq!(bench.read(0), Ok(Available::Wait));
    let calls = bench.calls();
    assert_eq!(calls.len(), 10);
    assert_eq!(calls[9], (9, 900, 100));
    bench.stream.seek();
    bench.stream.cancel_unwanted();
    assert!((0..10).all(|part| !bench.stream.is_in_flight(part)));
    assert_eq!(bench.next(), None, "nobody reads there yet");
    assert_eq!(bench.read(5000), Ok(Available::Wait));
    assert_eq!(bench.calls(), [(10, 5000, 100), (11, 5100, 100), (12, 5200, 100)]);
    bench.stream.handle_read(10, vec![7; 100].into(), false);
    assert_eq!(bench.read(5095), Ok(Available::Bytes(5)));
    assert_eq!(bench.calls(), [(13, 5300, 100)], "within 250 bytes of 5100");
    assert_eq!(bench.read(5100), Ok(Available::Wait));
    assert_eq!(bench.calls(), [(14, 5400, 100), (15, 5500, 100)], "within 500 bytes of 5100");
    bench.stream.handle_read(11, vec![7; 100].into(), false);
    bench.stream.handle_read(12, vec![7; 40].into(), false);
    assert_eq!(bench.read(5200), Ok(Available::Bytes(10)));
    let more = bench.calls();
    assert_eq!(more[0], (16, 5240, 60), "a short READ is made up for");
    assert_eq!((more.len(), more[7]), (8, (23, 6200, 100)), "within 1000 bytes of 5210");
    bench.write(5210, 10);
    assert_eq!(bench.read(5230), Ok(Available::Bytes(10)));
    bench.write(0, 1);
    bench.stream.handle_read(16, vec![7; 50].into(), false);
    bench.stream.flush();
    let writes = bench.calls();
    assert_eq!(writes.len(), 2, "a writer wants nothing read: {writes:?}");
}

#[test]
fn what_is_read_ahead_is_bounded() {
    let mut bench = Bench::new(|tuning| tuning.reads = 3);
    assert_eq!(bench.read(0), Ok(Available::Wait));
    assert_eq!(bench.calls().len(), 3);
    let mut bench = Bench::new(|tuning| tuning.read_ahead_chunks = 4);
    assert_eq!(bench.read(0), Ok(Available::Wait));
    assert_eq!(bench.calls().len(), 4);
    bench.stream.handle_read(3, vec![7; 100].into(), false);
    assert_eq!(bench.next(), None);
    // Dirty pages need not be read.
    let mut bench = Bench::new(|tuning| tuning.read_ahead_bytes = 300);
    bench.write(0, 120);
    bench.write(250, 100);
    assert_eq!(bench.read(110), Ok(Available::Bytes(10)));
    bench.stream.handle_failure(0, TransferError::SourceShrank { expected: 0, found: 0 });
    let reads: Vec<_> = bench.calls().into_iter().filter(|&(_, offset, _)| offset % 100 == 20).collect();
    assert_eq!(
        reads.iter().map(|&(_, offset, count)| (offset, count)).collect::<Vec<_>>(),
        [(120, 100), (220, 100)]
    );
}

#[test]
fn the_end_of_a_file_is_looked_for_again() {
    let mut bench = Bench::new(|tuning| tuning.reads = 1);
    assert_eq!(bench.read(0), Ok(Available::Wait));
    bench.next().unwrap();
    bench.stream.handle_read(0, vec![7; 5].into(), true);
    assert_eq!(bench.read(0), Ok(Available::Bytes(5)));
    assert_eq!(bench.next(), None, "there is nothing behind the end");
    assert_eq!(bench.read(5), Ok(Available::End));
    assert_eq!(bench.next(), None, "nobody waits");
    assert_eq!(bench.read(5), Ok(Available::Wait));
    assert_eq!(bench.calls(), [(1, 5, 100)]);
    bench.stream.handle_read(1, vec![7; 3].into(), true);
    assert_eq!(bench.read(5), Ok(Available::Bytes(3)));
    assert_eq!(bench.read(u64::MAX), Ok(Available::End));
}

#[test]
fn between_the_end_of_the_servers_file_and_a_dirty_page_is_a_hole() {
    let mut bench = Bench::new(|tuning| tuning.reads = 1);
    bench.write(50, 10);
    assert_eq!(bench.read(0), Ok(Available::Wait));
    assert_eq!(bench.calls(), [(0, 0, 100)]);
    bench.stream.handle_read(0, vec![8; 5].into(), true);
    let mut file = [9; 70];
    for (offset, available) in [
        (0, Available::Bytes(5)),
        (5, Available::Bytes(45)),
        (50, Available::Bytes(10)),
        (60, Available::End),
    ] {
        assert_eq!(bench.stream.read(offset, &mut file[offset as usize..]), Ok(available));
    }
    assert_eq!(file[..60], [[8; 5].as_slice(), &[0; 45], &[7; 10]].concat());
}

#[test]
fn calls_in_flight_are_cancelled_when_their_results_are_not_wanted() {
    let mut bench = Bench::new(|tuning| tuning.reads = 1);
    bench.write(0, 150);
    bench.stream.flush();
    assert_eq!(bench.calls(), [(0, 0, 100), (1, 100, 50)]);
    bench.written(0, 100, OLD);
    bench.written(1, 50, OLD);
    assert_eq!(bench.commit(), 2);
    bench.write(1000, 200);
    assert_eq!(bench.calls(), [(3, 1000, 100), (4, 1100, 100)]);
    assert_eq!(bench.read(5000), Ok(Available::Wait));
    assert_eq!(bench.calls(), [(5, 5000, 100)]);
    let in_flight = |bench: &mut Bench| {
        bench.stream.cancel_unwanted();
        (0..7).filter(|&part| bench.stream.is_in_flight(part)).collect::<Vec<_>>()
    };
    assert_eq!(in_flight(&mut bench), [2, 3, 4, 5]);
    bench.stream.seek();
    assert_eq!(in_flight(&mut bench), [2, 3, 4], "a seek leaves WRITE and COMMIT");
    assert_eq!(bench.read(6000), Ok(Available::Wait));
    assert_eq!(bench.calls(), [(6, 6000, 100)]);
    bench.stream.handle_failure(4, TransferError::SourceShrank { expected: 0, found: 0 });
    assert_eq!(in_flight(&mut bench), [], "an error leaves nothing");
}

#[test]
fn a_read_that_failed_ahead_is_told_to_who_gets_there() {
    let mut bench = Bench::new(|tuning| tuning.read_ahead_bytes = 200);
    let error = TransferError::SourceShrank { expected: 1, found: 2 };
    assert_eq!(bench.read(0), Ok(Available::Wait));
    assert_eq!(bench.calls().len(), 2);
    bench.stream.handle_failure(1, error);
    bench.stream.handle_read(0, vec![7; 100].into(), false);
    assert_eq!(bench.read(90), Ok(Available::Bytes(10)));
    assert_eq!(bench.next(), None, "what is behind it is not worth reading");
    assert_eq!(bench.stream.check(), Ok(()));
    bench.stream.seek();
    assert_eq!(bench.read(100), Ok(Available::Wait));
    let part = bench.next().unwrap().part;
    bench.stream.handle_failure(part, error);
    bench.stream.handle_failure(77, error);
    assert_eq!(bench.stream.check(), Ok(()));
    assert_eq!(bench.read(100), Err(error));
    assert_eq!((bench.stream.check(), bench.stream.write(0, &[7])), (Err(error), Err(error)));
    bench.stream.cancel_unwanted();
    assert!(bench.stream.in_flight.is_empty());
}

#[test]
fn a_read_that_nobody_waits_for_any_more_tells_nothing() {
    let mut bench = Bench::new(|tuning| tuning.read_ahead_bytes = 100);
    assert_eq!(bench.read(0), Ok(Available::Wait));
    assert_eq!(bench.calls(), [(0, 0, 100)]);
    bench.stream.seek();
    assert_eq!(bench.read(0), Ok(Available::Wait));
    assert_eq!(bench.calls(), [(1, 0, 100)]);
    bench.stream.handle_failure(0, TransferError::SourceShrank { expected: 0, found: 0 });
    assert_eq!(bench.read(0), Ok(Available::Wait));
    bench.stream.seek();
    assert_eq!(bench.read(0), Ok(Available::Wait));
    assert_eq!(bench.calls(), [(2, 0, 100)]);
    bench.stream.handle_read(1, vec![7; 100].into(), false);
    assert_eq!(bench.read(0), Ok(Available::Wait));
    bench.stream.handle_read(2, vec![7; 100].into(), false);
    assert_eq!(bench.read(0), Ok(Available::Bytes(10)));
}

#[test]
fn what_becomes_stable_elsewhere_outdates_only_where_the_file_ends() {
    let mut bench = Bench::new(|tuning| tuning.read_ahead_bytes = 200);
    assert_eq!(bench.read(1000), Ok(Available::Wait));
    assert_eq!(bench.calls(), [(0, 1000, 100), (1, 1100, 100)]);
    bench.stream.handle_read(0, vec![7; 100].into(), false);
    bench.stream.handle_read(1, vec![7; 40].into(), true);
    bench.flush_block(900, 1, Duration::ZERO);
    for at in [1000, 1090, 1100, 1130] {
        assert_eq!(bench.read(at), Ok(Available::Bytes(10)));
        assert_eq!(bench.next(), None, "nothing is read again before {at}");
    }
    bench.flush_block(1200, 1, Duration::ZERO);
    assert_eq!(bench.read(1130), Ok(Available::Bytes(10)));
    assert_eq!(bench.read(1140), Ok(Available::Wait), "it ends later now");
}

#[test]
fn the_first_error_stays() {
    let errors = [1, 2].map(|found| TransferError::SourceShrank { expected: 0, found });
    let mut bench = Bench::new(|_| {});
    bench.write(0, 200);
    assert_eq!(bench.calls().len(), 2);
    bench.stream.handle_failure(0, errors[0]);
    bench.stream.handle_failure(1, errors[1]);
    assert_eq!(bench.stream.check(), Err(errors[0]));
    assert!(!bench.stream.is_stable() && bench.next().is_none());
}

#[test]
fn the_tuning_is_as_documented() {
    let tuning = StreamTuning::default();
    assert_eq!((tuning.dirty_bytes, tuning.commit_bytes, tuning.fragments), (8_388_608, 4_194_304, 1024));
    assert_eq!((tuning.writes, tuning.write_bytes, tuning.reads), (16, 131_072, 32));
    assert_eq!((tuning.read_ahead_bytes, tuning.read_ahead_after_seek_bytes), (2_097_152, 65_536));
    assert_eq!((tuning.read_ahead_chunks, tuning.empty_reads, tuning.empty_writes), (2048, 8, 8));
}
