use nfs_wire::{
    Procedure,
    rpc::{ReplyHeader, Xid},
};

use super::*;
use crate::{
    attr::SetAttributes,
    config::RetryPolicy,
    engine::{BlockRange, Carrier, Tuning, WindowLimits},
    transfer::{Placement, RangeSet, UploadSpec},
};

const SECOND: Duration = Duration::from_secs(1);

pub(super) fn server() -> SocketAddr {
    "192.0.2.1:2049".parse().unwrap()
}

pub(super) struct Bench {
    pub(super) session: Session,
    pub(super) now: Instant,
    pub(super) sent: VecDeque<Vec<u8>>,
}

impl Bench {
    pub(super) fn new(change: impl FnOnce(&mut SessionConfig)) -> Self {
        #[expect(clippy::disallowed_methods, reason = "an arbitrary epoch for virtual time")]
        let now = Instant::now();
        let window = WindowLimits { calls: 4, read_bytes: 1 << 20, write_bytes: 1 << 20 };
        let mut config = SessionConfig {
            engine: EngineConfig {
                tuning: Tuning::default(),
                carrier: Carrier::Datagrams,
                retry: RetryPolicy::hybrid(),
                window,
                blocks: None,
                prior: None,
                credential: vec![0; 8],
            },
            limits: Limits { read_block: 1000, write_block: 1000, ..Limits::default() },
            measure_writes: false,
            stall_timeout: None,
            rate_limit: None,
        };
        change(&mut config);
        Self { session: Session::new(config, server(), 1, now), now, sent: VecDeque::new() }
    }

    fn download(&mut self, size: u64) -> TransferId {
        let file = nfs_wire::FileHandle::try_from(&[1; 8][..]).unwrap();
        self.session.start(self.now, Transfer::Download(Download::new(&file, size)))
    }

    /// Starts an upload without bytes, which sets a mode.
    fn upload(&mut self, placement: Placement) -> TransferId {
        let directory = nfs_wire::FileHandle::try_from(&[1; 8][..]).unwrap();
        let attributes = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
        let (name, made, size, mode) = (b"name".to_vec(), None, 0, 0o600);
        let spec =
            UploadSpec { directory, name, placement, made, size, holes: RangeSet::new(), mode, attributes };
        self.session.start(self.now, Transfer::Upload(Box::new(Upload::new(spec))))
    }

    /// Sends what there is to send; returns how many messages that were.
    pub(super) fn send(&mut self) -> usize {
        let before = self.sent.len();
        while let Some(transmit) = self.session.poll_transmit(self.now) {
            self.sent.push_back(transmit.head.to_vec());
        }
        self.sent.len() - before
    }

    /// Answers NULL calls and READs of up to `largest` bytes, 5 ms after they are sent, for so long; returns the bytes that were read, and the
    /// largest READ asked for.
    fn serve(&mut self, largest: u32, time: Duration) -> (u64, u32) {
        let end = self.now + time;
        let (mut read, mut asked) = (0, 0);
        while self.now < end {
            self.send();
            self.now += Duration::from_millis(5);
            for call in std::mem::take(&mut self.sent) {
                let word = |at: usize| u32::from_be_bytes(call[at..at + 4].try_into().unwrap());
                let mut reply = Vec::new();
                ReplyHeader { xid: Xid(word(0)), outcome: Ok(()) }.encode(&mut reply);
                if word(20) == Procedure::Read.number() {
                    let count = word(call.len() - 4);
                    asked = asked.max(count);
                    if count > largest {
                        continue;
                    }
                    for word in [0, 0, count, 0, count] {
                        reply.extend_from_slice(&word.to_be_bytes());
                    }
                    reply.resize(reply.len() + count as usize, 0);
                    read += u64::from(count);
                }
                let _ = self.session.handle_head(self.now, server(), &reply, true).unwrap();
                self.session.handle_payload_done(self.now);
            }
            self.session.handle_timeout(self.now);
        }
        (read, asked)
    }

    /// Answers the oldest READ with `count` bytes.
    fn answer(&mut self, count: u32) -> Result<Incoming, DecodeError> {
        let call = self.sent.pop_front().expect("a READ was sent");
        let mut reply = Vec::new();
        let xid = Xid(u32::from_be_bytes(call[..4].try_into().unwrap()));
        ReplyHeader { xid, outcome: Ok(()) }.encode(&mut reply);
        for word in [0, 0, count, 0, count] {
            reply.extend_from_slice(&word.to_be_bytes());
        }
        reply.resize(reply.len() + count as usize, 0);
        let incoming = self.session.handle_head(self.now, server(), &reply, true);
        self.session.handle_payload_done(self.now);
        incoming
    }

    /// Lets the next timer fire.
    fn tick(&mut self) {
        let due = self.session.poll_timeout().expect("a timer is set");
        assert!(due > self.now, "the session would spin");
        self.now = due;
        self.session.handle_timeout(due);
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.session.poll_event()).collect()
    }
}

#[test]
fn a_rate_limit_spreads_reads_over_time() {
    // 1000 bytes at 80 kbit/s: one READ every 100 ms.
    let mut bench = Bench::new(|config| config.rate_limit = Some(80_000));
    bench.download(50_000);
    let start = bench.now;
    for _ in 0..50 {
        while bench.send() == 0 {
            bench.tick();
        }
        bench.answer(1000).unwrap();
    }
    assert!(bench.events().iter().any(|event| matches!(event, Event::Finished(_))));
    let took = bench.now - start;
    assert!((4.8..5.0).contains(&took.as_secs_f64()), "50 blocks, 49 pauses: {took:?}");
}

#[test]
fn a_transfer_without_progress_stalls_and_leaves_nothing_behind() {
    let mut bench = Bench::new(|config| config.stall_timeout = Some(SECOND * 3));
    let transfer = bench.download(50_000);
    bench.send();
    bench.now += SECOND * 2;
    bench.session.handle_timeout(bench.now);
    bench.answer(1000).unwrap();
    let progress = bench.now;
    while bench.session.outstanding() > 0 {
        bench.tick();
        bench.send();
    }
    assert_eq!(bench.now, progress + SECOND * 3, "counted from the last bytes accepted");
    let events = bench.events();
    assert_eq!(events.last(), Some(&Event::Stalled(transfer, SECOND * 3)));
    assert_eq!(bench.session.poll_timeout(), None);
}

#[test]
fn calls_and_transfers_leave_each_other_room_however_many_there_are() {
    let mut bench = Bench::new(|config| config.engine.window.calls = u32::MAX);
    let mut next = 0;
    let mut submit = |bench: &mut Bench| {
        next += 1;
        bench.session.submit(bench.now, next, (Program::NFS, 0), None, |_| {})
    };
    let calls: Vec<CallId> = std::iter::from_fn(|| submit(&mut bench)).collect();
    assert_eq!(calls.len(), APPLICATION_CALLS);
    let transfers: Vec<_> = (0..5000).map(|_| bench.upload(Placement::Temporary(b".".to_vec()))).collect();
    assert_eq!(bench.send(), APPLICATION_CALLS + TRANSFER_CALLS);
    bench.session.cancel(bench.now, calls[0]);
    bench.session.cancel(bench.now, calls[0]);
    assert!(submit(&mut bench).is_some() && submit(&mut bench).is_none(), "one place was freed");
    bench.session.stop(bench.now, transfers[0]);
    assert_eq!(bench.send(), 2, "the call, and the next transfer");
}

#[test]
fn a_stopped_transfer_ignores_its_late_replies() {
    let mut bench = Bench::new(|_| {});
    let transfer = bench.download(50_000);
    assert_eq!(bench.send(), 4);
    bench.session.stop(bench.now, transfer);
    assert_eq!(bench.session.outstanding(), 0);
    assert_eq!(bench.answer(1000), Ok(Incoming::Done));
    assert_eq!(bench.events(), []);
}

#[test]
fn more_data_than_asked_for_ends_the_transfer() {
    let mut bench = Bench::new(|_| {});
    let transfer = bench.download(50_000);
    bench.send();
    assert_eq!(bench.answer(1001), Ok(Incoming::Done));
    let events = bench.events();
    let [Event::Failed(failed, TransferError::Protocol { .. })] = events[..] else { panic!("{events:?}") };
    assert_eq!(failed, transfer);
}

#[test]
fn transfers_take_turns() {
    let mut bench = Bench::new(|_| {});
    let (one, two) = (bench.download(4000), bench.download(4000));
    let mut finished = Vec::new();
    while finished.len() < 2 {
        bench.send();
        bench.answer(1000).unwrap();
        for event in bench.events() {
            match event {
                Event::Finished(transfer) => finished.push((transfer, bench.sent.len())),
                Event::Progress(..) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    let left_when_first_finished = finished[0].1;
    assert!(left_when_first_finished <= 2, "neither waited for the other");
    assert_eq!([finished[0].0, finished[1].0], [one, two]);
}

#[test]
fn reads_without_data_and_without_end_are_given_up() {
    let mut bench = Bench::new(|_| {});
    bench.download(50_000);
    for _ in 0..20 {
        bench.send();
        if bench.answer(0).is_ok_and(|incoming| incoming == Incoming::Done) {
            break;
        }
    }
    let events = bench.events();
    assert!(matches!(events[..], [Event::Failed(_, TransferError::NoProgress { .. })]), "{events:?}");
}

#[test]
fn a_mount_that_a_fade_takes_is_asked_again_as_soon_as_one_reply_shows_its_end() {
    let mut bench = Bench::new(|config| config.engine.retry = RetryPolicy::Adaptive);
    let start = bench.now;
    for procedure in [nfs_wire::mount::procedure::EXPORT, nfs_wire::mount::procedure::MNT] {
        bench.session.submit(bench.now, 1, (Program::MOUNT, procedure), None, |_| {}).unwrap();
    }
    assert_eq!(bench.send(), 2);
    bench.sent.clear();
    while bench.send() == 0 {
        bench.tick();
    }
    let again = bench.sent.pop_front().unwrap();
    let mut reply = Vec::new();
    ReplyHeader { xid: Xid(u32::from_be_bytes(again[..4].try_into().unwrap())), outcome: Ok(()) }
        .encode(&mut reply);
    bench.now += Duration::from_millis(5);
    bench.session.handle_head(bench.now, server(), &reply, true).unwrap();
    while bench.send() == 0 {
        bench.tick();
    }
    let took = bench.now - start;
    let procedure = |head: &[u8]| u32::from_be_bytes(head[20..24].try_into().unwrap());
    let sent_again = [procedure(&again), procedure(&bench.sent.pop_front().unwrap())];
    assert_eq!(sent_again, [nfs_wire::mount::procedure::EXPORT, nfs_wire::mount::procedure::MNT]);
    assert!(took < Duration::from_millis(150), "{took:?}");
}

/// A session that chooses its blocks itself.
fn adaptive() -> Bench {
    Bench::new(|config| {
        config.engine.retry = RetryPolicy::Adaptive;
        config.engine.blocks = Some(BlockRange { headers: 220, largest: 32 << 10 });
        config.engine.window = WindowLimits { calls: 64, read_bytes: 1 << 20, write_bytes: 1 << 20 };
        config.limits = Limits { read_block: 32 << 10, write_block: 32 << 10, ..Limits::default() };
    })
}

#[test]
fn large_blocks_that_stop_arriving_are_resegmented() {
    let mut bench = adaptive();
    bench.download(1 << 32);
    let (_, asked) = bench.serve(u32::MAX, SECOND * 3);
    assert_eq!(asked, 32 << 10);
    // As where a receiver's memory for fragments is full.
    bench.serve(1280, SECOND);
    let (read, _) = bench.serve(1280, SECOND);
    assert!(read > 1280 * 500, "{read} bytes in a second");
    let withdrawn = bench.session.stats().withdrawn;
    assert!(withdrawn.resegment > 0 && withdrawn.hand_over + withdrawn.too_large == 0, "{withdrawn:?}");
    // And when it is not any more, a trial finds that out.
    bench.serve(u32::MAX, SECOND * 33);
    let (_, asked) = bench.serve(u32::MAX, SECOND);
    assert_eq!(asked, 32 << 10);
}

#[test]
fn where_no_fragment_passes_few_are_asked_for() {
    let mut bench = adaptive();
    bench.download(1 << 32);
    bench.serve(1280, SECOND);
    let (mut read, mut vain) = (0, 0);
    for _ in 0..100 {
        let (bytes, asked) = bench.serve(1280, SECOND / 10);
        read += bytes;
        vain += u32::from(asked > 1280);
    }
    assert!(read > 1280 * 5000, "{read} bytes in ten seconds");
    assert!(vain <= 4, "after 1, 2, 4 and 8 s, not {vain} times");
}

#[test]
fn an_upload_sends_create_twice_into_a_silence_and_setattr_once() {
    let file = nfs_wire::FileHandle::try_from(&[1; 8][..]).unwrap();
    let temporary = Placement::Temporary(b".name".to_vec());
    let cases =
        [(temporary, Procedure::Create, 2..=9), (Placement::Existing(file), Procedure::Setattr, 1..=1)];
    for (placement, procedure, expected) in cases {
        let mut bench = adaptive();
        bench.upload(placement);
        let end = bench.now + SECOND;
        bench.send();
        while bench.session.poll_timeout().is_some_and(|due| due < end) {
            bench.tick();
            bench.send();
        }
        let is_it = |call: &&Vec<u8>| call[20..24] == procedure.number().to_be_bytes();
        let (copies, all) = (bench.sent.iter().filter(is_it).count(), bench.sent.len());
        assert!(expected.contains(&copies) && all > copies, "{procedure}: {copies} of {all} calls");
    }
}

#[test]
fn a_write_leaves_with_the_bytes_that_it_waited_for_and_keeps_them() {
    let mut bench = Bench::new(|_| {});
    let file = nfs_wire::FileHandle::try_from(&[1; 8][..]).unwrap();
    let (name, placement, made) = (b"name".to_vec(), Placement::Existing(file), None);
    let attributes = SetAttributes::default();
    let spec = UploadSpec {
        directory: file,
        name,
        placement,
        made,
        size: 1501,
        holes: RangeSet::new(),
        mode: 0o600,
        attributes,
    };
    let upload = Transfer::Upload(Box::new(Upload::new(spec)));
    let id = bench.session.start_loading(bench.now, upload);
    assert_eq!((bench.send(), bench.session.outstanding()), (0, 0), "its bytes are not there");
    assert_eq!(bench.events(), [Event::Load(id, Payload { offset: 0, length: 1000 })]);
    bench.session.handle_loaded(bench.now, id, &[7; 1000]);
    bench.session.handle_loaded(bench.now, id, &[8; 1000]);
    assert_eq!(bench.send(), 1, "nobody asked for the others");
    bench.tick();
    assert_eq!(bench.send(), 1, "it is sent again without being loaded again");
    assert!(bench.sent.iter().all(|call| call.ends_with(&[7; 1000])));
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
    assert!(other.sent[1].ends_with(&[&[9; 501][..], &[0; 3]].concat()), "padded to words");
    other.session.stop(other.now, id);
    assert_eq!(other.session.outstanding(), 0);
}
